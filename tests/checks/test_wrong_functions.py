"""Wrong functions in many styles: each is rejected, and the message says what is wrong."""

import math

import pytest
import torch
import torch.nn.functional as F

from normlab.checks import check_layer

EPS32 = torch.finfo(torch.float32).eps


def numpy_like(root, *, centered=True, square=None):
    """layer_norm, or rms_norm where not centered, from a function (var, eps, n) -> divisor."""

    def layer(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        axes = tuple(range(-len(normalized_shape), 0))
        h = x.float()
        mu = h.mean(axes, keepdim=True) if centered else 0.0
        var = ((h - mu) ** 2).mean(axes, keepdim=True)
        out = (h - mu) / root(var, eps, math.prod(normalized_shape))
        out = out if weight is None else out * weight
        return (out if bias is None else out + bias).to(x.dtype)

    def rms(x, normalized_shape, weight=None, eps=EPS32):
        return layer(x, normalized_shape, weight, None, eps)

    return layer if centered else rms


def by_rows(change):
    """batch_norm that works on rows (positions, channels); `change` maps (rows, eps) -> x_hat."""

    def batch(
        x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
    ):
        if not training:
            return F.batch_norm(x, running_mean, running_var, weight, bias, False, eps=eps)
        if running_mean is not None:
            F.batch_norm(x, running_mean, running_var, None, None, True, momentum)
        moved = x.float().movedim(1, -1)
        rows = change(moved.reshape(-1, x.shape[1]), eps)
        rows = rows if weight is None else rows * weight
        rows = rows if bias is None else rows + bias
        return rows.reshape(moved.shape).movedim(-1, 1).to(x.dtype)

    return batch


def by_group(change, groups_of=lambda c, g: g):
    """group_norm over (N, G, everything else); `change` maps (rows, eps) -> x_hat."""

    def group(x, num_groups, weight=None, bias=None, eps=1e-5):
        g = groups_of(x.shape[1], num_groups)
        rows = x.float().reshape(x.shape[0], g, x[0].numel() // g)
        out = change(rows.transpose(0, 2).flatten(1), eps)
        out = out.reshape(rows.shape[2], g, len(x)).transpose(0, 2).reshape(x.shape)
        kept = (-1, *[1] * (x.dim() - 2))
        out = out if weight is None else out * weight.reshape(kept)
        return (out if bias is None else out + bias.reshape(kept)).to(x.dtype)

    return group


def by_instance(change):
    group = by_group(change, lambda c, g: c)

    def instance(x, mean=None, var=None, weight=None, bias=None, train=True, m=0.1, eps=1e-5):
        if not train:
            return F.batch_norm(x, mean, var, weight, bias, False, eps=eps)
        if mean is not None:
            F.instance_norm(x, mean, var, momentum=m)
        return group(x, 1, weight, bias, eps)

    return instance


def standard(rows):
    return rows.std(0, correction=0)


def padded(rows, eps):
    """A block of a power of two, of whose padding the mean is subtracted, too."""
    n = len(rows)
    block = F.pad(rows, (0, 0, 0, 2 ** (n - 1).bit_length() - n)) - rows.mean(0)
    return block[:n] / (block.square().sum(0) / n + eps).sqrt()


COLUMNS = {  # on the columns of a matrix (entries, things): name of the mistake, words, change
    "plus": ("eps_outside", "outside", lambda r, e: (r - r.mean(0)) / (standard(r) + e)),
    "max": (
        "eps_clamp",
        "clamp",
        lambda r, e: (r - r.mean(0)) / torch.maximum(standard(r), torch.tensor(e**0.5)),
    ),
    "eps twice": (
        "eps_twice",
        "added twice, under the root and to it",
        lambda r, e: (r - r.mean(0)) / ((r.var(0, correction=0) + e).sqrt() + e),
    ),
    "halved": (
        "other_eps",
        "eps is 4e-05, expected 1e-05: as where x is multiplied by 0.5",
        lambda r, e: (r - r.mean(0)) / 2 / ((r / 2).var(0, correction=0) + e).sqrt(),
    ),
    "padded": ("padding_in_variance", "padding of a row to a power of two", padded),
    "torch std": (
        "bessel",
        "Bessel",
        lambda r, e: (r - r.mean(0)) / (r.var(0) + e).sqrt(),
    ),
    "two at once": (
        "bessel+eps_outside",
        "outside",
        lambda r, e: (r - r.mean(0)) / (r.std(0) + e),
    ),
    "no eps": (
        "other_eps",
        "eps is 0",
        lambda r, e: F.normalize(r - r.mean(0), dim=0, eps=0) * len(r) ** 0.5,
    ),
    "fixed eps": (
        "other_eps",
        "0.0003",
        lambda r, e: (r - r.mean(0)) / (r.var(0, correction=0) + 3e-4).sqrt(),
    ),
    "squares minus square": (
        "one_pass",
        "one pass",
        lambda r, e: (r - r.mean(0)) / ((r**2).mean(0) - r.mean(0) ** 2).clamp(min=0).add(e).sqrt(),
    ),
    "moments in float64, too late": (
        "one_pass",
        "one pass",
        lambda r, e: (
            (r - r.mean(0))
            * ((r * r).mean(0).double() - r.mean(0).double() ** 2).float().add(e).rsqrt()
        ),
    ),
    "no_grad": (
        "detached_statistics",
        "cut from the graph",
        lambda r, e: (r - r.detach().mean(0)) / (r.detach().var(0, correction=0) + e).sqrt(),
    ),
    "mean detached": (
        "missing_mean_term",
        "through the mean",
        lambda r, e: (r - r.detach().mean(0)) / (r.var(0, correction=0) + e).sqrt(),
    ),
    "variance item": (
        "missing_projection_term",
        "through the variance",
        lambda r, e: (r - r.mean(0)) / (r.var(0, correction=0).data + e).sqrt(),
    ),
    "not centered": (
        "uncentered_numerator",
        "mean is not subtracted",
        lambda r, e: r / (r.var(0, correction=0) + e).sqrt(),
    ),
    "root mean square": (
        "missing_centering",
        "nothing is centered",
        lambda r, e: r / (r.square().mean(0) + e).sqrt(),
    ),
    "squares not centered": (
        "uncentered_variance",
        "mean of the squares",
        lambda r, e: (r - r.mean(0)) / (r.square().mean(0) + e).sqrt(),
    ),
    "sum of squares": (
        "sum_not_mean",
        "summed",
        lambda r, e: (r - r.mean(0)) / ((r - r.mean(0)).square().sum(0) + e).sqrt(),
    ),
    "variance": (
        "no_root",
        "not by its root",
        lambda r, e: (r - r.mean(0)) / (r.var(0, correction=0) + e),
    ),
    "centered only": ("not_divided", "not divided", lambda r, e: r - r.mean(0)),
}


def over_tokens(change):
    def layer(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        n = math.prod(normalized_shape)
        out = change(x.float().reshape(x.numel() // n, n).T, eps).T.reshape(x.shape)
        out = out if weight is None else weight * out
        return (out if bias is None else out + bias).to(x.dtype)

    return layer


# what the suite's own wrong norms show of every family is asked of layer norm alone
RARE = (
    "plus",
    "eps twice",
    "padded",
    "two at once",
    "squares not centered",
    "variance",
    "centered only",
)
BUILDERS = {
    "layer_norm": over_tokens,
    "batch_norm": by_rows,
    "group_norm": by_group,
    "instance_norm": by_instance,
}


@pytest.mark.parametrize(
    ("like", "name"),
    [("layer_norm", n) for n in COLUMNS] + [(k, n) for k in list(BUILDERS)[1:] for n in RARE],
)
def test_mistakes_of_centered_norms_are_named(like, name):
    build = BUILDERS[like]
    right = build(lambda r, e: (r - r.mean(0)) / (r.var(0, correction=0) + e).sqrt())
    if name == "plus":
        assert check_layer(right, like=like).passed
    mistake, words, change = COLUMNS[name]
    report = check_layer(build(change), like=like)
    assert not report.passed
    named = {f.mistake for f in report.failures if f.check != "eps argument"}
    # dividing by zero variance makes NaN of constant columns: a consequence of a missing eps
    assert mistake in named, str(report)
    assert named <= {mistake, "eps_argument"} or name == "no eps", str(report)
    assert any(words in f.message for f in report.failures), str(report)


RMS = {
    "eps outside": ("eps_outside", numpy_like(lambda v, e, n: v.sqrt() + e, centered=False)),
    "clamp": ("eps_clamp", numpy_like(lambda v, e, n: v.sqrt().clamp_min(e**0.5), centered=False)),
    "n-1": ("bessel", numpy_like(lambda v, e, n: (v * n / (n - 1) + e).sqrt(), centered=False)),
    "L2": ("sum_not_mean", numpy_like(lambda v, e, n: (v * n + e).sqrt(), centered=False)),
    "other eps": ("other_eps", numpy_like(lambda v, e, n: (v + 1e-8).sqrt(), centered=False)),
    "detached": (
        "detached_statistics",
        numpy_like(lambda v, e, n: (v.detach() + e).sqrt(), centered=False),
    ),
    "layer norm": ("centered", lambda x, s, w=None, eps=EPS32: F.layer_norm(x, s, w, None, eps)),
    "layer norm's eps, too": (
        "centered+other_eps",
        lambda x, s, w=None, eps=None: F.layer_norm(x, s, w),
    ),
    "standard deviation": (
        "centered_variance",
        lambda x, s, w=None, eps=EPS32: (
            x
            / (
                x.float()
                .var(tuple(range(-len(s), 0)), correction=0, keepdim=True)
                .add(EPS32 if eps is None else eps)
                .sqrt()
            )
            * (1 if w is None else w)
        ).to(x.dtype),
    ),
    "normalize": (
        "eps_clamp+other_eps",
        lambda x, s, w=None, eps=None: (
            (F.normalize(x.float().flatten(-len(s)), dim=-1) * math.prod(s) ** 0.5).view(x.shape)
            * (1 if w is None else w)
        ).to(x.dtype),
    ),
    "forgotten offset": ("weight_offset_forgotten", F.rms_norm),
    "weight twice": (
        "weight_offset_doubled",
        lambda x, s, w=None, eps=None: F.rms_norm(x, s, None if w is None else 2 + w, eps),
    ),
    "weight ignored": ("weight_ignored", lambda x, s, w=None, eps=None: F.rms_norm(x, s)),
}


@pytest.mark.parametrize("name", RMS)
def test_mistakes_of_rms_norm_are_named(name):
    mistake, function = RMS[name]
    options = {"weight_offset": 1} if "offset" in mistake else {}
    report = check_layer(function, like="rms_norm", **options)
    assert not report.passed
    named = {f.mistake for f in report.failures} - {"eps_argument", None}
    assert mistake in named, str(report)
    if name != "weight ignored":  # then it has no gradient, either
        assert named <= {mistake, "non_contiguous"}, str(report)


def test_layer_norm_as_rms_norm_says_that_the_mean_is_subtracted():
    report = check_layer(F.layer_norm, like="rms_norm")
    assert {f.mistake for f in report.failures} == {"centered+other_eps"}
    assert "the mean is subtracted" in report.failures[0].message
    assert "eps is 1e-05, expected 1.19e-07" in report.failures[0].message


def wrong_place(dims):
    def function(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        var, mean = torch.var_mean(x.float(), dims(x), correction=0, keepdim=True)
        y = (x.float() - mean) * (var + eps).rsqrt()
        y = y if weight is None else y * weight
        return (y if bias is None else y + bias).to(x.dtype)

    return function


@pytest.mark.parametrize(
    "dims",
    [
        lambda x: 0,
        lambda x: -2,
        lambda x: tuple(range(1, x.dim())),
        lambda x: tuple(range(x.dim())),
    ],
    ids=["first", "before the last", "all but the batch", "all"],
)
def test_wrong_axes_of_layer_norm_are_named(dims):
    report = check_layer(wrong_place(dims), like="layer_norm")
    assert {f.mistake for f in report.failures} == {"wrong_axis"}, str(report)


GROUPING = {
    "swapped": lambda x, g, w=None, b=None, eps=1e-5: F.group_norm(x, x.shape[1] // g, w, b, eps),
    "one": lambda x, g, w=None, b=None, eps=1e-5: F.group_norm(x, 1, w, b, eps),
    "interleaved": lambda x, g, w=None, b=None, eps=1e-5: affine(
        F.group_norm(x.unflatten(1, (x.shape[1] // g, g)).transpose(1, 2).flatten(1, 2), g, eps=eps)
        .unflatten(1, (g, x.shape[1] // g))
        .transpose(1, 2)
        .flatten(1, 2),
        w,
        b,
    ),
    "per position": lambda x, g, w=None, b=None, eps=1e-5: affine(
        F.layer_norm(x.unflatten(1, (g, -1)).movedim(2, -1), (x.shape[1] // g,), eps=eps)
        .movedim(-1, 2)
        .flatten(1, 2),
        w,
        b,
    ),
}


def affine(y, weight, bias):
    kept = (-1, *[1] * (y.dim() - 2))
    y = y if weight is None else y * weight.view(kept)
    return y if bias is None else y + bias.view(kept)


@pytest.mark.parametrize("name", GROUPING)
def test_wrong_groups_are_named(name):
    report = check_layer(GROUPING[name], like="group_norm")
    named = {f.mistake for f in report.failures} - {"non_contiguous"}
    assert named == {"wrong_grouping"}, str(report)


def test_families_taken_for_each_other_are_named():
    def layer(x, g, w=None, b=None, eps=1e-5):
        return affine(F.batch_norm(x, None, None, training=True, eps=eps), w, b)

    report = check_layer(layer, like="group_norm")
    assert {f.mistake for f in report.failures} == {"wrong_axis"}, str(report)
    report = check_layer(
        lambda x, m, v, w=None, b=None, t=True, mo=0.1, eps=1e-5: F.group_norm(x, 1, w, b, eps),
        like="batch_norm",
    )
    assert {f.mistake for f in report.failures} == {"wrong_axis"}, str(report)


def groups_of_memory(x, num_groups, weight=None, bias=None, eps=1e-5):
    last = x.movedim(1, -1)
    y = F.group_norm(last.reshape(len(x), num_groups, -1).float(), num_groups, eps=eps)
    y = y.reshape(last.shape)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).movedim(-1, 1).to(x.dtype)


def test_groups_of_memory_are_named():
    report = check_layer(groups_of_memory, like="group_norm")
    assert {f.mistake for f in report.failures} == {"wrong_grouping"}, str(report)
    assert "parts of the memory of an input with channels last" in str(report)
