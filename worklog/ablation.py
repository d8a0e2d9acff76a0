"""What each gremlin did to the number: one lie at a time against the honest reading of the same kernel and size, from a
run.

Lies about how samples are taken were measured; lies about what is made of samples (statistic, offset, roof) are told
here, from the honest samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from worklog.errors import NothingToDraw
from worklog.gemm import Shape, tflops
from worklog.gremlins import BF16_DATASHEET_TFLOPS, GREMLINS, Gremlin
from worklog.plans import HOW_ONE_MEASURES
from worklog.runs import Measurement, Run
from worklog.statistics import summarise

PRECISION = 0.005  # two readings of the same thing may differ by this much: it is what sampling stops at

TOGETHER = {
    frozenset(g.setting for g in GREMLINS if g.article): ("article", "the article's four together"),
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
    honest: float
    lying: float
    noise: float
    label: str = ""

    @property
    def factor(self) -> float:
        """Lying over honest number: 1 is no effect, 2 flatters the kernel by a factor of two."""
        return self.lying / self.honest

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
        honest = next((m for m in here if not m.changed), None)
        if honest is None or honest.tflops is None:
            continue
        lying = {frozenset(m.changed): m for m in here if m.changed}
        for gremlin in GREMLINS:
            lie = lying.get(frozenset([gremlin.setting]))
            if not gremlin.resampled:
                found += _computed(run, honest, gremlin)
            elif lie is not None:
                found += [_first_launch(run, honest, lie, gremlin)] if gremlin.setting == "warmup" else []
                found.append(_measured(honest, lie, gremlin))
        found += [
            _effect(honest, lying[settings], *kind, None, "…", "TFLOP/s")
            for settings, kind in TOGETHER.items()
            if settings in lying
        ]
    if not found:
        raise NothingToDraw(f"the run has no ablation of {kernel}: make one with `worklog ablate {kernel}`")
    return found


def _measured(honest: Measurement, lying: Measurement, gremlin: Gremlin) -> Effect:
    """A lie that was measured."""
    lie = str(lying.changed[gremlin.setting])
    return _effect(honest, lying, gremlin.setting, gremlin.title, gremlin.article, lie, gremlin.corrupts)


def _effect(
    honest: Measurement, lying: Measurement, setting: str, title: str, article: int | None, lie: str, corrupts: str
) -> Effect:
    numbers = (honest.ratio, lying.ratio) if corrupts == "of cuBLAS" else (honest.tflops, lying.tflops)
    noise = _half_width(honest, corrupts) + _half_width(lying, corrupts) + PRECISION
    return Effect(
        honest.kernel,
        honest.shape,
        setting,
        title,
        article,
        lie,
        corrupts,
        honest=numbers[0] or 0.0,
        lying=numbers[1] or 0.0,
        noise=noise,
        label=honest.label,
    )


def _half_width(m: Measurement, corrupts: str) -> float:
    """Relative half-width of the interval of the corrupted number."""
    middle, low, high = (m.ratio, m.ratio_low, m.ratio_high) if corrupts == "of cuBLAS" else (m.us, m.us_low, m.us_high)
    return (high - low) / 2 / middle if middle and low is not None and high is not None else 0.0


def _first_launch(run: Run, honest: Measurement, cold: Measurement, gremlin: Gremlin) -> Effect:
    """The cold start as it is usually met: one launch, believed. The median of many launches steps over it."""
    us = cold.samples["us"][0] - run.calibration.get("offset_us", 0.0)
    return Effect(
        honest.kernel,
        honest.shape,
        "first_launch",
        f"{gremlin.title}, first launch believed",
        gremlin.article,
        "none",
        gremlin.corrupts,
        honest=honest.tflops or 0.0,
        lying=tflops(honest.problem, us),
        noise=_half_width(honest, gremlin.corrupts) + PRECISION,
        label=honest.label,
    )


def _computed(run: Run, honest: Measurement, gremlin: Gremlin) -> list[Effect]:
    """A lie told from the honest samples."""
    lie = str(gremlin.lies[0])
    offset = run.calibration.get("offset_us", 0.0)
    samples = [us - offset for us, counts in zip(honest.samples["us"], honest.samples["counts"], strict=True) if counts]
    true, said = honest.tflops or 0.0, 0.0
    if gremlin.setting == "roof":
        if honest.of_roof is None:
            return []
        true, said = honest.of_roof, true / BF16_DATASHEET_TFLOPS
    elif gremlin.setting == "statistic":
        said = tflops(honest.problem, summarise(samples, lie).value)
    else:
        said = tflops(honest.problem, summarise(samples, "median").value + offset)
    kind = (gremlin.setting, gremlin.title, gremlin.article, lie, gremlin.corrupts)
    return [Effect(honest.kernel, honest.shape, *kind, honest=true, lying=said, noise=0.0, label=honest.label)]


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
