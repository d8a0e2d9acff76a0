"""Search the tiles of a rung: their order, the cards that measure them, and the finalists.

Each tile is timed alternating with cuBLAS on one card. Its loop ends early once the interval of its
share lies below the best share so far. Shares of different loops drift, so the tiles that the
intervals can't separate from the best are timed again, against each other in one loop, on each
card. A tile that this machine has measured before isn't measured again.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from worklog import runs
from worklog.errors import BadSetting, Interrupted, install_command
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.problem.axes import Configuration
from worklog.runner.job import Job, product_job
from worklog.runs import CUBLAS, Measurement, Ran, Run, Verdict, failed
from worklog.runs.files import reserve
from worklog.runs.sources import kept_runs, new_path
from worklog.runs.statistics import Estimate, paired_ratio
from worklog.runs.text import Progress, Table, format_ratio, silent
from worklog.settings import Harness
from worklog.tune.cluster import ATTEMPTS, CardResult, Workers, card_name, on_card
from worklog.tune.sweep import Variant, Variants, recorded

STRATEGIES = ("exhaustive", "random", "optuna")
FINALISTS = 8
TICK_S = 0.5
How = Callable[[Job | None, Mapping[str, Kernel]], CardResult]  # what a worker does for a job
Key = tuple[Any, ...]
Timed = tuple[Measurement, Mapping[str, Any]]  # a tile's time, and its description in a run


class SearchOrder:
    """Variants in the order of a strategy.

    "exhaustive" keeps the order, "random" shuffles it, and "optuna" lets Optuna's sampler choose by
    the shares of the variants that are measured. Raises BadSetting if Optuna isn't installed.
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
        """Return the next variant.

        Suggestions that can't be built or came before are reported and skipped. There are at most
        as many suggestions as variants are left.
        """
        for _ in range(len(self.left) if self.study else 0):
            assert self.study is not None
            trial = self.study.ask()
            values = {}
            for axis in self.axes:
                index = trial.suggest_int(axis.name, 0, len(axis.values) - 1)
                values[axis.name] = axis.values[index]
            name = str(Configuration(values))
            if name in self.left:
                self.trials[name] = trial
                return self.left.pop(name)
            self.study.tell(trial, 0.0)
        return self.left.pop(next(iter(self.left)))

    def tell(self, name: str, share: float) -> None:
        """Report a variant's share of cuBLAS; 0 if it has no time."""
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
    """Measure the kept variants on the workers' cards, and save the run after each.

    strategy: one of STRATEGIES
    trials: the largest number of variants to measure (default: all)
    fresh: whether to measure again what this machine has measured before with the same source,
        shape, settings, compiler, driver and GPU
    how: what a worker does for a job (default: measure on its card; replayed() returns recorded
        times)
    command: as for carry_out()

    Raises what worklog.measure raises, and BadSetting if no variant is left.
    """
    chosen.require_some()
    harness = harness or Harness()
    order = SearchOrder(chosen, strategy, seed)
    if how is None:
        how = partial(on_card, sweep=secrets.token_hex(8), harness=harness, command=command)
    path = out or new_path()
    with reserve(path):
        run = _begin(chosen, workers, how, path)
        try:
            earlier = {} if fresh else measured_before(run)
            count = int(min(trials or math.inf, len(chosen.kept)))
            _measure(
                chosen.shape,
                workers,
                how,
                run,
                order=order,
                count=count,
                earlier=earlier,
                progress=progress,
            )
            names = finalists(run.select()) if run.origin == "live" else []
            if len(names) > 1:
                title = f"{len(names)} finalists against each other"
                progress(len(run.measurements), count, title)
                types = chosen.kept[0].kernel.types
                job = product_job(names[0], chosen.shape, (), *names[1:], types=types)
                kernels = {
                    variant.name: variant.kernel for variant in chosen.kept if variant.name in names
                }
                for future in [card.submit(how, job, kernels) for card in workers.each_card]:
                    run.add(future.result().measurement, about=future.result().about)
        except KeyboardInterrupt as interrupt:
            saved = f"{len(run.measurements)} measurements are kept in {run.path}"
            raise Interrupted(
                f"interrupted: {saved}; the same command goes on from them"
            ) from interrupt
    run.end()
    return run


def _begin(chosen: Variants, workers: Workers, measure_on_card: How, path: Path) -> Run:
    """Return a run that names each card of the workers."""
    futures = [card.submit(measure_on_card, None, {}) for card in workers.each_card]
    heads = [future.result() for future in futures]
    run = Run.begin(heads[0].head, path)
    run.add_note(chosen.preview())
    for card, head, *_ in heads:
        card_head = Run.of_head(head)
        run.add_card(card, card_head.gpu, card_head.calibration)
        if card_head.gpu.arch != chosen.arch:
            run.add_note(
                f"{card} runs {card_head.gpu.arch}: "
                f"what --where compared was compiled for {chosen.arch}"
            )
    return run


