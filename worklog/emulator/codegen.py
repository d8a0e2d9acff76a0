"""PTX to Python: each basic block becomes one generated function over NumPy arrays, one element per CUDA thread.

A register is an array of its declared width, or of length 1 where all threads hold one value (NumPy broadcasts it).
Arrays are never changed in place, so an object's identity stands for its value. Inside a block every lane computes;
only what leaves the block is merged with the lanes that were not in it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import zip_longest
from typing import Any

import numpy as np

from worklog.emulator import exchange, floats, integers, tensor
from worklog.emulator.findings import UnsupportedInstruction, unsupported
from worklog.emulator.flow import EXITS, SINKS, Block, Flow, branch_target, defined, is_barrier, reads, registers, used
from worklog.emulator.form_classes import SHARED_WINDOW, SIXTEEN, UNPACKED
from worklog.emulator.forms import FORMS
from worklog.emulator.ptx import DTYPES, TIMES, Imm, Instruction, Kernel, Mem, Operand, Reg, Special, Sym, Vec
from worklog.emulator.rules import RULES

BlockFunction = Callable[[Any, dict[str, Any], Any], int]
EXIT = -2  # in place of a block of code
# What odd operands can raise, here and in the code that is generated for them.
UNEXPECTED = (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError)


def register_dtype(type_: str) -> str:
    """NumPy's name of the dtype that registers of this type have: integers unsigned, floats as floats."""
    if type_ in SIXTEEN:
        return "u4" if "x" in type_ else "u2"
    if type_ not in DTYPES:
        raise UnsupportedInstruction(f"the emulator doesn't support registers of type .{type_}")
    return DTYPES[type_].replace("i", "u")


def failed(kernel: Kernel, block: Block, error: Exception) -> UnsupportedInstruction:
    """The error for an exception in the generated code of a block: it names the instruction that was running."""
    pc, trace = block.stop - 1, error.__traceback__
    while trace:
        lines = trace.tb_frame.f_globals.get("LINES", ())[: trace.tb_lineno]
        pc = next((int(line.rpartition("# ")[2]) for line in reversed(lines) if "# " in line), pc)
        trace = trace.tb_next
    return unsupported(kernel.instructions[pc], f"the emulator fails here ({error!r}): check this kernel on a GPU")


