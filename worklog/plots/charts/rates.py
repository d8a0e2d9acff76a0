"""Rows of horizontal bars: any numbers, and the rates of one ladder or of both, with cuBLAS's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.errors import NothingToDraw
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
from worklog.problem import Shape, Size
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    import pandas

    from worklog.plots.figure import OnAxes


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
    """Draw numbers of 0 or more by name, in columns, as bars.

    Each bar starts at 0 and is as long as its share of the longest bar in its column. A name
    without a number has a dash. Raises NothingToDraw without numbers.

    columns: numbers by name, by the column's heading
    source: the label of the numbers
    written: the format of a number
    accented: the names whose bars have the accent colour (default: all); the others are grey
    """
    names = dict[str, None]()
    for column in columns.values():
        names |= dict.fromkeys(column)
    if not names:
        raise NothingToDraw("there are no numbers to draw as bars")
    labels = {
        heading: {
            name: written.format(column[name]).rstrip(".") if name in column else "–"
            for name in names
        }
        for heading, column in columns.items()
    }
    alt = ["Bar chart"]
    for name in names:
        numbers = [f"{heading} {texts[name]}".strip() for heading, texts in labels.items()]
        alt.append(f"{name}: {', '.join(numbers)}")
    left = right_of(names)
    label_width = max(widest(texts.values(), SMALL_PT) for texts in labels.values()) + 0.1
    width = (WIDTH_IN - left - RIGHT + GAP) / len(columns) - GAP
    headings = {heading: style.wrap(heading, SMALL_PT, width) for heading in columns}
    height = NUMBER_ROW * len(names)
    heading_height = LINE * (max(map(len, headings.values())) + 0.3)
    chart = page("bars", title, subtitle, [source], alt, height + heading_height)
    for heading, column in columns.items():
        axes = chart.axes_at(left, chart.body_bottom, width, height)
        is_first = axes is chart.axes[0]
        row_names = [*names] if is_first else [""] * len(names)
        places = name_rows(axes, row_names, NUMBER_ROW)
        longest = max(column.values(), default=0.0) or 1.0
        axes.set(xlim=(0, longest * width / (width - label_width)), xticks=[])
        axes.spines["bottom"].set_visible(False)
        top = chart.body_bottom + height + LINE * (len(headings[heading]) + 0.2)
        chart.write(left, top, headings[heading], color=MUTED)
        for row_y, (name, text) in zip(places, labels[heading].items(), strict=True):
            number = column.get(name, 0.0)
            has_accent = accented is None or name in accented
            axes.barh(row_y, number, NUMBER_BAR, color=ACCENT if has_accent else style.GREY)
            annotate(axes, text, (number, row_y), 3)
        left += width + GAP
    return chart


def rate_bar(
    axes: Axes,
    m: Measurement,
    row_y: float,
    height: float,
    text: str,
    points: float,
    colour: str,
    cublas: float,
) -> None:
    """Draw a bar with whiskers and a text. The x axis must be set already.

    The text is inside the bar if it fits, else next to it, and on one side of the line of cuBLAS.

    text: the rate; for a measurement without a rate, the reason
    points: the size of the text
    colour: PAPER for a hollow bar
    cublas: the x of the line of cuBLAS, in TFLOP/s
    """
    inch = axes.get_xlim()[1] * axes.figure.dpi / axes.bbox.width  # TFLOP/s
    if not measured(m):
        lines = style.wrap(text, SMALL_PT, cublas / inch - 0.2, max_lines=2)
        reason = "\n".join(lines)
        annotate(axes, reason, (0, row_y), va="center", color=MUTED, style="italic", bbox=ON_PAPER)
        return
    middle = m.tflops or 0.0
    low, high = selection.interval(m)
    edge_width = 1.0 if colour == PAPER else 0.0
    axes.barh(row_y, middle, height, color=colour, edgecolor=ACCENT, linewidth=edge_width)
    whiskers = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]
    axes.errorbar(
        middle, row_y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=10 * height, capthick=1.0
    )
    room = inch * (style.text_width(text, points) + 0.2)
    start = max(middle, high)
    end = min(middle, low)
    if end > room:
        if max(end - room, room) < cublas < end:
            end = cublas
        text_colour = PAPER if colour == ACCENT else INK
        annotate(axes, text, (end, row_y), -5, fontsize=points, color=text_colour)
    else:
        if start < cublas < start + room:
            start = cublas
        annotate(axes, text, (start, row_y), fontsize=points, bbox=ON_PAPER)


def reference_line(axes: Axes, tflops: float, text: str, top: float) -> None:
    """Draw a vertical line from `top` down.

    The text is next to the line's upper end, on the side with more room.
    """
    axes.plot(
        [tflops, tflops],
        [top - 0.06, axes.get_ylim()[0]],
        color=MUTED,
        linewidth=0.9,
        zorder=0.5,
        clip_on=False,
    )
    gap = 4 if tflops < axes.get_xlim()[1] / 3 else -4
    annotate(axes, text, (tflops, top), gap, va="center", color=MUTED, annotation_clip=False)


# Percent of cuBLAS on an RTX A6000 at 4096, from Vizuara's article, which took these numbers from
# siboehm's SGEMM_CUDA README.
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

# Inches. A row has a lane for the bar with its label, and under it one for the article's mark: they
# cannot meet.
ROW = 0.49
BARE_ROW = 0.36
BAR = 0.25
BAR_LANE = 0.155
MARK_LANE = 0.36
HEAD = 0.38
NAME_ROOM = 1.4
BELOW = 0.4


@style.chart
def ladder(
    run: Run | pandas.DataFrame, size: Size | None = None, *, ax: OnAxes | None = None
) -> OnAxes:
    """Draw horizontal bars in rung order at one size, in TFLOP/s and % of cuBLAS.

    A failed or skipped rung has a row with the reason. A user's kernels are below the rungs, which
    are then drawn in a lighter colour. Returns a Chart, or `ax`, drawn on. Raises NothingToDraw if
    nothing was measured at the size, and BadSetting for a size that can't be.

    run: a run, or its `frame()`
    size: default, 4096, else the largest measured size
    """
    run = selection.as_run(run)
    shape = selection.shape_to_draw(run, size)
    kernels = selection.rows(run, shape)
    user_kernels = {m.kernel for m in kernels if run.kernels.get(m.kernel, {}).get("user")}
    article = ARTICLE_PERCENT if shape == selection.ARTICLE_SHAPE else {}
    marks = {m.kernel: article[m.kernel] for m in kernels if m.kernel in article}
    cublas = selection.cublas_tflops(kernels)
    ceiling = run.calibration.fp32_tflops
    timed = [m for m in kernels if measured(m)]
    fastest = max([cublas, *(selection.interval(m)[1] for m in timed)])
    texts = {m.kernel: _bar_text(m) for m in kernels}
    alt = [
        f"Bar chart of FP32 matrix multiplication at {dimensions(shape)} with the share of cuBLAS"
    ]
    alt += [f"{name}: {text}" for name, text in texts.items()]
    if ceiling:
        alt.append(f"measured FP32 ceiling: {rate(ceiling)} TFLOP/s")
    pitch = ROW if marks else BARE_ROW
    names = [_row_name(m.kernel, user_kernels) for m in kernels]

    def draw(axes: Axes) -> None:
        places = name_rows(axes, names, pitch, HEAD, BAR_LANE / pitch)
        axes.set(xlim=(0, 1.06 * max(fastest, ceiling)), xlabel="TFLOP/s")
        _percent_axis(axes, cublas, has_marks=bool(marks))
        reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", HEAD - 0.1)
        if ceiling:
            ceiling_y = HEAD - 0.12 - style.line_height(SMALL_PT)
            reference_line(axes, ceiling, f"measured FP32 ceiling {rate(ceiling)}", ceiling_y)
        for row_y, m in zip(places, kernels, strict=True):
            text = texts[m.kernel]
            if measured(m) and not m.converged:
                text += " *"
            colour = _colour(m.kernel, user_kernels)
            rate_bar(axes, m, row_y, BAR, text, BODY_PT, colour, cublas)
            if m.kernel in marks:
                _draw_mark(axes, marks[m.kernel], cublas, row_y + MARK_LANE - BAR_LANE)

    return on_axes(
        ax,
        draw,
        "ladder",
        _ladder_finding(timed, user_kernels),
        _ladder_subtitle(shape, has_marks=bool(marks)),
        _ladder_footer(run, timed, has_marks=bool(marks)),
        alt,
        height=HEAD + pitch * len(names),
        left=right_of(names),
        right=RATES_RIGHT,
        above=0.4,
        below=BELOW,
    )


def _ladder_finding(timed: Sequence[Measurement], user_kernels: Collection[str]) -> str:
    """Return the best rung's share of cuBLAS; of the user's kernels, if one was measured."""
    rungs = sorted((m for m in timed if m.kernel != CUBLAS), key=lambda m: m.tflops or 0.0)
    if not rungs:
        return "No rung was measured at this size; cuBLAS was"
    of_user = [m for m in rungs if m.kernel in user_kernels]
    best = of_user[-1] if of_user else rungs[-1]
    finding = f"{best.kernel} reaches {share(best)} of cuBLAS"
    slower = rungs[: rungs.index(best)]
    if not slower:
        return finding
    if user_kernels:
        return f"{finding}, more than {slower[-1].kernel}"
    speedup = (best.tflops or 0.0) / (slower[0].tflops or 1.0)
    digits = 0 if speedup >= 10 else 1
    return f"{finding}, {speedup:.{digits}f} times {slower[0].kernel}"


def _ladder_subtitle(shape: Shape, has_marks: bool) -> str:
    """Return the explanation of the bars and, if there are any, of the article's marks."""
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. Bars: median TFLOP/s of each rung with its 95 % interval, and its "
        "share of cuBLAS, timed in the same loop."
    )
    if has_marks:
        subtitle += " Circles: the article's shares, on another GPU."
    return subtitle


