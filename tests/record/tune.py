"""Tunes the table of `best` on this GPU, and records what `best` and `split` reach at other shapes.

`python -m tests.record.tune worklog/recordings/chapters/h100_drawn.jsonl` on a machine with a GPU; at most 9 minutes.
It draws 48 shapes by each of two seeds. At the first ones, it times the kernels that the table expects to be the
fastest, scales the table (worklog/kernel/best.json) by what came, and writes it, there and beside the run. At the
others, it records `best`, and `split` where mode="split" takes it, beside cuBLAS, and `best` where it was slow.
`--keep` leaves the table as it is.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, astuple, replace
from math import exp, isqrt, log
from pathlib import Path
from random import Random
from statistics import fmean

import click

from worklog.gpu.device import gpu
from worklog.kernel import Kernel
from worklog.kernel import best as tiles
from worklog.kernel.best import BULK, LEAST_SPLIT_K, Table, candidates, choose, table
from worklog.kernel.rungs import any_shape
from worklog.problem import Shape
from worklog.runner.job import Changes, Job
from worklog.runner.measure import carry_out
from worklog.runs import Gpu, Run
from worklog.settings import Harness

KINDS = ("powers of two", "off by one", "primes")
COUNT, MOST, TILES = 48, 8192, 3  # shapes, the largest size, and tiles tried at a shape
TUNING_S, ALL_S = 260, 510
# Where best was slower than cuBLAS on an H100.
SLOW = "1x4096x4096 4096x1x4096 33x4096x8192 769x255x1279 2049x1021x640 1000x1536x3072 769x1000x4095"
SHORT: Changes = (("most_samples", 40), ("budget_s", 1.0), ("hot_ms", 0.0))
Points = Mapping[str, list[float]]  # by a kernel's entry without its parts: times over those that the table expects


def drawn(seed: int, count: int = COUNT) -> dict[Shape, str]:
    """Different shapes by a seed, log-uniform from 1 to MOST, and the kind of each; the kinds take turns."""
    rng, kinds = Random(seed), dict[Shape, str]()

    def size(kind: str) -> int:
        number = exp(rng.uniform(0, log(MOST)))
        if kind == "primes":
            return next(n for n in range(max(2, int(number)), 2 * MOST) if all(n % d for d in range(2, isqrt(n) + 1)))
        power = 2 ** round(log(number, 2))
        return power if kind == "powers of two" else max(1, power + rng.choice((-1, 1)))

    while len(kinds) < count:
        kind = KINDS[len(kinds) % len(KINDS)]
        kinds.setdefault(Shape(size(kind), size(kind), size(kind)), kind)
    return kinds


def tried(shape: Shape, card: Gpu) -> list[tuple[str, float, Kernel]]:
    """What to time at a shape: for each of the tiles that are expected to be the fastest, the best number of parts; and
    what else there is. With its entry, which tells the tile, and the expected microseconds.
    """
    listed = candidates(shape, arch=card.arch, split=shape.k >= LEAST_SPLIT_K, gpu=card)
    made = [(us, make()) for us, make in sorted(listed, key=lambda candidate: candidate[0])]
    first = dict[str, tuple[str, float, Kernel]]()
    for us, kernel in made:
        of_split = kernel.name == "split"
        entry = "split" if of_split else kernel.function if kernel.file == "vector.cu" else kernel.entry
        first.setdefault(entry, (entry, us, kernel))
    others = ("split", "across", "along", BULK.entry)
    chosen = [kept for kept in first.values() if kept[0] not in others][:TILES]
    return chosen + [first[entry] for entry in others if entry in first]


def points(kinds: Mapping[Shape, str], card: Gpu, out: Path) -> Points:
    """Times over those that the table expects, without the launch."""
    jobs, kernels, expected = list[Job](), dict[str, Kernel](), dict[tuple[str, Shape], tuple[str, float]]()
    for shape in kinds:
        for entry, us, kernel in tried(shape, card):
            name = name_of(kernel)
            kernels[name] = as_users(kernel, name)
            jobs.append(Job(name, shape, SHORT))
            expected[name, shape] = entry, us
    by_entry, launch = defaultdict[str, list[float]](list), table().launch_us
    for m in timed(jobs, [*kernels.values()], out, TUNING_S).measurements:
        entry, us = expected[m.kernel, m.problem]
        if m.us is not None and us > 1.2 * launch and m.us > launch:
            by_entry[entry].append((m.us - launch) / (us - launch))
    return by_entry


def name_of(kernel: Kernel) -> str:
    """Its entry, and its parts of K."""
    return f"{kernel.entry} {kernel.grid.rpartition(', ')[2]}"


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


def scaled(of: Table, found: Points) -> Table:
    """The table with each tile's times multiplied by the geometric mean of its points; what has none stays."""
    by = {entry: exp(fmean(map(log, ratios))) for entry, ratios in found.items()}
    new = []
    for tile in of.tiles:
        factor = by.get(BULK.entry if tile.kernel != "best" else any_shape(tile.template).entry, 1.0)
        us = {name: round(factor * getattr(tile, name), 5) for name in ("alone_us", "shared_us", "block_us")}
        new.append(replace(tile, alone_us=us["alone_us"], shared_us=us["shared_us"], block_us=us["block_us"]))
    slower, vectors = by.get("split", 1.0), [*found.get("across", []), *found.get("along", [])]
    return replace(
        of,
        tiles=tuple(new),
        vector_gbs=of.vector_gbs / (exp(fmean(map(log, vectors))) if vectors else 1.0),
        split_launch_us=of.split_launch_us * slower,
        split_tile_us=of.split_tile_us * slower,
        split_gbs=of.split_gbs / slower,
        split_float_gbs=of.split_float_gbs / slower,
    )


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--tuning", default=41, show_default=True, help="Seed of the shapes at which the table is tuned.")
@click.option("--result", default=42, show_default=True, help="Seed of the shapes that are recorded.")
@click.option("--keep", is_flag=True, help="Record with the table as it is.")
def main(out: Path, tuning: int, result: int, keep: bool) -> None:
    card = gpu()
    kinds = {shape: kind for shape, kind in drawn(result).items() if keep or shape not in drawn(tuning)}
    print(f"{len(kinds)} shapes by seed {result}, the table by {'the package' if keep else f'seed {tuning}'}")
    if not keep:
        found = points(drawn(tuning), card, out.with_name(f"{out.stem}_tuning.jsonl"))
        new = scaled(table().on(card), found)
        label = f"{table().label.partition('; scaled')[0]}; scaled by {sum(map(len, found.values()))} times on an"
        label += f" {card.name}, driver {card.driver}"
        new = replace(new, label=label, gpu=card.name, memory_gbs=card.memory_peak_gbs)
        tuned = dict.fromkeys([*new.shapes, *drawn(tuning)])
        document = asdict(new) | {"shapes": [astuple(shape) for shape in tuned]}
        for path in (tiles.FILE, out.with_name("best.json")):
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        table.cache_clear()
        choose.cache_clear()
    both = {shape: choose(shape, arch=card.arch, split=shape.k >= LEAST_SPLIT_K, gpu=card).name for shape in kinds}
    slow = {Shape.of(size): "slow before" for size in SLOW.split()}
    jobs = [Job("best", shape) for shape in (*slow, *kinds)]
    jobs += [Job(name, shape) for shape, name in both.items() if name == "split"]
    run = timed(jobs, [], out, ALL_S - TUNING_S)
    print(run.shares(slow), run.shares(kinds), sep="\n")
    ratios = {(m.kernel, m.problem): m.ratio for m in run.measurements if m.ratio}
    taken = [ratio for at, name in both.items() if (ratio := ratios.get((name if name == "split" else "best", at)))]
    if taken:
        mean = exp(fmean(map(log, taken)))
        print(f'mode="split" at {len(taken)} shapes: geometric mean {mean:.3f} of cuBLAS, lowest {min(taken):.3f}')


if __name__ == "__main__":
    main()
