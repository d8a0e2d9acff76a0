"""From a run to what fills the diagrams' templates: facts by name. The numbers are the run's, the words the templates'.

What a diagram needs and the run lacks raises NothingToDraw, which says what to measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from worklog.errors import NothingToDraw
from worklog.kernel import LADDER
from worklog.plots.charts.ablation import ablated, in_words
from worklog.plots.diagrams.template import Facts
from worklog.plots.figure import BODY_PT, shorten
from worklog.plots.selection import CUBLAS, cublas_tflops, dimensions, measured, rate, rows, sample_times, shape_to_draw
from worklog.problem import FLOAT_BYTES, Shape, random_inputs, sampled_reference
from worklog.runs import Measurement, Run, Stage, about, duration
from worklog.runs.ablation import Effect
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Pitfall, Value, rule

FAVOURITE = "warptiled"
CANCELLING, PAIR = ("vectorized", Shape.of(1024)), (("l2", "warm"), ("queue", False))  # see headline()
FOUR = sorted((pitfall for pitfall in PITFALLS if pitfall.article), key=lambda pitfall: pitfall.article or 0)
LOOP = "timer", "queue", "l2", "warmup", "order", "statistic"  # the settings of the loop in diagram 4
EVERY_LAUNCH = "every timed launch"
AFTER = EVERY_LAUNCH, "timed output", "plausible", "a second clock"  # the stages that follow the timing


def mental_model(run: Run, m: Measurement) -> Facts:
    """Diagram 1: the time we want, and what each of the four gremlins, alone and together, does to it."""
    gremlins = []
    for pitfall in FOUR:
        on_it = [e for e in _effects(run, pitfall.setting) if e.kernel == m.kernel]
        worst, here = _at_worst(on_it), next((_at(e) for e in on_it if e.shape == m.shape), "")
        alone = worst if here in ("", worst) or worst.startswith("no") else f"{here}, {worst}"
        gremlins.append(asdict(pitfall) | {"alone": alone})
    all_four = [e for e in _effects(run, "article") if (e.kernel, e.shape) == (m.kernel, m.shape)]
    if not all_four:
        return {"height": 330, "gremlins": gremlins, "visible": False, "naive": ""}
    [together], ceiling = all_four, run.calibration.fp32_tflops
    over = about(together.biased / ceiling, together.noise, "{:.3g}".format) if ceiling else ""
    facts: dict[str, Any] = {"height": 404, "gremlins": gremlins, "visible": together.visible}
    facts |= {"naive": _unbroken(about(m.problem.flops / together.biased / 1e6, together.noise, duration))}
    facts |= {"naive_tflops": about(together.biased, together.noise, rate)}
    return facts | {"over": f", {over} × the FP32 ceiling" if over else "", "by": in_words(together)}


def cancels(run: Run) -> list[Measurement]:
    """The kernel of headline() without a mistake, with a warm L2, and without a queue, too; [] if the run lacks one."""
    timed = [m for chosen in ((), PAIR[:1], PAIR) for m in run.select(*CANCELLING, dict(chosen))[:1] if measured(m)]
    return timed if len(timed) == 3 else []


def headline(run: Run) -> Facts:
    """The README's first picture: two mistakes that mostly cancel in a kernel's time, not in its share of cuBLAS."""
    timed = cancels(run)
    times = {"kernel": [m.us or 0.0 for m in timed], "cublas": [(m.us or 0.0) * (m.ratio or 0.0) for m in timed]}
    halves = [m.first.relative_half_width if m.first else 0.0 for m in timed]  # of the ratio, so of cuBLAS's time
    longest = max(*times["kernel"], *times["cublas"])
    facts = common(run, timed[0])
    facts["both_ratio"] = about(100 * (timed[-1].ratio or 0.0), halves[-1], "{:.1f}".format)
    for name, (correct, warm, both) in times.items():
        for when, us, half in (("correct", correct, halves[0]), ("both", both, halves[-1])):
            half = half if name == "cublas" else 0.0
            facts[f"{name}_{when}"] = _unbroken(about(us, half, "{:.1f} µs".format))
            facts[f"{name}_{when}_bar"] = _percent(us / longest)
        changes = {"l2": warm - correct, "queue": both - warm, "together": both - correct}
        facts |= {f"{name}_{what}": _signed(change, "µs") for what, change in changes.items()}
        facts[f"{name}_share"] = _signed(100 * (both / correct - 1), "%")
    return facts


def memory_hierarchy(run: Run, m: Measurement) -> Facts:
    """Diagram 2: sizes and bandwidths of this machine's memories, and A, B and C of each size next to the L2."""
    l2 = run.gpu.l2_bytes
    matrix = {shape: FLOAT_BYTES * shape.m * shape.k for shape in run.shapes() if shape.square}
    if not matrix:
        raise NothingToDraw("the run has no square size to compare with the L2: `worklog run --size 4096`")
    beyond = [shape for shape, size in matrix.items() if size > l2]  # drawn up to the first that is larger than the L2
    shapes = [shape for shape in matrix if not beyond or shape <= beyond[0]]
    last, widest = shapes[-1], max(3 * matrix[shapes[-1]], l2)
    warm = _on_worst_kernel(_effects(run, "l2"))
    effect = {e.problem: in_words(e) if e.visible else "" for e in warm}
    none = [shape for shape in effect if not any(effect[s] for s in effect if s >= shape)]  # none from here on
    sizes = []
    for shape in shapes:
        share = matrix[shape] / widest
        row = {"size": str(shape), "bytes": _binary(matrix[shape]), "letters": share > 0.1}
        row |= {"share": _percent(share), "twice": _percent(2 * share)}
        sizes.append(row | {"effect": effect.get(shape, ""), "none": effect.get(shape) == ""})
    made_of, height = run.kernels.get(m.kernel, {}), max(316, 50 + 53 * len(sizes))
    facts: dict[str, Any] = {
        "height": height,
        "below": height - 32,
        "sizes": sizes,
        "registers": made_of.get("registers", ""),
    }
    facts |= {"shared": _binary(made_of.get("shared_bytes") or 0), "l2": _binary(l2)}
    facts |= {"hbm": _binary(run.gpu.memory_bytes), "edge": _percent(l2 / widest)}
    facts |= {"processors": run.gpu.multiprocessors, "l2_rate": f"{run.calibration.l2_gbs / 1e3:.2f}"}
    facts |= {"copy_rate": f"{run.calibration.copy_gbs / 1e3:.2f}", "last": str(last)}
    facts |= {"last_bytes": _binary(matrix[last]), "warm": warm[0].kernel if warm else ""}
    facts |= {"largest": _at(_largest(warm)) if any(e.visible for e in warm) else ""}
    facts |= {"none": str(none[0]) if none else "", "none_on": none[1:]}
    return facts | {"fits": _binary(3 * matrix[none[0]]) if none and 3 * matrix[none[0]] <= l2 else ""}


