"""The launches of a source's host code, which runs on the emulator at many sizes.

Each run of the program (worklog.kernel.host.program) has its own sizes and records its launches.
A grid is then the expression of the sizes that gives the recorded grids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from worklog.errors import BadSetting, WorklogError
from worklog.kernel.host.calls import (
    BY_ADDRESSES,
    CallChain,
    HostCall,
    chains_to,
    is_only_called,
    launches_in,
    size_macros,
    unused_functions,
)
from worklog.kernel.host.fit import Integers, fitted, guards, sizes_to_try
from worklog.kernel.host.program import (
    HostProgram,
    free_variables,
    program,
    whole_program,
)
from worklog.kernel.host.records import MAX_ARGUMENTS, Records, first_error, run
from worklog.kernel.host.slices import SliceOptions
from worklog.kernel.host.tensor_maps import passed_maps
from worklog.kernel.host.text import template_types
from worklog.kernel.launch import UNREAD_LAUNCH
from worklog.kernel.signature import BATCH, SIZE_NAMES, is_batch
from worklog.kernel.source import filled, text_of
from worklog.kernel.tensor_map import MatrixMap
from worklog.kernel.unit import Definition, Unit, without_macros
from worklog.runs.text import a_few

MAX_LAUNCHES_OF_A_FUNCTION = 1024
OTHER = "another"  # the label of a variable that is no size
TYPES = {
    1: "float",
    2: "double",
    3: "int",
    4: "unsigned",
    5: "long long",
    6: "float2",
    7: "float4",
    8: "__half",
    9: "__nv_bfloat16",
}
# From the most complete slice to the least.
SLICES = (
    SliceOptions(),
    SliceOptions(has_conditions=False),
    SliceOptions(has_conditions=False, has_shared=False),
)


@dataclass(frozen=True)
class HostLaunch:
    """A launch of a kernel by host code. Its texts name the variables for sizes x0, x1 …"""

    template: tuple[str, ...]  # the template's arguments
    grid: tuple[str, ...]  # of each axis, an expression of the variables
    block: tuple[int, ...]  # threads along each axis
    shared: int | None  # bytes of dynamic shared memory; None if they depend on the sizes
    # For each variable: the kernel's parameters that get it; none for a size of the grid only.
    variables: tuple[tuple[int, ...], ...]
    # Places of other integer parameters, and expressions of the variables.
    passed: tuple[tuple[int, str], ...]
    # Of the sizes at which host code launches the kernel, such as "x0 % 32 == 0".
    rules: tuple[str, ...]
    # Lines of statements that may prevent the launch at some sizes.
    unread_guards: tuple[int, ...]
    maps: tuple[MatrixMap, ...] = ()  # that it passes
    unread_map: str = ""  # why a tensor map isn't in `maps`

    def names(self, labels: Sequence[str]) -> dict[str, str]:
        """Return the label of each variable.

        This is "M_or_N" for a variable that is passed for several sizes, and OTHER for no size. One
        that is passed for none is the missing size, or the batch if none is missing.

        labels: of each parameter of the kernel
        """
        names = dict[str, str]()
        missing = [size for size in SIZE_NAMES if size not in labels]
        for number, places in enumerate(self.variables):
            sizes = dict.fromkeys(filter(None, (labels[place] for place in places)))
            if not places and len(missing) < 2:
                sizes = dict.fromkeys(missing or [BATCH])
            names[f"x{number}"] = "_or_".join(sizes) or OTHER
        return names


@dataclass(frozen=True)
class HostCode:
    """The launches of a kernel by host code."""

    launches: tuple[HostLaunch, ...]
    unread: tuple[str, ...]  # why further launches aren't read


@lru_cache(maxsize=128)
def host_code(unit: Unit, number: int, places: tuple[int, ...]) -> HostCode:
    """Return the launches of a kernel by host code.

    number: of the kernel among the unit's functions
    places: of its parameters that are sizes
    """
    launches = dict[HostLaunch, None]()
    lines_by_reason = dict[str, list[str]]()
    for call in _calls_in_use(unit, unit.functions[number]):
        launches_of_call, reason = _of_call(unit, number, call, places)
        launches |= dict.fromkeys(launches_of_call)
        if reason:
            line = f"line {call.line}" if call.line else "an included file"
            lines_by_reason.setdefault(reason, []).append(line)
    unread = list[str]()
    for reason, lines in lines_by_reason.items():
        unread.append(f"{a_few(dict.fromkeys(lines))}: {UNREAD_LAUNCH}: {reason}")
    return HostCode(tuple(launches), tuple(unread))


def _calls_in_use(unit: Unit, target: Definition) -> list[HostCall]:
    """Return the launches of a kernel.

    If the source is a program, launches in unused functions are left out, unless there are no
    other launches.
    """
    calls = list[HostCall]()
    for call in launches_in(unit):
        definition = unit.definition(call.name)
        is_parameter = not definition and len(call.arguments) == len(target.parameters)
        if definition is target or is_parameter:
            calls.append(call)
    if unit.definition("main", of_host=True) is None:
        return calls
    unused = unused_functions(unit)
    return [call for call in calls if call.function.name not in unused] or calls


def _of_call(
    unit: Unit, number: int, call: HostCall, places: Sequence[int]
) -> tuple[list[HostLaunch], str]:
    """Return the launches that a call makes, and why there are none.

    number, places: as for host_code
    """
    if places and call.form in (*BY_ADDRESSES, "cudaLaunchKernelExC"):
        return [], "it isn't clear whose addresses its arguments are"
    macros = size_macros(unit, call, places)
    if macros:
        bare = without_macros(unit, macros)
        calls = [other for other in launches_in(bare) if other.line == call.line]
        if len(calls) == 1:
            return _of_call(bare, number, calls[0], places)
    launches, reason = _of_sizes(unit, number, call, places)
    if not launches:
        # A function passes on parameters that no size gives, such as the distances of a batch.
        plain_places = _other_integers(unit.functions[number], places)
        launches, _ = _of_sizes(unit, number, call, places, plain_places)
    return launches, "" if launches else reason


def _other_integers(target: Definition, places: Sequence[int]) -> list[int]:
    """Return the places of a kernel's integers that are no sizes."""
    other_places = list[int]()
    for place, parameter in enumerate(target.parameters):
        if "int" in parameter.dtype and not parameter.pointer and place not in places:
            other_places.append(place)
    return other_places


