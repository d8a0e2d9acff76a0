"""Which value each parameter of a kernel takes, and its grid and block, read from its source.

A launch passes the ladder's eight values in the order that the kernel declares them: the parameters' names decide. What
was found is stated; what isn't clear is an error that names the option. The gate checks the result in any case, so a
wrong guess fails and never gives a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, product
from numbers import Integral
from typing import Any

import numpy as np

from worklog.errors import BadSetting, listed, meant
from worklog.kernel.device import Block
from worklog.kernel.source import comments, evaluate, filled, parts, reduced, sizes
from worklog.kernel.unit import Call, Definition, Unit
from worklog.problem import CLASSES, SGEMM, Domain, Parameter

LADDER = tuple(parameter.name for parameter in SGEMM.signature)
SIZES, MATRICES = LADDER[:3], ("A", "B", "C")
INDICES = ("blockIdx.x", "blockIdx.y")
LENGTHS = np.arange(1, 2049)  # of sizes, at which a grid tells how it rounds
# A variable that a launch passes for several sizes: which of them a grid means isn't stated.
JOINT = re.compile(r"\b[MNK](?:_or_[MNK])+\b")
WORKSPACE = "workspace"  # the address of memory for intermediate results: void*, the last parameter
UNREAD_DOMAIN = "the domain in a comment isn't read"
WIDE = "long "  # before a size that the kernel takes as 64 bits
EXAMPLE_GRID = "'(N + 31) / 32, (M + 31) / 32'"
_AFFIX = r"(?:d|dev|device|gpu|in|input|out|output|mat|matrix|ptr)"
_MATRIX = re.compile(rf"(?:{_AFFIX}_?)?([abc])(?:_{_AFFIX})?", re.IGNORECASE)
# The sizes, row-major leading dimensions, and widths and heights as in NVIDIA's samples.
_MEANING = {
    "m": "M",
    "n": "N",
    "k": "K",
    "lda": "K",
    "ldb": "N",
    "ldc": "N",
    "wa": "K",
    "wb": "N",
    "ha": "M",
}
_MEANING |= {"hb": "K", "alpha": "alpha", "beta": "beta"}
for _a, _rows, _cols in ("aMK", "bKN", "cMN"):  # numARows, A_cols, rowsA
    _MEANING |= {f"{_a}rows": _rows, f"rows{_a}": _rows, f"{_a}cols": _cols, f"cols{_a}": _cols}
_PASSED = (
    "void",
    "float2",
    "float4",
)  # elements of a pointer beside float that the gate's memory may be taken for
_NUMBERS = ("float32", "int32", "uint32", "int64", "uint64")  # passed by value


class UnclearOrder(BadSetting):
    """The names of a kernel's parameters don't say which value each of them takes."""


@dataclass(frozen=True)
class Launch:
    """One launch of a __global__ function. Its texts may name the parameters of the kernel's template.

    function: with its template arguments, as in "sum_parts<BM, 4>". grid: blocks along x, y and z, expressions that may
    also name M, N and K. block: threads along x, y and z. shared: bytes of dynamic shared memory per block.
    """

    function: str
    grid: str = ""
    block: str = ""
    shared: int = 0

    def blocks(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Blocks along x and y, and along z if the grid has that. names: values of names. Raises BadSetting."""
        sizes = tuple(evaluate(part, names) for part in parts(self.grid))
        if len(sizes) > 3:
            raise BadSetting(
                f"cannot read the grid {self.grid!r}: give blocks along x, y and z: {EXAMPLE_GRID}"
            )
        return sizes if len(sizes) > 1 else (*sizes, 1)

    def threads(self, names: Mapping[str, int]) -> Block:
        """Threads per block: along x, or along x, y and z. Raises BadSetting."""
        sizes = [evaluate(part, names) for part in parts(self.block)]
        if len(sizes) > 3 or min(sizes) < 1:
            raise BadSetting(
                f"cannot read the block {self.block!r}: give threads along x, y and z: 256 or 32,8"
            )
        while len(sizes) > 1 and sizes[-1] == 1:
            sizes.pop()
        return sizes[0] if len(sizes) == 1 else tuple(sizes)


