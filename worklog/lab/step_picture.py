"""A step of the ladder as a picture: where the rung stands among the others at this size; on a page of its own also
what it and the rung before it cost.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from worklog.lab.step_words import changed, gain, headline, sections, text
from worklog.lab.steps import Step
from worklog.plots.figure import Chart
from worklog.plots.page import Page, page
from worklog.plots.selection import CUBLAS, cublas_tflops, measured, rows
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    BODY_PT,
    FAINT,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    line_height,
    shorten,
    styled,
    text_width,
    wrap,
)
from worklog.runs.run import Measurement

# Inches.
ROW, BAR, NAME_ROOM, LABEL_ROOM, CAPTION, BELOW = 0.27, 0.18, 1.1, 1.05, 0.26, 0.36
BESIDE, WHOLE = 5.4, 7.0
VALUE_ROOM = 1.5  # of one rung's column in the table
GAP, PITCH = 0.16, 1.12 * line_height(BODY_PT)


@styled()
def body(step: Step) -> Chart:
    """The bars alone, for beside the words."""
    bars = _bars_height(step)
    height = CAPTION + bars + BELOW
    chart = Chart("step", headline(step), text(step), BESIDE, height + 0.1)
    _bars(Page(chart, BESIDE, 0.05, height), step, bars)
    return chart


@styled()
def whole(step: Step) -> Chart:
    """Bars and table on a page, with the number as its title, and the sources."""
    bars, told = _bars_height(step), sections(step)
    count = sum(len(facts) + 1 for _, facts in told)
    table = GAP + (count + 1) * PITCH + 0.1 * len(told)
    subtitle = " · ".join(part for part in (step.now.rung.idea, gain(step), changed(step)) if part)
    height = CAPTION + bars + BELOW + table
    sheet = page("step", headline(step), subtitle, list(step.notes) or [step.run.label], text(step), height, WHOLE)
    _bars(sheet, step, bars)
    _table(sheet, step, sheet.body_top - CAPTION - bars - BELOW - GAP)
    return sheet.figure


def _kernels(step: Step) -> list[Measurement]:
    return rows(step.run, step.shape)


def _bars_height(step: Step) -> float:
    return ROW * max(len(_kernels(step)), 1)


def _bars(sheet: Page, step: Step, height: float) -> None:
    """Every rung of the run at this size: this one and the one before in words and in colour, cuBLAS as a line."""
    kernels = _kernels(step)
    sheet.text(
        MARGIN_IN,
        sheet.body_top,
        f"TFLOP/s of every rung at {step.shape}, and its share of cuBLAS",
        SMALL_PT,
        color=MUTED,
        va="top",
    )
    left = MARGIN_IN + NAME_ROOM
    axes = sheet.axes(left, sheet.body_top - CAPTION - height, sheet.width - left - MARGIN_IN, height)
    axes.set_ylim(height, 0)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    timed = [m for m in kernels if measured(m)]
    if not timed:
        axes.set_axis_off()
        axes.text(0, 0.5, "nothing was timed at this size", transform=axes.transAxes, color=MUTED, va="center")
        return
    reference = cublas_tflops(kernels)
    wide = sheet.width - left - MARGIN_IN
    axes.set_xlim(0, max([reference, *(m.tflops or 0.0 for m in timed)]) * wide / (wide - LABEL_ROOM))
    axes.plot([reference, reference], [0, height], color=MUTED, linewidth=0.9, zorder=0.5)
    for index, m in enumerate(kernels):
        _bar(axes, step, m, ROW * (index + 0.5))
    axes.set_xlabel(f"the line is cuBLAS, {reference:.3g} TFLOP/s")


def _bar(axes: Axes, step: Step, m: Measurement, y: float) -> None:
    chosen = m.kernel == step.now.rung.name
    earlier = step.before is not None and m.kernel == step.before.rung.name
    rate = m.tflops or 0.0
    weight = "bold" if chosen else "normal"
    name = shorten(m.kernel, BODY_PT, NAME_ROOM - 0.15, bold=chosen)
    at: dict[str, Any] = dict(textcoords="offset points", va="center_baseline", annotation_clip=False)
    axes.annotate(name, (0, y), (-6, 0), ha="right", weight=weight, color=INK if chosen or earlier else MUTED, **at)
    if not measured(m):
        axes.annotate(m.status, (0, y), (5, 0), fontsize=SMALL_PT, color=MUTED, style="italic", **at)
        return
    axes.barh(y, rate, BAR, color=ACCENT if chosen else BASELINE if m.kernel != CUBLAS else FAINT)
    if earlier:
        axes.barh(y, rate, BAR, fill=False, edgecolor=ACCENT, linewidth=1.0)
    words = f"{rate:.3g} · {100 * (m.ratio or 0.0):.1f} %"
    behind = {"facecolor": PAPER, "pad": 1.0}
    axes.annotate(words, (rate, y), (5, 0), fontsize=SMALL_PT, color=INK, weight=weight, bbox=behind, **at)


def _table(sheet: Page, step: Step, top: float) -> None:
    """Facts of this rung and the one before it, under the labels of their sources."""
    columns = (
        [sheet.width - MARGIN_IN - VALUE_ROOM, sheet.width - MARGIN_IN] if step.before else [sheet.width - MARGIN_IN]
    )
    names = [step.now.rung.name] + ([step.before.rung.name] if step.before else [])
    for x, name in zip(columns, names, strict=True):
        sheet.text(x, top, shorten(name, BODY_PT, VALUE_ROOM, bold=True), weight="bold", ha="right", va="top")
    top -= PITCH
    for source, facts in sections(step):
        [label, *_] = wrap(source, SMALL_PT, sheet.width - 2 * MARGIN_IN, most=1)
        sheet.line((MARGIN_IN, top), (sheet.width - MARGIN_IN, top), color=FAINT, linewidth=0.6)
        sheet.text(MARGIN_IN, top - 0.03, label, SMALL_PT, color=MUTED, va="top")
        top -= PITCH
        for row in facts:
            sheet.text(MARGIN_IN, top, row.name, va="top")
            for x, value in zip(columns, [row.now, row.before], strict=False):
                points = BODY_PT * min(1.0, (VALUE_ROOM - 0.08) / max(text_width(value, BODY_PT), 0.01))
                sheet.text(x, top, value, points, ha="right", va="top", color=INK if x == columns[0] else MUTED)
            top -= PITCH
        top -= 0.1
