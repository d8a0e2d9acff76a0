"""Search the tiles of a rung: which points are measured, on which cards, and the finalists against each other.

Each tile is timed beside cuBLAS on one card, and its loop ends early once the interval of its share lies below the best
share so far. Shares of different loops drift, so the tiles that the intervals can't separate from the best are timed
again, against each other in one loop, on each card. A tile that this machine has measured before isn't measured again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from worklog.errors import BadRunFile, BadSetting, Interrupted, install_command
from worklog.gate import failed
from worklog.kernel import Kernel
from worklog.problem import Axis, Point, Shape, Space
from worklog.runner.cluster import ATTEMPTS, THREADS, Measured, Workers, on_card
from worklog.runner.job import BASELINE, Job, Progress, silent
from worklog.runner.sweep import SIZE, Variant, Variants, space_of, variant_of
from worklog.runs import Estimate, Measurement, Run, Table, Verdict, claimed, new_path, paired_ratio
from worklog.runs.run import live_runs
from worklog.runs.table import of_baseline
from worklog.settings import Harness

STRATEGIES = ("exhaustive", "random", "optuna")
FINALISTS = 8
TICK_S = 0.5
REPEATS = 20  # of a point that the strategy has named before, until another one is drawn
DIED = f"each of {ATTEMPTS} workers that took it died"
How = Callable[[Job | None, Mapping[str, Kernel]], Measured]
Key = tuple[Any, ...]


class Points:
    """The points of a space in the order of a strategy: all, in the axes' order; drawn at random; or as Optuna's
    sampler suggests. Raises BadSetting where it isn't installed.
    """

    def __init__(self, space: Space, strategy: str, seed: int) -> None:
        self.axes, self.trials = space.axes, dict[str, Any]()
        self.left = {str(point): point for point in space.points()}
        if strategy != "exhaustive":
            mixed = [*self.left.items()]
            Random(seed).shuffle(mixed)
            self.left = dict(mixed)
        self.study = None
        if strategy == "optuna":
            try:
                import optuna
            except ImportError as error:
                raise BadSetting(f"--strategy optuna needs Optuna: {install_command('tune')}") from error
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self.study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def ask(self) -> Point | None:
        """The next one; None after the last."""
        for _ in range(REPEATS if self.study and self.left else 0):
            assert self.study is not None
            trial = self.study.ask()
            values = {
                axis.name: axis.values[trial.suggest_int(axis.name, 0, len(axis.values) - 1)] for axis in self.axes
            }
            name = str(Point(values))
            if name in self.left:
                self.trials[name] = trial
                return self.left.pop(name)
            known = self.trials.get(name)
            self.study.tell(trial, known if isinstance(known, float) else 0.0)
        return self.left.pop(next(iter(self.left))) if self.left else None

    def tell(self, point: Point, share: float) -> None:
        """What was found of a point: its share of cuBLAS, 0 for one that can't be measured."""
        trial = self.trials.get(str(point))
        if self.study is not None and trial is not None:
            self.study.tell(trial, share)
            self.trials[str(point)] = share


class Found(NamedTuple):
    """What a search found. finals: of each card, one loop of the finalists."""

    run: Run
    variants: Variants
    finals: Sequence[Measurement] = ()


def search(
    record: Kernel,
    axes: Sequence[Axis],
    workers: Workers,
    *,
    shape: Shape = SIZE,
    where: Sequence[str] = (),
    strategy: str = "exhaustive",
    trials: int | None = None,
    seed: int = 0,
    harness: Harness | None = None,
    fresh: bool = False,
    progress: Progress = silent,
    out: Path | None = None,
    how: How | None = None,
    command: Sequence[str] | None = None,
) -> Found:
    """Measure tiles of a rung on every card of the workers, and save the run after each.

    axes, where: as for worklog.runner.sweep.variants. strategy: one of STRATEGIES. trials: how many tiles are measured
    at most (default: all). fresh: also those that this machine has measured before with the same source, shape,
    settings, compiler, driver and GPU. how: what a worker does for a job (default: measure on its card). command: as
    for carry_out(). Raises what worklog.measure and variants() raise.
    """
    space, harness = space_of(record, axes, where), harness or Harness()
    points, path = Points(space, strategy, seed), out or new_path(datetime.now(UTC).isoformat())
    how = how or partial(on_card, secrets.token_hex(8), harness, command)
    with claimed(path):
        heads = [future.result() for future in [card.submit(how, None, {}) for card in workers.each_card]]
        run = Run.begin(heads[0].head, path)
        for card, head, *_ in heads:
            of_card = Run.of_head(head)
            run.add_card(card, of_card.gpu, of_card.calibration)
        under_way = _Search(record, shape, where, workers, how, run, points, len(heads), progress)
        under_way.most = len(points.left) if trials is None else trials
        under_way.before = {} if fresh else measured_before(run)
        try:
            under_way.go(len(heads) if strategy == "optuna" else THREADS)
            variants = Variants.of(record, space, shape, run.gpu.arch, under_way.made)
            finals = under_way.finals() if run.origin == "live" else []
        except KeyboardInterrupt as interrupt:
            there = f"{len(run.measurements)} measurements are kept in {run.path}"
            raise Interrupted(f"interrupted: {there}; the same command goes on from them") from interrupt
        finally:
            under_way.cancel()
    run.end()
    return Found(run, variants, finals)


