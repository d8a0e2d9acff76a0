"""Reads a source text: its kernel, its order of parameters, its launch and its domain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

from worklog.emulator.limits import MAX_SHARED_UNASKED
from worklog.errors import BadSetting, listed, meant
from worklog.kernel import launch as launches
from worklog.kernel import near, scales, signature, stated, tensor_map
from worklog.kernel.device import Program
from worklog.kernel.launch import UNREAD_DOMAIN, Launch
from worklog.kernel.nvrtc import Missing, missing, prepared, read_unit, with_folders
from worklog.kernel.source import filled, included, read_source, split_list
from worklog.kernel.tensor_map import MatrixMap
from worklog.kernel.unit import Definition, Unit
from worklog.problem.epilogues import EPILOGUES
from worklog.problem.formats import Types


@dataclass(frozen=True)
class SourceRequest:
    """The arguments of Kernel.from_source, with the grid and the block as texts."""

    source: str
    entry: str | None
    domain: str | None
    claimed: str
    name: str
    args: str | None
    by_columns: str | None
    epilogue: str | None
    file: str
    block: str
    grid: str
    include: Sequence[str | Path]
    define: Sequence[str]
    shared: int  # bytes
    programs: Sequence[near.Includer]
    ambiguous: Sequence[Missing]


@dataclass(frozen=True)
class SourceFacts:
    """What a source text states about the kernel that a request is for."""

    function: str  # the kernel's name without template arguments
    code: Program
    launch: Launch
    template: Mapping[str, int]
    rules: str  # of the domain
    states_domain: bool  # in the request, or in a comment that is read
    claimed: str  # the precision class
    types: Types  # the formats of A, B and C
    arguments: tuple[str, ...]  # the value that each parameter takes
    maps: tuple[MatrixMap, ...]  # of the arguments that are tensor maps
    adapted: tuple[str, ...]  # facts that were read from the source, for the user
    warnings: tuple[str, ...]  # facts that the source leaves open
    # Host code or the request passes the leading dimensions: a kernel may need these values.
    states_leading: bool
    has_trial: bool  # whether a trial may find an order or a launch, or verify an order by names


def read_kernel(request: SourceRequest) -> SourceFacts:
    """Return what the source of a request states. Raises BadSetting."""
    chosen = _chosen(request)
    by_columns = _by_columns(request, chosen)
    order = _order(request, chosen, by_columns)
    of_source = _launch_of_source(request, chosen, order.arguments)
    order.adapted += of_source.unread
    launch = _with_template(of_source.launch, chosen)
    if launch is None:
        launch = of_source.launch
        order = _unbound(chosen, order, of_source)
    launch = _with_options(launch, request, chosen)
    order = _with_maps(request, chosen, order)
    types = signature.types_of_matrices(
        chosen.defined,
        order.arguments,
        launch.instance,
        source=request.source,
        layout=Types(by_columns=by_columns, epilogue=_epilogue(request, chosen)),
    )
    types = tensor_map.types_of_maps(order.maps, order.arguments, types)
    rules, states_domain, remarks = _domain(request, chosen, of_source.rules)
    origin = _origin(request, of_source)
    code = _code(request, chosen, launch)
    adapted = [
        *order.adapted,
        *remarks,
        *_launch_remarks(request, chosen, launch, origin),
        *_headers_left_out(code),
    ]
    warnings = [*order.warnings, *_shared_warnings(request, chosen, launch, origin)]
    return SourceFacts(
        function=chosen.function,
        code=code,
        launch=launch,
        template=chosen.template,
        rules=rules,
        states_domain=states_domain,
        claimed=request.claimed or chosen.claims or types.default_precision,
        types=types,
        arguments=order.arguments,
        maps=order.maps,
        adapted=tuple(adapted),
        warnings=tuple(warnings),
        states_leading=_states_leading(request, chosen, order.arguments),
        has_trial=_has_trial(request, order, launch)
        or _has_unknown_layout(request, chosen, order, types),
    )


def require_arguments(source: Any, shared: Any, **texts: Any) -> None:
    """Raise BadSetting for arguments of a wrong type or without contents.

    texts: the arguments that are text or None
    """
    for argument, text in {"source": source, **texts}.items():
        _require_text(argument, text)
    _require_no_path(source)
    _require_bytes(shared)


def _require_text(argument: str, text: Any) -> None:
    """Raise BadSetting for an argument that isn't text, and an empty domain or order."""
    if not isinstance(text, str) and (text is not None or argument == "source"):
        raise BadSetting(f"{argument}: give text, not {text!r:.60}")
    if argument in ("domain", "args") and text is not None and not text.strip():
        metavar = "NAMES" if argument == "args" else "SHAPES"
        raise BadSetting(f"{argument} is empty: give {metavar}, or omit it")


