"""From the honest to the naive reading, one lie at a time: what the ablation chart draws beside its heat map.

Effects are factors, and they do not simply multiply: a host clock around a launch hides what the GPU would have waited for. What
the single lies together do not explain is a step of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from worklog.ablation import Effect
from worklog.gemm import Shape
from worklog.runs import Run

REMAINDER = "together"


@dataclass(frozen=True)
class Fall:
    """A waterfall at one size. steps: factor of each setting's lie alone, in order, then REMAINDER, what they do together beyond
    that; from `honest` to `naive`, both TFLOP/s. combined: the effect of all these lies at once."""

    shape: Shape
    honest: float
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
        e = self.combined
        return Effect(
            e.kernel, e.shape, REMAINDER, "together (they interact)", None, "…", "TFLOP/s", product, self.naive, e.noise
        )


def factor(effect: Effect) -> float | None:
    """The effect's factor, 1 where it is not visible above the noise, None where it is not a positive finite number."""
    if effect.honest <= 0 or effect.lying <= 0 or not math.isfinite(effect.lying / effect.honest):
        return None
    return effect.factor if effect.visible else 1.0


def falls(run: Run, found: Sequence[Effect]) -> dict[Shape, Fall]:
    """A waterfall for each size at which the combined reading is there and finite. All lies at once if the run has that, else the article's four."""
    kinds = [kind for kind in ("all", "article") if any(e.setting == kind for e in found)]
    every = (_fall(run, found, e) for e in found if kinds and e.setting == kinds[0])
    return {fall.shape: fall for fall in every if fall is not None}


def clearest(every: dict[Shape, Fall]) -> Fall | None:
    """The waterfall in which small steps show best: the one whose largest step is smallest, of those with a visible sum."""
    visible = [fall for fall in every.values() if fall.combined.visible]
    return min(visible, key=lambda fall: fall.largest, default=None)


def _fall(run: Run, found: Sequence[Effect], combined: Effect) -> Fall | None:
    whole = factor(combined)
    if whole is None:
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
    return Fall(Shape(*combined.shape), combined.honest, combined.lying, steps, combined)


def _settings(run: Run, combined: Effect) -> set[str]:
    """The settings that lied in a combined reading: the longest list for "all", which holds the article's four."""
    lists = [
        set(m.changed)
        for m in run.measurements
        if m.kernel == combined.kernel and m.shape == combined.shape and m.status == "measured" and len(m.changed) > 1
    ]
    choose = max if combined.setting == "all" else min
    return choose(lists, key=len, default=set())
