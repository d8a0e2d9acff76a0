"""Draw runs at random, as the harness makes them, and show everything that takes a run.

    python -m tests.plots.drawn_runs 200

draws 200 runs. A run's readings are samples with made-up times, from which the session makes
measurements: so two settings that differ in what is computed from samples share them, as on a GPU.
tests/plots/test_drawn_runs.py draws ten, and each run that found a fault.
"""

import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.helpers import CALIBRATION
from tests.virtual.machine import Machine
from tests.virtual.session import VirtualSession
from worklog import plots
from worklog.cli import options
from worklog.cli.figures import markdown
from worklog.errors import BadRunFile, NothingToDraw, WorklogError
from worklog.harness import LoopResult
from worklog.kernel import LADDER
from worklog.kernel.ladder import TENSOR
from worklog.lab.answers import Answers
from worklog.lab.rung_pages import RungPage
from worklog.lab.widgets import Panel
from worklog.plots import Drawing
from worklog.plots.charts.ablation import in_row
from worklog.plots.registry import FIGURES
from worklog.problem import Point, Shape
from worklog.runner.job import Job, ablation_jobs, product_job
from worklog.runner.prepared import Prepared, measurement
from worklog.runner.products import work_of
from worklog.runner.session import Session
from worklog.runs import CUBLAS, Gpu, Measurement, Ran, Run, Verdict, failed, passed
from worklog.runs.changes import compare_revisions, of_one_loop, revision_of
from worklog.runs.effects import Effect, effect_in_words, effects, effects_text
from worklog.runs.run_file import Card
from worklog.runs.statistics import HOST_SD, LaunchSeries, Samples
from worklog.runs.text import Displayable, Table
from worklog.settings import PITFALLS, Harness

CARDS = (
    Gpu("NVIDIA H200", (9, 0), 132, 62914560, 150109880320, 1980.0, 3201.0, 6016, "580.1", "a"),
    Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 52428800, 85899345920, 1980.0, 2619.0, 5120, "", ""),
    Gpu(
        "NVIDIA GeForce GTX 1650 with Max-Q Design",
        (7, 5),
        16,
        1048576,
        4 << 30,
        1245.0,
        5001.0,
        128,
        "470",
    ),
    Gpu("Quadro P400", (6, 1), 2, 524288, 2 << 30, 1252.0, 2005.0, 64, "390.87", "b"),
    Gpu("NVIDIA B300 SXM6 AC", (10, 3), 148, 132 << 20, 288 << 30, 1920.0, 3996.0, 8192, "590"),
)  # fmt: skip
KERNELS = [rung.name for rung in (*LADDER, TENSOR[0])] + ["mine", "Ω<int, 4>"]
SIZES = [Shape.of(n) for n in (1, 17, 128, 256, 512, 1024, 4096, 32768)] + [Shape(64, 4096, 17)]
REASONS = ("exact on edge shapes: 1 element differs", "x" * 300, "two\nlines", "100 % <b>wrong</b>")
HARNESSES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"timer": "host"},
    {"offset": "kept", "statistic": "mean"},
    {"gate": False, "roof": "bf16_datasheet"},
    {"clocks": "locked:1395", "l2": "warm"},
)


@dataclass(frozen=True)
class Drawn:
    """The recipe of a run."""

    seed: int = 0
    card: int = 0  # of CARDS
    second_card: int | None = None  # of CARDS, which measured every other kernel
    harness: int = 0  # of HARNESSES
    kernels: tuple[str, ...] = ("naive",)
    ablated: int = 1  # of the kernels, the first ones
    sizes: tuple[Shape, ...] = (Shape.of(256), Shape.of(1024))
    moved: float = 0.0  # the largest effect of a setting, as a logarithm
    noise: float = 0.0  # relative standard deviation of the samples
    turns: int = 8
    lost: float = 0.0  # share of the jobs that fail or are skipped
    clocked: bool = True  # SM clocks could be read
    benchmark: bool = False  # one is in it, besides the products of matrices