def _of_sizes(
    unit: Unit, number: int, call: HostCall, places: Sequence[int], plain_places: Sequence[int] = ()
) -> tuple[list[HostLaunch], str]:
    """Return the launches that a call makes with the sizes as inputs, and why there are none.

    number, places: as for host_code
    plain_places: as for chains_to
    """
    launches = _with_size_of_grid(unit, number, call, places, plain_places)
    if launches:
        return launches, ""
    launches, reasons = _on_chains(
        chains_to(unit, call, places, plain_places=plain_places), unit, number
    )
    return launches, reasons[-1] if reasons and not launches else ""


def _with_size_of_grid(
    unit: Unit, number: int, call: HostCall, places: Sequence[int], plain_places: Sequence[int]
) -> list[HostLaunch]:
    """Return the launches of a kernel whose third size or batch is only in its grid; [] for none.

    number, places: as for host_code
    plain_places: as for chains_to
    """
    if len(places) < len(SIZE_NAMES) - 1:
        return []
    sizes = [*chains_to(unit, call, places)[0].inputs[-1]]
    names = [*chains_to(unit, call, places, plain_places=plain_places)[0].inputs[-1]]
    extras = free_variables(unit, call, unit.functions[number], names)
    if len(places) >= len(SIZE_NAMES):
        extras = [extra for extra in extras if is_batch(extra.rpartition(".")[2])]
    for extra in extras:
        launches, _ = _on_chains(chains_to(unit, call, places, extra, plain_places), unit, number)
        grids = [" ".join(launch.grid) for launch in launches]
        if any(f"x{len(sizes)}" in grid for grid in grids):
            return launches
    return []


