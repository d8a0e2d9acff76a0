"""What a page shows: a kernel and a size, and the runs that answer, without widgets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from worklog.errors import BadRunFile
from worklog.gpu.device import gpu_reason
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape
from worklog.runs.run import Run, new_path, open_run, recordings

GRID = "h200_grid"


class Choice:
    """The chosen kernel and shape, and the runs, the most trusted one first. Raises UnknownRung or BadShape."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None) -> None:
        self.runs = list(runs)
        self.kernel = self.known_kernels()[-1]
        if kernel is not None:
            self.choose_kernel(kernel)
        self.shape = self.first_shape(sorted(self.known_shapes(), key=_by_work)) if size is None else Shape.of(size)

    def known_kernels(self) -> list[str]:
        """The kernels that there is something to show for, in the order of the drop-down list; at least one."""
        raise NotImplementedError

    def known_shapes(self) -> set[Shape]:
        """The shapes that there is something to show for, of the chosen kernel where that matters."""
        raise NotImplementedError

    def first_shape(self, known: list[Shape]) -> Shape:
        """The shape to begin with: the middle one."""
        return known[len(known) // 2] if known else Shape.of(1024)

    @property
    def kernels(self) -> list[str]:
        """The known kernels and the chosen one."""
        return list(dict.fromkeys([*self.known_kernels(), self.kernel]))

    @property
    def shapes(self) -> list[Shape]:
        """The known shapes and the chosen one, smallest first."""
        return sorted(self.known_shapes() | {self.shape}, key=_by_work)

    def choose_kernel(self, kernel: str) -> None:
        """Choose another kernel. Raises UnknownRung where it is neither known nor a rung."""
        self.kernel = kernel if kernel in self.known_kernels() else rung(kernel).name

    def choose_shape(self, size: Shape | int) -> None:
        """Choose another shape; a number means a square one. Raises BadShape."""
        self.shape = Shape.of(size)


def _by_work(shape: Shape) -> tuple[int, Shape]:
    return shape.flops, shape


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    if given is not None:
        return [given if isinstance(given, Run) else open_run(given)]
    if os.environ.get("WORKLOG_SOURCE") == "live":
        return []
    if GRID not in recordings():
        raise BadRunFile(
            f"this installation has no recording {GRID}: reinstall gemm-worklog, or make one on a GPU with "
            f"`worklog grid --out {GRID}.json` and pass it as run="
        )
    return [open_run(recordings()[GRID])]


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The ladder's and the ablation's runs: the given one, else the default run and, if that was measured here, the
    recording after it (not with WORKLOG_SOURCE=live). Raises BadRunFile where there is no run.
    """
    if given is not None:
        return [given if isinstance(given, Run) else open_run(given)]
    found = open_run()
    if found.origin == "recorded" or os.environ.get("WORKLOG_SOURCE") == "live":
        return [found]
    return [found, *(open_run(path) for path in list(recordings().values())[:1])]


def why_not_live() -> str | None:
    """Why nothing can be measured here, or None."""
    if os.environ.get("WORKLOG_SOURCE") == "recorded":
        return "WORKLOG_SOURCE=recorded"
    return gpu_reason()


def new_file() -> Path:
    """Where the panel's next run is saved: in a folder of its own, so that no command opens it by default."""
    path = new_path("panel", datetime.now(UTC).isoformat(), secrets.token_hex(2))
    return path.parent / "panel" / path.name
