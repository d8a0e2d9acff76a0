"""The launches that a host program records on the emulator, at each row of sizes."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import LaunchFailed, WorklogError
from worklog.kernel.device import Program
from worklog.kernel.host.fit import Integers
from worklog.kernel.host.program import ENTRY, HostProgram
from worklog.kernel.host.text import LINES
from worklog.kernel.nvrtc import HOST, HOST_AS_DEVICE, host_header
from worklog.kernel.signature import MAP_TYPE
from worklog.kernel.unit import Unit

HEADER = Path(__file__).with_name("launcher.cuh")
MAX_LAUNCHES = 16  # of a run at one row of sizes
# As in HEADER.
MAX_TEMPLATE = 16
MAX_ARGUMENTS = 32
MAX_MAPS = 4
ENCODED = np.dtype(
    [
        ("sizes", "5u8"),
        ("strides", "4u8"),
        ("box", "5u4"),
        ("steps", "5u1"),
        *((name, "u1") for name in ("rank", "type", "interleave", "swizzle")),
        *((name, "u1") for name in ("promotion", "fill", "is_encoded")),
        ("_", "V24"),
    ]
)
RECORD = np.dtype(
    [
        ("kernel", "u8"),
        ("shared", "u8"),
        ("grid", "3u8"),
        ("block", "3u8"),
        ("values", f"{MAX_TEMPLATE}u8"),
        ("arguments", f"{MAX_ARGUMENTS}u8"),
        ("maps", ENCODED, MAX_MAPS),
    ]
)
Records = NDArray[Any]  # of RECORD


@lru_cache(maxsize=64)
def _compiled(source: str, headers: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """Return a loaded program, or None with the compiler's error."""
    # Here: most commands need none of it.
    from worklog.emulator import load
    from worklog.kernel.emulated import build

    # HOST_AS_DEVICE accepts names of fields in lists, as compilers of host code do.
    options = ("-std=c++20", HOST_AS_DEVICE)
    try:
        built, _ = build(Program("host code", source, ENTRY, options, headers=headers))
        return load(built.ptx, built.symbol), ""
    except WorklogError as error:
        return None, str(error)


def run(
    host: HostProgram, unit: Unit, inputs: Integers, limit: int = MAX_LAUNCHES
) -> list[Records]:
    """Return the records of the launches of each run.

    inputs: rows by inputs
    limit: the largest number of launches of a run
    Raises WorklogError for a program that can't be compiled, and LaunchFailed for a run that fails.
    """
    from worklog.emulator import launch  # here: most commands need none of it
    from worklog.emulator.program import load_variables

    launcher = HEADER.read_text(encoding="utf-8")
    headers = {HOST.name: host_header(f"{host.text}\n{MAP_TYPE}", unit), HEADER.name: launcher}
    text = "".join(f'#include "{name}"\n' for name in headers) + host.text
    kernel, compile_error = _compiled(text, tuple(headers.items()))
    if compile_error:
        raise WorklogError(compile_error)
    rows = len(inputs)
    records = np.zeros(rows * limit, RECORD)
    counts = np.zeros(rows, np.uint32)
    # Each run of code that keeps values in variables starts with new variables.
    size = 1 if _keeps_values(kernel) else rows
    for first in range(0, rows, size):
        part = inputs[first : first + size]
        # A function without inputs gets an unused input: memory isn't empty.
        flat = np.append(part.reshape(-1), 0)
        of_part = records[first * limit : (first + size) * limit]
        result = launch(
            kernel,
            (len(part),),
            1,
            [
                flat,
                np.int32(inputs.shape[1]),
                of_part.view(np.uint8),
                counts[first : first + size],
                np.int32(limit),
            ],
            variables=load_variables(kernel),
            races=False,
            count=False,
        )
        for finding in result.findings:
            if finding.is_error:
                raise LaunchFailed(f"the host code fails: {finding.message}")
    if counts.max() > limit:
        raise LaunchFailed(f"the host code launches more than {limit} kernels")
    by_row = records.reshape(rows, limit)
    return [by_row[row, :count] for row, count in enumerate(counts.tolist())]


def _keeps_values(kernel: Any) -> bool:
    """Return whether a loaded program has variables outside of functions, or static ones.

    Constants and texts are in memory that can't be written, or have names that C++ doesn't have.
    """
    for variable in kernel.variables:
        is_of_launcher = variable.name.startswith("_ZN7worklog")
        is_of_source = re.fullmatch(r"(?!__)[A-Za-z_]\w*", variable.name) is not None
        if variable.space == "global" and is_of_source and not is_of_launcher:
            return True
    return False


def first_error(text: str) -> str:
    """Return the first line of an error, with the line of the source if it is known.

    It is "12: " and the error for line 12.
    """
    line = next((line for line in text.splitlines() if line.strip()), text)
    return re.sub(rf"^host code:\d+: |^{LINES}:", "", line)
