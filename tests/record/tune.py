"""Tunes the table of `best` on this GPU, and records what `best` and `split` reach at other shapes.

`python -m tests.record.tune worklog/recordings/chapters/h100_drawn.jsonl` on a machine with a GPU; at most 9 minutes.
It draws 48 shapes by each of two seeds. At the first ones, it times the kernels that the table expects to be the
fastest, fits the table (worklog/kernel/best.json) to what came, writes it, there and beside the run, and prints what
the fitted table chooses, and the regret: the share of its time that is above the fastest timed kernel's. At the
others, it records `best`, and `split` where mode="split" takes it, beside cuBLAS, and `best` where it was slow.
`--keep` leaves the table as it is.
"""

import json
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from math import exp, log
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import click
import numpy as np

from worklog.gpu.device import gpu
from worklog.kernel import Kernel, rungs
from worklog.kernel import best as tiles
from worklog.kernel.best import BULK, LEAST_SPLIT_K, Table, Tile, candidates, choose, table
from worklog.problem import Shape, drawn
from worklog.runner.measure import Changes, Job, carry_out
from worklog.runs import Gpu, Run
from worklog.runs.documents import Table as Rows
from worklog.settings import Harness

COUNT = 48  # shapes
TILES, NEAR = 5, 1.3  # at a shape, the most tiles, and their most time over the fastest one's
GUESSES, FAR = 4, 2.0  # shapes at least per guess, and the most time there over the fastest one's
TUNING_S, ALL_S = 340, 520
# Where best was slower than cuBLAS on an H100.
SLOW = "1x4096x4096 1x8192x8192 1x8192x512 1x4095x4095 1x513x8193 4096x1x4096 33x4096x8192 769x255x1279 2049x1021x640"
SLOW += " 1000x1536x3072 769x1000x4095"
# Like these, and not among the shapes of the result: the draws have few that are thin and large.
MORE = (
    "1x6144x3000 1x3001x6000 1x7000x700 1x7001x600 1x600x7000 1x701x7000 1x1500x1500 1x9000x9000 5000x1x6000 8000x1x600"
    " 2x6000x4000 2x3001x3000 3x2000x5000 6x5000x5000 9x5000x3001 5000x4x5000 5000x8x3000 41x6000x5000 80x4097x1000 "
    "700x300x1501 1100x1400x2500"
)
SHORT: Changes = (("most_samples", 50), ("budget_s", 0.4), ("hot_ms", 0.0))
UNCHECKED: Changes = (("gate", False),)  # where the gate has passed a tile at another shape
TIMES = ("alone_us", "shared_us", "block_us")
# Weights of a tile's earlier times against one point: a measured tile is taken to be off by half as much as a point,
# and a guess by five times as much.
PRIOR, PRIOR_OF_GUESS = 4.0, 0.04
STEPS = [1.05**n for n in (-8, -4, -2, -1, 1, 2, 4, 8)]


@dataclass(frozen=True)
class Trial:
    """A kernel at a shape: its entry, which tells the tile, its parts of K, and the expected microseconds."""

    shape: Shape
    entry: str
    parts: int
    us: float
    kernel: Kernel

    @property
    def name(self) -> str:
        """Of its kernel in a run. What split launches follows the shape."""
        return f"{self.entry} {self.shape if self.entry == 'split' else self.parts}"

    @property
    def tile(self) -> str:
        """For a reader."""
        of = self.kernel.template
        return f"{self.kernel.name} {of['BM']}x{of['BN']}x{of['BK']}" + (f" in {self.parts}" if self.parts > 1 else "")


class Point(NamedTuple):
    """What a trial took, and its share of cuBLAS."""

    trial: Trial
    us: float
    share: float | None


Points = Sequence[Point]


def entry_of(tile: Tile) -> str:
    """Of a tile's kernel for row-major matrices."""
    if tile.kernel == rungs.SLICED.name:
        return rungs.sliced(tile.template).entry
    return BULK.entry if tile.kernel == BULK.name else rungs.any_shape(tile.template).entry


def trials(shape: Shape, card: Gpu) -> list[Trial]:
    """Of each kernel that takes a shape, with the parts that are expected to be best; the fastest one first."""
    first = dict[str, Trial]()
    listed = candidates(shape, arch=card.arch, split=shape.k >= LEAST_SPLIT_K, gpu=card)
    for us, make in sorted(listed, key=itemgetter(0)):
        kernel = make()
        entry = "split" if kernel.name == "split" else kernel.entry
        parts = int((*kernel.blocks(shape), 1)[2]) if kernel.file == rungs.ANY_SHAPE.file else 1
        first.setdefault(entry, Trial(shape, entry, parts, us, kernel))
    return [*first.values()]


