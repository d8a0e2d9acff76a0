"""Parses PTX text into the records of worklog.emulator.ptx.

NVRTC, nvcc and inline assembly write it.

Codegen decides which instructions are supported. Text of the kernel that cannot be parsed is an
error, never skipped.
"""

from __future__ import annotations

import math
import re
import struct
from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from worklog.emulator.assembled import Widths, as_assembled
from worklog.emulator.calls import linked, matching_brace
from worklog.emulator.ptx import (
    SPECIALS,
    Imm,
    Instruction,
    Mem,
    Operand,
    Param,
    PtxError,
    PtxKernel,
    Reg,
    Special,
    Sym,
    UnsupportedInstruction,
    Variable,
    Vec,
    size_of,
)

MOST_REGISTERS = 1_000_000  # in one declaration
_TOKEN = re.compile(
    r"\s+|(?P<loc>\.loc\b[^\n]*)|(?P<file>\.file\b[^\n]*)|(?P<section>\.section\b[^{]*\{[^}]*\})|(?P<label>[A-Za-z_$%][\w$]*\s*:(?!:))"
    r"|(?P<open>\{)|(?P<close>\})|(?P<statement>[^;{}]*(?:\{[^{}]*\}[^;{}]*)*;)"
)
# Text without a comma outside of braces and brackets.
_OPERAND = re.compile(r"(?:\{[^{}]*\}|\[(?:[^\[\]{}]|\{[^{}]*\})*\]|[^,{\[])+")
# A tensor map's address with coordinates, which become an operand of their own.
_COORDINATES = re.compile(r"\[([^\[\]{},]+),\s*(\{[^{}]*\})\s*\]")
_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)[^{;]*\{")
_VARIABLE = re.compile(
    r"(?P<extern>\.(?:extern|visible|weak|common)\s+)?(?:\.(?:extern|visible|weak|common)\s+)*\.(?P<space>shared|global|const|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[bsuf]\d+)\s+(?P<name>[\w$]+)(?P<dims>(?:\[\d*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.DOTALL,
)


@lru_cache(maxsize=64)
def load(
    ptx: str, symbol: str | None = None, assembled: Widths | None = None, name: str | None = None
) -> PtxKernel:
    """Return a kernel of a PTX module, with the module's variables that it names.

    symbol: the kernel's; None: the only one
    assembled: the machine code's shared accesses (worklog.kernel.Compiled.shared_accesses). With
        them, wavefronts are counted for the accesses that the assembler emits; PtxKernel.assembled
        is whether that was possible.
    name: of the result (default: the symbol)
    Raises PtxError.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    target = re.search(r"\.target\s+(\w+)", text)
    if target is None:
        raise PtxError("this is not PTX: there is no .target line")
    entries = {head["name"]: head for head in _ENTRY.finditer(text)}
    if symbol is None and len(entries) == 1:
        symbol = next(iter(entries))
    if symbol is None or symbol not in entries:
        raise PtxError(
            f"there is no kernel {symbol} in the PTX; its kernels are "
            f"{', '.join(entries) or 'none'}"
        )
    head = entries[symbol]
    unlinked = text[head.end() : matching_brace(text, head.end() - 1) - 1]
    statements = _statements(text)
    body, functions = linked(text, unlinked, " ".join(statements.values()))
    number = re.search(r"\.loc\s+(\d+)", unlinked)
    file = re.search(rf'\.file\s+{number[1]}\s+"([^"]*)"', text) if number else None
    kernel = _Body(head[0], body, target[1], int(number[1]) if number else 0).kernel()
    kernel = replace(
        kernel,
        name=name or kernel.name,
        file=Path(file[1]).name if file else "",
        variables=(*_module_variables(statements, body, kernel.variables), *kernel.variables),
        functions={name: kernel.labels[name] for name in functions},
    )
    return kernel if assembled is None or functions else as_assembled(kernel, assembled)


def _statements(text: str) -> dict[str, str]:
    """Return the declarations of variables in a module by name."""
    text = re.sub(
        r"\.section\b[^{]*\{[^}]*\}|\.(?:loc|file|version|target|address_size)\b[^\n]*", "", text
    )
    by_name = {}
    for statement in text.split(";"):
        declaration = statement.lstrip("} \t\r\n")
        match = _VARIABLE.match(declaration)
        if match:
            by_name[match["name"]] = declaration
    return by_name


def _module_variables(
    statements: dict[str, str], text: str, kernel_variables: Sequence[Variable]
) -> Iterator[Variable]:
    """Yield the variables of the module that a kernel's text names, in the module's order.

    Also those that the initial values of these variables name.
    """
    names = set[str]()
    new = {*re.findall(r"[\w$]+", text)} & statements.keys()
    while new:
        names |= new
        mentioned = set[str]()
        for name in new:
            mentioned.update(re.findall(r"[\w$]+", statements[name]))
        new = mentioned & statements.keys() - names
    names -= {variable.name for variable in kernel_variables}
    for name, statement in statements.items():
        variable = _variable(statement) if name in names else None
        if variable:
            yield variable


def _variable(statement: str) -> Variable | None:
    match = _VARIABLE.match(statement)
    if match is None:
        return None
    element = size_of(match["type"])
    count = math.prod(int(dimension or 0) for dimension in re.findall(r"\[(\d*)\]", match["dims"]))
    align = int(match["align"] or element)
    if align.bit_count() != 1:
        raise PtxError(f"the alignment in {statement!r} must be a power of two")
    data, symbols = _initial(match["init"] or "", element)
    extern = ".extern" in statement
    return Variable(match["name"], match["space"], count * element, align, extern, data, symbols)


def _initial(text: str, element: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    """Return the bytes of an initial value, with zeros for its addresses, and the addresses."""
    out = bytearray()
    symbols = []
    for item in re.findall(r"[^,{}]*[^\s,{}]", text):
        literal = _literal(item.strip())
        address = re.fullmatch(r"\s*(?:generic\()?([A-Za-z_$][\w$]*)\)?(?:\s*\+\s*(\d+))?", item)
        if address and element == 8:
            symbols.append((len(out), address[1], int(address[2] or 0)))
        elif literal is None:
            raise UnsupportedInstruction(
                f"the emulator cannot initialise a variable with {item.strip()!r}"
            )
        out += ((literal.bits if literal else 0) & ((1 << 8 * element) - 1)).to_bytes(
            element, "little"
        )
    return bytes(out), tuple(symbols)


def _literal(text: str) -> Imm | None:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
        code, kind = ("f", "f32") if text[1] in "fF" else ("d", "f64")
        return Imm(struct.unpack(f">{code}", bytes.fromhex(text[2:]))[0], int(text[2:], 16), kind)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return Imm(float(text), struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", text):
        digits = text.rstrip("U")
        octal = re.fullmatch(r"-?0[0-7]+", digits)
        value = int(digits, 8 if octal else 0)
        return Imm(value, value & (2**64 - 1), "int")
    return None


class _Body:
    """Parses one kernel statement by statement.

    Inline assembly opens scopes with their own registers.
    """

    def __init__(self, head: str, body: str, arch: str, main_file: int) -> None:
        self.head = head
        self.body = body
        self.arch = arch
        self.main_file = main_file
        self.registers: ChainMap[str, Reg] = ChainMap()
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        # Suffixes of the names of registers and labels, one per open block; branches, with those
        # that are open.
        self.blocks = [""]
        self.branches: list[tuple[int, tuple[str, ...]]] = []
        self.variables: list[Variable] = []
        self.line = self.caller = 0
        self.scope_count = 0

    def kernel(self) -> PtxKernel:
        name_and_params = re.search(r"\.entry\s+([\w$]+)\s*(?:\((.*?)\))?", self.head, re.DOTALL)
        if name_and_params is None:
            raise PtxError(f"cannot read this kernel header: {self.head.strip()[:80]}")
        params = tuple(_params(name_and_params[2] or ""))
        limit = re.search(r"\.maxntid\s+(\d+)\s*(?:,\s*(\d+))?\s*(?:,\s*(\d+))?", self.head)
        cluster = re.search(r"\.reqnctapercluster\s+([\d, ]+)", self.head)
        x, y, z = [*map(int, re.findall(r"\d+", cluster[1] if cluster else "")), 1, 1, 1][:3]
        self._read_body()
        self._name_targets()
        max_threads = math.prod(int(size or 1) for size in limit.groups()) if limit else None
        code = tuple(self.instructions)
        variables = tuple(self.variables)
        out = PtxKernel(
            name_and_params[1], self.arch, params, code, self.labels, variables, max_threads
        )
        return replace(out, cluster=(x, y, z)) if cluster else out

    def _read_body(self) -> None:
        """Read the tokens of the body. Raises PtxError."""
        position = 0
        while position < len(self.body):
            match = _TOKEN.match(self.body, position)
            if match is None:
                raise PtxError(
                    f"line {self.line}: cannot read PTX at: "
                    f"{self.body[position : position + 60].strip()!r}"
                )
            position = match.end()
            try:
                self._token(match)
            except (LookupError, ValueError) as error:
                raise PtxError(
                    f"line {self.line}: cannot read PTX at: {match.group().strip()[:80]!r}"
                ) from error

    def _name_targets(self) -> None:
        """Name the target of each branch: the label in the innermost block that has it."""
        for number, blocks in self.branches:
            branch = self.instructions[number]
            for target in branch.operands[:1]:
                if isinstance(target, Sym):
                    names = (target.name + suffix for suffix in reversed(blocks))
                    name = next((name for name in names if name in self.labels), target.name)
                    self.instructions[number] = replace(
                        branch, operands=(Sym(name), *branch.operands[1:])
                    )

    def _token(self, match: re.Match[str]) -> None:
        if match["loc"]:
            # The line in the kernel's own file: for code inlined from a header, the line that it
            # was inlined at.
            lines = []
            places = re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", match["loc"])
            for file, number in places:
                if int(file) == self.main_file:
                    lines.append(int(number))
            # Line 0 marks an instruction that belongs to no line: keep the previous line.
            if lines and lines[0]:
                self.line = lines[0]
                self.caller = lines[-1] if len(lines) > 1 else 0
        elif match["label"]:
            self.labels[match["label"].rstrip(": \t\n") + self.blocks[-1]] = len(self.instructions)
        elif match["open"]:
            self.registers = self.registers.new_child()
            self.scope_count += 1
            self.blocks.append(f"@{self.scope_count}")
        elif match["close"]:
            self.registers = self.registers.parents
            self.blocks.pop()
        elif match["statement"]:
            self._statement(match["statement"][:-1].strip())

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._declare(text)
        elif text.startswith("."):
            if variable := _variable(text):
                self.variables.append(variable)
            elif not text.startswith(
                (".pragma", ".branchtargets", ".callprototype", ".calltargets")
            ):
                raise self._unsupported(
                    f"the emulator doesn't support the directive {text.split()[0]}"
                )
        elif re.match(r"(?:@\S+\s+)?call(?:\.uni)?\s", text):
            raise self._unsupported(
                f"the emulator doesn't support a call without .param parameters: {text}"
            )
        elif text:
            self._instruction(text)

    def _unsupported(self, reason: str) -> UnsupportedInstruction:
        return UnsupportedInstruction(f"line {self.line}: {reason}")

    def _declare(self, text: str) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)", text, re.DOTALL)
        if match is None or match[1].startswith("v"):
            raise UnsupportedInstruction(
                f"the emulator doesn't support this register declaration: {text}"
            )
        for prefix, number in re.findall(r"([%\w$]+)(?:<(\d+)>)?", match[2]):
            if int(number or 0) > MOST_REGISTERS:
                raise PtxError(
                    f"line {self.line}: {number} registers are more than {MOST_REGISTERS:,}: {text}"
                )
            for name in [f"{prefix}{k}" for k in range(int(number))] if number else [prefix]:
                self.registers[name] = Reg(name + self.blocks[-1], match[1])

    def _instruction(self, text: str) -> None:
        match = re.match(
            r"(?:@(?P<not>!?)(?P<guard>[%\w$]+)\s+)?(?P<op>[a-z]\w*(?:(?:\.|::)\w+)*)\s*(?P<rest>.*)$",
            text,
            re.DOTALL,
        )
        if match is None:
            raise PtxError(f"line {self.line}: cannot read this instruction: {text!r}")
        guard = None
        if match["guard"]:
            if match["guard"] not in self.registers:
                raise PtxError(f"line {self.line}: {match['guard']} in {text!r} is not a register")
            guard = (self.registers[match["guard"]], bool(match["not"]))
        statement = re.sub(r"\s+", " ", text)
        operand_text = _COORDINATES.sub(r"[\1], \2", match["rest"])
        items = filter(None, map(str.strip, _OPERAND.findall(operand_text)))
        operands = [self._operand(item, statement) for item in items]
        if re.match(r"cp\.async\.c[ag]\b", match["op"]) and len(operands) > 3:
            operands[3] = self._source_size(operands[3], operands[2], statement)
        number = len(self.instructions)
        if match["op"].startswith("bra"):
            self.branches.append((number, tuple(self.blocks)))
        self.instructions.append(
            Instruction(
                number, match["op"], tuple(operands), guard, self.line, statement, self.caller
            )
        )

    def _source_size(self, operand: Operand, size: Operand, statement: str) -> Operand:
        """Return how many bytes a cp.async reads that may ignore its source.

        An instruction before it selects them, as compilers do for the other form of cp.async.
        operand: the fourth, a number of bytes or that predicate
        size: bytes that are written
        """
        if not isinstance(operand, Reg) or operand.type != "pred":
            return operand
        number = len(self.instructions)
        target = Reg(f"{operand.name}@{number}", "b32")
        selected = (target, Imm(0, 0, "int"), size, operand)
        self.instructions.append(
            Instruction(number, "selp.b32", selected, None, self.line, statement, self.caller)
        )
        return target

    def _operand(self, text: str, statement: str) -> Operand:
        if text.startswith("!"):
            value = self._operand(text[1:].strip(), statement)
            number = len(self.instructions)
            target = Reg(f"{text}@{number}", "pred")  # which an instruction before sets
            negation = Instruction(
                number, "not.pred", (target, value), None, self.line, statement, self.caller
            )
            self.instructions.append(negation)
            return target
        if text.startswith("{") or ("|" in text and not text.startswith("[")):
            items = re.split(r"\s*[,|]\s*", text.strip("{} \t"))
            return Vec(
                tuple(None if item == "_" else self._operand(item, statement) for item in items)
            )
        if text.startswith("["):
            return self._address(text[1:-1].strip(), statement)
        if text in SPECIALS:
            return Special(text)
        register_or_number = self.registers.get(text) or _literal(text)
        if register_or_number:
            return register_or_number
        if not re.fullmatch(r"[\w$]+", text):  # such as a special register, or a byte of a register
            advice = "check this kernel on a GPU"
            raise self._unsupported(
                f"the emulator doesn't support the operand {text} in {statement!r}: {advice}"
            )
        return Sym(text)

    def _address(self, text: str, statement: str) -> Mem:
        match = re.fullmatch(r"(?P<base>[%\w$.]+)\s*(?:(?P<sign>[+-])\s*(?P<offset>-?\w+))?", text)
        if match is None:
            raise self._unsupported(
                f"the emulator doesn't support the address [{text}] in {statement!r}"
            )
        offset = int(match["offset"], 0) if match["offset"] else 0
        offset = -offset if match["sign"] == "-" else offset
        literal = _literal(match["base"])
        if literal and literal.kind != "int":
            raise PtxError(
                f"line {self.line}: [{text}] in {statement!r}: an address is an integer, a "
                "register or a name"
            )
        offset += int(literal.value) if literal else 0
        # PTX ISA, "Addresses as Operands": a signed offset, or an unsigned address, of 32 bits.
        if not -(2**31) <= offset < 2**32:
            raise ValueError(offset)
        if literal:
            return Mem(None, offset)
        return Mem(self.registers.get(match["base"]) or Sym(match["base"]), offset)


def _params(text: str) -> Iterator[Param]:
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.search(
            r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)*(?:\.align\s+\d+\s+)?)?([\w$]+)\s*(?:\[(\d+)\])?$",
            item,
        )
        if match is None:
            raise PtxError(f"cannot read the kernel parameter {item!r}")
        yield Param(match[2], match[1], size_of(match[1]) * int(match[3] or 1))
