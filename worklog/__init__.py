"""Measure SGEMM kernels on NVIDIA GPUs.

The package has a ladder of kernels, a timing harness, and a gate that checks every kernel before it
is timed. Each fix of the harness can be switched off. Names load their module on first use.

`results` measures if there is a GPU, and otherwise loads a recording, so that the same call works
everywhere. `measure` always measures, needs a GPU, and also accepts your kernels. `open_run` only
loads a saved or recorded run. `ablate` returns a rung's times with each fix of the harness switched
off, measured or recorded. `try_kernel` checks the source text of a kernel, on the emulator if there
is no GPU, and compares it with the rungs. `prove` proves that a kernel stays in bounds and doesn't
race at any shape:

    run = worklog.results(["naive", "warptiled"], shapes=[1024, 4096])
    run = worklog.measure(worklog.Kernel.from_file("mine.cu"), shapes=(256, 512, 1024))
    run = worklog.open_run(kernels="naive", shape=1024)
    run = worklog.ablate("vectorized")
    trial = worklog.try_kernel(Path("mine.cu").read_text())
    proof = worklog.prove(worklog.rung("warptiled"))

A tuple of three numbers is one shape, (M, N, K), and a list is several. Errors that you can act on
are in `worklog.errors`.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing's own would have to be imported, which takes a third of `worklog -h`
if TYPE_CHECKING:
    from typing import Any

    from worklog import benchmarks as benchmarks
    from worklog import gate as gate
    from worklog import gpu as gpu
    from worklog import harness as harness
    from worklog import kernel as kernel
    from worklog import lab as lab
    from worklog import plots as plots
    from worklog import problem as problem
    from worklog import proof as proof
    from worklog import runner as runner
    from worklog import runs as runs
    from worklog import settings as settings
    from worklog import tune as tune
    from worklog import viewer as viewer
    from worklog.benchmarks.declare import bench as bench
    from worklog.blas import pytorch as pytorch
    from worklog.blas import sgemm as sgemm
    from worklog.errors import WorklogError as WorklogError
    from worklog.gpu.clocks import peaks as peaks
    from worklog.gpu.device import require_gpu as require_gpu
    from worklog.harness import Harness as Harness
    from worklog.kernel import LADDER as LADDER
    from worklog.kernel import Kernel as Kernel
    from worklog.kernel import rung as rung
    from worklog.lab.trials import Trial as Trial
    from worklog.lab.trials import try_kernel as try_kernel
    from worklog.problem import Problem as Problem
    from worklog.problem import Shape as Shape
    from worklog.proof import prove as prove
    from worklog.runner.measure import ablate as ablate
    from worklog.runner.measure import measure as measure
    from worklog.runner.measure import results as results
    from worklog.runner.timing import time as time
    from worklog.runs import Measurement as Measurement
    from worklog.runs import Run as Run
    from worklog.runs import open_run as open_run
    from worklog.runs.sources import history as history

_NAMES = {
    "benchmarks.declare": ("bench",),
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
    "proof": ("prove",),
    "runs.sources": ("history",),
    "runs": ("Measurement", "Run", "open_run"),
}
_ROOMS = (
    "plots",
    "lab",
    "gate",
    "harness",
    "runner",
    "tune",
    "benchmarks",
    "kernel",
    "gpu",
    "problem",
    "proof",
    "runs",
    "viewer",
    "settings",
)
_MODULES = {"pytorch": "blas.pytorch"}  # which imports PyTorch
_HOMES: dict[str, str] = {}
for _home, _exports in _NAMES.items():
    _HOMES |= dict.fromkeys(_exports, _home)

__version__ = "0.1.0"
# Without `time`: `from worklog import *` would replace the standard module.
__all__ = sorted({*_HOMES} - {"time"})


def _load(name: str) -> Any:
    """Return a name of the package, whose module is imported now."""
    if name in _HOMES:
        value = getattr(import_module(f"worklog.{_HOMES[name]}"), name)
        globals()[name] = value  # so that the next access doesn't call this function
        return value
    if name in _ROOMS:
        return import_module(f"worklog.{name}")
    if name in _MODULES:
        return import_module(f"worklog.{_MODULES[name]}")
    raise AttributeError(f"module 'worklog' has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker knows the names above, and would accept any other name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_ROOMS, *_MODULES])


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext worklog`: the magics `%%rung`, `%time_gpu` and `%%time_gpu`."""
    import_module("worklog.lab.magics").load(shell)
