"""Records what a notebook compares beyond the article's run, in one run on one card.

`python -m tests.record.chapters tiles worklog/recordings/chapters/h100_tiles.jsonl` on a machine with a GPU; half a
minute. `autotuned` and `pipelined` at each other's tile, beside the rungs before and after, for notebook 05.

`python -m tests.record.chapters waits worklog/recordings/chapters/h100_waits.jsonl`; two minutes. The rungs with tiles,
with L2 flushed and left warm, for notebook 06.
"""

import sys
from dataclasses import replace
from pathlib import Path

import worklog
from worklog.kernel import LADDER
from worklog.problem import Shape
from worklog.runner.measure import Job, carry_out
from worklog.settings import Harness

TILES = (
    ("autotuned", dict(BN=128, MIN_BLOCKS=2)),  # pipelined's
    ("autotuned", dict(BN=128, TN=8, MIN_BLOCKS=2)),  # double_buffered's
    ("pipelined", dict(BN=256, MIN_BLOCKS=1)),  # autotuned's
)


def tiles(out: Path) -> None:
    """Two rungs at each other's tile."""
    kernels = list[object](["double_buffered", "autotuned", "pipelined", "register_banks", "cuBLAS"])
    for name, tile in TILES:
        rung, words = worklog.rung(name), " ".join(f"{axis}={value}" for axis, value in tile.items())
        kernels.append(replace(rung, name=f"{name} {words}", template={**rung.template, **tile}, number=None, idea=""))
    worklog.measure(kernels, [1024, 2048, 4096], out=out)


def waits(out: Path) -> None:
    """Each rung that copies tiles, with both states of L2 one after the other."""
    jobs = [
        Job(rung.name, Shape.of(size), changed)
        for size in (256, 512, 768, 1024)
        for rung in LADDER
        for changed in ((), (("l2", "warm"),))
        if "BK" in rung.template
    ]
    carry_out(jobs, Harness(), out=out)


if __name__ == "__main__":
    {"tiles": tiles, "waits": waits}[sys.argv[1]](Path(sys.argv[2]))
