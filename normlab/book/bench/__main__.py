"""`python -m normlab.book.bench`: interleaved ratios to torch on this machine, or on its GPU."""

from __future__ import annotations

import argparse
import itertools

import torch

from normlab.book.bench.cases import DTYPES, FUSED, PASSES, Case
from normlab.book.bench.devices import DEVICES
from normlab.book.bench.reporting import describe_machine, run_case, with_kept_memory, write_record
from normlab.norms import NORMS

SHAPES = {
    "cpu": {
        "shape": ["8x16", "4096x768", "8192x1024"],
        "channel": ["32x64x28x28", "8x256x56x56"],
    },
    # the first is small there; the others fill the GPU and are larger than its cache
    "cuda": {
        "shape": ["4096x768", "32768x1024", "16384x4096", "8192x8192"],
        "channel": ["32x64x28x28", "64x256x56x56"],
    },
}
TIMED = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm", *FUSED)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x"))


def main(arguments: list[str] | None = None) -> int:
    """Print a table; 1 if a control failed, so that something could not be concluded."""
    parser = argparse.ArgumentParser("python -m normlab.book.bench", description=__doc__)
    parser.add_argument("--norms", nargs="+", choices=TIMED, default=["layer_norm", "rms_norm"])
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument(
        "--dtypes", nargs="+", choices=list(DTYPES), help="float32; on a GPU all three"
    )
    parser.add_argument("--shapes", nargs="+", help="such as 4096x768; the default fits the norm")
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=["both"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which is slow")
    parser.add_argument(
        "--peers", action="store_true", help="on a GPU, also Liger Kernel where it is installed"
    )
    parser.add_argument(
        "--graphs", action="store_true", help="on a GPU, replay CUDA graphs: launches do not count"
    )
    parser.add_argument("--json", help="where to write all numbers")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"argument --device: got 'cuda', and torch {torch.__version__} finds no CUDA device; "
            "expected one; run on a machine that has one, with torch built for CUDA, or use "
            "--device cpu"
        )
    if options.graphs and options.device != "cuda":
        parser.error("argument --graphs: got no GPU to launch on; add --device cuda, or leave it")
    if options.graphs and "backward" in options.passes:
        parser.error(
            "argument --graphs: a backward pass alone cannot be recorded, as its forward pass ran "
            "outside the graph; take --passes forward both"
        )
    torch.set_num_threads(1)
    machine = describe_machine(options.device)
    if options.graphs:
        machine["clock"] = "the wall's, waiting for the GPU; CUDA graphs, so launches do not count"
    print("\n".join(f"{key}: {value}" for key, value in machine.items()), end="\n\n")
    dtypes = options.dtypes or (list(DTYPES) if options.device == "cuda" else ["float32"])
    reports = []
    for norm in options.norms:
        parameters = NORMS[Case(norm, "float32", ()).alone].parameters
        shapes = options.shapes or SHAPES[options.device][parameters]
        for shape, dtype, which in itertools.product(map(_shape, shapes), dtypes, options.passes):
            case = Case(norm, dtype, shape, which, options.device)
            reports.append(
                run_case(
                    case,
                    rounds=options.rounds,
                    compiled=options.compile,
                    peers=options.peers,
                    graphs=options.graphs,
                )
            )
            print(reports[-1], end="\n\n", flush=True)
    if options.json:
        cases = [report.as_dict() for report in reports]
        write_record(options.json, {"machine": machine, "cases": cases})
    return 0 if all(report.conclusive for report in reports) else 1


if __name__ == "__main__":
    with_kept_memory("normlab.book.bench")
    raise SystemExit(main())
