"""The memories of a GPU: sizes and peaks of the card, and what a recording has of it."""

from dataclasses import replace

import pytest
from pytest import approx

from tests.helpers import small_run
from worklog.errors import BadRunFile, WorklogError
from worklog.kernel import memories
from worklog.runs import open_run
from worklog.runs.files import write_text

H200 = open_run("h200")
CHAINS = [
    ("fma", 4, 4.0),
    ("ld.shared", 1024, 23.0),
    ("ld.shared", 32768, 24.0),
    ("ld.global.ca", 1 << 29, 800.0),
    ("ld.global.ca", 1024, 33.0),
    ("ld.global.cg", 1024, 270.0),
    ("ld.global.cg", 1 << 29, 810.0),
]


def recording(device: str) -> dict[str, object]:
    latencies = [dict(zip(("chased", "bytes", "cycles"), chain, strict=True)) for chain in CHAINS]
    return {
        "kind": memories.KIND,
        "schema": memories.SCHEMA,
        "device": device,
        "label": f"recorded · {device}",
        "latencies": latencies,
        "read_gbs": {"L1": 30000.0, "DRAM": 4500.0},
    }


@pytest.fixture
def with_recording(tmp_path, monkeypatch):
    """Return a function that puts a recording of a device in place of the package's."""

    def put(document):
        path = tmp_path / "made.json"
        write_text(path, document)
        monkeypatch.setattr(memories, "recordings", lambda part: {path.stem: path})

    return put


def levels(run=H200):
    return {level.name: level for level in memories.memories(run).levels}


def test_sizes_and_peaks_follow_from_the_card(monkeypatch):
    monkeypatch.setattr(memories, "recordings", lambda part: {})
    found = levels()
    assert [*found] == ["registers", "shared memory", "L1", "L2", "DRAM"]
    assert found["registers"].size_bytes == 256 * 1024
    assert found["shared memory"].size_bytes == 228 * 1024 and found["L1"].size_bytes is None
    assert found["L2"].size_bytes == H200.gpu.l2_bytes
    # 132 multiprocessors at 1.98 GHz: 128 bytes, or 128 multiply-adds of three floats, per clock
    assert found["L1"].peak_gbs == found["shared memory"].peak_gbs == approx(132 * 128 * 1.98)
    assert found["registers"].peak_gbs == approx(132 * 128 * 12 * 1.98)
    assert found["DRAM"].peak_gbs == H200.gpu.memory_peak_gbs


def test_without_a_recording_a_calibration_has_what_it_measured_and_nothing_is_guessed(
    monkeypatch,
):
    monkeypatch.setattr(memories, "recordings", lambda part: {})
    found = levels()
    latencies = {name: level.latency_cycles for name, level in found.items()}
    calibration = H200.calibration
    assert latencies == {
        "registers": None,
        "shared memory": None,
        "L1": None,
        "L2": calibration.warm_cycles,
        "DRAM": calibration.cold_cycles,
    }
    assert found["L2"].measured_gbs == calibration.l2_gbs
    assert found["L1"].measured_gbs is None
    assert memories.memories(H200).labels == (H200.label,)


def test_a_recording_of_the_card_replaces_what_it_measured(with_recording):
    with_recording(recording(H200.gpu.name))
    found = levels()
    assert [level.latency_cycles for level in found.values()] == [4.0, 23.0, 33.0, 270.0, 810.0]
    assert found["L1"].measured_gbs == 30000.0 and found["DRAM"].measured_gbs == 4500.0
    assert found["L2"].measured_gbs == H200.calibration.l2_gbs, "the recording has no rate of L2"
    assert memories.memories(H200).labels == (H200.label, f"recorded · {H200.gpu.name}")


def test_the_recording_of_another_card_is_not_used(with_recording):
    with_recording(recording("another card"))
    assert levels()["L1"].latency_cycles is None
    assert memories.memories(H200).labels == (H200.label,)


@pytest.mark.parametrize(
    "change",
    [{"kind": "something else"}, {"schema": 99}, {"latencies": [{"chased": "fma", "bytes": 4}]}],
)
def test_a_broken_recording_is_an_error(change, with_recording):
    with_recording(recording(H200.gpu.name) | change)
    with pytest.raises(BadRunFile, match=r"made\.json"):
        memories.memories(H200)


def test_a_card_without_known_limits_is_an_error():
    unknown = replace(H200.gpu, compute_capability=(5, 2))
    with pytest.raises(WorklogError, match="memories of sm_52 are unknown"):
        memories.memories(replace(small_run(), gpu=unknown))
