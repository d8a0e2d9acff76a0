"""The graded exercise of each notebook. The gate, the emulator, the compiler or the harness's recorded samples grade an
answer; the feedback says what is wrong and gives a hint, never the solution. Each graded answer is a line of a file, of
which `worklog journal` prints the first answer to each exercise beside what was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from itertools import count
from numbers import Integral, Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from worklog.emulator import launch, load
from worklog.errors import BadSetting, WorklogError, apart
from worklog.gate import SgemmChecker
from worklog.kernel import Kernel, Program, Solution, block_traffic_bytes, memory_counts, rung
from worklog.kernel.emulated import EmulatedDevice, build
from worklog.kernel.inspection import inspect
from worklog.lab.readings import Answers, grid_runs, in_words
from worklog.problem import Axis, Shape, tflops
from worklog.runner.check import Checked, check
from worklog.runner.measure import results
from worklog.runs import (
    CUBLAS,
    KNOWN,
    LEAST_SAMPLES,
    Table,
    median,
    open_comparison,
    open_run,
    runs_dir,
    same_card,
    signed,
)
from worklog.settings import PITFALLS
from worklog.tune import sweep

TILED = "the source of a kernel, a string, for blocks of 16 x 16 threads"
CLOSE = 0.01  # a number may differ by this share: it was rounded
SMALL = Shape(144, 72, 37)
SEED = 4
EMPTY = "there are no predictions yet: `lab.check_answer` in a notebook keeps your first answer to its exercise"
FILE = "journal.jsonl"  # beside the folder of runs


@dataclass(frozen=True, repr=False)
class Graded:
    """Whether an answer is right, and what the grader says. label: the source of its numbers. measured: the number
    that was asked for, or None.
    """

    right: bool
    feedback: str
    label: str = ""
    measured: float | None = None

    def __repr__(self) -> str:
        words = f"{'right' if self.right else 'not yet'}: {self.feedback}"
        return f"{words}\n{self.label}" if self.label else words

    def _repr_html_(self) -> str:
        words = escape(repr(replace(self, label="")))
        label = f'<div tabindex="0" style="white-space:pre;overflow-x:auto">{escape(self.label)}</div>'  # or a table
        return f'<pre role="status" style="white-space:pre-wrap;word-break:normal">{words}{label}</pre>'


def check_answer(notebook: str, answer: object = None) -> Graded:
    """Grade the answer to the exercise of a notebook. It displays itself. `worklog journal` has the first answers.

    notebook: its number, as in "04". answer: None says what is wanted. Raises BadSetting where no notebook has this
    number.
    """
    if notebook not in EXERCISES:
        raise BadSetting(
            f"no notebook {notebook!r} has an exercise: choose from {', '.join(sorted(EXERCISES))}"
        )
    wanted, kind, grade = EXERCISES[notebook]
    if answer is None:
        return Graded(False, f"there is no answer. Set `answer` to {wanted}")
    if not isinstance(answer, kind):
        return Graded(False, f"the answer is {wanted}, not {type(answer).__name__}")
    try:
        graded = grade(answer)
    except WorklogError as error:
        return Graded(False, str(error))
    measured = graded.feedback if graded.measured is None else graded.measured
    lost = keep(notebook, wanted, answer, measured, right=graded.right, label=graded.label)
    return replace(graded, feedback=f"{graded.feedback} ({lost})") if lost else graded


def _graded(right: bool, facts: str, hint: str, label: str = "") -> Graded:
    return Graded(right, facts if right else f"{facts}. Hint: {hint}", label)


def _number(
    answer: float, right: float, unit: str, hint: str, mistakes: Mapping[str, float], label: str
) -> Graded:
    """Grade a number. mistakes: numbers that a typical mistake gives, by the words that name it."""
    if math.isclose(answer, right, rel_tol=CLOSE):
        return Graded(True, f"{right:.4g} {unit}", label, right)
    for words, wrong in mistakes.items():
        if math.isclose(answer, wrong, rel_tol=CLOSE):
            return Graded(False, words, label)
    return _graded(
        False, f"{answer:.4g} {unit} is too {'large' if answer > right else 'small'}", hint, label
    )


def _fastest_at_256(name: str) -> Graded:
    run = results(shapes=[256])
    times = {m.kernel: m for m in run.measurements if m.us and m.kernel != CUBLAS}
    if name not in times:
        return Graded(
            False,
            f"{name} isn't a rung with a time at 256: choose from {', '.join(times)}",
            run.label,
        )
    blocks = {record.name: math.prod(record.blocks(Shape.of(256))) for record in map(rung, times)}
    facts = f"{name} takes {times[name].us:.1f} µs at 256, with {blocks[name]} blocks on {run.gpu.multiprocessors} SMs"
    on_one_card = [m for m in times.values() if same_card(m, times[name])]
    fastest = min(on_one_card, key=lambda m: m.us or math.inf)
    if not run.difference(fastest, times[name]).visible:
        return Graded(True, facts, run.label)
    fewer = "which rungs have more blocks at this size?"
    as_many = "which rung with as many blocks reads less memory?"
    hint = fewer if blocks[name] < max(blocks.values()) else as_many
    return _graded(False, f"{facts}, and another rung is faster", hint, run.label)


def _shows_the_cold_start(settings: dict[str, Any]) -> Graded:
    if settings.get("warmup") != "none":
        return _graded(
            False, "with the warm-up there is no cold start to see", "begin with warmup = none"
        )
    answers = Answers(grid_runs())
    cold, warm = (
        answers.answer("vectorized", 1024, **settings | how) for how in ({}, {"warmup": "steady"})
    )
    added = cold.whole.difference.off - warm.whole.difference.off
    chosen = in_words(cold.settings, [g for g in PITFALLS if g.setting in settings])
    facts = f"with {chosen}, the cold start changes the time by {signed(added)}"
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
    return _graded(
        answer == right, f"of {answer} samples, the interval {begins} the second one", hint
    )


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
    return _number(answer, right, "TFLOP/s", hint, mistakes, f"{shape} in {us:g} µs")


def _tiles(source: str, rows: int = 16) -> tuple[Kernel, Checked]:
    """The kernel of an answer: blocks of 16 x 16 threads, each of which computes `rows` rows of 16 columns; and what
    the gate finds on the emulator.
    """
    grid = f"(N + 15) // 16, (M + {rows - 1}) // {rows}"
    kernel = Kernel.from_source(source, file="answer", grid=grid, block="16,16")
    return kernel, check(kernel, SMALL, on="emulated", seed=SEED)


def _passes_the_articles_rule_only(source: str) -> Graded:
    # The article's rule compares results. A race that the emulator finds from the addresses isn't its finding.
    (kernel, checked) = _tiles(source)
    device = EmulatedDevice(races=False)
    if checked.verdict.accepted:
        hint = "make every element wrong by less than 1 %"
        return _graded(False, "the gate passes it, so it is right", hint, checked.label)
    rule = SgemmChecker(device, SMALL, SEED).check_by_article(kernel.load(device))
    if rule.accepted:
        facts = f"the article's rule: {rule.stages[0].detail}; the gate: {checked.verdict.reason}"
        if any(finding.is_error for finding in checked.findings):
            facts += ". The emulator finds this from the addresses. The results are right: comparing them can't find it"
        return Graded(True, facts, checked.label)
    hint = "a wrong factor near 1, or one missing term of many, gives a small error"
    return _graded(
        False, f"the article's rule fails it, too: {rule.stages[0].detail}", hint, checked.label
    )


def _without_conflicts(ms: float) -> Graded:
    counts = memory_counts().rungs["vectorized"]
    gpu = open_run().gpu
    per_ms = gpu.multiprocessors * gpu.sm_clock_mhz * 1e3  # wavefronts
    mistakes = {
        "this is the time of all wavefronts, conflicts included": counts.wavefronts / per_ms,
        "this is the time of the conflicts alone": counts.conflicts / per_ms,
        "this is the time of the multiply-adds": memory_counts().shape.flops
        / gpu.fp32_peak_tflops
        / 1e9,
    }
    right = (counts.wavefronts - counts.conflicts) / per_ms
    label = f"counts: {memory_counts().label}"
    return _number(ms, right, "ms", "each SM serves one wavefront per clock", mistakes, label)


def _full_waves(speedup: float) -> Graded:
    run = open_run()
    blocks = math.prod(rung("specialized").blocks(Shape.of(4096)))
    waves = blocks / run.gpu.multiprocessors
    mistakes = {
        "this is the number of waves": math.ceil(waves),
        "this is the share of the time in which the SMs are busy": waves / math.ceil(waves),
    }
    return _number(
        speedup, math.ceil(waves) / waves, "times as fast", "count the waves", mistakes, run.label
    )


def _splitting(us: float) -> Graded:
    run = open_run()
    elements = 2 * 4096**2
    bytes_us = elements / run.gpu.memory_peak_gbs / 1e3  # of one byte per element
    mistakes = {
        "this is the time of reading alone": 4 * bytes_us,
        "each element gives two halves": 6 * bytes_us,
    }
    return _number(
        us, 8 * bytes_us, "µs", "4 bytes are read and 4 are written", mistakes, run.label
    )


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
    own = rung("autotuned")
    if {**own.template, **tile} == own.template:
        return Graded(False, "this is the rung's own tile: change at least one side")
    built = sweep.variants(own, [Axis(name, (value,)) for name, value in tile.items()])
    if not built.kept:
        return Graded(False, f"it can't be built: {built.skipped[0].skipped}")
    [variant] = built.kept
    label = f"compiled for {built.arch}"
    moved, allowed = (
        block_traffic_bytes(t, built.shape) / 1e9 for t in (variant.kernel.template, own.template)
    )
    facts = f"{variant.registers} registers, {variant.spilled_bytes} bytes spilled, {moved:.2f} GB from L2"
    if variant.spilled_bytes:
        hint = "a block of fewer threads may have more registers per thread"
        return _graded(False, f"{facts}: its accumulators don't fit the registers", hint, label)
    facts += "" if moved <= allowed else f": that is more than the rung's own {allowed:.2f} GB"
    return _graded(moved <= allowed, facts, "a larger block", label)


def _eight_elements(source: str) -> Graded:
    (kernel, checked) = _tiles(source, 128)
    most = 0.75
    if not checked.verdict.accepted:
        hint = "a block has 128 rows of A, C and `As`"
        return _graded(
            False, f"failed at {checked.verdict.reason}".rstrip("."), hint, checked.label
        )
    notes: list[str] = []
    inspected = apart("counting", lambda: inspect(kernel), None, notes)
    if inspected is None:
        return Graded(False, f"it passes, but isn't counted: {notes[0]}", checked.label)
    counts = inspected.counts
    waves = (counts.shared_load.wavefronts + counts.shared_store.wavefronts) / counts.instructions[
        "fma"
    ]
    facts = f"it passes, with {waves:.3f} shared wavefronts per multiply-add"
    facts += f", more than {most}" if waves > most else ""
    return _graded(waves <= most, facts, "read each element of `Bs` once per k", checked.label)


def _read_speedup(answer: float) -> Graded:
    compared = open_comparison()
    short, long = (compared.us(KNOWN, length)["do_bench"] for length in (1, 2))
    mistakes = {
        "this is the true speedup: use what do_bench measures for both": 2.0,
        "a speedup is the longer time over the shorter one": short / long,
    }
    hint = "`compared.us(KNOWN, 1)` has what each harness measures for the kernel of 1 µs"
    return _number(answer, long / short, "times", hint, mistakes, compared.label)


def _softmax_of_large_numbers(source: str) -> Graded:
    with TemporaryDirectory(prefix="worklog-") as folder:
        file = Path(folder) / "softmax.cu"
        file.write_text(source, encoding="utf-8")
        checked = check(Solution.of(file, problem="softmax"), on="emulated", seed=SEED)
    if checked.verdict.accepted:
        return Graded(True, f"all {len(checked.verdict.stages)} cases pass", checked.label)
    return Graded(False, f"failed at {checked.verdict.reason}", checked.label)


def _without_a_race(source: str) -> Graded:
    out, _ = build(Program("answer", source, "k"))
    rng = np.random.default_rng(SEED)
    n = 1000
    x = rng.integers(-8, 9, n).astype(np.float32)
    y = np.zeros(2, np.float32)
    result = launch(load(out.ptx, out.symbol), (1,), 256, [x, y, n], source=source, count=False)
    if wrong := next((finding for finding in result.findings if finding.is_error), None):
        hint = "which threads may be behind, and what do they still read?"
        return Graded(False, f"{wrong.at('answer')} Hint: {hint}", result.label)
    facts = f"mean {y[0]:.4f}, variance {y[1]:.4f}, no race"
    if not np.allclose(y, (x.mean(), x.var()), rtol=1e-4):
        return Graded(False, f"{facts}; right are {x.mean():.4f} and {x.var():.4f}", result.label)
    return Graded(True, facts, result.label)


def _false_alarms(answer: float) -> Graded:
    rows = 78
    false = 0.003
    mistakes = {
        "that is the number of false verdicts per 100 runs, and some runs have two of them": 100
        * rows
        * false
    }
    right = 100 * (1 - (1 - false) ** rows)
    hint = "a run passes if each of the rows is right"
    return _number(answer, right, "% of the runs", hint, mistakes, "")


# By notebook: what the answer is, in words; the type that it must have; and its grader, which may raise WorklogError.
EXERCISES: dict[str, tuple[str, type, Callable[[Any], Graded]]] = {
    "00": ("the name of a rung, a string", str, _fastest_at_256),
    "01": (
        f"a dict of settings ({', '.join(g.setting for g in PITFALLS)})",
        dict,
        _shows_the_cold_start,
    ),
    "02": ("a number of samples", Integral, _leaves_out_the_ends),
    "03": ("a rate in TFLOP/s", Real, _rate),
    "04": (TILED, str, _passes_the_articles_rule_only),
    "05": ("a time in ms", Real, _without_conflicts),
    "06": ("the side of a square tile", Integral, _right_of_the_ridge),
    "07": ("a dict of tile parameters, such as {'BM': 64}", dict, _another_tile),
    "08": (TILED, str, _eight_elements),
    "09": ("a speedup, 1.5 for 1.5 times as fast", Real, _read_speedup),
    "10": ("the source of a solution, a string", str, _softmax_of_large_numbers),
    "11": ("the source of the kernel k, a string", str, _without_a_race),
    "12": ("a speedup, 1.5 for 1.5 times as fast", Real, _full_waves),
    "13": ("a time in µs", Real, _splitting),
    "14": ("a share in percent", Real, _false_alarms),
}


def keep(exercise: str, asked: str, predicted: Any, measured: float | str, **more: Any) -> str:
    """Add an answer. Returns why it is not kept, "" if it is."""
    if isinstance(predicted, str) and "\n" in predicted:
        predicted = f"{len(predicted.splitlines())} lines of code"
    entry = {
        "exercise": exercise,
        "asked": asked,
        "predicted": predicted,
        "measured": measured,
        **more,
    }
    path = runs_dir().parent / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as lines:
            lines.write(
                json.dumps(entry | {"day": f"{datetime.now(UTC):%Y-%m-%d}"}, default=str) + "\n"
            )
    except OSError as error:
        return f"not kept in {path}: {error.strerror}"
    return ""


def journal() -> str:
    """The page. What was measured is in it once an answer was right. Raises WorklogError for a damaged line."""
    tries = dict[str, list[dict[str, Any]]]()
    rows = []
    path = runs_dir().parent / FILE
    for number, line in enumerate(
        path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1
    ):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise WorklogError(f"{path}: line {number} was cut short: remove it") from error
        tries.setdefault(entry["exercise"], []).append(entry)
    for exercise, entries in sorted(tries.items()):
        first = entries[0]
        right = next((entry for entry in entries if entry["right"]), None)
        predicted = (
            f"{first['predicted']:.4g}"
            if isinstance(first["predicted"], float)
            else str(first["predicted"])
        )
        row = {
            "exercise": exercise,
            "day": first["day"],
            "asked": first["asked"],
            "predicted": predicted,
        }
        row |= {
            "measured": "not found yet",
            "gap": "–",
            "answers": str(len(entries)),
            "source": first["label"],
        }
        if right is not None:
            row["measured"] = str(right["measured"])
            if isinstance(right["measured"], float):
                row["measured"] = f"{right['measured']:.4g}"
                row["gap"] = signed(float(first["predicted"]) / right["measured"] - 1, 0)
        rows.append(row)
    return f"# What I predicted, and what was measured\n\n{Table.of('', rows, left=7).markdown() if rows else EMPTY}\n"