def four_gremlins(run: Run, m: Measurement) -> Facts:
    """Diagram 3: each gremlin, the setting that stops it, the measurement that it corrupts, and its largest effect."""
    gremlins, all_effects = list[Facts](), list[Effect]()
    for pitfall in FOUR:
        value, effects = _value(run, pitfall), _on_worst_kernel(_effects(run, pitfall.setting))
        all_effects += effects
        whose = f"{effects[0].kernel}, " if any(e.visible for e in effects) else ""
        # What a template shows for this setting and for this value of it.
        shown = {pitfall.setting: True, str(rule(value)): True, "active": pitfall.is_biased(value)}
        words = {"setting": f"{pitfall.setting} = {value}", "effect": whose + _at_worst(effects)}
        gremlins.append(asdict(pitfall) | shown | words)
    visible = [e for e in all_effects if e.visible]
    return {"gremlins": gremlins, "worst": in_words(_largest(visible)) if visible else ""}


def full_loop(run: Run, m: Measurement) -> Facts:
    """Diagram 4: the loop as the harness runs it, and every sample that it took."""
    for pitfall in PITFALLS:
        if pitfall.setting in LOOP and (value := _value(run, pitfall)) != pitfall.unbiased:
            raise NothingToDraw(
                f"the run was measured with {pitfall.setting}={value}, which this diagram does not show: "
                f"measure again with {pitfall.setting}={pitfall.unbiased}"
            )
    if not m.n:
        raise NothingToDraw(f"the run kept no samples of {m.kernel}: measure again with `worklog run`")
    us, counts = sample_times(m)
    middle = m.us or 0.0
    ends = m.us_low or middle, m.us_high or middle
    low, high = min(*us, ends[0]), max(*us, ends[1])
    air = 0.08 * (high - low) or 1.0

    def down(value: float) -> str:
        return _percent((high + air - value) / (high - low + 2 * air))

    dots = []
    for index, (time, counted) in enumerate(zip(us, counts, strict=True)):
        dots.append({"x": _percent((index + 0.5) / len(us)), "y": down(time), "counts": counted})
    precision, removed = run.harness.get("precision"), run.harness.get("offset", "removed") == "removed"
    facts: dict[str, Any] = {"dots": dots, "repeated": not all(counts), "median": down(middle), "top": down(ends[1])}
    facts |= {"deep": _percent((ends[1] - ends[0]) / (high - low + 2 * air)), "high_y": down(high)}
    facts |= {"low_y": down(low), "high": duration(high), "low": duration(low) if low < high else ""}
    facts |= {"checked": any(stage.name == EVERY_LAUNCH for stage in stages_of(m))}
    facts |= {"overhead": f"{run.calibration.offset_us:.2f}" if removed else ""}
    return facts | {"within": f"±{100 * precision:g} %" if precision else "", "l2": _binary(run.gpu.l2_bytes)}


