"""From a run to what fills the diagrams' templates: facts by name. The numbers are the run's, the words the templates'.

What the run doesn't have is left out or empty, where a diagram can do without it; otherwise NothingToDraw says what to
measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from worklog.errors import NothingToDraw
from worklog.kernel import LADDER
from worklog.plots.ablation import ablated, in_words
from worklog.plots.diagrams.template import Facts
from worklog.plots.diagrams.tolerance import ARTICLE_TOLERANCE, computed_errors
from worklog.plots.selection import CUBLAS, cublas_tflops, dimensions, measured, rate, rows, sample_times, shape_to_draw
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Effect, Measurement, Run, about, duration
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Pitfall, Value, rule

FAVOURITE = "warptiled"
CANCELLING, PAIR = ("vectorized", Shape.of(1024)), (("l2", "warm"), ("queue", False))  # see headline()
FOUR = sorted((pitfall for pitfall in PITFALLS if pitfall.article), key=lambda pitfall: pitfall.article or 0)
# The median ignores one cold launch among many. The article's gremlin takes that launch as the result.
MEASURED_AS = {"warmup": "first_launch"}
LOOP = "timer", "queue", "l2", "warmup", "order", "statistic"  # the settings of the loop in diagram 4
PRECISION, EVERY_LAUNCH = "precision", "every timed launch"
AFTER = EVERY_LAUNCH, "timed output", "plausible", "a second clock"  # the stages that follow the timing


def mental_model(run: Run, m: Measurement) -> Facts:
    """Diagram 1: the time we want, and what each of the four gremlins, alone and together, does to it."""
    together, ceiling = _here(run, m, "article"), run.calibration.get("fp32_tflops")
    facts: dict[str, Any] = {"gremlins": [asdict(p) | {"alone": _alone(run, m, p)} for p in FOUR]}
    if together is None:
        return facts
    half, us = together.noise, m.problem.flops / together.biased / 1e6
    return facts | {
        "naive": _unbroken(about(us, half, duration)),
        "naive_tflops": about(together.biased, half, _speed),
        "over": about(together.biased / ceiling, half, lambda ratio: f"{ratio:.3g}") if ceiling else "",
        "by": _change(together),
        "visible": together.visible,
    }


def cancels(run: Run) -> list[Measurement]:
    """The kernel of headline() without a mistake, with a warm L2, and without a queue, too; [] if the run lacks one."""
    found = [m for chosen in ((), PAIR[:1], PAIR) for m in run.select(*CANCELLING, dict(chosen))[:1] if measured(m)]
    return found if len(found) == 3 else []


def headline(run: Run) -> Facts:
    """The README's first picture: two mistakes that mostly cancel in a kernel's time, not in its share of cuBLAS."""
    found = cancels(run)
    kernel = [m.us or 0.0 for m in found]
    cublas = [(m.us or 0.0) * (m.ratio or 0.0) for m in found]
    halves = [m.relative_half_width("ratio") for m in found]
    facts: dict[str, Any] = {"both_ratio": about(100 * (found[-1].ratio or 0.0), halves[-1], "{:.1f}".format)}
    for name, (correct, warm, both), (first, _, last) in (("kernel", kernel, (0.0,) * 3), ("cublas", cublas, halves)):
        for when, us, half in (("correct", correct, first), ("both", both, last)):
            facts[f"{name}_{when}"] = _unbroken(about(us, half, "{:.1f} µs".format))
            facts[f"{name}_{when}_bar"] = _percent(us / max(*kernel, *cublas))
        facts[f"{name}_share"] = _signed(100 * (both / correct - 1), "%")
        facts[f"{name}_l2"], facts[f"{name}_queue"] = _signed(warm - correct, "µs"), _signed(both - warm, "µs")
        facts[f"{name}_together"] = _signed(both - correct, "µs")
    return common(run, found[0]) | facts


def memory_hierarchy(run: Run, m: Measurement) -> Facts:
    """Diagram 2: sizes and bandwidths of this machine's memories, and A, B and C of each size next to the L2."""
    l2 = run.device.get("l2_bytes")
    if not l2:
        raise NothingToDraw("the run does not have the size of the L2: measure again with `worklog run`")
    bandwidths = {name: _calibrated(run, f"{name}_gbs", f"measured {name} bandwidth") / 1e3 for name in ("l2", "copy")}
    matrix = {shape: FLOAT_BYTES * shape.m * shape.k for shape in run.shapes() if shape.square}
    if not matrix:
        raise NothingToDraw("the run has no square size to compare with the L2: `worklog run --size 4096`")
    beyond = [shape for shape, size in matrix.items() if size > l2]  # drawn up to the first that is larger than the L2
    sizes = [shape for shape in matrix if not beyond or shape <= beyond[0]]
    widest = max(3 * matrix[sizes[-1]], l2)
    warm = _on_worst_kernel(run, "l2")
    visible = {e.problem: _change(e) if e.visible else "" for e in warm}
    none = [shape for shape in visible if not any(visible[s] for s in visible if s >= shape)]  # none from here on
    largest = _largest(warm)
    made_of, device = run.kernels.get(m.kernel, {}), run.device
    return {
        "registers": made_of.get("registers"),
        "shared": _binary(made_of.get("shared_bytes") or 0),
        "l2": _binary(l2),
        "processors": device.get("multiprocessors") or "",
        "hbm": _binary(device.get("memory_bytes") or 0),
        "read": f"{bandwidths['l2']:.2f}",
        "copied": f"{bandwidths['copy']:.2f}",
        "edge": _percent(l2 / widest),
        "sizes": [
            {
                "size": str(shape),
                "bytes": _binary(matrix[shape]),
                "share": _percent(matrix[shape] / widest),
                "twice": _percent(2 * matrix[shape] / widest),
                "letters": matrix[shape] > 0.1 * widest,
                "effect": visible.get(shape),
                "none": shape in visible and not visible[shape],
            }
            for shape in sizes
        ],
        "warm": warm[0].kernel if warm else "",
        "largest": _at(largest) if largest and largest.visible else "",
        "none": str(none[0]) if none else "",
        "none_on": bool(none[1:]),
        "fits": _binary(3 * matrix[none[0]]) if none and 3 * matrix[none[0]] <= l2 else "",
        "last": str(sizes[-1]),
        "last_bytes": _binary(matrix[sizes[-1]]),
    }


