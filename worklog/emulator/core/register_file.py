"""The register file that a warp starts with: a place for each register while it is live, constants, parameters, and
special registers.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush

import numpy as np

from worklog.emulator.program import Program
from worklog.emulator.ptx import CONSTANT, TIMES, Array, Imm, Operand, Reg, Special, Sym, width_of

LANES, SLOT = 32, 128
# As in turns.h.
SPECIALS = (
    *(f"%{name}.{axis}" for name in ("tid", "ctaid", "cluster_ctaid", "clusterid") for axis in "xyz"),
    "%laneid", "%warpid", "%cluster_ctarank",
)  # fmt: skip
# Special registers that are the same in all launches: one value, or one by lane.
LANE = np.arange(LANES)
FIXED = {
    "WARP_SZ": 32, "%laneid": LANE, "%lanemask_eq": 1 << LANE, "%lanemask_lt": (1 << LANE) - 1,
    "%lanemask_le": (2 << LANE) - 1, "%lanemask_gt": -(2 << LANE), "%lanemask_ge": -(1 << LANE),
}  # fmt: skip
# With those in CONSTANT: the same for all threads of a launch.
LAUNCHED = ("%ntid", "%nctaid", "%nwarpid", "%cluster_ncta", "%nclusterid", "%is_explicit")


class RegisterFile:
    """Offsets in a warp's register file. The core writes what depends on the block and the thread (specials), and on
    the launch (params: name, byte and dtype of the parameter, and bytes of the register that it is extended to).
    """

    def __init__(self, program: Program) -> None:
        self.program, self.size = program, 0
        self.constants: dict[bytes, int] = {}
        self.params: dict[tuple[str, int, str, int], int] = {}
        self.specials: dict[str, int] = {}
        self.temporaries: list[int] = []
        self.registers = self.allocate()

    def started(self) -> Array:
        """Its bytes before the first instruction."""
        out = np.full(self.size, 0xFF, np.uint8)
        out[: self.predicates] = 0
        for data, offset in self.constants.items():
            out[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        return out

    def room(self, size: int) -> int:
        """The offset of new bytes."""
        at, self.size = self.size, self.size + -(-size // SLOT) * SLOT
        return at

    def allocate(self) -> dict[str, int]:
        """A place for each register, which others may have where it is not live."""
        spans: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        types = self.types

        def touch(name: str, pc: int) -> None:
            span = spans.setdefault(name, [pc, pc])
            span[0], span[1] = min(span[0], pc), max(span[1], pc)

        flow = self.program.flow
        for block in flow.blocks:
            for name in flow.live_in[block.index]:
                touch(name, block.start)
            for name in flow.live_out[block.index]:
                touch(name, block.stop)
        for i in self.program.kernel.instructions:
            for reg in (*i.used, *i.defined):
                touch(reg.name, i.pc)
                types[reg.name] = reg.type
        predicates = [name for name in spans if types[name] == "pred"]
        places = {name: SLOT * number for number, name in enumerate(predicates)}
        self.room(SLOT * len(predicates))
        self.predicates = self.size
        # By width: a lane must not share its bytes with another lane's of a wider or narrower register.
        free: dict[int, list[int]] = defaultdict(list)
        active: list[tuple[int, int, int]] = []
        for name in sorted(spans.keys() - places.keys(), key=lambda name: (spans[name], name)):
            start, stop = spans[name]
            while active and active[0][0] < start:
                _, width, place = heappop(active)
                free[width].append(place)
            width = width_of(types[name])
            places[name] = free[width].pop() if free[width] else self.room(LANES * width)
            heappush(active, (stop, width, places[name]))
        return places

    def constant(self, lane: bytes, lanes: int = LANES) -> int:
        """The place of bytes that each lane has."""
        data = lane * lanes
        if data not in self.constants:
            self.constants[data] = self.room(len(data))
        return self.constants[data]

    def param(self, name: str, offset: int, dtype: str, width: int) -> int:
        """The place of a parameter's bytes, in a register of a width."""
        key = (name, offset, dtype, width)
        if key not in self.params:
            self.params[key] = self.room(LANES * width)
        return self.params[key]

    def special(self, name: str) -> int:
        """The place of a special register of 32 bits."""
        if name in FIXED:
            return self.constant(np.broadcast_to(np.asarray(FIXED[name]).astype(np.uint32), LANES).tobytes(), 1)
        if name in CONSTANT or name.startswith(LAUNCHED):
            return self.param(name, 0, "u4", 4)
        if name not in SPECIALS:
            raise LookupError(name)
        if name not in self.specials:
            self.specials[name] = self.room(SLOT)
        return self.specials[name]

    def temporary(self, number: int) -> int:
        """A register for a step of an instruction."""
        if number == len(self.temporaries):
            self.temporaries.append(self.room(2 * SLOT))
        return self.temporaries[number]

    def source(self, operand: Operand | None, type_: str) -> int:
        """The place of an operand as a value of a type. Raises LookupError."""
        width = width_of(type_)
        if isinstance(operand, Reg) and width_of(operand.type) == width:
            return self.registers[operand.name]
        if isinstance(operand, Special) and width == 4 and operand.name not in TIMES:
            return self.special(operand.name)
        if isinstance(operand, Sym):
            operand = Imm(self.program.addresses[operand.name], 0, "int")
        if not isinstance(operand, Imm):
            raise LookupError(operand)
        if type_ in ("f32", "f64"):
            return self.constant(np.array(float(operand.value), f"f{width}").tobytes())
        bits = int(operand.value) if operand.kind == "int" else operand.bits
        if type_ == "pred":
            return self.constant(bytes(4) if bits == 0 else b"\xff" * 4, 1)
        return self.constant((bits % 2 ** (8 * width)).to_bytes(width, "little"))
