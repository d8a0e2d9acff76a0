"""A table of numbers as bars: each name is a row, each column a panel with a scale of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from worklog.errors import NothingToDraw
from worklog.plots.figure import ACCENT, GREY, MUTED, SMALL_PT, WIDTH_IN, Chart, styled, text_width, wrap
from worklog.plots.page import beside, page, right_of
from worklog.plots.selection import Size, shape_to_draw
from worklog.runs import Run

ROW, BAR, LINE, GAP, RIGHT = 0.24, 0.15, 0.16, 0.16, 0.1  # inches


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
        name: [written.format(c[name]).rstrip(".") if name in c else "–" for c in columns.values()] for name in names
    }
    alt = ["Bar chart"] + [
        f"{name}: " + ", ".join(f"{heading} {word}".strip() for heading, word in zip(columns, words, strict=True))
        for name, words in said.items()
    ]
    left, room = right_of(names), max(text_width(word, SMALL_PT) for words in said.values() for word in words) + 0.1
    wide = (WIDTH_IN - left - RIGHT + GAP) / len(columns) - GAP
    headings = [wrap(heading, SMALL_PT, wide) for heading in columns]
    head = LINE * (max(map(len, headings)) + 0.3)
    new = page("bars", title, subtitle, [source], alt, head + ROW * len(names))
    for index, (lines, column) in enumerate(zip(headings, columns.values(), strict=True)):
        x = left + index * (wide + GAP)
        axes = new.rows(x, new.body_bottom, wide, ROW, ["" if index else name for name in names])
        axes.set_xlim(0, (max(column.values(), default=0.0) or 1.0) * wide / (wide - room))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        new.lines(x, new.body_bottom + ROW * len(names) + LINE * (len(lines) + 0.2), lines, SMALL_PT, color=MUTED)
        for y, name in zip(axes.get_yticks(), names, strict=True):
            value = column.get(name, 0.0)
            axes.barh(y, value, BAR, color=ACCENT if accented is None or name in accented else GREY)
            beside(axes, said[name][index], (value, y), 3)
    return new.figure


def energy(run: Run, size: Size | None = None) -> Chart:
    """Of each kernel at one size: the energy of a launch, the average power, and the operations for each joule, as far
    as the run read the energy. Raises NothingToDraw, with the command, where it didn't.
    """
    shape = shape_to_draw(run, size)
    found = [m for m in run.select(shape=shape) if m.joules and m.watts and m.us]
    if not found:
        raise NothingToDraw(f"the run read no energy at {shape}: `worklog run --size {shape} --set energy_s=1`")
    best = min(found, key=lambda m: m.joules or 0.0)
    unit, scale = ("J", 1.0) if (best.joules or 0.0) > 0.1 else ("mJ", 1e3)
    columns = {
        f"{unit} a launch": {m.kernel: scale * (m.joules or 0.0) for m in found},
        "W": {m.kernel: m.watts or 0.0 for m in found},
        "GFLOP a joule": {m.kernel: shape.flops / (m.joules or 1.0) / 1e9 for m in found},
    }
    subtitle = "Launches in a row with a warm L2, by NVML's counter of the whole card."
    title = f"{best.kernel} needs the least energy at {shape}: {scale * (best.joules or 0.0):.3g} {unit} a launch"
    return bars(title, columns, run.full_label, subtitle=subtitle, accented=[best.kernel])
