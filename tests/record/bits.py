"""Record the results of every instruction, and of random programs, on a GPU.

`python -m tests.record.bits` writes them, on an H100 in half a minute. It rewrites
tests/emulator/instructions.txt, tensor.txt and programs.txt, by which the emulator is tested
without a GPU. Exits with 1 if a line has changed.
"""

import sys
import zlib
from pathlib import Path

import numpy as np

from tests.emulator.evaluate import cases, crcs
from tests.emulator.tensor import TENSOR, results_of
from tests.emulator.test_fuzz import RECORDED, crc, program
from tests.gpu.test_gpu_instructions import on_gpu


def lines() -> dict[str, list[str]]:
    """Of each file."""
    import cupy

    instructions = []
    tensor = []
    programs = []
    for case in cases()[0]:
        (got,), _ = on_gpu(case.text, [case.result], case.types, case.columns())
        instructions.append(
            f"{crcs(got, case.result)} | {case.result} | {' '.join(case.kinds)} | {case.text}"
        )
    for tensor_case in TENSOR:
        for kind in tensor_case.kinds:
            got = np.concatenate(
                [results_of(launch, on_gpu)[0] for launch in tensor_case.launches(kind)]
            )
            tensor.append(f"{zlib.crc32(got.astype('<u8').tobytes()):08x} {tensor_case} {kind}")
    for seed in (line.split()[0] for line in RECORDED):
        text, arrays, blocks, threads = program(int(seed))
        module = cupy.cuda.function.Module()
        buffers = [cupy.asarray(array) for array in arrays]
        module.load(text.encode())
        module.get_function("k")((blocks,), (threads,), tuple(buffers))
        programs.append(f"{seed} {crc([cupy.asnumpy(buffer) for buffer in buffers])}")
    return {"instructions.txt": instructions, "tensor.txt": tensor, "programs.txt": programs}


if __name__ == "__main__":
    changed = False
    for name, new in lines().items():
        path = Path(__file__).parents[1] / "emulator" / name
        text = path.read_text(encoding="utf-8")
        first, blank, rest = text.partition("\n\n")  # up to the first empty line, the heading stays
        heading = [line for line in first.splitlines() if line.startswith("#")]
        path.write_text("\n".join([*heading, *new]) + (blank + rest or "\n"), encoding="utf-8")
        changed |= path.read_text(encoding="utf-8") != text
    sys.exit("lines have changed: see git diff" if changed else 0)
