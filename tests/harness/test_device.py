"""The machine on paper: peaks, words for what its clocks do, and which source and software a result came from."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pytest import approx

from tests.harness import fake_nvml
from tests.harness.fake_nvml import GPU
from worklog.gpu import device
from worklog.gpu.device import THROTTLING, ClockWatch, reason_names, software, source_revision


@pytest.mark.parametrize(
    ("capability", "lanes"), [((7, 0), 64), ((7, 5), 64), ((8, 0), 64), ((8, 6), 128), ((9, 0), 128), ((12, 0), 128)]
)
def test_the_fp32_peak_counts_every_lane_and_a_multiply_add_as_two(capability: tuple[int, int], lanes: int) -> None:
    card = replace(GPU, compute_capability=capability)
    assert card.fp32_peak_tflops == approx(132 * lanes * 2 * 1.98e9 / 1e12)


def test_the_memory_peak_is_two_transfers_a_clock_over_the_whole_bus() -> None:
    assert GPU.memory_peak_gbs == approx(2 * 3.201 * 6144 / 8)


def test_reasons_are_named_and_only_those_that_slow_down_are_throttling() -> None:
    assert (reason_names(0), reason_names(0x1 | 0x4)) == ("none", "idle, software power cap")
    for harmless in (0x1, 0x2, 0x10, 0x100):
        assert not harmless & THROTTLING
    assert reason_names(THROTTLING).count(",") == 4


@pytest.mark.parametrize("refuses", ["nothing", "init", "reasons"])
def test_the_watch_reads_the_reasons_of_nvml_or_states_why_it_cannot(tmp_path: Path, refuses: str) -> None:
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        fake_nvml.write(reasons=0x4, refuses=[refuses])
        found = ClockWatch()
        unread = "NVML: Insufficient Permissions", 0
        assert (found.reason, found.reasons()) == ((None, 0x4) if refuses == "nothing" else unread)


def test_a_checkout_says_its_commit_and_whether_it_was_changed_since(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "worklog" / "gpu" / "device.py"
    source.parent.mkdir(parents=True)
    source.write_text("first\n")
    for words in ("init --quiet", "add .", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", "-C", str(tmp_path), *words.split()], check=True)
    monkeypatch.setattr(device, "__file__", str(source))
    clean = source_revision()
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    source.write_text("second\n")
    assert source_revision() == {**clean, "dirty": True}


def test_a_copy_takes_its_commit_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device, "__file__", str(tmp_path / "worklog" / "gpu" / "device.py"))
    monkeypatch.delenv("WORKLOG_COMMIT", raising=False)
    assert source_revision() == {}
    monkeypatch.setenv("WORKLOG_COMMIT", "abc123")
    assert source_revision() == {"commit": "abc123"}


def test_the_software_that_a_result_may_depend_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_reason", lambda: "this test has no GPU")
    found = software()
    assert {"python", "platform", "numpy", "matplotlib"} <= found.keys()
    assert all(isinstance(version, str) and version for version in found.values())
