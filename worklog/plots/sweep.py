"""A sweep of tile parameters: the resources of each tile, known without running it, and its rate where it was
measured."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from worklog.errors import NothingToDraw
from worklog.plots.figure import ACCENT, ALERT, INK, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, Chart, styled, text_width
from worklog.plots.page import Page, beside, page
from worklog.plots.selection import CUBLAS, dimensions, measured, no_time, rate, rate_bar, reference_line
from worklog.runs import Run

if TYPE_CHECKING:
    from worklog.runner.sweep import Variant, Variants

ROW, BAR, ABOVE, BELOW, GAP, RIGHT = 0.19, 0.12, 0.32, 0.36, 0.16, 0.2


@styled()
def sweep(found: Variants, run: Run | None = None) -> Chart:
    """One row per variant: tile, registers, spills and resident warps as a table, and TFLOP/s as a bar beside cuBLAS,
    fastest first. Without a run, or for variants that are not in it, the row has no bar.

    Raises NothingToDraw where no variant can be built.
    """
    if not found.kept:
        raise NothingToDraw(f"no tile is left: {found.preview()}")
    times = {} if run is None else {m.kernel: m for m in run.select(shape=found.shape)}
    rates = {name: m.tflops or 0.0 for name, m in times.items() if measured(m)}
    order = sorted(found.kept, key=lambda variant: -rates.get(variant.name, 0.0))
    footer = [f"registers, spills and warps: compiled for {found.arch}"]
    footer += [run.full_label] if run is not None else [f"no times: {_how(found)}"]
    others = Counter(m.label for m in times.values() if run is not None and m.label not in ("", run.label))
    footer += [f"{label}: {count} of these tiles" for label, count in others.items()]
    shown = "One row per tile: median TFLOP/s with its 95 % interval, and % of cuBLAS."
    subtitle, finding = f"C = A·B in FP32, {dimensions(found.shape)}. {shown}", _finding(found.rung.name, order, rates)
    alt = [finding] + [
        f"{v.name}: {v.registers} registers, {f'{rate(rates[v.name])} TFLOP/s' if v.name in rates else 'not measured'}"
        for v in order
    ]
    new = page("sweep", finding, subtitle, footer, alt, ABOVE + ROW * len(order) + BELOW)
    left = _table(new, order)
    axes = new.rows(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, ROW, [""] * len(order))
    axes.set_xlim(0, 1.06 * max(rates.values(), default=1.0))
    for y, variant in zip(axes.get_yticks(), order, strict=True):
        m = times.get(variant.name)
        if m is None or not measured(m):
            beside(axes, "not measured" if m is None else no_time(m), (0, y), 3, color=MUTED)
        else:
            words = f"{rate(m.tflops)} · {100 * (m.ratio or 0):.1f} %"
            rate_bar(axes, m, y, BAR, words, SMALL_PT, ACCENT, rates.get(CUBLAS, 0.0))
    if rates:
        axes.set_xlabel("TFLOP/s")
    else:
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    if CUBLAS in rates:
        reference_line(axes, rates[CUBLAS], f"cuBLAS {rate(rates[CUBLAS])}", -0.05)
    return new.figure


def _table(new: Page, order: list[Variant]) -> float:
    """The tile and what the compiler reports, a column each; return where the bars start, in inches."""
    columns = {name: [str(variant.values[name]) for variant in order] for name in order[0].values}
    columns["registers"] = [str(variant.registers) for variant in order]
    if any(variant.spilled_bytes for variant in order):
        columns["spilled B"] = [str(variant.spilled_bytes) for variant in order]
    columns["warps/SM"] = [str(variant.resident.warps) for variant in order]
    x, top = MARGIN_IN, new.body_top - ABOVE
    for name, words in columns.items():
        x += max(text_width(word, SMALL_PT) for word in (name, *words))
        new.text(x, top + 0.04, name, SMALL_PT, ha="right", va="bottom", color=MUTED)
        for index, word in enumerate(words):
            colour = ALERT if name == "spilled B" and word != "0" else INK
            new.text(x, top - ROW * (index + 0.5), word, SMALL_PT, ha="right", va="center_baseline", color=colour)
        x += GAP
    return x


def _finding(name: str, order: list[Variant], rates: dict[str, float]) -> str:
    timed = [rates[variant.name] for variant in order if variant.name in rates]
    if not timed:
        registers = [variant.registers for variant in order]
        return f"{name}: {len(order)} tiles of {min(registers)} to {max(registers)} registers per thread"
    if len(timed) == 1:
        return f"{name}: one tile measured, {rate(timed[0])} TFLOP/s"
    return f"{name}: the best of {len(timed)} tiles is {timed[0] / timed[-1]:.2g} times as fast as the worst"


def _how(found: Variants) -> str:
    axes = " ".join(f"--axis {axis.name}={','.join(map(str, axis.values))}" for axis in found.space.axes)
    return f"not recorded; on a GPU, worklog sweep {found.rung.name} {axes} --size {found.shape} measures them"
