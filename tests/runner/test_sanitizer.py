"""compute-sanitizer's output, as its versions print it, becomes a stage with file and line."""

from __future__ import annotations

import json
import os
import pickle
import stat
import sys
from pathlib import Path

import pytest

from worklog.errors import BadSetting, NoGpu
from worklog.kernel import Kernel
from worklog.peers.exploits import exploits
from worklog.runner import sanitizer
from worklog.runner.sanitizer import NoSanitizer, Report, find, parse, ready, run, sanitize, stage

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at mine(int, int, int, float, const float *)+0x1a0 in mine.cu:12
=========     and Read access at mine(int, int, int, float, const float *)+0x2b0 in mine.cu:17 [508 hazards]
=========     and Read access at mine(int, int, int, float, const float *)+0x2c0 in mine.cu:17 [1016 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WITHOUT_LINES = """\
========= COMPUTE-SANITIZER
out shape: 2 x 2
========= Warning: Race reported between Read access at mine(const float *, int)+0x260
=========     and Write access at mine(const float *, int)+0x200 [294291 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
MEMORY = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at mine(int, int, int, float, const float *)+0x160 in mine.cu:6
=========     by thread (31,0,0) in block (0,0,0)
=========     Access at 0x7f7a4e000000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f7a4dffff00 of size 256 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x333b30] in libcuda.so.1
=========         Host Frame: main in other.cu:99 [0x1234]
=========
========= Invalid __global__ write of size 4 bytes
=========     at mine(int, int, int, float, const float *)+0x190 in mine.cu:9
=========     by thread (0,0,0) in block (1,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""
NOTHING = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
NO_ERRORS = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


RACED = Report("error", "Race reported between Write access and Read access", (("mine.cu", 12), ("mine.cu", 17)))
UNPLACED = Report("warning", "Race reported between Read access and Write access")
READ, WRITE = (
    Report("error", f"Invalid __global__ {what} of size 4 bytes", (("mine.cu", line),))
    for what, line in (("read", 6), ("write", 9))
)


@pytest.mark.parametrize(
    ("text", "reports"),
    [(RACE, [RACED]), (WITHOUT_LINES, [UNPLACED]), (2 * MEMORY, [READ, WRITE]), ("", []), ("hello", []), (NOTHING, [])],
)
def test_reports_have_the_kernels_lines_and_not_the_hosts_and_each_is_there_once(
    text: str, reports: list[Report]
) -> None:
    assert parse(text) == reports


@pytest.mark.parametrize(
    ("reports", "is_passed", "detail"),
    [
        ([], True, "compute-sanitizer reports nothing"),
        ([UNPLACED], True, "warning: Race reported between Read access and Write access"),
        ([RACED], False, "Race reported between Write access and Read access at mine.cu:12 and mine.cu:17"),
        (
            [Report("error", "Invalid read", (("library.cuh", 3),)), WRITE],
            False,
            "Invalid __global__ write of size 4 bytes at mine.cu:9 (and 1 more)",  # the kernel's own line comes first
        ),
    ],
)
def test_errors_fail_a_stage_and_a_warning_is_its_note(reports: list[Report], is_passed: bool, detail: str) -> None:
    found = stage("racecheck", reports, "mine.cu")
    assert (found.passed, found.detail) == (is_passed, detail)
    assert found.measured == len(reports) * (not is_passed)
    assert found.note == (f"racecheck: {UNPLACED}" if reports == [UNPLACED] else "")


# --------------------------------------------------------------------------------------------------- the tool itself


@pytest.fixture
def kernel() -> Kernel:
    (found,) = [exploit.kernel for exploit in exploits() if exploit.name == "missing_first_barrier"]
    assert isinstance(found, Kernel)
    return found


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that writes its arguments into `called`, and prints the file with the name of the tool."""
    path = tmp_path / "bin" / "compute-sanitizer"
    path.parent.mkdir()
    here = repr(str(tmp_path))
    path.write_text(
        f"#!{sys.executable}\nimport sys, os, json\n"
        f"order = open(sys.argv[-1], 'rb').read()\n"
        f"open(os.path.join({here}, 'called'), 'w').write(json.dumps([sys.argv[1:], order.hex()]))\n"
        f"sys.stdout.write(open(os.path.join({here}, sys.argv[2])).read())\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: None)
    return path


def test_both_tools_are_run_on_the_kernel(kernel: Kernel, tool: Path, tmp_path: Path) -> None:
    (tmp_path / "racecheck").write_text(RACE.replace("mine.cu", "missing_first_barrier.cu"))
    (tmp_path / "memcheck").write_text(NO_ERRORS)
    assert ready(kernel, None) == find() == tool
    race, memory = sanitize(tool, kernel)
    assert not race.passed and "missing_first_barrier.cu:12" in race.detail
    assert memory.passed
    words, order = json.loads((tmp_path / "called").read_text())
    assert words[:2] == ["--tool", "memcheck"] and words[-3:-1] == ["-m", "worklog.runner.sanitizer"]
    assert pickle.loads(bytes.fromhex(order)) == kernel


@pytest.mark.parametrize(
    ("printed", "exits", "why"),
    [
        ("========= Internal Sanitizer Error\n", "", r"no summary, so nothing was checked(.|\n)*Internal"),
        (NO_ERRORS, "sys.exit('ImportError: no such module')\n", r"exited with 1(.|\n)*no such module"),
    ],
)
def test_a_kernel_that_was_not_run_to_its_end_does_not_pass(
    printed: str, exits: str, why: str, kernel: Kernel, tool: Path, tmp_path: Path
) -> None:
    (tmp_path / "memcheck").write_text(printed)
    tool.write_text(tool.read_text() + exits)
    with pytest.raises(NoSanitizer, match=why):
        run(tool, "memcheck", kernel)


def test_without_a_gpu_or_the_tool_there_is_advice(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: "this test has no GPU")
    with pytest.raises(NoGpu, match=r"this test has no GPU.*worklog check --emulate"):
        ready(kernel, None)
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: None)
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    with pytest.raises(NoSanitizer, match="install the CUDA toolkit"):
        ready(kernel, "gpu")
    with pytest.raises(BadSetting, match="mine is a host function"):
        ready(Kernel.from_function("module:mine"), None)


def test_the_tool_is_found_in_cuda_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    path = tmp_path / "compute-sanitizer" / "compute-sanitizer"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o755)
    assert find() == path
