"""A user's kernel in a notebook: it is compiled, checked, timed, and shown on the ladder.

A cell's kernel is launched in a child process only.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Literal, Unpack

from IPython import get_ipython
from IPython.display import display

from worklog.errors import BadSetting, NothingToDraw, apart, check_keywords, listed
from worklog.gpu import device
from worklog.gpu.device import require_gpu
from worklog.kernel import LADDER, RUNGS, Compiled, Kernel, Sides, SourceOptions, launch_text, rung
from worklog.kernel.launchable import compile_for
from worklog.kernel.prediction import Prediction, predicted
from worklog.kernel.trial import completed
from worklog.plots import Chart, ladder, tile_map
from worklog.plots.selection import in_order
from worklog.problem import Point, Shape, Size, Sizes
from worklog.runner import check, sources
from worklog.runner import measure as bench
from worklog.runs import CUBLAS, Measurement, Run, Stage, Verdict
from worklog.runs.sources import newest_run
from worklog.runs.text import Progress, silent
from worklog.settings import Harness

SIZE = 1024
NAMES = [*(record.name for record in RUNGS), CUBLAS]
DEFAULT_BLOCK = "32,32"

# The rungs that were measured for an earlier cell of this session, by GPU, sizes and harness.
_ladders: dict[tuple[str, tuple[Shape, ...], Harness], Run] = {}


@dataclass(frozen=True, repr=False)
class Trial:
    """The result of try_kernel()."""

    kernel: Kernel
    checked: check.Checked
    shape: Shape  # the first shape to time
    run: Run | None  # what was measured
    # The run that table and chart are made from, with this kernel's row among the rungs. The row
    # states why there is no time. None if that failed.
    shown: Run | None
    notes: tuple[str, ...] = ()  # what failed behind the verdict

    @property
    def passed(self) -> bool:
        """Whether the kernel passed the gate."""
        return self.checked.verdict.accepted

    @cached_property
    def prediction(self) -> Prediction:
        """A lower bound of the time at the first shape.

        It is for the GPU that measured the kernel, else as for bound().
        """
        if self.run is None:
            largest = self.checked.verdict.largest
            return predicted(self.kernel, self.shape, device.gpu_here(), checked=largest)
        us = next((m.us for m in self.run.select(self.kernel.name, self.shape)), None)
        return predicted(self.kernel, self.shape, self.run.gpu, measured_us=us)

    def ladder(self, shape: Size | None = None) -> Chart:
        """Draw the ladder with this kernel on it.

        Raises NothingToDraw, BadSetting.
        """
        if self.shown is None:
            raise NothingToDraw("; ".join(self.notes))
        return ladder(self.shown, self.shown.shapes()[0] if shape is None else shape)

    def tile_map(self) -> Chart:
        """Draw the elements of C that are wrong.

        Raises NothingToDraw if the gate has no error map.
        """
        error_map = self.checked.verdict.where
        if error_map is None:
            raise NothingToDraw(f"there is no error map of {self.kernel.name}")
        return tile_map(error_map, self.checked.label)

    def marked(self) -> str:
        """Return the lines of the source that no launch of the check ran, each marked."""
        numbers = set[int]()
        for skipped in self.checked.verdict.never_ran:
            if not skipped.file:
                numbers.update(range(skipped.first, skipped.last + 1))
        if not numbers:
            return ""
        lines = self.kernel.source.splitlines()
        marked = ""
        for number in sorted(numbers):
            if number <= len(lines):
                marked += f"\n▸ {number:4}  {lines[number - 1]}"
        return marked

    def __repr__(self) -> str:
        parts: list[object] = [f"{self.checked}{self.marked()}"]
        if self.passed:
            parts.append(self.prediction)
            if self.shown is not None:
                parts.append(self.shown)
        return "\n\n".join(map(str, (*parts, *self.notes))).rstrip()

    def _repr_html_(self) -> str:
        text = escape(f"{self.kernel.name}: {self.checked}{self.marked()}")
        report = f'<pre role="status" style="white-space:pre-wrap;word-break:normal">{text}</pre>'
        if self.passed:
            report += self.prediction._repr_html_()
            if self.shown is not None:
                report += self.shown._repr_html_()
        return report + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    def _ipython_display_(self) -> None:
        """Display the report and, in a notebook, a chart as a second output.

        The chart is the ladder, or the error map if the kernel failed.
        """
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
    grid: Sides | None = None,
    block: Sides | None = None,
    shapes: Sizes | None = None,
    time: bool = True,
    beside: Iterable[str] | None = None,
    on: Literal["gpu", "emulated"] | None = None,
    file: str = "source",
    harness: Harness | None = None,
    progress: Progress = silent,
    **options: Unpack[SourceOptions],
) -> Trial:
    """Compile a kernel, check it, and compare its time with cuBLAS and the rungs.

    source: CUDA C++ with one __global__ function, or several and the entry's name
    name: in tables and charts (default: the entry's)
    grid, block: as for `worklog check`; if the source states no launch, one thread per element of
        C, in blocks of 32 x 32
    shapes: to time (default: 1024, padded to the domain)
    time: False checks only
    beside: the rungs to measure too (default: all whose domain has the shapes, once per session)
    on: "gpu" or "emulated" (default: the GPU if there is one)
    file: the source's name in messages
    harness: for the times (default: the unbiased harness)
    options: as for Kernel.from_source

    Without a GPU, the kernel is checked on the emulator, and has a lower bound of its time instead
    of a time. A failed check is a result, not an error.
    Raises CompileFailed, BadSetting, NoGpu.
    """
    _require_arguments(options, on, harness)
    if grid is not None and block is None:
        raise BadSetting("a grid needs a block: give the threads along x and y too, such as 32,32")
    block_text = "" if block is None else launch_text("block", block)
    grid_text = "" if grid is None else launch_text("grid", grid)
    if block is not None and grid is None:
        grid_text = per_element(block_text)
    kernel = _launchable(
        Kernel.from_source(
            source, file=file, name=name, grid=grid_text, block=block_text, **options
        )
    )
    if kernel.name in NAMES:
        raise BadSetting(
            f"{kernel.name} is the name of another kernel on the ladder: choose another name"
        )
    default = kernel.domain.padded(Shape.of(SIZE))
    timed = Shape.list_of(default if shapes is None else shapes) or [default]
    rungs = None if beside is None else [rung(name).name for name in listed("beside", beside)]
    if on == "gpu":
        require_gpu()
    is_live = sources.live_wanted() if on is None else on == "gpu"
    # first, so that a syntax error is reported at once
    compiled, label = compile_for(kernel, device.gpu() if is_live else None)
    if is_live and time:
        run, ladder_run = _measure(kernel, timed, rungs, label, harness=harness, progress=progress)
        checked = _checked_by(run, kernel, compiled, label)
        return Trial(kernel, checked, timed[0], run, ladder_run)
    checked = check.check_in_child(kernel, on="gpu" if is_live else "emulated", progress=progress)
    reason = _no_time(time, harness)
    notes: list[str] = []
    recorded = apart(
        "the table of the recording",
        lambda: _in_recording(kernel, checked, timed, rungs=rungs, reason=reason),
        None,
        notes,
    )
    return Trial(kernel, checked, timed[0], None, recorded, tuple(notes))


def _require_arguments(
    options: Iterable[str], device_name: str | None, harness: Harness | None
) -> None:
    """Raise BadSetting for an argument of try_kernel that doesn't exist, or a wrong value."""
    names = [*inspect.signature(try_kernel).parameters, *SourceOptions.__annotations__]
    check_keywords("try_kernel has no argument", options, names)
    if device_name not in (None, "gpu", "emulated"):
        raise BadSetting(f"on: give gpu or emulated, not {device_name!r}")
    if not isinstance(harness, Harness | None):
        raise BadSetting(f"harness: give one such as worklog.Harness.naive(), not {harness!r}")


def _launchable(kernel: Kernel) -> Kernel:
    """Return a kernel with the launch that its source states, or the default launch.

    Raises BadSetting if it has neither.
    """
    if kernel.stated:
        # If this fails, it gets the default launch, or an error that says what to state.
        with suppress(BadSetting):
            kernel = completed(kernel)
    if kernel.arguments and not kernel.grid:
        grid = per_element(DEFAULT_BLOCK)
        launch = f"launch: grid {grid}; block {DEFAULT_BLOCK}"
        note = f"{launch}; the default, as the source states none"
        kernel = kernel.with_launch(grid=grid, block=DEFAULT_BLOCK)
        kernel = replace(kernel, adapted=(*kernel.adapted, note))
    kernel.require_launch()
    return kernel


def _no_time(is_timed: bool, harness: Harness | None) -> str:
    """Return the reason why a kernel has no time."""
    if not is_timed:
        reason = "only checked"
    elif device.gpu_reason():
        reason = "the emulator gives no time, and there is no GPU here"
    else:
        reason = "the emulator gives no time"
    if harness not in (None, Harness()):
        reason += ", so the harness given is not used"
    return reason


def _measure(
    kernel: Kernel,
    shapes: Sequence[Shape],
    rungs: Sequence[str] | None,
    label: str,
    *,
    harness: Harness | None,
    progress: Progress,
) -> tuple[Run, Run]:
    """Measure a kernel, rungs and cuBLAS, and return the run and the run to show.

    rungs: None for the ladder, which is measured once per session. After that, the run to show has
        the rungs of the earlier run.
    label: of the GPU
    """
    key = (label, tuple(shapes), harness or Harness())
    earlier = _ladders.get(key) if rungs is None else None
    names = rungs
    if names is None:
        names = []
        if earlier is None:
            names = [
                record.name for record in LADDER if all(shape in record.domain for shape in shapes)
            ]
    run = bench.measure([kernel, *names, CUBLAS], shapes, harness=harness, progress=progress)
    if earlier is None:
        if rungs is None and run.complete:
            _ladders[key] = run
        return run, _in_order(run, run.measurements)
    rows = []
    for m in earlier.measurements:
        if m.kernel in NAMES and m.kernel not in run.kernels:
            rows.append(m)
    rows += run.measurements
    notes = [*run.notes, f"the rungs are from an earlier run: {earlier.created}"]
    kernels = {**earlier.kernels, **run.kernels}
    return run, _in_order(run, rows, kernels=kernels, notes=notes)


def _checked_by(run: Run, kernel: Kernel, compiled: Compiled, label: str) -> check.Checked:
    """Return a run's verdict on a kernel.

    It is from the first size at which the kernel failed, else from the first size.
    """
    measurements = run.select(kernel.name)
    first = next((m for m in measurements if m.status == "failed"), measurements[0])
    verdict = first.verdict
    if not verdict:
        reason = first.reason or "it could not be launched"
        verdict = Verdict((Stage("launch", False, 1, 0, reason),), None)
    return check.Checked(kernel, verdict, first.problem, label, replace(compiled, cubin=b""))


def per_element(block: str) -> str:
    """Return the grid with one thread per element of C.

    Raises BadSetting for a block that isn't two numbers.
    """
    sides = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", block)
    if sides is None:
        raise BadSetting(
            f"a block of {block} threads needs a grid: give the blocks along x and y, from M, N "
            "and K"
        )
    width = int(sides[1])
    height = int(sides[2])
    return f"(N + {width - 1}) // {width}, (M + {height - 1}) // {height}"


def _in_order(run: Run, rows: Sequence[Measurement], **changed: Any) -> Run:
    """Return the run with these measurements: the rungs, the user's kernel, then the baseline."""
    names = in_order(m.kernel for m in rows)
    return replace(run, measurements=sorted(rows, key=lambda m: names.index(m.kernel)), **changed)


def _in_recording(
    kernel: Kernel,
    checked: check.Checked,
    shapes: Sequence[Shape],
    *,
    rungs: Sequence[str] | None,
    reason: str,
) -> Run:
    """Return a run of the rungs, with a row for a kernel without a time.

    It is the newest run, or the recording. The run has the rungs at one of the shapes, and its rows
    are at the shapes that it has.
    rungs: None for the ladder
    reason: why the kernel has no time
    """
    names = [*(rungs or (record.name for record in LADDER)), CUBLAS]
    run = newest_run(
        lambda run: any(all(run.select(name, shape) for name in names) for shape in shapes)
    )
    rows = list[Measurement]()
    for shape in [shape for shape in run.shapes() if shape in shapes] or run.shapes()[-1:]:
        for m in run.select(shape=shape):
            if rungs is None or m.kernel in names:
                rows.append(m)
        rows.append(_row_without_time(run, kernel, checked, shape, reason=reason))
    compiled = checked.compiled
    assert compiled is not None  # a cell has a kernel, not a host function
    record = {"file": kernel.file, "user": "kernel", **compiled.resources}
    return _in_order(run, rows, kernels={**run.kernels, kernel.name: record})


def _row_without_time(
    run: Run, kernel: Kernel, checked: check.Checked, shape: Shape, *, reason: str
) -> Measurement:
    """Return a kernel's measurement at a shape: its verdict, and the reason for no time."""
    verdict = checked.verdict
    reason = f"{reason}; passed as {verdict.precision} ({checked.label})"
    if not verdict.accepted:
        reason = f"failed at {str(verdict.reason).partition(':')[0]} ({checked.label})"
    context = replace(run.context, label=checked.label)
    m = Measurement(kernel.name, Point.of_product(shape), "failed", reason, context=context)
    return replace(m, verdict=verdict, status="skipped" if verdict.accepted else "failed")
