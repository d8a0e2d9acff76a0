"""A site is one memory instruction of the kernel: what it accesses, from which source line, and what its accesses
cost so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from worklog.emulator.codegen import DTYPES, unsupported
from worklog.emulator.flow import Flow
from worklog.emulator.merging import Group
from worklog.emulator.ptx import Instruction, Kernel, Mem, Variable, size_of

SPACES = ("global", "shared", "local", "const")


@dataclass
class Site:
    """op: "ld", "st", "atom" or "cp" (a cp.async's shared side). width: bytes a lane; count of elements of `size`
    bytes.

    array: the shared array that the address belongs to, where that is known. groups: the wide accesses that ptxas may
    make it part of. caller: as an instruction's. requests, sectors, waves, conflicts and bytes add up over the run.
    """

    pc: int
    line: int
    text: str
    op: str
    space: str
    dtype: str
    size: int
    count: int
    offset: int
    array: Variable | None
    groups: tuple[Group, ...]
    caller: int = 0
    requests: int = 0
    sectors: int = 0
    waves: int = 0
    conflicts: int = 0
    bytes: int = 0
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """Words for messages: from where the function was called that the line is in; empty for the kernel itself."""
        return f", called in line {self.caller}" if self.caller else ""

    @property
    def width(self) -> int:
        """Bytes that one lane accesses."""
        return self.size * self.count

    def reset(self) -> None:
        """Forget what earlier launches cost."""
        self.requests = self.sectors = self.waves = self.conflicts = self.bytes = 0
        for name in ("traffic", "source"):
            self.memo.pop(name, None)

    @property
    def writes(self) -> bool:
        """It changes memory."""
        return self.op != "ld"


def build_sites(kernel: Kernel, flow: Flow) -> dict[int, Site]:
    """The site of each instruction that accesses memory, by pc."""
    return {
        i.pc: _site(i, flow)
        for i in kernel.instructions
        if (i.parts[0] in ("ld", "st", "atom", "red") and "param" not in i.parts) or _is_copy(i)
    }


def _is_copy(instruction: Instruction) -> bool:
    return instruction.parts[:2] == ("cp", "async") and len(instruction.operands) > 2


def _site(i: Instruction, flow: Flow) -> Site:
    op = {"red": "atom"}.get(i.parts[0], i.parts[0])
    addresses = [operand for operand in i.operands if isinstance(operand, Mem)]
    if not addresses:
        raise unsupported(i, "it has no address")
    if op == "cp":
        size, count, dtype, space = 4, int(getattr(i.operands[2], "value", 0)) // 4, "u4", "shared"
        if count not in (1, 2, 4):
            raise unsupported(i, "cp.async copies 4, 8 or 16 bytes")
    else:
        type_ = i.parts[-1]
        if type_ not in DTYPES or type_ in ("pred", "f16"):
            raise unsupported(i, f"the emulator has no accesses of type .{type_}")
        size, dtype = size_of(type_), DTYPES[type_]
        count = next((int(part[1]) for part in i.parts if part in ("v2", "v4")), 1)
        named = [part.split("::")[0] for part in i.op.split(".") if part.split("::")[0] in SPACES]
        space = named[0] if named else "generic"
    return Site(
        i.pc,
        i.line,
        i.text,
        op,
        space,
        dtype,
        size,
        count,
        addresses[0].offset,
        flow.symbols.get(i.pc),
        flow.groups.get(i.pc, ()),
        i.caller,
    )
