"""The ladder: the rate of each rung beside cuBLAS, the measured ceiling, and the article's percentages on its GPU."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.plots import figure
from worklog.plots.figure import ACCENT, BASELINE, BODY_PT, DEFLATES, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import beside, page, right_of
from worklog.plots.selection import (
    ARTICLE_SHAPE,
    BEHIND,
    CUBLAS,
    Size,
    cublas_tflops,
    dimensions,
    interval,
    measured,
    no_time,
    rate,
    rate_bar,
    reference_line,
    rows,
    shape_to_draw,
)
from worklog.runs import Measurement, Run

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
WIDE_INTERVAL = "* the interval is wider than requested"

# Inches. A row has a lane for the bar with its label, and under it one for the article's mark: they cannot meet.
ROW, BARE_ROW, BAR, BAR_LANE, MARK_LANE = 0.49, 0.36, 0.25, 0.155, 0.36
HEAD, ABOVE, BELOW, RIGHT, NAME_ROOM = 0.38, 0.4, 0.4, 0.2, 1.4
FAR_CEILING = 2.5  # a ceiling this many times above everything else would squeeze the bars


@figure.styled()
def ladder(run: Run, size: Size | None = None, *, rung: str | None = None) -> Chart:
    """Horizontal bars in rung order at one size (default 4096, else the largest measured), in TFLOP/s and % of cuBLAS.

    A failed or skipped rung has a row with the reason. A user's kernels stand below the rungs, which are then drawn in
    a lighter colour. rung: the one that the title is about, in the accent instead of the user's kernels. Raises
    NothingToDraw where nothing was measured at the size, BadShape.
    """
    shape = shape_to_draw(run, size)
    kernels = rows(run, shape)
    mine = {m.kernel for m in kernels if run.kernels.get(m.kernel, {}).get("user")}
    accented = mine if rung is None else {rung}
    marks = ARTICLE_PERCENT if shape == ARTICLE_SHAPE and any(m.kernel in ARTICLE_PERCENT for m in kernels) else {}
    footer = [run.full_label] + [ARTICLE_SOURCE] * bool(marks)
    footer += [WIDE_INTERVAL] * any(measured(m) and not m.converged for m in kernels)
    names = [figure.shorten(m.kernel + " · yours" * (m.kernel in mine), BODY_PT, NAME_ROOM) for m in kernels]
    left, pitch = right_of(names), ROW if marks else BARE_ROW
    height = HEAD + pitch * len(kernels)
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}"] + [
        f"{m.kernel} {rate(m.tflops)} TFLOP/s, {_share(m)} of cuBLAS" if measured(m) else f"{m.kernel}: {no_time(m)}"
        for m in kernels
    ]
    ceiling = run.calibration.get("fp32_tflops")
    alt += [f"measured FP32 ceiling: {rate(ceiling)} TFLOP/s"] if ceiling else []
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. Bars: median TFLOP/s of each rung with its 95 % interval, and its "
        "share of cuBLAS, timed in the same loop."
    )
    subtitle += " Circles: the article's shares, on another GPU." * bool(marks)
    new = page("ladder", _finding(kernels, accented), subtitle, footer, alt, ABOVE + height + BELOW)
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, height)
    places = [HEAD + pitch * index + BAR_LANE for index in range(len(kernels))]
    axes.set_ylim(height, 0)
    axes.set_yticks(places, names)
    _references(axes, kernels, ceiling, bool(marks))
    cublas = cublas_tflops(kernels)
    before = cublas / axes.get_xlim()[1] * (WIDTH_IN - left - RIGHT) - 0.2  # inches left of the line of cuBLAS
    for y, m in zip(places, kernels, strict=True):
        if measured(m):
            words = f"{rate(m.tflops)} TFLOP/s · {_share(m)}" + ("" if m.converged else " *")
            colour = ACCENT if m.kernel in (accented or {m.kernel}) else DEFLATES
            rate_bar(axes, m, y, BAR, words, BODY_PT, BASELINE if m.kernel == CUBLAS else colour, cublas)
        else:
            lines = figure.wrap(no_time(m), SMALL_PT, before, most=2)
            beside(axes, "\n".join(lines), (0, y), va="center", color=MUTED, style="italic", bbox=BEHIND)
        if m.kernel in marks:
            _mark(axes, marks[m.kernel], cublas, y + MARK_LANE - BAR_LANE)
    return new.figure


def _references(axes: Axes, kernels: list[Measurement], ceiling: float | None, marks: bool) -> None:
    """The lines of cuBLAS and of the ceiling, and the scales: TFLOP/s below and, in proportion, % of cuBLAS above."""
    cublas = cublas_tflops(kernels)
    most = max([cublas] + [interval(m)[1] for m in kernels if measured(m)])
    far = ceiling is not None and ceiling > FAR_CEILING * most
    most = 1.06 * (most if far else max(most, ceiling or 0.0))
    axes.set_xlim(0, most)
    axes.set_xlabel("TFLOP/s")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    percent = 100 * most / cublas
    share = axes.twiny()
    share.set_xlim(0, percent)
    share.spines["top"].set_visible(True)
    share.spines[["left", "bottom"]].set_visible(False)
    share.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    share.set_xlabel("% of cuBLAS" + (", bars on this GPU · ○ article, RTX A6000" if marks else ""))
    reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", HEAD - 0.1)
    if ceiling:
        words = f"measured FP32 ceiling {rate(ceiling)}" + (", off the scale →" if far else "")
        reference_line(axes, most if far else ceiling, words, HEAD - 0.12 - figure.line_height(SMALL_PT), drawn=not far)


def _mark(axes: Axes, percent: float, cublas: float, y: float) -> None:
    """The article's share as a hollow mark with its number, under our bar."""
    x = percent / 100 * cublas
    axes.plot([x], [y], "o", markersize=4.2, markerfacecolor=PAPER, markeredgecolor=MUTED, markeredgewidth=0.9)
    beside(axes, f"{percent} %", (x, y), -5 if x > axes.get_xlim()[1] / 5 else 5, color=MUTED, bbox=BEHIND)


def _share(m: Measurement) -> str:
    return f"{100 * (m.ratio or 0.0):.1f} %"


def _finding(kernels: list[Measurement], accented: set[str]) -> str:
    rungs = [m for m in kernels if measured(m) and m.kernel != CUBLAS and m.kernel not in accented]
    shown = [m for m in kernels if measured(m) and m.kernel in accented] or rungs
    if not shown:
        return "No rung was measured at this size; cuBLAS was"
    best = max(shown, key=lambda m: m.ratio or 0.0)
    finding = f"{best.kernel} reaches {_share(best)} of cuBLAS"
    if not rungs or best is rungs[0]:
        return finding
    if shown is rungs:
        times = (best.tflops or 0.0) / (rungs[0].tflops or 1.0)
        return f"{finding}, {times:.{0 if times >= 10 else 1}f} times {rungs[0].kernel}"
    slower = [m for m in rungs if (m.tflops or 0.0) < (best.tflops or 0.0)]
    if slower:
        return f"{finding}, more than {max(slower, key=lambda m: m.tflops or 0.0).kernel}"
    return f"{finding}, less than {min(rungs, key=lambda m: m.tflops or 0.0).kernel}"