def tried(shapes: Collection[Shape], card: Gpu) -> list[Trial]:
    """What to time: at each shape, the tiles near the best one, and split; and each guess at the shapes where it comes
    nearest to the best one. Those expected to be the fastest, and guesses, come first, in case that the time is over;
    split, whose kernels differ at each shape and so are compiled there, comes last. Shape by shape, since each needs
    its inputs.
    """
    rank, of_guesses = dict[Trial, int](), dict[str, list[tuple[float, Trial]]]()
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


def points_of(listed: Sequence[Trial], out: Path) -> Points:
    """What these took, as far as there is time for them."""
    kernels = {trial.name: as_users(trial.kernel, trial.name) for trial in listed}
    jobs, checked = list[Job](), set[str]()
    for trial in listed:
        jobs.append(Job(trial.name, trial.shape, SHORT + (UNCHECKED if trial.entry in checked else ())))
        checked.add(trial.entry)
    by = {(trial.name, trial.shape): trial for trial in listed}
    done = timed(jobs, [*kernels.values()], out, TUNING_S).measurements
    for m in done:
        if m.us is None:
            print(f"{m.kernel} at {m.problem}: {m.status}, {m.reason}")
    return [Point(by[m.kernel, m.problem], m.us, m.ratio) for m in done if m.us is not None]


def as_users(kernel: Kernel, name: str) -> Kernel:
    """A kernel under a name of its own."""
    return replace(kernel, name=name, number=None, idea="", choose=None)


