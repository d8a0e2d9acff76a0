"""Error and speed: each kernel's rms error, as the gate measured it, beside its rate, and how errors grow with K."""

from __future__ import annotations

import re
from collections.abc import Mapping

from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.errors import NothingToDraw
from worklog.kernel import RUNGS
from worklog.plots import figure
from worklog.plots.figure import ACCENT, BODY_PT, DEFLATES, INK, MUTED, PAPER, Chart
from worklog.plots.ladder import SECOND
from worklog.plots.lines import FIRST, draw_lines
from worklog.plots.page import beside, name_points, page, scale, widest
from worklog.plots.selection import CUBLAS, Size, dimensions, labels, measured, rate, rows, shape_to_draw
from worklog.runs import Measurement, Run

BODY, LEFT, BELOW, ABOVE = 3.6, 0.55, 0.45, 0.2  # inches
STAGE = "precision"
SAME = 0.02  # of an error: the gate states three digits
# As the gate's stage states it: the rms error, and the largest of the class fp32 at this K. In u·D.
STATED = re.compile(r"rms (\S+) u·D \(fp32 up to (\S+)\)")
UNIT = "u·D, with u = 2⁻²⁴ and D the 2-norm of an element's K products"


def error_of(m: Measurement) -> tuple[float, float] | None:
    """rms error of a measured kernel, and the largest of the class fp32, in u·D; None if its gate didn't measure it."""
    stages = (m.verdict or {}).get("stages", ())
    found = next((STATED.search(stage["detail"]) for stage in stages if stage["name"] == STAGE), None)
    return (float(found[1]), float(found[2])) if found else None


@figure.styled()
def accuracy(run: Run, size: Size | None = None) -> Chart:
    """TFLOP/s of each measured kernel against its rms error on U(-1, 1), and the limit of the class fp32, at one size.

    Kernels of the class fp32 are drawn full, the others hollow; rungs on tensor cores have another colour than those on
    FP32 cores, and others are grey. Raises NothingToDraw where fewer than two kernels have an error; BadSetting.
    """
    shape = shape_to_draw(run, size)
    found = {m.kernel: (m, error) for m in rows(run, shape) if measured(m) and (error := error_of(m))}
    if len(found) < 2:
        raise NothingToDraw(f"fewer than two kernels have a measured error at size {shape}: measure without --gate")
    points = {name: (error, m.tflops or 0.0) for name, (m, (error, _)) in found.items()}
    limit = next(limit for _, (_, limit) in found.values())
    first = {one.name for one in RUNGS} - SECOND
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}. The rms error is in {UNIT}; left of the line is the class fp32. "
        "Higher is faster, further left is more precise."
    )
    subtitle += " Muted blue: FP32 cores." if first & points.keys() else ""
    alt = [f"Scatter chart of TFLOP/s against the rms error at {dimensions(shape)}"]
    alt += [f"{name} {rate(y)} TFLOP/s with {x:.3g} u·D" for name, (x, y) in points.items()]
    alt += [f"limit of the class fp32: {limit:.3g} u·D"]
    new = page("accuracy", _finding(found), subtitle, labels(run, (m for m, _ in found.values())), alt, BODY)
    names = {f"{name} {rate(y)}": name for name, (_, y) in points.items()}
    axes = new.before_names(widest(names), LEFT, BELOW, BODY - BELOW - ABOVE)
    errors, rates = zip(*points.values(), strict=True)
    at = LogLocator(10, (1, 3) if max(errors) < 300 * min(errors) else (1,), numticks=99)
    scale(axes.xaxis, at, "rms error, u·D", (min(errors) / 2, max(*errors, limit) * 2), log=10)
    scale(axes.yaxis, MaxNLocator(6), "TFLOP/s", (0, 1.1 * max(rates)))
    axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.0, zorder=1)
    beside(axes, "class fp32", (limit, axes.get_ylim()[1]), -4, 2, color=MUTED, va="bottom")
    for name, (x, y) in points.items():
        colour = ACCENT if name in SECOND else DEFLATES if name in first else MUTED
        axes.plot(x, y, "o", color=colour, markerfacecolor=colour if x <= limit else PAPER, markersize=6, zorder=3)
    ours = first | SECOND
    looks = {shown: {"fontsize": BODY_PT} if name in ours else {"color": MUTED} for shown, name in names.items()}
    name_points(axes, {shown: points[name] for shown, name in names.items()}, looks)
    return new.figure


def _finding(found: Mapping[str, tuple[Measurement, tuple[float, float]]]) -> str:
    precise = {name: m for name, (m, (error, limit)) in found.items() if error <= limit}
    if not precise:
        return "No kernel has FP32's error"
    best = max(precise, key=lambda name: precise[name].ratio or 0.0)
    if best == CUBLAS or CUBLAS not in found:
        return f"{best} is the fastest kernel with FP32's error"
    error, theirs = (found[name][1][0] for name in (best, CUBLAS))
    same = abs(error / theirs - 1) < SAME
    than = "the same error" if same else "less error" if error < theirs else f"{error / theirs:.1f} times its error"
    return f"{best} is {precise[best].ratio:.2f} times as fast as cuBLAS, with {than}"


@figure.styled()
def error_growth(
    finding: str, curves: Mapping[str, Mapping[int, float]], limit: Mapping[int, float], label: str
) -> Chart:
    """Errors against K, log-log: one line per way to compute. finding: the title. curves: by name, the rms error by K,
    in u·D; the first one is accented. limit: of the class fp32, dashed. label: the source.
    """
    alt = ["Line chart, log-log, of the rms error in u·D against K"]
    alt += [f"{name}: " + ", ".join(f"{y:.3g} at {k}" for k, y in line.items()) for name, line in curves.items()]
    subtitle = f"The rms error is in {UNIT}. Dashed: the limit of the class fp32."
    new = page("error_growth", finding, subtitle, [label], alt, BODY)
    axes = new.before_names(widest(curves), LEFT, BELOW, BODY - BELOW - ABOVE)
    scale(axes.xaxis, sorted({k for line in curves.values() for k in line}), "K", log=2)
    scale(axes.yaxis, LogLocator(10, numticks=99), "rms error, u·D", log=10)
    axes.plot([*limit], [*limit.values()], "--", color=MUTED, linewidth=1.0, zorder=1)
    first, *others = curves
    colours = {first: ACCENT} | dict.fromkeys(others, INK)
    ends = draw_lines(axes, {name: sorted(line.items()) for name, line in curves.items()}, colours)
    axes.grid(True, zorder=0)
    name_points(axes, ends, {first: FIRST})
    return new.figure
