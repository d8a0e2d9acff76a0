"""A run file and other JSON documents.

What is written is read back, what is broken is named with a remedy, and nothing that was there is
lost.
"""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import approx

from tests.damage import DAMAGES, GONE, changed, damaged
from tests.helpers import CALIBRATION, GPU, compared, measured, small_run
from worklog.errors import BadRunFile
from worklog.peers.compare import text
from worklog.runs import CUBLAS, Context, Run, open_run
from worklog.runs.comparison import KNOWN, open_comparison
from worklog.runs.files import Date, read_json, write_text
from worklog.runs.run_file import SCHEMA
from worklog.runs.statistics import Sample, Samples

HERE = "NVIDIA H200 · clocks as found · 2026-11-21"


def test_the_file_has_its_schema_a_line_for_each_thing_and_raw_samples(tmp_path):
    run = small_run(notes=["made by hand, with µ and “quotes”"], software={"numpy": "2"})
    path = run.save(tmp_path / "new" / "folder" / "run.jsonl")
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    kinds = ["head", "gpu", "calibration", "kernel", "note", *["measurement"] * 5, "end"]
    assert [line["kind"] for line in lines] == kinds and lines[0]["schema"] == SCHEMA
    assert (
        lines[5]["samples"]["sides"][0]["us"] == [100.0, 101.0, 900.0] and "context" not in lines[5]
    )
    assert Run.load(path) == run and run.path == path


def test_a_run_grows_by_lines_and_keeps_every_whole_one_when_it_is_cut_short(tmp_path):
    run = Run.begin(small_run(kernels={}).head_lines(), tmp_path / "run.jsonl")
    run.add(measured("naive"))
    run.add_note("a note")
    assert Run.load(run.path) == run and not run.complete
    content = run.path.read_bytes()
    run.add(measured("shared"))
    cut = run.path.read_bytes()
    for length in (len(content), len(content) + 1, len(cut) - 2):
        run.path.write_bytes(cut[:length])
        reopened = Run.load(run.path)
        assert [m.kernel for m in reopened.measurements] == ["naive"] and reopened.label.endswith(
            "cut short"
        )
    run.path.write_bytes(cut)
    run.end()
    assert Run.load(run.path).complete and len(Run.load(run.path).measurements) == 2


def test_a_file_of_a_newer_version_of_the_same_schema_is_read(tmp_path):
    path = small_run().save(tmp_path / "run.jsonl")
    lines = [
        json.loads(text) | {"added": [{"deep": None}]} for text in path.read_text().splitlines()
    ]
    text = "\n".join(
        map(json.dumps, [*lines[:2], *[{"kind": "unknown", "of": "tomorrow"}] * 2, *lines[2:]])
    )
    path.write_text(text)
    run = Run.load(path)
    assert run.measurements == small_run().measurements
    assert run.notes == ["lines of kind 'unknown' aren't read: install a newer gemm-worklog"]


def test_a_clock_that_is_not_known_becomes_nothing(tmp_path):
    samples = Samples.of_turns(["x"], [[Sample(1.0, float("nan")), Sample(2.0, 1980.04)]])
    path = small_run(measurements=[replace(measured("x"), samples=samples)]).save(
        tmp_path / "run.jsonl"
    )
    assert Run.load(path).measurements[0].samples.sides[0].sm_mhz == [None, 1980.0]


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failed_save_leaves_the_old_file_and_no_other(step, tmp_path, monkeypatch):
    """The text is complete under another name before it gets its own.

    So a reader never sees half a file.
    """
    with pytest.raises(BadRunFile, match="give save"):
        small_run().save()
    path = small_run().save(tmp_path / "run.jsonl")
    content = path.read_bytes()

    def raise_full(self: Path, *_: Any, **__: Any) -> None:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, step, raise_full)
    with pytest.raises(
        BadRunFile, match=r"cannot write .*: No space left on device; give another place"
    ):
        small_run(notes=["new"]).save(path)
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["run.jsonl"]


def test_the_label_states_source_device_clocks_and_day(tmp_path):
    run = small_run(
        measurements=[measured("naive"), measured("naive", clocks="ignored")], complete=False
    )
    assert run.label == f"live · {HERE} · cut short"
    assert [m.label for m in run.measurements] == [
        f"live · {HERE}",
        f"live · {HERE}".replace("as found", "ignored"),
    ]
    mine = small_run().save(tmp_path / "mine.jsonl")
    assert open_run(mine).label == f"live · {HERE}", "what the file says"
    shipped = open_run(Run.load(mine, origin="recorded").save(tmp_path / "shipped.jsonl"))
    assert {shipped.label, *(m.label for m in shipped.measurements)} == {f"recorded · {HERE}"}


