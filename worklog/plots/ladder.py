"""The ladder: how fast each rung is, next to cuBLAS, the measured ceiling, and what the article saw on its own GPU."""

from __future__ import annotations

from matplotlib.axes import Axes

from worklog.gemm import Shape, tflops
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
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
    line_height,
    shorten,
    styled,
    text_width,
    wrap,
)
from worklog.runs import Measurement, Run
from worklog.tables import label_line

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
ROW, BAR, BAR_LANE, MARK_LANE = 0.49, 0.25, 0.155, 0.36
HEAD, ABOVE, BELOW, RIGHT = 0.38, 0.4, 0.4, 0.2
NAME_ROOM = 1.4


@styled()
def ladder(run: Run, size: Size | None = None) -> Chart:
    """Horizontal bars in rung order at one size (default 4096, else the largest measured), in TFLOP/s and % of cuBLAS.

    A refused or skipped rung has a row that says why. Raises NothingToDraw where nothing was measured at the size,
    BadShape.
    """
    shape = shape_to_draw(run, size)
    kernels = rows(run, shape)
    names = [shorten(m.kernel, BODY_PT, NAME_ROOM) for m in kernels]
    left = MARGIN_IN + max(text_width(name, BODY_PT) for name in names) + 0.12
    height = HEAD + ROW * len(kernels)
    marks = any(m.kernel in ARTICLE_PERCENT for m in kernels)
    new = page(
        "ladder",
        _finding(kernels),
        _subtitle(shape, marks),
        [label_line(run)] + [ARTICLE_SOURCE] * marks + _star(kernels),
        _alt(run, shape, kernels),
        ABOVE + height + BELOW,
    )
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, height)
    ceiling = run.calibration.get("fp32_tflops")
    reference = cublas_tflops(kernels)
    most = max([reference, ceiling or 0.0] + [_interval(m)[1] for m in kernels if measured(m)])
    _scales(axes, 1.06 * most, reference, height, marks)
    axes.set_yticks([_lane(index, BAR_LANE) for index in range(len(kernels))], names)
    _line(axes, reference, f"cuBLAS {reference:.1f}", HEAD - 0.1)
    if ceiling:
        _line(axes, ceiling, f"measured FP32 ceiling {ceiling:.1f}", HEAD - 0.1 - line_height(SMALL_PT) - 0.02)
    inches_per_unit = (WIDTH_IN - left - RIGHT) / (1.06 * most)
    for index, m in enumerate(kernels):
        if measured(m):
            _bar(axes, m, _lane(index, BAR_LANE), inches_per_unit)
        else:
            _reason(axes, m, _lane(index, BAR_LANE), inches_per_unit)
        if m.kernel in ARTICLE_PERCENT:
            _mark(axes, ARTICLE_PERCENT[m.kernel], reference, _lane(index, MARK_LANE), inches_per_unit)
    return new.figure


def _lane(index: int, within: float) -> float:
    return HEAD + ROW * index + within


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


def _line(axes: Axes, x: float, words: str, y: float) -> None:
    """A vertical reference line; its words stand left of it, each in a lane of their own above the bars."""
    axes.plot([x, x], [y - 0.06, axes.get_ylim()[0]], color=MUTED, linewidth=0.9, zorder=0.5)
    axes.annotate(
        words, (x, y), (-4, 0), textcoords="offset points", ha="right", va="center", fontsize=SMALL_PT, color=MUTED
    )


def _bar(axes: Axes, m: Measurement, y: float, inches_per_unit: float) -> None:
    rate, (low, high) = m.tflops or 0.0, _interval(m)
    ours = m.kernel != CUBLAS
    axes.barh(y, rate, BAR, color=ACCENT if ours else BASELINE)
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
        color="white" if inside and ours else INK,
    )


def _reason(axes: Axes, m: Measurement, y: float, inches_per_unit: float) -> None:
    room = axes.get_xlim()[1] * inches_per_unit - 0.2
    words = f"{m.status}: {(m.reason or 'no reason given').removeprefix(m.status).strip(' :')}"
    axes.annotate(
        "\n".join(wrap(words, SMALL_PT, room, most=2)),
        (0, y),
        (5, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_PT,
        color=MUTED,
        style="italic",
        bbox={"facecolor": "white", "pad": 1.0},
    )


def _mark(axes: Axes, percent: float, reference: float, y: float, inches_per_unit: float) -> None:
    """The article's share as a hollow mark with its number, under our bar."""
    x = percent / 100 * reference
    to_the_left = x * inches_per_unit > 1
    axes.plot([x], [y], "o", markersize=4.2, markerfacecolor="white", markeredgecolor=MUTED, markeredgewidth=0.9)
    axes.annotate(
        f"{percent} %",
        (x, y),
        (-5 if to_the_left else 5, 0),
        textcoords="offset points",
        ha="right" if to_the_left else "left",
        va="center_baseline",
        fontsize=SMALL_PT,
        color=MUTED,
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


def _finding(kernels: list[Measurement]) -> str:
    ours = [m for m in kernels if measured(m) and m.kernel != CUBLAS]
    if not ours:
        return "No rung was measured at this size; cuBLAS was"
    best = max(ours, key=lambda m: m.ratio or 0.0)
    finding = f"{best.kernel} reaches {100 * (best.ratio or 0.0):.1f} % of cuBLAS"
    times = (best.tflops or 0.0) / (ours[0].tflops or 1.0)
    return finding if best is ours[0] else f"{finding}, {times:.{0 if times >= 10 else 1}f} times {ours[0].kernel}"


def _subtitle(shape: Shape, marks: bool) -> str:
    words = (
        f"C = A·B in FP32, {dimensions(shape)}. Bars: median TFLOP/s of each rung with its 95 % interval, "
        "and its share of cuBLAS measured in the same loop."
    )
    elsewhere = "" if shape == ARTICLE_SHAPE else " (at 4096)"
    return words + (f" Circles: the shares that the article states for another GPU{elsewhere}." if marks else "")


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
