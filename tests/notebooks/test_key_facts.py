"""The notebooks' text states what holds for every recording of this kind: each such statement is checked here, against
the stored outputs, the emulator's counts or the recording. What holds for one recording only, a cell prints."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

import nbformat
import numpy as np
import pytest

import worklog
from tests.record.notebooks import notebook_of, sources
from worklog.analysis.inspection import inspect
from worklog.analysis.memory_counts import memory_counts
from worklog.lab.panel_answer import Answers
from worklog.lab.readings import grid_runs
from worklog.plots import levels_of
from worklog.runner.check import check
from worklog.runs.comparison import CUBLAS, KNOWN, open_comparison
from worklog.runs.estimates import median
from worklog.runs.measurement import Measurement

COUNTED = memory_counts()
NAMES = [rung.name for rung in worklog.LADDER]
FIRST_IN_SHARED = NAMES[2:6]


@cache
def cells(number: str) -> list[tuple[str, str]]:
    """Source and stored text outputs of each code cell."""
    [source] = sources([number])
    notebook = nbformat.read(notebook_of(source), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        (c.source, "".join(o.get("text") or str(o.get("data", {}).get("text/plain")) for o in c.outputs)) for c in code
    ]


def shown(number: str) -> str:
    return "\n".join(text for _, text in cells(number))


def numbers(text: str, row: str) -> list[float]:
    """The numbers in the last line that begins with `row`, a regular expression."""
    line = re.findall(rf"^{row} +(.*)$", text, re.MULTILINE)[-1]
    return [float(word) for word in re.findall(r"(?<![\w.])-?\d[\d.]*(?:e[-+]\d+)?", line)]


def measured(kernel: str, size: int, **setting: Any) -> Measurement:
    found = worklog.results([kernel], [size], **setting).measurements[0]
    assert found.us is not None
    return found


def us(kernel: str, size: int, **setting: Any) -> float:
    return measured(kernel, size, **setting).us or 0.0


def test_each_gremlin_shows_where_01_says() -> None:
    sizes = (256, 1024, 4096)
    host = [us("warptiled", size, timer="host") for size in sizes]
    assert max(host) / min(host) < 5 < us("warptiled", 4096) / us("warptiled", 256) / 10
    assert (measured("warptiled", 4096, timer="host").tflops or 0) > 5 * worklog.open_run().gpu.fp32_peak_tflops
    bubble = [us("warptiled", size, queue=False) / us("warptiled", size) for size in sizes]
    assert bubble == sorted(bubble, reverse=True) and bubble[0] > 1.3
    assert us("vectorized", 256, l2="warm") < 0.95 * us("vectorized", 256)
    assert measured("warptiled", 1024, warmup="none").samples.sides[0].us[0] > 1.3 * us("warptiled", 1024)


def test_the_panel_gives_the_answers_of_01() -> None:
    def off(kernel: str, size: int, **settings: Any) -> float:
        return Answers(grid_runs()).answer(kernel, size, **settings).whole.difference.off

    assert abs(off("naive", 4096, clocks="ignored", l2="warm", warmup="none")) < 0.01
    first = off("vectorized", 1024, warmup="none", statistic="first")
    assert first > 0.1 and abs(off("vectorized", 1024, warmup="none")) < 0.2 * first
    assert off("vectorized", 1024, l2="warm") < -0.1 and off("vectorized", 1024, queue=False) > 0.1


def test_only_the_launch_is_between_the_events() -> None:
    log = [
        line.strip() for line in next(text for source, text in cells("02") if "take_batch(gpu" in source).splitlines()
    ]
    for event, launch in (("0", "the kernel"), ("2", "cuBLAS")):
        first = log.index(f"record_event {event}")
        assert log[first + 1] == launch and log[first + 2].startswith("record_event")
        assert "hold" in log[:first] and "release" in log[first:]
        assert "flush_l2" in log[log.index(f"stamp_clock {event}") : first]


def test_the_arithmetic_of_02_and_03() -> None:
    five, six = (median(list(map(float, range(n)))) for n in (5, 6))
    assert (five.low, five.high) == (0, 4) and 0 < six.low < 1 and 4 < six.high < 5
    run, shape = worklog.open_run(), COUNTED.shape
    assert 10 < 2 * run.gpu.l2_bytes / run.calibration.copy_gbs / 1e3 < 100, "microseconds of a flush"
    extra = {2 * rung.thread_fma - shape.flops for rung in COUNTED.rungs.values()}
    assert extra == {0, 2 * shape.m * shape.n}, "an epilogue"
    fp32, tf32, bf16 = (numbers(shown("03"), name)[0] for name in ("FP32", "TF32", "BF16"))
    assert 100 * fp32 < 1e-3 and fp32 < tf32 < bf16 < 1e-2


def test_the_articles_rule_passes_every_mistake_and_integers_agree_in_every_order() -> None:
    text = shown("04")
    errors = {name: float(error) for name, error in re.findall(r"^(\w.*?) +(\S+)  passes$", text, re.MULTILINE)}
    assert len(errors) == 6 and errors["TF32 or FP16 operands"] < 1e-3 < errors["BF16 operands"]
    for k in ("64", "256", "1024", "4096"):
        fp32, law, limit, tf32, bf16 = numbers(text, k)
        assert 0.27 < law < 0.34 and 3 < limit / fp32 < 6 and tf32 > 40 * limit < bf16
    orders = re.findall(r"integers: (\d+) of \d+ differ, \w+ data: +(\d+)?", text)
    assert len(orders) == 5 and {integers for integers, _ in orders} == {"0"}
    assert min(int(share) for _, share in orders[1:4]) > 50
    table = [
        numbers(text, row) for row in ("TF32 operands", "TF32 for B only", "FP16 accumulator", "last term missing")
    ]
    assert all(map(any, table)) and table[0][0] == table[1][1] == 0
    assert re.search(r"\[\]\n.*\[21\].*\[300\]", text)
    assert len(re.findall(r"^    failed at (launch|exact on edge shapes): ", text, re.MULTILINE)) == 11


def test_the_limit_moves_from_l1_to_shared_memory_to_the_multiply_adds() -> None:
    text = next(text for source, text in cells("05") if "spread(" in source)
    limits = [re.findall(rf"^ {name} .* (L1|shared|multiply)\b", text, re.MULTILINE) for name in NAMES]
    assert limits == [["L1"]] * 2 + [["shared"]] * 4 + [["multiply"]] * 6
    times, above = (
        dict(zip(NAMES, column, strict=True))
        for column in zip(*(numbers(text, f" {n}")[-2:] for n in NAMES), strict=True)
    )
    steps = [(times[after] / times[before], after) for before, after in pairwise(times)]
    assert all(step < 1 for step, after in steps if after != "pipelined"), "each rung but pipelined is faster"
    assert 1 <= above.pop("naive") < 1.2 < above["coalesced"] and min(above.values()) > 1
    slowest, fastest = times["coalesced"], min(times.values())
    assert max(above.values()) / min(above.values()) < 0.25 * slowest / fastest, "the factor varies less"


def test_the_counts_of_05() -> None:
    share = {name: rung.conflict_share for name, rung in COUNTED.rungs.items()}
    assert min(share["tiles_2d"], share["vectorized"]) > 0.3 and 0 < share["warptiled"] < 0.1
    assert {share[name] for name in ("shared", "tiles_1d", *NAMES[6:-1])} == {0}
    rungs = COUNTED.rungs
    assert 0.04 < rungs["shared"].sectors_per_fma / rungs["coalesced"].sectors_per_fma < 0.06
    plain, b, a, quads = (
        numbers(shown("05"), row) for row in ("as it is", "rows of Bs padded", "rows of As padded", "a .*apart")
    )
    assert b == plain and a[:2] == plain[:2] and a[3] == 0 and quads[-3] == 0 and quads[-2:] == plain[2:]


def test_the_roofs_of_06() -> None:
    run = worklog.results(shapes=[4096])
    at, fp32 = levels_of(run), run.calibration.fp32_tflops
    assert at["naive"].sectors < at["naive"].threads and at["coalesced"].sectors > at["coalesced"].threads
    assert all(0.85 < at[name].sectors / at[name].blocks < 1.01 for name in list(at)[2:])
    assert all(one.sectors < 1.01 * one.blocks and one.blocks < one.compulsory for one in at.values())
    rates = {m.kernel: m.tflops or 0.0 for m in run.measurements}
    roofs = {n: run.gpu.fp32_peak_tflops / (4 * COUNTED.rungs[n].wavefronts_per_fma) for n in list(at)[2:]}
    assert all(0.5 * roofs[name] < rates[name] < roofs[name] < fp32 for name in FIRST_IN_SHARED)
    assert all(roof > fp32 for name, roof in roofs.items() if name not in FIRST_IN_SHARED)
    small = worklog.Shape.of(256)
    assert 1e3 * fp32 / run.calibration.copy_gbs < small.flops / small.compulsory_bytes, "right of both ridges"
    assert rates["naive"] == pytest.approx(run.gpu.fp32_peak_tflops / 132, rel=0.1), "exercise 2"


def test_the_compilers_numbers_of_07() -> None:
    text = shown("07")
    [table] = re.findall(r"^128 128 8  1.*\n(?:.*\n){2}.*$", text, re.MULTILINE)
    one, two, wide, squeezed = ([int(word) for word in line.split()[-3:]] for line in table.splitlines())
    assert 0 < one[0] - two[0] <= 4 and one[1:] == [0, 1] and two[1:] == [0, 2], "a few registers too many"
    assert wide[0] - squeezed[0] > 50 and wide[1:] == [0, 1] and squeezed[1] > 0 and squeezed[2] == 2, "it spills"
    tiles = ("BM=.* MIN_BLOCKS=2:", "autotuned, its own tile:", "either:")
    gained, own, adds = (numbers(text, row)[0] for row in tiles)
    assert 1 < gained < adds and 1 < own < adds, "ms at 4096"
    x, y = worklog.rung("autotuned").blocks(worklog.Shape.of(1024))
    assert x * y < worklog.open_run().gpu.multiprocessors / 2


def test_the_sweep_answers_the_questions_of_07() -> None:
    text = shown("07")
    assert all(abs(how) < 0.6 for how in numbers(text, "order:")), "it follows none of them"
    (without, spilled), (few, _, more, _) = numbers(text, "spill:"), numbers(text, "8 x 8:")
    assert without > 3 * spilled and 1.05 * few < more < without
    assert numbers(text, "noise:")[-1] < 1 and numbers(text, "best:") == [128, 256, 16, 1]


def test_the_bugs_of_08_are_found_in_the_cells_lines(few_shapes: None) -> None:
    (racy, race), (_, outside), (fixed, passed) = (cell for cell in cells("08") if cell[0].startswith("%%rung"))
    reads, writes = map(int, re.findall(r"reads \(line (\d+)\) and thread \d+ writes \(line (\d+)\)", race)[0])
    lines = racy.splitlines()
    assert lines[reads - 1].lstrip().startswith("for (int k = 0") and "As[y][x] = " in lines[writes - 1]
    assert all(f"end of {matrix}" in outside for matrix in "ABC") and re.search(r"mine:? +skipped", passed)
    rounded = "__uint_as_float((__float_as_uint(As[y][k]) + 0x1000u) & 0xffffe000u)"
    source, launch = fixed.partition("\n")[2].replace("As[y][k]", rounded), {"grid": "(N + 15) // 16, (M + 15) // 16"}
    for claimed in ("tf32", "fp32"):
        kernel = worklog.Kernel.from_source(source, file="cell", block="16,16", claimed=claimed, **launch)
        assert check(kernel, worklog.Shape(48, 40, 24), on="emulated", seed=1).verdict.accepted == (claimed == "tf32")


def test_eight_elements_need_fewer_wavefronts_than_four_but_more_than_half() -> None:
    [four] = [source.split('"""')[1].removeprefix("\\\n") for source, _ in cells("08") if source.startswith("FOUR")]
    eight = re.sub(r"\b64\b", "128", four).replace("acc[4]", "acc[8]").replace("i < 4;", "i < 8;")
    waves = []
    for rows, text in ((64, four), (128, eight)):
        grid = f"(N + 15) // 16, (M + {rows - 1}) // {rows}"
        counts = inspect(worklog.Kernel.from_source(text, grid=grid, block="16,16")).counts
        waves.append((counts.shared_load.wavefronts + counts.shared_store.wavefronts) / counts.instructions["fma"])
    assert 0.5 < waves[1] / waves[0] < 0.95