def conversion(run: Run, m: Measurement) -> Facts:
    """Diagram 5: work divided by time, as a share of what the same datapath can do, and of what another one can."""
    shape, tflops, ceiling = m.problem, m.tflops or 0.0, run.calibration.fp32_tflops
    roofs = {"cuBLAS, FP32, same loop": cublas_tflops(rows(run, shape)), "FP32 ceiling, measured": ceiling}
    if m.of_roof:
        roofs["FP32 peak at this clock"] = tflops / m.of_roof
    roofs["BF16 tensor cores, datasheet"] = BF16_DATASHEET_TFLOPS
    most, drawn = max(tflops, *roofs.values()), []
    for name, roof in roofs.items():
        share = (m.ratio or 0.0) if name.startswith(CUBLAS) else tflops / roof
        row = {"name": name, "bar": _percent(roof / most), "rate": rate(roof), "share": _share(share)}
        drawn.append(row | {"wrong": roof == BF16_DATASHEET_TFLOPS})
    facts: dict[str, Any] = {"height": 170 + 31 * len(roofs), "roofs": drawn, "bar": _percent(tflops / most)}
    facts |= {"elements": _thousands(shape.m * shape.n), "operations": _thousands(2 * shape.k)}
    facts |= {"loop": ", ".join(f"{p.setting} = {_value(run, p)}" for p in PITFALLS if p.setting in ("timer", "l2"))}
    return facts | {"of_ceiling": _share(tflops / ceiling), "of_bf16": _share(tflops / BF16_DATASHEET_TFLOPS)}


def one_formula(run: Run, m: Measurement) -> Facts:
    """Diagram 6: the same work divided by each rung's time."""
    shape, kernels = m.problem, rows(run, m.problem)
    fastest, drawn = max(cublas_tflops(kernels), *(kernel.tflops or 0.0 for kernel in kernels)), list[Facts]()
    for kernel in kernels:
        if measured(kernel):
            bar = _percent((kernel.tflops or 0.0) / fastest)
            drawn.append(common(run, kernel) | {"bar": bar, "cublas": kernel.kernel == CUBLAS, "failed": ""})
        else:
            drawn.append({"kernel": kernel.kernel, "failed": kernel.status})
    ours = [kernel for kernel in kernels if measured(kernel) and kernel.kernel != CUBLAS]
    best, box = max(ours, key=lambda kernel: kernel.tflops or 0.0), max(110, 31 * len(kernels))
    facts = {"height": 36 + box, "box": box, "rungs": drawn, "several": ours[0] is not best}
    facts["product"] = f"{shape.m}³" if shape.square else f"{shape.m} · {shape.n} · {shape.k}"
    for name, kernel in (("first", ours[0]), ("best", best)):
        facts |= {name: _unbroken(duration(kernel.us or 0.0)), f"{name}_tflops": rate(kernel.tflops or 0.0)}
    return facts


def gate(run: Run, m: Measurement) -> Facts:
    """Diagram 7: the stages that the kernel passed, in order, and how loose the article's rule is."""
    stages = stages_of(m)
    precision = next((stage for stage in stages if stage.name == "precision"), None)
    if precision is None or not precision.limit:
        raise NothingToDraw(f"the run has no verdict of the whole gate on {m.kernel}: `worklog run {m.kernel}`")
    before, after = list[Facts](), list[Facts]()
    for number, stage in enumerate(stages, start=1):
        words = {"number": number, "what": stage.detail.partition(":")[0]}
        (after if stage.name in AFTER else before).append(asdict(stage) | {stage.name: True} | words)
    before_end, after_end = 16 + 36 * len(before), 70 + 36 * len(after)
    lower = max(before_end, after_end) + 26
    facts: dict[str, Any] = {
        "before": before,
        "before_end": before_end,
        "after": after,
        "after_end": after_end,
        "rule": lower,
    }
    facts |= {"height": lower + 44, "many": len(before), "more": len(after)}
    facts |= {"share": _share((precision.measured or 0.0) / precision.limit, 0)}
    facts |= {"elements": _thousands(m.problem.m * m.problem.n)}
    return facts | {"times": _thousands(float(f"{article_tolerance(m.problem.k) / precision.limit:.2g}"))}


@lru_cache
def article_tolerance(k: int) -> float:
    """The article's rule, max|error| / max|reference| < 0.01, in the gate's unit u·D, for products of K terms: of
    inputs like the timed ones, to three digits, so that another machine's order of additions does not show.
    """
    a, b = random_inputs(Shape(32, 512, k), np.random.default_rng(0))
    reference, norm = sampled_reference(a, b, np.arange(32))
    return float(f"{0.01 * float(np.abs(reference).max()) / (2.0**-24 * float(np.median(norm))):.3g}")


