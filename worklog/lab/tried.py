"""A kernel in a few lines of source, tried at once: compiled, put to the gate, timed where there is a GPU, and shown
beside the ladder.

What `%%rung` does to a cell, as a function. Everything that launches a kernel does so in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from worklog.bench import check, worker
from worklog.bench import measure as bench
from worklog.bench.check import Checked
from worklog.bench.tasks import BASELINE
from worklog.errors import BadSetting, NothingToDraw
from worklog.gate import Stage, Verdict
from worklog.gpu.device import gpu_reason, require_gpu
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.nvrtc import Compiled
from worklog.kernel.user_kernel import UserKernel
from worklog.lab.tried_words import html, text
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run, open_run

if TYPE_CHECKING:
    from worklog.bench.measure import Progress
    from worklog.plots.figure import Chart

SIZE = 1024
BLOCK = "32,32"
RUNGS = tuple(record.name for record in LADDER)
TAKEN = (*RUNGS, BASELINE)

_ladders: dict[tuple[str, tuple[Shape, ...]], Run] = {}  # rungs measured here before, by the GPU and their sizes


@dataclass(frozen=True, repr=False)
class Tried:
    """What came of it. run: what was measured, None without a GPU or where nothing was to be timed; why: the reason
    for that. shown: the rungs with this kernel's row among them, which table and chart are made from.
    """

    kernel: UserKernel
    checked: Checked
    run: Run | None
    shown: Run
    why: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the gate let it pass."""
        return self.checked.verdict.accepted

    def ladder(self, size: Shape | int | None = None) -> Chart:
        """The ladder with this kernel in it. Raises NothingToDraw, BadShape."""
        from worklog.plots import ladder

        return ladder(self.shown, size if size is not None else self.shown.shapes()[0])

    def tile_map(self) -> Chart:
        """Where C is wrong. Raises NothingToDraw where the gate has no map of it."""
        from worklog.plots import tile_map

        where = self.checked.verdict.where
        if where is None:
            raise NothingToDraw(f"there is no map of what is wrong with {self.kernel.name}")
        return tile_map(where, self.checked.label)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html(self)

    def _ipython_display_(self) -> None:
        """The verdict, then where the shell is a notebook's a chart as an output of its own: the ladder, or for a
        refusal the map.
        """
        from IPython import get_ipython
        from IPython.display import display

        display({"text/plain": str(self), "text/html": self._repr_html_()}, raw=True)
        if hasattr(get_ipython(), "kernel"):
            with suppress(NothingToDraw):  # a refusal without a map; a time that there is stands in the table
                display(self.ladder() if self.accepted else self.tile_map())


def try_kernel(
    source: str,
    name: str = "",
    *,
    grid: str | None = None,
    block: str | int | Sequence[int] | None = None,
    entry: str | None = None,
    domain: str = "any",
    claimed: str = "fp32",
    sizes: Iterable[Shape | int | str | Sequence[int]] | None = None,
    time: bool = True,
    beside: Iterable[str] | None = None,
    on: str | None = None,
    file: str = "source",
    progress: Progress | None = None,
) -> Tried:
    """Compile a kernel of the ladder's signature, put it to the gate, and time it beside cuBLAS and the rungs.

    source: CUDA C++ with one __global__ function, or several and the entry's name. name: in tables and charts (default:
    the entry's). grid, block: as `worklog check` takes them; by default one thread an element of C, in blocks of
    32 x 32. domain: the shapes that it takes; claimed: the precision class that it must have. sizes: of the timing
    (default: 1024, padded to the domain). time: whether to time it at all. beside: the rungs to measure with it
    (default: all that take the sizes, once a session). on: "gpu" or "emulated"; None takes the GPU where there is one.
    file: what messages call the source.

    Without a GPU it is gated on the emulator, and there is no time. A refusal is a result. Raises CompileFailed,
    BadSetting, OutsideDomain, UnknownRung, NoGpu.
    """
    grid, block = launch(grid, block)
    words = {"grid": grid, "block": block, "domain": domain, "claimed": claimed}
    kernel = UserKernel.written(source, file=file, entry=entry, title=name, **words)
    if kernel.name in TAKEN:
        raise BadSetting(f"the kernel is called {kernel.name}, as another one is: give it another name")
    asked = [Shape.of(size) for size in sizes] if sizes is not None else [kernel.domain.padded(Shape.of(SIZE))]
    rungs = None if beside is None else [rung(one).name for one in beside]
    if on == "gpu":
        require_gpu()
    live = bench.live_wanted() if on is None else on == "gpu"
    compiled, label = check.compile_for(kernel.program, live)  # first: a slip in the source is told at once
    if not (live and time):
        checked = gate(kernel, "gpu" if live else "emulated", progress)
        there = ", and there is no GPU here" if gpu_reason() else ""
        why = f"the emulator gives no time{there}" if time else "not timed, as asked"
        return Tried(kernel, checked, None, _beside_recorded(kernel, checked, asked, rungs, why), why)
    place = label, tuple(asked)
    known = _ladders.get(place) if rungs is None else None
    names = _that_take(asked) if rungs is None else rungs
    run = measure([kernel, *([] if known else names), BASELINE], asked, progress)
    if rungs is None and known is None and run.complete:
        _ladders[place] = run
    mine = run.select(kernel.name)
    telling = next((m for m in mine if m.status == "refused"), mine[0])
    checked = Checked(_verdict(telling), telling.problem, label, replace(compiled, cubin=b""))
    return Tried(kernel, checked, run, _in_order(run if known is None else _with_rungs_of(known, run)))


