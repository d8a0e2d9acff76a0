"""Facts of a run, by name, which fill the diagrams' templates.

Numbers are the run's, words the templates'.

If the run lacks what a diagram needs, NothingToDraw says what to measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from worklog.errors import NothingToDraw
from worklog.kernel import LADDER
from worklog.plots.charts.ablation import ablated, in_words
from worklog.plots.diagrams.template import Facts
from worklog.plots.selection import cublas_tflops, measured, rate, rows, sample_times, shape_to_draw
from worklog.plots.style import BODY_PT, shorten
from worklog.problem import FLOAT_BYTES, Shape, random_inputs, sampled_reference
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.effects import BF16_DATASHEET_TFLOPS, Effect
from worklog.runs.text import duration, format_estimate
from worklog.settings import PITFALLS, rule

FAVOURITE = "warptiled"
# see headline()
CANCELLING = ("vectorized", Shape.of(1024))
PAIR = (("l2", "warm"), ("queue", False))
FOUR = sorted(
    (pitfall for pitfall in PITFALLS if pitfall.article), key=lambda pitfall: pitfall.article or 0
)
# The settings of the loop in diagram 4.
LOOP = ("timer", "queue", "l2", "warmup", "order", "statistic")
EVERY_LAUNCH = "every timed launch"
# The stages that follow the timing.
AFTER = (EVERY_LAUNCH, "timed output", "plausible", "a second clock")


def mental_model(run: Run, m: Measurement) -> Facts:
    """Return the facts of diagram 1: the time that we want, and the gremlins' effects.

    Each of the four gremlins has its effect alone. If the run has it, their effect together is
    added.
    """
    gremlins = [
        asdict(pitfall) | {"alone": _effect_alone(_effects(run, pitfall.setting), m)}
        for pitfall in FOUR
    ]
    all_four = [
        effect
        for effect in _effects(run, "article")
        if (effect.kernel, effect.shape) == (m.kernel, m.shape)
    ]
    if not all_four:
        return {"height": 330, "gremlins": gremlins, "visible": False, "naive": ""}
    [together] = all_four
    ceiling = run.calibration.fp32_tflops
    above_ceiling = ""
    if ceiling:
        ratio = format_estimate(together.biased / ceiling, together.noise, "{:.3g}".format)
        if ratio:
            above_ceiling = f", {ratio} × the FP32 ceiling"
    naive_us = m.problem.flops / together.biased / 1e6
    return {
        "height": 404,
        "gremlins": gremlins,
        "visible": together.visible,
        "naive": _unbroken(format_estimate(naive_us, together.noise, duration)),
        "naive_tflops": format_estimate(together.biased, together.noise, rate),
        "over": above_ceiling,
        "by": in_words(together),
    }


def _effect_alone(effects: Sequence[Effect], m: Measurement) -> str:
    """Return a setting's effect at this size and, if it is larger elsewhere, there."""
    on_kernel = [effect for effect in effects if effect.kernel == m.kernel]
    worst = _at_worst(*on_kernel)
    at_shape = next((_at_worst(effect) for effect in on_kernel if effect.shape == m.shape), "")
    if at_shape in ("", worst) or worst.startswith("no"):
        return worst
    return f"{at_shape}, {worst}"


def cancels(run: Run) -> list[Measurement]:
    """Return the three measurements of headline()'s kernel; [] if the run lacks one.

    They are without a mistake, with a warm L2, and with a warm L2 and without a queue.
    """
    timed = list[Measurement]()
    for mistakes in ((), PAIR[:1], PAIR):
        first = run.select(*CANCELLING, dict(mistakes))[:1]
        timed += [m for m in first if measured(m)]
    return timed if len(timed) == 3 else []


