"""What commands share: their options, shell completion, output files, and printing.

Tables or JSON go to standard output. Progress, and the names of written files, go to standard
error.
"""

from __future__ import annotations

import json
import math
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
from worklog.kernel import RUNGS
from worklog.kernel.by_name import DEFAULTS, OPTIONS
from worklog.problem import CLASSES, PROBLEMS, Shape
from worklog.runs import Run
from worklog.runs.files import require_writable, write_bytes, write_text
from worklog.runs.text import WIDTH, Table
from worklog.settings import PITFALLS, Harness, parse_settings

if TYPE_CHECKING:
    from worklog.kernel import Kernel
    from worklog.kernel.solution import Solution
    from worklog.runs.text import Progress as Report

LINE_S = 5.0  # seconds between two lines of progress without a terminal
Decorator = Callable[[Any], Any]
OF_SOLUTIONS = ("include", "define", "arrays")  # options of a user kernel that solutions take
WITH_ENERGY = "worklog.energy"  # in the context of a command: whether --energy was typed
ENERGY_S = 1.0  # of the loop that --energy adds
DIGITS = 18
MAX_WHOLE = 10**DIGITS - 1  # the emulator's core and a run's file count in 64 bits


class _Place(click.Path):
    """A path that isn't empty: "" would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. An empty path is a usage error."""
        if not os.fspath(value).strip():
            self.fail("it is empty: give a name", param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A whole number from `min` to `max`, both included."""

    name = "integer"

    def __init__(self, min: int = 0, max: int = MAX_WHOLE) -> None:
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. A number out of range is a usage error."""
        if isinstance(value, str) and value.isdecimal() and len(value) > DIGITS:
            self.fail(f"{value} is too large", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        return f"x>={self.min}" if self.max == MAX_WHOLE else super()._describe_range()


class Percent(click.FloatRange):
    """A number of percent."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; 5% is 5. NaN is a usage error."""
        if isinstance(value, str):
            value = value.rstrip("% ")
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number: give one such as 2", param, ctx)
        return number


FILE = _Place(dir_okay=False, path_type=Path)
FOLDER = _Place(file_okay=False, path_type=Path)
PATH = _Place(path_type=Path)


def name_completer(
    names: Collection[str],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what a shell offers: the names that begin with the typed text, else files."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        items = [CompletionItem(name) for name in names if name.startswith(typed)]
        return items or [CompletionItem(typed, type="file")]

    return complete


def kernel(name: str, metavar: str, **settings: Any) -> Decorator:
    """Return an argument that names a rung or a file.

    settings: of click.argument
    """

    def require_names(
        _: click.Context, __: click.Parameter, value: str | tuple[str, ...]
    ) -> str | tuple[str, ...]:
        for argument in [value] if isinstance(value, str) else value:
            if not argument.strip(" ,"):
                raise BadSetting(f"{argument!r} names no kernel: name a rung or a file")
        return value

    rungs = name_completer([rung.name for rung in RUNGS])
    return click.argument(
        name, metavar=metavar, shell_complete=rungs, callback=require_names, **settings
    )


def new_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Raise BadSetting for a file that exists or can't be written.

    This is before minutes of work.
    """
    if path is None:
        return None
    flag = option.opts[0]
    if option.name == "parquet" and find_spec("pyarrow") is None:
        raise BadSetting(
            f"--parquet: pandas has no library that writes it: {install_command('parquet')}"
        )
    if path.exists():
        raise BadSetting(f"{path} exists already: give {flag} another name, or remove it first")
    if not path.parent.exists():
        raise BadSetting(
            f"there is no folder {path.parent} for {flag}: make it, or give another one"
        )
    require_writable(path.parent, str(path), f"give {flag} another name")
    for name, value in context.params.items():
        if isinstance(value, Path) and value.resolve() == path.resolve():
            raise BadSetting(f"--{name} and {flag} name one file, {path}: give each its own")
    return path


def _biased_settings() -> list[str]:
    """Return every biased setting of the harness, as --set takes it."""
    settings = []
    for pitfall in PITFALLS:
        settings += [f"{pitfall.setting}={value}" for value in pitfall.values]
    return settings


def _shapes(lists: Sequence[str]) -> list[Shape]:
    """Return the shapes of several lists with commas."""
    shapes = []
    for sizes in lists:
        shapes += [Shape.of(size) for size in sizes.split(",")]
    return shapes


def _harness(context: click.Context, _: click.Parameter, settings: Sequence[str]) -> Harness:
    """Return the harness of --set, and of --energy, which was read before."""
    harness = Harness().but(**parse_settings(settings))
    if context.meta.get(WITH_ENERGY) and not harness.energy_s:
        return harness.but(energy_s=ENERGY_S)
    return harness


def _keep_energy(context: click.Context, _: click.Parameter, has_energy: bool) -> None:
    """Keep --energy for the harness."""
    context.meta[WITH_ENERGY] = has_energy


JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table."
)
HARNESS = click.option(
    "--set",
    "harness",
    multiple=True,
    callback=_harness,
    metavar="SETTING=VALUE",
    shell_complete=name_completer(_biased_settings()),
    help=(
        "Change one harness setting, e.g. clocks=locked:1395 or l2=warm (see `worklog doctor "
        "--settings`)."
    ),
)
ENERGY = click.option(
    "--energy",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_keep_energy,
    help=(
        "Also measure the joules of a launch, by NVML's counter of the whole board, during "
        f"launches in a row: {ENERGY_S:g} s or more for each kernel and size."
    ),
)
SIZES = click.option(
    "--size",
    "shapes",
    multiple=True,
    metavar="N[,N…]",
    help="Sizes: 4096, or M x N x K as 512x1024x256.",
    callback=lambda _, __, lists: _shapes(lists),
)
PROBLEM = click.option(
    "--problem",
    shell_complete=name_completer(PROBLEMS),
    metavar="NAME|FILE.py:CLASS",
    help=(
        f"Problem that the kernel solves: {', '.join(PROBLEMS)}, or your problem (default: the "
        "ladder's SGEMM)."
    ),
)
DTYPE = click.option(
    "--dtype", default="", metavar="TYPE", help="Type of a problem's elements (default: its first)."
)


def exports(command: Any) -> Any:
    """Add --csv, --markdown and --parquet, each a parameter of the command.

    write_exports() takes them.
    """
    for kind, content in (
        ("parquet", "measurements"),
        ("markdown", "tables"),
        ("csv", "measurements"),
    ):
        option = click.option(
            f"--{kind}", type=FILE, callback=new_file, help=f"Also write the {content} to a file."
        )
        command = option(command)
    return command


def measuring(command: Any) -> Any:
    """Add the options of a command that measures into a run.

    They are --set, --out, and the options of print_run().
    """
    return HARNESS(out()(exports(JSON(command))))


def launch(command: Any) -> Any:
    """Add the options of a user kernel (by_name.OPTIONS), each a parameter."""
    for name, option in reversed(OPTIONS.items()):
        is_repeated = isinstance(option.default, tuple)
        is_number = isinstance(option.default, int)
        command = click.option(
            name,
            *option.flags,
            help=option.help,
            metavar=option.metavar,
            multiple=is_repeated,
            type=Whole() if is_number else str,
            default=None if is_repeated else option.default,
            show_default=bool(option.default),
        )(command)
    return command


def axes(about: str) -> Decorator:
    """Return --axis, which is repeated for more."""
    return click.option(
        "-a", "--axis", "axes", multiple=True, metavar="NAME[KIND]=VALUES", help=about
    )


def size(about: str, default: str | None = None) -> Decorator:
    """Return --size of a command that takes one shape."""
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
    """Return --out of a command that saves one new file."""
    return click.option("--out", type=FILE, callback=new_file, help=about)


def folder(default: str, about: str) -> Decorator:
    """Return --out of a command that writes into a folder.

    default: the folder's name, which also says what is written
    """

    def require_folder(_: click.Context, __: click.Parameter, out: Path) -> Path:
        require_writable(out, f"{default} into {out}", "give another folder with --out")
        return out

    return click.option(
        "--out",
        type=FOLDER,
        default=default,
        show_default=True,
        callback=require_folder,
        help=about,
    )


def solution_of(
    source: str,
    problem: str,
    dtype: str,
    *,
    launch: Mapping[str, Any],
    sgemm_options: Mapping[str, object],
) -> Solution:
    """Return the solution that a command names.

    launch: the options of a user kernel
    sgemm_options: the values of options that the command has for the ladder's SGEMM only

    Raises BadSetting for such an option.
    """
    from worklog.kernel.solution import Solution  # here: an SGEMM doesn't need it

    changed = {}
    for name, value in launch.items():
        if value is not None and value != DEFAULTS[name]:
            changed[name] = value
    excluded = [OPTIONS[name].flags[-1] for name in changed if name not in OF_SOLUTIONS]
    excluded += [option for option, value in sgemm_options.items() if value]
    if excluded:
        raise BadSetting(f"{excluded[0]} is for the ladder's SGEMM: omit it, or omit --problem")
    return Solution.of(source, problem=problem, dtype=dtype, **changed)


def require_no_case(dtype: str, cases: Sequence[str] = ()) -> None:
    """Raise BadSetting for --dtype or --case without --problem.

    A format of matrices gets the advice that a product needs.
    """
    if dtype:
        advice = "the formats of A, B and C are the types of the kernel's parameters"
        if dtype in CLASSES:
            advice = f"for float matrices whose products are in {dtype}: --class {dtype}"
        raise BadSetting(f"--dtype needs --problem: {advice}")
    if cases:
        raise BadSetting("--case needs --problem: the cases of the ladder are sizes")


def live_wanted(**live_options: object) -> bool:
    """Return whether to measure.

    live_options: the values of options that need a live measurement

    Raises BadSetting for such an option without one.
    """
    from worklog.runner import sources  # here: a check doesn't need it

    is_live = sources.live_wanted()
    for option, value in live_options.items():
        if value and not is_live:
            raise BadSetting(
                f"--{option} needs a live measurement, and there is no GPU here: omit it"
            )
    return is_live


def require_gpu_for(kernel: str, problem: str = "") -> None:
    """Raise NoGpu, with what works without a GPU, for a user kernel as it was typed."""
    file = shlex.quote(kernel)
    if not kernel.endswith(".cu"):
        advice = f"{kernel} is a host function, which only a GPU runs: name a .cu file"
    elif problem:
        advice = (
            f"`worklog check {file} --problem {shlex.quote(problem)}` checks it on the emulator"
        )
    else:
        advice = (
            f"`worklog check {file}` checks it on the emulator, `worklog inspect {file}` counts "
            "and predicts"
        )
    require_gpu(advice)


def show(document: Any, text: object, as_json: bool) -> None:
    """Print the document as JSON, or the text."""
    click.echo(json.dumps(document, indent=1) if as_json else text)


def write_exports(
    results: Run | Sequence[Mapping[Any, Any]],
    files: Mapping[str, Path | None],
    title: str = "",
    samples: bool = False,
) -> None:
    """Write a run, or rows with their title, to the files that are named.

    files: by kind. csv and parquet get the rows, or a run's measurements. markdown gets a table,
        or a run's tables.
    samples: a run's csv and parquet have one row per sample instead

    Raises BadRunFile if a file can't be written.
    """
    for kind, path in files.items():
        if path is None:
            continue
        if kind == "markdown":
            write_text(path, _markdown(results, title))
        else:
            content = _file_of_rows(results, kind, samples=samples)
            write_bytes(path, content, f"give --{kind} another name")
        click.echo(f"written: {path}", err=True)


def _markdown(results: Run | Sequence[Mapping[Any, Any]], title: str) -> str:
    """Return the tables of a run with its label, or a table of rows with their title."""
    if isinstance(results, Run):
        pages = [table.page() for table in results.tables()]
        return "\n".join([f"{results.full_label}\n", *pages])
    cells = [{name: str(value) for name, value in row.items()} for row in results]
    return Table.of(title, cells).page()


def _file_of_rows(results: Run | Sequence[Mapping[Any, Any]], kind: str, *, samples: bool) -> bytes:
    """Return a csv or parquet file: a row per measurement, or per sample, of a run."""
    import pandas

    if not isinstance(results, Run):
        frame = pandas.DataFrame(results)
    elif samples:
        frame = results.samples()
    else:
        frame = pandas.DataFrame(results.rows())
    if kind == "csv":
        return frame.to_csv(index=False).encode()
    return frame.to_parquet(index=False)


def terminal_width(minimum: int = 60) -> int:
    """Return the characters per line for tables.

    minimum: a narrower terminal wraps whole lines, which is easier to read
    """
    if not sys.stdout.isatty():
        return WIDTH
    return max(shutil.get_terminal_size().columns, minimum)


def print_run(
    run: Run,
    *,
    as_json: bool,
    table: Table | None = None,
    samples: bool = False,
    extra: Mapping[str, Any] = {},
    **files: Path | None,
) -> None:
    """Print a run, and where it was saved now.

    as_json: print JSON instead of tables
    table: printed instead of the run's tables
    extra: what else the JSON has
    files, samples: as for write_exports()
    """
    write_exports(run, files, samples=samples)
    width = terminal_width()
    text = table.text(width) if table else run.text(width=width).rstrip("\n")
    if run.origin == "live" and run.path is not None:
        text += f"\nrun saved: {run.path}"
    document = {
        "label": run.label,
        "path": str(run.path),
        "notes": run.notes,
        "measurements": run.rows(),
    }
    show({**document, **extra}, text, as_json)


def print_adapted(kernels: Iterable[Kernel | str]) -> None:
    """Print what was read from the source of user kernels.

    That is the order of their parameters, their launch, and warnings.
    """
    lines = []
    for kernel in kernels:
        if not isinstance(kernel, str):
            facts = (*kernel.adapted, *kernel.warnings)
            lines += [f"· {kernel.file}: {fact}" for fact in facts]
    for line in dict.fromkeys(lines):
        click.echo(line, err=True)


@contextmanager
def progress_bar() -> Iterator[Report]:
    """Show progress on standard error: a bar if that is a terminal, else lines.

    Lines are at least LINE_S seconds apart.
    """
    terminal = Console(stderr=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    bar = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task = bar.add_task("starting", total=None)
    started_s = printed_s = time.monotonic()

    def update(count: int, total: int, activity: str) -> None:
        nonlocal printed_s
        now_s = time.monotonic()
        if terminal.is_terminal:
            bar.start()
            size = total or None  # 0: not known
            bar.update(task, completed=count, total=size, description=activity)
        elif now_s - printed_s >= LINE_S:
            printed_s = now_s
            elapsed = f"after {now_s - started_s:.0f} s"
            click.echo(f"{count} of {total or '?'} {elapsed}: {activity}", err=True)

    try:
        yield update
    finally:
        bar.stop()
