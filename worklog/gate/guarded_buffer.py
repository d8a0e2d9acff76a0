"""Device memory for the gate: matrices between guard bands, C filled with a sentinel before each launch.

The guards around A and B hold NaN, so an element read outside an input and used shows in C. The guards around C hold
the sentinel and are compared after each launch. The sentinel is drawn anew each time, so neither an element that was
not written nor the result of the launch before passes for a result. It is finite: BLAS forbids reading C when beta is
0, but alpha * acc + 0 * C is right for every finite C, and NaN would fail such a kernel.

Guards catch what was left in them or used from them. A read that is discarded, a write that is undone and an access
beyond the guard leave no trace: compute-sanitizer (`worklog check --racecheck`) and the emulator report those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from worklog.kernel.device import Buffer, Device, Program, Subject
from worklog.problem.gemm import Float32, Shape

GUARD = 4096  # elements on either side: 16 KiB, so the matrix stays aligned as an allocation is
FOUL = Path(__file__).with_name("foul.cu")
FOUL_BLOCK = 512  # four blocks hold a multiprocessor's threads and nearly all of its registers
FOUL_BLOCKS = 2048  # two waves or more on any GPU: each multiprocessor gets as many as fit, several times


@dataclass(frozen=True)
class Guarded:
    """A matrix on the device between two guard bands."""

    whole: Buffer
    inner: Buffer


Inputs = tuple[tuple[Guarded, Float32], tuple[Guarded, Float32]]  # A and B on the device, and what each should hold


@dataclass(frozen=True)
class Result:
    """What a launch left. c: (M, N) float32. sentinel: what C and its guards held before. outside: whether a guard was
    written. inputs_changed: whether A or B changed.
    """

    c: Float32
    sentinel: np.float32
    outside: bool
    inputs_changed: bool

    @property
    def trespass(self) -> str | None:
        """Which memory the kernel wrote that it must not write, or None."""
        if self.outside:
            return "it wrote outside C"
        return "it changed its inputs" if self.inputs_changed else None


def between_guards(host: Float32, guard: float) -> Float32:
    """The matrix's elements in a row, with GUARD times the value on both sides."""
    band = np.full(GUARD, guard, np.float32)
    return np.concatenate([band, host.ravel(), band])


class Memory:
    """Makes guarded matrices on a device, draws sentinels, and fouls what a launch would inherit.

    On a live device, shared memory, local memory and registers keep what the launch before left in them. A kernel that
    reads a slot it never wrote (a tail that is not zeroed, a copy one element short, an uninitialised sum) can be right
    by that alone. So a kernel that fills them with NaN runs in between. Registers are the weakest part: the compiler
    may itself put a zero into a value that was never written. The emulator has nothing to inherit, and reports shared
    memory that is read before it is written. Raises CompileFailed.
    """

    def __init__(self, device: Device, rng: np.random.Generator) -> None:
        self.device = device
        self.rng = rng
        live = device.source == "live"
        foul = Program(FOUL.name, FOUL.read_text(encoding="utf-8"), "foul") if live else None
        self._foul = device.compile(foul) if foul else None

    def foul(self) -> None:
        """Enqueue the kernel that fouls a live device. Raises LaunchFailed."""
        if self._foul is not None:
            self.device.launch(self._foul, (FOUL_BLOCKS, 1), FOUL_BLOCK, ())

    def guarded(self, host: Float32, guard: float) -> Guarded:
        """A copy of the matrix on the device, with the value `guard` on both sides."""
        whole = self.device.upload(between_guards(host, guard))
        return Guarded(whole, self.device.view(whole, GUARD, host.size))

    def sentinel(self) -> np.float32:
        """About -3e30 to -6e30: finite, far from any result, never the same twice in a row."""
        return np.float32(-3e30 * (1 + self.rng.random()))

    def result(self, guarded: Guarded, rows: int, columns: int, sentinel: np.float32, inputs: Inputs) -> Result:
        """Read C and its guards, and compare the inputs with what they should hold."""
        whole = self.device.download(guarded.whole)
        guards = np.concatenate([whole[:GUARD], whole[-GUARD:]])
        changed = any(not np.array_equal(self.device.download(on.inner), host.ravel()) for on, host in inputs)
        c = whole[GUARD:-GUARD].reshape(rows, columns)
        return Result(c, sentinel, bool((guards != sentinel).any()), changed)