def test_what_is_added_gets_the_runs_label_and_what_has_one_keeps_it():
    run = small_run()
    other = Context("live", "locked", "2026-01-02", replace(GPU, name="NVIDIA A6000"), CALIBRATION)
    run.add(measured("shared"))
    run.add(replace(measured("shared", 1024), context=other))
    assert [m.label for m in run.measurements[-2:]] == [
        run.label,
        "live · NVIDIA A6000 · clocks locked · 2026-01-02",
    ]
    assert "clocks locked · 2026-01-02 (shared at 1024)" in str(run)
    assert set(run.frame()["source"]) == {"live"}


def show(run: Run) -> None:
    outputs = f"{run}{run._repr_html_()}{run.frame().to_csv()}"
    assert not re.search(r"\bnan\b|None ok", outputs)
    assert all(repr(m) and m._repr_html_() for m in run.measurements)


def lines_in(folder: Path) -> list[Any]:
    texts = (
        small_run(notes=["a note"])
        .save(folder / "whole.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return [json.loads(text) for text in texts]


def with_lines(lines: list[Any], folder: Path) -> Path:
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(damage=DAMAGES, data=st.data())
def test_a_damaged_run_is_an_error_or_can_be_shown(tmp_path, damage, data):
    lines = lines_in(tmp_path)
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = damaged(lines[number], damage, data)
    with suppress(BadRunFile):
        show(Run.load(with_lines(lines, tmp_path)))


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"\xff\xfe\x00", b"[" * 100_000, b"{}", b"[]\n[]", b"null"]
)
def test_what_is_no_run_is_an_error_with_a_remedy(content, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(content)
    with pytest.raises(BadRunFile, match=r"run\.jsonl .*give a file that `worklog run` wrote"):
        Run.load(tmp_path / "run.jsonl")


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "run.jsonl").write_text("\n")
    with pytest.raises(BadRunFile, match="is not a run: it is empty: measure again"):
        Run.load(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    ("number", "place", "value", "part"),
    [
        (0, "created", "lately", "created"),
        (0, "harness", GONE, "harness"),
        (0, "harness timer", "sundial", "timer = 'sundial'"),
        (1, "compute_capability", ["9", 0], "gpu.compute_capability"),
        (2, "offset_us", "3", "calibration.offset_us"),
        (3, "about", GONE, "kernels"),
        (4, "text", 7, "notes"),
        (5, "time", GONE, "naive at 512 is measured, but has no time"),
        (5, "time value", -1.0, "naive at 512 is measured, but has no time"),
        (5, "against cuBLAS value", 0.0, "a ratio of naive at 512 isn't above 0"),
        (5, "status", "guessed", "measurements"),
        (5, "samples counts", [1], "counts has 1 values for 3 times"),
        (5, "samples sides", [], "counts has 3 values for 0 times"),
        (5, "samples sides 0 sm_mhz", [1.0], "sm_mhz has 1 values for 3 times"),
        (
            5,
            "samples",
            {"sides": [{"name": "a", "hot_us": [1.0] * count} for count in (1, 2)]},
            "hot_us has",
        ),
        (5, "verdict precision", None, "its verdict isn't passed with a precision"),
        (9, "changed l2", "lukewarm", "l2 = 'lukewarm'"),
    ],
)
def test_a_damaged_part_is_named(number, place, value, part, tmp_path):
    lines = lines_in(tmp_path)
    lines[number] = changed(lines[number], place, value)
    with pytest.raises(
        BadRunFile, match=r"run\.jsonl isn't a whole run \(.*: measure again"
    ) as caught:
        Run.load(with_lines(lines, tmp_path))
    assert part in str(caught.value)


def test_another_schema_is_an_error_with_a_remedy(tmp_path):
    """Schema 1 was one JSON document, on one line or on many."""
    document = {"schema": 1, "measurements": []}
    for indent in (None, 1):
        path = tmp_path / "run.json"
        path.write_text(json.dumps(document, indent=indent))
        with pytest.raises(BadRunFile, match=r"run\.json .*: measure again, or give a file"):
            Run.load(path)
    lines = lines_in(tmp_path)
    with pytest.raises(BadRunFile, match="has schema 1; this version reads 2: measure again"):
        Run.load(with_lines([lines[0] | {"schema": 1}, *lines[1:]], tmp_path))


def test_a_newer_schema_and_a_run_without_a_gpu_or_a_date_are_errors(tmp_path):
    lines = lines_in(tmp_path)
    with pytest.raises(
        BadRunFile, match="has schema 99; this version reads 2: install a newer gemm-worklog"
    ):
        Run.load(with_lines([lines[0] | {"schema": 99}, *lines[1:]], tmp_path))
    with pytest.raises(BadRunFile, match="has no schema; this version reads 2: measure again"):
        Run.load(with_lines([lines[0] | {"schema": None}, *lines[1:]], tmp_path))
    with pytest.raises(BadRunFile, match="missing required field `gpu`"):
        Run.load(with_lines([lines[0], *lines[2:]], tmp_path))
    del lines[0]["created"]
    with pytest.raises(
        BadRunFile, match="missing required field `created`"
    ):  # no label with the date of today
        Run.load(with_lines(lines, tmp_path))


