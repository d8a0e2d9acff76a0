"""Global and constant memory.

A buffer without data stands for one whose values do not matter: loads give zeros, stores are dropped, and the traffic
is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from worklog.emulator.findings import Batch
from worklog.emulator.flow import origins
from worklog.emulator.ptx import Array, Instruction, Kernel, Mem, Reg, Sym

FIRST_ADDRESS, FIRST_VARIABLE = 1 << 40, 1 << 50
SPACING = 1 << 40
LOADED = "loaded pointer"


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


class GlobalMemory:
    """All buffers of one launch. checked: bases of those in which races are looked for."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.checked: set[int] = set()
        self.buffers: list[Buffer] = []

    def at(self, address: int) -> Buffer | None:
        """The buffer that a global address is in."""
        return next((b for b in self.buffers if b.base <= address < b.base + b.size), None)

    def name(self, address: int) -> str:
        """An address for messages: relative to the nearest buffer."""
        near = min(self.buffers, key=lambda b: max(b.base - address, address - b.base - b.size, 0), default=None)
        if near is None or abs(address - near.base) > SPACING // 2:
            return f"at address {address:#x}, in no buffer"
        offset = address - near.base
        if offset < 0:
            return f"{-offset} bytes before {near.name}"
        if offset >= near.size:
            past = f"{offset - near.size} bytes past" if offset > near.size else "just past"
            return f"{past} the end of {near.name} ({near.size} bytes)"
        return f"at byte {offset} of {near.name} ({near.size} bytes)"


@lru_cache(maxsize=64)
def written(kernel: Kernel) -> frozenset[str] | None:
    """The parameters and variables through which a kernel may write to global memory; None: through any."""

    def own(i: Instruction) -> tuple[set[str], bool]:
        if i.loads:
            return {LOADED} if i.parts[-1][1:] == "64" else set(), False
        named = (operand.base if isinstance(operand, Mem) else operand for operand in i.operands)
        return {symbol.name for symbol in named if isinstance(symbol, Sym)}, True

    known = origins(kernel.instructions, own)
    pointers = {v.name for v in kernel.variables} | {param.name for param in kernel.params if param.size == 8}
    out = set[str]()
    for i in kernel.instructions:
        elsewhere = {"shared", "local", "param", "sync"}
        if i.row.memory not in ("st", "atom") or not elsewhere.isdisjoint(i.parts):
            continue
        for base in (operand.base for operand in i.operands if isinstance(operand, Mem)):
            found = known.get(base.name, set()) if isinstance(base, Reg) else {base.name} if base else set()
            if LOADED in found or found.isdisjoint(pointers):
                return None
            out |= found & pointers
    return frozenset(out)