def drawn() -> st.SearchStrategy[Drawn]:
    """Return a strategy that draws recipes."""
    names = st.lists(st.sampled_from(KERNELS), min_size=1, max_size=5, unique=True).map(tuple)
    sizes = st.lists(st.sampled_from(SIZES), min_size=1, max_size=3, unique=True).map(tuple)
    return st.builds(
        Drawn,
        seed=st.integers(0, 2**16),
        card=st.integers(0, len(CARDS) - 1),
        second_card=st.none() | st.none() | st.integers(0, len(CARDS) - 1),
        harness=st.integers(0, len(HARNESSES) - 1),
        kernels=names,
        ablated=st.integers(0, 2),
        sizes=sizes,
        moved=st.sampled_from([0.0, 1e-6, 1e-4, 5e-4, 1e-3, 0.01, 0.1, 0.3]),
        noise=st.sampled_from([0.0, 1e-5, 1e-4, 5e-4, 1e-3, 0.01, 0.1, 0.3]),
        turns=st.sampled_from([1, 2, 5, 6, 8, 12]),
        lost=st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]),
        clocked=st.booleans(),
        benchmark=st.booleans(),
    )


@cache
def session_on(card: Gpu) -> Session:
    """Return a session that measures nothing; it makes measurements of samples."""
    peak = card.fp32_peak_tflops
    calibration = replace(
        CALIBRATION, fp32_tflops=0.95 * peak, sm_mhz=card.sm_clock_mhz, l2_gbs=peak * 120
    )
    session = VirtualSession(Machine(), calibration=calibration)
    session.gpu = card
    return session


def make_run(recipe: Drawn) -> Run:
    """Make the run: the ladder's jobs and the ablations', each with samples of its own."""
    rng = np.random.default_rng(recipe.seed)
    harness = Harness().but(**HARNESSES[recipe.harness])
    cards = [CARDS[recipe.card]]
    if recipe.second_card is not None:
        cards.append(CARDS[recipe.second_card])
    jobs = [
        product_job(name, shape) for shape in recipe.sizes for name in (*recipe.kernels, CUBLAS)
    ]
    for name in recipe.kernels[: recipe.ablated]:
        jobs += [job for job in ablation_jobs(name, recipe.sizes) if job.pitfalls]
    head = session_on(cards[0]).calibration
    run = Run(
        harness.as_dict(),
        cards[0],
        head,
        tool={"name": "gemm-worklog", "version": "0.1.0"},
        created="2026-11-28T18:02:21+00:00",
    )
    for rung in LADDER:
        if rung.name in recipe.kernels:
            run.kernels[rung.name] = rung.describe()
    run.kernels["mine"] = {"user": "kernel", "file": "mine.cu"}
    if len(cards) > 1:
        for place, card in enumerate(cards):
            run.cards[f"host:{place}"] = Card(card, session_on(card).calibration)
    for number, job in enumerate(jobs):
        place = recipe.kernels.index(job.kernel) % len(cards) if job.kernel != CUBLAS else 0
        m = measured(recipe, rng, harness, cards[place], job)
        if len(cards) > 1:
            m = replace(m, ran=Ran(f"host:{place}", 1.7e9 + 3 * number, 2.5))
        run.add(m)
    if recipe.benchmark:
        for n in (8, 64):
            for name in ("copy", "scan"):
                point = Point(axes=(("N", n), ("dtype", "half")))
                job = Job(name, point, against=("theirs",))
                run.add(measured(recipe, rng, harness, cards[0], job))
    run.complete = recipe.seed % 3 > 0
    return run


