"""The reasons in kernels' headers and in notebooks 04 to 06, 08 to 10 and 13.

Each is held by the number that decides it.
"""

import json
import math
import re
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pytest import approx

import worklog
from tests.notebooks.test_claims import COUNTED, COUNTERS
from worklog.emulator.limits import occupancy
from worklog.gpu.profile import BUSY, UNITS, limit
from worklog.kernel import Compiled
from worklog.kernel.inspection import inspect
from worklog.kernel.ladder import FP32, moved_from_l2
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.prediction import rung_bounds
from worklog.kernel.resources import MainLoop, loop_of
from worklog.problem.axes import Axis
from worklog.runs import Run, recordings
from worklog.tune import sweep as tuning

SIZES = (2048, 4096, 8192)
SECOND = ("tf32", "tf32x3", "fp16x3", "promoted", "wgmma", "split", "best", "cuBLAS")


def times(before: str, after: str, *sizes: int) -> list[float]:
    """Return how many times as fast as the rung before each rung is, at each size.

    From one recording if one has both.
    """
    us = {
        (m.kernel, m.shape[0]): m.us or math.nan
        for m in worklog.results([before, after], [*sizes]).measurements
    }
    return [us[before, size] / us[after, size] for size in sizes]


@cache
def machine_code(name: str, **tile: int) -> tuple[Compiled, MainLoop]:
    compiled = compile_cuda(worklog.rung(name).with_tile(**tile).program)
    loop = loop_of(compiled.cubin, compiled.symbol)
    assert loop is not None, "the development tools have nvdisasm"
    return compiled, loop


def in_conflict(name: str, **tile: int) -> float:
    return 100 * machine_code(name, **tile)[1].bank_conflicts


def ahead_of(name: str, **tile: int) -> int:
    return machine_code(name, **tile)[1].ahead


def test_pipelining_gains_at_one_tile_and_loses_at_another_and_bank_conflicts_go_with_it():
    """At each tile, the order of the times is that of the conflicts.

    But warptiled has most and is fastest.
    """
    narrow = [in_conflict("autotuned", BN=128, MIN_BLOCKS=2), in_conflict("pipelined")]
    wide = [in_conflict("autotuned"), in_conflict("pipelined", BN=256, MIN_BLOCKS=1)]
    assert [*narrow, *wide] == approx([16.7, 14.5, 14.7, 18.8], abs=0.2)
    assert in_conflict("register_banks") < 3
    assert max(*narrow, *wide) < in_conflict("warptiled") == approx(22.7, abs=0.2)
    assert times("pipelined", "warptiled", 4096)[0] > 1 < times("autotuned", "warptiled", 4096)[0]
    assert (ahead_of("pipelined"), ahead_of("register_banks")) == (1, 243), (
        "the order isn't the only change"
    )
    axes = [Axis("BN", (128,)), Axis("MIN_BLOCKS", (2,))]
    [at_tile] = tuning.recorded(tuning.variants(worklog.rung("autotuned"), axes)).select(
        "BN=128 MIN_BLOCKS=2"
    )
    pipelined = worklog.results("pipelined").measurements[0]
    gains = (at_tile.us or 0) / (pipelined.us or 1), (pipelined.ratio or 0) / (at_tile.ratio or 1)
    assert gains == approx((1.075, 1.081), abs=2e-3), "two recordings"
    assert times("autotuned", "pipelined", 4096) == [approx(0.901, abs=2e-3)]
    for path in (path for name, path in recordings("chapters").items() if name.endswith("_tiles")):
        of_run = {(m.kernel, m.shape[0]): m.us or math.nan for m in Run.load(path).measurements}
        assert of_run["autotuned BN=128 MIN_BLOCKS=2", 4096] / of_run["pipelined", 4096] == approx(
            1.075, abs=0.005
        )
        assert of_run["pipelined BN=256 MIN_BLOCKS=1", 4096] / of_run["autotuned", 4096] == approx(
            1.107, abs=0.005
        )
        assert of_run["pipelined BN=256 MIN_BLOCKS=1", 4096] / of_run["pipelined", 4096] == approx(
            1, abs=0.005
        ), "an early fetch doesn't help it"
    assert ahead_of("pipelined", BN=256, MIN_BLOCKS=1) == 320
    wide, _ = machine_code("pipelined", BN=256, MIN_BLOCKS=1)
    assert (wide.registers, wide.spill_store_bytes) == (229, 0)


