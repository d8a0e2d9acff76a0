"""Options and output that several commands share. What loads NumPy or Rich is imported where it is used, so that --help
doesn't wait for it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.errors import BadSetting
from worklog.gpu.device import not_writable
from worklog.settings import Harness, parse_settings

if TYPE_CHECKING:
    from worklog.kernel import Kernel
    from worklog.problem import Shape
    from worklog.runner.tasks import Progress
    from worklog.runs import Run


def _harness(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> Harness:
    return Harness().but(**parse_settings(words))


def _shape(_: click.Context, __: click.Parameter, word: str | None) -> Shape | None:
    from worklog.problem import Shape

    return None if word is None else Shape.of(word)


def _shapes(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> list[Shape]:
    from worklog.problem import Shape

    return [Shape.of(word) for listed in words for word in listed.split(",")]


def _new_file(_: click.Context, named: click.Parameter, out: Path | None) -> Path | None:
    """Refuse a file that exists or cannot be written: before minutes of work, not after them."""
    if out is None:
        return None
    option = named.opts[0]
    if out.exists():
        raise BadSetting(f"{out} exists already: give {option} another name, or remove it first")
    why = not_writable(out.parent)
    if why is not None:
        raise BadSetting(f"cannot write {out}: {why}; give {option} another name")
    return out


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table.")
harness_option = click.option(
    "--set",
    "harness",
    multiple=True,
    callback=_harness,
    metavar="SETTING=VALUE",
    help="Change one harness setting, e.g. clocks=locked:1395 or l2=warm (see `worklog settings`).",
)
sizes_option = click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=_shapes,
    metavar="N[,N…]",
    help="Sizes: 4096, or M x N x K as 512x1024x256.",
)


KINDS = ("csv", "markdown", "parquet")
EXPORTS = "worklog.export"  # where a command's context keeps what to write


def export_options(command: Any) -> Any:
    """--csv, --markdown and --parquet of a command that prints a run."""

    def keep(context: click.Context, option: click.Parameter, out: Path | None) -> None:
        if _new_file(context, option, out) is not None:
            context.meta.setdefault(EXPORTS, {})[option.name] = out

    for kind in reversed(KINDS):
        file = click.Path(dir_okay=False, path_type=Path)
        about = f"Also write the {'tables' if kind == 'markdown' else 'measurements'} to a file."
        command = click.option(f"--{kind}", metavar="FILE", type=file, callback=keep, expose_value=False, help=about)(
            command
        )
    return command


def export(taken: Run, *, of_samples: bool = False) -> None:
    """Write the run to the files that the options name."""
    from worklog.runs import frames

    for kind, path in click.get_current_context().meta.get(EXPORTS, {}).items():
        frames.export(taken, kind, path, of_samples=of_samples)
        click.echo(f"written: {path}", err=True)


def size_option(about: str, default: str | None = None) -> Callable[[Any], Any]:
    """--size of a command that takes one shape."""
    return click.option("--size", "shape", callback=_shape, default=default, show_default=True, metavar="N", help=about)


def out_option(about: str = "Where to save the run (default: among this machine's runs).") -> Callable[[Any], Any]:
    """--out of a command that saves one new file."""
    return click.option("--out", type=click.Path(dir_okay=False, path_type=Path), callback=_new_file, help=about)


def print_json(document: Any) -> None:
    """One document on standard output."""
    click.echo(json.dumps(document, indent=1))


def terminal_width(least: int = 60) -> int:
    """Characters per line for tables on standard output. least: a narrower terminal wraps whole lines, which is easier
    to read than columns of broken words.
    """
    from worklog.runs import WIDTH

    return max(shutil.get_terminal_size().columns, least) if sys.stdout.isatty() else WIDTH


def measurements(taken: Run) -> dict[str, Any]:
    """A run as JSON: its label, its file, and one row per measurement."""
    rows = json.loads(taken.frame().to_json(orient="records"))
    return {"label": taken.label, "path": str(taken.path), "measurements": rows}


def print_run(taken: Run, *, with_details: bool = False, as_json: bool = False) -> None:
    """Print a run as tables, and where it was saved, or as JSON; and write the files that --csv and the others name."""
    export(taken)
    if as_json:
        print_json(measurements(taken))
        return
    click.echo(taken.text(with_details=with_details, width=terminal_width()), nl=False)
    if taken.origin == "live":
        click.echo(f"run saved: {taken.path}")


def print_adapted(kernels: Iterable[Kernel | str]) -> None:
    """What was read from the source of user kernels: the order of their parameters, and their launch."""
    said = [f"· {k.file}: {words}" for k in kernels if not isinstance(k, str) for words in k.adapted]
    for line in dict.fromkeys(said):
        click.echo(line, err=True)


def exit_if_failed(taken: Run) -> None:
    """Exit with 1 if a kernel failed the check."""
    if any(m.status == "refused" for m in taken.measurements):
        sys.exit(1)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar with the time left on standard error if that is a terminal; nothing otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    terminal = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    bar = Bar(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
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
    from worklog.runner import measure as bench

    if bench.live_wanted():
        return True
    for option, given in (("--out", out is not None), ("--set", harness != Harness())):
        if given:
            raise BadSetting(f"{option} needs a live measurement, and there is no GPU here: omit it")
    return False
