"""A run file: what is written is read back, what is broken is named, and nothing that was there is lost."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import approx

from tests.damage import DAMAGES, GONE, changed, damaged
from tests.helpers import CALIBRATION, GPU, measured, small_run
from worklog.errors import BadRunFile
from worklog.problem import Shape
from worklog.runs import (
    Context,
    Estimate,
    Measurement,
    Run,
    Sample,
    Samples,
    Side,
    Stage,
    Verdict,
    open_run,
)
from worklog.runs.run_file import SCHEMA, head_lines, lines_of

HERE = "NVIDIA H200 · clocks as found · 2026-11-21"
NAN = float("nan")


words = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(0, exclude_min=True, allow_infinity=False)
estimates = st.builds(Estimate, finite, finite, finite, st.none() | finite)
sides = st.lists(finite, max_size=3).map(
    lambda us: Samples([Side("a", us, [1980.0] * len(us), [0] * len(us), us, 2)], [1] * len(us))
)
measurements = st.builds(
    Measurement,
    kernel=words,
    shape=st.tuples(*[st.integers(1, 10_000)] * 3),
    status=st.just("measured"),
    reason=st.none() | words,
    changed=st.dictionaries(words, st.booleans() | words, max_size=2),
    time=estimates,
    against=st.dictionaries(words, st.none() | estimates, max_size=2),
    verdict=st.none() | st.builds(Verdict, st.just((Stage("a", True, 0, None, "b"),)), st.just("fp32"), st.integers(0)),
    degradations=st.lists(words, max_size=2).map(tuple),
    samples=sides,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(made=st.lists(measurements, max_size=4), notes=st.lists(words, max_size=2))
def test_any_run_comes_back(tmp_path: Path, made: list[Measurement], notes: list[str]) -> None:
    run = Run({}, GPU, CALIBRATION, measurements=made, notes=notes)
    assert Run.load(run.save(tmp_path / "run.jsonl")) == run


def test_the_file_has_its_schema_a_line_for_each_thing_and_raw_samples(tmp_path: Path) -> None:
    run = small_run(notes=["made by hand, with µ and “quotes”"], software={"numpy": "2"})
    path = run.save(tmp_path / "new" / "folder" / "run.jsonl")
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    kinds = ["head", "gpu", "calibration", "kernel", "note", *["measurement"] * 5, "end"]
    assert [line["kind"] for line in lines] == kinds and lines[0]["schema"] == SCHEMA
    assert lines[5]["samples"]["sides"][0]["us"] == [100.0, 101.0, 900.0] and "context" not in lines[5]
    assert Run.load(path) == run and Run.load(path).path == run.path == path


def test_a_run_grows_by_lines_and_keeps_every_whole_one_when_it_is_cut_short(tmp_path: Path) -> None:
    run = Run.begin(head_lines(small_run(kernels={})), tmp_path / "run.jsonl")
    assert run.path is not None
    run.describe("naive", {"file": "01_naive.cu"})
    run.add(measured("naive"))
    run.add_note("a note")
    assert Run.load(run.path) == run and not run.complete
    whole = run.path.read_bytes()
    run.add(measured("shared"))
    cut = run.path.read_bytes()
    for length in (len(whole), len(whole) + 1, len(cut) - 2):
        run.path.write_bytes(cut[:length])
        again = Run.load(run.path)
        assert [m.kernel for m in again.measurements] == ["naive"] and again.label.endswith("cut short")
    run.path.write_bytes(cut)
    run.end()
    assert Run.load(run.path).complete and len(Run.load(run.path).measurements) == 2


def test_a_file_of_an_older_or_a_newer_version_of_the_same_schema_is_read(tmp_path: Path) -> None:
    path = small_run().save(tmp_path / "run.jsonl")
    lines = [json.loads(text) | {"added": [{"deep": None}]} for text in path.read_text().splitlines()]
    del lines[0]["harness"]["placement"]
    text = "\n".join(map(json.dumps, [*lines[:2], {"kind": "counters", "of": "tomorrow"}, *lines[2:]]))
    path.write_text(text)
    run = Run.load(path)
    assert run.harness["placement"] == "fixed", "what a run from before this setting did"
    assert run.measurements == small_run().measurements


def test_a_run_of_schema_1_is_read_and_its_further_baselines_are_joined() -> None:
    run = Run.load(Path(__file__).with_name("schema_1.json"))
    m, failed = run.measurements
    assert (run.label, run.gpu.name, run.calibration.offset_us) == (f"live · {HERE}", "NVIDIA H200", 3.45)
    assert m.time == Estimate(100.0, 99.0, 101.0, 0.5) and m.tflops == approx(2.684, abs=1e-3)
    assert m.against == {"cuBLAS": Estimate(0.5, 0.49, 0.51), "torch": Estimate(0.7, 0.69, 0.71)}
    assert [side.name for side in m.samples.sides] == ["naive", "cuBLAS", "torch"] and m.overhead_us == 3.45
    assert m.verdict is not None and m.verdict.accepted and m.of_roof == approx(0.04) and m.changed == {}
    assert (failed.status, failed.time, failed.against) == ("failed", None, {"cuBLAS": None})


def test_a_clock_that_is_not_known_becomes_nothing(tmp_path: Path) -> None:
    samples = Samples.of_turns(["x"], [[Sample(1.0, NAN), Sample(2.0, 1980.04)]])
    m = Measurement("x", (1, 1, 1), time=Estimate(1.0, 1.0, 2.0), samples=samples)
    path = small_run(measurements=[m]).save(tmp_path / "run.jsonl")
    assert "NaN" not in path.read_text()
    assert Run.load(path).measurements[0].samples.sides[0].sm_mhz == [None, 1980.0]


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRunFile, match="give save"):
        small_run().save()
    path = small_run().save(tmp_path / "run.jsonl")
    before = path.read_bytes()

    def full(self: Path, *_: Any, **__: Any) -> None:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BadRunFile, match=r"cannot write .*: No space left on device; give another place"):
        small_run(notes=["new"]).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.jsonl"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is complete under another name before it gets its own."""
    path = small_run().save(tmp_path / "run.jsonl")
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
    assert [m.status for m in run.select("naive")] == ["measured", "failed", "skipped"]
    assert run.select("naive", Shape.of(4096)) == [] and len(run.select()) == 4
    run = small_run(measurements=[measured("x", n) for n in (4096, 256, 1024, 256)] + [measured("x", 64, l2="warm")])
    assert run.shapes() == [Shape.of(256), Shape.of(1024), Shape.of(4096)]