def test_8_x_16_wins_at_two_block_tiles_of_four():
    axes = [
        Axis("BM", (64, 128)),
        Axis("BN", (64, 128)),
        Axis("TN", (8, 16)),
        Axis("MIN_BLOCKS", (1, 2)),
    ]
    found = tuning.variants(worklog.rung("autotuned"), axes)
    rates = {m.kernel: m.tflops or 0.0 for m in tuning.recorded(found).measurements}
    frame = found.frame().assign(rate=[rates[variant.name] for variant in found.kept])
    fastest = frame.loc[frame.groupby(["BM", "BN", "TN"])["rate"].idxmax()].set_index(
        ["BM", "BN", "TN"]
    )
    narrow, wide = (fastest.xs(tn, level="TN") for tn in (8, 16))
    assert [round(100 * more) for more in wide["rate"] / narrow["rate"] - 1] == [10, -9, 7, -7]
    ahead = {
        tn: [
            ahead_of("autotuned", BM=bm, BN=bn, TN=tn, MIN_BLOCKS=int(best["MIN_BLOCKS"]))
            for (bm, bn), best in of.iterrows()
        ]
        for tn, of in ((8, narrow), (16, wide))
    }
    assert ahead == {8: [1, 236, 1, 250], 16: [1, 1, 1, 1]}
    assert min(wide["registers"] / narrow["registers"]) > 1.69 and all(
        wide["warps/SM"] < narrow["warps/SM"]
    )


def test_the_floors_predict_four_steps_and_neither_the_first_nor_conflict_free_nor_the_five_after():
    run = worklog.results(shapes=[4096])
    floors = rung_bounds(run, COUNTED.shape)
    steps = list(pairwise([*floors][:7]))
    predicted = [floors[before].ms / floors[after].ms for before, after in steps]
    measured = [times(before, after, 4096)[0] for before, after in steps]
    assert predicted == approx([16.5, 1.28, 2.325, 1.273, 1.535, 1.343], abs=5e-3)
    assert measured == approx([11.52, 1.482, 2.143, 1.347, 1.439, 1.054], abs=5e-3)
    off = [abs(floor / time - 1) for floor, time in zip(predicted, measured, strict=True)]
    assert max(off[1:5]) < 0.15 < 0.25 < min(off[0], off[5])
    above = {
        name: 1e-3 * run.select(name)[0].us / floors[name].ms for name in ("naive", "coalesced")
    }
    assert [*above.values()] == approx([1.01, 1.45], abs=5e-3)
    for first, last, predicted, measured in (("conflict_free", "warptiled", 1.00, 1.39),):
        old = floors[first]
        new = floors[last]
        assert (old.ms / new.ms, times(first, last, 4096)[0]) == approx(
            (predicted, measured), abs=5e-3
        )
    names = [*floors][6:]
    assert (
        all(floors[a].ms == approx(floors[b].ms, rel=1e-3) for a, b in pairwise(names))
        and len(names) == 6
    )
    assert [times(*pair, 4096)[0] for pair in pairwise(names)] == approx(
        [1.291, 1.033, 0.901, 1.130, 1.024], abs=2e-3
    )


def test_how_busy_each_unit_is():
    busy = {
        "FP32 cores": dict(conflict_free=58, double_buffered=71),
        "L1 and shared": dict(naive=96, coalesced=78, shared=90, conflict_free=56, warptiled=43),
        "issue slots": dict(warptiled=82, specialized=89, tf32x3=46),
        "tensor cores": dict(tf32x3=43, fp16x3=20, promoted=18, wgmma=28, split=75),
    }
    for unit, rungs in busy.items():
        assert {rung: COUNTERS[rung]["percent"][unit] for rung in rungs} == approx(
            rungs, abs=0.6
        ), unit
    waves = [COUNTED.rungs[name].wavefronts_per_fma for name in ("conflict_free", "vectorized")]
    assert (
        waves[0] / waves[1] == approx(0.6, abs=0.01)
        and times("vectorized", "conflict_free", 4096)[0] < 1.06
    )
    for unit, most in (("L2", 10.5), ("DRAM", 2.5)):
        assert max(COUNTERS[rung.name]["percent"][unit] for rung in worklog.LADDER) < most, "of 06"


def test_past_warptiled_more_issue_slots_are_used_and_multiply_adds_have_a_smaller_share_of_them():
    names = "warptiled", "barriers", "specialized", "bulk_copies", "equal_shares"
    rungs = [COUNTERS[name]["percent"] for name in names]
    shares = [busy["FP32 cores"] / busy["issue slots"] for busy in rungs]
    used = [busy["issue slots"] for busy in rungs]
    assert shares[0] == max(shares) and used == sorted(used) and used[-1] - used[0] > 9
    for name, slots, least in zip(names, used, (0.92, 0.81), strict=False):
        m = worklog.results(name, 2048).measurements[0]
        by_time = 100 * 2048**3 / 32 / (132 * 4 * (m.us or 0) * (m.sm_mhz or 0)) / slots
        assert least < by_time < COUNTERS[name]["percent"]["FP32 cores"] / slots + 0.005, (
            "they multiply integers, too"
        )
    assert times("warptiled", "barriers", 2048)[0] < 0.96, "in spite of more slots"
    equal, bulk = (
        COUNTERS[name]["percent"]["FP32 cores"] for name in ("equal_shares", "bulk_copies")
    )
    assert bulk == approx(equal, abs=0.5), "so what equal shares lose isn't in the product's launch"


