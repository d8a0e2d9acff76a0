"""Compiles a kernel to be launched: what it takes must be what the gate passes."""

from __future__ import annotations

import re

from worklog.errors import BadSetting
from worklog.kernel.kernel import Kernel
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.resources import Compiled
from worklog.kernel.signature import MATRICES, VECTORS, WIDE, is_computed, size_of
from worklog.kernel.tensor_map import is_map_by_value
from worklog.problem import SGEMM, TYPES
from worklog.problem.formats import FLOAT32, INT8, INT32, Format
from worklog.runs import Gpu

# Bits of each parameter, as PTX declares them; f: a float. Sizes of 64 bits are called "long M".
BITS = {
    parameter.name: "f32" if parameter.dtype == "float32" else "32"
    for parameter in SGEMM.signature
    if not parameter.pointer
}


def _bits(argument: str, scalar: Format) -> str:
    """Return how PTX declares the parameter of an argument.

    That is "f32", "32", "64", or "8" for bytes.

    scalar: the format of alpha and beta
    """
    if argument in ("alpha", "beta") and scalar != FLOAT32:
        return "32" if scalar.is_integer else "8"
    if argument.startswith(WIDE):
        return "64"
    if is_map_by_value(argument):
        return "8"
    is_integer = is_computed(argument) or size_of(argument)
    return BITS.get(argument, "32" if is_integer else "64")


def compile_for(kernel: Kernel, gpu: Gpu | None) -> tuple[Compiled, str]:
    """Return the compiled kernel and the label of its machine; nothing is launched.

    Raises CompileFailed, and BadSetting for other parameters than the gate passes, or for dynamic
    shared memory that isn't stated.

    gpu: to compile for; None for the emulator
    """
    # Here: a measurement doesn't need the emulator.
    from worklog.kernel import emulated

    built: list[tuple[Compiled, str]] = []
    for part in kernel.passes:
        if gpu is None:
            built.append(emulated.build(part.program))
        else:
            built.append((compile_cuda(part.program, gpu.arch), f"live · {gpu.name}"))
        compiled = built[-1][0]
        _require_stated_shared(compiled, kernel)
        _require_parameters(compiled, part)
    return built[kernel.main]


def _name(compiled: Compiled) -> str:
    """Return the file and the entry of a compiled kernel."""
    return f"{compiled.program.name}: {compiled.program.entry}"


def _require_stated_shared(compiled: Compiled, kernel: Kernel) -> None:
    """Raise BadSetting for dynamic shared memory that isn't stated."""
    if compiled.takes_dynamic_shared and not compiled.program.shared:
        advice = (
            "dynamic shared memory (extern __shared__): give its bytes per block with "
            "--shared BYTES, or in a comment beside `grid: …, block: …`: `shared: BYTES`"
        )
        unread = [line for line in kernel.adapted if "shared memory: give" in line]
        raise BadSetting("; ".join((f"{_name(compiled)} takes {advice}", *unread)))


def _require_parameters(compiled: Compiled, kernel: Kernel) -> None:
    """Raise BadSetting for parameters that don't take the arguments that the gate passes."""
    # Here: a measurement doesn't need the emulator.
    from worklog.emulator.symbols import types_of

    arguments = kernel.arguments
    symbol = re.escape(compiled.symbol)
    entry = re.search(rf"\.entry\s+{symbol}\s*\((.*?)\)", compiled.ptx, re.DOTALL)
    bits = list[str]()
    if entry:
        for kind in re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]\d+)", entry[1]):
            bits.append(kind if kind.startswith("f") else kind[1:])
    numbers = [operand.name for operand in kernel.operands if operand.format is None]
    scalar = kernel.types.scalar
    expected = ["f32" if name in numbers else _bits(name, scalar) for name in arguments]
    if bits != expected:
        raise BadSetting(
            f"{_name(compiled)} takes {len(bits)} parameters of {', '.join(bits) or 'no'} bits, "
            "which don't take "
            f"({', '.join(arguments)}): give their order, as in --args 'A,B,C,M,N,K'; sizes are "
            f"integers, alpha and beta are {scalar.cuda}"
        )
    formats = dict(zip(MATRICES, kernel.types.formats, strict=True))
    for argument, kind in zip(arguments, types_of(compiled.symbol), strict=False):
        if argument not in formats:
            continue
        element = kind.replace(" const", "").removesuffix("*")
        name = VECTORS.get(element) or TYPES.get(element)
        is_packed = (name, formats[argument]) == (INT32.name, INT8)
        if name != formats[argument].name and not is_packed:
            raise BadSetting(
                f"{_name(compiled)} takes {kind} for {argument}: the gate passes "
                f"{formats[argument].cuda}*"
            )
