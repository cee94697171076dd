"""Wrong modules: the mistakes that a function cannot make."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normlab.checks.mutants.any_family import normalize
from normlab.checks.mutants.threshold import put_threshold
from normlab.checks.mutants.with_running import make_wrong_correction, make_wrong_running
from normlab.norms import NORMS

MODULE_MISTAKES: dict[str, str] = {
    "unregistered": "parameters in a Python list, which parameters() does not find",
    "state_lost": "running statistics that state_dict does not have",
    "eval_differs": "another output in evaluation",
    "evaluation_raises": "expects in evaluation what nobody has folded",
}


class WrongModule(nn.Module):
    """A layer, RMS or group norm over `size` features with one mistake of a module."""

    def __init__(self, like: str, size: int, mistake: str = ""):
        super().__init__()
        self.like, self.mistake = like, mistake
        self.num_groups = 2
        self.normalized_shape = (size,)
        self.num_channels = size
        norm = NORMS[like]
        shape = norm.parameter_shape((2, size))
        first = torch.full(shape, 1.0 - norm.weight_offset)  # a factor of one
        self.weight = nn.Parameter(first) if norm.has_weight else None
        self.bias = nn.Parameter(torch.zeros(shape)) if norm.has_bias else None
        self.threshold = nn.Parameter(torch.zeros(shape)) if norm.has_threshold else None
        if mistake == "unregistered":
            self.kept = [self.weight, self.bias]
            del self.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        """Normalize."""
        unregistered = self.mistake == "unregistered"
        weight, bias = self.kept if unregistered else (self.weight, self.bias)
        if self.mistake == "evaluation_raises" and not self.training:
            raise AttributeError("nothing was folded into the weight before evaluation")
        norm = NORMS[self.like]
        own = self.num_groups if norm.grouped else self.normalized_shape
        y = normalize(self.like, "", x, own, weight, bias, None)[0]
        y = put_threshold("", y, self.threshold, weight, bias)
        return y / 2 if self.mistake == "eval_differs" and not self.training else y


class WrongRunningModule(nn.Module):
    """A batch or instance norm with one mistake of a module, or of a function."""

    def __init__(self, like: str, size: int, mistake: str = ""):
        super().__init__()
        self.mistake = mistake
        if NORMS[like].has_correction:
            self.norm = make_wrong_correction(like, mistake)
            self.r_max, self.d_max = 3.0, 5.0
        else:
            self.norm = make_wrong_running(like, mistake)
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        persistent = mistake != "state_lost"
        self.register_buffer("running_mean", torch.zeros(size), persistent=persistent)
        self.register_buffer("running_var", torch.ones(size), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize and record."""
        running = self.running_mean, self.running_var
        if self.mistake == "evaluation_raises" and not self.training:
            raise AttributeError("nothing was folded into the weight before evaluation")
        bounds = {key: getattr(self, key) for key in ("r_max", "d_max") if hasattr(self, key)}
        return self.norm(x, *running, self.weight, self.bias, self.training, **bounds)
