"""Memory traffic by rung: sectors and wavefronts, as counted on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.kernel.ladder import LadderCounts, MemoryCounts, moved_from_l2
from worklog.kernel.ladder import memory_counts as shipped
from worklog.plots import style
from worklog.plots.marks import RowBar, Rows, annotate, scale
from worklog.plots.page import Chart, Texts, page
from worklog.plots.selection import dimensions
from worklog.plots.style import ACCENT, ALERT, BODY_PT, FAINT, PAPER, WIDTH_IN

# inches
PITCH = 0.3
THICKNESS = 0.2
ABOVE = 0.3
BELOW = 0.4
GAP = 0.25
RIGHT = 0.15
LABEL_ROOM = 1.0  # right of the longest bar
FLOAT4 = 16
Counts = Mapping[str, MemoryCounts]  # by rung


@style.chart
def traffic(counted: LadderCounts | None = None) -> Chart:
    """Draw each rung's sectors in L1 and shared-memory wavefronts per multiply-add.

    A multiply-add is an instruction of a warp. Sectors, which loads and stores ask of L1, are dots
    on a log scale, with the sectors per load. The subtitle says how few of them L2 moves, where
    that was counted at this shape. Wavefronts are bars.

    Raises WorklogError if the counts that come with the package are missing.

    counted: the counts to draw (default: those that come with the package)
    """
    counted = counted or shipped()
    rungs = counted.rungs
    rows = Rows(list(rungs), PITCH, THICKNESS, text_gap_pt=6)
    texts = Texts(
        "traffic",
        finding=_finding(rungs),
        subtitle=_subtitle(counted),
        footer=[text for text in (counted.label, _moved_label(counted)) if text],
        alt=_alt(counted),
    )
    chart = page(texts, ABOVE + rows.height + BELOW)
    bottom = chart.body_bottom + BELOW
    width = (WIDTH_IN - rows.left - GAP - RIGHT) / 2
    dots = chart.axes_at(rows.left, bottom, width, rows.height)
    bars = chart.axes_at(rows.left + width + GAP, bottom, width, rows.height)
    data_share = 1 - LABEL_ROOM / width  # of an axis; the rest is kept for texts
    _draw_sectors(dots, rows, rungs, data_share)
    _draw_wavefronts(bars, rows, rungs, data_share)
    return chart


def _finding(rungs: Counts) -> str:
    """Return how many fewer sectors the last rung asks for than the first."""
    first, *_, last = (*rungs, *rungs)
    reduction = rungs[first].sectors_per_fma / rungs[last].sectors_per_fma
    return f"From {first} to {last}, the same work asks L1 for {reduction:.0f} times fewer sectors"


def _subtitle(counted: LadderCounts) -> str:
    """Return the explanation of sectors and hatches, and what L2 moved."""
    return (
        f"C = A·B in FP32, {dimensions(counted.shape)}. A multiply-add is one instruction of a "
        "warp. A sector has 32 bytes: 4 hold 32 neighbouring floats, 16 hold 32 float4."
        f"{_moved_text(counted)} Hatched: passes that bank conflicts add."
    )


def _moved_text(counted: LadderCounts) -> str:
    """Return what went between L2 and L1 for the first and the last rung, or "" if not counted."""
    moved, _ = moved_from_l2(counted.shape)
    first, *_, last = (*counted.rungs, *counted.rungs)
    if first not in moved or last not in moved:
        return ""
    fewer = moved[first] / moved[last]
    return (
        f" What L1 doesn't have comes from L2: {moved[first] / 1e9:.1f} GB for {first}, "
        f"{moved[last] / 1e9:.1f} GB for {last}, {fewer:.1f} times less."
    )


def _moved_label(counted: LadderCounts) -> str:
    """Return the label of the bytes that the subtitle gives, or ""."""
    return moved_from_l2(counted.shape)[1] if _moved_text(counted) else ""


def _alt(counted: LadderCounts) -> list[str]:
    """Return the alt text: each rung's sectors and wavefronts, and what L2 moved."""
    kind = "Memory traffic by rung: sectors asked of L1 per warp multiply-add and per load"
    alt = [f"{kind}; shared wavefronts"]
    alt += [f"{name} {_dot_text(rung)}; {_bar_text(rung)}" for name, rung in counted.rungs.items()]
    moved = _moved_text(counted).strip().rstrip(".")
    return [*alt, moved] if moved else alt


