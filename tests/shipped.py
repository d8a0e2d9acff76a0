"""Writes worklog/ptx/: the PTX that the package ships for machines without NVRTC, and what each kernel spent.

`python -m tests.shipped` (`make ptx`) after a kernel has changed; a test compiles again and compares.
"""

from __future__ import annotations

import json
import re
import sys

from worklog.emulator.shipped import ARCH, FOLDER, INDEX, SPENT
from worklog.gate import repeat
from worklog.kernels import Program
from worklog.ladder import LADDER
from worklog.nvrtc import Compiled, compile_cuda, nvrtc_version


def programs() -> dict[str, Program]:
    """The ladder, and the kernel that the gate compares launches with."""
    return {**{r.name: Program.of(r) for r in LADDER}, "differ": repeat.PROGRAM}


def version() -> str:
    return ".".join(map(str, nvrtc_version()))


def compiled(program: Program) -> Compiled:
    return compile_cuda(program.source, program.entry, name=program.name, arch=ARCH, options=program.options)


def plain(ptx: str) -> str:
    """PTX without the compiler's build number and the folder that it ran in."""
    without_comments = re.sub(r"^\s*//.*\n", "", ptx, flags=re.MULTILINE)
    return re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", without_comments).strip() + "\n"


def index() -> dict[str, object]:
    """What lies beside the PTX."""
    entries = {}
    for name, program in programs().items():
        out = compiled(program)
        spent = {what: getattr(out, what) for what in SPENT}
        entries[name] = {"file": program.name, "sha256": program.sha256, "symbol": out.symbol, **spent}
    return {"arch": ARCH, "nvrtc": version(), "programs": entries}


if __name__ == "__main__":
    for old in FOLDER.glob("*.ptx"):
        old.unlink()
    for name, program in programs().items():
        (FOLDER / f"{name}.ptx").write_text(plain(compiled(program).ptx), encoding="utf-8")
    (FOLDER / INDEX).write_text(json.dumps(index(), indent=1) + "\n", encoding="utf-8")
    print(f"{len(programs())} kernels for {ARCH} by NVRTC {version()} in {FOLDER}", file=sys.stderr)
