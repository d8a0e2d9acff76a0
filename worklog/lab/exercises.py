"""The graded exercise of each notebook.

The gate, the emulator, the compiler or the harness's recorded samples grade an answer. The feedback
says what is wrong and gives a hint, never the solution. Each graded answer is a line of a file.
`worklog journal` prints the first answer to each exercise and what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from itertools import count
from numbers import Integral, Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from worklog.emulator import launch, load
from worklog.emulator.limits import WARP
from worklog.errors import BadSetting, WorklogError, apart
from worklog.gate import SgemmChecker
from worklog.kernel import Kernel, Program, rung
from worklog.kernel.emulated import EmulatedDevice, build
from worklog.kernel.inspection import inspect
from worklog.kernel.ladder import block_traffic_bytes, memory_counts, moved_from_l2
from worklog.kernel.prediction import bound
from worklog.kernel.solution import Solution
from worklog.lab.answers import Answers
from worklog.lab.journal import add_to_journal
from worklog.lab.readings import grid_runs, in_words
from worklog.problem import FLOAT_BYTES, Shape, tflops
from worklog.problem.axes import Axis
from worklog.runner.check import Checked, check
from worklog.runner.measure import results
from worklog.runs import CUBLAS, open_run, same_card
from worklog.runs.comparison import KNOWN, open_comparison
from worklog.runs.statistics import LEAST_SAMPLES, median
from worklog.runs.text import format_signed
from worklog.settings import PITFALLS, Harness
from worklog.tune import sweep

TILED = "the source of a kernel, a string, for blocks of 16 x 16 threads"
CLOSE = 0.01  # a number may differ by this share: it was rounded
DIGITS = 2  # or it has at least so many significant digits, and these are right
SMALL = Shape(144, 72, 37)
SECTOR_BYTES = 32
SEED = 4
STRIDE = 3  # floats from a lane's to the next lane's
STRIDED = f"""extern "C" __global__ void read(const float* x, float* out) {{
  out[threadIdx.x] = x[{STRIDE} * threadIdx.x];
}}"""


@dataclass(frozen=True, repr=False)
class Graded:
    """The grade of an answer."""

    right: bool
    feedback: str
    label: str = ""  # the source of its numbers, or a table
    measured: float | None = None  # the number that the exercise asks for
    causes: tuple[str, ...] = ()  # what isn't right yet: names of counts, or of findings

    def __repr__(self) -> str:
        text = f"{'right' if self.right else 'not yet'}: {self.feedback}"
        return f"{text}\n{self.label}" if self.label else text

    def _repr_html_(self) -> str:
        text = escape(repr(replace(self, label="")))
        label = (
            f'<div tabindex="0" style="white-space:pre;overflow-x:auto">{escape(self.label)}</div>'
        )
        return (
            f'<pre role="status" style="white-space:pre-wrap;word-break:normal">{text}{label}</pre>'
        )


def check_answer(notebook: str, answer: object = None) -> Graded:
    """Grade the answer to the exercise of a notebook.

    The grade displays itself. `worklog journal` has the first answers.
    notebook: the notebook's number, as in "14"
    answer: None returns what kind of answer the exercise asks for
    Raises BadSetting if no notebook has this number.
    """
    if notebook not in EXERCISES:
        raise BadSetting(
            f"no notebook {notebook!r} has an exercise: choose from {', '.join(sorted(EXERCISES))}"
        )
    description, kind, grade = EXERCISES[notebook]
    if answer is None:
        return Graded(False, f"there is no answer. Set `answer` to {description}")
    if not isinstance(answer, kind):
        return Graded(False, f"the answer is {description}, not {type(answer).__name__}")
    if isinstance(answer, Real) and not is_number(answer):
        return Graded(False, f"the answer is {description}, not {answer}")
    try:
        graded = grade(answer)
    except WorklogError as error:
        return Graded(False, str(error))
    measured = graded.feedback if graded.measured is None else graded.measured
    problem = add_to_journal(
        notebook, description, answer, measured, right=graded.right, label=graded.label
    )
    if problem:
        return replace(graded, feedback=f"{graded.feedback} ({problem})")
    return graded


def is_number(value: object) -> bool:
    """Return whether a value is a finite number. True and False are none."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and math.isfinite(value)


def _graded(right: bool, facts: str, hint: str, label: str = "") -> Graded:
    """Return a grade, with a hint if the answer is wrong."""
    return Graded(right, facts if right else f"{facts}. Hint: {hint}", label)


