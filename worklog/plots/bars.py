"""Rows of horizontal bars: a table of numbers, and measured rates with their interval beside cuBLAS."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.figure import ACCENT, GREY, INK, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart, styled, text_width, wrap
from worklog.plots.page import Page, beside, page, plain_rows, right_of, widest
from worklog.plots.selection import Size, interval, shape_to_draw
from worklog.runs import Measurement, Run

ROW, BAR, LINE, GAP, RIGHT = 0.24, 0.15, 0.16, 0.16, 0.1  # inches
RATES_RIGHT = 0.2
BEHIND = {"facecolor": PAPER, "pad": 1.0}  # words stand in front of the reference lines


@styled()
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
        heading: [written.format(column[name]).rstrip(".") if name in column else "–" for name in names]
        for heading, column in columns.items()
    }
    alt = ["Bar chart"]
    for row, name in enumerate(names):
        alt.append(f"{name}: " + ", ".join(f"{heading} {words[row]}".strip() for heading, words in said.items()))
    left, room = right_of(names), max(widest(words, SMALL_PT) for words in said.values()) + 0.1
    wide = (WIDTH_IN - left - RIGHT + GAP) / len(columns) - GAP
    headings = [wrap(heading, SMALL_PT, wide) for heading in columns]
    body = ROW * len(names)
    new = page("bars", title, subtitle, [source], alt, body + LINE * (max(map(len, headings)) + 0.3))
    for index, (heading, column) in enumerate(columns.items()):
        x, lines = left + index * (wide + GAP), headings[index]
        axes = new.rows(x, new.body_bottom, wide, ROW, ["" if index else name for name in names])
        axes.set_xlim(0, (max(column.values(), default=0.0) or 1.0) * wide / (wide - room))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        new.lines(x, new.body_bottom + body + LINE * (len(lines) + 0.2), lines, SMALL_PT, color=MUTED)
        for y, name, words in zip(axes.get_yticks(), names, said[heading], strict=True):
            value = column.get(name, 0.0)
            axes.barh(y, value, BAR, color=ACCENT if accented is None or name in accented else GREY)
            beside(axes, words, (value, y), 3)
    return new.figure


def energy(run: Run, size: Size | None = None) -> Chart:
    """Of each kernel at one size: the energy of a launch, the average power, and the operations for each joule, as far
    as the run read the energy. Raises NothingToDraw, with the command, where it didn't.
    """
    shape = shape_to_draw(run, size)
    watts = {m.kernel: m.watts for m in run.select(shape=shape) if m.joules and m.watts and m.us}
    joules = {m.kernel: m.joules for m in run.select(shape=shape) if m.kernel in watts and m.joules}
    if not joules:
        raise NothingToDraw(f"the run read no energy at {shape}: `worklog run --size {shape} --set energy_s=1`")
    best = min(joules, key=joules.__getitem__)
    unit, scale = ("J", 1.0) if joules[best] > 0.1 else ("mJ", 1e3)
    columns = {
        f"{unit} a launch": {name: scale * found for name, found in joules.items()},
        "W": watts,
        "GFLOP a joule": {name: shape.flops / found / 1e9 for name, found in joules.items()},
    }
    subtitle = "Launches in a row with a warm L2, by NVML's counter of the whole card."
    title = f"{best} needs the least energy at {shape}: {scale * joules[best]:.3g} {unit} a launch"
    return bars(title, columns, run.full_label, subtitle=subtitle, accented=[best])


def rate_axes(
    new: Page, left: float, below: float, height: float, most: float, names: Sequence[str], places: Sequence[float]
) -> Axes:
    """Axes of TFLOP/s up to a little beyond `most`, with names at their places, inches down from the top."""
    axes = new.axes(left, new.body_bottom + below, WIDTH_IN - left - RATES_RIGHT, height)
    plain_rows(axes, height, places, names)
    axes.set_xlim(0, 1.06 * most)
    axes.set_xlabel("TFLOP/s")
    return axes


def rate_bar(
    axes: Axes, m: Measurement, y: float, height: float, words: str, points: float, colour: str, line: float = 0.0
) -> None:
    """A bar with whiskers; its words are inside where they fit, else beside it, and on one side of a reference line at
    `line` TFLOP/s. The x axis must be set already.
    """
    rate, (low, high) = m.tflops or 0.0, interval(m)
    axes.barh(y, rate, height, color=colour)
    whiskers = [[max(rate - low, 0.0)], [max(high - rate, 0.0)]]
    axes.errorbar(rate, y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=10 * height, capthick=1.0)
    room = (text_width(words, points) + 0.2) * axes.get_xlim()[1] * axes.figure.dpi / axes.bbox.width  # TFLOP/s
    start, end = max(rate, high), min(rate, low)
    if end > room:
        end = line if max(end - room, room) < line < end else end
        beside(axes, words, (end, y), -5, fontsize=points, color=PAPER if colour == ACCENT else INK)
    else:
        start = line if start < line < start + room else start
        beside(axes, words, (start, y), fontsize=points, bbox=BEHIND)


def reference_line(axes: Axes, x: float, words: str, y: float, *, drawn: bool = True) -> None:
    """A vertical line from y down; its words are beside its upper end, on the side where there is more room."""
    if drawn:
        axes.plot([x, x], [y - 0.06, axes.get_ylim()[0]], color=MUTED, linewidth=0.9, zorder=0.5, clip_on=False)
    gap = 4 if x < axes.get_xlim()[1] / 3 else -4
    beside(axes, words, (x, y), gap, va="center", color=MUTED, annotation_clip=False)