def headline(run: Run) -> Facts:
    """Return the facts of the README's first picture: two mistakes that mostly cancel.

    They cancel in a kernel's time, not in its share of cuBLAS.
    """
    timed = cancels(run)
    ours = [(m.us or 0.0, m.us_low or 0.0, m.us_high or 0.0) for m in timed]
    shares = [(m.ratio or 0.0, m.ratio_low or 0.0, m.ratio_high or 0.0) for m in timed]
    cublas = [
        (us * ratio, us * low, us * high)
        for (us, *_), (ratio, low, high) in zip(ours, shares, strict=True)
    ]
    longest = max(max(times) for times in (*ours, *cublas))
    facts = common(run, timed[0])
    facts["ours"] = _cancelling(ours, longest)
    facts["cublas"] = _cancelling(cublas, longest)
    facts["shares"] = dict(zip(("correct", "warm", "both"), shares, strict=True))
    return facts


def _cancelling(times: Sequence[tuple[float, float, float]], longest: float) -> Facts:
    """Return the facts of one side of headline(): steps between times, and two bars.

    times: in µs with their intervals: without a mistake, with one, and with both
    longest: the time of the longest bar, in µs
    """
    correct_us, warm_us, biased_us = (time[0] for time in times)
    facts: dict[str, Any] = {
        "l2": warm_us - correct_us,
        "queue": biased_us - warm_us,
        "together": biased_us - correct_us,
        "share": biased_us / correct_us - 1,
    }
    for name, (us, low_us, high_us) in (("correct", times[0]), ("both", times[-1])):
        facts[name] = _unbroken(f"{us:.1f} ±{(high_us - low_us) / 2:.1f} µs")
        facts[f"{name}_bar"] = us / longest
        facts[f"{name}_low"] = low_us / longest
        facts[f"{name}_wide"] = (high_us - low_us) / longest
    return facts


def memory_hierarchy(run: Run, m: Measurement) -> Facts:
    """Return the facts of diagram 2: this machine's memories, and matrices.

    The memories have sizes and bandwidths. A, B and C of each size are drawn next to the L2.
    """
    l2 = run.gpu.l2_bytes
    matrix = {shape: FLOAT_BYTES * shape.m * shape.k for shape in run.shapes() if shape.square}
    if not matrix:
        raise NothingToDraw(
            "the run has no square size to compare with the L2: `worklog run --size 4096`"
        )
    # Drawn up to the first that is larger than the L2.
    beyond = [shape for shape, size in matrix.items() if size > l2]
    shapes = [shape for shape in matrix if not beyond or shape <= beyond[0]]
    last = shapes[-1]
    widest = max(3 * matrix[last], l2)
    warm = _on_worst_kernel([effect for effect in _effects(run, "l2") if effect.problem in matrix])
    effects = {effect.problem: in_words(effect) if effect.visible else "" for effect in warm}
    unaffected = _without_effect_from(effects)
    sizes = []
    for shape in shapes:
        share = matrix[shape] / widest
        sizes.append(
            {
                "size": str(shape),
                "bytes": matrix[shape],
                "letters": share > 0.1,
                "share": share,
                "twice": 2 * share,
                "effect": effects.get(shape, ""),
                "none": effects.get(shape) == "",
            }
        )
    resources = run.kernels.get(m.kernel, {})
    height = max(316, 50 + 53 * len(sizes))
    fitting_bytes = 3 * matrix[unaffected[0]] if unaffected else 0
    return {
        "height": height,
        "below": height - 32,
        "sizes": sizes,
        "gpu": run.gpu,
        "edge": l2 / widest,
        "registers": resources.get("registers", ""),
        "shared": resources.get("shared_bytes"),
        "l2_tbs": run.calibration.l2_gbs / 1e3,
        "copy_tbs": run.calibration.copy_gbs / 1e3,
        "last": str(last),
        "last_bytes": matrix[last],
        "warm": warm[0].kernel if warm else "",
        "largest": _at_worst(*warm) if any(effects.values()) else "",
        "none": str(unaffected[0]) if unaffected else "",
        "none_on": unaffected[1:],
        "fits": fitting_bytes if fitting_bytes <= l2 else 0,
    }


