"""Effects of the pitfalls, from the ablation of a run.

The effect of a pitfall is a biased reading over the unbiased reading of the same kernel and size in
one run, at one SM clock. Pitfalls in how samples are taken were measured. Pitfalls in what is
computed from samples (statistic, offset, roof) are computed here, from the unbiased samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from worklog.errors import NothingToDraw
from worklog.problem import Shape
from worklog.runs.measurement import Measurement, same_card
from worklog.runs.run import Run
from worklog.runs.statistics import PRECISION, compare_shares, is_visible, summarize
from worklog.runs.text import WIDTH, Table, change_in_percent, format_estimate, format_signed
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness, Pitfall, Value

# BF16 tensor-core peak of an H100 or H200 SXM in NVIDIA's datasheet: the wrong roof for FP32.
BF16_DATASHEET_TFLOPS = 989.0
SEVERAL = "…"  # the value of an effect of several settings

TOGETHER = {
    frozenset(pitfall.setting for pitfall in PITFALLS if pitfall.article): (
        "article",
        "the article's four together",
    ),
    frozenset(HOW_ONE_MEASURES): ("all", "all that touch the time"),
}


@dataclass(frozen=True)
class Effect:
    """The effect of a biased setting on a kernel at a shape.

    setting: the pitfall's; "first_launch" if the first launch after a cold start counts as the
        time; "article" for the article's four together, "all" for everything that touches the time
    unbiased, biased: the number that the pitfall `corrupts`, with both settings; a biased TFLOP/s
        of a median is at the clock of the unbiased measurement
    noise: the logarithm by which two equal numbers may differ, see worklog.runs.statistics; 0 if
        both numbers come from the same samples
    clock: biased SM clock / unbiased SM clock - 1, since an effect can act through the clock
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
    clock: float | None = None

    @property
    def problem(self) -> Shape:
        """The shape as a Shape."""
        return Shape(*self.shape)

    @property
    def factor(self) -> float:
        """The biased over the unbiased number: 1 is no effect, 2 doubles the result."""
        return self.biased / self.unbiased

    @property
    def visible(self) -> bool:
        """Whether the effect is visible: see is_visible()."""
        return is_visible(math.log(self.factor), self.noise)

    @property
    def step(self) -> float:
        """The factor; 1 if the effect isn't visible."""
        return self.factor if self.visible else 1.0


def effects(run: Run, kernel: str) -> list[Effect]:
    """Return the effects on a kernel with two positive and finite numbers.

    Sizes are ascending, pitfalls in the table's order.
    Raises NothingToDraw if the run has no ablation of the kernel.
    """
    ablated = [
        m for m in run.measurements if m.kernel == kernel and m.shape and m.status == "measured"
    ]
    all_effects: list[Effect] = []
    shapes = {m.problem for m in ablated if m.changed}
    for shape in sorted(shapes, key=lambda shape: shape.flops):
        at_shape = [m for m in ablated if m.problem == shape]
        unbiased = next((m for m in at_shape if not m.changed), None)
        if unbiased is None or unbiased.tflops is None:
            continue
        measured = dict[frozenset[str], Measurement]()
        for m in at_shape:
            if same_card(unbiased, m):
                measured.setdefault(frozenset(m.changed), m)
        all_effects += _at_one_shape(run, unbiased, measured)
    valid = [
        effect for effect in all_effects if effect.unbiased > 0 and 0 < effect.biased < math.inf
    ]
    if not valid:
        raise NothingToDraw(
            f"the run has no ablation of {kernel}: make one with `worklog ablate {kernel}`"
        )
    return valid


