"""The ladder: how fast each rung is, next to cuBLAS, the measured ceiling, and what the article saw on its own GPU."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.selection import (
    ARTICLE_SHAPE,
    CUBLAS,
    Size,
    cublas_tflops,
    dimensions,
    measured,
    rows,
    shape_to_draw,
)
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BELITTLES,
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
    line_height,
    shorten,
    styled,
    text_width,
    wrap,
)
from worklog.problem.gemm import Shape, tflops
from worklog.runs.run import Measurement, Run

# Vizuara's article, which took them from siboehm's SGEMM_CUDA README: percent of cuBLAS on an RTX A6000 at 4096.
ARTICLE_PERCENT = {
    "naive": 1.3,
    "coalesced": 8.5,
    "shared": 12.8,
    "tiles_1d": 36.5,
    "tiles_2d": 68.7,
    "vectorized": 78.4,
    "autotuned": 84.8,
    "warptiled": 93.7,
}
ARTICLE_SOURCE = "○ article: % of cuBLAS on an RTX A6000 at 4096, from siboehm's SGEMM_CUDA README"

# Inches. A row has a lane for the bar with its label, and under it one for the article's mark: they cannot meet.
ROW, BARE_ROW, BAR, BAR_LANE, MARK_LANE = 0.49, 0.36, 0.25, 0.155, 0.36
HEAD, ABOVE, BELOW, RIGHT = 0.38, 0.4, 0.4, 0.2
NAME_ROOM = 1.4
YOURS = " · yours"
BEHIND: dict[str, Any] = {"facecolor": PAPER, "pad": 1.0}  # words stand in front of the reference lines
FAR_CEILING = 2.5  # a ceiling this many times above everything else would squeeze the bars


@styled()
def ladder(run: Run, size: Size | None = None, *, rung: str | None = None) -> Chart:
    """Horizontal bars in rung order at one size (default 4096, else the largest measured), in TFLOP/s and % of cuBLAS.

    A refused or skipped rung has a row that says why. The user's kernels stand below the rungs, which step back in a
    lighter colour. rung: the one that the title is about, and that the others step back behind. Raises NothingToDraw
    where nothing was measured at the size, BadShape.
    """
    shape = shape_to_draw(run, size)
    kernels = rows(run, shape)
    brought = {m.kernel for m in kernels if run.kernels.get(m.kernel, {}).get("brought")}
    accented = brought if rung is None else {rung}
    marks = ARTICLE_PERCENT if shape == ARTICLE_SHAPE and any(m.kernel in ARTICLE_PERCENT for m in kernels) else {}
    names = [shorten(m.kernel + YOURS * (m.kernel in brought), BODY_PT, NAME_ROOM) for m in kernels]
    left = MARGIN_IN + max(text_width(name, BODY_PT) for name in names) + 0.12
    pitch, wide = ROW if marks else BARE_ROW, WIDTH_IN - left - RIGHT
    height = HEAD + pitch * len(kernels)
    new = page(
        "ladder",
        _finding(kernels, accented),
        _subtitle(shape, bool(marks)),
        [run.full_label] + [ARTICLE_SOURCE] * bool(marks) + _star(kernels),
        _alt(run, shape, kernels),
        ABOVE + height + BELOW,
    )
    axes = new.axes(left, new.body_bottom + BELOW, wide, height)
    reference, ceiling = cublas_tflops(kernels), run.calibration.get("fp32_tflops")
    most = max([reference] + [_interval(m)[1] for m in kernels if measured(m)])
    far = ceiling is not None and ceiling > FAR_CEILING * most
    most = 1.06 * (most if far else max(most, ceiling or 0.0))
    _scales(axes, most, reference, height, bool(marks))
    axes.set_yticks([HEAD + pitch * index + BAR_LANE for index in range(len(kernels))], names)
    _line(axes, reference, f"cuBLAS {reference:.{_decimals(reference)}f}", HEAD - 0.1)
    if ceiling:
        words = f"measured FP32 ceiling {ceiling:.1f}" + (", off the scale →" if far else "")
        _line(axes, most if far else ceiling, words, HEAD - 0.12 - line_height(SMALL_PT), drawn=not far)
    for index, m in enumerate(kernels):
        top = HEAD + pitch * index
        if measured(m):
            _bar(axes, m, top + BAR_LANE, wide / most, _colour(m.kernel, accented))
        else:
            _reason(axes, m, top + BAR_LANE, wide / most)
        if m.kernel in marks:
            _mark(axes, marks[m.kernel], reference, top + MARK_LANE, wide / most)
    return new.figure


def _scales(axes: Axes, most: float, reference: float, height: float, marks: bool) -> None:
    """TFLOP/s below and, since the axis ends in proportion, % of cuBLAS above. y is inches from the top."""
    axes.set_xlim(0, most)
    axes.set_ylim(height, 0)
    axes.set_xlabel("TFLOP/s")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    share = axes.twiny()
    share.set_xlim(0, 100 * most / reference)
    share.spines["top"].set_visible(True)
    share.spines[["left", "bottom"]].set_visible(False)
    step = next(s for s in (20, 25, 50, 100, 200, 500, 1000, 10**9) if 100 * most / reference / s <= 8)
    share.set_xticks([float(p) for p in range(0, int(100 * most / reference) + 1, step)])
    share.set_xlabel("% of cuBLAS" + (", bars on this GPU · ○ article, RTX A6000" if marks else ""))


def _line(axes: Axes, x: float, words: str, y: float, *, drawn: bool = True) -> None:
    """A vertical reference line; its words stand beside it, each in a lane of their own above the bars."""
    if drawn:
        axes.plot([x, x], [y - 0.06, axes.get_ylim()[0]], color=MUTED, linewidth=0.9, zorder=0.5)
    at_the_left = x < axes.get_xlim()[1] / 3
    axes.annotate(
        words,
        (x, y),
        (4 if at_the_left else -4, 0),
        textcoords="offset points",
        ha="left" if at_the_left else "right",
        va="center",
        fontsize=SMALL_PT,
        color=MUTED,
    )


def _colour(kernel: str, brought: set[str]) -> str:
    """The accent is for what a user brought, or where nobody did, for the rungs."""
    if kernel == CUBLAS:
        return BASELINE
    return ACCENT if not brought or kernel in brought else BELITTLES


def _bar(axes: Axes, m: Measurement, y: float, inches_per_unit: float, colour: str) -> None:
    rate, (low, high) = m.tflops or 0.0, _interval(m)
    axes.barh(y, rate, BAR, color=colour)
    whiskers = [[max(rate - low, 0.0)], [max(high - rate, 0.0)]]
    axes.errorbar(rate, y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=2.5, capthick=1.0)
    words = f"{rate:.{_decimals(rate)}f} TFLOP/s · {100 * (m.ratio or 0.0):.1f} %" + ("" if m.converged else " *")
    inside = min(rate, low) * inches_per_unit > text_width(words, BODY_PT) + 0.2
    axes.annotate(
        words,
        (min(rate, low) if inside else max(rate, high), y),
        (-5 if inside else 5, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center_baseline",
        color=PAPER if inside and colour == ACCENT else INK,
        bbox=None if inside else BEHIND,
    )


def _reason(axes: Axes, m: Measurement, y: float, inches_per_unit: float) -> None:
    room = axes.get_xlim()[1] * inches_per_unit - 0.2
    reason = m.reason or "no reason given"
    words = reason if reason.startswith(m.status) else f"{m.status}: {reason}"
    axes.annotate(
        "\n".join(wrap(words, SMALL_PT, room, most=2)),
        (0, y),
        (5, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_PT,
        color=MUTED,
        style="italic",
        bbox=BEHIND,
    )


def _mark(axes: Axes, percent: float, reference: float, y: float, inches_per_unit: float) -> None:
    """The article's share as a hollow mark with its number, under our bar."""
    x = percent / 100 * reference
    to_the_left = x * inches_per_unit > 1
    axes.plot([x], [y], "o", markersize=4.2, markerfacecolor=PAPER, markeredgecolor=MUTED, markeredgewidth=0.9)
    axes.annotate(
        f"{percent} %",
        (x, y),
        (-5 if to_the_left else 5, 0),
        textcoords="offset points",
        ha="right" if to_the_left else "left",
        va="center_baseline",
        fontsize=SMALL_PT,
        color=MUTED,
        bbox=BEHIND,
    )


