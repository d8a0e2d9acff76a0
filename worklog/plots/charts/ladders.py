"""The rates of both ladders at one size, on FP32 cores and on tensor cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import selection, style
from worklog.plots.marks import RowBar, Rows, reference_line
from worklog.plots.page import Chart, Texts, page
from worklog.plots.selection import (
    ON_TENSOR_CORES,
    class_of,
    dimensions,
    measured,
    rate,
    share,
)
from worklog.plots.style import ACCENT, BODY_PT, MARGIN_IN, PAPER, WIDTH_IN
from worklog.problem import Shape, Size
from worklog.runs import CUBLAS, Measurement, Run

# inches
PITCH = 0.19
THICKNESS = 0.14
RIGHT = 0.2
BELOW = 0.4
# inches above a panel's rows
HEADING = 0.3
LINE_OF_CUBLAS = 0.2
SLOWED = 0.99  # of the GPU's SM clock: a lower clock is stated
Panels = Mapping[str, Sequence[Measurement]]  # by heading


@style.chart
def ladders(run: Run, size: Size | None = None) -> Chart:
    """Draw TFLOP/s of each measured kernel at one size, by the cores that it runs on.

    The two panels, on FP32 cores and on tensor cores, have different scales. A kernel whose class
    isn't fp32 is hollow. An SM clock that was lower than the GPU's is stated. Raises NothingToDraw
    if a panel has no measured kernel, and BadSetting for a size that can't be.

    size: default, 4096, else the largest measured size
    """
    shape = selection.shape_to_draw(run, size)
    timed = [m for m in selection.rows(run, shape) if measured(m)]
    panels = _panels(timed, shape)
    kernels = list[Measurement]()
    for panel in panels.values():
        kernels += panel
    cublas = selection.cublas_tflops(timed)
    bar_texts = {m.kernel: _bar_text(m, run.gpu.sm_clock_mhz) for m in kernels}
    texts = Texts(
        "ladders",
        finding=_finding(kernels),
        subtitle=_subtitle(shape, bar_texts, run.gpu.sm_clock_mhz),
        footer=selection.labels(run, kernels),
        alt=_alt(shape, bar_texts, cublas),
    )
    panel_height = HEADING + LINE_OF_CUBLAS + BELOW  # without its rows
    chart = page(texts, panel_height * len(panels) + PITCH * len(kernels))
    all_rows = Rows([*bar_texts], PITCH)
    top = chart.body_top
    for heading, panel in panels.items():
        chart.write((MARGIN_IN, top - 0.12), [heading], BODY_PT, weight="bold")
        rows = Rows([m.kernel for m in panel], PITCH, THICKNESS, head=LINE_OF_CUBLAS)
        bottom = top - HEADING - rows.height
        width = WIDTH_IN - all_rows.left - RIGHT
        axes = chart.axes_at(all_rows.left, bottom, width, rows.height)
        _draw_panel(axes, rows, panel, texts=bar_texts, cublas=cublas)
        top -= panel_height + PITCH * len(panel)
    return chart


def _panels(timed: Sequence[Measurement], shape: Shape) -> dict[str, list[Measurement]]:
    """Return the kernels of each panel by its heading.

    Raises NothingToDraw if a panel has no kernel.
    """
    panels = {
        "on FP32 cores": [m for m in timed if m.kernel not in {CUBLAS, *ON_TENSOR_CORES}],
        "FP32 on tensor cores": [m for m in timed if m.kernel in ON_TENSOR_CORES],
    }
    for heading, panel in panels.items():
        if not panel:
            raise NothingToDraw(
                f"at {shape}, no kernel {heading} was measured: measure it on a GPU"
            )
    return panels


def _bar_text(m: Measurement, clock_mhz: float) -> str:
    """Return a bar's text: rate, share, and a class or a clock that isn't as expected.

    clock_mhz: the GPU's SM clock
    """
    digits = 0 if (m.ratio or 0.0) >= 2 else 1
    parts = [rate(m.tflops), share(m, digits)]
    if class_of(m) != "fp32":
        parts.append(f"class {class_of(m)}")
    if m.sm_mhz is not None and m.sm_mhz < SLOWED * clock_mhz:
        parts.append(f"{m.sm_mhz:.0f} MHz")
    return " · ".join(parts)


def _finding(kernels: Sequence[Measurement]) -> str:
    """Return the fastest kernel with FP32's error of each panel."""
    findings = []
    on_fp32_cores, on_tensor_cores = selection.leaders(kernels)
    if on_tensor_cores is not None:
        speedup = f"{on_tensor_cores.ratio or 0.0:.1f} times as fast as cuBLAS"
        findings.append(f"{on_tensor_cores.kernel} computes FP32 on tensor cores {speedup}")
    if on_fp32_cores is not None:
        reached = share(on_fp32_cores)
        findings.append(f"on FP32 cores, {on_fp32_cores.kernel} reaches {reached} of cuBLAS")
    return "; ".join(findings) or "No kernel has FP32's error"


def _subtitle(shape: Shape, bar_texts: Mapping[str, str], clock_mhz: float) -> str:
    """Return the explanation of both panels. clock_mhz: the GPU's SM clock."""
    subtitle = (
        f"C = A·B in FP32, {dimensions(shape)}: median TFLOP/s with its 95 % interval, and the "
        "share of cuBLAS in FP32, timed in the same loop. The panels have different scales. "
        "Hollow: less precise than FP32."
    )
    if any("MHz" in text for text in bar_texts.values()):
        subtitle += f" MHz: the SM clock, where it was below the GPU's {clock_mhz:.0f}."
    return subtitle


def _alt(shape: Shape, bar_texts: Mapping[str, str], cublas: float) -> list[str]:
    """Return the alt text: each kernel's rate, and that of cuBLAS in TFLOP/s."""
    alt = [f"Bar chart of FP32 matrix multiplication at {dimensions(shape)}, in two parts"]
    alt += [f"{name} {text}" for name, text in bar_texts.items()]
    alt.append(f"cuBLAS: {rate(cublas)} TFLOP/s")
    return alt


def _draw_panel(
    axes: Axes,
    rows: Rows,
    kernels: Sequence[Measurement],
    *,
    texts: Mapping[str, str],
    cublas: float,
) -> None:
    """Draw the bars of one panel, with a line at cuBLAS's rate.

    texts: of the bars, by kernel
    cublas: in TFLOP/s
    """
    rows.draw_names(axes)
    fastest = max(cublas, *(m.tflops or 0.0 for m in kernels))
    axes.set(xlim=(0, 1.06 * fastest), xlabel="TFLOP/s")
    reference_line(axes, cublas, f"cuBLAS {rate(cublas)}", LINE_OF_CUBLAS / 2)
    for row_y, m in zip(rows.ys, kernels, strict=True):
        has_fp32_error = class_of(m) == "fp32"
        bar = RowBar(
            m.tflops or 0.0,
            texts[m.kernel],
            ACCENT if has_fp32_error else PAPER,
            interval=selection.interval(m),
            outline_pt=0.0 if has_fp32_error else 1.0,
        )
        rows.draw_bar_off_line(axes, row_y, bar, cublas)
