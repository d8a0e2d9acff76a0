"""Calls in PTX text.

Functions that a kernel may call become part of its code, and their parameters become registers.

A call keeps the caller's registers in a frame (core/calls.h), so recursion and function pointers
are ordinary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from worklog.emulator.ptx import PtxError, UnsupportedInstruction
from worklog.emulator.symbols import demangled

# Functions that the emulator runs itself, and the instruction that stands for a call.
CALLED = {"vprintf": "call.vprintf", "__assertfail": "trap.assert"}
# The statements of a call, in braces of their own.
_INNER = r"(?:[^{}]|\{[^{}]*\})*"
_SEQUENCE = re.compile(rf"\{{{_INNER}?\bcall\b{_INNER}\}}")
_CALL = re.compile(
    r"(?P<guard>@!?[%\w$]+\s+)?\bcall(?:\.uni)?\s+(?:\(\s*(?P<result>[\w$]+)\s*\)\s*,\s*)?(?P<name>[%\w$]+)\s*"
    r"(?:,\s*\((?P<params>[^)]*)\))?[^;]*;"
)
_FUNCTION = re.compile(
    r"\.func\s+(?:\.noreturn\s+)?(?:\((?P<result>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<params>[^)]*)\))?[^;{}]*\{"
)
_PARAM = re.compile(
    r"(?P<op>ld|st)\.param(?:\.v[24])?\.(?P<type>[bsuf](?P<bits>\d+))\s+"
    r"(?P<first>\{[^}]*\}|\[[^\]]*\]|[^,;\s]+)\s*,\s*(?P<second>\{[^}]*\}|[^;]+);"
)
_DECLARED = re.compile(r"\.param\b[^;]*;|[\w$]+\s*:\s*\.callprototype[^;]*;")


def matching_brace(text: str, start: int) -> int:
    """Return the end of the block that begins at a brace. Raises PtxError."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    raise PtxError("a brace is not closed: the PTX is truncated")


def linked(module: str, body: str, variables: str) -> tuple[str, list[str]]:
    """Return a kernel's text, after the functions that it may call, and their names.

    module: the PTX text of all functions
    body: the kernel's text
    variables: the module's, which may hold addresses of functions
    """
    functions = {head["name"]: head for head in _FUNCTION.finditer(module)}
    texts = {
        name: module[head.end() : matching_brace(module, head.end() - 1) - 1]
        for name, head in functions.items()
    }
    callers = {**texts, "": body + variables if texts else ""}
    mentioned = {
        name: {*re.findall(r"[\w$]+", text)} & texts.keys() for name, text in callers.items()
    }
    reached = {name: _reach(mentioned, texts, name) for name in mentioned}
    registers = _Registers()
    out = ""
    for name in sorted(reached[""]):
        if name in reached[name] and re.search(r"\.local\b[^;]*\[", texts[name]):
            raise UnsupportedInstruction(
                f"the emulator doesn't support local arrays in {demangled(name)}, which calls "
                "itself"
            )
        out += _function(functions[name], texts[name], registers)
    body = _SEQUENCE.sub(lambda call: _as_instruction(call[0], registers), body)
    out = _narrowed(out, registers)
    types = {**registers.written, **registers.read}
    declared = "".join(f".reg .{type_} {name};\n" for name, type_ in types.items())
    before_body = f"bra $kernel;\n{out}$kernel:\n" if out else ""
    return declared + before_body + body, sorted(reached[""])


class _Registers:
    """The registers that stand for parameters and results of functions, with their types.

    A name such as %arg0_4_32 says which one, at which byte it starts, and its bits.
    """

    def __init__(self) -> None:
        self.written = dict[str, str]()  # for the other side of a call
        self.read = dict[str, str]()  # from the other side


def _narrowed(functions: str, registers: _Registers) -> str:
    """Return the functions' text with conversions of char and short parameters.

    These are passed as 32 bits.

    Raises UnsupportedInstruction for a parameter that a function reads in other pieces than its
    callers write.
    """
    # A register that nobody writes is between the members of a struct.
    for name in sorted(registers.read.keys() - registers.written.keys()):
        side, start, bits = name.split("_")
        for other in registers.written:
            other_side, other_start, other_bits = other.split("_")
            overlaps = (
                side == other_side
                and int(start) < int(other_start) + int(other_bits) // 8
                and int(other_start) < int(start) + int(bits) // 8
            )
            if not overlaps:
                continue
            if side == "%ret" or start != other_start or int(other_bits) <= int(bits):
                raise UnsupportedInstruction(
                    "the emulator doesn't support parameters that a function reads in other "
                    "pieces than its "
                    "callers write"
                )
            conversion = rf"cvt.u{max(int(bits), 16)}.u{other_bits} \1, {other};"
            functions = re.sub(rf"\bmov\.b\d+ (\S+), {name};", conversion, functions)
    return functions