def test_the_groups_of_harnesses_in_09() -> None:
    compared = open_comparison()
    warm, cublas = {"NVBench batch", "do_bench_cudagraph", "torch Timer"}, compared.us(CUBLAS, 1024)
    assert max(cublas[name] for name in warm) < min(time for name, time in cublas.items() if name not in warm)
    errors = {name: np.array([error for _, error in points]) for name, points in compared.errors().items()}
    for name in ("worklog", "worklog, CUPTI", "NVBench cold"):
        assert np.ptp(errors[name][:-1]) < 0.25, "a constant"
    for name in ("torch Timer", "NVBench batch"):
        short = [compared.us(KNOWN, length)[name] for length in (1, 5)]
        assert short[1] / short[0] < 1.6, "a lower limit"
    assert all(point["nvbench_s"] > 2 * point["worklog_s"] for point in compared.document["promises"]["wall_s"])
    seconds = [compared.wall_s(CUBLAS, size) for size in compared.works(CUBLAS)[:2]]
    quick = {name for wall in seconds for name, s in wall.items() if s < 1.25 * wall["worklog"]}
    assert sum("worklog" not in name for name in quick) >= 2


def test_each_bug_of_11_is_found_and_each_fix_is_clean() -> None:
    """Sections 2 to 4 by the gate, 5 to 8 by a finding of the emulator; the record has hundreds of kernels."""
    shown_by = [text for _, text in cells("11")]
    verdicts = [text for text in shown_by if text.startswith(("failed", "passed"))]
    assert [text.split()[0] for text in verdicts] == ["failed", "passed", "failed"]
    swapped = next(text for text in shown_by if text.startswith("grid"))
    assert re.findall("passed|failed", swapped) == ["passed", "failed", "passed"]
    kinds = re.findall(r"^line \d+: ([\w-]+)", shown("11"), re.MULTILINE)
    assert kinds == ["shared-race"] * 3 + ["missing-wait", "undefined-shuffle"]
    assert len(re.findall(r"^none", shown("11"), re.MULTILINE)) == 4
    total, share = re.findall(r"^(\d+) kernels, \d+ tried: (\d+)% covered", shown("11"), re.MULTILINE)[0]
    assert int(total) > 1000 and int(share) >= 90


