"""Tunes the table of `best` on this GPU, and records what `best` and `split` reach at other shapes.

`python -m tests.record.tune worklog/recordings/chapters/h100_drawn.jsonl` on a machine with a GPU;
at most 10 minutes. It draws 48 shapes by each of two seeds. At the first ones, it times the kernels
that the table expects to be the fastest into OUT_tuning.jsonl, fits the table
(worklog/kernel/ladder/best.json) to what came, writes it, there and beside the run, and prints what
the fitted table chooses, and the regret: the share of its time that is above the fastest timed
kernel's. At the others, it records `best`, and `split` where mode="split" takes it, beside cuBLAS,
and `best` where it was slow. `--keep` leaves the table as it is. `--fit` fits it to the trials in
OUT, without a GPU, and ends.
"""

import json
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import click

from worklog.emulator.limits import Chip
from worklog.gpu.device import gpu
from worklog.kernel import Kernel
from worklog.kernel.ladder import best as tiles
from worklog.kernel.ladder import rungs
from worklog.kernel.ladder.best import (
    BULK,
    LEAST_SPLIT_K,
    Tile,
    TimeTable,
    candidates,
    choose,
    table,
)
from worklog.problem import Shape
from worklog.problem.drawn_shapes import drawn
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import Changes, Job, product_job
from worklog.runs import Gpu, Run
from worklog.runs.text import Table as Rows
from worklog.settings import Harness

COUNT = 48  # shapes
# at a shape, the most tiles, and their most time over the fastest one's
TILES = 5
NEAR = 1.3
# shapes at least per guess, and the most time there over the fastest one's
GUESSES = 4
FAR = 2.0
TUNING_S = 340
RESULT_S = 240
# Where best was slower than cuBLAS on an H100.
SLOW = (
    "1x4096x4096 1x8192x8192 1x8192x512 1x4095x4095 1x513x8193 4096x1x4096 33x4096x8192 "
    "769x255x1279 2049x1021x640"
)
SLOW += " 1000x1536x3072 769x1000x4095"
# Like these, and not among the shapes of the result: the draws have few that are thin and large.
MORE = (
    "1x6144x3000 1x3001x6000 1x7000x700 1x7001x600 1x600x7000 1x701x7000 1x1500x1500 1x9000x9000 "
    "5000x1x6000 8000x1x600"
    " 2x6000x4000 2x3001x3000 3x2000x5000 6x5000x5000 9x5000x3001 5000x4x5000 5000x8x3000 "
    "41x6000x5000 80x4097x1000 "
    "700x300x1501 1100x1400x2500"
)
SHORT: Changes = (("most_samples", 50), ("budget_s", 0.4), ("hot_ms", 0.0))
UNCHECKED: Changes = (("gate", False),)  # where the gate has passed a tile at another shape
TIMES = ("alone_us", "shared_us", "block_us")  # of a tile
SUMS = ("sum_us", "sum_gbs")
SHARED = ("launch_us", "read_gbs", "row_bytes", *SUMS)  # by all tiles
LEAST_BLOCK_US = 0.1  # to begin with: no factor moves 0
ROUNDS = 4
# Weights of a tile's earlier times against one point: a measured tile is taken to be off by half as
# much as a point, and a guess by five times as much.
PRIOR = 4.0
PRIOR_OF_GUESS = 0.04
STEPS = [1.05**n for n in (-8, -4, -2, -1, 1, 2, 4, 8)]


@dataclass(frozen=True)
class Trial:
    """A kernel at a shape.

    Its entry, which tells the tile, its parts of K, and the expected microseconds.
    """

    shape: Shape
    entry: str
    parts: int
    us: float
    kernel: Kernel

    @property
    def name(self) -> str:
        """Of its kernel in a run. What split launches follows the shape."""
        return f"{self.entry} {self.shape if self.entry == 'split' else self.parts}"


class Point(NamedTuple):
    """What a kernel took in so many parts of K, by its entry, or "split".

    And its share of cuBLAS.
    """

    shape: Shape
    entry: str
    parts: int
    us: float
    share: float | None


Points = Sequence[Point]
T = TypeVar("T", TimeTable, Tile)


