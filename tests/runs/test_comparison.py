"""What every ruler read, opened and asked: labelled, by ruler, with the reasons of those that read nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from pytest import approx

from tests.damage import DAMAGES, damaged
from worklog.errors import BadRunFile, NothingToDraw
from worklog.peers.compare import text
from worklog.plots.peers import peers
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison, Row, open_comparison


def row(ruler: str, work: str, of: float, us: float | None, **more: Any) -> dict[str, Any]:
    return asdict(Row(ruler, work, of, us, **more))


DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "kind": "peers",
    "device": {"name": "NVIDIA H200"},
    "created": "2026-11-21T05:20:00+00:00",
    "complete": True,
    "calibration": {"offset_us": 2.75, "offset_by_length_us": {"1": 2.78, "10": 2.73}, "aa_ratio": 1.0},
    "rows": [
        row("ours", KNOWN, 10, 10.02, wall_s=0.1),
        row("ours", KNOWN, 1, 1.01, wall_s=0.2),
        row("theirs", KNOWN, 1, 4.4),
        row("theirs", CUBLAS, 512, 17.9, wall_s=2.0),
        row("gone", KNOWN, 1, None, reason="ImportError: no module"),
    ],
    "promises": {
        "wall_s": [
            {"of": 512, "worklog_s": 0.06, "converged": True, "nvbench_s": 2.9},
            {"of": 1024, "worklog_s": 0.04, "converged": True, "nvbench_s": None},
        ],
        "aa": {
            "work": CUBLAS,
            "of": 512,
            "pairs": 1,
            "agree": 1,
            "intervals_us": [[[16.3, 16.4, 16.5], [16.4, 16.5, 16.6]]],
        },
        "beside_cupti": [{"work": CUBLAS, "of": 512, "events_us": 13.7, "tracer_us": 14.1}],
    },
}
Place = Sequence[str | int]


def saved(document: Any, folder: Path) -> Path:
    path = folder / "peers.json"
    path.write_text(json.dumps(document))
    return path


def changed(place: Place, value: Any) -> dict[str, Any]:
    """The document with another value in one place."""
    document = copy.deepcopy(DOCUMENT)
    part: Any = document
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    return document


def lacking(place: Place) -> dict[str, Any]:
    """The document without what is in one place."""
    document = copy.deepcopy(DOCUMENT)
    part: Any = document
    for name in place[:-1]:
        part = part[name]
    del part[place[-1]]
    return document


def show(comparison: Comparison) -> None:
    """All that the package and the notebook make of it."""
    text(comparison)
    promises = comparison.document["promises"]
    for point in promises["wall_s"]:
        assert point["nvbench_s"] is None or isinstance(point["nvbench_s"] / point["worklog_s"], float)
    for point in promises.get("beside_cupti", ()):
        f"{point['of']} {point['events_us']:.2f} {point['tracer_us']:.2f}"
    if "aa" in promises:
        np.array(promises["aa"]["intervals_us"]).reshape(-1, 3) - comparison.document["calibration"]["offset_us"]
    with suppress(NothingToDraw):
        peers(comparison)


def test_errors_are_against_the_true_length_and_those_that_read_nothing_are_left_out() -> None:
    errors = Comparison(DOCUMENT).errors()
    assert errors.keys() == {"ours", "theirs"}
    assert [length for length, _ in errors["ours"]] == [1, 10]
    assert [error for _, error in errors["ours"]] == approx([0.01, 0.02])


def test_a_work_is_asked_for_by_kind_and_length_or_size() -> None:
    comparison = Comparison(DOCUMENT)
    assert comparison.rulers == ["ours", "theirs", "gone"]
    assert (comparison.works(KNOWN), comparison.works(CUBLAS)) == ([1, 10], [512])
    assert comparison.us(KNOWN, 1) == {"ours": 1.01, "theirs": 4.4}
    assert comparison.wall_s(CUBLAS, 512) == {"theirs": 2.0}
    assert comparison.wall_s(KNOWN, 1) == {"ours": 0.2}, "unknown is not nothing"
    assert comparison.reasons == {"gone": "ImportError: no module"}


def test_the_label_says_where_it_is_from(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text(json.dumps(DOCUMENT | {"complete": False}))
    assert open_comparison(path).label == "live · NVIDIA H200 · clocks as found · 2026-11-21 · cut short"
    shipped = open_comparison()
    assert shipped.label.startswith("recorded · NVIDIA H200 · ")
    assert {"worklog", "NVBench cold", "do_bench"} <= set(shipped.rulers)


@pytest.mark.parametrize("written", ["", "[]", "[" * 100_000, '{"schema": 1, "measurements": []}'])
def test_what_is_no_comparison_is_refused(written: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(written)
    with pytest.raises(BadRunFile, match="worklog peers"):
        open_comparison(path)
    with pytest.raises(BadRunFile, match="worklog peers"):
        open_comparison(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (99, "has schema 99"),
        (None, "has schema None"),
        ("2", "has schema '2'"),
    ],
)
def test_an_unknown_schema_is_refused(schema: object, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text(json.dumps(DOCUMENT | {"schema": schema}))
    with pytest.raises(BadRunFile, match=complaint):
        open_comparison(path)


# ------------------------------------------------------------------------------------------------------------- damage


def test_what_is_whole_is_opened_and_shown(tmp_path: Path) -> None:
    found = open_comparison(saved(DOCUMENT, tmp_path))
    assert found.document == DOCUMENT
    show(found)
    show(open_comparison())


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        *(((name,), f"the document lacks {name}") for name in ("created", "complete", "device", "calibration")),
        *(((name,), f"the document lacks {name}") for name in ("rows", "promises")),
        (("device", "name"), "the name of the device is None"),
        *((("calibration", name), f"calibration lacks {name}") for name in ("offset_us", "offset_by_length_us")),
        *((("rows", 2, name), f"row 3 lacks {name}") for name in ("ruler", "work", "of", "us", "wall_s", "reason")),
        *((("promises", name), f"promises lacks {name}") for name in ("wall_s", "aa")),
        (("promises", "wall_s", 1, "nvbench_s"), "wall_s 2 lacks nvbench_s"),
        (("promises", "aa", "intervals_us"), "aa lacks intervals_us"),
        (("promises", "beside_cupti", 0, "tracer_us"), "beside_cupti 1 lacks tracer_us"),
    ],
)
def test_what_is_missing_is_named(place: Place, complaint: str, tmp_path: Path) -> None:
    path = saved(lacking(place), tmp_path)
    with pytest.raises(BadRunFile) as refused:
        open_comparison(path)
    assert str(refused.value) == (
        f"{path} is no whole comparison of rulers ({complaint}): give a file that `worklog peers` wrote"
    )


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (("rows",), {}, "rows is {}"),
        (("rows",), [], "it has no rows"),
        (("rows", 1), "ours", "row 2 is 'ours'"),
        (("rows", 1, "us"), "1.01", "row 2: us is '1.01'"),
        (("rows", 1, "us"), True, "row 2: us is True"),
        (("rows", 1, "of"), None, "row 2: of is None"),
        (("rows", 1, "of"), 0, "row 2: of is 0, and lengths and sizes are above 0"),
        (("rows", 1, "work"), "spun", "row 2: work is 'spun', and works are spin or cuBLAS"),
        (("rows", 1, "ruler"), ["ours"], r"row 2: ruler is \['ours'\]"),
        (("rows", 4, "reason"), {}, "row 5: reason is {}"),
        (("created",), 20261121, "created is 20261121"),
        (("created",), "lately", "created is 'lately', which is no date"),
        (("complete",), "yes", "complete is 'yes'"),
        (("device",), "NVIDIA H200", "device is 'NVIDIA H200'"),
        (("device", "name"), 200, "the name of the device is 200"),
        (("calibration",), None, "calibration is None"),
        (("calibration", "offset_us"), "2.75", "calibration: offset_us is '2.75'"),
        (("calibration", "offset_by_length_us"), [2.78], "calibration: offset_by_length_us is"),
        (("calibration", "offset_by_length_us"), {}, "calibration: offset_by_length_us is empty"),
        (("calibration", "offset_by_length_us", "1"), None, "calibration: offset_by_length_us is"),
        (("promises",), [], r"promises is \[\]"),
        (("promises", "wall_s"), {}, "promises: wall_s is {}"),
        (("promises", "wall_s", 0), 0.06, "wall_s 1 is 0.06"),
        (("promises", "wall_s", 0, "worklog_s"), None, "wall_s 1: worklog_s is None"),
        (("promises", "wall_s", 0, "worklog_s"), 0, "wall_s 1: worklog_s is 0, and nothing takes no time"),
        (("promises", "aa"), None, "aa is None"),
        (("promises", "aa", "agree"), "all", "aa: agree is 'all'"),
        (("promises", "aa", "intervals_us"), [[[1, 2], [1, 2, 3]]], "aa: intervals_us is"),
        (("promises", "beside_cupti"), 1, "promises: beside_cupti is 1"),
        (("promises", "beside_cupti", 0, "events_us"), "13.7", "beside_cupti 1: events_us is '13.7'"),
    ],
)
def test_what_is_of_a_wrong_type_is_named(place: Place, value: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadRunFile, match=rf"{complaint}.*: give a file that `worklog peers` wrote"):
        open_comparison(saved(changed(place, value), tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [("rows", 0, "us"), ("rows", 0, "of"), ("calibration", "offset_us")])
def test_what_is_no_number_that_can_be_drawn_is_named(place: Place, value: float, tmp_path: Path) -> None:
    path = saved(changed(place, value), tmp_path)
    with pytest.raises(BadRunFile, match="finite"):
        open_comparison(path)


def test_what_was_cut_short_is_opened_as_far_as_it_goes(tmp_path: Path) -> None:
    """As after the first ruler, when neither the second question nor the third has been asked."""
    wall_s = DOCUMENT["promises"]["wall_s"]
    short = open_comparison(saved(DOCUMENT | {"complete": False, "promises": {"wall_s": wall_s}}, tmp_path))
    assert short.label.endswith("cut short")
    show(short)


def test_of_before_events_and_tracer_took_turns(tmp_path: Path) -> None:
    show(open_comparison(saved(lacking(("promises", "beside_cupti")), tmp_path)))


def test_a_damaged_recording_is_installed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "recordings" / "peers").mkdir(parents=True)
    saved(lacking(("rows",)), tmp_path / "recordings" / "peers")
    monkeypatch.setattr("worklog.runs.comparison.resources.files", lambda package: tmp_path)
    with pytest.raises(BadRunFile, match=r"the document lacks rows.*: install gemm-worklog again"):
        open_comparison()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGES, data=st.data())
def test_what_is_damaged_is_refused_or_shown(tmp_path: Path, damage: Any, data: st.DataObject) -> None:
    path = saved(damaged(DOCUMENT, damage, data), tmp_path)
    try:
        found = open_comparison(path)
    except BadRunFile:
        return
    show(found)
