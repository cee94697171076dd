"""How much do all branches of a deep Transformer add to its input, before any training?"""

from __future__ import annotations

from pydantic import PositiveInt
from torch import Tensor, cosine_similarity, no_grad

from normlab.book.experiments.deep_norm.groups import Group, Size, make_batches, make_model
from normlab.book.experiments.sequence_training import token_variance
from normlab.book.experiments.sweep import Seed, experiment


@experiment(
    group=("post_norm", "pre_norm", "alpha only", "beta only", "deep_norm"),
    depth=(10, 50, 200),
    seed=range(3),
)
def branch_sizes(
    group: Group, depth: PositiveInt, seed: Seed, *, size: Size = "large"
) -> dict[str, float]:
    """Send one batch of reversal through a Transformer at its initial weights, in float64.

    Args:
        group: placement, or one of DeepNorm's numbers.
        depth: number of layers, of two blocks each.
        size: of the network; the "large" one is that of `deep_training`.

    Returns:
        branch: size of a branch over that of its skip; root of the mean square over all blocks.
        pile: sum of these squares over all blocks.
        kept: share of the last block's output that lies along the input of the first block.
        differ: share of the last block's output that differs between tokens.
    """
    model = make_model(group, size, layers=depth, seed=seed).double()
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
        "branch": (pile / len(squares)) ** 0.5,
        "pile": pile,
        "kept": along**2,
        "differ": token_variance(x),
    }
