"""`%%rung`: compile a user's kernel, check it, time it where there is a GPU, and show it on the ladder. `%time_gpu`:
worklog.time for an expression or a cell.

Everything of a cell with a kernel that launches it runs in a child process.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, cast

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import clear_output, display

from worklog.errors import BadSetting, CompileFailed, WorklogError, apart, listed, meant
from worklog.gate import compile_for
from worklog.gpu import device
from worklog.gpu.device import require_gpu
from worklog.kernel import LADDER, OPTIONS, RUNGS, Kernel, launch_text, rung
from worklog.kernel.prediction import Prediction, predicted
from worklog.kernel.trial import completed
from worklog.lab.exercises import Graded
from worklog.lab.puzzles import FILE, PUZZLES, attempt
from worklog.plots import Chart, in_order, ladder, tile_map
from worklog.problem import Shape
from worklog.runner import check, timing
from worklog.runner import measure as bench
from worklog.runs import (
    CUBLAS,
    Measurement,
    NothingToDraw,
    Progress,
    Run,
    Stage,
    Verdict,
    newest_run,
    silent,
)
from worklog.settings import Harness, parse_settings

SIZE = 1024
NAMES = [*(record.name for record in RUNGS), CUBLAS]
PAUSE_S = 0.2
TITLE = 40  # characters of the code that name a measurement

# The rungs that were measured for an earlier cell of this session, by GPU, sizes and harness.
_ladders: dict[tuple[str, tuple[Shape, ...], Harness], Run] = {}


@dataclass(frozen=True, repr=False)
class Trial:
    """What try_kernel() found. shape: the first to time. run: what was measured, or None. shown: the run that table and
    chart are made from, with this kernel's row among the rungs, which states why there is no time; None if that failed.
    notes: what failed behind the verdict.
    """

    kernel: Kernel
    checked: check.Checked
    shape: Shape
    run: Run | None
    shown: Run | None
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the kernel passed the gate."""
        return self.checked.verdict.accepted

    @cached_property
    def prediction(self) -> Prediction:
        """A lower bound of the time at the first shape, on the GPU that measured it, else as for bound()."""
        if self.run is None:
            largest = self.checked.verdict.largest
            return predicted(self.kernel, self.shape, device.gpu_here(), checked=largest)
        us = next((m.us for m in self.run.select(self.kernel.name, self.shape)), None)
        return predicted(self.kernel, self.shape, self.run.gpu, us)

    def ladder(self, shape: Shape | int | None = None) -> Chart:
        """The ladder with this kernel on it. Raises NothingToDraw, BadSetting."""
        if self.shown is None:
            raise NothingToDraw("; ".join(self.notes))
        return cast("Chart", ladder(self.shown, self.shown.shapes()[0] if shape is None else shape))

    def tile_map(self) -> Chart:
        """Where C is wrong. Raises NothingToDraw where the gate has no error map."""
        where = self.checked.verdict.where
        if where is None:
            raise NothingToDraw(f"there is no error map of {self.kernel.name}")
        return tile_map(where, self.checked.label)

    def marked(self) -> str:
        """The lines of the source that no launch of the check ran, each marked."""
        never = [part for part in self.checked.verdict.never_ran if not part.file]
        lines = {number for part in never for number in range(part.first, part.last + 1)}
        text = self.kernel.source.splitlines() if lines else []
        return "".join(
            f"\n▸ {number:4}  {text[number - 1]}" for number in sorted(lines) if number <= len(text)
        )

    def __repr__(self) -> str:
        parts: list[object] = [f"{self.checked}{self.marked()}"]
        if self.passed:
            parts += [self.prediction, *([] if self.shown is None else [self.shown])]
        return "\n\n".join(map(str, (*parts, *self.notes))).rstrip()

    def _repr_html_(self) -> str:
        words = escape(f"{self.kernel.name}: {self.checked}{self.marked()}")
        report = f'<pre role="status" style="white-space:pre-wrap;word-break:normal">{words}</pre>'
        if self.passed:
            report += self.prediction._repr_html_()
            report += "" if self.shown is None else self.shown._repr_html_()
        return report + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    def _ipython_display_(self) -> None:
        """The report and, in a notebook, a chart as a second output: the ladder, or the error map if it failed."""
        display({"text/plain": str(self), "text/html": self._repr_html_()}, raw=True)
        if hasattr(get_ipython(), "kernel"):
            notes: list[str] = []
            apart("drawing the chart", self._draw, None, notes)
            for note in notes:
                display({"text/plain": note}, raw=True)

    def _draw(self) -> None:
        """Display the chart, unless there is none: a failure without a map."""
        with suppress(NothingToDraw):
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
    file: str = "source",
    harness: Harness | None = None,
    progress: Progress = silent,
    **words: Any,
) -> Trial:
    """Compile a kernel, check it, and time it beside cuBLAS and the rungs.

    source: CUDA C++ with one __global__ function, or several and the entry's name. name: in tables and charts (default:
    the entry's). grid, block: as for `worklog check`; where the source states no launch, one thread per element of C,
    in blocks of 32 x 32. shapes: to time (default: 1024, padded to the domain). time: False checks only. beside: the
    rungs to measure with it (default: all that take them, once per session). on: "gpu" or "emulated" (default: the GPU
    where there is one). file: what messages call the source. harness: for the times (default: the unbiased one). words:
    as for Kernel.from_source.

    Without a GPU the kernel is checked on the emulator, and has a lower bound of its time instead of a time. A failed
    check is a result, not an error.
    Raises CompileFailed, BadSetting, NoGpu.
    """
    arguments = [
        *inspect.signature(try_kernel).parameters,
        *inspect.signature(Kernel.from_source).parameters,
    ]
    if wrong := next((word for word in words if word not in arguments), None):
        raise BadSetting(f"try_kernel has no argument {wrong!r}{meant(wrong, arguments)}")
    if on not in (None, "gpu", "emulated"):
        raise BadSetting(f"on: give gpu or emulated, not {on!r}")
    if not isinstance(harness, Harness | None):
        raise BadSetting(f"harness: give one such as worklog.Harness.naive(), not {harness!r}")
    if grid is not None and block is None:
        raise BadSetting("a grid needs a block: give the threads along x and y too, such as 32,32")
    if block is not None:
        words |= {"block": launch_text("block", block)}
        words["grid"] = per_element(words["block"]) if grid is None else launch_text("grid", grid)
    kernel = Kernel.from_source(source, file=file, name=name, **words)
    if kernel.stated:
        with suppress(
            BadSetting
        ):  # then with the default launch, or an error that says what to state
            kernel = completed(kernel)
    if kernel.arguments and not kernel.grid:
        grid = per_element("32,32")
        said = f"launch: grid {grid}; block 32,32; the default, as the source states none"
        kernel = replace(
            kernel.with_launch(grid=grid, block="32,32"), adapted=(*kernel.adapted, said)
        )
    kernel.require_launch()
    if kernel.name in NAMES:
        raise BadSetting(
            f"{kernel.name} is the name of another kernel on the ladder: choose another name"
        )
    default = kernel.domain.padded(Shape.of(SIZE))
    timed = [
        Shape.of(size) for size in listed("shapes", default if shapes is None else shapes)
    ] or [default]
    rungs = None if beside is None else [rung(named).name for named in listed("beside", beside)]
    if on == "gpu":
        require_gpu()
    live = bench.live_wanted() if on is None else on == "gpu"
    compiled, label = compile_for(
        kernel, device.gpu() if live else None
    )  # first, so that a syntax error is reported at once
    if not (live and time):
        checked = check.check_in_child(kernel, on="gpu" if live else "emulated", progress=progress)
        no_gpu = ", and there is no GPU here" if device.gpu_reason() else ""
        why = f"the emulator gives no time{no_gpu}" if time else "only checked"
        why += "" if harness in (None, Harness()) else ", so the harness given is not used"
        lost: list[str] = []
        recorded = apart(
            "the table of the recording",
            lambda: _in_recording(kernel, checked, timed, rungs, why),
            None,
            lost,
        )
        return Trial(kernel, checked, timed[0], None, recorded, tuple(lost))
    place = label, tuple(timed), harness or Harness()
    known = _ladders.get(place) if rungs is None else None
    if rungs is None:
        rungs = [
            record.name
            for record in LADDER
            if not known and all(shape in record.domain for shape in timed)
        ]
    run = bench.measure([kernel, *rungs, CUBLAS], timed, harness=harness, progress=progress)
    mine = run.select(kernel.name)
    first = next((m for m in mine if m.status == "failed"), mine[0])
    unlaunched = Verdict(
        (Stage("launch", False, 1, 0, first.reason or "it could not be launched"),), None
    )
    checked = check.Checked(
        kernel, first.verdict or unlaunched, first.problem, label, replace(compiled, cubin=b"")
    )
    shown = _in_order(run, run.measurements)
    if known:
        rows = [
            m for m in known.measurements if m.kernel in NAMES and m.kernel not in run.kernels
        ] + run.measurements
        notes = [*run.notes, f"the rungs are from an earlier run: {known.created}"]
        shown = _in_order(run, rows, kernels={**known.kernels, **run.kernels}, notes=notes)
    elif beside is None and run.complete:
        _ladders[place] = run
    return Trial(kernel, checked, timed[0], run, shown)