def _on_chains(
    chains: Sequence[CallChain], unit: Unit, number: int
) -> tuple[list[HostLaunch], list[str]]:
    """Return the launches of a kernel by the shortest chains that can be run.

    Also return why other chains can't be run.

    number: as for host_code
    """
    reasons = list[str]()
    for options in SLICES:
        for length, group in groupby(chains, lambda chain: len(chain.calls)):
            launches, reasons_of_group = _run_chains([*group], unit, number, options)
            reasons += reasons_of_group
            if not launches:
                continue
            if not options.has_shared:
                return [replace(launch, shared=None) for launch in launches], reasons
            callers = [chain for chain in chains if len(chain.calls) == length + 1]
            return _with_callers_rules(launches, callers, unit, number), reasons
    return [], reasons


def _run_chains(
    chains: Sequence[CallChain], unit: Unit, number: int, options: SliceOptions
) -> tuple[list[HostLaunch], list[str]]:
    """Return the launches of a kernel by those chains that can be run, and why others can't.

    number: as for host_code
    """
    launches = list[HostLaunch]()
    reasons = list[str]()
    for chain in chains:
        try:
            host = program(unit, chain, unit.functions[number], options)
            launches += _launches(host, unit, number)
        except BadSetting as error:
            reasons.append(str(error))
    return launches, reasons


def _with_callers_rules(
    launches: list[HostLaunch], callers: Sequence[CallChain], unit: Unit, number: int
) -> list[HostLaunch]:
    """Return launches with the rules that every caller of their function has.

    callers: chains that begin with a call of this function
    number: as for host_code
    """
    functions = {id(chain.calls[1].function): chain.calls[1].function for chain in callers}
    are_guarded = all("%" in text_of(chain.calls[0].function.body) for chain in callers)
    if not callers or not are_guarded or any(launch.rules for launch in launches):
        return launches
    if not all(is_only_called(unit, function) for function in functions.values()):
        return launches
    rules = [_rules_of_a_caller(launches, chain, unit, number) for chain in callers]
    if len(set(rules)) != 1 or rules[0] is None:
        return launches
    return [replace(launch, rules=rules[0]) for launch in launches]


def _rules_of_a_caller(
    launches: Sequence[HostLaunch], chain: CallChain, unit: Unit, number: int
) -> tuple[str, ...] | None:
    """Return the rules at which a caller makes the same launches.

    None if it makes other launches or can't be run. The caller may pass one variable for several
    sizes. Its rule then holds for each of them.

    number: as for host_code
    """
    guarded, reasons = _run_chains([chain], unit, number, SliceOptions())
    if reasons or not guarded:
        return None
    names = _names_in_caller(launches[0].variables, guarded[0].variables)
    expected = {
        (launch.template, tuple(filled(size, names) for size in launch.grid), launch.block)
        for launch in launches
    }
    if {(launch.template, launch.grid, launch.block) for launch in guarded} != expected:
        return None
    rules = list[str]()
    for rule in guarded[0].rules:
        variable, _, condition = rule.partition(" ")
        rules += [f"{name} {condition}" for name, outer in names.items() if outer == variable]
    return tuple(rules)


def _names_in_caller(
    variables: Sequence[tuple[int, ...]], variables_of_caller: Sequence[tuple[int, ...]]
) -> dict[str, str]:
    """Return the name of the caller's variable that is passed for each variable of a function.

    variables, variables_of_caller: as in HostLaunch
    """
    names = dict[str, str]()
    for number, places in enumerate(variables):
        for number_in_caller, places_in_caller in enumerate(variables_of_caller):
            if {*places} <= {*places_in_caller}:
                names.setdefault(f"x{number}", f"x{number_in_caller}")
    return names


def _launches(host: HostProgram, unit: Unit, number: int) -> list[HostLaunch]:
    """Run host code, and return its launches of a kernel.

    number: as for host_code
    Raises BadSetting for launches that can't be described.
    """
    sizes = sizes_to_try(len(host.places))
    try:
        records_of_rows = run(host, unit, sizes)
    except WorklogError as error:
        raise BadSetting(first_error(str(error))) from error
    if not any(len(records) for records in records_of_rows):
        raise BadSetting("the host code launches nothing")
    by_instance = dict[tuple[int, ...], list[tuple[int, Any]]]()
    for row, records in enumerate(records_of_rows):
        for record in records:
            if record["kernel"] == number:
                by_instance.setdefault(tuple(record["values"].tolist()), []).append((row, record))
    launches = list[HostLaunch]()
    for values, of_instance in by_instance.items():
        launches += _described(
            host,
            unit.functions[number],
            values,
            sizes=sizes,
            rows=np.array([row for row, _ in of_instance]),
            records=np.array([record for _, record in of_instance]),
        )
    return launches


