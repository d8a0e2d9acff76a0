"""compute-sanitizer's text, as its versions print it, becomes a stage with file and line; its absence an advice."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from worklog.bench import sanitizer
from worklog.bench.sanitizer import NoSanitizer, Report, find, parse, ready, run, sanitize, stage
from worklog.cli.commands import main
from worklog.errors import BadSetting, NoGpu
from worklog.kernel import Kernel
from worklog.peers.exploits import exploits

# CUDA 12 and 13: the function, the offset in it, and the file without its folder.
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at mine(int, int, int, float, const float *)+0x1a0 in mine.cu:12
=========     and Read access at mine(int, int, int, float, const float *)+0x2b0 in mine.cu:17 [508 hazards]
=========     and Read access at mine(int, int, int, float, const float *)+0x2c0 in mine.cu:17 [1016 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
# CUDA 11: an address, the whole path, and the function behind it.
OLDER_RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at 0x278 in /home/me/my code/mine.cu:12:mine(int, float *)
=========     and Read access at 0x298 in /home/me/my code/mine.cu:17:mine(int, float *) [6144 hazards]
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


@pytest.mark.parametrize("text", [RACE, OLDER_RACE], ids=["CUDA 12", "CUDA 11"])
def test_a_race_is_told_with_both_lines(text: str) -> None:
    (found,) = parse(text, "racecheck")
    assert (found.tool, found.severity) == ("racecheck", "error")
    assert found.text == "Race reported between Write access and Read access"
    assert [(Path(file).name, line) for file, line in found.places] == [("mine.cu", 12), ("mine.cu", 17)]
    assert str(found) == "racecheck: Race reported between Write access and Read access at mine.cu:12 and mine.cu:17"


def test_without_line_numbers_there_is_no_place() -> None:
    (found,) = parse(WITHOUT_LINES, "racecheck")
    assert (found.severity, found.places) == ("warning", ())
    assert found.text == "Race reported between Read access and Write access"


def test_memory_errors_are_told_at_the_kernels_line_and_not_at_the_hosts() -> None:
    read, write = parse(MEMORY, "memcheck")
    assert read == Report("memcheck", "error", "Invalid __global__ read of size 4 bytes", (("mine.cu", 6),))
    assert write.places == (("mine.cu", 9),)


@pytest.mark.parametrize(
    "text", ["", "hello", NOTHING, NOTHING.replace("RACECHECK SUMMARY: 0 hazards", "ERROR SUMMARY: 0 errors")]
)
def test_nothing_is_nothing(text: str) -> None:
    assert parse(text, "racecheck") == []


@given(st.text(alphabet=st.sampled_from("= \nErrorWarning:inat+0x1.cu"), max_size=400))
def test_any_text_is_read(text: str) -> None:
    for report in parse(text, "racecheck"):
        assert report.severity in ("error", "warning") and report.text


def test_an_error_refuses_and_a_warning_is_a_note() -> None:
    refusal = stage("racecheck", parse(RACE, "racecheck"), "mine.cu")
    assert not refusal.passed and refusal.measured == 1
    assert refusal.detail == "Race reported between Write access and Read access at mine.cu:12 and mine.cu:17"
    warning = stage("racecheck", parse(WITHOUT_LINES, "racecheck"), "mine.cu")
    assert (
        warning.passed
        and warning.detail.startswith("warning: Race reported")
        and warning.note.startswith("racecheck: ")
    )
    clean = stage("memcheck", [], "mine.cu")
    assert clean.passed and clean.detail == "compute-sanitizer reports nothing" and not clean.note


def test_the_kernels_own_lines_come_first() -> None:
    other = Report("memcheck", "error", "Invalid read", (("library.cuh", 3),))
    own = Report("memcheck", "error", "Invalid write", (("mine.cu", 4),))
    assert stage("memcheck", [other, own], "mine.cu").detail == "Invalid write at mine.cu:4 (and 1 more)"


# --------------------------------------------------------------------------------------------------- the tool itself


@pytest.fixture
def kernel() -> Kernel:
    (found,) = [exploit.kernel for exploit in exploits() if exploit.name == "missing_first_barrier"]
    assert isinstance(found, Kernel)
    return found


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that notes how it was called and prints what `printed` holds; the GPU is said to be there."""
    path = tmp_path / "bin" / "compute-sanitizer"
    path.parent.mkdir()
    here = repr(str(tmp_path))
    path.write_text(
        f"#!{sys.executable}\nimport sys, os, json\n"
        f"order = open(sys.argv[-1]).read()\n"
        f"open(os.path.join({here}, 'called'), 'w').write(json.dumps([sys.argv[1:], json.loads(order)]))\n"
        f"sys.stdout.write(open(os.path.join({here}, sys.argv[2])).read())\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: None)
    return path


def test_both_tools_are_run_on_the_kernel(kernel: Kernel, tool: Path, tmp_path: Path) -> None:
    (tmp_path / "racecheck").write_text(RACE.replace("mine.cu", "missing_first_barrier.cu"))
    (tmp_path / "memcheck").write_text("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")
    assert ready(kernel, None) is kernel and find() == tool
    race, memory = sanitize(kernel)
    assert not race.passed and "missing_first_barrier.cu:12" in race.detail
    assert memory.passed
    words, order = json.loads((tmp_path / "called").read_text())
    assert words[:2] == ["--tool", "memcheck"] and words[-3:-1] == ["-m", "worklog.bench.sanitized"]
    assert Kernel.from_dict(order) == kernel


def test_a_tool_that_breaks_off_is_no_clean_bill(kernel: Kernel, tool: Path, tmp_path: Path) -> None:
    (tmp_path / "racecheck").write_text("========= COMPUTE-SANITIZER\n========= Internal Sanitizer Error\n")
    with pytest.raises(NoSanitizer, match=r"racecheck printed no summary, so nothing was checked(.|\n)*Internal"):
        run(tool, "racecheck", kernel)


def test_a_kernel_that_never_ran_is_no_clean_bill(kernel: Kernel, tool: Path, tmp_path: Path) -> None:
    (tmp_path / "memcheck").write_text("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")
    tool.write_text(tool.read_text() + "sys.exit('ImportError: no such module')\n")
    with pytest.raises(NoSanitizer, match=r"saw nothing, but the kernel's process left 1(.|\n)*no such module"):
        run(tool, "memcheck", kernel)


def test_what_is_missing_is_told(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: "this test has no GPU")
    with pytest.raises(NoGpu, match="find races without one with worklog check --emulate"):
        ready(kernel, None)
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: None)
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    with pytest.raises(NoSanitizer, match="compute-sanitizer is not here: it comes with the CUDA toolkit"):
        ready(kernel, "gpu")
    with pytest.raises(BadSetting, match="the emulator finds races by itself"):
        ready(kernel, "emulated")


def test_the_tool_is_found_in_cuda_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    path = tmp_path / "compute-sanitizer" / "compute-sanitizer"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o755)
    assert find() == path


def test_on_the_command_line_it_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer, "gpu_reason", lambda: "this test has no GPU")
    result = CliRunner().invoke(main, ["check", "naive", "--racecheck"])
    assert result.exit_code == 2 and result.stderr.startswith("worklog: --racecheck needs a GPU (this test has no GPU)")
    result = CliRunner().invoke(main, ["check", "naive", "--racecheck", "--emulate"])
    assert result.exit_code == 2 and "finds races by itself" in result.stderr
