"""A run file: what is written is read back, what is broken is named, and nothing that was there is lost."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.damage import GONE, changed
from tests.helpers import measured, small_run
from worklog.errors import BadRunFile
from worklog.problem.gemm import Shape
from worklog.runs import run as runs
from worklog.runs.measurement import Measurement
from worklog.runs.run import SCHEMA, Run, open_run

HERE = "NVIDIA H200 · clocks as found · 2026-11-21"
NAN, INFINITE = float("nan"), float("inf")


numbers = st.lists(st.floats(0, allow_infinity=False), max_size=3)
positive = st.none() | st.floats(0, exclude_min=True, allow_infinity=False)
measurements = st.builds(
    Measurement,
    kernel=st.text(),
    shape=st.tuples(*[st.integers(1, 10_000)] * 3),
    status=st.sampled_from(["measured", "refused", "skipped"]),
    reason=st.none() | st.text(),
    changed=st.dictionaries(st.text(), st.booleans() | st.text(), max_size=2),
    us=positive,
    ratio=positive,
    degradations=st.lists(st.text(), max_size=2).map(tuple),
    samples=st.fixed_dictionaries({}, optional={"hot_us": numbers, "baseline_us": numbers}),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(
    made=st.lists(measurements, max_size=4),
    device=st.dictionaries(st.text(), st.text(), max_size=3),
    notes=st.lists(st.text(), max_size=2),
)
def test_any_run_comes_back(tmp_path: Path, made: list[Measurement], device: dict[str, Any], notes: list[str]) -> None:
    run = Run(device=device, harness={}, measurements=made, notes=notes)
    assert Run.load(run.save(tmp_path / "run.json")) == run


def test_the_file_has_its_schema_a_line_per_measurement_and_raw_samples(tmp_path: Path) -> None:
    run = small_run(notes=["made by hand, with µ and “quotes”"], software={"numpy": "2"})
    path = run.save(tmp_path / "new" / "folder" / "run.json")
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["schema"] == SCHEMA and set(written) == {"schema", "origin", *runs.HEAD, "measurements"}
    assert written["measurements"][0]["samples"]["us"] == [100.0, 101.0, 900.0]
    assert set(written["measurements"][0]) == {f.name for f in fields(Measurement)} - {"beside"}
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1 + 5 + 1
    assert Run.load(path) == run and Run.load(path).path == run.path == path
    run.add(measured("shared"))
    run.complete = False
    again = Run.load(run.save())
    assert (again.measurements[-1].kernel, len(again.measurements), again.complete) == ("shared", 6, False)


def test_a_file_of_an_older_or_a_newer_version_of_the_same_schema_is_read(tmp_path: Path) -> None:
    path = small_run().save(tmp_path / "run.json")
    other = json.loads(path.read_text())
    for place in ("added", "device added", "calibration added", "measurements 0 added"):
        other = changed(other, place, [{"deep": None}])
    path.write_text(json.dumps(changed(other, "harness placement", GONE)))
    run = Run.load(path)
    assert run.harness["placement"] == "fixed", "what a run from before this setting did"
    assert run.measurements == small_run().measurements


def test_nan_and_infinity_become_nothing(tmp_path: Path) -> None:
    odd = Measurement("x", (1, 1, 1), "measured", us=NAN, samples={"sm_mhz": [INFINITE], "us": [1.0]})
    path = small_run(measurements=[odd], calibration={"offset_us": -INFINITE, "slope": 1.0}).save(tmp_path / "run.json")
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()
    run = Run.load(path)
    assert run.measurements[0].us is None and run.measurements[0].samples == {"sm_mhz": [None], "us": [1.0]}
    assert run.calibration == {"slope": 1.0}, "what isn't known is missing"


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRunFile, match="give save"):
        small_run().save()
    path = small_run().save(tmp_path / "run.json")
    before = path.read_bytes()
    with pytest.raises(TypeError):
        small_run(calibration={"offset_us": object()}).save(path)

    def full(self: Path, *_: Any, **__: Any) -> None:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BadRunFile, match=r"cannot write .*: No space left on device; give another place"):
        small_run(notes=["new"]).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.json"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is complete under another name before it gets its own."""
    path = small_run().save(tmp_path / "run.json")
    seen: list[int] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.extend(len(Run.load(one).measurements) for one in (self, target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    small_run(measurements=[measured("naive")]).save(path)
    assert seen == [1, 5]


def test_select_gives_the_runs_own_harness_by_default_and_shapes_ascend() -> None:
    run = small_run()
    assert [m.us for m in run.select("naive", Shape.of(512))] == [100.0]
    assert [m.us for m in run.select("naive", Shape.of(512), {"l2": "warm"})] == [70.0]
    assert [m.status for m in run.select("naive")] == ["measured", "refused", "skipped"]
    assert run.select("naive", Shape.of(4096)) == [] and len(run.select()) == 4
    run = small_run(measurements=[measured("x", n) for n in (4096, 256, 1024, 256)] + [measured("x", 64, l2="warm")])
    assert run.shapes() == [Shape.of(256), Shape.of(1024), Shape.of(4096)]


def test_the_label_states_source_device_clocks_and_day() -> None:
    assert small_run().label == f"live · {HERE}"
    run = small_run(measurements=[measured("naive"), measured("naive", clocks="ignored")], complete=False)
    assert run.label == f"live · {HERE} · cut short"
    assert [m.label for m in run.measurements] == [f"live · {HERE}", f"live · {HERE}".replace("as found", "ignored")]
    unknown = small_run(complete=False, device={}, harness={"clocks": "ignored"})
    assert unknown.label == "live · unknown GPU · clocks ignored · 2026-11-21 · cut short"


def test_the_source_is_what_the_file_or_its_reader_says(tmp_path: Path) -> None:
    mine = small_run().save(tmp_path / "mine.json")
    assert open_run(mine).label == f"live · {HERE}"
    recorded = Run.load(mine, origin="recorded")
    assert {m.label for m in recorded.measurements} == {f"recorded · {HERE}"}
    shipped = open_run(recorded.save(tmp_path / "shipped.json"))
    assert {shipped.label, *(m.label for m in shipped.measurements)} == {f"recorded · {HERE}"}


def test_what_is_added_gets_the_runs_label_and_what_has_one_keeps_it(tmp_path: Path) -> None:
    run, elsewhere = small_run(), "live · NVIDIA A6000 · clocks locked · 2026-01-02"
    run.add(measured("shared"))
    run.add(replace(measured("shared", 1024), label=elsewhere))
    run.add(replace(measured("shared", 2048), label="emulated · sm_90 PTX"))
    path, labels = run.save(tmp_path / "run.json"), [run.label, elsewhere, "emulated · sm_90 PTX"]
    assert [m.label for m in run.measurements[-3:]] == [m.label for m in Run.load(path).measurements[-3:]] == labels
    recorded = Run.load(path, origin="recorded")
    assert [m.label for m in recorded.measurements[-2:]] == [elsewhere.replace("live", "recorded"), labels[-1]]
    assert set(recorded.frame()["source"]) == {"recorded", "emulated"}
    assert f"{elsewhere} (shared at 1024)" in str(Run.load(path))