def four_gremlins(run: Run, m: Measurement) -> Facts:
    """Diagram 3: each gremlin, the setting that stops it, the measurement that it corrupts, and its largest effect."""
    found = {pitfall: _on_worst_kernel(run, pitfall.setting) for pitfall in FOUR}
    worst, gremlins = _largest(e for every in found.values() for e in every), []
    for pitfall, every in found.items():
        value, whose = _value(run, pitfall), f"{every[0].kernel}, " if any(e.visible for e in every) else ""
        # What a template shows for this setting and for this value of it.
        shown = {pitfall.setting: True, str(rule(value)): True, "active": pitfall.is_biased(value)}
        words = {"setting": f"{pitfall.setting} = {value}", "effect": whose + _at_worst(every)}
        gremlins.append(asdict(pitfall) | shown | words)
    return {"gremlins": gremlins, "worst": _change(worst) if worst and worst.visible else ""}


def full_loop(run: Run, m: Measurement) -> Facts:
    """Diagram 4: the loop as the harness runs it, and every sample that it took."""
    for pitfall in PITFALLS:
        if pitfall.setting in LOOP and (value := _value(run, pitfall)) != pitfall.unbiased:
            raise NothingToDraw(
                f"the run was measured with {pitfall.setting}={value}, which this diagram does not show: "
                f"measure again with {pitfall.setting}={pitfall.unbiased}"
            )
    if not m.samples.get("us") or not m.samples.get("counts"):
        raise NothingToDraw(f"the run kept no samples of {m.kernel}: measure again with `worklog run`")
    removed = run.harness.get("offset", "removed") == "removed" and "offset_us" in run.calibration
    us, counts = sample_times(run, m)
    middle = m.us or 0.0
    ends = m.us_low or middle, m.us_high or middle
    low, high = min(*us, ends[0]), max(*us, ends[1])
    air = 0.08 * (high - low) or 1.0

    def down(value: float) -> str:
        return _percent((high + air - value) / (high - low + 2 * air))

    precision, l2 = run.harness.get("precision"), run.device.get("l2_bytes")
    return {
        "checked": any(stage["name"] == EVERY_LAUNCH for stage in (m.verdict or {}).get("stages", ())),
        "l2": _binary(l2 or 0),
        "overhead": f"{run.calibration['offset_us']:.2f}" if removed else "",
        "within": f"±{100 * precision:g} %" if precision else "",
        "dots": [
            {"x": _percent((index + 0.5) / len(us)), "y": down(value), "counts": counted}
            for index, (value, counted) in enumerate(zip(us, counts, strict=True))
        ],
        "repeated": not all(counts),
        "median": down(middle),
        "top": down(ends[1]),
        "deep": _percent((ends[1] - ends[0]) / (high - low + 2 * air)),
        "high": duration(high),
        "high_y": down(high),
        "low": duration(low) if low < high else "",
        "low_y": down(low),
    }


