"""Calls in PTX text: functions that a kernel may call become part of its code, and their parameters registers. A call
keeps the caller's registers in a frame (core/calls.h), so recursion and function pointers are ordinary.
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
    """Where the block ends that begins at a brace. Raises PtxError."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    raise PtxError("a brace is not closed: the PTX is truncated")


def linked(module: str, body: str, variables: str) -> tuple[str, list[str]]:
    """A kernel's text with the functions that it may call before it, and their names. variables: the module's, which
    may hold addresses of functions.
    """
    functions = {head["name"]: head for head in _FUNCTION.finditer(module)}
    texts = {
        name: module[head.end() : matching_brace(module, head.end() - 1) - 1]
        for name, head in functions.items()
    }
    callers = {**texts, "": body + variables if texts else ""}
    named = {name: {*re.findall(r"[\w$]+", text)} & texts.keys() for name, text in callers.items()}
    reached = {name: _reach(named, texts, name) for name in named}
    # registers that are written for the other side, or read by it
    given = dict[str, str]()
    taken = dict[str, str]()
    out = ""
    for name in sorted(reached[""]):
        if name in reached[name] and re.search(r"\.local\b[^;]*\[", texts[name]):
            own = demangled(name)
            raise UnsupportedInstruction(
                f"the emulator doesn't support local arrays in {own}, which calls itself"
            )
        out += _function(functions[name], texts[name], given, taken)
    body = _SEQUENCE.sub(lambda call: _called(call[0], given, taken), body)
    for name in sorted(
        taken.keys() - given.keys()
    ):  # what nobody writes is between the members of a struct
        side, start, bits = name.split("_")
        for other, first, size in (register.split("_") for register in given):
            if (
                side == other
                and int(start) < int(first) + int(size) // 8
                and int(first) < int(start) + int(bits) // 8
            ):
                if (
                    side != "%ret" and start == first and int(size) > int(bits)
                ):  # a char or a short, passed as 32 bits
                    narrowed = rf"cvt.u{max(int(bits), 16)}.u{size} \1, {side}_{first}_{size};"
                    out = re.sub(rf"\bmov\.b\d+ (\S+), {name};", narrowed, out)
                    continue
                what = "parameters that a function reads in other pieces than its callers write"
                raise UnsupportedInstruction(f"the emulator doesn't support {what}")
    declared = "".join(f".reg .{type_} {name};\n" for name, type_ in {**given, **taken}.items())
    before = f"bra $kernel;\n{out}$kernel:\n" if out else ""
    return declared + before + body, sorted(reached[""])


def _reach(named: Mapping[str, set[str]], texts: Mapping[str, str], start: str) -> set[str]:
    """The functions that a function may call; through a pointer, any."""
    out = set[str]()
    new = named[start]
    while new - out:
        out |= new
        through_pointer = any(".callprototype" in texts.get(name, "") for name in (start, *out))
        new = set(texts) if through_pointer else out.union(*(named[name] for name in out))
    return out


def _moved(
    text: str, prefixes: Mapping[str, str], written: dict[str, str], read: dict[str, str]
) -> str:
    """Accesses of these parameters as moves of registers with these prefixes. written, read: collects the registers."""

    def move(match: re.Match[str]) -> str:
        loads = match["op"] == "ld"
        bits = int(match["bits"])
        place, values = (match["second"], match["first"])[:: 1 if loads else -1]
        at = re.fullmatch(r"\[([\w$]+)(?:\+(\d+))?\]", place.strip())
        if at is None or at[1] not in prefixes:
            return match[0]
        out = ""
        for k, value in enumerate(values.strip("{} ").split(",")):
            register = f"{prefixes[at[1]]}_{int(at[2] or 0) + k * bits // 8}_{bits}"
            (read if loads else written)[register] = f"b{max(bits, 16)}"
            target, source = (value, register) if loads else (register, value)
            sign = "s" if match["type"][0] == "s" else "u"
            opcode = (
                f"mov.{match['type']}"
                if bits > 8
                else f"cvt.{sign}16.{sign}8"
                if loads
                else "mov.b16"
            )
            out += f"{opcode} {target}, {source};\n"
        return out

    return _PARAM.sub(move, text)


def _called(text: str, given: dict[str, str], taken: dict[str, str]) -> str:
    """A call as one instruction: of its result and its arguments."""
    call = _CALL.search(text)
    if call is None:
        return text
    results = dict[str, str]()
    arguments = dict[str, str]()
    names = re.findall(r"[\w$]+", call["params"] or "")
    if call["name"] in CALLED:
        stored = re.findall(r"st\.param\.\w+\s*\[([\w$]+)(?:\+0)?\]\s*,\s*([^;]+);", text)
        loaded = re.findall(r"ld\.param\.\w+\s+([^,;]+),\s*\[([\w$]+)(?:\+0)?\]\s*;", text)
        values = {**dict(stored), **{name: register for register, name in loaded}}
        names = [call["result"], *names] if call["result"] else names
        return f"{call['guard'] or ''}{CALLED[call['name']]} {', '.join(values.get(name, '_') for name in names)};"
    before = _moved(
        text[: call.start()], {name: f"%arg{k}" for k, name in enumerate(names)}, arguments, {}
    )
    after = _moved(text[call.end() :], {call["result"] or "": "%ret"}, {}, results)
    given |= arguments
    taken |= results
    operands = f"{{{', '.join(results) or '_'}}}, {call['name']}, {{{', '.join(arguments) or '_'}}}"
    return _DECLARED.sub("", f"{before}{call['guard'] or ''}call.function {operands};\n{after}")


def _function(head: re.Match[str], text: str, given: dict[str, str], taken: dict[str, str]) -> str:
    """A function as a label and a block. It copies its parameters first: a call in it may write their registers."""
    own = dict[str, str]()
    results = dict[str, str]()
    prefixes = {
        name: f"%own{k}"
        for k, name in enumerate(
            re.findall(r"([\w$]+)(?:\[\d+\])?\s*(?:,|$)", head["params"] or "")
        )
    }
    prefixes |= dict.fromkeys(re.findall(r"([\w$]+)(?:\[\d+\])?\s*$", head["result"] or ""), "%ret")
    text = _moved(
        _SEQUENCE.sub(lambda call: _called(call[0], given, taken), text), prefixes, results, own
    )
    given |= results
    taken |= {name.replace("%own", "%arg"): type_ for name, type_ in own.items()}
    copies = "".join(
        f".reg .{type_} {name};\nmov.{type_} {name}, {name.replace('%own', '%arg')};\n"
        for name, type_ in own.items()
    )
    text = re.sub(r"\bret(?:\.uni)?\s*;", f"ret.function {{{', '.join(results) or '_'}}};", text)
    return f"{head['name']}:\n{{{copies}{text}}}\n"
