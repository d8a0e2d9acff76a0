"""The memories of a GPU as a ladder: size, bandwidth and latency of each."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.kernel.memories import SM, Memories, MemoryLevel
from worklog.kernel.memories import memories as known
from worklog.plots import style
from worklog.plots.diagrams.template import binary
from worklog.plots.marks import annotate
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    PALE,
    SMALL_PT,
    WIDTH_IN,
)
from worklog.runs import Run

# inches
PITCH = 0.46
HIGH = 0.34  # of a box
THICKNESS = 0.13  # of a bar
HEAD = 0.24
LADDER = 2.3  # the width of the widest box
STEP = 0.16  # by which a box is narrower than the one below
GAP = 0.2
LABEL_ROOM = 1.25  # right of the longest bar
NOT_MEASURED = "not recorded"


@style.chart
def memories(run: Run) -> Chart:
    """Draw the memories of a run's GPU: a box with the size, bars of rate and latency.

    The bandwidth is that of all multiprocessors together. A memory without a recorded latency has
    no bar. Raises WorklogError for an architecture without known limits.
    """
    gpu_memories = known(run)
    texts = Texts(
        "memories",
        finding=_finding(gpu_memories),
        subtitle=_subtitle(run, gpu_memories),
        footer=gpu_memories.labels,
        alt=["The memories of a GPU, nearest to the multiply-adds first"]
        + [_level_text(level, run) for level in gpu_memories.levels],
    )
    height = PITCH * len(gpu_memories.levels)
    chart = page(texts, HEAD + height)
    bottom = chart.body_bottom
    width = (WIDTH_IN - 2 * MARGIN_IN - LADDER - 2 * GAP) / 2
    _draw_boxes(chart.axes_at(MARGIN_IN, bottom, LADDER, height), gpu_memories.levels, run)
    left = MARGIN_IN + LADDER + GAP
    _draw_bars(
        chart.axes_at(left, bottom, width, height),
        [_rate(level) or 0.0 for level in gpu_memories.levels],
        [_rate_text(level) for level in gpu_memories.levels],
        [level.measured_gbs is not None for level in gpu_memories.levels],
    )
    chart.write((left, chart.body_top), ["bandwidth"], BODY_PT, color=INK, weight="bold")
    left += width + GAP
    _draw_bars(
        chart.axes_at(left, bottom, width, height),
        [level.latency_cycles or 0.0 for level in gpu_memories.levels],
        [_latency_text(level, run) for level in gpu_memories.levels],
        [True] * len(gpu_memories.levels),
    )
    chart.write((left, chart.body_top), ["latency"], BODY_PT, color=INK, weight="bold")
    return chart


def _finding(gpu_memories: Memories) -> str:
    """Return how much more the nearest memory delivers than the farthest, or how much sooner."""
    first, *_, last = gpu_memories.levels
    rates = [_rate(level) for level in (first, last)]
    nearest_gbs, farthest_gbs = (rate or 0.0 for rate in rates)
    finding = f"Registers deliver {nearest_gbs / farthest_gbs:.0f} times the bytes of {last.name}"
    if first.latency_cycles and last.latency_cycles:
        sooner = last.latency_cycles / first.latency_cycles
        finding += f", {sooner:.0f} times as soon"
    return finding


def _subtitle(run: Run, gpu_memories: Memories) -> str:
    """Return the explanation of the columns."""
    text = (
        f"{run.gpu.name}: {run.gpu.multiprocessors} multiprocessors (SMs) at "
        f"{run.gpu.sm_clock_mhz:.0f} MHz. Bandwidth is of all SMs together. Blue: measured; grey: "
        "the most that widths and clocks allow. A cycle is one of the SM's clock."
    )
    if any(level.latency_cycles is None for level in gpu_memories.levels):
        text += " Latencies without a bar aren't recorded yet."
    return text


def _rate(level: MemoryLevel) -> float | None:
    """Return the measured bandwidth in GB/s, else the peak."""
    return level.measured_gbs if level.measured_gbs is not None else level.peak_gbs


def _rate_text(level: MemoryLevel) -> str:
    """Return the bandwidth in words, with the peak if both are known."""
    rate_gbs = _rate(level)
    if rate_gbs is None:
        return NOT_MEASURED
    if level.measured_gbs is None:
        return f"{_terabytes(rate_gbs)}, at most"
    if level.peak_gbs is None:
        return _terabytes(rate_gbs)
    return f"{_terabytes(rate_gbs)} of {level.peak_gbs / 1e3:.3g}"


def _terabytes(gbs: float) -> str:
    """Return a bandwidth in TB/s, three digits."""
    return f"{gbs / 1e3:.3g} TB/s"


def _latency_text(level: MemoryLevel, run: Run) -> str:
    """Return the latency in cycles and in nanoseconds."""
    cycles = level.latency_cycles
    if cycles is None:
        return NOT_MEASURED
    return f"{cycles:.0f} cycles, {1e3 * cycles / run.gpu.sm_clock_mhz:.0f} ns"


def _size_text(level: MemoryLevel, run: Run) -> str:
    """Return the size, for each multiprocessor or for the GPU."""
    if level.size_bytes is None:
        return f"{level.owner}, beside shared memory"
    text = f"{binary(level.size_bytes)} {level.owner}"
    if level.owner == SM:
        text += f", {binary(level.size_bytes * run.gpu.multiprocessors)} in all"
    return text


def _level_text(level: MemoryLevel, run: Run) -> str:
    """Return a memory in words, for the alt text."""
    return (
        f"{level.name}: {_size_text(level, run)}; bandwidth {_rate_text(level)}; latency "
        f"{_latency_text(level, run)}"
    )


def _draw_boxes(axes: Axes, levels: Sequence[MemoryLevel], run: Run) -> None:
    """Draw a box for each memory, the farthest one the widest."""
    axes.set(xlim=(0, LADDER), ylim=(PITCH * len(levels), 0))
    axes.set_axis_off()
    for number, level in enumerate(levels):
        narrower = STEP * (len(levels) - 1 - number) / 2
        top = PITCH * number
        box = Rectangle(
            (narrower, top),
            LADDER - 2 * narrower,
            HIGH,
            facecolor=PALE,
            edgecolor=MUTED,
            linewidth=0.8,
            clip_on=False,
        )
        axes.add_patch(box)
        middle = LADDER / 2
        annotate(axes, level.name, (middle, top + 0.11), gap=0, fontsize=BODY_PT, weight="bold")
        annotate(axes, _size_text(level, run), (middle, top + 0.245), gap=0, color=MUTED)


def _draw_bars(
    axes: Axes, lengths: Sequence[float], texts: Sequence[str], is_measured: Sequence[bool]
) -> None:
    """Draw a bar next to each box, with its text below it.

    is_measured: for each bar, whether it is blue
    """
    longest = max(lengths) or 1.0
    axes.set(xlim=(0, longest), ylim=(PITCH * len(lengths), 0))
    axes.set_axis_off()
    for number, (length, text) in enumerate(zip(lengths, texts, strict=True)):
        top = PITCH * number
        colour = ACCENT if is_measured[number] else BASELINE
        axes.barh(top + 0.1, length, THICKNESS, color=colour)
        annotate(
            axes,
            text,
            (0, top + 0.25),
            gap=0,
            ha="left",
            color=INK if length else MUTED,
            fontsize=SMALL_PT,
        )