def per_element(block: str) -> str:
    """The grid with one thread per element of C. Raises BadSetting for a block that isn't two numbers."""
    sides = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", block)
    if sides is None:
        raise BadSetting(
            f"a block of {block} threads needs a grid: give the blocks along x and y, from M, N and K"
        )
    x = int(sides[1])
    y = int(sides[2])
    return f"(N + {x - 1}) // {x}, (M + {y - 1}) // {y}"


def _in_order(run: Run, rows: Sequence[Measurement], **changed: Any) -> Run:
    """The run with these measurements: the rungs, then the user's kernel, then the baseline."""
    names = in_order(m.kernel for m in rows)
    return replace(run, measurements=sorted(rows, key=lambda m: names.index(m.kernel)), **changed)


def _in_recording(
    kernel: Kernel,
    checked: check.Checked,
    shapes: Sequence[Shape],
    rungs: Sequence[str] | None,
    why: str,
) -> Run:
    """The newest run of the given rungs (None: the ladder) at one of these sizes, else the recording: what it holds at
    them, with a row for this kernel that has no time.
    """
    names = [*(rungs or (record.name for record in LADDER)), CUBLAS]
    run = newest_run(
        lambda run: any(all(run.select(name, shape) for name in names) for shape in shapes)
    )
    verdict = checked.verdict
    compiled = checked.compiled
    assert compiled is not None  # a cell holds a kernel, not a host function
    reason = f"{why}; passed as {verdict.precision} ({checked.label})"
    if not verdict.accepted:
        reason = f"failed at {str(verdict.reason).partition(':')[0]} ({checked.label})"
    rows = list[Measurement]()
    elsewhere = replace(run.context, label=checked.label)
    for shape in [held for held in run.shapes() if held in shapes] or run.shapes()[-1:]:
        rows += [m for m in run.select(shape=shape) if rungs is None or m.kernel in names]
        mine = Measurement(
            kernel.name, (shape.m, shape.n, shape.k), "failed", reason, context=elsewhere
        )
        rows.append(
            replace(mine, verdict=verdict, status="skipped" if verdict.accepted else "failed")
        )
    record = {"file": kernel.file, "user": "kernel", "registers": compiled.registers}
    record |= {"local_bytes": compiled.stack_bytes, "shared_bytes": compiled.shared_bytes}
    return _in_order(run, rows, kernels={**run.kernels, kernel.name: record})


