"""From fits to conventions: offset of the weight, divisor, eps, and the dtype that eps follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from normlab.fingerprint.report import Fingerprint
from normlab.probing.groups import Groups
from normlab.probing.measurements import Affine, Eps, fit_affine, measure_eps, shortest
from normlab.probing.parameters import Role, allowance, constant
from normlab.probing.probe import NoNorm, Probe

__all__ = ["ReadEps", "read_affine", "read_eps"]


def read_affine(
    affine: Affine, roles: Iterable[Role], n: int, shape: Sequence[int], report: Fingerprint
) -> bool:
    """Fill `affine`, `weight_offset` and `divisor`.

    Args:
        affine: fit at large inputs.
        roles: what the parameters do.
        n: number of elements in a group.
        shape: of the input.
        report: to be filled.

    Returns:
        whether there are factors.

    Raises:
        NoNorm: the normalized input comes out too large or too small.
    """
    tolerance = allowance(affine.error)
    weights = [role for role in roles if role.kind == "weight"]
    size = constant(affine.factor, tolerance * float(affine.factor.abs().max()))
    if len(weights) == 1:
        report.affine = True
        one_number = weights[0].axes == () and not (len(shape) > 1 and shape[1] == 1)
        if one_number:
            raise NoNorm(
                "one number multiplies all entries (as in ScaleNorm); the norms that can be "
                "named have one weight per entry or channel"
            )
        offset = weights[0].offset
        near = [k for k in (0, 1) if offset is not None and abs(offset - k) < 1e-3]
        if near:
            report.weight_offset = near[0]
        else:
            report.reasons["weight_offset"] = "the factor is not the weight plus 0 or 1"
        _read_divisor(abs(weights[0].gain), tolerance, n, report)
    elif size is not None:
        report.affine = float(affine.summand.abs().max()) > tolerance
        report.reasons["weight_offset"] = report.reasons["weight_cast"] = "there is no weight"
        _read_divisor(abs(size), tolerance, n, report)
        return False
    else:
        report.affine = True
        report.reasons["weight_offset"] = report.reasons["weight_cast"] = (
            "the factors differ between entries, but no single parameter was found to set them"
        )
        report.reasons["divisor"] = (
            "without access to the weight, its size and the divisor cannot be told apart"
        )
    return True


def _read_divisor(gain: float, tolerance: float, n: int, report: Fingerprint) -> None:
    bessel = math.sqrt((n - 1) / n)
    is_n, is_less = (abs(gain - g) <= 2 * tolerance for g in (1.0, bessel))
    if is_n and is_less:
        report.reasons["divisor"] = (
            f"with {n} elements the divisors n and n-1 differ by less than the rounding"
        )
    elif is_n or is_less:
        report.divisor = "n" if is_n else "n-1"
    elif abs(gain - 1 / math.sqrt(n)) <= 2 * tolerance:
        raise NoNorm(
            "the input is divided by the root of the sum of squares, not of their mean: "
            "an L2 normalization"
        )
    else:
        raise NoNorm(f"the normalized input comes out {gain:.4g} times as large as that of a norm")


@dataclass(frozen=True)
class ReadEps:
    """What came of measuring eps.

    Attributes:
        found: in the dtype of the probing, for a mean square with divisor n; None where it could
            not be told.
        value: with the layer's own divisor (n, where that is unknown), in float32 where eps
            follows the dtype.
        doubt: relative uncertainty of `value`.
        follows_dtype: whether float32 and float64 have different ones.
    """

    found: Eps | None
    value: float | None = None
    doubt: float = 0.0
    follows_dtype: bool = False


def read_eps(probe: Probe, groups: Groups, affine: Affine, report: Fingerprint) -> ReadEps:
    """Fill `eps` and `eps_placement`.

    Args:
        probe: the layer.
        groups: cells that share statistics.
        affine: fit at large inputs.
        report: to be filled; its divisor is known, or has a reason.
    """
    n = groups.count(probe.shape)
    noise = max(affine.error, torch.finfo(probe.dtype).eps)
    found = measure_eps(probe, groups, affine, noise)
    if isinstance(found, str):
        report.reasons["eps"] = report.reasons["eps_placement"] = found
        return ReadEps(None)
    report.eps_placement = found.placement
    if found.placement is None:
        report.reasons["eps_placement"] = "eps is 0, so its place makes no difference"
    read = ReadEps(found, _own_units(found, n, report), found.uncertainty)
    single = _in_float32(probe, groups, affine)
    if single is not None and not math.isclose(single.value, found.value, rel_tol=1e-2):
        value = _own_units(single, n, report)
        report.notes.append(
            f"eps follows the dtype: {read.value} in float64, {value} in float32 (given here)"
        )
        read = ReadEps(found, value, single.uncertainty, follows_dtype=True)
    if report.divisor is None and n < 1000 and read.value:
        report.reasons["eps"] = (
            f"{read.value:.4g} if the divisor is n and {read.value * n / (n - 1):.4g} if it is "
            "n-1, and which it is could not be told"
        )
    else:
        report.eps = read.value
    return read


def _own_units(found: Eps, n: int, report: Fingerprint) -> float:
    value = found.value
    if report.divisor == "n-1":
        ratio = n / (n - 1)
        value *= math.sqrt(ratio) if found.placement == "outside" else ratio
    return shortest(value, found.uncertainty)


def _in_float32(probe: Probe, groups: Groups, affine: Affine) -> Eps | None:
    if probe.dtype != torch.float64:
        return None
    single = probe.at(torch.float32)
    try:
        fits = fit_affine(single, groups)
    except Exception:  # a layer may refuse float32 in any way
        return None
    fit = next(f for f in fits if f.centered == affine.centered)
    found = measure_eps(single, groups, fit, max(fit.error, 1e-7))
    return None if isinstance(found, str) else found
