"""The memory of a launch: buffers, tensor maps, and the text that vprintf prints.

A buffer without data stands for a buffer whose values don't matter: loads yield zeros, stores are
dropped, and the traffic is counted. A driver's encoding of tensor maps (CUtensorMap) isn't public:
here they have the emulator's own encoding, and it understands only maps that tensor_map() makes.
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

# Buffers go on beyond a multiple of 4 GiB after one page: the low 32 bits of an address don't do.
PAGE = 1 << 12
FIRST_ADDRESS = (1 << 40) + (1 << 32) - PAGE
FIRST_VARIABLE = 1 << 50
SPACING = 1 << 40
LOCAL_WINDOW = 2  # bits 60 and up of generic addresses: see worklog.emulator.ops
SMALL = 1 << 24  # bytes, which any machine has free
# lines and characters of a launch that are kept
PRINTED = 20
MOST_CHARACTERS = 100_000
WIDEST = 4095  # characters of one number: C's printf guarantees no more
_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ "
    r"#0]*)(?P<width>\*|\d*)(?P<precision>\.\*|\.\d*|)(?:hh?|(?P<wide>ll?|[jzt])|L|)(?P<type>.)",
    re.DOTALL,
)
# The code of struct for each type of C, by that of Python's % operator. An argument is at a
# multiple of its size.
_CODES = dict.fromkeys("di", "i") | dict.fromkeys("uoxXc", "I") | dict.fromkeys("eEfFgGaA", "d")
_CODES |= dict.fromkeys("sp", "Q")
# Of an address, relative to the nearest buffer, for messages.
PLACES = {
    "nowhere": "at address {address:#x}, in no buffer",
    "before": "at {offset} bytes before {name}",
    "end": "just past the end of {name} ({size} bytes)",
    "past": "at {offset} bytes past the end of {name} ({size} bytes)",
    "in": "at byte {offset} of {name} ({size} bytes)",
}
_MAGIC = b"worklog "
_ENCODING = struct.Struct("<8sQQ104x")
MAP_SIZE = _ENCODING.size  # bytes of a CUtensorMap
# As in core.h, the innermost dimension first. strides: in bytes. item: bytes of an element. counts:
# elements of a box.
LAYOUT = np.dtype([
    *((name, "i4") for name in ("dimensions", "item", "swizzle", "nan")),
    *((name, "i8", 5) for name in ("shape", "strides", "counts", "steps")),
])  # fmt: skip
# The layouts of this process's tensor maps, with their numbers, which are in a map's bytes.
LAYOUTS: dict[bytes, int] = {}


@dataclass(frozen=True)
class Pointer:
    """A buffer argument."""

    data: (
        Array | None
    )  # contiguous, and written in place; None stands for `size` bytes of unknown values
    size: int  # bytes
    name: str = ""
    skew: int = 0  # bytes from the last 256-byte boundary, as in a view into a larger buffer


@dataclass(frozen=True)
class AllocatedBuffer:
    """Memory of a launch."""

    name: str  # for messages
    base: int  # the address
    size: int
    data: Array | None  # the bytes as uint8, or None
    writable: bool = True
    read: Array | None = None  # whether a load read each byte; None: not recorded


def require_memory(needed: int, purpose: str, advice: str) -> None:
    """Raise TooLarge if the system reports less free memory than is needed.

    needed: bytes
    purpose: what needs them, for the message
    advice: what to do about it
    """
    free = _free_memory() if needed > SMALL else None
    if free is not None and needed > free:
        raise TooLarge(
            f"{purpose} needs about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are "
            f"free: {advice}"
        )


def _free_memory() -> int | None:
    """Return the bytes that are free; None if the system doesn't report that."""
    system = Path("/proc/meminfo")
    if not system.exists():
        return None
    available = re.search(r"MemAvailable:\s*(\d+)", system.read_text())
    return int(available[1]) * 1024 if available else None


def zeros(count: int, dtype: DTypeLike, purpose: str, advice: str) -> Array:
    """Return an array of zeros, whose memory is taken when it is written.

    purpose, advice: as for require_memory
    Raises TooLarge.
    """
    needed = count * np.dtype(dtype).itemsize
    require_memory(needed, purpose, advice)
    try:
        return np.zeros(count, dtype)
    except (MemoryError, ValueError) as error:  # of a process whose memory is limited; of any
        raise TooLarge(
            f"{purpose} needs about {needed / 2**20:,.0f} MiB, and this process can't allocate "
            f"them: {advice}"
        ) from error


def address_of(array: Array) -> int:
    """Return where an array's elements lie."""
    # Of an array of records it takes longer: the interface describes each field.
    address: int = array.__array_interface__["data"][0]
    return address