def _reach(mentioned: Mapping[str, set[str]], texts: Mapping[str, str], start: str) -> set[str]:
    """Return the functions that a function may call; all of them if it calls through a pointer.

    mentioned: the functions that each function's text names
    """
    reached = set[str]()
    new = mentioned[start]
    while new - reached:
        reached |= new
        texts_of_reached = (texts.get(name, "") for name in (start, *reached))
        if any(".callprototype" in text for text in texts_of_reached):
            new = set(texts)
        else:
            new = reached.union(*(mentioned[name] for name in reached))
    return reached


def _moved(
    text: str, prefixes: Mapping[str, str], written: dict[str, str], read: dict[str, str]
) -> str:
    """Return the text with accesses of parameters as moves of registers.

    prefixes: those of the registers' names, by parameter
    written, read: where the registers are added, with their types
    """

    def moves(match: re.Match[str]) -> str:
        is_load = match["op"] == "ld"
        bits = int(match["bits"])
        values, place = match["first"], match["second"]
        if not is_load:
            values, place = place, values
        address = re.fullmatch(r"\[([\w$]+)(?:\+(\d+))?\]", place.strip())
        if address is None or address[1] not in prefixes:
            return match[0]
        opcode = _move_of(match["type"], bits, is_load)
        out = ""
        for number, value in enumerate(values.strip("{} ").split(",")):
            start = int(address[2] or 0) + number * bits // 8
            register = f"{prefixes[address[1]]}_{start}_{bits}"
            registers = read if is_load else written
            registers[register] = f"b{max(bits, 16)}"
            target, source = (value, register) if is_load else (register, value)
            out += f"{opcode} {target}, {source};\n"
        return out

    return _PARAM.sub(moves, text)


def _move_of(type_: str, bits: int, is_load: bool) -> str:
    """Return the opcode that moves a parameter of a type from or to its register."""
    if bits > 8:
        return f"mov.{type_}"
    if not is_load:
        return "mov.b16"
    sign = "s" if type_[0] == "s" else "u"
    return f"cvt.{sign}16.{sign}8"


def _as_instruction(text: str, registers: _Registers) -> str:
    """Return a call as one instruction, with its result and its arguments.

    registers: where the call's registers are added
    """
    call = _CALL.search(text)
    if call is None:
        return text
    guard = call["guard"] or ""
    names = re.findall(r"[\w$]+", call["params"] or "")
    if call["name"] in CALLED:
        instruction = f"{guard}{CALLED[call['name']]} {', '.join(_values(text, call, names))};"
        # clang computes arguments between their stores.
        before = _PARAM.sub("", text[: call.start()])
        after = _PARAM.sub("", text[call.end() :])
        return _DECLARED.sub("", f"{before}{instruction}{after}")
    results = dict[str, str]()
    arguments = dict[str, str]()
    prefixes = {name: f"%arg{number}" for number, name in enumerate(names)}
    stores = _moved(text[: call.start()], prefixes, written=arguments, read={})
    result_prefix = {call["result"] or "": "%ret"}
    loads = _moved(text[call.end() :], result_prefix, written={}, read=results)
    registers.written |= arguments
    registers.read |= results
    operands = f"{{{', '.join(results) or '_'}}}, {call['name']}, {{{', '.join(arguments) or '_'}}}"
    return _DECLARED.sub("", f"{stores}{guard}call.function {operands};\n{loads}")


def _values(text: str, call: re.Match[str], names: list[str]) -> list[str]:
    """Return the result and the arguments of a call that the emulator runs itself."""
    stored = re.findall(r"st\.param\.\w+\s*\[([\w$]+)(?:\+0)?\]\s*,\s*([^;]+);", text)
    loaded = re.findall(r"ld\.param\.\w+\s+([^,;]+),\s*\[([\w$]+)(?:\+0)?\]\s*;", text)
    values = dict(stored)
    for register, name in loaded:
        values[name] = register
    if call["result"]:
        names = [call["result"], *names]
    return [values.get(name, "_") for name in names]


def _function(head: re.Match[str], text: str, registers: _Registers) -> str:
    """Return a function as a label and a block.

    It copies its parameters first: a call in it may write their registers.

    registers: where those of its parameters and results are added
    """
    copies = dict[str, str]()
    results = dict[str, str]()
    prefixes = dict[str, str]()
    params = re.findall(r"([\w$]+)(?:\[\d+\])?\s*(?:,|$)", head["params"] or "")
    for number, name in enumerate(params):
        prefixes[name] = f"%own{number}"
    for name in re.findall(r"([\w$]+)(?:\[\d+\])?\s*$", head["result"] or ""):
        prefixes[name] = "%ret"
    text = _SEQUENCE.sub(lambda call: _as_instruction(call[0], registers), text)
    text = _moved(text, prefixes, written=results, read=copies)
    registers.written |= results
    moves = ""
    for name, type_ in copies.items():
        argument = name.replace("%own", "%arg")
        registers.read[argument] = type_
        moves += f".reg .{type_} {name};\nmov.{type_} {name}, {argument};\n"
    text = re.sub(r"\bret(?:\.uni)?\s*;", f"ret.function {{{', '.join(results) or '_'}}};", text)
    return f"{head['name']}:\n{{{moves}{text}}}\n"