def _without_effect_from(effects: Mapping[Shape, str]) -> list[Shape]:
    """Return the sizes from which on there is no effect.

    effects: by size, "" for no visible effect
    """
    return [
        shape
        for shape in effects
        if not any(effects[larger] for larger in effects if larger >= shape)
    ]


def four_gremlins(run: Run, _m: Measurement) -> Facts:
    """Return the facts of diagram 3: each gremlin, its setting and its largest effect.

    The setting stops the gremlin. The diagram also shows the measurement that it corrupts.
    """
    gremlins = list[Facts]()
    visible = list[Effect]()
    for pitfall in FOUR:
        value = run.harness.get(pitfall.setting, pitfall.unbiased)
        effects = _on_worst_kernel(_effects(run, pitfall.setting))
        visible_here = [effect for effect in effects if effect.visible]
        visible += visible_here
        effect = _at_worst(*effects)
        if visible_here:
            effect = f"{effects[0].kernel}, {effect}"
        facts = asdict(pitfall)
        # The template's parts for this setting and for this value of it.
        facts |= {pitfall.setting: True, str(rule(value)): True}
        facts["setting"] = f"{pitfall.setting} = {value}"
        facts["active"] = pitfall.is_biased(value)
        facts["effect"] = effect
        gremlins.append(facts)
    return {"gremlins": gremlins, "worst": in_words(_largest(visible)) if visible else ""}


def full_loop(run: Run, m: Measurement) -> Facts:
    """Return the facts of diagram 4: the harness's loop, and each of its samples."""
    _require_unbiased_loop(run)
    if not m.n:
        raise NothingToDraw(
            f"the run kept no samples of {m.kernel}: measure again with `worklog run`"
        )
    times_us, counts = sample_times(m)
    middle = m.us or 0.0
    ends = m.us_low or middle, m.us_high or middle
    low = min(*times_us, ends[0])
    high = max(*times_us, ends[1])
    air = 0.08 * (high - low) or 1.0
    span = high - low + 2 * air

    def down(us: float) -> float:
        return (high + air - us) / span

    dots = [
        {"x": (index + 0.5) / len(times_us), "y": down(us), "counts": is_counted}
        for index, (us, is_counted) in enumerate(zip(times_us, counts, strict=True))
    ]
    stages = m.verdict.stages if m.verdict else ()
    return {
        "dots": dots,
        "repeated": not all(counts),
        "median": down(middle),
        "top": down(ends[1]),
        "deep": (ends[1] - ends[0]) / span,
        "high_y": down(high),
        "high": duration(high),
        "low_y": down(low),
        "low": duration(low) if low < high else "",
        "l2": run.gpu.l2_bytes,
        "checked": any(stage.name == EVERY_LAUNCH for stage in stages),
        "overhead": run.harness.get("offset", "removed") == "removed",
        "precision": 100 * run.harness.get("precision", 0.0),
    }


def _require_unbiased_loop(run: Run) -> None:
    """Raise NothingToDraw if the run's loop isn't the one in diagram 4."""
    for pitfall in PITFALLS:
        value = run.harness.get(pitfall.setting, pitfall.unbiased)
        if pitfall.setting in LOOP and value != pitfall.unbiased:
            raise NothingToDraw(
                f"the run was measured with {pitfall.setting}={value}, "
                "which this diagram does not show: "
                f"measure again with {pitfall.setting}={pitfall.unbiased}"
            )


