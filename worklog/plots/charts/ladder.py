"""The rates of one ladder at one size, with cuBLAS's and the article's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.plots import selection, style
from worklog.plots.marks import ON_PAPER, RowBar, Rows, annotate, reference_line
from worklog.plots.marks.rows import inch
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.selection import dimensions, measured, no_time, rate, share
from worklog.plots.style import ACCENT, BASELINE, BODY_PT, DEFLATES, MUTED, PAPER, SMALL_PT
from worklog.problem import Shape, Size
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes

    pass

# Percent of cuBLAS on an RTX A6000 at 4096, from Vizuara's article, which took these numbers from
# siboehm's SGEMM_CUDA README.
ARTICLE_PERCENT = {
    "naive": 1.3,
    "coalesced": 8.5,
    "shared": 12.8,
    "tiles_1d": 36.5,
    "tiles_2d": 68.7,
    "vectorized": 78.4,
    "autotuned": 84.8,
    "warptiled": 93.7,
}
ARTICLE_SOURCE = "○ article: % of cuBLAS on an RTX A6000 at 4096, from siboehm's SGEMM_CUDA README"

# Inches. A row has a lane for the bar with its label, and under it one for the article's mark: they
# cannot meet.
PITCH = 0.49
BARE_PITCH = 0.36
THICKNESS = 0.25
BAR_LANE = 0.155
MARK_LANE = 0.36
HEAD = 0.38
NAME_WIDTH = 1.4


@dataclass(frozen=True)
class LadderData:
    """The measurements that the chart shows."""

    shape: Shape
    kernels: Sequence[Measurement]  # a row each
    user_kernels: Collection[str]  # by name
    marks: Mapping[str, float]  # the article's percent of cuBLAS by kernel
    ceiling: float  # measured FP32 ceiling in TFLOP/s; 0 if it isn't known

    @property
    def timed(self) -> list[Measurement]:
        """The kernels that have a rate."""
        return [m for m in self.kernels if measured(m)]

    @property
    def cublas(self) -> float:
        """The rate of cuBLAS in TFLOP/s."""
        return selection.cublas_tflops([*self.kernels])

    @property
    def highest(self) -> float:
        """The highest rate, in TFLOP/s."""
        ends = [selection.interval(m)[1] for m in self.timed]
        return max(self.cublas, *ends, self.ceiling)


@style.chart
def ladder(run: Run, size: Size | None = None, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw horizontal bars in rung order at one size, in TFLOP/s and % of cuBLAS.

    A failed or skipped rung has a row with the reason. A user's kernels are below the rungs, which
    are then drawn in a lighter colour. Returns a Chart, or `ax`, drawn on. Raises NothingToDraw if
    nothing was measured at the size, and BadSetting for a size that can't be.

    size: default, 4096, else the largest measured size
    """
    data = _select(run, size)
    pitch = PITCH if data.marks else BARE_PITCH
    rows = Rows(
        [_row_name(m.kernel, data.user_kernels) for m in data.kernels],
        pitch,
        THICKNESS,
        head=HEAD,
        middle=BAR_LANE / pitch,
        text_pt=BODY_PT,
    )
    texts = Texts(
        "ladder",
        finding=_finding(data),
        subtitle=_subtitle(data),
        footer=_footer(run, data),
        alt=_alt(data),
    )

    def draw(axes: Axes) -> None:
        rows.draw_names(axes)
        _draw_scales(axes, data)
        for row_y, m in zip(rows.ys, data.kernels, strict=True):
            if measured(m):
                rows.draw_bar_off_line(axes, row_y, _bar(m, data), data.cublas)
            else:
                _draw_reason(axes, m, data.cublas, row_y)
            if m.kernel in data.marks:
                mark_y = row_y + MARK_LANE - BAR_LANE
                _draw_mark(axes, data.marks[m.kernel], data.cublas, mark_y)

    margins = Margins(left=rows.left, right=0.2, above=0.4, below=0.4)
    return on_axes(ax, draw, texts, height=rows.height, margins=margins)


def _select(run: Run, size: Size | None) -> LadderData:
    """Return the measurements of a run at one size."""
    shape = selection.shape_to_draw(run, size)
    kernels = selection.rows(run, shape)
    names = [m.kernel for m in kernels]
    article = ARTICLE_PERCENT if shape == selection.ARTICLE_SHAPE else {}
    return LadderData(
        shape,
        kernels,
        user_kernels={name for name in names if run.kernels.get(name, {}).get("user")},
        marks={name: article[name] for name in names if name in article},
        ceiling=run.calibration.fp32_tflops,
    )