class GlobalMemory:
    """All buffers of one launch, and the text that its threads print."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.checked: set[int] = set()  # bases of the buffers in which races are detected
        self.buffers: list[AllocatedBuffer] = []
        self.printed = ""  # by one thread after the other; a GPU may have another order
        self.silent = 0  # calls of printf after the first PRINTED lines

    def at(self, address: int) -> AllocatedBuffer | None:
        """Return the buffer that a global address is in, or None."""
        for buffer in self.buffers:
            if buffer.base <= address < buffer.base + buffer.size:
                return buffer
        return None

    def name(self, address: int) -> str:
        """Return an address for messages: relative to the nearest buffer."""

        def distance(buffer: AllocatedBuffer) -> int:
            return max(buffer.base - address, address - buffer.base - buffer.size, 0)

        nearest = min(self.buffers, key=distance, default=None)
        if nearest is None or abs(address - nearest.base) > SPACING // 2:
            return PLACES["nowhere"].format(address=address)
        offset = address - nearest.base
        place = "in"
        if offset < 0:
            place = "before"
            offset = -offset
        elif offset == nearest.size:
            place = "end"
        elif offset > nearest.size:
            place = "past"
            offset -= nearest.size
        return PLACES[place].format(offset=offset, name=nearest.name, size=nearest.size)

    def bytes_at(self, address: int, local: bytes) -> bytes:
        """Return up to MOST_CHARACTERS bytes from a generic address.

        None outside of every memory.
        """
        if address >> 60 == LOCAL_WINDOW:
            return local[address & (1 << 60) - 1 :][:MOST_CHARACTERS]
        buffer = self.at(address)
        if buffer is None or buffer.data is None:
            return b""
        return bytes(buffer.data[address - buffer.base :][:MOST_CHARACTERS])

    def text(self, address: int, local: bytes = b"") -> str:
        """Return the string at a generic address, up to its NUL."""
        return self.bytes_at(address, local).partition(b"\0")[0].decode(errors="replace")

    def vprintf(self, text: int, arguments: int, local: bytes) -> int:
        """Print for one thread, and return the number of arguments.

        CUDA C++ Programming Guide, "Formatted Output".

        text, arguments: the addresses of the format and of the arguments
        local: the thread's local memory
        Raises TooLarge for a number that is printed with more than WIDEST characters.
        """
        form = self.text(text, local)
        values = _Arguments(self.bytes_at(arguments, local))

        def formatted(specifier: re.Match[str]) -> str:
            return self._formatted(specifier, values, local)

        if self.printed.count("\n") < PRINTED and len(self.printed) < MOST_CHARACTERS:
            self.printed += _SPECIFIER.sub(formatted, form)
        else:
            self.silent += 1
        count = 0
        for specifier in _SPECIFIER.finditer(form):
            count += specifier[0].count("*")
            if specifier["type"] != "%":
                count += 1
        return count

    def _formatted(self, specifier: re.Match[str], values: _Arguments, local: bytes) -> str:
        """Return an argument as printf prints it. Raises TooLarge.

        values: the arguments that are left
        """
        kind = specifier["type"]
        if kind not in _CODES:  # a specifier that C doesn't have stays as it is
            return "%" if kind == "%" else specifier[0]
        flags, width, precision = specifier.group("flags", "width", "precision")
        if width == "*":
            stated = values.take("i")
            width = str(abs(stated))
            flags += "-" if stated < 0 else ""
        if precision == ".*":
            stated = values.take("i")
            precision = f".{stated}" if stated >= 0 else ""  # as if there were none
        for digits in (width, precision):
            number = digits.lstrip(".0")
            if len(number) > len(str(WIDEST)) or int(number or 0) > WIDEST:
                raise TooLarge(
                    f"printf prints {specifier[0]!r} with {number} characters: use at most "
                    f"{WIDEST:,}"
                )
        code = _CODES[kind]
        if specifier["wide"]:
            code = code.replace("i", "q").replace("I", "Q")
        value = values.take(code)
        if kind == "s":
            value = self.text(value, local)
        elif kind == "c":
            value = chr(value & 0xFF)
        elif kind in "aAp":
            value = _hexadecimal(kind, value)
            kind = "s"
        return str(f"%{flags}{width}{precision}{kind}" % value)

    def lines(self) -> tuple[str, ...]:
        """Return the printed lines, and a line with the number of further calls."""
        lines = self.printed.splitlines()
        if self.silent:
            lines.append(f"… and {self.silent} more calls of printf")
        return tuple(lines)


class _Arguments:
    """The arguments of a vprintf, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0  # the byte after the last argument

    def take(self, code: str) -> Any:
        """Return the next argument. An argument is at a multiple of its size.

        code: of struct, for its type
        """
        size = struct.calcsize(code)
        start = -(-self.place // size) * size
        self.place = start + size
        data = self.data[start : self.place].ljust(size, b"\0")
        return struct.unpack(f"<{code}", data)[0]


def _hexadecimal(kind: str, value: Any) -> str:
    """Return a number as %a, %A or %p prints it."""
    if kind == "p":
        return f"{value:#x}"
    digits: str = value.hex()
    return digits if kind == "a" else digits.upper()


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel: a tensor in global memory, and the box of it that one copy moves.

    See tensor_map().
    """

    pointer: Pointer
    layout: bytes  # of a LAYOUT

    def encoded(self, address: int) -> bytes:
        """Return the parameter's bytes for a tensor at this address."""
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
    """Return an argument for a parameter `const __grid_constant__ CUtensorMap`.

    As cuTensorMapEncodeTiled would make it. All sequences begin with the innermost dimension.

    data: a contiguous array, or a Pointer to an array, whose elements have `item` bytes
    box: elements per copy, up to 256 per dimension
    shape: elements of the tensor (default: the array's)
    strides: bytes from an element to the next in dimensions 1 and up (default: of a contiguous
        tensor)
    steps: element strides
    swizzle: 0, 32, 64 or 128, which the innermost dimension of the box must have in bytes
    nan: elements outside of the tensor become NaN (of 2, 4 or 8 bytes), not zero
    Interleaved layouts and im2col aren't emulated. Raises BadLaunch if cuTensorMapEncodeTiled
    returns an error.
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
            n % 16 == 0 and 0 <= n < 2**40 for n in strides
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
