"""The magics of notebooks: `%%rung`, `%%puzzle` and `%time_gpu`.

`%%rung` is try_kernel() for a cell. `%time_gpu` is worklog.time for an expression or a cell.
"""

from __future__ import annotations

import re
import time
from typing import Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import clear_output

from worklog.errors import CompileFailed, WorklogError
from worklog.kernel.by_name import OPTIONS
from worklog.lab.exercises import Graded
from worklog.lab.puzzles import FILE, PUZZLES, attempt
from worklog.lab.trials import SIZE, Trial, try_kernel
from worklog.runner import timing
from worklog.runs import Measurement
from worklog.runs.text import Progress
from worklog.settings import Harness, parse_settings

PAUSE_S = 0.2
TITLE = 40  # characters of the code that name a measurement


class MagicFailed(WorklogError):
    """An error in a line or a cell of a magic, shown without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints."""
        return [str(self)]


def _unquoted(text: str) -> str:
    return text.strip("'\"")


def _option(*flags: str, help: str, **keywords: Any) -> Any:
    """Return an option without the quotes that IPython leaves on.

    help: argparse would replace a % in it
    """
    return argument(*flags, help=help.replace("%", "%%"), **{"type": _unquoted} | keywords)


def _kernel_options(magic: Any) -> Any:
    """Add a user kernel's options, as of `worklog check`, but for a host function's."""
    for name, (flags, default, metavar, about) in reversed(OPTIONS.items()):
        if name == "arrays":
            continue
        keywords: dict[str, Any] = {"default": default}
        if isinstance(default, tuple):
            keywords = {"action": "append", "default": []}
        if isinstance(default, int):
            keywords["type"] = int
        magic = _option(*flags, dest=name, metavar=metavar, help=about, **keywords)(magic)
    return magic


@magics_class
class RungMagics(Magics):
    """The magics that `%load_ext worklog` adds."""

    @magic_arguments()
    @argument(
        "name", nargs="?", default="", help="Name in tables and charts (default: the kernel's)."
    )
    @_kernel_options
    @_option(
        "--size", dest="shapes", metavar="N[,N…]", help=f"Sizes to time (default: {SIZE}, padded)."
    )
    @_option("--beside", metavar="RUNG[,RUNG…]", help="Rungs to measure too (default: all, once).")
    @argument("--check-only", dest="time", action="store_false", help="Check without timing.")
    @argument(
        "--on",
        choices=["gpu", "emulated"],
        help="Where to run; emulated finds races, and gives no time.",
    )
    @_option(
        "--set", dest="settings", action="append", default=[], metavar="SETTING=VALUE",
        help=(
            "Change one harness setting, e.g. clocks=locked or l2=warm (see `worklog doctor "
            "--settings`)."
        ),
    )  # fmt: skip
    @cell_magic
    def rung(self, line: str, cell: str) -> Trial:
        """Compile the cell's kernel, check it, and show it on the ladder.

        It is timed if there is a GPU.
        """
        source = f"\n{cell}"  # so that line numbers are those of the cell
        options = vars(parse_argstring(self.rung, line))
        settings = options.pop("settings")  # all other options are parameters of try_kernel
        for name in ("shapes", "beside"):
            if options[name] is not None:
                options[name] = [item.strip() for item in options[name].split(",")]
        try:
            harness = Harness().but(**parse_settings(settings))
            return try_kernel(source, file=FILE, harness=harness, progress=one_line(), **options)
        except WorklogError as error:
            raise MagicFailed(f"%%rung: {compile_errors(error, source)}") from None
        except KeyboardInterrupt:
            raise MagicFailed("%%rung: interrupted: nothing is running any more") from None
        finally:
            clear_output(wait=True)

    @magic_arguments()
    @argument("name", nargs="?", default="", help=f"One of {', '.join(PUZZLES)}.")
    @cell_magic
    def puzzle(self, line: str, cell: str) -> Graded:
        """Grade the cell's kernel as an answer to a puzzle of notebooks 04 to 06."""
        source = f"\n{cell}"
        try:
            return attempt(parse_argstring(self.puzzle, line).name, source)
        except WorklogError as error:
            raise MagicFailed(f"%%puzzle: {compile_errors(error, source)}") from None

    @no_var_expand
    @line_cell_magic
    def time_gpu(self, line: str, cell: str | None = None) -> Measurement:
        """Time the work that an expression, or a cell, enqueues on the GPU.

        worklog.time has options.
        """
        source = (line if cell is None else cell).strip()
        shell = cast("Any", self.shell)
        if not source or (cell is not None and line.strip()):
            raise UsageError(
                "give an expression, as %time_gpu torch.mm(a, b), or a cell's code below %%time_gpu"
            )
        code = compile(shell.transform_cell(source), "<time_gpu>", "exec")
        title = source.splitlines()[0][:TITLE]
        if title != source:
            title += " …"
        try:
            return timing.time(lambda: exec(code, shell.user_ns), name=title)
        except WorklogError as error:
            raise MagicFailed(f"%time_gpu: {error}") from None


def one_line() -> Progress:
    """Return a function that prints progress in one line.

    It prints at most every PAUSE_S seconds, because the gate reports every launch.
    """
    due = 0.0

    def show(finished: int, total: int, step: str) -> None:
        nonlocal due
        if time.monotonic() <= due:
            return
        due = time.monotonic() + PAUSE_S
        count = f" ({finished + 1} of {total})" if finished < total else ""
        print(f"\r{step}{count}", end="", flush=True)

    return show


def compile_errors(error: Exception, source: str) -> str:
    """Return the compiler's errors in a cell, each with its line and that line's text.

    Of any other error, return the message, without the compiler's log if the entry is unknown.
    """
    pattern = (
        rf"^{FILE}[:(](\d+)\)?:(?!\s*(?:warning|note)\b)\s*(?:(?:catastrophic "
        r")?error[^:]*:\s*)?(.+)$"
    )
    errors = re.findall(pattern, str(error), re.MULTILINE)
    if not errors:
        if not isinstance(error, CompileFailed):
            return str(error)
        return _error_at_the_end(str(error)) or str(error).splitlines()[0]
    lines = source.splitlines()
    return "\n".join(
        f"{FILE}:{number}: {message}\n    {lines[int(number) - 1].strip()}"
        for number, message in errors
    )


def _error_at_the_end(log: str) -> str:
    """Return the compiler's error at the end of a cell, such as a missing brace, or ""."""
    error = re.search(r"^At end of source: (?:catastrophic )?error[^:]*: (.+)$", log, re.MULTILINE)
    if error is None:
        return ""
    message = f"{FILE}: at its end: {error[1]}"
    brace = re.search(rf"^{FILE}[:(](\d+)\)?: note[^:]*: (.+)$", log, re.MULTILINE)
    if brace:
        message += f", {brace[2]} in line {brace[1]}"
    return message


def load(shell: Any) -> None:
    """Register `%%rung`, `%%puzzle`, `%time_gpu` and `%%time_gpu` with a shell."""
    shell.register_magics(RungMagics)
