"""Measure SGEMM kernels on NVIDIA GPUs.

The package has a ladder of kernels, a timing harness, and a gate that checks every kernel before it is
timed. Each fix of the harness can be switched off. Names load their module on first use.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing's own would have to be imported, which takes a third of `worklog -h`
if TYPE_CHECKING:
    from typing import Any

    from worklog.blas import sgemm as sgemm
    from worklog.errors import WorklogError as WorklogError
    from worklog.gpu.clocks import peaks as peaks
    from worklog.gpu.device import require_gpu as require_gpu
    from worklog.harness import Harness as Harness
    from worklog.kernel.kernel import Kernel as Kernel
    from worklog.kernel.ladder import rung as rung
    from worklog.kernel.rungs import LADDER as LADDER
    from worklog.lab.trials import Trial as Trial
    from worklog.lab.trials import try_kernel as try_kernel
    from worklog.problem import Problem as Problem
    from worklog.problem.gemm import Shape as Shape
    from worklog.runner.declare import bench as bench
    from worklog.runner.measure import ablate as ablate
    from worklog.runner.measure import measure as measure
    from worklog.runner.measure import results as results
    from worklog.runner.timing import time as time
    from worklog.runs.changes import history as history
    from worklog.runs.measurement import Measurement as Measurement
    from worklog.runs.run import Run as Run
    from worklog.runs.run import open_run as open_run

_NAMES = {
    "runner.declare": ("bench",),
    "runner.measure": ("ablate", "measure", "results"),
    "blas": ("sgemm",),
    "runner.timing": ("time",),
    "errors": ("WorklogError",),
    "gpu.device": ("require_gpu",),
    "gpu.clocks": ("peaks",),
    "harness": ("Harness",),
    "kernel": ("LADDER", "Kernel", "rung"),
    "lab.trials": ("Trial", "try_kernel"),
    "problem": ("Problem", "Shape"),
    "runs.changes": ("history",),
    "runs": ("Measurement", "Run", "open_run"),
}
_ROOMS = (
    "plots",
    "lab",
    "gate",
    "harness",
    "runner",
    "tune",
    "kernel",
    "gpu",
    "problem",
    "runs",
    "viewer",
    "settings",
)
_HOMES: dict[str, str] = {}
for _home, _exports in _NAMES.items():
    _HOMES |= dict.fromkeys(_exports, _home)

__version__ = "0.1.0"
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"worklog.{_HOMES[name]}"), name)
        globals()[name] = value  # so that the next access doesn't call this function
        return value
    if name in _ROOMS:
        return import_module(f"worklog.{name}")
    raise AttributeError(f"module 'worklog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext worklog`: the magics `%%rung`, `%time_gpu` and `%%time_gpu`."""
    import_module("worklog.lab.magics").load(shell)
