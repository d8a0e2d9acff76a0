"""The effect of each pitfall on the number: a biased reading over the unbiased reading of the same kernel and size in
one run.

Pitfalls in how samples are taken were measured. Those in what is computed from samples (statistic, offset, roof) are
computed here, from the unbiased samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from worklog.errors import NothingToDraw
from worklog.problem import Shape
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run
from worklog.runs.samples import Reading, Summary, summarize
from worklog.runs.tables import Table
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness, Pitfall, Value

if TYPE_CHECKING:
    import pandas

PRECISION = 0.005  # two readings of the same thing may differ by this much: sampling stops there
SEVERAL = "…"  # the value of an effect of several settings

TOGETHER = {
    frozenset(g.setting for g in PITFALLS if g.article): ("article", "the article's four together"),
    frozenset(HOW_ONE_MEASURES): ("all", "all that touch the time"),
}


@dataclass(frozen=True)
class Effect:
    """The effect of one biased setting on one kernel at one shape.

    setting: the pitfall's; "first_launch" if the first launch after a cold start counts as the time; "article" for the
    article's four together, "all" for everything that touches the time. value: the biased value. unbiased, biased: the
    number that the pitfall `corrupts`, by the unbiased and the biased setting. noise: the sum of both relative interval
    half-widths and of the precision at which sampling stops; 0 for an effect computed from the unbiased samples. label:
    of the unbiased measurement.
    """

    kernel: str
    shape: tuple[int, int, int]
    setting: str
    title: str
    article: int | None
    value: str
    corrupts: str
    unbiased: float
    biased: float
    noise: float
    label: str = ""

    @property
    def problem(self) -> Shape:
        """The shape as a Shape."""
        return Shape(*self.shape)

    @property
    def factor(self) -> float:
        """Biased over unbiased number: 1 is no effect, 2 inflates the result by a factor of two."""
        return self.biased / self.unbiased

    @property
    def visible(self) -> bool:
        """Whether the effect is larger than the noise of the two readings."""
        return abs(self.factor - 1) > self.noise

    @property
    def step(self) -> float:
        """The factor, 1 where it is not visible."""
        return self.factor if self.visible else 1.0


def effects_frame(run: Run, kernel: str) -> pandas.DataFrame:
    """The effects as a data frame, with their factor and whether it is visible. Raises what effects() raises."""
    import pandas

    return pandas.DataFrame([asdict(e) | {"factor": e.factor, "visible": e.visible} for e in effects(run, kernel)])


def effects(run: Run, kernel: str) -> list[Effect]:
    """All effects on one kernel whose two numbers are positive and finite, sizes ascending, pitfalls in the table's
    order. Raises NothingToDraw if the run has no ablation of it.
    """
    found: list[Effect] = []
    mine = [m for m in run.measurements if m.kernel == kernel and m.status == "measured"]
    for shape in sorted({m.problem for m in mine if m.changed}, key=lambda s: s.flops):
        here = [m for m in mine if m.problem == shape]
        unbiased = next((m for m in here if not m.changed), None)
        if unbiased is None or unbiased.tflops is None:
            continue
        numbers = {"of cuBLAS": unbiased.ratio, "of the roof": unbiased.of_roof, "TFLOP/s": unbiased.tflops}
        for pitfall, value, biased, noise in _readings(run, unbiased, {frozenset(m.changed): m for m in here}):
            words = pitfall.setting, pitfall.title, pitfall.article, str(value), pitfall.corrupts
            both = numbers[pitfall.corrupts] or 0.0, biased or 0.0
            found.append(Effect(kernel, astuple(shape), *words, *both, noise, unbiased.label))
    found = [e for e in found if e.unbiased > 0 and 0 < e.biased < math.inf]
    if not found:
        raise NothingToDraw(f"the run has no ablation of {kernel}: make one with `worklog ablate {kernel}`")
    return found


def _readings(
    run: Run, unbiased: Measurement, measured: Mapping[frozenset[str], Measurement]
) -> Iterator[tuple[Pitfall, Value, float | None, float]]:
    """Of each pitfall that was measured or can be computed, its biased value, the number that it gives, and the noise.
    measured: by the settings that were changed.
    """
    for pitfall in PITFALLS:
        m = measured.get(frozenset([pitfall.setting]))
        if not pitfall.resampled:
            found = _summary(run, unbiased, **{pitfall.setting: pitfall.biased[0]})
            yield pitfall, pitfall.biased[0], found.of_peak if pitfall.setting == "roof" else found.tflops, 0.0
        elif m is not None:
            if pitfall.setting == "warmup":
                # The cold start as it usually happens: the first launch is the time. A median ignores it.
                cold = replace(pitfall, setting="first_launch", title=f"{pitfall.title}, first launch believed")
                yield cold, "none", _summary(run, m, statistic="first").tflops, _noise(pitfall.corrupts, unbiased)
            number = m.ratio if pitfall.corrupts == "of cuBLAS" else m.tflops
            yield pitfall, m.changed[pitfall.setting], number, _noise(pitfall.corrupts, unbiased, m)
    own = {g.setting for g in PITFALLS if g.is_biased(run.harness.get(g.setting, g.unbiased))}
    for settings, (name, title) in TOGETHER.items():
        if m := measured.get(settings - own.union(run.unknown)):
            yield Pitfall(name, "", (), title, ""), SEVERAL, m.tflops, _noise("TFLOP/s", unbiased, m)


def _summary(run: Run, m: Measurement, **changed: Value) -> Summary:
    """The measurement's samples under the unbiased settings but for the changed ones."""
    calibration: dict[str, Any] = {"offset_us": 0.0, **run.calibration}
    return summarize(Reading.of_columns(m.samples), Harness().but(**changed).as_dict(), calibration, m.problem.flops)