def _finding(data: LadderData) -> str:
    """Return the best rung's share of cuBLAS; of the user's kernels, if one was measured."""
    rungs = [m for m in data.timed if m.kernel != CUBLAS]
    rungs.sort(key=lambda m: m.tflops or 0.0)
    if not rungs:
        return "No rung was measured at this size; cuBLAS was"
    of_user = [m for m in rungs if m.kernel in data.user_kernels]
    best = of_user[-1] if of_user else rungs[-1]
    finding = f"{best.kernel} reaches {share(best)} of cuBLAS"
    slower = rungs[: rungs.index(best)]
    if not slower:
        return finding
    if data.user_kernels:
        return f"{finding}, more than {slower[-1].kernel}"
    speedup = (best.tflops or 0.0) / (slower[0].tflops or 1.0)
    digits = 0 if speedup >= 10 else 1
    return f"{finding}, {speedup:.{digits}f} times {slower[0].kernel}"


def _subtitle(data: LadderData) -> str:
    """Return the explanation of the bars and, if there are any, of the article's marks."""
    subtitle = (
        f"C = A·B in FP32, {dimensions(data.shape)}. Bars: median TFLOP/s of each rung with its "
        "95 % interval, and its share of cuBLAS, timed in the same loop."
    )
    if data.marks:
        subtitle += " Circles: the article's shares, on another GPU."
    return subtitle


def _footer(run: Run, data: LadderData) -> list[str]:
    """Return the sources, and a note if an interval is too wide."""
    footer = [run.full_label]
    if data.marks:
        footer.append(ARTICLE_SOURCE)
    if not all(m.converged for m in data.timed):
        footer.append("* the interval is wider than requested")
    return footer


def _alt(data: LadderData) -> list[str]:
    """Return the alt text: each kernel's rate, and the measured ceiling."""
    size = dimensions(data.shape)
    alt = [f"Bar chart of FP32 matrix multiplication at {size} with the share of cuBLAS"]
    alt += [f"{m.kernel}: {_text(m)}" for m in data.kernels]
    if data.ceiling:
        alt.append(f"measured FP32 ceiling: {rate(data.ceiling)} TFLOP/s")
    return alt


def _text(m: Measurement) -> str:
    """Return rate and share, or the reason why there is no time."""
    if not measured(m):
        return no_time(m)
    return f"{rate(m.tflops)} TFLOP/s · {share(m)}"


def _row_name(kernel: str, user_kernels: Collection[str]) -> str:
    """Return a row's name; a user's kernel is marked."""
    name = f"{kernel} · yours" if kernel in user_kernels else kernel
    return style.shorten(name, BODY_PT, NAME_WIDTH)


def _bar(m: Measurement, data: LadderData) -> RowBar:
    """Return a kernel's bar. The accent is for the user's kernels, if there are any."""
    colour = ACCENT
    if m.kernel == CUBLAS:
        colour = BASELINE
    elif data.user_kernels and m.kernel not in data.user_kernels:
        colour = DEFLATES
    text = _text(m)
    if not m.converged:
        text += " *"
    return RowBar(m.tflops or 0.0, text, colour, interval=selection.interval(m))


def _draw_reason(axes: Axes, m: Measurement, cublas: float, row_y: float) -> None:
    """Draw the reason why a kernel has no time. cublas: in TFLOP/s."""
    lines = style.wrap(no_time(m), SMALL_PT, cublas / inch(axes) - 0.2, max_lines=2)
    reason = "\n".join(lines)
    annotate(axes, reason, (0, row_y), va="center", color=MUTED, style="italic", bbox=ON_PAPER)


def _draw_scales(axes: Axes, data: LadderData) -> None:
    """Draw the axes in TFLOP/s and in percent of cuBLAS, and lines at cuBLAS and the ceiling."""
    axes.set(xlim=(0, 1.06 * data.highest), xlabel="TFLOP/s")
    above = axes.twiny()
    above.set_xlim(0, 100 * axes.get_xlim()[1] / data.cublas)
    above.spines["top"].set_visible(True)
    above.spines[["left", "bottom"]].set_visible(False)
    above.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    label = "% of cuBLAS"
    if data.marks:
        label += ", bars on this GPU · ○ article, RTX A6000"
    above.set_xlabel(label)
    reference_line(axes, data.cublas, f"cuBLAS {rate(data.cublas)}", HEAD - 0.1)
    if data.ceiling:
        ceiling_y = HEAD - 0.12 - style.line_height(SMALL_PT)
        text = f"measured FP32 ceiling {rate(data.ceiling)}"
        reference_line(axes, data.ceiling, text, ceiling_y)


def _draw_mark(axes: Axes, percent: float, cublas: float, row_y: float) -> None:
    """Draw the article's mark under our bar: hollow, with its number."""
    tflops = percent / 100 * cublas
    axes.plot(
        tflops,
        row_y,
        "o",
        markersize=4.2,
        markerfacecolor=PAPER,
        markeredgecolor=MUTED,
        markeredgewidth=0.9,
    )
    gap = -5 if tflops > axes.get_xlim()[1] / 5 else 5
    annotate(axes, f"{percent} %", (tflops, row_y), gap=gap, color=MUTED, bbox=ON_PAPER)
