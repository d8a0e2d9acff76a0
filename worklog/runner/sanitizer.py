"""NVIDIA's compute-sanitizer on one kernel: races in shared memory that 20 launches may not show, and accesses outside
an allocation.

Each tool runs the kernel in a process of its own, which this module is too, at small shapes, compiled with line
numbers. It needs a GPU and the CUDA toolkit; the emulator finds races without them (`worklog check --emulate`).
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from worklog.errors import BadSetting, NoGpu, WorklogError
from worklog.gate import Stage, edge_shapes, failed, family, passed
from worklog.gpu import gpu_reason
from worklog.kernel import Kernel
from worklog.runner.child import environment

# CUDA's own libraries look up symbols that may be absent; memcheck would report those as API errors.
OPTIONS = {"racecheck": (), "memcheck": ("--report-api-errors", "no")}
FOLDERS = ("bin", "compute-sanitizer", "extras/compute-sanitizer")  # of a CUDA toolkit
TIME_OUT_S = 600
WITHOUT = "find races without it: worklog check --emulate"
HOW_TO_GET = f"compute-sanitizer is not installed: install the CUDA toolkit and set PATH or CUDA_HOME, or {WITHOUT}"
SHAPES = 3  # the largest edge shapes only: the tools slow a kernel down a hundredfold
MARGIN = "========= "  # before each line of the tool
_REPORT = re.compile(r"(?:(?P<severity>Error|Warning|Fatal):\s*)?(?P<text>.+)", re.IGNORECASE)
_SOURCE = re.compile(r"\sin (?P<file>[^\s:][^:]*?\.[A-Za-z]+):(?P<line>\d+)")
_SUMMARY = re.compile(r"(?:RACECHECK|ERROR) SUMMARY: (?P<count>\d+)")


class NoSanitizer(WorklogError):
    """compute-sanitizer is not installed, or could not run."""


@dataclass(frozen=True)
class Report:
    """One report of a tool. severity: "error" or "warning". text: its first line, without addresses in machine code.
    places: file and line of each access, in order, each once; empty without line numbers.
    """

    severity: str
    text: str
    places: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        where = " and ".join(f"{Path(file).name}:{line}" for file, line in self.places)
        return self.text + (f" at {where}" if where else "")


def find() -> Path | None:
    """compute-sanitizer on PATH, else in CUDA_HOME, CUDA_PATH or /usr/local/cuda."""
    homes = filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"))
    folders = [f"{home}/{folder}" for home in homes for folder in FOLDERS]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(filter(None, (os.environ.get("PATH"), *folders))))
    return None if found is None else Path(found)


def ready(kernel: Kernel, on: str | None) -> Path:
    """compute-sanitizer, if it can run the kernel. on: as for runner.check.check. Raises NoGpu, NoSanitizer, and
    BadSetting for the emulator or a host function.
    """
    if on == "emulated":
        raise BadSetting("--racecheck needs a GPU: omit it, since the emulator finds races without it")
    if kernel.host is not None:
        raise BadSetting(f"--racecheck needs a .cu file: {kernel.name} is a host function")
    reason = gpu_reason()
    if reason is not None:
        raise NoGpu(f"--racecheck needs a GPU ({reason}): {WITHOUT}")
    tool = find()
    if tool is None:
        raise NoSanitizer(HOW_TO_GET)
    return tool


def sanitize(tool: Path, kernel: Kernel) -> list[Stage]:
    """A stage for each tool: passed, or failed with its report and source lines. A warning fails nothing; it is the
    stage's note. Raises NoSanitizer.
    """
    return [stage(name, parse(run(tool, name, kernel)), kernel.file) for name in OPTIONS]


def run(tool: Path, name: str, kernel: Kernel) -> str:
    """The output of one tool. Raises NoSanitizer if it ends without a summary, or if the kernel's process fails without
    a report.
    """
    with tempfile.NamedTemporaryFile() as pickled:
        pickle.dump(kernel, pickled)
        pickled.flush()
        child = (sys.executable, "-m", "worklog.runner.sanitizer", pickled.name)
        try:
            done = subprocess.run(
                [str(tool), "--tool", name, *OPTIONS[name], "--print-limit", "50", *child],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIME_OUT_S,
                env=environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSanitizer(f"{name} did not finish: {error}; {WITHOUT}") from error
    printed: str = done.stdout
    summary = _SUMMARY.search(printed)
    if summary is None or (done.returncode and summary["count"] == "0"):
        last = "\n".join((printed + done.stderr).strip().splitlines()[-8:])
        why = "printed no summary"
        if summary is not None:
            why = f"reported nothing, but the kernel's process exited with {done.returncode}"
        raise NoSanitizer(f"{name} {why}, so nothing was checked; the end of its output:\n{last}")
    return printed


def parse(text: str) -> list[Report]:
    """The reports in compute-sanitizer's output, in order, each once.

    A report begins with a word at the margin, and continues with indented lines: the other access, the thread, the
    address. Both forms of a place are read: "kernel(int)+0x90 in probe.cu:13" and, of older versions, "0x278 in
    /home/me/probe.cu:113:kernel(int)".
    """
    lines = [line.removeprefix(MARGIN) for line in text.splitlines() if line.startswith(MARGIN)]
    starts = [number for number, line in enumerate(lines) if not line.startswith("    ")]
    blocks = [lines[start:end] for start, end in pairwise([*starts, len(lines)])]
    return list(dict.fromkeys(report for block in blocks for report in _report(block)))


def _report(block: list[str]) -> list[Report]:
    """One block of lines as a report, or nothing for a heading, a summary or a hint."""
    head = _REPORT.fullmatch(block[0].strip())
    if head is None or "SUMMARY" in block[0] or "COMPUTE-SANITIZER" in block[0]:
        return []
    severity = (head["severity"] or "").lower()
    if not severity and len(block) == 1:
        return []  # "Target application returned an error", "Saved host backtrace …": a hint without details
    accesses = [line for line in block if "Host Frame" not in line and "Device Frame" not in line]
    places = [(match["file"], int(match["line"])) for line in accesses for match in _SOURCE.finditer(line)]
    words = re.split(r" access at | at (?=\S+\+0x|0x)", head["text"])[0]
    if words.startswith("Race reported between"):
        others = re.findall(r"and (Read|Write) access at", "\n".join(block[1:]))
        words = " and ".join(dict.fromkeys([f"{words} access", *(f"{other} access" for other in others)]))
    return [Report("warning" if severity == "warning" else "error", words, tuple(dict.fromkeys(places)))]


def stage(name: str, reports: list[Report], file: str) -> Stage:
    """A tool's reports as a stage of the gate. file: the kernel's; reports about its lines come first."""
    ordered = sorted(reports, key=lambda report: all(Path(place).name != file for place, _ in report.places))
    errors = [report for report in ordered if report.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return failed(name, f"{errors[0]}{more}", len(errors))
    if ordered:
        return Stage(name, True, 0, 0, f"warning: {ordered[0]}", note=f"{name}: {ordered[0]}")
    return passed(name, "compute-sanitizer reports nothing")


def main() -> None:
    """In the process that compute-sanitizer inspects: launch the kernel that a file holds, pickled, once at each of a
    few small shapes, on exact integers. A fault ends the process; the tool has reported it by then.

    CuPy's memory pool is off and there are no guard bands, so each matrix is an allocation whose end the tool knows.
    """
    import cupy

    from worklog.gpu.cuda import CudaDevice

    kernel: Kernel = pickle.loads(Path(sys.argv[1]).read_bytes())
    cupy.cuda.set_allocator(None)
    device, rng = CudaDevice(), np.random.default_rng(0)
    subject = kernel.load(device)
    for shape in edge_shapes(kernel.domain)[-SHAPES:]:
        a, b = (device.upload(matrix) for matrix in family("E1", shape, rng))
        c = device.upload(np.zeros((shape.m, shape.n), np.float32))
        subject.enqueue(shape, 1.0, a, b, 0.0, c)
        device.synchronize()


if __name__ == "__main__":
    main()
