"""What 09_harnesses_compared says in prose is true of the recorded comparison."""

from __future__ import annotations

import numpy as np
import pytest

import worklog
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison, open_comparison

WARM = ("NVBench batch", "do_bench_cudagraph", "torch Timer")
COLD = ("worklog", "worklog, offset kept", "worklog, CUPTI", "NVBench cold", "do_bench")


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")


@pytest.fixture(scope="module")
def rulers() -> Comparison:
    return open_comparison()


@pytest.fixture(scope="module")
def errors(rulers: Comparison) -> dict[str, np.ndarray]:
    return {name: np.array([error for _, error in points]) for name, points in rulers.errors().items()}


def test_everybody_of_the_table_was_there(rulers: Comparison) -> None:
    assert {*rulers.rulers} == {*WARM, *COLD, "CuPy benchmark"} and not rulers.reasons


def test_ours_is_nearest_to_the_truth(errors: dict[str, np.ndarray]) -> None:
    worst = {name: np.abs(wrong).max() for name, wrong in errors.items()}
    assert all(worst["worklog"] < 0.5 * worst[name] for name in worst if name != "worklog")
    assert worst["worklog"] < 0.25


def test_constants_are_level_and_throughput_has_a_floor(rulers: Comparison, errors: dict[str, np.ndarray]) -> None:
    for name in ("worklog", "worklog, CUPTI", "NVBench cold"):
        assert np.ptp(errors[name][:-1]) < 0.25, f"{name} is level"
        assert abs(errors[name][-1] - np.median(errors[name])) < 0.002 * 1000, "or off by a share, in a millisecond"
    assert 2.5 < np.median(errors["do_bench"]) < 4.5, "some three microseconds"
    for name in ("torch Timer", "NVBench batch"):
        reads = [rulers.us(KNOWN, length)[name] for length in (1, 2, 5)]
        assert max(reads) / min(reads) < 1.6 < rulers.us(KNOWN, 5)["NVBench cold"] / rulers.us(KNOWN, 1)["NVBench cold"]


def test_a_calibrated_peer_would_be_as_good(errors: dict[str, np.ndarray]) -> None:
    left = {name: np.abs(wrong - np.median(wrong)).max() for name, wrong in errors.items()}
    for name in ("NVBench cold", "worklog, CUPTI"):
        assert left[name] < max(0.1, 1.5 * left["worklog"]), name
    assert left["torch Timer"] > 1 and left["NVBench batch"] > 1, "a floor is no constant"


def test_they_agree_on_long_work_and_differ_by_factors_on_short(rulers: Comparison) -> None:
    small, large = (list(rulers.us(CUBLAS, size).values()) for size in (128, 4096))
    assert max(large) / min(large) < 1.05 and max(small) / min(small) > 2


def test_two_camps_at_1024_and_ours_can_join_either(rulers: Comparison) -> None:
    us = rulers.us(CUBLAS, 1024)
    assert max(us[name] for name in WARM) < min(us[name] for name in COLD)
    assert us["CuPy benchmark"] > max(us[name] for name in WARM), "warm and slow"
    ours = {}
    for name, lie in (("cold", {}), ("warm", {"l2": "warm"})):
        run = worklog.results(["vectorized"], [1024], **lie)
        ours[name] = np.median(run.measurements[0].samples["baseline_us"]) - run.calibration["offset_us"]
    assert abs(ours["warm"] / us["do_bench_cudagraph"] - 1) < 0.03 < ours["cold"] / ours["warm"] - 1


def test_nvbench_takes_longer_and_others_are_about_as_quick_on_short_kernels(rulers: Comparison) -> None:
    assert all(point["nvbench_s"] > point["worklog_s"] for point in rulers.document["promises"]["wall_s"])
    shares = {}
    for size in rulers.works(CUBLAS):
        wall_s = rulers.wall_s(CUBLAS, size)
        shares |= {(name, size): s / wall_s["worklog"] for name, s in wall_s.items() if name not in COLD[:3]}
    about_as_quick = {name for (name, size), share in shares.items() if size <= 256 and share < 1.25}
    assert len(about_as_quick) >= 2, shares
    assert any(share < 1 for (_, size), share in shares.items() if size <= 512), "or quicker, where launches are short"


@pytest.fixture
def intervals(rulers: Comparison) -> np.ndarray:
    """Low, middle and high of readings of one kernel, a column each."""
    return np.array(rulers.document["promises"]["aa"]["intervals_us"]).reshape(-1, 3).T


def test_readings_of_one_kernel_meet_and_scatter_less_than_their_intervals_reach(
    rulers: Comparison, intervals: np.ndarray
) -> None:
    same, (low, middle, high) = rulers.document["promises"]["aa"], intervals
    assert same["agree"] >= 0.95 * same["pairs"]
    assert middle.std() < np.mean((high - low) / 2), "a difference of one half-width is none"


def test_intervals_hold_what_they_claim(rulers: Comparison) -> None:
    """On 200 pairs of readings at each size, in one process and across processes."""
    found = rulers.coverage()
    if not found:
        pytest.skip("not recorded yet: run `worklog peers` on a GPU, and ship the file that it saves")
    assert {*found} == {256, 1024, 2048, 4096}
    for size, shares in found.items():
        assert all(0.93 <= share <= 0.97 for share in shares), (size, shares)
    for point in rulers.document["promises"]["coverage"]:
        assert sum(map(len, point["intervals_us"])) == 400 and len(point["intervals_us"]) == 10


def test_half_a_percent_takes_an_eighth_of_nvbenchs_time(rulers: Comparison) -> None:
    points = rulers.document["promises"]["wall_s"]
    assert [point["of"] for point in points] == [512, 1024, 2048, 4096]
    for point in points:
        assert point["converged"] and point["worklog_s"] <= point["nvbench_s"] / 8, point


def test_events_and_tracer_agree_on_cublas(rulers: Comparison) -> None:
    """Within half a microsecond or 1 %, whichever is larger."""
    points = rulers.document["promises"]["beside_cupti"]
    assert {point["of"] for point in points} == {*rulers.works(CUBLAS)}
    for point in points:
        assert abs(point["events_us"] - point["tracer_us"]) <= max(0.5, 0.01 * point["tracer_us"]), point


def test_a_look_at_each_launch_makes_short_kernels_a_little_longer(rulers: Comparison) -> None:
    """In a run cuBLAS reads some tenths of a microsecond more than here, where nobody looks, and never less."""
    for size in (256, 512):
        seen, unseen = worklog.results(["cuBLAS"], [size]).measurements[0].us, rulers.us(CUBLAS, size)["worklog"]
        assert seen is not None and 0 < seen - unseen < 1.0, size


def test_every_ruler_is_right_on_long_kernels(rulers: Comparison) -> None:
    assert all(abs(us / 1000 - 1) < 0.02 for us in rulers.us(KNOWN, 1000).values())


def test_the_exercises() -> None:
    assert (6 + 3) / (5 + 3) == 1.125 and 6 / 5 == 1.2