@dataclass
class _Search:
    """One search under way: the arguments of search(), and what is known so far. cards: their number. most: tiles to
    measure. before: by key, measured earlier on such a GPU. made: by point, what the compiler found. times: by tile.
    """

    record: Kernel
    shape: Shape
    where: Sequence[str]
    workers: Workers
    how: How
    run: Run
    points: Points
    cards: int
    progress: Progress
    most: int = 0
    before: Mapping[Key, tuple[Measurement, Mapping[str, Any]]] = field(default_factory=dict)
    made: list[tuple[Point, Variant | str]] = field(default_factory=list)
    times: dict[str, Measurement] = field(default_factory=dict)
    ready: list[tuple[Point, Variant]] = field(default_factory=list)
    compiling: dict[Future[Variant | str], Point] = field(default_factory=dict)
    measuring: dict[Future[Measured], tuple[Point, Variant]] = field(default_factory=dict)

    def go(self, ahead: int) -> None:
        """Measure until there is nothing left. ahead: points that are compiled, or wait to be measured."""
        self.order(ahead)
        while self.compiling or self.measuring:
            wait(list[Future[Any]]((*self.compiling, *self.measuring)), TICK_S, FIRST_COMPLETED)
            for compiled in [future for future in self.compiling if future.done()]:
                self.compiled(compiled)
            for measured in [future for future in self.measuring if future.done()]:
                self.measured(measured)
            self.order(ahead)
            self.progress(
                len(self.times), self.most, f"measuring {len(self.measuring)}, compiling {len(self.compiling)}"
            )

    def order(self, ahead: int) -> None:
        """Give the workers something to do: two jobs a card, so that none waits for this process."""
        while self.ready and len(self.measuring) < 2 * self.cards:
            point, variant = self.ready.pop(0)
            job = Job(variant.name, self.shape, (("least_share", self.least_share),))
            self.measuring[self.workers.gpu.submit(self.how, job, {variant.name: variant.kernel})] = point, variant
        known = len(self.times) + len(self.measuring)
        while len(self.compiling) + len(self.ready) < min(ahead, self.most - known):
            if (new := self.points.ask()) is None:
                break
            gpu = self.run.gpu
            how = self.record, new, self.shape, gpu.arch, gpu.multiprocessors, self.where
            self.compiling[self.workers.cpu.submit(variant_of, *how)] = new

    @property
    def least_share(self) -> float:
        """The lower end of the best share's interval, below which a loop may end; 0 where the cards differ."""
        alike = len({card.gpu.name for card in self.run.cards.values()}) == 1
        return max((m.ratio_low or 0.0 for m in self.times.values()), default=0.0) if alike else 0.0

    def compiled(self, future: Future[Variant | str]) -> None:
        """Skip a point, take its time from before, or let it be measured."""
        point = self.compiling.pop(future)
        try:
            result = future.result()
        except self.workers.lost:
            result = DIED
        self.made.append((point, result))
        if isinstance(result, str):
            self.points.tell(point, 0.0)
        elif known := self.before.get(key(result.kernel.describe(), self.shape)):
            self.add(point, replace(known[0], kernel=result.name), known[1])
        else:
            self.ready.append((point, result))

    def measured(self, future: Future[Measured]) -> None:
        """Keep a measurement; a tile that its workers died of has failed."""
        point, variant = self.measuring.pop(future)
        try:
            _, _, m, about = future.result()
        except self.workers.lost:
            job = Job(variant.name, self.shape)
            m, about = job.failed(Verdict((failed("process", DIED),), None)), variant.kernel.describe()
        assert m is not None
        self.add(point, m, about)

    def add(self, point: Point, m: Measurement, about: Mapping[str, Any]) -> None:
        """To the run, which is saved; and let the strategy know."""
        self.run.add(m, about=about)
        self.times[m.kernel] = self.run.measurements[-1]  # which has a context
        self.points.tell(point, m.ratio or 0.0)

    def finals(self) -> list[Measurement]:
        """On each card, one loop of the tiles that can't be separated from the best by their shares."""
        names = finalists(self.times.values())
        if len(names) < 2:
            return []
        self.progress(len(self.times), self.most, f"{len(names)} finalists against each other")
        kernels = {variant.name: variant.kernel for _, variant in self.made if isinstance(variant, Variant)}
        job, own = Job(names[0], self.shape, against=tuple(names[1:])), {name: kernels[name] for name in names}
        futures = [card.submit(self.how, job, own) for card in self.workers.each_card]
        for future in futures:
            _, _, m, about = future.result()
            assert m is not None
            self.run.add(m, about=about)
        return self.run.measurements[-len(futures) :]

    def cancel(self) -> None:
        """What hasn't begun."""
        for future in list[Future[Any]]((*self.compiling, *self.measuring)):
            future.cancel()


