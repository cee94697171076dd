"""What a notebook needs to speak about code: the package's source and numbers, and torch's source.

The first part shows the package and hands numbers to the text. The second reads what the installed
torch says about itself, without any network; where a build lacks something, it says so.
"""

from normlab.book.sources.callpaths import (
    PROVOCATIONS,
    CallPath,
    describe_path,
    read_error,
    trace_errors,
)
from normlab.book.sources.listing import show, show_change, source_of
from normlab.book.sources.notebook import glue, setup, wrap
from normlab.book.sources.operators import (
    Derivative,
    Operator,
    Registration,
    read_derivative,
    read_dispatch_table,
    read_operator,
    run_default_kernel,
)
from normlab.book.sources.quoting import Finding, quote, read_findings
from normlab.book.sources.symbols import Compiled, find_compiled
from normlab.book.sources.tabulating import Table, tabulate
from normlab.book.sources.touching import touch
from normlab.book.sources.tracing import (
    Call,
    decompose,
    list_nodes,
    list_saved,
    trace_calls,
    trace_operations,
)
from normlab.book.sources.wheel import (
    Location,
    MissingInTorchError,
    locate,
    locate_header,
    torch_release,
)

__all__ = [
    "PROVOCATIONS",
    "Call",
    "CallPath",
    "Compiled",
    "Derivative",
    "Finding",
    "Location",
    "MissingInTorchError",
    "Operator",
    "Registration",
    "Table",
    "decompose",
    "describe_path",
    "find_compiled",
    "glue",
    "list_nodes",
    "list_saved",
    "locate",
    "locate_header",
    "quote",
    "read_derivative",
    "read_dispatch_table",
    "read_error",
    "read_findings",
    "read_operator",
    "run_default_kernel",
    "setup",
    "show",
    "show_change",
    "source_of",
    "tabulate",
    "torch_release",
    "touch",
    "trace_calls",
    "trace_errors",
    "trace_operations",
    "wrap",
]
