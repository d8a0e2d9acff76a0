"""A sweep of tile parameters: what each tile takes, and its rate beside cuBLAS."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.charts.bars import RATES_RIGHT, name_rates, rate_bar, reference_line
from worklog.plots.figure import ACCENT, MUTED, SMALL_PT
from worklog.plots.page import Sketch, beside, on_axes, right_of
from worklog.plots.selection import CUBLAS, dimensions, measured, no_time, rate, share
from worklog.runs import Run

if TYPE_CHECKING:
    from worklog.runner.sweep import Variant, Variants

ROW, BAR, BELOW = 0.19, 0.12, 0.36  # inches


@on_axes
def sweep(variants: Variants, run: Run | None = None) -> Sketch:
    """One row per variant: tile, registers, spills and resident warps, and TFLOP/s as a bar beside cuBLAS, fastest
    first. Without a run, or for variants that are not in it, the row has no bar. Raises NothingToDraw where no variant
    can be built.
    """
    if not variants.kept:
        raise NothingToDraw(f"no tile is left: {variants.preview()}")
    times = {m.kernel: m for m in run.select(shape=variants.shape)} if run else {}
    rates = {name: m.tflops or 0.0 for name, m in times.items() if measured(m)}
    order = sorted(variants.kept, key=lambda variant: -rates.get(variant.name, 0.0))
    footer = [f"registers, spills and warps per SM: compiled for {variants.arch}"]
    if run:
        others = Counter(m.label for m in times.values() if m.label not in ("", run.label))
        footer += [run.full_label, *(f"{label}: {count} of these tiles" for label, count in others.items())]
    else:
        tiles = " ".join(f"--axis {axis.name}={','.join(map(str, axis.values))}" for axis in variants.space.axes)
        command = f"worklog sweep {variants.rung.name} {tiles} --size {variants.shape}"
        footer += [f"no times: not recorded; on a GPU, {command} measures them"]
    said = {}
    for variant in order:
        m = times.get(variant.name)
        said[variant.name] = no_time(m) if m else "not measured"
        if m and measured(m):
            said[variant.name] = f"{rate(m.tflops)} · {share(m)}"
    timed, registers = [rates[v.name] for v in order if v.name in rates], [v.registers for v in order]
    finding = f"{variants.rung.name}: {len(order)} tiles of {min(registers)} to {max(registers)} registers per thread"
    if len(timed) == 1:
        finding = f"{variants.rung.name}: one tile measured, {rate(timed[0])} TFLOP/s"
    elif timed:
        times_as_fast = f"{timed[0] / timed[-1]:.2g} times as fast as the worst"
        finding = f"{variants.rung.name}: the best of {len(timed)} tiles is {times_as_fast}"
    subtitle = (
        f"C = A·B in FP32, {dimensions(variants.shape)}. One row per tile: median TFLOP/s with its 95 % interval, and "
        "% of cuBLAS."
    )
    names = [_made_of(variant) for variant in order]
    alt = [finding, *(f"{name}: {words}" for name, words in zip(names, said.values(), strict=True))]

    def draw(axes: Axes) -> None:
        places = [ROW * (index + 0.5) for index in range(len(order))]
        name_rates(axes, ROW * len(order), max(rates.values(), default=1.0), names, places)
        for y, (name, words) in zip(places, said.items(), strict=True):
            if name in rates:
                rate_bar(axes, times[name], y, BAR, words, SMALL_PT, ACCENT, rates.get(CUBLAS, 0.0))
            else:
                beside(axes, words, (0, y), 3, color=MUTED)
        if not rates:
            axes.set(xticks=[], xlabel="")
            axes.spines["bottom"].set_visible(False)
        if CUBLAS in rates:
            reference_line(axes, rates[CUBLAS], f"cuBLAS {rate(rates[CUBLAS])}", -0.05)

    return Sketch(
        "sweep", finding, subtitle, footer, alt, draw, ROW * len(order),
        left=right_of(names), right=RATES_RIGHT, above=0.25, below=BELOW,
    )  # fmt: skip


def _made_of(variant: Variant) -> str:
    """The tile, and what the compiler reports."""
    tile = " ".join(f"{name} {value}" for name, value in variant.values.items())
    spilled = f" · {variant.spilled_bytes} B spilled" if variant.spilled_bytes else ""
    return f"{tile} · {variant.registers} registers{spilled} · {variant.resident.warps} warps"
