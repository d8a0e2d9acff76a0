"""Search the tiles of a rung: in which order they are measured, on which cards, and the finalists against each other.

Each tile is timed beside cuBLAS on one card, and its loop ends early once the interval of its share lies below the best
share so far. Shares of different loops drift, so the tiles that the intervals can't separate from the best are timed
again, against each other in one loop, on each card. A tile that this machine has measured before isn't measured again.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from worklog import runs
from worklog.errors import BadSetting, Interrupted, install_command
from worklog.kernel import Kernel
from worklog.problem import Point, Shape
from worklog.runner.measure import Job
from worklog.runs import (
    CUBLAS,
    Estimate,
    Measurement,
    Progress,
    Ran,
    Run,
    Table,
    Verdict,
    failed,
    silent,
)
from worklog.settings import Harness
from worklog.tune.cluster import ATTEMPTS, Measured, Workers, card_name, on_card
from worklog.tune.sweep import Variant, Variants, recorded

STRATEGIES = ("exhaustive", "random", "optuna")
FINALISTS = 8
TICK_S = 0.5
How = Callable[[Job | None, Mapping[str, Kernel]], Measured]
Key = tuple[Any, ...]


class Order:
    """Variants in the order of a strategy: as they are, drawn, or as Optuna's sampler suggests from the shares that it
    was told. Raises BadSetting where it isn't installed.
    """

    def __init__(self, chosen: Variants, strategy: str, seed: int) -> None:
        left = [*chosen.kept]
        if strategy != "exhaustive":
            Random(seed).shuffle(left)
        self.axes = chosen.space.axes
        self.left = {variant.name: variant for variant in left}
        self.trials = dict[str, Any]()
        self.study = None
        if strategy == "optuna":
            try:
                import optuna
            except ImportError as error:
                raise BadSetting(
                    f"--strategy optuna needs Optuna: {install_command('tune')}"
                ) from error
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self.study = optuna.create_study(
                direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
            )

    def ask(self) -> Variant:
        """The next one. Suggestions that can't be built or came before are told and skipped, as many as are left."""
        for _ in range(len(self.left) if self.study else 0):
            assert self.study is not None
            trial = self.study.ask()
            at = {
                axis.name: trial.suggest_int(axis.name, 0, len(axis.values) - 1)
                for axis in self.axes
            }
            name = str(Point({axis.name: axis.values[at[axis.name]] for axis in self.axes}))
            if name in self.left:
                self.trials[name] = trial
                return self.left.pop(name)
            self.study.tell(trial, 0.0)
        return self.left.pop(next(iter(self.left)))

    def tell(self, name: str, share: float) -> None:
        """The share of cuBLAS of a variant, 0 where it has none."""
        if self.study is not None and name in self.trials:
            self.study.tell(self.trials.pop(name), share)


