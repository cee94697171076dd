"""How far does the padding of a batch move what each norm says about the real tokens?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from normlab.book.experiments.sweep import Seed, experiment
from normlab.layers import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    masked_batch_norm,
    rms_norm,
)

Norm = Literal[
    "batch norm",
    "masked batch norm",
    "group norm",
    "instance norm",
    "layer norm, sentence",
    "layer norm, token",
    "RMS norm, token",
]
LENGTHS = (12, 9, 7, 4)  # of the sequences
MEAN = 2.0  # of the real values; each channel has a standard deviation of about 1
CHANNELS = 8
_EPS = 1e-12  # so that the padding is all that is seen


def make_batch(
    *, extra: int, seed: int, lengths: Sequence[int] = LENGTHS, mean: float = MEAN
) -> tuple[Tensor, Tensor]:
    """Padded batch (N, C, L) in float64 and its mask (N, L); real values do not depend on `extra`.

    `extra` positions of padding stand behind the longest sequence.
    """
    generator = torch.Generator().manual_seed(seed)
    total = max(lengths) + extra
    mask = torch.arange(total) < torch.tensor(lengths)[:, None]  # (N, L)
    real = torch.randn(sum(lengths), CHANNELS, generator=generator).double()
    x = torch.zeros(*mask.shape, CHANNELS, dtype=torch.float64)
    x[mask] = real + mean
    return x.movedim(-1, 1), mask


def apply_norm(norm: Norm, x: Tensor, mask: Tensor, *, groups: int) -> Tensor:
    """The norm on the padded batch as it stands; only the masked one sees the mask."""
    channels, tokens = x.shape[1], x.movedim(1, -1)
    whole = tuple(x.shape[1:])
    norms: dict[Norm, Callable[[], Tensor]] = {
        "batch norm": lambda: batch_norm(x, None, None, training=True, eps=_EPS),
        "masked batch norm": lambda: masked_batch_norm(
            x, mask, None, None, training=True, eps=_EPS
        ),
        "group norm": lambda: group_norm(x, groups, eps=_EPS),
        "instance norm": lambda: instance_norm(x, eps=_EPS),
        "layer norm, sentence": lambda: layer_norm(x, whole, eps=_EPS),
        "layer norm, token": lambda: layer_norm(tokens, (channels,), eps=_EPS).movedim(-1, 1),
        "RMS norm, token": lambda: rms_norm(tokens, (channels,), eps=_EPS).movedim(-1, 1),
    }
    return norms[norm]()


def _without_padding(norm: Norm, x: Tensor, mask: Tensor, *, groups: int) -> Tensor:
    """Statistics of real tokens alone: each sequence cut to its length, batch norm packed."""
    if norm in ("batch norm", "masked batch norm"):
        packed = x.movedim(1, -1)[mask]
        return batch_norm(packed, None, None, training=True, eps=_EPS)
    cut = [
        apply_norm(norm, x[i : i + 1, :, row], mask[i : i + 1, row], groups=groups)
        for i, row in enumerate(mask)
    ]
    return torch.cat([y[0].movedim(0, -1) for y in cut])


def predict_padded_moments(share: float, mean: float, var: float) -> tuple[float, float]:
    r"""Mean and variance when zeros are mixed in; q is the share of real values.

    .. math:: \mu' = q \mu, \qquad \sigma'^2 = q \sigma^2 + q (1 - q) \mu^2

    Example:
        >>> predict_padded_moments(0.5, 2.0, 1.0)
        (1.0, 1.5)
    """
    return share * mean, share * var + share * (1 - share) * mean * mean


def predict_moved(
    extras: Iterable[int], *, lengths: Sequence[int] = LENGTHS, mean: float = MEAN
) -> list[float]:
    r"""What batch norm's outcomes are expected to be, for real values of variance 1.

    .. math:: \sqrt{\left( \frac{1}{\sigma'} - 1 \right)^2
              + \left( \frac{\mu - \mu'}{\sigma'} \right)^2}
    """
    predicted = []
    for extra in extras:
        cells = len(lengths) * (max(lengths) + extra)
        padded, var = predict_padded_moments(sum(lengths) / cells, mean, 1.0)
        predicted.append(math.hypot(var**-0.5 - 1, (mean - padded) * var**-0.5))
    return predicted


@experiment(norm=get_args(Norm), seed=range(5), extra=(0, 4, 20, 100))
def padding(
    norm: Norm,
    seed: Seed,
    extra: NonNegativeInt,
) -> dict[str, float]:
    """Normalize sequences of different lengths, filled up with zeros behind their ends.

    Args:
        extra: positions of padding behind the longest.

    Returns:
        moved: rms over the real tokens of the change against statistics of real tokens alone;
            the outputs themselves have rms 1.
    """
    x, mask = make_batch(extra=extra, seed=seed)
    y = apply_norm(norm, x, mask, groups=2).movedim(1, -1)[mask]
    exact = _without_padding(norm, x, mask, groups=2)
    return {"moved": (y - exact).square().mean().sqrt().item()}
