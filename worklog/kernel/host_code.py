"""The launches of a host function, read from its source: so that CUDA source with an extern "C" function that launches
several kernels runs without nvcc, and on the emulator.

What is read: declarations of integers and dim3, launches `kernel<<<grid, block, shared>>>(arguments);`, and calls that
only wait. Expressions are evaluated, never executed; every other statement is an error that names its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.source import DECLARED, Call, Definition, calls, constants, evaluate, plain, reduced, sizes

_WAITS = re.compile(r"(?:\w+\s*=\s*)?cuda(?:DeviceSynchronize|GetLastError|PeekAtLastError)\s*\(\s*\)|return|")
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eEfF]))(?:[eE][+-]?\d+)?[fF]?")
ADVICE = "declare integers and dim3, and launch kernels: kernel<<<grid, block>>>(…)"


@dataclass(frozen=True)
class Launched:
    """One launch of a host function. entry: the kernel, with its template arguments. grid, block: along x, y and z.
    arguments: numbers, or names of the function's parameters. line: in the source.
    """

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[Any, ...]
    line: int = 0


def launches(source: str, own: Definition, values: Mapping[str, Any], file: str) -> list[Launched]:
    """The launches of a host function in their order. own: its definition. values: of its parameters, None for a
    pointer. Raises BadSetting, with the line, for a statement that isn't read.
    """
    names = {name: text for name, text in (constants(source) | constants(own.body)).items() if name not in values}
    result = []
    for statement in re.finditer(r"[^;]+", own.body[1:-1]):
        text = statement[0].strip()
        if _WAITS.fullmatch(text) or DECLARED.match(f"{text};"):
            continue
        place = own.start + 1 + statement.end() - len(statement[0].lstrip())
        line = source[:place].count("\n") + 1
        call = next(calls(f"{text};"), None)
        try:
            if call is None or call.place:
                raise BadSetting("it is none of the statements that are read")
            result.append(launched(call, names, values, line))
        except BadSetting as error:
            shown = " ".join(text.split())
            raise BadSetting(f"{file}:{line}: cannot read {shown:.70}: {error}; {ADVICE}") from error
    if not result:
        raise BadSetting(f"{file}: the host function launches no kernel: {ADVICE}")
    return result


def launched(call: Call, names: Mapping[str, str], values: Mapping[str, Any], line: int = 0) -> Launched:
    """A launch with numbers for its expressions. names: expressions of names. values: of the host function's
    parameters. Raises BadSetting.
    """
    names = {**names, **{name: str(value) for name, value in values.items() if type(value) is int}}
    if not 2 <= len(call.configuration) <= 4:
        raise BadSetting("a launch has a grid and a block")
    grid, block = (_blocks(words, names) for words in call.configuration[:2])
    shared = _number(call.configuration[2], names) if len(call.configuration) > 2 else 0
    template = ", ".join(reduced(word, names) for word in call.template)
    arguments = tuple(_argument(word, names, values) for word in call.arguments)
    return Launched(f"{call.function}<{template}>" if template else call.function, grid, block, shared, arguments, line)


def _number(text: str, names: Mapping[str, str]) -> int:
    return evaluate(reduced(text, names), {})


def _blocks(words: str, names: Mapping[str, str]) -> tuple[int, ...]:
    blocks = [evaluate(size, {}) for size in sizes(words, names)]
    if len(blocks) > 3 or min(blocks) < 1:
        raise BadSetting(f"{words} is {blocks}: a grid and a block have one to three sizes of at least 1")
    return (*blocks, 1, 1)[:3]


def _argument(text: str, names: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    """A number, or the name of a parameter that isn't an integer."""
    bare = re.sub(r"^\((\s*\w+\s*)\)$", r"\1", plain(text)).strip()
    if bare in values and bare not in names:
        return bare
    return float(bare.rstrip("fF")) if _FLOAT.fullmatch(bare) else _number(bare, names)
