"""What commands print: tables or JSON on standard output; progress, and what was written, on standard error."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from worklog.runs import WIDTH, Run
from worklog.runs.run import export

if TYPE_CHECKING:
    from pandas import DataFrame

    from worklog.kernel import Kernel
    from worklog.problem import Shape
    from worklog.runner.job import Progress as Report

LINE_S = 5.0  # seconds between two lines of progress where there is no terminal


def show(document: Any, text: object, as_json: bool) -> None:
    """Print the document as JSON, or the text."""
    click.echo(json.dumps(document, indent=1) if as_json else text)


def write_exports(table: Run | DataFrame, files: Mapping[str, Path | None], **how: Any) -> None:
    """Write a run or a data frame to the files of --csv, --markdown and --parquet. how: as for worklog.runs.export."""
    for kind, path in files.items():
        if path is not None:
            export(table, kind, path, **how)
            click.echo(f"written: {path}", err=True)


def terminal_width(least: int = 60) -> int:
    """Characters per line for tables on standard output. least: a narrower terminal wraps whole lines, which is easier
    to read than columns of broken words.
    """
    return max(shutil.get_terminal_size().columns, least) if sys.stdout.isatty() else WIDTH


def print_run(
    run: Run, *, as_json: bool, details: bool = False, kinds: Mapping[Shape, str] = {}, pivot: bool = False,
    of_samples: bool = False, **files: Path | None,
) -> None:  # fmt: skip
    """Print a run as tables, with kinds of shapes as one table of shares, or with its kernels beside each other, and
    where it was saved now; or as JSON. files, of_samples: as for write_exports().
    """
    write_exports(run, files, of_samples=of_samples)
    width = terminal_width()
    text = run.pivot().text(width) if pivot else run.text(with_details=details, width=width).rstrip("\n")
    if kinds:
        text = f"{run.full_label}\n{run.shares(kinds).text(width)}"
    text += f"\nrun saved: {run.path}" if run.origin == "live" and run.path is not None else ""
    show({"label": run.label, "path": str(run.path), "measurements": run.rows()}, text, as_json)


def print_adapted(kernels: Iterable[Kernel | str]) -> None:
    """What was read from the source of user kernels: the order of their parameters, and their launch."""
    lines = [f"· {k.file}: {words}" for k in kernels if not isinstance(k, str) for words in (*k.adapted, *k.warnings)]
    for line in dict.fromkeys(lines):
        click.echo(line, err=True)


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A progress bar with the time left on standard error if that is a terminal; otherwise a line every LINE_S
    seconds.
    """
    terminal = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task = bar.add_task("starting", total=None)
    started = printed = time.monotonic()

    def update(done: int, total: int, doing: str) -> None:
        nonlocal printed
        now = time.monotonic()
        if terminal.is_terminal:
            bar.start()
            bar.update(task, completed=done, total=total or None, description=doing)  # 0: not known
        elif now - printed >= LINE_S:
            printed = now
            click.echo(f"{done} of {total or '?'} after {now - started:.0f} s: {doing}", err=True)

    try:
        yield update
    finally:
        bar.stop()
