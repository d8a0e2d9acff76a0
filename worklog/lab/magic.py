"""`%%rung`: a cell of CUDA C++ becomes a rung on the ladder, or is told, in the cell's own lines, why not."""

from __future__ import annotations

import math
import time
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import clear_output

from worklog.errors import WorklogError
from worklog.lab.tried import BLOCK, SIZE, Tried, try_kernel
from worklog.lab.tried_words import complaints
from worklog.problem.gemm import CLASSES

FILE = "cell"
PAUSE_S = 0.2


class CellRefused(WorklogError):
    """What is wrong with the cell, without the traceback of who found out."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints."""
        return [f"%%rung: {self}"]


def _unquoted(words: str) -> str:
    """IPython leaves the quotes on."""
    return words[1:-1] if len(words) > 1 and words[0] == words[-1] and words[0] in "'\"" else words


@magics_class
class RungMagics(Magics):
    """What `%load_ext worklog` brings."""

    @magic_arguments()
    @argument("name", nargs="?", default="", help="Its name in tables and charts (default: the kernel's own).")
    @argument(
        "--grid",
        type=_unquoted,
        help="Blocks along x and y, from M, N and K: '(N + 31) // 32, (M + 31) // 32' (default: a thread an element).",
    )
    @argument("--block", type=_unquoted, help=f"Threads along x, or along x and y: 256, or 32,8 (default: {BLOCK}).")
    @argument("--entry", type=_unquoted, help="The kernel, with template arguments if it has any.")
    @argument("--domain", type=_unquoted, default="any", help="Shapes that it takes: 'M %% 64 == 0, K %% 8 == 0'.")
    @argument("--class", dest="claimed", default="fp32", choices=CLASSES, help="Precision that it must have at least.")
    @argument(
        "--size",
        action="append",
        metavar="N[,N…]",
        help=f"Sizes to time it at (default: {SIZE}, padded to the domain).",
    )
    @argument("--beside", type=_unquoted, metavar="RUNG[,RUNG…]", help="Rungs to measure with it (default: all, once).")
    @argument("--check-only", action="store_true", help="The gate alone, no time.")
    @argument("--on", choices=["gpu", "emulated"], help="Where to run it; emulated finds races too, and gives no time.")
    @cell_magic
    def rung(self, line: str, cell: str) -> Tried:
        """Compile the cell's kernel, put it to the gate, time it if there is a GPU, and show it on the ladder."""
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
                progress=Line(),
            )
        except WorklogError as error:
            raise CellRefused(complaints(error, FILE, source)) from None
        except KeyboardInterrupt:
            raise CellRefused("interrupted; nothing runs any more") from None
        finally:
            clear_output(wait=True)

    def _above(self, cell: str) -> int:
        """Lines of the cell above its source, so that line numbers are those of the page."""
        assert self.shell is not None
        history = self.shell.history_manager
        whole = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
        before, found, _ = whole.partition(cell.rstrip("\n"))  # the history keeps no line ends at the end
        return before.count("\n") if found and cell.strip() else 1


class Line:
    """How far the work is, in one line that the next one replaces."""

    def __init__(self) -> None:
        self._written = -math.inf

    def __call__(self, done: int, total: int, doing: str) -> None:
        """Say it, unless something was said a moment ago: the gate tells of every launch."""
        if time.monotonic() - self._written < PAUSE_S:
            return
        self._written = time.monotonic()
        clear_output(wait=True)
        print(f"{doing} ({done + 1} of {total})" if done < total else doing, end="", flush=True)


def load(shell: Any) -> None:
    """Make `%%rung` known to a shell."""
    shell.register_magics(RungMagics)
