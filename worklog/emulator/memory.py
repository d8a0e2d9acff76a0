"""The memory of a launch: buffers, tensor maps, and what vprintf prints of it.

A buffer without data stands for one whose values do not matter: loads give zeros, stores are dropped, and the traffic
is counted. A driver's encoding of tensor maps (CUtensorMap) is not public: here they have the emulator's own, and it
understands only those that tensor_map() describes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from worklog.emulator.ptx import Array
from worklog.emulator.reports import BadLaunch, Batch, TooLarge

FIRST_ADDRESS = 1 << 40
FIRST_VARIABLE = 1 << 50
SPACING = 1 << 40
LOCAL_WINDOW = 2  # bits 60 and up of generic addresses: see worklog.emulator.ops
SMALL = 1 << 24  # bytes, which any machine has free
# lines and characters of a launch that are kept
PRINTED = 20
MOST_CHARACTERS = 100_000
WIDEST = 4095  # characters of one number: C's printf guarantees no more
_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.\*|\.\d*|)(?:hh?|(?P<wide>ll?|[jzt])|L|)(?P<type>.)",
    re.DOTALL,
)
# The code of struct for each type of C, by that of Python's % operator. An argument is at a multiple of its size.
_CODES = dict.fromkeys("di", "i") | dict.fromkeys("uoxXc", "I") | dict.fromkeys("eEfFgGaA", "d")
_CODES |= dict.fromkeys("sp", "Q")
_MAGIC = b"worklog "
_ENCODING = struct.Struct("<8sQQ104x")
MAP_SIZE = _ENCODING.size  # bytes of a CUtensorMap
# As in core.h, the innermost dimension first. strides: in bytes. item: bytes of an element. counts: elements of a box.
LAYOUT = np.dtype([
    *((name, "i4") for name in ("dimensions", "item", "swizzle", "nan")),
    *((name, "i8", 5) for name in ("shape", "strides", "counts", "steps")),
])  # fmt: skip
LAYOUTS: dict[
    bytes, int
] = {}  # of this process's tensor maps, whose bytes give the number of one of these


@dataclass(frozen=True)
class Pointer:
    """A buffer argument. data: a contiguous array, written in place; None stands for `size` bytes of unknown values.

    skew: bytes from the last 256-byte boundary to the buffer, as in a view into a larger buffer.
    """

    data: Array | None
    size: int
    name: str = ""
    skew: int = 0


@dataclass(frozen=True)
class Buffer:
    """Memory of a launch. name: for messages. base: its address. data: its bytes as uint8, or None."""

    name: str
    base: int
    size: int
    data: Array | None
    writable: bool = True


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raise TooLarge if `needed` bytes are more than the system has free, where it reports that."""
    system = Path("/proc/meminfo")
    known = needed > SMALL and system.exists()
    found = re.search(r"MemAvailable:\s*(\d+)", system.read_text()) if known else None
    free = int(found[1]) * 1024 if found else needed
    if needed > free:
        raise TooLarge(
            f"{what} needs about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are free: {advice}"
        )


def zeros(count: int, dtype: DTypeLike, what: str, advice: str) -> Array:
    """Return an array of zeros. Raises TooLarge. Its memory is taken when it is written."""
    needed = count * np.dtype(dtype).itemsize
    require_memory(needed, what, advice)
    try:
        return np.zeros(count, dtype)
    except (MemoryError, ValueError) as error:  # of a process whose memory is limited; of any
        raise TooLarge(
            f"{what} needs about {needed / 2**20:,.0f} MiB, and this process can't allocate them: {advice}"
        ) from error


