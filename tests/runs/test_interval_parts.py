"""The two parts of an interval, where a measurement is shown in detail."""

from __future__ import annotations

from dataclasses import replace

from worklog.runs.report import details, measurement_html, measurement_text
from worklog.runs.run import Measurement

KNOWN = {"us": 100.0, "us_low": 99.2, "us_high": 100.8, "us_launches": 0.02, "us_placement": 0.8}
M = Measurement("warptiled", (64, 64, 64), "measured", tflops=1.0, ratio=1.0, **KNOWN)  # type: ignore[arg-type]


def test_both_parts_are_shown_in_percent_of_the_time() -> None:
    for shown in (measurement_text(M), measurement_html(M)):
        assert "±0.02 % of launches, ±0.80 % of placement" in shown
    assert "0.02 %, 0.80 %" in details(M)


def test_an_interval_of_one_placement_has_no_parts() -> None:
    assert "of placement" not in measurement_text(replace(M, us_launches=None, us_placement=None))
