"""What every page shows, without widgets: a rung, a size, and the result for them; and the runs that answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from worklog.errors import BadRunFile, WorklogError
from worklog.gpu import gpu_reason
from worklog.kernel import rung
from worklog.plots import Chart
from worklog.problem import Shape
from worklog.runs import Run, Table, forced_source, new_path, open_run, recordings

GRID = "grid"
Size = Shape | int | None


@dataclass(frozen=True)
class Shown:
    """A result. sentences: read out when they change, the first one large, the second one in a colour (CSS). details:
    HTML below the rest. stored: sentences for a notebook without a kernel, where no control shows what is chosen
    (default: the same). dimmed: whether picture and details belong to another choice.
    """

    sentences: Sequence[str]
    tables: Sequence[Table] = ()
    picture: Chart | None = None
    details: str = ""
    stored: Sequence[str] = ()
    colour: str = "inherit"
    dimmed: bool = False


class Choice:
    """The chosen kernel and shape, and the runs, the most trusted one first. Raises BadSetting."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Size = None) -> None:
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

    def available(self, kernel: str | None = None, shape: Shape | None = None) -> bool:
        """Whether there is a result for this kernel or shape, with everything else as chosen."""
        return True

    def result(self) -> Shown:
        """The result for what is chosen. Raises WorklogError with the reason where there is none."""
        raise NotImplementedError

    def shown(self) -> Shown:
        """The result, or why there is none."""
        try:
            return self.result()
        except WorklogError as error:
            return Shown([str(error)])

    def chart(self) -> Chart:
        """The result as a picture. Raises WorklogError where there is none."""
        raise NotImplementedError

    @property
    def kernels(self) -> list[str]:
        """The known kernels and the chosen one."""
        return list(dict.fromkeys([*self.known_kernels(), self.kernel]))

    @property
    def shapes(self) -> list[Shape]:
        """The known shapes and the chosen one, smallest first."""
        return sorted(self.known_shapes() | {self.shape}, key=_by_work)

    def choose_kernel(self, kernel: str) -> None:
        """Choose another kernel. Raises BadSetting where it is neither known nor a rung."""
        self.kernel = kernel if kernel in self.known_kernels() else rung(kernel).name


def _by_work(shape: Shape) -> tuple[int, Shape]:
    return shape.flops, shape


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    return [] if given is None and forced_source() == "live" else [grid_run(given)]


def grid_run(given: Run | Path | None = None) -> Run:
    """The given run, else the recorded grid. Raises BadRunFile."""
    if given is None and not recordings(GRID):
        raise BadRunFile(
            "this installation has no recording for the panel: reinstall gemm-worklog, or make one on a GPU with "
            "`worklog ablate --grid --out grid.json` and pass it as run="
        )
    return given if isinstance(given, Run) else open_run(given or [*recordings(GRID).values()][-1])


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The ladder's and the ablation's runs: the given one, else the default run and, if that was measured here, the
    recording after it (not with WORKLOG_SOURCE=live). Raises BadRunFile where there is no run.
    """
    found = given if isinstance(given, Run) else open_run(given)
    if given is not None or found.origin == "recorded" or forced_source() == "live":
        return [found]
    return [found, *(open_run(path) for path in list(recordings().values())[:1])]


def why_not_live() -> str | None:
    """Why nothing can be measured here, or None."""
    return "WORKLOG_SOURCE=recorded" if forced_source() == "recorded" else gpu_reason()


def new_file() -> Path:
    """Where the panel's next run is saved: in a folder of its own, so that no command opens it by default."""
    path = new_path("panel", datetime.now(UTC).isoformat(), secrets.token_hex(2))
    return path.parent / "panel" / path.name
