"""What a source's host code launches, by running it on the emulator at many sizes.

Each run of the program (worklog.kernel.host_slice) has sizes of its own, and records its launches. A grid is then the
expression of the sizes that gives what was recorded at all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting, LaunchFailed, WorklogError
from worklog.kernel.device import COMPILE_OPTIONS, Program
from worklog.kernel.host_slice import ENTRY, HostProgram, Way, program, template_types
from worklog.kernel.nvrtc import HOST, HOST_AS_DEVICE, compile_cuda, host_header
from worklog.kernel.unit import Definition, Unit

HEADER = Path(__file__).with_name("launcher.cuh")
MOST_LAUNCHES = 16  # of a run
MOST_TEMPLATE, MOST_ARGUMENTS = 16, 32  # as in HEADER
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
TYPES = {1: "float", 2: "double", 3: "int", 4: "unsigned", 5: "long long", 6: "float2", 7: "float4"}
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
class Launched:
    """A launch of a kernel in all runs.

    values: of the template's parameters, as code
    shared: bytes
    rows: the runs that made it
    sizes: of the inputs, rows by inputs
    grid: rows by axes
    arguments: rows by parameters, as the bits of each
    """

    values: tuple[str, ...]
    block: tuple[int, ...]
    shared: int
    rows: Integers
    sizes: Integers
    grid: Integers
    arguments: NDArray[np.uint64]


@lru_cache(maxsize=64)
def _compiled(source: str, options: tuple[str, ...], headers: tuple[tuple[str, str], ...]) -> Any:
    from worklog.emulator import load  # here: most commands need none of it

    code = Program("host.cu", source, ENTRY, options, headers=headers)
    built = compile_cuda(code)
    return load(built.ptx, built.symbol)


def run(
    host: HostProgram, unit: Unit, sizes: Integers, folders: Sequence[str] = ()
) -> list[NDArray[Any]]:
    """Return the records of the launches of each run.

    sizes: rows by inputs
    Raises WorklogError for what can't be compiled, and LaunchFailed for a run that fails.
    """
    from worklog.emulator import launch
    from worklog.emulator.program import load_variables

    headers = {
        HEADER.name: HEADER.read_text(encoding="utf-8"),
        HOST.name: host_header(host.text, unit),
    }
    options = (*COMPILE_OPTIONS, HOST_AS_DEVICE)
    text = "".join(f'#include "{name}"\n' for name in headers) + host.text
    kernel = _compiled(text, options, tuple(headers.items()))
    rows = len(sizes)
    records = np.zeros(rows * MOST_LAUNCHES, RECORD)
    counts = np.zeros(rows, np.uint32)
    inputs = np.ascontiguousarray(sizes, dtype=np.int64).reshape(-1)
    if not inputs.size:
        inputs = np.zeros(1, np.int64)
    result = launch(
        kernel,
        (rows,),
        1,
        [
            inputs,
            np.int32(sizes.shape[1]),
            records.view(np.uint8),
            counts,
            np.int32(MOST_LAUNCHES),
        ],
        variables=load_variables(kernel),
        races=False,
        count=False,
    )
    for finding in result.findings:
        if finding.is_error:
            raise LaunchFailed(f"the host code fails: {finding.message}")
    by_row = records.reshape(rows, MOST_LAUNCHES)
    return [by_row[row, : min(int(count), MOST_LAUNCHES)] for row, count in enumerate(counts)]


def sizes_to_try(inputs: int) -> Integers:
    """Return the sizes of each run: those where one input varies, and others where all do."""
    rows = [np.full((1, inputs), BASE)]
    values = np.concatenate((NEAR, FAR))
    for place in range(inputs):
        part = np.full((len(values), inputs), BASE)
        part[:, place] = values
        rows.append(part)
    rng = np.random.default_rng(1)
    rows.append(rng.integers(1, 40_000, (RANDOM_ROWS, inputs)))
    rows.append(rng.integers(1, 80, (RANDOM_ROWS, inputs)) * 512)
    return np.concatenate(rows).astype(np.int64)


def launches_of(
    unit: Unit, way: Way, target: Definition, *, has_conditions: bool = True
) -> list[Launched]:
    """Return the launches of a kernel that host code makes on a way, one for each instance and block.

    Raises BadSetting, which says why they can't be told.
    """
    host, why = program(unit, way, target, has_conditions=has_conditions)
    if host is None:
        raise BadSetting(why)
    sizes = sizes_to_try(len(host.inputs))
    try:
        by_row = run(host, unit, sizes)
    except WorklogError as error:
        raise BadSetting(_first_error(str(error))) from error
    number = unit.functions.index(target)
    found = dict[Any, list[tuple[int, Any]]]()
    for row, records in enumerate(by_row):
        for record in records:
            if record["kernel"] == number:
                key = (
                    tuple(record["values"].tolist()),
                    tuple(record["block"].tolist()),
                    int(record["shared"]),
                )
                found.setdefault(key, []).append((row, record))
    launches = list[Launched]()
    for (values, block, shared), made in found.items():
        rows = np.array([row for row, _ in made])
        launches.append(
            Launched(
                _values(target, values),
                block,
                shared,
                rows,
                sizes[rows],
                np.array([record["grid"] for _, record in made]).astype(np.int64),
                np.array([record["arguments"] for _, record in made]),
            )
        )
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


def _first_error(text: str) -> str:
    """Return the first line of an error."""
    line = next((line for line in text.splitlines() if line.strip()), text)
    return re.sub(r"^host\.cu:\d+: ", "", line)


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
        pairs += [(-steps[0] % tile, tile), (-steps[0] % tile + tile, tile)]
    for tile in range(len(NEAR) // 2, MOST_TILE + 1):
        pairs += [(tile - 1, tile), (0, tile)]
    varied = size[alone]
    seen = counts[alone]
    most = int(seen.max())
    for added, tile in pairs:
        text = name if tile == 1 and added == 0 else f"({name} + {added}) / {tile}"
        text = text.replace(" + 0)", ")").replace(f"({name})", name).removesuffix(" / 1")
        values = (varied + added) // tile
        if _is_proportional(values, seen):
            yield text, (size + added) // tile
        elif _is_proportional(np.maximum(values, 1), seen):
            yield f"max({text}, 1)", np.maximum((size + added) // tile, 1)
        elif (seen == most).sum() > 1 and (np.minimum(values, most) == seen).all():
            if len({*seen.tolist()}) >= LEAST_STEPS:
                yield f"min({text}, {most})", np.minimum((size + added) // tile, most)


def _is_proportional(values: Integers, seen: Integers) -> bool:
    """Return whether what was seen is a constant multiple of values."""
    top = int(values.argmax())
    return bool(values[top] > 0 and (values * seen[top] == seen * values[top]).all())


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
