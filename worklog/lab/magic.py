"""`%%rung`: compile a user's kernel, check it, time it where there is a GPU, and show it on the ladder.

Everything that launches a kernel runs in a child process.
"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

from IPython import get_ipython
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import clear_output, display

from worklog.analysis.prediction import Prediction, predicted
from worklog.errors import BadSetting, CompileFailed, NothingToDraw, WorklogError, listed, meant
from worklog.gate import Stage, Verdict
from worklog.gpu import Gpu, gpu_reason, require_gpu
from worklog.kernel import LADDER, RUNGS, Kernel, rung
from worklog.kernel.kernel import launch_text
from worklog.lab.time_magic import MagicFailed, TimeMagics
from worklog.plots import Chart, ladder, tile_map
from worklog.problem import Shape
from worklog.runner import check
from worklog.runner import measure as bench
from worklog.runner.check import Checked
from worklog.runner.emulated_time import LIMIT_S
from worklog.runner.tasks import BASELINE, Progress, silent
from worklog.runs import Measurement, Run, newest_run
from worklog.settings import OPTIONS, Harness, parse_settings

SIZE = 1024
BLOCK = "32,32"
TAKEN = (*(record.name for record in RUNGS), BASELINE)

# The rungs that were measured for an earlier cell of this session, by GPU, sizes and harness.
_ladders: dict[tuple[str, tuple[Shape, ...], Harness], Run] = {}


@dataclass(frozen=True, repr=False)
class Trial:
    """What try_kernel() found. size: the first to time. run: what was measured, or None; why: the reason for None.
    shown: the run that table and chart are made from, with this kernel's row among the rungs.
    """

    kernel: Kernel
    checked: Checked
    size: Shape
    run: Run | None
    shown: Run
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel passed the gate."""
        return self.checked.verdict.accepted

    @cached_property
    def prediction(self) -> Prediction:
        """A lower bound of the time at the first size, on the GPU that measured it, else as for bound()."""
        if self.run is None:
            return predicted(self.kernel, self.size)
        us = next((m.us for m in self.run.select(self.kernel.name, self.size)), None)
        return predicted(self.kernel, self.size, Gpu.of(self.run.device), us)

    def ladder(self, size: Shape | int | None = None) -> Chart:
        """The ladder with this kernel on it. Raises NothingToDraw, BadSetting."""
        return ladder(self.shown, size if size is not None else self.shown.shapes()[0])

    def tile_map(self) -> Chart:
        """Where C is wrong. Raises NothingToDraw where the gate has no error map."""
        where = self.checked.verdict.where
        if where is None:
            raise NothingToDraw(f"there is no error map of {self.kernel.name}")
        return tile_map(where, self.checked.label)

    def __str__(self) -> str:
        if not self.passed:
            return str(self.checked)
        return f"{self.checked}\n\n{self.prediction}\n\n{self.shown}".rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        words = escape(f"{self.kernel.name}: {self.checked}")
        report = f'<pre role="status" style="white-space:pre-wrap">{words}</pre>'
        return report + self.prediction._repr_html_() + self.shown._repr_html_() if self.passed else report

    def _ipython_display_(self) -> None:
        """The report and, in a notebook, a chart as a second output: the ladder, or the error map if it failed."""
        display({"text/plain": str(self), "text/html": self._repr_html_()}, raw=True)
        if hasattr(get_ipython(), "kernel"):
            with suppress(NothingToDraw):  # a failure without a map; a time stands in the table in any case
                display(self.ladder() if self.passed else self.tile_map())