def _measure(
    shape: Shape,
    workers: Workers,
    measure_on_card: How,
    run: Run,
    *,
    order: SearchOrder,
    count: int,
    earlier: Mapping[Key, Timed],
    progress: Progress,
) -> None:
    """Add tiles to the run.

    count: of tiles
    earlier: times from earlier runs
    """
    waiting = dict[Future[CardResult], Variant]()
    asked_count = 0
    try:
        while asked_count < count or waiting:
            # A tile that is queued at a worker would also be lost with the worker.
            while asked_count < count and len(waiting) < len(run.cards):
                variant = order.ask()
                asked_count += 1
                timed = earlier.get(key(variant.kernel.describe(), shape))
                if timed:
                    measurement, about = timed
                    run.add(replace(measurement, kernel=variant.name), about=about)
                    order.tell(variant.name, measurement.ratio or 0.0)
                    continue
                changed = (("least_share", _best_share(run)),)
                job = product_job(variant.name, shape, changed, types=variant.kernel.types)
                waiting[
                    workers.gpu.submit(measure_on_card, job, {variant.name: variant.kernel})
                ] = variant
            names = ", ".join(variant.name for variant in waiting.values())
            progress(len(run.measurements), count, f"measuring {names}"[:60])
            finished, _ = wait(waiting, TICK_S, FIRST_COMPLETED)
            for future in finished:
                variant = waiting.pop(future)
                m, about = _result(future, variant, workers, shape)
                run.add(m, about=about)
                order.tell(variant.name, m.ratio or 0.0)
    finally:
        for future in waiting:
            future.cancel()


def _best_share(run: Run) -> float:
    """Return the lower end of the best share so far; 0 if the cards differ."""
    if len({card.gpu.name for card in run.cards.values()}) != 1:
        return 0.0
    return max((m.ratio_low or 0.0 for m in run.measurements), default=0.0)


def _result(future: Future[CardResult], variant: Variant, workers: Workers, shape: Shape) -> Timed:
    """Return a variant's measurement and description; failed if its workers died."""
    try:
        return future.result().measurement, future.result().about
    except workers.lost:
        stage = failed("process", f"each of {ATTEMPTS} workers that took it died")
        measurement = product_job(variant.name, shape).failed(Verdict((stage,), None))
        return measurement, variant.kernel.describe()


def replayed(job: Job | None, kernels: Mapping[str, Kernel], chosen: Variants) -> CardResult:
    """Return the recorded time of a variant in place of a measurement on a card.

    Raises BadRunFile if the variant was not recorded.
    """
    began = time.time()
    head = Run.load(next(iter(runs.recordings("sweeps").values())), "recorded")
    if job is None:
        return CardResult(card_name(), head.head_lines())
    variants = tuple(variant for variant in chosen.kept if variant.name in kernels)
    measurements = recorded(replace(chosen, kept=variants)).measurements
    m = next(m for m in measurements if m.kernel == job.kernel)
    degradations = tuple(m.degradations)
    if m.context and m.context.remark:
        degradations = (*degradations, m.label)
    ran = Ran(card_name(), began, time.time() - began)
    measurement = replace(m, degradations=degradations, ran=ran)
    return CardResult(ran.card, (), measurement, kernels[job.kernel].describe())


def key(about: Mapping[str, Any], shape: Shape) -> Key:
    """Return the key of a kernel's time, apart from GPU, driver, compiler and settings.

    about: the kernel's description in a run
    """
    return (
        about.get("sha256"),
        about.get("entry"),
        *about.get("options", ()),
        about.get("dynamic_shared_bytes"),
        shape,
    )


def measured_before(run: Run) -> dict[Key, tuple[Measurement, dict[str, Any]]]:
    """Return the tiles that earlier sweeps of this machine have timed, by key().

    The sweeps have the run's settings and compiler, the tiles a GPU and a driver of the run.
    """
    gpus = {(card.gpu.name, card.gpu.driver) for card in run.cards.values()}
    nvrtc = run.software.get("nvrtc")
    tiles = dict[Key, tuple[Measurement, dict[str, Any]]]()
    for earlier in kept_runs():
        if earlier.harness != run.harness or earlier.software.get("nvrtc") != nvrtc:
            continue
        for m in earlier.measurements:
            about = earlier.kernels.get(m.kernel, {})
            if _is_tile_time(m, gpus):
                tiles.setdefault(key(about, m.problem), (replace(m, context=None), about))
    return tiles