@pytest.mark.parametrize(
    ("before", "after", "faster"),
    [
        ("warptiled", "lane_map", (0.999, 0.996, 1.006)),
        ("lane_map", "async_copies", (0.935, 0.929, 0.940)),
        ("async_copies", "barriers", (1.024, 1.016, 0.990)),
        ("barriers", "specialized", (1.102, 1.101, 1.104)),
        ("specialized", "bulk_copies", (1.027, 1.033, 1.033)),
        ("bulk_copies", "equal_shares", (0.894, 0.990, 1.003)),
        ("equal_shares", "ragged", (0.997, 0.961, 0.957)),
        ("tf32x3", "fp16x3", (0.906, 0.923, 0.913)),
        ("fp16x3", "promoted", (0.952, 0.952, 0.944)),
        ("wgmma", "split", (1.897, 2.288, 2.482)),
        ("promoted", "wgmma", (2.18, 2.26, 2.27)),
    ],
)
def test_what_each_step_past_the_ladder_gains(before, after, faster):
    assert times(before, after, *SIZES) == approx(faster, rel=2e-3)


def test_what_changes_beside_the_idea_of_a_step():
    assert in_conflict("warptiled") > 22 and in_conflict("lane_map") < 1
    held = [
        (worklog.rung(name), machine_code(name)[0])
        for name in ("lane_map", "async_copies", "specialized")
    ]
    blocks = [
        occupancy("sm_90", rung.thread_count, c.registers, c.shared_bytes).blocks
        for rung, c in held
    ]
    assert (
        blocks == [2, 2, 1] and held[-1][1].registers - held[-1][0].template["COPY_REGISTERS"] == 64
    )
    loops = [machine_code(name)[1].counts for name in ("async_copies", "barriers")]
    assert loops[0]["FFMA"] == loops[1]["FFMA"] and sum(loops[1].values()) - sum(
        loops[0].values()
    ) == approx(85, abs=3)
    blocks = math.prod(worklog.rung("bulk_copies").blocks(worklog.Shape.of(4096)))
    assert -(-blocks // 132) * 132 / blocks == approx(1.03, abs=2e-3), (
        "all that equal shares can gain"
    )


def test_five_rungs_of_the_first_twelve_change_the_tile_too_as_the_readme_says():
    changed = []
    for before, after in pairwise(worklog.LADDER):
        both = {"BM", "BN", "BK"} & before.template.keys() & after.template.keys()
        if any(before.template[side] != after.template[side] for side in both):
            changed.append(after.name)
    assert changed == ["tiles_1d", "tiles_2d", "autotuned", "pipelined", "warptiled"]


def test_the_counts_in_the_headers():
    rungs = COUNTED.rungs
    assert [rungs[name].sectors_per_fma for name in ("coalesced", "shared")] == approx(
        [5.0, 0.25], abs=5e-3
    )
    waves = [rungs[name].wavefronts_per_fma for name in ("tiles_1d", "tiles_2d", "vectorized")]
    assert waves == approx([0.66, 0.52, 0.34], abs=5e-3) and rungs[
        "tiles_2d"
    ].conflict_share == approx(0.48, abs=5e-3)
    rates = [
        times(*pair, 4096)[0] for pair in (("tiles_1d", "tiles_2d"), ("tiles_2d", "vectorized"))
    ]
    assert rates == approx([1.35, 1.44], abs=5e-3)
    held = []
    for name in ("shared", "tiles_1d", "tiles_2d"):
        compiled = compile_cuda(worklog.rung(name).program)
        threads = worklog.rung(name).thread_count
        held.append(
            32 * occupancy("sm_90", threads, compiled.registers, compiled.shared_bytes).warps
        )
    assert held == [2048, 1536, 512]
    loads = [inspect(worklog.rung(name)).counts for name in ("register_banks", "warptiled")]
    reads = [counts.shared_load.wavefronts / counts.instructions["fma"] for counts in loads]
    assert reads[1] / reads[0] == approx(0.6) and rungs["warptiled"].conflict_share == approx(
        0.07, abs=5e-3
    )


