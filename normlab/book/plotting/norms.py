"""How the book shows each norm: its name, looks and page. What it computes is `normlab.norms`'s."""

from __future__ import annotations

from dataclasses import dataclass

LineStyle = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class ShownNorm:
    """How figures, tables and pages show one norm.

    Attributes:
        label: for readers.
        reads: the cells behind one mean, as the API page says it.
        color: the same in every figure.
        linestyle: of curves.
        marker: of points.
        page: chapter#target that explains the norm.
        source: key in `references.bib`.
        use_for: what it is good for, in the cheat sheet; text of MyST.
        caution: where it fails, in the cheat sheet; text of MyST.
    """

    label: str
    reads: str
    color: str
    linestyle: LineStyle
    marker: str
    page: str
    source: str
    use_for: str = ""
    caution: str = ""


#: by the names of :data:`normlab.norms.NORMS`
SHOWN_NORMS: dict[str, ShownNorm] = {
    "batch_norm": ShownNorm(
        label="batch norm",
        reads="one channel, over the batch and all positions",
        color="#0072b2",
        linestyle="solid",
        marker="o",
        page="batch_norm#bn-axes",
        source="ioffe2015batch",
        use_for=(
            "convolutional nets with large, mixed batches; {ref}`free inference "
            "<bn-folding>`, folded into the matrix before it"
        ),
        caution=(
            "{ref}`batches of few <bn-batch-sizes>` or {ref}`of one class <bn-composition>`; "
            "{ref}`causal models <bvl-leak>`; {ref}`accumulation <debugging-accumulation>`; "
            "{ref}`padding <numerics-masks>`"
        ),
    ),
    "layer_norm": ShownNorm(
        label="layer norm",
        reads="the trailing normalized_shape, for each leading index",
        color="#d55e00",
        linestyle=(0, (6.0, 1.8)),
        marker="s",
        page="layer_norm#layer-norm-axes",
        source="ba2016layer",
        use_for="Transformers, recurrent nets, small batches; in doubt",
        caution=(
            "{ref}`the size of a sample <layer-norm-units>` carries the answer; {ref}`a "
            "convnet <layer-norm-convnet>` with large batches"
        ),
    ),
    "rms_norm": ShownNorm(
        label="RMS norm",
        reads="the trailing normalized_shape, for each leading index",
        color="#009e73",
        linestyle=(0, (6.0, 1.5, 1.2, 1.5)),
        marker="^",
        page="rms_norm#rms-norm-formula",
        source="zhang2019root",
        use_for="Transformers: {ref}`close in loss <rms-norm-quality>` here, one vector less",
        caution="as layer norm; {ref}`unfused on a CPU <rms-norm-speed>`, so torch's is slower",
    ),
    "group_norm": ShownNorm(
        label="group norm",
        reads="one group of channels, over all positions of a sample",
        color="#cc79a7",
        linestyle=(0, (2.6, 1.3)),
        marker="D",
        page="bn_vs_ln#bvl-axes",
        source="wu2018group",
        use_for="images at {ref}`few samples <bn-batch-sizes>` per device",
        caution="{ref}`padded positions <numerics-masks>` enter the mean",
    ),
    "instance_norm": ShownNorm(
        label="instance norm",
        reads="one channel, over all positions of a sample",
        color="#e69f00",
        linestyle=(0, (6.0, 1.3, 1.2, 1.3, 1.2, 1.3)),
        marker="v",
        page="bn_vs_ln#bvl-axes",
        source="ulyanov2016instance",
        use_for="style transfer {cite:p}`ulyanov2016instance`; not measured here",
        caution=(
            "{ref}`contrast of a channel <inv-table>` carries the answer; {ref}`padding "
            "<numerics-masks>`"
        ),
    ),
    "filter_response_norm": ShownNorm(
        label="filter response norm",
        reads="one channel, over all positions of a sample",
        color="#885500",
        linestyle=(0, (1.2, 1.2)),
        marker="<",
        page="family#family-positions",
        source="singh2020filter",
    ),
    "scale_norm": ShownNorm(
        label="ScaleNorm",
        reads="the last axis, for each leading index",
        color="#00bbcc",
        linestyle=(0, (9.0, 2.0)),
        marker=">",
        page="family_further#family-length",
        source="nguyen2019transformers",
    ),
    "zero_centered_rms_norm": ShownNorm(
        label="zero-centered RMS norm",
        reads="the trailing normalized_shape, for each leading index",
        color="#cc0088",
        linestyle=(0, (4.0, 1.0, 1.2, 1.0, 1.2, 1.0, 1.2, 1.0)),
        marker="p",
        page="today#today-weight",
        source="zhang2019root",
    ),
    "global_response_norm": ShownNorm(
        label="global response norm",
        reads="one sample, whose channels are compared by their lengths over all positions",
        color="#1122ff",
        linestyle=(0, (3.0, 1.0, 3.0, 3.0)),
        marker="h",
        page="family_further#family-contrast",
        source="woo2023convnext",
    ),
    "batch_renorm": ShownNorm(
        label="batch renorm",
        reads="one channel, over the batch and all positions, corrected towards the running mean",
        color="#6699ff",
        linestyle=(0, (7.0, 1.2, 2.4, 1.2, 2.4, 1.2)),
        marker="*",
        page="family#family-renorm",
        source="ioffe2017batch",
    ),
}
