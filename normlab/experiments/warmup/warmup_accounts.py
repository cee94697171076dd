"""Five accounts of why warmup helps: what each says should be large at the start, measured."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from normlab.experiments import sequence_training
from normlab.experiments.former_sweep import Sweep
from normlab.experiments.networks.transformer import Placement, Transformer
from normlab.experiments.sequence_training import (
    gradient_norms,
    make_optimizer,
    relative_changes,
    sequence_loss,
)
from normlab.experiments.settings import Count, Index, Positive, Several


@dataclass(frozen=True)
class Config:
    """Transformers at their initial weights, on reversal."""

    placements: tuple[Placement, ...] = ("post_norm", "pre_norm", "deep_norm")  #: of the norm
    layers: tuple[Count, ...] = (6,)  #: numbers of layers, L
    lr: Positive = 1e-2  #: of the first update
    noise: Positive = 0.01  #: size of a random change of every matrix, relative to its entries
    batches: Several = 25  #: from which Adam's second moment is estimated
    iterations: Index = 15  #: of Lanczos' method for the sharpness; 0 leaves it out
    seeds: tuple[Index, ...] = (0, 1, 2, 3, 4)  #: each gives weights and batches


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


def run_one(config: Config, placement: Placement, layers: int, seed: int) -> dict[str, Any]:
    """Measure one network before any training, in float64.

    Measures:
        gradient_ratio: gradient at the last feed-forward matrix of the last layer over that of
            the first layer.
        top_gradient: the former.
        amplification: relative change of the features when every matrix changes by noise,
            over the relative size of that noise.
        first_update: relative change of the features in the first full-size update of Adam.
        rate_spread: how far the rates that Adam gives the parameters lie from those of a
            settled second moment when it has seen one batch: standard deviation over the
            parameters of the logarithm of their ratio.
        sharpness: largest curvature as Adam sees it, times the rate, over the limit of
            :func:`adam_stability_limit`; above 1 the quadratic model of the loss diverges.
    """
    settings = sequence_training.Config(placement=placement, layers=layers, seed=seed)
    model = settings.make_model().double()
    batches = settings.make_batches()
    drawn = [next(batches) for _ in range(config.batches)]
    probe = drawn[0]
    per_layer = gradient_norms(model, probe)
    many = [torch.cat([g.flatten() for g in _gradients(model, batch)]) for batch in drawn]
    second_moment = torch.stack([g.square() for g in many]).mean(0)
    seen = many[0] != 0  # a unit may be off, a token absent, in one batch
    spread = (second_moment[seen].sqrt() / many[0][seen].abs()).log().var(correction=0).sqrt()
    relative_sharpness = None
    if config.iterations:
        roots = (second_moment.sqrt() + 1e-8).split([p.numel() for p in model.parameters()])
        largest = sharpness(model, probe, list(roots), config.iterations)
        relative_sharpness = config.lr * largest / adam_stability_limit()
    return {
        "gradient_ratio": per_layer[-1] / per_layer[0],
        "top_gradient": per_layer[-1],
        "amplification": amplification(model, probe, config.noise),
        "first_update": _first_update(model, probe, config.lr),
        "rate_spread": spread.item(),
        "sharpness": relative_sharpness,
    }


run = Sweep(run_one, placement="placements", layers="layers", seed="seeds")