def conversion(run: Run, m: Measurement) -> Facts:
    """Return the facts of diagram 5: the rate as a share of several peaks.

    The rate is work divided by time. One peak is of the same datapath, another of tensor cores.
    """
    shape = m.problem
    tflops = m.tflops or 0.0
    ceiling = run.calibration.fp32_tflops
    roofs = {
        "cuBLAS, FP32, same loop": cublas_tflops(rows(run, shape)),
        "FP32 ceiling, measured": ceiling,
    }
    if m.of_roof:
        roofs["FP32 peak at this clock"] = tflops / m.of_roof
    roofs["BF16 tensor cores, datasheet"] = BF16_DATASHEET_TFLOPS
    highest = max(tflops, *roofs.values())
    drawn = []
    for name, roof in roofs.items():
        share = (m.ratio or 0.0) if name.startswith(CUBLAS) else tflops / roof
        drawn.append(
            {
                "name": name,
                "bar": roof / highest,
                "rate": roof,
                "share": share,
                "wrong": roof == BF16_DATASHEET_TFLOPS,
            }
        )
    loop = [
        f"{pitfall.setting} = {run.harness.get(pitfall.setting, pitfall.unbiased)}"
        for pitfall in PITFALLS
        if pitfall.setting in ("timer", "l2")
    ]
    return {
        "height": 170 + 31 * len(roofs),
        "roofs": drawn,
        "bar": tflops / highest,
        "elements": shape.m * shape.n,
        "operations": 2 * shape.k,
        "loop": ", ".join(loop),
        "of_ceiling": tflops / ceiling,
        "of_bf16": tflops / BF16_DATASHEET_TFLOPS,
    }


def one_formula(run: Run, m: Measurement) -> Facts:
    """Return the facts of diagram 6: the same work divided by each rung's time."""
    shape = m.problem
    kernels = rows(run, m.problem)
    fastest = max(cublas_tflops(kernels), *(kernel.tflops or 0.0 for kernel in kernels))
    drawn = list[Facts]()
    for kernel in kernels:
        if measured(kernel):
            facts = common(run, kernel)
            facts["failed"] = ""
        else:
            facts = {"kernel": kernel.kernel, "failed": kernel.status}
        facts["bar"] = (kernel.tflops or 0.0) / fastest
        facts["cublas"] = kernel.kernel == CUBLAS
        drawn.append(facts)
    ours = [kernel for kernel in kernels if measured(kernel) and kernel.kernel != CUBLAS]
    best = max(ours, key=lambda kernel: kernel.tflops or 0.0)
    box = max(110, 31 * len(kernels))
    return {
        "height": 36 + box,
        "box": box,
        "rungs": drawn,
        "several": ours[0] is not best,
        "product": f"{shape.m}³" if shape.square else f"{shape.m} · {shape.n} · {shape.k}",
        "first": ours[0],
        "best": best,
    }


def gate(_run: Run, m: Measurement) -> Facts:
    """Return the facts of diagram 7: the stages that the kernel passed, in order.

    The diagram also shows how loose the article's rule is.
    """
    stages = m.verdict.stages if m.verdict else ()
    precision = next((stage for stage in stages if stage.name == "precision"), None)
    if precision is None or not precision.limit:
        raise NothingToDraw(
            f"the run has no verdict of the whole gate on {m.kernel}: `worklog run {m.kernel}`"
        )
    before_timing = list[Facts]()
    after_timing = list[Facts]()
    for number, stage in enumerate(stages, start=1):
        facts = asdict(stage) | {stage.name: True}
        facts |= {"number": number, "what": stage.detail.partition(":")[0]}
        if stage.name in AFTER:
            after_timing.append(facts)
        else:
            before_timing.append(facts)
    before_end = 16 + 36 * len(before_timing)
    after_end = 70 + 36 * len(after_timing)
    rule_y = max(before_end, after_end) + 26
    return {
        "before": before_timing,
        "after": after_timing,
        "many": len(before_timing),
        "more": len(after_timing),
        "rule": rule_y,
        "height": rule_y + 44,
        "share": (precision.measured or 0.0) / precision.limit,
        "before_end": before_end,
        "after_end": after_end,
        "elements": m.problem.m * m.problem.n,
        "times": float(f"{article_tolerance(m.problem.k) / precision.limit:.2g}"),
    }


