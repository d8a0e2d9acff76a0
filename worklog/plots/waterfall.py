"""From the honest to the naive reading, one lie at a time: what the ablation chart draws beside its heat map.

Effects are factors, and they do not simply multiply: a host clock around a launch hides what the GPU would have waited
for. What the single lies do not explain is a step of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from worklog.plots.style import ACCENT, FAINT, INK, LIE, MUTED, PAPER
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect
from worklog.runs.run import Run

REMAINDER = "together"
BAR_PT = 8  # thickness of a step


@dataclass(frozen=True)
class Fall:
    """A waterfall at one size, from `honest` to `naive`, both TFLOP/s.

    steps: the factor of each setting's lie alone, in order, then REMAINDER, what they do together beyond that.
    combined: the effect of all these lies at once.
    """

    shape: Shape
    unbiased: float
    naive: float
    steps: dict[str, float]
    combined: Effect

    @property
    def largest(self) -> float:
        """The largest step, in doublings."""
        return max(abs(math.log2(step)) for step in self.steps.values())

    @property
    def remainder(self) -> Effect:
        """What the lies do together beyond the product of what each does alone, as an effect like the others."""
        product = self.naive / self.steps[REMAINDER]
        e, title = self.combined, "together (they interact)"
        return Effect(e.kernel, e.shape, REMAINDER, title, None, "…", "TFLOP/s", product, self.naive, e.noise)


def factor(effect: Effect) -> float | None:
    """The effect's factor, 1 where it is not visible above the noise, None where it is not positive and finite."""
    if effect.unbiased <= 0 or effect.lying <= 0 or not math.isfinite(effect.lying / effect.unbiased):
        return None
    return effect.factor if effect.visible else 1.0


def falls(run: Run, found: Sequence[Effect]) -> dict[Shape, Fall]:
    """A waterfall for each size with a finite combined reading: of all lies at once if the run has that, else of the
    article's four."""
    kinds = [kind for kind in ("all", "article") if any(e.setting == kind for e in found)]
    every = (_fall(run, found, e) for e in found if kinds and e.setting == kinds[0])
    return {fall.shape: fall for fall in every if fall is not None}


def clearest(every: dict[Shape, Fall]) -> Fall | None:
    """Of those with a visible sum, the waterfall whose largest step is smallest: small steps show best in it."""
    visible = [fall for fall in every.values() if fall.combined.visible]
    return min(visible, key=lambda fall: fall.largest, default=None)


def _fall(run: Run, found: Sequence[Effect], combined: Effect) -> Fall | None:
    if factor(combined) is None:
        return None
    settings = _settings(run, combined)
    steps: dict[str, float] = {}
    for e in found:
        if e.shape == combined.shape and e.setting in settings and e.corrupts == "TFLOP/s":
            step = factor(e)
            if step is None:
                return None
            steps[e.setting] = step
    steps[REMAINDER] = combined.factor / math.prod(steps.values())
    return Fall(Shape(*combined.shape), combined.unbiased, combined.lying, steps, combined)


def _settings(run: Run, combined: Effect) -> set[str]:
    """The settings that lied in a combined reading: the longest list for "all", which holds the article's four."""
    lists = [
        set(m.changed)
        for m in run.measurements
        if m.kernel == combined.kernel and m.shape == combined.shape and m.status == "measured" and len(m.changed) > 1
    ]
    choose = max if combined.setting == "all" else min
    return choose(lists, key=len, default=set())


def draw_fall(axes: Axes, fall: Fall, lines: dict[str, float], top: float, bottom: float) -> None:
    """One bar a lie on a log axis. lines: y of each row by setting; top, bottom: y of the honest and naive reading."""
    for boundary in lines.values():  # leads the eye across from the heat map's rows
        axes.axhline(boundary, color=FAINT, linewidth=0.5, zorder=0)
    levels, y = [fall.unbiased], top
    for setting, step in fall.steps.items():
        at, after, line = levels[-1], levels[-1] * step, lines[setting]
        axes.plot([at, at], [y, line], color=MUTED, linewidth=0.6, zorder=1)
        colour = LIE if step > 1 else ACCENT
        axes.plot([at, after], [line, line], color=colour, linewidth=BAR_PT, solid_capstyle="butt", zorder=2)
        levels.append(after)
        y = line
    axes.plot([levels[-1]] * 2, [y, bottom], color=MUTED, linewidth=0.6, zorder=1)
    limits = _limits(levels)
    _scale(axes, limits, f"TFLOP/s at {fall.shape}, log scale")
    _end(axes, limits, "honest", fall.unbiased, top)
    _end(axes, limits, "naive", fall.naive, bottom)


def _scale(axes: Axes, limits: tuple[float, float], words: str) -> None:
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xlim(*limits)
    ticks = _ticks(limits)
    axes.set_xticks(ticks, [rate(tick, exact=True) for tick in ticks])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_xlabel(words)


def _end(axes: Axes, limits: tuple[float, float], name: str, value: float, y: float) -> None:
    """A reading as a dot, with its words on the side where there is more room."""
    to_the_left = math.log(value / limits[0]) > math.log(limits[1] / value)
    axes.plot([value], [y], "o", color=INK, markersize=5, zorder=3)
    axes.annotate(
        f"{name} {rate(value)}",
        (value, y),
        (-6 if to_the_left else 6, 0),
        textcoords="offset points",
        ha="right" if to_the_left else "left",
        va="center_baseline",
        bbox={"facecolor": PAPER, "pad": 1.0},
    )


def _limits(levels: Sequence[float]) -> tuple[float, float]:
    """The readings with some air, and at least a factor of 1.5, so that noise is not drawn as a cliff."""
    low, high = min(levels), max(levels)
    span = math.log(high / low)
    air = max(0.12 * span, (math.log(1.5) - span) / 2)
    return low * math.exp(-air), high * math.exp(air)


def _ticks(limits: tuple[float, float]) -> list[float]:
    """Two to four round values within the limits, as far apart as can be."""
    exponents = range(math.floor(math.log10(limits[0])) - 1, math.ceil(math.log10(limits[1])) + 1)
    for mantissas in ((10,), (10, 30), (10, 20, 50), (10, 15, 20, 30, 40, 50, 60, 80), range(10, 100)):
        ticks = [mantissa * 10.0 ** (exponent - 1) for exponent in exponents for mantissa in mantissas]
        kept = [tick for tick in ticks if limits[0] * 1.03 < tick < limits[1] / 1.03]
        if len(kept) >= 2:
            return kept[:: math.ceil(len(kept) / 4)]
    return []


def rate(tflops: float | None, *, exact: bool = False) -> str:
    """TFLOP/s in three digits (a round value exactly), or a dash."""
    if tflops is None:
        return "–"
    if tflops >= 1000:
        return f"{tflops:,.0f}".replace(",", " ")
    return f"{tflops:g}" if exact else f"{tflops:#.3g}".rstrip(".")
