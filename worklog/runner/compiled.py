"""A kernel compiled for the machine that checks it. Its parameters must be those that the gate passes."""

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
    CompileFailed, and BadSetting for other parameters than the gate passes, or dynamic shared memory that isn't stated.
    """
    built: list[tuple[Compiled, str]] = []
    for part in kernel.passes:
        if live:
            built.append((compile_cuda(part.program, gpu().arch), f"live · {gpu().name}"))
        else:
            built.append(build(part.program))
        compiled, program = built[-1][0], built[-1][0].program
        name, ptx = f"{program.name}: {program.entry}", compiled.ptx
        entry = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\((.*?)\)", ptx, re.DOTALL)
        code = ptx[entry.end() if entry else 0 :]
        dynamic = re.search(r"\.extern\s+\.shared\s.*?([\w$]+)\[\]", ptx)
        if dynamic and not program.shared and re.search(rf"{re.escape(dynamic[1])}\b", code):
            takes = "dynamic shared memory (extern __shared__): give its bytes per block with --shared BYTES"
            unread = [said for said in kernel.adapted if "shared memory: give" in said]
            raise BadSetting("; ".join((f"{name} takes {takes}", *unread)))
        declared = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]\d+)", entry[1]) if entry else ()
        bits = tuple(kind if kind.startswith("f") else kind[1:] for kind in declared)
        if bits != tuple(BITS.get(parameter, "64") for parameter in part.arguments):
            raise BadSetting(
                f"{name} takes {len(bits)} parameters of {', '.join(bits) or 'no'} bits, which don't take "
                f"({', '.join(part.arguments)}): give their order, as in --args 'A,B,C,M,N,K'; sizes are integers, "
                "alpha, beta and the matrices' elements are float"
            )
        for parameter, kind in zip(part.arguments, types_of(compiled.symbol), strict=False):
            if parameter in ("A", "B", "C") and kind.replace(" const", "") not in ("float*", "float2*", "float4*"):
                raise BadSetting(f"{name} takes {kind} for {parameter}: the gate passes float*")
    return built[kernel.main]
