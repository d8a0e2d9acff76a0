"""A comparison of harnesses: opened, labelled, read by harness, and checked for damage."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.damage import GONE, changed
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
    def opened(document: dict[str, Any]) -> Comparison:
        (tmp_path / "peers.json").write_text(json.dumps(document))
        return open_comparison(tmp_path / "peers.json")

    assert opened(DOCUMENT).document == DOCUMENT
    older = opened(changed(DOCUMENT, "promises beside_cupti", GONE))
    short = opened(DOCUMENT | {"complete": False, "promises": {"wall_s": DOCUMENT["promises"]["wall_s"]}})
    assert short.label == "live · NVIDIA H200 · clocks as found · 2026-11-21 · cut short"
    unlabelled, shipped = opened(changed(DOCUMENT, "origin", GONE)), open_comparison()
    assert all(one.label.startswith("recorded · NVIDIA H200 · ") for one in (unlabelled, shipped))
    assert {"worklog", "NVBench cold", "do_bench"} <= set(shipped.harnesses)
    for one in (older, short, shipped):
        show_comparison(one)
    with pytest.raises(BadRunFile, match="rows is empty"):
        opened(DOCUMENT | {"rows": []})


def show_comparison(comparison: Comparison) -> None:
    """What the command line, the notebook and the chart do with it."""
    text(comparison)
    promises = comparison.document["promises"]
    if "aa" in promises:
        np.array(promises["aa"]["intervals_us"]).reshape(-1, 3) - comparison.document["calibration"]["offset_us"]
    with suppress(NothingToDraw):
        peers(comparison)
