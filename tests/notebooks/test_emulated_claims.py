"""The notebooks' sentences on compiled code and on the emulator's findings.

They are held against the stored outputs.
"""

import json
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from pytest import approx

import worklog
from tests.notebooks.test_claims import COUNTED, RUNGS, cells, numbers, shown
from worklog import emulator, lab
from worklog.gate.exact import family
from worklog.kernel.device import Program
from worklog.kernel.inspection import inspect
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.tensor_products import in_order
from worklog.problem import random_inputs
from worklog.runner.check import check
from worklog.runs import recordings

STEPS = ("warptiled", "lane_map", "async_copies", "barriers", "specialized", "bulk_copies")


def test_only_the_launch_is_between_the_events():
    [log] = [text for source, text in cells("12") if "take_batch(gpu" in source]
    columns = zip(*(re.split(r" {2,}", line.strip()) for line in log.splitlines()), strict=True)
    for calls, event, launch in zip(columns, ("0", "2"), ("the kernel", "cuBLAS"), strict=True):
        first = calls.index(f"record_event {event}")
        assert calls[first + 1] == launch and calls[first + 2].startswith("record_event")
        assert "hold" in calls[:first] and "release" in calls[first:]
        assert "flush_l2" in calls[calls.index(f"stamp_clock {event}") : first]


def test_squares_of_whole_tiles_hide_two_of_the_five_mistakes_of_14_and_not_the_last_column():
    [cell] = [source for source, _ in cells("14") if "slips = {" in source]
    names: dict[str, Any] = {}
    exec(cell, names)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (32, 32)).astype(np.float32) for _ in "ab")
    is_right = {}
    for mistake in (
        "the last K tile is missing",
        "it reads past A",
        "the last column is not written",
    ):
        source = names["RIGHT"].replace(*names["slips"][mistake])
        product = worklog.Kernel.from_source(source, file="tiles.cu")(a, b)
        is_right[mistake] = np.array_equal(product, a @ b)
    assert list(is_right.values()) == [True, True, False]


def test_the_articles_rule_passes_every_mistake_and_integers_agree_in_every_order():
    text = shown("14")
    errors = {
        name: float(error)
        for name, error in re.findall(r"^(\w.*?) +(\S+)  passes$", text, re.MULTILINE)
    }
    assert len(errors) == 5 and errors["TF32 or FP16 operands"] < 1e-3 < errors["BF16 operands"]
    for k in ("64", "256", "1024", "4096"):
        law, limit, fp32, tf32, bf16 = numbers(text, k)
        assert limit == approx(4 + 4 * fp32, rel=0.02)
        assert 0.27 < law < 0.34 and 3 < limit / fp32 < 6 and tf32 > 40 * limit < bf16
    rng = np.random.default_rng(0)
    shape = worklog.Shape(16, 64, 4096)
    integers, random = (
        (in_order(a[:, ::-1], b[::-1]) != in_order(a, b)).mean()
        for a, b in (family("E1", shape, rng), random_inputs(shape, rng))
    )
    assert integers == 0 and random > 0.8
    changed = [
        re.findall(rf"{family} .*: (\d+), .*: (\d+), .*: (\d+)", text)[0]
        for family in ("E1", "E2", "E3")
    ]
    shows = [[count != "0" for count in row] for row in changed]
    assert shows == [[False, False, True], [True, False, True], [False, True, True]], (
        "each family finds its mistakes"
    )
    assert re.search(r"\[\]\n.*\[21\].*\[300\]", text)
    assert (
        len(re.findall(r"^    failed at (launch|exact on edge shapes): ", text, re.MULTILINE)) == 5
    )


def test_the_counts_of_05():
    share = {name: rung.conflict_share for name, rung in COUNTED.rungs.items()}
    assert min(share["tiles_2d"], share["vectorized"]) > 0.3 and 0 < share["warptiled"] < 0.1
    assert {share[name] for name in ("shared", "tiles_1d", *RUNGS[6:-1])} == {0}
    rungs = COUNTED.rungs
    assert 0.04 < rungs["shared"].sectors_per_fma / rungs["coalesced"].sectors_per_fma < 0.06
    [text] = [shown for source, shown in cells("05") if "lab.counts(*changed)" in source]
    plain, b, a, quads = (
        numbers(text, row)
        for row in (" vectorized", " rows of Bs.*?d", " rows of As.*?d", " a .*?apart")
    )
    (reads, writes) = plain[2:4]
    of_a = a[2:4]
    of_quads = quads[2:4]
    assert b == plain and of_a == [reads, 0] and of_quads == [0, writes] and reads > writes > 0


