"""PTX for the emulator: compiled by NVRTC, or without NVRTC (macOS) the PTX in the package, for unchanged rungs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from worklog.errors import WorklogError
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import Compiled, NvrtcMissing, compile_cuda

FOLDER = Path(__file__).parents[1] / "kernel" / "ptx"
INDEX = "index.json"
ARCH = "sm_90"
RESOURCES = ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "shared_bytes")


@dataclass(frozen=True)
class Built:
    """A compiled program. shipped: the version of NVRTC that made the package's PTX, without cubin and log; empty if
    compiled here.
    """

    compiled: Compiled
    shipped: str = ""

    @property
    def label(self) -> str:
        """The source of its results."""
        return label(self.compiled.arch, self.shipped)


def label(arch: str, shipped: str) -> str:
    """The source of results; shipped as in Built."""
    origin = f" from the package (NVRTC {shipped})" if shipped else ""
    return f"emulated · {arch} PTX{origin}"


def build(program: Program, arch: str = ARCH) -> Built:
    """Compile; without NVRTC, take the shipped PTX of the same source.

    Raises CompileFailed, UnknownArchitecture, and NvrtcMissing if that is not shipped.
    """
    try:
        return Built(compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options))
    except NvrtcMissing as missing:
        built = shipped(program, arch)
        if built is None:
            raise NvrtcMissing(
                f"{missing} (without it only the ladder's own kernels run, from the {ARCH} PTX in the package; "
                f"{program.name} for {arch} is not among them)"
            ) from missing
        return built


def shipped(program: Program, arch: str = ARCH) -> Built | None:
    """The package's PTX of this source, entry and options, or None. Raises WorklogError if a file is missing."""
    index = _index()
    for entry in index["programs"]:
        if entry["sha256"] == program.sha256 and arch == index["arch"]:
            ptx = _read(FOLDER / entry["ptx"])
            resources = {what: int(entry[what]) for what in RESOURCES}
            accesses = tuple((what, int(count)) for what, count in entry["shared_accesses"].items())
            source, names = program.source, (program.name, program.entry, entry["symbol"])
            out = Compiled(
                names[0], source, names[1], names[2], arch, ptx, b"", shared_accesses=accesses, log="", **resources
            )
            return Built(out, index["nvrtc"])
    return None


@lru_cache(maxsize=1)
def _index() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_read(FOLDER / INDEX))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WorklogError(f"the shipped PTX is missing: {error}; install gemm-worklog again") from error