def _ladder_footer(run: Run, timed: Sequence[Measurement], has_marks: bool) -> list[str]:
    """Return the sources, and a note if an interval is too wide."""
    footer = [run.full_label]
    if has_marks:
        footer.append(ARTICLE_SOURCE)
    if not all(m.converged for m in timed):
        footer.append("* the interval is wider than requested")
    return footer


def _bar_text(m: Measurement) -> str:
    """Return a bar's text: rate and share, or the reason why there is no time."""
    if not measured(m):
        return no_time(m)
    return f"{rate(m.tflops)} TFLOP/s · {share(m)}"


def _row_name(kernel: str, user_kernels: Collection[str]) -> str:
    """Return a row's name; a user's kernel is marked."""
    name = f"{kernel} · yours" if kernel in user_kernels else kernel
    return style.shorten(name, BODY_PT, NAME_ROOM)


def _colour(kernel: str, user_kernels: Collection[str]) -> str:
    """Return a bar's colour: the accent is for the user's kernels, if there are any."""
    if kernel == CUBLAS:
        return BASELINE
    if user_kernels and kernel not in user_kernels:
        return DEFLATES
    return ACCENT


def _percent_axis(axes: Axes, cublas: float, has_marks: bool) -> None:
    """Draw the upper axis, in percent of cuBLAS. cublas: in TFLOP/s."""
    above = axes.twiny()
    above.set_xlim(0, 100 * axes.get_xlim()[1] / cublas)
    above.spines["top"].set_visible(True)
    above.spines[["left", "bottom"]].set_visible(False)
    above.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    label = "% of cuBLAS"
    if has_marks:
        label += ", bars on this GPU · ○ article, RTX A6000"
    above.set_xlabel(label)