def launch_text(argument: str, given: Any) -> str:
    """A grid or a block as one text: "N / 8, M", 256, or ("N / 8", "M"). Raises BadSetting."""
    texts = listed(argument, given)
    if not all(isinstance(size, str | Integral) for size in texts):
        raise BadSetting(
            f"{argument}: give integers or text, such as {EXAMPLE_GRID}, not {given!r:.60}"
        )
    words = ", ".join(map(str, texts))
    if re.fullmatch(r"[1-9]\d*(?: ?x ?[1-9]\d*)+", words):
        words = words.replace("x", ",")
    return ", ".join(sizes(words, {}))


def order(words: str, file: str, function: str, defined: Definition) -> tuple[str, ...]:
    """Return the value that each parameter takes: by words such as "A,B,C,M,N,K", else by its name.

    Raises BadSetting.
    """
    declared = defined.parameters
    _require_types(defined, file, function)
    if words:
        values = _given(words, file, declared)
    elif declared and (declared[-1].type, declared[-1].name) == ("void", WORKSPACE):
        values = [*_by_name(declared[:-1], file, function), WORKSPACE]
    else:
        values = _by_name(declared, file, function)
    wide = {
        n
        for n, parameter in enumerate(declared)
        if not parameter.pointer and parameter.dtype.endswith("int64")
    }
    return tuple(f"{WIDE}{value}" if n in wide else value for n, value in enumerate(values))


def _require_types(defined: Definition, file: str, function: str) -> None:
    """Raise BadSetting for a parameter whose type the gate can't pass."""
    known = {*_PASSED, *defined.template}
    for parameter in defined.parameters:
        kind = parameter.type
        if kind.endswith(("*", "]")):
            raise BadSetting(
                f"{file}: {function} takes {parameter.declaration}: the gate passes float*, row-major"
            )
        numbers = _NUMBERS[:1] if parameter.pointer else _NUMBERS
        is_of_template = not known.isdisjoint(re.findall(r"\w+", kind))
        is_passed = parameter.dtype in numbers if parameter.dtype else is_of_template
        if not is_passed:
            advice = "the gate passes float*, float and integers of 32 and 64 bits: give the kernel these instead"
            raise BadSetting(f"{file}: {function} takes {parameter.declaration}: {advice}")


def is_computed(value: str) -> bool:
    """Whether a parameter takes no value of the ladder, but an integer, or one that is computed from M, N and K."""
    return value.removeprefix(WIDE) not in (*LADDER, WORKSPACE)


def is_ladders(values: Sequence[str]) -> bool:
    """Return whether the values are the ladder's in its order, which a kernel takes by position."""
    return tuple(value.removeprefix(WIDE) for value in values) == LADDER


def _given(words: str, file: str, declared: Sequence[Parameter]) -> list[str]:
    """The values of --args. A number, or an expression of sizes, is for an integer that is no size of the product."""
    names = parts(words)
    for name in filter(is_computed, names):
        try:
            evaluate(name, dict.fromkeys(SIZES, 1))
        except BadSetting as error:
            raise BadSetting(
                f"--args {words}: {name!r}{meant(name, LADDER)} is none of {', '.join(LADDER)}, "
                "and no integer"
            ) from error
    if any(names.count(name) != 1 for name in MATRICES) or not any(name in SIZES for name in names):
        raise BadSetting(f"--args {words}: give A, B and C once each and at least one of M, N, K")
    if len(declared) != len(names):
        raise BadSetting(
            f"--args {words}: {file} declares {len(declared)} parameters, and {len(names)} are given"
        )
    for parameter, name in zip(declared, names, strict=True):
        if is_computed(name) and (parameter.pointer or "int" not in parameter.dtype):
            raise BadSetting(
                f"--args {words}: {name} is for {parameter.declaration}, which is no integer"
            )
    return names