def search(
    chosen: Variants,
    workers: Workers,
    *,
    strategy: str = STRATEGIES[0],
    trials: int | None = None,
    seed: int = 0,
    harness: Harness | None = None,
    fresh: bool = False,
    progress: Progress = silent,
    out: Path | None = None,
    how: How | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """Measure the kept variants on the cards of the workers, and save the run after each.

    strategy: one of STRATEGIES. trials: how many are measured at most (default: all). fresh: also those that this
    machine has measured before with the same source, shape, settings, compiler, driver and GPU. how: what a worker does
    for a job (default: measure on its card; replayed() gives recorded times). command: as for carry_out(). Raises what
    worklog.measure raises, and BadSetting where no variant is left.
    """
    chosen.require_some()
    harness, order = harness or Harness(), Order(chosen, strategy, seed)
    how, path = (
        how or partial(on_card, secrets.token_hex(8), harness, command),
        out or runs.new_path(),
    )
    with runs.claimed(path):
        heads = [
            future.result() for future in [card.submit(how, None, {}) for card in workers.each_card]
        ]
        run = Run.begin(heads[0].head, path)
        run.add_note(chosen.preview())
        for card, head, *_ in heads:
            of_card = Run.of_head(head)
            run.add_card(card, of_card.gpu, of_card.calibration)
            if of_card.gpu.arch != chosen.arch:
                run.add_note(
                    f"{card} runs {of_card.gpu.arch}: what --where compared was compiled for {chosen.arch}"
                )
        try:
            before = {} if fresh else measured_before(run)
            most = min(trials or math.inf, len(chosen.kept))
            _measure(chosen.shape, workers, how, run, order, int(most), before, progress)
            names = finalists(run.select()) if run.origin == "live" else []
            if len(names) > 1:
                progress(
                    len(run.measurements), int(most), f"{len(names)} finalists against each other"
                )
                job = Job(names[0], chosen.shape, against=tuple(names[1:]))
                kernels = {
                    variant.name: variant.kernel for variant in chosen.kept if variant.name in names
                }
                for future in [card.submit(how, job, kernels) for card in workers.each_card]:
                    run.add(future.result().measurement, about=future.result().about)
        except KeyboardInterrupt as interrupt:
            there = f"{len(run.measurements)} measurements are kept in {run.path}"
            raise Interrupted(
                f"interrupted: {there}; the same command goes on from them"
            ) from interrupt
    run.end()
    return run


def _measure(
    shape: Shape, workers: Workers, how: How, run: Run, order: Order, most: int,
    before: Mapping[Key, tuple[Measurement, Mapping[str, Any]]], progress: Progress,
) -> None:  # fmt: skip
    """Add so many tiles to the run. before: their times from earlier runs."""
    waiting = dict[Future[Measured], Variant]()
    known = 0
    cards = len(run.cards)
    alike = len({card.gpu.name for card in run.cards.values()}) == 1
    try:
        while known < most or waiting:
            while (
                known < most and len(waiting) < cards
            ):  # one that is queued at a worker would be lost with it, too
                variant, known = order.ask(), known + 1
                if kept := before.get(key(variant.kernel.describe(), shape)):
                    run.add(replace(kept[0], kernel=variant.name), about=kept[1])
                    order.tell(variant.name, kept[0].ratio or 0.0)
                    continue
                least = (
                    max((m.ratio_low or 0.0 for m in run.measurements), default=0.0)
                    if alike
                    else 0.0
                )
                job = Job(variant.name, shape, (("least_share", least),))
                waiting[workers.gpu.submit(how, job, {variant.name: variant.kernel})] = variant
            progress(
                len(run.measurements),
                most,
                f"measuring {', '.join(v.name for v in waiting.values())}"[:60],
            )
            done, _ = wait(waiting, TICK_S, FIRST_COMPLETED)
            for future in done:
                variant = waiting.pop(future)
                try:
                    m = future.result().measurement
                    about = future.result().about
                except workers.lost:
                    verdict = Verdict(
                        (failed("process", f"each of {ATTEMPTS} workers that took it died"),), None
                    )
                    m = Job(variant.name, shape).failed(verdict)
                    about = variant.kernel.describe()
                run.add(m, about=about)
                order.tell(variant.name, m.ratio or 0.0)
    finally:
        for future in waiting:
            future.cancel()


def replayed(job: Job | None, kernels: Mapping[str, Kernel], chosen: Variants) -> Measured:
    """In place of a measurement on a card, the recorded time of a variant. Raises BadRunFile for one without."""
    began = time.time()
    head = Run.load(next(iter(runs.recordings("sweeps").values())), "recorded")
    if job is None:
        return Measured(card_name(), head.head_lines())
    own = replace(chosen, kept=tuple(variant for variant in chosen.kept if variant.name in kernels))
    m = next(m for m in recorded(own).measurements if m.kernel == job.kernel)
    said = (*m.degradations, m.label) if m.context and m.context.remark else m.degradations
    ran = Ran(card_name(), began, time.time() - began)
    return Measured(
        ran.card,
        (),
        replace(m, degradations=said, ran=ran, context=None),
        kernels[job.kernel].describe(),
    )


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
    """Tiles that sweeps of this machine have timed with this run's settings, compiler, driver and GPU, by key()."""
    here = {(card.gpu.name, card.gpu.driver) for card in run.cards.values()}
    known = dict[Key, tuple[Measurement, dict[str, Any]]]()
    for before in runs.kept_runs():
        if before.harness != run.harness or before.software.get("nvrtc") != run.software.get(
            "nvrtc"
        ):
            continue
        for m in before.measurements:
            of = m.context and m.context.gpu
            about = before.kernels.get(m.kernel, {})
            if (
                m.ran
                and m.us
                and m.shape
                and len(m.against) == 1
                and of
                and (of.name, of.driver) in here
            ):
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
        names += [
            m.kernel for m in of_gpu if (m.ratio_high or 0.0) >= (of_gpu[0].ratio_low or 0.0)
        ][:FINALISTS]
    return [*dict.fromkeys(names)]


def finals(run: Run) -> list[Measurement]:
    """The loops in which tiles were timed against each other, one for each card."""
    return [m for m in run.measurements if m.us and len(m.against) > 1]


def paired(m: Measurement, name: str, beside: str) -> Estimate:
    """The speed of one kernel of a loop as a share of that of another, turn by turn: above 1, `name` is faster."""
    sides = {side.name: side for side in m.samples.sides}
    overhead = m.samples.overhead_us
    ours, theirs, placements = replace(m.samples, sides=[sides[name], sides[beside]]).comparisons()
    return runs.paired_ratio(
        [us - overhead for us in theirs], [us - overhead for us in ours], placements
    )


def in_final_order(loops: Sequence[Measurement]) -> list[str]:
    """The tiles of these cards' loops, the fastest over all of them first."""
    names = [side.name for side in loops[0].samples.sides if side.name != CUBLAS]
    return sorted(
        names, key=lambda name: -math.prod(paired(m, name, names[0]).value for m in loops)
    )


def ranking(run: Run) -> Table:
    """The finalists of each kind of GPU, by the loops in which they were timed against each other, with a column for
    each card; below, the other tiles by their shares of cuBLAS, with their cards and dates.
    """
    rows = list[dict[str, str]]()
    notes = [*run.notes]
    placed = set[str]()
    for gpu in dict.fromkeys(m.context.gpu.name for m in finals(run) if m.context):
        loops = [m for m in finals(run) if m.context and m.context.gpu.name == gpu]
        names = in_final_order(loops)
        for name in names:
            row = {"tile": name, "of cuBLAS": _share(paired(loops[0], name, CUBLAS))}
            rows.append(
                row
                | {
                    f"of the first, {m.ran.card}": _share(paired(m, name, names[0]))
                    for m in loops
                    if m.ran
                }
            )
        placed |= {*names}
        notes.append(
            f"{len(names)} tiles against each other in one loop on {len(loops)} x {gpu}: {names[0]} is first"
        )
    if len({card.gpu.name for card in run.cards.values()}) > 1:
        notes.append(
            "the cards differ, and each share of cuBLAS is of its own card: rank tiles of one card only"
        )
    for m in sorted(run.select(), key=lambda m: -(m.ratio or 0.0)):
        if m.kernel not in placed:
            on = f"{m.ran.card if m.ran else ''} {m.context.created[:10] if m.context else ''}".strip()
            rows.append(
                {"tile": m.kernel, "of cuBLAS": _share(m.first) if m.first else m.status, "on": on}
            )
    columns = dict.fromkeys(name for row in rows for name in row)
    return Table.of(
        run.label, [{name: row.get(name, "") for name in columns} for row in rows], notes=notes
    )


def _share(ratio: Estimate) -> str:
    return runs.of_baseline(ratio.value, ratio.low, ratio.high)
