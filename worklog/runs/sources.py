"""Runs of this machine and of the package: where they are, and which one a name means."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.errors import BadRunFile, BadSetting, WorklogError, hinted, listed, meant, own_folder
from worklog.problem import Shape, Size
from worklog.runs.files import git
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run, frame_columns
from worklog.runs.text import a_few

if TYPE_CHECKING:
    import pandas

CHAPTERS = "chapters"  # the recordings of the rungs past the article's ladder
TIME_FORM = r"\d{4}(-(0\d|1[0-2])(-[0-3]\d(T[\d:+.]*)?)?)?"


def runs_dir() -> Path:
    """Return the folder of live runs.

    It's WORKLOG_HOME/runs if set, else in the user's data folder.
    """
    return own_folder("WORKLOG_HOME", "data") / "runs"


def new_path(created: str = "") -> Path:
    """Return a new file name: the time (default: now) and a few random characters."""
    created = created or datetime.now(UTC).isoformat()
    return runs_dir() / f"{created[:19].replace(':', '-')}Z-{secrets.token_hex(2)}.jsonl"


def live_runs() -> list[Path]:
    """Return the run files of this machine, newest first."""
    return _files(runs_dir())[::-1]


def kept_runs() -> Iterator[Run]:
    """Yield the runs of this machine, newest first.

    A run that can't be read is skipped with a warning that names its file.
    """
    for path in live_runs():
        try:
            yield Run.load(path)
        except BadRunFile as error:
            if path.exists():  # it wasn't removed meanwhile
                warnings.warn(f"skipped a run of this machine: {error}; or remove it", stacklevel=3)


def recordings(part: str = "") -> dict[str, Path]:
    """Return the package's runs by name, or the documents of a part.

    part: CHAPTERS, "grid", "sweeps", "peers", "turns", ...
    """
    folder = Path(str(resources.files("worklog"))) / "recordings" / part
    return {path.stem: path for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    """Return the JSON and JSON Lines files of a folder, sorted by name.

    Files that are incomplete, or reserved and still empty, are left out.
    """
    files = list[Path]()
    for path in folder.glob("*.json*"):
        with suppress(FileNotFoundError):  # another process has removed it
            if path.suffix in (".json", ".jsonl") and path.stat().st_size:
                files.append(path)
    return sorted(files)


def forced_source() -> str:
    """Return the source that WORKLOG_SOURCE forces: "live", "recorded" or "".

    Raises WorklogError for any other value.
    """
    source = os.environ.get("WORKLOG_SOURCE", "")
    if source not in ("", "live", "recorded"):
        raise WorklogError(
            f"WORKLOG_SOURCE={source} is not a source: set it to live or recorded, or unset it"
        )
    return source


@hinted
def open_run(
    name: str | Path | None = None, *, kernels: Iterable[str] | str = (), shape: Size | None = None
) -> Run:
    """Return a run, whose label states where it comes from.

    name: of a file; a part of a name that `worklog log` prints; the name of a recording of the
        package; a git revision, for the newest run that was measured at its commit; or a file in
        a revision, as REVISION:PATH. Without a name, the newest run of this machine that has
        these kernels and a time at this shape, else a recording that has them.
    shape: as for worklog.measure (default: any)
    WORKLOG_SOURCE=live or =recorded forces a source. Raises BadRunFile if it has no such run, and
    BadSetting for an unknown name.
    """
    if name is not None:
        return _run_by_name(str(name))
    names = listed("kernels", kernels)
    timed_shape = None if shape is None else Shape.of(shape)

    def holds(run: Run) -> bool:
        if timed_shape and not any(m.us for m in run.select(shape=timed_shape)):
            return False
        return all(run.select(name, timed_shape) for name in names)

    run = newest_run(holds)
    if not holds(run):
        raise BadRunFile(
            f"no run holds {', '.join(names) or 'a time'} at {timed_shape or 'any size'}: "
            "measure it on a GPU"
        )
    return run


def _run_by_name(name: str) -> Run:
    """Return a run by its name: see open_run()."""
    if Path(name).is_file():
        return Run.load(name)
    paths = [path for path in live_runs() if name and name in path.stem]
    if len(paths) > 1:
        raise BadSetting(
            f"{name} names {len(paths)} runs ({a_few(path.stem for path in paths)}): give more of "
            "the name"
        )
    if paths:
        return Run.load(paths[0])
    shipped = recordings(CHAPTERS) | recordings()
    if name in shipped:
        return Run.load(shipped[name], "recorded")
    if ":" in name:
        return _run_in_revision(name)
    commit = _commit(name)
    if commit:
        return _run_at(name, commit)
    if name and Path(name).exists():
        kind = "a folder" if Path(name).is_dir() else "a pipe or a device"
        raise BadSetting(f"{name} is {kind}, not a run: give the file of a run")
    suggestion = meant(name, [path.stem for path in live_runs()] + [*shipped])
    names = ", ".join(shipped)
    advice = (
        f"give a file, a name of `worklog log`, a recording ({names}), a revision, or REVISION:PATH"
    )
    raise BadSetting(f"there is no run {name!r}{suggestion}: {advice}")


def _commit(revision: str) -> str:
    """Return the commit of a git revision such as HEAD~1, or "" if there is none."""
    with suppress(BadSetting):
        pattern = f"{revision}^{{commit}}"
        return git("rev-parse", "--verify", "--end-of-options", pattern).decode().split()[-1]
    return ""


def _run_at(revision: str, commit: str) -> Run:
    """Return this machine's newest run that was measured at a commit without changes."""
    for run in kept_runs():
        if run.tool.get("commit") == commit and not run.tool.get("dirty"):
            return run
    advice = "check it out and use `worklog run`, or give REVISION:PATH of a committed run"
    raise BadSetting(f"no saved run was measured at {revision} ({commit[:12]}): {advice}")