def _noise(corrupts: str, *measured: Measurement) -> float:
    """The relative half-widths of the corrupted number's intervals and the precision, together."""
    noise = PRECISION
    for m in measured:
        of_ratio = corrupts == "of cuBLAS"
        middle, low, high = (m.ratio, m.ratio_low, m.ratio_high) if of_ratio else (m.us, m.us_low, m.us_high)
        noise += (high - low) / 2 / middle if middle and low is not None and high is not None else 0.0
    return noise


def effect_in_words(effect: Effect) -> str:
    """The effect in words that fit a cell: "+9.0 %", "× 195", or "0" when it is not visible."""
    if not effect.visible or abs(effect.factor - 1) < 5e-4:
        return "0"
    if effect.factor >= 3:
        return f"× {_three_digits(effect.factor)}"
    if effect.factor <= 1 / 3:
        return f"÷ {_three_digits(1 / effect.factor)}"
    return f"{100 * (effect.factor - 1):+.1f} %"


def _three_digits(number: float) -> str:
    """Three significant digits, zeros included: 4.70, 43.0, 63 600."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}".replace(",", " ") if rounded >= 100 else f"{rounded:#.3g}"


def effects_text(run: Run, kernel: str) -> str:
    """A table for the terminal: a row for each pitfall, a column for each size."""
    found = effects(run, kernel)
    sizes = list(dict.fromkeys(e.problem for e in found))
    lines: dict[tuple[str, str], dict[Shape, str]] = {}
    for e in found:
        assignment = f"{'warmup' if e.setting == 'first_launch' else e.setting}={e.value}"  # as --set takes it
        name = f"  {e.title}" if e.value == SEVERAL else f"{e.article or ' '} {e.title} ({assignment})"
        lines.setdefault((name, e.corrupts), {})[e.problem] = effect_in_words(e)
    rows = [(*names, *(cells.get(size, "–") for size in sizes)) for names, cells in lines.items()]
    title = f"{run.label}\n{kernel}: effect of each pitfall on the number (0: not visible above the noise)"
    return Table(title, ("  pitfall", "number", *map(str, sizes)), rows).text()
