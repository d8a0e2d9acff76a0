"""What 06_roofline says in prose is true of the recording and of the counts that come with the package."""

from __future__ import annotations

from itertools import pairwise

import pytest

import worklog
from worklog.analysis.traffic import traffic
from worklog.plots.levels import levels_of
from worklog.runs.run import Run


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")


@pytest.fixture
def run() -> Run:
    return worklog.results(sizes=[4096])


def rates(run: Run) -> dict[str, float]:
    return {m.kernel: m.tflops for m in run.measurements if m.tflops is not None}


def test_compulsory_bytes_are_right_of_both_ridges_at_every_size(run: Run) -> None:
    fp32, l2, copy = (run.calibration[name] for name in ("fp32_tflops", "l2_gbs", "copy_gbs"))
    smallest = worklog.Shape.of(256)
    assert 1e3 * fp32 / l2 < 1e3 * fp32 / copy < smallest.flops / smallest.compulsory_bytes
    assert fp32 < 1.01 * run.device["fp32_peak_tflops"] and copy < run.device["memory_peak_gbs"]


def test_where_the_marks_stand(run: Run) -> None:
    at = levels_of(run)
    assert at["naive"].sectors < at["naive"].threads, "left even of what its threads ask for"
    assert at["coalesced"].sectors > at["coalesced"].threads
    for name in list(at)[2:]:
        assert 0.85 < at[name].sectors / at[name].blocks < 1.01, f"{name}: the diamond sits on the dot"


def test_who_served_the_sectors(run: Run) -> None:
    found, counted = rates(run), traffic()
    gbs = {
        name: 32 * (rung.load_sectors + rung.store_sectors) / (counted.shape.flops / found[name] / 1e3)
        for name, rung in counted.rungs.items()
    }
    assert gbs["coalesced"] > 1.3 * run.calibration["l2_gbs"], "never L2's"
    assert all(gbs[name] < 0.5 * run.calibration["l2_gbs"] for name in list(gbs)[2:]), "nothing to complain about"


def test_the_climb_goes_up_then_right_then_up(run: Run) -> None:
    at, found = levels_of(run), rates(run)
    right = {(one, two): at[two].blocks / at[one].blocks for one, two in pairwise(at)}
    assert right["naive", "coalesced"] == right["coalesced", "shared"] == right["tiles_2d", "vectorized"] == 1
    assert right["shared", "tiles_1d"] > 1.5 and right["tiles_1d", "tiles_2d"] > 1.5
    climb = ["naive", "coalesced", "shared", "tiles_1d", "tiles_2d", "vectorized", "autotuned"]
    assert all(found[two] > 1.1 * found[one] for one, two in pairwise(climb))


def test_the_roof_of_shared_memory_holds_and_the_last_rungs_are_past_it(run: Run) -> None:
    found, fp32 = rates(run), run.calibration["fp32_tflops"]
    roofs = {
        name: run.device["fp32_peak_tflops"] / (4 * rung.wavefronts_per_fma)
        for name, rung in traffic().rungs.items()
        if rung.wavefronts
    }
    under = ["shared", "tiles_1d", "tiles_2d", "vectorized"]
    assert [roofs[name] for name in under] == sorted(roofs[name] for name in under), "each idea lifts it"
    for name in under:
        assert roofs[name] < fp32 and 0.5 * roofs[name] < found[name] < roofs[name], name
    assert all(roofs[name] > fp32 for name in roofs if name not in under)


def test_a_flush_does_nothing_at_4096(run: Run) -> None:
    unbiased = run.select("vectorized")[0]
    warm = worklog.results(["vectorized"], [4096], l2="warm").measurements[0]
    assert unbiased.us and warm.us and abs(warm.us / unbiased.us - 1) < 0.01
    assert unbiased.problem.compulsory_bytes / run.calibration["copy_gbs"] / 1e3 < 0.05 * unbiased.us


def test_small_sizes_want_small_tiles_and_large_ones_large() -> None:
    found = worklog.results(["tiles_1d", "warptiled", "cuBLAS"], [256, 1024, 4096])
    share = {(m.kernel, m.shape[0]): m.of_ceiling or 0.0 for m in found.measurements}
    assert share["tiles_1d", 256] > share["warptiled", 256] and share["tiles_1d", 1024] > share["warptiled", 1024]
    assert share["warptiled", 4096] > 2 * share["tiles_1d", 4096]
    assert all(value < 0.1 for (_, size), value in share.items() if size == 256), "nobody gets near a roof"


def test_most_points_sink_at_1024(run: Run) -> None:
    small, large = rates(worklog.results(sizes=[1024])), rates(run)
    assert sum(small[name] < large[name] for name in large) > len(large) / 2


def test_the_exercises(run: Run) -> None:
    at, found = levels_of(run), rates(run)
    assert 32 * 32 / (2 * 64) == 8 and 128 * 128 / (2 * 256) == 32
    assert at["naive"].blocks == pytest.approx(8, rel=0.02) and at["tiles_2d"].blocks == pytest.approx(32, rel=0.02)
    assert at["naive"].blocks < 8 and at["tiles_2d"].blocks < 32, "a little less, because C is written too"
    assert traffic().rungs["naive"].sectors_per_fma == pytest.approx(33, abs=0.1)
    assert found["naive"] == pytest.approx(run.device["fp32_peak_tflops"] / 132, rel=0.1) == pytest.approx(0.5, rel=0.1)
    tile = run.kernels["warptiled"]["tile"]
    share = (1024 // tile["BM"]) * (1024 // tile["BN"]) / run.device["multiprocessors"]
    (small,) = worklog.results(["warptiled"], [1024]).measurements
    assert share == pytest.approx(0.48, abs=0.005) and 0.35 * share < (small.of_ceiling or 0.0) < 0.65 * share
