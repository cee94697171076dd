"""NumPy models of what torch's CPU kernels compute: order of operations and rounding included.

Each file re-creates one algorithm of torch 2.13 in words of our own; only `flat_loops` models no
kernel, but has the plain loops that the kernels refine. Nothing here imports torch, so that
comparing the two is evidence.

Values are float32; where the argument `dtype` says that torch stores 16 bits, they are values that
these can store. Rows are (rows, n), and images (N, C, ...); a weight that is None is 1, and a bias
0. `mean` and `rstd` are those that the forward pass saves, `eps` has the units of x², and variances
are divided by n. Two arguments describe the machine code: `lanes`, the float32 values in a vector
register, and `fused`, whether a multiply and an add round once. On x86 both builds of these kernels
use registers of 8; the AVX2 build, which runs on AVX-512 machines, too, fuses, and the build that
ATEN_CPU_CAPABILITY=default selects does not.

The headers named under "Source" ship in the wheel of 2.13.0 and were read there. The .cpp files do
not; they were read at other commits, and that 2.13.0 still does the same rests on the comparison
of results, which the tests make.
"""

from normlab.book.kernel_models.batch_passes import (
    BatchStatistics,
    batch_statistics,
    batch_transform,
)
from normlab.book.kernel_models.flat_loops import layer_norm_backward_loops, layer_norm_loops
from normlab.book.kernel_models.group_paths import (
    GroupStatistics,
    group_statistics,
    group_transform,
)
from normlab.book.kernel_models.layer_backward import (
    BackwardCoefficients,
    add_buffers,
    backward_coefficients,
    input_gradient,
    weight_gradient_buffers,
)
from normlab.book.kernel_models.layer_forward import (
    LayerNormRows,
    centered_second_pass,
    layer_norm_rows,
    shifted_second_pass,
)
from normlab.book.kernel_models.rounding import fused_multiply_add, round_to
from normlab.book.kernel_models.row_statistics import RowMoments, reciprocal_std, row_moments
from normlab.book.kernel_models.single_row import backward_row, forward_row
from normlab.book.kernel_models.vector_sums import add_lanes, sum_in_lanes

__all__ = [
    "BackwardCoefficients",
    "BatchStatistics",
    "GroupStatistics",
    "LayerNormRows",
    "RowMoments",
    "add_buffers",
    "add_lanes",
    "backward_coefficients",
    "backward_row",
    "batch_statistics",
    "batch_transform",
    "centered_second_pass",
    "forward_row",
    "fused_multiply_add",
    "group_statistics",
    "group_transform",
    "input_gradient",
    "layer_norm_backward_loops",
    "layer_norm_loops",
    "layer_norm_rows",
    "reciprocal_std",
    "round_to",
    "row_moments",
    "shifted_second_pass",
    "sum_in_lanes",
    "weight_gradient_buffers",
]
