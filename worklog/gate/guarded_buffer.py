"""Device memory for the gate: the arrays of a case between guard bands.

Outputs are filled with a sentinel before a launch.

The guards around inputs hold NaN, or a large negative integer, so an element read outside an input
and used shows in the result. An integer times 0 doesn't.
The guards around outputs hold the sentinel. All are compared after each launch. The sentinel is
drawn anew each time, so neither an element that was not written nor the result of the launch before
passes for a result. It is finite: alpha * acc + 0 * C is right for every finite C, and NaN would
fail such a kernel.

Guards catch what was left in them or used from them. A read that is discarded, a write that is
undone and an access beyond the guard leave no trace: the emulator (`worklog check --emulate`) and
compute-sanitizer report those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from worklog.gate.unfolding import enqueue_both
from worklog.kernel import Buffer, Device, Program, Runnable
from worklog.problem import Float32, Shape
from worklog.problem.formats import FLOAT32, SINGLE, WORD_BYTES, Format, Types

GUARD = 4096  # elements on either side: 16 KiB, so the matrix stays aligned as an allocation is
OUTSIDE = "it wrote outside C"
OUTSIDE_WORKSPACE = "it wrote outside its workspace"
FOUL = Path(__file__).with_name("foul.cu")
FOUL_BLOCK = 512  # four blocks hold a multiprocessor's threads and nearly all of its registers
# Two waves or more on any GPU: each multiprocessor gets as many as fit, several times.
FOUL_BLOCKS = 2048


def in_format(device: Device, memory: Buffer, format_: Format, size: int) -> Buffer:
    """Return a buffer of words as so many elements of a format; itself for float32."""
    return memory if format_ == FLOAT32 else device.as_format(memory, format_, size)


class Guarded:
    """An array on the device between two guard bands.

    inner: the array, in its format
    whole: the array with its guards, in words of 32 bits
    fill_word: what the guards hold, and an output before a launch
    nbytes: of the array (default: all of `inner`)
    shift: words by which the array begins later than an allocation does
    """

    name = ""

    def __init__(
        self,
        device: Device,
        whole: Buffer,
        fill_value: float = 0.0,
        *,
        nbytes: int | None = None,
        shift: int = 0,
        format_: Format = FLOAT32,
    ) -> None:
        self.device = device
        self.whole = whole
        self.format = format_
        self.fill_word = format_.repeated(fill_value)
        self.start = GUARD + shift
        self.nbytes = WORD_BYTES * (whole.size - 2 * GUARD) if nbytes is None else nbytes
        memory = device.view(whole, self.start, max(1, -(-self.nbytes // WORD_BYTES)))
        self.inner = in_format(device, memory, format_, self.nbytes // format_.itemsize)
        self._loaded: Float32 | None = None

    @classmethod
    def of_size(
        cls, device: Device, nbytes: int, shift: int = 0, format_: Format = FLOAT32
    ) -> Guarded:
        """Return a new array. Raises OutOfMemory."""
        in_views = -(-(nbytes + 4 * shift) // 16) * 4  # a view starts at a multiple of 16 bytes
        return cls(
            device,
            device.upload(np.zeros(in_views + 2 * GUARD, np.float32)),
            nbytes=nbytes,
            shift=shift,
            format_=format_,
        )

    def fill(self, value: float | np.float32) -> None:
        """Set every element, guards included."""
        self.fill_word = self.format.repeated(value)
        self.device.fill(self.whole, float(self.fill_word))

    def load(self, host: Float32) -> None:
        """Copy `host` to the first elements, with the format's poison around them."""
        self.fill(self.format.poison)
        self._loaded = host + np.float32(0) if self.format.is_integer else host  # without -0
        if host.size:
            self.device.overwrite(self.device.view(self.inner, 0, host.size), host)

    def changed(self) -> bool:
        """Return whether the elements that were loaded have other bits now."""
        assert self._loaded is not None
        current = self.device.download(self.inner)[: self._loaded.size]
        return not np.array_equal(current.view(np.uint32), self._loaded.ravel().view(np.uint32))

    def intact(self, nbytes: int | None = None) -> bool:
        """Return whether all outside the array is as it was filled.

        nbytes: of the array, from its start; the memory behind them must be intact (default: all)
        """
        end = 4 * self.start + (self.nbytes if nbytes is None else nbytes)
        view_start = end // 16 * 4
        bands = (
            (0, self.start, 0),
            (view_start, self.whole.size - view_start, end - 4 * view_start),
        )
        for start, size, skipped_bytes in bands:
            band = self.device.download(self.device.view(self.whole, start, size))
            filled = np.full(size, self.fill_word)
            if not np.array_equal(
                band.view(np.uint8)[skipped_bytes:], filled.view(np.uint8)[skipped_bytes:]
            ):
                return False
        return True