def _require_no_path(source: str) -> None:
    """Raise BadSetting for the name of a file in place of a source text."""
    if source.strip().endswith(".cu") and "{" not in source:
        raise BadSetting(
            f"{source.strip()!r} is the name of a file: give its text, or use Kernel.from_file"
        )


def _require_bytes(shared: Any) -> None:
    """Raise BadSetting if the bytes of dynamic shared memory aren't an integer from 0 on."""
    if not isinstance(shared, Integral) or shared < 0:
        raise BadSetting(f"cannot take {shared!r} bytes of dynamic shared memory: give 0 or more")


@dataclass(frozen=True)
class _Chosen:
    """The kernel that a request is for, as its source defines it."""

    function: str  # its name without template arguments
    defined: Definition
    unit: Unit
    tile: Mapping[str, int]  # values of parameters in the source's header comment
    template: Mapping[str, int]  # the tile, if it is of this kernel's template; else empty
    instance: str  # other arguments of the template, as in "32, 8"; "" for none or unknown ones
    claims: str  # the precision class in the header comment; "" if it states none
    header_launch: Launch  # the launch in the header comment, without a function
    include: Sequence[str | Path]  # folders of headers
    front: tuple[str, str]  # name and code of a program in front of the source; empty for none


def _chosen(request: SourceRequest) -> _Chosen:
    """Return the kernel that a request is for. Raises BadSetting if that isn't clear."""
    include = request.include
    unit = read_unit(request.source, include, request.define)
    tile, claims, header_launch = launches.header(request.source)
    function, bracket, instance = _entry(request, unit).partition("<")
    function = function.strip()
    instance = instance.rpartition(">")[0]
    front = ("", "")
    program = _program_in_front(request, unit, function)
    if program is not None:
        front = (program.path.name, program.code_before)
        include = [*include, *program.folders]
        unit = read_unit(request.source, include, request.define, front)
    defined = _definition(request.file, unit, function)
    template: Mapping[str, int] = {}
    if not bracket and {*tile} <= {*defined.template}:
        template = tile
    if not instance and not template:
        instance = _instance(function, defined, unit)
    return _Chosen(
        function=function,
        defined=defined,
        unit=unit,
        tile=tile,
        template=template,
        instance=instance,
        claims=claims,
        header_launch=header_launch,
        include=include,
        front=front,
    )


def _entry(request: SourceRequest, unit: Unit) -> str:
    """Return the name of the kernel, with template arguments if the request has them.

    Raises BadSetting for a source without kernels, and for a source of several kernels if the
    request names none.
    """
    if request.entry:
        return request.entry
    kernels = unit.kernels
    if not kernels:
        raise BadSetting(
            f"{request.file} has no __global__ function: write one, or start from: worklog new "
            "mine.cu"
        )
    if len(kernels) > 1:
        raise BadSetting(
            f"{request.file} has {len(kernels)} kernels ({', '.join(kernels)}): name one with "
            "--entry, "
            "or launch several in a function as worklog new sgemm writes one"
        )
    return kernels[0]