def _number(
    answer: float,
    right: float,
    unit: str,
    *,
    hint: str,
    mistakes: Mapping[str, float],
    label: str = "",
) -> Graded:
    """Grade a number: right to DIGITS digits, unless that is the result of a typical mistake.

    mistakes: the results of typical mistakes, by the feedback to them
    """
    if math.isclose(answer, right, rel_tol=CLOSE):
        return Graded(True, f"{right:.4g} {unit}", label, right)
    for feedback, wrong in mistakes.items():
        if math.isclose(answer, wrong, rel_tol=CLOSE):
            return Graded(False, feedback, label)
    if math.isclose(answer, float(f"{right:.{DIGITS}g}")):
        return Graded(True, f"{right:.4g} {unit}", label, right)
    size = "large" if answer > right else "small"
    return _graded(False, f"{answer:.4g} {unit} is too {size}", hint, label)


def _fastest_at_256(name: str) -> Graded:
    run = results(shapes=[256])
    times = {m.kernel: m for m in run.measurements if m.us and m.kernel != CUBLAS}
    if name not in times:
        facts = f"{name} isn't a rung with a time at 256: choose from {', '.join(times)}"
        return Graded(False, facts, run.label)
    blocks = {record.name: math.prod(record.blocks(Shape.of(256))) for record in map(rung, times)}
    facts = (
        f"{name} takes {times[name].us:.1f} µs at 256, with {blocks[name]} blocks on "
        f"{run.gpu.multiprocessors} SMs"
    )
    on_one_card = [m for m in times.values() if same_card(m, times[name])]
    fastest = min(on_one_card, key=lambda m: m.us or math.inf)
    if not run.difference(fastest, times[name]).visible:
        return Graded(True, facts, run.label)
    hint = "which rung with as many blocks reads less memory?"
    if blocks[name] < max(blocks.values()):
        hint = "which rungs have more blocks at this size?"
    return _graded(False, f"{facts}, and another rung is faster", hint, run.label)


def _shows_the_cold_start(settings: dict[str, Any]) -> Graded:
    Harness().but(**settings)  # an unknown setting is an error that names it
    if settings.get("warmup") != "none":
        return _graded(
            False, "with the warm-up there is no cold start to see", "begin with warmup = none"
        )
    answers = Answers(grid_runs())
    cold = answers.answer("vectorized", 1024, **settings)
    warm = answers.answer("vectorized", 1024, **settings | {"warmup": "steady"})
    added = cold.whole.difference.off - warm.whole.difference.off
    chosen = [pitfall for pitfall in PITFALLS if pitfall.setting in settings]
    change = f"the cold start changes the time by {format_signed(added)}"
    facts = f"with {in_words(cold.settings, chosen)}, {change}"
    hint = "which setting makes one number of all samples, and which sample is slow?"
    return _graded(abs(added) > 0.05, facts, hint, cold.whole.after.measurement.label)


def _leaves_out_the_ends(answer: int) -> Graded:
    right = next(n for n in count(LEAST_SAMPLES) if median(list(range(n))).low >= 1)
    if answer < LEAST_SAMPLES:
        return Graded(
            False,
            f"{answer} samples don't give a 95 % interval: even their whole range is too narrow",
        )
    if answer > right:
        return Graded(False, f"{answer} samples are enough, but fewer are, too")
    hint = (
        "without both ends, the interval misses the median if at most one sample is below it, "
        "or at most one above it"
    )
    begins = "begins before" if answer < right else "leaves out the ends: it begins at"
    facts = f"of {answer} samples, the interval {begins} the second one"
    return _graded(answer == right, facts, hint)


def _rate(answer: float) -> Graded:
    shape = Shape(1024, 4096, 512)
    us = 150.0
    hint = "each of the M·N elements takes K multiply-adds"
    right = tflops(shape, us)
    mistakes = {
        "a multiply-add is two operations": right / 2,
        "tera is 10^12, not 2^40": right * 1e12 / 2**40,
        "150 µs are not 150 ms": right / 1e3,
        "a TFLOP/s is 10^12 operations per second": right * 1e12,
    }
    return _number(
        answer, right, "TFLOP/s", hint=hint, mistakes=mistakes, label=f"{shape} in {us:g} µs"
    )


def _tiles(source: str, rows: int = 16) -> tuple[Kernel, Checked]:
    """Return the kernel of an answer, and what the gate finds on the emulator.

    The kernel has blocks of 16 x 16 threads. Each block computes `rows` rows of 16 columns.
    """
    grid = f"(N + 15) // 16, (M + {rows - 1}) // {rows}"
    kernel = Kernel.from_source(source, file="answer", grid=grid, block="16,16")
    return kernel, check(kernel, SMALL, on="emulated", seed=SEED)


