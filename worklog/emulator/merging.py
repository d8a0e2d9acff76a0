"""Which shared-memory accesses the assembler joins into one of 8 or 16 bytes.

PTX does not show it, and it decides how many wavefronts an access costs. The rules were found by assembling small
kernels for sm_75 to sm_120 and reading the machine code; a test holds them to every rung's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from worklog.emulator.ptx import Imm, Instruction, Kernel, Mem, Reg, size_of

WIDE, HALF, WORD = 16, 8, 4
PARTING = ("st", "atom", "red", "cp", "bar", "barrier", "membar", "fence")
PLAIN = {"ld", "st", "shared", "shared::cta", "weak", "v2"}


@dataclass(frozen=True)
class Group:
    """A wide access that an access is part of. leads: it stands for all of it, the others cost nothing. offset: of the
    group's start, from the access' own base register. width: bytes.

    Whether the start is a multiple of the width is known only when the address is; who counts must look.
    """

    leads: bool
    offset: int
    width: int


Groups = dict[int, tuple[Group, ...]]


@dataclass(frozen=True)
class _Part:
    """One access: bytes from `start` on, counted from the register that its base comes from; base: what was added to
    that register until then.
    """

    pc: int
    start: int
    width: int
    base: int


def merged(kernel: Kernel, start: int, stop: int) -> Groups:
    """The groups of each access among the instructions start ... stop of one block, the widest first.

    Loads off one base are joined unless a store to shared memory or a barrier parts them: an aligned group of 16 bytes
    of which three or four words are read, else an aligned pair of words. Stores are joined when all four words, or two,
    are written with no other access to shared memory between them.
    """
    out: Groups = {}
    bases = _Bases()
    loads: dict[str, list[_Part]] = defaultdict(list)
    stores: dict[str, list[_Part]] = defaultdict(list)
    for instruction in kernel.instructions[start:stop]:
        name, part = instruction.parts[0], bases.part(instruction)
        shared = name in ("ld", *PARTING) and "global" not in instruction.parts and "local" not in instruction.parts
        if shared and (name != "st" or part is None or part[0] not in stores):
            out.update(_joined(stores.values(), 4))
            stores.clear()
        if shared and name in PARTING:
            out.update(_joined(loads.values(), 3))
            loads.clear()
        if part is not None:
            (loads if name == "ld" else stores)[part[0]].append(part[1])
        bases.step(instruction)
    out.update(_joined(stores.values(), 4))
    out.update(_joined(loads.values(), 3))
    return out


class _Bases:
    """Registers as another register's earlier value plus a number, followed through one block."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[str, int]] = {}
        self.versions: Counter[str] = Counter()

    def of(self, name: str) -> tuple[str, int]:
        return self.values.get(name, (f"{name} {self.versions[name]}", 0))

    def part(self, instruction: Instruction) -> tuple[str, _Part] | None:
        """A plain access of 4 or 8 bytes a lane, and the name of what its base comes from."""
        parts = set(instruction.op.split(".")[:-1])
        if instruction.parts[0] not in ("ld", "st") or "shared" not in instruction.parts or parts - PLAIN:
            return None
        width = size_of(instruction.parts[-1]) * (2 if "v2" in parts else 1)
        address = next((operand for operand in instruction.operands if isinstance(operand, Mem)), None)
        if instruction.guard or address is None or width not in (WORD, HALF) or size_of(instruction.parts[-1]) < WORD:
            return None
        root, base = self.of(address.base.name) if address.base else ("", 0)
        return root, _Part(instruction.pc, base + address.offset, width, base)

    def step(self, instruction: Instruction) -> None:
        """What the instruction does to the register that it writes."""
        target = instruction.operands[0] if instruction.operands else None
        if not isinstance(target, Reg) or instruction.parts[0] in ("st", "red", "bra"):
            return
        value = None
        if instruction.parts[0] in ("add", "sub") and not instruction.guard:
            _, base, number = instruction.operands
            if isinstance(base, Reg) and isinstance(number, Imm) and number.kind == "int":
                root, before = self.of(base.name)
                sign = 1 if instruction.parts[0] == "add" else -1
                value = root, before + sign * int(number.value)
        self.versions[target.name] += 1
        self.values.pop(target.name, None)
        if value is not None:
            self.values[target.name] = value


def _joined(accesses: Iterable[list[_Part]], enough: int) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """enough: words of an aligned group of four that make it one access."""
    for parts in accesses:
        by_start: dict[int, list[_Part]] = defaultdict(list)
        for part in parts:
            by_start[part.start // WIDE].append(part)
        for number, members in by_start.items():
            wide = _group(members, number * WIDE, WIDE, enough)
            pairs = [
                _group([p for p in members if p.start // HALF == half], half * HALF, HALF, 2)
                for half in (2 * number, 2 * number + 1)
            ]
            for part in members:
                found = [group[part.pc] for group in (wide, *pairs) if part.pc in group]
                if found:
                    yield part.pc, tuple(found)


def _group(members: list[_Part], start: int, width: int, enough: int) -> dict[int, Group]:
    """Each member's view of one wide access; nothing where too few words are touched, or a single access is it
    already.
    """
    words = {start_ for part in members for start_ in range(part.start, part.start + part.width, WORD)}
    if len(words) < enough or len(members) < 2:
        return {}
    return {p.pc: Group(p.pc == members[0].pc, start - p.base, width) for p in members}


def widths(code: Sequence[Instruction], groups: Groups) -> Counter[str]:
    """Static counts of the shared loads and stores that the assembler should make of some instructions, by the names of
    worklog.kernel.cubin.shared_widths.
    """
    found: Counter[str] = Counter()
    for instruction in code:
        name = instruction.parts[0]
        if name not in ("ld", "st") or "shared" not in instruction.parts:
            continue
        if groups.get(instruction.pc):
            group = groups[instruction.pc][0]
            width = group.width if group.leads else 0
        else:
            count = next((int(part[1]) for part in instruction.parts if part in ("v2", "v4")), 1)
            width = size_of(instruction.parts[-1]) * count
        if width:
            found[f"{name.upper()}S.{8 * width if width >= WORD else 'narrow'}"] += 1
    return found
