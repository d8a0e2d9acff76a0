"""How many FLOP each rung makes of a byte at each level: as its threads request, as sectors move, as its blocks fetch,
and at most, if A, B and C pass once.

Threads and sectors are counted on the emulator; what blocks fetch follows from the tile; the ridges are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from worklog.analysis.traffic import SECTOR, Traffic
from worklog.analysis.traffic import traffic as shipped
from worklog.errors import NothingToDraw
from worklog.plots.figure import Chart
from worklog.plots.page import beside, page, right_of
from worklog.plots.selection import dimensions, intensity
from worklog.plots.style import ACCENT, ALERT, FAINT, INK, MUTED, PAPER, WIDTH_IN, styled
from worklog.runs.run import Run

ROW, ABOVE, BELOW, RIGHT = 0.3, 0.3, 0.42, 0.25  # inches


@dataclass(frozen=True)
class Levels:
    """FLOP per byte of one rung: of what each thread requests for itself; of the 32-byte sectors that this takes; of
    what its blocks fetch if each brings its rows of A and columns of B once; and of A, B and C passing once.
    """

    threads: float
    sectors: float
    blocks: float
    compulsory: float


def levels_of(run: Run, counted: Traffic | None = None) -> dict[str, Levels]:
    """By rung, in the ladder's order: those that are counted and whose tile is in the run."""
    counted = counted or shipped()
    shape, found = counted.shape, {}
    for name, counts in counted.rungs.items():
        blocks = intensity(run, name, shape)
        if blocks is not None:
            requested = counts.load_bytes + 4 * shape.m * shape.n
            moved = SECTOR * (counts.load_sectors + counts.store_sectors)
            compulsory = shape.flops / shape.compulsory_bytes
            found[name] = Levels(shape.flops / requested, shape.flops / moved, blocks, compulsory)
    return found


@styled()
def levels(run: Run, counted: Traffic | None = None) -> Chart:
    """One row per rung, FLOP per byte on a log scale, a mark per level, and the ridges of this GPU's measured roofs.

    counted: the counts to draw (default: those that come with the package). Raises NothingToDraw for a run without
    measured roofs or without the tile of any counted rung.
    """
    counted = counted or shipped()
    found, ridges = levels_of(run, counted), _ridges(run)
    if not found or not ridges:
        raise NothingToDraw("the run has no measured roofs, or no rung with a tile: measure again with `worklog run`")
    subtitle = (
        f"C = A·B in FP32, {dimensions(counted.shape)}. FLOP per byte, log scale: ○ that each thread requests for "
        "itself; ◇ moved in 32-byte sectors for them; ● that blocks fetch, from the tile; | if A, B and C pass once. "
        "Left of a ridge, that roof is lower than FP32's."
    )
    footer, alt = [run.full_label, f"○ ◇ {counted.label}, counted"], _alt(run, found, ridges, counted)
    new = page("levels", _finding(found), subtitle, footer, alt, ABOVE + ROW * len(found) + BELOW)
    left = right_of(list(found))
    axes = new.rows(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, ROW, list(found))
    _scale(axes, found, ridges)
    for y, at in zip(axes.get_yticks(), found.values(), strict=True):
        axes.plot([at.sectors, at.blocks], [y, y], color=FAINT, linewidth=1.2, zorder=0.8)
        axes.plot([at.compulsory], [y], "|", color=INK, markersize=9)
        axes.plot([at.threads], [y], "o", color=MUTED, markersize=5, markerfacecolor=PAPER)
        axes.plot([at.sectors], [y], "D", color=ALERT, markersize=6.4, markerfacecolor=PAPER)
        axes.plot([at.blocks], [y], "o", color=ACCENT, markersize=4.4)
        beside(axes, f"{at.blocks:.3g}", (at.blocks, y), 7)
    return new.figure


def _ridges(run: Run) -> dict[str, float]:
    """FLOP per byte at which a measured memory roof meets the measured FP32 ceiling."""
    known = run.calibration
    fp32 = known.get("fp32_tflops")
    pairs = {"L2": known.get("l2_gbs"), "memory": known.get("copy_gbs")}
    return {name: 1e3 * fp32 / gbs for name, gbs in pairs.items() if fp32 and gbs}


def _scale(axes: Axes, found: dict[str, Levels], ridges: dict[str, float]) -> None:
    values = [value for at in found.values() for value in (at.threads, at.sectors, at.blocks, at.compulsory)]
    axes.set_xscale("log", base=4)
    axes.set_xlim(min(values) / 2, 2 * max(values))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.minorticks_off()
    axes.set_xlabel("FLOP per byte, log scale")
    looks = (("-", -4), ("--", 4))
    for (name, at), (dashes, gap) in zip(sorted(ridges.items(), key=lambda ridge: ridge[1]), looks, strict=False):
        axes.axvline(at, color=INK, linewidth=0.8, linestyle=dashes, zorder=0.5)
        beside(axes, f"ridge of {name} {at:.1f}", (at, 0), gap, 6, va="bottom", color=MUTED, annotation_clip=False)


def _finding(found: dict[str, Levels]) -> str:
    first, last = next(iter(found)), next(reversed(found))
    if first == last:
        return f"{first} makes {found[first].sectors:.2g} FLOP of each byte that moves"
    times = found[last].sectors / found[first].sectors
    return f"From {first} to {last}, {times:.0f} times as many FLOP for each byte that moves"


def _alt(run: Run, found: dict[str, Levels], ridges: dict[str, float], counted: Traffic) -> str:
    parts = [
        f"{name}: {at.threads:.2g} as threads request, {at.sectors:.2g} in sectors, {at.blocks:.3g} as blocks fetch"
        for name, at in found.items()
    ]
    least = next(iter(found.values())).compulsory
    return (
        f"FLOP per byte of each rung by level at {dimensions(counted.shape)}. {'; '.join(parts)}; {least:.3g} if A, B "
        f"and C pass once. Ridges: {', '.join(f'{name} {at:.1f}' for name, at in ridges.items())}. "
        f"Sources: {run.label}; {counted.label}."
    )