def test_the_label_states_source_device_clocks_and_day() -> None:
    assert small_run().label == f"live · {HERE}"
    run = small_run(measurements=[measured("naive"), measured("naive", clocks="ignored")], complete=False)
    assert run.label == f"live · {HERE} · cut short"
    assert [m.label for m in run.measurements] == [f"live · {HERE}", f"live · {HERE}".replace("as found", "ignored")]


def test_the_source_is_what_the_file_or_its_reader_says(tmp_path: Path) -> None:
    mine = small_run().save(tmp_path / "mine.jsonl")
    assert open_run(mine).label == f"live · {HERE}"
    recorded = Run.load(mine, origin="recorded")
    assert {m.label for m in recorded.measurements} == {f"recorded · {HERE}"}
    shipped = open_run(recorded.save(tmp_path / "shipped.jsonl"))
    assert {shipped.label, *(m.label for m in shipped.measurements)} == {f"recorded · {HERE}"}


def test_what_is_added_gets_the_runs_label_and_what_has_one_keeps_it() -> None:
    run = small_run()
    other = Context("live", "locked", "2026-01-02", replace(GPU, name="NVIDIA A6000"), CALIBRATION)
    run.add(measured("shared"))
    run.add(replace(measured("shared", 1024), context=other))
    assert [m.label for m in run.measurements[-2:]] == [run.label, "live · NVIDIA A6000 · clocks locked · 2026-01-02"]
    assert "clocks locked · 2026-01-02 (shared at 1024)" in str(run)
    assert set(run.frame()["source"]) == {"live"}


# ------------------------------------------------------------------------------------------------------ damaged files


def show(run: Run) -> None:
    shown = f"{run}{run._repr_html_()}{run.frame().to_csv()}"
    assert not re.search(r"\bnan\b|None ok", shown)
    assert all(repr(m) and m._repr_html_() for m in run.measurements)


def lines_of_a_run() -> list[dict[str, Any]]:
    return [json.loads(text) for text in lines_of(small_run(notes=["a note"]))]


def with_lines(lines: list[Any], folder: Path) -> Path:
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(damage=DAMAGES, data=st.data())
def test_a_damaged_run_is_an_error_or_can_be_shown(tmp_path: Path, damage: Any, data: st.DataObject) -> None:
    lines = lines_of_a_run()
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = damaged(lines[number], damage, data)
    with suppress(BadRunFile):
        show(Run.load(with_lines(lines, tmp_path)))


@pytest.mark.parametrize("content", [b"", b"not json", b"\xff\xfe\x00", b"[" * 100_000, b"{}", b"[]\n[]", b"null"])
def test_what_is_no_run_is_an_error_with_a_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(content)
    with pytest.raises(BadRunFile, match=r"run\.jsonl .*give a file that `worklog run` wrote"):
        Run.load(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    ("number", "place", "values"),
    [
        (0, "created", [GONE, "lately", 5]),
        (0, "harness", [GONE, []]),
        (0, "harness timer", ["sundial"]),
        (1, "compute_capability", [["9", 0], GONE]),
        (2, "offset_us", ["3", GONE]),
        (3, "about", [GONE, 5]),
        (4, "text", [GONE, 7]),
        (5, "kernel", [None, GONE]),
        (5, "time", [GONE, None, {"value": -1.0, "low": 0.0, "high": 1.0}, {"value": "fast"}]),
        (5, "shape", [[1, 2], 3, ["a", "b", "c"]]),
        (5, "status", ["guessed"]),
        (5, "degradations", [[3]]),
        (5, "samples counts", [[1]]),
        (5, "samples sides 0 us", [["1"], [1.0]]),
        (5, "samples", [{"sides": [{"name": "a", "hot_us": [1.0] * count} for count in (1, 2)]}]),
        (5, "verdict precision", [GONE, None]),
        (9, "changed l2", ["lukewarm"]),
    ],
)
def test_a_damaged_line_is_named(number: int, place: str, values: list[Any], tmp_path: Path) -> None:
    for value in values:
        lines: list[Any] = lines_of_a_run()
        lines[number] = changed(lines[number], place, value)
        with pytest.raises(
            BadRunFile, match=r"run\.jsonl isn't whole" if number == 0 else rf"run\.jsonl:{number + 1} "
        ):
            Run.load(with_lines(lines, tmp_path))


def test_a_newer_schema_and_a_run_without_a_gpu_are_errors(tmp_path: Path) -> None:
    lines = lines_of_a_run()
    with pytest.raises(BadRunFile, match="has schema 99; this version reads 2: install a newer gemm-worklog"):
        Run.load(with_lines([lines[0] | {"schema": 99}, *lines[1:]], tmp_path))
    with pytest.raises(BadRunFile, match="no line of kind gpu"):
        Run.load(with_lines([lines[0], *lines[2:]], tmp_path))
