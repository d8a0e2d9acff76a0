"""What each gremlin did to the number: one lie at a time against the honest reading of the same kernel and size, from a run.

Lies about how samples are taken were measured; lies about what is made of samples (statistic, offset, roof) are told here, from the
honest samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from worklog.errors import NothingToDraw
from worklog.gemm import Shape, tflops
from worklog.gremlins import GREMLINS, Gremlin
from worklog.runs import Measurement, Run
from worklog.statistics import summarise


@dataclass(frozen=True)
class Effect:
    """One lie's effect. setting: the gremlin, "article" for its four together, or "all". honest and lying: the corrupted number
    (`corrupts`) without and with the lie. noise: relative half-width of the two intervals together; a smaller effect is none."""

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

    @property
    def factor(self) -> float:
        """Lying over honest number: 1 is no effect, 2 flatters the kernel by a factor of two."""
        return self.lying / self.honest

    @property
    def visible(self) -> bool:
        """Whether the effect is larger than the noise of the two readings."""
        return abs(self.factor - 1) > self.noise


def effects(run: Run, kernel: str) -> list[Effect]:
    """All effects on one kernel, sizes ascending, gremlins in the table's order. Raises NothingToDraw if the run has no ablation of it."""
    found: list[Effect] = []
    for shape in sorted(
        {m.problem for m in run.measurements if m.kernel == kernel and m.changed}, key=lambda s: s.flops
    ):
        honest = next((m for m in run.select(kernel, shape) if m.status == "measured"), None)
        if honest is None:
            continue
        lying = {
            frozenset(m.changed): m
            for m in run.measurements
            if m.kernel == kernel and m.problem == shape and m.changed and m.status == "measured"
        }
        for gremlin in GREMLINS:
            effect = (
                _measured(honest, lying.get(frozenset([gremlin.setting])), gremlin)
                if gremlin.resampled
                else _computed(run, honest, gremlin)
            )
            if effect is not None:
                found.append(effect)
        four = frozenset(g.setting for g in GREMLINS if g.article)
        for settings, together in lying.items():
            if len(settings) > 1:
                setting, title = (
                    ("article", "the article's four together")
                    if settings == four
                    else ("all", "all that touch the time")
                )
                found.append(_effect(honest, setting, title, None, "…", "TFLOP/s", together))
    if not found:
        raise NothingToDraw(f"the run has no ablation of {kernel}: make one with `worklog ablate {kernel}`")
    return found


def _measured(honest: Measurement, lying: Measurement | None, gremlin: Gremlin) -> Effect | None:
    if lying is None:
        return None
    return _effect(
        honest,
        gremlin.setting,
        gremlin.title,
        gremlin.article,
        str(lying.changed[gremlin.setting]),
        gremlin.corrupts,
        lying,
    )


def _effect(
    honest: Measurement, setting: str, title: str, article: int | None, lie: str, corrupts: str, lying: Measurement
) -> Effect:
    a, b = (honest.ratio, lying.ratio) if corrupts == "of cuBLAS" else (honest.tflops, lying.tflops)
    return Effect(
        honest.kernel,
        honest.shape,
        setting,
        title,
        article,
        lie,
        corrupts,
        a or 0.0,
        b or 0.0,
        _half_width(honest, corrupts) + _half_width(lying, corrupts),
    )


def _half_width(m: Measurement, corrupts: str) -> float:
    middle, low, high = (m.ratio, m.ratio_low, m.ratio_high) if corrupts == "of cuBLAS" else (m.us, m.us_low, m.us_high)
    return (high - low) / 2 / middle if middle and low is not None and high is not None else 0.0


def _computed(run: Run, honest: Measurement, gremlin: Gremlin) -> Effect | None:
    """A lie told from honest samples."""
    lie = gremlin.lies[0]
    offset = run.calibration.get("offset_us", 0.0)
    samples = [us - offset for us, counts in zip(honest.samples["us"], honest.samples["counts"], strict=True) if counts]
    common = (honest.kernel, honest.shape, gremlin.setting, gremlin.title, gremlin.article, str(lie), gremlin.corrupts)
    if gremlin.setting == "roof":
        peak = run.device.get("fp32_peak_tflops")
        if not peak or honest.of_roof is None or honest.tflops is None:
            return None
        return Effect(*common, honest.of_roof, honest.tflops / 989.0, 0.0)
    us = (
        summarise(samples, str(lie)).value
        if gremlin.setting == "statistic"
        else summarise(samples, "median").value + offset
    )
    return Effect(*common, honest.tflops or 0.0, tflops(Shape(*honest.shape), us), _half_width(honest, "TFLOP/s"))


def percent(effect: Effect) -> str:
    """The effect in words that fit a cell: "+9.0 %", "× 195", or "0" when it is not visible."""
    if not effect.visible:
        return "0"
    if effect.factor >= 3:
        return f"× {effect.factor:.3g}"
    if effect.factor <= 1 / 3:
        return f"÷ {1 / effect.factor:.3g}"
    return f"{100 * (effect.factor - 1):+.1f} %"


def text(run: Run, kernel: str) -> str:
    """A table for the terminal: a row a gremlin, a column a size."""
    found = effects(run, kernel)
    sizes = list(dict.fromkeys(Shape(*e.shape) for e in found))
    rows = list(dict.fromkeys((e.setting, e.title, e.lie, e.corrupts, e.article) for e in found))
    lines = [run.label, f"{kernel}: what each lie does to the number (0: not visible above the noise)"]
    lines.append(f"{'':46}{'number':>12}" + "".join(f"{size!s:>12}" for size in sizes))
    for setting, title, lie, corrupts, article in rows:
        by_size = {Shape(*e.shape): percent(e) for e in found if e.setting == setting}
        name = f"{article or ' '} {title} ({setting}={lie})" if lie != "…" else f"  {title}"
        lines.append(f"{name[:46]:46}{corrupts:>12}" + "".join(f"{by_size.get(size, '–'):>12}" for size in sizes))
    return "\n".join(lines)
