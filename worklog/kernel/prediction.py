"""Counts of a launch of any size, and from them and a GPU's data sheet a lower bound of its time. It needs no GPU, no
data, and not the memory of a large problem.

The first, an inner and the last block along each axis stand for all, and a block's counts grow linearly with K. The
tests check both against full runs. Blocks of a grid that does not follow the shape share its work, in parts that may
differ: they are all run.

Per clock, a multiprocessor (SM) does at most one multiply-add per FP32 lane, one lookup of a 128-byte line in L1, and
one wavefront of shared memory. A block stays on its SM. A and B are read from DRAM once, since the harness flushes L2.
The bound ignores latencies, barriers and all other instructions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from html import escape
from itertools import product
from typing import Any

from worklog.emulator import (
    BUDGET,
    BadLaunch,
    BudgetExceeded,
    Counts,
    Flow,
    NotPredictable,
    Pointer,
    Result,
    caveats,
    combined,
    launch,
    load,
)
from worklog.emulator import Kernel as Code
from worklog.errors import BadSetting, Interrupted, WorklogError, kind_and_message
from worklog.kernel import emulated
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import MemoryCounts, memory_counts
from worklog.kernel.rungs import LADDER
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Gpu, Run, Table, duration, recorded_run
from worklog.runs.limits import WARP

SIZE = Shape.of(4096)
FMA = "multiply-adds"
L1 = "L1 lookups"
SHARED = "shared-memory wavefronts"
DRAM = "DRAM reads"
# along M and along N: blocks, and the range of elements
TRIAL_BLOCKS = 5
TRIAL_LEAST = 160
TRIAL_MOST = 640
# Floats of K: a multiple of every rung's BK (twice, for two buffers), of a loop's unrolling, and of 256 bytes.
STRETCH = 64
SHORTEST = 2 * STRETCH
WHOLE = Shape.of(512)  # the most work of which all blocks are run


def predict(
    code: Code,
    kernel: Kernel,
    shape: Shape,
    beta: float = 0.0,
    blocks: Mapping[int, int] | None = None,
) -> Result:
    """Counts of a rung's code (or one with its signature, tile and block) at a shape, in about a second at any size.
    alpha is 1.

    blocks: numbers of the blocks to run, each with the number of blocks that it stands for (default: those that stand
    for all). Raises NotPredictable if addresses or branches depend on loaded data, or if the grid does not follow the
    shape, which is larger than WHOLE; BadSetting outside the domain.
    """
    kernel.check(shape)
    if (line := Flow(code).data_dependent) is not None:
        why = "an address or a branch depends on loaded data, so the counts cannot be predicted: launch it in full"
        raise NotPredictable(f"{kernel.file}:{line}: {why}")
    grid = kernel.blocks(shape)
    # A shorter K with the same remainder within a stretch, and the number of stretches left out. A kernel for squares
    # reads K from M or N.
    turns = 0 if kernel.domain.square else max(0, (shape.k - SHORTEST) // STRETCH)
    axes = [
        [(0, 1), (1, n - 2), (n - 1, 1)] if n > 2 else [(k, 1) for k in range(n)]
        for n in (*grid, 1)[:3]
    ]
    weights = blocks or {
        (z * grid[1] + y) * grid[0] + x: count_x * count_y * count_z
        for (x, count_x), (y, count_y), (z, count_z) in product(*axes)
    }
    if math.prod(grid) > 1 and kernel.blocks(replace(shape, m=2 * shape.m, n=2 * shape.n)) == grid:
        if shape.flops > WHOLE.flops:
            what = f"the counts of {kernel.entry} cannot be predicted from a few blocks: its grid does not follow"
            advice = f"take a size of up to {WHOLE}, which runs whole"
            raise NotPredictable(f"{kernel.file}: {what} the shape, and shares differ: {advice}")
        turns = 0
        weights = blocks or dict.fromkeys(range(math.prod(grid)), 1)
    short = replace(shape, k=shape.k - turns * STRETCH)
    lines = _of_blocks(code, kernel, short, weights, beta)
    if turns:
        longer = _of_blocks(code, kernel, replace(short, k=short.k + STRETCH), weights, beta)
        lines = combined(turns, longer, 1 - turns, lines)
    label = f"emulated · {code.arch} PTX · predicted from {len(weights)} blocks"
    return Result(code.name, label, len(weights), (), lines)


def counts_at(
    code: Code, kernel: Kernel, shape: Shape, blocks: Mapping[int, int] | None = None
) -> MemoryCounts:
    """Memory counts of a launch at a shape, as predict()."""
    counts = predict(code, kernel, shape, blocks=blocks).counts
    loads = counts.global_load
    stores = counts.global_store
    shared = counts.shared_load + counts.shared_store
    of_loads = loads.requests, loads.sectors, loads.bytes, loads.cache_lines
    of_others = (
        stores.requests,
        stores.sectors,
        shared.wavefronts,
        shared.conflicts,
        counts.thread_fma,
    )
    return MemoryCounts(kernel.program.sha256, *of_loads, *of_others)


def count_all(code: Code, kernel: Kernel, shape: Shape) -> Mapping[int, Counts]:
    """Counts by source line of every block and all of K, without values; alpha = 1, beta = 0. For small shapes."""
    return _of_blocks(
        code, kernel, shape, dict.fromkeys(range(math.prod(kernel.blocks(shape))), 1), 0.0
    )


def _of_blocks(
    code: Code, kernel: Kernel, shape: Shape, weights: Mapping[int, int], beta: float
) -> Mapping[int, Counts]:
    a, b, c = (
        Pointer(None, 4 * x * y)
        for x, y in ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    )
    arguments = kernel.bind(shape, 1.0, a, b, beta, c, Pointer(None, kernel.workspace_bytes(shape)))
    together = defaultdict[int, list[int]](list)  # by weight
    for number, weight in weights.items():
        together[weight].append(number)
    out: Mapping[int, Counts] = {}
    for weight, blocks in sorted(together.items()):
        result = launch(
            code, kernel.blocks(shape), kernel.threads, arguments, shared_bytes=kernel.program.shared, races=False,
            only_blocks=blocks,
        )  # fmt: skip
        if result.findings:
            raise BadLaunch(f"{code.name} at {shape}: {result.findings[0].at(kernel.file)}")
        out = combined(1, out, weight, result.lines)
    return out


@dataclass(frozen=True)
class Bound:
    """At least this time for a launch with a cold L2. limits: milliseconds that each limit alone takes, by FMA, L1,
    SHARED and DRAM. source: of the counts. notes: where a GPU may count otherwise. measured_ms: the kernel's time, if
    it was measured. beyond: whether the shape is larger than those of the check's verdict.
    """

    kernel: str
    shape: Shape
    gpu: str
    source: str
    limits: Mapping[str, float]
    counts: MemoryCounts
    notes: tuple[str, ...] = ()
    measured_ms: float | None = None
    beyond: bool = False

    @property
    def ms(self) -> float:
        """The bound: the time of the slowest limit."""
        return max(self.limits.values())

    @property
    def limit(self) -> str:
        """The name of the slowest limit."""
        return max(self.limits, key=lambda name: self.limits[name])

    @property
    def factor(self) -> float | None:
        """The measured time over the bound."""
        return None if self.measured_ms is None else self.measured_ms / self.ms

    @property
    def label(self) -> str:
        """What must stand beside the bound."""
        return f"{self.source}, counted for {self.card}; a lower bound, not a time"

    @property
    def card(self) -> str:
        """The GPU with its article."""
        return f"{'an' if self.gpu.startswith('NVIDIA') else 'a'} {self.gpu}"

    def __str__(self) -> str:
        where = (
            f"{self.shape}, which the verdict doesn't cover," if self.beyond else str(self.shape)
        )
        words = (
            f"at least {duration(1e3 * self.ms)} at {where} on {self.card}, bound by {self.limit}"
        )
        if self.measured_ms is not None:
            words += f"; measured {duration(1e3 * self.measured_ms)}, {self.factor:.2f} times that"
        return words


def bound(kernel: Kernel, shape: Shape | None = None, gpu: Gpu | None = None) -> Bound:
    """Return the bound of a kernel's time at a shape.

    It is immediate for a rung on whole tiles, else takes about a second, and some seconds for a kernel for squares.

    shape: default: 4096, padded to the domain
    gpu: default: the recording's
    Raises NotPredictable for a kernel whose counts depend on data or differ between blocks, UnsupportedInstruction,
    BadSetting for a host function or without a launch, and what compiling it raises.
    """
    if kernel.host is not None:
        raise BadSetting(f"{kernel.name} is a host function, which the emulator cannot run")
    kernel.require_launch()
    gpu = gpu or recorded_run().gpu
    shape = shape or kernel.domain.padded(SIZE)
    kernel.check(shape)
    kernel = kernel.at(shape, gpu.arch)
    if len(kernel.passes) > 1:  # which run one after another; A and B come from DRAM once
        passes = [bound(part, shape, gpu) for part in kernel.passes]
        main = passes[kernel.main]
        counts = sum((part.counts for part in passes if part is not main), main.counts)
        limits = {
            name: sum(part.limits.get(name, math.nan) for part in passes) for name in main.limits
        }
        limits = {name: ms for name, ms in limits.items() if ms == ms} | {DRAM: main.limits[DRAM]}
        notes = tuple(dict.fromkeys(note for part in passes for note in part.notes))
        return replace(main, limits=limits, counts=counts, notes=notes)
    counted = memory_counts()
    tile = kernel.template
    own = counted.rungs.get(kernel.name)
    blocks = math.prod(kernel.blocks(shape))
    if (
        own
        and own.sha256 == kernel.program.sha256
        and shape.m % tile["BM"] == shape.n % tile["BN"] == 0
    ):
        counts = own.at(shape, counted.shape)
        first: dict[str, float] = {name: count / blocks for name, count in counts.numbers.items()}
        return Bound(
            kernel.name,
            shape,
            gpu.name,
            counted.label,
            _limits(blocks, shape, gpu, counts, first),
            counts,
        )
    built, label = emulated.build(kernel.program, gpu.arch)
    with emulated.naming(kernel.program):
        parsed = load(built.ptx, built.symbol, built.shared_accesses)
        x, y, *_ = kernel.blocks(shape)
        m, n = (
            min(max(math.ceil(TRIAL_BLOCKS * size / along), TRIAL_LEAST), TRIAL_MOST)
            for size, along in ((shape.m, y), (shape.n, x))
        )
        small = kernel.domain.padded(Shape(m, n, SHORTEST + STRETCH))
        if predict(parsed, kernel, small).lines != count_all(
            parsed, kernel, small
        ):  # so some blocks stand for all
            what = f"the counts of {kernel.entry} differ between its blocks, as seen at {small}"
            raise NotPredictable(f"{kernel.file}: {what}")
        counts = counts_at(parsed, kernel, shape)
        alone = counts_at(parsed, kernel, shape, {0: 1})
    limits = _limits(blocks, shape, gpu, counts, alone.numbers)
    if parsed.assembled is False:  # the assembler may have joined them to fewer
        del limits[SHARED]
    return Bound(kernel.name, shape, gpu.name, label, limits, counts, caveats(parsed))


def _limits(
    blocks: int, shape: Shape, gpu: Gpu, counts: MemoryCounts, first: Mapping[str, float]
) -> dict[str, float]:
    """Milliseconds per limit. first: the counts of block 0."""
    # per millisecond
    sms = gpu.multiprocessors
    clocks = gpu.sm_clock_mhz * 1e3

    def busiest(name: str) -> float:
        """The count of the SM with the most: of equal blocks, a whole number; of others, the mean or block 0 alone."""
        if math.isclose(first[name] * blocks, counts.numbers[name]):
            return math.ceil(blocks / sms) * first[name]
        return max(counts.numbers[name] / sms, first[name])

    return {
        FMA: busiest("thread_fma") / (gpu.fp32_peak_tflops * 1e9 / 2 / sms),
        L1: busiest("load_lines") / clocks,
        SHARED: busiest("wavefronts") / clocks,
        DRAM: FLOAT_BYTES * shape.k * (shape.m + shape.n) / (gpu.memory_peak_gbs * 1e6),
    }


def rung_bounds(run: Run, shape: Shape) -> dict[str, Bound]:
    """The bounds of the rungs at a shape on the run's GPU, by name, with the run's times. Rungs that do not take the
    shape are left out.
    """
    bounds = {rung.name: bound(rung, shape, run.gpu) for rung in LADDER if shape in rung.domain}
    for m in reversed(run.select(shape=shape)):
        on_this_gpu = m.context is None or m.context.gpu.name == run.gpu.name
        if m.kernel in bounds and m.us is not None and on_this_gpu:
            bounds[m.kernel] = replace(bounds[m.kernel], measured_ms=m.us / 1e3)
    return bounds


def spread(bounds: Mapping[str, Bound]) -> tuple[float, float]:
    """The smallest and the largest factor of the measured time over the bound. Raises ValueError without a time."""
    factors = [least.factor for least in bounds.values() if least.factor is not None]
    return min(factors), max(factors)


def table(bounds: Iterable[Bound], times: str) -> Table:
    """Of each bound, at least one: counts per multiply-add of a warp (there are M N K / 32), the bound, the time and
    their factor. times: the label of the times.
    """
    rows = []
    for least in bounds:
        per_fma = 2 * WARP / least.shape.flops
        counts = least.counts
        row = {"kernel": least.kernel, "at": str(least.shape)}
        row["sectors"] = f"{per_fma * (counts.load_sectors + counts.store_sectors):.3f}"
        row |= {
            "L1 lines": f"{per_fma * counts.load_lines:.3f}",
            "wavefronts": f"{per_fma * counts.wavefronts:.3f}",
        }
        row |= {"at least": duration(1e3 * least.ms, padded=True), "bound by": least.limit}
        row |= {"measured": "–", "factor": "–"}
        if least.measured_ms is not None:
            row |= {
                "measured": duration(1e3 * least.measured_ms, padded=True),
                "factor": f"{least.factor:.2f}",
            }
        rows.append(row)
    counted = "global sectors, L1 lines and shared-memory wavefronts per multiply-add of a warp"
    return Table.of(f"{counted}: {least.source}; times: {times}", rows)


@dataclass(frozen=True, repr=False)
class Prediction:
    """What is known of a kernel's time without running it on a GPU, beside the rungs of the recording at the nearest
    recorded size. bound: None where `why` says why there is none. label: the recording's.
    """

    bound: Bound | None
    rungs: Mapping[str, Bound]
    label: str
    why: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The bound with its label, how far the rungs are above theirs, and where a GPU may count otherwise."""
        if self.bound is None:
            return (f"no lower bound of the time: {self.why}",)
        timed = [rung for rung in self.rungs.values() if rung.factor is not None]
        least, most = spread(self.rungs)
        error = f"the {len(timed)} rungs take {least:.2f} to {most:.2f} times their bounds at {timed[0].shape}"
        return f"{self.bound} ({self.bound.label})", f"{error} ({self.label})", *self.bound.notes

    @property
    def table(self) -> Table | None:
        """The kernel below the rungs, or None without a bound."""
        if self.bound is None:
            return None
        known = {(rung.counts.sha256, rung.shape) for rung in self.rungs.values()}
        own = () if (self.bound.counts.sha256, self.bound.shape) in known else (self.bound,)
        return table((*self.rungs.values(), *own), self.label)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        own = self.bound
        bound = None
        if own is not None:
            sides = [own.shape.m, own.shape.n, own.shape.k]
            bound = {
                **asdict(own),
                "shape": sides,
                "ms": own.ms,
                "limit": own.limit,
                "label": own.label,
            }
        return {"bound": bound, "why": self.why, "label": self.label}

    def __repr__(self) -> str:
        return "\n".join(
            [*self.sentences, *([] if self.table is None else ["", self.table.text()])]
        )

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        if self.table is None:
            return words
        return f"{words}<details><summary>counts beside the rungs'</summary>{self.table.html()}</details>"