class Writer:
    """Collects the statements of one block. Every value gets a fresh local name, so that it can be freed after its last
    use.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.registers: dict[str, str] = {}  # the local that holds each register now
        self.known: dict[str, str] = {}  # the local that holds each expression
        self.carry: dict[str, str] = {}  # "carry": the local of the carry, once an instruction has set it
        self.count = 0
        self.instruction: Instruction = program.kernel.instructions[0]
        self.mask = "m"
        self.predicate = ""  # of the instruction's guard
        self.follow, self.leaving = EXIT, ""  # of a barrier: the next block, and the call that returns it

    def local(self) -> str:
        """A new name."""
        self.count += 1
        return f"v{self.count}"

    def fresh(self, expression: str) -> str:
        """A new local holding the expression."""
        name = self.local()
        self.lines.append(f"{name} = {expression}")
        return name

    def once(self, expression: str) -> str:
        """A local holding an expression without effects, which is computed once per block of code."""
        if expression not in self.known:
            self.known[expression] = self.fresh(expression)
        return self.known[expression]

    # Reading operands.

    def register(self, reg: Reg) -> str:
        """The local that holds a register, read from the register file at its first use."""
        if reg.name not in self.registers:
            self.registers[reg.name] = self.fresh(f"R[{reg.name!r}]")
        return self.registers[reg.name]

    def constant(self, value: Any, dtype: str) -> str:
        """The name of an array with one element that holds a literal."""
        array = np.array([value] if dtype[0] in "f?" else [np.uint64(int(value) % 2**64)]).astype(dtype)
        name = f"k_{dtype.replace('?', 'b')}_{array.tobytes().hex()}"
        self.constants[name] = array
        return name

    def source(self, operand: Operand | None, type_: str) -> str:
        """An expression for an operand as an array of `type_`, or as Form.sources says; a wider register is truncated,
        as in PTX.
        """
        if type_ == "number" and isinstance(operand, Imm):
            return str(int(operand.value))
        if type_ in ("shared", "generic") and isinstance(operand, Mem):
            return self.place(operand, generic=type_ == "generic")
        if isinstance(operand, Vec):
            low, high = (self.source(item, {"b32": "b16", "b64": "b32"}[type_]) for item in operand.items)
            return self.once(f"joined({low}, {high})")
        if type_ in UNPACKED:
            held, expression = UNPACKED[type_]
            return self.once(expression.format(self.source(operand, held)))
        if type_ not in DTYPES:
            raise unsupported(self.instruction, f"the emulator doesn't support type .{type_}")
        dtype = DTYPES[type_]
        if isinstance(operand, Reg):
            own = self._fitting(operand, dtype)
            text = self.register(operand)
            return text if own == dtype else self.once(_converted(text, own, dtype))
        if isinstance(operand, Imm):
            if dtype[0] == "f":
                return self.constant(float(operand.value), dtype)
            return self.constant(operand.value if operand.kind == "int" else operand.bits, dtype)
        if isinstance(operand, Special) and operand.name in TIMES:
            return self.fresh(f"S.clock({TIMES[operand.name]}).astype({dtype!r})")
        if isinstance(operand, Special):
            text = self.once(f"S.special({operand.name!r})")
            return text if dtype == "u4" else self.once(_converted(text, "u4", dtype))
        if isinstance(operand, Sym):
            return self.constant(self._address_of(operand), dtype)
        raise unsupported(self.instruction, "an operand is missing or of the wrong kind")

    def _fitting(self, reg: Reg, dtype: str) -> str:
        """The register's own dtype, which must hold one of `dtype`: in the same width, or as the low part."""
        own = register_dtype(reg.type)
        have, want = np.dtype(own).itemsize, np.dtype(dtype).itemsize
        if (own == "?") != (dtype == "?") or have < want or (have > want and "f" in own[0] + dtype[0]):
            raise unsupported(self.instruction, f"{reg.name} is .{reg.type}: too narrow, or of the wrong kind")
        return own

    def _address_of(self, symbol: Sym) -> int:
        if symbol.name not in self.program.addresses:
            raise unsupported(self.instruction, f"{symbol.name} is not a variable or a register")
        return self.program.addresses[symbol.name]

    def address(self, operand: Operand) -> str:
        """The base of a memory operand, as an array of uint32 or uint64, as held; the offset is in the access site."""
        if not isinstance(operand, Mem):
            raise unsupported(self.instruction, "an address was expected")
        if isinstance(operand.base, Reg):
            if register_dtype(operand.base.type) not in ("u4", "u8"):
                raise unsupported(self.instruction, f"{operand.base.name} is .{operand.base.type}: no address")
            return self.register(operand.base)
        return self.constant(self._address_of(operand.base) if operand.base else 0, "u8")

    def place(self, operand: Operand, *, generic: bool = False) -> str:
        """An address in shared memory as int64; a generic one outside of it becomes one that no block has."""
        address = self.address(operand)
        assert isinstance(operand, Mem)
        if generic and isinstance(operand.base, Reg):
            address = f"({address} ^ np.uint64({SHARED_WINDOW}))"
        elif isinstance(operand.base, Reg) and operand.base.type[1:] == "32":
            address = f"{address}.view('i4')"
        return f"({address}.astype('i8') + {operand.offset})"

    def named(self, value: Any, name: str = "form") -> str:
        """The name that the generated code has for an object of the current instruction."""
        self.constants[f"{name}{self.instruction.pc}"] = value
        return f"{name}{self.instruction.pc}"

    def site(self) -> str:
        """The name of the current instruction's access site."""
        return self.named(self.program.sites[self.instruction.pc], "site")

    # Writing results.

    def result(self, reg: Operand | None, expression: str, dtype: str) -> None:
        """Give a register, or two registers half as wide, a value of `dtype`; a narrower value is extended by its own
        sign, as in ld and cvt.
        """
        if isinstance(reg, Vec):
            self.results(reg.items, f"halves({expression})", [{"u4": "u2", "u8": "u4"}[dtype]] * 2)
            return
        if not isinstance(reg, Reg):
            raise unsupported(self.instruction, "the destination is not a register")
        own = self._fitting(reg, dtype)
        expression = expression if own == dtype else _converted(f"({expression})", dtype, own)
        if self.predicate:
            expression = f"merge({expression}, {self.register(reg)}, {self.predicate})"
        self.registers[reg.name] = self.fresh(expression)

    def results(self, targets: Sequence[Operand | None], call: str, dtypes: Sequence[str]) -> list[str]:
        """Give several registers the arrays that a call returns; None ignores one. Returns the arrays' locals."""
        names = [self.local() for _ in dtypes]
        self.lines.append(f"{', '.join(names)}, = {call}")
        for target, name, dtype in zip_longest(targets, names, dtypes):
            if target is not None:
                self.result(target, name, dtype)
        return names


