"""Theoretical peaks by datapath, against NVIDIA's data sheets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest import approx

import worklog
from tests.harness import fake_nvml
from worklog.errors import BadSetting
from worklog.gpu import peaks
from worklog.gpu.device import Gpu


@pytest.mark.parametrize(
    ("capability", "sms", "mhz", "datapath", "tflops"),
    [
        ((7, 0), 80, 1530, "fp16", 125),
        ((7, 0), 80, 1530, "fp64", 7.8),
        ((7, 5), 72, 1770, "fp16", 130.5),
        ((7, 5), 68, 1545, "fp16", 2 * 53.8),  # a GeForce GPU, with FP32 accumulation
        ((8, 0), 108, 1410, "tf32", 156),
        ((8, 0), 108, 1410, "bf16", 312),
        ((8, 0), 108, 1410, "fp64", 9.7),
        ((8, 0), 108, 1410, "fp64_tensor", 19.5),
        ((8, 6), 84, 1740, "tf32", 74.8),
        ((8, 6), 84, 1740, "bf16", 149.7),
        ((8, 6), 82, 1695, "fp16", 142),
        ((8, 9), 128, 2520, "tf32", 2 * 82.6),
        ((8, 9), 128, 2520, "fp16", 330.3),
        ((8, 9), 128, 2520, "fp8", 660.6),
        ((9, 0), 132, 1830, "tf32", 494.7),
        ((9, 0), 132, 1830, "fp16", 989.4),
        ((9, 0), 132, 1830, "fp8", 1978.9),
        ((9, 0), 132, 1980, "fp64", 33.5),
        ((9, 0), 132, 1980, "fp64_tensor", 66.9),
        ((10, 0), 148, 1860, "tf32", 1125),
        ((10, 0), 148, 1860, "bf16", 2250),
        ((10, 0), 148, 1860, "fp8", 4500),
        ((10, 0), 148, 1965, "fp64", 37),
        ((12, 0), 170, 2407, "tf32", 2 * 104.8),  # a GeForce GPU has half of it
        ((12, 0), 170, 2407, "fp16", 419),
        ((12, 0), 170, 2407, "fp32", 104.8),
    ],
)
def test_a_peak_is_that_of_the_data_sheet(
    capability: tuple[int, int], sms: int, mhz: float, datapath: str, tflops: float
) -> None:
    card = Gpu("a GPU", capability, sms, 2**25, 2**34, mhz, 1e3, 512, "none")
    assert peaks.Peaks(card, mhz).of(datapath) == approx(tflops, rel=0.01)
    assert peaks.Peaks(card, mhz / 2).of(datapath) == approx(tflops / 2, rel=0.01)


def test_an_unknown_architecture_has_no_tensor_peak() -> None:
    found = peaks.Peaks(Gpu("a GPU", (6, 1), 20, 2**21, 2**33, 1e3, 1e3, 256, "none"), 1e3)
    assert list(found) == ["fp32"]
    with pytest.raises(BadSetting, match="datapath = bf16: a GPU has fp32"):
        found.of("bf16")


def test_with_locked_clocks_the_peaks_are_at_the_clock_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peaks, "require_gpu", lambda: None)
    monkeypatch.setattr(peaks, "gpu", lambda: fake_nvml.GPU)
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        found = worklog.peaks()
        with found as held:
            clock = fake_nvml.sm_mhz()
            assert held.sm_mhz == clock < found.sm_mhz
            assert held["fp32"] == approx(found["fp32"] * clock / found.sm_mhz)
        assert fake_nvml.sm_mhz() != clock
