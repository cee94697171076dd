"""Padding that takes part in statistics, where the example shows which positions are padding."""

from __future__ import annotations

from torch import Tensor, nn

from normlab.checks.inspection.foreign import is_dense
from normlab.checks.inspection.model_run import Found, ModelRun
from normlab.checks.inspection.tracing import Example


def find_padding(model: nn.Module, example: Example) -> tuple[Tensor, str] | None:
    """Which positions (N, T) of the example are padding, and how that was seen."""
    tensors = {name: x for name, x in example.tensors().items() if is_dense(x)}
    for name, x in tensors.items():
        if "mask" in name and x.dim() == 2 and not x.is_floating_point():
            marked = x.bool()
            if bool(marked.any()) and not bool(marked.all()):
                # 1 is padding in a "padding_mask", and a real position in other masks
                padded = marked if "padding" in name else ~marked
                return padded, f"the argument {name!r}"
    for part in model.modules():
        index = getattr(part, "padding_idx", None)
        if isinstance(part, nn.Embedding) and index is not None:
            for x in tensors.values():
                if x.dim() == 2 and not x.is_floating_point() and bool((x == index).any()):
                    return x == index, f"padding_idx={index}"
    for x in tensors.values():
        if x.dim() == 3 and x.is_floating_point():
            zero = (x == 0).all(-1)
            trailing = zero.flip(1).cummin(1).values.flip(1)
            if bool(trailing.any()) and not bool(trailing[:, 0].any()):
                return trailing, "vectors of zeros at the end of some samples"
    return None


def padding_in_statistics(run: ModelRun) -> Found:
    """Norms that average over the axis of the padded positions."""
    padding = find_padding(run.model, run.example)
    if padding is None:
        return
    mask, how = padding
    rows, steps = mask.shape
    share = float(mask.double().mean())
    for norm in run.reports:
        axes, shape = norm.fingerprint.reduced_axes or (), norm.shape
        over_steps = shape[0] == rows and any(shape[a] == steps for a in axes if a > 0)
        flattened = shape[0] == rows * steps and 0 in axes
        channels = norm.record.trailing and axes == (len(shape) - 1,)
        if (over_steps or flattened) and not channels:
            yield (
                (norm.module,),
                f"{share:.0%} of the positions are padding ({how}), and its statistics over axes "
                f"{axes} take them in: the result depends on how far a batch was padded. Mask the "
                "statistics, or use a layer norm over the features",
            )
