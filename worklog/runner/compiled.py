"""A kernel compiled for the GPU or the emulator, with the parameters that the gate passes."""

from __future__ import annotations

import re

from worklog.emulator import build
from worklog.errors import BadSetting
from worklog.gpu.device import gpu
from worklog.kernel import Kernel
from worklog.kernel.nvrtc import Compiled, compile_cuda
from worklog.kernel.source import types_of
from worklog.problem import SGEMM

# Bits of each parameter, as PTX declares them; f: a float. Sizes of 64 bits are called "long M".
BITS = {p.name: "f32" if p.dtype == "float32" else "32" for p in SGEMM.signature if not p.pointer}


def compile_for(kernel: Kernel, live: bool) -> tuple[Compiled, str]:
    """The kernel compiled for the GPU or the emulator, and the label of that machine; nothing is launched. Raises
    CompileFailed, and BadSetting for parameters that don't take its arguments.
    """
    built: list[tuple[Compiled, str]] = []
    for part in kernel.passes:
        if live:
            built.append((compile_cuda(part.program, gpu().arch), f"live · {gpu().name}"))
        else:
            built.append(build(part.program))
        _require_signature(part, built[-1][0])
    return built[kernel.main]


def _require_signature(kernel: Kernel, compiled: Compiled) -> None:
    """Raise BadSetting for a kernel that takes other parameters than the gate passes, or dynamic shared memory, since
    the gate passes none.
    """
    program, ptx = compiled.program, compiled.ptx
    entry = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\((.*?)\)", ptx, re.DOTALL)
    declared = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]\d+)", entry[1]) if entry else ()
    bits = tuple(kind if kind.startswith("f") else kind[1:] for kind in declared)
    dynamic = re.search(r"\.extern\s+\.shared\s.*?([\w$]+)\[\]", ptx)
    if dynamic and not program.shared and re.search(rf"{re.escape(dynamic[1])}\b", ptx[entry.end() if entry else 0 :]):
        raise BadSetting(
            f"{program.name}: {program.entry} takes dynamic shared memory (extern __shared__): give its bytes per "
            "block with --shared BYTES"
        )
    if bits != tuple(BITS.get(name, "64") for name in kernel.arguments):
        raise BadSetting(
            f"{program.name}: {program.entry} takes {len(bits)} parameters of {', '.join(bits) or 'no'} bits, which "
            f"don't take ({', '.join(kernel.arguments)}): give their order, as in --args 'A,B,C,M,N,K'; sizes are "
            "integers, alpha, beta and the matrices' elements are float"
        )
    for name, kind in zip(kernel.arguments, types_of(compiled.symbol), strict=False):
        if name in ("A", "B", "C") and kind.replace(" const", "") not in ("float*", "float2*", "float4*"):
            raise BadSetting(f"{program.name}: {program.entry} takes {kind} for {name}: the gate passes float*")
