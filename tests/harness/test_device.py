"""The machine on paper.

Peaks against NVIDIA's data sheets, words for what its clocks do, and which source and software a
result came from.
"""

import subprocess
import sys
from collections import defaultdict
from functools import cache
from unittest.mock import MagicMock

import pytest
from pytest import approx

import worklog
from tests.harness import fake_nvml
from tests.harness.fake_nvml import GPU
from worklog.errors import BadSetting
from worklog.gpu import clocks, device
from worklog.gpu.device import ClockWatch, software
from worklog.runner import timing
from worklog.runs import Gpu, files
from worklog.runs.files import tool
from worklog.runs.nvml import reason_names, throttled

# By data sheet and white paper (worklog.gpu.clocks): compute capability, SMs, MHz, and TFLOP/s by
# datapath.
DATA_SHEETS = [
    ((7, 0), 80, 1530, {"fp32": 15.7, "fp16": 125, "fp64": 7.8}),
    ((7, 5), 72, 1770, {"fp32": 16.3, "fp16": 130.5}),
    ((8, 0), 108, 1410, {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp64": 9.7, "fp64_tensor": 19.5}),
    ((8, 6), 84, 1740, {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7}),
    ((8, 6), 82, 1695, {"fp16": 142}),
    ((8, 9), 128, 2520, {"tf32": 2 * 82.6, "fp16": 330.3, "fp8": 660.6}),
    ((9, 0), 132, 1830, {"tf32": 494.7, "fp16": 989.4, "fp8": 1978.9}),
    ((9, 0), 132, 1980, {"fp32": 66.9, "fp64": 33.5, "fp64_tensor": 66.9}),
    ((10, 0), 148, 1860, {"tf32": 1125, "bf16": 2250, "fp8": 4500}),
    ((10, 0), 148, 1965, {"fp64": 37}),
    ((12, 0), 170, 2407, {"tf32": 2 * 104.8, "fp16": 419, "fp32": 104.8, "fp64": 104.8 / 64}),
]


@pytest.mark.parametrize(("capability", "sms", "mhz", "tflops"), DATA_SHEETS)
def test_a_peak_is_that_of_the_data_sheet(capability, sms, mhz, tflops):
    card = Gpu("a GPU", capability, sms, 2**25, 2**34, mhz, 1e3, 512, "none")
    for datapath, peak in tflops.items():
        assert clocks.Peaks(card, mhz).of(datapath) == approx(peak, rel=0.01)
        assert clocks.Peaks(card, mhz / 2).of(datapath) == approx(peak / 2, rel=0.01)


def test_an_unknown_architecture_has_no_tensor_peak():
    found = clocks.Peaks(Gpu("a GPU", (6, 1), 20, 2**21, 2**33, 1e3, 1e3, 256, "none"), 1e3)
    assert list(found) == ["fp32"]
    with pytest.raises(BadSetting, match="datapath = bf16: a GPU has fp32"):
        found.of("bf16")


def test_with_locked_clocks_the_peaks_are_at_the_clock_that_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(clocks, "require_gpu", lambda: None)
    monkeypatch.setattr(clocks, "gpu", lambda: fake_nvml.GPU)
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        found = worklog.peaks()
        with found as held:
            clock = fake_nvml.sm_mhz()
            assert held.sm_mhz == clock < found.sm_mhz
            assert held["fp32"] == approx(found["fp32"] * clock / found.sm_mhz)
        assert fake_nvml.sm_mhz() != clock


def test_the_memory_peak_is_two_transfers_a_clock_over_the_whole_bus():
    assert GPU.memory_peak_gbs == approx(2 * 3.201 * 6144 / 8)


@pytest.mark.parametrize("refuses", ["nothing", "init", "reasons"])
def test_the_watch_reads_the_reasons_of_nvml_or_states_why_it_cannot(tmp_path, refuses):
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        fake_nvml.write(reasons=0x4, refuses=[refuses])
        found = ClockWatch()
        unread = "NVML: Insufficient Permissions", 0
        assert (found.reason, found.reasons()) == ((None, 0x4) if refuses == "nothing" else unread)
    assert (reason_names(0), reason_names(0x1 | 0x4)) == ("", "idle, software power cap")
    assert not any(map(throttled, (0x1, 0x2, 0x10, 0x100)))


def test_a_checkout_says_its_commit_and_changes_since_and_a_copy_takes_it_from_the_environment(
    monkeypatch, tmp_path
):
    source = tmp_path / "worklog" / "runs" / "files.py"
    source.parent.mkdir(parents=True)
    source.write_text("first\n")
    monkeypatch.setattr(files, "__file__", str(source))
    monkeypatch.delenv("WORKLOG_COMMIT", raising=False)
    assert {*(without := tool())} == {"name", "version", "harness"}
    timing = tmp_path / "worklog" / "harness" / "loop.py"
    timing.parent.mkdir()
    timing.write_text("other\n")
    assert tool()["harness"] != without["harness"]
    with monkeypatch.context() as named:
        named.setenv("WORKLOG_COMMIT", "abc123")
        assert tool()["commit"] == "abc123"
    for words in ("init --quiet", "add .", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", "-C", str(tmp_path), *words.split()], check=True)
    clean = tool()
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    source.write_text("second\n")
    assert tool() == {**clean, "dirty": True}
    monkeypatch.setattr(device, "gpu_reason", lambda: "this test has no GPU")
    assert {"python", "platform", "numpy", "matplotlib"} <= software().keys()


def test_label_peaks_and_clocks_are_of_the_gpu_that_is_current(monkeypatch):
    current = [0]
    sessions = list[int]()
    runtime = MagicMock()
    nvml = MagicMock(NVMLError=fake_nvml.NVMLError)
    runtime.getDevice = lambda: current[0]
    runtime.deviceGetPCIBusId = lambda number: f"{number}"
    runtime.getDeviceProperties = lambda n: defaultdict(
        lambda: 9, name=b"GPU %d" % n, multiProcessorCount=100 + n
    )
    nvml.nvmlDeviceGetHandleByPciBusId = lambda bus: bus
    nvml.nvmlDeviceGetUUID = lambda bus: f"GPU-{int(bus)}"
    nvml.nvmlDeviceGetMaxClockInfo = lambda bus, which: 1000 + int(bus)
    monkeypatch.setitem(sys.modules, "cupy", MagicMock(cuda=MagicMock(runtime=runtime)))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    for module, name in (
        (device, "_current"),
        (timing, "_session_on"),
    ):  # no other test's GPUs, nor these for others
        monkeypatch.setattr(module, name, cache(getattr(module, name).__wrapped__))
    monkeypatch.setattr(clocks, "require_gpu", lambda: None)
    monkeypatch.setattr(timing, "Session", lambda: sessions.append(current[0]) or current[0])
    for current[0] in (0, 1, 0, 1):
        assert (device.gpu().name, device.gpu().sm_clock_mhz) == (
            f"GPU {current[0]}",
            1000 + current[0],
        )
        assert device.gpu().uuid == f"GPU-{current[0]}"
        assert clocks.peaks()["fp32"] == approx(
            2 * 128 * (100 + current[0]) * (1000 + current[0]) / 1e6
        )
        assert timing.own_session() == current[0]
    assert sessions == [0, 1], "each GPU is calibrated once"