def _draw_mark(axes: Axes, percent: float, cublas: float, row_y: float) -> None:
    """Draw the article's mark under our bar: hollow, with its number."""
    tflops = percent / 100 * cublas
    axes.plot(
        tflops,
        row_y,
        "o",
        markersize=4.2,
        markerfacecolor=PAPER,
        markeredgecolor=MUTED,
        markeredgewidth=0.9,
    )
    gap = -5 if tflops > axes.get_xlim()[1] / 5 else 5
    annotate(axes, f"{percent} %", (tflops, row_y), gap, color=MUTED, bbox=ON_PAPER)


# inches
TIGHT_ROW = 0.19
TIGHT_BAR = 0.14
# inches above a panel's rows
HEADING = 0.3
LINE_OF_CUBLAS = 0.2
SLOWED = 0.99  # of the GPU's SM clock: a lower clock is stated


@style.chart
def ladders(run: Run, size: Size | None = None) -> Chart:
    """Draw TFLOP/s of each measured kernel at one size, by the cores that it runs on.

    The two panels, on FP32 cores and on tensor cores, have different scales. A kernel whose class
    isn't fp32 is hollow. An SM clock that was lower than the GPU's is stated. Raises NothingToDraw
    if a panel has no measured kernel, and BadSetting for a size that can't be.

    size: default, 4096, else the largest measured size
    """
    shape = selection.shape_to_draw(run, size)
    timed = [m for m in selection.rows(run, shape) if measured(m)]
    panels = _panels(timed, shape)
    kernels = list[Measurement]()
    for panel in panels.values():
        kernels += panel
    cublas = selection.cublas_tflops(timed)
    clock_mhz = run.gpu.sm_clock_mhz
    texts = {m.kernel: _tight_text(m, clock_mhz) for m in kernels}
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}, in two parts"]
    alt += [f"{name} {text}" for name, text in texts.items()]
    alt.append(f"cuBLAS: {rate(cublas)} TFLOP/s")
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}: median TFLOP/s with its 95 % interval, and the share of cuBLAS in "
        "FP32, timed in the same loop. The panels have different scales. Hollow: less precise than FP32."
    )
    if any("MHz" in text for text in texts.values()):
        subtitle += f" MHz: the SM clock, where it was below the GPU's {clock_mhz:.0f}."
    panel_height = HEADING + LINE_OF_CUBLAS + BELOW  # without its rows
    chart = page(
        "ladders",
        _ladders_finding(kernels),
        subtitle,
        selection.labels(run, kernels),
        alt,
        panel_height * len(panels) + TIGHT_ROW * len(kernels),
    )
    left = right_of(texts)
    top = chart.body_top
    for heading, panel in panels.items():
        chart.write(MARGIN_IN, top - 0.12, [heading], BODY_PT, weight="bold")
        height = LINE_OF_CUBLAS + TIGHT_ROW * len(panel)
        axes = chart.axes_at(left, top - HEADING - height, WIDTH_IN - left - RATES_RIGHT, height)
        _draw_panel(axes, panel, texts, cublas)
        top -= panel_height + TIGHT_ROW * len(panel)
    return chart


