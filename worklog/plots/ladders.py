"""Both ladders at one size: rungs on FP32 cores, and rungs that compute FP32 on tensor cores, beside cuBLAS."""

from __future__ import annotations

from collections.abc import Iterable

from worklog.errors import NothingToDraw
from worklog.kernel import TENSOR
from worklog.plots import figure
from worklog.plots.figure import ACCENT, BODY_PT, DEFLATES, MARGIN_IN, PAPER, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import page, right_of
from worklog.plots.selection import (
    CUBLAS,
    Size,
    cublas_tflops,
    dimensions,
    labels,
    measured,
    rate,
    rate_bar,
    reference_line,
    rows,
    shape_to_draw,
)
from worklog.runs import Measurement, Run

ROW, BAR, HEADING, LINE, BELOW, RIGHT = 0.185, 0.14, 0.27, 0.2, 0.4, 0.2  # inches
SLOWED = 0.99  # of the GPU's SM clock: a lower clock is stated
SECOND = {rung.name for rung in TENSOR}
LADDERS = ("on FP32 cores", "FP32 on tensor cores")


@figure.styled()
def ladders(run: Run, size: Size | None = None) -> Chart:
    """TFLOP/s of each measured kernel at one size (default 4096, else the largest measured), first those on FP32 cores,
    then those on tensor cores, whose bars have another colour. A kernel that hasn't the class fp32 is hollow, and where
    the SM clock was lower than the GPU's, it is stated. Raises NothingToDraw where one of the two has no
    measured kernel, BadShape.
    """
    shape = shape_to_draw(run, size)
    found = [m for m in rows(run, shape) if measured(m)]
    kernels = [m for m in found if m.kernel != CUBLAS]
    both = [[m for m in kernels if (m.kernel in SECOND) is second] for second in (False, True)]
    if not all(both):
        raise NothingToDraw(f"at {shape}, no kernel {LADDERS[bool(both[0])]} was measured: measure it on a GPU")
    cublas, clock = cublas_tflops(found), run.device.get("sm_clock_mhz", 0.0)
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}, in two parts"]
    alt += [f"{m.kernel} {_words(m, clock)}" for part in both for m in part] + [f"cuBLAS: {rate(cublas)} TFLOP/s"]
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}: median TFLOP/s with its 95 % interval, and the share of cuBLAS in "
        "FP32, timed in the same loop. Hollow: less precise than FP32."
    )
    if any(_slowed(m, clock) for m in kernels):
        subtitle += f" MHz: the SM clock, where it was below the GPU's {clock:.0f}."
    height = LINE + ROW * len(kernels) + HEADING * len(both)
    new = page("ladders", _finding(kernels), subtitle, labels(run, kernels), alt, height + BELOW)
    left = right_of(m.kernel for m in kernels)
    axes = new.axes(left, new.body_bottom + BELOW, WIDTH_IN - left - RIGHT, height)
    axes.set_ylim(height, 0)
    axes.set_xlim(0, 1.06 * max(cublas, *(m.tflops or 0.0 for m in kernels)))
    axes.set_xlabel("TFLOP/s")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", LINE / 2)
    places, y = list[float](), LINE
    for heading, part, colour in zip(LADDERS, both, (DEFLATES, ACCENT), strict=True):
        above = new.body_bottom + BELOW + height - y - HEADING / 2
        new.text(MARGIN_IN, above, heading, BODY_PT, weight="bold", va="center")
        y += HEADING
        for m in part:
            places.append(y + ROW / 2)
            full = _class(m) == "fp32"
            rate_bar(axes, m, places[-1], BAR, _words(m, clock), SMALL_PT, colour if full else PAPER)
            if not full:
                axes.barh(places[-1], m.tflops or 0.0, BAR, color="none", edgecolor=colour, linewidth=1.0)
            y += ROW
    axes.set_yticks(places, [m.kernel for part in both for m in part])
    return new.figure


def _class(m: Measurement) -> str:
    return str((m.verdict or {}).get("precision") or "fp32")


def _slowed(m: Measurement, clock: float) -> bool:
    return m.sm_mhz is not None and m.sm_mhz < SLOWED * clock


def _words(m: Measurement, clock: float) -> str:
    """Its rate and share of cuBLAS, its precision class where that isn't FP32's, and an SM clock below the GPU's."""
    share = f"{100 * (m.ratio or 0.0):.{0 if (m.ratio or 0.0) >= 2 else 1}f} %"
    words = [f"class {_class(m)}"] if _class(m) != "fp32" else []
    words += [f"{m.sm_mhz:.0f} MHz"] if _slowed(m, clock) else []
    return " · ".join([rate(m.tflops), share, *words])


def leaders(found: Iterable[Measurement]) -> list[Measurement | None]:
    """The fastest measured kernel with FP32's class on FP32 cores, and on tensor cores; None where there isn't one."""
    rungs = [m for m in found if m.kernel != CUBLAS and measured(m) and _class(m) == "fp32"]
    parts = ([m for m in rungs if (m.kernel in SECOND) is second] for second in (False, True))
    return [max(part, key=lambda m: m.ratio or 0.0, default=None) for part in parts]


def _finding(kernels: Iterable[Measurement]) -> str:
    first, second = leaders(kernels)
    said = []
    if second is not None:
        said.append(f"{second.kernel} computes FP32 on tensor cores {second.ratio or 0.0:.1f} times as fast as cuBLAS")
    if first is not None:
        said.append(f"on FP32 cores, {first.kernel} reaches {100 * (first.ratio or 0.0):.1f} % of cuBLAS")
    return "; ".join(said) or "No kernel has FP32's error"