def predicted(
    kernel: Kernel,
    shape: Shape | None = None,
    gpu: Gpu | None = None,
    measured_us: float | None = None,
    checked: Sequence[int] | None = None,
) -> Prediction:
    """Return the bound of a kernel, or why there is none, beside the recorded rungs. Raises Interrupted only.

    shape, gpu: as for bound()
    measured_us: the kernel's time there, if it was measured
    checked: the largest M, N and K of a verdict on it (default: any)
    """
    try:
        return _predicted(kernel, shape, gpu, measured_us, checked)
    except Interrupted:
        raise
    except BudgetExceeded:  # which isn't the kernel's mistake, since it may have passed a check
        why = (
            f"at {shape or kernel.domain.padded(SIZE)}, {kernel.entry} takes more than {BUDGET:,} "
            "instructions per warp, the most that are counted: give a smaller --size"
        )
    except WorklogError as error:
        why = str(error)
    except Exception as error:  # of any kind: no error may replace a verdict
        why = f"the prediction failed: {kind_and_message(error)}"
    return Prediction(None, {}, "", why)


def _predicted(
    kernel: Kernel,
    shape: Shape | None,
    gpu: Gpu | None,
    measured_us: float | None,
    checked: Sequence[int] | None,
) -> Prediction:
    """Return the bound beside the recorded rungs. Raises what bound() raises."""
    run = recorded_run()
    own = bound(kernel, shape, gpu)
    near = min(run.shapes(), key=lambda recorded: abs(math.log(recorded.flops / own.shape.flops)))
    beyond = any(size > most for size, most in zip(astuple(own.shape), checked or (), strict=False))
    own = replace(
        own, measured_ms=None if measured_us is None else measured_us / 1e3, beyond=beyond
    )
    return Prediction(own, rung_bounds(run, near), run.label)