def conversion(run: Run, m: Measurement) -> Facts:
    """Diagram 5: work divided by time, as a share of what the same datapath can do, and of what another one can."""
    shape = m.problem
    ceiling, tflops = _calibrated(run, "fp32_tflops", "measured FP32 ceiling"), m.tflops or 0.0
    roofs = {
        "cuBLAS, FP32, same loop": (cublas_tflops(rows(run, shape)), m.ratio or 0.0),
        "FP32 ceiling, measured": (ceiling, tflops / ceiling),
        **({"FP32 peak at this clock": (tflops / m.of_roof, m.of_roof)} if m.of_roof else {}),
        "BF16 tensor cores, datasheet": (BF16_DATASHEET_TFLOPS, tflops / BF16_DATASHEET_TFLOPS),
    }
    most = max(tflops, *(roof for roof, _ in roofs.values()))
    return {
        "elements": _thousands(shape.m * shape.n),
        "operations": _thousands(2 * shape.k),
        "loop": ", ".join(f"{p.setting} = {_value(run, p)}" for p in PITFALLS if p.setting in ("timer", "l2")),
        "bar": _percent(tflops / most),
        "roofs": [
            {
                "name": name,
                "bar": _percent(roof / most),
                "rate": _speed(roof),
                "share": _unbroken(f"{100 * share:.1f} %"),
                "wrong": roof == BF16_DATASHEET_TFLOPS,
            }
            for name, (roof, share) in roofs.items()
        ],
        "of_ceiling": _unbroken(f"{100 * tflops / ceiling:.1f} %"),
        "of_bf16": _unbroken(f"{100 * tflops / BF16_DATASHEET_TFLOPS:.1f} %"),
    }


def one_formula(run: Run, m: Measurement) -> Facts:
    """Diagram 6: the same work divided by each rung's time."""
    shape = m.problem
    kernels = rows(run, shape)
    timed = [kernel for kernel in kernels if measured(kernel)]
    fastest = max(cublas_tflops(kernels), *(kernel.tflops or 0.0 for kernel in timed))
    ours = [kernel for kernel in timed if kernel.kernel != CUBLAS]
    best = max(ours, key=lambda kernel: kernel.tflops or 0.0)

    def row(kernel: Measurement) -> Facts:
        if not measured(kernel):
            return {"kernel": kernel.kernel, "failed": {"refused": "failed the gate"}.get(kernel.status, kernel.status)}
        share = (kernel.tflops or 0.0) / fastest
        return common(run, kernel) | {"bar": _percent(share), "cublas": kernel.kernel == CUBLAS}

    return {
        "product": f"{shape.m}³" if shape.square else f"{shape.m} · {shape.n} · {shape.k}",
        "rungs": [row(kernel) for kernel in kernels],
        "several": ours[0] is not best,
        "first": _unbroken(duration(ours[0].us or 0.0)),
        "first_tflops": _speed(ours[0].tflops or 0.0),
        "best": _unbroken(duration(best.us or 0.0)),
        "best_tflops": _speed(best.tflops or 0.0),
    }


def gate(run: Run, m: Measurement) -> Facts:
    """Diagram 7: the stages that the kernel passed, in order, and what the article's rule would pass."""
    stages: list[dict[str, Any]] = (m.verdict or {}).get("stages", [])
    precision = next((stage for stage in stages if stage["name"] == PRECISION), None)
    if precision is None:
        raise NothingToDraw(f"the run has no verdict of the whole gate on {m.kernel}: `worklog run {m.kernel}`")
    limit, (article, mistakes) = float(precision["limit"]), computed_errors(m.problem.k)
    rows = [
        stage | {stage["name"]: True, "number": i, "what": stage["detail"].partition(":")[0], "last": i == len(stages)}
        for i, stage in enumerate(stages, start=1)
    ]
    before, after = ([row for row in rows if (row["name"] in AFTER) == late] for late in (False, True))
    return {
        "before": before,
        "after": after,
        "many": len(before),
        "more": len(after),
        "share": _unbroken(f"{100 * float(precision['measured']) / limit:.0f} %"),
        "elements": _thousands(m.problem.m * m.problem.n),
        "tolerance": f"{ARTICLE_TOLERANCE:g}",
        "times": _thousands(float(f"{article / limit:.2g}")),
        "slips": ", ".join(name for name, error in mistakes.items() if error < article),
    }


IN_ORDER = mental_model, memory_hierarchy, four_gremlins, full_loop, conversion, one_formula, gate  # as in the article


