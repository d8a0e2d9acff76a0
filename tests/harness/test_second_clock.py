"""The global timer beside the events, with which the gate compares them."""

from __future__ import annotations

import re

import pytest
from pytest import approx

from tests.virtual.gpu import VirtualGpu
from worklog.gate import Stage
from worklog.gate.after_timing import second_clock
from worklog.harness import Harness, time_pair


class Tampered(VirtualGpu):
    """Events that read a part of every second launch, as a patched library would."""

    def elapsed_us(self, start: int, stop: int) -> float:
        elapsed = super().elapsed_us(start, stop)
        return elapsed / 2 if elapsed < 70.0 else elapsed


def judged(gpu: VirtualGpu, us: float = 50.0) -> Stage:
    reading = time_pair(gpu, gpu.kernel(us), gpu.kernel(80.0), Harness())
    return second_clock(reading.clocks("subject"), reading.clocks("baseline"), own_streams=False)


@pytest.mark.parametrize("us", [2.0, 50.0, 5000.0])
def test_both_clocks_agree_on_an_unbiased_reading(us: float) -> None:
    stage = judged(VirtualGpu(noise=0.01, flush_us=31.0), us)
    assert stage.passed, stage.detail
    assert re.search(r"27\.[56] µs beside", stage.detail)  # the flush, less the event pair's own 3.45
    for timer in ("host", "cupti"):
        reading = time_pair(gpu := VirtualGpu(), gpu.kernel(us), None, Harness().but(timer=timer))
        assert reading.clocks("subject") == [], "other timers have no second clock"


def test_a_reading_that_misses_a_part_is_refused() -> None:
    stage = judged(Tampered())
    assert not stage.passed
    assert stage.measured == approx(0.5 * 53.45)
    assert stage.detail.endswith("the events miss a part")


@pytest.mark.parametrize(("own_streams", "left"), [(False, 2.0), (True, 5.0)])
def test_some_microseconds_are_allowed_and_more_where_there_may_be_streams(own_streams: bool, left: float) -> None:
    unbiased, share = [(50.0, 80.0)] * 9, 0.02 * 50.0
    for missed, passes in ((left + share - 0.1, True), (left + share + 0.1, False)):
        assert second_clock([(50.0, 80.0 + missed)] * 9, unbiased, own_streams=own_streams).passed is passes
    assert second_clock([(50.0, 80.0)] * 8 + [(50.0, 900.0)], unbiased, own_streams=own_streams).passed, "one outlier"