def test_the_bugs_of_08_are_found_in_the_cells_lines(few_shapes):
    (racy, race), (_, outside), (fixed, passed) = (
        cell for cell in cells("02") if cell[0].startswith("%%rung")
    )
    reads, writes = map(
        int, re.findall(r"reads \(line (\d+)\) and thread \d+ writes \(line (\d+)\)", race)[0]
    )
    lines = racy.splitlines()
    assert (
        lines[reads - 1].lstrip().startswith("for (int k = 0")
        and "As[y][x] = " in lines[writes - 1]
    )
    assert all(f"end of {matrix}" in outside for matrix in "ABC") and re.search(
        r"mine:? +skipped", passed
    )
    rounded = "__uint_as_float((__float_as_uint(As[y][k]) + 0x1000u) & 0xffffe000u)"
    source = fixed.partition("\n")[2].replace("As[y][k]", rounded)
    launch = {"grid": "(N + 15) // 16, (M + 15) // 16"}
    for claimed in ("tf32", "fp32"):
        kernel = worklog.Kernel.from_source(
            source, file="cell", block="16,16", claimed=claimed, **launch
        )
        assert check(kernel, worklog.Shape(48, 40, 24), on="emulated", seed=1).verdict.accepted == (
            claimed == "tf32"
        )


def test_eight_elements_need_fewer_wavefronts_than_four_but_more_than_half():
    [four] = [
        source.split('"""')[1].removeprefix("\\\n")
        for source, _ in cells("02")
        if source.startswith("FOUR")
    ]
    eight = re.sub(r"\b64\b", "128", four).replace("acc[4]", "acc[8]").replace("i < 4;", "i < 8;")
    waves = []
    for rows, text in ((64, four), (128, eight)):
        grid = f"(N + 15) // 16, (M + {rows - 1}) // {rows}"
        counts = inspect(worklog.Kernel.from_source(text, grid=grid, block="16,16")).counts
        waves.append(
            (counts.shared_load.wavefronts + counts.shared_store.wavefronts)
            / counts.instructions["fma"]
        )
    assert 0.5 < waves[1] / waves[0] < 0.95 and 0.825 < waves[0] < 0.83, "a quarter of it by Bs"


def test_each_bug_of_11_is_found_and_each_fix_is_clean():
    """Sections 2 to 4 by the gate, 5 to 8 by a finding of the emulator.

    The record has hundreds of kernels.
    """
    shown_by = [text for _, text in cells("17")]
    verdicts = [text for text in shown_by if text.startswith(("failed", "passed"))]
    assert [text.split()[0] for text in verdicts] == ["failed", "passed", "failed"]
    swapped = next(text for text in shown_by if text.startswith("grid"))
    assert re.findall("passed|failed", swapped) == ["passed", "failed", "passed"]
    kinds = re.findall(r"^line \d+: ([\w-]+)", shown("17"), re.MULTILINE)
    assert kinds == ["shared-race"] * 3 + ["missing-wait", "undefined-shuffle"]
    assert len(re.findall(r"^none", shown("17"), re.MULTILINE)) == 4
    rows = json.loads(recordings("corpus")["public_kernels"].read_text(encoding="utf-8"))["rows"]
    total, tried, covered = (
        sum(row[name] for row in rows) for name in ("kernels", "tried", "covered")
    )
    assert total > 1000 and covered > 0.9 * tried


def test_each_step_past_warptiled_fits_without_spills_and_a_broken_hand_over_is_found():
    text = shown("09")
    shapes = (
        r"([\d.]+)(?: +[\d.]+){3} .* multiply-adds$",
        r"([\d.]+) % +1\.5",
    )  # of the counts, and of the main loops
    floors, loops = (re.findall(rf"^ ([a-z]\w+) +{row}", text, re.M) for row in shapes)
    sectors, adds = ({name: float(number) for name, number in rows} for rows in (floors, loops))
    assert len(sectors) == len(adds) == 6
    assert adds["lane_map"] > adds["async_copies"] > adds["barriers"] < adds["specialized"]
    same = [approx(sectors[name], abs=0.0015) for name in ("lane_map", "bulk_copies")]
    assert sectors["barriers"] == same[0] and sectors["specialized"] == same[1]
    assert sectors["specialized"] < 0.9 * sectors["barriers"]
    assert re.findall(r"(early-overwrite|missing-wait): thread", text) == [
        "early-overwrite",
        "missing-wait",
    ]


