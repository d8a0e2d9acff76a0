"""A run file: what is written is read back, what is broken is named, and nothing that was there is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.damage import DAMAGES, damaged
from tests.helpers import measured, small_run
from worklog.errors import BadRunFile
from worklog.problem.gemm import Shape
from worklog.runs import run as runs
from worklog.runs.measurement import STATUSES, Measurement
from worklog.runs.run import SCHEMA, Run, open_run, recordings

# --------------------------------------------------------------------------------------------------------- round trip


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
positive = st.none() | st.floats(0, exclude_min=True, allow_infinity=False)
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))
measurements = st.builds(
    Measurement,
    kernel=st.text(),
    shape=st.tuples(*[st.integers(1, 10_000)] * 3),
    status=st.sampled_from(STATUSES),
    reason=st.none() | st.text(),
    changed=st.dictionaries(st.text(), st.booleans() | st.text(), max_size=2),
    us=positive,
    ratio=positive,
    degradations=st.lists(st.text(), max_size=2).map(tuple),
    samples=st.dictionaries(st.text("xyz"), st.lists(numbers, max_size=3), max_size=2),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(
    made=st.lists(measurements, max_size=4),
    device=st.dictionaries(st.text(), values, max_size=3),
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
    written["added"] = "by a later tool"
    del written["harness"]["placement"]
    written["measurements"][0]["furlongs"] = 3.5
    path.write_text(json.dumps(written))
    assert Run.load(path).harness["placement"] == "fixed", "what a run from before this setting did"
    assert Run.load(path).measurements == run.measurements
    run.add(measured("shared"))
    run.complete = False
    again = Run.load(run.save())
    assert (again.measurements[-1].kernel, len(again.measurements), again.complete) == ("shared", 6, False)


def test_nan_and_infinity_become_nothing(tmp_path: Path) -> None:
    run = small_run(
        measurements=[
            Measurement("x", (1, 1, 1), "measured", us=float("nan"), samples={"sm_mhz": [float("inf")], "us": [1.0]})
        ],
        calibration={"offset_us": float("-inf"), "nested": [{"deep": float("nan")}]},
    )
    path = run.save(tmp_path / "run.json")
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()
    loaded = Run.load(path)
    assert loaded.measurements[0].us is None
    assert loaded.measurements[0].samples == {"sm_mhz": [None], "us": [1.0]}
    assert loaded.calibration == {"nested": [{"deep": None}]}, "what isn't known is missing"


def broken(tmp_path: Path, text: str | bytes) -> str:
    """The message for a file with this content; the file must stay as it was."""
    path = tmp_path / "broken.json"
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(content)
    with pytest.raises(BadRunFile) as caught:
        Run.load(path)
    assert path.read_bytes() == content
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_wherever_a_file_is_cut_short_it_is_named(tmp_path: Path) -> None:
    whole = small_run().save(tmp_path / "run.json").read_bytes()
    for length in range(0, len(whole.rstrip()), 97):
        assert "cut short" in broken(tmp_path, whole[:length])


def test_a_file_without_a_known_schema_is_named(tmp_path: Path) -> None:
    for text in ("not json", "{'schema': 1}", b"\xff\xfe\x00binary", "[" * 100_000):
        assert "is not a whole JSON document" in broken(tmp_path, text)
    for text in ("[]", "1", "null", '"schema"'):
        assert "not a run" in broken(tmp_path, text)
    assert "holds peers, not a run" in broken(tmp_path, '{"kind": "peers", "schema": 1}')
    for schema in ("1", None, True, 0, -1):
        assert f"has schema {schema!r}" in broken(tmp_path, json.dumps({"schema": schema}))
    newer = broken(tmp_path, json.dumps({"schema": SCHEMA + 1}))
    assert f"schema {SCHEMA + 1}" in newer and "install a newer gemm-worklog" in newer


def test_a_missing_or_wrong_part_is_named(tmp_path: Path) -> None:
    whole = small_run().save(tmp_path / "run.json").read_text(encoding="utf-8")
    for name in (*runs.HEAD, "measurements"):
        lacking = json.loads(whole)
        del lacking[name]
        assert name in broken(tmp_path, json.dumps(lacking))
    heads: list[dict[str, Any]] = [{"measurements": {}}, {"measurements": [1]}, {"device": None}]
    for head in [*heads, {"harness": []}, {"created": 5}]:
        assert "isn't a whole run" in broken(tmp_path, json.dumps(json.loads(whole) | head))
    shapes: list[dict[str, Any]] = [{"shape": [1, 2]}, {"shape": 3}, {"shape": ["a", "b", "c"]}, {"shape": [0, 1, 1]}]
    others: list[dict[str, Any]] = [{"status": "guessed"}, {"kernel": None}, {"samples": None}, {"samples": [1]}]
    for change in [*shapes, *others, {"us": "fast"}, {"degradations": 3}]:
        wrong = json.loads(whole)
        wrong["measurements"][0] |= change
        assert "isn't a whole run" in broken(tmp_path, json.dumps(wrong)), change
    for path, why in ((tmp_path / "none.json", "No such file"), (tmp_path, "directory")):
        with pytest.raises(BadRunFile, match=why):
            Run.load(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("measurements 1 us", float("nan")),
        ("measurements 1 us", float("inf")),
        ("measurements 1 us", -3.0),
        ("measurements 1 us", 10**400),
        ("measurements 2 samples us", [1.0, None, 2.0]),
        ("measurements 2 samples us", [1.0, -1.0, 2.0]),
        ("measurements 2 samples counts", [1]),
        ("measurements 1 verdict", {"x": 1}),
        ("measurements 1 verdict accepted", False),
        ("measurements 1 verdict stages", [{"name": "precision"}]),
        ("measurements 5 changed l2", "lukewarm"),
        ("calibration offset_us", "3"),
        ("device compute_capability", ["9", 0]),
        ("device l2_bytes", 0),
        ("harness timer", "sundial"),
        ("origin", "made up"),
        ("created", "lately"),
    ],
    ids=str,
)
def test_a_damaged_field_is_an_error_that_names_it(tmp_path: Path, place: str, value: Any) -> None:
    document = json.loads(small_run().save(tmp_path / "run.json").read_text(encoding="utf-8"))
    *path, last = place.split()
    part = document
    for name in path:
        part = part[int(name) - 1] if name.isdigit() else part[name]
    part[last] = value
    said = broken(tmp_path, json.dumps(document))
    assert last in said and path[:2] == [word for word in path[:2] if word in said]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(damage=DAMAGES, data=st.data())
def test_a_damaged_run_is_an_error_or_can_be_shown(tmp_path: Path, damage: Any, data: st.DataObject) -> None:
    path = small_run().save(tmp_path / "run.json")
    path.write_text(json.dumps(damaged(json.loads(path.read_text()), damage, data)))
    with suppress(BadRunFile):
        run = Run.load(path)
        shown = f"{run}{run._repr_html_()}{run.frame().to_csv()}"
        assert not re.search(r"\bnan\b|None ok", shown)
        for m in run.measurements:
            assert repr(m) and m._repr_html_()


def test_a_pipe_or_a_device_is_an_error_and_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/full")):
        with pytest.raises(BadRunFile, match="a pipe or a device, not a file"):
            Run.load(path)


def test_the_label_is_what_the_file_says(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    shutil.copy(recordings()["h200"], copy)
    run = open_run(copy)
    assert run.label.startswith("recorded · NVIDIA H200 · ")
    assert {m.label.partition(" ")[0] for m in run.measurements} == {"recorded"}
    assert open_run(run.save(tmp_path / "again.json")).origin == "recorded"
    mine = small_run().save(tmp_path / "mine.json")
    assert open_run(mine).label == f"live · {HERE}"
    recorded = Run.load(mine, origin="recorded")
    assert open_run(recorded.save(tmp_path / "shipped.json")).label == f"recorded · {HERE}"


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
        seen.append(len(Run.load(self).measurements))
        seen.append(len(Run.load(target).measurements))
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


def test_a_frame_has_a_row_a_measurement_and_no_samples() -> None:
    frame = small_run().frame()
    assert list(frame["kernel"]) == ["naive", "cuBLAS", "naive", "naive", "naive"]
    assert list(frame["status"]) == ["measured", "measured", "refused", "skipped", "measured"]
    assert list(frame["samples"]) == [2, 2, 0, 0, 2]
    assert list(frame["n"]) == [512, 512, 1024, 2048, 512]
    assert list(frame["changed"]) == ["", "", "", "", "l2=warm"]
    assert list(frame["precision"].fillna("-")) == ["fp32", "fp32", "-", "-", "fp32"]
    assert set(frame["source"]) == {"live"}
    assert set(frame["label"]) == {small_run().label}
    assert frame["us"].isna().tolist() == [False, False, True, True, False]


HERE = "NVIDIA H200 · clocks as found · 2026-11-21"


def test_a_measurement_taken_out_of_a_run_keeps_the_runs_label(tmp_path: Path) -> None:
    run = small_run()
    assert {m.label for m in run.measurements} == {f"live · {HERE}"} == {run.label}
    path = run.save(tmp_path / "run.json")
    assert {m.label for m in Run.load(path, origin="recorded").measurements} == {f"recorded · {HERE}"}
    run = small_run(measurements=[measured("naive"), measured("naive", clocks="ignored")], complete=False)
    assert run.label == f"live · {HERE} · cut short"
    assert [m.label for m in run.measurements] == [f"live · {HERE}", f"live · {HERE}".replace("as found", "ignored")]
    unknown = small_run(complete=False, device={}, harness={"clocks": "ignored"})
    assert unknown.label == "live · unknown GPU · clocks ignored · 2026-11-21 · cut short"


def test_what_is_added_gets_the_runs_label_and_what_has_one_keeps_it(tmp_path: Path) -> None:
    run, elsewhere = small_run(), "live · NVIDIA A6000 · clocks locked · 2026-01-02"
    run.add(measured("shared"))
    run.add(replace(measured("shared", 1024), label=elsewhere))
    run.add(replace(measured("shared", 2048), label="emulated · sm_90 PTX"))
    assert [m.label for m in run.measurements[-3:]] == [run.label, elsewhere, "emulated · sm_90 PTX"]
    path = run.save(tmp_path / "run.json")
    assert [m.label for m in Run.load(path).measurements[-3:]] == [run.label, elsewhere, "emulated · sm_90 PTX"]
    recorded = Run.load(path, origin="recorded")
    assert [m.label for m in recorded.measurements[-2:]] == [
        "recorded · NVIDIA A6000 · clocks locked · 2026-01-02",
        "emulated · sm_90 PTX",
    ]
    assert set(recorded.frame()["source"]) == {"recorded", "emulated"}
    assert f"{elsewhere} (shared at 1024)" in str(Run.load(path))
