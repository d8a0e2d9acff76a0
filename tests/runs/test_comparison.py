"""A comparison of harnesses: opened, labelled, and read by harness."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest import approx

from tests.helpers import compared
from worklog.errors import BadRunFile
from worklog.peers.compare import text
from worklog.runs.comparison import CUBLAS, KNOWN, open_comparison

ROWS = [
    {"ruler": "ours", "work": KNOWN, "of": 10, "us": 10.02, "wall_s": 0.1},
    {"ruler": "ours", "work": KNOWN, "of": 1, "us": 1.01, "wall_s": 0.2},
    {"ruler": "theirs", "work": KNOWN, "of": 1, "us": 4.4},
    {"ruler": "theirs", "work": CUBLAS, "of": 512, "us": 17.9, "wall_s": 2.0},
    {"ruler": "gone", "work": KNOWN, "of": 1, "us": None, "reason": "ImportError: no module"},
]


def test_a_reading_is_found_by_kind_and_length_and_its_error_is_against_the_true_length() -> None:
    comparison = compared(ROWS)
    assert comparison.harnesses == ["ours", "theirs", "gone"]
    assert (comparison.works(KNOWN), comparison.works(CUBLAS)) == ([1, 10], [512])
    assert comparison.us(KNOWN, 1) == {"ours": 1.01, "theirs": 4.4}
    assert (comparison.wall_s(CUBLAS, 512), comparison.wall_s(KNOWN, 1)) == ({"theirs": 2.0}, {"ours": 0.2})
    assert comparison.reasons == {"gone": "ImportError: no module"}
    errors = comparison.errors()
    assert errors.keys() == {"ours", "theirs"} and [length for length, _ in errors["ours"]] == [1, 10]
    assert [error for _, error in errors["ours"]] == approx([0.01, 0.02])


def test_a_comparison_is_opened_as_far_as_it_goes_and_labelled(tmp_path: Path) -> None:
    path, document = tmp_path / "peers.json", {"schema": 1, "kind": "peers", **compared(ROWS).document}
    short = document | {"complete": False, "origin": "live", "promises": {"wall_s": []}}
    for written, label in ((document, "recorded · NVIDIA H200 · clocks as found · 2026-11-21"), (short, "live · ")):
        path.write_text(json.dumps(written))
        comparison = open_comparison(path)
        assert comparison.document == written and comparison.label.startswith(label)
        assert comparison.label.endswith("cut short") is not comparison.complete and "4.40" in text(comparison)
    shipped = open_comparison()
    assert shipped.label.startswith("recorded · ") and {"worklog", "NVBench cold"} <= {*shipped.harnesses}
    path.write_text(json.dumps(document | {"rows": [{"ruler": "ours", "work": KNOWN, "of": 0}]}))
    with pytest.raises(BadRunFile, match=r"rows.*: give a file that `worklog peers` wrote"):
        open_comparison(path)
