"""Options that several commands share, and what a shell completes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from worklog.errors import BadSetting
from worklog.kernel import DEFAULTS, RUNGS
from worklog.problem import PROBLEMS, Shape
from worklog.runs import require_writable
from worklog.settings import OPTIONS, PITFALLS, Harness, parse_settings

if TYPE_CHECKING:
    from worklog.kernel.solution import Solution

Decorator = Callable[[Any], Any]
OF_SOLUTIONS = ("include", "define", "arrays")  # options of a user kernel that these take
FILE = click.Path(dir_okay=False, path_type=Path)
PATH = click.Path(path_type=Path)


COMPLETED: Mapping[str, Sequence[str]] = {
    "kernels": [rung.name for rung in RUNGS],
    "problems": [*PROBLEMS],
    "settings": [f"{pitfall.setting}={value}" for pitfall in PITFALLS for value in pitfall.values],
}


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers for kernels, problems or settings: the known ones, else files."""

    def complete(_: click.Context, __: click.Parameter, word: str) -> list[CompletionItem]:
        known = [CompletionItem(name) for name in COMPLETED[kind] if name.startswith(word)]
        return known or [CompletionItem(word, type="file")]

    return complete


def _shapes(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> list[Shape]:
    return [Shape.of(word) for listed in words for word in listed.split(",")]


def _harness(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> Harness:
    return Harness().but(**parse_settings(words))


def _new_file(_: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Raise BadSetting for a file that exists or can't be written, before minutes of work."""
    if path is None:
        return None
    if path.exists():
        raise BadSetting(f"{path} exists already: give {option.opts[0]} another name, or remove it first")
    require_writable(path.parent, str(path), f"give {option.opts[0]} another name")
    return path


def _export(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    exports = context.params.setdefault("exports", {})
    if path is not None:
        exports[option.name] = _new_file(context, option, path)


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table.")
DETAILS = click.option("--details", is_flag=True, help="Add a second table: rates, shares of peaks, cycles per launch.")
HARNESS = click.option(
    "--set", "harness", multiple=True, callback=_harness, metavar="SETTING=VALUE",
    shell_complete=completing("settings"),
    help="Change one harness setting, e.g. clocks=locked:1395 or l2=warm (see `worklog doctor --settings`).",
)  # fmt: skip
SIZES = click.option(
    "--size", "shapes", multiple=True, callback=_shapes, metavar="N[,N…]",
    help="Sizes: 4096, or M x N x K as 512x1024x256.",
)  # fmt: skip
PROBLEM = click.option(
    "--problem", shell_complete=completing("problems"), metavar="NAME|FILE.py:CLASS",
    help=f"What the kernel solves: {', '.join(PROBLEMS)}, or your problem (default: the ladder's SGEMM).",
)  # fmt: skip
DTYPE = click.option("--dtype", default="", metavar="TYPE", help="Type of a problem's elements (default: its first).")


def launch_options(command: Any) -> Any:
    """The options of a user kernel (worklog.settings.OPTIONS), each a parameter of the command."""
    for name, option in reversed(OPTIONS.items()):
        several, number = isinstance(option.default, tuple), isinstance(option.default, int)
        command = click.option(
            name, *option.flags, help=option.help, metavar=option.metavar, multiple=several,
            type=click.IntRange(0) if number else str, default=None if several else option.default,
            show_default=bool(option.default),
        )(command)  # fmt: skip
    return command


def export_options(command: Any) -> Any:
    """--csv, --markdown and --parquet. The command gets the files that are given as `exports`, by kind."""
    for kind, what in (("parquet", "measurements"), ("markdown", "tables"), ("csv", "measurements")):
        about = f"Also write the {what} to a file."
        how: dict[str, Any] = {"callback": _export, "expose_value": False, "help": about}
        command = click.option(f"--{kind}", metavar="FILE", type=FILE, **how)(command)
    return command


def kernel_argument(name: str, metavar: str, **how: Any) -> Decorator:
    """An argument that names a rung or a file."""
    return click.argument(name, metavar=metavar, shell_complete=completing("kernels"), **how)


def axis_option(about: str) -> Decorator:
    """--axis, which is repeated for more."""
    return click.option("-a", "--axis", "axes", multiple=True, metavar="NAME[KIND]=VALUES", help=about)


def size_option(about: str, default: str | None = None) -> Decorator:
    """--size of a command that takes one shape."""
    return click.option("--size", "shape", type=Shape.of, default=default, show_default=True, metavar="N", help=about)


def out_option(about: str = "Where to save the run (default: among this machine's runs).") -> Decorator:
    """--out of a command that saves one new file."""
    return click.option("--out", type=FILE, callback=_new_file, help=about)


def folder_option(default: str, about: str) -> Decorator:
    """--out of a command that writes into a folder. default: its name, which also says what is written."""

    def writable(_: click.Context, __: click.Parameter, out: Path) -> Path:
        require_writable(out, f"{default} into {out}", "give another folder with --out")
        return out

    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, default=default, show_default=True, callback=writable, help=about)


def solution_of(what: str, launch: Mapping[str, Any], others: Mapping[str, object]) -> Solution:
    """The solution that a command names. launch: the options of a user kernel. others: what was given to options that
    the command has for the ladder's SGEMM only. Raises BadSetting for one that was given.
    """
    from worklog.kernel.solution import Solution  # here: a SGEMM needs none of it

    given = {name: value for name, value in launch.items() if value is not None and value != DEFAULTS[name]}
    wrong = [OPTIONS[name].flags[-1] for name in given if name not in OF_SOLUTIONS]
    wrong += [option for option, value in others.items() if value]
    if wrong:
        raise BadSetting(f"{wrong[0]} is for the ladder's SGEMM: omit it, or omit --problem")
    return Solution.of(what, **given)


def require_no_case(dtype: str, cases: Sequence[str] = ()) -> None:
    """Raise BadSetting for --dtype or --case without --problem."""
    if dtype or cases:
        raise BadSetting(f"{'--dtype' if dtype else '--case'} needs --problem: the ladder is FP32, its cases are sizes")