def try_kernel(
    source: str,
    name: str = "",
    *,
    grid: str | int | Sequence[str | int] | None = None,
    block: str | int | Sequence[str | int] | None = None,
    shapes: Iterable[Shape | int | str | Sequence[int]] | None = None,
    time: bool = True,
    beside: Iterable[str] | None = None,
    on: str | None = None,
    limit_s: float = LIMIT_S,
    file: str = "source",
    harness: Harness | None = None,
    progress: Progress = silent,
    **words: Any,
) -> Trial:
    """Compile a kernel, check it, and time it beside cuBLAS and the rungs.

    source: CUDA C++ with one __global__ function, or several and the entry's name. name: in tables and charts (default:
    the entry's). grid, block: as for `worklog check`; where the source states no launch, one thread per element of C,
    in blocks of 32 x 32. shapes: to time (default: 1024, padded to the domain). time: False checks only. beside: the
    rungs to measure with it (default: all that take the sizes, once per session). on: "gpu" or "emulated" (default: the
    GPU where there is one). limit_s: as for worklog.runner.check.check. file: what messages call the source. harness:
    for the times (default: the unbiased one). words: entry, args, domain (the shapes that the kernel takes), claimed
    (the precision class that it must reach), include, define, shared, constant, as for Kernel.from_source.

    Without a GPU the kernel is checked on the emulator, and has a lower bound of its time instead of a time. A failed
    check is a result, not an error.
    Raises CompileFailed, BadSetting, NoGpu.
    """
    arguments = [*inspect.signature(try_kernel).parameters, *inspect.signature(Kernel.from_source).parameters]
    if wrong := next((word for word in words if word not in arguments), None):
        raise BadSetting(f"try_kernel has no argument {wrong!r}{meant(wrong, arguments)}")
    if on not in (None, "gpu", "emulated"):
        raise BadSetting(f"on: give gpu or emulated, not {on!r}")
    if grid is not None or block is not None:
        words["grid"], words["block"] = launch(grid, block)
    kernel = Kernel.from_source(source, file=file, name=name, **words)
    if kernel.arguments and not kernel.grid:
        grid, block = launch(None, None)
        said = f"launch: grid {grid}; block {block}; the default, as the source states none"
        kernel = replace(kernel, grid=grid, block=block, adapted=(*kernel.adapted, said))
    kernel.require_launch()
    if kernel.name in TAKEN:
        raise BadSetting(f"{kernel.name} is the name of another kernel on the ladder: choose another name")
    default = kernel.domain.padded(Shape.of(SIZE))
    timed = [Shape.of(size) for size in listed("shapes", default if shapes is None else shapes)]
    rungs = None if beside is None else [rung(one).name for one in listed("beside", beside)]
    if on == "gpu":
        require_gpu()
    live = bench.live_wanted() if on is None else on == "gpu"
    compiled, label = check.compile_for(kernel, live)  # first, so that a syntax error is reported at once
    if not (live and time):
        checked = check.check_in_child(kernel, on="gpu" if live else "emulated", limit_s=limit_s, progress=progress)
        no_gpu = ", and there is no GPU here" if gpu_reason() else ""
        why = f"the emulator gives no time{no_gpu}" if time else "only checked"
        return Trial(kernel, checked, timed[0], None, _beside_recorded(kernel, checked, timed, rungs, why), why)
    place = label, tuple(timed), harness or Harness()
    known = _ladders.get(place) if rungs is None else None
    that_take = [record.name for record in LADDER if all(shape in record.domain for shape in timed)]
    names = [] if known else that_take if rungs is None else rungs
    run = bench.measure([kernel, *names, BASELINE], timed, harness=harness, progress=progress)
    if rungs is None and known is None and run.complete:
        _ladders[place] = run
    mine = run.select(kernel.name)
    first = next((m for m in mine if m.status == "refused"), mine[0])
    verdict = Verdict((Stage("launch", False, 1, 0, first.reason or "it could not be launched"),), None)
    if first.verdict is not None:
        verdict = Verdict.from_dict(first.verdict)
    checked = Checked(kernel, verdict, first.problem, label, replace(compiled, cubin=b""))
    return Trial(kernel, checked, timed[0], run, _in_order(run if known is None else _with_rungs_of(known, run)))


