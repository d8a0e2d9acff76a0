"""Rows of horizontal bars: a table of numbers, measured rates with their interval beside cuBLAS, and a sweep of tile
parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, GREY, INK, MARGIN_IN, MUTED, PAPER, SMALL_PT, WIDTH_IN, Chart, styled
from worklog.plots.page import Page, beside, page, plain_rows, right_of, widest
from worklog.plots.selection import CUBLAS, Size, dimensions, interval, measured, no_time, rate, shape_to_draw, share
from worklog.runs import Measurement, Run

if TYPE_CHECKING:
    from worklog.runner.sweep import Variant, Variants

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
    headings = [figure.wrap(heading, SMALL_PT, wide) for heading in columns]
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
    """Of each kernel at one size: the energy of a launch, the average power, and the operations for each joule, of a
    recording that holds the energy. Raises NothingToDraw for another run.
    """
    shape = shape_to_draw(run, size)
    watts = {m.kernel: m.watts for m in run.select(shape=shape) if m.joules and m.watts and m.us}
    joules = {m.kernel: m.joules for m in run.select(shape=shape) if m.kernel in watts and m.joules}
    if not joules:
        raise NothingToDraw(f"the run read no energy at {shape}: the recording settings/h200_power has it")
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
    middle, (low, high) = m.tflops or 0.0, interval(m)
    axes.barh(y, middle, height, color=colour)
    whiskers = [[max(middle - low, 0.0)], [max(high - middle, 0.0)]]
    axes.errorbar(middle, y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=10 * height, capthick=1.0)
    room = (figure.text_width(words, points) + 0.2) * axes.get_xlim()[1] * axes.figure.dpi / axes.bbox.width  # TFLOP/s
    start, end = max(middle, high), min(middle, low)
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


TILE_ROW, TILE_BAR, ABOVE, BELOW, COLUMN_GAP = 0.19, 0.12, 0.32, 0.36, 0.16  # inches


@styled()
def sweep(found: Variants, run: Run | None = None) -> Chart:
    """One row per variant: tile, registers, spills and resident warps as a table, and TFLOP/s as a bar beside cuBLAS,
    fastest first. Without a run, or for variants that are not in it, the row has no bar.

    Raises NothingToDraw where no variant can be built.
    """
    if not found.kept:
        raise NothingToDraw(f"no tile is left: {found.preview()}")
    times = {m.kernel: m for m in run.select(shape=found.shape)} if run else {}
    rates = {name: m.tflops or 0.0 for name, m in times.items() if measured(m)}
    order = sorted(found.kept, key=lambda variant: -rates.get(variant.name, 0.0))
    footer = [f"registers, spills and warps: compiled for {found.arch}"]
    if run:
        others = Counter(m.label for m in times.values() if m.label not in ("", run.label))
        footer += [run.full_label, *(f"{label}: {count} of these tiles" for label, count in others.items())]
    else:
        tiles = " ".join(f"--axis {axis.name}={','.join(map(str, axis.values))}" for axis in found.space.axes)
        command = f"worklog sweep {found.rung.name} {tiles} --size {found.shape}"
        footer += [f"no times: not recorded; on a GPU, {command} measures them"]
    timed, registers = [rates[v.name] for v in order if v.name in rates], [v.registers for v in order]
    finding = f"{found.rung.name}: {len(order)} tiles of {min(registers)} to {max(registers)} registers per thread"
    if timed:
        finding = f"{found.rung.name}: one tile measured, {rate(timed[0])} TFLOP/s"
    if len(timed) > 1:
        times_as_fast = f"{timed[0] / timed[-1]:.2g} times as fast as the worst"
        finding = f"{found.rung.name}: the best of {len(timed)} tiles is {times_as_fast}"
    subtitle = (
        f"C = A·B in FP32, {dimensions(found.shape)}. One row per tile: median TFLOP/s with its 95 % interval, and % "
        "of cuBLAS."
    )
    alt = [finding] + [
        f"{v.name}: {v.registers} registers, {f'{rate(rates[v.name])} TFLOP/s' if v.name in rates else 'not measured'}"
        for v in order
    ]
    height = TILE_ROW * len(order)
    new = page("sweep", finding, subtitle, footer, alt, ABOVE + height + BELOW)
    places, most = [TILE_ROW * (index + 0.5) for index in range(len(order))], max(rates.values(), default=1.0)
    axes = rate_axes(new, _table(new, order), BELOW, height, most, [""] * len(order), places)
    for y, variant in zip(places, order, strict=True):
        m = times.get(variant.name)
        if m and measured(m):
            rate_bar(axes, m, y, TILE_BAR, f"{rate(m.tflops)} · {share(m)}", SMALL_PT, ACCENT, rates.get(CUBLAS, 0.0))
        else:
            beside(axes, no_time(m) if m else "not measured", (0, y), 3, color=MUTED)
    if not rates:
        axes.set(xticks=[], xlabel="")
        axes.spines["bottom"].set_visible(False)
    if CUBLAS in rates:
        reference_line(axes, rates[CUBLAS], f"cuBLAS {rate(rates[CUBLAS])}", -0.05)
    return new.figure


def _table(new: Page, order: list[Variant]) -> float:
    """The tile and what the compiler reports, a column each; return where the bars start, in inches."""
    columns = {name: [variant.values[name] for variant in order] for name in order[0].values}
    columns["registers"] = [variant.registers for variant in order]
    if any(variant.spilled_bytes for variant in order):
        columns["spilled B"] = [variant.spilled_bytes for variant in order]
    columns["warps/SM"] = [variant.resident.warps for variant in order]
    x, top = MARGIN_IN, new.body_top - ABOVE
    for name, numbers in columns.items():
        x += widest([name, *map(str, numbers)], SMALL_PT)
        new.text(x, top + 0.04, name, SMALL_PT, ha="right", va="bottom", color=MUTED)
        for index, number in enumerate(numbers):
            colour = ALERT if name == "spilled B" and number else INK
            y = top - TILE_ROW * (index + 0.5)
            new.text(x, y, str(number), SMALL_PT, ha="right", va="center_baseline", color=colour)
        x += COLUMN_GAP
    return x