def _described(
    host: HostProgram,
    target: Definition,
    values: Sequence[int],
    *,
    sizes: Integers,
    rows: Integers,
    records: Records,
) -> list[HostLaunch]:
    """Return the launches of one instance of a kernel.

    values: of the template
    sizes: of all runs
    rows: the run of each record
    Raises BadSetting for launches that can't be described.
    """
    names = [f"x{number}" for number in range(len(host.places))]
    is_launched = np.isin(np.arange(len(sizes)), rows)
    rules = guards(sizes, is_launched, names)
    blocks = np.unique(records["block"], axis=0)
    if len(blocks) > 1:
        # Several launches of one run, such as those of a benchmark.
        if len(blocks) * is_launched.sum() != len(rows):
            raise BadSetting("its block depends on the sizes")
        launches = list[HostLaunch]()
        for block in blocks:
            has_block = (records["block"] == block).all(axis=1)
            launches += _described(
                host,
                target,
                values,
                sizes=sizes,
                rows=rows[has_block],
                records=records[has_block],
            )
        return launches
    launched_sizes = sizes[rows]
    grid = list[str]()
    for axis in range(3):
        grid.append(fitted(launched_sizes, records["grid"][:, axis].astype(np.int64), names))
    shared = np.unique(records["shared"])
    maps: tuple[MatrixMap, ...] = ()
    unread_map = ""
    try:
        maps = passed_maps(target, launched_sizes, records, names)
    except BadSetting as error:
        unread_map = str(error)
    launch = HostLaunch(
        template=_values(target, values),
        grid=tuple(grid),
        block=tuple(int(size) for size in blocks[0]),
        shared=int(shared[0]) if len(shared) == 1 else None,
        variables=host.places,
        passed=tuple(_passed(host, target, launched_sizes, records)),
        rules=tuple(rules),
        unread_guards=host.unread_guards,
        maps=maps,
        unread_map=unread_map,
    )
    return [launch]


def _passed(
    host: HostProgram, target: Definition, sizes: Integers, records: Records
) -> Iterator[tuple[int, str]]:
    """Yield place and expression of each integer parameter that is no input.

    Parameters that no expression of the sizes gives are left out.

    sizes: of each record
    """
    names = [f"x{number}" for number in range(len(host.places))]
    input_places = set[int]().union(*host.places)
    for place, parameter in enumerate(target.parameters[:MAX_ARGUMENTS]):
        if place in input_places or parameter.pointer or "int" not in parameter.dtype:
            continue
        numbers = records["arguments"][:, place].astype(np.uint64).view(np.int64)
        with suppress(BadSetting):
            yield place, fitted(sizes, numbers, names)


@dataclass(frozen=True)
class Launched:
    """A launch that a host function made."""

    kernel: int  # the number of the kernel among the unit's functions
    template: tuple[str, ...]  # the template's arguments
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[int, ...]  # the bits of each argument


def launched_by(unit: Unit, function: Definition, inputs: Sequence[int]) -> list[Launched]:
    """Return the launches of a host function, in order.

    inputs: of its parameters, as for whole_program
    Raises BadSetting for a function that can't be run, with the line if it is known.
    """
    host = whole_program(unit, function)
    try:
        [records] = run(host, unit, np.array([inputs], np.int64), MAX_LAUNCHES_OF_A_FUNCTION)
    except WorklogError as error:
        raise BadSetting(first_error(str(error))) from error
    launches = list[Launched]()
    for record in records:
        number = int(record["kernel"])
        target = unit.functions[number]
        launch = Launched(
            kernel=number,
            template=_values(target, record["values"].tolist()),
            grid=tuple(record["grid"].tolist()),
            block=tuple(record["block"].tolist()),
            shared=int(record["shared"]),
            arguments=tuple(record["arguments"].tolist()[: len(target.parameters)]),
        )
        launches.append(launch)
    return launches


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