WHOLE = {"schema": 2, "kind": "rows", "created": "2026-11-21", "rows": [{"us": 1.5}], "more": None}


@dataclass
class Rows:
    """A kind of document."""

    created: Date
    rows: list[dict[str, float]]


def refused(content: Any, path: Path) -> str:
    """Return the message for a file with this content, which stays as it was.

    Without its name and the advice.
    """
    path.write_bytes(
        content := content if isinstance(content, bytes) else json.dumps(content).encode()
    )
    with pytest.raises(BadRunFile) as caught:
        read_json(path, Rows, kind="rows", schema=2, advice="do this")
    message = str(caught.value)
    assert path.read_bytes() == content and caught.value.exit_code == 2
    assert message.startswith(str(path)) and "\n" not in message
    assert message.endswith((": do this", ": install a newer gemm-worklog"))
    return message.removeprefix(str(path)).removesuffix(": do this")


def test_what_is_no_such_document_is_named_with_the_part_that_is_wrong(tmp_path):
    path = tmp_path / "file.json"
    for content in (
        b"not json",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        json.dumps(WHOLE).encode()[:-9],
        [float("inf")],
    ):
        assert " is not a whole JSON document: it was cut short or is another format" in refused(
            content, path
        )
    for content in ([], None, "schema", {"schema": 1}):
        assert refused(content, path) == " holds another document, not rows"
    assert refused({"schema": 1, "kind": "other"}, path) == " holds other, not rows"
    for schema in ("1", None, True, 0, 99):
        message = refused({**WHOLE, "schema": schema}, path)
        stated = f"schema {schema!r}"
        assert ("has no schema" if schema is None else f"has {stated}") in message
        assert ("install a newer gemm-worklog" in message) == (schema == 99)
    for place, value in (
        ("created", "lately"),
        ("created", GONE),
        ("rows", {}),
        ("rows 0 us", "1.5"),
    ):
        message = refused(changed(WHOLE, place, value), path)
        assert "isn't a whole document of rows" in message and place.partition(" ")[0] in message


def test_a_document_is_read_as_it_was_written_and_numpys_numbers_and_nan_can_be(tmp_path):
    path = tmp_path / "new" / "file.json"
    write_text(path, WHOLE | {"rows": [{"us": np.float64(1.5)}], "more": float("nan")})
    assert read_json(path, Rows, kind="rows", schema=2, advice="") == (
        WHOLE,
        Rows("2026-11-21", [{"us": 1.5}]),
    )


ROWS = [
    {"ruler": "ours", "work": KNOWN, "of": 10, "us": 10.02, "wall_s": 0.1},
    {"ruler": "ours", "work": KNOWN, "of": 1, "us": 1.01, "wall_s": 0.2},
    {"ruler": "theirs", "work": KNOWN, "of": 1, "us": 4.4},
    {"ruler": "theirs", "work": CUBLAS, "of": 512, "us": 17.9, "wall_s": 2.0},
    {"ruler": "gone", "work": KNOWN, "of": 1, "us": None, "reason": "ImportError: no module"},
]


def test_a_reading_is_found_by_kind_and_length_and_its_error_is_against_the_true_length():
    comparison = compared(ROWS)
    assert comparison.harnesses == ["ours", "theirs", "gone"]
    assert (comparison.works(KNOWN), comparison.works(CUBLAS)) == ([1, 10], [512])
    assert comparison.us(KNOWN, 1) == {"ours": 1.01, "theirs": 4.4}
    assert (comparison.wall_s(CUBLAS, 512), comparison.wall_s(KNOWN, 1)) == (
        {"theirs": 2.0},
        {"ours": 0.2},
    )
    assert comparison.reasons == {"gone": "ImportError: no module"}
    errors = comparison.errors()
    assert errors.keys() == {"ours", "theirs"} and [length for length, _ in errors["ours"]] == [
        1,
        10,
    ]
    assert [error for _, error in errors["ours"]] == approx([0.01, 0.02])


def test_a_comparison_is_opened_as_far_as_it_goes_and_labelled(tmp_path):
    path = tmp_path / "peers.json"
    document = {"schema": 1, "kind": "peers", **compared(ROWS).document}
    short = document | {"complete": False, "origin": "live", "promises": {}}
    for written, label in (
        (document, "recorded · NVIDIA H200 · clocks as found · 2026-11-21"),
        (short, "live · "),
    ):
        path.write_text(json.dumps(written))
        comparison = open_comparison(path)
        assert comparison.document == written and comparison.label.startswith(label)
        assert comparison.label.endswith("cut short") is not comparison.complete and "4.40" in text(
            comparison
        )
    path.write_text(json.dumps(document | {"rows": [{"ruler": "ours", "work": KNOWN, "of": 0}]}))
    with pytest.raises(BadRunFile, match=r"rows.*: give a file that `worklog peers` wrote"):
        open_comparison(path)
