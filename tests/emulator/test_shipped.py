"""The PTX in the package belongs to the kernels and replaces NVRTC where it is not installed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from worklog.analysis.traffic import traffic
from worklog.bench import shipped as make
from worklog.emulator import EmulatedDevice, shipped
from worklog.errors import WorklogError
from worklog.gate import Checker
from worklog.gate.edge_shapes import edge_shapes
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.nvrtc import NvrtcMissing

AGAIN = "compile it again: make ptx"


@pytest.fixture
def no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise NvrtcMissing("cannot compile CUDA source: no module; install it with: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(shipped, "compile_cuda", missing)


def test_it_belongs_to_the_sources_in_kernels() -> None:
    index = json.loads((shipped.FOLDER / shipped.INDEX).read_text(encoding="utf-8"))
    there = {name: entry["sha256"] for name, entry in index["programs"].items()}
    assert there == {name: program.sha256 for name, program in make.programs().items()}, AGAIN
    assert {path.stem for path in shipped.FOLDER.glob("*.ptx")} == set(there), AGAIN


def test_it_is_what_the_compiler_makes_of_them() -> None:
    index = json.loads((shipped.FOLDER / shipped.INDEX).read_text(encoding="utf-8"))
    if index["nvrtc"] != make.version():
        pytest.skip(f"compiled with NVRTC {index['nvrtc']}; this is {make.version()}, whose PTX may differ")
    assert index == make.index(), AGAIN
    for name, program in make.programs().items():
        kept = (shipped.FOLDER / f"{name}.ptx").read_text(encoding="utf-8")
        assert kept == make.plain(make.compiled(program).ptx), AGAIN


def test_a_rung_passes_the_gate_without_a_compiler(no_nvrtc: None) -> None:
    device, record = EmulatedDevice(), rung("double_buffered")
    subject = record.load(device)
    verdict = Checker(device, edge_shapes(record.domain)[0], seed=5).check(subject)
    assert verdict.accepted, verdict.reason
    assert device.label.startswith("emulated · sm_90 PTX from the package (NVRTC 1")
    assert subject.compiled.resources.registers > 16


def test_with_a_compiler_nothing_shipped_is_used() -> None:
    device = EmulatedDevice()
    device.compile(rung("naive").program)
    assert device.label == "emulated · sm_90 PTX"


def test_other_source_still_needs_the_compiler(no_nvrtc: None) -> None:
    program = rung("naive").program
    with pytest.raises(NvrtcMissing, match=r"pip install nvidia-cuda-nvrtc .*01_naive\.cu for sm_90 is not among them"):
        shipped.build(replace(program, source=program.source + "\n"))
    with pytest.raises(NvrtcMissing, match="for sm_80 is not among them"):
        shipped.build(program, "sm_80")


def test_a_missing_file(no_nvrtc: None, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    with pytest.raises(WorklogError, match="install gemm-worklog again"):
        shipped.build(rung("naive").program)


def test_the_traffic_that_is_shipped_is_counted_from_it() -> None:
    index = json.loads((shipped.FOLDER / shipped.INDEX).read_text(encoding="utf-8"))
    counted = traffic()
    assert counted.label == "emulated · sm_90 PTX" and list(counted.rungs) == [r.name for r in LADDER]
    assert {n: r.sha256 for n, r in counted.rungs.items()} == {r.name: r.program.sha256 for r in LADDER}, AGAIN
    n = make.TRAFFIC_SHAPE.n
    # The epilogue's alpha * acc + beta * c may be a multiply-add more.
    assert all(n**3 <= r.thread_fma <= n**2 * (n + 1) for r in counted.rungs.values())
    assert counted.rungs["vectorized"].load_bytes == 2 * (n // 128) * n * n * 4
    assert counted.rungs["vectorized"].load_sectors * 32 == counted.rungs["vectorized"].load_bytes
    if index["nvrtc"] != make.version():
        pytest.skip(f"counted on the PTX of NVRTC {index['nvrtc']}; this is {make.version()}, whose PTX may differ")
    assert dict(counted.rungs) == {r.name: make.rung_traffic(r) for r in LADDER}, AGAIN