def _is_tile_time(m: Measurement, gpus: Collection[tuple[str, str]]) -> bool:
    """Return whether a measurement is a tile's time in a sweep, next to cuBLAS only.

    gpus: names and drivers
    """
    if not (m.ran and m.us and m.shape and len(m.against) == 1):
        return False
    gpu = m.context.gpu if m.context else None
    return gpu is not None and (gpu.name, gpu.driver) in gpus


def finalists(measured: Iterable[Measurement]) -> list[str]:
    """Return up to FINALISTS tiles, fastest first.

    Their intervals overlap the best tile's. Each GPU model is ranked separately.
    """
    names = list[str]()
    timed = sorted((m for m in measured if m.ratio), key=lambda m: -(m.ratio or 0.0))
    for gpu in dict.fromkeys(m.context and m.context.gpu.name for m in timed):
        on_gpu = [m for m in timed if m.context and m.context.gpu.name == gpu]
        best_low = on_gpu[0].ratio_low or 0.0
        inseparable = [m.kernel for m in on_gpu if (m.ratio_high or 0.0) >= best_low]
        names += inseparable[:FINALISTS]
    return [*dict.fromkeys(names)]


def finals(run: Run) -> list[Measurement]:
    """Return the loops that timed tiles against each other, a loop for each card."""
    return [m for m in run.measurements if m.us and len(m.against) > 1]


def paired(m: Measurement, name: str, baseline: str) -> Estimate:
    """Return a kernel's speed as a share of another kernel's speed in the same loop.

    The share is computed turn by turn. Above 1, `name` is faster than `baseline`.
    """
    sides = {side.name: side for side in m.samples.sides}
    overhead_us = m.samples.overhead_us
    pair = replace(m.samples, sides=[sides[name], sides[baseline]])
    times_us, baseline_us, placements = pair.comparisons()
    return paired_ratio(
        [us - overhead_us for us in baseline_us], [us - overhead_us for us in times_us], placements
    )


def in_final_order(loops: Sequence[Measurement]) -> list[str]:
    """Return the tiles of the cards' loops, the fastest over all cards first."""
    names = [side.name for side in loops[0].samples.sides if side.name != CUBLAS]
    return sorted(
        names, key=lambda name: -math.prod(paired(m, name, names[0]).value for m in loops)
    )


def ranking(run: Run) -> Table:
    """Return the finalists of each GPU model, and below them the other tiles.

    Finalists are ranked by the loops in which they were timed against each other, with a column for
    each card. The other tiles are ranked by their shares of cuBLAS, and have their cards and dates.
    """
    rows = list[dict[str, str]]()
    notes = [*run.notes]
    ranked = set[str]()
    for gpu in dict.fromkeys(m.context.gpu.name for m in finals(run) if m.context):
        loops = [m for m in finals(run) if m.context and m.context.gpu.name == gpu]
        names = in_final_order(loops)
        rows += [_finalist_row(name, names[0], loops) for name in names]
        ranked |= {*names}
        notes.append(
            f"{len(names)} tiles against each other in one loop on {len(loops)} x {gpu}: "
            f"{names[0]} is first"
        )
    if len({card.gpu.name for card in run.cards.values()}) > 1:
        notes.append(
            "the cards differ, and each share of cuBLAS is of its own card: "
            "rank tiles of one card only"
        )
    for m in sorted(run.select(), key=lambda m: -(m.ratio or 0.0)):
        if m.kernel not in ranked:
            rows.append(_tile_row(m))
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    cells = [{name: row.get(name, "") for name in columns} for row in rows]
    return Table.of(run.label, cells, notes=notes)


def _finalist_row(name: str, first: str, loops: Sequence[Measurement]) -> dict[str, str]:
    """Return a finalist's share of cuBLAS on the first card, and of the first tile on each card."""
    row = {"tile": name, "of cuBLAS": _share(paired(loops[0], name, CUBLAS))}
    for m in loops:
        if m.ran:
            row[f"of the first, {m.ran.card}"] = _share(paired(m, name, first))
    return row


def _tile_row(m: Measurement) -> dict[str, str]:
    """Return a tile's share of cuBLAS with its card and date, or the status if it has no time."""
    card = m.ran.card if m.ran else ""
    date = m.context.created[:10] if m.context else ""
    share = _share(m.first) if m.first else m.status
    return {"tile": m.kernel, "of cuBLAS": share, "on": f"{card} {date}".strip()}


def _share(ratio: Estimate) -> str:
    return format_ratio(ratio.value, ratio.low, ratio.high)
