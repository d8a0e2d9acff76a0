"""Counts of a launch of any size, and a lower bound of its time.

The bound follows from the counts and a GPU's data sheet. It needs no GPU, no data, and not
the memory of a large problem.

The first, an inner and the last block along each axis stand for all blocks, and a block's
counts grow linearly with K. The tests check both against full runs. If a grid doesn't follow
the shape, its blocks share the shape's work in parts that may differ, and all of them are run.

Per clock, a multiprocessor (SM) does at most one multiply-add per FP32 lane, one lookup of a
128-byte line in L1, and one wavefront of shared memory. A block stays on its SM. A and B are
read from DRAM once, since the harness flushes L2. The bound ignores latencies, barriers and
all other instructions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import product
from typing import Any

import numpy as np

from worklog.emulator import Counts, Pointer, Result, launch, load
from worklog.emulator import PtxKernel as Code
from worklog.emulator.flow import Flow
from worklog.emulator.launching import BUDGET
from worklog.emulator.limits import WARP, Chip
from worklog.emulator.reports import BadLaunch, BudgetExceeded, NotPredictable, caveats, combined
from worklog.errors import Interrupted, WorklogError, kind_and_message
from worklog.kernel import emulated
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import MemoryCounts, memory_counts
from worklog.kernel.ladder.rungs import LADDER
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Gpu, Run, recorded_run
from worklog.runs.text import Table, duration

SIZE = Shape.of(4096)
FMA = "multiply-adds"
L1 = "L1 lookups"
SHARED = "shared-memory wavefronts"
DRAM = "DRAM reads"
# Along M and along N: the number of blocks, and the range of elements.
TRIAL_BLOCKS = 5
TRIAL_LEAST = 160
TRIAL_MOST = 640
# Floats of K: a multiple of every rung's BK (twice, for two buffers), of a loop's unrolling, and
# of 256 bytes.
STRETCH = 64
SHORTEST = 2 * STRETCH
WHOLE = Shape.of(512)  # up to this work, all blocks are run


def predict(
    code: Code,
    kernel: Kernel,
    shape: Shape,
    *,
    beta: float = 0.0,
    blocks: Mapping[int, int] | None = None,
) -> Result:
    """Return the counts of a kernel's code at a shape, in about a second at any size.

    code: a rung's code, or code with its signature, tile and block
    beta: beta of the launch; alpha is 1
    blocks: numbers of the blocks to run, each with the number of blocks that it stands for
        (default: a few blocks that stand for all)

    Raises NotPredictable if addresses or branches depend on loaded data, or if the grid doesn't
    follow the shape and the shape is larger than WHOLE; BadSetting outside the domain.
    """
    kernel.check(shape)
    if (line := Flow(code).data_dependent) is not None:
        reason = (
            "an address or a branch depends on loaded data, so the counts cannot be "
            "predicted: launch it in full"
        )
        raise NotPredictable(f"{kernel.file}:{line}: {reason}")
    grid = kernel.blocks(shape)
    block_count = math.prod(grid)
    if block_count > 1 and kernel.blocks(replace(shape, m=2 * shape.m, n=2 * shape.n)) == grid:
        _require_small(kernel, shape)
        stretches = 0
        weights = blocks or dict.fromkeys(range(block_count), 1)
    else:
        stretches = _stretches_left_out(kernel, shape)
        weights = blocks or _representatives(grid)
    short = replace(shape, k=shape.k - stretches * STRETCH)
    lines = _run_blocks(code, kernel, short, weights=weights, beta=beta)
    if stretches:
        longer = _run_blocks(
            code, kernel, replace(short, k=short.k + STRETCH), weights=weights, beta=beta
        )
        lines = combined(stretches, longer, 1 - stretches, lines)
    label = f"emulated · {code.arch} PTX · predicted from {len(weights)} blocks"
    return Result(code.name, label, len(weights), (), lines)


def _require_small(kernel: Kernel, shape: Shape) -> None:
    """Raise NotPredictable for a shape larger than WHOLE, whose grid doesn't follow the shape."""
    if shape.flops > WHOLE.flops:
        reason = (
            f"the counts of {kernel.entry} cannot be predicted from a few blocks: its grid "
            "does not follow"
        )
        advice = f"take a size of up to {WHOLE}, which runs whole"
        raise NotPredictable(f"{kernel.file}: {reason} the shape, and shares differ: {advice}")


