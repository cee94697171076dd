"""The graders of the comparison accept right answers and name each mistake."""

from normlab.layers import batch_norm, layer_norm

SIZES = {"batch_norm": (2, 2), "layer_norm": (2, 0), "rms_norm": (1, 0)}


def _transposed(x, weight, bias):
    return layer_norm(x.T, x.T.shape[1:]).T * weight + bias


RIGHT = {
    "check_batch_norm_by_layer_norm": _transposed,
    "check_token_batch_norm": lambda x: batch_norm(
        x.flatten(0, 1), None, None, training=True
    ).view_as(x),
    "check_stored_numbers": lambda norm, d: (SIZES[norm][0] * d, SIZES[norm][1] * d),
}
