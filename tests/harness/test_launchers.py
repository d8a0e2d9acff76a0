"""Launchers that time a part of themselves, and launchers that wait: read right, and what it costs is said."""

from __future__ import annotations

import pytest
from pytest import approx

from tests.harness.virtual import VirtualGpu
from worklog.errors import BadSetting, LaunchFailed
from worklog.harness import Harness, time_pair
from worklog.harness.timeline import PARTLY, Partly, Stopwatch, Waiting
from worklog.runs.samples import median


@pytest.mark.parametrize("queue", [True, False])
def test_only_the_named_part_is_timed(queue: bool) -> None:
    gpu = VirtualGpu(offset_us=3.0, enqueue_us=0.0)
    setup, part = gpu.kernel(400.0), gpu.kernel(50.0, data="part")

    def launch(watch: Stopwatch) -> None:
        setup()
        watch.start()
        part()
        watch.stop()

    reading = time_pair(gpu, Partly(launch), None, Harness().but(queue=queue))
    assert median(reading.counted("subject")).value == approx(53.0)
    assert PARTLY in reading.degradations


@pytest.mark.parametrize("presses", [(), ("start",), ("stop",), ("start", "start"), ("start", "stop", "stop")])
def test_a_stopwatch_pressed_in_any_other_way_is_refused(presses: tuple[str, ...]) -> None:
    gpu = VirtualGpu()

    def launch(watch: Stopwatch) -> None:
        for press in presses:
            getattr(watch, press)()

    with pytest.raises(BadSetting, match="stopwatch"):
        time_pair(gpu, Partly(launch), None, Harness())
    assert not gpu.held, "the queue is let go"


@pytest.mark.parametrize("timer", ["host", "cupti", "graph"])
def test_another_timer_cannot_time_a_part(timer: str) -> None:
    with pytest.raises(BadSetting, match="names a part"):
        time_pair(VirtualGpu(), Partly(lambda watch: None), None, Harness().but(timer=timer, l2="warm"))


def test_a_launcher_that_waits_is_timed_unqueued_and_its_cost_is_told() -> None:
    gpu = VirtualGpu(offset_us=3.0, enqueue_us=4.0)
    kernel = gpu.kernel(50.0)

    def launch() -> None:
        kernel()
        gpu.synchronize()

    with pytest.raises(LaunchFailed, match="synchronises"):
        time_pair(gpu, launch, None, Harness())
    reading = time_pair(gpu, Waiting(launch), None, Harness())
    assert median(reading.counted("subject")).value == approx(3.0 + 4.0 + 50.0 + 4.0)
    (said,) = [words for words in reading.degradations if words.startswith("queue: ")]
    assert "of 10 µs then read 4.0 µs more" in said
