"""A sentence in the notebooks that says why names the number that decides it. Here the recordings give that number."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import worklog
from worklog.analysis.memory_counts import memory_counts
from worklog.kernel import occupancy
from worklog.lab.readings import grid_runs
from worklog.peers.exploits import open_exploits
from worklog.runs import Measurement, recorded_run, recordings
from worklog.runs.comparison import CUBLAS, open_comparison

RUN = recorded_run()
SIZES = (256, 512, 1024, 2048, 4096)
RUNGS = [rung.name for rung in worklog.LADDER]
COUNTERS = json.loads(recordings("counters")["h200"].read_text(encoding="utf-8"))["kernels"]


def measured(kernel: str, size: int, **setting: Any) -> Measurement:
    return worklog.results([kernel], [size], **setting).measurements[0]


def cycles(m: Measurement) -> float:
    return (m.us or 0.0) * (m.sm_mhz or 0.0)


def cublas_us(m: Measurement) -> float:
    """The time of cuBLAS in the same loop."""
    return float(np.median(m.samples.sides[1].us)) - RUN.calibration.offset_us


def test_where_the_code_lies_decides_which_copy_is_faster_and_not_its_role() -> None:
    """A copy of `best` at 256 in either role, in each process; then with code that moves, all copies and roles."""
    rows = json.loads(recordings("turns")["h100"].read_text(encoding="utf-8"))["roles"]
    for process in range(3):
        key = {"rung": "best", "size": 256, "placement": "fixed", "process": process}
        of_process = [row for row in rows if key.items() <= row.items()]
        for role, other, slower in (("subject", "baseline", min), ("baseline", "subject", max)):
            pair = [row["ratio"] for row in of_process if (row[role], row[other]) == ("second", "first")]
            assert slower(float(np.mean(pair)), 1.0) != 1.0, "the second copy is slower"
    moved = [row for row in rows if row["placement"] == "varied"]
    assert len(moved) == 432 and 0.93 < np.mean([row["low"] <= 1 <= row["high"] for row in moved]) < 0.99
    groups = {(row["rung"], row["size"], row["subject"], row["baseline"]) for row in moved}
    for group in groups:
        ratios = [r["ratio"] for r in moved if (r["rung"], r["size"], r["subject"], r["baseline"]) == group]
        assert abs(np.mean(ratios) - 1) < 0.0025, group


def test_the_instruction_caches_carry_what_ran_before_and_the_harness_brings_the_code_back() -> None:
    rows = json.loads(recordings("turns")["h100"].read_text(encoding="utf-8"))["after"]
    slower = {(row["rung"], row["state"]): row["us"]["cuBLAS"] - row["us"]["its own code"] for row in rows}
    clocks = [row["sm_mhz"]["cuBLAS"] / row["sm_mhz"]["its own code"] - 1 for row in rows]
    assert slower["best", "as found"] > 0.25 and slower["best", "warm L2"] > 0.25, "of 5 µs; not by L2"
    assert slower["warptiled", "as found"] > 0.1 and slower["warptiled", "warm L2"] > 0.1
    for state in ("overwritten", "brought back"):
        assert all(abs(slower[rung, state]) < 0.05 for rung in ("best", "shared", "warptiled"))
    assert max(map(abs, clocks)) < 1e-3


@pytest.mark.parametrize("size", SIZES)
def test_a_warm_l2_saves_the_latency_of_each_wait_at_small_sizes_and_nothing_from_2048_on(size: int) -> None:
    latency = RUN.calibration.cold_cycles - RUN.calibration.warm_cycles
    shape, cold = worklog.Shape.of(size), {name: measured(name, size) for name in ("naive", "vectorized", "warptiled")}
    saved = {name: cycles(m) - cycles(measured(name, size, l2="warm")) for name, m in cold.items()}
    bytes_us = shape.compulsory_bytes / RUN.calibration.copy_gbs / 1e3
    assert (shape.compulsory_bytes < RUN.gpu.l2_bytes) == (size <= 2048)
    if size <= 1024:
        assert 1.2 * latency < saved["vectorized"] / (size / 8) < 1.7 * latency, "once per K tile"
        assert 0.8 * latency < saved["warptiled"] < 1.6 * latency, "once per launch"
        assert saved["vectorized"] / (cold["vectorized"].sm_mhz or 0.0) > 10 * bytes_us
    else:
        assert all(abs(saved[name]) < 0.003 * cycles(m) for name, m in cold.items())
        assert bytes_us < 0.03 * (cold["vectorized"].us or 0.0)
    assert abs(saved["naive"]) < 0.003 * cycles(cold["naive"])


def test_shared_memory_limits_four_rungs_latency_the_next_and_fp32_is_nearest_after_it() -> None:
    busy = {name: kernel["percent"] for name, kernel in COUNTERS.items()}
    assert all(max(busy[name].values()) == busy[name]["L1 and shared"] > 75 for name in RUNGS[2:6])
    assert max(busy["conflict_free"].values()) < 70 and busy["conflict_free"]["FP32 cores"] < 60
    assert all(65 < busy[name]["FP32 cores"] < 77 for name in RUNGS[7:])
    assert busy["naive"]["L2"] < 1 < 90 < busy["naive"]["L1 and shared"]
    waits, hides = (memory_counts().rungs[name].wavefronts_per_fma for name in ("conflict_free", "double_buffered"))
    assert waits == hides
    for size in (2048, 4096):
        assert 1.2 < cycles(measured("conflict_free", size)) / cycles(measured("double_buffered", size)) < 1.35


@pytest.mark.parametrize("name", RUNGS[4:])
def test_a_block_alone_on_its_multiprocessor_is_slower_except_where_it_always_is_alone(name: str) -> None:
    built = RUN.kernels[name]
    at_once = occupancy("sm_90", built["block"], built["registers"], built["shared_bytes"]).blocks
    assert at_once == (1 if name == "autotuned" else 2)
    for size in SIZES[:3]:
        idle = RUN.gpu.multiprocessors / math.prod(worklog.rung(name).blocks(worklog.Shape.of(size)))
        beyond = (measured(name, 4096).tflops or 0.0) / (measured(name, size).tflops or 0.0) / idle
        assert beyond < 1.1 if at_once == 1 else beyond > 1.2


def test_the_first_launch_costs_a_constant_at_a_clock_that_is_already_up() -> None:
    for name, size in [(name, size) for name in ("vectorized", "warptiled") for size in SIZES]:
        cold, warm_us = measured(name, size, warmup="none").samples.sides[0], measured(name, size).us or 0.0
        assert 100 < cold.us[0] - warm_us < 320
        assert np.median(cold.us) - RUN.calibration.offset_us == pytest.approx(warm_us, rel=0.01)
        assert (cold.sm_mhz[0] or 0.0) > 0.995 * np.median([mhz or 0.0 for mhz in cold.sm_mhz])
        assert cold.placement.count(cold.placement[0]) == 1, "alone, so the mean over placements has it"
    clocks, us = measured("warptiled", 4096, clocks="ignored").samples.clocked()
    assert -1.2 < np.polyfit(np.log(clocks), np.log(us), 1)[0] < -0.8


@pytest.mark.parametrize(("kernel", "shows"), [("vectorized", True), ("cuBLAS", False)])
def test_the_placement_of_one_kernel_shows_and_the_noise_of_another_hides_it(kernel: str, shows: bool) -> None:
    samples, rng = measured(kernel, 256).samples, np.random.default_rng(0)
    us, places = np.array(samples.counted()), np.array(samples.placements())

    def spread(places: np.ndarray[Any, Any]) -> float:
        return float(np.std([np.median(us[places == place]) for place in np.unique(places)]))

    chance = np.mean([spread(rng.permutation(places)) for _ in range(100)])
    assert (spread(places) > 1.2 * chance) == shows and spread(places) > chance


def test_the_launch_bubble_and_the_gate_change_cublas_more_than_the_rung_beside_it() -> None:
    def ratio(**changed: Any) -> float:
        return grid_runs()[0].select("vectorized", worklog.Shape.of(1024), changed)[0].ratio or 0.0

    assert max(ratio(), ratio(l2="warm"), ratio(queue=False)) + 0.05 < ratio(l2="warm", queue=False)
    assert cublas_us(measured("warptiled", 256, timer="host")) > 3 * cublas_us(measured("warptiled", 256))
    for name in ("vectorized", "warptiled"):
        checked, bare = (measured(name, 256, gate=gate) for gate in (True, False))
        assert cublas_us(checked) - cublas_us(bare) > 0.5 and cycles(checked) == pytest.approx(cycles(bare), rel=0.01)


def test_the_groups_and_constants_of_09() -> None:
    compared = open_comparison()
    reads = {size: compared.us(CUBLAS, size) for size in compared.works(CUBLAS)}
    assert all(12 < read["CuPy benchmark"] - read["do_bench_cudagraph"] < 18 for read in reads.values())
    apart = [max(read.values()) / min(read.values()) for read in reads.values()]
    assert apart == sorted(apart, reverse=True), "the smaller the size, the more they differ"
    assert reads[2048]["do_bench_cudagraph"] == pytest.approx(reads[2048]["worklog"], rel=0.005)
    beside = compared.document["promises"]["beside_cupti"]
    assert sum(point["events_us"] < point["tracer_us"] for point in beside) > len(beside) / 2


def test_the_articles_rule_catches_one_missing_barrier_of_two() -> None:
    rows = [row for row in open_exploits().of(wrong=True) if "no barrier" in row.how]
    assert sorted("Vizuara" in row.passed_by for row in rows) == [False, True]
