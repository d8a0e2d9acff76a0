"""How many FLOP each rung makes of a byte at each level: as its threads request, as sectors move, as its blocks fetch,
and at most, if A, B and C pass once.

Threads and sectors are counted on the emulator; what blocks fetch follows from the tile; the ridges are measured.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from matplotlib.ticker import LogLocator

from worklog.analysis.memory_counts import SECTOR, LadderCounts
from worklog.analysis.memory_counts import memory_counts as shipped
from worklog.errors import NothingToDraw
from worklog.plots.figure import ACCENT, ALERT, FAINT, INK, MUTED, PAPER, WIDTH_IN, Chart, styled
from worklog.plots.page import beside, page, right_of, ticks
from worklog.plots.selection import dimensions, intensity
from worklog.runs import Run

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


def levels_of(run: Run, counted: LadderCounts | None = None) -> dict[str, Levels]:
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
def levels(run: Run, counted: LadderCounts | None = None) -> Chart:
    """One row per rung, FLOP per byte on a log scale, a mark per level, and the ridges of this GPU's measured roofs.

    counted: the counts to draw (default: those that come with the package). Raises NothingToDraw for a run without
    measured roofs or without the tile of any counted rung.
    """
    counted, roofs = counted or shipped(), run.calibration
    found, fp32 = levels_of(run, counted), 1e3 * roofs.get("fp32_tflops", 0.0)
    # FLOP per byte at which a measured memory roof meets the measured FP32 ceiling.
    bandwidths = {"L2": roofs.get("l2_gbs"), "memory": roofs.get("copy_gbs")}
    ridges = {name: fp32 / gbs for name, gbs in bandwidths.items() if fp32 and gbs}
    if not found or not ridges:
        raise NothingToDraw("the run has no measured roofs, or no rung with a tile: measure again with `worklog run`")
    subtitle = (
        f"C = A·B in FP32, {dimensions(counted.shape)}. FLOP per byte, log scale: ○ that each thread requests for "
        "itself; ◇ moved in 32-byte sectors for them; ● that blocks fetch, from the tile; | if A, B and C pass once. "
        "Left of a ridge, that roof is lower than FP32's."
    )
    alt = [f"FLOP per byte of each rung by level at {dimensions(counted.shape)}"] + [
        f"{name}: {at.threads:.2g} as threads request, {at.sectors:.2g} in sectors, {at.blocks:.3g} as blocks fetch, "
        f"{at.compulsory:.3g} if A, B and C pass once"
        for name, at in found.items()
    ]
    alt += [f"ridge of {name} {at:.1f}" for name, at in ridges.items()]
    footer = [run.full_label, f"○ ◇ {counted.label}, counted"]
    new = page("levels", _finding(found), subtitle, footer, alt, ABOVE + ROW * len(found) + BELOW)
    left = right_of(found)
    axes = new.rows(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, ROW, list(found))
    values = [value for at in found.values() for value in astuple(at)]
    axes.set_xscale("log", base=4)
    axes.set_xlim(min(values) / 2, 2 * max(values))
    ticks(axes.xaxis, LogLocator(4), "{x:.4g}")
    axes.set_xlabel("FLOP per byte, log scale")
    looks = (("-", -4), ("--", 4))
    for (name, ridge), (dashes, gap) in zip(sorted(ridges.items(), key=lambda one: one[1]), looks, strict=False):
        axes.axvline(ridge, color=INK, linewidth=0.8, linestyle=dashes, zorder=0.5)
        beside(
            axes, f"ridge of {name} {ridge:.1f}", (ridge, 0), gap, 6, va="bottom", color=MUTED, annotation_clip=False
        )
    for y, at in zip(axes.get_yticks(), found.values(), strict=True):
        axes.plot([at.sectors, at.blocks], [y, y], color=FAINT, linewidth=1.2, zorder=0.8)
        axes.plot([at.compulsory], [y], "|", color=INK, markersize=9)
        axes.plot([at.threads], [y], "o", color=MUTED, markersize=5, markerfacecolor=PAPER)
        axes.plot([at.sectors], [y], "D", color=ALERT, markersize=6.4, markerfacecolor=PAPER)
        axes.plot([at.blocks], [y], "o", color=ACCENT, markersize=4.4)
        beside(axes, f"{at.blocks:.3g}", (at.blocks, y), 7)
    return new.figure


def _finding(found: dict[str, Levels]) -> str:
    first, last = next(iter(found)), next(reversed(found))
    if first == last:
        return f"{first} makes {found[first].sectors:.2g} FLOP of each byte that moves"
    times = found[last].sectors / found[first].sectors
    return f"From {first} to {last}, {times:.0f} times as many FLOP for each byte that moves"