def _program_in_front(request: SourceRequest, unit: Unit, function: str) -> near.Includer | None:
    """Return the nearest program with code before the source, if the kernel needs the code.

    Else None.
    """
    for program in request.programs:
        if program.code_before:
            in_front = unit_of(program, program.code_before, request.include, request.define)
            return program if unit.lacks(function, in_front) else None
    return None


def _definition(file: str, unit: Unit, function: str) -> Definition:
    """Return the definition of a kernel.

    Raises BadSetting for an unknown and for an overloaded function.
    """
    defined = unit.definition(function)
    if defined is None:
        kernels = ", ".join(unit.kernels) or "none"
        raise BadSetting(
            f"{file} has no kernel {function}{meant(function, unit.kernels)}: its kernels are "
            f"{kernels}"
        )
    overloads = set()
    for other in unit.functions:
        if other.is_kernel and other.name == defined.name:
            overloads.add(other.parameters)
    if len(overloads) > 1:
        raise BadSetting(
            f"{file} has {function} with different parameters: give each a name of its own"
        )
    return defined


def _instance(function: str, defined: Definition, unit: Unit) -> str:
    """Return the only possible arguments of a template, as in "32, 8".

    "" if there are none or several.
    """
    launched = [
        name.removeprefix(f"{function}<").removesuffix(">")
        for name in stated.instances(function, defined, unit)
    ]
    if len(launched) == 1:
        return launched[0]
    instantiated = stated.instantiated(defined, unit)
    if instantiated and not launched:
        return instantiated
    pointed = {parameter.type for parameter in defined.parameters if parameter.pointer}
    if defined.template and {*defined.template} <= pointed:
        return ", ".join("float" for _ in defined.template)  # the ladder's type
    return ""


@dataclass
class _ParameterOrder:
    """The order of a kernel's parameters, and what the user is told of it."""

    arguments: tuple[str, ...]  # the value that each parameter takes; empty if unknown
    adapted: list[str]  # facts that were read from the source
    warnings: list[str]
    is_unclear: bool = False  # the names don't say which parameter is which
    maps: tuple[MatrixMap, ...] = ()  # of the arguments that are tensor maps


def _order(request: SourceRequest, chosen: _Chosen, by_columns: str) -> _ParameterOrder:
    """Return the order of a kernel's parameters. If it is unknown, `adapted` has only the reason.

    by_columns: as in Types

    Raises BadSetting if the request states a wrong order, or a launch of a kernel that the gate
    can't pass its arguments to.
    """
    file = request.file
    defined = chosen.defined
    unit = chosen.unit
    adapted = list[str]()
    warnings = list[str]()
    if chosen.front[0]:
        adapted.append(f"compiled behind the code of {chosen.front[0]}, which includes {file}")
    try:
        text = _text_about_maps(request, chosen)
        arguments = signature.order(
            request.args or "",
            file,
            chosen.function,
            defined,
            mapped=tensor_map.matrices_in_comments(text),
        )
        if not request.args:
            arguments = scales.with_vector_scales(arguments, defined, unit, request.source)
        passed = dict[int, str]()
        exchanged = ""
        if not request.args:
            passed = stated.leading_dimensions(defined, unit, arguments)
            warnings += stated.unread_leading_dimensions(defined, unit, arguments)
            arguments = signature.turned(defined.parameters, arguments, by_columns)
        arguments = signature.with_sizes(arguments, passed)
        adapted += signature.described(defined, arguments)
        for place, size in passed.items():
            adapted.append(f"{defined.parameters[place].name}: the host code passes {size}")
        if not request.args:
            exchanged = stated.exchanged_matrices(defined, unit)
        if exchanged:
            adapted.append(f"{exchanged}; the kernel is checked as its parameters' names say")
    except BadSetting as error:
        is_unclear = isinstance(error, signature.UnclearOrder)
        if request.args or ((request.grid or request.block) and not is_unclear):
            raise
        # The kernel can still be compiled.
        return _ParameterOrder((), [str(error).removeprefix(f"{file}: ")], warnings, is_unclear)
    return _ParameterOrder(arguments, adapted, warnings)


