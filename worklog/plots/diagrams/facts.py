"""From a run to what fills the diagrams' templates: facts by name. The numbers are the run's, the words the templates'.

What a diagram needs and the run lacks raises NothingToDraw, which says what to measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from worklog.kernel import LADDER
from worklog.plots.charts.ablation import ablated, in_words
from worklog.plots.diagrams.template import Facts
from worklog.plots.selection import cublas_tflops, measured, rate, rows, sample_times, shape_to_draw
from worklog.plots.style import BODY_PT, shorten
from worklog.problem import FLOAT_BYTES, Shape, random_inputs, sampled_reference
from worklog.runs import (
    BF16_DATASHEET_TFLOPS,
    CUBLAS,
    Effect,
    Measurement,
    NothingToDraw,
    Run,
    about,
    duration,
)
from worklog.settings import PITFALLS, rule

FAVOURITE = "warptiled"
# see headline()
CANCELLING = ("vectorized", Shape.of(1024))
PAIR = (("l2", "warm"), ("queue", False))
FOUR = sorted(
    (pitfall for pitfall in PITFALLS if pitfall.article), key=lambda pitfall: pitfall.article or 0
)
LOOP = (
    "timer",
    "queue",
    "l2",
    "warmup",
    "order",
    "statistic",
)  # the settings of the loop in diagram 4
EVERY_LAUNCH = "every timed launch"
AFTER = (
    EVERY_LAUNCH,
    "timed output",
    "plausible",
    "a second clock",
)  # the stages that follow the timing


def mental_model(run: Run, m: Measurement) -> Facts:
    """Diagram 1: the time we want, and what each of the four gremlins, alone and together, does to it."""
    gremlins = []
    for pitfall in FOUR:
        on_it = [e for e in _effects(run, pitfall.setting) if e.kernel == m.kernel]
        worst = _at_worst(*on_it)
        here = next((_at_worst(e) for e in on_it if e.shape == m.shape), "")
        alone = worst if here in ("", worst) or worst.startswith("no") else f"{here}, {worst}"
        gremlins.append(asdict(pitfall) | {"alone": alone})
    all_four = [e for e in _effects(run, "article") if (e.kernel, e.shape) == (m.kernel, m.shape)]
    if not all_four:
        return {"height": 330, "gremlins": gremlins, "visible": False, "naive": ""}
    [together] = all_four
    ceiling = run.calibration.fp32_tflops
    over = about(together.biased / ceiling, together.noise, "{:.3g}".format) if ceiling else ""
    facts: dict[str, Any] = {"height": 404, "gremlins": gremlins, "visible": together.visible}
    facts |= {
        "naive": _unbroken(about(m.problem.flops / together.biased / 1e6, together.noise, duration))
    }
    facts |= {"naive_tflops": about(together.biased, together.noise, rate)}
    return facts | {
        "over": f", {over} × the FP32 ceiling" if over else "",
        "by": in_words(together),
    }


def cancels(run: Run) -> list[Measurement]:
    """The kernel of headline() without a mistake, with a warm L2, and without a queue, too; [] if the run lacks one."""
    timed = [
        m
        for chosen in ((), PAIR[:1], PAIR)
        for m in run.select(*CANCELLING, dict(chosen))[:1]
        if measured(m)
    ]
    return timed if len(timed) == 3 else []


def headline(run: Run) -> Facts:
    """The README's first picture: two mistakes that mostly cancel in a kernel's time, not in its share of cuBLAS."""
    timed = cancels(run)
    ours = [(m.us or 0.0, m.us_low or 0.0, m.us_high or 0.0) for m in timed]
    shares = [(m.ratio or 0.0, m.ratio_low or 0.0, m.ratio_high or 0.0) for m in timed]
    cublas = [
        (us * ratio, us * low, us * high)
        for (us, *_), (ratio, low, high) in zip(ours, shares, strict=True)
    ]
    longest = max(us for times in (*ours, *cublas) for us in times)
    facts = common(run, timed[0])
    for name, times in (("ours", ours), ("cublas", cublas)):
        (correct, *_), (warm, *_), (both, *_) = times
        of: dict[str, Any] = dict(
            l2=warm - correct, queue=both - warm, together=both - correct, share=both / correct - 1
        )
        for when, (us, low, high) in (("correct", times[0]), ("both", times[-1])):
            of[when] = _unbroken(f"{us:.1f} ±{(high - low) / 2:.1f} µs")
            of |= {
                f"{when}_bar": us / longest,
                f"{when}_low": low / longest,
                f"{when}_wide": (high - low) / longest,
            }
        facts[name] = of
    return facts | {"shares": dict(zip(("correct", "warm", "both"), shares, strict=True))}


def memory_hierarchy(run: Run, m: Measurement) -> Facts:
    """Diagram 2: sizes and bandwidths of this machine's memories, and A, B and C of each size next to the L2."""
    l2 = run.gpu.l2_bytes
    matrix = {shape: FLOAT_BYTES * shape.m * shape.k for shape in run.shapes() if shape.square}
    if not matrix:
        raise NothingToDraw(
            "the run has no square size to compare with the L2: `worklog run --size 4096`"
        )
    beyond = [
        shape for shape, size in matrix.items() if size > l2
    ]  # drawn up to the first that is larger than the L2
    shapes = [shape for shape in matrix if not beyond or shape <= beyond[0]]
    last = shapes[-1]
    widest = max(3 * matrix[shapes[-1]], l2)
    warm = _on_worst_kernel([e for e in _effects(run, "l2") if e.problem in matrix])
    effect = {e.problem: in_words(e) if e.visible else "" for e in warm}
    none = [
        shape for shape in effect if not any(effect[s] for s in effect if s >= shape)
    ]  # none from here on
    sizes = []
    for shape in shapes:
        share = matrix[shape] / widest
        row = {
            "size": str(shape),
            "bytes": matrix[shape],
            "letters": share > 0.1,
            "share": share,
            "twice": 2 * share,
        }
        sizes.append(row | {"effect": effect.get(shape, ""), "none": effect.get(shape) == ""})
    made_of = run.kernels.get(m.kernel, {})
    height = max(316, 50 + 53 * len(sizes))
    facts: dict[str, Any] = {
        "height": height,
        "below": height - 32,
        "sizes": sizes,
        "gpu": run.gpu,
        "edge": l2 / widest,
    }
    facts |= {
        "gpu": run.gpu,
        "registers": made_of.get("registers", ""),
        "shared": made_of.get("shared_bytes"),
    }
    facts |= {
        "l2_tbs": run.calibration.l2_gbs / 1e3,
        "copy_tbs": run.calibration.copy_gbs / 1e3,
        "last": str(last),
    }
    facts |= {"last_bytes": matrix[last], "warm": warm[0].kernel if warm else ""}
    facts |= {"largest": _at_worst(*warm) if any(effect.values()) else ""}
    facts |= {"none": str(none[0]) if none else "", "none_on": none[1:]}
    return facts | {"fits": 3 * matrix[none[0]] if none and 3 * matrix[none[0]] <= l2 else 0}


