"""A batch norm in evaluation is a fixed affine map: fold it into the layer before it."""

from __future__ import annotations

import torch
from torch import nn

from normlab.book.experiments.data.digits import load_digits_split
from normlab.book.experiments.networks.classifiers import make_mlp
from normlab.book.experiments.sweep import Seed, Steps, experiment
from normlab.book.experiments.training import fit
from normlab.layers import BatchNorm1d


@torch.no_grad()
def fold_batch_norm(linear: nn.Linear, norm: BatchNorm1d) -> nn.Linear:
    r"""Return one linear layer that does what `linear` followed by `norm` does in evaluation.

    .. math:: W'_{c:} = \frac{w_c}{\sqrt{r_c + \epsilon}} W_{c:}, \qquad
              \beta'_c = \frac{w_c}{\sqrt{r_c + \epsilon}} (\beta_c - m_c) + b_c

    with running mean m, running variance r, weight w and bias b of the norm, whose mode does not
    matter, and bias β of the linear layer, 0 where it has none.

    Returns:
        A new layer; the two given ones stay as they are.

    Raises:
        ValueError: the norm keeps no running statistics, so it has no fixed map.

    Source:
        ioffe2015batch, Algorithm 2, step 11.
    """
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("norm: got track_running_stats=False; expected running statistics")
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = norm.weight * scale
    bias = -norm.running_mean if linear.bias is None else linear.bias - norm.running_mean
    bias = scale * bias
    if norm.bias is not None:
        bias = bias + norm.bias
    folded = nn.Linear(
        linear.in_features,
        linear.out_features,
        device=linear.weight.device,
        dtype=linear.weight.dtype,
    )
    folded.weight.copy_(scale[:, None] * linear.weight)
    folded.bias.copy_(bias)
    return folded


def fold_network(model: nn.Sequential) -> nn.Sequential:
    """Fold every batch norm that follows a linear layer; the rest is shared, not copied."""
    layers: list[nn.Module] = []
    for module in model:
        if isinstance(module, BatchNorm1d) and layers and isinstance(layers[-1], nn.Linear):
            layers[-1] = fold_batch_norm(layers[-1], module)
        else:
            layers.append(module)
    return nn.Sequential(*layers)


@experiment(seed=(0,))
def folding(seed: Seed, *, steps: Steps = 60) -> dict[str, float]:
    """Train a network, fold it and compare both on the 500 test digits.

    A trained batch norm MLP and its folded copy.

    Returns:
        modules_before: modules of the network.
        modules_after: modules of the folded one.
        difference32: largest difference of a logit in float32, over the largest logit.
        difference64: the same in float64.
        agreements: test digits on which both predict the same class (float32).
        test_size: test digits.
    """
    data = load_digits_split(seed)
    model = make_mlp((64, 128, 128, 10), "batch_norm", seed=seed)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    fit(model, adam, data.batches(128, seed), steps)
    model.eval()
    differences, agreements = [], []
    for dtype in (torch.float32, torch.float64):
        model.to(dtype)
        x = data.x_test.to(dtype)
        with torch.no_grad():
            logits, folded_logits = model(x), fold_network(model)(x)
        difference = (logits - folded_logits).abs().max() / logits.abs().max()
        differences.append(difference.item())
        agreements.append(int((logits.argmax(-1) == folded_logits.argmax(-1)).sum()))
    return {
        "modules_before": len(model),
        "modules_after": len(fold_network(model)),
        "difference32": differences[0],
        "difference64": differences[1],
        "agreements": agreements[0],
        "test_size": len(data.y_test),
    }
