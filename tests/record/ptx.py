"""Writes worklog/kernel/ptx.

PTX for machines without NVRTC, each kernel's resources, and the ladder's memory counts.

Run `make ptx` (`python -m tests.record.ptx`), which needs no GPU, after a kernel has changed. A
test compiles again and compares.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worklog.emulator import load
from worklog.gate import checker, sgemm
from worklog.kernel import LADDER, Kernel, Program
from worklog.kernel.emulated import ARCH, FOLDER, INDEX, RESOURCES
from worklog.kernel.ladder import MemoryCounts
from worklog.kernel.ladder.counts import TRAFFIC
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.kernel.prediction import counts_at
from worklog.problem import Shape
from worklog.problem.formats import FLOAT32, SINGLE

SHAPE = Shape.of(4096)


def programs() -> list[tuple[str, Program]]:
    """Return what is shipped, each with the name of its PTX file.

    That is a rung's name, or the name of a gate kernel's source, whose kernels are one module.
    """
    of_gate = [
        (Path(program.name).stem, program)
        for program in (sgemm.differ_for(FLOAT32), *checker.programs_for(SINGLE))
    ]
    return [*((rung.name, rung.program) for rung in LADDER), *of_gate]


def shipped() -> tuple[dict[str, Any], dict[str, str]]:
    """Return the index, and PTX by file name.

    The index has for each program the hash, the symbol and the resources. The PTX has no
    comments, which hold the compiler's build number.
    """
    entries = []
    modules = {}
    for name, program in programs():
        out = compile_cuda(program, ARCH)
        modules[f"{name}.ptx"] = (
            re.sub(r"^\s*//.*\n", "", out.ptx, flags=re.MULTILINE).strip() + "\n"
        )
        identity = {
            "ptx": f"{name}.ptx",
            "entry": program.entry,
            "sha256": program.sha256,
            "symbol": out.symbol,
        }
        resources = {what: getattr(out, what) for what in RESOURCES}
        entries.append({**identity, **resources, "shared_accesses": dict(out.shared_accesses)})
    return {
        "arch": ARCH,
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "programs": entries,
    }, modules


def count(rung: Kernel) -> MemoryCounts:
    """Return a rung's memory counts at 4096."""
    out = compile_cuda(rung.program, ARCH)
    return counts_at(load(out.ptx, out.symbol, out.shared_accesses), rung, SHAPE)


if __name__ == "__main__":
    index, modules = shipped()
    for old in FOLDER.glob("*.ptx"):
        old.unlink()
    for name, ptx in modules.items():
        (FOLDER / name).write_text(ptx, encoding="utf-8")
    (FOLDER / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    rungs = {rung.name: asdict(count(rung)) for rung in LADDER}
    counts = {
        "label": f"emulated · {ARCH} PTX",
        "shape": [SHAPE.m, SHAPE.n, SHAPE.k],
        "rungs": rungs,
    }
    TRAFFIC.write_text(json.dumps(counts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
