"""How many FLOP each rung makes of a byte, at each level that the byte passes: as its threads ask, as sectors move, as
its blocks fetch, and at the least that the problem allows.

Threads and sectors are counted on the emulator; what blocks fetch follows from the tile; the ridges are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from worklog.analysis.traffic import SECTOR, RungTraffic, Traffic
from worklog.analysis.traffic import traffic as shipped
from worklog.errors import NothingToDraw
from worklog.kernel.ladder import Rung
from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.selection import dimensions
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    FAINT,
    INK,
    LIE,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
    styled,
    text_width,
)
from worklog.runs.run import Run

ROW, ABOVE, BELOW, RIGHT = 0.3, 0.3, 0.42, 0.25  # inches


@dataclass(frozen=True)
class Levels:
    """FLOP per byte of one rung: of what threads ask for, each for itself; of the 32-byte sectors that this takes; of
    what its blocks fetch if each brings its rows of A and columns of B once; and of A, B and C passing once.
    """

    threads: float
    sectors: float
    blocks: float
    compulsory: float


def levels_of(run: Run, counted: Traffic | None = None) -> dict[str, Levels]:
    """By rung, in the ladder's order, those that are both counted and described in the run by their tile."""
    counted = counted or shipped()
    found = {}
    for name, rung in counted.rungs.items():
        tile = run.kernels.get(name, {}).get("tile") or {}
        if {"BM", "BN"} <= tile.keys():
            found[name] = _levels(Rung(name, "", tile, "1", ""), rung, counted)
    return found


def _levels(rung: Rung, counts: RungTraffic, counted: Traffic) -> Levels:
    shape = counted.shape
    written = 4 * shape.m * shape.n
    return Levels(
        threads=shape.flops / (counts.load_bytes + written),
        sectors=shape.flops / (SECTOR * (counts.load_sectors + counts.store_sectors)),
        blocks=shape.flops / rung.block_traffic_bytes(shape),
        compulsory=shape.flops / shape.compulsory_bytes,
    )


@styled()
def levels(run: Run, counted: Traffic | None = None) -> Chart:
    """A row a rung, FLOP per byte on a logarithmic scale, a mark a level, and the ridges of this GPU's measured roofs.

    counted: the counts to draw (default: those that come with the package). Raises NothingToDraw for a run without
    measured roofs or without the tile of any counted rung.
    """
    counted = counted or shipped()
    found, ridges = levels_of(run, counted), _ridges(run)
    if not found or not ridges:
        raise NothingToDraw("the run has no measured roofs, or no rung with a tile: measure again with `worklog run`")
    left = MARGIN_IN + max(text_width(name, BODY_PT) for name in found) + 0.12
    height = ROW * len(found)
    new = page(
        "levels",
        _finding(found),
        f"C = A·B in FP32, {dimensions(counted.shape)}. FLOP per byte, log scale: ○ that threads ask for, each for "
        "itself; ◇ moved in 32-byte sectors for them; ● that blocks fetch, from the tile; | if A, B and C pass once. "
        "Left of a ridge, that roof is lower than FP32's.",
        [run.full_label, f"○ ◇ {counted.label}, counted"],
        _alt(run, found, ridges, counted),
        ABOVE + height + BELOW,
    )
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, height)
    _frame(axes, found, ridges, height)
    for index, at in enumerate(found.values()):
        y = ROW * (index + 0.5)
        axes.plot([at.sectors, at.blocks], [y, y], color=FAINT, linewidth=1.2, zorder=0.8)
        axes.plot([at.compulsory], [y], "|", color=INK, markersize=9)
        axes.plot([at.threads], [y], "o", color=MUTED, markersize=5, markerfacecolor=PAPER)
        axes.plot([at.sectors], [y], "D", color=LIE, markersize=6.4, markerfacecolor=PAPER)
        axes.plot([at.blocks], [y], "o", color=ACCENT, markersize=4.4)
        words = f"{at.blocks:.3g}"
        axes.annotate(
            words, (at.blocks, y), (7, 0), textcoords="offset points", va="center_baseline", fontsize=SMALL_PT
        )
    axes.set_yticks([ROW * (index + 0.5) for index in range(len(found))], list(found))
    return new.figure


def _ridges(run: Run) -> dict[str, float]:
    """FLOP per byte at which a measured memory roof meets the measured FP32 ceiling."""
    known = run.calibration
    fp32 = known.get("fp32_tflops")
    pairs = {"L2": known.get("l2_gbs"), "memory": known.get("copy_gbs")}
    return {name: 1e3 * fp32 / gbs for name, gbs in pairs.items() if fp32 and gbs}


def _frame(axes: Axes, found: dict[str, Levels], ridges: dict[str, float], height: float) -> None:
    values = [value for at in found.values() for value in (at.threads, at.sectors, at.blocks, at.compulsory)]
    axes.set_xscale("log", base=4)
    axes.set_xlim(min(values) / 2, 2 * max(values))
    axes.set_ylim(height, 0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.minorticks_off()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("FLOP per byte, log scale")
    for number, (name, at) in enumerate(sorted(ridges.items(), key=lambda ridge: ridge[1])):
        axes.axvline(at, color=INK, linewidth=0.8, linestyle=("-", "--")[number % 2], zorder=0.5)
        axes.annotate(
            f"ridge of {name} {at:.1f}",
            (at, 0),
            (-4 if number == 0 else 4, 6),
            textcoords="offset points",
            ha="right" if number == 0 else "left",
            va="bottom",
            fontsize=SMALL_PT,
            color=MUTED,
            annotation_clip=False,
        )


def _finding(found: dict[str, Levels]) -> str:
    names = list(found)
    first, last = found[names[0]], found[names[-1]]
    if len(names) == 1:
        return f"{names[0]} makes {first.sectors:.2g} FLOP of each byte that moves"
    times = last.sectors / first.sectors
    return f"From {names[0]} to {names[-1]}, {times:.0f} times as many FLOP for each byte that moves"


def _alt(run: Run, found: dict[str, Levels], ridges: dict[str, float], counted: Traffic) -> str:
    parts = [
        f"{name}: {at.threads:.2g} as threads ask, {at.sectors:.2g} in sectors, {at.blocks:.3g} as blocks fetch"
        for name, at in found.items()
    ]
    least = next(iter(found.values())).compulsory
    return (
        f"FLOP per byte of each rung by level at {dimensions(counted.shape)}. {'; '.join(parts)}; {least:.3g} if A, B "
        f"and C pass once. Ridges: {', '.join(f'{name} {at:.1f}' for name, at in ridges.items())}. "
        f"Sources: {run.label}; {counted.label}."
    )
