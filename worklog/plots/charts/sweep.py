"""A sweep of tile parameters: what each tile takes, and its rate beside cuBLAS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots.charts.bars import RATES_RIGHT, name_rates, rate_bar, reference_line
from worklog.plots.figure import ACCENT, SMALL_PT, styled
from worklog.plots.page import middles, on_axes, right_of
from worklog.plots.selection import CUBLAS, dimensions, measured, no_time, rate, share
from worklog.runs import Run

if TYPE_CHECKING:
    from worklog.runner.sweep import Variants

ROW, BAR = 0.19, 0.12  # inches


@styled()
def sweep(variants: Variants, run: Run, *, ax: Axes | None = None) -> Any:
    """One row per variant: tile, registers, spills and resident warps, and TFLOP/s as a bar beside cuBLAS, fastest
    first. For variants that are not in the run, the row has no bar. Returns a Chart, or `ax`. Raises NothingToDraw
    where no variant can be built.
    """
    if not variants.kept:
        raise NothingToDraw(f"no tile is left: {variants.preview()}")
    times = {m.kernel: m for m in run.select(shape=variants.shape)}
    rates = {name: m.tflops or 0.0 for name, m in times.items() if measured(m)}
    order = sorted(variants.kept, key=lambda variant: -rates.get(variant.name, 0.0))
    names, said = list[str](), dict[str, str]()
    for variant in order:
        m = times.get(variant.name)
        said[variant.name] = no_time(m) if m else "not measured"
        if m and measured(m):
            said[variant.name] = f"{rate(m.tflops)} · {share(m)}"
        tile = " ".join(f"{name} {value}" for name, value in variant.values.items())
        spilled = f" · {variant.spilled_bytes} B spilled" if variant.spilled_bytes else ""
        names.append(f"{tile} · {variant.registers} registers{spilled} · {variant.resident.warps} warps")
    others = [m.label for m in times.values() if m.label not in ("", run.label)]
    footer = [f"registers, spills and warps per SM: compiled for {variants.arch}", run.full_label]
    footer += [f"{label}: {others.count(label)} of these tiles" for label in dict.fromkeys(others)]
    timed, registers = [rates[v.name] for v in order if v.name in rates], [v.registers for v in order]
    finding = f"{len(order)} tiles of {min(registers)} to {max(registers)} registers per thread"
    if len(timed) == 1:
        finding = f"one tile measured, {rate(timed[0])} TFLOP/s"
    elif timed:
        finding = f"the best of {len(timed)} tiles is {timed[0] / timed[-1]:.2g} times as fast as the worst"
    finding = f"{variants.rung.name}: {finding}"
    subtitle = (
        f"C = A·B in FP32, {dimensions(variants.shape)}. One row per tile: median TFLOP/s with its 95 % interval, and "
        "% of cuBLAS."
    )
    alt = [finding, *(f"{name}: {words}" for name, words in zip(names, said.values(), strict=True))]
    height, places, cublas = ROW * len(order), middles(ROW, len(order)), rates.get(CUBLAS, 0.0)

    def draw(axes: Axes) -> None:
        name_rates(axes, height, max(rates.values(), default=1.0), names, places)
        for y, (name, words) in zip(places, said.items(), strict=True):
            rate_bar(axes, times.get(name), y, BAR, words, SMALL_PT, ACCENT, cublas)
        if cublas:
            reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", -0.05)

    left = right_of(names)
    return on_axes(ax, draw, "sweep", finding, subtitle, footer, alt, height, left, RATES_RIGHT, 0.25, 0.36)
