"""Where runs are found: this machine's, and the recordings in the package."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, WorklogError
from worklog.problem import Shape
from worklog.runs.record import runs_dir
from worklog.runs.run import Run

CHAPTERS = "chapters"  # the recordings of the rungs past the article's ladder


def live_runs() -> list[Path]:
    """Run files of this machine, newest first."""
    return _files(runs_dir())[::-1]


def recordings(part: str = "") -> dict[str, Path]:
    """Shipped runs by name, or the documents of a part: CHAPTERS, "grid", "sweeps", "peers", "turns", ..."""
    return {path.stem: path for path in _files(Path(str(resources.files("worklog"))) / "recordings" / part)}


def _files(folder: Path) -> list[Path]:
    """Those of JSON and of JSON Lines, by name; none that is half written."""
    return sorted(path for path in folder.glob("*.json*") if path.suffix in (".json", ".jsonl"))


def forced_source() -> str:
    """What WORKLOG_SOURCE forces: "live", "recorded" or "". Raises WorklogError for any other value."""
    source = os.environ.get("WORKLOG_SOURCE", "")
    if source not in ("", "live", "recorded"):
        raise WorklogError(f"WORKLOG_SOURCE={source} is not a source: set it to live or recorded, or unset it")
    return source


def open_run(path: str | Path | None = None, *, kernels: Iterable[str] = (), shape: Any = None) -> Run:
    """The given file, else the newest run of this machine that has these kernels and a time at this shape, else a
    recording that has. Its label says which. shape: as for worklog.measure (default: any).

    WORKLOG_SOURCE=live or =recorded forces one. Raises BadRunFile if there is none, and BadSetting.
    """
    names, shape = [*kernels], None if shape is None else Shape.of(shape)

    def holds(run: Run) -> bool:
        timed = shape is None or any(m.us for m in run.select(shape=shape))
        return timed and all(run.select(name, shape) for name in names)

    run = newest_run(holds) if path is None else Run.load(Path(path))
    if path is None and not holds(run):
        raise BadRunFile(f"no run holds {', '.join(names) or 'a time'} at {shape or 'any size'}: measure it on a GPU")
    return run


def newest_run(holds: Callable[[Run], object] = lambda run: True) -> Run:
    """The newest run of this machine that `holds` what is asked, else a recording that does, else the article's.
    WORKLOG_SOURCE forces one; raises BadRunFile if there is none. A run of this machine that can't be read is skipped
    with a warning that names it.
    """
    forced = forced_source()
    for path in () if forced == "recorded" else live_runs():
        try:
            if holds(run := Run.load(path)):
                return run
        except BadRunFile as error:
            warnings.warn(f"skipped a run of this machine: {error}; or remove it", stacklevel=3)
    if forced == "live":
        raise BadRunFile(f"WORKLOG_SOURCE=live, but {runs_dir()} holds no such run: measure one with `worklog run`")
    article = recorded_run()
    chapters = (Run.load(path, "recorded") for path in recordings(CHAPTERS).values())
    return article if holds(article) else next(filter(holds, chapters), article)


def recorded_run() -> Run:
    """The recording in the package. Raises BadRunFile if it is missing."""
    for recording in recordings().values():
        return Run.load(recording, origin="recorded")
    raise BadRunFile("this installation has no recording: install gemm-worklog again, or measure with `worklog run`")


def in_steps() -> Run:
    """What the recordings at sizes in steps hold, but where the article's recording holds the same, that one, which has
    more samples; and of that one the kernels that they don't hold.
    """
    run, files = recorded_run(), [path for name, path in recordings(CHAPTERS).items() if "sizes" in name]
    chosen = {(m.kernel, m.shape): m for path in files for m in Run.load(path, "recorded").measurements}
    stepped = {kernel for kernel, _ in chosen}
    own = [m for m in run.select() if (m.kernel, m.shape) in chosen or m.kernel not in stepped]
    chosen |= {(m.kernel, m.shape): m for m in own}
    return replace(run, measurements=sorted(chosen.values(), key=lambda m: m.problem))