def _passes_the_articles_rule_only(source: str) -> Graded:
    kernel, checked = _tiles(source)
    # The article's rule compares results: it can't find a race that the emulator finds from
    # addresses.
    device = EmulatedDevice(races=False)
    if checked.verdict.accepted:
        hint = "make every element wrong by less than 1 %"
        return _graded(False, "the gate passes it, so it is right", hint, checked.label)
    rule = SgemmChecker(device, SMALL, SEED).check_by_article(kernel.load(device))
    if rule.accepted:
        facts = f"the article's rule: {rule.stages[0].detail}; the gate: {checked.verdict.reason}"
        if any(finding.is_error for finding in checked.findings):
            facts += (
                ". The emulator finds this from the addresses. The results are right: comparing "
                "them can't find it"
            )
        return Graded(True, facts, checked.label)
    hint = "a wrong factor near 1, or one missing term of many, gives a small error"
    return _graded(
        False, f"the article's rule fails it, too: {rule.stages[0].detail}", hint, checked.label
    )


def _without_conflicts(ms: float) -> Graded:
    counts = memory_counts().rungs["vectorized"]
    gpu = open_run().gpu
    wavefronts_per_ms = gpu.multiprocessors * gpu.sm_clock_mhz * 1e3
    all_ms = counts.wavefronts / wavefronts_per_ms
    conflicts_ms = counts.conflicts / wavefronts_per_ms
    fma_ms = memory_counts().shape.flops / gpu.fp32_peak_tflops / 1e9
    mistakes = {
        "this is the time of all wavefronts, conflicts included": all_ms,
        "this is the time of the conflicts alone": conflicts_ms,
        "this is the time of the multiply-adds": fma_ms,
    }
    right = (counts.wavefronts - counts.conflicts) / wavefronts_per_ms
    label = f"counts: {memory_counts().label}"
    return _number(
        ms,
        right,
        "ms",
        hint="each SM serves one wavefront per clock",
        mistakes=mistakes,
        label=label,
    )


def _served_by_l1(percent: float) -> Graded:
    counts = memory_counts()
    moved, label = moved_from_l2(counts.shape)
    if "coalesced" not in moved:
        return Graded(False, f"no bytes are recorded for this coalesced at {counts.shape}")
    rung_counts = counts.rungs["coalesced"]
    requested_bytes = SECTOR_BYTES * (rung_counts.load_sectors + rung_counts.store_sectors)
    lane_bytes = rung_counts.load_bytes + FLOAT_BYTES * counts.shape.m * counts.shape.n
    from_l2 = moved["coalesced"] / requested_bytes
    mistakes = {
        "this is the share that comes from L2": 100 * from_l2,
        "this is a share, not a percentage": 1 - from_l2,
        "memory moves in whole sectors: count sectors, not the bytes that the lanes read": (
            100 * (1 - moved["coalesced"] / lane_bytes)
        ),
    }
    return _number(
        percent,
        100 * (1 - from_l2),
        "%",
        hint="a sector has 32 bytes, and stores count too",
        mistakes=mistakes,
        label=f"counts: {counts.label}; {label}",
    )


def _at_the_floor(percent: float) -> Graded:
    shape = memory_counts().shape
    run = results(["warptiled"], [shape])
    [m] = run.select("warptiled")
    if m.us is None or m.ratio is None:
        return Graded(False, f"warptiled has no time in this run: {run.label}")
    factor = m.us / (1e3 * bound(rung("warptiled"), shape, run.gpu).ms)
    mistakes = {
        "this is the share that warptiled reaches now": 100 * m.ratio,
        "this is how far warptiled is above its floor: compare with cuBLAS": 100 * factor,
        "this is a share, not a percentage": m.ratio * factor,
        "a kernel at its floor is faster than warptiled": 100 * m.ratio / factor,
    }
    return _number(
        percent,
        100 * m.ratio * factor,
        "% of cuBLAS",
        hint="how long does cuBLAS take, and how long is the floor?",
        mistakes=mistakes,
        label=run.label,
    )


def _full_waves(speedup: float) -> Graded:
    run = open_run()
    blocks = math.prod(rung("specialized").blocks(Shape.of(4096)))
    waves = blocks / run.gpu.multiprocessors
    mistakes = {
        "that is no gain, and the last wave isn't full": 1.0,
        "this is the number of waves": math.ceil(waves),
        "this is the share of the time in which the SMs are busy": waves / math.ceil(waves),
    }
    right = math.ceil(waves) / waves
    return _number(
        speedup, right, "times as fast", hint="count the waves", mistakes=mistakes, label=run.label
    )