def measured(
    recipe: Drawn, rng: np.random.Generator, harness: Harness, card: Gpu, job: Job
) -> Measurement:
    """Make the measurement of a job from samples, as a session does.

    Or one that failed or was skipped.
    """
    own = harness.but(**dict(job.changed))
    verdict = (
        Verdict((passed("precision", "p", measured=38.4, limit=1296.0),), "fp32")
        if own.gate
        else None
    )
    if rng.random() < recipe.lost:
        reason = str(rng.choice(REASONS))
        if rng.random() < 0.5:
            return job.without_time("skipped", reason)
        return job.failed(Verdict((failed("exact on edge shapes", reason),), None))
    session = session_on(card)
    work = (
        work_of(job.shape) if job.point.is_product else replace(work_of(Shape.of(64)), flops=None)
    )
    samples = samples_of(recipe, rng, own, card, job)
    biases = [f"{name}: {value}" for name, value in own.biased().items()]
    prepared = Prepared(job, own, work, biases, verdict)
    degraded = [] if recipe.turns > 5 else ["not converged: ±0.5 % was not reached in 5 samples"]
    return measurement(session, prepared, LoopResult(samples, not degraded, 9, degraded), verdict)


def samples_of(
    recipe: Drawn, rng: np.random.Generator, harness: Harness, card: Gpu, job: Job
) -> Samples:
    """Make up the samples of a job.

    The kernel and its baselines alternate, and each biased setting moves the time.
    """
    names = (job.kernel, *job.against)
    flops = job.shape.flops if job.point.is_product else 1e7
    sides = list[LaunchSeries]()
    for name in names:
        speed = 0.05 + np.random.default_rng([recipe.seed, *name.encode()]).random()
        us = 2.0 + flops / (1e6 * card.fp32_peak_tflops * speed)
        for setting in job.pitfalls:
            u = np.random.default_rng([recipe.seed, *f"{setting} {name}".encode()]).uniform(-1, 1)
            us *= math.exp(recipe.moved * u)
        if harness.timer == "host":
            us = 25.0 * math.exp(HOST_SD * rng.standard_normal())
        elif job.point.is_product:
            us += CALIBRATION.offset_us
        times = us * np.exp(recipe.noise * rng.standard_normal(recipe.turns))
        if harness.warmup == "none":
            times[0] *= 2.0
        mhz = card.sm_clock_mhz * (1 - 0.02 * rng.random(recipe.turns) * recipe.noise)
        clocks = (
            [round(float(clock), 1) for clock in mhz] if recipe.clocked else [None] * recipe.turns
        )
        varied = harness.placement == "varied"
        places = [turn // 3 if varied else 0 for turn in range(recipe.turns)]
        hot = [float(us)] * 3 if harness.hot_ms else []
        rounded = [round(float(time), 3) for time in times]
        sides.append(
            LaunchSeries(name, rounded, clocks, places, hot, 1 if job.point.is_product else None)
        )
    counts = [1] * recipe.turns
    if recipe.turns > 6:
        counts[-1] = 0
    return Samples(sides, counts, throttle_mask=int(rng.choice([0, 4, 0x20])))


def texts(run: Run) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every text, table and page of a run, each by a name and what makes it."""
    yield "text", run.text
    yield "html", run._repr_html_
    yield "pivot", run.pivot
    yield "shares", run.shares
    yield "shares by kind", lambda: run.shares(dict.fromkeys(run.shapes(), "square"))
    yield "frame", run.frame
    yield "samples", run.samples
    yield "rows", lambda: msgspec.json.encode(run.rows(), enc_hook=float)
    yield "markdown of the README", lambda: markdown(run)
    yield "markdown", lambda: "".join(table.page() for table in run.tables())
    yield "bencher", partial(export, run)
    for m in run.measurements[:: max(1, len(run.measurements) // 8)]:
        yield f"repr of {m.title}", partial(repr, m)
        yield f"html of {m.title}", m._repr_html_
    for kernel in dict.fromkeys(m.kernel for m in run.measurements):
        yield f"effects on {kernel}", partial(effects_text, run, kernel)
        yield f"words of effects on {kernel}", partial(require_one_predicate, run, kernel)
    if run.select():
        yield "changes", lambda: compare_revisions([revision_of(run)], [revision_of(run)])
        yield (
            "changes of three",
            lambda: compare_revisions([revision_of(run)], [revision_of(run), revision_of(run)]),
        )
    yield "changes of one loop", lambda: of_one_loop(run, "@HEAD")
    yield "panel", partial(show_panel, run)
    for rung in (LADDER[0], LADDER[-1]):
        for shape in run.shapes()[-1:]:
            yield f"climb of {rung.name}", partial(RungPage, run, rung.name, shape)


def charts(run: Run) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every chart of a run, each by its name and what draws it."""
    for name, draw in FIGURES.items():
        if name not in ("traffic", "peers"):
            yield name, partial(draw, run)
    for kernel in dict.fromkeys(m.kernel for m in run.measurements if m.changed):
        yield f"ablation of {kernel}", partial(plots.ablation, run, kernel)
    for shape in run.shapes():
        yield f"ladder at {shape}", partial(plots.ladder, run, shape)
    for draw in (plots.ladders, plots.accuracy, plots.cards, plots.lines):
        yield draw.__name__, partial(draw, run)
    earlier = replace(run, created="2026-10-01T00:00:00+00:00")
    for kernel in dict.fromkeys(m.kernel for m in run.select()):
        one = replace(run, measurements=run.select(kernel))
        yield f"lines of {kernel}", partial(plots.lines, one)
        yield f"samples of {kernel}", partial(plots.samples, run, kernel)
        yield f"history of {kernel}", partial(plots.history, kernel, [earlier, run])
    if run.select():
        yield (
            "changes",
            lambda: plots.changes(compare_revisions([revision_of(run)], [revision_of(run)])),
        )


def require_one_predicate(run: Run, kernel: str) -> None:
    """Raise AssertionError if two texts disagree about an effect that is visible."""
    known = effects(run, kernel)
    rows = dict[str, dict[Shape, Effect]]()
    for effect in known:
        rows.setdefault(effect.setting, {})[effect.problem] = effect
        for factors in (None, True, False):
            words = effect_in_words(effect, factors)
            assert (words == "0") is not effect.visible, f"{effect.setting}: {words}"
            assert words not in ("× 1.00", "÷ 1.00", "+0.0 %", "−0.0 %", "+0 %", "−0 %"), words
    for setting, row in rows.items():
        shown = {shape for shape, words in in_row(row).items() if words != "0"}
        assert shown == {shape for shape, effect in row.items() if effect.visible}, setting


def show_panel(run: Run) -> None:
    """Choose each biased setting, all of them, and none, at each place of the panel."""
    answers = Answers([run])
    panel = Panel(answers)
    panel.text()
    chosen: list[dict[str, Any]] = [{}, answers.naive]
    chosen += [{g.setting: value} for g in PITFALLS for value in g.biased]
    chosen += [answers.naive | {g.setting: g.unbiased} for g in PITFALLS]
    for kernel in answers.kernels:
        for shape in answers.shapes:
            for biased in chosen:
                show_answer(answers, kernel, shape, biased)


def show_answer(answers: Answers, kernel: str, shape: Shape, biased: dict[str, Any]) -> None:
    """Make the panel's answer for some settings.

    A combination that isn't in the run has a message.
    """
    try:
        answer = answers.answer(kernel, shape, **biased)
    except WorklogError as error:
        assert str(error)
        return
    require_finite(repr(answer.text))
    document = answer.as_json()
    numbers = [us for series in document["samples"] for us in series]
    assert all(math.isfinite(us) for us in numbers) and "nan" not in repr(document)
    difference = answer.whole.difference
    assert ("within the noise" in answer.comparison) is not (difference.visible or answer.same)
    assert " 0.0 % " not in answer.comparison, answer.comparison


def export(run: Run) -> None:
    """Write the run as the JSON of Bencher."""
    with TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        options.write_exports(run, {"bencher": Path(folder) / "run.json"})


NOT_FINITE = re.compile(r"(?<![\w-])-?(nan|inf|None)(?![\w-])")


def require_finite(text: str) -> None:
    """Raise AssertionError for a text without a number, or with one that isn't finite."""
    found = NOT_FINITE.search(text)
    assert found is None, f"{found and text[max(0, found.start() - 60) : found.end() + 20]!r}"


def show(views: Iterable[tuple[str, Callable[[], Any]]], *, rendered: bool = False) -> list[str]:
    """Show views of a run; return a line for each fault.

    rendered: also write each chart as SVG, which takes most of the time
    """
    faults = list[str]()
    for name, make in views:
        try:
            view = make()
            if isinstance(view, Drawing):
                require_finite(f"{view.headline} {view.alt}")
                if rendered:
                    view.svg()
            elif isinstance(view, str):
                require_finite(view)
            elif isinstance(view, Table | Displayable | RungPage):
                require_finite(f"{view!r} {view._repr_html_()}")
        except NothingToDraw:
            pass
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            faults.append(f"{name}: {type(error).__name__}: {error} ({where})")
    return faults


def cut_short(run: Run) -> Iterator[tuple[str, Run]]:
    """Read the run from a file that ends early.

    It ends after the first and the last line of each kind, and in the middle of one.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        lines = run.save(path).read_text(encoding="utf-8").splitlines(keepends=True)
        kinds = [msgspec.json.decode(line)["kind"] for line in lines]
        ends = {kinds.index(kind) + 1 for kind in kinds}
        ends |= {len(kinds) - kinds[::-1].index(kind) for kind in kinds}
        for end in sorted(ends):
            for part in ("", lines[end][: len(lines[end]) // 2] if end < len(lines) else ""):
                path.write_text("".join(lines[:end]) + part, encoding="utf-8")
                after = f"cut after line {end}, {kinds[end - 1]}" + (" and a half" if part else "")
                try:
                    yield after, Run.load(path)
                except BadRunFile as error:
                    assert str(path) in str(error)
                    assert end < 1 + kinds.index("calibration"), after


def faults_of(
    recipe: Drawn, *, shown_cuts: int = 2, rendered: bool = False, share: float = 1.0
) -> list[str]:
    """Make a run, show it, and show what is left of it if its file is cut short.

    Return a line for each fault.

    shown_cuts: how many of the runs that are cut short are shown, drawn at random, the second one
    with its charts; all are read
    share: of the views of the whole run, drawn at random
    """
    run = make_run(recipe)
    rng = np.random.default_rng(recipe.seed)
    views = [view for view in (*texts(run), *charts(run)) if rng.random() < share]
    faults = show(views, rendered=rendered)
    cuts = [*cut_short(run)]
    chosen = rng.permutation(len(cuts))[:shown_cuts]
    for number, place in enumerate(chosen):
        after, rest = cuts[place]
        views = [*texts(rest), *charts(rest)] if number == 1 else [*texts(rest)]
        faults += [f"{after}: {fault}" for fault in show(views)]
    return faults


def main(count: int) -> None:
    """Draw that many runs; print each that has a fault, and exit with 1 if one has."""
    seen = dict[str, Drawn]()
    started = time.process_time()
    counted = 0

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(drawn())
    def draw(recipe: Drawn) -> None:
        nonlocal counted
        counted += 1
        for fault in faults_of(recipe, shown_cuts=3, rendered=counted % 8 == 0):
            place = fault.rpartition("(")[2]
            if place not in seen:
                seen[place] = recipe
                print(f"{fault}\n    {recipe}", flush=True)

    draw()
    print(f"{counted} runs, {len(seen)} faults, {time.process_time() - started:.0f} CPU s")
    sys.exit(bool(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
