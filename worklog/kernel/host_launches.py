"""What a source's host code launches, by running it on the emulator at many sizes.

Each run of the program (worklog.kernel.host_program) has sizes of its own, and records its launches. A grid is then the
expression of the sizes that gives what was recorded at all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting, LaunchFailed, WorklogError
from worklog.kernel.device import Program
from worklog.kernel.host_calls import (
    BY_ADDRESSES,
    Call,
    Way,
    is_only_called,
    launches_in,
    size_macros,
    unused_functions,
    ways_to,
)
from worklog.kernel.host_program import (
    ENTRY,
    LINES,
    HostProgram,
    free_variables,
    program,
    template_types,
    whole_program,
)
from worklog.kernel.host_slice import How
from worklog.kernel.launch import SIZES, UNREAD_LAUNCH
from worklog.kernel.nvrtc import HOST, HOST_AS_DEVICE, compile_cuda, host_header
from worklog.kernel.source import filled, text_of
from worklog.kernel.unit import Definition, Unit
from worklog.runs.text import a_few

HEADER = Path(__file__).with_name("launcher.cuh")
MOST_LAUNCHES = 16  # of a run that tells a launch of a kernel
MOST_OF_A_FUNCTION = 1024
# as in HEADER
MOST_TEMPLATE = 16
MOST_ARGUMENTS = 32
RECORD = np.dtype(
    [
        ("kernel", "u8"),
        ("shared", "u8"),
        ("grid", "3u8"),
        ("block", "3u8"),
        ("values", f"{MOST_TEMPLATE}u8"),
        ("arguments", f"{MOST_ARGUMENTS}u8"),
    ]
)
OTHER = "another"  # the label of a variable that is no size
TYPES = {
    1: "float", 2: "double", 3: "int", 4: "unsigned", 5: "long long", 6: "float2", 7: "float4", 8: "__half",
    9: "__nv_bfloat16",
}  # fmt: skip

BASE = 15360  # of a size while others vary: a multiple of usual tiles
NEAR = np.arange(1, 258)  # sizes at which a grid tells how it rounds
FAR = np.array(
    [300, 511, 512, 513, 640, 1000, 1024, 1025, 2047, 2048, 2049, 4096, 5000, 15360, 40000]
)
RANDOM_ROWS = 64
MOST_TILE = 4096
LEAST_STEPS = 8  # of a grid that has a largest size
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class HostLaunch:
    """A launch of a kernel by host code, whose texts name the variables that are passed for sizes: x0, x1 …

    template: the template's arguments
    grid: of each axis, an expression of the variables
    block: threads along each axis
    shared: bytes of dynamic shared memory; None if they depend on the sizes
    variables: of each variable, the places of the kernel's parameters that take it; of a size that only the grid
        takes, none
    passed: expressions of the variables, for other integers that the kernel takes, by place
    rules: of the sizes at which host code launches the kernel, such as "x0 % 32 == 0"
    unread_guards: lines of statements by which it may launch the kernel at some sizes only
    """

    template: tuple[str, ...]
    grid: tuple[str, ...]
    block: tuple[int, ...]
    shared: int | None
    variables: tuple[tuple[int, ...], ...]
    passed: tuple[tuple[int, str], ...]
    rules: tuple[str, ...]
    unread_guards: tuple[int, ...]

    def names(self, labels: Sequence[str]) -> dict[str, str]:
        """Return the label of each variable; "M_or_N" for one that is passed for several sizes, OTHER for no size.

        labels: of each parameter of the kernel
        """
        names = dict[str, str]()
        missing = [size for size in SIZES if size not in labels]
        for number, places in enumerate(self.variables):
            sizes = dict.fromkeys(labels[place] for place in places)
            if not places and len(missing) == 1:
                sizes = dict.fromkeys(missing)
            names[f"x{number}"] = "_or_".join(sizes) or OTHER
        return names


@dataclass(frozen=True)
class HostCode:
    """What host code launches of a kernel, and why other launches of it can't be told."""

    launches: tuple[HostLaunch, ...]
    unread: tuple[str, ...]