def _run_in_revision(name: str) -> Run:
    """Return a run from a file in a git revision, as REVISION:PATH."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(git("show", name))
        file.flush()
        try:
            return Run.load(file.name)
        except BadRunFile as error:
            raise BadRunFile(str(error).replace(file.name, name)) from error


def newest_run(holds: Callable[[Run], object] = lambda _run: True) -> Run:
    """Return the newest run of this machine that passes a test.

    Without one, return a recording that passes it, else the article's recording.
    holds: the test
    WORKLOG_SOURCE forces a source. Raises BadRunFile if it has no such run.
    """
    forced = forced_source()
    for run in () if forced == "recorded" else kept_runs():
        if holds(run):
            return run
    if forced == "live":
        raise BadRunFile(
            f"WORKLOG_SOURCE=live, but {runs_dir()} holds no such run: "
            "measure one with `worklog run`"
        )
    article = recorded_run()
    chapters = map(load_recording, recordings(CHAPTERS).values())
    return article if holds(article) else next(filter(holds, chapters), article)


def recorded_run() -> Run:
    """Return the recording of the package. Raises BadRunFile if it's missing."""
    for recording in recordings().values():
        return load_recording(recording)
    raise BadRunFile(
        "this installation has no recording: install gemm-worklog again, "
        "or measure with `worklog run`"
    )


def load_recording(path: Path) -> Run:
    """Return a recording. A process reads each file once, unless it changes."""
    file = path.stat()
    run = copy(_loaded(path, file.st_mtime_ns, file.st_size))
    # A caller may change its run, such as its notes. Measurements are immutable.
    run.measurements = [*run.measurements]
    run.notes = [*run.notes]
    run.kernels = dict(run.kernels)
    return run


@lru_cache(maxsize=64)
def _loaded(path: Path, modified_ns: int, size: int) -> Run:
    """Return a recording as it was at a time."""
    return Run.load(path, "recorded")


def in_steps() -> Run:
    """Return a run of the recordings at sizes in steps.

    If the article's recording has the same kernel and size, its measurement is used, since it has
    more samples. Kernels that only the article's recording has are added.
    """
    run = recorded_run()
    measurements = dict[Any, Measurement]()
    for name, path in recordings(CHAPTERS).items():
        if "sizes" in name:
            stepped_run = load_recording(path)
            measurements |= {(m.kernel, m.shape): m for m in stepped_run.measurements}
    stepped = {kernel for kernel, _ in measurements}
    for m in run.select():
        if (m.kernel, m.shape) in measurements or m.kernel not in stepped:
            measurements[m.kernel, m.shape] = m
    return replace(run, measurements=sorted(measurements.values(), key=lambda m: m.problem))


@hinted
def history(
    kernel: str = "", *, gpu: str = "", since: str = "", until: str = "", commit: str = ""
) -> pandas.DataFrame:
    """Return the measurements of this machine's runs as one frame.

    The columns are those of `run.frame()`, after the run's name, its time of creation, the card
    and the commit. The arguments choose runs as in saved().

    Example: `worklog.history("warptiled", since="2026-11").pivot_table("us", "created", "n")`.
    """
    import pandas

    rows = list[dict[str, Any]]()
    names = ["run", "created", "gpu", "uuid", "commit"]
    for run in saved(kernel, gpu=gpu, since=since, until=until, commit=commit):
        stem = run.path.stem if run.path else None
        commit_of_run = run.tool.get("commit")
        values = [stem, run.created, run.gpu.name, run.gpu.uuid, commit_of_run]
        columns = dict(zip(names, values, strict=True))
        rows += [columns | row for row in run.rows() if kernel in ("", row["kernel"])]
    return pandas.DataFrame(rows, columns=None if rows else [*names, *frame_columns()])


def saved(
    kernel: str = "", *, gpu: str = "", since: str = "", until: str = "", commit: str = ""
) -> list[Run]:
    """Return the runs of this machine, newest first.

    kernel: the name of a kernel that a run measured
    gpu: a part of the card's name or UUID
    since, until: first and last UTC time, as "2026-11", "2026-11-27" or longer
    commit: the first digits
    Raises BadSetting for another form of a time.
    """
    for time in filter(None, (since, until)):
        if not re.fullmatch(TIME_FORM, time):
            raise BadSetting(
                f"{time!r} isn't a UTC day, month or time: write it as 2026-11-27, 2026-11 or "
                "2026-11-27T03:12"
            )
    runs = list[Run]()
    for run in kept_runs():
        if kernel and all(m.kernel != kernel for m in run.measurements):
            continue
        if gpu.lower() not in f"{run.gpu.name} {run.gpu.uuid}".lower():
            continue
        if not str(run.tool.get("commit") or "").startswith(commit):
            continue
        if since <= run.created and run.created[: len(until)] <= until:
            runs.append(run)
    return runs
