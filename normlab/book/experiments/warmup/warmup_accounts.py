"""Five accounts of why warmup helps: what each says should be large at the start, measured."""

from __future__ import annotations

import copy
import itertools
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from normlab.book.experiments.networks.transformer import Placement, Transformer
from normlab.book.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    relative_changes,
    reversal_network,
    sequence_loss,
)
from normlab.book.experiments.sweep import Seed, experiment

LR = 1e-2  # of the first update
NOISE = 0.01  # size of a random change of every matrix, relative to its entries


def adam_stability_limit(beta1: float = 0.9) -> float:
    r"""Rate times curvature above which Adam with a settled second moment diverges.

    .. math:: \eta \lambda_{\max}\!\left(P^{-1} H\right) < \frac{2 (1 + \beta_1)}{1 - \beta_1},
              \qquad P = \operatorname{diag}(\sqrt{v})

    Source:
        cohen2022adaptive, Section 2; the limit of gradient descent with an averaged gradient
        on a quadratic.

    Example:
        >>> round(adam_stability_limit(), 6)
        38.0
    """
    return 2 * (1 + beta1) / (1 - beta1)


def _gradients(model: Transformer, batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    loss, _ = sequence_loss(model, batch)
    return list(torch.autograd.grad(loss, list(model.parameters())))


def sharpness(
    model: Transformer, batch: tuple[Tensor, Tensor], roots: list[Tensor], iterations: int
) -> float:
    """Largest curvature of the loss as Adam sees it, by Lanczos' method.

    That is the largest eigenvalue of P^-1/2 H P^-1/2, with the Hessian H and P = diag(roots).

    Args:
        iterations: products with the Hessian; each costs about three backward passes.
    """
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no second derivative
        loss, _ = sequence_loss(model, batch)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        flat_gradient = torch.cat([g.flatten() for g in gradients])
        scale = torch.cat([r.flatten() for r in roots]).rsqrt()
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(scale.shape, generator=generator, dtype=scale.dtype)
        basis = [v / v.norm()]
        diagonal, beside = [], []
        for _ in range(iterations):
            product = torch.autograd.grad(
                flat_gradient, parameters, grad_outputs=scale * basis[-1], retain_graph=True
            )
            w = scale * torch.cat([p.flatten() for p in product])
            diagonal.append(torch.dot(w, basis[-1]))
            for _ in range(2):
                for q in basis:
                    w = w - torch.dot(w, q) * q
            beside.append(w.norm())
            basis.append(w / beside[-1])
    t = torch.diag(torch.stack(diagonal))
    off = torch.stack(beside[:-1])
    t = t + torch.diag(off, 1) + torch.diag(off, -1)
    return torch.linalg.eigvalsh(t)[-1].item()


def amplification(model: Transformer, batch: tuple[Tensor, Tensor], noise: float) -> float:
    """Relative change of the features when all matrices change by `noise`, over `noise`.

    Args:
        noise: size of the change of an entry, relative to the root mean square of its matrix.
    """
    generator = torch.Generator().manual_seed(0)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for w in other.parameters():
            if w.dim() == 2:
                draw = torch.randn(w.shape, generator=generator, dtype=w.dtype)
                w.add_(draw * noise * w.square().mean().sqrt())
        before, after = model.features(batch[0]), other.features(batch[0])
    return relative_changes([before], [after])[0] / noise


def first_adam_step(gradient: Tensor, *, lr: float, eps: float = 1e-8) -> Tensor:
    """What the first update of torch's Adam adds to weights with this gradient.

    Source:
        kingma2015adam, Algorithm 1.
    """
    w = torch.zeros_like(gradient, requires_grad=True)
    w.grad = gradient.detach().clone()
    torch.optim.Adam([w], lr=lr, eps=eps).step()
    return w.detach()


def _first_update(model: Transformer, batch: tuple[Tensor, Tensor], lr: float) -> float:
    other = copy.deepcopy(model)
    optimizer = make_optimizer(other, lr=lr)
    sequence_loss(other, batch)[0].backward()
    optimizer.step()
    with torch.no_grad():
        return relative_changes([model.features(batch[0])], [other.features(batch[0])])[0]


@experiment(placement=("post_norm", "pre_norm", "deep_norm"), layers=(6,), seed=range(5))
def warmup_accounts(
    placement: Placement,
    layers: PositiveInt,
    seed: Seed,
    *,
    batches: Annotated[int, Field(ge=2)] = 25,
    iterations: PositiveInt = 15,
) -> dict[str, Any]:
    """Measure a Transformer at its initial weights, on reversal, in float64.

    Args:
        batches: from which Adam's second moment is estimated.

    Returns:
        gradient_ratio: gradient at the last feed-forward matrix of the last layer over that of
            the first layer.
        top_gradient: the former.
        amplification: relative change of the features when every matrix changes by 0.01 of its
            entries, over the relative size of that noise.
        first_update: relative change of the features in the first update of Adam at the rate 0.01.
        rate_spread: how far the rates that Adam gives the parameters lie from those of a
            settled second moment when it has seen one batch: standard deviation over the
            parameters of the logarithm of their ratio.
        sharpness: largest curvature as Adam sees it, times the rate, over the limit of
            :func:`adam_stability_limit`; above 1 the quadratic model of the loss diverges.
    """
    model, endless = reversal_network(placement, layers=layers, seed=seed)
    model = model.double()
    drawn = list(itertools.islice(endless, batches))
    probe = drawn[0]
    per_layer = gradient_norms(model, probe)
    many = [torch.cat([g.flatten() for g in _gradients(model, batch)]) for batch in drawn]
    second_moment = torch.stack([g.square() for g in many]).mean(0)
    seen = many[0] != 0  # a unit may be off, a token absent, in one batch
    spread = (second_moment[seen].sqrt() / many[0][seen].abs()).log().var(correction=0).sqrt()
    roots = (second_moment.sqrt() + 1e-8).split([p.numel() for p in model.parameters()])
    largest = sharpness(model, probe, list(roots), iterations)
    return {
        "gradient_ratio": per_layer[-1] / per_layer[0],
        "top_gradient": per_layer[-1],
        "amplification": amplification(model, probe, NOISE),
        "first_update": _first_update(model, probe, LR),
        "rate_spread": spread.item(),
        "sharpness": LR * largest / adam_stability_limit(),
    }
