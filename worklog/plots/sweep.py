"""A sweep of tile parameters: what each tile spends, known without running it, and how fast it was where that was
measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.figure import Chart
from worklog.plots.page import Page, page
from worklog.plots.selection import CUBLAS, dimensions, measured
from worklog.plots.style import (
    ACCENT,
    BASELINE,
    INK,
    LIE,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
    styled,
    text_width,
)
from worklog.runs.run import Measurement, Run

if TYPE_CHECKING:
    from worklog.bench.sweep import Variant, Variants

ROW, BAR, ABOVE, BELOW, GAP, RIGHT = 0.19, 0.12, 0.32, 0.36, 0.16, 0.2
Column = tuple[str, list[str]]


@styled()
def sweep(found: Variants, run: Run | None = None) -> Chart:
    """One row a variant: tile, registers, spills and resident warps as a table, and TFLOP/s as a bar beside cuBLAS,
    fastest first. Without a run, or for variants that are not in it, the row says that there is no time.

    Raises NothingToDraw where no variant can be built.
    """
    if not found.kept:
        raise NothingToDraw(f"no tile is left: {found.preview()}")
    times = {} if run is None else {m.kernel: m for m in run.select(shape=found.shape)}
    order = sorted(found.kept, key=lambda variant: -_rate(times.get(variant.name)))
    columns = _columns(order)
    widths = [max(text_width(word, SMALL_PT) for word in (name, *words)) for name, words in columns]
    left = MARGIN_IN + sum(widths) + GAP * len(widths)
    height = ROW * len(order)
    footer = [f"registers, spills and warps: compiled for {found.arch}"]
    footer += [run.full_label] if run is not None else [f"no times: {_how(found)}"]
    new = page(
        "sweep", _finding(order, times), _subtitle(found), footer, _alt(order, times, footer), ABOVE + height + BELOW
    )
    top = new.body_top - ABOVE
    _table(new, columns, widths, top)
    axes = new.axes(left, top - height, WIDTH_IN - left - RIGHT, height)
    rates = [_rate(times.get(variant.name)) for variant in order] + [_rate(times.get(CUBLAS))]
    axes.set(xlim=(0, 1.06 * max(*rates, 1e-9)), ylim=(height, 0), yticks=[])
    axes.spines["left"].set_visible(False)
    for index, variant in enumerate(order):
        _bar(axes, times.get(variant.name), ROW * (index + 0.5), max(rates))
    if max(rates) > 0:
        axes.set_xlabel("TFLOP/s")
        _reference(axes, rates[-1])
    else:
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    return new.figure


def _rate(m: Measurement | None) -> float:
    return m.tflops if m is not None and measured(m) and m.tflops else 0.0


def _columns(order: list[Variant]) -> list[Column]:
    """The axes, and what the compiler says."""
    columns = [(name, [str(variant.values[name]) for variant in order]) for name in order[0].values]
    columns.append(("registers", [str(variant.registers) for variant in order]))
    if any(variant.spilled_bytes for variant in order):
        columns.append(("spilled B", [str(variant.spilled_bytes) for variant in order]))
    columns.append(("warps/SM", [str(variant.resident.warps) for variant in order]))
    return columns


def _table(new: Page, columns: list[Column], widths: list[float], top: float) -> None:
    x = MARGIN_IN
    for (name, words), width in zip(columns, widths, strict=True):
        new.text(x + width, top + 0.04, name, SMALL_PT, ha="right", va="bottom", color=MUTED)
        for index, word in enumerate(words):
            colour = LIE if name == "spilled B" and word != "0" else INK
            y = top - ROW * (index + 0.5)
            new.text(x + width, y, word, SMALL_PT, ha="right", va="center_baseline", color=colour)
        x += width + GAP


def _bar(axes: Axes, m: Measurement | None, y: float, most: float) -> None:
    if m is None or not measured(m):
        words = "not measured" if m is None else f"{m.status}: {m.reason or 'no reason given'}"
        axes.annotate(
            words, (0, y), (3, 0), textcoords="offset points", va="center_baseline", fontsize=SMALL_PT, color=MUTED
        )
        return
    rate = _rate(m)
    axes.barh(y, rate, BAR, color=ACCENT)
    low, high = (rate * (m.us or 0.0) / us if us else rate for us in (m.us_high, m.us_low))
    axes.errorbar(rate, y, xerr=[[rate - low], [high - rate]], color=INK, elinewidth=0.8, capsize=1.5, capthick=0.8)
    inside = rate > most / 3
    axes.annotate(
        f"{rate:.1f} · {100 * (m.ratio or 0):.1f} %",
        (low if inside else high, y),
        (-3 if inside else 3, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center_baseline",
        fontsize=SMALL_PT,
        color=PAPER if inside else INK,
    )


def _reference(axes: Axes, cublas: float) -> None:
    if not cublas:
        return
    axes.plot([cublas, cublas], [-0.05, axes.get_ylim()[0]], color=BASELINE, linewidth=1.2, zorder=0.5, clip_on=False)
    how: dict[str, Any] = {
        "textcoords": "offset points",
        "ha": "right",
        "va": "bottom",
        "fontsize": SMALL_PT,
        "color": MUTED,
    }
    axes.annotate(f"cuBLAS {cublas:.1f}", (cublas, -0.05), (0, 1), annotation_clip=False, **how)


def _finding(order: list[Variant], times: dict[str, Measurement]) -> str:
    timed = [variant for variant in order if _rate(times.get(variant.name))]
    if not timed:
        registers = [variant.registers for variant in order]
        return f"{order[0].record.name}: {len(order)} tiles of {min(registers)} to {max(registers)} registers a thread"
    best, worst = _rate(times[timed[0].name]), _rate(times[timed[-1].name])
    if len(timed) == 1:
        return f"{order[0].record.name}: one tile measured, {best:.1f} TFLOP/s"
    return f"{order[0].record.name}: the best of {len(timed)} tiles is {best / worst:.2g} times as fast as the worst"


def _subtitle(found: Variants) -> str:
    shown = "One row a tile: median TFLOP/s with its 95 % interval, and % of cuBLAS."
    return f"C = A·B in FP32, {dimensions(found.shape)}. {shown}"


def _how(found: Variants) -> str:
    axes = " ".join(f"--axis {axis.name}={','.join(map(str, axis.values))}" for axis in found.space.axes)
    return f"not recorded; on a GPU, worklog sweep {found.rung.name} {axes} --size {found.shape} measures them"


def _alt(order: list[Variant], times: dict[str, Measurement], footer: list[str]) -> str:
    rows = []
    for variant in order:
        rate = _rate(times.get(variant.name))
        rows.append(
            f"{variant.name}: {variant.registers} registers, " + (f"{rate:.1f} TFLOP/s" if rate else "not measured")
        )
    return f"{_finding(order, times)}. {'; '.join(rows)}. Source: {'; '.join(footer)}."
