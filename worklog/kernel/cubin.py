"""What a cubin tells of its shared-memory instructions, read from its bytes: how many there are, and how wide.

PTX does not show it, because the assembler joins neighbouring accesses and unrolls loops; NVIDIA's disassembler does,
and is not always there. A test compares the two. The encoding is that of sm_70 and later: 16 bytes an instruction.
"""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np

Widths = tuple[tuple[str, int], ...]

OPCODES = {0x984: "LDS", 0x388: "STS", 0x988: "STS"}  # 0x988: the address adds a uniform register
WIDTHS = {4: "32", 5: "64", 6: "128"}  # bits 73 to 75; below are the 8- and 16-bit ones
NEVER = 0xF  # the guard @!PT: assemblers leave instructions in the code that are not executed


def shared_widths(cubin: bytes, symbol: str) -> Widths:
    """Static counts of a kernel's shared loads and stores: (("LDS.128", 16), ("LDS.32", 8), ("STS.32", 2)).

    Empty if the cubin does not hold the kernel. Raises struct.error for bytes that are no 64-bit ELF file.
    """
    code = np.frombuffer(_section(cubin, f".text.{symbol}"), "<u8").reshape(-1, 2)
    operations, guards = code[:, 0] & np.uint64(0xFFF), code[:, 0] >> np.uint64(12) & np.uint64(0xF)
    widths = code[:, 1] >> np.uint64(9) & np.uint64(7)
    found: Counter[str] = Counter()
    for opcode, name in OPCODES.items():
        executed = (operations == opcode) & (guards != NEVER)
        for width, count in Counter(widths[executed].tolist()).items():
            found[f"{name}.{WIDTHS.get(width, 'narrow')}"] += count
    return tuple(sorted(found.items()))


def _section(elf: bytes, name: str) -> bytes:
    """A section's bytes by its name."""
    (headers,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)

    def header(number: int) -> tuple[int, int, int]:
        """Where its name is, its start and its length."""
        start = headers + number * size
        return struct.unpack_from("<I", elf, start)[0], *struct.unpack_from("<QQ", elf, start + 24)

    table = header(names)[1]
    for number in range(count):
        at, start, length = header(number)
        if elf[table + at : elf.index(b"\0", table + at)].decode() == name:
            return elf[start : start + length]
    return b""
