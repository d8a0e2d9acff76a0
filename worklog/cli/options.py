"""What commands share: their options, what a shell completes for them, the files that they may write, and what they
print: tables or JSON on standard output; progress, and what was written, on standard error.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from worklog.errors import BadSetting, install_command
from worklog.gpu.device import require_gpu
from worklog.kernel import DEFAULTS, OPTIONS, RUNGS
from worklog.problem import PROBLEMS, Shape
from worklog.runs import WIDTH, Run, Table, require_writable, write_bytes, write_text
from worklog.settings import PITFALLS, Harness, parse_settings

if TYPE_CHECKING:
    from worklog.kernel import Kernel, Solution
    from worklog.runs import Progress as Report

LINE_S = 5.0  # seconds between two lines of progress where there is no terminal
Decorator = Callable[[Any], Any]
OF_SOLUTIONS = ("include", "define", "arrays")  # options of a user kernel that these take
DIGITS = 18
MOST = 10**DIGITS - 1  # of a whole number: the emulator's core and a run's file count in 64 bits


class _Place(click.Path):
    """A path that isn't empty: "" would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. A usage error for an empty one."""
        if not os.fspath(value).strip():
            self.fail("it is empty: give a name", param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A whole number from `min` to `max`, both included."""

    name = "integer"

    def __init__(self, min: int = 0, max: int = MOST) -> None:
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. A usage error for one out of range."""
        if isinstance(value, str) and value.isdecimal() and len(value) > DIGITS:
            self.fail(f"{value} is too large", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        return f"x>={self.min}" if self.max == MOST else super()._describe_range()


class Percent(click.FloatRange):
    """A number of percent."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; 5% is 5. A usage error for NaN."""
        if isinstance(value, str):
            value = value.rstrip("% ")
        if (number := super().convert(value, param, ctx)) != number:
            self.fail(f"{value!r} is not a number: give one such as 2", param, ctx)
        return number


FILE = _Place(dir_okay=False, path_type=Path)
FOLDER = _Place(file_okay=False, path_type=Path)
PATH = _Place(path_type=Path)


def completing(
    names: Collection[str],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers: those of the names that begin with the word, else files."""

    def complete(_: click.Context, __: click.Parameter, word: str) -> list[CompletionItem]:
        known = [CompletionItem(name) for name in names if name.startswith(word)]
        return known or [CompletionItem(word, type="file")]

    return complete


def kernel(name: str, metavar: str, **how: Any) -> Decorator:
    """An argument that names a rung or a file."""

    def named(
        _: click.Context, __: click.Parameter, words: str | tuple[str, ...]
    ) -> str | tuple[str, ...]:
        for word in [words] if isinstance(words, str) else words:
            if not word.strip(" ,"):
                raise BadSetting(f"{word!r} names no kernel: name a rung or a file")
        return words

    rungs = completing([rung.name for rung in RUNGS])
    return click.argument(name, metavar=metavar, shell_complete=rungs, callback=named, **how)


def new_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Raise BadSetting for a file that exists or can't be written, before minutes of work."""
    if path is not None:
        if option.name == "parquet" and find_spec("pyarrow") is None:
            raise BadSetting(
                f"--parquet: pandas has no library that writes it: {install_command('parquet')}"
            )
        if path.exists():
            raise BadSetting(
                f"{path} exists already: give {option.opts[0]} another name, or remove it first"
            )
        if not path.parent.exists():
            raise BadSetting(
                f"there is no folder {path.parent} for {option.opts[0]}: make it, or give another one"
            )
        require_writable(path.parent, str(path), f"give {option.opts[0]} another name")
        for name, other in context.params.items():
            if isinstance(other, Path) and other.resolve() == path.resolve():
                raise BadSetting(
                    f"--{name} and {option.opts[0]} name one file, {path}: give each its own"
                )
    return path


JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table."
)
HARNESS = click.option(
    "--set", "harness", multiple=True, callback=lambda _, __, words: Harness().but(**parse_settings(words)),
    metavar="SETTING=VALUE", shell_complete=completing([f"{g.setting}={word}" for g in PITFALLS for word in g.values]),
    help="Change one harness setting, e.g. clocks=locked:1395 or l2=warm (see `worklog doctor --settings`).",
)  # fmt: skip
SIZES = click.option(
    "--size", "shapes", multiple=True, metavar="N[,N…]", help="Sizes: 4096, or M x N x K as 512x1024x256.",
    callback=lambda _, __, words: [Shape.of(word) for listed in words for word in listed.split(",")],
)  # fmt: skip
PROBLEM = click.option(
    "--problem", shell_complete=completing(PROBLEMS), metavar="NAME|FILE.py:CLASS",
    help=f"What the kernel solves: {', '.join(PROBLEMS)}, or your problem (default: the ladder's SGEMM).",
)  # fmt: skip
DTYPE = click.option(
    "--dtype", default="", metavar="TYPE", help="Type of a problem's elements (default: its first)."
)


def exports(command: Any) -> Any:
    """--csv, --markdown and --parquet, each a parameter of the command: see write_exports()."""
    for kind, what in (
        ("parquet", "measurements"),
        ("markdown", "tables"),
        ("csv", "measurements"),
    ):
        option = click.option(
            f"--{kind}", type=FILE, callback=new_file, help=f"Also write the {what} to a file."
        )
        command = option(command)
    return command


def measuring(command: Any) -> Any:
    """The options of every command that measures into a run: --set, --out, and those of print_run()."""
    return HARNESS(out()(exports(JSON(command))))


def launch(command: Any) -> Any:
    """The options of a user kernel (worklog.kernel.OPTIONS), each a parameter of the command."""
    for name, option in reversed(OPTIONS.items()):
        several = isinstance(option.default, tuple)
        number = isinstance(option.default, int)
        command = click.option(
            name, *option.flags, help=option.help, metavar=option.metavar, multiple=several,
            type=Whole() if number else str, default=None if several else option.default,
            show_default=bool(option.default),
        )(command)  # fmt: skip
    return command


def axes(about: str) -> Decorator:
    """--axis, which is repeated for more."""
    return click.option(
        "-a", "--axis", "axes", multiple=True, metavar="NAME[KIND]=VALUES", help=about
    )


def size(about: str, default: str | None = None) -> Decorator:
    """--size of a command that takes one shape."""
    return click.option(
        "--size",
        "shape",
        type=Shape.of,
        default=default,
        show_default=True,
        metavar="N",
        help=about,
    )


def out(about: str = "Where to save the run (default: among this machine's runs).") -> Decorator:
    """--out of a command that saves one new file."""
    return click.option("--out", type=FILE, callback=new_file, help=about)


def folder(default: str, about: str) -> Decorator:
    """--out of a command that writes into a folder. default: its name, which also says what is written."""

    def writable(_: click.Context, __: click.Parameter, out: Path) -> Path:
        require_writable(out, f"{default} into {out}", "give another folder with --out")
        return out

    return click.option(
        "--out", type=FOLDER, default=default, show_default=True, callback=writable, help=about
    )


def solution_of(
    what: str, problem: str, dtype: str, launch: Mapping[str, Any], others: Mapping[str, object]
) -> Solution:
    """The solution that a command names. launch: the options of a user kernel. others: what was given to options that
    the command has for the ladder's SGEMM only. Raises BadSetting for one that was given.
    """
    from worklog.kernel import Solution  # here: a SGEMM needs none of it

    given = {
        name: value
        for name, value in launch.items()
        if value is not None and value != DEFAULTS[name]
    }
    wrong = [OPTIONS[name].flags[-1] for name in given if name not in OF_SOLUTIONS]
    wrong += [option for option, value in others.items() if value]
    if wrong:
        raise BadSetting(f"{wrong[0]} is for the ladder's SGEMM: omit it, or omit --problem")
    return Solution.of(what, problem=problem, dtype=dtype, **given)


def require_no_case(dtype: str, cases: Sequence[str] = ()) -> None:
    """Raise BadSetting for --dtype or --case without --problem."""
    if dtype or cases:
        raise BadSetting(
            f"{'--dtype' if dtype else '--case'} needs --problem: the ladder is FP32, its cases are sizes"
        )


def live_wanted(**given: object) -> bool:
    """Whether to measure; if not, an option that needs it raises BadSetting where it is given."""
    from worklog.runner import measure  # here: a check needs none of it

    live = measure.live_wanted()
    for option, value in given.items():
        if value and not live:
            raise BadSetting(
                f"--{option} needs a live measurement, and there is no GPU here: omit it"
            )
    return live


def require_gpu_for(word: str, problem: str = "") -> None:
    """Raise NoGpu, with what works without a GPU, for a user kernel by its word on the command line."""
    file = shlex.quote(word)
    if not word.endswith(".cu"):
        advice = f"{word} is a host function, which only a GPU runs: name a .cu file"
    elif problem:
        advice = (
            f"`worklog check {file} --problem {shlex.quote(problem)}` checks it on the emulator"
        )
    else:
        advice = f"`worklog check {file}` checks it on the emulator, `worklog inspect {file}` counts and predicts"
    require_gpu(advice)


def show(document: Any, text: object, as_json: bool) -> None:
    """Print the document as JSON, or the text."""
    click.echo(json.dumps(document, indent=1) if as_json else text)


def write_exports(
    shown: Run | Sequence[Mapping[Any, Any]],
    files: Mapping[str, Path | None],
    title: str = "",
    samples: bool = False,
) -> None:
    """Write a run, or rows with their title, to the files of --csv and --parquet (of a run, one row per measurement, or
    per sample), --markdown (of a run, its tables), and --bencher, the JSON of Bencher's metrics: nanoseconds and
    TFLOP/s by kernel and size. Raises BadRunFile where a file can't be written.
    """
    for kind, path in files.items():
        if path is None:
            continue
        rows = shown.rows() if isinstance(shown, Run) else shown
        if kind == "bencher":
            metrics: dict[str, Any] = {}
            for m in shown.select() if isinstance(shown, Run) else ():
                if m.time is not None:
                    value, low, high = (1e3 * us for us in (m.time.value, m.time.low, m.time.high))
                    metrics[m.title] = {
                        "latency": {"value": value, "lower_value": low, "upper_value": high}
                    }
                    metrics[m.title] |= {"tflops": {"value": m.tflops}} if m.tflops else {}
            write_text(path, metrics)
        elif kind == "markdown":
            as_text = [{name: str(value) for name, value in row.items()} for row in rows]
            tables = shown.tables() if isinstance(shown, Run) else [Table.of(title, as_text)]
            parts = [f"{shown.full_label}\n"] if isinstance(shown, Run) else []
            write_text(path, "\n".join([*parts, *(table.page() for table in tables)]))
        else:
            import pandas

            frame = (
                shown.samples() if isinstance(shown, Run) and samples else pandas.DataFrame(rows)
            )
            content = (
                frame.to_csv(index=False).encode()
                if kind == "csv"
                else frame.to_parquet(index=False)
            )
            write_bytes(path, content, f"give --{kind} another name")
        click.echo(f"written: {path}", err=True)


def terminal_width(least: int = 60) -> int:
    """Characters per line for tables. least: a narrower terminal wraps whole lines, which is easier to read."""
    return max(shutil.get_terminal_size().columns, least) if sys.stdout.isatty() else WIDTH


def print_run(
    run: Run, *, as_json: bool, table: Table | None = None, samples: bool = False, more: Mapping[str, Any] = {},
    **files: Path | None,
) -> None:  # fmt: skip
    """Print a run as tables, or as this one, and where it was saved now; or as JSON, with more. files, samples: as for
    write_exports().
    """
    write_exports(run, files, samples=samples)
    width = terminal_width()
    text = table.text(width) if table else run.text(width=width).rstrip("\n")
    text += f"\nrun saved: {run.path}" if run.origin == "live" and run.path is not None else ""
    document = {
        "label": run.label,
        "path": str(run.path),
        "notes": run.notes,
        "measurements": run.rows(),
    }
    show({**document, **more}, text, as_json)


def print_adapted(kernels: Iterable[Kernel | str]) -> None:
    """What was read from the source of user kernels: the order of their parameters, and their launch."""
    lines = [
        f"· {k.file}: {words}"
        for k in kernels
        if not isinstance(k, str)
        for words in (*k.adapted, *k.warnings)
    ]
    for line in dict.fromkeys(lines):
        click.echo(line, err=True)


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A progress bar on standard error if that is a terminal; otherwise a line every LINE_S seconds."""
    terminal = Console(stderr=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
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
