"""An access site is one memory instruction of the kernel: what it accesses, from which source line, and its counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from worklog.emulator.assembled import Group, merged_accesses
from worklog.emulator.codegen import unsupported
from worklog.emulator.flow import Flow
from worklog.emulator.ptx import DTYPES, Instruction, Kernel, Mem, Variable, size_of

SPACES = ("global", "shared", "local", "const")


@dataclass
class Site:
    """op: "ld", "st", "atom" or "cp" (a cp.async's shared side). A lane accesses `count` elements of `size` bytes.

    array: the shared array that the address belongs to, if known. groups: the wide accesses that ptxas may make it part
    of. caller: as an instruction's. requests, sectors, waves, conflicts and bytes add up over the launch.
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
    array: Variable | None = None
    groups: tuple[Group, ...] = ()
    caller: int = 0
    requests: int = 0
    sectors: int = 0
    waves: int = 0
    conflicts: int = 0
    bytes: int = 0
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """For messages: where the function that contains the line was called; empty for the kernel itself."""
        return f", called in line {self.caller}" if self.caller else ""

    @property
    def width(self) -> int:
        """Bytes that one lane accesses."""
        return self.size * self.count

    @property
    def writes(self) -> bool:
        """Whether it changes memory."""
        return self.op != "ld"

    @property
    def verb(self) -> str:
        """For messages."""
        return "writes" if self.writes else "reads"

    def reset(self) -> None:
        """Forget the counts of earlier launches."""
        self.requests = self.sectors = self.waves = self.conflicts = self.bytes = 0
        for name in ("traffic", "source"):
            self.memo.pop(name, None)


def build_sites(kernel: Kernel, flow: Flow) -> dict[int, Site]:
    """The site of each instruction that accesses memory, by pc."""
    groups = merged_accesses(kernel, flow.blocks)
    return {
        i.pc: _site(i, flow.symbols.get(i.pc), groups.get(i.pc, ()))
        for i in kernel.instructions
        if (i.parts[0] in ("ld", "st", "atom", "red") and "param" not in i.parts)
        or (i.parts[:2] == ("cp", "async") and len(i.operands) > 2)
    }


def _site(i: Instruction, array: Variable | None, groups: tuple[Group, ...]) -> Site:
    op = "atom" if i.parts[0] == "red" else i.parts[0]
    address = next((operand for operand in i.operands if isinstance(operand, Mem)), None)
    if address is None:
        raise unsupported(i, "it has no address")
    if op == "cp":
        size, count, dtype, space = 4, int(getattr(i.operands[2], "value", 0)) // 4, "u4", "shared"
        if count not in (1, 2, 4):
            raise unsupported(i, "cp.async copies 4, 8 or 16 bytes")
    else:
        type_ = i.parts[-1]
        if type_ not in DTYPES or type_ == "pred":
            raise unsupported(i, f"the emulator doesn't support accesses of type .{type_}")
        size, dtype = size_of(type_), DTYPES[type_]
        count = next((int(part[1]) for part in i.parts if part in ("v2", "v4")), 1)
        named = (part.split("::")[0] for part in i.parts)
        space = next((part for part in named if part in SPACES), "generic")
    return Site(i.pc, i.line, i.text, op, space, dtype, size, count, address.offset, array, groups, i.caller)
