"""The launch and the template's arguments that a source states.

They are in its comments or in its host code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from worklog.emulator.limits import MAX_SHARED_UNASKED
from worklog.errors import BadSetting
from worklog.kernel.host import (
    OTHER,
    HostCode,
    HostLaunch,
    encoding_lines,
    host_code,
    passed_to,
    template_types,
)
from worklog.kernel.launch import Launch, from_comments, readable
from worklog.kernel.signature import is_leading_dimension, matrix_of, named, size_of
from worklog.kernel.source import filled, split_list, uncommented
from worklog.kernel.tensor_map import MatrixMap, labelled
from worklog.kernel.unit import Definition, Unit
from worklog.runs.text import a_few

# A variable that a launch passes for several sizes: which of them a grid means isn't stated.
JOINT = re.compile(r"\b[MNK](?:_or_[MNK])+\b")
ASKS_FOR_SHARED = re.compile(r"MaxDynamicSharedMemorySize|MAX_DYNAMIC_SHARED_SIZE_BYTES")
UNKNOWN = "?"  # an argument of a template that isn't known
OF_A_COMMENT = "a comment"


@dataclass(frozen=True)
class Stated:
    """The launch of a kernel that a source states."""

    launch: Launch  # without grid and block if none is stated, or several are
    origin: str = ""  # where the launch was found; "" for nowhere
    unread: list[str] = field(default_factory=list)  # why launches of the kernel aren't read
    rules: tuple[str, ...] = ()  # of the sizes at which the host code launches the kernel


def stated_launch(
    source: str,
    unit: Unit,
    function: str,
    defined: Definition,
    *,
    values: Sequence[str],
    instance: str,
    programs: Iterable[tuple[str, Unit]] = (),
    with_joint: bool = False,
) -> Stated:
    """Return the launch that a source states.

    It is in a comment `grid: …, block: …` or in host code.

    source: lines whose comments may be about the kernel
    values: of each parameter, M, N or K, or a text that is no size
    instance: arguments of the template, as in "32, 8"
    programs: names and units of files that include the source. Their host code is run if the
        source's own host code states no launch
    with_joint: also accept a grid in which one variable stands for several sizes, as JOINT
    """
    constants, labels = _names_in_comments(unit, defined, values, instance)
    launches, prose = from_comments(source, function, constants, labels)
    unread = [prose] if prose else []
    choices = {launch: Stated(launch, OF_A_COMMENT) for launch in launches}
    for file, launching in chain([("", unit)], programs):
        if choices:
            break
        code = _host_code(launching, defined, values)
        host = f"the host code of {file}" if file else "the host code"
        prefix = f"{file}, " if file else ""
        unread += [prefix + line for line in code.unread]
        for host_launch in code.launches:
            if instance and not _is_instance(host_launch, instance):
                continue
            try:
                choice = _labelled(
                    host_launch, function, values=values, instance=instance, host=host
                )
            except BadSetting as error:
                unread.append(str(error))
                continue
            if JOINT.search(choice.launch.grid) and not with_joint:
                unread.append(f"{host} passes one variable for several sizes")
            else:
                choices[choice.launch] = choice
    return _only_choice(choices, function, unread)


def _only_choice(choices: Mapping[Launch, Stated], function: str, unread: list[str]) -> Stated:
    """Return the only launch, if there is exactly one.

    Otherwise, return a launch without grid and block.

    unread: why other launches aren't read
    """
    if not choices:
        return Stated(Launch(function), "", unread)
    if len(choices) > 1:
        launches = [
            f"{launch.function} with grid {launch.grid}, block {launch.block}" for launch in choices
        ]
        differ = f"its launches differ: {' or '.join(launches)}"
        return Stated(Launch(function), "", [differ, *unread])
    [choice] = choices.values()
    rules = () if unread else choice.rules
    if choice.origin == OF_A_COMMENT:
        return Stated(choice.launch, choice.origin, [], rules)
    return Stated(choice.launch, choice.origin, [*unread, *choice.unread], rules)


def _names_in_comments(
    unit: Unit, defined: Definition, values: Sequence[str], instance: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the constants that a comment may name, and the sizes by the kernel's names.

    Constants are expressions.
    """
    template = dict(zip(defined.template, split_list(instance), strict=False)) if instance else {}
    labels = dict[str, str]()
    for parameter, value in zip(defined.parameters, values, strict=False):
        if size_of(value):
            labels[parameter.name] = size_of(value)
    defaults = {name: value for name, value in defined.template.items() if value}
    constants = {**unit.constants, **defined.constants, **defaults, **template}
    for name in ("M", "N", "K", *labels):
        constants.pop(name, None)
    return constants, labels


