"""Records a sweep on one card and on several of one host: the factor, the winner and its regret, the agreement of the
cards, and what a worker that dies half-way loses.

`python -m tests.record.cluster worklog/recordings/cluster` on a host with two GPUs of one kind; 7 minutes. It writes
the sweeps' runs and a summary into the folder, which must not exist.
"""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click

from worklog.kernel import rung
from worklog.problem import Axis, Shape
from worklog.runner import cluster, sweep
from worklog.runner.job import BASELINE, Job
from worklog.runner.search import FINALISTS, Found, on_card, paired, ranking, search, winner
from worklog.runs import Measurement, write_text
from worklog.settings import Harness

SIZES = {"BM": (64, 128, 256), "BN": (64, 128, 256), "BK": (8, 16), "TM": (4, 8, 16), "TN": (4, 8, 16)}
MANY = [Axis(name, values) for name, values in {**SIZES, "MIN_BLOCKS": (1, 2)}.items()]  # 162 tiles can be built
FEW = [Axis("BM", (64, 128)), Axis("BN", (64, 128)), Axis("TN", (8, 16)), Axis("MIN_BLOCKS", (1, 2))]
RUNG, OF_MANY = rung("autotuned"), {"shape": Shape.of(4096), "where": ("BM * BN <= 32768",)}


def shares(found: Found) -> dict[str, float]:
    """Of cuBLAS by tile, each beside it; the best first."""
    timed = {m.kernel: m.ratio for m in found.run.measurements if m.ratio and len(m.against) == 1}
    return dict(sorted(timed.items(), key=lambda item: -item[1]))


def seconds(found: Found) -> float:
    """From the first tile's begin to the last one's end, without start and finals."""
    ran = [m.ran for m in found.run.measurements if m.ran and len(m.against) == 1]
    return max(at.began + at.seconds for at in ran) - min(at.began for at in ran)


def against_each_other(workers: cluster.Cluster, found: Found, others: list[str]) -> list[Measurement]:
    """The tiles with the highest shares, and others, in one loop on each card."""
    names = list(dict.fromkeys([*others, *shares(found)]))[:FINALISTS]
    kernels = {variant.name: variant.kernel for variant in found.variants.kept if variant.name in names}
    job = Job(names[0], found.variants.shape, against=tuple(names[1:]))
    how = partial(on_card, "finals", Harness(), None)
    return [future.result().m for future in [card.submit(how, job, kernels) for card in workers.each_card]]


def killed(workers: cluster.Cluster, out: Path) -> dict[str, Any]:
    """A sweep of which one measuring worker is killed half-way."""
    pids = [*workers.client.run(os.getpid, workers=workers.with_resource("gpu")[:1]).values()]

    def progress(done: int, total: int, doing: str) -> None:
        if pids and done >= 6:
            os.kill(pids.pop(), signal.SIGKILL)

    found = search(RUNG, FEW, workers, fresh=True, progress=progress, out=out)
    timed = [m.kernel for m in found.run.measurements if m.us and len(m.against) == 1]
    return {"tiles": len(found.variants.kept), "measured": len({*timed}), "twice": len(timed) - len({*timed})}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--cards", default="0,1")
def main(folder: Path, cards: str) -> None:
    """Sweep on the first card, then on all of these."""
    folder.mkdir(parents=True)
    sweep.variants(RUNG, MANY, **OF_MANY)  # compiled before, so that no sweep waits for that
    found, walls = list[Found](), list[float]()
    for number, some in enumerate((cards.split(",")[:1], cards.split(","))):
        begun = time.monotonic()
        with cluster.Cluster(cards=some) as workers:
            found.append(search(RUNG, MANY, workers, **OF_MANY, fresh=True, out=folder / f"{len(some)}_cards.jsonl"))
            walls.append(time.monotonic() - begun)
            print(ranking(found[-1]).text(200), f"{walls[-1]:.1f} s, tiles {seconds(found[-1]):.1f} s", "", sep="\n")
            if number:
                winners = [winner(of.finals) if of.finals else next(iter(shares(of))) for of in found]
                loops = against_each_other(workers, found[1], winners)
                lost = killed(workers, folder / "killed.jsonl")
    best = winner(loops)
    percent: dict[str, Any] = {}
    for m in loops:
        for name, beside in product((side.name for side in m.samples.sides), (best, BASELINE)):
            ratio = paired(m, name, beside)
            of_cards = percent.setdefault(f"{name} of {beside}", {})
            of_cards[m.ran.card if m.ran else ""] = [100 * ratio.low, 100 * ratio.value, 100 * ratio.high]
    summary = {
        "label": found[1].run.label,
        "tiles": len(shares(found[1])),
        "winners": winners,
        "best in one loop": best,
    }
    summary |= {"seconds of the tiles": [seconds(of) for of in found], "factor": seconds(found[0]) / seconds(found[1])}
    summary |= {"seconds with start and finals": walls, "factor with start and finals": walls[0] / walls[1]}
    summary["A/A"] = {name: card.calibration.aa_ratio for name, card in found[1].run.cards.items()}
    text = json.dumps({**summary, "killed": lost, "percent, with interval": percent}, indent=1)
    write_text(folder / "summary.json", f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
