"""The norms over several processes, on `torch.distributed`: gloo on a CPU, NCCL on GPUs.

Which statistics cross from one process to another depends on what is divided: samples (only
batch norm sends), features (each token's statistics are merged), tokens or heads (nothing forward,
the gradients of the shared weights backward).
"""

from normlab.parallel.batch import SyncBatchNorm, sync_batch_norm
from normlab.parallel.checking import check_parallel
from normlab.parallel.collectives import gather_from_group, group_size, sum_over_group
from normlab.parallel.conversion import convert_sync_batchnorm
from normlab.parallel.features import layer_norm, rms_norm
from normlab.parallel.gradients import find_partial_gradients, reduce_norm_gradients
from normlab.parallel.heads import ParallelQKNorm
from normlab.parallel.moments import merge_moments
from normlab.parallel.mutants import ParallelMutant, parallel_mutants
from normlab.parallel.processes import Processes, RankFailed

__all__ = [
    "ParallelMutant",
    "ParallelQKNorm",
    "Processes",
    "RankFailed",
    "SyncBatchNorm",
    "check_parallel",
    "convert_sync_batchnorm",
    "find_partial_gradients",
    "gather_from_group",
    "group_size",
    "layer_norm",
    "merge_moments",
    "parallel_mutants",
    "reduce_norm_gradients",
    "rms_norm",
    "sum_over_group",
    "sync_batch_norm",
]
