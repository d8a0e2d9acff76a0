"""PTX to Python: each basic block becomes one generated function over NumPy arrays, one element per CUDA thread.

A register is an array of its declared width, or of length 1 where all threads hold one value (NumPy broadcasts it).
Arrays are never changed in place, so an object's identity stands for its value. Inside a block every lane computes;
only what leaves the block is merged with the lanes that were not in it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from worklog.emulator import exchange, floats, integers, tensor
from worklog.emulator.flow import Block, branch_target
from worklog.emulator.forms import FORMS
from worklog.emulator.isa import EXITS, defined, is_barrier, reads, registers, row_of, unsupported
from worklog.emulator.program import EXIT, BlockFunction, Program, origin_of
from worklog.emulator.ptx import DTYPES, UNEXPECTED, Instruction, Kernel, Reg, Sym, UnsupportedInstruction, Vec
from worklog.emulator.rules import RULES
from worklog.emulator.writer import Writer


def failed(kernel: Kernel, block: Block, error: Exception) -> UnsupportedInstruction:
    """The error for an exception in the generated code of a block: it names the instruction that was running."""
    pc, trace = block.stop - 1, error.__traceback__
    while trace:
        lines = trace.tb_frame.f_globals.get("LINES", ())[: trace.tb_lineno]
        pc = next((int(line.rpartition("# ")[2]) for line in reversed(lines) if "# " in line), pc)
        trace = trace.tb_next
    return unsupported(kernel.instructions[pc], f"the emulator fails here ({error!r}): check this kernel on a GPU")


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


def _origin(w: Writer, i: Instruction) -> str:
    """The expression of the origins of an instruction's result; writes the check where it uses an undefined value."""
    found = {reg.name: w.register(origin_of(reg.name)) for reg in reads(i) if reg.name in w.program.flow.shuffled}
    defined_ = w.constant(0, "u4")
    if not found and i.parts[0] != "shfl":
        return defined_
    # A shuffle passes its first operand on, and uses the others.
    passed = () if "uses" in row_of(i).effects else i.operands[1:2] if i.parts[0] == "shfl" else i.operands[1:]
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