class GlobalMemory:
    """All buffers of one launch. checked: bases of those in which races are looked for. printed: by its threads, one
    after the other; a GPU may take another order. silent: calls of printf after the first PRINTED lines.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.checked: set[int] = set()
        self.buffers: list[Buffer] = []
        self.printed = ""
        self.silent = 0

    def at(self, address: int) -> Buffer | None:
        """The buffer that a global address is in."""
        return next((b for b in self.buffers if b.base <= address < b.base + b.size), None)

    def name(self, address: int) -> str:
        """An address for messages: relative to the nearest buffer."""
        near = min(
            self.buffers,
            key=lambda b: max(b.base - address, address - b.base - b.size, 0),
            default=None,
        )
        if near is None or abs(address - near.base) > SPACING // 2:
            return f"at address {address:#x}, in no buffer"
        offset = address - near.base
        if offset < 0:
            return f"at {-offset} bytes before {near.name}"
        if offset >= near.size:
            past = f"at {offset - near.size} bytes past" if offset > near.size else "just past"
            return f"{past} the end of {near.name} ({near.size} bytes)"
        return f"at byte {offset} of {near.name} ({near.size} bytes)"

    def bytes_at(self, address: int, local: bytes) -> bytes:
        """Return up to MOST_CHARACTERS bytes from a generic address; none outside of every memory."""
        if address >> 60 == LOCAL_WINDOW:
            return local[address & (1 << 60) - 1 :][:MOST_CHARACTERS]
        buffer = self.at(address)
        if buffer is None or buffer.data is None:
            return b""
        return bytes(buffer.data[address - buffer.base :][:MOST_CHARACTERS])

    def text(self, address: int, local: bytes = b"") -> str:
        """The string at a generic address, up to its NUL."""
        return self.bytes_at(address, local).partition(b"\0")[0].decode(errors="replace")

    def vprintf(self, text: int, arguments: int, local: bytes) -> int:
        """Print for one thread, and return the number of arguments. CUDA C++ Programming Guide, "Formatted Output".

        text, arguments: the addresses of the format and of the arguments
        local: the thread's local memory
        Raises TooLarge for a number that is printed with more than WIDEST characters.
        """
        form = self.text(text, local)
        data = self.bytes_at(arguments, local)
        place = 0

        def take(code: str) -> Any:
            nonlocal place
            size = struct.calcsize(code)
            start = -(-place // size) * size
            place = start + size
            return struct.unpack(f"<{code}", data[start:place].ljust(size, b"\0"))[0]

        def shown(found: re.Match[str]) -> str:
            kind = found["type"]
            if kind not in _CODES:  # a specifier that C doesn't have stays as it is
                return "%" if kind == "%" else found[0]
            flags, width, precision = found.group("flags", "width", "precision")
            if width == "*":
                stated = take("i")
                width = str(abs(stated))
                flags += "-" if stated < 0 else ""
            if precision == ".*":
                stated = take("i")
                precision = f".{stated}" if stated >= 0 else ""  # as if there were none
            for digits in (width, precision):
                number = digits.lstrip(".0")
                if len(number) > len(str(WIDEST)) or int(number or 0) > WIDEST:
                    raise TooLarge(
                        f"printf prints {found[0]!r} with {number} characters: use at most {WIDEST:,}"
                    )
            form = f"{flags}{width}{precision}"
            value = take(
                _CODES[kind].replace("i", "q").replace("I", "Q") if found["wide"] else _CODES[kind]
            )
            if kind == "s":
                value = self.text(value, local)
            elif kind in "aA":
                kind, value = "s", value.hex() if kind == "a" else value.hex().upper()
            elif kind == "p":
                kind, value = "s", f"{value:#x}"
            elif kind == "c":
                value = chr(value & 0xFF)
            return str(f"%{form}{kind}" % value)

        if self.printed.count("\n") < PRINTED and len(self.printed) < MOST_CHARACTERS:
            self.printed += _SPECIFIER.sub(shown, form)
        else:
            self.silent += 1
        return sum(
            (found["type"] != "%") + found[0].count("*") for found in _SPECIFIER.finditer(form)
        )

    def lines(self) -> tuple[str, ...]:
        """What was printed, and a line that says how many more calls printed."""
        more = [f"… and {self.silent} more calls of printf"] if self.silent else []
        return (*self.printed.splitlines(), *more)


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel: a tensor in global memory, and the box of it that one copy moves. See tensor_map().
    layout: the bytes of a LAYOUT.
    """

    pointer: Pointer
    layout: bytes

    def encoded(self, address: int) -> bytes:
        """The parameter's bytes for a tensor at this address."""
        return _ENCODING.pack(_MAGIC, address, LAYOUTS.setdefault(self.layout, len(LAYOUTS)))