def entry_of(tile: Tile) -> str:
    """Of a tile's kernel for row-major matrices."""
    if tile.kernel == rungs.SLICED.name:
        return rungs.sliced(tile.template).entry
    return BULK.entry if tile.kernel == BULK.name else rungs.any_shape(tile.template).entry


def spoken(tile: Tile, parts: int) -> str:
    """For a reader."""
    of = tile.template
    return f"{tile.kernel} {of['BM']}x{of['BN']}x{of['BK']}" + (f" in {parts}" if parts > 1 else "")


def trials(shape: Shape, card: Gpu) -> list[Trial]:
    """Of each kernel that takes a shape, with the parts that are expected to be best.

    The fastest one first.
    """
    first = dict[str, Trial]()
    listed = candidates(shape, chip=Chip.of_gpu(card), split=shape.k >= LEAST_SPLIT_K, gpu=card)
    for us, make in sorted(listed, key=itemgetter(0)):
        kernel = make()
        entry = "split" if kernel.name == "split" else kernel.entry
        parts = int((*kernel.blocks(shape), 1)[2]) if kernel.file == rungs.ANY_SHAPE.file else 1
        first.setdefault(entry, Trial(shape, entry, parts, us, kernel))
    return [*first.values()]


def tried(shapes: Collection[Shape], card: Gpu) -> list[Trial]:
    """Return what to time.

    At each shape, the tiles near the best one, and split; and each guess at the shapes where it
    comes nearest to the best one. Those expected to be the fastest, and guesses, come first, in
    case that the time is over; split, whose kernels differ at each shape and so are compiled
    there, comes last. Shape by shape, since each needs its inputs.
    """
    rank = dict[Trial, int]()
    of_guesses = dict[str, list[tuple[float, Trial]]]()
    guesses = {entry_of(tile) for tile in table().tiles if not tile.points}
    for shape in shapes:
        listed = trials(shape, card)
        own = [trial for trial in listed if trial.entry != "split"]
        near = [trial for trial in own[:TILES] if trial.us <= NEAR * own[0].us]
        rank |= {trial: int(trial != own[0]) for trial in near}
        rank |= {trial: 2 for trial in listed if trial.entry == "split"}
        for trial in own:
            if trial.entry in guesses and trial.us <= FAR * own[0].us:
                of_guesses.setdefault(trial.entry, []).append((trial.us / own[0].us, trial))
    for found in of_guesses.values():
        for _, trial in sorted(found, key=itemgetter(0))[:GUESSES]:
            rank[trial] = 0
    order = {shape: place for place, shape in enumerate(shapes)}
    return sorted(rank, key=lambda trial: (rank[trial], order[trial.shape]))


def timed_trials(listed: Sequence[Trial], out: Path) -> Run:
    """Of these, as far as there is time for them."""
    kernels = {trial.name: as_users(trial.kernel, trial.name) for trial in listed}
    jobs = list[Job]()
    checked = set[str]()
    for trial in listed:
        jobs.append(
            product_job(
                trial.name, trial.shape, SHORT + (UNCHECKED if trial.entry in checked else ())
            )
        )
        checked.add(trial.entry)
    return timed(jobs, [*kernels.values()], out, TUNING_S)


def points_of(run: Run) -> Points:
    """Return what the trials of a run took."""
    points = list[Point]()
    for m in run.measurements:
        entry, _, parts = m.kernel.rpartition(" ")
        if m.us is None:
            print(f"{m.kernel} at {m.problem}: {m.status}, {m.reason}")
        else:
            points.append(
                Point(
                    Shape.of(m.problem), entry, 1 if entry == "split" else int(parts), m.us, m.ratio
                )
            )
    return points


def as_users(kernel: Kernel, name: str) -> Kernel:
    """Return a kernel under a name of its own."""
    return replace(kernel, name=name, number=None, idea="")