def gate(kernel: UserKernel, on: str, progress: Progress | None) -> Checked:
    """The gate's word, from a process of its own."""
    return worker.check(kernel, on=on, progress=progress)


def measure(kernels: Sequence[str | UserKernel], sizes: Sequence[Shape], progress: Progress | None) -> Run:
    """Gate and time in a process of its own."""
    return worker.measure(kernels, sizes, progress=progress)


def launch(grid: str | None, block: str | int | Sequence[int] | None) -> tuple[str, str]:
    """Grid and block as words; what is left out becomes one thread an element of C. Raises BadSetting."""
    if block is None:
        if grid is not None:
            raise BadSetting(f"a grid needs its block: give the threads along x and y too, such as {BLOCK}")
        block = BLOCK
    words = block if isinstance(block, str) else ",".join(map(str, [block] if isinstance(block, int) else block))
    if grid is not None:
        return grid, words
    sides = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", words)
    if sides is None:
        raise BadSetting(f"a block of {words} threads needs a grid: give the blocks along x and y, from M, N and K")
    x, y = int(sides[1]), int(sides[2])
    return f"(N + {x - 1}) // {x}, (M + {y - 1}) // {y}", words


def _that_take(sizes: Sequence[Shape]) -> list[str]:
    return [record.name for record in LADDER if all(size in record.domain for size in sizes)]


def _with_rungs_of(earlier: Run, run: Run) -> Run:
    """The run, with the rungs that were measured for an earlier cell."""
    rungs = [m for m in earlier.measurements if m.kernel in RUNGS and m.kernel not in run.kernels]
    note = f"the rungs were measured before, in the run of {earlier.created}"
    return replace(
        run,
        measurements=[*rungs, *run.measurements],
        kernels={**earlier.kernels, **run.kernels},
        notes=[*run.notes, note],
    )


def _in_order(run: Run) -> Run:
    """The ladder's rungs, then what was brought, then the baseline."""
    place = {name: number for number, name in enumerate(TAKEN)}
    place[BASELINE] = len(place) + 1
    return replace(run, measurements=sorted(run.measurements, key=lambda m: place.get(m.kernel, len(LADDER))))


def _beside_recorded(
    kernel: UserKernel, checked: Checked, asked: Sequence[Shape], rungs: Sequence[str] | None, why: str
) -> Run:
    """The run to look at, at the sizes asked for that it holds and with the rungs asked for (None: all), with a row for
    this kernel that has no time.
    """
    run, verdict = open_run(), checked.verdict
    held = [shape for shape in run.shapes() if shape in asked] or run.shapes()[-1:]
    status, reason = "skipped", f"{why}; accepted as {verdict.precision} ({checked.label})"
    if not verdict.accepted:
        status, reason = "refused", f"refused at {verdict.stages[-1].name} ({checked.label})"
    rows: list[Measurement] = []
    for shape in held:
        rows += [m for m in run.select(shape=shape) if rungs is None or m.kernel in (*rungs, BASELINE)]
        sides = (shape.m, shape.n, shape.k)
        mine = Measurement(kernel.name, sides, status, reason, verdict=verdict.as_dict(), label=checked.label)
        rows.append(mine)
    assert checked.compiled is not None  # a cell holds a kernel, not host code
    kernels = {**run.kernels, kernel.name: _spent(kernel, checked.compiled)}
    return _in_order(replace(run, measurements=rows, kernels=kernels))


def _spent(kernel: UserKernel, compiled: Compiled) -> dict[str, Any]:
    spent = {
        "registers": compiled.registers,
        "local_bytes": compiled.stack_bytes,
        "shared_bytes": compiled.shared_bytes,
    }
    return {"file": kernel.program.name, "brought": "kernel", **spent}


def _verdict(m: Measurement) -> Verdict:
    """The gate's word out of a measurement."""
    if m.verdict is None:
        return Verdict((Stage("launch", False, 1, 0, m.reason or "it could not be launched"),), None)
    return Verdict.from_dict(m.verdict)