def four_gremlins(run: Run, m: Measurement) -> Facts:
    """Diagram 3: each gremlin, the setting that stops it, the measurement that it corrupts, and its largest effect."""
    gremlins = list[Facts]()
    visible = list[Effect]()
    for pitfall in FOUR:
        value = run.harness.get(pitfall.setting, pitfall.unbiased)
        effects = _on_worst_kernel(_effects(run, pitfall.setting))
        seen = [e for e in effects if e.visible]
        visible += seen
        words = dict(setting=f"{pitfall.setting} = {value}", active=pitfall.is_biased(value))
        words["effect"] = (f"{effects[0].kernel}, " if seen else "") + _at_worst(*effects)
        # What a template shows for this setting and for this value of it.
        gremlins.append(asdict(pitfall) | {pitfall.setting: True, str(rule(value)): True} | words)
    return dict(gremlins=gremlins, worst=in_words(_largest(visible)) if visible else "")


def full_loop(run: Run, m: Measurement) -> Facts:
    """Diagram 4: the loop as the harness runs it, and every sample that it took."""
    for pitfall in PITFALLS:
        value = run.harness.get(pitfall.setting, pitfall.unbiased)
        if pitfall.setting in LOOP and value != pitfall.unbiased:
            raise NothingToDraw(
                f"the run was measured with {pitfall.setting}={value}, which this diagram does not show: "
                f"measure again with {pitfall.setting}={pitfall.unbiased}"
            )
    if not m.n:
        raise NothingToDraw(
            f"the run kept no samples of {m.kernel}: measure again with `worklog run`"
        )
    us, counts = sample_times(m)
    middle = m.us or 0.0
    ends = m.us_low or middle, m.us_high or middle
    low = min(*us, ends[0])
    high = max(*us, ends[1])
    air = 0.08 * (high - low) or 1.0
    span = high - low + 2 * air

    def down(value: float) -> float:
        return (high + air - value) / span

    dots = [
        {"x": (index + 0.5) / len(us), "y": down(time), "counts": counted}
        for index, (time, counted) in enumerate(zip(us, counts, strict=True))
    ]
    facts: dict[str, Any] = {
        "dots": dots,
        "repeated": not all(counts),
        "median": down(middle),
        "top": down(ends[1]),
    }
    facts |= {
        "deep": (ends[1] - ends[0]) / span,
        "high_y": down(high),
        "high": duration(high),
        "low_y": down(low),
    }
    facts |= {"low": duration(low) if low < high else "", "l2": run.gpu.l2_bytes}
    facts |= {
        "checked": any(
            stage.name == EVERY_LAUNCH for stage in (m.verdict.stages if m.verdict else ())
        )
    }
    facts |= {"overhead": run.harness.get("offset", "removed") == "removed"}
    return facts | {"precision": 100 * run.harness.get("precision", 0.0)}