def test_peaks_power_clocks_and_errors_of_13_and_the_clocks_of_03():
    gpu = worklog.open_run().gpu
    tf32, fp16 = (2e-6 * gpu.multiprocessors * gpu.sm_clock_mhz * lanes for lanes in (1024, 2048))
    assert (tf32, fp16) == approx((535, 1071), abs=0.5)
    assert (tf32 * 1830 / gpu.sm_clock_mhz, fp16 * 1830 / gpu.sm_clock_mhz) == approx(
        (494.7, 989.4), abs=0.1
    )
    split = worklog.results("split", 2048).measurements[0]
    assert (split.tflops or 0) / (fp16 / 3 * (split.sm_mhz or 0) / gpu.sm_clock_mhz) == approx(
        0.51, abs=0.005
    )
    assert min(worklog.results(name).measurements[0].sm_mhz or 0 for name in SECOND[:5]) > 1809
    pairs = [worklog.results(name).measurements[0].samples for name in ("warptiled", "split")]
    clocks = [
        np.median([mhz or 0.0 for mhz in side.sm_mhz])
        for samples in pairs
        for side in samples.sides
    ]
    assert clocks == approx([1973, 1973, 1670, 1978], abs=1)
    found = {name: worklog.results(name).measurements[0] for name in ("tf32", "tf32x3", "cuBLAS")}
    verdicts = {name: found[name].verdict for name in ("tf32", "cuBLAS")}
    details = {
        n: next(s.detail for s in v.stages if s.name == "precision")
        for n, v in verdicts.items()
        if v
    }
    tf32_error, cublas_error = (
        float(re.search(r"rms (\S+) u·D", text)[1]) for text in details.values()
    )
    assert tf32_error == approx(4300, rel=0.03) and tf32_error / cublas_error == approx(
        230, rel=0.01
    )
    assert found["tf32x3"].ratio == approx(0.927, abs=1e-3)


def test_10_split_takes_least_energy_and_is_3_6_times_as_fast_as_cublas_in_a_row():
    power = settings_at("h200_energy", 4096)
    watts = {name: m.watts or 0.0 for name, m in power.items()}
    in_a_row = {name: m.energy.us for name, m in power.items() if m.energy}
    split = power["split"]
    assert (in_a_row["split"], split.us, split.ratio) == approx((751, 642, 4.167), rel=1e-3)
    assert in_a_row["cuBLAS"] / in_a_row["split"] == approx(3.6, abs=0.05)
    assert min(power, key=lambda name: power[name].joules or math.inf) == "split"
    for name in ("tf32", "wgmma", "split"):
        assert 690 <= watts[name] < 693.5
    for name in SECOND[:5]:
        assert watts["split"] < 1.26 * watts[name]
        assert in_a_row["split"] < 0.61 * in_a_row[name]
    slowest = min(power, key=lambda name: power[name].sm_mhz or math.inf)
    assert slowest == "split"


def test_10_faster_kernels_need_less_energy_on_fp32s_own_units():
    power = settings_at("h200_energy", 4096)
    ladder = ("naive", "shared", "tiles_2d", "vectorized", "warptiled", "bulk_copies")
    joules = [power[name].joules or math.nan for name in ladder]
    assert joules == sorted(joules, reverse=True)
    assert set(power) == {*ladder, *SECOND, "winograd"}
    naive, best, winograd = (power[name] for name in ("naive", "best", "winograd"))
    assert best.watts / naive.watts == approx(3.4, abs=0.05)
    assert naive.us / best.us > 100
    assert winograd.joules / best.joules == approx(0.87, abs=0.005)


def test_10_six_products_of_int8_are_faster_than_split_by_their_clock():
    for size, faster, more_cycles, clock in ((4096, 1.05, 1.04, 1.10), (8192, 1.10, 1.02, 1.13)):
        timed = settings_at("h200_digits", size)
        digits, split = timed["digits"], timed["split"]
        assert split.us / digits.us == approx(faster, abs=0.005)
        assert digits.sm_mhz / split.sm_mhz == approx(clock, abs=0.005)
        cycles = digits.us * digits.sm_mhz / (split.us * split.sm_mhz)
        assert cycles == approx(more_cycles, abs=0.005)
        assert digits.joules / split.joules == approx(0.90, abs=0.005)
    assert 6e-6 * 2 * 8192**3 / digits.us == approx(1539, abs=0.5)
    checked = settings_at("h200_digits", 4096)
    rms = []
    for name in ("digits", "split"):
        verdict = checked[name].verdict
        assert verdict is not None and verdict.accepted
        [detail] = [stage.detail for stage in verdict.stages if stage.name == "precision"]
        rms.append(float(re.search(r"rms (\S+) u·D", detail)[1]))
    assert rms[0] / rms[1] == approx(0.87, abs=0.005)
    counted = {c.kernel: c.values for c in settings_run("h200_digits").counters}
    assert [counted[name]["tensor cores"] for name in ("digits", "split")] == approx(
        [79, 83], abs=0.5
    )
    moved = [counted[name]["bytes of L2"] for name in ("digits", "split")]
    assert moved[0] / moved[1] == approx(0.67, abs=0.005)


def settings_run(name: str) -> Run:
    """Return a recording of other settings."""
    return Run.load(recordings("settings")[name], "recorded")


