"""A kernel ready to run: where its variables lie, and the places in its code that access memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np

from worklog.emulator.assembled import Group, merged_accesses
from worklog.emulator.flow import Flow, basic_blocks
from worklog.emulator.isa import ORDERED
from worklog.emulator.memory import FIRST_VARIABLE, SPACING, require_memory, zeros
from worklog.emulator.ptx import (
    UNEXPECTED,
    Array,
    Imm,
    Instruction,
    Kernel,
    Mem,
    UnsupportedInstruction,
    Variable,
    plain_name,
    size_of,
)
from worklog.emulator.reports import INVALID, BadLaunch
from worklog.emulator.tensor import fragment
from worklog.runs.limits import LIMITS

FIRST_PARAM = 1 << 51
FIRST_FUNCTION = 1 << 50


@dataclass(frozen=True)
class Site:
    """op: "ld", "st", "atom", "cp" (a cp.async's shared side) or "wgmma". A lane accesses `count` elements of `size`
    bytes.

    array: the shared array that the address belongs to, if known; start: its address. groups: the wide accesses that
    ptxas may make it part of. source: the global side of a cp.async, a load of 32-bit words that counts as one access
    of the whole width. guess: a plain read of what a compare-and-swap compares. text, parts, caller: as an
    instruction's.
    """

    pc: int
    line: int
    text: str
    parts: tuple[str, ...]
    caller: int
    op: str
    space: str
    size: int = 4
    count: int = 4
    offset: int = 0
    array: Variable | None = None
    start: int = 0
    groups: tuple[Group, ...] = ()
    source: Site | None = None
    guess: bool = False

    def at(self, space: str) -> Site:
        """The site of its accesses to one memory: a generic address may be in several."""
        return replace(self, space=space) if self.space == "generic" else self

    @property
    def width(self) -> int:
        """Bytes that one lane accesses."""
        return self.size * self.count

    @property
    def writes(self) -> bool:
        """Whether it changes memory."""
        return self.op not in ("ld", "wgmma")

    @property
    def strong(self) -> bool:
        """Whether it races with no other strong access. PTX ISA, "Memory Consistency Model": volatile is relaxed."""
        return self.op == "atom" or not ORDERED.isdisjoint(self.parts)

    @property
    def verb(self) -> str:
        """For messages."""
        return "writes" if self.writes else "reads"

    @property
    def counted(self) -> str:
        """The field of Counts that its costs go to; none of constant loads, the shared side of a cp.async, and a
        generic site, whose costs at() keeps apart by memory.
        """
        if self.op == "atom":
            return "atomic" if self.space != "generic" else ""
        if self.op == "cp" or self.space in ("generic", "const"):
            return ""
        return (
            "local"
            if self.space == "local"
            else f"{self.space}_{'store' if self.op == 'st' else 'load'}"
        )

    @property
    def place(self) -> str:
        """The bytes of an access to shared memory, for messages of races."""
        return (
            f"the same bytes of {plain_name(self.array.name)}"
            if self.array
            else "the same shared bytes"
        )


class Program:
    """A kernel with so many bytes of dynamic shared memory, which is last. addresses: of variables; those of shared and
    local memory start at 0. shared: bytes per block; local: per thread. Raises BadLaunch.
    """

    def __init__(self, kernel: Kernel, dynamic: int) -> None:
        self.kernel = kernel
        self.flow = Flow(kernel)
        self.addresses = dict[str, int]()
        ends = {"shared": 0, "local": 0}
        self.shared = dynamic
        for variable in sorted(kernel.variables, key=lambda v: v.extern):
            if variable.space not in ends:
                self.addresses[variable.name] = FIRST_VARIABLE + len(self.addresses) * SPACING
                continue
            start = -(-ends[variable.space] // variable.align) * variable.align
            self.addresses[variable.name] = start
            if variable.extern:
                self.shared = max(self.shared, start + dynamic)
            else:
                ends[variable.space] = start + variable.size
        self.addresses |= {
            param.name: FIRST_PARAM + n * SPACING for n, param in enumerate(kernel.params)
        }
        self.addresses |= {name: FIRST_FUNCTION + pc for name, pc in kernel.functions.items()}
        self.shared, self.local = max(self.shared, ends["shared"]), ends["local"]
        limit = LIMITS.get(kernel.arch.rstrip("af"), LIMITS["sm_90"]).block_shared
        if self.shared > limit:
            what = f"{self.shared} bytes of shared memory per block are more than {kernel.arch} has ({limit})"
            raise BadLaunch(f"{INVALID}: {what}")

    @cached_property
    def sites(self) -> dict[int, Site]:
        """By pc, of each instruction that accesses memory."""
        groups = merged_accesses(self.kernel, basic_blocks(self.kernel, assembled=True))
        out = dict[int, Site]()
        for i in self.kernel.instructions:
            if i.row.memory and len(i.operands) > 1:
                try:
                    out[i.pc] = self._site(i, groups.get(i.pc, ()))
                except UNEXPECTED as error:
                    raise i.unsupported() from error
        return out

    def _site(self, i: Instruction, groups: tuple[Group, ...]) -> Site:
        places = [x.offset for x in i.operands if isinstance(x, Mem)]
        array = self.flow.arrays.get(i.pc)
        plain = partial(Site, i.pc, i.line, i.text, i.parts, i.caller)
        if "bulk" in i.parts:
            own, other = ("ld", "st") if "bulk_group" in i.parts else ("cp", "ld")
            return plain(own, "shared", source=plain(other, "global"))
        if i.parts[0] == "wgmma":
            return plain("wgmma", "shared")
        in_array = partial(plain, array=array, start=self.addresses[array.name] if array else 0)
        if i.parts[0] == "cp":
            size = i.operands[2]
            if not isinstance(size, Imm) or size.value not in (4, 8, 16) or len(places) != 2:
                raise i.unsupported("cp.async copies 4, 8 or 16 bytes")
            source = plain("ld", "global", 4, int(size.value) // 4, places[1])
            return in_array("cp", "shared", 4, source.count, places[0], source=source)
        if not places:
            raise i.unsupported("it has no address")
        op = i.row.memory
        space = i.row.space
        if i.parts[0] not in ("ldmatrix", "stmatrix", "wmma"):
            guess = i.pc in self.flow.guesses
            return in_array(
                op,
                space,
                size_of(i.parts[-1]),
                i.row.elements,
                places[0],
                groups=groups,
                guess=guess,
            )
        if i.parts[0] == "wmma" and not ((form := fragment(i)).matrices and space == "shared"):
            return in_array(op, space, form.size, form.count, places[0])
        return in_array(op, space, 4, 4, places[0])


@lru_cache(maxsize=64)
def program_of(kernel: Kernel, dynamic: int) -> Program:
    """A program, kept between launches."""
    return Program(kernel, dynamic)


def load_variables(kernel: Kernel) -> dict[str, Array]:
    """The bytes of each __device__ and __constant__ variable of the kernel's module, as loading the module sets them:
    to the initial value, else to zeros.

    Raises UnsupportedInstruction for the address of something that is not such a variable, and TooLarge.
    """
    out = dict[str, Array]()
    loaded = [variable for variable in kernel.variables if variable.space in ("global", "const")]
    needed = sum(variable.size for variable in loaded)
    what = f"loading the __device__ variables of {kernel.name}"
    advice = "make them smaller"
    require_memory(needed, what, advice)
    for variable in loaded:
        size = max(variable.size, len(variable.data))
        bytes_of = zeros(-(-size // 8) * 8, np.uint8, what, advice)
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