def subject(run: Run) -> Measurement:
    """warptiled at 4096, else the last rung that was measured there. Raises NothingToDraw without any."""
    shape = shape_to_draw(run, None)
    found = {m.kernel: m for m in rows(run, shape) if measured(m) and m.kernel != CUBLAS}
    if not found:
        raise NothingToDraw(f"no rung was measured at size {shape}: `worklog run --size {shape}`")
    rungs = [rung.name for rung in LADDER if rung.name in found] or list(found)
    return found[FAVOURITE if FAVOURITE in found else rungs[-1]]


def common(run: Run, m: Measurement) -> dict[str, Any]:
    """The source, and a measurement with its shape."""
    us, flops = m.us or 0.0, m.problem.flops
    low, high = m.us_low or us, m.us_high or us
    start, unit = duration(low).split()
    return {
        "source": run.label,
        "footer": run.full_label,
        "kernel": m.kernel,
        "dimensions": dimensions(m.problem),
        "work": _unbroken(f"{flops / 1e9:.4g} GFLOP" if flops >= 1e8 else f"{flops / 1e6:.4g} MFLOP"),
        "time": _unbroken(duration(us)),
        "interval": f"{start if duration(high).endswith(f' {unit}') else duration(low)} to {duration(high)}",
        "half": _unbroken(f"±{50 * (high - low) / us:.2g} %"),
        "samples": m.n,
        "tflops": _speed(m.tflops or 0.0),
        "ratio": f"{100 * (m.ratio or 0.0):.1f}",
    }


def _value(run: Run, pitfall: Pitfall) -> Value:
    """The value of a pitfall's setting in the run; the unbiased one where the run does not have it."""
    found: Value = run.harness.get(pitfall.setting, pitfall.unbiased)
    return found


def _calibrated(run: Run, name: str, what: str) -> float:
    """A number of the calibration. Raises NothingToDraw where it is missing."""
    if not run.calibration.get(name):
        raise NothingToDraw(f"the run has no {what}: measure again with `worklog run`")
    return float(run.calibration[name])


def _effects(run: Run, setting: str) -> dict[str, list[Effect]]:
    """The effect of one setting at every size, by kernel that the run has an ablation of."""
    name = MEASURED_AS.get(setting, setting)
    return {kernel: [e for e in found if e.setting == name] for kernel, found in ablated(run).items()}


def _largest(found: Iterable[Effect]) -> Effect | None:
    """The effect whose factor is furthest from one; the one at the largest size among equals."""
    return max(found, key=lambda e: (abs(math.log2(e.step)), e.shape), default=None)


def _on_worst_kernel(run: Run, setting: str) -> list[Effect]:
    """The effects of one setting on the kernel that it changes most, at every size."""
    found = _effects(run, setting)
    worst = _largest(e for every in found.values() for e in every)
    return found[worst.kernel] if worst else []


def _at_worst(found: Sequence[Effect]) -> str:
    """The largest of one setting's effects over the sizes; where none is visible, the sizes."""
    worst, sizes = _largest(found), sorted({e.problem for e in found}, key=lambda shape: shape.flops)
    if worst is None:
        return "not in this run's ablation"
    if worst.visible or len(sizes) == 1:
        return _at(worst)
    return f"no visible effect from {sizes[0]} to {sizes[-1]}"


def _here(run: Run, m: Measurement, setting: str) -> Effect | None:
    """The effect of one setting on a kernel at its size."""
    return next((e for e in _effects(run, setting).get(m.kernel, []) if e.shape == m.shape), None)


def _alone(run: Run, m: Measurement, pitfall: Pitfall) -> str:
    """The effect of one gremlin on a kernel at its size, and at the size where it is largest."""
    worst, effect = _at_worst(_effects(run, pitfall.setting).get(m.kernel, [])), _here(run, m, pitfall.setting)
    here = _at(effect) if effect else worst
    return worst if here == worst or worst.startswith("no ") else f"{here}, {worst}"


def _at(effect: Effect) -> str:
    """An effect and where it is: "× 84.8 at 4096"; or that none is visible there."""
    where = f"at {effect.problem}"
    return _unbroken(f"{_change(effect)} {where}") if effect.visible else f"no visible effect {where}"


def _change(effect: Effect) -> str:
    """An effect in a few characters: "+9.0 %", "× 84.8"."""
    return _unbroken(in_words(effect))


def _speed(tflops: float) -> str:
    """TFLOP/s in three digits."""
    return _unbroken(rate(tflops))


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
    unit, scale = next(((u, s) for u, s in (("GiB", 2**30), ("MiB", 2**20)) if count >= s), ("KiB", 2**10))
    amount = count / scale
    return _unbroken(f"{amount:.0f} {unit}" if amount >= 1000 else f"{amount:.3g} {unit}") if count else ""
