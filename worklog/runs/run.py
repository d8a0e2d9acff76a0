"""Runs: what was measured, as files, tables and data frames."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile
from worklog.runs import frames, run_file, tables
from worklog.runs.documents import write_text
from worklog.runs.measurement import Measurement
from worklog.runs.record import RunRecord


class _Charts:
    """`run.plot`, the charts of a run. Not a property, behind which IPython completes nothing."""

    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        # By name: this room lies below the charts, and matplotlib is slow to import.
        return self if run is None else import_module("worklog.plots").Plots(run)


class Run(RunRecord):
    """Measurements plus provenance: see RunRecord. It shows itself, and grows in its file."""

    plot = _Charts()
    frame, samples, pivot, shares = frames.measurements, frames.samples, frames.pivot, frames.shares
    text = __repr__ = tables.text
    _repr_html_ = tables.html

    @classmethod
    def load(cls, path: Path, origin: str = "") -> Run:
        """Read a run file. origin: instead of what the file says. Raises BadRunFile."""
        return run_file.read_run(cls, path, origin)

    @classmethod
    def begin(cls, head: Sequence[str], path: Path | None = None) -> Run:
        """A run with this head, in its file (default: a new one among this machine's runs). Raises BadRunFile."""
        run = run_file.read_lines(cls, head, path or Path())
        run.path = path or new_path(run.gpu.name, run.created, secrets.token_hex(2))
        write_text(run.path, "".join(f"{line}\n" for line in head))
        return run

    def save(self, path: Path | None = None) -> Path:
        """Write the whole file to `path` (default: where it was saved before) atomically. Raises BadRunFile."""
        target = path or self.path
        if target is None:
            raise BadRunFile("this run has no file yet: give save() a path")
        write_text(target, "".join(f"{line}\n" for line in run_file.lines_of(self)))
        self.path = target
        return target

    def add(self, m: Measurement, line: str = "") -> None:
        """Append a measurement that was made under this run's harness, device and date, and its line to the file."""
        self.measurements.append(self.in_context(m))
        self._append(line or run_file.line("measurement", m))

    def add_note(self, note: str) -> None:
        """Append a note, to the file too."""
        self.notes.append(note)
        self._append(run_file.line("note", {"text": note}))

    def describe(self, kernel: str, about: dict[str, object]) -> None:
        """State what a kernel is, in the file too."""
        self.kernels[kernel] = about
        self._append(run_file.line("kernel", {"name": kernel, "about": about}))

    def end(self) -> None:
        """The run is complete."""
        self.complete = True
        self._append(run_file.line("end", {}))

    def _append(self, line: str) -> None:
        if self.path is not None:
            run_file.append(self.path, [line])


def runs_dir() -> Path:
    """Where live runs are saved: WORKLOG_HOME/runs if set, else the user's data folder."""
    import platformdirs

    return Path(os.environ.get("WORKLOG_HOME") or platformdirs.user_data_dir("worklog", appauthor=False)) / "runs"


def new_path(device_name: str, created: str, token: str) -> Path:
    """A fresh file name: time, device and a few random characters."""
    slug = "".join(c if c.isalnum() else "-" for c in device_name.lower()).strip("-").removeprefix("nvidia-")
    return runs_dir() / f"{created[:19].replace(':', '-')}Z-{slug}-{token}.jsonl"