def _splitting(us: float) -> Graded:
    run = open_run()
    elements = 2 * 4096**2
    bytes_us = elements / run.gpu.memory_peak_gbs / 1e3  # of one byte per element
    mistakes = {
        "this is the time of reading alone": 4 * bytes_us,
        "each element gives two halves": 6 * bytes_us,
    }
    hint = "4 bytes are read and 4 are written"
    return _number(us, 8 * bytes_us, "µs", hint=hint, mistakes=mistakes, label=run.label)


def _right_of_the_ridge(side: int) -> Graded:
    run = open_run()
    ridge = 1e3 * run.calibration.fp32_tflops / run.calibration.l2_gbs
    intensity = side / 4
    # 2 side² FLOP per 2 side floats of 4 bytes; the tile before has 8 rows and columns less.
    if side <= 0 or side % 8:
        return Graded(False, f"{side} is not a multiple of 8")
    facts = (
        f"tiles of {side} x {side} make {intensity:.2f} FLOP per byte; the ridge is at {ridge:.2f}"
    )
    if (side - 8) / 4 > ridge:
        return Graded(False, f"{facts}, but a smaller tile is right of it, too", run.label)
    facts += "" if intensity > ridge else ", so L2 is the lower roof"
    return _graded(intensity > ridge, facts, "a larger tile uses each float more often", run.label)


def _another_tile(tile: dict[str, int]) -> Graded:
    autotuned = rung("autotuned")
    if {**autotuned.template, **tile} == autotuned.template:
        return Graded(False, "this is the rung's own tile: change at least one side")
    built = sweep.variants(autotuned, [Axis(name, (value,)) for name, value in tile.items()])
    if not built.kept:
        return Graded(False, f"it can't be built: {built.skipped[0].skipped}")
    [variant] = built.kept
    label = f"compiled for {built.arch}"
    moved_gb = block_traffic_bytes(variant.kernel.template, built.shape) / 1e9
    limit_gb = block_traffic_bytes(autotuned.template, built.shape) / 1e9
    facts = (
        f"{variant.registers} registers, {variant.spilled_bytes} bytes spilled, {moved_gb:.2f} GB "
        "from L2"
    )
    if variant.spilled_bytes:
        hint = "a block of fewer threads may have more registers per thread"
        return _graded(False, f"{facts}: its accumulators don't fit the registers", hint, label)
    if moved_gb > limit_gb:
        facts += f": that is more than the rung's own {limit_gb:.2f} GB"
    return _graded(moved_gb <= limit_gb, facts, "a larger block", label)


def _eight_elements(source: str) -> Graded:
    kernel, checked = _tiles(source, 128)
    limit = 0.75  # shared wavefronts per multiply-add
    if not checked.verdict.accepted:
        hint = "a block has 128 rows of A, C and `As`"
        facts = f"failed at {checked.verdict.reason}".rstrip(".")
        return _graded(False, facts, hint, checked.label)
    notes: list[str] = []
    inspected = apart("counting", lambda: inspect(kernel), None, notes)
    if inspected is None:
        return Graded(False, f"it passes, but isn't counted: {notes[0]}", checked.label)
    counts = inspected.counts
    wavefronts = counts.shared_load.wavefronts + counts.shared_store.wavefronts
    per_fma = wavefronts / counts.instructions["fma"]
    facts = f"it passes, with {per_fma:.3f} shared wavefronts per multiply-add"
    if per_fma > limit:
        facts += f", more than {limit}"
    return _graded(per_fma <= limit, facts, "read each element of `Bs` once per k", checked.label)


def _sectors_at_a_stride(answer: int) -> Graded:
    compiled, _ = build(Program("strided.cu", STRIDED, "read"))
    array = np.zeros(STRIDE * WARP, np.float32)
    output = np.zeros(WARP, np.float32)
    result = launch(load(compiled.ptx, compiled.symbol), (1,), WARP, [array, output])
    loads = result.counts.global_load
    if answer == loads.sectors:
        return Graded(True, f"{loads.sectors} sectors, in {loads.cache_lines} lines", result.label)
    mistakes = {
        WARP: "that is one sector for each lane, and a sector has room for more than one",
        WARP
        * FLOAT_BYTES
        // SECTOR_BYTES: "that many hold 32 neighbours, and these floats aren't neighbours",
        loads.cache_lines: "that is the number of lines",
    }
    facts = mistakes.get(answer, f"the request doesn't touch {answer} sectors")
    hint = "which byte is the last one, and does each sector up to there have a float that is read?"
    return _graded(False, facts, hint, result.label)