def _host_code(unit: Unit, defined: Definition, values: Sequence[str]) -> HostCode:
    """Return what a unit's host code launches of a kernel."""
    for number, function in enumerate(unit.functions):
        if function.is_kernel and function.name == defined.name:
            places = tuple(place for place, value in enumerate(values) if size_of(value))
            return host_code(unit, number, places)
    return HostCode((), ())


def _is_instance(launch: HostLaunch, instance: str) -> bool:
    """Return whether a launch may be of the template's arguments."""
    arguments = split_list(instance)
    if len(arguments) != len(launch.template):
        return False
    pairs = zip(launch.template, arguments, strict=True)
    return all(launched in (UNKNOWN, argument) for launched, argument in pairs)


def _labelled(
    launch: HostLaunch, function: str, *, values: Sequence[str], instance: str, host: str
) -> Stated:
    """Return a launch in terms of M, N and K.

    host: the host code, for messages
    Raises BadSetting for an unknown argument of a template.
    """
    labels = [size_of(value) for value in values]
    names = launch.names(labels)
    if UNKNOWN in launch.template and not instance:
        raise BadSetting(f"{host} launches {function} with a type that isn't known")
    arguments = instance or ", ".join(launch.template)
    entry = f"{function}<{arguments}>" if arguments else function
    joint = {name: "M" for name in names.values() if JOINT.fullmatch(name)}
    grid = [filled(size, names) for size in launch.grid]
    block = [str(size) for size in launch.block]
    readable(entry, [filled(size, joint) for size in grid], block, {})
    _drop_ones(grid)
    _drop_ones(block)
    origin = host
    if launch.shared is None:
        origin += ", but for the bytes of its dynamic shared memory: give --shared"
    rules = list[str]()
    for rule in launch.rules:
        variable, _, condition = rule.partition(" ")
        for size in names[variable].split("_or_"):
            rules.append(f"{size} {condition}")
    labelled = Launch(entry, ", ".join(grid), ", ".join(block), launch.shared or 0)
    unread = list[str]()
    if launch.unread_guards:
        lines = a_few([str(line) for line in launch.unread_guards])
        unread.append(f"line {lines}: a guard of {host} isn't read: state the domain with --domain")
    return Stated(labelled, origin, unread, tuple(rules))


def _drop_ones(sizes: list[str]) -> None:
    """Remove the last sizes of a grid or a block that are 1."""
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()


def passed(defined: Definition, unit: Unit, labels: Sequence[str]) -> dict[int, str]:
    """Return the values that host code passes to integers without a label, by place.

    Values that differ between launches are left out.

    labels: of each parameter, M, N, K or ""
    """
    texts = dict[int, set[str]]()
    for launch in _host_code(unit, defined, labels).launches:
        names = launch.names(labels)
        for place, text in launch.passed:
            texts.setdefault(place, set()).add(filled(text, names))
    values = dict[int, str]()
    for place, passed_texts in texts.items():
        text, *differing = passed_texts
        if not differing and not JOINT.search(text):
            values[place] = text
    return values


def tensor_maps(
    defined: Definition, units: Iterable[Unit], values: Sequence[str]
) -> tuple[dict[str, MatrixMap], str]:
    """Return the tensor maps that host code passes, by parameter.

    Also return why others aren't read, or "".

    values: of each parameter
    """
    labels = [size_of(value) for value in values]
    unread = ""
    for unit in units:
        code = _host_code(unit, defined, values)
        choices = dict[tuple[MatrixMap, ...], None]()
        for launch in code.launches:
            names = launch.names(labels)
            choices[tuple(labelled(passed, names) for passed in launch.maps)] = None
            unread = unread or launch.unread_map
        if len(choices) == 1 and not unread:
            [maps] = choices
            return {passed.parameter: passed for passed in maps}, ""
        if len(choices) > 1:
            unread = unread or "the tensor maps of its launches differ"
        unread = unread or "; ".join(code.unread)
        lines = encoding_lines(unit)
        if lines and unread:
            unread = f"line {a_few([str(line) for line in lines])}: {unread}"
    return {}, unread


def leading_dimensions(defined: Definition, unit: Unit, values: Sequence[str]) -> dict[int, str]:
    """Return the leading dimensions that differ from their names, by place.

    The leading dimensions are the values that host code passes.

    values: of each parameter, by their names
    """
    dimensions = dict[int, str]()
    for place, texts in _leading_dimensions_passed(defined, unit, values).items():
        if len(texts) != 1 or texts == [""] or JOINT.search(texts[0]):
            continue
        if texts[0] != size_of(values[place]):
            dimensions[place] = texts[0]
    return dimensions