def settings_at(name: str, size: int) -> dict[str, Any]:
    """Return the measurements of such a recording at one size, by kernel."""
    run = settings_run(name)
    return {m.kernel: m for m in run.measurements if m.point.shape.m == size}


def test_int8_is_not_twice_as_fast_as_fp16_at_the_power_cap():
    document = json.loads(recordings("int8")["h200"].read_text(encoding="utf-8"))
    made = {(row["format"], row["size"]): row["in_a_row"] for row in document["rows"]}
    faster = [made["FP16", size]["us"] / made["INT8", size]["us"] for size in (4096, 8192)]
    assert faster == approx([1.3, 1.37], abs=0.02)
    assert [6 / 3 / times for times in faster] == approx([1.5, 1.5], abs=0.05)
    clocks = {key: row["sm_mhz"] for key, row in made.items()}
    assert [clocks["INT8", 4096], clocks["FP16", 4096]] == [1905, 1470]
    assert [clocks["INT8", 8192], clocks["FP16", 8192]] == [1800, 1410]
    per_clock = {"INT8": 132 * 8192, "FP16": 132 * 4096}  # operations, by the data sheet's peaks
    of_peak = {
        (name, size): 2 * size**3 / (row["us"] * row["sm_mhz"] * per_clock[name])
        for (name, size), row in made.items()
        if name in per_clock
    }
    assert [of_peak["INT8", size] for size in (4096, 8192)] == approx([0.40, 0.45], abs=0.01)
    assert [of_peak["FP16", size] for size in (4096, 8192)] == approx([0.80, 0.84], abs=0.01)
    watts = [made[name, 4096]["watts"] for name in ("INT8", "FP16")]
    assert watts == approx([692, 692], abs=0.6) and document["limit_watts"] == 700


CAUSES = Run.load(recordings("chapters")["h200_causes"], "recorded")
SMALL = Run.load(recordings("chapters")["h200_small"], "recorded")  # of all rungs at 1024


def faster(before: str, after: str, size: int) -> float:
    """Return how many times as fast a kernel is as another, both in the run of causes."""
    us = {m.kernel: m.us or math.nan for m in CAUSES.measurements if m.shape == (size,) * 3}
    return us[before] / us[after]


def state(rung: str, name: str, size: int = 4096) -> float:
    """Return the percentage of its cycles that a warp is in a state, as Nsight Compute names it."""
    [stalls] = [c.stalls for c in CAUSES.counters if (c.kernel, c.shape[0]) == (rung, size)]
    return 100 * stalls.get(name, 0.0) / sum(stalls.values())


def used(rung: str, unit: str) -> float:
    """Return the percentage of a unit's peak at 4096."""
    [values] = [c.values for c in CAUSES.counters if (c.kernel, c.shape[0]) == (rung, 4096)]
    return values[unit]


@pytest.mark.parametrize(
    ("before", "after", "at_1024", "at_4096"),
    [
        ("tiles_1d", "tiles_2d BM=64 BN=64", 0.762, 1.002),
        ("tiles_2d BM=64 BN=64", "tiles_2d", 0.698, 1.339),
        ("double_buffered, two barriers", "double_buffered", 1.018, 1.010),
        ("barriers", "specialized BN=128", 1.129, 0.990),
        ("specialized BN=128", "specialized", 0.559, 1.114),
        ("register_banks, order not kept", "register_banks", 1.157, 1.101),
        ("warptiled, order not kept", "warptiled", 1.144, 1.235),
        ("bulk_copies, order not kept", "bulk_copies", 1.031, 1.035),
    ],
)
def test_what_one_part_of_a_step_gains_alone(before, after, at_1024, at_4096):
    """One change in one run: the tile, the barrier, the copying warps, or the order."""
    assert [faster(before, after, size) for size in (1024, 4096)] == approx(
        [at_1024, at_4096], abs=1e-3
    )


def test_warptiled_passes_cublas_by_less_in_the_run_that_has_it_without_the_word():
    [passes] = CAUSES.select("warptiled", worklog.Shape.of(4096))
    assert passes.ratio == approx(1.0105, abs=5e-4)
    assert worklog.results("warptiled", 4096).measurements[0].ratio == approx(1.0147, abs=5e-4)


def test_what_the_warps_of_a_rung_wait_for_where_a_notebook_says_so():
    assert state("naive", "lg_throttle") > 90
    assert state("coalesced", "long_scoreboard") == approx(51, abs=0.5)
    memory = [state(name, "long_scoreboard") for name in ("conflict_free", "double_buffered")]
    assert memory == approx([13.8, 0.7], abs=0.1)
    assert state("coalesced", "lg_throttle") == approx(27, abs=0.5)
    fetched_late = [state(name, "long_scoreboard") for name in ("pipelined", "autotuned")]
    assert fetched_late == approx([17, 1.3], abs=0.1)
    assert [ahead_of("pipelined"), ahead_of("autotuned")] == [1, 260], "of the same two rungs"
    shared = [state(name, "short_scoreboard") for name in ("lane_map", "async_copies")]
    assert shared == approx([8.3, 12.9], abs=0.1)
    assert [used(name, "issue slots") for name in ("lane_map", "async_copies")] == approx(
        [84, 81], abs=0.5
    )
    tensor = [state(name, "long_scoreboard") for name in ("tf32x3", "fp16x3")]
    assert tensor == approx([0.2, 26.7], abs=0.1)