def tensor_map(
    data: Array | Pointer,
    box: Sequence[int],
    *,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    item: int = 4,
    swizzle: int = 0,
    nan: bool = False,
) -> TensorMap:
    """An argument for a parameter `const __grid_constant__ CUtensorMap`, as cuTensorMapEncodeTiled would make it.

    data: a contiguous array, or a Pointer to one, whose elements have `item` bytes. All sequences begin with the
    innermost dimension. box: elements per copy, up to 256 per dimension. shape: elements of the tensor (default: the
    array's); strides: bytes from one element to the next in dimensions 1 and up (default: of a contiguous tensor).
    steps: element strides. swizzle: 0, 32, 64 or 128, which the innermost dimension of the box must have in bytes.
    nan: elements outside of the tensor become NaN (of 2, 4 or 8 bytes), not zero. Interleaved layouts and im2col are
    not emulated. Raises BadLaunch where cuTensorMapEncodeTiled gives an error.
    """
    pointer = data if isinstance(data, Pointer) else Pointer(data, data.nbytes)
    if isinstance(data, np.ndarray):
        item, shape = data.itemsize, shape or data.shape[::-1]
    if shape is None:
        raise BadLaunch("a tensor map of a Pointer needs a shape")
    sizes = tuple(map(int, shape))
    count = len(shape)
    steps = steps or (1,) * count
    strides = strides or [
        item * int(np.prod(sizes[: k + 1], dtype=np.int64)) for k in range(count - 1)
    ]
    inner = box[0] * item if box else 0
    rules = {
        "a tensor has 1 to 5 dimensions": 1 <= count <= 5,
        "box, steps and strides must fit the shape": count
        == len(box)
        == len(steps)
        == len(strides) + 1,
        "a box has 1 to 256 elements per dimension": all(1 <= size <= 256 for size in box),
        "a tensor has 1 to 2**32 elements per dimension": all(1 <= size <= 2**32 for size in sizes),
        "steps are 1 to 8, and 1 in dimension 0": all(1 <= n <= 8 for n in steps)
        and [*steps[:1]] == [1],
        "strides are multiples of 16 below 2**40": all(
            n % 16 == 0 and 0 < n < 2**40 for n in strides
        ),
        "elements have 1, 2, 4 or 8 bytes, and 2, 4 or 8 with nan": item in (2, 4, 8)
        or (item == 1 and not nan),
        "the innermost dimension of a box is a multiple of 16 bytes": inner % 16 == 0,
        "swizzle is 0, or 32, 64 or 128 and as many bytes as a box's innermost dimension": swizzle
        == 0
        or (swizzle in (32, 64, 128) and inner == swizzle),
        "the tensor must start at a multiple of 16 bytes": pointer.skew % 16 == 0,
    }
    for rule, holds in rules.items():
        if not holds:
            raise BadLaunch(f"invalid tensor map: {rule}")
    layout = np.zeros((), LAYOUT)
    layout["dimensions"] = count
    layout["item"] = item
    layout["swizzle"] = swizzle
    layout["nan"] = nan
    layout["shape"] = 1
    layout["counts"] = 1
    layout["steps"] = 1
    layout["shape"][:count] = sizes
    layout["strides"][:count] = (item, *strides)
    layout["steps"][:count] = steps
    layout["counts"][:count] = [-(-size // step) for size, step in zip(box, steps, strict=True)]
    return TensorMap(pointer, layout.tobytes())
