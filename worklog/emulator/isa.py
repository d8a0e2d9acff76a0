"""What the emulator knows of each PTX instruction besides what it computes, which worklog.emulator.core.ops has: one
row per mnemonic, from which definitions and uses, access sites, classes, meeting points and refusals follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from worklog.emulator.ptx import DTYPES, Instruction, Mem, Operand, Reg, UnsupportedInstruction, Vec
from worklog.kernel.source import demangled

UNSUPPORTED = "it: check this kernel on a GPU, or write it without this instruction"
TENSOR = "this form of a tensor-core instruction: check this kernel on a GPU"
GROUP = "this warp-group tensor-core instruction: check this kernel on a GPU"
HALF = "this instruction in 16-bit floats: compute in float, or use a GPU"
BARRIERS = "barriers other than those of a block and of a warp: use these, or a GPU"


@dataclass(frozen=True)
class Row:
    """counted: the class in Counts.instructions; "number": "float" or "integer", by its type. memory: a Site's op.
    effects: "void": it has no result (else its first operand is the result); "uses": its operands, for more than
    another value of the same lane; "parts": ptxas joins no shared accesses across it; "none" on the emulator. hint:
    what is not supported where a form is missing, and what to do.
    """

    counted: str = "other"
    memory: str = ""
    effects: str = ""
    hint: str = UNSUPPORTED


# Mnemonics, or their first two words, of all instructions but those that only compute a value and have no class.
_TABLE = (
    ("add sub mul mad div rem min max abs neg setp sqrt rcp", Row("number")),
    ("and or xor not lop3 shl shr shf bfe bfi brev popc clz prmt", Row("integer")),
    ("fma", Row("fma")),
    ("ld", Row("load", "ld", "uses")),
    ("st", Row("store", "st", "void uses parts")),
    ("atom", Row("other", "atom", "uses parts")),
    ("red", Row("other", "atom", "void uses parts")),
    ("cp.async", Row("load", "cp", "void uses parts", "this form of asynchronous copy: use plain loads, or a GPU")),
    ("cp.reduce", Row("load", "", "void uses parts", "copies that reduce: use atomics, or a GPU")),
    ("bra ret exit", Row("control", "", "void uses")),
    ("taken", Row("control", "", "void none")),
    ("bar barrier", Row("barrier", "", "void uses parts", BARRIERS)),
    ("bar.red barrier.red", Row("barrier", "", "uses parts", BARRIERS)),
    ("fence membar", Row("other", "", "void uses parts")),
    ("fence.proxy", Row("other", "", "void uses parts", "fences between proxies other than .async: use a GPU")),
    ("mbarrier", Row("other", "", "uses", "this form of mbarrier: check this kernel on a GPU")),
    ("vote redux match elect", Row("other", "", "uses")),
    ("setmaxnreg trap", Row("other", "", "void uses")),
    ("prefetch prefetchu nanosleep griddepcontrol pmevent applypriority", Row("other", "", "void uses none")),
    ("mma wmma.mma", Row("tensor", "", "uses", TENSOR)),
    ("ldmatrix wmma.load", Row("load", "ld", "uses", TENSOR)),
    ("stmatrix wmma.store", Row("store", "st", "void uses", TENSOR)),
    ("movmatrix wmma tcgen05", Row("other", "", "uses", TENSOR)),
    ("wgmma", Row("other", "", "uses", GROUP)),
    ("wgmma.mma_async", Row("tensor", "wgmma", "uses", GROUP)),
    ("brx", Row(hint="jump tables: replace the switch with if and else")),
    ("tex tld4 suld sust", Row(hint="textures and surfaces: read global memory")),
)
ROWS = {name: row for names, row in _TABLE for name in names.split()}
HINTS = {**dict.fromkeys(("f16", "f16x2", "bf16", "bf16x2"), HALF), "tf32": TENSOR}  # by a type in the opcode
EXITS = ("ret", "exit")
ORDERED = {"volatile", "acquire", "release", "relaxed", "mmio"}  # accesses that don't race with each other
ATOMICS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}
ATOMIC_TYPES = ("u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64")
MODIFIERS = {  # of ld, st, atom and red
    "weak", "relaxed", "volatile", "acquire", "release", "cta", "gpu", "sys",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified",
    "L1::evict_normal", "L1::evict_last", "L1::evict_first", "L1::no_allocate", "L1::evict_unchanged",
    "L2::64B", "L2::128B", "L2::256B", "L2::evict_last", "L2::evict_first", "L2::evict_normal", "L2::cache_hint",
    "global", "shared", "local", "param", "const", "shared::cta", "shared::cluster", "cluster", "v2", "v4",
}  # fmt: skip
SPACES = {"global": "global", "shared": "shared", "local": "local", "const": "const", "param": "const"}


@cache
def _row(op: str) -> Row:
    first, second = [*op.replace(".cta", "", 1).split("."), ""][:2]
    return ROWS.get(f"{first}.{second}") or ROWS.get(first) or Row()


def row_of(instruction: Instruction) -> Row:
    """What the table says of an instruction."""
    return _row(instruction.op)


def unsupported(instruction: Instruction, why: str = "") -> UnsupportedInstruction:
    """The error for an unsupported instruction, with what to do instead."""
    hint = next((HINTS[part] for part in instruction.parts if part in HINTS), row_of(instruction).hint)
    where = f"line {instruction.line}" if instruction.line else f"instruction {instruction.pc}"
    shown, why = demangled(instruction.text), why or f"the emulator doesn't support {hint}"
    return UnsupportedInstruction(f"{where}: {instruction.op} ({shown}): {why}")


# Registers.


def registers(operand: Operand | None) -> Iterator[Reg]:
    """Registers in an operand."""
    if isinstance(operand, Reg):
        yield operand
    elif isinstance(operand, Mem) and isinstance(operand.base, Reg):
        yield operand.base
    elif isinstance(operand, Vec):
        yield from (item for item in operand.items if isinstance(item, Reg))


def _first_read(instruction: Instruction) -> int:
    """1 where the first operand is the result, else 0."""
    operands = instruction.operands
    return int("void" not in row_of(instruction).effects and bool(operands) and not isinstance(operands[0], Mem))


def defined(instruction: Instruction) -> tuple[Reg, ...]:
    """Registers that an instruction writes."""
    return tuple(registers(instruction.operands[0])) if _first_read(instruction) else ()


def reads(instruction: Instruction) -> tuple[Reg, ...]:
    """Registers that an instruction reads, its guard included."""
    accumulates = row_of(instruction).memory == "wgmma"
    read = instruction.operands[0 if accumulates else _first_read(instruction) :]
    registers_ = [reg for operand in read for reg in registers(operand)]
    return (*registers_, instruction.guard[0]) if instruction.guard else tuple(registers_)


def used(instruction: Instruction) -> tuple[Reg, ...]:
    """Registers that are live before it. Under a guard the old result stays in some lanes, so it is live too."""
    return (*reads(instruction), *defined(instruction)) if instruction.guard else reads(instruction)


# Sets of instructions.


def is_barrier(instruction: Instruction) -> bool:
    """Whether it is a block barrier in any spelling; bar.warp.sync is not."""
    return row_of(instruction).counted == "barrier" and "warp" not in instruction.parts


def is_meeting(instruction: Instruction) -> bool:
    """Whether the lanes of a warp wait for each other before they execute it: all that have .sync, but of a block."""
    return "sync" in instruction.parts and not is_barrier(instruction)


def accesses(instruction: Instruction) -> bool:
    """Whether it accesses memory; a parameter by its name is none."""
    by_register = any(isinstance(x, Mem) and isinstance(x.base, Reg) for x in instruction.operands)
    named = "param" in instruction.parts and not by_register
    return bool(row_of(instruction).memory) and len(instruction.operands) > 1 and not named


def loads(instruction: Instruction) -> bool:
    """Whether its result comes from memory that a kernel may write."""
    return row_of(instruction).memory not in ("", "st", "cp") and "param" not in instruction.parts


def is_strong(instruction: Instruction) -> bool:
    """Whether it is an atomic with a result, or an access that PTX orders."""
    return instruction.parts[0] == "atom" or not ORDERED.isdisjoint(instruction.parts)


def is_fence(instruction: Instruction) -> bool:
    """Whether it orders what a thread did before, or does later, for other threads."""
    return not {"fence", "membar", "release", "acquire", "acq_rel"}.isdisjoint(instruction.parts)


def space(instruction: Instruction) -> str:
    """The memory of an access: "global", "shared", "local", "const", or "generic"."""
    named = (part.split("::")[0] for part in instruction.parts)
    return next((SPACES[part] for part in named if part in SPACES), "generic")


def class_of(instruction: Instruction) -> str:
    """The class of Counts.instructions that an instruction belongs to."""
    counted, is_float = row_of(instruction).counted, instruction.parts[-1] in ("f32", "f64", "f16")
    if counted != "number":
        return counted
    if instruction.parts[0] == "mad" and is_float:
        return "fma"
    return "float" if is_float else "integer"


def is_asynchronous(instruction: Instruction) -> bool:
    """Whether an mbarrier, a wgmma or a bulk copy orders accesses."""
    return instruction.parts[0] in ("mbarrier", "wgmma") or "bulk" in instruction.parts


def elements(instruction: Instruction) -> int:
    """Number of elements that one lane of a load or store accesses."""
    return next((int(part[1]) for part in instruction.parts if part in ("v2", "v4")), 1)


def register_dtype(type_: str) -> str:
    """NumPy's name of the dtype that registers of this type have: integers unsigned, floats as floats."""
    if type_ in ("f16", "bf16", "f16x2", "bf16x2"):
        return "u4" if "x" in type_ else "u2"
    if type_ not in DTYPES:
        raise UnsupportedInstruction(f"the emulator doesn't support registers of type .{type_}")
    return DTYPES[type_].replace("i", "u")