@lru_cache
def article_tolerance(k: int) -> float:
    """Return the article's rule in the gate's unit u·D, for products of K terms.

    The rule is max|error| / max|reference| < 0.01. It is computed of inputs like the timed ones,
    to three digits, so that another machine's order of additions doesn't show.
    """
    a, b = random_inputs(Shape(32, 512, k), np.random.default_rng(0))
    reference, norm = sampled_reference(a, b, np.arange(32))
    largest_error = 0.01 * float(np.abs(reference).max())
    return float(f"{largest_error / (2.0**-24 * float(np.median(norm))):.3g}")


# As in the article.
IN_ORDER = (
    mental_model,
    memory_hierarchy,
    four_gremlins,
    full_loop,
    conversion,
    one_formula,
    gate,
)


def subject(run: Run) -> Measurement:
    """Return warptiled at 4096, else the last rung that was measured there.

    Raises NothingToDraw if no rung was measured.
    """
    shape = shape_to_draw(run, None)
    timed = {m.kernel: m for m in rows(run, shape) if measured(m) and m.kernel != CUBLAS}
    if not timed:
        raise NothingToDraw(f"no rung was measured at size {shape}: `worklog run --size {shape}`")
    rungs = [rung.name for rung in LADDER if rung.name in timed] or list(timed)
    return timed.get(FAVOURITE, timed[rungs[-1]])


def common(run: Run, m: Measurement) -> dict[str, Any]:
    """Return the source, and a measurement with its shape."""
    us = m.us or 0.0
    low = m.us_low or us
    high = m.us_high or us
    return {
        "run": run,
        "m": m,
        "kernel": shorten(m.kernel, BODY_PT, 1.04),
        "work": _unbroken(_work(m.problem.flops)),
        "interval": f"{_lower_end(low, high)} to {duration(high)}",
        "half": _unbroken(f"±{50 * (high - low) / us:.2g} %"),
    }


def _work(flops: float) -> str:
    """Return work in GFLOP, or below 0.1 GFLOP in MFLOP."""
    if flops >= 1e8:
        return f"{flops / 1e9:.4g} GFLOP"
    return f"{flops / 1e6:.4g} MFLOP"


def _lower_end(low_us: float, high_us: float) -> str:
    """Return the lower end of an interval, without its unit if the upper end has the same."""
    number, unit = duration(low_us).split()
    return number if duration(high_us).endswith(f" {unit}") else duration(low_us)


def _effects(run: Run, setting: str) -> list[Effect]:
    """Return one setting's effects on every kernel with an ablation, at every size.

    For the warm-up, they are the effects of one cold launch that is used as the result, as the
    article's gremlin does: the median ignores that launch among many.
    """
    name = "first_launch" if setting == "warmup" else setting
    of_setting = list[Effect]()
    for effects in ablated(run).values():
        of_setting += [effect for effect in effects if effect.setting == name]
    return of_setting


def _largest(effects: Sequence[Effect]) -> Effect:
    """Return the effect with the factor furthest from 1; among equals, the largest size."""
    return max(effects, key=lambda effect: (abs(math.log2(effect.step)), effect.shape))


def _on_worst_kernel(effects: Sequence[Effect]) -> list[Effect]:
    """Return one setting's effects on the kernel that it changes most."""
    if not effects:
        return []
    kernel = _largest(effects).kernel
    return [effect for effect in effects if effect.kernel == kernel]


def _at_worst(*effects: Effect) -> str:
    """Return the largest of one setting's effects and its size, "× 84.8 at 4096".

    If no effect is visible, the text has the sizes.
    """
    if not effects:
        return "not in this run's ablation"
    worst = _largest(effects)
    if worst.visible:
        return _unbroken(f"{in_words(worst)} at {worst.problem}")
    sizes = sorted({effect.problem for effect in effects}, key=lambda shape: shape.flops)
    if len(sizes) > 1:
        return f"no visible effect from {sizes[0]} to {sizes[-1]}"
    return f"no visible effect at {sizes[0]}"


def _unbroken(text: str) -> str:
    """Return a text with no-break spaces."""
    return text.replace(" ", "\u00a0")