def _at_one_shape(
    run: Run, unbiased: Measurement, measured: Mapping[frozenset[str], Measurement]
) -> list[Effect]:
    """Return the effect of each pitfall that was measured or can be computed.

    measured: by the settings that were changed
    """
    at_shape = list[Effect]()
    for pitfall in PITFALLS:
        m = measured.get(frozenset([pitfall.setting]))
        if not pitfall.resampled:
            at_shape.append(_computed(run, unbiased, pitfall))
        elif m is None:
            continue
        elif pitfall.corrupts == "of cuBLAS":
            at_shape += _on_share(run, unbiased, pitfall, m)
        else:
            if pitfall.setting == "warmup":
                at_shape.append(_of_first_launch(run, unbiased, pitfall, m))
            at_shape.append(_on_time(run, unbiased, pitfall, value=m.changed[pitfall.setting], m=m))
    already_biased = {
        pitfall.setting
        for pitfall in PITFALLS
        if pitfall.is_biased(run.harness.get(pitfall.setting, pitfall.unbiased))
    }
    for settings, (name, title) in TOGETHER.items():
        if m := measured.get(settings - already_biased.union(run.unknown)):
            at_shape.append(
                _on_time(run, unbiased, Pitfall(name, "", (), title, ""), value=SEVERAL, m=m)
            )
    return at_shape


def _effect(
    unbiased: Measurement,
    pitfall: Pitfall,
    value: Value,
    *,
    biased: float | None,
    noise: float,
    clock: float | None,
) -> Effect:
    """Return the effect of a pitfall's value: see Effect for the arguments."""
    numbers = {
        "of cuBLAS": unbiased.ratio,
        "of the roof": unbiased.of_roof,
        "TFLOP/s": unbiased.tflops,
    }
    return Effect(
        unbiased.kernel,
        unbiased.problem.sizes,
        pitfall.setting,
        pitfall.title,
        pitfall.article,
        str(value),
        pitfall.corrupts,
        unbiased=numbers[pitfall.corrupts] or 0.0,
        biased=biased or 0.0,
        noise=noise,
        label=unbiased.label,
        clock=clock,
    )


def _computed(run: Run, unbiased: Measurement, pitfall: Pitfall) -> Effect:
    """Return the effect of a pitfall that is computed from the unbiased samples."""
    value = pitfall.biased[0]
    number = _tflops(run, unbiased, **{pitfall.setting: value})
    if pitfall.setting == "roof":
        number /= BF16_DATASHEET_TFLOPS
    return _effect(unbiased, pitfall, value, biased=number, noise=0.0, clock=0.0)


def _on_share(run: Run, unbiased: Measurement, pitfall: Pitfall, m: Measurement) -> list[Effect]:
    """Return the effect of a pitfall on the share of cuBLAS, if both shares are known.

    The share is at one clock, since the kernels alternate.
    """
    if unbiased.first is None or m.first is None:
        return []
    by_host = run.by_host(unbiased) or run.by_host(m)
    noise = compare_shares(unbiased.first, m.first, by_host).noise
    clock = run.difference(unbiased, m).clock
    return [
        _effect(
            unbiased, pitfall, m.changed[pitfall.setting], biased=m.ratio, noise=noise, clock=clock
        )
    ]


def _of_first_launch(run: Run, unbiased: Measurement, pitfall: Pitfall, m: Measurement) -> Effect:
    """Return the effect of a cold start as it usually happens: the first launch is the time.

    A median ignores the first launch.
    """
    title = f"{pitfall.title}, first launch believed"
    cold = replace(pitfall, setting="first_launch", title=title)
    half_width = unbiased.time.relative_half_width if unbiased.time else 0.0
    biased = _tflops(run, m, statistic="first")
    return _effect(unbiased, cold, "none", biased=biased, noise=PRECISION + half_width, clock=None)


def _on_time(
    run: Run, unbiased: Measurement, pitfall: Pitfall, *, value: Value, m: Measurement
) -> Effect:
    """Return the effect of a pitfall on the time, at the clock of the unbiased measurement."""
    difference = run.difference(unbiased, m)
    in_unbiased_time = (m.tflops or 0.0) * (m.us or 0.0) / (unbiased.us or 1.0)
    biased = in_unbiased_time / (1 + difference.off)
    return _effect(
        unbiased, pitfall, value, biased=biased, noise=difference.noise, clock=difference.clock
    )


