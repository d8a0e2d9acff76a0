"""The stage for several products in one launch: their matrices lie apart, with poison between.

Elsewhere the gate launches one product. A kernel that computes the first one alone, or takes the
wrong distance between matrices, is right there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import OLD_C_ROOM, SPECIAL
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.kernel import WIDE, Loaded
from worklog.problem import Float32, Shape
from worklog.runs import Stage, failed, passed

BATCH = "batch"
PRODUCTS = 3
# Elements between the matrices of a batch: whole vectors stay aligned, and each is another number.
GAPS = {"A": 32, "B": 64, "C": 96}


def check_batch(subject: Loaded, memory: Memory) -> Stage:
    """Launch several products, each with inputs of its own.

    If the kernel takes the distances between the matrices, they are larger than the matrices; NaN
    lies between those of A and B, and what lies between those of C must stay.
    """
    kernel = subject.kernel
    strides = kernel.batch_strides
    gaps = {name: GAPS[name] if name in strides.values() else 0 for name in GAPS}
    arguments = list(kernel.arguments)
    for place, name in strides.items():
        wide = WIDE if arguments[place].startswith(WIDE) else ""
        arguments[place] = f"{wide}{arguments[place].removeprefix(WIDE)} + {gaps[name]}"
    batched = replace(kernel, arguments=tuple(arguments), batch=PRODUCTS).load(memory.device)
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    claim = subject.claim
    pairs = [
        exact.family("E1", shape, memory.rng, claim, headroom=exact.HEADROOM)
        for _ in range(PRODUCTS)
    ]
    old = np.zeros((PRODUCTS, shape.m * shape.n), np.float32)
    beta = 1.0 if subject.domain.beta else 0.0
    if beta:
        half = 1 << min(6, exact.sum_bits(claim) - OLD_C_ROOM)
        old = memory.rng.integers(-half, half, old.shape).astype(np.float32)
    a = _apart([pair[0].ravel() for pair in pairs], gaps["A"], np.nan)
    b = _apart([pair[1].ravel() for pair in pairs], gaps["B"], np.nan)
    size_c = PRODUCTS * (shape.m * shape.n + gaps["C"])
    contents: list[tuple[str, Float32 | int]] = [("A", a), ("B", b)]
    contents.append(("C", memory.types.c.nbytes(size_c)))
    formats = dict(zip("ABC", memory.types.each, strict=True))
    buffers = GuardedBuffers(memory, contents, formats=formats)
    buffers.poison()
    in_a, in_b, in_c = (array.inner for array in buffers.arrays)
    c = memory.device.view(in_c, 0, size_c)
    memory.device.overwrite(c, _apart([*old], gaps["C"], buffers.sentinel))
    launch = f"{PRODUCTS} products of {shape}"
    try:
        memory.launch(batched, shape, 1.0, in_a, in_b, beta, c)
        written = memory.device.download(c).reshape(PRODUCTS, -1)
    except LaunchFailed as error:
        return failed(BATCH, f"{launch}: {error}")
    if trespass := buffers.trespass():
        return failed(BATCH, f"{launch}: {trespass}")
    area = shape.m * shape.n
    if (written[:, area:] != buffers.sentinel).any():
        return failed(BATCH, f"{launch}: it wrote between the matrices of C")
    expected = [
        (matrix_a.astype(np.float64) @ matrix_b).ravel() + row
        for (matrix_a, matrix_b), row in zip(pairs, old, strict=True)
    ]
    wrong = (written[:, :area] != np.array(expected, np.float32)).any(axis=1)
    if wrong.any():
        numbers = " and ".join(str(number) for number in np.flatnonzero(wrong))
        return failed(BATCH, f"{launch}: wrong in product {numbers}, from 0", int(wrong.sum()))
    apart = ", apart" if strides else ""
    return passed(BATCH, f"right in {launch}{apart}")


def _apart(rows: list[Float32], gap: int, between: float | np.float32) -> Float32:
    """Return matrices behind each other, each with so many elements of a value behind it."""
    padded = [np.pad(row, (0, gap), constant_values=between) for row in rows]
    return np.concatenate(padded)
