"""A right forward pass with a chosen wrong backward pass, for every family."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normlab.checks.mutants.listings import affine

BACKWARD_MISTAKES: dict[str, str] = {
    "missing_mean_term": "the term that comes through the mean is missing",
    "missing_projection_term": "the term that comes through the variance is missing",
    "weight_after_projection": "the weight multiplies after the projection",
    "missing_weight": "the weight is missing in the gradient by the input",
    "averaged": "the gradient by the weight is averaged over rows",
    "upstream_overwritten": "writes into the gradient that comes from above",
}


class WrongBackward(torch.autograd.Function):
    """One norm of a view of the input; reduced axes, parameters and mistake are arguments."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        layout: Any,
        eps: float,
        centered: bool,
        mistake: str,
    ) -> Tensor:
        view = x.reshape(layout.view)
        mean = view.mean(layout.dims, keepdim=True) * centered
        rstd = ((view - mean).square().mean(layout.dims, keepdim=True) + eps).rsqrt()
        x_hat = (view - mean) * rstd
        ctx.save_for_backward(x_hat, rstd, weight, bias)
        ctx.layout, ctx.centered, ctx.mistake = layout, centered, mistake
        factor, summand = (None if p is None else p.view(layout.parameters) for p in (weight, bias))
        return affine(x_hat.reshape(x.shape), factor, summand)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (dy,) = grads
        x_hat, rstd, weight, bias = ctx.saved_tensors
        dims, mistake, kept = ctx.layout.dims, ctx.mistake, ctx.layout.parameters
        factor = 1.0 if weight is None else weight.view(kept)
        early = mistake not in ("weight_after_projection", "missing_weight")
        g = (dy * factor if early else dy).reshape(x_hat.shape)
        dx = g - x_hat * (g * x_hat).mean(dims, keepdim=True)
        if mistake == "missing_projection_term":
            dx = g
        if ctx.centered and mistake != "missing_mean_term":
            dx = dx - g.mean(dims, keepdim=True)
        dx = (dx * rstd).reshape(dy.shape)
        if mistake == "weight_after_projection":
            dx = dx * factor
        share = dy[:1].numel() / dy.numel() if mistake == "averaged" else 1.0
        product = dy * x_hat.reshape(dy.shape) * share
        dweight = None if weight is None else product.sum_to_size(kept).reshape(weight.shape)
        dbias = None if bias is None else dy.sum_to_size(kept).reshape(bias.shape)
        if mistake == "upstream_overwritten":
            dy.copy_(dx)
        return dx, dweight, dbias, None, None, None, None