def _by_name(declared: Sequence[Parameter], file: str, function: str) -> list[str]:
    """The values of parameters by their names: A, B and C once each, and at least one size."""
    kinds = [
        "pointer" if p.pointer else "integer" if "int" in p.dtype else "float" for p in declared
    ]
    if kinds == [
        "pointer" if v in MATRICES else "integer" if v in SIZES else "float" for v in LADDER
    ]:
        return [*LADDER]
    pointers = kinds.count("pointer")
    if pointers != len(MATRICES):
        raise BadSetting(
            f"{file}: {function} takes {pointers} pointers: the gate passes three: A, B and C"
        )
    if all(p.pointer or p.name.lower() in ("alpha", "beta") for p in declared):
        raise BadSetting(
            f"{file}: {function} takes no size: the gate checks several shapes, and passes M, N and K"
        )
    values = named(declared)
    if not (all(values) and sorted(value for value in values if value in MATRICES) == [*MATRICES]):
        raise UnclearOrder(
            f"{file}: {function}({', '.join(p.name for p in declared)}): the names don't say which parameter is which: "
            f"give one of {', '.join(LADDER)} for each ?: --args '{','.join(value or '?' for value in values)}'"
        )
    return values


def named(declared: Sequence[Parameter]) -> list[str]:
    """The value that each parameter's name says, "" where it says none; N for an only size."""
    numbers = [p for p in declared if not p.pointer and p.name.lower() not in ("alpha", "beta")]
    values = []
    for parameter in declared:
        if parameter.pointer:
            matrix = _MATRIX.fullmatch(parameter.name)
            values.append(matrix[1].upper() if matrix else "")
        elif numbers == [parameter]:
            values.append("N")
        else:
            name = re.sub(r"^num|umn", "", parameter.name.lower().replace("_", ""))
            values.append(_MEANING.get(name, ""))
    return values


def described(defined: Definition, values: Sequence[str]) -> list[str]:
    """What is said of an order that isn't the ladder's."""
    if is_ladders(values):
        return []
    plain = [value.removeprefix(WIDE) for value in values]
    names = [parameter.name for parameter in defined.parameters]
    said = f"parameters ({', '.join(names)})" + (
        "" if names == plain else f": passed as ({', '.join(plain)})"
    )
    exchanged = {("A", "B"), ("B", "A"), ("M", "N"), ("N", "M")}  # C^T = B^T A^T
    if exchanged <= {*zip(named(defined.parameters), plain, strict=True)}:
        said += " for column-major matrices"
    said += ", with M = N = K" if len({value for value in plain if value in SIZES}) == 1 else ""
    return [said + (f"; {fixed(plain)}, which it doesn't take" if fixed(plain) else "")]


def fixed(values: Sequence[str]) -> str:
    """What a kernel with these parameters computes with, where it doesn't take alpha or beta: "alpha = 1"."""
    return " and ".join(
        text for name, text in (("alpha", "alpha = 1"), ("beta", "beta = 0")) if name not in values
    )


def header(source: str) -> tuple[dict[str, int], str, Launch]:
    """What comments such as a rung's state: values of the template's parameters, the precision class, and the launch,
    without a function: "// Tile: BM=128 BN=64", "// Claims: tf32" and "// Launch: grid N / BN, M   block 256   shared
    4096". What can't be read is a comment like any other.
    """
    joined = re.sub(r" *\n// {6,}", " ", source)  # a line that goes on in the next one
    lines = dict(re.findall(r"^// (Tile|Launch|Claims): +(.+?) *$", joined, re.MULTILINE))
    tile = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", lines.get("Tile", ""))}
    claims, launch = lines.get("Claims", ""), Launch("")
    if stated := re.fullmatch(
        r"grid (.+?) +block (.+?)(?: +shared (.+))?", lines.get("Launch", "")
    ):
        with suppress(BadSetting):
            read = Launch("", stated[1], stated[2], evaluate(stated[3] or "0", tile))
            read.blocks({**dict.fromkeys(SIZES, 1), **tile})
            read.threads(tile)
            launch = read
    return tile, claims if claims in CLASSES else "fp32", launch


