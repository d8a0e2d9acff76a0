"""`%%rung`: a cell of CUDA C++ is checked and put on the ladder; errors name the cell's own lines."""

from __future__ import annotations

import math
import re
import time
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import clear_output

from worklog.errors import WorklogError
from worklog.kernel.nvrtc import UnknownEntry
from worklog.lab.trial import BLOCK, SIZE, Trial, try_kernel, with_lines
from worklog.problem.gemm import CLASSES
from worklog.settings import Harness, parse_settings

FILE = "cell"
PAUSE_S = 0.2
MOST_ERRORS = 5
SET = "Change one harness setting, e.g. clocks=locked (see `worklog settings`)."


class CellFailed(WorklogError):
    """What is wrong with the cell, shown without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints."""
        return [f"%%rung: {self}"]


def _unquoted(words: str) -> str:
    """IPython leaves the quotes on."""
    return words[1:-1] if len(words) > 1 and words[0] == words[-1] and words[0] in "'\"" else words


@magics_class
class RungMagics(Magics):
    """The magics that `%load_ext worklog` adds."""

    @magic_arguments()
    @argument("name", nargs="?", default="", help="Name in tables and charts (default: the kernel's).")
    @argument(
        "--grid",
        type=_unquoted,
        help="Blocks along x and y, from M, N and K: '(N + 31) // 32, (M + 31) // 32' (default: a thread per element).",
    )
    @argument("--block", type=_unquoted, help=f"Threads along x, or along x and y: 256, or 32,8 (default: {BLOCK}).")
    @argument("--entry", type=_unquoted, help="Kernel to launch, with its template arguments.")
    @argument(
        "--domain", type=_unquoted, default="any", help="Shapes that the kernel takes: 'M %% 64 == 0, K %% 8 == 0'."
    )
    @argument(
        "--class", dest="claimed", default="fp32", choices=CLASSES, help="Precision class that the kernel must reach."
    )
    @argument(
        "--size",
        action="append",
        metavar="N[,N…]",
        help=f"Sizes to time (default: {SIZE}, padded to the domain).",
    )
    @argument("--beside", type=_unquoted, metavar="RUNG[,RUNG…]", help="Rungs to measure too (default: all, once).")
    @argument("--check-only", action="store_true", help="Check without timing.")
    @argument("--on", choices=["gpu", "emulated"], help="Where to run; emulated finds races, and gives no time.")
    @argument("--set", dest="settings", action="append", default=[], metavar="SETTING=VALUE", help=SET)
    @cell_magic
    def rung(self, line: str, cell: str) -> Trial:
        """Compile the cell's kernel, check it, time it if there is a GPU, and show it on the ladder."""
        options = parse_argstring(self.rung, line)
        source = "\n" * self._above(cell) + cell
        sizes = None if options.size is None else [one for listed in options.size for one in listed.split(",")]
        try:
            return try_kernel(
                source,
                options.name,
                grid=options.grid,
                block=options.block,
                entry=options.entry,
                domain=options.domain,
                claimed=options.claimed,
                sizes=sizes,
                time=not options.check_only and options.on != "emulated",
                beside=None if options.beside is None else [name.strip() for name in options.beside.split(",")],
                on=options.on,
                file=FILE,
                harness=Harness().but(**parse_settings(options.settings)),
                progress=Line(),
            )
        except WorklogError as error:
            raise CellFailed(compile_errors(error, FILE, source)) from None
        except KeyboardInterrupt:
            raise CellFailed("interrupted: nothing is running any more") from None
        finally:
            clear_output(wait=True)

    def _above(self, cell: str) -> int:
        """How many lines of the cell are above its source, so that line numbers are those on the page."""
        assert self.shell is not None
        history = self.shell.history_manager
        whole = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
        first = next((n for n, line in enumerate(whole.splitlines(), 1) if line.strip().startswith("%%rung")), 1)
        return first if whole.split()[-len(cell.split()) :] == cell.split() else 1  # IPython changes white space


class Line:
    """Progress in one line that the next one replaces."""

    def __init__(self) -> None:
        self._written = -math.inf

    def __call__(self, done: int, total: int, doing: str) -> None:
        """Print the progress, but not more often than every PAUSE_S seconds: the gate reports every launch."""
        if time.monotonic() - self._written < PAUSE_S:
            return
        self._written = time.monotonic()
        clear_output(wait=True)
        print(f"{doing} ({done + 1} of {total})" if done < total else doing, end="", flush=True)


def compile_errors(error: Exception, file: str, source: str) -> str:
    """The compiler's errors, each with its line and that line's text; for any other error, its message, without the
    compiler's log where the entry is unknown.
    """
    found = re.findall(
        rf"^{re.escape(file)}\((\d+)\):\s*(?:catastrophic )?error[^:]*:\s*(.+)$", str(error), re.MULTILINE
    )
    if not found:
        return with_lines(str(error).splitlines()[0] if isinstance(error, UnknownEntry) else str(error), file)
    lines = source.splitlines()
    errors = [f"{file} line {number}: {what}\n    {lines[int(number) - 1].strip()}" for number, what in found]
    more = len(errors) - MOST_ERRORS
    return "\n".join(errors[:MOST_ERRORS] + [f"… and {more} more"] * (more > 0))


def load(shell: Any) -> None:
    """Register `%%rung` with a shell."""
    shell.register_magics(RungMagics)
