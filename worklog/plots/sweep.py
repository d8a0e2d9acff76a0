"""A sweep of tile parameters: the resources of each tile, known without running it, and its rate where it was
measured."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from worklog.errors import NothingToDraw
from worklog.plots.bars import rate_axes, rate_bar, reference_line
from worklog.plots.figure import ACCENT, ALERT, INK, MARGIN_IN, MUTED, SMALL_PT, Chart, styled
from worklog.plots.page import Page, beside, page, widest
from worklog.plots.selection import CUBLAS, dimensions, measured, no_time, rate, share
from worklog.runs import Run

if TYPE_CHECKING:
    from worklog.runner.sweep import Variant, Variants

ROW, BAR, ABOVE, BELOW, GAP = 0.19, 0.12, 0.32, 0.36, 0.16  # inches


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
    height = ROW * len(order)
    new = page("sweep", finding, subtitle, footer, alt, ABOVE + height + BELOW)
    places, most = [ROW * (index + 0.5) for index in range(len(order))], max(rates.values(), default=1.0)
    axes = rate_axes(new, _table(new, order), BELOW, height, most, [""] * len(order), places)
    for y, variant in zip(places, order, strict=True):
        m = times.get(variant.name)
        if m and measured(m):
            rate_bar(axes, m, y, BAR, f"{rate(m.tflops)} · {share(m)}", SMALL_PT, ACCENT, rates.get(CUBLAS, 0.0))
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
            y = top - ROW * (index + 0.5)
            new.text(x, y, str(number), SMALL_PT, ha="right", va="center_baseline", color=colour)
        x += GAP
    return x
