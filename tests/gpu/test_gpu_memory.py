"""The recorder of a GPU's memories, small: nearer memories answer sooner and deliver more."""

from dataclasses import replace

from tests.helpers import small_run
from tests.record.memory import KIB, STREAMS, Machine, document
from worklog.kernel import memories
from worklog.runs.files import write_text


def test_a_small_recording_is_read_back_and_its_levels_are_in_order(tmp_path, monkeypatch):
    machine = Machine()
    recording = document(machine, [KIB, 4 * machine.gpu.l2_bytes], read_bytes=1e9)
    path = tmp_path / "here.json"
    write_text(path, recording)
    monkeypatch.setattr(memories, "recordings", lambda part: {path.stem: path})
    run = replace(small_run(), gpu=machine.gpu)
    levels = {level.name: level for level in memories.memories(run).levels}
    latencies = [level.latency_cycles for level in levels.values()]
    nearest, shared, l1, l2, dram = (cycles or 0.0 for cycles in latencies)
    assert 1 < nearest < min(shared, l1) and max(shared, l1) < l2 < dram < 10_000
    assert nearest < 10, "a multiply-add after another"
    rates = {name: levels[name].measured_gbs or 0.0 for name in STREAMS}
    assert min(rates["shared memory"], rates["L1"]) > rates["L2"] > rates["DRAM"]
    for name in ("shared memory", "DRAM"):
        assert 0.3 < rates[name] / (levels[name].peak_gbs or 0.0) < 1.05
