"""What each gremlin did to the number: one lie at a time against the honest reading of the same kernel and size, from a
run.

Lies about how samples are taken were measured; lies about what is made of samples (statistic, offset, roof) are told
here, from the honest samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from worklog.errors import NothingToDraw
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run
from worklog.runs.samples import Reading
from worklog.runs.summarize import summarize
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness, Pitfall

PRECISION = 0.005  # two readings of the same thing may differ by this much: it is what sampling stops at
SETTINGS = Harness().as_dict()

TOGETHER = {
    frozenset(g.setting for g in PITFALLS if g.article): ("article", "the article's four together"),
    frozenset(HOW_ONE_MEASURES): ("all", "all that touch the time"),
}


@dataclass(frozen=True)
class Effect:
    """One lie's effect on one kernel at one shape.

    setting: the gremlin's; "first_launch" for a cold start that is believed; "article" for the article's four together,
    "all" for everything that touches the time. honest and lying: the corrupted number (`corrupts`) without and with the
    lie. noise: the relative half-widths of both intervals and the precision that sampling stops at, together; 0 for a
    lie told from the honest samples. A smaller effect than the noise is none. label: of the honest measurement.
    """

    kernel: str
    shape: tuple[int, int, int]
    setting: str
    title: str
    article: int | None
    lie: str
    corrupts: str
    unbiased: float
    lying: float
    noise: float
    label: str = ""

    @property
    def factor(self) -> float:
        """Lying over honest number: 1 is no effect, 2 flatters the kernel by a factor of two."""
        return self.lying / self.unbiased

    @property
    def visible(self) -> bool:
        """Whether the effect is larger than the noise of the two readings."""
        return abs(self.factor - 1) > self.noise


def effects(run: Run, kernel: str) -> list[Effect]:
    """All effects on one kernel, sizes ascending, gremlins in the table's order. Raises NothingToDraw if the run has no
    ablation of it."""
    found: list[Effect] = []
    mine = [m for m in run.measurements if m.kernel == kernel and m.status == "measured"]
    for shape in sorted({m.problem for m in mine if m.changed}, key=lambda s: s.flops):
        here = [m for m in mine if m.problem == shape]
        unbiased = next((m for m in here if not m.changed), None)
        if unbiased is None or unbiased.tflops is None:
            continue
        lying = {frozenset(m.changed): m for m in here if m.changed}
        for pitfall in PITFALLS:
            lie = lying.get(frozenset([pitfall.setting]))
            if not pitfall.resampled:
                found += _computed(run, unbiased, pitfall)
            elif lie is not None:
                found += [_first_launch(run, unbiased, lie, pitfall)] if pitfall.setting == "warmup" else []
                found.append(_measured(unbiased, lie, pitfall))
        own = {g.setting for g in PITFALLS if g.is_biased(run.harness.get(g.setting, g.unbiased))}
        found += [
            _effect(unbiased, lying[settings - own], *kind, None, "…", "TFLOP/s")
            for settings, kind in TOGETHER.items()
            if settings - own in lying
        ]
    if not found:
        raise NothingToDraw(f"the run has no ablation of {kernel}: make one with `worklog ablate {kernel}`")
    return found


def _measured(unbiased: Measurement, lying: Measurement, pitfall: Pitfall) -> Effect:
    """A lie that was measured."""
    lie = str(lying.changed[pitfall.setting])
    return _effect(unbiased, lying, pitfall.setting, pitfall.title, pitfall.article, lie, pitfall.corrupts)


def _effect(
    unbiased: Measurement, lying: Measurement, setting: str, title: str, article: int | None, lie: str, corrupts: str
) -> Effect:
    numbers = (unbiased.ratio, lying.ratio) if corrupts == "of cuBLAS" else (unbiased.tflops, lying.tflops)
    noise = _half_width(unbiased, corrupts) + _half_width(lying, corrupts) + PRECISION
    return Effect(
        unbiased.kernel,
        unbiased.shape,
        setting,
        title,
        article,
        lie,
        corrupts,
        unbiased=numbers[0] or 0.0,
        lying=numbers[1] or 0.0,
        noise=noise,
        label=unbiased.label,
    )


def _half_width(m: Measurement, corrupts: str) -> float:
    """Relative half-width of the interval of the corrupted number."""
    middle, low, high = (m.ratio, m.ratio_low, m.ratio_high) if corrupts == "of cuBLAS" else (m.us, m.us_low, m.us_high)
    return (high - low) / 2 / middle if middle and low is not None and high is not None else 0.0


def _first_launch(run: Run, unbiased: Measurement, cold: Measurement, pitfall: Pitfall) -> Effect:
    """The cold start as most people meet it: one launch, taken for the time. The median of many launches ignores it."""
    first = summarize(
        Reading.of_columns(cold.samples), SETTINGS | {"statistic": "first"}, _calibration(run), unbiased.problem.flops
    )
    return Effect(
        unbiased.kernel,
        unbiased.shape,
        "first_launch",
        f"{pitfall.title}, first launch believed",
        pitfall.article,
        "none",
        pitfall.corrupts,
        unbiased=unbiased.tflops or 0.0,
        lying=first.tflops or 0.0,
        noise=_half_width(unbiased, pitfall.corrupts) + PRECISION,
        label=unbiased.label,
    )


def _calibration(run: Run) -> dict[str, Any]:
    return {"offset_us": 0.0, **run.calibration}


def _computed(run: Run, unbiased: Measurement, pitfall: Pitfall) -> list[Effect]:
    """The effect of a pitfall in the arithmetic, on the unbiased samples."""
    lie = str(pitfall.biased[0])
    if pitfall.setting == "roof" and unbiased.of_roof is None:
        return []
    samples, changed = Reading.of_columns(unbiased.samples), SETTINGS | {pitfall.setting: lie}
    found = summarize(samples, changed, _calibration(run), unbiased.problem.flops)
    true, said = (unbiased.of_roof, found.of_peak) if pitfall.setting == "roof" else (unbiased.tflops, found.tflops)
    kind = (pitfall.setting, pitfall.title, pitfall.article, lie, pitfall.corrupts)
    return [
        Effect(
            unbiased.kernel,
            unbiased.shape,
            *kind,
            unbiased=true or 0.0,
            lying=said or 0.0,
            noise=0.0,
            label=unbiased.label,
        )
    ]


def percent(effect: Effect) -> str:
    """The effect in words that fit a cell: "+9.0 %", "× 195", or "0" when it is not visible."""
    if not effect.visible or abs(effect.factor - 1) < 5e-4:
        return "0"
    if effect.factor >= 3:
        return f"× {_three_digits(effect.factor)}"
    if effect.factor <= 1 / 3:
        return f"÷ {_three_digits(1 / effect.factor)}"
    return f"{100 * (effect.factor - 1):+.1f} %"


def _three_digits(number: float) -> str:
    """Three digits that count, whether they are zeros or not: 4.70, 43.0, 63 600."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}".replace(",", " ") if rounded >= 100 else f"{rounded:#.3g}"


def text(run: Run, kernel: str) -> str:
    """A table for the terminal: a row a gremlin, a column a size."""
    found = effects(run, kernel)
    sizes = list(dict.fromkeys(Shape(*e.shape) for e in found))
    rows = list(dict.fromkeys((e.setting, e.title, e.lie, e.corrupts, e.article) for e in found))
    lines = [run.label, f"{kernel}: what each lie does to the number (0: not visible above the noise)"]
    lines.append(f"{'':56}{'number':>12}" + "".join(f"{size!s:>12}" for size in sizes))
    for setting, title, lie, corrupts, article in rows:
        cells = {Shape(*e.shape): percent(e) for e in found if e.setting == setting}
        told = f" ({'warmup' if setting == 'first_launch' else setting}={lie})"  # as --set takes it
        name = f"  {title}" if lie == "…" else f"{article or ' '} {title}{told}"
        lines.append(f"{name[:56]:56}{corrupts:>12}" + "".join(f"{cells.get(size, '–'):>12}" for size in sizes))
    return "\n".join(lines)