def test_ragged_uses_fewer_slots_than_equal_shares_and_fewer_of_them_to_multiply():
    slots = [used(name, "issue slots") for name in ("equal_shares", "ragged")]
    lanes = [used(name, "FP32 cores") for name in ("equal_shares", "ragged")]
    assert slots == approx([94, 91], abs=0.6) and lanes == approx([85, 81], abs=0.6)
    assert lanes[1] / slots[1] < lanes[0] / slots[0]
    waits = [state(name, "long_scoreboard") for name in ("equal_shares", "bulk_copies")]
    assert waits == approx([13.9, 2.9], abs=0.1) and used("bulk_copies", "FP32 cores") < lanes[0]


def test_promoted_waits_as_fp16x3_does_and_issues_more():
    stalls = {
        name: {c.kernel: c for c in CAUSES.counters if c.shape[0] == 4096}[name].stalls
        for name in ("fp16x3", "promoted")
    }
    for reason in stalls["fp16x3"]:
        assert state("promoted", reason) == approx(state("fp16x3", reason), abs=3), reason
    more = used("promoted", "issue slots") / used("fp16x3", "issue slots")
    assert more / times("fp16x3", "promoted", 4096)[0] == approx(1.11, abs=0.01)


def cycles(rung: str, name: str = "") -> float:
    """Return the cycles of its warps in a state at 4096, or all, in one unit for all rungs.

    Nsight Compute counts them for each instruction that is issued.
    """
    [stalls] = [c.stalls for c in CAUSES.counters if (c.kernel, c.shape[0]) == (rung, 4096)]
    [us] = [m.us or 0.0 for m in CAUSES.select(rung, worklog.Shape.of(4096))]
    per_instruction = stalls[name] if name else sum(stalls.values())
    return per_instruction * used(rung, "issue slots") * us


def test_over_half_of_what_double_buffering_saves_its_warps_is_the_wait_for_global_memory():
    saved = cycles("conflict_free") - cycles("double_buffered")
    memory = "long_scoreboard"
    saved_memory = cycles("conflict_free", memory) - cycles("double_buffered", memory)
    assert saved_memory / saved == approx(0.56, abs=0.01)


