"""A comparison of harnesses: opened, labelled, read by harness, and checked for damage."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from pytest import approx

from tests.damage import DAMAGES, GONE, changed, damaged
from worklog.errors import BadRunFile, NothingToDraw
from worklog.peers.compare import text
from worklog.plots import peers
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison, Row, open_comparison


def row(ruler: str, work: str, of: float, us: float | None, **more: Any) -> dict[str, Any]:
    return asdict(Row(ruler, work, of, us, **more))


DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "kind": "peers",
    "origin": "live",
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


def saved(document: Any, folder: Path) -> Path:
    path = folder / "peers.json"
    path.write_text(json.dumps(document))
    return path


def show(comparison: Comparison) -> None:
    """What the command line, the notebook and the chart do with it."""
    text(comparison)
    promises = comparison.document["promises"]
    for point in promises["wall_s"]:
        assert point["nvbench_s"] is None or isinstance(point["nvbench_s"] / point["worklog_s"], float)
    if "aa" in promises:
        np.array(promises["aa"]["intervals_us"]).reshape(-1, 3) - comparison.document["calibration"]["offset_us"]
    with suppress(NothingToDraw):
        peers(comparison)


def test_a_reading_is_found_by_kind_and_length_and_its_error_is_against_the_true_length() -> None:
    comparison = Comparison(DOCUMENT)
    assert comparison.harnesses == ["ours", "theirs", "gone"]
    assert (comparison.works(KNOWN), comparison.works(CUBLAS)) == ([1, 10], [512])
    assert comparison.us(KNOWN, 1) == {"ours": 1.01, "theirs": 4.4}
    assert comparison.wall_s(CUBLAS, 512) == {"theirs": 2.0}
    assert comparison.wall_s(KNOWN, 1) == {"ours": 0.2}
    assert comparison.reasons == {"gone": "ImportError: no module"}
    errors = comparison.errors()
    assert errors.keys() == {"ours", "theirs"}
    assert [length for length, _ in errors["ours"]] == [1, 10]
    assert [error for _, error in errors["ours"]] == approx([0.01, 0.02])


def test_a_comparison_is_opened_as_far_as_it_goes_and_labelled(tmp_path: Path) -> None:
    whole = open_comparison(saved(DOCUMENT, tmp_path))
    assert whole.document == DOCUMENT
    show(whole)
    show(open_comparison(saved(changed(DOCUMENT, "promises beside_cupti", GONE), tmp_path)))  # older than that question
    wall_s = DOCUMENT["promises"]["wall_s"]
    short = open_comparison(saved(DOCUMENT | {"complete": False, "promises": {"wall_s": wall_s}}, tmp_path))
    assert short.label == "live · NVIDIA H200 · clocks as found · 2026-11-21 · cut short"
    show(short)
    assert open_comparison(saved(changed(DOCUMENT, "origin", GONE), tmp_path)).label.startswith(
        "recorded · NVIDIA H200 · "
    )
    shipped = open_comparison()
    assert shipped.label.startswith("recorded · NVIDIA H200 · ")
    assert {"worklog", "NVBench cold", "do_bench"} <= set(shipped.harnesses)
    show(shipped)


@pytest.mark.parametrize(
    "written", ["", "[]", "[" * 100_000, '{"schema": 1, "measurements": []}', '{"kind": "peers"}', "NaN", "-Infinity"]
)
def test_a_file_that_is_not_a_comparison_is_an_error(written: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(written)
    for each in (path, tmp_path / "missing.json"):
        with pytest.raises(BadRunFile, match="worklog peers"):
            open_comparison(each)


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("created", [GONE, 20261121, "lately"]),
        ("calibration offset_us", ["2.75"]),
        ("calibration offset_by_length_us", [{}, {"1": None}]),
        ("rows", [GONE, {}, []]),
        ("rows 1", ["ours"]),
        ("rows 1 us", ["1.01", True, [0] * 1000]),
        ("rows 1 converged", [1]),
        ("rows 1 of", [None, 0, GONE]),
        ("rows 1 work", ["spun"]),
        ("promises", [GONE, []]),
        ("promises wall_s 0 worklog_s", [None, 0]),
        ("promises wall_s 1 nvbench_s", [GONE]),
        ("promises aa", [GONE, None]),
        ("promises aa intervals_us", [[[[1, 2], [1, 2, 3]]]]),
        ("promises beside_cupti 0 tracer_us", [GONE, "13.7"]),
    ],
)
def test_the_damaged_part_is_named(place: str, values: list[Any], tmp_path: Path) -> None:
    *_, name = place.split()
    for value in values:
        with pytest.raises(BadRunFile, match=rf"{name}\b.*: give a file that `worklog peers`"):
            open_comparison(saved(changed(DOCUMENT, place, value), tmp_path))


def test_a_damaged_recording_is_installed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "recordings" / "peers").mkdir(parents=True)
    saved(changed(DOCUMENT, "rows", GONE), tmp_path / "recordings" / "peers")
    monkeypatch.setattr("worklog.runs.run.resources.files", lambda package: tmp_path)
    with pytest.raises(BadRunFile, match=r"rows.*: install gemm-worklog again"):
        open_comparison()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGES, data=st.data())
def test_any_damage_is_an_error_or_can_be_shown(tmp_path: Path, damage: Any, data: st.DataObject) -> None:
    path = saved(damaged(DOCUMENT, damage, data), tmp_path)
    try:
        found = open_comparison(path)
    except BadRunFile:
        return
    show(found)
