"""Measure SGEMM kernels on NVIDIA GPUs: a ladder of kernels, a timing harness whose fixes can be switched off one by
one, and a gate that checks every kernel before it is timed.

Nothing heavy is imported here: names load their module on first use, so `import worklog` is quick and works without a
GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worklog.bench.measure import ablate, measure, results
    from worklog.bench.timing import Timing, time
    from worklog.errors import WorklogError
    from worklog.gpu.device import require_gpu
    from worklog.harness import Harness
    from worklog.kernel.kernel import Kernel
    from worklog.kernel.ladder import LADDER, rung
    from worklog.lab.magic import Trial, try_kernel
    from worklog.problem.gemm import Shape
    from worklog.runs.run import Measurement, Run, open_run

_HOMES = {
    "ablate": "bench.measure",
    "measure": "bench.measure",
    "results": "bench.measure",
    "Timing": "bench.timing",
    "time": "bench.timing",
    "WorklogError": "errors",
    "require_gpu": "gpu.device",
    "Shape": "problem.gemm",
    "Harness": "harness",
    "LADDER": "kernel.ladder",
    "Kernel": "kernel.kernel",
    "rung": "kernel.ladder",
    "Measurement": "runs.run",
    "Run": "runs.run",
    "open_run": "runs.run",
    "Trial": "lab.magic",
    "try_kernel": "lab.magic",
}

__version__ = "0.1.0"

__all__ = [
    "LADDER",
    "Harness",
    "Kernel",
    "Measurement",
    "Run",
    "Shape",
    "Timing",
    "Trial",
    "WorklogError",
    "ablate",
    "measure",
    "open_run",
    "require_gpu",
    "results",
    "rung",
    "time",
    "try_kernel",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"worklog.{_HOMES[name]}"), name)
    if name in ("plots", "lab", "gate", "harness", "bench", "kernel", "gpu", "problem", "runs", "analysis", "settings"):
        return import_module(f"worklog.{name}")
    raise AttributeError(f"module 'worklog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext worklog`: the cell magic `%%rung`."""
    import_module("worklog.lab.magic").load(shell)