def _read_speedup(answer: float) -> Graded:
    compared = open_comparison()
    short = compared.us(KNOWN, 1)["do_bench"]
    long = compared.us(KNOWN, 2)["do_bench"]
    mistakes = {
        "this is the true speedup: use what do_bench measures for both": 2.0,
        "a speedup is the longer time over the shorter one": short / long,
    }
    hint = "`compared.us(KNOWN, 1)` has what each harness measures for the kernel of 1 µs"
    return _number(
        answer, long / short, "times", hint=hint, mistakes=mistakes, label=compared.label
    )


def _softmax_of_large_numbers(source: str) -> Graded:
    with TemporaryDirectory(prefix="worklog-") as folder:
        file = Path(folder) / "softmax.cu"
        file.write_text(source, encoding="utf-8")
        checked = check(Solution.of(file, problem="softmax"), on="emulated", seed=SEED)
    if checked.verdict.accepted:
        return Graded(True, f"all {len(checked.verdict.stages)} cases pass", checked.label)
    return Graded(False, f"failed at {checked.verdict.reason}", checked.label)


def _without_a_race(source: str) -> Graded:
    compiled, _ = build(Program("answer", source, "k"))
    rng = np.random.default_rng(SEED)
    n = 1000
    samples = rng.integers(-8, 9, n).astype(np.float32)
    output = np.zeros(2, np.float32)
    program = load(compiled.ptx, compiled.symbol)
    result = launch(program, (1,), 256, [samples, output, n], source=source, count=False)
    error = next((finding for finding in result.findings if finding.is_error), None)
    if error:
        hint = "which threads may be behind, and what do they still read?"
        return Graded(False, f"{error.at('answer')} Hint: {hint}", result.label)
    facts = f"mean {output[0]:.4f}, variance {output[1]:.4f}, no race"
    mean = samples.mean()
    variance = samples.var()
    if not np.allclose(output, (mean, variance), rtol=1e-4):
        return Graded(False, f"{facts}; right are {mean:.4f} and {variance:.4f}", result.label)
    return Graded(True, facts, result.label)


def _false_alarms(answer: float) -> Graded:
    rows = 78
    false_rate = 0.003
    mistake = "that is the number of false verdicts per 100 runs, and some runs have two of them"
    right = 100 * (1 - (1 - false_rate) ** rows)
    hint = "a run passes if each of the rows is right"
    mistakes = {mistake: 100 * rows * false_rate}
    return _number(answer, right, "% of the runs", hint=hint, mistakes=mistakes)


def _shared_by_four(kilobytes: float) -> Graded:
    a_kb = 128 * 64 * 2 / 1024
    b_kb = 64 * 256 * 2 / 1024
    mistakes = {
        "this is a block alone": a_kb + b_kb,
        "this is a cluster of two": a_kb + b_kb / 2,
        "the rows of A are another block's each": (a_kb + b_kb) / 4,
    }
    hint = "the four blocks have the same columns of B, and their own rows of A"
    return _number(kilobytes, a_kb + b_kb / 4, "kB", hint=hint, mistakes=mistakes)


# By notebook: a description of the answer, its type, and its grader. A grader may raise
# WorklogError.
EXERCISES: dict[str, tuple[str, type, Callable[[Any], Graded]]] = {
    "00": ("the name of a rung, a string", str, _fastest_at_256),
    "01": (
        f"a dict of settings ({', '.join(pitfall.setting for pitfall in PITFALLS)})",
        dict,
        _shows_the_cold_start,
    ),
    "02": (TILED, str, _eight_elements),
    "03": ("a number of sectors", Integral, _sectors_at_a_stride),
    "04": ("a share in percent", Real, _served_by_l1),
    "05": ("a time in ms", Real, _without_conflicts),
    "06": ("a share of cuBLAS in percent", Real, _at_the_floor),
    "07": ("the side of a square tile", Integral, _right_of_the_ridge),
    "08": ("a dict of tile parameters, such as {'BM': 64}", dict, _another_tile),
    "09": ("a speedup, 1.5 for 1.5 times as fast", Real, _full_waves),
    "10": ("a time in µs", Real, _splitting),
    "11": ("a share in percent", Real, _false_alarms),
    "12": ("a number of samples", Integral, _leaves_out_the_ends),
    "13": ("a rate in TFLOP/s", Real, _rate),
    "14": (TILED, str, _passes_the_articles_rule_only),
    "15": ("a speedup, 1.5 for 1.5 times as fast", Real, _read_speedup),
    "16": ("the source of a solution, a string", str, _softmax_of_large_numbers),
    "17": ("the source of the kernel k, a string", str, _without_a_race),
    "18": ("a number of kB (1024 bytes)", Real, _shared_by_four),
}
