"""What a kernel prints: vprintf's format strings and argument buffers as text (CUDA C++ Programming Guide, "Formatted
Output").
"""

from __future__ import annotations

import re
import struct
from typing import Any

from worklog.emulator.globalmem import GlobalMemory

LOCAL_WINDOW = 2  # bits 60 and up of generic addresses: see worklog.emulator.ops
PRINTED = 20  # lines of a launch that are kept
_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.\*|\.\d*|)(?:hh?|(?P<wide>ll?|[jzt])|L|)(?P<type>.)",
    re.DOTALL,
)
# The code of struct for each type of C, by that of Python's % operator. An argument is at a multiple of its size.
_CODES = dict.fromkeys("di", "i") | dict.fromkeys("uoxXc", "I") | dict.fromkeys("eEfFgGaA", "d")
_CODES |= dict.fromkeys("sp", "Q")


class Printed:
    """The lines that the threads of a launch print, thread by thread: a GPU may take another order."""

    def __init__(self, memory: GlobalMemory) -> None:
        self.memory = memory
        self.written: list[str] = []
        self.more = 0

    def lines(self) -> tuple[str, ...]:
        """At most PRINTED of them, and a line that says how many more calls printed."""
        more = f"… and {self.more} more calls of printf"
        return (*"".join(self.written).splitlines(), *([more] if self.more else ()))

    def one(self, text: int, arguments: int, local: bytes) -> int:
        """vprintf of one thread, by the addresses of the format and of the arguments: their number. local: its local
        memory.
        """
        form = self.text(text, local)
        if sum(line.count("\n") for line in self.written) < PRINTED:
            self.written.append(self.filled(form, self.bytes_at(arguments, local), local))
        else:
            self.more += 1
        return sum((found["type"] != "%") + found[0].count("*") for found in _SPECIFIER.finditer(form))

    def filled(self, form: str, data: bytes, local: bytes) -> str:
        """A format with the values of its arguments; a specifier that C doesn't have stays as it is."""
        place = 0

        def take(code: str) -> Any:
            nonlocal place
            size = struct.calcsize(code)
            start = -(-place // size) * size
            place = start + size
            return struct.unpack(f"<{code}", data[start:place].ljust(size, b"\0"))[0]

        def shown(found: re.Match[str]) -> str:
            kind = found["type"]
            if kind not in _CODES:
                return "%" if kind == "%" else found[0]
            form = "".join(str(take("i")) if part == "*" else part for part in found.group("flags", "width"))
            form += f".{take('i')}" if found["precision"] == ".*" else found["precision"]
            value = take(_CODES[kind].replace("i", "q").replace("I", "Q") if found["wide"] else _CODES[kind])
            if kind == "s":
                value = self.text(value, local)
            elif kind in "aA":
                kind, value = "s", value.hex() if kind == "a" else value.hex().upper()
            elif kind == "p":
                kind, value = "s", f"{value:#x}"
            elif kind == "c":
                value = chr(value & 0xFF)
            return str(f"%{form}{kind}" % value)

        return _SPECIFIER.sub(shown, form)

    def text(self, address: int, local: bytes) -> str:
        """The string at a generic address, up to its NUL."""
        return self.bytes_at(address, local).partition(b"\0")[0].decode(errors="replace")

    def bytes_at(self, address: int, local: bytes) -> bytes:
        """The bytes from a generic address to the end of its memory; none outside of every memory."""
        if address >> 60 == LOCAL_WINDOW:
            return local[address & (1 << 60) - 1 :]
        buffer = self.memory.at(address)
        if buffer is None or buffer.data is None:
            return b""
        return bytes(buffer.data[address - buffer.base : buffer.size])