class Memory:
    """A device, sentinels for its memory, and a kernel that fouls the device.

    On a live device, shared memory, local memory and registers keep what the launch before left in
    them. A kernel that reads a slot it never wrote (a tail that is not zeroed, a copy one element
    short) can be right by that alone. So a kernel that fills them with NaN runs in between. The
    emulator has nothing to inherit. Raises CompileFailed.

    types: the formats of A, B and C
    lent: the last workspace
    shapes: of the launches
    launched: the shape of the last launch
    """

    def __init__(self, device: Device, rng: np.random.Generator, types: Types = SINGLE) -> None:
        self.device = device
        self.rng = rng
        self.types = types
        self._foul = None
        if device.source == "live":
            program = Program(FOUL.name, FOUL.read_text(encoding="utf-8"), "foul")
            self._foul = device.compile(program)
        self.lent: Guarded | None = None
        self._workspaces: Buffer | None = None  # the memory of all workspaces so far
        self.shapes = set[Shape]()
        self.launched: Shape | None = None

    def foul(self) -> None:
        """Enqueue the kernel that fouls a live device. Raises LaunchFailed."""
        if self._foul is not None:
            self.device.launch(self._foul, (FOUL_BLOCKS, 1), FOUL_BLOCK, ())

    def launch(
        self,
        subject: Runnable,
        shape: Shape,
        alpha: float,
        a: Buffer,
        b: Buffer,
        beta: float,
        c: Buffer,
        *,
        is_raw: bool = False,
    ) -> None:
        """Foul what a launch would inherit, and enqueue the launch.

        Its workspace is fouled as well. C gets the product alone, without an epilogue
        (worklog.gate.unfolding). Raises LaunchFailed.

        is_raw: whether C gets the kernel's result
        """
        self.foul()
        self.lend(subject, shape)
        self.shapes.add(shape)
        if self.types.epilogue and not is_raw:
            enqueue_both(self.device, subject, self.types, shape, alpha, a, b, beta, c)
        else:
            subject.enqueue(shape, alpha, a, b, beta, c)

    @property
    def largest(self) -> tuple[int, int, int] | None:
        """M, N and K, each the largest of any launch; None before a launch."""
        if not self.shapes:
            return None
        m, n, k = np.max([shape.sizes for shape in self.shapes], axis=0).tolist()
        return m, n, k

    @property
    def value_counts(self) -> tuple[int, int, int] | None:
        """The numbers of values of M, N and K that were launched; None before a launch."""
        if not self.shapes:
            return None
        m, n, k = (
            len(set(sizes)) for sizes in zip(*(shape.sizes for shape in self.shapes), strict=True)
        )
        return m, n, k

    def lend(self, subject: Runnable, shape: Shape) -> None:
        """Lend a subject that needs one a workspace between guards. Raises OutOfMemory.

        It is full of NaN, or of the sentinel for kernels that compute a maximum, which drops NaN.
        """
        self.launched = shape
        elements = subject.workspace_elements(shape)
        if not elements:
            self.lent = None
            return
        if self.lent is None or self.lent.inner.size != elements:
            size = -(-elements // 4) * 4 + 2 * GUARD
            if self._workspaces is None or self._workspaces.size < size:
                # New memory takes long when it is touched first.
                self._workspaces = self.device.upload(np.zeros(size, np.float32))
            view = self.device.view(self._workspaces, 0, size)
            self.lent = Guarded(self.device, view, nbytes=4 * elements)
        self.lent.fill(np.nan if self.rng.integers(2) else self._sentinel_word())
        subject.use_workspace(self.lent.inner)

    def sentinel(self, format_: Format = FLOAT32) -> np.float32:
        """Return a random number of a format.

        It is from -1e30 to -5e33; in float16, from -11264 to -30704.
        """
        return format_.first_of(self._sentinel_word())

    def _sentinel_word(self) -> np.float32:
        """Return 32 random bits with two equal halves.

        They are finite as 32 bits, and as 16 bits of either format.
        """
        half_bits = 0xF180 + int(0x600 * self.rng.random())
        return np.uint32(half_bits << 16 | half_bits).view(np.float32)


class GuardedBuffers:
    """The arrays of a case, each between guard bands. Raises OutOfMemory.

    contents: by name, an input on the host, which is loaded now, or the bytes of an output;
    `poison` before outputs are read
    shifts: of arrays, by name
    formats: of arrays, by name; float32 for others
    """

    def __init__(
        self,
        memory: Memory,
        contents: Sequence[tuple[str, Float32 | int]],
        shifts: Mapping[str, int] = MappingProxyType({}),
        formats: Mapping[str, Format] = MappingProxyType({}),
    ) -> None:
        self.memory = memory
        self.arrays = list[Guarded]()
        self.sentinel = np.float32(0)
        for name, host in contents:
            format_ = formats.get(name, FLOAT32)
            nbytes = host if isinstance(host, int) else format_.nbytes(host.size)
            shift = shifts.get(name, 0)
            self.arrays.append(Guarded.of_size(memory.device, nbytes, shift, format_))
            self.arrays[-1].name = name
        self.inputs = [
            array
            for array, (_, host) in zip(self.arrays, contents, strict=True)
            if not isinstance(host, int)
        ]
        self.outputs = [array for array in self.arrays if array not in self.inputs]
        self._hosts = [host for _, host in contents if not isinstance(host, int)]
        self.restore()

    def restore(self, *hosts: Float32) -> None:
        """Load the inputs of the case again, with NaN into the guards around them.

        hosts: other inputs, until the next call
        """
        for array, host in zip(self.inputs, hosts or self._hosts, strict=True):
            array.load(host)

    def poison(self) -> None:
        """Fill the outputs, guards included, with a new sentinel."""
        self.sentinel = self.memory.sentinel(self.outputs[0].format)
        for array in self.outputs:
            array.fill(self.sentinel)

    def wrote_outside(self, nbytes: int | None = None) -> str:
        """Describe the overwritten guard of an output or of the workspace.

        "" if all are intact.

        nbytes: of the first output, behind which it must be intact as well
        """
        for number, array in enumerate(self.outputs):
            if not array.intact(nbytes if number == 0 else None):
                return f"it wrote outside {array.name}"
        workspace = self.memory.lent
        return "" if workspace is None or workspace.intact() else OUTSIDE_WORKSPACE

    def trespass(self) -> str:
        """Describe the memory that was written but must not be, or return ""."""
        if outside := self.wrote_outside():
            return outside
        for array in self.inputs:
            if not array.intact():
                return f"it wrote outside {array.name}"
            if array.changed():
                return f"it changed its input {array.name}"
        return ""


@dataclass(frozen=True)
class LaunchResult:
    """The result of a launch.

    c: (M, N) float32
    sentinel: what C and its guards held before
    trespass: the memory that the kernel wrote but must not write, in words, or ""
    format: of C in memory
    """

    c: Float32
    sentinel: np.float32
    trespass: str
    format: Format = FLOAT32


class Buffers(GuardedBuffers):
    """A, B, C and a second C of one shape, in the formats of the memory's types.

    a, b: on the host; those of a batch have the products first
    abc, spare: A, B and C, and the second C, without their guards
    """

    def __init__(
        self,
        memory: Memory,
        a: Float32,
        b: Float32,
        shifts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        products = len(a) if a.ndim > 2 else 1
        self.shape = Shape(a.shape[-2], b.shape[-1], a.shape[-1], products)
        nbytes_c = memory.types.c.nbytes(self.shape.elements[2])
        formats = dict(zip("ABC", memory.types.formats, strict=True))
        factors = zip("AB", memory.types.laid_out(a, b), strict=True)
        contents: list[tuple[str, Float32 | int]] = [*factors]
        contents += [("C", nbytes_c), ("C", nbytes_c)]
        super().__init__(memory, contents, shifts, formats)
        inner_a, inner_b, inner_c, self.spare = (array.inner for array in self.arrays)
        self.abc = inner_a, inner_b, inner_c

    def restore(self, *hosts: Float32) -> None:
        """Load A and B of the case again, or others, with NaN around them.

        hosts: another A and B, until the next call
        """
        super().restore(*(self.memory.types.laid_out(*hosts) if hosts else ()))

    def run(
        self,
        subject: Runnable,
        alpha: float = 1.0,
        beta: float = 0.0,
        initial_c: Float32 | float | None = None,
        *,
        is_raw: bool = False,
    ) -> LaunchResult:
        """Poison, launch C = alpha A B + beta C once, and return the result.

        Raises LaunchFailed.

        is_raw: as for Memory.launch
        initial_c: what C holds before, a matrix or one value for every element; None for the
        sentinel
        """
        a, b, c = self.abc
        self.poison()
        if isinstance(initial_c, float):
            self.memory.device.fill(c, initial_c)
        elif initial_c is not None:
            self.memory.device.overwrite(c, initial_c)
        self.memory.launch(subject, self.shape, alpha, a, b, beta, c, is_raw=is_raw)
        return self.written(c)

    def written(self, buffer: Buffer) -> LaunchResult:
        """Return what C, the second C or a copy of them elsewhere holds.

        The rows of a batch are those of all products.
        """
        c = self.memory.device.download(buffer).reshape(-1, self.shape.n)
        return LaunchResult(c, self.sentinel, self.trespass(), self.memory.types.c)

    def part(self, shape: Shape) -> tuple[Buffer, Buffer, Buffer]:
        """Return A, B and C of a smaller shape: the first elements of the larger ones.

        The inputs of the larger ones become NaN.
        """
        for array in self.inputs:
            array.fill(array.format.poison)
        sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n
        a, b, c = (
            self.memory.device.view(matrix, 0, size)
            for matrix, size in zip(self.abc, sizes, strict=True)
        )
        return a, b, c
