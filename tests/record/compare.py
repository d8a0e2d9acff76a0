"""Record how often the rule of `worklog compare` is wrong, and finds a slowdown.

The rule is in worklog/runs/changes.py.

`python -m tests.record.compare worklog/recordings/compare/h100.json` on a machine with GPUs of one
kind; 6 minutes on
four: 40 processes, shared out among the cards, measure `warptiled`, `shared`, cuBLAS and a slower
`warptiled` at four sizes as `worklog run` does. Each block of the slower one waits for some cycles
after its work, as many as make the kernel 2 % slower in a paired loop on its card. `--rates` prints
the rates of a file.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from worklog.kernel import Kernel, rung
from worklog.problem import Shape
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import Job, product_job
from worklog.runs import CUBLAS, Run
from worklog.runs.changes import (
    FASTER,
    SLOWER,
    SOURCE,
    UNKNOWN,
    ProcessMedian,
    change,
    process_median,
)
from worklog.runs.files import write_text
from worklog.runs.statistics import NORMAL
from worklog.settings import Harness

KERNELS = ("warptiled", "shared", CUBLAS)
SIZES = (256, 1024, 2048, 4096)
PROCESSES = 40
LIMIT_S = 380.0
SLOWDOWN = 0.02
FIRST = {256: 1400, 1024: 5600, 2048: 13600, 4096: 27000}  # cycles: about 2 % of a block's
HARNESS = Harness().but(hot_ms=0.0)
# pairs of processes for each rate
DRAWS = 2000
SEED = 40
MORE = {
    SLOWER: 1,
    FASTER: 1,
    UNKNOWN: 2,
}  # further processes of the new side that the recipe measures (regression.yml)
Process = dict[str, Any]  # "card", "wall_s", and readings by "kernel at size"


def slower(size: int, cycles: int) -> Kernel:
    """`warptiled` whose blocks wait for this many cycles at the end."""
    source = rung("warptiled")
    wait = "  const long long from = clock64();\n  while (clock64() - from < %d) {}\n}\n"
    text = source.source.rstrip()
    assert text.endswith("}")
    return replace(source.with_text(text[:-1] + wait % cycles), name=f"slower_{size}", number=None)


def measured(jobs: Sequence[Job], kernels: Sequence[Kernel]) -> tuple[Run, float]:
    """Return a run in one new process, and its seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = carry_out(order_of(jobs, HARNESS, kernels), out=Path(folder) / "run.jsonl")
    return run, time.monotonic() - began


def calibrated() -> tuple[dict[int, int], dict[int, float]]:
    """Return cycles for each size at which the kernel is SLOWDOWN slower.

    Found in two steps, with the slowdown that they give.
    """
    cycles = dict(FIRST)
    share = dict[int, float]()
    for _ in range(3):
        jobs = [product_job("warptiled", Shape.of(size), (), f"slower_{size}") for size in SIZES]
        run, _ = measured(jobs, [slower(size, cycles[size]) for size in SIZES])
        for size, m in zip(SIZES, run.measurements, strict=True):
            ratio = m.against[f"slower_{size}"]
            assert ratio is not None, m.reason
            share[size] = ratio.value - 1
        used = dict(cycles)
        cycles = {
            size: round(cycles[size] * SLOWDOWN / max(share[size], SLOWDOWN / 4)) for size in SIZES
        }
    if missed := [
        f"{size}: {x:.4f}" for size, x in share.items() if abs(x - SLOWDOWN) > SLOWDOWN / 4
    ]:
        raise SystemExit(
            f"the slower kernel is not {SLOWDOWN:.0%} slower, but at {', '.join(missed)}"
        )
    return used, share


def record(count: int) -> dict[str, Any]:
    """Return what one card gives.

    At most as many processes, and how much slower the slower kernel is in a paired loop.
    """
    began = time.monotonic()
    processes = list[Process]()
    runs = list[Run]()
    cycles, share = calibrated()
    kernels = [slower(size, cycles[size]) for size in SIZES]
    jobs = [
        product_job(name, Shape.of(size)) for size in SIZES for name in (*KERNELS, f"slower_{size}")
    ]
    while len(processes) < count and time.monotonic() - began < LIMIT_S:
        run, wall_s = measured(jobs, kernels)
        runs.append(run)
        readings = {
            m.title.replace(f"slower_{m.problem.n}", "slower"): process_median(m, run.harness)
            for m in run.select()
        }
        processes.append({"card": run.gpu.uuid, "wall_s": round(wall_s, 2), "readings": readings})
    run = runs[0]
    about = {
        "created": run.created,
        "gpu": run.gpu,
        "tool": run.tool,
        "software": run.software,
        "harness": run.harness,
    }
    slowed = {
        str(size): {"cycles": cycles[size], "paired": round(share[size], 5)} for size in SIZES
    }
    label = replace(run, origin="recorded").label
    made = {
        "kind": "compare",
        "schema": 1,
        "label": label,
        **about,
        "slowed": {run.gpu.uuid: slowed},
    }
    return dict(msgspec.to_builtins(made | {"processes": processes}, str_keys=True))