def test_the_wide_tile_brings_back_the_multiplying_warps_that_copying_warps_cost():
    """Two blocks of `barriers` fit on a multiprocessor, and one of `specialized`."""

    def multiplying(name: str, copying: int, **tile: int) -> int:
        kernel = worklog.rung(name).with_tile(**tile)
        compiled = compile_cuda(kernel.program)
        resident = occupancy(
            "sm_90",
            kernel.thread_count,
            compiled.registers,
            compiled.shared_bytes + int(kernel.launch.shared),
        )
        blocks = resident.warps // (kernel.thread_count // 32)
        return blocks * (kernel.thread_count // 32 - copying)

    assert multiplying("barriers", 0) == 8
    assert multiplying("specialized", 4, BN=128) == 4
    assert multiplying("specialized", 4) == 8


def test_shared_memory_saves_lookups_in_l1_and_no_byte_of_l2():
    """The comparison of 04: the same rungs at one size.

    Bytes counted by Nsight Compute at 4096.
    """
    moved, _ = moved_from_l2(COUNTED.shape)
    assert [moved[name] / 1e9 for name in ("coalesced", "shared")] == approx([15.4, 16.1], abs=0.05)
    assert moved["shared"] > moved["coalesced"]
    assert used("shared", "bytes of DRAM") / used("coalesced", "bytes of DRAM") == approx(
        1.95, abs=0.01
    )
    lookups = {
        name: 32 * COUNTED.rungs[name].load_lines / COUNTED.rungs[name].thread_fma
        for name in ("coalesced", "shared")
    }
    assert [*lookups.values()] == approx([2.0, 0.06], abs=5e-3)
    l2 = [COUNTERS[name]["percent"]["L2"] for name in ("shared", "tiles_1d")]
    assert l2 == approx([7, 7], abs=0.5) and moved["tiles_1d"] / moved["shared"] == approx(
        0.51, abs=0.01
    )
    assert all(8 < used(name, "L2") < 9 for name in ("shared", "tiles_1d")), "at 4096"
    assert moved["naive"] / moved["warptiled"] == approx(5.7, abs=0.05)


def test_what_l1_and_l2_serve_by_counted_bytes():
    shape = worklog.Shape.of(4096)
    moved, _ = moved_from_l2(shape)
    sectors = {
        name: 32 * (counts.load_sectors + counts.store_sectors)
        for name, counts in COUNTED.rungs.items()
    }
    assert [1 - moved[name] / sectors[name] for name in ("naive", "warptiled")] == approx(
        [0.99, 0.29], abs=0.005
    )
    warptiled = worklog.rung("warptiled")
    built = compile_cuda(warptiled.program)
    assert (
        occupancy("sm_90", warptiled.thread_count, built.registers, built.shared_bytes).blocks == 2
    )
    bytes_of = json.loads(recordings("bytes")["h200"].read_text(encoding="utf-8"))["kernels"]
    of_dram = [bytes_of[name]["bytes"]["DRAM"] / 1e9 for name in ("equal_shares", "bulk_copies")]
    assert of_dram == approx([1.67, 0.39], abs=0.005)


def test_issue_slots_rise_and_fall_with_the_speed_of_the_last_six_rungs_of_the_ladder():
    names = [rung.name for rung in worklog.LADDER][6:]
    slots = {name: COUNTERS[name]["percent"]["issue slots"] for name in names}
    lanes = {name: COUNTERS[name]["percent"]["FP32 cores"] for name in names}
    for size in (2048, 4096):
        us = {m.kernel: m.us or math.nan for m in worklog.results(names, size).measurements}
        slowest_first = sorted(names, key=us.__getitem__, reverse=True)
        assert slowest_first == sorted(names, key=slots.__getitem__)
        assert slowest_first != sorted(names, key=lanes.__getitem__)


def test_used_slots_rise_from_async_copies_to_equal_shares_and_not_before_or_after():
    names = [rung.name for rung in FP32]
    slots = {name: COUNTERS[name]["percent"]["issue slots"] for name in ("warptiled", *names)}
    rising = names[names.index("async_copies") : names.index("equal_shares") + 1]
    assert all(slots[before] < slots[after] for before, after in pairwise(rising))
    assert slots["warptiled"] > slots["lane_map"] > slots["async_copies"]
    assert slots["equal_shares"] > slots["ragged"]


def test_a_lane_map_waits_more_for_shared_memory_and_less_for_operands_in_the_same_time():
    for rung, shared, operands in (("warptiled", 2.2, 7.5), ("lane_map", 10.9, 3.5)):
        queue = state(rung, "mio_throttle")
        assert state(rung, "short_scoreboard") + queue == approx(shared, abs=0.1)
        assert state(rung, "dispatch") == approx(operands, abs=0.1)
    assert times("warptiled", "lane_map", 4096) == [approx(1, abs=0.005)]


def test_fewer_register_conflicts_hide_half_of_what_the_loads_of_lane_map_cost():
    """In warps that wait per issued instruction."""
    stalls = {c.kernel: c.stalls for c in CAUSES.counters if c.shape[0] == 4096}
    before, after = stalls["warptiled"], stalls["lane_map"]
    more = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in before | after}
    loads = more["short_scoreboard"] + more["mio_throttle"]
    assert -more["dispatch"] / loads == approx(0.45, abs=0.1)
    assert -(more["dispatch"] + more["not_selected"]) == approx(loads, abs=0.02)


def test_what_equal_shares_lose_is_not_in_the_launch_of_the_product():
    """A launch takes its multiply-adds over the share of the FP32 cores that they keep busy."""
    assert len(worklog.rung("equal_shares").at(worklog.Shape.of(2048)).passes) == 2
    for size, least_outside in ((2048, 0.1), (4096, 0.025)):
        product_us = {}
        for name in ("bulk_copies", "equal_shares"):
            [m] = worklog.results(name, size).measurements
            percent = COUNTERS[name]["percent"]["FP32 cores"]
            if size == 4096:
                percent = used(name, "FP32 cores")
            clocks = size**3 / (132 * 128 * percent / 100)
            product_us[name] = clocks / (m.sm_mhz or math.nan)
            if name == "bulk_copies":
                assert product_us[name] == approx(m.us, rel=0.01), "one launch"
            else:
                assert 1 - product_us[name] / (m.us or math.nan) > least_outside
        assert 0.97 < product_us["equal_shares"] / product_us["bulk_copies"] < 1


def test_bulk_copies_is_the_fastest_rung_on_fp32_cores_but_for_equal_shares_at_8192():
    fastest = []
    for size in SIZES:
        names = ["warptiled", *(rung.name for rung in FP32)]
        run = worklog.results(names, size)
        fastest.append(min(run.measurements, key=lambda m: m.us or math.inf).kernel)
        [bulk] = run.select("bulk_copies")
        assert bulk.ratio == approx({2048: 1.103, 4096: 1.082, 8192: 1.087}[size], abs=1e-3)
    assert fastest == ["bulk_copies", "bulk_copies", "equal_shares"]
    assert times("bulk_copies", "equal_shares", 8192) == [approx(1.003, abs=1e-3)]


