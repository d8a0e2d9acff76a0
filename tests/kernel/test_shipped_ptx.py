"""The PTX in the package belongs to the kernels and replaces NVRTC where it is not installed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.record import ptx as ship
from worklog.errors import NvrtcMissing, WorklogError
from worklog.kernel import emulated
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder import LADDER, memory_counts, rung
from worklog.kernel.nvrtc import nvrtc_version

AGAIN = "compile it again: make ptx"


def kept() -> dict[str, Any]:
    """Return the index of the package."""
    index: dict[str, Any] = json.loads(
        (emulated.FOLDER / emulated.INDEX).read_text(encoding="utf-8")
    )
    return index


def require_same_nvrtc() -> None:
    here = ".".join(map(str, nvrtc_version()))
    if kept()["nvrtc"] != here:
        pytest.skip(f"compiled with NVRTC {kept()['nvrtc']}; this is {here}, whose PTX may differ")


def test_it_belongs_to_the_sources_in_kernels_and_each_module_is_there_once():
    there = [(entry["ptx"], entry["sha256"]) for entry in kept()["programs"]]
    assert there == [(f"{name}.ptx", program.sha256) for name, program in ship.programs()], AGAIN
    files = {path.name: path.read_text(encoding="utf-8") for path in emulated.FOLDER.glob("*.ptx")}
    assert files.keys() == {name for name, _ in there} and len(set(files.values())) == len(files), (
        AGAIN
    )
    require_same_nvrtc()
    assert (kept(), files) == ship.shipped(), AGAIN


def test_a_rungs_resources_are_known_without_a_compiler(no_nvrtc):
    [(_, compiled)] = rung("double_buffered").load(EmulatedDevice()).passes
    resources = compiled.compiled.resources
    assert (
        resources["registers"] > 64
        and resources["local_bytes"] == 0
        and resources["shared_bytes"] == 16640
    )


def test_other_source_still_needs_the_compiler_and_a_missing_file_is_an_error(
    no_nvrtc, monkeypatch, tmp_path
):
    monkeypatch.setattr("worklog.kernel.clang.find_spec", lambda _name: None)
    program = rung("naive").program
    with pytest.raises(
        NvrtcMissing,
        match=r"pip install nvidia-cuda-nvrtc .*01_naive\.cu for sm_90 is not among them",
    ):
        emulated.build(replace(program, source=program.source + "\n"))
    with pytest.raises(NvrtcMissing, match="for sm_80 is not among them"):
        emulated.build(program, "sm_80")
    monkeypatch.setattr(emulated, "FOLDER", tmp_path)
    with pytest.raises(WorklogError, match="install gemm-worklog again"):
        emulated.build(program)


def test_the_shipped_memory_counts_are_counted_from_it():
    counted = memory_counts()
    assert counted.label == "emulated · sm_90 PTX" and list(counted.rungs) == [
        r.name for r in LADDER
    ]
    assert {n: r.sha256 for n, r in counted.rungs.items()} == {
        r.name: r.program.sha256 for r in LADDER
    }, AGAIN
    n = ship.SHAPE.n
    # The epilogue's alpha * acc + beta * c may be a multiply-add more.
    assert all(n**3 <= r.thread_fma <= n**2 * (n + 1) for r in counted.rungs.values())
    assert counted.rungs["vectorized"].load_bytes == 2 * (n // 128) * n * n * 4
    assert counted.rungs["vectorized"].load_sectors * 32 == counted.rungs["vectorized"].load_bytes
    require_same_nvrtc()
    for record in LADDER[::3]:  # they count in the same way
        assert counted.rungs[record.name] == ship.count(record), AGAIN
