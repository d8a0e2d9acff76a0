"""Which runs the pages show, and where a measurement of the panel is saved."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path

from worklog.errors import BadRunFile
from worklog.gpu import device
from worklog.problem import Shape
from worklog.runs import Run, forced_source, new_path, open_run, recordings

GRID = "grid"
Size = Shape | int | None


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    return [] if given is None and forced_source() == "live" else [grid_run(given)]


def grid_run(given: Run | Path | None = None) -> Run:
    """The given run, else the recorded grid. Raises BadRunFile."""
    if given is None and not recordings(GRID):
        raise BadRunFile(
            "this installation has no recording for the panel: reinstall gemm-worklog, or make one on a GPU with "
            "`worklog ablate --grid --out grid.jsonl` and pass it as run="
        )
    return given if isinstance(given, Run) else open_run(given or [*recordings(GRID).values()][-1])


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The ladder's runs, the most trusted one first: the given one, else the default run and, if that was measured
    here, the recording after it (not with WORKLOG_SOURCE=live). Raises BadRunFile where there is no run.
    """
    run = given if isinstance(given, Run) else open_run(given)
    if given is not None or run.origin == "recorded" or forced_source() == "live":
        return [run]
    return [run, *(open_run(path) for path in list(recordings().values())[:1])]


def why_not_live() -> str | None:
    """Why nothing can be measured here, or None."""
    return "WORKLOG_SOURCE=recorded" if forced_source() == "recorded" else device.gpu_reason()


def new_file() -> Path:
    """Where the panel's next run is saved: in a folder of its own, so that no command opens it by default."""
    path = new_path("panel", datetime.now(UTC).isoformat(), secrets.token_hex(2))
    return path.parent / "panel" / path.name
