"""Four sentences of different lengths: whose numbers does each norm mix?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from normlab.book.experiments.sweep import experiment
from normlab.layers import batch_norm, layer_norm

Norm = Literal[
    "batch norm per position",
    "batch norm pooled",
    "layer norm per token",
    "layer norm per sentence",
]

# A token is a character. "I study computer science at Cheng Kung University", "he works at a
# company in London", "Interstellar is shown again", and a statement about batch norm.
SENTENCES = (
    "我是成大資工系的學生",
    "他在英國倫敦的公司上班",
    "星際效應要重映了",
    "批次正規化是一種防止梯度爆炸的方法",
)
REPLACED = (1, 0)  # sentence, and place of the token in it


def embed(sentences: tuple[str, ...], features: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Give each distinct token a random vector.

    Shape:
        returns (N, T, D) with zeros behind the end of a sentence, and (N, T), True at tokens.
    """
    tokens = sorted(set("".join(sentences)))
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(len(tokens), features, generator=generator, dtype=torch.float64)
    rows = [table[[tokens.index(token) for token in s]] for s in sentences]
    present = [torch.ones(len(row), dtype=torch.bool) for row in rows]
    return pad_sequence(rows, batch_first=True), pad_sequence(present, batch_first=True)


def _per_position(x: Tensor) -> Tensor:
    steps = [batch_norm(x[:, t], None, None, training=True) for t in range(x.shape[1])]
    return torch.stack(steps, 1)


def _pooled(x: Tensor) -> Tensor:
    y = batch_norm(x.transpose(1, 2), None, None, training=True)  # (N, C, L), as torch expects
    return y.transpose(1, 2)


NORMS: dict[Norm, Callable[[Tensor], Tensor]] = {
    "batch norm per position": _per_position,
    "batch norm pooled": _pooled,
    "layer norm per token": lambda x: layer_norm(x, x.shape[-1:]),
    "layer norm per sentence": lambda x: layer_norm(x, x.shape[-2:]),
}


@experiment(norm=get_args(Norm))
def positions(norm: Norm) -> dict[str, Any]:
    """Replace one token of four sentences by a new vector and look at every other output.

    A sentence is a row of random vectors, with zeros behind its end.

    Args:
        norm: over which values the moments are taken.

    Returns:
        changed: for each sentence, whether the output of each token changed; the replaced token
            itself and the places behind a sentence's end are left out (False).
        others: tokens other than the replaced one whose output changed.
    """
    x, present = embed(SENTENCES, 16, seed=0)
    generator = torch.Generator().manual_seed(1)
    other = x.clone()
    other[REPLACED] = torch.randn(16, generator=generator, dtype=torch.float64)
    changed = ((NORMS[norm](other) - NORMS[norm](x)).abs().amax(-1) > 1e-9) & present
    changed[REPLACED] = False
    return {"changed": changed.tolist(), "others": int(changed.sum())}