def _stretches_left_out(kernel: Kernel, shape: Shape) -> int:
    """Return how many stretches of K needn't be run.

    The shorter K has the same remainder within a stretch. A kernel for squares reads K from
    M or N, so it needs all of K.
    """
    if kernel.domain.square:
        return 0
    return max(0, (shape.k - SHORTEST) // STRETCH)


def _representatives(grid: Sequence[int]) -> dict[int, int]:
    """Return the numbers of a few blocks, each with the number of blocks that it stands for."""
    axes = []
    for length in (*grid, 1)[:3]:
        if length > 2:
            axes.append([(0, 1), (1, length - 2), (length - 1, 1)])
        else:
            axes.append([(index, 1) for index in range(length)])
    weights = {}
    for (column, columns), (row, rows), (layer, layers) in product(*axes):
        weights[(layer * grid[1] + row) * grid[0] + column] = columns * rows * layers
    return weights


def counts_at(
    code: Code, kernel: Kernel, shape: Shape, blocks: Mapping[int, int] | None = None
) -> MemoryCounts:
    """Return the memory counts of a launch at a shape.

    blocks: as for predict(), which states the errors
    """
    counts = predict(code, kernel, shape, blocks=blocks).counts
    loads = counts.global_load
    stores = counts.global_store
    shared = counts.shared_load + counts.shared_store
    return MemoryCounts(
        kernel.program.sha256,
        loads.requests,
        loads.sectors,
        loads.bytes,
        loads.cache_lines,
        stores.requests,
        stores.sectors,
        shared.wavefronts,
        shared.conflicts,
        counts.thread_fma,
    )


def count_all(code: Code, kernel: Kernel, shape: Shape) -> Mapping[int, Counts]:
    """Return the counts by source line of every block and all of K, without values.

    alpha = 1, beta = 0. For small shapes.
    """
    weights = dict.fromkeys(range(math.prod(kernel.blocks(shape))), 1)
    return _run_blocks(code, kernel, shape, weights=weights, beta=0.0)


def operands_without_values(kernel: Kernel, shape: Shape) -> dict[str, Any]:
    """Return operands beyond a product's for a launch without values."""
    operands = dict[str, Any]()
    for operand in kernel.operands:
        operands[operand.name] = np.float32(1)
        if operand.format is not None:
            operands[operand.name] = Pointer(None, operand.format.nbytes(operand.length(shape)))
    return operands


def _run_blocks(
    code: Code, kernel: Kernel, shape: Shape, *, weights: Mapping[int, int], beta: float
) -> Mapping[int, Counts]:
    """Return the weighted counts by source line of some blocks.

    weights: numbers of the blocks, each with the number of blocks that it stands for
    """
    a, b, c = (Pointer(None, nbytes) for nbytes in kernel.types.nbytes(shape.elements))
    workspace = Pointer(None, kernel.workspace_bytes(shape))
    operands = operands_without_values(kernel, shape)
    arguments = emulated.with_maps(kernel.bind(shape, 1.0, a, b, beta, c, workspace, operands))
    blocks_by_weight = defaultdict[int, list[int]](list)
    for number, weight in weights.items():
        blocks_by_weight[weight].append(number)
    out: Mapping[int, Counts] = {}
    for weight, blocks in sorted(blocks_by_weight.items()):
        result = launch(
            code,
            kernel.blocks(shape),
            kernel.threads,
            arguments,
            shared_bytes=kernel.program.shared,
            races=False,
            only_blocks=blocks,
        )
        for finding in result.findings:
            if finding.is_error:
                raise BadLaunch(f"{kernel.entry} at {shape}: {finding.at(kernel.file)}")
        out = combined(1, out, weight, result.lines)
    return out


@dataclass(frozen=True)
class Bound:
    """A lower bound of the time of a launch with a cold L2."""

    kernel: str
    shape: Shape
    gpu: str
    source: str  # of the counts
    limits: Mapping[str, float]  # milliseconds that each limit alone takes: FMA, L1, SHARED, DRAM
    counts: MemoryCounts
    notes: tuple[str, ...] = ()  # on what a GPU may count otherwise
    measured_ms: float | None = None  # the kernel's time, if it was measured
    beyond: bool = False  # whether the shape is larger than the shapes of the check's verdict

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
        """The label of the bound: the counts' source and the GPU."""
        return f"{self.source}, counted for {self.card}; a lower bound, not a time"

    @property
    def card(self) -> str:
        """The GPU with its article."""
        return f"{'an' if self.gpu.startswith('NVIDIA') else 'a'} {self.gpu}"

    def __str__(self) -> str:
        shape = (
            f"{self.shape}, which the verdict doesn't cover," if self.beyond else str(self.shape)
        )
        text = (
            f"at least {duration(1e3 * self.ms)} at {shape} on {self.card}, bound by {self.limit}"
        )
        if self.measured_ms is not None:
            text += f"; measured {duration(1e3 * self.measured_ms)}, {self.factor:.2f} times that"
        return text


def bound(kernel: Kernel, shape: Shape | None = None, gpu: Gpu | None = None) -> Bound:
    """Return the bound of a kernel's time at a shape.

    shape: default: 4096, padded to the domain
    gpu: default: the recording's GPU

    It is immediate for a rung on whole tiles. Otherwise it takes about a second, and some
    seconds for a kernel for squares.

    Raises NotPredictable for a kernel whose counts depend on data or differ between blocks;
    UnsupportedInstruction; BadSetting for a host function or without a launch; and what
    emulated.build() raises.
    """
    kernel.require_source()
    kernel.require_launch()
    gpu = gpu or recorded_run().gpu
    shape = shape or kernel.domain.padded(SIZE)
    kernel.check(shape)
    kernel = kernel.at(shape, Chip.of_gpu(gpu))
    if len(kernel.passes) > 1:
        return _bound_of_passes(kernel, shape, gpu)
    packaged = memory_counts()
    rung_counts = packaged.rungs.get(kernel.name)
    if (
        rung_counts
        and rung_counts.sha256 == kernel.program.sha256
        and shape.m % kernel.template["BM"] == shape.n % kernel.template["BN"] == 0
    ):
        blocks = math.prod(kernel.blocks(shape))
        counts = rung_counts.at(shape, packaged.shape)
        per_block: dict[str, float] = {
            name: count / blocks for name, count in counts.numbers.items()
        }
        limits = _limits(blocks, shape, gpu, counts=counts, per_block=per_block)
        return Bound(kernel.name, shape, gpu.name, packaged.label, limits, counts)
    return _counted_bound(kernel, shape, gpu)


def _bound_of_passes(kernel: Kernel, shape: Shape, gpu: Gpu) -> Bound:
    """Return the bound of launches that run one after another.

    A and B come from DRAM once.
    """
    passes = [bound(part, shape, gpu) for part in kernel.passes]
    main = passes[kernel.main]
    counts = main.counts
    notes = dict[str, None]()
    for part in passes:
        notes |= dict.fromkeys(part.notes)
        if part is not main:
            counts = counts + part.counts
    limits = {}
    for name in main.limits:
        ms = sum(part.limits.get(name, math.nan) for part in passes)
        if not math.isnan(ms):  # a limit that a part lacks isn't a limit of all
            limits[name] = ms
    limits[DRAM] = main.limits[DRAM]
    return replace(main, limits=limits, counts=counts, notes=tuple(notes))


def _counted_bound(kernel: Kernel, shape: Shape, gpu: Gpu) -> Bound:
    """Return the bound of one launch, by counting a few blocks. Raises as bound() does."""
    built, label = emulated.build(kernel.program, gpu.arch)
    if not built.has_resources:
        raise NotPredictable("clang's code isn't a GPU's: a bound needs NVRTC")
    with emulated.naming(kernel.program):
        code = load(built.ptx, built.symbol, built.shared_accesses, kernel.entry)
        _require_equal_blocks(code, kernel, shape)
        counts = counts_at(code, kernel, shape)
        first_block = counts_at(code, kernel, shape, {0: 1})
    blocks = math.prod(kernel.blocks(shape))
    limits = _limits(blocks, shape, gpu, counts=counts, per_block=first_block.numbers)
    if code.assembled is False:  # the assembler may have joined accesses, so there are fewer
        del limits[SHARED]
    return Bound(kernel.name, shape, gpu.name, label, limits, counts, caveats(code))


def _require_equal_blocks(code: Code, kernel: Kernel, shape: Shape) -> None:
    """Raise NotPredictable if a few blocks don't stand for all.

    A prediction for a small shape is compared with a run of all blocks.
    """
    grid_x, grid_y, *_ = kernel.blocks(shape)
    m = _trial_size(shape.m, grid_y)
    n = _trial_size(shape.n, grid_x)
    small = kernel.domain.padded(Shape(m, n, SHORTEST + STRETCH))
    if predict(code, kernel, small).lines != count_all(code, kernel, small):
        reason = f"the counts of {kernel.entry} differ between its blocks, as seen at {small}"
        raise NotPredictable(f"{kernel.file}: {reason}")


def _trial_size(size: int, blocks: int) -> int:
    """Return the elements of TRIAL_BLOCKS blocks along an axis, within the range of a trial.

    size: all elements along the axis
    blocks: all blocks along the axis
    """
    return min(max(math.ceil(TRIAL_BLOCKS * size / blocks), TRIAL_LEAST), TRIAL_MOST)


def _limits(
    blocks: int,
    shape: Shape,
    gpu: Gpu,
    *,
    counts: MemoryCounts,
    per_block: Mapping[str, float],
) -> dict[str, float]:
    """Return the milliseconds that each limit alone takes.

    blocks: number of blocks of the grid
    counts: of all blocks
    per_block: the counts of block 0
    """
    sms = gpu.multiprocessors
    clocks_per_ms = gpu.sm_clock_mhz * 1e3

    def busiest(name: str) -> float:
        """Return the count of the SM with the most work.

        If the blocks are equal, the SM runs a whole number of them. Otherwise, the larger of
        the mean and block 0 alone.
        """
        if math.isclose(per_block[name] * blocks, counts.numbers[name]):
            return math.ceil(blocks / sms) * per_block[name]
        return max(counts.numbers[name] / sms, per_block[name])

    return {
        FMA: busiest("thread_fma") / (gpu.fp32_peak_tflops * 1e9 / 2 / sms),
        L1: busiest("load_lines") / clocks_per_ms,
        SHARED: busiest("wavefronts") / clocks_per_ms,
        DRAM: FLOAT_BYTES * shape.k * (shape.m + shape.n) / (gpu.memory_peak_gbs * 1e6),
    }


def rung_bounds(run: Run, shape: Shape) -> dict[str, Bound]:
    """Return the bounds of the rungs at a shape on the run's GPU, by name.

    They have the run's times. Rungs whose domain excludes the shape are left out.
    """
    bounds = {rung.name: bound(rung, shape, run.gpu) for rung in LADDER if shape in rung.domain}
    for timed in reversed(run.select(shape=shape)):
        is_on_this_gpu = timed.context is None or timed.context.gpu.name == run.gpu.name
        if timed.kernel in bounds and timed.us is not None and is_on_this_gpu:
            bounds[timed.kernel] = replace(bounds[timed.kernel], measured_ms=timed.us / 1e3)
    return bounds


def spread(bounds: Mapping[str, Bound]) -> tuple[float, float]:
    """Return the smallest and the largest factor of the measured time over the bound.

    Raises ValueError without a time.
    """
    factors = [rung.factor for rung in bounds.values() if rung.factor is not None]
    return min(factors), max(factors)


def table(bounds: Iterable[Bound], times: str) -> Table:
    """Return a table with a row per bound: counts, bound, time and factor.

    bounds: at least one
    times: the label of the times

    The counts are per multiply-add of a warp (there are M N K / 32).
    """
    bounds = [*bounds]
    rows = [_row(bound) for bound in bounds]
    columns = "global sectors, L1 lines and shared-memory wavefronts per multiply-add of a warp"
    return Table.of(f"{columns}: {bounds[-1].source}; times: {times}", rows)


def _row(bound: Bound) -> dict[str, str]:
    """Return a bound's row of the table."""
    per_fma = 2 * WARP / bound.shape.flops
    counts = bound.counts
    row = {
        "kernel": bound.kernel,
        "at": str(bound.shape),
        "sectors": f"{per_fma * (counts.load_sectors + counts.store_sectors):.3f}",
        "L1 lines": f"{per_fma * counts.load_lines:.3f}",
        "wavefronts": f"{per_fma * counts.wavefronts:.3f}",
        "at least": duration(1e3 * bound.ms, padded=True),
        "bound by": bound.limit,
        "measured": "–",
        "factor": "–",
    }
    if bound.measured_ms is not None:
        row["measured"] = duration(1e3 * bound.measured_ms, padded=True)
        row["factor"] = f"{bound.factor:.2f}"
    return row


@dataclass(frozen=True, repr=False)
class Prediction:
    """The bound of a kernel's time, which needs no GPU, and the bounds of recorded rungs."""

    bound: Bound | None  # None if there is none, for the reason in `why`
    rungs: Mapping[str, Bound]  # of the recording, at the recorded size nearest to the kernel's
    label: str  # of the recording
    why: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The bound, the rungs' factors, and on what a GPU may count otherwise."""
        if self.bound is None:
            return (f"no lower bound of the time: {self.why}",)
        timed = [rung for rung in self.rungs.values() if rung.factor is not None]
        smallest, largest = spread(self.rungs)
        factors = f"the {len(timed)} rungs take {smallest:.2f} to {largest:.2f} times their bounds"
        return (
            f"{self.bound} ({self.bound.label})",
            f"{factors} at {timed[0].shape} ({self.label})",
            *self.bound.notes,
        )

    @property
    def table(self) -> Table | None:
        """The kernel below the rungs, or None without a bound."""
        if self.bound is None:
            return None
        bounds = [*self.rungs.values()]
        programs = {(rung.counts.sha256, rung.shape) for rung in bounds}
        if (self.bound.counts.sha256, self.bound.shape) not in programs:
            bounds.append(self.bound)
        return table(bounds, self.label)

    def as_dict(self) -> dict[str, Any]:
        """Return the prediction for JSON."""
        bound = None
        if self.bound is not None:
            shape = self.bound.shape
            bound = {
                **asdict(self.bound),
                "shape": [shape.m, shape.n, shape.k],
                "ms": self.bound.ms,
                "limit": self.bound.limit,
                "label": self.bound.label,
            }
        return {"bound": bound, "why": self.why, "label": self.label}

    def __repr__(self) -> str:
        lines = [*self.sentences]
        if self.table is not None:
            lines += ["", self.table.text()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        text = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        if self.table is None:
            return text
        return (
            f"{text}<details><summary>counts beside the "
            f"rungs'</summary>{self.table.html()}</details>"
        )


def predicted(
    kernel: Kernel,
    shape: Shape | None = None,
    gpu: Gpu | None = None,
    *,
    measured_us: float | None = None,
    checked: Sequence[int] | None = None,
) -> Prediction:
    """Return a kernel's bound, or why there is none, and the recorded rungs' bounds.

    shape, gpu: as for bound()
    measured_us: the kernel's time at the shape, if it was measured
    checked: the largest M, N and K of a verdict on the kernel (default: any)

    Raises Interrupted only.
    """
    try:
        return _predicted(kernel, shape, gpu=gpu, measured_us=measured_us, checked=checked)
    except Interrupted:
        raise
    except BudgetExceeded:  # this isn't the kernel's mistake, since it may have passed a check
        reason = (
            f"at {shape or kernel.domain.padded(SIZE)}, {kernel.entry} takes more than {BUDGET:,} "
            "instructions per warp, the most that are counted: give a smaller --size"
        )
    except WorklogError as error:
        reason = str(error)
    except Exception as error:  # of any kind: no error may replace a verdict
        reason = f"the prediction failed: {kind_and_message(error)}"
    return Prediction(None, {}, "", reason)


def _predicted(
    kernel: Kernel,
    shape: Shape | None,
    *,
    gpu: Gpu | None,
    measured_us: float | None,
    checked: Sequence[int] | None,
) -> Prediction:
    """Return the bound and the recorded rungs' bounds. Raises what bound() raises."""
    run = recorded_run()
    counted = bound(kernel, shape, gpu)
    flops = counted.shape.flops
    nearest = min(run.shapes(), key=lambda recorded: abs(math.log(recorded.flops / flops)))
    sizes = zip(counted.shape.sizes, checked or (), strict=False)
    kernel_bound = replace(
        counted,
        measured_ms=None if measured_us is None else measured_us / 1e3,
        beyond=any(size > largest for size, largest in sizes),
    )
    return Prediction(kernel_bound, rung_bounds(run, nearest), run.label)
