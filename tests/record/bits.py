"""The results of every instruction on an H200: `python -m tests.record.bits` writes them, on that GPU, in a minute.

It rewrites tests/emulator/instructions.txt and tensor.txt, by which the emulator is tested without a GPU. Exits with 1
if a line has changed.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np

from tests.emulator.evaluate import cases, crcs
from tests.emulator.tensor import TENSOR, results_of
from tests.gpu.test_gpu_instructions import on_gpu

FOLDER = Path(__file__).parents[1] / "emulator"


def instructions() -> list[str]:
    """Lines of instructions.txt."""
    lines = []
    for case in cases()[0]:
        (got,), _ = on_gpu(case.text, [case.result], case.types, case.columns())
        lines.append(f"{crcs(got, case.result)} | {case.result} | {' '.join(case.kinds)} | {case.text}")
    return lines


def tensor() -> list[str]:
    """Lines of tensor.txt."""
    lines = []
    for case in TENSOR:
        for kind in case.kinds:
            got = np.concatenate([results_of(launch, on_gpu)[0] for launch in case.launches(kind)])
            lines.append(f"{zlib.crc32(got.astype('<u8').tobytes()):08x} {case} {kind}")
    return lines


def write(name: str, lines: list[str]) -> bool:
    """Replace the file's lines between its heading and its first empty line. Whether one has changed."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    first, blank, rest = text.partition("\n\n")
    heading = [line for line in first.splitlines() if line.startswith("#")]
    new = "\n".join([*heading, *lines]) + (blank + rest or "\n")
    (FOLDER / name).write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    changed = [write("instructions.txt", instructions()), write("tensor.txt", tensor())]
    sys.exit("lines have changed: see git diff" if any(changed) else 0)
