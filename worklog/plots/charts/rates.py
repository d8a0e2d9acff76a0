"""Rows of horizontal bars: any numbers, and rates beside cuBLAS: of the ladder, and of both ladders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.plots import selection, style
from worklog.plots.figure import (
    ON_PAPER,
    Chart,
    annotate,
    name_rows,
    on_axes,
    page,
    right_of,
    widest,
)
from worklog.plots.selection import (
    ON_TENSOR_CORES,
    Size,
    class_of,
    dimensions,
    measured,
    no_time,
    rate,
    share,
)
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BODY_PT,
    DEFLATES,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
)
from worklog.runs import CUBLAS, Measurement, NothingToDraw, Run

if TYPE_CHECKING:
    import pandas


# inches
NUMBER_ROW = 0.24
NUMBER_BAR = 0.15
LINE = 0.16
GAP = 0.16
RIGHT = 0.1
RATES_RIGHT = 0.2


@style.chart
def bars(
    title: str,
    columns: Mapping[str, Mapping[str, float]],
    source: str,
    *,
    subtitle: str = "",
    written: str = "{:#.4g}",
    accented: Collection[str] | None = None,
) -> Chart:
    """Numbers of 0 or more by name, in columns: each bar starts at 0 and is as long as its share of the longest one in
    its column. A name without a number has a dash.

    source: the label of the numbers. written: how a number is written. accented: the names whose bars have the accent
    colour (default: all); the others are grey. Raises NothingToDraw without numbers.
    """
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    if not names:
        raise NothingToDraw("there are no numbers to draw as bars")
    said = {
        heading: {
            name: written.format(column[name]).rstrip(".") if name in column else "–"
            for name in names
        }
        for heading, column in columns.items()
    }
    alt = ["Bar chart"]
    for name in names:
        alt.append(
            f"{name}: "
            + ", ".join(f"{heading} {words[name]}".strip() for heading, words in said.items())
        )
    left = right_of(names)
    room = max(widest(words.values(), SMALL_PT) for words in said.values()) + 0.1
    wide = (WIDTH_IN - left - RIGHT + GAP) / len(columns) - GAP
    headings = {heading: style.wrap(heading, SMALL_PT, wide) for heading in columns}
    height = NUMBER_ROW * len(names)
    new = page(
        "bars",
        title,
        subtitle,
        [source],
        alt,
        height + LINE * (max(map(len, headings.values())) + 0.3),
    )
    for heading, column in columns.items():
        axes = new.axes_at(left, new.body_bottom, wide, height)
        places = name_rows(axes, names if axes is new.axes[0] else [""] * len(names), NUMBER_ROW)
        axes.set(
            xlim=(0, (max(column.values(), default=0.0) or 1.0) * wide / (wide - room)), xticks=[]
        )
        axes.spines["bottom"].set_visible(False)
        top = new.body_bottom + height + LINE * (len(headings[heading]) + 0.2)
        new.write(left, top, headings[heading], color=MUTED)
        for y, (name, words) in zip(places, said[heading].items(), strict=True):
            value = column.get(name, 0.0)
            axes.barh(
                y,
                value,
                NUMBER_BAR,
                color=ACCENT if accented is None or name in accented else style.GREY,
            )
            annotate(axes, words, (value, y), 3)
        left += wide + GAP
    return new


def rate_bar(
    axes: Axes,
    m: Measurement,
    y: float,
    height: float,
    words: str,
    points: float,
    colour: str,
    cublas: float,
) -> None:
    """A bar with whiskers; its words are inside where they fit, else beside it, and on one side of the line of cuBLAS.
    Without a rate, they say why. colour: PAPER for a hollow bar. The x axis must be set already.
    """
    inch = axes.get_xlim()[1] * axes.figure.dpi / axes.bbox.width  # TFLOP/s
    if not measured(m):
        why = "\n".join(style.wrap(words, SMALL_PT, cublas / inch - 0.2, max_lines=2))
        annotate(axes, why, (0, y), va="center", color=MUTED, style="italic", bbox=ON_PAPER)
        return
    middle = m.tflops or 0.0
    (low, high) = selection.interval(m)
    axes.barh(
        y, middle, height, color=colour, edgecolor=ACCENT, linewidth=1.0 if colour == PAPER else 0.0
    )
    whiskers = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]
    axes.errorbar(
        middle, y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=10 * height, capthick=1.0
    )
    room = inch * (style.text_width(words, points) + 0.2)
    start = max(middle, high)
    end = min(middle, low)
    if end > room:
        end = cublas if max(end - room, room) < cublas < end else end
        annotate(
            axes, words, (end, y), -5, fontsize=points, color=PAPER if colour == ACCENT else INK
        )
    else:
        start = cublas if start < cublas < start + room else start
        annotate(axes, words, (start, y), fontsize=points, bbox=ON_PAPER)


def reference_line(axes: Axes, x: float, words: str, y: float) -> None:
    """A vertical line from y down; its words are beside its upper end, on the side where there is more room."""
    axes.plot(
        [x, x],
        [y - 0.06, axes.get_ylim()[0]],
        color=MUTED,
        linewidth=0.9,
        zorder=0.5,
        clip_on=False,
    )
    gap = 4 if x < axes.get_xlim()[1] / 3 else -4
    annotate(axes, words, (x, y), gap, va="center", color=MUTED, annotation_clip=False)


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
ROW = 0.49
BARE_ROW = 0.36
BAR = 0.25
BAR_LANE = 0.155
MARK_LANE = 0.36
HEAD = 0.38
NAME_ROOM = 1.4
BELOW = 0.4


@style.chart
def ladder(run: Run | pandas.DataFrame, size: Size | None = None, *, ax: Axes | None = None) -> Any:
    """Horizontal bars in rung order at one size (default 4096, else the largest measured), in TFLOP/s and % of cuBLAS.
    Returns a Chart, or `ax`, drawn on.

    run: a run, or its `frame()`. A failed or skipped rung has a row with the reason. A user's kernels stand below the
    rungs, which are then drawn in a lighter colour. Raises NothingToDraw where nothing was measured at the size,
    BadSetting.
    """
    run = selection.as_run(run)
    shape = selection.shape_to_draw(run, size)
    kernels = selection.rows(run, shape)
    mine = {m.kernel for m in kernels if run.kernels.get(m.kernel, {}).get("user")}
    article = ARTICLE_PERCENT if shape == selection.ARTICLE_SHAPE else {}
    marks = {m.kernel: article[m.kernel] for m in kernels if m.kernel in article}
    cublas = selection.cublas_tflops(kernels)
    ceiling = run.calibration.fp32_tflops
    finding = "No rung was measured at this size; cuBLAS was"
    timed = [m for m in kernels if measured(m)]
    most = max([cublas, *(selection.interval(m)[1] for m in timed)])
    if rungs := sorted((m for m in timed if m.kernel != CUBLAS), key=lambda m: m.tflops or 0.0):
        best = ([m for m in rungs if m.kernel in mine] or rungs)[-1]
        finding = f"{best.kernel} reaches {share(best)} of cuBLAS"
        slower = rungs[: rungs.index(best)]
        if slower and mine:
            finding += f", more than {slower[-1].kernel}"
        elif slower:
            times = (best.tflops or 0.0) / (slower[0].tflops or 1.0)
            finding += f", {times:.{0 if times >= 10 else 1}f} times {slower[0].kernel}"
    footer = [run.full_label]
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. Bars: median TFLOP/s of each rung with its 95 % interval, and its "
        "share of cuBLAS, timed in the same loop."
    )
    if marks:
        footer.append(ARTICLE_SOURCE)
        subtitle += " Circles: the article's shares, on another GPU."
    if not all(m.converged for m in timed):
        footer.append("* the interval is wider than requested")
    said = {
        m.kernel: f"{rate(m.tflops)} TFLOP/s · {share(m)}" if measured(m) else no_time(m)
        for m in kernels
    }
    alt = [
        f"Bar chart of FP32 matrix multiplication at {dimensions(shape)} with the share of cuBLAS"
    ]
    alt += [f"{name}: {words}" for name, words in said.items()]
    alt += [f"measured FP32 ceiling: {rate(ceiling)} TFLOP/s"] if ceiling else []
    pitch = ROW if marks else BARE_ROW
    names = [
        style.shorten(m.kernel + " · yours" * (m.kernel in mine), BODY_PT, NAME_ROOM)
        for m in kernels
    ]

    def draw(axes: Axes) -> None:
        places = name_rows(axes, names, pitch, HEAD, BAR_LANE / pitch)
        axes.set(xlim=(0, 1.06 * max(most, ceiling)), xlabel="TFLOP/s")
        end = axes.get_xlim()[1]
        above = axes.twiny()
        above.set_xlim(0, 100 * end / cublas)
        above.spines["top"].set_visible(True)
        above.spines[["left", "bottom"]].set_visible(False)
        above.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
        above.set_xlabel(
            "% of cuBLAS" + (", bars on this GPU · ○ article, RTX A6000" if marks else "")
        )
        reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", HEAD - 0.1)
        if ceiling:
            higher = HEAD - 0.12 - style.line_height(SMALL_PT)
            reference_line(axes, ceiling, f"measured FP32 ceiling {rate(ceiling)}", higher)
        for y, m in zip(places, kernels, strict=True):
            words = said[m.kernel] + " *" * (measured(m) and not m.converged)
            colour = (
                BASELINE
                if m.kernel == CUBLAS
                else DEFLATES
                if mine and m.kernel not in mine
                else ACCENT
            )
            rate_bar(axes, m, y, BAR, words, BODY_PT, colour, cublas)
            if m.kernel in marks:  # a hollow one with its number, under our bar
                x, y = marks[m.kernel] / 100 * cublas, y + MARK_LANE - BAR_LANE
                axes.plot(
                    x,
                    y,
                    "o",
                    markersize=4.2,
                    markerfacecolor=PAPER,
                    markeredgecolor=MUTED,
                    markeredgewidth=0.9,
                )
                annotate(
                    axes,
                    f"{marks[m.kernel]} %",
                    (x, y),
                    -5 if x > end / 5 else 5,
                    color=MUTED,
                    bbox=ON_PAPER,
                )

    words = ("ladder", finding, subtitle, footer, alt)
    height = HEAD + pitch * len(names)
    room: Any = {"left": right_of(names), "right": RATES_RIGHT, "above": 0.4, "below": BELOW}
    return on_axes(ax, draw, *words, height=height, **room)


# inches
TIGHT_ROW = 0.19
TIGHT_BAR = 0.14
# inches above a panel's rows
HEADING = 0.3
LINE_OF_CUBLAS = 0.2
SLOWED = 0.99  # of the GPU's SM clock: a lower clock is stated


@style.chart
def ladders(run: Run, size: Size | None = None) -> Chart:
    """TFLOP/s of each measured kernel at one size (default 4096, else the largest measured), in two panels with scales
    of their own: on FP32 cores, and on tensor cores. A kernel that hasn't the class fp32 is hollow, and where the SM
    clock was lower than the GPU's, it is stated. Raises NothingToDraw where one of the two has no measured kernel,
    BadSetting.
    """
    shape = selection.shape_to_draw(run, size)
    timed = [m for m in selection.rows(run, shape) if measured(m)]
    parts = {
        "on FP32 cores": [m for m in timed if m.kernel not in {CUBLAS, *ON_TENSOR_CORES}],
        "FP32 on tensor cores": [m for m in timed if m.kernel in ON_TENSOR_CORES],
    }
    for heading, part in parts.items():
        if not part:
            raise NothingToDraw(
                f"at {shape}, no kernel {heading} was measured: measure it on a GPU"
            )
    kernels = [m for part in parts.values() for m in part]
    cublas = selection.cublas_tflops(timed)
    clock = run.gpu.sm_clock_mhz
    said = dict[str, str]()
    for m in kernels:
        words = [rate(m.tflops), share(m, 0 if (m.ratio or 0.0) >= 2 else 1)]
        words += [f"class {class_of(m)}"] if class_of(m) != "fp32" else []
        words += (
            [f"{m.sm_mhz:.0f} MHz"] if m.sm_mhz is not None and m.sm_mhz < SLOWED * clock else []
        )
        said[m.kernel] = " · ".join(words)
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}, in two parts"]
    alt += [f"{name} {words}" for name, words in said.items()] + [f"cuBLAS: {rate(cublas)} TFLOP/s"]
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}: median TFLOP/s with its 95 % interval, and the share of cuBLAS in "
        "FP32, timed in the same loop. The panels have different scales. Hollow: less precise than FP32."
    )
    if any("MHz" in words for words in said.values()):
        subtitle += f" MHz: the SM clock, where it was below the GPU's {clock:.0f}."
    finding = []
    plain, tensor = selection.leaders(kernels)
    if tensor is not None:
        times = f"{tensor.ratio or 0.0:.1f} times as fast as cuBLAS"
        finding.append(f"{tensor.kernel} computes FP32 on tensor cores {times}")
    if plain is not None:
        finding.append(f"on FP32 cores, {plain.kernel} reaches {share(plain)} of cuBLAS")
    title = "; ".join(finding) or "No kernel has FP32's error"
    panel = HEADING + LINE_OF_CUBLAS + BELOW
    body = panel * len(parts) + TIGHT_ROW * len(kernels)
    new = page("ladders", title, subtitle, selection.labels(run, kernels), alt, body)
    left = right_of(said)
    top = new.body_top
    for heading, part in parts.items():
        new.write(MARGIN_IN, top - 0.12, [heading], BODY_PT, weight="bold")
        height = LINE_OF_CUBLAS + TIGHT_ROW * len(part)
        axes = new.axes_at(left, top - HEADING - height, WIDTH_IN - left - RATES_RIGHT, height)
        places = name_rows(axes, [m.kernel for m in part], TIGHT_ROW, LINE_OF_CUBLAS)
        axes.set(xlim=(0, 1.06 * max(cublas, *(m.tflops or 0.0 for m in part))), xlabel="TFLOP/s")
        reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", LINE_OF_CUBLAS / 2)
        for y, m in zip(places, part, strict=True):
            colour = ACCENT if class_of(m) == "fp32" else PAPER
            rate_bar(axes, m, y, TIGHT_BAR, said[m.kernel], SMALL_PT, colour, cublas)
        top -= panel + TIGHT_ROW * len(part)
    return new