def unread_leading_dimensions(defined: Definition, unit: Unit, values: Sequence[str]) -> list[str]:
    """Return a warning for each leading dimension that isn't read from host code.

    values: of each parameter, by their names
    """
    warnings = list[str]()
    for place, texts in _leading_dimensions_passed(defined, unit, values).items():
        name = defined.parameters[place].name
        fallback = f"and {size_of(values[place])} is taken"
        if len(texts) > 1:
            warnings.append(f"{name}: the host code passes {' or '.join(texts)}, {fallback}")
        elif texts == [""]:
            warnings.append(f"{name}: what the host code passes isn't read, {fallback}")
    return warnings


def passes_leading_dimensions(
    defined: Definition, units: Iterable[Unit], values: Sequence[str]
) -> bool:
    """Return whether host code passes the kernel's leading dimensions.

    values: of each parameter, by their names
    """
    texts = list[str]()
    for unit in units:
        for passed_texts in _leading_dimensions_passed(defined, unit, values).values():
            texts += passed_texts
    return any(texts)  # a launcher that passes on its own lda states no value of it


def _leading_dimensions_passed(
    defined: Definition, unit: Unit, values: Sequence[str]
) -> dict[int, list[str]]:
    """Return the values that host code passes for leading dimensions, by place; "" for unknown.

    values: of each parameter, by their names
    """
    labels = [size_of(value) for value in values]
    places = list[int]()
    for place, parameter in enumerate(defined.parameters):
        if is_leading_dimension(parameter) and labels[place]:
            labels[place] = ""
            places.append(place)
    launches = _host_code(unit, defined, labels).launches if places else ()
    return {place: sorted(_texts_passed(launches, labels, place)) for place in places}


def _texts_passed(launches: Sequence[HostLaunch], labels: Sequence[str], place: int) -> set[str]:
    """Return the values that launches pass for a parameter; "" for an unknown value.

    labels: of each parameter, in terms of which the values are
    """
    texts = set[str]()
    for launch in launches:
        names = launch.names(labels)
        text = filled(dict(launch.passed).get(place, ""), names)
        if re.search(rf"\b{OTHER}\b", text):
            text = ""
        texts.add(text)
    return texts


def exchanged_matrices(defined: Definition, unit: Unit) -> str:
    """Describe the matrices that host code passes for another matrix; "" for none.

    The names of the kernel's parameters decide.
    """
    matrices = [matrix_of(parameter.name) for parameter in defined.parameters]
    for names in passed_to(unit, defined):
        exchanged = list[str]()
        for matrix, name in zip(matrices, names, strict=False):
            if matrix and matrix_of(name) not in ("", matrix):
                exchanged.append(f"{name} for {matrix}")
        if exchanged:
            return f"the host code passes {' and '.join(exchanged)}"
    return ""


def lacks_permission(unit: Unit, shared: int) -> bool:
    """Return whether host code doesn't ask for the dynamic shared memory that it needs.

    shared: bytes
    """
    source, _, headers = unit.arguments
    texts = [source, *(text for _, text in headers)]
    has_asked = any(ASKS_FOR_SHARED.search(uncommented(text)) for text in texts)
    return shared > MAX_SHARED_UNASKED and not has_asked


def instances(function: str, defined: Definition, unit: Unit) -> list[str]:
    """Return the instances of a template that the host code launches, such as gemm<16>."""
    if not defined.template:
        return []
    launches = _host_code(unit, defined, named(defined.parameters)).launches
    names = list[str]()
    for launch in launches:
        name = f"{function}<{', '.join(launch.template)}>"
        if UNKNOWN not in launch.template and name not in names:
            names.append(name)
    return names


def instantiated(defined: Definition, unit: Unit) -> str:
    """Return the arguments of a template's only explicit instantiation.

    "" for none or several.
    """
    name = re.escape(defined.name.rpartition("::")[2])
    matches = [re.search(rf"\b{name}\s*<(.+?)>\s*\(", text) for text in unit.instances]
    arguments = {match[1] for match in matches if match}
    return arguments.pop() if len(arguments) == 1 else ""


def unbound(function: str, defined: Definition, unit: Unit) -> str:
    """Describe a template that is named without its arguments, with advice."""
    about = f"{function} is a template of {', '.join(defined.template)}"
    launched = instances(function, defined, unit)
    if launched:
        remark = f"the host code launches {' and '.join(launched)}"
        return f"{about}: name an instance with --entry '{launched[0]}' ({remark})"
    kinds = template_types(defined)
    example = ", ".join("float" if kind == "typename" else "32" for kind in kinds)
    return f"{about}: give a value of each, as in --entry '{function}<{example}>'"