def timed(jobs: list[Job], kernels: list[Kernel], out: Path, seconds: float) -> Run:
    """Return what can be measured in this time."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        return carry_out(order_of(jobs, Harness(), kernels), out=out, stop=stop)
    finally:
        timer.cancel()


def mean(ratios: Iterable[float]) -> float:
    """Geometric; 1 for none."""
    logs = [log(ratio) for ratio in ratios]
    return exp(fmean(logs)) if logs else 1.0


def fitted(of: TimeTable, points: Points) -> TimeTable:
    """Return the table that fits these points.

    In turn, what all tiles share, and each tile's times; then split.
    """
    by_entry = {
        entry_of(tile): [point for point in points if point.entry == entry_of(tile)]
        for tile in of.tiles
    }
    first = of = replace(
        of,
        tiles=tuple(
            replace(tile, block_us=max(LEAST_BLOCK_US, tile.block_us)) for tile in of.tiles
        ),
    )

    def loss(now: TimeTable) -> float:
        errors = sum(squared(now, tile, by_entry[entry_of(tile)]) for tile in now.tiles)
        return errors + PRIOR * moved(now, first, SUMS)

    for _ in range(ROUNDS):
        of = descended(of, SHARED, loss)
        pairs = zip(of.tiles, first.tiles, strict=True)
        of = replace(
            of, tiles=tuple(fit(of, now, then, by_entry[entry_of(then)]) for now, then in pairs)
        )
    counted = (
        replace(tile, points=tile.points + len(by_entry[entry_of(tile)])) for tile in of.tiles
    )
    slower = mean(point.us / of.split_us(point.shape) for point in points if point.entry == "split")
    return replace(
        of,
        tiles=tuple(counted),
        split_launch_us=of.split_launch_us * slower,
        split_tile_us=of.split_tile_us * slower,
        split_gbs=of.split_gbs / slower,
        split_float_gbs=of.split_float_gbs / slower,
    )


def fit(of: TimeTable, now: Tile, first: Tile, points: Points) -> Tile:
    """Return the tile with the times that fit these points and the first times.

    Ridge regression, so that few points move a measured tile little. Without points, it stays.
    """
    prior = PRIOR if first.points else PRIOR_OF_GUESS
    return descended(
        now, TIMES, lambda tile: squared(of, tile, points) + prior * moved(tile, first, TIMES)
    )


def squared(of: TimeTable, tile: Tile, points: Points) -> float:
    """Return the sum of squared errors, of logarithms."""
    return sum(log(point.us / of.us(tile, point.parts, point.shape)) ** 2 for point in points)


def moved(now: TimeTable | Tile, first: TimeTable | Tile, names: Iterable[str]) -> float:
    """Return the same of these numbers."""
    return sum(log(getattr(now, name) / getattr(first, name)) ** 2 for name in names)


def descended(now: T, names: Sequence[str], loss: Callable[[T], float]) -> T:
    """With the numbers of these names for which the loss is least.

    Steps of each, and of all, as long as one helps.
    """
    least = loss(now)
    before = -1.0
    while least != before:
        before = least
        for group in (names, *((name,) for name in names)):
            for step in STEPS:
                new = replace(now, **{name: getattr(now, name) * step for name in group})
                if (of_new := loss(new)) < least:
                    now = new
                    least = of_new
    return now


def report(shapes: Iterable[Shape], card: Gpu, points: Points) -> Rows:
    """Return what the table chooses at each shape.

    With what that took where it was timed, and the fastest that was timed.
    """
    by_entry = {entry_of(tile): tile for tile in table().tiles}
    rows = list[dict[str, str]]()
    ratios = dict[Shape, float]()
    for shape in shapes:
        there = {(p.entry, p.parts): p for p in points if p.shape == shape and p.entry in by_entry}
        chosen = next(trial for trial in trials(shape, card) if trial.entry != "split")
        tile = spoken(by_entry[chosen.entry], chosen.parts)
        row = {"size": str(shape), "chosen": tile, "expected": f"{chosen.us:.2f}"}
        row |= dict.fromkeys(("timed", "regret", "of cuBLAS", "fastest"), "")
        if there:
            fastest = min(there.values(), key=lambda point: point.us)
            row["fastest"] = f"{spoken(by_entry[fastest.entry], fastest.parts)} {fastest.us:.2f}"
        if point := there.get((chosen.entry, chosen.parts)):
            row |= {
                "timed": f"{point.us:.2f}",
                "regret": f"{100 * (point.us / fastest.us - 1):.1f} %",
            }
            ratios[shape] = point.us / fastest.us
            row |= {"of cuBLAS": f"{point.share or 0:.3f}"}
        rows.append(row)
    notes = [
        (
            f"regret at {len(ratios)} of {len(rows)} shapes: mean "
            f"{100 * mean(ratios.values()) - 100:.1f} %"
        )
    ]
    if ratios:
        worst = max(ratios, key=ratios.__getitem__)
        notes[0] += f", largest {100 * ratios[worst] - 100:.1f} % at {worst}"
    return Rows.of("what the fitted table chooses, in µs", rows, 2, notes)


def write_table(run: Run, shapes: Collection[Shape], *paths: Path) -> None:
    """Fits the table to a run of trials, writes it, and says what it chooses."""
    card = run.gpu
    known = {"split", *map(entry_of, table().tiles)}
    points = [point for point in points_of(run) if point.entry in known]
    label = (
        f"{table().label.partition('; fitted')[0]}; fitted to {len(points)} times on an {card.name}"
    )
    new = replace(
        fitted(table().on(card), points), label=f"{label}, driver {card.driver}", gpu=card.name
    )
    new = replace(new, memory_gbs=card.memory_peak_gbs)
    document = asdict(new) | {
        "shapes": [shape.sizes for shape in dict.fromkeys([*new.shapes, *shapes])]
    }
    text = json.dumps(rounded(document), indent=1, ensure_ascii=False) + "\n"
    for path in (tiles.FILE, *paths):
        path.write_text(text, encoding="utf-8")
    table.cache_clear()
    choose.cache_clear()
    print(
        f"fitted to {len(points)} of {len(run.measurements)} trials",
        report(shapes, card, points),
        sep="\n",
    )


def rounded(value: Any) -> Any:
    """With each float to five digits."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tuning",
    default=41,
    show_default=True,
    help="Seed of the shapes at which the table is tuned.",
)
@click.option(
    "--result", default=42, show_default=True, help="Seed of the shapes that are recorded."
)
@click.option("--keep", is_flag=True, help="Record with the table as it is.")
@click.option(
    "--fit",
    "only_fit",
    is_flag=True,
    help="Fit the table to the trials in OUT, without a GPU, and end.",
)
def main(out: Path, tuning: int, result: int, keep: bool, only_fit: bool) -> None:
    at = dict.fromkeys([*drawn(COUNT, tuning), *map(Shape.of, MORE.split())])
    if only_fit:
        write_table(Run.load(out), at)
        return
    card = gpu()
    kinds = {shape: kind for shape, kind in drawn(COUNT, result).items() if keep or shape not in at}
    print(
        f"{len(kinds)} shapes by seed {result}, the table by "
        f"{'the package' if keep else f'seed {tuning}'}"
    )
    if not keep:
        run = timed_trials(tried(at, card), out.with_name(f"{out.stem}_tuning.jsonl"))
        write_table(run, at, out.with_name("best.json"))
    both = {
        shape: choose(shape, chip=Chip.of_gpu(card), split=shape.k >= LEAST_SPLIT_K, gpu=card).name
        for shape in kinds
    }
    slow = {Shape.of(size): "slow before" for size in SLOW.split()}
    jobs = [product_job("best", shape) for shape in (*slow, *kinds)]
    jobs += [product_job(name, shape) for shape, name in both.items() if name == "split"]
    run = timed(jobs, [], out, RESULT_S)
    print(run.shares(slow), run.shares(kinds), sep="\n")
    ratios = {(m.kernel, m.problem): m.ratio for m in run.measurements if m.ratio}
    taken = [
        ratio
        for at, name in both.items()
        if (ratio := ratios.get((name if name == "split" else "best", at)))
    ]
    if taken:
        print(
            f'mode="split" at {len(taken)} shapes: geometric mean {mean(taken):.3f} of cuBLAS, '
            f"lowest {min(taken):.3f}"
        )


if __name__ == "__main__":
    main()
