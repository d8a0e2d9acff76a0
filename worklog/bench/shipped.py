"""Writes worklog/ptx/: the PTX that the package ships for machines without NVRTC, what each kernel spent, and the
traffic that it causes.

`python -m worklog.bench.shipped` (`make ptx`) after a kernel has changed; a test compiles again and compares.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict

from worklog.analysis.traffic import FILE, RungTraffic
from worklog.emulator import load, predict
from worklog.emulator.shipped import ARCH, FOLDER, INDEX, SPENT
from worklog.gate import benchmark_shape, every_launch
from worklog.kernel import Kernel
from worklog.kernel.device import Program
from worklog.kernel.ladder import LADDER
from worklog.kernel.nvrtc import Compiled, compile_cuda, nvrtc_version
from worklog.problem.gemm import Shape

TRAFFIC_SHAPE = Shape.of(4096)


def programs() -> dict[str, Program]:
    """The ladder, and the gate's own kernels."""
    gate = {program.entry: program for program in (benchmark_shape.DIFFER, *every_launch.PROGRAMS)}
    return {**{r.name: r.program for r in LADDER}, **gate}


def version() -> str:
    return ".".join(map(str, nvrtc_version()))


def compiled(program: Program) -> Compiled:
    return compile_cuda(program.source, program.entry, name=program.name, arch=ARCH, options=program.options)


def plain(ptx: str) -> str:
    """PTX without the compiler's build number."""
    without_comments = re.sub(r"^\s*//.*\n", "", ptx, flags=re.MULTILINE)
    return without_comments.strip() + "\n"


def index() -> dict[str, object]:
    """What lies beside the PTX."""
    entries = {}
    for name, program in programs().items():
        out = compiled(program)
        spent = {what: getattr(out, what) for what in SPENT}
        identity = {"file": program.name, "sha256": program.sha256, "symbol": out.symbol}
        entries[name] = {**identity, **spent, "shared_accesses": dict(out.shared_accesses)}
    return {"arch": ARCH, "nvrtc": version(), "programs": entries}


def traffic() -> dict[str, object]:
    """Every rung's counts at 4096, as worklog.analysis.traffic reads them."""
    return {
        "label": f"emulated · {ARCH} PTX",
        "shape": [TRAFFIC_SHAPE.m, TRAFFIC_SHAPE.n, TRAFFIC_SHAPE.k],
        "rungs": {r.name: asdict(rung_traffic(r)) for r in LADDER},
    }


def rung_traffic(record: Kernel) -> RungTraffic:
    program = record.program
    out = compiled(program)
    c = predict(load(out.ptx, out.symbol, out.shared_accesses), record, TRAFFIC_SHAPE).counts
    return RungTraffic(
        program.sha256,
        c.global_load.requests,
        c.global_load.sectors,
        c.global_load.bytes,
        c.global_store.requests,
        c.global_store.sectors,
        c.shared_load.wavefronts + c.shared_store.wavefronts,
        c.shared_load.conflicts + c.shared_store.conflicts,
        c.thread_fma,
    )


if __name__ == "__main__":
    for old in FOLDER.glob("*.ptx"):
        old.unlink()
    for name, program in programs().items():
        (FOLDER / f"{name}.ptx").write_text(plain(compiled(program).ptx), encoding="utf-8")
    (FOLDER / INDEX).write_text(json.dumps(index(), indent=1) + "\n", encoding="utf-8")
    FILE.write_text(json.dumps(traffic(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(programs())} kernels for {ARCH} by NVRTC {version()} in {FOLDER}", file=sys.stderr)