class MagicFailed(WorklogError):
    """What is wrong with a line or a cell of a magic, shown without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints."""
        return [str(self)]


def _option(*flags: str, help: str, **how: Any) -> Any:
    """An option without the quotes that IPython leaves on. help: argparse takes its % for a place to fill in."""
    return argument(
        *flags, help=help.replace("%", "%%"), **{"type": lambda words: words.strip("'\"")} | how
    )


def _kernel_options(magic: Any) -> Any:
    """A user kernel's options, as of `worklog check`, but for a host function's."""
    for name, (flags, default, metavar, about) in reversed(OPTIONS.items()):
        how = (
            {"action": "append", "default": []}
            if isinstance(default, tuple)
            else {"default": default}
        )
        how |= {"type": int} if isinstance(default, int) else {}
        if name != "arrays":
            magic = _option(*flags, dest=name, metavar=metavar, help=about, **how)(magic)
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
        help="Change one harness setting, e.g. clocks=locked or l2=warm (see `worklog doctor --settings`).",
    )  # fmt: skip
    @cell_magic
    def rung(self, line: str, cell: str) -> Trial:
        """Compile the cell's kernel, check it, time it if there is a GPU, and show it on the ladder."""
        source = f"\n{cell}"  # so that line numbers are those of the cell
        options = vars(parse_argstring(self.rung, line))  # all others are parameters of try_kernel
        settings = options.pop("settings")
        for several in ("shapes", "beside"):
            if options[several] is not None:
                options[several] = [word.strip() for word in options[several].split(",")]
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
    @argument("name", help=f"One of {', '.join(PUZZLES)}.")
    @cell_magic
    def puzzle(self, line: str, cell: str) -> Graded:
        """Grade the cell's kernel as an answer to a puzzle of notebook 05."""
        source = f"\n{cell}"
        try:
            return attempt(parse_argstring(self.puzzle, line).name, source)
        except WorklogError as error:
            raise MagicFailed(f"%%puzzle: {compile_errors(error, source)}") from None

    @no_var_expand
    @line_cell_magic
    def time_gpu(self, line: str, cell: str | None = None) -> Measurement:
        """Time what an expression, or the lines of a cell, enqueue on the GPU. worklog.time has options."""
        source = (line if cell is None else cell).strip()
        shell = cast("Any", self.shell)
        if not source or (cell is not None and line.strip()):
            raise UsageError(
                "give an expression, as %time_gpu torch.mm(a, b), or a cell's code below %%time_gpu"
            )
        code = compile(shell.transform_cell(source), "<time_gpu>", "exec")
        title = source.splitlines()[0][:TITLE]
        try:
            return timing.time(
                lambda: exec(code, shell.user_ns), name=title if title == source else f"{title} …"
            )
        except WorklogError as error:
            raise MagicFailed(f"%time_gpu: {error}") from None


