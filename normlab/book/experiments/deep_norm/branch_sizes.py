"""How much do all branches of a deep Transformer add to its input, before any training?"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import PositiveInt
from torch import Tensor, cosine_similarity, nn, no_grad

from normlab.book.experiments.deep_norm.groups import Group, Size, make_batches, make_model
from normlab.book.experiments.networks.transformer import Transformer
from normlab.book.experiments.rounding import rounded
from normlab.book.experiments.sequence_training import token_variance
from normlab.book.experiments.sweep import Seed, experiment
from normlab.residual import LayerScale, deep_norm_init_

Start = Literal["GPT-2", "T-Fixup", "LayerScale"]  # how others begin a deep stack


def make_started(start: Start, size: Size, *, layers: int, seed: int) -> Transformer:
    """Build a stack as its authors begin it; all matrices by Xavier's rule before.

    Source:
        radford2019language, Section 2.3; huang2020improving, Section 3.2, an encoder;
        touvron2021going, Section 2, with its three values for three depths.
    """
    place: Group = "none" if start == "T-Fixup" else "pre_norm"
    model = make_model(place, size, layers=layers, seed=seed)
    if start == "T-Fixup":
        deep_norm_init_(model.blocks, 0.67 * layers**-0.25)
    elif start == "GPT-2":
        with no_grad():
            for w in (*model.matrices("attention_out"), *model.matrices("feed_forward_out")):
                w.div_((2 * layers) ** 0.5)
    else:
        init = 0.1 if layers <= 18 else 1e-5 if layers <= 24 else 1e-6
        for block in model.blocks:
            scale = LayerScale(model.tokens.embedding_dim, init)
            block.sublayer = nn.Sequential(block.sublayer, scale)
    return model


@experiment(
    group=("post_norm", "pre_norm", "alpha only", "beta only", "deep_norm", *get_args(Start)),
    depth=(10, 50, 200),
    seed=range(3),
)
def branch_sizes(
    group: Literal[Group, Start], depth: PositiveInt, seed: Seed, *, size: Size = "large"
) -> dict[str, float]:
    """Send one batch of reversal through a Transformer at its initial weights, in float64.

    Args:
        group: placement, one of DeepNorm's numbers, or another start.
        depth: number of layers, of two blocks each.
        size: of the network; the "large" one is that of `deep_training`.

    Returns:
        branch: size of a branch over that of its skip; root of the mean square over all blocks.
        pile: sum of these squares over all blocks.
        kept: share of the last block's output that lies along the input of the first block.
        differ: share of the last block's output that differs between tokens.
    """
    make: Any = make_started if group in get_args(Start) else make_model
    model = make(group, size, layers=depth, seed=seed).double()
    tokens, _ = next(make_batches(size, seed=seed))
    branches: list[Tensor] = []
    for block in model.blocks:
        block.sublayer.register_forward_hook(lambda _, given, branch: branches.append(branch))
    squares: list[float] = []
    with no_grad():
        x = first = model.input_norm(model.tokens(tokens) + model.positions.weight)
        for block in model.blocks:
            skip = getattr(block, "alpha", 1.0) * x
            x = block(x)
            squares.append((branches[-1].square().mean() / skip.square().mean()).item())
    along = cosine_similarity(first.flatten(), x.flatten(), dim=0).item()
    pile = sum(squares)
    return {
        "branch": rounded((pile / len(squares)) ** 0.5),
        "pile": rounded(pile),
        "kept": rounded(along**2),
        "differ": rounded(token_variance(x)),
    }
