"""What the diagrams take from a run: the kernel that they talk about, its reading, and what the lies did to it.

Everything that a diagram prints comes through here or from the run itself, so that no number is typed in a drawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from worklog.errors import NothingToDraw
from worklog.kernel.ladder import LADDER
from worklog.plots.ablation import ablated, in_words
from worklog.plots.selection import CUBLAS, cublas_tflops, measured, rows, shape_to_draw
from worklog.plots.waterfall import factor, rate
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect, effects
from worklog.runs.run import Measurement, Run
from worklog.runs.table import duration
from worklog.settings import PITFALLS, Pitfall, Value

FAVOURITE = "warptiled"
ARTICLES_FOUR = tuple(sorted((g for g in PITFALLS if g.article), key=lambda g: g.article or 0))
# One cold launch among many is stepped over by the median; believed alone, it is the article's gremlin.
MEASURED_AS = {"warmup": "first_launch"}


@dataclass(frozen=True)
class Subject:
    """The kernel that a diagram talks about, under the run's own harness, with what each lie did to it (may be empty).

    us, low, high: microseconds and their 95 % interval. tflops and ratio: as in the measurement.
    """

    m: Measurement
    found: tuple[Effect, ...]
    us: float
    low: float
    high: float
    tflops: float
    ratio: float

    @classmethod
    def of(cls, run: Run) -> Subject:
        """The warptiled rung at 4096, else the last rung that was measured there. Raises NothingToDraw without any."""
        shape = shape_to_draw(run, None)
        names = {m.kernel: m for m in rows(run, shape) if measured(m) and m.kernel != CUBLAS}
        if not names:
            raise NothingToDraw(f"no rung was measured at size {shape}: `worklog run --size {shape}`")
        rungs = [rung.name for rung in LADDER if rung.name in names] or list(names)
        m = names[FAVOURITE if FAVOURITE in names else rungs[-1]]
        us = m.us or 0.0
        return cls(m, effects_of(run, m.kernel), us, m.us_low or us, m.us_high or us, m.tflops or 0.0, m.ratio or 0.0)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.m.kernel

    @property
    def shape(self) -> Shape:
        """The problem."""
        return self.m.problem

    @property
    def interval(self) -> str:
        """The 95 % interval in the unit of the time: "2.651 to 2.658 ms"."""
        low, high = duration(self.low).split(), duration(self.high).split()
        return f"{low[0]} to {' '.join(high)}" if low[1] == high[1] else f"{' '.join(low)} to {' '.join(high)}"

    @property
    def half_width(self) -> str:
        """Half of the interval, relative: "±0.13 %"."""
        return f"±{50 * (self.high - self.low) / self.us:.2g} %"

    def effect(self, setting: str) -> Effect | None:
        """What a lie did at this subject's shape, if the run has it."""
        return next((e for e in self.found if e.setting == setting and e.shape == self.m.shape), None)

    def effects(self, setting: str) -> tuple[Effect, ...]:
        """What a lie did at every size that the run has."""
        return tuple(e for e in self.found if e.setting == setting)


def effects_of(run: Run, kernel: str) -> tuple[Effect, ...]:
    """What each lie did to a kernel; nothing where the run has no ablation of it."""
    try:
        return tuple(effects(run, kernel))
    except NothingToDraw:
        return ()


def largest(found: Sequence[Effect]) -> Effect | None:
    """The effect furthest from one, of those with a factor; at larger sizes first among equals."""
    known = [e for e in found if factor(e) is not None]
    return max(known, key=lambda e: (abs(math.log2(factor(e) or 1.0)), e.shape), default=None)


def worst_of_all(run: Run, setting: str) -> tuple[Effect, ...]:
    """What one lie did to the kernel that it moved most, at all sizes; nothing where the run has no ablation."""
    every = {name: tuple(e for e in effects_of(run, name) if e.setting == setting) for name in ablated(run)}
    worst = largest([e for found in every.values() for e in found])
    return every[worst.kernel] if worst else ()


def did(effect: Effect | None) -> str:
    """An effect in words: "× 84.8 at 4096", or that it is not visible."""
    if effect is None:
        return "not let loose in this run"
    if factor(effect) == 1.0:
        return f"nothing visible at {Shape(*effect.shape)}"
    return unbroken(f"{change(effect)} at {Shape(*effect.shape)}")


def did_at_worst(found: Sequence[Effect]) -> str:
    """The largest of one lie's effects over the sizes; where none is visible, the sizes that were tried."""
    worst = largest(found)
    if worst is None or factor(worst) != 1.0:
        return did(worst)
    sizes = sorted({Shape(*e.shape) for e in found}, key=lambda s: s.flops)
    span = f"at {sizes[0]}" if len(sizes) == 1 else f"from {sizes[0]} to {sizes[-1]}"
    return f"nothing visible {span}"


def speed(tflops: float) -> str:
    """TFLOP/s in three digits."""
    return unbroken(rate(tflops))


def change(effect: Effect) -> str:
    """An effect in a few characters: "+9.0 %", "× 84.8"."""
    return unbroken(in_words(effect))


def thousands(count: float) -> str:
    """A whole number with a thin space between thousands."""
    return f"{count:,.0f}".replace(",", "\u2009")


def unbroken(words: str) -> str:
    """The words with spaces at which no line ends."""
    return words.replace(" ", "\u00a0")


def value(run: Run, pitfall: Pitfall) -> Value:
    """What the run's harness had for a gremlin's setting; the honest value where it does not say."""
    found: Value = run.harness.get(pitfall.setting, pitfall.unbiased)
    return found


def unbiased(run: Run, *settings: str) -> None:
    """Raise NothingToDraw where one of these settings is not the honest one that the drawing shows."""
    for pitfall in PITFALLS:
        if pitfall.setting in settings and (is_now := value(run, pitfall)) != pitfall.unbiased:
            raise NothingToDraw(
                f"the run was measured with {pitfall.setting}={is_now}, which this diagram does not show: "
                f"measure again with {pitfall.setting}={pitfall.unbiased}"
            )


def beside(run: Run, shape: Shape) -> float:
    """TFLOP/s of cuBLAS at a shape."""
    return cublas_tflops(rows(run, shape))


def mebibytes(count: float) -> str:
    """Bytes in MiB or GiB: "60 MiB", "768 KiB", "140 GiB"."""
    unit, scale = next(((u, s) for u, s in (("GiB", 2**30), ("MiB", 2**20)) if count >= s), ("KiB", 2**10))
    amount = count / scale
    return f"{amount:.0f} {unit}" if amount >= 1000 else f"{amount:.3g} {unit}"


def calibrated(run: Run, name: str, what: str) -> float:
    """A number of the calibration. Raises NothingToDraw where it is missing."""
    found = run.calibration.get(name)
    if not found:
        raise NothingToDraw(f"the run has no {what}: measure again with `worklog run`")
    return float(found)