def one_line() -> Progress:
    """Prints progress in one line, at most every PAUSE_S seconds: the gate reports every launch."""
    due = 0.0

    def show(done: int, total: int, doing: str) -> None:
        nonlocal due
        if time.monotonic() > due:
            due = time.monotonic() + PAUSE_S
            print(
                f"\r{doing} ({done + 1} of {total})" if done < total else f"\r{doing}",
                end="",
                flush=True,
            )

    return show


def compile_errors(error: Exception, source: str) -> str:
    """The compiler's errors in a cell, each with its line and that line's text; for any other error, its message,
    without the compiler's log where the entry is unknown.
    """
    pattern = rf"^{FILE}[:(](\d+)\)?:(?!\s*(?:warning|note)\b)\s*(?:(?:catastrophic )?error[^:]*:\s*)?(.+)$"
    errors = re.findall(pattern, str(error), re.MULTILINE)
    if not errors:
        return str(error).splitlines()[0] if isinstance(error, CompileFailed) else str(error)
    lines = source.splitlines()
    return "\n".join(
        f"{FILE}:{number}: {what}\n    {lines[int(number) - 1].strip()}" for number, what in errors
    )


def load(shell: Any) -> None:
    """Register `%%rung`, `%%puzzle`, `%time_gpu` and `%%time_gpu` with a shell."""
    shell.register_magics(RungMagics)
