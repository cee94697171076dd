"""From fits to conventions: offset of the weight, divisor, eps, and the dtype that eps follows."""

from __future__ import annotations

import math

import torch

from normlab.checks.fingerprint.evidence import Evidence
from normlab.checks.probing.layer import NoNorm
from normlab.checks.probing.measurements import Eps, fit_affine, measure_eps, shortest
from normlab.checks.probing.parameters import constant


def read_affine(found: Evidence) -> None:
    """Fill `has_weight`, and `affine`, `weight_offset` and `divisor` of the report.

    Raises:
        NoNorm: the normalized input comes out too large or too small.
    """
    report, factor, shape = found.report, found.affine.factor, found.probe.shape
    weights = [role for role in found.roles.values() if role.kind == "weight"]
    size = constant(factor, found.tolerance * float(factor.abs().max()))
    found.has_weight = len(weights) == 1 or size is None
    report.affine = found.has_weight or found.has_bias
    if len(weights) == 1:
        found.is_scalar = weights[0].axes == () and not (len(shape) > 1 and shape[1] == 1)
        offset = weights[0].offset
        near = [k for k in (0, 1) if offset is not None and abs(offset - k) < 1e-3]
        if near:
            report.weight_offset = near[0]
        else:
            report.reasons["weight_offset"] = "the factor is not the weight plus 0 or 1"
        _read_divisor(found, abs(weights[0].gain))
    elif size is not None:
        report.reasons["weight_offset"] = report.reasons["weight_cast"] = "there is no weight"
        _read_divisor(found, abs(size))
    else:
        report.reasons["weight_offset"] = report.reasons["weight_cast"] = (
            "the factors differ between entries, but no single parameter was found to set them"
        )
        report.reasons["divisor"] = (
            "without access to the weight, its size and the divisor cannot be told apart"
        )


def _read_divisor(found: Evidence, gain: float) -> None:
    n, report, tolerance = found.count, found.report, 2 * found.tolerance
    if found.is_scalar:
        report.reasons["divisor"] = "a weight of one number cannot be told from a divisor"
        if abs(gain - 1 / math.sqrt(n)) <= tolerance:
            found.spread, report.divisor = "sum of squares", "n"
            del report.reasons["divisor"]
        return
    is_n, is_less = (abs(gain - g) <= tolerance for g in (1.0, math.sqrt((n - 1) / n)))
    if is_n and is_less:
        report.reasons["divisor"] = (
            f"with {n} elements the divisors n and n-1 differ by less than the rounding"
        )
    elif is_n or is_less:
        report.divisor = "n" if is_n else "n-1"
    elif abs(gain - 1 / math.sqrt(n)) <= tolerance:
        found.spread, report.divisor = "sum of squares", "n"
    else:
        raise NoNorm(f"the normalized input comes out {gain:.4g} times as large as that of a norm")


def read_eps(found: Evidence) -> None:
    """Fill the fields of eps, here and in the report, whose divisor is known or has a reason."""
    report, n = found.report, found.count
    noise = max(found.affine.error, torch.finfo(found.probe.dtype).eps)
    eps = measure_eps(found.probe, found.groups, found.affine, noise)
    if isinstance(eps, str):
        report.reasons["eps"] = report.reasons["eps_placement"] = eps
        return
    report.eps_placement = eps.placement
    if eps.placement is None:
        report.reasons["eps_placement"] = "eps is 0, so its place makes no difference"
    found.eps, found.eps_doubt = eps, eps.uncertainty
    found.eps_value = value = _own_units(found, eps)
    single = _in_float32(found)
    if single is not None and not math.isclose(single.value, eps.value, rel_tol=1e-2):
        found.eps_value, found.eps_doubt = _own_units(found, single), single.uncertainty
        found.eps_follows_dtype = True
        report.notes.append(
            f"eps follows the dtype: {value} in float64, {found.eps_value} in float32 (given here)"
        )
    if report.divisor is None and n < 1000 and found.eps_value:
        report.reasons["eps"] = (
            f"{found.eps_value:.4g} if the divisor is n and {found.eps_value * n / (n - 1):.4g} "
            "if it is n-1, and which it is could not be told"
        )
    else:
        report.eps = found.eps_value


def _own_units(found: Evidence, eps: Eps) -> float:
    value, n = eps.value, found.count
    if found.report.divisor == "n-1":
        value *= math.sqrt(n / (n - 1)) if eps.placement == "outside" else n / (n - 1)
    return shortest(value, eps.uncertainty)


def _in_float32(found: Evidence) -> Eps | None:
    if found.probe.dtype != torch.float64:
        return None
    single = found.probe.at(torch.float32)
    try:
        fit = fit_affine(single, found.groups, found.affine.centered)
    except Exception:  # a layer may refuse float32 in any way
        return None
    eps = measure_eps(single, found.groups, fit, max(fit.error, 1e-7))
    return None if isinstance(eps, str) else eps