def _dot_text(rung: MemoryCounts) -> str:
    """Return a rung's sectors per multiply-add and per load."""
    text = f"{rung.sectors_per_fma:.2g} · {rung.sectors_per_request:.1f} per load"
    return f"{text} (float4)" if rung.load_width == FLOAT4 else text


def _bar_text(rung: MemoryCounts) -> str:
    """Return a rung's wavefronts per multiply-add, and the share that bank conflicts add."""
    if not rung.wavefronts:
        return "no shared memory"
    text = f"{rung.wavefronts_per_fma:.2f}"
    if rung.conflict_share:
        text += f" · {100 * rung.conflict_share:.0f} % conflicts"
    return text


def _draw_sectors(axes: Axes, rows: Rows, rungs: Counts, data_share: float) -> None:
    """Draw the sectors as dots on a log axis.

    data_share: of the axis; the rest is kept for texts
    """
    _draw_heading(axes, "global memory: asked of L1")
    lowest = _sector_axis(axes, rungs, data_share)
    rows.draw_names(axes)
    for row_y, rung in zip(rows.ys, rungs.values(), strict=True):
        _draw_dot(axes, rung, row_y, lowest)
        annotate(axes, _dot_text(rung), (rung.sectors_per_fma, row_y), gap=6)


def _draw_wavefronts(axes: Axes, rows: Rows, rungs: Counts, data_share: float) -> None:
    """Draw the wavefronts as bars, hatched at their ends where bank conflicts add passes.

    The hatching shows in grey also.

    data_share: of the axis; the rest is kept for texts
    """
    _draw_heading(axes, "shared memory")
    _wavefront_axis(axes, rungs, data_share)
    rows.draw_names(axes, hidden=True)
    for row_y, rung in zip(rows.ys, rungs.values(), strict=True):
        passes = rung.wavefronts_per_fma
        rows.draw_bar(axes, row_y, RowBar(passes, _bar_text(rung)))
        added = passes * rung.conflict_share
        axes.barh(
            row_y,
            added,
            THICKNESS,
            passes - added,
            color=ALERT,
            edgecolor=PAPER,
            hatch="////",
            linewidth=0,
        )


def _draw_heading(axes: Axes, text: str) -> None:
    """Write a heading above axes."""
    annotate(
        axes,
        text,
        (0, 1),
        gap=1,
        lift=4,
        xycoords="axes fraction",
        va="bottom",
        fontsize=BODY_PT,
        weight="bold",
    )


def _sector_axis(axes: Axes, rungs: Counts, data_share: float) -> float:
    """Prepare the log axis of sectors; return its lower end."""
    sectors = [rung.sectors_per_fma for rung in rungs.values()]
    lowest = min(sectors) / 1.5
    highest = max(sectors) * 1.5
    limits = lowest, lowest * (highest / lowest) ** (1 / data_share)
    decades = [10.0**power for power in range(-3, 6)]
    ticks = [tick for tick in decades if lowest <= tick <= highest]
    scale(axes.xaxis, ticks, "sectors for each multiply-add, log scale", limits, log=10)
    return lowest


def _wavefront_axis(axes: Axes, rungs: Counts, data_share: float) -> None:
    """Prepare the axis of wavefronts, which starts at 0."""
    highest = max(rung.wavefronts_per_fma for rung in rungs.values()) or 1.0
    ticks = [tick for tick in MaxNLocator(4).tick_values(0, highest) if tick <= 1.1 * highest]
    label = "passes (wavefronts) for each multiply-add"
    scale(axes.xaxis, ticks, label, (0, highest / data_share))


def _draw_dot(axes: Axes, rung: MemoryCounts, row_y: float, lowest: float) -> None:
    """Draw a dot and a line to it from the lower end: a bar has no length on a log scale."""
    axes.plot(
        [lowest, rung.sectors_per_fma], [row_y, row_y], color=FAINT, linewidth=1.0, zorder=0.5
    )
    axes.plot([rung.sectors_per_fma], [row_y], "o", color=ACCENT, markersize=5)
