"""Error and speed: each kernel's largest error, as the gate measured it, beside its rate; how errors grow with K."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.kernel import RUNGS
from worklog.plots import selection
from worklog.plots.charts.lines import FIRST, draw_lines
from worklog.plots.figure import ACCENT, BODY_PT, DEFLATES, INK, MUTED, PAPER, Chart, styled
from worklog.plots.page import beside, leave_room, name_points, on_axes, scale
from worklog.plots.selection import CUBLAS, ON_TENSOR_CORES, Size, class_of, dimensions, error_of, measured, rate
from worklog.runs import Run

INCHES = {"height": 2.95, "left": 0.69, "above": 0.2, "below": 0.45}
SAME = 0.02  # of an error
UNIT = "u·D, with u = 2⁻²⁴ and D the 2-norm of an element's K products"


@styled()
def accuracy(run: Run, size: Size | None = None, *, ax: Axes | None = None) -> Any:
    """TFLOP/s of each measured kernel against its largest error on U(-1, 1), and the limit of the class fp32, at one
    size. Returns a Chart, or `ax`.

    Kernels of the class fp32 are drawn full, the others hollow; rungs on tensor cores have another colour than those on
    FP32 cores, and what is no rung is grey. Raises NothingToDraw where fewer than two kernels have an error, or none
    has the class fp32; BadSetting.
    """
    shape = selection.shape_to_draw(run, size)
    kernels = {m.kernel: m for m in selection.rows(run, shape) if measured(m) and error_of(m)}
    errors = {name: error for name, m in kernels.items() if (error := error_of(m))}
    precise = {name: m.ratio or 0.0 for name, m in kernels.items() if class_of(m) == "fp32"}
    if len(errors) < 2 or not precise:
        raise NothingToDraw(
            f"fewer than two kernels have a measured error at size {shape}, or none has the class fp32: measure them "
            "with the gate"
        )
    best = max(precise, key=precise.__getitem__)
    limit = errors[next(iter(precise))][1]
    points = {name: (error, kernels[name].tflops or 0.0) for name, (error, _) in errors.items()}
    finding = f"{best} is the fastest kernel with FP32's error"
    if best != CUBLAS and CUBLAS in errors:
        times = errors[best][0] / errors[CUBLAS][0]
        than = "less error" if times < 1 else f"{times:.1f} times its error"
        than = "the same error" if abs(times - 1) < SAME else than
        finding = f"{best} is {precise[best]:.2f} times as fast as cuBLAS, with {than}"
    on_fp32_cores = {rung.name for rung in RUNGS} - ON_TENSOR_CORES
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. The largest error is in {UNIT}. Full: the class fp32, which limits the "
        "rms, too; dashed: its limit of the largest error."
    )
    if on_fp32_cores & points.keys():
        subtitle += " Muted blue: FP32 cores."
    alt = [f"Scatter chart of TFLOP/s against the largest error at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s with {x:.3g} u·D" for name, (x, y) in points.items()]
    alt += [f"limit of the class fp32: {limit:.3g} u·D"]

    def draw(axes: Axes) -> None:
        names = {name: f"{name} {rate(y)}" for name, (_, y) in points.items()}
        leave_room(axes, names.values(), BODY_PT)
        xs, ys = zip(*points.values(), strict=True)
        at = LogLocator(10, (1, 3) if max(xs) < 300 * min(xs) else (1,), numticks=99)
        scale(axes.xaxis, at, "largest error, u·D", (min(xs) / 2, max(*xs, limit) * 2), log=10)
        scale(axes.yaxis, MaxNLocator(6), "TFLOP/s", (0, 1.1 * max(ys)))
        axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.0, zorder=1)
        beside(axes, "limit of class fp32", (limit, axes.get_ylim()[1]), -4, 2, color=MUTED, va="bottom")
        looks = dict[str, dict[str, Any]]()
        for name, (x, y) in points.items():
            colour, looks[names[name]] = MUTED, {"color": MUTED}
            if name in ON_TENSOR_CORES | on_fp32_cores:
                colour = ACCENT if name in ON_TENSOR_CORES else DEFLATES
                looks[names[name]] = {"fontsize": BODY_PT}
            face = colour if name in precise else PAPER
            axes.plot(x, y, "o", color=colour, markerfacecolor=face, markersize=6, zorder=3)
        name_points(axes, {names[name]: point for name, point in points.items()}, looks)

    return on_axes(ax, draw, "accuracy", finding, subtitle, selection.labels(run, kernels.values()), alt, **INCHES)


@styled()
def error_growth(
    finding: str, curves: Mapping[str, Mapping[int, float]], limit: Mapping[int, float], label: str
) -> Chart:
    """Errors against K, log-log: one line per way to compute. finding: the title. curves: by name, the rms error by K,
    in u·D; the first one is accented. limit: of the class fp32, dashed. label: the source.
    """
    alt = ["Line chart, log-log, of the rms error in u·D against K"]
    alt += [f"{name}: " + ", ".join(f"{y:.3g} at {k}" for k, y in line.items()) for name, line in curves.items()]
    subtitle = f"The rms error is in {UNIT}. Dashed: the limit of the class fp32."

    def draw(axes: Axes) -> None:
        leave_room(axes, curves, BODY_PT)
        scale(axes.xaxis, sorted({k for line in curves.values() for k in line}), "K", log=2)
        scale(axes.yaxis, LogLocator(10, numticks=99), "rms error, u·D", log=10)
        axes.plot([*limit], [*limit.values()], "--", color=MUTED, linewidth=1.0, zorder=1)
        first, *others = curves
        colours = {first: ACCENT} | dict.fromkeys(others, INK)
        ends = draw_lines(axes, {name: sorted(line.items()) for name, line in curves.items()}, colours)
        axes.grid(True, zorder=0)
        name_points(axes, ends, {first: FIRST})

    chart: Chart = on_axes(None, draw, "error_growth", finding, subtitle, [label], alt, **INCHES)
    return chart
