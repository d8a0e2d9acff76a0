"""What every ruler read, opened and asked: labelled, by ruler, with the reasons of those that read nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from worklog.errors import BadRunFile
from worklog.peers.comparison import CUBLAS, KNOWN, Comparison, open_comparison


def row(ruler: str, work: str, of: float, us: float | None, **more: Any) -> dict[str, Any]:
    return {"ruler": ruler, "work": work, "of": of, "us": us, "wall_s": None, "reason": None} | more


DOCUMENT = {
    "schema": 1,
    "kind": "peers",
    "device": {"name": "NVIDIA H200"},
    "created": "2026-11-21T05:20:00+00:00",
    "complete": True,
    "rows": [
        row("ours", KNOWN, 10, 10.02, wall_s=0.1),
        row("ours", KNOWN, 1, 1.01, wall_s=0.2),
        row("theirs", KNOWN, 1, 4.4),
        row("theirs", CUBLAS, 512, 17.9, wall_s=2.0),
        row("gone", KNOWN, 1, None, reason="ImportError: no module"),
    ],
}


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


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1, "measurements": []}'])
def test_what_is_no_comparison_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(BadRunFile, match="worklog peers"):
        open_comparison(path)
    with pytest.raises(BadRunFile, match="worklog peers"):
        open_comparison(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (99, "has schema 99, and this version reads 1: install a newer gemm-worklog"),
        (None, "states no known schema: give a file that `worklog peers` wrote"),
        ("2", "states no known schema"),
    ],
)
def test_an_unknown_schema_is_refused(schema: object, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text(json.dumps(DOCUMENT | {"schema": schema}))
    with pytest.raises(BadRunFile, match=complaint):
        open_comparison(path)