def test_each_step_past_warptiled_fits_without_spills_and_a_broken_hand_over_is_found() -> None:
    text = shown("12")
    rows = {
        found[0]: found[1:]
        for found in re.findall(r"^([a-z]\w+) +([\d.]+) +([\d.]+) +\d+ +(\d+) +([\d.]+)", text, re.M)
    }
    assert len(rows) == 6 and all(row[2] == "0" for row in rows.values())
    assert rows["lane_map"][3] > rows["async_copies"][3] > rows["barriers"][3] < rows["specialized"][3]
    assert rows["lane_map"][1] == rows["barriers"][1] > rows["specialized"][1] == rows["bulk_copies"][1]
    assert len(re.findall(r"^as it is\n  no finding$", text, re.MULTILINE)) == 1
    assert re.findall(r"(early-overwrite|missing-wait): thread", text) == ["early-overwrite", "missing-wait"]


def test_promotion_every_128_k_beats_fp32_multiply_adds_beyond_1024_and_split_keeps_fp32s_range() -> None:
    text = shown("13")

    def errors(name: str) -> list[float]:
        [line] = re.findall(rf"{name}: ((?:[\d.]+ at \d+,? ?)+)", text)
        return [float(error) for error in re.findall(r"([\d.]+) at", line)]

    promoted, never, fp32 = map(errors, ("promoted every 128 k", "never promoted", "FP32 multiply-adds"))
    assert all(ours < theirs for ours, theirs in zip(promoted[3:], fp32[3:], strict=True)) and len(promoted) == 6
    assert all(after > 1.7 * before for before, after in pairwise(never))
    assert len(re.findall(r"^split .* as FP32$", text, re.MULTILINE)) == 5
    assert not re.search(r"^split .* not as FP32$", text, re.MULTILINE)
    assert len(re.findall(r"(?:missing-fence|early-overwrite): thread", text)) == 2