def _converted(text: str, dtype: str, wanted: str) -> str:
    """An array as another dtype: the same bits where the width agrees."""
    same_width = np.dtype(dtype).itemsize == np.dtype(wanted).itemsize
    return f"{text}.{'view' if same_width else 'astype'}({wanted!r})"


def generate(program: Program, index: int, merge: bool) -> BlockFunction:
    """The function of one block: (machine, registers, mask) to the next block, EXIT, or -1 where lanes diverged or
    wait. merge: keep the registers of lanes outside the mask.
    """
    block = program.flow.blocks[index]
    writer = Writer(program)
    instructions = program.kernel.instructions[block.start : block.stop]
    for instruction in instructions[:-1]:
        _emit(writer, instruction)
    leaving = _leave(writer, index, instructions[-1])
    written = {reg.name for instruction in instructions for reg in defined(instruction)}
    written &= program.flow.live_out[index]
    written &= writer.registers.keys()  # the machine writes the result of bar.red
    for name in sorted(written | {origin_of(name).name for name in written & program.flow.shuffled}):
        slot, value = f"R[{name!r}]", writer.registers[name]
        writer.lines.append(f"{slot} = merge({value}, {slot}, m)" if merge else f"{slot} = {value}")
    text = "def block(S, R, m):\n" + "\n".join(_with_deletions([*writer.lines, leaving]))
    names = {**_GLOBALS, **writer.constants, "LINES": text.splitlines()}
    exec(compile(text, f"<{program.kernel.name} block {index}>", "exec"), names)
    function: BlockFunction = names["block"]
    return function


def origin_of(name: str) -> Reg:
    """The register beside a register of Flow.shuffled: which shuffle gave its undefined value (Exchange.used)."""
    return Reg(f"{name} origin", "b32")


def _origin(w: Writer, i: Instruction) -> str:
    """The expression of the origins of an instruction's result; writes the check where it uses an undefined value."""
    found = {reg.name: w.register(origin_of(reg.name)) for reg in reads(i) if reg.name in w.program.flow.shuffled}
    defined_ = w.constant(0, "u4")
    if not found and i.parts[0] != "shfl":
        return defined_
    # A shuffle passes its first operand on, and uses the others.
    passed = () if i.parts[0] in SINKS else i.operands[1:2] if i.parts[0] == "shfl" else i.operands[1:]
    origins = {reg.name: found[reg.name] for operand in passed for reg in registers(operand) if reg.name in found}
    for name in found.keys() - origins.keys():
        mask = "m" if i.guard and name == i.guard[0].name else w.mask
        w.lines.append(f"S.exchange.used({i.pc}, {found[name]}, {mask})")
    if i.op in ("and.pred", "or.pred") or i.parts[0] == "selp":
        deciding = i.operands[1:] if i.parts[0] != "selp" else i.operands[3:]
        values = [w.source(x, "pred") for x in deciding]
        own = [origins.get(x.name, defined_) if isinstance(x, Reg) else defined_ for x in i.operands[1:]]
        return f"{i.parts[0]}_origin({', '.join((*values, *own))})"
    text = defined_
    for name in origins.values():
        text = name if text is defined_ else f"np.maximum({text}, {name})"
    if i.parts[0] == "shfl":
        w.lines.append(f"S.exchange.origin = {text}")
        return "S.exchange.origins"
    return text


def _leave(writer: Writer, index: int, last: Instruction) -> str:
    """Write the block's last instruction, and return the statement that returns the next block."""
    program = writer.program
    follow = index + 1 if index + 1 < len(program.flow.blocks) else EXIT
    writer.instruction = last
    if last.parts[0] == "bra" or last.parts[0] in EXITS:
        writer.mask, target = "m", EXIT
        _origin(writer, last)
        if last.parts[0] == "bra":
            target_pc = branch_target(program.kernel, last)
            target = next((b.index for b in program.flow.blocks if b.start == target_pc), -1)
            if target < 0:
                raise unsupported(last, "its target is outside the kernel")
        if last.guard is None:
            return f"return {target}"
        yes, no = (follow, target) if last.guard[1] else (target, follow)
        return f"return S.branch({writer.register(last.guard[0])}, m, {yes}, {no})"
    if is_barrier(last):
        writer.follow = follow
        _emit(writer, last)
        return f"return {writer.leaving}"
    _emit(writer, last)
    return f"return {follow}"


