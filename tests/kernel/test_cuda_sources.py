"""CUDA sources as a reader of the repository meets them: narrow enough for a page, and runnable with nvcc alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER, RUNGS

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "kernels" / "main.cu"
MOST_COLUMNS = 100
LAST = 17  # of the rungs on FP32 lanes that main.cu has

ALONE = [r for r in RUNGS if "workspace" not in r.arguments]  # main.cu launches one kernel
each_rung = pytest.mark.parametrize("record", ALONE, ids=[r.name for r in ALONE])
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH: install the CUDA toolkit")


def sources() -> list[Path]:
    return sorted(path for room in ("kernels", "worklog", "tests") for path in (ROOT / room).rglob("*.cu*"))


def test_no_cuda_line_is_wider_than_a_page() -> None:
    assert len(sources()) > len(LADDER)
    wide = [
        f"{path.relative_to(ROOT)}:{at}"
        for path in sources()
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS
    ]
    assert wide == []


@each_rung
def test_main_has_every_rung_as_the_ladder_has_it(record: Kernel) -> None:
    rung = re.search(
        rf'if RUNG == {record.number}\n#include "(.+)"\n'
        r"const Rung rung = \{(.+>), (\d+), (\d+), (\d+), (\d+)(?:, (\d+))?\};",
        MAIN.with_name("rungs.cuh").read_text(encoding="utf-8"),
    )
    assert rung is not None
    file, entry, *numbers = rung.groups(default="0")
    assert (file, entry) == (record.file, record.entry)
    assert [int(n) for n in numbers] == [
        *(record.template.get(axis, 1) for axis in ("BM", "BN", "BK")),
        record.threads,
        record.program.shared,
    ]


@needs_nvcc
@pytest.mark.parametrize("record", ALONE[::8], ids=lambda record: record.name)
def test_nvcc_compiles_a_rung_with_its_host_code(record: Kernel, tmp_path: Path) -> None:
    """To PTX for Hopper, which takes a fraction of the time of a program. NVRTC compiles the others' kernels."""
    program = nvcc(f"-DRUNG={record.number}", "--ptx", "-arch=sm_90a", "-o", str(tmp_path / "rung.ptx"))
    assert program.returncode == 0, program.stderr
    assert f"sgemm_{record.name}" in (tmp_path / "rung.ptx").read_text()


@needs_nvcc
def test_the_program_names_the_domain_of_its_rung(tmp_path: Path) -> None:
    """It stops before it needs a GPU."""
    built = nvcc("-DRUNG=4", "-arch=sm_80", "-o", str(tmp_path / "rung"))
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "rung", "100"], capture_output=True, text=True)
    assert ran.returncode == 2
    assert "64, 64, 8" in ran.stderr


@needs_nvcc
@pytest.mark.parametrize("options", [[], ["-DRUNG=0"], [f"-DRUNG={LAST + 1}"]])
def test_another_rung_does_not_compile(options: list[str]) -> None:
    built = nvcc(*options, "--ptx", "-o", "/dev/null")
    assert built.returncode != 0
    assert f"-DRUNG={LAST}" in built.stderr


def nvcc(*options: str) -> subprocess.CompletedProcess[str]:
    command = ["nvcc", "-Wno-deprecated-gpu-targets", *options, str(MAIN)]
    return subprocess.run(command, capture_output=True, text=True)
