"""The stage for several products in one launch: their matrices lie apart, with poison between.

Elsewhere the gate launches one product. A kernel that computes the first one alone, or takes the
wrong distance between matrices, is right there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import SPECIAL, small_old_c
from worklog.gate.guarded_buffer import GuardedBuffers, Memory
from worklog.kernel import WIDE, Kernel, Loaded, Runnable
from worklog.problem import Float32, Shape
from worklog.runs import Stage, failed, passed

BATCH = "batch"
PRODUCTS = 5
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
    batched = _spread(kernel, gaps).load(memory.device)
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    pairs = [
        exact.family("E1", shape, memory.rng, subject.claim, headroom=exact.HEADROOM)
        for _ in range(PRODUCTS)
    ]
    old = [small_old_c(subject, shape, memory.rng) for _ in range(PRODUCTS)]
    alpha = 3.0 if subject.domain.alpha else 1.0
    launch = f"{PRODUCTS} products of {shape} with alpha = {alpha:g}"
    matrices = _Matrices(memory, pairs, gaps)
    try:
        written = matrices.launch(batched, shape, alpha, old)
    except LaunchFailed as error:
        return failed(BATCH, f"{launch}: {error}")
    if trespass := matrices.buffers.trespass():
        return failed(BATCH, f"{launch}: {trespass}")
    area = shape.m * shape.n
    if (written[:, area:] != matrices.buffers.sentinel).any():
        return failed(BATCH, f"{launch}: it wrote between the matrices of C")
    expected = [
        alpha * (a.astype(np.float64) @ b) + c for (a, b), c in zip(pairs, old, strict=True)
    ]
    wrong = (written[:, :area] != np.reshape(expected, (PRODUCTS, area))).any(axis=1)
    if wrong.any():
        numbers = " and ".join(str(number + 1) for number in np.flatnonzero(wrong))
        return failed(
            BATCH, f"{launch}: product {numbers} of {PRODUCTS} is wrong", int(wrong.sum())
        )
    return passed(BATCH, f"right in {launch}{', apart' if strides else ''}")


def _spread(kernel: Kernel, gaps: Mapping[str, int]) -> Kernel:
    """Return a kernel with larger distances between the matrices of a batch."""
    arguments = list(kernel.arguments)
    for place, name in kernel.batch_strides.items():
        wide = WIDE if arguments[place].startswith(WIDE) else ""
        arguments[place] = f"{wide}{arguments[place].removeprefix(WIDE)} + {gaps[name]}"
    return replace(kernel, arguments=tuple(arguments))


class _Matrices:
    """The matrices of a batch on the device, with gaps behind each.

    pairs: A and B of each product
    """

    def __init__(
        self, memory: Memory, pairs: Sequence[tuple[Float32, Float32]], gaps: Mapping[str, int]
    ) -> None:
        self.memory = memory
        self.gap = gaps["C"]
        m = pairs[0][0].shape[0]
        n = pairs[0][1].shape[1]
        self.size = PRODUCTS * (m * n + self.gap)
        types = memory.types
        factors = [types.laid_out(*pair) for pair in pairs]
        contents: list[tuple[str, Float32 | int]] = [
            ("A", _in_a_row([a for a, _ in factors], gaps["A"], types.a.poison)),
            ("B", _in_a_row([b for _, b in factors], gaps["B"], types.b.poison)),
            ("C", types.c.nbytes(self.size)),
        ]
        formats = dict(zip("ABC", types.formats, strict=True))
        self.buffers = GuardedBuffers(memory, contents, formats=formats)

    def launch(
        self, subject: Runnable, shape: Shape, alpha: float, old: Sequence[Float32]
    ) -> Float32:
        """Launch C = alpha A B + C once, and return each C with its gap as a row.

        Raises LaunchFailed.

        shape: of one product
        old: each C before; without beta it isn't read
        """
        device = self.memory.device
        self.buffers.poison()
        a, b, inner = (array.inner for array in self.buffers.arrays)
        c = device.view(inner, 0, self.size)
        device.overwrite(c, _in_a_row(old, self.gap, self.buffers.sentinel))
        beta = 1.0 if subject.domain.beta else 0.0
        self.memory.launch(subject, replace(shape, batch=PRODUCTS), alpha, a, b, beta, c)
        return device.download(c).reshape(PRODUCTS, -1)


def _in_a_row(matrices: Sequence[Float32], gap: int, gap_value: float | np.float32) -> Float32:
    """Return matrices behind each other, each with so many elements of a value behind it."""
    padded = [np.pad(matrix.ravel(), (0, gap), constant_values=gap_value) for matrix in matrices]
    return np.concatenate(padded)