def _interval(m: Measurement) -> tuple[float, float]:
    """The 95 % interval in TFLOP/s: the longer time is the lower rate."""
    rate = m.tflops or 0.0
    if not m.us_low or not m.us_high:
        return rate, rate
    return tflops(m.problem, m.us_high), tflops(m.problem, m.us_low)


def _decimals(rate: float) -> int:
    return 1 if rate >= 10 else 2


def _star(kernels: list[Measurement]) -> list[str]:
    return ["* the interval is wider than asked for"] * any(measured(m) and not m.converged for m in kernels)


def _finding(kernels: list[Measurement], brought: set[str]) -> str:
    mine = [m for m in kernels if measured(m) and m.kernel in brought]
    if mine:
        best = max(mine, key=lambda m: m.ratio or 0.0)
        return f"{best.kernel} reaches {100 * (best.ratio or 0.0):.1f} % of cuBLAS{_place(best, kernels, brought)}"
    ours = [m for m in kernels if measured(m) and m.kernel != CUBLAS]
    if not ours:
        return "No rung was measured at this size; cuBLAS was"
    best = max(ours, key=lambda m: m.ratio or 0.0)
    finding = f"{best.kernel} reaches {100 * (best.ratio or 0.0):.1f} % of cuBLAS"
    times = (best.tflops or 0.0) / (ours[0].tflops or 1.0)
    return finding if best is ours[0] else f"{finding}, {times:.{0 if times >= 10 else 1}f} times {ours[0].kernel}"


def _place(mine: Measurement, kernels: list[Measurement], brought: set[str]) -> str:
    """Where a brought kernel stands on the ladder, in words."""
    rungs = [m for m in kernels if measured(m) and m.kernel not in brought and m.kernel != CUBLAS]
    slower = [m for m in rungs if (m.tflops or 0.0) < (mine.tflops or 0.0)]
    if not rungs:
        return ""
    if not slower:
        return f", less than {min(rungs, key=lambda m: m.tflops or 0.0).kernel}"
    return f", more than {max(slower, key=lambda m: m.tflops or 0.0).kernel}"


def _subtitle(shape: Shape, marks: bool) -> str:
    words = (
        f"C = A·B in FP32, {dimensions(shape)}. Bars: median TFLOP/s of each rung with its 95 % interval, "
        "and its share of cuBLAS measured in the same loop."
    )
    return words + (" Circles: the shares that the article states for another GPU." if marks else "")


def _alt(run: Run, shape: Shape, kernels: list[Measurement]) -> str:
    parts = [
        f"{m.kernel} {m.tflops:.2f} TFLOP/s, {100 * (m.ratio or 0.0):.1f} % of cuBLAS"
        if measured(m)
        else f"{m.kernel} {m.status}: {m.reason}"
        for m in kernels
    ]
    ceiling = run.calibration.get("fp32_tflops")
    roof = f" Measured FP32 ceiling: {ceiling:.1f} TFLOP/s." if ceiling else ""
    what = f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}"
    return f"{what}. {'; '.join(parts)}.{roof} Source: {run.label}."
