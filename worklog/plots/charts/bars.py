"""Rows of horizontal bars: a table of numbers, and measured rates with their interval beside cuBLAS."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.figure import ACCENT, GREY, INK, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart, styled, text_width, wrap
from worklog.plots.page import beside, middles, name_rows, page, right_of, widest
from worklog.plots.selection import interval, measured
from worklog.runs import Measurement

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
    height, places = ROW * len(names), middles(ROW, len(names))
    new = page("bars", title, subtitle, [source], alt, height + LINE * (max(map(len, headings)) + 0.3))
    for index, (heading, column) in enumerate(columns.items()):
        x, lines = left + index * (wide + GAP), headings[index]
        axes = new.axes(x, new.body_bottom, wide, height)
        name_rows(axes, height, places, ["" if index else name for name in names])
        axes.set(xlim=(0, (max(column.values(), default=0.0) or 1.0) * wide / (wide - room)), xticks=[])
        axes.spines["bottom"].set_visible(False)
        new.lines(x, new.body_bottom + height + LINE * (len(lines) + 0.2), lines, color=MUTED)
        for y, name, words in zip(places, names, said[heading], strict=True):
            value = column.get(name, 0.0)
            axes.barh(y, value, BAR, color=ACCENT if accented is None or name in accented else GREY)
            beside(axes, words, (value, y), 3)
    return new.figure


def name_rates(axes: Axes, height: float, most: float, names: Sequence[str], places: Sequence[float]) -> None:
    """TFLOP/s up to a little beyond `most`, and names at their places, inches down from the top."""
    name_rows(axes, height, places, names)
    axes.set(xlim=(0, 1.06 * most), xlabel="TFLOP/s")


def rate_bar(
    axes: Axes, m: Measurement | None, y: float, height: float, words: str, points: float, colour: str, cublas: float
) -> None:
    """A bar with whiskers; its words are inside where they fit, else beside it, and on one side of the line of cuBLAS.
    Without a rate, they say why. The x axis must be set already.
    """
    inch = axes.get_xlim()[1] * axes.figure.dpi / axes.bbox.width  # TFLOP/s
    if m is None or not measured(m):
        why = "\n".join(wrap(words, SMALL_PT, (cublas or axes.get_xlim()[1]) / inch - 0.2, most=2))
        beside(axes, why, (0, y), va="center", color=MUTED, style="italic", bbox=BEHIND)
        return
    middle, (low, high) = m.tflops or 0.0, interval(m)
    axes.barh(y, middle, height, color=colour)
    whiskers = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]
    axes.errorbar(middle, y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=10 * height, capthick=1.0)
    room, start, end = inch * (text_width(words, points) + 0.2), max(middle, high), min(middle, low)
    if end > room:
        end = cublas if max(end - room, room) < cublas < end else end
        beside(axes, words, (end, y), -5, fontsize=points, color=PAPER if colour == ACCENT else INK)
    else:
        start = cublas if start < cublas < start + room else start
        beside(axes, words, (start, y), fontsize=points, bbox=BEHIND)


def reference_line(axes: Axes, x: float, words: str, y: float) -> None:
    """A vertical line from y down; its words are beside its upper end, on the side where there is more room."""
    axes.plot([x, x], [y - 0.06, axes.get_ylim()[0]], color=MUTED, linewidth=0.9, zorder=0.5, clip_on=False)
    gap = 4 if x < axes.get_xlim()[1] / 3 else -4
    beside(axes, words, (x, y), gap, va="center", color=MUTED, annotation_clip=False)
