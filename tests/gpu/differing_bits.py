"""How many bits of tensor-core instructions differ between a GPU and the emulator.

`python -m tests.gpu.differing_bits e4m3 e5m2` compares those whose name has one of these words, in
half a minute.

If OUT is set, that folder gets the operands and both results as mma.npz and wgmma.npz, by which a
model of the arithmetic can be fitted. Exits with 1 if a bit differs.
"""

import os
import sys
import traceback
from collections import defaultdict
from pathlib import Path

import numpy as np

from tests.emulator.evaluate import evaluate
from tests.emulator.tensor import TENSOR, Mma, Wgmma, results_of

ROUNDS = 3


def compare(case: Mma | Wgmma, kind: str, stored: dict[str, np.ndarray]) -> int:
    """Print and return the number of bits that differ, and store the operands and results."""
    from tests.gpu.test_gpu_instructions import on_gpu

    bits = registers = size = 0
    for number, launch in enumerate(case.launches(kind, ROUNDS)):
        there, here = (
            results_of(launch, device)[0].astype(np.uint32) for device in (on_gpu, evaluate)
        )
        differing = there ^ here
        bits += int(np.unpackbits(differing.view(np.uint8)).sum())
        registers += int(np.count_nonzero(differing))
        size += there.size
        arrays = {"operands": launch.registers, "gpu": there, "emulated": here}
        stored.update({f"{case} {kind} {number} {name}": arrays[name] for name in arrays})
    print(f"{case} {kind}: {bits} bits differ, in {registers} of {size} registers", flush=True)
    return bits


def main(parts: list[str]) -> int:
    differ = 0
    stored = defaultdict[str, dict[str, np.ndarray]](dict)
    for case in TENSOR:
        if not any(part in str(case) for part in parts):
            continue
        for kind in case.kinds:
            try:
                differ += compare(case, kind, stored[type(case).__name__.lower()])
            except Exception:
                differ += 1
                traceback.print_exc()
    for name, arrays in stored.items():
        if "OUT" in os.environ:
            np.savez_compressed(Path(os.environ["OUT"], f"{name}.npz"), **arrays)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
