"""The ladder: the rate of each rung beside cuBLAS, the measured ceiling, and the article's percentages on its GPU; and
both ladders, on FP32 cores and on tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.errors import NothingToDraw
from worklog.kernel import TENSOR
from worklog.kernel import rung as known_rung
from worklog.plots import figure, selection
from worklog.plots.bars import BEHIND, RATES_RIGHT, rate_axes, rate_bar, reference_line
from worklog.plots.figure import ACCENT, BASELINE, BODY_PT, DEFLATES, MARGIN_IN, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import beside, page, right_of
from worklog.plots.selection import CUBLAS, Size, cublas_tflops, dimensions, measured, no_time, rate, rows, share
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
HEAD, ABOVE, BELOW, NAME_ROOM = 0.38, 0.4, 0.4, 1.4
FAR_CEILING = 2.5  # a ceiling this many times above everything else would squeeze the bars


@figure.styled()
def ladder(run: Run, size: Size | None = None, *, rung: str | None = None) -> Chart:
    """Horizontal bars in rung order at one size (default 4096, else the largest measured), in TFLOP/s and % of cuBLAS.

    A failed or skipped rung has a row with the reason. A user's kernels stand below the rungs, which are then drawn in
    a lighter colour. rung: the one that the title is about, in the accent instead of the user's kernels. Raises
    NothingToDraw where nothing was measured at the size, BadSetting.
    """
    if rung is not None and rung not in {m.kernel for m in run.measurements}:
        known_rung(rung)
    shape = selection.shape_to_draw(run, size)
    kernels = rows(run, shape)
    mine = {m.kernel for m in kernels if run.kernels.get(m.kernel, {}).get("user")}
    accented = mine if rung is None else {rung}
    marks = ARTICLE_PERCENT if shape == selection.ARTICLE_SHAPE else {}
    marks = {m.kernel: marks[m.kernel] for m in kernels if m.kernel in marks}
    footer = [run.full_label] + [ARTICLE_SOURCE] * bool(marks)
    footer += [WIDE_INTERVAL] * any(measured(m) and not m.converged for m in kernels)
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}"] + [
        f"{m.kernel} {rate(m.tflops)} TFLOP/s, {share(m)} of cuBLAS" if measured(m) else f"{m.kernel}: {no_time(m)}"
        for m in kernels
    ]
    ceiling = run.calibration.get("fp32_tflops")
    alt += [f"measured FP32 ceiling: {rate(ceiling)} TFLOP/s"] if ceiling else []
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. Bars: median TFLOP/s of each rung with its 95 % interval, and its "
        "share of cuBLAS, timed in the same loop."
    )
    subtitle += " Circles: the article's shares, on another GPU." * bool(marks)
    pitch = ROW if marks else BARE_ROW
    height = HEAD + pitch * len(kernels)
    new = page("ladder", _finding(kernels, accented), subtitle, footer, alt, ABOVE + height + BELOW)
    cublas = cublas_tflops(kernels)
    most = max([cublas] + [selection.interval(m)[1] for m in kernels if measured(m)])
    far = ceiling is not None and ceiling > FAR_CEILING * most
    most = most if far else max(most, ceiling or 0.0)
    places = [HEAD + pitch * index + BAR_LANE for index in range(len(kernels))]
    names = [figure.shorten(m.kernel + " · yours" * (m.kernel in mine), BODY_PT, NAME_ROOM) for m in kernels]
    left = right_of(names)
    axes = rate_axes(new, left, BELOW, height, most, names, places)
    _shares(axes, cublas, bool(marks))
    reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", HEAD - 0.1)
    if ceiling:
        words = f"measured FP32 ceiling {rate(ceiling)}" + (", off the scale →" if far else "")
        end, above = axes.get_xlim()[1] if far else ceiling, HEAD - 0.12 - figure.line_height(SMALL_PT)
        reference_line(axes, end, words, above, drawn=not far)
    before = cublas / axes.get_xlim()[1] * (WIDTH_IN - left - RATES_RIGHT) - 0.2  # inches left of the line of cuBLAS
    for y, m in zip(places, kernels, strict=True):
        if measured(m):
            words = f"{rate(m.tflops)} TFLOP/s · {share(m)}" + ("" if m.converged else " *")
            colour = ACCENT if m.kernel in (accented or {m.kernel}) else DEFLATES
            rate_bar(axes, m, y, BAR, words, BODY_PT, BASELINE if m.kernel == CUBLAS else colour, cublas)
        else:
            lines = figure.wrap(no_time(m), SMALL_PT, before, most=2)
            beside(axes, "\n".join(lines), (0, y), va="center", color=MUTED, style="italic", bbox=BEHIND)
        if m.kernel in marks:  # a hollow one with its number, under our bar
            x, y = marks[m.kernel] / 100 * cublas, y + MARK_LANE - BAR_LANE
            axes.plot([x], [y], "o", markersize=4.2, markerfacecolor=PAPER, markeredgecolor=MUTED, markeredgewidth=0.9)
            gap = -5 if x > axes.get_xlim()[1] / 5 else 5
            beside(axes, f"{marks[m.kernel]} %", (x, y), gap, color=MUTED, bbox=BEHIND)
    return new.figure


def _shares(axes: Axes, cublas: float, marks: bool) -> None:
    """Above the axes, in proportion to TFLOP/s, % of cuBLAS."""
    above = axes.twiny()
    above.set_xlim(0, 100 * axes.get_xlim()[1] / cublas)
    above.spines["top"].set_visible(True)
    above.spines[["left", "bottom"]].set_visible(False)
    above.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    above.set_xlabel("% of cuBLAS" + (", bars on this GPU · ○ article, RTX A6000" if marks else ""))


def _finding(kernels: list[Measurement], accented: set[str]) -> str:
    rungs = [m for m in kernels if measured(m) and m.kernel != CUBLAS and m.kernel not in accented]
    shown = [m for m in kernels if measured(m) and m.kernel in accented] or rungs
    if not shown:
        return "No rung was measured at this size; cuBLAS was"
    best = max(shown, key=lambda m: m.ratio or 0.0)
    finding = f"{best.kernel} reaches {share(best)} of cuBLAS"
    if not rungs or best is rungs[0]:
        return finding
    if shown is rungs:
        times = (best.tflops or 0.0) / (rungs[0].tflops or 1.0)
        return f"{finding}, {times:.{0 if times >= 10 else 1}f} times {rungs[0].kernel}"
    slower = [m for m in rungs if (m.tflops or 0.0) < (best.tflops or 0.0)]
    if slower:
        return f"{finding}, more than {max(slower, key=lambda m: m.tflops or 0.0).kernel}"
    return f"{finding}, less than {min(rungs, key=lambda m: m.tflops or 0.0).kernel}"


# Inches: a row and its bar, a heading, the first line.
TIGHT_ROW, TIGHT_BAR, HEADING, FIRST = 0.185, 0.14, 0.27, 0.2
SLOWED = 0.99  # of the GPU's SM clock: a lower clock is stated
SECOND = {rung.name for rung in TENSOR}
LADDERS = {False: "on FP32 cores", True: "FP32 on tensor cores"}


@figure.styled()
def ladders(run: Run, size: Size | None = None) -> Chart:
    """TFLOP/s of each measured kernel at one size (default 4096, else the largest measured), first those on FP32 cores,
    then those on tensor cores, whose bars have another colour. A kernel that hasn't the class fp32 is hollow, and where
    the SM clock was lower than the GPU's, it is stated. Raises NothingToDraw where one of the two has no
    measured kernel, BadSetting.
    """
    shape = selection.shape_to_draw(run, size)
    found = [m for m in rows(run, shape) if measured(m)]
    parts = {second: [m for m in found if m.kernel != CUBLAS and (m.kernel in SECOND) is second] for second in LADDERS}
    for second, part in parts.items():
        if not part:
            raise NothingToDraw(f"at {shape}, no kernel {LADDERS[second]} was measured: measure it on a GPU")
    kernels, cublas, clock = parts[False] + parts[True], cublas_tflops(found), run.device.get("sm_clock_mhz", 0.0)
    said = {m.kernel: _words(m, clock) for m in kernels}
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}, in two parts"]
    alt += [f"{name} {words}" for name, words in said.items()] + [f"cuBLAS: {rate(cublas)} TFLOP/s"]
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}: median TFLOP/s with its 95 % interval, and the share of cuBLAS in "
        "FP32, timed in the same loop. Hollow: less precise than FP32."
    )
    if any("MHz" in words for words in said.values()):
        subtitle += f" MHz: the SM clock, where it was below the GPU's {clock:.0f}."
    height = FIRST + TIGHT_ROW * len(kernels) + HEADING * len(parts)
    new = page("ladders", _leading(kernels), subtitle, selection.labels(run, kernels), alt, height + BELOW)
    places, top = list[float](), FIRST
    for second, part in parts.items():
        above = new.body_bottom + BELOW + height - top - HEADING / 2
        new.text(MARGIN_IN, above, LADDERS[second], BODY_PT, weight="bold", va="center")
        places += [top + HEADING + TIGHT_ROW * (index + 0.5) for index in range(len(part))]
        top += HEADING + TIGHT_ROW * len(part)
    most = max(cublas, *(m.tflops or 0.0 for m in kernels))
    axes = rate_axes(new, right_of(said), BELOW, height, most, [*said], places)
    reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", FIRST / 2)
    for y, m in zip(places, kernels, strict=True):
        colour, full = ACCENT if m.kernel in SECOND else DEFLATES, class_of(m) == "fp32"
        rate_bar(axes, m, y, TIGHT_BAR, said[m.kernel], SMALL_PT, colour if full else PAPER)
        if not full:
            axes.barh(y, m.tflops or 0.0, TIGHT_BAR, color="none", edgecolor=colour, linewidth=1.0)
    return new.figure


def class_of(m: Measurement) -> str:
    """The precision class that the gate found."""
    return str((m.verdict or {}).get("precision") or "fp32")


def _words(m: Measurement, clock: float) -> str:
    """Its rate and share of cuBLAS, its precision class where that isn't FP32's, and an SM clock below the GPU's."""
    words = [rate(m.tflops), share(m, 0 if (m.ratio or 0.0) >= 2 else 1)]
    words += [f"class {class_of(m)}"] if class_of(m) != "fp32" else []
    words += [f"{m.sm_mhz:.0f} MHz"] if m.sm_mhz is not None and m.sm_mhz < SLOWED * clock else []
    return " · ".join(words)


def leaders(found: Iterable[Measurement]) -> list[Measurement | None]:
    """The fastest measured kernel with FP32's class on FP32 cores, and on tensor cores; None where there isn't one."""
    rungs = [m for m in found if m.kernel != CUBLAS and measured(m) and class_of(m) == "fp32"]
    parts = ([m for m in rungs if (m.kernel in SECOND) is second] for second in LADDERS)
    return [max(part, key=lambda m: m.ratio or 0.0, default=None) for part in parts]


def _leading(kernels: Iterable[Measurement]) -> str:
    first, second = leaders(kernels)
    said = []
    if second is not None:
        said.append(f"{second.kernel} computes FP32 on tensor cores {second.ratio or 0.0:.1f} times as fast as cuBLAS")
    if first is not None:
        said.append(f"on FP32 cores, {first.kernel} reaches {share(first)} of cuBLAS")
    return "; ".join(said) or "No kernel has FP32's error"
