"""The rate of each kernel against its largest error, at one size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from worklog.errors import NothingToDraw
from worklog.kernel import RUNGS
from worklog.plots import selection, style
from worklog.plots.marks import Point, annotate, leave_room, name_points, scale
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.selection import ON_TENSOR_CORES, dimensions, measured, rate, rows
from worklog.plots.style import ACCENT, BODY_PT, DEFLATES, MUTED, PAPER
from worklog.problem import Shape, Size
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


ON_FP32_CORES = {rung.name for rung in RUNGS} - ON_TENSOR_CORES
HEIGHT = 2.95  # inches
MARGINS = Margins(left=0.69, above=0.2, below=0.45)


SAME = 0.02  # of an error
UNIT = "u·D, with u = 2⁻²⁴ and D the 2-norm of an element's K products"
Errors = Mapping[str, tuple[float, float]]  # by kernel: its largest error and its limit, in u·D


@style.chart
def accuracy(run: Run, size: Size | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw TFLOP/s of each measured kernel against its largest error, at one size.

    The errors are on U(-1, 1). The limit of the class fp32 is a line. Kernels of the class fp32
    are drawn full, the others hollow. Rungs on tensor cores have another colour than those on FP32
    cores, and kernels that aren't rungs are grey. Returns a Chart, or `ax`. Raises NothingToDraw if
    fewer than two kernels have an error, or none has the class fp32, and BadSetting for a size that
    can't be.
    """
    shape = selection.shape_to_draw(run, size)
    kernels = dict[str, Measurement]()
    errors = dict[str, tuple[float, float]]()
    for m in rows(run, shape):
        error = selection.error_of(m)
        if measured(m) and error is not None:
            kernels[m.kernel] = m
            errors[m.kernel] = error
    precise = {name: m for name, m in kernels.items() if selection.class_of(m) == "fp32"}
    if len(errors) < 2 or not precise:
        raise NothingToDraw(
            f"fewer than two kernels have a measured error at size {shape}, or none has the class "
            "fp32: measure them with the gate"
        )
    limit = errors[next(iter(precise))][1]
    points = {name: (error, kernels[name].tflops or 0.0) for name, (error, _) in errors.items()}
    texts = Texts(
        "accuracy",
        finding=_finding(precise.values(), errors),
        subtitle=_subtitle(shape, points),
        footer=selection.labels(run, kernels.values()),
        alt=_alt(shape, points, limit),
    )

    def draw(axes: Axes) -> None:
        names = {name: f"{name} {rate(tflops)}" for name, (_, tflops) in points.items()}
        leave_room(axes, names.values(), BODY_PT)
        _error_axes(axes, points.values(), limit)
        looks = dict[str, dict[str, Any]]()
        for name, point in points.items():
            is_rung = name in ON_TENSOR_CORES | ON_FP32_CORES
            looks[names[name]] = {"fontsize": BODY_PT} if is_rung else {"color": MUTED}
            _draw_point(axes, point, _core_colour(name), is_hollow=name not in precise)
        name_points(axes, {names[name]: point for name, point in points.items()}, looks)

    return on_axes(ax, draw, texts, height=HEIGHT, margins=MARGINS)


def _finding(precise: Iterable[Measurement], errors: Errors) -> str:
    """Return the fastest kernel of class fp32, compared with cuBLAS."""
    best = max(precise, key=lambda m: m.ratio or 0.0)
    if best.kernel == CUBLAS or CUBLAS not in errors:
        return f"{best.kernel} is the fastest kernel with FP32's error"
    ratio = errors[best.kernel][0] / errors[CUBLAS][0]
    error = f"{ratio:.1f} times its error"
    if abs(ratio - 1) < SAME:
        error = "the same error"
    elif ratio < 1:
        error = "less error"
    return f"{best.kernel} is {best.ratio or 0.0:.2f} times as fast as cuBLAS, with {error}"


def _subtitle(shape: Shape, points: Mapping[str, Point]) -> str:
    """Return the explanation of both axes and of the points."""
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}; both axes are logarithmic. The largest error is in "
        f"{UNIT}. Full: the class fp32, which limits the rms, too; dashed: its limit of the "
        "largest error."
    )
    if ON_FP32_CORES & points.keys():
        subtitle += " Muted blue: FP32 cores."
    return subtitle


def _alt(shape: Shape, points: Mapping[str, Point], limit: float) -> list[str]:
    """Return the alt text: each kernel's rate and error, and the limit of the class fp32."""
    alt = [f"Scatter chart of TFLOP/s against the largest error at {dimensions(shape)}"]
    for name, (error, tflops) in points.items():
        alt.append(f"{name} {rate(tflops)} TFLOP/s with {_plain(error)} u·D")
    alt.append(f"limit of the class fp32: {_plain(limit)} u·D")
    return alt


def _plain(number: float) -> str:
    """Return three digits, without an exponent, which a screen reader would spell."""
    return f"{float(f'{number:.3g}'):.15g}"


def _core_colour(kernel: str) -> str:
    """Return a kernel's colour, by the cores that it runs on; muted if it isn't a rung."""
    if kernel in ON_TENSOR_CORES:
        return ACCENT
    return DEFLATES if kernel in ON_FP32_CORES else MUTED


def _draw_point(axes: Axes, point: Point, colour: str, is_hollow: bool) -> None:
    """Draw a kernel's point."""
    axes.plot(
        *point,
        "o",
        color=colour,
        markerfacecolor=PAPER if is_hollow else colour,
        markersize=6,
        zorder=3,
    )


def _error_axes(axes: Axes, points: Iterable[tuple[float, float]], limit: float) -> None:
    """Prepare axes for errors and rates, with a line at the limit of the class fp32."""
    errors, rates = zip(*points, strict=True)
    ticks = (1, 3) if max(errors) < 300 * min(errors) else (1,)
    error_limits = (min(errors) / 2, max(*errors, limit) * 1.5)
    rate_limits = (min(rates) / 1.4, 1.4 * max(rates))
    scale(axes.xaxis, LogLocator(10, ticks), "largest error, u·D", error_limits, log=10)
    scale(axes.yaxis, LogLocator(10, (1, 2, 5)), "TFLOP/s", rate_limits, log=10)
    axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.0, zorder=1)
    top = (limit, axes.get_ylim()[1])
    annotate(axes, "limit of class fp32", top, gap=-4, lift=2, color=MUTED, va="bottom")