def _text_about_maps(request: SourceRequest, chosen: _Chosen) -> str:
    """Return the lines of a source whose comments may be about the kernel's tensor maps."""
    return launches.own_part(request.source, chosen.unit, chosen.defined, tensor_map.LABEL)


def _with_maps(request: SourceRequest, chosen: _Chosen, order: _ParameterOrder) -> _ParameterOrder:
    """Return the order with the tensor maps that comments or host code state.

    Without an order, and with the reason, if a map isn't stated.
    """
    pairs = zip(chosen.defined.parameters, order.arguments, strict=False)
    mapped = [parameter.name for parameter, value in pairs if signature.is_map(value)]
    if not mapped:
        return order
    maps, unread = _maps_in_comments(request, chosen)
    origin = "a comment"
    if not {*mapped} <= {*maps}:
        programs = units_of(request.programs, chosen.include, request.define)
        units = [chosen.unit, *(unit for _, unit in programs)]
        of_host, unread_in_host = stated.tensor_maps(chosen.defined, units, order.arguments)
        origin = f"{origin} and the host code" if maps else "the host code"
        maps = {**of_host, **maps}
        unread = unread or unread_in_host
    unknown = [name for name in mapped if name not in maps]
    if unknown:
        advice = f"state it in a comment, as in {tensor_map.EXAMPLE}"
        reason = f"the box of {' and '.join(unknown)} isn't known: {advice}"
        return _ParameterOrder((), ["; ".join(filter(None, (unread, reason)))], order.warnings)
    lines = [f"tensor map {name}: {maps[name]}; from {origin}" for name in mapped]
    passed = tuple(maps[name] for name in mapped)
    return replace(
        order,
        adapted=[*order.adapted, *lines],
        warnings=[*order.warnings, *tensor_map.transposed(passed, order.arguments)],
        maps=passed,
    )


def _maps_in_comments(request: SourceRequest, chosen: _Chosen) -> tuple[dict[str, MatrixMap], str]:
    """Return the tensor maps that comments state, and why others aren't read or ""."""
    names = {**chosen.unit.constants, **chosen.defined.constants}
    names |= dict(zip(chosen.defined.template, split_list(chosen.instance), strict=False))
    for name in (*signature.SIZE_NAMES, *chosen.template):
        names.pop(name, None)
    return tensor_map.from_comments(_text_about_maps(request, chosen), names, chosen.template)


def _launch_of_source(
    request: SourceRequest, chosen: _Chosen, arguments: tuple[str, ...]
) -> stated.Stated:
    """Return the launch that the source states.

    Without grid and block if none is stated or needed.
    """
    if chosen.header_launch.grid and (chosen.template or not chosen.tile):
        return stated.Stated(replace(chosen.header_launch, function=chosen.function), "a comment")
    if not arguments or (request.grid and request.block):
        return stated.Stated(Launch(chosen.function))
    return stated.stated_launch(
        launches.own_part(request.source, chosen.unit, chosen.defined, "grid"),
        chosen.unit,
        chosen.function,
        chosen.defined,
        values=arguments,
        instance=chosen.instance or ", ".join(map(str, chosen.template.values())),
        programs=units_of(request.programs, chosen.include, request.define),
    )


def _with_template(launch: Launch, chosen: _Chosen) -> Launch | None:
    """Return a launch with the template's arguments; None if these are unknown."""
    function = chosen.function
    arguments = chosen.instance or ", ".join(chosen.template)
    if arguments:
        return replace(launch, function=f"{function}<{arguments}>")
    if not chosen.defined.template or launch.function != function:
        return launch
    if all(chosen.defined.template.values()):
        return replace(launch, function=f"{function}<>")
    return None


def _unbound(chosen: _Chosen, order: _ParameterOrder, of_source: stated.Stated) -> _ParameterOrder:
    """Return no order, with the reason that a template's arguments are unknown."""
    advice = stated.unbound(chosen.function, chosen.defined, chosen.unit)
    reasons = of_source.unread if order.arguments else order.adapted
    return _ParameterOrder((), ["; ".join((advice, *reasons))], order.warnings)


