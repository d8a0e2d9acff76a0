"""Options and output that several commands share. What loads NumPy or Rich is imported where it is used, so that --help
doesn't wait for it.
"""

from __future__ import annotations

import errno
import json
import select
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.errors import BadSetting
from worklog.settings import OPTIONS, Harness, parse_settings

if TYPE_CHECKING:
    from pandas import DataFrame

    from worklog.kernel import Kernel
    from worklog.problem import Shape
    from worklog.runner.job import Progress
    from worklog.runs import Run


Option = Callable[[Any], Any]  # click's decorator
LINE_S = 5.0  # seconds between two lines of progress where there is no terminal


def command(*chosen: Option) -> Option:
    """A command with these options, in this order in --help."""

    def decorate(function: Any) -> Any:
        for option in reversed(chosen):
            function = option(function)
        return click.command()(function)

    return decorate


def kept(*flags: str, check: Callable[[click.Parameter, Any], Any] = lambda _, value: value, **how: Any) -> Option:
    """An option that many commands have: it isn't a parameter of theirs, typed() gives its value."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        context.meta[f"worklog.{option.name}"] = check(option, value)

    return click.option(*flags, expose_value=False, callback=keep, **how)


def typed(option: str) -> Any:
    """The value of an option of the running command that is kept; None where the command doesn't have it."""
    return click.get_current_context().meta.get(f"worklog.{option}")


def flag(*names: str, about: str) -> Option:
    """An option without a value."""
    return click.option(*names, is_flag=True, help=about)


def _harness(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> Harness:
    return Harness().but(**parse_settings(words))


def _shape(_: click.Context, __: click.Parameter, word: str | None) -> Shape | None:
    from worklog.problem import Shape

    return None if word is None else Shape.of(word)


def _shapes(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> list[Shape]:
    from worklog.problem import Shape

    return [Shape.of(word) for listed in words for word in listed.split(",")]


def _new_file(option: click.Parameter, out: Path | None) -> Path | None:
    """Raise BadSetting for a file that exists or can't be written, before minutes of work."""
    if out is None:
        return None
    from worklog.runs import require_writable

    if out.exists():
        raise BadSetting(f"{out} exists already: give {option.opts[0]} another name, or remove it first")
    require_writable(out.parent, str(out), f"give {option.opts[0]} another name")
    return out


FILE = click.Path(dir_okay=False, path_type=Path)
PATH = click.Path(path_type=Path)
JSON = kept("--json", is_flag=True, help="Print JSON for machines instead of a table.")
HARNESS = click.option(
    "--set",
    "harness",
    multiple=True,
    callback=_harness,
    metavar="SETTING=VALUE",
    help="Change one harness setting, e.g. clocks=locked:1395 or l2=warm (see `worklog settings`).",
)
SIZES = click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=_shapes,
    metavar="N[,N…]",
    help="Sizes: 4096, or M x N x K as 512x1024x256.",
)


def _kernel_option(name: str) -> Option:
    declared = OPTIONS[name]
    default, many = declared.default, isinstance(declared.default, tuple)
    how: dict[str, Any] = {"type": click.IntRange(0) if isinstance(default, int) else str, "metavar": declared.metavar}
    how |= {"default": None if many else default, "show_default": bool(default), "multiple": many}
    return click.option(name, *declared.flags, help=declared.help, **how)


CHECKED = tuple(map(_kernel_option, ("claimed", "arrays")))  # of a kernel that is checked
LAUNCH = tuple(_kernel_option(name) for name in OPTIONS if name not in ("claimed", "arrays"))  # of a user kernel
# Of a problem other than the ladder's.
PROBLEM = (
    kept(
        "--problem",
        metavar="NAME|FILE.py:CLASS",
        help="What the kernel solves: softmax, batched_gemm, sgemm, or your problem (default: the ladder's SGEMM).",
    ),
    kept("--dtype", default="", metavar="TYPE", help="With --problem: float32, float16, … (default: its first)."),
)
CASE = kept("--case", multiple=True, metavar="NAME", help='With --problem, only these cases: a name, or "n=*".')
# Of a command that prints measurements.
EXPORT = tuple(
    kept(f"--{kind}", metavar="FILE", type=FILE, check=_new_file, help=f"Also write the {what} to a file.")
    for kind, what in (("csv", "measurements"), ("markdown", "tables"), ("parquet", "measurements"))
)


def axis_option(about: str, metavar: str = "NAME=VALUES") -> Option:
    """--axis, which is repeated for more."""
    return click.option("-a", "--axis", "axes", multiple=True, metavar=metavar, help=about)


def size_option(about: str, default: str | None = None) -> Option:
    """--size of a command that takes one shape."""
    return click.option("--size", "shape", callback=_shape, default=default, show_default=True, metavar="N", help=about)


def out_option(about: str = "Where to save the run (default: among this machine's runs).") -> Option:
    """--out of a command that saves one new file."""
    return click.option("--out", type=FILE, callback=lambda _, option, out: _new_file(option, out), help=about)


def folder_option(default: str, about: str) -> Option:
    """--out of a command that writes into a folder. default: its name, which also says what is written."""

    def writable(_: click.Context, __: click.Parameter, out: Path) -> Path:
        from worklog.runs import require_writable

        require_writable(out, f"{default} into {out}", "give another folder with --out")
        return out

    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, default=default, show_default=True, callback=writable, help=about)


