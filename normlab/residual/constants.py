"""DeepNorm's alpha and beta for the three Transformer architectures."""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple


class DeepNormConstants(NamedTuple):
    """Factors of the skip (alpha) and gains of the initialization (beta); None without a stack."""

    encoder_alpha: float | None
    encoder_beta: float | None
    decoder_alpha: float | None
    decoder_beta: float | None


def deep_norm_constants(*, encoder_layers: int = 0, decoder_layers: int = 0) -> DeepNormConstants:
    r"""Alpha and beta for N encoder layers and M decoder layers.

    .. list-table::
       :header-rows: 1

       * - architecture
         - alpha
         - beta
       * - encoder only
         - :math:`(2N)^{1/4}`
         - :math:`(8N)^{-1/4}`
       * - decoder only
         - :math:`(2M)^{1/4}`
         - :math:`(8M)^{-1/4}`
       * - both: encoder
         - :math:`0.81 (N^4 M)^{1/16}`
         - :math:`0.87 (N^4 M)^{-1/16}`
       * - both: decoder
         - :math:`(3M)^{1/4}`
         - :math:`(12M)^{-1/4}`

    Args:
        encoder_layers: N; a layer is attention and feed-forward network.
        decoder_layers: M; with an encoder each layer has cross-attention besides.

    Returns:
        the constants by name; None where there is no such stack.

    Raises:
        TypeError: a number of layers is not an integer.
        ValueError: one is negative, or both are 0.

    Units:
        pure numbers.

    Source:
        wang2022deepnet, Figure 2.

    Example:
        >>> constants = deep_norm_constants(encoder_layers=6)
        >>> round(constants.encoder_alpha, 3), round(constants.encoder_beta, 3)
        (1.861, 0.38)
    """
    for name, layers in (("encoder_layers", encoder_layers), ("decoder_layers", decoder_layers)):
        if isinstance(layers, bool) or not isinstance(layers, Integral):
            raise TypeError(f"{name}: got {layers!r}; expected a whole number of layers")
        if layers < 0:
            raise ValueError(f"{name}: got {layers}; expected 0 (no such stack) or more")
    n, m = int(encoder_layers), int(decoder_layers)
    if n == 0 and m == 0:
        raise ValueError(
            "encoder_layers, decoder_layers: got 0 for both; expected at least one stack, such "
            "as encoder_layers=12"
        )
    if m == 0:
        return DeepNormConstants((2 * n) ** 0.25, (8 * n) ** -0.25, None, None)
    if n == 0:
        return DeepNormConstants(None, None, (2 * m) ** 0.25, (8 * m) ** -0.25)
    return DeepNormConstants(
        0.81 * (n**4 * m) ** (1 / 16),
        0.87 * (n**4 * m) ** (-1 / 16),
        (3 * m) ** 0.25,
        (12 * m) ** -0.25,
    )
