"""Decodes a kernel for the core: records of its instructions and access sites, and the register file that a warp starts
with. What the core does not have is refused where it would run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from worklog.emulator import isa
from worklog.emulator.core import decode_async, decode_blocks, decode_forms, decode_order, decode_tensor, decode_warp
from worklog.emulator.core.ops import OPS
from worklog.emulator.core.records import INSTRUCTION, SITE, enum
from worklog.emulator.flow import branch_target
from worklog.emulator.program import Program, Site
from worklog.emulator.ptx import (
    DTYPES,
    TIMES,
    UNEXPECTED,
    Array,
    Imm,
    Instruction,
    Mem,
    Operand,
    Reg,
    Special,
    Sym,
    UnsupportedInstruction,
    Vec,
)

LANES, SLOT, NONE, SCRATCH = 32, 128, -1, 6
CACHES = {"ca", "cg", "cs", "lu", "cv", "wb", "wt"}  # and the words that name a cache, but not a hint
CACHES |= {word for word in isa.MODIFIERS if word[:2] in ("L1", "L2")} - {"L2::cache_hint"}
ALU, ACCESS, BRANCH, EXIT, _, PACK, UNPACK, SHUFFLE, WARP = range(9)
REFUSED = enum("kind")["REFUSED"]
ATOMICS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3, "generic": 4}
LOCAL = "the emulator doesn't support atomics on local memory"
SPECIALS = ("%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%laneid", "%warpid")


class Decoded(NamedTuple):
    """A program for the core. image: of a register file. params: offset there; name, byte and dtype of the parameter,
    and bytes of the register that it is extended to. lists: what instructions have beyond their records. scratch:
    offset of registers of no instruction. refused: by pc, what is said where an instruction runs.
    """

    code: Array
    sites: Array
    owners: tuple[Site, ...]
    image: Array
    specials: Array
    params: tuple[tuple[int, str, int, str, int], ...]
    lists: Array
    scratch: int
    refused: dict[int, str]


def width_of(type_: str) -> int:
    """Bytes of a register of a PTX type, 0 for a predicate."""
    return 0 if type_ == "pred" else np.dtype(isa.register_dtype(type_)).itemsize


class Decoder:
    """Makes the records of a program. A register has a slot while it is live."""

    def __init__(self, program: Program) -> None:
        self.program, self.code = program, program.kernel.instructions
        self.constants: dict[tuple[bytes, str], int] = {}
        self.params: dict[tuple[str, int, str, int], int] = {}
        self.specials: dict[str, int] = {}
        self.end = 0
        self.values: list[tuple[int, Array]] = []
        self.lists: list[Any] = []
        self.steps: list[dict[str, Any]] = []  # of instructions that are several
        self.carried: tuple[int, Place] | None = None  # the block of code that set the carry, and its place
        self.refused: dict[int, str] = {}
        self.generic: list[int] = []  # sites that may access several memories

    def decoded(self) -> Decoded:
        """The whole program."""
        flow = self.program.flow
        starts = {block.start: block.index for block in flow.blocks}
        self.polling = {flow.blocks[head].start for head in flow.polling}
        known = [*self.program.sites.values()]
        numbers = {site.pc: number for number, site in enumerate(known)}
        owners = (*known, *decode_tensor.memories(known, numbers))
        self.sources = {site.pc: len(owners) + k for k, site in enumerate(site for site in known if site.source)}
        owners += tuple(site.source for site in known if site.source)
        sites = np.zeros(len(owners), SITE)
        # Constants come first, so the registers' offsets follow when all are known.
        self.registers = self._allocate()
        rows = [self._row(i, numbers, sites) for i in self.code]
        rows.append({"kind": EXIT})  # for code that has no end
        base = self.end
        block_of = [block.index for block in self.program.flow.blocks for _ in range(block.start, block.stop)]
        meetings: dict[str, int] = {}
        records = np.zeros(len(rows) + len(self.steps), INSTRUCTION)
        for name in ("guard", "d", "a", "b", "c", "site", "target", "block"):
            records[name] = NONE
        for pc, row in enumerate([*rows, *self.steps]):
            if pc >= len(self.code):
                pass
            elif row["kind"] == BRANCH:
                row["op"] = block_of[pc]
            elif isa.is_meeting(i := self.code[pc]) and pc not in self.refused:
                row["meets"] = -1 if "aligned" in i.parts else meetings.setdefault(i.op, len(meetings) + 1)
            for name, value in row.items():
                records[pc][name] = base + value.place if isinstance(value, Place) else value
            records[pc]["block"] = starts.get(pc, NONE)
        for site, results, values in self.site_values:
            sites[site]["results"] = [base + place.place if isinstance(place, Place) else place for place in results]
            sites[site]["values"][: len(values)] = [
                base + value.place if isinstance(value, Place) else value for value in values
            ]
        decode_async.fill_sites(self, sites, numbers, self.sources)
        first, sites = len(sites), np.concatenate([sites, np.repeat(sites[self.generic], 3)])
        for k, number in enumerate(number for number in self.generic for _ in range(3)):
            sites[first + k]["space"], sites[first + k]["array_start"] = k % 3, 0
            owners = (*owners, owners[number].at([*SPACES][k % 3]))
        lists = [base + value.place if isinstance(value, Place) else int(value) for value in self.lists]
        scratch = base + self.size
        image = np.full(scratch + SCRATCH * SLOT * bool(lists), 0xFF, np.uint8)
        for offset, lanes in self.values:
            image[offset : offset + lanes.nbytes] = lanes.view(np.uint8)
        image[base : base + self.predicates] = 0
        specials = np.array([(SPECIALS.index(name), at) for name, at in self.specials.items()], np.int32).ravel()
        params = tuple((at, *key) for key, at in self.params.items())
        return Decoded(
            records, sites, owners, image, specials, params, np.array(lists, np.int32), scratch, self.refused
        )

    # Registers.

    def _allocate(self) -> dict[str, Place]:
        """A place for each register, which others may have where it is not live."""
        spans: dict[str, list[int]] = {}
        types: dict[str, str] = {}

        def touch(name: str, pc: int) -> None:
            span = spans.setdefault(name, [pc, pc])
            span[0], span[1] = min(span[0], pc), max(span[1], pc)

        flow = self.program.flow
        for block in flow.blocks:
            for name in flow.live_in[block.index]:
                touch(name, block.start)
            for name in flow.live_out[block.index]:
                touch(name, block.stop)
        for i in self.code:
            for reg in (*isa.used(i), *isa.defined(i)):
                touch(reg.name, i.pc)
                types[reg.name] = reg.type
        predicates = [name for name in spans if types[name] == "pred"]
        places = {name: Place(SLOT * number) for number, name in enumerate(predicates)}
        self.predicates = self.size = SLOT * len(predicates)
        # By width: a lane must not share its bytes with another lane's of a wider or narrower register.
        free: dict[int, list[int]] = {1: [], 2: [], 4: [], 8: []}
        active: list[tuple[int, int, int]] = []
        for name in sorted(spans.keys() - places.keys(), key=lambda name: spans[name][0]):
            start, stop = spans[name]
            width = width_of(types[name])
            for ended in [entry for entry in active if entry[0] < start]:
                active.remove(ended)
                free[ended[1]].append(ended[2])
            if free[width]:
                place = free[width].pop()
            else:
                place, self.size = self.size, self.size + max(SLOT, LANES * width)
            active.append((stop, width, place))
            places[name] = Place(place)
        self.site_values: list[tuple[int, list[Any], list[Any]]] = []
        self.carried = (-1, Place(self.size)) if any("cc" in i.parts for i in self.code) else None
        self.registers_size = self.size = self.size + SLOT * bool(self.carried)
        return places

    def _constant(self, value: Any, dtype: str) -> int:
        lanes = np.full(LANES, value, dtype) if dtype != "?" else np.array([0xFFFFFFFF * bool(value)], np.uint32)
        key = (lanes[:1].tobytes(), f"{len(lanes)} {lanes.dtype.str}")  # a predicate's is one word
        if key not in self.constants:
            self.constants[key] = self._room(lanes.nbytes)
            self.values.append((self.constants[key], lanes))
        return self.constants[key]

    def _room(self, size: int) -> int:
        at, self.end = self.end, self.end + -(-size // SLOT) * SLOT
        return at

    def param(self, name: str, offset: int, dtype: str, width: int) -> int:
        """The place of a parameter's bytes, in a register of a width."""
        key = (name, offset, dtype, width)
        if key not in self.params:
            self.params[key] = self._room(LANES * width)
        return self.params[key]

    def temporary(self, number: int) -> Place:
        """A register for a step of an instruction."""
        self.size = max(self.size, self.registers_size + (number + 1) * 2 * SLOT)
        return Place(self.registers_size + number * 2 * SLOT)

    def series(self, steps: Sequence[dict[str, Any]]) -> int:
        """Where these steps are, after the program's instructions."""
        self.steps += steps
        return len(self.code) + 1 + len(self.steps) - len(steps)

    def carry(self, i: Instruction, sets: bool = False) -> Place:
        """The place of the carry. Raises UnsupportedInstruction where no instruction before has set it."""
        start = max(block.start for block in self.program.flow.blocks if block.start <= i.pc)
        if sets and self.carried:
            self.carried = start, self.carried[1]
        if self.carried is None or self.carried[0] != start:
            raise isa.unsupported(i)
        return self.carried[1]

    def listed(self, values: Sequence[Any]) -> int:
        """Where these are in the lists."""
        self.lists += values
        return len(self.lists) - len(values)

    def source(self, operand: Operand | None, type_: str) -> Any:
        """The place of an operand as a value of a type."""
        width, dtype = width_of(type_), DTYPES[type_].replace("i", "u")
        if isinstance(operand, Reg):
            if width_of(operand.type) != width:
                raise LookupError(operand)
            return self.registers[operand.name]
        if isinstance(operand, Imm):
            if dtype[0] == "f":
                return self._constant(float(operand.value), dtype)
            bits = int(operand.value) if operand.kind == "int" else operand.bits
            return self._constant(np.array([bits % 2**64], np.uint64).astype(dtype)[0], dtype)
        if isinstance(operand, Special) and width == 4 and operand.name not in TIMES:
            return decode_forms.special(self, operand.name)
        if isinstance(operand, Sym) and operand.name in self.program.addresses:
            return self._constant(self.program.addresses[operand.name], dtype)
        raise LookupError(operand)

    def special(self, name: str) -> int:
        """The place of a special register of the block or the thread."""
        if name not in SPECIALS:
            raise LookupError(name)
        if name not in self.specials:
            self.specials[name] = self._room(SLOT)
        return self.specials[name]

    def lanes(self, values: Array) -> int:
        """The place of a constant for each lane."""
        self.values.append((self._room(values.nbytes), np.ascontiguousarray(values)))
        return self.values[-1][0]

    # Instructions.

    def _row(self, i: Instruction, numbers: Mapping[int, int], sites: Array) -> dict[str, Any]:
        """The row of an instruction, or one that says that it isn't supported."""
        try:
            try:
                return self._instruction(i, numbers, sites)
            except UNEXPECTED as error:
                raise isa.unsupported(i) from error
        except UnsupportedInstruction as error:
            self.refused[i.pc] = str(error)
            return {"kind": REFUSED}

    def _instruction(self, i: Instruction, numbers: Mapping[int, int], sites: Array) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if i.guard:
            out |= {"guard": self.registers[i.guard[0].name], "negated": i.guard[1]}
        name = i.parts[0]
        if name == "bra":
            head = branch_target(self.program.kernel, i)
            return {**out, "kind": BRANCH, "target": head, "site": int(head in self.polling)}
        if name in isa.EXITS:
            return {**out, "kind": EXIT}
        if name in decode_blocks.DECODE and "warp" not in i.parts:
            return {**out, **decode_blocks.DECODE[name](self, i)}
        if name in ("taken", "prefetch", "prefetchu", "griddepcontrol", "nanosleep", "pmevent"):
            return {**out, "kind": ALU, "op": 0}
        if name == "ld" and "param" in i.parts and i.pc not in numbers:
            return {**out, **decode_forms.parameter(self, i)}
        if decode_async.is_own(i):
            return {**out, **decode_async.row(self, i, numbers.get(i.pc, NONE), self.sources.get(i.pc, NONE))}
        if name in decode_order.FENCES:
            return {**out, **decode_order.row(i)}
        if name in decode_tensor.NAMES:
            return {**out, **decode_tensor.row(self, i, numbers.get(i.pc, NONE), sites)}
        if i.pc in numbers:
            address = self._access(i, numbers[i.pc], sites)
            return {**out, "kind": ACCESS, "site": numbers[i.pc], "a": address}
        if i.op in ("mov.b64", "mov.b32") and any(isinstance(x, Vec) for x in i.operands):
            return {**out, **self._packed(i)}
        if isa.is_meeting(i) or name == "activemask":
            return {**out, **decode_warp.row(self, i)}
        if name == "createpolicy" and isinstance(i.operands[0], Reg) and width_of(i.operands[0].type) == 8:
            # A cache policy only reaches cache hints, which the emulator ignores.
            zero, copy = self._constant(0, "u8"), OPS["mov.b64"].number
            return {**out, "kind": ALU, "op": copy, "d": self.registers[i.operands[0].name], "a": zero}
        row = decode_forms.row(self, i)
        if row is None and "none" in isa.row_of(i).effects:
            return {**out, "kind": ALU, "op": 0}
        if row is None:
            raise isa.unsupported(i)
        return {**out, **row}

    def _packed(self, i: Instruction) -> dict[str, Any]:
        """mov of two registers to one of twice the width, or back."""
        half = "b32" if i.parts[-1] == "b64" else "b16"
        packs = isinstance(i.operands[1], Vec)
        wide, parts = i.operands if packs else i.operands[::-1]
        if not isinstance(wide, Reg) or not isinstance(parts, Vec) or len(parts.items) != 2:
            raise isa.unsupported(i)
        halves = [NONE if x is None else self.source(x, half) for x in parts.items]
        if width_of(wide.type) != 2 * width_of(half) or (packs and NONE in halves):
            raise isa.unsupported(i)
        own = self.registers[wide.name]
        pairs = {"d": own, "a": halves[0]} if packs else {"d": halves[0], "a": own}
        return {"kind": PACK if packs else UNPACK, "op": width_of(wide.type), **pairs, "c": halves[1]}

    def _access(self, i: Instruction, number: int, sites: Array) -> Any:
        """Fill a site; the place of the address."""
        site, values = self.program.sites[i.pc], list[Place | int]()
        results: list[Place | int] = [NONE] * 4
        operation = [word for word in i.parts[1:-1] if word in ATOMICS]
        atomic = site.op == "atom" and len(operation) == 1 and i.parts[-1] in isa.ATOMIC_TYPES
        words = {*i.parts[1:-1]} - isa.MODIFIERS - ({*operation, "acq_rel"} if atomic else set())
        fixed = site.op == "st" and not {"const", "param"}.isdisjoint(i.parts)
        if words or fixed or (site.op == "atom" and not atomic) or i.parts[0] not in ("ld", "st", "atom", "red"):
            raise isa.unsupported(i)
        if atomic and site.space in ("local", "generic"):
            self.refused[i.pc] = str(isa.unsupported(i, LOCAL))
        operands = [*i.operands[: -1 if "L2::cache_hint" in i.parts else None]]
        if i.parts[0] == "atom":
            target = operands.pop(0)
            for k, item in enumerate(target.items if isinstance(target, Vec) else (target,)):
                results[k] = self.registers[item.name] if isinstance(item, Reg) else NONE
        if site.op == "ld":
            operands.reverse()
        address, *given = operands
        items = [x for operand in given for x in (operand.items if isinstance(operand, Vec) else (operand,))]
        if not isinstance(address, Mem):
            raise isa.unsupported(i, "an address was expected")
        if len(items) != (2 if operation == ["cas"] else site.count):
            raise isa.unsupported(i)
        widths = {width_of(x.type) for x in items if isinstance(x, Reg)}
        narrow = any(width < site.size or (width > site.size and i.parts[-1][0] == "f") for width in widths)
        if len(widths) > 1 or narrow:
            raise isa.unsupported(i)
        width = widths.pop() if widths else max(site.size, 4)
        width = site.size if atomic and not widths else width
        if atomic and width != site.size:
            raise isa.unsupported(i)
        for item in items:
            if isinstance(item, Reg):
                values.append(self.registers[item.name])
            elif item is None and site.op == "ld":
                values.append(NONE)
            elif item is not None:
                values.append(self.source(item, f"{'f' if i.parts[-1][0] == 'f' else 'b'}{8 * width}"))
        record = sites[number]
        record["op"], record["space"] = ("ld", "st", "atom").index(site.op), SPACES[site.space]
        record["atomic"] = ATOMICS.index(operation[0]) if atomic else 0
        record["is_float"], record["strong"] = i.parts[-1][0] == "f", site.strong
        record["order"] = decode_order.bits(site)
        record["size"], record["count"], record["width"] = site.size, site.count, width
        record["is_signed"], record["offset"] = i.parts[-1][0] == "s", site.offset
        record["array_start"], record["array_size"] = site.start, site.array.size if site.array else NONE
        if site.space == "generic":
            record["array_start"], self.generic = len(sites) + 3 * len(self.generic), [*self.generic, number]
        record["groups_count"], record["read_only"] = len(site.groups), "nc" in site.parts
        for k, group in enumerate(site.groups):
            record["groups"][k] = (group.leads, group.width, group.offset)
        record["values"] = NONE
        self.site_values.append((number, results, values))
        if isinstance(address.base, Reg):
            if isa.register_dtype(address.base.type) not in ("u4", "u8"):
                raise isa.unsupported(i, f"{address.base.name} is .{address.base.type}: no address")
            record["wide"] = width_of(address.base.type) == 8
            return self.registers[address.base.name]
        record["wide"] = 1
        start = self.program.addresses[address.base.name] if address.base else 0
        return self._constant(start, "u8")


class Place(NamedTuple):
    """Of a register: bytes after the constants."""

    place: int


@cache
def decoded(program: Program) -> Decoded:
    """The program for the core."""
    return Decoder(program).decoded()
