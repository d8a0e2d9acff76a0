"""Where the panel's numbers come from: which runs it answers from, and whether anything can be measured here."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from worklog.errors import BadRunFile
from worklog.gpu.device import gpu_reason
from worklog.runs.run import Run, new_path, open_run, recordings

GRID = "h200_grid"


def runs(given: Run | Path | None = None) -> list[Run]:
    """The run that is given, else the recording of the grid; none where WORKLOG_SOURCE=live. Raises BadRunFile."""
    if given is not None:
        return [given if isinstance(given, Run) else open_run(given)]
    if os.environ.get("WORKLOG_SOURCE") == "live":
        return []
    if GRID not in recordings():
        raise BadRunFile(
            f"this installation has no recording {GRID}: install gemm-worklog again, or make one on a GPU with "
            f"`worklog grid --out {GRID}.json` and give it as run="
        )
    return [open_run(recordings()[GRID])]


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The run that is given, else the one to look at by default and, where that is this machine's own and nothing says
    live only, the recording after it. Raises BadRunFile where there is none.
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
    """Where the panel's next run goes: beside the other runs, but not among those that are looked at by default."""
    path = new_path("panel", datetime.now(UTC).isoformat(), secrets.token_hex(2))
    return path.parent / "panel" / path.name
