"""Records `autotuned` and `pipelined` at each other's tile, in one run beside the rungs before and after.

`python -m tests.record.tiles worklog/recordings/chapters/h100_tiles.jsonl` on a machine with a GPU; half a minute.
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

if __name__ == "__main__":
    kernels = list[object](["double_buffered", "autotuned", "pipelined", "register_banks", "cuBLAS"])
    for name, tile in TILES:
        rung, words = worklog.rung(name), " ".join(f"{axis}={value}" for axis, value in tile.items())
        kernels.append(replace(rung, name=f"{name} {words}", template={**rung.template, **tile}, number=None, idea=""))
    worklog.measure(kernels, [1024, 2048, 4096], out=Path(sys.argv[1]))