@lru_cache(maxsize=64)
def _compiled(source: str, headers: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """Return a loaded program; or None, and why it can't be compiled."""
    from worklog.emulator import load  # here: most commands need none of it

    options = (
        "-std=c++20",
        HOST_AS_DEVICE,
    )  # names of fields in lists, which hosts' compilers take
    try:
        built = compile_cuda(Program("host code", source, ENTRY, options, headers=headers))
        return load(built.ptx, built.symbol), ""
    except WorklogError as error:
        return None, str(error)


def run(
    host: HostProgram, unit: Unit, inputs: Integers, most: int = MOST_LAUNCHES
) -> list[NDArray[Any]]:
    """Return the records of the launches of each run.

    inputs: rows by inputs
    most: launches that are recorded
    Raises WorklogError for what can't be compiled, and LaunchFailed for a run that fails.
    """
    from worklog.emulator import launch  # here: most commands need none of it
    from worklog.emulator.program import load_variables

    headers = {HEADER.name: HEADER.read_text(encoding="utf-8")}
    headers[HOST.name] = host_header(host.text, unit)
    text = "".join(f'#include "{name}"\n' for name in headers) + host.text
    kernel, why = _compiled(text, tuple(headers.items()))
    if why:
        raise WorklogError(why)
    rows = len(inputs)
    records = np.zeros(rows * most, RECORD)
    counts = np.zeros(rows, np.uint32)
    # A function without inputs gets one that it doesn't use: memory isn't empty.
    flat = np.append(inputs.reshape(-1), 0)
    width = np.int32(inputs.shape[1])
    result = launch(
        kernel,
        (rows,),
        1,
        [flat, width, records.view(np.uint8), counts, np.int32(most)],
        variables=load_variables(kernel),
        races=False,
        count=False,
    )
    for finding in result.findings:
        if finding.is_error:
            raise LaunchFailed(f"the host code fails: {finding.message}")
    if counts.max() > most:
        raise LaunchFailed(f"the host code launches more than {most} kernels")
    by_row = records.reshape(rows, most)
    return [by_row[row, :count] for row, count in enumerate(counts.tolist())]


def sizes_to_try(inputs: int) -> Integers:
    """Return the sizes of each run: those where one input varies, and others where all do."""
    rows: list[Integers] = [np.full((1, inputs), BASE)]
    values = np.concatenate((NEAR, FAR))
    for place in range(inputs):
        part = np.full((len(values), inputs), BASE)
        part[:, place] = values
        rows.append(part)
    rng = np.random.default_rng(1)
    rows.append(rng.integers(1, 40_000, (RANDOM_ROWS, inputs)))
    rows.append(rng.integers(1, 80, (RANDOM_ROWS, inputs)) * 512)
    return np.concatenate(rows).astype(np.int64)


@lru_cache(maxsize=128)
def host_code(unit: Unit, number: int, places: tuple[int, ...]) -> HostCode:
    """Return what host code launches of a kernel.

    number: of the kernel among the unit's functions
    places: of its parameters that are sizes
    """
    target = unit.functions[number]
    found = dict[HostLaunch, None]()
    unread = dict[str, list[str]]()
    for call in _calls_in_use(unit, target):
        launches, why = _of_call(unit, number, call, places)
        found |= dict.fromkeys(launches)
        if why:
            place = f"line {call.line}" if call.line else "an included file"
            unread.setdefault(why, []).append(place)
    lines = [f"{a_few(dict.fromkeys(at))}: {UNREAD_LAUNCH}: {why}" for why, at in unread.items()]
    return HostCode(tuple(found), tuple(lines))


def _calls_in_use(unit: Unit, target: Definition) -> list[Call]:
    """Return the launches of a kernel, without those that a program never makes if it makes others."""
    calls = list[Call]()
    for call in launches_in(unit):
        named = unit.definition(call.name)
        if named is target or (not named and len(call.arguments) == len(target.parameters)):
            calls.append(call)
    if unit.definition("main", of_host=True) is None:
        return calls
    unused = unused_functions(unit)
    return [call for call in calls if call.function.name not in unused] or calls


def _of_call(
    unit: Unit, number: int, call: Call, places: Sequence[int]
) -> tuple[list[HostLaunch], str]:
    """Return the launches that a call makes, and why they can't be told."""
    if places and call.form in (*BY_ADDRESSES, "cudaLaunchKernelExC"):
        return [], "it isn't clear whose addresses its arguments are"
    macros = size_macros(unit, call, places)
    if macros:
        bare = unit.without(macros)
        calls = [other for other in launches_in(bare) if other.line == call.line]
        if len(calls) == 1:
            return _of_call(bare, number, calls[0], places)
    reasons = list[str]()
    if len(places) == len(SIZES) - 1:
        names = [*ways_to(unit, call, places)[0].inputs[-1]]
        for extra in free_variables(unit, call, unit.functions[number], names):
            launches = _on_ways(ways_to(unit, call, places, extra), unit, number, reasons)
            if any(f"x{len(names)}" in size for launch in launches for size in launch.grid):
                return launches, ""
        reasons.clear()
    launches = _on_ways(ways_to(unit, call, places), unit, number, reasons)
    return launches, reasons[-1] if reasons and not launches else ""


def _on_ways(ways: Sequence[Way], unit: Unit, number: int, reasons: list[str]) -> list[HostLaunch]:
    """Return the launches of a kernel on the shortest ways that can be run.

    reasons: gets why others can't
    """
    for how in (How(), How(has_conditions=False), How(has_conditions=False, has_shared=False)):
        for length, alike in groupby(ways, lambda way: len(way.calls)):
            found = _run_ways([*alike], unit, number, how, reasons)
            if found and not how.has_shared:
                return [replace(launch, shared=None) for launch in found]
            if found:
                callers = [way for way in ways if len(way.calls) == length + 1]
                return _with_callers_rules(found, callers, unit, number)
    return []


def _run_ways(
    ways: Sequence[Way], unit: Unit, number: int, how: How, reasons: list[str]
) -> list[HostLaunch]:
    """Return the launches of a kernel on those of the ways that can be run.

    reasons: gets why others can't
    """
    found = list[HostLaunch]()
    for way in ways:
        host, why = program(unit, way, unit.functions[number], how)
        if host is None:
            reasons.append(why)
            continue
        try:
            found += _launches(host, unit, number)
        except BadSetting as error:
            reasons.append(str(error))
    return found


def _with_callers_rules(
    launches: list[HostLaunch], callers: Sequence[Way], unit: Unit, number: int
) -> list[HostLaunch]:
    """Return launches with the rules of the sizes at which every caller of their function calls it."""
    functions = {id(way.calls[1].function): way.calls[1].function for way in callers}
    are_guarded = all("%" in text_of(way.calls[0].function.body) for way in callers)
    if not callers or not are_guarded or any(launch.rules for launch in launches):
        return launches
    if not all(is_only_called(unit, function) for function in functions.values()):
        return launches
    found = [_rules_of_a_caller(launches, way, unit, number) for way in callers]
    if len(set(found)) != 1 or found[0] is None:
        return launches
    return [replace(launch, rules=found[0]) for launch in launches]


def _rules_of_a_caller(
    launches: Sequence[HostLaunch], way: Way, unit: Unit, number: int
) -> tuple[str, ...] | None:
    """Return the rules at which a caller makes the same launches; None if it makes others or can't be run.

    The caller may pass one variable for several sizes. Its rule then holds for each of them.
    """
    reasons = list[str]()
    guarded = _run_ways([way], unit, number, How(), reasons)
    if reasons or not guarded:
        return None
    variables = guarded[0].variables
    names = dict[str, str]()  # of the caller's variable, by the function's
    for number_here, places in enumerate(launches[0].variables):
        for number_there, places_there in enumerate(variables):
            if {*places} <= {*places_there}:
                names.setdefault(f"x{number_here}", f"x{number_there}")
    expected = {
        (launch.template, tuple(filled(size, names) for size in launch.grid), launch.block)
        for launch in launches
    }
    if {(launch.template, launch.grid, launch.block) for launch in guarded} != expected:
        return None
    rules = list[str]()
    for rule in guarded[0].rules:
        variable, _, rest = rule.partition(" ")
        rules += [f"{own} {rest}" for own, other in names.items() if other == variable]
    return tuple(rules)


def _launches(host: HostProgram, unit: Unit, number: int) -> list[HostLaunch]:
    """Run host code, and return its launches of a kernel. Raises BadSetting for what can't be told."""
    sizes = sizes_to_try(len(host.places))
    try:
        by_row = run(host, unit, sizes)
    except WorklogError as error:
        raise BadSetting(_first_error(str(error))) from error
    made = dict[tuple[int, ...], list[tuple[int, Any]]]()
    is_any = False
    for row, records in enumerate(by_row):
        for record in records:
            is_any = True
            if record["kernel"] == number:
                made.setdefault(tuple(record["values"].tolist()), []).append((row, record))
    if not is_any:
        raise BadSetting("the host code launches nothing")
    launches = list[HostLaunch]()
    for values, of_instance in made.items():
        rows = np.array([row for row, _ in of_instance])
        fields = np.array([record for _, record in of_instance])
        launches += _described(unit.functions[number], values, sizes, rows, fields, host)
    return launches


def _described(
    target: Definition,
    values: Sequence[int],
    sizes: Integers,
    rows: Integers,
    records: NDArray[Any],
    host: HostProgram,
) -> list[HostLaunch]:
    """Return the launches of one instance of a kernel.

    sizes: of all runs
    rows: the run of each record
    """
    names = [f"x{number}" for number in range(len(host.places))]
    is_launched = np.isin(np.arange(len(sizes)), rows)
    rules = guards(sizes, is_launched, names)
    taken = sizes[rows]
    blocks = np.unique(records["block"], axis=0)
    if len(blocks) > 1:
        # Several launches of one run, such as those of a benchmark.
        if len(blocks) * is_launched.sum() != len(rows):
            raise BadSetting("its block depends on the sizes")
        parts = [records["block"] == block for block in blocks]
        found = list[HostLaunch]()
        for part in parts:
            own = part.all(axis=1)
            found += _described(target, values, sizes, rows[own], records[own], host)
        return found
    grid = [fitted(taken, records["grid"][:, axis].astype(np.int64), names) for axis in range(3)]
    shared = np.unique(records["shared"])
    passed = list[tuple[int, str]]()
    in_use = {place for taken_by in host.places for place in taken_by}
    for place, parameter in enumerate(target.parameters[:MOST_ARGUMENTS]):
        if place in in_use or parameter.pointer or "int" not in parameter.dtype:
            continue
        numbers = records["arguments"][:, place].astype(np.uint64).view(np.int64)
        with suppress(BadSetting):
            passed.append((place, fitted(taken, numbers, names)))
    return [
        HostLaunch(
            _values(target, values),
            tuple(grid),
            tuple(int(size) for size in blocks[0]),
            int(shared[0]) if len(shared) == 1 else None,
            host.places,
            tuple(passed),
            tuple(rules),
            host.unread_guards,
        )
    ]


@dataclass(frozen=True)
class Launched:
    """One launch that a function made.

    kernel: the number of the kernel among the unit's functions
    template: its arguments
    arguments: the bits of each
    """

    kernel: int
    template: tuple[str, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[int, ...]


def launched_by(unit: Unit, function: Definition, inputs: Sequence[int]) -> list[Launched]:
    """Return the launches of a host function, in their order.

    inputs: of its parameters, as for whole_program
    Raises BadSetting for a function that can't be run, with the line if it is known.
    """
    host = whole_program(unit, function)
    try:
        [records] = run(host, unit, np.array([inputs], np.int64), MOST_OF_A_FUNCTION)
    except WorklogError as error:
        raise BadSetting(_first_error(str(error))) from error
    found = list[Launched]()
    for record in records:
        target = unit.functions[int(record["kernel"])]
        count = len(target.parameters)
        found.append(
            Launched(
                int(record["kernel"]),
                _values(target, record["values"].tolist()),
                tuple(record["grid"].tolist()),
                tuple(record["block"].tolist()),
                int(record["shared"]),
                tuple(record["arguments"].tolist()[:count]),
            )
        )
    return found


def _values(target: Definition, values: Sequence[int]) -> tuple[str, ...]:
    """Return the code of a template's arguments."""
    codes = list[str]()
    for kind, value in zip(template_types(target), values, strict=False):
        if kind == "typename":
            codes.append(TYPES.get(value, "?"))
        elif kind == "bool":
            codes.append("true" if value else "false")
        else:
            codes.append(str(value - 2**64 if value >= 2**63 else value))
    return tuple(codes)


def _first_error(text: str) -> str:
    """Return the first line of an error, "12: " and what is wrong if it is in line 12 of the source."""
    line = next((line for line in text.splitlines() if line.strip()), text)
    return re.sub(rf"^host code:\d+: |^{LINES}:", "", line)


def fitted(sizes: Integers, counts: Integers, names: Sequence[str]) -> str:
    """Return the expression of sizes that gives these numbers of blocks.

    sizes: rows by inputs
    counts: of each row
    names: of the inputs
    Raises BadSetting if none is found.
    """
    if (counts == counts[0]).all():
        return str(counts[0])
    forms = list[list[tuple[str, Integers]]]()
    for place, name in enumerate(names):
        alone = (np.delete(sizes, place, axis=1) == BASE).all(axis=1)
        varied = counts[alone]
        if len(varied) and (varied != varied[0]).any():
            forms.append([*_forms(sizes[:, place], counts, alone, name)])
    for text, product in _products(forms):
        positive = product > 0
        if not positive.any():
            continue
        factor = counts[positive][0] / product[positive][0]
        if factor == int(factor) and (counts == int(factor) * product).all():
            return text if factor == 1 else f"{int(factor)} * ({text})"
    raise BadSetting("no expression of M, N and K gives its grid at all sizes")


def _products(forms: Sequence[Sequence[tuple[str, Integers]]]) -> Iterator[tuple[str, Integers]]:
    """Yield the products of a form of each size."""
    if not forms:
        return
    first, *rest = forms
    for text, values in first:
        if not rest:
            yield text, values
        for other, others in _products(rest):
            yield f"({text}) * ({other})", values * others


def _forms(
    size: Integers, counts: Integers, alone: NDArray[np.bool_], name: str
) -> Iterator[tuple[str, Integers]]:
    """Yield expressions of one size that may be a factor of the counts: (size + added) / tile.

    alone: the rows where it alone varies
    """
    known = dict(zip(size[alone].tolist(), counts[alone].tolist(), strict=True))
    pairs = list[tuple[int, int]]()
    steps = [at for at in NEAR[1:].tolist() if known.get(at) != known.get(at - 1, known.get(at))]
    if len(steps) > 1:
        tile = steps[1] - steps[0]
        # At multiples of the tile alone, both ways to round fit: then it is the plain division.
        pairs += [(0, tile), (-steps[0] % tile, tile), (-steps[0] % tile + tile, tile)]
    else:
        for tile in range(len(NEAR) // 2, MOST_TILE + 1):
            pairs += [(tile - 1, tile), (0, tile)]
    varied = size[alone]
    seen = counts[alone]
    most = int(seen.max())
    for added, tile in pairs:
        text = name if tile == 1 and added == 0 else f"({name} + {added}) / {tile}"
        text = text.replace(" + 0)", ")").replace(f"({name})", name)
        if tile == 1 and added:
            text = f"{name} + {added}"
        values = (varied + added) // tile
        if _is_proportional(values, seen):
            yield text, (size + added) // tile
        elif _is_proportional(np.maximum(values, 1), seen):
            yield f"max({text}, 1)", np.maximum((size + added) // tile, 1)
        elif _is_capped(values, seen):
            yield f"min({text}, {most})", np.minimum((size + added) // tile, most)


def _is_proportional(values: Integers, seen: Integers) -> bool:
    """Return whether what was seen is a constant multiple of values."""
    top = int(values.argmax())
    return bool(values[top] > 0 and (values * seen[top] == seen * values[top]).all())


def _is_capped(values: Integers, seen: Integers) -> bool:
    """Return whether what was seen is values up to a largest one."""
    most = seen.max()
    is_equal = (np.minimum(values, most) == seen).all()
    return bool(is_equal and (seen == most).sum() > 1 and len({*seen.tolist()}) >= LEAST_STEPS)


def guards(sizes: Integers, is_launched: NDArray[np.bool_], names: Sequence[str]) -> list[str]:
    """Return rules such as "M % 32 == 0" for the sizes at which host code launches a kernel.

    sizes: of all runs, rows by inputs
    Raises BadSetting if such rules don't describe them.
    """
    rules = list[str]()
    holds = np.ones(len(sizes), bool)
    for place, name in enumerate(names):
        alone = (np.delete(sizes, place, axis=1) == BASE).all(axis=1)
        launched = sizes[alone & is_launched][:, place]
        tile = int(np.gcd.reduce(launched)) if len(launched) else 1
        if tile > 1:
            rules.append(f"{name} % {tile} == 0")
            holds &= sizes[:, place] % tile == 0
    if not np.array_equal(holds, is_launched):
        raise BadSetting("it is launched at some sizes only")
    return rules
