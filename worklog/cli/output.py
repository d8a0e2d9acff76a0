"""Options and output that several commands share. What loads NumPy or Rich is imported where it is used, so that --help
doesn't wait for it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.errors import BadSetting
from worklog.settings import OPTIONS, Harness, parse_settings

if TYPE_CHECKING:
    from pandas import DataFrame

    from worklog.kernel import Kernel
    from worklog.problem import Shape
    from worklog.runner.tasks import Progress
    from worklog.runs import Run


Option = Callable[[Any], Any]  # click's decorator


def _harness(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> Harness:
    return Harness().but(**parse_settings(words))


def _shape(_: click.Context, __: click.Parameter, word: str | None) -> Shape | None:
    from worklog.problem import Shape

    return None if word is None else Shape.of(word)


def _shapes(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> list[Shape]:
    from worklog.problem import Shape

    return [Shape.of(word) for listed in words for word in listed.split(",")]


def _new_file(_: click.Context, named: click.Parameter, out: Path | None) -> Path | None:
    """Raise BadSetting for a file that exists or can't be written, before minutes of work."""
    if out is None:
        return None
    from worklog.runs import require_writable  # here and below: --help doesn't wait for NumPy

    option = named.opts[0]
    if out.exists():
        raise BadSetting(f"{out} exists already: give {option} another name, or remove it first")
    require_writable(out.parent, str(out), f"give {option} another name")
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


def _kernel_option(name: str) -> Option:
    declared = OPTIONS[name]
    default, many = declared.default, isinstance(declared.default, tuple)
    return click.option(
        name,
        *declared.flags,
        default=None if many else default,
        multiple=many,
        type=click.IntRange(0) if isinstance(default, int) else str,
        show_default=bool(default),
        metavar=declared.metavar,
        help=declared.help,
    )


CHECKED = tuple(map(_kernel_option, ("claimed", "arrays")))  # of a kernel that is checked
LAUNCH = tuple(_kernel_option(name) for name in OPTIONS if name not in ("claimed", "arrays"))  # of a user kernel
# Of a problem other than the ladder's.
PROBLEM = (
    click.option(
        "--problem",
        metavar="NAME|FILE.py:CLASS",
        help="What the kernel solves: softmax, batched_gemm, sgemm, or your problem (default: the ladder's SGEMM).",
    ),
    click.option(
        "--dtype", default="", metavar="TYPE", help="With --problem: float32, float16, … (default: its first)."
    ),
)
CASE = click.option(
    "--case", "cases", multiple=True, metavar="NAME", help='With --problem, only these cases: a name, or "n=*".'
)
EXPORTS = "worklog.export"  # where a command's context keeps what to write


def _export_option(kind: str) -> Option:
    def keep(context: click.Context, option: click.Parameter, out: Path | None) -> None:
        if _new_file(context, option, out) is not None:
            context.meta.setdefault(EXPORTS, {})[option.name] = out

    file = click.Path(dir_okay=False, path_type=Path)
    about = f"Also write the {'tables' if kind == 'markdown' else 'measurements'} to a file."
    return click.option(f"--{kind}", metavar="FILE", type=file, callback=keep, expose_value=False, help=about)


EXPORT = tuple(map(_export_option, ("csv", "markdown", "parquet")))  # of a command that prints measurements


def options(*chosen: Option) -> Option:
    """All of these options, in this order in --help."""

    def decorate(command: Any) -> Any:
        for option in reversed(chosen):
            command = option(command)
        return command

    return decorate


def export(taken: Run | DataFrame, *, title: str = "", of_samples: bool = False) -> None:
    """Write a run, or a data frame with its title, to the files that the options name."""
    from worklog.runs import export as write

    for kind, path in click.get_current_context().meta.get(EXPORTS, {}).items():
        write(taken, kind, path, title=title, of_samples=of_samples)
        click.echo(f"written: {path}", err=True)


def axis_option(about: str, metavar: str = "NAME=VALUES") -> Option:
    """--axis, which is repeated for more."""
    return click.option("-a", "--axis", "axes", multiple=True, metavar=metavar, help=about)


def size_option(about: str, default: str | None = None) -> Option:
    """--size of a command that takes one shape."""
    return click.option("--size", "shape", callback=_shape, default=default, show_default=True, metavar="N", help=about)


def out_option(about: str = "Where to save the run (default: among this machine's runs).") -> Option:
    """--out of a command that saves one new file."""
    return click.option("--out", type=click.Path(dir_okay=False, path_type=Path), callback=_new_file, help=about)


def folder_option(default: str, about: str) -> Option:
    """--out of a command that writes into a folder. default: its name, which also says what is written."""

    def writable(_: click.Context, __: click.Parameter, out: Path) -> Path:
        from worklog.runs import require_writable

        require_writable(out, f"{default} into {out}", "give another folder with --out")
        return out

    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, default=default, show_default=True, callback=writable, help=about)


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


def print_run(
    taken: Run, *, with_details: bool = False, as_json: bool = False, kinds: Mapping[Shape, str] | None = None
) -> None:
    """Print a run as tables, or with kinds of shapes as one table of shares, and where it was saved; or as JSON. Write
    the files that --csv and the others name.
    """
    export(taken)
    if as_json:
        print_json(measurements(taken))
        return
    width = terminal_width()
    shares = f"{taken.full_label}\n{taken.shares(kinds).text(width)}\n" if kinds else ""
    click.echo(shares or taken.text(with_details=with_details, width=width), nl=False)
    if taken.origin == "live":
        click.echo(f"run saved: {taken.path}")


def print_adapted(kernels: Iterable[Kernel | str]) -> None:
    """What was read from the source of user kernels: the order of their parameters, and their launch."""
    said = [f"· {k.file}: {words}" for k in kernels if not isinstance(k, str) for words in k.adapted]
    for line in dict.fromkeys(said):
        click.echo(line, err=True)


def finish(taken: Run, **how: Any) -> None:
    """Print a run, as print_run does, and exit with 1 if a kernel failed the check."""
    print_run(taken, **how)
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
