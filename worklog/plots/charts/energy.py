"""The GFLOP per joule of one ladder at one size, with cuBLAS's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import selection, style
from worklog.plots.marks import ON_PAPER, RowBar, Rows, annotate, reference_line
from worklog.plots.marks.rows import inch
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.selection import dimensions, rate
from worklog.plots.style import ACCENT, BASELINE, BODY_PT, MUTED, SMALL_PT
from worklog.problem import Shape, Size
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.text import format_energy

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes

# inches
PITCH = 0.36
THICKNESS = 0.25
HEAD = 0.38
NAME_WIDTH = 1.4
MISSING = "the run has no energy{}: measure it with `worklog run --energy`"


@dataclass(frozen=True)
class EnergyData:
    """The measurements that the chart shows."""

    shape: Shape
    kernels: Sequence[Measurement]  # a row each

    @property
    def with_energy(self) -> list[Measurement]:
        """The kernels that have GFLOP per joule."""
        return [m for m in self.kernels if m.gflop_per_joule]

    @property
    def cublas(self) -> Measurement | None:
        """The measurement of cuBLAS, if it has an energy."""
        return next((m for m in self.with_energy if m.kernel == CUBLAS), None)

    @property
    def highest(self) -> float:
        """The highest GFLOP per joule."""
        return max(m.gflop_per_joule or 0.0 for m in self.with_energy)


@style.chart
def energy(run: Run, size: Size | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw horizontal bars in rung order at one size, in GFLOP per joule.

    A line shows cuBLAS. A kernel without an energy has a row with the reason. Returns a Chart, or
    `ax`, drawn on. Raises NothingToDraw if no energy was measured, and BadSetting for a size that
    can't be.

    size: default, 4096, else the largest size with an energy
    """
    data = _select(run, size)
    names = [style.shorten(m.kernel, BODY_PT, NAME_WIDTH) for m in data.kernels]
    rows = Rows(names, PITCH, THICKNESS, head=HEAD, text_pt=BODY_PT)
    texts = Texts(
        "energy",
        finding=_finding(data),
        subtitle=_subtitle(data),
        footer=[run.full_label],
        alt=_alt(data),
    )

    def draw(axes: Axes) -> None:
        rows.draw_names(axes)
        axes.set(xlim=(0, 1.06 * data.highest), xlabel="GFLOP per joule")
        line = _draw_cublas(axes, data)
        for row_y, m in zip(rows.ys, data.kernels, strict=True):
            if m.gflop_per_joule:
                colour = BASELINE if m.kernel == CUBLAS else ACCENT
                bar = RowBar(m.gflop_per_joule, _text(m), colour)
                rows.draw_bar_off_line(axes, row_y, bar, line)
            else:
                _draw_reason(axes, m, row_y)

    margins = Margins(left=rows.left, right=0.2, below=0.4)
    return on_axes(ax, draw, texts, height=rows.height, margins=margins)


def _select(run: Run, size: Size | None) -> EnergyData:
    """Return the measurements of a run at one size. Raises NothingToDraw without an energy."""
    shapes = [shape for shape in run.shapes() if _has_energy(run, shape)]
    if not shapes:
        raise NothingToDraw(MISSING.format(""))
    shape = shapes[-1]
    if selection.ARTICLE_SHAPE in shapes:
        shape = selection.ARTICLE_SHAPE
    if size is not None:
        shape = Shape.of(size)
    if shape not in shapes:
        raise NothingToDraw(MISSING.format(f" at size {shape}, only at {_listed(shapes)}"))
    return EnergyData(shape, selection.rows(run, shape))


def _has_energy(run: Run, shape: Shape) -> bool:
    """Return whether a kernel has an energy at a shape."""
    return any(m.gflop_per_joule for m in run.select(shape=shape))


def _listed(shapes: Sequence[Shape]) -> str:
    """Return sizes with commas."""
    return ", ".join(map(str, shapes))


def _finding(data: EnergyData) -> str:
    """Return the best rung's GFLOP per joule, and how it compares with cuBLAS's."""
    rungs = [m for m in data.with_energy if m.kernel != CUBLAS]
    if not rungs:
        return "No rung's energy was measured at this size; cuBLAS's was"
    best = max(rungs, key=lambda m: m.gflop_per_joule or 0.0)
    finding = f"{best.kernel} computes {rate(best.gflop_per_joule)} GFLOP per joule"
    if data.cublas is None:
        return finding
    share = (best.gflop_per_joule or 0.0) / (data.cublas.gflop_per_joule or 1.0)
    return f"{finding}, {share:.2f} times as many as cuBLAS"


def _subtitle(data: EnergyData) -> str:
    """Return the explanation of the bars."""
    return (
        f"C = A·B in FP32, {dimensions(data.shape)}, launches in a row with a warm L2. NVML's "
        "energy counter is of the whole board: memory and idle power are in the joules."
    )


def _alt(data: EnergyData) -> list[str]:
    """Return the alt text: each kernel's GFLOP per joule and energy."""
    alt = [f"Bar chart of GFLOP per joule of matrix multiplication at {dimensions(data.shape)}"]
    return alt + [f"{m.kernel}: {_text(m)}" for m in data.kernels]


def _text(m: Measurement) -> str:
    """Return GFLOP per joule, energy and power, or the reason why there is no number."""
    if m.gflop_per_joule is None or m.joules is None or m.watts is None:
        return _reason(m)
    return f"{rate(m.gflop_per_joule)} GFLOP/J · {format_energy(m.joules)} · {m.watts:.0f} W"


def _reason(m: Measurement) -> str:
    """Return why a kernel has no bar."""
    return m.no_energy if m.status == "measured" else selection.no_time(m)


def _draw_cublas(axes: Axes, data: EnergyData) -> float:
    """Draw a line at cuBLAS, and return its x; 0 without cuBLAS."""
    if data.cublas is None or data.cublas.gflop_per_joule is None:
        return 0.0
    x = data.cublas.gflop_per_joule
    reference_line(axes, x, f"cuBLAS {rate(x)}", HEAD - 0.1)
    return x


def _draw_reason(axes: Axes, m: Measurement, row_y: float) -> None:
    """Draw the reason why a kernel has no bar."""
    width = axes.get_xlim()[1] / inch(axes) - 0.2
    lines = style.wrap(_reason(m), SMALL_PT, width, max_lines=2)
    reason = "\n".join(lines)
    annotate(axes, reason, (0, row_y), va="center", color=MUTED, style="italic", bbox=ON_PAPER)
