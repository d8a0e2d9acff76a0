"""What all commands share: printing, exit codes, progress, and output files."""

from __future__ import annotations

import errno
import io
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.errors import BadSetting, Interrupted, WorklogError

if TYPE_CHECKING:
    from worklog.bench.tasks import Progress
    from worklog.runs.run import Run
    from worklog.settings import Harness

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table.")


def _harness(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> Harness:
    from worklog.settings import Harness, parse_settings

    return Harness().but(**parse_settings(words))


harness_option = click.option(
    "--set",
    "harness",
    multiple=True,
    callback=_harness,
    metavar="SETTING=VALUE",
    help="Change one harness setting, e.g. clocks=locked:1395 or l2=warm (see `worklog settings`).",
)


class Commands(click.Group):
    """Commands in the order in which they were added. An error that a user can act on is printed as one line, without a
    traceback: this package's errors, an interrupt, and a full disk.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a WorklogError becomes its message and exit code."""
        _print_what_the_terminal_has()
        try:
            return super().invoke(ctx)
        except WorklogError as error:
            _complain(ctx, str(error), error.exit_code)
        except KeyboardInterrupt:
            _complain(ctx, "interrupted", Interrupted.exit_code)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            _complain(ctx, f"{error.strerror}: the last output is incomplete", 1)


def _complain(ctx: click.Context, what: str, exit_code: int) -> None:
    click.echo(f"worklog: {what}", err=True)
    ctx.exit(exit_code)


def _print_what_the_terminal_has() -> None:
    """Print a question mark for a character that the output's encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="replace")


def print_json(document: Any) -> None:
    """One document on standard output."""
    click.echo(json.dumps(document, indent=1))


def terminal_width(least: int = 60) -> int:
    """Characters per line for tables on standard output. least: a narrower terminal wraps whole lines, which is easier
    to read than columns of broken words.
    """
    from worklog.runs.tables import WIDTH

    return max(shutil.get_terminal_size().columns, least) if sys.stdout.isatty() else WIDTH


def measurements(taken: Run) -> dict[str, Any]:
    """A run as JSON: its label, its file, and one row per measurement."""
    rows = json.loads(taken.frame().to_json(orient="records"))
    return {"label": taken.label, "path": str(taken.path), "measurements": rows}


def print_run(taken: Run, *, with_details: bool = False) -> None:
    """Print a run as tables, and where it was saved."""
    from worklog.runs import tables

    click.echo(tables.text(taken, with_details=with_details, width=terminal_width()), nl=False)
    if taken.origin == "live":
        click.echo(f"run saved: {taken.path}")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar with the time left on standard error if that is a terminal; nothing otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    terminal = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task = bar.add_task("starting", total=None)

    def update(done: int, total: int, doing: str) -> None:
        bar.start()
        bar.update(task, completed=done, total=total or None, description=doing)  # 0: not known

    try:
        yield update
    finally:
        bar.stop()


def live_wanted(harness: Harness, out: Path | None = None) -> bool:
    """Whether to measure; otherwise the recording is shown, and --out and --set raise BadSetting."""
    from worklog.bench import measure as bench
    from worklog.settings import Harness

    if bench.live_wanted():
        return True
    for option, given in (("--out", out is not None), ("--set", harness != Harness())):
        if given:
            raise BadSetting(f"{option} needs a live measurement, and there is no GPU here: omit it")
    return False


def require_new_file(out: Path | None) -> None:
    """Raise BadSetting for a file that exists or cannot be written: before minutes of work, not after them."""
    if out is None:
        return
    if out.exists():
        raise BadSetting(f"{out} exists already: give --out another name, or remove it first")
    from worklog.gpu.device import not_writable

    why = not_writable(out.parent)
    if why is not None:
        raise BadSetting(f"cannot write {out}: {why}; give --out another name")
