"""The charts of the ruler itself: every ruler's error, and the certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plots.conftest import empty_run
from tests.plots.test_charts import collisions
from worklog.errors import NothingToDraw
from worklog.harness import selfcheck
from worklog.plots import certificate
from worklog.plots.certificate import calibration
from worklog.plots.peers import peers
from worklog.runs.comparison import Comparison
from worklog.runs.run import Run

LENGTHS = (1, 2, 5, 10, 30, 100, 1000)
OFF = {
    "worklog": 0.03,
    "worklog, offset kept": 3.45,
    "CuPy benchmark": 9.0,
    "torch Timer": 12.0,
    "do_bench": 3.42,
    "do_bench_cudagraph": 1.0,
    "NVBench cold": 2.8,
    "NVBench batch": 1.3,
    "worklog, CUPTI": 0.6,
}
CALIBRATION = {
    "offset_us": 3.45,
    "offset_by_length_us": {"1": 3.5, "10": 3.44, "1000": 3.41},
    "tick_us": 0.032,
    "slope": 0.99996,
    "aa_ratio": 1.0001,
    "aa_low": 0.9998,
    "aa_high": 1.0004,
    "warm_cycles": 270.0,
    "cold_cycles": 690.0,
    "still_cached": 0.0,
}


def document(**off: float) -> dict[str, Any]:
    rows = [
        {"ruler": name, "work": "spin", "of": length, "us": length + error, "reason": None}
        for name, error in (off or OFF).items()
        for length in LENGTHS
    ]
    rows.append({"ruler": "gone", "work": "spin", "of": 1, "us": None, "reason": "ImportError"})
    return {
        "device": {"name": "NVIDIA H200"},
        "created": "2026-11-21T05:20:00+00:00",
        "complete": True,
        "calibration": CALIBRATION,
        "rows": rows,
    }


def run(**changes: Any) -> Run:
    return replace(empty_run(), calibration=CALIBRATION | changes)


def test_every_ruler_has_a_line_a_name_and_its_error_in_words() -> None:
    chart = peers(Comparison(document()))
    assert collisions(chart) == []
    assert all(name in chart.alt for name in OFF)
    assert chart.headline == (
        "Worklog is at most 0.03 µs off on kernels of known length; the best of the others, "
        "do_bench_cudagraph, up to +1.00 µs"
    )
    assert any("not read: gone" in text.get_text() for text in chart.texts)


def test_rulers_that_agree_to_the_hair_keep_their_names_apart() -> None:
    assert collisions(peers(Comparison(document(**{f"ruler {n}": 3.4 for n in range(10)})))) == []


def test_without_a_known_length_there_is_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw):
        peers(Comparison({**document(), "rows": []}))


def test_the_certificate_says_what_is_left_and_proves_the_rest() -> None:
    chart = calibration(run())
    assert collisions(chart) == []
    assert chart.headline == "Known lengths from 1 to 1000 µs are read within 0.05 µs"
    assert "a read takes 270 cycles from L2, 690 after the flush" in chart.alt


def test_a_broken_promise_is_the_headline() -> None:
    broken = calibration(run(offset_by_length_us={"1": 3.9, "10": 3.45, "1000": 3.45}))
    assert broken.headline == "The ruler breaks its promise at 1 µs"
    assert collisions(broken) == []


def test_an_older_calibration_is_drawn_as_far_as_it_goes() -> None:
    kept = {name: CALIBRATION[name] for name in ("offset_us", "offset_by_length_us", "tick_us")}
    assert "cycles" not in calibration(replace(empty_run(), calibration=kept)).alt
    with pytest.raises(NothingToDraw):
        calibration(replace(empty_run(), calibration={}))


def test_the_promise_on_the_chart_is_the_harness_s() -> None:
    assert (certificate.TOLERANCE_US, certificate.TOLERANCE) == (selfcheck.TOLERANCE_US, selfcheck.TOLERANCE)