def _with_options(launch: Launch, request: SourceRequest, chosen: _Chosen) -> Launch:
    """Return a launch with the request's grid, block and shared memory in place of the source's."""
    shared = request.shared or launch.shared
    return replace(
        launch,
        grid=request.grid or launch.grid,
        block=request.block or launch.block,
        shared=shared or chosen.header_launch.shared,
    )


def _domain(
    request: SourceRequest, chosen: _Chosen, host_rules: tuple[str, ...]
) -> tuple[str, bool, list[str]]:
    """Return the rules of the domain, whether it is stated, and where the source states it.

    host_rules: rules of the sizes at which the host code launches the kernel
    """
    if request.domain:
        return request.domain, True, []
    text = launches.own_part(request.source, chosen.unit, chosen.defined, "domain")
    rules, remarks = launches.domain(text, chosen.template)
    if rules == "any" and host_rules:
        rules = ", ".join(host_rules)
        remarks = [f"domain: {rules}; the host code launches it at no other size"]
        return rules, False, remarks
    is_unread = any(remark.startswith(UNREAD_DOMAIN) for remark in remarks)
    return rules, bool(launches.stated(text, "domain")) and not is_unread, remarks


def _by_columns(request: SourceRequest, chosen: _Chosen) -> str:
    """Return the factors that lie in memory by columns, as in Types.

    A comment of another text than A, B or both is a comment like any other. Raises BadSetting for
    an option of another text.
    """
    texts = [request.by_columns] if request.by_columns else []
    if not texts:
        text = launches.own_part(request.source, chosen.unit, chosen.defined, "by columns")
        stated_names = launches.stated(text, "by columns")
        texts = [names for names in stated_names if re.fullmatch(r"[AB](\W+(and )?[AB])?", names)]
    names = "".join(sorted(re.findall(r"\w+", " ".join(texts))))
    if names not in ("", "A", "B", "AB"):
        raise BadSetting(f"by columns: {' '.join(texts)!r}: give A, B, or A, B")
    return names


def _epilogue(request: SourceRequest, chosen: _Chosen) -> str:
    """Return the activation of the result, one of EPILOGUES, or "".

    A comment of another text is a comment like any other. Raises BadSetting for an option of
    another text, and for several.
    """
    text = launches.own_part(request.source, chosen.unit, chosen.defined, "epilogue")
    stated_names = {_spaced(name) for name in launches.stated(text, "epilogue")}
    names = {_spaced(request.epilogue)} if request.epilogue else stated_names & {*EPILOGUES}
    if not names:
        return ""
    if len(names) > 1 or not names <= {*EPILOGUES}:
        raise BadSetting(
            f"epilogue: {' and '.join(sorted(names))}: give one of {', '.join(EPILOGUES)}"
        )
    return names.pop()


def _spaced(name: str) -> str:
    """Return a name in lower case, with spaces for underscores."""
    return name.strip().lower().replace("_", " ")


def _origin(request: SourceRequest, of_source: stated.Stated) -> str:
    """Return where a launch was found, with advice if only its block is replaced.

    "" for nowhere.
    """
    origin = of_source.origin
    block = of_source.launch.block
    if request.grid or not request.block or split_list(request.block) == split_list(block):
        return origin
    if origin.startswith(("a comment", "the host code")):
        return f"{origin}, which states this grid with block {block}: give --grid, too"
    return origin


def _launch_remarks(
    request: SourceRequest, chosen: _Chosen, launch: Launch, origin: str
) -> list[str]:
    """Return the line that describes a launch of the source.

    No line if the request has grid and block.
    """
    if not origin or (request.grid and request.block):
        return []
    dynamic = ""
    if launch.shared and not chosen.header_launch.shared:
        dynamic = f"; {launch.shared} bytes of dynamic shared memory"
    options = ""
    if request.grid:
        options = "--grid and "
    elif request.block:
        options = "--block and "
    return [f"launch: grid {launch.grid}; block {launch.block}{dynamic}; from {options}{origin}"]