def conversion(run: Run, m: Measurement) -> Facts:
    """Diagram 5: work divided by time, as a share of what the same datapath can do, and of what another one can."""
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
    most = max(tflops, *roofs.values())
    drawn = []
    for name, roof in roofs.items():
        share = (m.ratio or 0.0) if name.startswith(CUBLAS) else tflops / roof
        wrong = roof == BF16_DATASHEET_TFLOPS
        drawn.append(
            {"name": name, "bar": roof / most, "rate": roof, "share": share, "wrong": wrong}
        )
    facts: dict[str, Any] = {"height": 170 + 31 * len(roofs), "roofs": drawn, "bar": tflops / most}
    facts |= {"elements": shape.m * shape.n, "operations": 2 * shape.k}
    loop = {
        p.setting: run.harness.get(p.setting, p.unbiased)
        for p in PITFALLS
        if p.setting in ("timer", "l2")
    }
    facts |= {"loop": ", ".join(f"{setting} = {value}" for setting, value in loop.items())}
    return facts | {"of_ceiling": tflops / ceiling, "of_bf16": tflops / BF16_DATASHEET_TFLOPS}


def one_formula(run: Run, m: Measurement) -> Facts:
    """Diagram 6: the same work divided by each rung's time."""
    shape = m.problem
    kernels = rows(run, m.problem)
    drawn = list[Facts]()
    fastest = max(cublas_tflops(kernels), *(kernel.tflops or 0.0 for kernel in kernels))
    for kernel in kernels:
        failed = "" if measured(kernel) else kernel.status
        row = dict(kernel=kernel.kernel) if failed else common(run, kernel)
        drawn.append(
            row
            | dict(
                bar=(kernel.tflops or 0.0) / fastest, cublas=kernel.kernel == CUBLAS, failed=failed
            )
        )
    ours = [kernel for kernel in kernels if measured(kernel) and kernel.kernel != CUBLAS]
    best = max(ours, key=lambda kernel: kernel.tflops or 0.0)
    box = max(110, 31 * len(kernels))
    product = f"{shape.m}³" if shape.square else f"{shape.m} · {shape.n} · {shape.k}"
    several = ours[0] is not best
    return dict(
        height=36 + box,
        box=box,
        rungs=drawn,
        several=several,
        product=product,
        first=ours[0],
        best=best,
    )


