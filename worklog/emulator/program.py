"""A kernel ready to run: its variables' addresses, and the places that access memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np

from worklog.emulator.assembled import Group, merged_accesses
from worklog.emulator.flow import Flow, basic_blocks
from worklog.emulator.isa import ORDERED
from worklog.emulator.limits import LIMITS
from worklog.emulator.memory import FIRST_VARIABLE, SPACING, require_memory, zeros
from worklog.emulator.ptx import (
    UNEXPECTED,
    Array,
    Imm,
    Instruction,
    Mem,
    PtxKernel,
    UnsupportedInstruction,
    Variable,
    plain_name,
    size_of,
)
from worklog.emulator.reports import INVALID, BadLaunch
from worklog.emulator.tensor import fragment

FIRST_PARAM = 1 << 51
FIRST_FUNCTION = 1 << 50


@dataclass(frozen=True)
class Site:
    """A place in the code that accesses memory.

    A lane accesses `count` elements of `size` bytes.
    """

    pc: int
    line: int
    text: str  # the instruction's, as are parts and caller
    parts: tuple[str, ...]
    caller: int
    op: str  # "ld", "st", "atom", "cp" (a cp.async's shared side) or "wgmma"
    space: str
    size: int = 4
    count: int = 4
    offset: int = 0
    array: Variable | None = None  # the shared array that the address belongs to, if known
    start: int = 0  # its address
    groups: tuple[Group, ...] = ()  # the wide accesses that ptxas may make it part of
    # The global side of a cp.async: a load of 32-bit words that counts as one access of the whole
    # width.
    source: Site | None = None
    guess: bool = False  # whether it is a plain read of what a compare-and-swap compares

    def at(self, space: str) -> Site:
        """Return the site of its accesses to one memory.

        A generic address may be in several.
        """
        return replace(self, space=space) if self.space == "generic" else self

    @property
    def width(self) -> int:
        """The bytes that one lane accesses."""
        return self.size * self.count

    @property
    def writes(self) -> bool:
        """True if it changes memory."""
        return self.op not in ("ld", "wgmma")

    @property
    def strong(self) -> bool:
        """True if it races with no other strong access.

        PTX ISA, "Memory Consistency Model": volatile is relaxed.
        """
        return self.op == "atom" or not ORDERED.isdisjoint(self.parts)

    @property
    def verb(self) -> str:
        """The verb for messages."""
        return "writes" if self.writes else "reads"

    @property
    def counted(self) -> str:
        """The field of Counts that its costs go to, or "".

        It is "" for constant loads, the shared side of a cp.async, and a generic site, whose costs
        at() keeps apart by memory.
        """
        if self.space == "generic" or self.op == "cp":
            return ""
        if self.op == "atom":
            return "atomic"
        if self.space == "const":
            return ""
        if self.space == "local":
            return "local"
        return f"{self.space}_store" if self.op == "st" else f"{self.space}_load"

    @property
    def place(self) -> str:
        """The bytes of an access to shared memory, for messages of races."""
        if self.array:
            return f"the same bytes of {plain_name(self.array.name)}"
        return "the same shared bytes"


class LoadedProgram:
    """A kernel with so many bytes of dynamic shared memory, which is last.

    addresses: of variables; those of shared and local memory start at 0
    shared: bytes per block
    local: bytes per thread
    Raises BadLaunch.
    """

    def __init__(self, kernel: PtxKernel, dynamic: int) -> None:
        self.kernel = kernel
        self.flow = Flow(kernel)
        self.addresses = dict[str, int]()
        ends = {"shared": 0, "local": 0}
        self.shared = dynamic
        for variable in sorted(kernel.variables, key=lambda variable: variable.extern):
            if variable.space not in ends:
                self.addresses[variable.name] = FIRST_VARIABLE + len(self.addresses) * SPACING
                continue
            start = -(-ends[variable.space] // variable.align) * variable.align
            self.addresses[variable.name] = start
            if variable.extern:
                self.shared = max(self.shared, start + dynamic)
            else:
                ends[variable.space] = start + variable.size
        for number, param in enumerate(kernel.params):
            self.addresses[param.name] = FIRST_PARAM + number * SPACING
        for name, pc in kernel.functions.items():
            self.addresses[name] = FIRST_FUNCTION + pc
        self.shared = max(self.shared, ends["shared"])
        self.local = ends["local"]
        limit = LIMITS.get(kernel.arch.rstrip("af"), LIMITS["sm_90"]).block_shared
        if self.shared > limit:
            raise BadLaunch(
                f"{INVALID}: {self.shared} bytes of shared memory per block are more than "
                f"{kernel.arch} has ({limit})"
            )

    @cached_property
    def most_live(self) -> int:
        """The most registers that are live at the end of a basic block."""
        return max((len(names) for names in self.flow.live_out), default=0)

    @cached_property
    def sites(self) -> dict[int, Site]:
        """The sites of the instructions that access memory, by pc."""
        groups = merged_accesses(self.kernel, basic_blocks(self.kernel, assembled=True))
        sites = dict[int, Site]()
        for instruction in self.kernel.instructions:
            if instruction.opcode.memory and len(instruction.operands) > 1:
                try:
                    sites[instruction.pc] = self._site(instruction, groups.get(instruction.pc, ()))
                except UNEXPECTED as error:
                    raise instruction.unsupported() from error
        return sites

    def _site(self, instruction: Instruction, groups: tuple[Group, ...]) -> Site:
        """Return the site of an instruction that accesses memory."""
        name = instruction.parts[0]
        site = partial(
            Site,
            instruction.pc,
            instruction.line,
            instruction.text,
            instruction.parts,
            instruction.caller,
        )
        if "bulk" in instruction.parts:
            is_store = "bulk_group" in instruction.parts
            op, source_op = ("ld", "st") if is_store else ("cp", "ld")
            return site(op, "shared", source=site(source_op, "global"))
        if name == "wgmma":
            return site("wgmma", "shared")
        array = self.flow.arrays.get(instruction.pc)
        in_array = partial(site, array=array, start=self.addresses[array.name] if array else 0)
        offsets = [operand.offset for operand in instruction.operands if isinstance(operand, Mem)]
        if name == "cp":
            source = site("ld", "global", 4, _copied_words(instruction, len(offsets)), offsets[1])
            return in_array("cp", "shared", 4, source.count, offsets[0], source=source)
        if not offsets:
            raise instruction.unsupported("it has no address")
        op = instruction.opcode.memory
        space = instruction.opcode.space
        if name not in ("ldmatrix", "stmatrix", "wmma"):
            size_of_element = size_of(instruction.parts[-1])
            elements = instruction.opcode.elements
            is_guess = instruction.pc in self.flow.guesses
            access = partial(in_array, op, space, size_of_element, elements, offsets[0])
            return access(groups=groups, guess=is_guess)
        if name == "wmma":
            form = fragment(instruction)
            if not form.matrices or space != "shared":
                return in_array(op, space, form.size, form.count, offsets[0])
        return in_array(op, space, 4, 4, offsets[0])


def _copied_words(instruction: Instruction, addresses: int) -> int:
    """Return the 32-bit words that a lane of a cp.async copies.

    addresses: how many the instruction has
    Raises UnsupportedInstruction.
    """
    size = instruction.operands[2]
    if not isinstance(size, Imm) or size.value not in (4, 8, 16) or addresses != 2:
        raise instruction.unsupported("cp.async copies 4, 8 or 16 bytes")
    return int(size.value) // 4


@lru_cache(maxsize=64)
def program_of(kernel: PtxKernel, dynamic: int) -> LoadedProgram:
    """Return a program, which is kept between launches."""
    return LoadedProgram(kernel, dynamic)


def load_variables(kernel: PtxKernel) -> dict[str, Array]:
    """Return the bytes of the variables of the kernel's module.

    Of each __device__ and __constant__ variable, as loading the module sets them: to the initial
    value, else to zeros.

    Raises UnsupportedInstruction for the address of something that isn't such a variable, and
    TooLarge.
    """
    out = dict[str, Array]()
    loaded = [variable for variable in kernel.variables if variable.space in ("global", "const")]
    needed = sum(variable.size for variable in loaded)
    purpose = f"loading the __device__ variables of {kernel.name}"
    advice = "make them smaller"
    require_memory(needed, purpose, advice)
    for variable in loaded:
        size = max(variable.size, len(variable.data))
        bytes_of = zeros(-(-size // 8) * 8, np.uint8, purpose, advice)
        bytes_of[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
        out[variable.name] = bytes_of
    for variable in kernel.variables:
        for offset, name, added in variable.symbols:
            if name not in out and name not in kernel.functions:
                raise UnsupportedInstruction(
                    f"{variable.name} holds the address of {name}, which is not a variable"
                )
            address = program_of(kernel, 0).addresses[name] + added
            out[variable.name][offset : offset + 8].view(np.uint64)[:] = address
    return out