def launch(grid: Any, block: Any) -> tuple[str, str]:
    """Grid and block as expressions; by default one thread per element of C. Raises BadSetting."""
    if block is None:
        if grid is not None:
            raise BadSetting(f"a grid needs a block: give the threads along x and y too, such as {BLOCK}")
        block = BLOCK
    words = launch_text("block", block)
    if grid is not None:
        return launch_text("grid", grid), words
    sides = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", words)
    if sides is None:
        raise BadSetting(f"a block of {words} threads needs a grid: give the blocks along x and y, from M, N and K")
    x, y = int(sides[1]), int(sides[2])
    return f"(N + {x - 1}) // {x}, (M + {y - 1}) // {y}", words


def _with_rungs_of(earlier: Run, run: Run) -> Run:
    """The run, with the rungs that were measured for an earlier cell."""
    rungs = [m for m in earlier.measurements if m.kernel in TAKEN[:-1] and m.kernel not in run.kernels]
    notes = [*run.notes, f"the rungs are from an earlier run: {earlier.created}"]
    kernels = {**earlier.kernels, **run.kernels}
    return replace(run, measurements=[*rungs, *run.measurements], kernels=kernels, notes=notes)


def _in_order(run: Run) -> Run:
    """The rungs, then the user's kernel, then the baseline."""
    place = {**{record.name: number for number, record in enumerate(RUNGS)}, BASELINE: len(RUNGS) + 1}
    return replace(run, measurements=sorted(run.measurements, key=lambda m: place.get(m.kernel, len(RUNGS))))


def _beside_recorded(
    kernel: Kernel, checked: Checked, shapes: Sequence[Shape], rungs: Sequence[str] | None, why: str
) -> Run:
    """The newest run of the given rungs (None: the ladder) at one of these sizes, else the recording: what it holds at
    them, with a row for this kernel that has no time.
    """
    names = [*(rungs or (record.name for record in LADDER)), BASELINE]
    run = newest_run(lambda run: any(all(run.select(name, shape) for name in names) for shape in shapes))
    verdict, compiled = checked.verdict, checked.compiled
    assert compiled is not None  # a cell holds a kernel, not a host function
    status, reason = "skipped", f"{why}; passed as {verdict.precision} ({checked.label})"
    if not verdict.accepted:
        status, reason = "refused", f"failed at {verdict.stages[-1].name} ({checked.label})"
    rows: list[Measurement] = []
    for shape in [held for held in run.shapes() if held in shapes] or run.shapes()[-1:]:
        rows += [m for m in run.select(shape=shape) if rungs is None or m.kernel in (*rungs, BASELINE)]
        sides = (shape.m, shape.n, shape.k)
        rows.append(Measurement(kernel.name, sides, status, reason, verdict=verdict.as_dict(), label=checked.label))
    record = {"file": kernel.file, "user": "kernel", "registers": compiled.registers}
    record |= {"local_bytes": compiled.stack_bytes, "shared_bytes": compiled.shared_bytes}
    return _in_order(replace(run, measurements=rows, kernels={**run.kernels, kernel.name: record}))


FILE = "cell"
PAUSE_S = 0.2
MOST_ERRORS = 5
SET = "Change one harness setting, e.g. clocks=locked (see `worklog doctor --settings`)."


def _unquoted(words: str) -> str:
    """IPython leaves the quotes on."""
    return words.strip("'\"")


def _kernel_options(magic: Any) -> Any:
    """A user kernel's options, as of `worklog check`."""
    for name, declared in reversed(OPTIONS.items()):
        if name == "arrays":  # of a host function
            continue
        how: dict[str, Any] = {"type": int if isinstance(declared.default, int) else _unquoted}
        how["default"] = declared.default
        if isinstance(declared.default, tuple):
            how |= {"default": [], "action": "append"}
        text = declared.help.replace("%", "%%")
        magic = argument(*declared.flags, dest=name, metavar=declared.metavar, help=text, **how)(magic)
    return magic


