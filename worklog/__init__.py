"""A worklog you can trust: a ladder of SGEMM kernels, one honest ruler for all of them, and a gate that no wrong
kernel passes.

Nothing heavy is imported here: names load their module on first use, so `import worklog` is quick and works without a
GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worklog.bench import ablate, measure, results
    from worklog.errors import WorklogError
    from worklog.gemm import Shape
    from worklog.harness import Harness
    from worklog.lab.tried import Tried, try_kernel
    from worklog.ladder import LADDER, Rung, rung
    from worklog.runs import Measurement, Run, open_run
    from worklog.timing import Timing, time

_HOMES = {
    "ablate": "bench",
    "measure": "bench",
    "results": "bench",
    "Timing": "timing",
    "time": "timing",
    "WorklogError": "errors",
    "Shape": "gemm",
    "Harness": "harness",
    "LADDER": "ladder",
    "Rung": "ladder",
    "rung": "ladder",
    "Measurement": "runs",
    "Run": "runs",
    "open_run": "runs",
    "Tried": "lab.tried",
    "try_kernel": "lab.tried",
}

__version__ = "0.1.0"

__all__ = [
    "LADDER",
    "Harness",
    "Measurement",
    "Run",
    "Rung",
    "Shape",
    "Timing",
    "Tried",
    "WorklogError",
    "ablate",
    "measure",
    "open_run",
    "results",
    "rung",
    "time",
    "try_kernel",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"worklog.{_HOMES[name]}"), name)
    if name in ("plots", "lab", "gate", "harness", "bench", "kernels", "device", "ladder", "gemm", "runs"):
        return import_module(f"worklog.{name}")
    raise AttributeError(f"module 'worklog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext worklog`: the cell magic `%%rung`."""
    import_module("worklog.lab.magic").load(shell)
