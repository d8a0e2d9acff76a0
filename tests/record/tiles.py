"""Records `autotuned` and `pipelined` at each other's tile, in one run beside the rungs before and after.

`python -m tests.record.tiles worklog/recordings/chapters/h200_tiles.json` on a machine with a GPU; half a minute.
Notebook 05 reads it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import worklog

TILES = (
    ("autotuned", dict(BN=128, MIN_BLOCKS=2)),  # pipelined's
    ("autotuned", dict(BN=128, TN=8, MIN_BLOCKS=2)),  # double_buffered's
    ("pipelined", dict(BN=256, MIN_BLOCKS=1)),  # autotuned's
)


def at(name: str, tile: dict[str, int]) -> worklog.Kernel:
    """The rung with this tile, called "autotuned BN=128 MIN_BLOCKS=2"."""
    rung, words = worklog.rung(name), " ".join(f"{axis}={value}" for axis, value in tile.items())
    return replace(rung, name=f"{name} {words}", template={**rung.template, **tile}, number=None, idea="")


if __name__ == "__main__":
    rungs = ["double_buffered", "autotuned", "pipelined", "register_banks", "cuBLAS"]
    worklog.measure([*rungs, *(at(*tile) for tile in TILES)], [1024, 2048, 4096], out=Path(sys.argv[1]))