@magics_class
class RungMagics(Magics):
    """The magics that `%load_ext worklog` adds."""

    @magic_arguments()
    @argument("name", nargs="?", default="", help="Name in tables and charts (default: the kernel's).")
    @_kernel_options
    @argument(
        "--size", action="append", metavar="N[,N…]", help=f"Sizes to time (default: {SIZE}, padded to the domain)."
    )
    @argument("--beside", type=_unquoted, metavar="RUNG[,RUNG…]", help="Rungs to measure too (default: all, once).")
    @argument("--check-only", action="store_true", help="Check without timing.")
    @argument("--on", choices=["gpu", "emulated"], help="Where to run; emulated finds races, and gives no time.")
    @argument(
        "--limit", dest="limit_s", type=float, default=LIMIT_S, help="Seconds of a check on the emulator, at most."
    )
    @argument("--set", dest="settings", action="append", default=[], metavar="SETTING=VALUE", help=SET)
    @cell_magic
    def rung(self, line: str, cell: str) -> Trial:
        """Compile the cell's kernel, check it, time it if there is a GPU, and show it on the ladder."""
        source = "\n" * self._above(cell) + cell
        options = vars(parse_argstring(self.rung, line))  # all others are parameters of try_kernel
        sizes, beside, settings = (options.pop(name) for name in ("size", "beside", "settings"))
        only_checked = options.pop("check_only") or options["on"] == "emulated"
        try:
            return try_kernel(
                source,
                shapes=None if sizes is None else [one for listed in sizes for one in listed.split(",")],
                time=not only_checked,
                beside=None if beside is None else [name.strip() for name in beside.split(",")],
                file=FILE,
                harness=Harness().but(**parse_settings(settings)),
                progress=one_line(),
                **options,
            )
        except WorklogError as error:
            raise MagicFailed("%%rung", compile_errors(error, FILE, source)) from None
        except KeyboardInterrupt:
            raise MagicFailed("%%rung", "interrupted: nothing is running any more") from None
        finally:
            clear_output(wait=True)

    def _above(self, cell: str) -> int:
        """How many lines of the cell are above its source, so that line numbers are those on the page."""
        assert self.shell is not None
        history = self.shell.history_manager
        whole = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
        first = next((n for n, line in enumerate(whole.splitlines(), 1) if line.strip().startswith("%%rung")), 1)
        return first if whole.split()[-len(cell.split()) :] == cell.split() else 1  # IPython changes white space


def one_line() -> Progress:
    """Prints progress in one line that the next one replaces, at most every PAUSE_S seconds: the gate reports every
    launch.
    """
    written = -math.inf

    def show(done: int, total: int, doing: str) -> None:
        nonlocal written
        if time.monotonic() - written >= PAUSE_S:
            written = time.monotonic()
            clear_output(wait=True)
            print(f"{doing} ({done + 1} of {total})" if done < total else doing, end="", flush=True)

    return show


def compile_errors(error: Exception, file: str, source: str) -> str:
    """The compiler's errors, each with its line and that line's text; for any other error, its message, without the
    compiler's log where the entry is unknown.
    """
    found = re.findall(
        rf"^{re.escape(file)}\((\d+)\):\s*(?:catastrophic )?error[^:]*:\s*(.+)$", str(error), re.MULTILINE
    )
    if not found:
        return str(error).splitlines()[0] if isinstance(error, CompileFailed) else str(error)
    lines = source.splitlines()
    errors = [f"{file}:{number}: {what}\n    {lines[int(number) - 1].strip()}" for number, what in found]
    more = len(errors) - MOST_ERRORS
    return "\n".join(errors[:MOST_ERRORS] + [f"… and {more} more"] * (more > 0))


def load(shell: Any) -> None:
    """Register `%%rung`, `%time_gpu` and `%%time_gpu` with a shell."""
    shell.register_magics(RungMagics, TimeMagics)