def test_the_additions_of_promoted_are_a_seventh_of_the_instructions_that_it_adds():
    issued = {}
    for name in ("fp16x3", "promoted"):
        [m] = worklog.results(name, 4096).measurements
        clocks = (m.us or math.nan) * (m.sm_mhz or math.nan)
        issued[name] = used(name, "issue slots") / 100 * 4 * 132 * clocks
    [steps] = re.findall(r"PROMOTE = (\d+);", worklog.rung("promoted").source)
    promotions = 4096 // int(steps)
    additions = 4096**2 * promotions / 32
    assert additions / (issued["promoted"] - issued["fp16x3"]) == approx(1 / 7, abs=0.01)


def small_state(rung: str, name: str) -> float:
    """Return the percentage of its cycles that a warp is in a state at 1024."""
    [stalls] = [counted.stalls for counted in SMALL.counters if counted.kernel == rung]
    return 100 * stalls.get(name, 0.0) / sum(stalls.values())


def test_a_block_of_tiles_2d_is_alone_at_1024_and_waits_more_for_global_memory():
    blocks = math.prod(worklog.rung("tiles_2d").blocks(worklog.Shape.of(1024)))
    assert blocks == 64 < SMALL.gpu.multiprocessors == 132
    waiting = small_state("tiles_2d", "long_scoreboard"), state("tiles_2d", "long_scoreboard")
    assert waiting == approx((22.6, 9.0), abs=0.1)
    [counted] = [c.values for c in SMALL.counters if c.kernel == "tiles_2d"]
    assert 2 * counted["warps resident"] == approx(counted["warps possible"], rel=0.01)


def test_warptiled_waits_for_instructions_at_1024_and_a_rung_with_half_the_loop_does_not():
    """Both have one block of four warps on a multiprocessor there."""
    assert small_state("warptiled", "no_instruction") == approx(35.1, abs=0.1)
    assert small_state("register_banks", "no_instruction") == approx(1.7, abs=0.1)
    assert state("warptiled", "no_instruction") == approx(2.6, abs=0.1)
    loops = [sum(machine_code(name)[1].counts.values()) for name in ("warptiled", "register_banks")]
    assert loops[0] == 2228 and loops[1] == approx(loops[0] / 2, rel=0.02)
    threads = [worklog.rung(name).thread_count for name in ("warptiled", "register_banks")]
    assert threads == [128, 128]


def test_what_worklog_profile_concludes_of_best_by_the_busiest_unit_or_by_missing_warps():
    bounds = Run.load(recordings("bounds")["h100"], "recorded")
    concluded = {True: 0, False: 0}
    for counted in bounds.counters:
        if counted.kernel != "best":
            continue
        busiest = max(counted.values[unit] for unit in UNITS)
        assert ("too few blocks" in limit(counted, bounds.gpu.arch)) == (busiest < BUSY)
        concluded[busiest < BUSY] += 1
    assert concluded == {True: 2, False: 2} and BUSY == 80


def test_half_of_the_sms_have_no_large_block_at_1024_and_one_does_more_than_two_small_ones():
    large, small = (
        math.prod(rung.blocks(worklog.Shape.of(1024)))
        for rung in (worklog.rung("tiles_2d"), worklog.rung("tiles_2d").with_tile(BM=64, BN=64))
    )
    sms = CAUSES.gpu.multiprocessors
    assert large / sms == approx(0.5, abs=0.05) and math.ceil(small / sms) == 2
    # A large block is the work of four small ones.
    assert small == 4 * large
    assert 4 / 2 * faster("tiles_2d BM=64 BN=64", "tiles_2d", 1024) == approx(1.4, abs=0.02)


def test_warptiled_passes_cublas_in_each_recording_of_the_h200():
    percent = []
    for part in ("", "chapters"):
        for path in recordings(part).values():
            run = Run.load(path)
            if run.gpu.name == CAUSES.gpu.name:
                selected = run.select("warptiled", worklog.Shape.of(4096), {})
                percent += [100 * (m.ratio - 1) for m in selected if m.ratio]
    assert len(percent) >= 4
    assert min(percent) == approx(0.8, abs=0.06) and max(percent) == approx(1.5, abs=0.05)


def test_autotuned_gains_at_4096_with_as_many_issue_slots():
    assert used("autotuned", "issue slots") == approx(
        used("double_buffered", "issue slots"), abs=0.1
    )
    assert times("double_buffered", "autotuned", 4096) == approx([1.03], abs=0.006)


def test_double_buffered_takes_7_percent_fewer_instructions_per_tile():
    before, after = (
        sum(machine_code(name)[1].counts.values()) for name in ("conflict_free", "double_buffered")
    )
    assert 1 - after / before == approx(0.07, abs=0.005)