def _code(request: SourceRequest, chosen: _Chosen, launch: Launch) -> Program:
    """Return the program to compile."""
    code = prepared(
        request.file,
        request.source,
        filled(launch.function, chosen.template),
        include=chosen.include,
        define=request.define,
        front=chosen.front,
    )
    return with_folders(code, request.ambiguous)


def _headers_left_out(code: Program) -> list[str]:
    """Return a line for each header that a program lacks."""
    lines = []
    for header in missing(code):
        comma = "," if header.folders else ""
        advice = f"{header.advice}{comma} if the kernel needs it"
        lines.append(f"{header.where}, and is left out: {advice}")
    return lines


def _shared_warnings(
    request: SourceRequest, chosen: _Chosen, launch: Launch, origin: str
) -> list[str]:
    """Return a warning if the host code's launch fails for its dynamic shared memory."""
    if origin != "the host code" or request.shared:
        return []
    if not stated.lacks_permission(chosen.unit, launch.shared):
        return []
    return [
        (
            f"the host code launches it with {launch.shared:,} bytes of dynamic shared memory, and "
            f"fails: above {MAX_SHARED_UNASKED:,} it must call cudaFuncSetAttribute"
        )
    ]


def _states_leading(request: SourceRequest, chosen: _Chosen, arguments: tuple[str, ...]) -> bool:
    """Return whether host code or the request passes the leading dimensions."""
    if request.args:
        return True
    if not any(map(signature.is_leading_dimension, chosen.defined.parameters)) or not arguments:
        return False
    programs = units_of(request.programs, chosen.include, request.define)
    units = [chosen.unit, *(unit for _, unit in programs)]
    return stated.passes_leading_dimensions(chosen.defined, units, arguments)


def _has_trial(request: SourceRequest, order: _ParameterOrder, launch: Launch) -> bool:
    """Return whether a trial may find an order or a launch, or verify an order by names."""
    if order.is_unclear:
        return True
    if not order.arguments or order.maps or signature.goes_beyond_product(order.arguments):
        return False
    has_launch = bool(launch.grid and launch.block)
    is_by_name = not request.args and not signature.is_ladders(order.arguments)
    return is_by_name or not has_launch


def _has_unknown_layout(
    request: SourceRequest, chosen: _Chosen, order: _ParameterOrder, types: Types
) -> bool:
    """Return whether a layer, or a kernel of short factors, leaves open where B lies."""
    if request.args or types.by_columns or order.maps or not order.arguments:
        return False
    return types.has_short_factors or signature.is_layer(chosen.defined.parameters)


def near_headers(
    path: Path, source: str, include: Sequence[str | Path] | str | Path
) -> near.Headers:
    """Return the folders of a file's headers, and headers that several folders have.

    The folders are those in `include`, the file's own folder and folders near it.
    """
    folders = [Path(folder) for folder in listed("include", include)]
    if any((path.parent / header).is_file() for header in included(source)):
        folders.append(path.parent)
    headers = near.folders_of_headers(path, source, folders)
    return replace(headers, folders=[*folders, *headers.folders])


def unit_of(
    program: near.Includer, text: str, include: Sequence[str | Path], define: Sequence[str]
) -> Unit:
    """Return what a file that includes a kernel's file defines.

    text: the file's text, or its beginning
    """
    folders = [*program.folders, *map(Path, include)]
    headers = near.folders_of_headers(program.path, text, folders)
    return read_unit(text, [*folders, *headers.folders], define)


def units_of(
    programs: Sequence[near.Includer], include: Sequence[str | Path], define: Sequence[str]
) -> Iterator[tuple[str, Unit]]:
    """Yield the name of each file that includes a kernel's file, and what it defines."""
    for program in programs:
        text = read_source(program.path)
        yield program.path.name, unit_of(program, text, include, define)