def key(about: Mapping[str, Any], shape: Shape) -> Key:
    """What a kernel's time belongs to, beside GPU, driver, compiler and settings. about: its description in a run."""
    return (
        about.get("sha256"),
        about.get("entry"),
        *about.get("options", ()),
        about.get("dynamic_shared_bytes"),
        shape,
    )


def measured_before(run: Run) -> dict[Key, tuple[Measurement, dict[str, Any]]]:
    """Tiles that searches of this machine have timed with this run's settings, compiler, driver and GPU, by key()."""
    here = {(card.gpu.name, card.gpu.driver) for card in run.cards.values()}
    known = dict[Key, tuple[Measurement, dict[str, Any]]]()
    for path in live_runs():
        with suppress(BadRunFile):
            before = Run.load(path)
            if before.harness != run.harness or before.software.get("nvrtc") != run.software.get("nvrtc"):
                continue
            for m in before.measurements:
                of, about = m.context and m.context.gpu, before.kernels.get(m.kernel, {})
                if m.ran and m.us and m.shape and len(m.against) == 1 and of and (of.name, of.driver) in here:
                    known.setdefault(key(about, m.problem), (replace(m, context=None), about))
    return known


def finalists(measured: Iterable[Measurement]) -> list[str]:
    """Tiles whose share's interval reaches that of the best, which comes first; at most FINALISTS. Where the GPUs
    differ, those of each.
    """
    names = list[str]()
    timed = sorted((m for m in measured if m.ratio), key=lambda m: -(m.ratio or 0.0))
    for gpu in dict.fromkeys(m.context and m.context.gpu.name for m in timed):
        of_gpu = [m for m in timed if m.context and m.context.gpu.name == gpu]
        names += [m.kernel for m in of_gpu if (m.ratio_high or 0.0) >= (of_gpu[0].ratio_low or 0.0)][:FINALISTS]
    return [*dict.fromkeys(names)]


def paired(m: Measurement, name: str, beside: str) -> Estimate:
    """The time of one kernel of a loop over that of another, turn by turn, as a share: above 1, `name` is faster."""
    sides = {side.name: side for side in m.samples.sides}
    ours, theirs, placements = replace(m.samples, sides=[sides[name], sides[beside]]).comparisons()
    overhead = m.samples.overhead_us
    return paired_ratio([us - overhead for us in theirs], [us - overhead for us in ours], placements)


def winner(finals: Sequence[Measurement]) -> str:
    """The finalist that is fastest over all of these cards."""
    names = [side.name for side in finals[0].samples.sides if side.name != BASELINE]
    share = {name: math.prod(paired(m, name, names[0]).value for m in finals) for name in names}
    return max(names, key=lambda name: share[name])


def ranking(found: Found) -> Table:
    """The finalists, by the loops in which they were timed against each other, a column for each card; below, the other
    tiles by their shares of cuBLAS. Notes state which card and date a share is of, and what was skipped.
    """
    rows, notes = list[dict[str, str]](), [found.variants.preview()]
    placed = set[str]()
    gpus = dict.fromkeys(m.context.gpu.name for m in found.finals if m.context)
    for gpu in gpus:
        finals = [m for m in found.finals if m.context and m.context.gpu.name == gpu and m.us]
        best, names = winner(finals), [side.name for side in finals[0].samples.sides if side.name != BASELINE]
        for name in sorted(names, key=lambda name: -paired(finals[0], name, best).value):
            row = {"tile": name, "of cuBLAS": _share(paired(finals[0], name, BASELINE))}
            rows.append(row | {f"of the first, {m.ran.card}": _share(paired(m, name, best)) for m in finals if m.ran})
        placed |= {*names}
        notes.append(f"{len(names)} tiles against each other in one loop on {len(finals)} x {gpu}: {best} is first")
    if len({card.gpu.name for card in found.run.cards.values()}) > 1:
        notes.append("the cards differ: each share of cuBLAS is of its own card, so rank tiles of one card only")
    for m in sorted(found.run.select(shape=found.variants.shape), key=lambda m: -(m.ratio or 0.0)):
        if m.kernel not in placed and m.kernel != BASELINE and len(m.against) == 1:
            on = f"{m.ran.card if m.ran else ''} {m.context.created[:10] if m.context else ''}".strip()
            rows.append({"tile": m.kernel, "of cuBLAS": _share(m.first) if m.first else m.status, "on": on})
    columns = dict.fromkeys(name for row in rows for name in row)
    return Table.of(found.run.label, [{name: row.get(name, "") for name in columns} for row in rows], notes=notes)


def _share(ratio: Estimate) -> str:
    return of_baseline(ratio.value, ratio.low, ratio.high)