def gate(run: Run, m: Measurement) -> Facts:
    """Diagram 7: the stages that the kernel passed, in order, and how loose the article's rule is."""
    stages = m.verdict.stages if m.verdict else ()
    precision = next((stage for stage in stages if stage.name == "precision"), None)
    if precision is None or not precision.limit:
        raise NothingToDraw(
            f"the run has no verdict of the whole gate on {m.kernel}: `worklog run {m.kernel}`"
        )
    before = list[Facts]()
    after = list[Facts]()
    for number, stage in enumerate(stages, start=1):
        words = {"number": number, "what": stage.detail.partition(":")[0]}
        (after if stage.name in AFTER else before).append(
            asdict(stage) | {stage.name: True} | words
        )
    ends = {"before_end": 16 + 36 * len(before), "after_end": 70 + 36 * len(after)}
    lower = max(ends.values()) + 26
    facts: dict[str, Any] = {
        "before": before,
        "after": after,
        "many": len(before),
        "more": len(after),
    }
    facts |= {
        "rule": lower,
        "height": lower + 44,
        "share": (precision.measured or 0.0) / precision.limit,
        **ends,
    }
    times = float(f"{article_tolerance(m.problem.k) / precision.limit:.2g}")
    return facts | {"elements": m.problem.m * m.problem.n, "times": times}


@lru_cache
def article_tolerance(k: int) -> float:
    """The article's rule, max|error| / max|reference| < 0.01, in the gate's unit u·D, for products of K terms: of
    inputs like the timed ones, to three digits, so that another machine's order of additions does not show.
    """
    a, b = random_inputs(Shape(32, 512, k), np.random.default_rng(0))
    reference, norm = sampled_reference(a, b, np.arange(32))
    return float(
        f"{0.01 * float(np.abs(reference).max()) / (2.0**-24 * float(np.median(norm))):.3g}"
    )


IN_ORDER = (
    mental_model,
    memory_hierarchy,
    four_gremlins,
    full_loop,
    conversion,
    one_formula,
    gate,
)  # as in the article


def subject(run: Run) -> Measurement:
    """warptiled at 4096, else the last rung that was measured there. Raises NothingToDraw without any."""
    shape = shape_to_draw(run, None)
    timed = {m.kernel: m for m in rows(run, shape) if measured(m) and m.kernel != CUBLAS}
    if not timed:
        raise NothingToDraw(f"no rung was measured at size {shape}: `worklog run --size {shape}`")
    rungs = [rung.name for rung in LADDER if rung.name in timed] or list(timed)
    return timed.get(FAVOURITE, timed[rungs[-1]])


def common(run: Run, m: Measurement) -> dict[str, Any]:
    """The source, and a measurement with its shape."""
    us = m.us or 0.0
    flops = m.problem.flops
    low = m.us_low or us
    high = m.us_high or us
    start, unit = duration(low).split()
    return {
        "run": run,
        "m": m,
        "kernel": shorten(m.kernel, BODY_PT, 1.04),
        "work": _unbroken(
            f"{flops / 1e9:.4g} GFLOP" if flops >= 1e8 else f"{flops / 1e6:.4g} MFLOP"
        ),
        "interval": f"{start if duration(high).endswith(f' {unit}') else duration(low)} to {duration(high)}",
        "half": _unbroken(f"±{50 * (high - low) / us:.2g} %"),
    }


def _effects(run: Run, setting: str) -> list[Effect]:
    """The effects of one setting on every kernel that the run has an ablation of, at every size. Of the warm-up, those
    of one cold launch that is taken as the result, as the article's gremlin does: the median ignores it among many.
    """
    name = "first_launch" if setting == "warmup" else setting
    return [e for effects in ablated(run).values() for e in effects if e.setting == name]


def _largest(effects: Sequence[Effect]) -> Effect:
    """The effect whose factor is furthest from one; the one at the largest size among equals."""
    return max(effects, key=lambda e: (abs(math.log2(e.step)), e.shape))


def _on_worst_kernel(effects: Sequence[Effect]) -> list[Effect]:
    """Of the effects of one setting, those on the kernel that it changes most."""
    return [e for e in effects if e.kernel == _largest(effects).kernel]


def _at_worst(*effects: Effect) -> str:
    """The largest of one setting's effects and where it is, "× 84.8 at 4096"; where none is visible, the sizes."""
    if not effects:
        return "not in this run's ablation"
    worst = _largest(effects)
    sizes = sorted({e.problem for e in effects}, key=lambda shape: shape.flops)
    if worst.visible:
        return _unbroken(f"{in_words(worst)} at {worst.problem}")
    return f"no visible effect {f'from {sizes[0]} to {sizes[-1]}' if len(sizes) > 1 else f'at {sizes[0]}'}"


def _unbroken(words: str) -> str:
    """The words with spaces at which no line ends."""
    return words.replace(" ", "\u00a0")