def test_what_12_says_of_its_timelines():
    few = {"equal_shares": (worklog.Shape(768, 2560, 104), 2)}
    charts = {name: lab.timeline(name, *few.get(name, ())) for name in (*STEPS, *few)}
    rows = {
        name: re.findall(r"(warps [\d–]+): ([^;]*)(?:; |\. Source)", chart.alt)
        for name, chart in charts.items()
    }
    assert rows["lane_map"] == rows["warptiled"] and len(rows["barriers"]) == 1
    ahead = {name: re.findall(r"requests (\d)", charts[name].headline) for name in STEPS[:4]}
    assert ahead == {
        "warptiled": ["1"],
        "lane_map": ["1"],
        "async_copies": ["4"],
        "barriers": ["3"],
    }
    every = {name: own[-1][1].split(", ") for name, own in rows.items()}
    tiles = [
        [int(tile) for tile in re.findall(r"multiply (\d+)", rows[name][-1][1])] for name in STEPS
    ]
    assert all(row == sorted(row) for row in tiles), (
        "reads of a tile after the next one's are not multiplied"
    )
    assert not any("store" in part or "fetch" in part for part in every["async_copies"])
    waits = {
        name: Counter(every[name])["wait"] for name in ("async_copies", "barriers", "specialized")
    }
    assert waits == {"async_copies": 10, "barriers": 18, "specialized": 12}, "for 9, 9 and 12 tiles"
    assert rows["specialized"][-1] == rows["bulk_copies"][-1]
    between = every["specialized"][every["specialized"].index("multiply 0") :][:3]
    assert (
        between == ["multiply 0", "wait", "multiply 1"]
        and every["equal_shares"].count("write a part of C") == 2
    )
    assert (
        "store from registers 0, fetch to registers 2, copy to shared memory 0"
        in rows["bulk_copies"][0][1]
    )


def test_promotion_every_128_k_beats_fp32_multiply_adds_beyond_1024_and_split_keeps_fp32s_range():
    text = shown("10")

    def errors(name: str) -> list[float]:
        [line] = re.findall(rf"{name}: ((?:[\d.]+ at \d+,? ?)+)", text)
        return [float(error) for error in re.findall(r"([\d.]+) at", line)]

    promoted, never, fp32 = map(
        errors, ("promoted every 128 k", "never promoted", "FP32 multiply-adds")
    )
    assert (
        all(ours < theirs for ours, theirs in zip(promoted[3:], fp32[3:], strict=True))
        and len(promoted) == 6
    )
    assert all(after > 1.7 * before for before, after in pairwise(never))
    assert len(re.findall(r"^split .* as FP32$", text, re.MULTILINE)) == 5
    assert not re.search(r"^split .* not as FP32$", text, re.MULTILINE)
    assert len(re.findall(r"(?:missing-fence|early-overwrite): thread", text)) == 2


def test_a_race_shows_in_a_launch_with_two_tiles_along_k_and_needs_the_second_one():
    """The first cell of the puzzle `barrier` in 04: a launch with one tile overwrites nothing."""
    [source, *_] = [source for source, _ in cells("04") if source.startswith("%%puzzle barrier")]
    text = source.partition("\n")[2].replace("__global__", 'extern "C" __global__')
    built = compile_cuda(Program("kernel.cu", text, "mine"))
    found = {}
    for k in (32, 64, 96):
        a = np.ones((32, k), np.float32)
        b = np.ones((k, 32), np.float32)
        c = np.zeros((32, 32), np.float32)
        arguments = [32, 32, k, 1.0, a, b, 0.0, c]
        kernel = emulator.load(built.ptx, built.symbol)
        launched = emulator.launch(kernel, (1, 1), 1024, arguments, count=False)
        found[k] = {finding.kind for finding in launched.findings if finding.is_error}
    assert found == {32: set(), 64: {"shared-race"}, 96: {"shared-race"}}


def test_proofs_stop_at_async_copies_and_the_three_rungs_after_it_have_mbarriers():
    [*_, newest] = recordings("proofs").values()
    rows = json.loads(newest.read_text(encoding="utf-8"))["rows"]
    unproved = {row["rung"]: row["reason"] for row in rows if not row["proved"]}
    first, *after = unproved
    assert first == "async_copies" and "cp.async" in unproved[first]
    assert len(after) == 3 and all("mbarrier" in unproved[rung] for rung in after)
    assert [row["rung"] for row in rows][-4:] == [first, *after]


def test_of_the_samples_three_multi_stage_kernels_the_two_that_17_names_fail():
    """The third one waits until a buffer of the pipeline's shared state is free."""
    document = json.loads(recordings("corpus")["public_kernels"].read_text(encoding="utf-8"))
    prefix = "MatrixMulAsyncCopy"
    verdicts = {
        row["kernel"].removeprefix(prefix): row["verdict"]
        for row in document["products"]
        if row["kernel"].startswith(f"{prefix}MultiStage")
    }
    assert verdicts == {
        "MultiStage<16>": "failed",
        "MultiStageLargeChunk<16>": "failed",
        "MultiStageSharedState<16>": "passed",
    }