def show(document: Any, text: object) -> None:
    """Print the document with --json, else the text."""
    click.echo(json.dumps(document, indent=1) if typed("json") else text)


def export(taken: Run | Callable[[], DataFrame], *, title: str = "", of_samples: bool = False) -> None:
    """Write a run, or a function's data frame with its title, to the files of --csv, --markdown and --parquet."""
    from worklog.runs import export as write

    for kind in ("csv", "markdown", "parquet"):
        if (path := typed(kind)) is not None:
            write(taken() if callable(taken) else taken, kind, path, title=title, of_samples=of_samples)
            click.echo(f"written: {path}", err=True)


def terminal_width(least: int = 60) -> int:
    """Characters per line for tables on standard output. least: a narrower terminal wraps whole lines, which is easier
    to read than columns of broken words.
    """
    from worklog.runs import WIDTH

    return max(shutil.get_terminal_size().columns, least) if sys.stdout.isatty() else WIDTH


def measurements(taken: Run) -> dict[str, Any]:
    """A run as JSON: its label, its file, and one row per measurement."""
    from worklog.runs.frames import rows

    return {"label": taken.label, "path": str(taken.path), "measurements": rows(taken)}


def print_run(taken: Run, *, with_details: bool = False, kinds: Mapping[Shape, str] | None = None) -> None:
    """Print a run as tables, or with kinds of shapes as one table of shares, and where it was saved; or as JSON. Write
    the files that --csv and the others name.
    """
    export(taken)
    width = terminal_width()
    text = taken.text(with_details=with_details, width=width).rstrip("\n")
    if kinds:
        text = f"{taken.full_label}\n{taken.shares(kinds).text(width)}"
    show(measurements(taken), f"{text}\nrun saved: {taken.path}" if taken.origin == "live" else text)


def finish(taken: Run, **how: Any) -> None:
    """Print a run, as print_run does, and exit with 1 if a kernel failed the check."""
    print_run(taken, **how)
    if any(m.status == "refused" for m in taken.measurements):
        sys.exit(1)


def print_adapted(kernels: Iterable[Kernel | str]) -> None:
    """What was read from the source of user kernels: the order of their parameters, and their launch."""
    said = [f"· {k.file}: {words}" for k in kernels if not isinstance(k, str) for words in (*k.adapted, *k.warnings)]
    for line in dict.fromkeys(said):
        click.echo(line, err=True)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar with the time left on standard error if that is a terminal; otherwise a line every LINE_S seconds.
    Raises BrokenPipeError where nothing reads standard output any more, so that no work is done for it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    terminal = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    bar = Bar(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task = bar.add_task("starting", total=None)
    started = told = time.monotonic()
    reader = select.poll()
    with suppress(OSError, ValueError):  # the stream of a notebook or a test has no number
        reader.register(sys.stdout, 0)  # for errors only

    def update(done: int, total: int, doing: str) -> None:
        nonlocal told
        if any(event & select.POLLERR for _, event in reader.poll(0)):
            raise BrokenPipeError(errno.EPIPE, "standard output is closed")
        if terminal.is_terminal:
            bar.start()
            bar.update(task, completed=done, total=total or None, description=doing)  # 0: not known
        elif (now := time.monotonic()) - told >= LINE_S:
            told = now
            click.echo(f"{done} of {total or '?'} after {now - started:.0f} s: {doing}", err=True)

    try:
        yield update
    finally:
        bar.stop()


def live_wanted(harness: Harness, out: Path | None = None, against: bool = False, known: Collection[str] = ()) -> bool:
    """Whether to measure; if not, --out, --against and --set of a setting that is not `known` raise BadSetting."""
    from worklog.runner import measure as bench

    if bench.live_wanted():
        return True
    changed = any(value != getattr(Harness, name) for name, value in harness.as_dict().items() if name not in known)
    for option, given in (("--out", out is not None), ("--set", changed), ("--against", against)):
        if given:
            raise BadSetting(f"{option} needs a live measurement, and there is no GPU here: omit it")
    return False