def on_cards(cards: Sequence[str]) -> dict[str, Any]:
    """Return the whole recording: of all these cards at once.

    Raises SystemExit if they are of several models.
    """
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, f"{card}.json") for card in cards]
        started = []
        for card, part in zip(cards, parts, strict=True):
            command = (
                sys.executable,
                "-m",
                "tests.record.compare",
                str(part),
                "--of",
                str(len(cards)),
            )
            started.append(
                subprocess.Popen(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": card})
            )
        statuses = [child.wait() for child in started]
        if any(statuses):
            raise SystemExit("a card gave no recording: see above")
        made, *others = [msgspec.json.decode(part.read_bytes()) for part in parts]
    if len(names := {part["gpu"]["name"] for part in (made, *others)}) > 1:
        raise SystemExit(f"these cards are {' and '.join(sorted(names))}: record all on one model")
    for part in others:
        made["slowed"] |= part["slowed"]
        made["processes"] += part["processes"]
    return dict(made | {"rates": rates([made])})


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    share = hits / of
    weight = NORMAL**2 / of
    half = NORMAL * math.sqrt(share * (1 - share) / of + weight / (4 * of))
    return (share + weight / 2 - half) / (1 + weight), (share + weight / 2 + half) / (1 + weight)


def verdicts(
    old: Sequence[ProcessMedian], new: Sequence[ProcessMedian], same: bool
) -> Iterator[tuple[str, str]]:
    """Return the rule's verdicts on pairs of processes drawn at random, none against itself.

    At once, and with as many further processes after a verdict as MORE says.

    same: both are the same processes' readings
    """

    @cache
    def said(first: int, *others: int) -> str:
        return change([old[first]], [new[place] for place in others]).verdict

    rng = np.random.default_rng(SEED)
    for _ in range(DRAWS):
        first, *others = rng.permutation(len(old)).tolist()
        left = others if same else rng.permutation(len(new)).tolist()
        at_once = final = said(first, left[0])
        taken = 1
        while taken <= MORE.get(final, 0) and taken < len(left):
            taken += 1
            final = said(first, *left[:taken])
        yield at_once, final


def rates(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the rates of false and found verdicts over all kernels and sizes.

    That is the share of pairs on one card with a "false" verdict, of a kernel against itself, and
    of slower kernels that are "found" against warptiled; each with the share without a verdict
    ("unknown"), by size too, a 95 % interval, low to high, for as many pairs as share no process,
    and the share of the first verdict, before further processes ("at once").

    cards: by kernel and size, the largest difference between two cards' mean times
    """
    processes = [process for document in documents for process in document["processes"]]
    made = dict[str, Any]()
    cards = dict.fromkeys(process["card"] for process in processes)
    apart = dict[str, float]()

    def readings(name: str, card: str) -> list[ProcessMedian]:
        recorded = (
            process["readings"].get(name) for process in processes if process["card"] == card
        )
        return [
            msgspec.convert({**reading, "card": card}, ProcessMedian)
            for reading in recorded
            if reading
        ]

    for what, names in (
        ("false", [(name, name) for name in KERNELS]),
        ("found", [("warptiled", "slower")]),
    ):
        shares = dict[str, list[float]]()
        pairs = 0
        for (old, new), size in product(names, SIZES):
            said = list[tuple[str, str]]()
            means = list[float]()
            for card in cards:
                sides = readings(f"{old} at {size}", card), readings(f"{new} at {size}", card)
                if sides[1]:  # an older recording has cards with two kernels
                    said += verdicts(*sides, same=old == new)
                    pairs += len(sides[1]) // (2 if old == new else 1)
                    means.append(float(np.mean([reading.us for reading in sides[1]])))
            counted = (SLOWER, FASTER) if old == new else (SLOWER,)
            first, last = zip(*said, strict=True)
            final, at_once = (sum(map(of.count, counted)) / len(of) for of in (last, first))
            shares[f"{new} at {size}"] = [final, last.count(UNKNOWN) / len(last), at_once]
            if len(means) > 1:
                apart[f"{new} at {size}"] = max(means) / min(means) - 1
        share, unknown, at_once = np.mean([*shares.values()], axis=0)
        low, high = wilson(round(share * pairs), pairs)
        made[what] = {
            "share": float(share),
            "low": low,
            "high": high,
            "unknown": float(unknown),
            "pairs": pairs,
        }
        made[what] |= {"at once": float(at_once), "by size": shares}
    most = max(len(process["readings"]) for process in processes)
    seconds = [process["wall_s"] for process in processes if len(process["readings"]) == most]
    about = {"processes": len(processes), "readings": most, "seconds": float(np.median(seconds))}
    return made | about | {"source": SOURCE, "cards": apart}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("cards", default="0,1,2,3")
@click.option("--of", type=int, help="Record the part of one card, the visible one, of so many.")
@click.option("--rates", "only_rates", is_flag=True, help="Print the rates of a recorded file.")
def main(file: Path, cards: str, of: int | None, only_rates: bool) -> None:
    """Record into FILE on CARDS."""
    if only_rates:
        print(rates([msgspec.json.decode(file.read_bytes())]))
    elif of:
        write_text(file, record(-(-PROCESSES // of)))
    else:
        made = on_cards(cards.split(","))
        write_text(file, made)
        print(made["rates"])


if __name__ == "__main__":
    main()