class Buffers:
    """A, B, C and a second C of one shape. A and B hold the timed inputs, unless `holding` loads others."""

    def __init__(self, memory: Memory, shape: Shape, a: Float32, b: Float32) -> None:
        self.memory = memory
        self.shape = shape
        self.timed = self._loaded = a, b
        self._sentinel = memory.sentinel()
        self._a, self._b = memory.guarded(a, np.nan), memory.guarded(b, np.nan)
        blank = np.full((shape.m, shape.n), self._sentinel, np.float32)
        self._c, self._spare = (memory.guarded(blank, float(self._sentinel)) for _ in range(2))

    @property
    def abc(self) -> tuple[Buffer, Buffer, Buffer]:
        """A, B and C without their guards."""
        return self._a.inner, self._b.inner, self._c.inner

    @property
    def spare(self) -> Buffer:
        """The second C."""
        return self._spare.inner

    @contextmanager
    def holding(self, a: Float32, b: Float32) -> Iterator[None]:
        """Hold other inputs in A and B, and the timed ones again afterwards."""
        self._load(a, b)
        try:
            yield
        finally:
            self.reload()

    def reload(self) -> None:
        """Load the timed inputs into A and B."""
        self._load(*self.timed)

    def _load(self, a: Float32, b: Float32) -> None:
        self.memory.device.overwrite(self._a.inner, a)
        self.memory.device.overwrite(self._b.inner, b)
        self._loaded = a, b

    def restore(self) -> None:
        """Write the timed inputs and their guards anew, after a kernel that may have overwritten them."""
        for guarded, host in zip((self._a, self._b), self.timed, strict=True):
            self.memory.device.overwrite(guarded.whole, between_guards(host, np.nan))
        self._loaded = self.timed
        self.poison()

    def poison(self, value: float | None = None) -> None:
        """Fill both C, guards included, with a new sentinel, or with a value that a launch is to read."""
        self._sentinel = self.memory.sentinel() if value is None else np.float32(value)
        for guarded in (self._c, self._spare):
            self.memory.device.fill(guarded.whole, float(self._sentinel))

    def guards_written(self) -> bool:
        """Whether a guard of C or of the second C was written since they were poisoned."""
        device = self.memory.device
        wholes = [guarded.whole for guarded in (self._c, self._spare)]
        bands = [device.view(whole, start, GUARD) for whole in wholes for start in (0, whole.size - GUARD)]
        return any(bool((device.download(band) != self._sentinel).any()) for band in bands)

    def launch(self, subject: Subject, alpha: float = 1.0, beta: float = 0.0, before: float | None = None) -> None:
        """Poison, launch C = alpha A B + beta C once, and wait for it. Raises LaunchFailed."""
        self.poison(before)
        self.memory.foul()
        subject.enqueue(self.shape, alpha, *self.abc[:2], beta, self.abc[2])
        self.memory.device.synchronize()

    def run(self, subject: Subject, alpha: float = 1.0, beta: float = 0.0, before: float | None = None) -> Result:
        """Launch, and read what was left in C."""
        self.launch(subject, alpha, beta, before)
        return self.written(self.abc[2])

    def written(self, buffer: Buffer) -> Result:
        """What C, the second C or a buffer from elsewhere holds; the last has no guards to compare."""
        device, (m, n) = self.memory.device, (self.shape.m, self.shape.n)
        inputs = (self._a, self._loaded[0]), (self._b, self._loaded[1])
        for guarded in (self._c, self._spare):
            if buffer is guarded.inner:
                return self.memory.result(guarded, m, n, self._sentinel, inputs)
        return Result(device.download(buffer).reshape(m, n), self._sentinel, outside=False, inputs_changed=False)