def _panels(timed: Sequence[Measurement], shape: Shape) -> dict[str, list[Measurement]]:
    """Return the kernels of each panel by its heading.

    Raises NothingToDraw if a panel has no kernel.
    """
    panels = {
        "on FP32 cores": [m for m in timed if m.kernel not in {CUBLAS, *ON_TENSOR_CORES}],
        "FP32 on tensor cores": [m for m in timed if m.kernel in ON_TENSOR_CORES],
    }
    for heading, panel in panels.items():
        if not panel:
            raise NothingToDraw(
                f"at {shape}, no kernel {heading} was measured: measure it on a GPU"
            )
    return panels


def _tight_text(m: Measurement, clock_mhz: float) -> str:
    """Return a bar's text: rate, share, and a class or a clock that isn't as expected.

    clock_mhz: the GPU's SM clock
    """
    digits = 0 if (m.ratio or 0.0) >= 2 else 1
    parts = [rate(m.tflops), share(m, digits)]
    if class_of(m) != "fp32":
        parts.append(f"class {class_of(m)}")
    if m.sm_mhz is not None and m.sm_mhz < SLOWED * clock_mhz:
        parts.append(f"{m.sm_mhz:.0f} MHz")
    return " · ".join(parts)


def _ladders_finding(kernels: Sequence[Measurement]) -> str:
    """Return the fastest kernel with FP32's error of each panel."""
    findings = []
    on_fp32_cores, on_tensor_cores = selection.leaders(kernels)
    if on_tensor_cores is not None:
        speedup = f"{on_tensor_cores.ratio or 0.0:.1f} times as fast as cuBLAS"
        findings.append(f"{on_tensor_cores.kernel} computes FP32 on tensor cores {speedup}")
    if on_fp32_cores is not None:
        reached = share(on_fp32_cores)
        findings.append(f"on FP32 cores, {on_fp32_cores.kernel} reaches {reached} of cuBLAS")
    return "; ".join(findings) or "No kernel has FP32's error"


def _draw_panel(
    axes: Axes, kernels: Sequence[Measurement], texts: Mapping[str, str], cublas: float
) -> None:
    """Draw the bars of one panel, with a line at cuBLAS's rate. cublas: in TFLOP/s."""
    places = name_rows(axes, [m.kernel for m in kernels], TIGHT_ROW, LINE_OF_CUBLAS)
    fastest = max(cublas, *(m.tflops or 0.0 for m in kernels))
    axes.set(xlim=(0, 1.06 * fastest), xlabel="TFLOP/s")
    reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", LINE_OF_CUBLAS / 2)
    for row_y, m in zip(places, kernels, strict=True):
        colour = ACCENT if class_of(m) == "fp32" else PAPER
        rate_bar(axes, m, row_y, TIGHT_BAR, texts[m.kernel], SMALL_PT, colour, cublas)