def _emit(writer: Writer, instruction: Instruction) -> None:
    """Write an instruction by its rule, or by its row in the table of forms."""
    writer.instruction = instruction
    writer.mask, writer.predicate = "m", ""
    if instruction.guard:
        reg, negated = instruction.guard
        predicate = writer.register(reg)
        writer.predicate = writer.once(f"~{predicate}") if negated else predicate
        writer.mask = writer.once(f"S.guard(m, {writer.predicate})")
    rule, first = RULES.get(instruction.parts[0]), len(writer.lines)
    try:
        origin = _origin(writer, instruction)
        if rule is None or not rule(writer, instruction):
            _emit_form(writer, instruction)
        for register in defined(instruction):
            if register.name in writer.program.flow.shuffled:
                writer.result(origin_of(register.name), origin, "u4")
        writer.lines[first:] = [f"{line}  # {instruction.pc}" for line in writer.lines[first:]]
    except UNEXPECTED as error:
        raise unsupported(instruction) from error


def _emit_form(w: Writer, i: Instruction) -> None:
    """Write an instruction that has a row in the table of forms. Raises LookupError if it has no row."""
    form = FORMS[i.op, len(i.operands)]
    given = i.operands[bool(form.results) :]
    sources = [w.source(operand, type_) for operand, type_ in zip(given, form.sources, strict=True)]
    expression = form.expression.format(*sources, pc=i.pc, mask=w.mask, **w.carry)
    dtypes = [DTYPES.get(type_, "?") for type_ in form.results]
    if not dtypes or (len(dtypes) == 1 and i.operands[0] in (Sym("_"), Vec(()))):
        w.lines.append(expression)
        return
    if len(dtypes) == 1:
        w.result(i.operands[0], expression, dtypes[0])
        return
    names = w.results(i.operands[0].items if isinstance(i.operands[0], Vec) else i.operands[:1], expression, dtypes)
    if form.results[1] == "carry":
        if w.predicate:
            raise unsupported(i)
        w.carry = {"carry": names[1]}


def _with_deletions(lines: list[str]) -> list[str]:
    """Indent, and delete each local after its last use, so that a long block keeps only live values."""
    used_later: set[str] = set()
    out = []
    for line in reversed(lines):
        # A register's name, which may be the same, is followed by a quote.
        dying = set(re.findall(r"\bv\d+\b(?!')", line)) - used_later
        used_later |= dying
        if dying and not line.startswith("return"):
            out.append(f"    del {', '.join(sorted(dying))}")
        out.append(f"    {line}")
    return out[::-1]


_MODULES = [*vars(floats).items(), *vars(integers).items(), *vars(tensor).items(), *vars(exchange).items()]
_GLOBALS: dict[str, Any] = {
    "merge": lambda new, old, mask: new if mask is None else np.where(mask, new, old),
    **{name: value for name, value in _MODULES if name[0] != "_"},
    "np": np,
}


@dataclass(eq=False)
class Program:
    """A kernel ready to run. Its code is generated block by block when first needed, and kept between launches.

    addresses: of variables. sites: of memory accesses, by pc.
    """

    kernel: Kernel
    flow: Flow
    addresses: dict[str, int]
    sites: dict[int, Any]
    # The counters of the access sites belong to the program: one launch at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.function = cache(partial(generate, self))  # of a block of code, by its index and `merge`

    @cached_property
    def returns(self) -> set[int]:
        """The blocks in which a lane only exits."""
        code = self.kernel.instructions
        ends = (block for block in self.flow.blocks if block.stop == block.start + 1)
        return {block.index for block in ends if code[block.start].parts[0] in EXITS and not code[block.start].guard}

    @cached_property
    def initial_registers(self) -> dict[str, Any]:
        """What registers hold before they are written: NaN and all bits set, where a GPU has arbitrary contents."""
        out = {}
        named = {r.name: r.type for i in self.kernel.instructions for r in (*used(i), *defined(i))}
        for name, type_ in named.items():
            dtype = np.dtype(register_dtype(type_))
            bits = np.full(dtype.itemsize, 0 if dtype.kind == "b" else 0xFF, np.uint8)
            out[name] = bits.view(dtype)
        return {**out, **{origin_of(name).name: np.zeros(1, np.uint32) for name in self.flow.shuffled}}