def stated(source: str, label: str) -> list[str]:
    """What comments say, each once and in their order, behind `label:`, up to the next label or the end of the line."""
    pattern = rf"\b{label}\s*[:=]\s*(.+?)[\s,;.*/]*(?=\b(?:grid|block)\b|$)"
    found = re.findall(pattern, comments(source), re.IGNORECASE | re.MULTILINE)
    return list(dict.fromkeys(found))


def own_part(source: str, unit: Unit, defined: Definition, label: str) -> str:
    """Return the lines of a source whose comments may state something of a kernel, such as its grid.

    These are the lines from the function before a kernel to its end if they state the label, else those that are of
    no other kernel. The first kernel's may be for all: a comment at the top of the file is above it.
    label: as for stated()
    """
    functions = [function for function in unit.functions if function.is_own]
    parts_of_kernels = list[range]()
    own = range(0)
    end = 0
    for function in functions:
        part = range(end, function.line(function.body.end_byte))
        end = max(end, part.stop)
        if function is defined:
            own = part
        elif function.is_kernel and part.start:
            parts_of_kernels.append(part)
    lines = source.splitlines()
    own_lines = "\n".join(lines[own.start : own.stop])
    if stated(own_lines, label):
        return own_lines
    for part in parts_of_kernels:
        for line in part:
            lines[line] = ""
    return "\n".join(lines)


def domain(source: str, tile: Mapping[str, int]) -> tuple[str, list[str]]:
    """The domain that comments state in their first sentence, else "any"; and what is said of it. tile: as names."""
    texts = dict.fromkeys(re.split(r"\.\s", text)[0] for text in stated(source, "domain"))
    try:
        read = {Domain.of(text, tuple(tile.items())): text if tile else "" for text in texts}
        if len(read) > 1:
            raise BadSetting(f"comments state {' or '.join(map(str, read))}")
    except BadSetting as error:
        return "any", [f"{UNREAD_DOMAIN}, so every shape is checked: {error}"]
    rules = next((text or str(only) for only, text in read.items() if only != Domain()), "any")
    return rules, [] if rules == "any" else [f"domain: {rules}; from a comment"]


