"""NVIDIA's compute-sanitizer on one kernel: races in shared memory that do not show in twenty launches, and accesses
outside an allocation.

The kernel runs in a process of its own under each tool (worklog.bench.sanitized), at small shapes, compiled with line numbers
and with A, B and C as allocations of their exact size. What the tools print is read here; a GPU and the tool are
needed. Without them the emulator finds races too (`worklog check --emulate`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worklog.errors import BadSetting, NoGpu, WorklogError
from worklog.gate import Stage
from worklog.gate.verdict import failed, passed
from worklog.gpu.device import gpu_reason
from worklog.kernel import Kernel

# CUDA's own libraries ask for symbols that may not be there, which is an error of the interface and none of a kernel's.
OPTIONS = {"racecheck": (), "memcheck": ("--report-api-errors", "no")}
TOOLS = tuple(OPTIONS)
TIME_OUT_S = 600
CHILD = "worklog.bench.sanitized"
HOW_TO_GET = (
    "compute-sanitizer is not here: it comes with the CUDA toolkit; put it on PATH or set CUDA_HOME, or find races "
    "without it: worklog check --emulate"
)
PREFIX = "========="
_HEAD = re.compile(r"(?:(?P<severity>Error|Warning|Fatal|ERROR|WARN|FATAL):\s*)?(?P<text>.+)")
_SOURCE = re.compile(r"\sin (?P<file>[^\s:][^:]*?\.[A-Za-z]+):(?P<line>\d+)")
_SUMMARY = re.compile(r"(?:RACECHECK|ERROR) SUMMARY: (?P<count>\d+)")


class NoSanitizer(WorklogError):
    """compute-sanitizer is not installed, or could not run."""


@dataclass(frozen=True)
class Report:
    """One thing that a tool reported. tool: its name. severity: "error" or "warning". text: its first line, without
    addresses in machine code. places: (file, line) of every access that it names, in order, each once; empty without
    line numbers.
    """

    tool: str
    severity: str
    text: str
    places: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        where = " and ".join(f"{Path(file).name}:{line}" for file, line in self.places)
        return f"{self.tool}: {self.text}" + (f" at {where}" if where else "")


def find() -> Path | None:
    """compute-sanitizer on PATH, else in CUDA_HOME, CUDA_PATH or /usr/local/cuda."""
    on_path = shutil.which("compute-sanitizer")
    if on_path:
        return Path(on_path)
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        for folder in ("bin", "compute-sanitizer", "extras/compute-sanitizer"):
            found = Path(home or "/none") / folder / "compute-sanitizer"
            if found.is_file() and os.access(found, os.X_OK):
                return found
    return None


def ready(kernel: Kernel, on: str | None) -> Kernel:
    """The kernel, where the tools can look into it. on: as for worklog.bench.check.check. Raises NoGpu, NoSanitizer, and
    BadSetting for the emulator or host code.
    """
    if on == "emulated":
        raise BadSetting("--racecheck looks into a kernel on a GPU: leave it out, the emulator finds races by itself")
    if kernel.host is not None:
        raise BadSetting(f"--racecheck launches a kernel by itself, and {kernel.name} is host code: name a .cu file")
    reason = gpu_reason()
    if reason is not None:
        raise NoGpu(f"--racecheck needs a GPU ({reason}): find races without one with worklog check --emulate")
    if find() is None:
        raise NoSanitizer(HOW_TO_GET)
    return kernel


def sanitize(kernel: Kernel) -> list[Stage]:
    """A stage for each tool: passed, or refused with what it reported and where. A warning refuses nothing; it is the
    stage's note. Raises NoSanitizer.
    """
    tool = find()
    if tool is None:
        raise NoSanitizer(HOW_TO_GET)
    return [stage(name, parse(run(tool, name, kernel), name), kernel.file) for name in TOOLS]


def run(tool: Path, name: str, kernel: Kernel) -> str:
    """What one tool prints about the kernel. Raises NoSanitizer where it did not get as far as its summary."""
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "kernel.json"
        order.write_text(json.dumps(kernel.as_dict()), encoding="utf-8")
        child = (sys.executable, "-m", CHILD, str(order))
        command = [str(tool), "--tool", name, *OPTIONS[name], "--print-limit", "50", *child]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIME_OUT_S,
                env=_environment(os.environ),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSanitizer(f"{name} did not end: {error}; find races without it: worklog check --emulate") from error
    printed: str = done.stdout
    summary = _SUMMARY.search(printed)
    if summary is None or (done.returncode and summary["count"] == "0"):
        words = "\n".join((printed + done.stderr).strip().splitlines()[-8:])
        why = (
            "printed no summary" if summary is None else f"saw nothing, but the kernel's process left {done.returncode}"
        )
        raise NoSanitizer(f"{name} {why}, so nothing was checked; its last words:\n{words}")
    return printed


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """With this very package for the child, wherever it was started."""
    paths = [str(Path(__file__).resolve().parents[2]), *given.get("PYTHONPATH", "").split(os.pathsep)]
    return {**given, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def parse(text: str, tool: str) -> list[Report]:
    """What compute-sanitizer's text reports, in its order, each once.

    A report begins with "========= " and a word at the margin, and goes on with indented lines: the other access, the
    thread, the address. Both forms of a place are read: "kernel(int)+0x90 in probe.cu:13" and, of older versions,
    "0x278 in /home/me/probe.cu:113:kernel(int)".
    """
    found: list[Report] = []
    block: list[str] = []
    for line in [*text.splitlines(), PREFIX]:
        body = line[len(PREFIX) :] if line.startswith(PREFIX) else None
        if body is not None and body.startswith("     "):
            block.append(body)
            continue
        if body is None:
            continue  # what the program itself prints may stand between
        if block:
            found += _report(block, tool)
        block = [body] if body.strip() else []
    return list(dict.fromkeys(found))


def _report(block: list[str], tool: str) -> list[Report]:
    """One block of lines as a report, or nothing for a heading, a summary or a hint."""
    head = _HEAD.fullmatch(block[0].strip())
    if head is None or "SUMMARY" in block[0] or "COMPUTE-SANITIZER" in block[0]:
        return []
    severity = (head["severity"] or "").lower()
    if not severity and len(block) == 1:
        return []  # "Target application returned an error", "Saved host backtrace …": a hint, with nothing below it
    accesses = [line for line in block if "Host Frame" not in line and "Device Frame" not in line]
    places = [(match["file"], int(match["line"])) for line in accesses for match in _SOURCE.finditer(line)]
    words = re.split(r" access at | at (?=\S+\+0x|0x)", head["text"])[0]
    if words.startswith("Race reported between"):
        others = [match[1] for line in block[1:] if (match := re.search(r"and (Read|Write) access at", line))]
        words = " and ".join(dict.fromkeys([f"{words} access", *(f"{other} access" for other in others)]))
    kind = "warning" if severity.startswith("warn") else "error"
    return [Report(tool, kind, words, tuple(dict.fromkeys(places)))]


def stage(name: str, reports: list[Report], file: str) -> Stage:
    """A tool's reports as a stage of the gate. file: the kernel's, whose lines come first."""
    own = [report for report in reports if any(Path(place).name == file for place, _ in report.places)]
    ordered = own + [report for report in reports if report not in own]
    errors = [report for report in ordered if report.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return failed(name, f"{str(errors[0]).partition(': ')[2]}{more}", len(errors))
    if ordered:
        told = str(ordered[0]).partition(": ")[2]
        return Stage(name, True, 0, 0, f"warning: {told}", note=f"{name}: {told}")
    return passed(name, "compute-sanitizer reports nothing")
