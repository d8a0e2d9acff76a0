"""Device memory for the gate: matrices between guard bands, C filled with a sentinel before each launch.

The guards around A and B hold NaN, so an element read outside an input and used shows in C. The guards around C hold
the sentinel and are compared after each launch. The sentinel is drawn anew each time, so neither an element that was
not written nor the result of the launch before passes for a result. It is finite: BLAS forbids reading C when beta is
0, but alpha * acc + 0 * C is right for every finite C, and NaN would fail such a kernel.

Guards catch what was left in them or used from them. A read that is discarded, a write that is undone and an access
beyond the guard leave no trace: the emulator (`worklog check --emulate`) and compute-sanitizer report those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from worklog.kernel import Buffer, Device, Program, Subject
from worklog.problem import Float32, Shape

GUARD = 4096  # elements on either side: 16 KiB, so the matrix stays aligned as an allocation is
OUTSIDE = "it wrote outside C"
OUTSIDE_WORKSPACE = "it wrote outside its workspace"
FOUL = Path(__file__).with_name("foul.cu")
FOUL_BLOCK = 512  # four blocks hold a multiprocessor's threads and nearly all of its registers
FOUL_BLOCKS = 2048  # two waves or more on any GPU: each multiprocessor gets as many as fit, several times


class Guarded:
    """An array on the device, `inner`, between two guard bands; `whole` includes them. held: what guards hold, and an
    output before a launch.
    """

    def __init__(self, device: Device, whole: Buffer, held: float = 0.0) -> None:
        self.device, self.whole, self.held = device, whole, np.float32(held)
        self.inner = device.view(whole, GUARD, whole.size - 2 * GUARD)
        self._loaded: Float32 | None = None

    @classmethod
    def of_size(cls, device: Device, elements: int) -> Guarded:
        """A new array. Raises OutOfMemory."""
        return cls(device, device.upload(np.zeros(elements + 2 * GUARD, np.float32)))

    def fill(self, value: float | np.float32) -> None:
        """Set every element, guards included."""
        self.held = np.float32(value)
        self.device.fill(self.whole, float(value))

    def load(self, host: Float32) -> None:
        """Copy `host` to the first elements, with NaN around them."""
        self.fill(np.nan)
        self._loaded = host
        if host.size:
            self.device.overwrite(self.device.view(self.inner, 0, host.size), host)

    def changed(self) -> bool:
        """Whether the elements that were loaded have other bits now."""
        assert self._loaded is not None
        now = self.device.download(self.inner)[: self._loaded.size]
        return not np.array_equal(now.view(np.uint32), self._loaded.ravel().view(np.uint32))

    def intact(self, used: int | None = None) -> bool:
        """Whether both guards, and the array behind its first `used` bytes (default: all), are as they were filled."""
        end = 4 * GUARD + (4 * self.inner.size if used is None else used)
        start = end // 16 * 4  # a view starts at a multiple of 4 elements
        for at, size, skip in ((0, GUARD, 0), (start, self.whole.size - start, end - 4 * start)):
            found, right = self.device.download(self.device.view(self.whole, at, size)), np.full(size, self.held)
            if not np.array_equal(found.view(np.uint8)[skip:], right.view(np.uint8)[skip:]):
                return False
        return True


@dataclass(frozen=True)
class Result:
    """What a launch left. c: (M, N) float32. sentinel: what C and its guards held before. trespass: which memory the
    kernel wrote that it must not write, or None.
    """

    c: Float32
    sentinel: np.float32
    trespass: str | None


class Memory:
    """A device, sentinels for its memory, and a kernel that fouls what a launch would inherit.

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
        self._foul = device.compile(Program(FOUL.name, FOUL.read_text(encoding="utf-8"), "foul")) if live else None
        self._lent: Guarded | None = None

    def foul(self) -> None:
        """Enqueue the kernel that fouls a live device. Raises LaunchFailed."""
        if self._foul is not None:
            self.device.launch(self._foul, (FOUL_BLOCKS, 1), FOUL_BLOCK, ())

    def launch(
        self, subject: Subject, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        """Foul what a launch would inherit, its workspace too, and enqueue the launch. Raises LaunchFailed."""
        self.foul()
        self.lend(subject, shape)
        subject.enqueue(shape, alpha, a, b, beta, c)

    def lend(self, subject: Subject, shape: Shape) -> None:
        """Give a subject that needs one a workspace between guards, all of it NaN, or the sentinel for kernels that
        take the maximum of something, which drops NaN. Raises OutOfMemory.
        """
        needed = subject.workspace_elements(shape)
        if not needed:
            self._lent = None
            return
        if self._lent is None or self._lent.inner.size != needed:
            self._lent = Guarded.of_size(self.device, needed)
        self._lent.fill(np.nan if self.rng.integers(2) else self.sentinel())
        subject.use_workspace(self._lent.inner)

    def workspace_intact(self) -> bool:
        """Whether the guards of the workspace that was lent last are intact."""
        return self._lent is None or self._lent.intact()

    def sentinel(self) -> np.float32:
        """About -3e30 to -6e30: finite, far from any result, never the same twice in a row."""
        return np.float32(-3e30 * (1 + self.rng.random()))


class Buffers:
    """A, B, C and a second C of one shape, without their guards in `abc` and `spare`. A and B hold the timed inputs,
    until `load` loads others. `poison` before C is read.
    """

    def __init__(self, memory: Memory, a: Float32, b: Float32) -> None:
        self.memory = memory
        self.shape = Shape(a.shape[0], b.shape[1], a.shape[1])
        in_c = self.shape.m * self.shape.n
        guarded = [Guarded.of_size(memory.device, size) for size in (a.size, b.size, in_c, in_c)]
        self._inputs, self._outputs = guarded[:2], guarded[2:]
        self.abc, self.spare = (guarded[0].inner, guarded[1].inner, guarded[2].inner), guarded[3].inner
        self._timed = a, b
        self.restore()

    def restore(self) -> None:
        """Load the timed inputs into A and B, and NaN into the guards around them."""
        self.load(*self._timed)

    def load(self, a: Float32, b: Float32) -> None:
        """Load these inputs into A and B, until `restore`."""
        for guarded, host in zip(self._inputs, (a, b), strict=True):
            guarded.load(host)

    def poison(self) -> None:
        """Fill both C, guards included, with a new sentinel."""
        sentinel = self.memory.sentinel()
        for guarded in self._outputs:
            guarded.fill(sentinel)

    def run(
        self, subject: Subject, alpha: float = 1.0, beta: float = 0.0, before: Float32 | float | None = None
    ) -> Result:
        """Poison, launch C = alpha A B + beta C once, and read C. before: what C holds before, a matrix or one value
        for every element; None for the sentinel. Raises LaunchFailed.
        """
        a, b, c = self.abc
        self.poison()
        if isinstance(before, float):
            self.memory.device.fill(c, before)
        elif before is not None:
            self.memory.device.overwrite(c, before)
        self.memory.launch(subject, self.shape, alpha, a, b, beta, c)
        return self.written(c)

    def written(self, buffer: Buffer) -> Result:
        """What C, the second C or a copy of them elsewhere holds."""
        trespass = self.wrote_outside()
        if not trespass and any(guarded.changed() for guarded in self._inputs):
            trespass = "it changed its inputs"
        c = self.memory.device.download(buffer).reshape(self.shape.m, self.shape.n)
        return Result(c, self._outputs[0].held, trespass or None)

    def part(self, shape: Shape) -> tuple[Buffer, Buffer, Buffer]:
        """A, B and C of a smaller shape: the first elements of the larger ones, whose inputs become NaN."""
        for guarded in self._inputs:
            guarded.fill(np.nan)
        sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n
        a, b, c = (self.memory.device.view(whole, 0, size) for whole, size in zip(self.abc, sizes, strict=True))
        return a, b, c

    def wrote_outside(self, used: int | None = None) -> str:
        """OUTSIDE if a guard of C or of the second C was written since they were poisoned, or C after its first `used`
        elements; OUTSIDE_WORKSPACE for a guard of the workspace; else "".
        """
        c, spare = self._outputs
        if not (c.intact(None if used is None else 4 * used) and spare.intact()):
            return OUTSIDE
        return "" if self.memory.workspace_intact() else OUTSIDE_WORKSPACE