def covered(grid: str, template: Mapping[str, int]) -> tuple[list[str], bool]:
    """Of each axis that a grid rounds down, the sizes that it covers, such as N % 32 == 0; and whether it rounds
    another one up: most likely, one was forgotten.
    """
    rules, rounds_up = list[str](), False
    for part in parts(grid):
        named = [size for size in SIZES if re.search(rf"\b{size}\b", part)]
        if len(named) != 1:
            continue
        [size] = named
        blocks = evaluate(part, {**template, size: LENGTHS})
        tile = next((length for length, count in zip(LENGTHS, blocks, strict=True) if count), 1)
        if np.array_equal(blocks, LENGTHS // tile) and tile > 1:
            rules.append(f"{size} % {tile} == 0")
        elif blocks[0] == 1:
            rounds_up = rounds_up or bool(blocks[-1] < LENGTHS[-1])
    return rules, bool(rules) and rounds_up


def launch(
    source: str,
    unit: Unit,
    function: str,
    defined: Definition,
    values: Sequence[str],
    instance: str,
    programs: Iterable[tuple[str, Unit]] = (),
    *,
    with_joint: bool = False,
) -> tuple[Launch, str, list[str]]:
    """The launch that a source states, in a comment `grid: …, block: …` or in its host code; where it was read; and
    what wasn't understood. An empty one where it states none, or several.

    instance: arguments of the template, as in "32, 8"
    programs: names and units of files that include the source, whose host code is read if the source's own states no
        launch
    with_joint: whether a grid is read, too, in which one variable stands for several sizes: as JOINT
    """
    template = dict(zip(defined.template, parts(instance), strict=False)) if instance else {}
    own = {
        p.name: size
        for p, value in zip(defined.parameters, values, strict=False)
        if (size := _size(value))
    }
    known = {
        **unit.names(defined),
        **{name: value for name, value in defined.template.items() if value},
        **template,
    }
    free = {name: text for name, text in known.items() if name not in (*SIZES, *own)}
    launches = dict[Launch, str]()
    unread = list[str]()
    prose = list[str]()
    for grid, block in product(stated(source, "grid"), stated(source, "block")):
        try:
            launches[_readable(function, sizes(grid, free), sizes(block, free), own)] = "a comment"
        except BadSetting as error:
            prose = [
                f"the launch in a comment isn't read: {str(error).partition(': use integers')[0]}"
            ]

    def why_not(call: Call, launching: Unit, host: str) -> str:
        """Read a launch of the host; why it can't be read."""
        if not f"::{defined.name}".endswith(f"::{call.function}"):
            is_known = launching.definition(call.function) is not None
            return "" if is_known else f"{call.function} isn't known as a kernel"
        passed: dict[str, str] = {}
        for argument, value in zip(call.arguments, values, strict=False):
            variable = re.fullmatch(r"\(?([A-Za-z_][\w.]*)\)?", reduced(argument, {}))
            if variable and (size := _size(value)):
                other = passed.get(variable[1], size)
                passed[variable[1]] = size if size == other else f"{other}_or_{size}"
        joint = [size for size in passed.values() if with_joint and JOINT.fullmatch(size)]
        names = {
            name: text
            for name, text in {**launching.names(call), **template}.items()
            if name not in passed
        }
        arguments = ", ".join(reduced(part, names) for part in call.template)
        is_found_by_the_compiler = not arguments and not all(defined.template.values())
        if instance and arguments != ", ".join(parts(instance)) and not is_found_by_the_compiler:
            return ""
        entry = f"{function}<{arguments}>" if arguments else function
        grid, block, shared = (*call.configuration, "0", "0")[:3]
        origin = host
        try:
            read = _readable(entry, sizes(grid, names), sizes(block, names), passed, joint)
        except BadSetting as error:
            return str(error).partition(": use integers")[0]
        try:
            read = replace(read, shared=evaluate(reduced(shared, names), {}))
        except BadSetting:
            origin = f"{host}, but for its {shared} bytes of shared memory: give --shared"
        launches[read] = origin
        return ""

    for file, launching in chain([("", unit)], programs):
        if launches:
            break
        host = f"the host code of {file}" if file else "the host code"
        for call, *by_others in launches_of(launching):
            why = why_not(call, launching, host)
            for other in by_others if why else ():
                why = why_not(other, launching, host)
            line = f"line {call.line}" if call.line else "a header"
            where = f"{file}, {line}" if file else line
            unread += [f"{where}: a launch isn't read: {why}"] if why else []
    if len(launches) > 1:
        differ = " or ".join(
            f"{read.function} with grid {read.grid}, block {read.block}" for read in launches
        )
        return Launch(function), "", [f"its launches differ: {differ}", *unread]
    if launches:
        return (*launches.popitem(), unread)
    return Launch(function), "", [*prose, *unread]


def passed(defined: Definition, unit: Unit, labels: Sequence[str]) -> dict[int, str]:
    """What the unit's launches of a kernel pass to parameters without a label, by their place; not where they differ.

    labels: of each parameter, what takes the place of the variable that is passed there; "" for none
    """
    found = dict[int, set[str]]()
    for call in (call for calls in launches_of(unit) for call in calls):
        if not f"::{defined.name}".endswith(f"::{call.function}"):
            continue
        variables = dict[str, str]()
        for argument, label in zip(call.arguments, labels, strict=False):
            variable = re.fullmatch(r"\(?([A-Za-z_][\w.]*)\)?", reduced(argument, {}))
            if variable and label:
                variables[variable[1]] = label
        names = {name: text for name, text in unit.names(call).items() if name not in variables}
        for place, (argument, label) in enumerate(zip(call.arguments, labels, strict=False)):
            if not label:
                found.setdefault(place, set()).add(filled(reduced(argument, names), variables))
    only = {place: texts.pop() for place, texts in found.items() if len(texts) == 1}
    return {place: text for place, text in only.items() if _is_of_sizes(text)}


def _is_of_sizes(text: str) -> bool:
    with suppress(BadSetting):
        evaluate(text, dict.fromkeys(SIZES, 1))
        return True
    return False


def instances(function: str, defined: Definition, unit: Unit) -> list[str]:
    """Return the instances of a template that the host code launches, such as gemm<16>."""
    launched = list[str]()
    for calls in launches_of(unit):
        for call in calls:
            arguments = [reduced(part, unit.names(call)) for part in call.template]
            is_known = all(
                re.fullmatch(r"\d+|true|false|float|half|double|int", a) for a in arguments
            )
            if f"::{defined.name}".endswith(f"::{call.function}") and arguments and is_known:
                launched.append(f"{function}<{', '.join(arguments)}>")
    return list(dict.fromkeys(launched))


def instantiated(defined: Definition, unit: Unit) -> str:
    """Return the arguments of the only explicit instantiation of a template; "" for none or several."""
    name = re.escape(defined.name.rpartition("::")[2])
    found = [re.search(rf"\b{name}\s*<(.+?)>\s*\(", text) for text in unit.instances]
    arguments = {match[1] for match in found if match}
    return arguments.pop() if len(arguments) == 1 else ""


def unbound(function: str, defined: Definition, unit: Unit) -> str:
    """Describe a template that is named without its arguments, and what to give."""
    said = f"{function} is a template of {', '.join(defined.template)}"
    if known := instances(function, defined, unit):
        others = f" (the host code launches {' and '.join(known)})" if len(known) > 1 else ""
        return f"{said}: name an instance with --entry '{known[0]}'{others}"
    example = ", ".join("32" for _ in defined.template)
    return f"{said}: give a value of each, as in --entry '{function}<{example}>'"


def launches_of(unit: Unit) -> Iterator[list[Call]]:
    """Each launch of the host code; and as other functions launch it, by calls of the function that it is in."""
    for caller in unit.functions:
        calls = [call for other in unit.functions for call in other.calls if not call.configuration]
        outer = [call for call in calls if f"::{caller.name}".endswith(f"::{call.function}")]
        for call in caller.calls:
            if call.configuration:
                yield [call, *(call.by(caller, other) for other in outer)]


def _size(value: str) -> str:
    """M, N or K; "" for other values."""
    size = value.removeprefix(WIDE)
    return size if size in SIZES else ""


def _readable(
    function: str,
    grid: Sequence[str],
    block: Sequence[str],
    own: Mapping[str, str],
    joint: Sequence[str] = (),
) -> Launch:
    """The launch of reduced sizes, whose names `own` maps to M, N and K. Raises BadSetting.

    joint: names like "M_or_N" that the grid may have
    """
    texts = []
    for dimensions, names in ((grid, dict.fromkeys([*SIZES, *joint], 1)), (block, {})):
        shown = [filled(size, own) for size in dimensions]
        while len(shown) > 1 and shown[-1] == "1":
            shown.pop()
        for size in shown:
            evaluate(size, names)
        texts.append(", ".join(shown))
    return Launch(function, texts[0], texts[1])
