"""The memory that a subject works on: every matrix between guard bands, C poisoned before each launch.

NaN lies around A and B: whoever reads past an input and uses it, be it times zero, has NaN in its result. A known
value lies around C, and is looked at after each launch. C itself holds a sentinel drawn anew each time, so that an
element left alone, or the answer of the launch before, is never taken for an answer. The sentinel is finite: BLAS
forbids reading C when beta is 0, but alpha * acc + 0 * C is right for every finite C, and NaN would refuse such a
kernel.

A guard shows what was left in it or taken from it into a result. Who reads outside and throws it away, who writes
outside and puts back what was there, and who jumps over the guard, leaves no trace in any matrix: on a GPU that takes
compute-sanitizer (`worklog check --racecheck`), and the emulator reports each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from worklog.gate.dirt import Dirt
from worklog.kernel.kernel import Buffer, Device, Subject
from worklog.problem.gemm import Float32, Shape

GUARD = 4096  # elements on either side: 16 KiB, which keeps the matrix between them aligned as an allocation is


@dataclass(frozen=True)
class Banded:
    """A matrix on the device between two guard bands."""

    whole: Buffer
    inner: Buffer


Inputs = tuple[tuple[Banded, Float32], tuple[Banded, Float32]]  # A and B on the device, each with what it should hold


@dataclass(frozen=True)
class Result:
    """What a launch left. c: (M, N) float32. sentinel: what C and its guards held before. outside: whether a guard was
    written. inputs_changed: whether A or B is not what it was.
    """

    c: Float32
    sentinel: np.float32
    outside: bool
    inputs_changed: bool

    @property
    def trespass(self) -> str | None:
        """What it did where it had no business, in words."""
        if self.outside:
            return "it wrote outside C"
        return "it changed its inputs" if self.inputs_changed else None


def between_guards(host: Float32, guard: float) -> Float32:
    """The matrix's elements in a row, with GUARD times the value on both sides."""
    band = np.full(GUARD, guard, np.float32)
    return np.concatenate([band, host.ravel(), band])


class Memory:
    """Makes guarded matrices on a device, draws sentinels, fouls what a launch might inherit."""

    def __init__(self, device: Device, rng: np.random.Generator) -> None:
        self.device = device
        self.rng = rng
        self.dirt = Dirt(device)

    def guarded(self, host: Float32, guard: float) -> Banded:
        """A copy of the matrix on the device, with the value `guard` on both sides."""
        whole = self.device.upload(between_guards(host, guard))
        return Banded(whole, self.device.view(whole, GUARD, host.size))

    def sentinel(self) -> np.float32:
        """About -3e30 to -6e30: finite, far from any result, never the same twice in a row."""
        return np.float32(-3e30 * (1 + self.rng.random()))

    def result(self, banded: Banded, rows: int, columns: int, sentinel: np.float32, inputs: Inputs) -> Result:
        """Read C and its guards, and look whether the inputs are as they were."""
        whole = self.device.download(banded.whole)
        guards = np.concatenate([whole[:GUARD], whole[-GUARD:]])
        changed = any(not np.array_equal(self.device.download(on.inner), host.ravel()) for on, host in inputs)
        c = whole[GUARD:-GUARD].reshape(rows, columns)
        return Result(c, sentinel, bool((guards != sentinel).any()), changed)


class Arena:
    """A, B, C and a second C of one shape. A and B hold the timed inputs, unless others are loaded for a while."""

    def __init__(self, memory: Memory, shape: Shape, a: Float32, b: Float32) -> None:
        self.memory = memory
        self.shape = shape
        self.timed = self._loaded = a, b
        self._sentinel = memory.sentinel()
        self._a, self._b = memory.guarded(a, np.nan), memory.guarded(b, np.nan)
        blank = np.full((shape.m, shape.n), self._sentinel, np.float32)
        self._c, self._spare = (memory.guarded(blank, float(self._sentinel)) for _ in range(2))

    @property
    def buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """A, B and C without their guards."""
        return self._a.inner, self._b.inner, self._c.inner

    @property
    def spare(self) -> Buffer:
        """The second C."""
        return self._spare.inner

    @contextmanager
    def holding(self, a: Float32, b: Float32) -> Iterator[None]:
        """Have other inputs in A and B, and the timed ones again afterwards."""
        self._load(a, b)
        try:
            yield
        finally:
            self.reload()

    def reload(self) -> None:
        """Have the timed inputs in A and B."""
        self._load(*self.timed)

    def _load(self, a: Float32, b: Float32) -> None:
        self.memory.device.overwrite(self._a.inner, a)
        self.memory.device.overwrite(self._b.inner, b)
        self._loaded = a, b

    def restore(self) -> None:
        """Write the timed inputs and the guards around them anew: who wrote outside C may have hit them."""
        for banded, host in zip((self._a, self._b), self.timed, strict=True):
            self.memory.device.overwrite(banded.whole, between_guards(host, np.nan))
        self._loaded = self.timed
        self.poison()

    def poison(self, value: float | None = None) -> None:
        """Fill both C, guards included, with a sentinel drawn anew, or with a value that a launch is to read."""
        self._sentinel = self.memory.sentinel() if value is None else np.float32(value)
        for banded in (self._c, self._spare):
            self.memory.device.fill(banded.whole, float(self._sentinel))

    def guards_written(self) -> bool:
        """Whether anything around C or the second C was written since they were poisoned."""
        device = self.memory.device
        wholes = [banded.whole for banded in (self._c, self._spare)]
        bands = [device.view(whole, start, GUARD) for whole in wholes for start in (0, whole.size - GUARD)]
        return any(bool((device.download(band) != self._sentinel).any()) for band in bands)

    def launch(self, subject: Subject, alpha: float = 1.0, beta: float = 0.0, before: float | None = None) -> None:
        """Poison, one launch of C = alpha A B + beta C, and wait for it. Raises LaunchFailed."""
        self.poison(before)
        self.memory.dirt.spread()
        subject.enqueue(self.shape, alpha, *self.buffers[:2], beta, self.buffers[2])
        self.memory.device.synchronize()

    def run(self, subject: Subject, alpha: float = 1.0, beta: float = 0.0, before: float | None = None) -> Result:
        """Launch, and read what was left in C."""
        self.launch(subject, alpha, beta, before)
        return self.written(self.buffers[2])

    def written(self, buffer: Buffer) -> Result:
        """What C, the second C or a buffer of somebody else's holds; the last has no guards to look at."""
        device, (m, n) = self.memory.device, (self.shape.m, self.shape.n)
        inputs = (self._a, self._loaded[0]), (self._b, self._loaded[1])
        for banded in (self._c, self._spare):
            if buffer is banded.inner:
                return self.memory.result(banded, m, n, self._sentinel, inputs)
        return Result(device.download(buffer).reshape(m, n), self._sentinel, outside=False, inputs_changed=False)