def _tflops(run: Run, m: Measurement, **changed: Any) -> float:
    """Return the TFLOP/s of a measurement's samples under other settings.

    changed: settings that differ from the unbiased settings
    """
    calibration = m.context.calibration if m.context else run.calibration
    summary = summarize(m.samples, Harness().but(**changed).as_dict(), calibration.offset_us)
    return (m.work.flops or 0) / summary.time.value / 1e6


def effect_in_words(effect: Effect, factors: bool | None = None) -> str:
    """Return an effect as a short text: "+9.0 %", "× 195", "0" if it isn't visible.

    factors: write a factor instead of percent; by default, from × 3 and ÷ 3 on
    """
    factor = effect.factor
    noise = effect.noise
    if not effect.visible:
        return "0"
    if factors is None:
        factors = not 1 / 3 < factor < 3
    if not factors:
        return change_in_percent(factor - 1, noise)
    if factor > 1:
        return "× " + format_estimate(factor, noise, _three_digits).removeprefix("about ")
    return "÷ " + format_estimate(1 / factor, noise, _three_digits).removeprefix("about ")


def _three_digits(number: float) -> str:
    """Return three significant digits, zeros included: 4.70, 43.0, 63 600.

    There are more digits near 1, which would look like no effect.
    """
    if number < 1.005:
        return f"{number:.4f}"
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}".replace(",", " ") if rounded >= 100 else f"{rounded:#.3g}"


def factor_cell(effect: Effect) -> str:
    """Return an effect's factor, as exact as the noise allows; 1 if it isn't visible."""
    if not effect.visible:
        return "1"
    return format_estimate(effect.factor, effect.noise, _plain_factor).removeprefix("about ")


def _plain_factor(factor: float) -> str:
    """Return a factor as text: 11 000, 43.0, 1.244, 0.998.

    1.0006 has four decimals, since 1.000 would look like no effect.
    """
    if factor >= 100:
        return _three_digits(factor)
    if factor >= 10:
        return f"{factor:.1f}"
    decimals = math.ceil(-math.log10(abs(factor - 1))) if factor != 1 else 0
    return f"{factor:.{max(3, decimals)}f}" if factor >= 0.1 else f"{factor:.3g}"


def effects_text(run: Run, kernel: str, width: int = WIDTH) -> str:
    """Return a table for a terminal: a row per pitfall, a column per size."""
    lines: dict[tuple[str, str, str], dict[Shape, Effect]] = {}
    for effect in effects(run, kernel):
        name, title = _name_and_title(effect)
        line = f"{effect.article or ' '} {name}", effect.corrupts, title
        lines.setdefault(line, {})[effect.problem] = effect
    sizes = dict[Shape, None]()
    for by_size in lines.values():
        sizes |= dict.fromkeys(by_size)
    rows = []
    for (name, number, title), by_size in lines.items():
        cells = [factor_cell(by_size[size]) if size in by_size else "–" for size in sizes]
        rows.append((name, *cells, number, _clock_range([*by_size.values()]), title))
    heading = (
        f"{kernel}: the number with a pitfall over the number without, at one clock (1: no "
        "visible effect)"
    )
    columns = "  setting", *map(str, sizes), "number", "SM clock", "pitfall"
    return Table(f"{run.label}\n{heading}", columns, rows, notes=older(run)).text(width)


def _name_and_title(effect: Effect) -> tuple[str, str]:
    """Return an effect's name, as --set takes it, and the title of its pitfall."""
    if effect.value == SEVERAL:
        return effect.title, ""
    if effect.setting == "first_launch":
        return f"warmup={effect.value}, first launch", effect.title
    return f"{effect.setting}={effect.value}", effect.title


def _clock_range(effects: Sequence[Effect]) -> str:
    """Return the range of the changes of the SM clock; a single number if its ends look alike."""
    clocks = sorted(effect.clock for effect in effects if effect.clock is not None)
    ends = dict.fromkeys(format_signed(end, 2) for end in (*clocks[:1], *clocks[-1:]))
    return " to ".join(ends) or "–"


def older(run: Run) -> list[str]:
    """Return the remark on pitfalls that didn't exist yet when the run was made."""
    if not run.unknown:
        return []
    return [f"not in this run, and counted as unbiased: {', '.join(run.unknown)}"]