def timed(jobs: list[Job], kernels: list[Kernel], out: Path, seconds: float) -> Run:
    """What can be measured in this time."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        return carry_out(jobs, Harness(), user_kernels=kernels, out=out, stop=stop)
    finally:
        timer.cancel()


def mean(ratios: Iterable[float]) -> float:
    """Geometric; 1 for none."""
    logs = [log(ratio) for ratio in ratios]
    return exp(fmean(logs)) if logs else 1.0


def fitted(of: Table, points: Points) -> Table:
    """The table that fits these points: first the launch, by the shapes that take hardly more; then the rate of what
    memory bounds; then each tile's times, and split.
    """
    of = replace(
        of, launch_us=of.launch_us * mean(us / trial.us for trial, us, _ in points if trial.us < 1.25 * of.launch_us)
    )
    of = replace(of, **reading(of, points))
    slower = mean(us / trial.us for trial, us, _ in points if trial.entry == "split")
    return replace(
        of,
        tiles=tuple(
            fit(of, tile, [point for point in points if point.trial.entry == entry_of(tile)]) for tile in of.tiles
        ),
        split_launch_us=of.split_launch_us * slower,
        split_tile_us=of.split_tile_us * slower,
        split_gbs=of.split_gbs / slower,
        split_float_gbs=of.split_float_gbs / slower,
    )


def reading(of: Table, points: Points) -> dict[str, float]:
    """The rate of memory and the cost of a row of B in a tile that fit the points which memory bounds, by least squares
    of relative errors: what memory was expected to take there is off by as much as the whole time is.
    """
    per_us = list[tuple[float, int]]()
    for trial, us, _ in points:
        columns = trial.kernel.template["BN"]
        read_us = of.read_us(columns, trial.shape)
        if trial.entry != "split" and of.launch_us < read_us > 0.9 * (trial.us - of.launch_us):
            read_us *= (us - of.launch_us) / (trial.us - of.launch_us)
            per_us.append((trial.shape.compulsory_bytes / read_us, tiles.tile_rows(columns, trial.shape) / read_us))
    if len(per_us) < 2:
        return {}
    (byte_us, row_us), *_ = np.linalg.lstsq(np.array(per_us), np.ones(len(per_us)))
    return {"read_gbs": 1e-3 / byte_us, "row_bytes": max(0.0, row_us / byte_us)}


def fit(of: Table, tile: Tile, points: Points) -> Tile:
    """The tile with the times that have the least sum of squared errors, of logarithms: at the points, and against the
    earlier times (ridge regression), so that few points move a measured tile little. Without points, they stay.
    """
    factors = dict.fromkeys(TIMES, 1.0)

    def scaled() -> Tile:
        times = {name: round(factor * getattr(tile, name), 5) for name, factor in factors.items()}
        return replace(tile, points=tile.points + len(points), **times)

    def loss() -> float:
        now = scaled()
        errors = [log(us / of.us(now, trial.parts, trial.shape)) for trial, us, _ in points]
        moved = (PRIOR if tile.points else PRIOR_OF_GUESS) * sum(log(factor) ** 2 for factor in factors.values())
        return sum(error**2 for error in errors) + moved

    least, before = loss(), -1.0
    while points and least != before:
        before = least
        for names in (TIMES, *((name,) for name in TIMES)):
            for step in STEPS:
                kept = dict(factors)
                factors.update({name: factors[name] * step for name in names})
                if (now := loss()) < least:
                    least = now
                else:
                    factors.update(kept)
    return scaled()


def report(shapes: Iterable[Shape], card: Gpu, points: Points) -> Rows:
    """What the table chooses at each shape, what that took where it was timed, and the fastest that was timed."""
    rows, ratios = list[dict[str, str]](), dict[Shape, float]()
    for shape in shapes:
        there = {(p.trial.entry, p.trial.parts): p for p in points if p.trial.shape == shape}
        there = {key: point for key, point in there.items() if point.trial.entry != "split"}
        chosen = next(trial for trial in trials(shape, card) if trial.entry != "split")
        row = {"size": str(shape), "chosen": chosen.tile, "expected": f"{chosen.us:.2f}"}
        row |= dict.fromkeys(("timed", "regret", "of cuBLAS", "fastest", "before"), "")
        if there:
            fastest = min(there.values(), key=lambda point: point.us)
            row["fastest"] = f"{fastest.trial.tile} {fastest.us:.2f}"
        if point := there.get((chosen.entry, chosen.parts)):
            row |= {"timed": f"{point.us:.2f}", "regret": f"{100 * (point.us / fastest.us - 1):.1f} %"}
            ratios[shape] = point.us / fastest.us
            row |= {"of cuBLAS": f"{point.share or 0:.3f}", "before": f"{point.trial.us:.2f}"}
        rows.append(row)
    notes = [f"regret at {len(ratios)} of {len(rows)} shapes: mean {100 * mean(ratios.values()) - 100:.1f} %"]
    if ratios:
        worst = max(ratios, key=ratios.__getitem__)
        notes[0] += f", largest {100 * ratios[worst] - 100:.1f} % at {worst}"
    return Rows.of("what the fitted table chooses, in µs; before: as it was expected", rows, 2, notes)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--tuning", default=41, show_default=True, help="Seed of the shapes at which the table is tuned.")
@click.option("--result", default=42, show_default=True, help="Seed of the shapes that are recorded.")
@click.option("--keep", is_flag=True, help="Record with the table as it is.")
def main(out: Path, tuning: int, result: int, keep: bool) -> None:
    card, at = gpu(), dict.fromkeys([*drawn(COUNT, tuning), *map(Shape.of, MORE.split())])
    kinds = {shape: kind for shape, kind in drawn(COUNT, result).items() if keep or shape not in at}
    print(f"{len(kinds)} shapes by seed {result}, the table by {'the package' if keep else f'seed {tuning}'}")
    if not keep:
        listed = tried(at, card)
        points = points_of(listed, out.with_name(f"{out.stem}_tuning.jsonl"))
        new = fitted(table().on(card), points)
        label = f"{table().label.partition('; fitted')[0]}; fitted to {len(points)} times on an {card.name}"
        new = replace(new, label=f"{label}, driver {card.driver}", gpu=card.name, memory_gbs=card.memory_peak_gbs)
        document = asdict(new) | {"shapes": [astuple(shape) for shape in dict.fromkeys([*new.shapes, *at])]}
        for path in (tiles.FILE, out.with_name("best.json")):
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        table.cache_clear()
        choose.cache_clear()
        print(f"{len(points)} of {len(listed)} trials were timed", report(at, card, points), sep="\n")
    both = {shape: choose(shape, arch=card.arch, split=shape.k >= LEAST_SPLIT_K, gpu=card).name for shape in kinds}
    slow = {Shape.of(size): "slow before" for size in SLOW.split()}
    jobs = [Job("best", shape) for shape in (*slow, *kinds)]
    jobs += [Job(name, shape) for shape, name in both.items() if name == "split"]
    run = timed(jobs, [], out, ALL_S - TUNING_S)
    print(run.shares(slow), run.shares(kinds), sep="\n")
    ratios = {(m.kernel, m.problem): m.ratio for m in run.measurements if m.ratio}
    taken = [ratio for at, name in both.items() if (ratio := ratios.get((name if name == "split" else "best", at)))]
    if taken:
        print(
            f'mode="split" at {len(taken)} shapes: geometric mean {mean(taken):.3f} of cuBLAS, lowest {min(taken):.3f}'
        )


if __name__ == "__main__":
    main()