IN_ORDER = mental_model, memory_hierarchy, four_gremlins, full_loop, conversion, one_formula, gate  # as in the article


def subject(run: Run) -> Measurement:
    """warptiled at 4096, else the last rung that was measured there. Raises NothingToDraw without any."""
    shape = shape_to_draw(run, None)
    timed = {m.kernel: m for m in rows(run, shape) if measured(m) and m.kernel != CUBLAS}
    if not timed:
        raise NothingToDraw(f"no rung was measured at size {shape}: `worklog run --size {shape}`")
    rungs = [rung.name for rung in LADDER if rung.name in timed] or list(timed)
    return timed.get(FAVOURITE, timed[rungs[-1]])


def stages_of(m: Measurement) -> list[Stage]:
    """The gate's stages; [] where it didn't run."""
    return list(m.verdict.stages) if m.verdict else []


def common(run: Run, m: Measurement) -> dict[str, Any]:
    """The source, and a measurement with its shape."""
    us, flops = m.us or 0.0, m.problem.flops
    low, high = m.us_low or us, m.us_high or us
    start, unit = duration(low).split()
    return {
        "source": run.label,
        "footer": run.full_label,
        "kernel": shorten(m.kernel, BODY_PT, 1.04),
        "dimensions": dimensions(m.problem),
        "work": _unbroken(f"{flops / 1e9:.4g} GFLOP" if flops >= 1e8 else f"{flops / 1e6:.4g} MFLOP"),
        "time": _unbroken(duration(us)),
        "interval": f"{start if duration(high).endswith(f' {unit}') else duration(low)} to {duration(high)}",
        "half": _unbroken(f"±{50 * (high - low) / us:.2g} %"),
        "samples": m.n,
        "tflops": rate(m.tflops or 0.0),
        "ratio": f"{100 * (m.ratio or 0.0):.1f}",
    }


def _value(run: Run, pitfall: Pitfall) -> Value:
    """The value of a pitfall's setting in the run; the unbiased one where the run does not have it."""
    value: Value = run.harness.get(pitfall.setting, pitfall.unbiased)
    return value


def _effects(run: Run, setting: str) -> list[Effect]:
    """The effects of one setting on every kernel that the run has an ablation of, at every size. Of the warm-up, those
    of one cold launch that is taken as the result, as the article's gremlin does: the median ignores it among many.
    """
    name = "first_launch" if setting == "warmup" else setting
    return [e for effects in ablated(run).values() for e in effects if e.setting == name]


def _largest(effects: Iterable[Effect]) -> Effect:
    """The effect whose factor is furthest from one; the one at the largest size among equals."""
    return max(effects, key=lambda e: (abs(math.log2(e.step)), e.shape))


def _on_worst_kernel(effects: Sequence[Effect]) -> list[Effect]:
    """Of the effects of one setting, those on the kernel that it changes most."""
    return [e for e in effects if e.kernel == _largest(effects).kernel]


def _at_worst(effects: Sequence[Effect]) -> str:
    """The largest of one setting's effects over the sizes; where none is visible, the sizes."""
    if not effects:
        return "not in this run's ablation"
    worst, sizes = _largest(effects), sorted({e.problem for e in effects}, key=lambda shape: shape.flops)
    if worst.visible or len(sizes) == 1:
        return _at(worst)
    return f"no visible effect from {sizes[0]} to {sizes[-1]}"


def _at(effect: Effect) -> str:
    """An effect and where it is: "× 84.8 at 4096"; or that none is visible there."""
    where = f"at {effect.problem}"
    return _unbroken(f"{in_words(effect)} {where}") if effect.visible else f"no visible effect {where}"


def _share(share: float, digits: int = 1) -> str:
    return _unbroken(f"{100 * share:.{digits}f} %")


def _percent(share: float) -> str:
    """A length for a template: a share of the whole, in percent."""
    return f"{100 * share:.3f}"


def _unbroken(words: str) -> str:
    """The words with spaces at which no line ends."""
    return words.replace(" ", "\u00a0")


def _signed(change: float, unit: str) -> str:
    """A change without digits after the point: "+35 µs", "−33 µs"."""
    return _unbroken(f"{change:+.0f} {unit}".replace("-", "−"))


def _thousands(count: float) -> str:
    """A whole number with a thin space between thousands."""
    return f"{count:,.0f}".replace(",", "\u2009")


def _binary(count: float) -> str:
    """Bytes in a binary unit: "60 MiB", "768 KiB", "140 GiB"; "" for 0."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale or (unit == "KiB" and count):
            amount = count / scale
            return _unbroken(f"{amount:.0f} {unit}" if amount >= 1000 else f"{amount:.3g} {unit}")
    return ""
