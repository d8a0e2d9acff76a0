"""Record a sweep on one card and on several of one host.

The factor, the winner and its regret, the agreement of the cards, and what a worker that dies
half-way loses.

`python -m tests.record.cluster worklog/recordings/cluster` on a host with four GPUs of one kind;
8 minutes. It writes the sweeps' runs and a summary into the folder, which must not exist.
"""

import json
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from worklog.kernel import rung
from worklog.problem import Shape
from worklog.problem.axes import Axis
from worklog.runner.job import product_job
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.files import write_text
from worklog.settings import Harness
from worklog.tune import sweep
from worklog.tune.cluster import Cluster, on_card
from worklog.tune.tuner import FINALISTS, in_final_order, paired, ranking, search

SIZES = {
    "BM": (64, 128, 256),
    "BN": (64, 128, 256),
    "BK": (8, 16),
    "TM": (4, 8, 16),
    "TN": (4, 8, 16),
}
AXES = [Axis(name, values) for name, values in {**SIZES, "MIN_BLOCKS": (1, 2, 3)}.items()]
WHERE = "BM * BN <= 32768", "MIN_BLOCKS * TM * TN <= 384"  # leaves 219 tiles that can be built


def shares(run: Run) -> dict[str, float]:
    """Of cuBLAS by tile, each beside it; the best first."""
    timed = {m.kernel: m.ratio for m in run.measurements if m.ratio and len(m.against) == 1}
    return dict(sorted(timed.items(), key=lambda item: -item[1]))


def seconds(run: Run) -> float:
    """Of the tiles, without start and finals."""
    ran = [m.ran for m in run.measurements if m.ran and len(m.against) == 1]
    return max(at.began + at.seconds for at in ran) - min(at.began for at in ran)


def against_each_other(
    workers: Cluster, chosen: sweep.Variants, names: list[str]
) -> list[Measurement]:
    """Tiles in one loop on each card."""
    kernels = {variant.name: variant.kernel for variant in chosen.kept if variant.name in names}
    job = product_job(names[0], chosen.shape, (), *names[1:])
    how = partial(on_card, sweep="finals", harness=Harness(), command=None)
    return [
        future.result().measurement
        for future in [card.submit(how, job, kernels) for card in workers.each_card]
    ]


def killed(workers: Cluster, few: sweep.Variants, out: Path) -> dict[str, Any]:
    """Run a sweep of which one measuring worker is killed half-way."""
    pids = [*workers.client.run(os.getpid, workers=workers.with_resource("gpu")[:1]).values()]

    def progress(done: int, total: int, doing: str) -> None:
        if pids and done >= total // 2:
            os.kill(pids.pop(), signal.SIGKILL)

    run = search(few, workers, fresh=True, progress=progress, out=out)
    timed = [m.kernel for m in run.measurements if m.us and len(m.against) == 1]
    return {"tiles": len(few.kept), "measured": len({*timed}), "twice": len(timed) - len({*timed})}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("cards", default="0,1,2,3")
def main(folder: Path, cards: str) -> None:
    """Sweep on the first card, then on all of these."""
    folder.mkdir(parents=True)
    many = sweep.variants(
        rung("autotuned"), AXES, conditions=WHERE, shape=Shape.of(2048)
    )  # at 4096 it takes twice as long
    runs = list[Run]()
    walls = list[float]()
    for number, some in enumerate((cards.split(",")[:1], cards.split(","))):
        begun = time.monotonic()
        with Cluster(cards=some) as workers:
            runs.append(search(many, workers, fresh=True, out=folder / f"{len(some)}_cards.jsonl"))
            walls.append(time.monotonic() - begun)
            print(
                ranking(runs[-1]).text(200),
                f"{walls[-1]:.1f} s, tiles {seconds(runs[-1]):.1f} s",
                "",
                sep="\n",
            )
            if number:
                winners = [str(ranking(run).rows[0][0]) for run in runs]
                loops = against_each_other(
                    workers, many, list(dict.fromkeys([*winners, *shares(runs[1])]))[:FINALISTS]
                )
                lost = killed(workers, replace(many, kept=many.kept[:16]), folder / "killed.jsonl")
    best = in_final_order(loops)[0]
    percent: dict[str, Any] = {}
    for m in loops:
        names = [side.name for side in m.samples.sides if side.name != CUBLAS]
        for name, beside in [
            (name, beside) for name in names for beside in (best, CUBLAS) if name != beside
        ]:
            ratio = paired(m, name, beside)
            of_cards = percent.setdefault(f"{name} of {beside}", {})
            of_cards[m.ran.card if m.ran else ""] = [
                100 * ratio.low,
                100 * ratio.value,
                100 * ratio.high,
            ]
    summary: dict[str, Any] = {
        "label": replace(runs[1], origin="recorded").label,
        "tiles": len(many.kept),
        "winners": winners,
        "best": best,
    }
    summary |= {
        "seconds of the tiles": [seconds(of) for of in runs],
        "factor": seconds(runs[0]) / seconds(runs[1]),
    }
    summary |= {
        "seconds with start and finals": walls,
        "factor with start and finals": walls[0] / walls[1],
    }
    summary["A/A"] = {name: card.calibration.aa_ratio for name, card in runs[1].cards.items()}
    for path in folder.glob("*.jsonl"):
        Run.load(path, "recorded").save(path)
    text = json.dumps({**summary, "killed": lost, "percent, with interval": percent}, indent=1)
    write_text(folder / "summary.json", f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
