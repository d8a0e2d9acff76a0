"""Counters of Nsight Compute.

What it printed on an H100 is read, compared with the emulator's counts, and kept.
"""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.text import Text

from tests.helpers import GPU, measured, small_run, typed
from worklog import plots
from worklog.errors import BadRunFile, WorklogError
from worklog.gpu import profile
from worklog.gpu.profile import COUNTS, SECTORS, counters_of, limit, profiled, tables
from worklog.kernel import LADDER, rung
from worklog.kernel.ladder import FP32, TENSOR, counters
from worklog.problem import Shape
from worklog.runs import Counters, Run, recordings

FOLDER = Path(__file__).with_name("ncu")
SHAPE = Shape.of(2048)
SOURCE = (FOLDER / "shared_source.csv").read_text()
# In place of ncu, with what it printed of `shared`.
NCU = f"""#!{sys.executable}
import pathlib, sys
words = sys.argv[1:]
if "-o" in words:
    pathlib.Path(words[words.index("-o") + 1]).touch()
elif "--version" in words:
    print("Nsight Compute\\nVersion 2025.3.1.0 (build 36398880)")
else:
    name = "shared_raw.csv" if "raw" in words else "shared_source.csv"
    print(pathlib.Path({str(FOLDER)!r}, name).read_text())
"""


FEW = {
    "L1 and shared": 24.0,
    "warps resident": 6.3,
    "warps possible": 12.5,
}  # warptiled at 1024: 64 blocks, 132 SMs


def raw(name: str = "shared") -> str:
    return (FOLDER / f"{name}_raw.csv").read_text()


def recorded(name: str) -> Counters:
    return counters_of(
        name, SHAPE, raw=raw(name), source=SOURCE if name == "shared" else "", version="2025.3"
    )


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    """Put an ncu on PATH, whose text a test may change."""
    path = tmp_path / "ncu"
    path.write_text(NCU)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(profile, "gpu", lambda: GPU)
    return path


def test_counts_of_the_hardware_are_the_emulators():
    """Sectors and wavefronts within 1 %, but for repeated shared stores, which a note explains."""
    for name in ("shared", "warptiled"):
        table = tables(recorded(name), rung(name))[0]
        off = {str(row[0]): str(row[3]) for row in table.rows if str(row[3])}
        assert len(off) >= 7, name
        for count, percent in off.items():
            assert abs(float(percent.rstrip(" %"))) < (
                20 if count.startswith("shared store") else 0.05
            ), (name, count)
        assert any("repeats" in note for note in table.notes)


def test_units_stalls_occupancy_and_lines_are_read():
    counted = recorded("shared")
    values = counted.values
    assert (values["issue slots"], values["L1 and shared"], values["warps resident"]) == (
        41.03,
        89.82,
        98.39,
    )
    assert values["pipe lsu"] == 76.61 and values["bytes of DRAM"] == pytest.approx(
        45.7e6, rel=0.01
    )
    assert max(counted.stalls, key=lambda name: counted.stalls[name]) == "mio_throttle"
    assert not any("Issued" in name for of in counted.lines.values() for name in of)
    shares = dict(tables(counted, rung("shared"))[1].rows)
    waits = [
        float(share.rstrip(" %")) for name, share in shares.items() if name.startswith("warps: ")
    ]
    assert (
        max(waits) == waits[0] == float(shares["warps: mio_throttle"].rstrip(" %"))
        and 95 < sum(waits) <= 100.1
    )
    where = tables(counted, rung("shared"))[2].rows[0]
    assert (
        list(map(str, where))[0::3] == ["39", "acc += As[row][k] * Bs[k][col];"]
        and str(where[2]) == "mio"
    )


def test_bytes_between_l1_and_l2_are_its_sectors_where_they_are_counted():
    header, units, numbers = raw().splitlines()
    more = "\n".join((f'{header},"{SECTORS}"', f'{units},"sector"', f'{numbers},"1,000"'))
    assert (
        counters_of("shared", SHAPE, raw=more, source="", version="2025.3").values["bytes of L2"]
        == 32_000
    )


@pytest.mark.parametrize(
    ("changed", "cause", "attacked"),
    [
        ({}, "loads and stores", "tiles_2d"),
        ({"shared_load.conflicts": 3e8}, "bank conflicts", "conflict_free"),
        ({"global_load.sectors": 17e7}, "many sectors", "coalesced"),
        ({"L1 and shared": 30.0}, "the queue of shared-memory", "tiles_2d"),
        ({"DRAM": 95.0}, "bytes of DRAM", "shared"),
        ({"issue slots": 95.0}, "instructions beside", "vectorized"),
        ({"issue slots": 95.0, "FP32 cores": 90.0}, "multiply-adds themselves", "split"),
        (
            {"L1 and shared": 30.0},
            "(issue slots 41 % busy, and 50 % of the warps' cycles wait for mio_throttle)",
            "tiles_2d",
        ),
        (
            FEW,
            (
                "different times (issue slots 41 % busy, and 6 % of the warps resident where 12 % "
                "are possible)"
            ),
            "",
        ),
    ],
)
def test_one_sentence_says_what_limits_and_which_rung_attacked_it(changed, cause, attacked):
    counted = recorded("shared")
    said = limit(replace(counted, kernel="mine", values=counted.values | changed), "sm_90")
    assert said.startswith("mine is limited by ") and cause in said
    assert (f"; {attacked} attacked that" in said) == bool(attacked)


def test_multiprocessors_without_a_block_are_told_apart_from_warps_that_wait():
    run = Run.load(recordings("chapters")["h200_small"], "recorded")
    said = {counted.kernel: limit(counted, run.gpu.arch) for counted in run.counters}
    for name in ("specialized", "bulk_copies"):  # 32 blocks for 132 multiprocessors
        rows, columns = rung(name).blocks(Shape.of(1024))
        idle = 100 - 100 * rows * columns / run.gpu.multiprocessors
        percent = float(re.search(r"([\d.]+) % of the multiprocessors' time", said[name])[1])
        assert percent == pytest.approx(idle, abs=4)
    assert "L1 and shared 96 % busy" in said["naive"]
    assert said["ragged"].startswith("ragged isn't limited by one thing (issue slots 66 % busy")


def test_a_counter_that_is_no_number_or_missing_is_refused_by_name():
    name = COUNTS["shared_load.wavefronts"]
    for value, why in (("nan", f"counts NaN for {name}"), ("", f"has no counter {name}")):
        broken = raw().replace('"402,765,402"', f'"{value}"')
        assert broken != raw()
        with pytest.raises(WorklogError, match=f"ncu 2025.3 {why}"):
            counters_of("shared", SHAPE, raw=broken, source="", version="2025.3")


def test_one_launch_is_profiled_and_the_run_keeps_it(ncu, tmp_path):
    counted = profiled(rung("shared"), SHAPE)
    assert counted == replace(recorded("shared"), ncu="2025.3.1.0")
    run = small_run(
        measurements=[measured("shared", n=2048)],
        kernels={"shared": {"tile": {"BM": 32, "BN": 32}}},
    )
    run.save(tmp_path / "run.jsonl")
    run.add_counters(counted)
    again = Run.load(tmp_path / "run.jsonl")
    assert again.counters == [counted] and Run.load(
        again.save(tmp_path / "copy.jsonl")
    ).counters == [counted]
    words = " ".join(text.get_text() for text in plots.roofline(again).findobj(Text)).replace(
        "\n", " "
    )
    assert (
        "by what Nsight Compute counted" in words
        and "bytes of shared: this run's counters" in words
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1",
            "run as root, or let everyone",
        ),
        (
            "echo '==ERROR== Failed to find metric x'; exit 1",
            "ncu exited with 1: ==ERROR== Failed to find metric x",
        ),
        (
            "echo 'No kernels were profiled.'",
            "ncu saw no launch of sgemm_shared: No kernels were profiled.",
        ),
    ],
)
def test_what_ncu_refuses_is_one_line_that_says_what_to_do(ncu, script, why):
    ncu.write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(WorklogError) as caught:
        profiled(rung("shared"), SHAPE)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_without_ncu_or_a_gpu(monkeypatch, laptop):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(WorklogError, match="no ncu on PATH: install"):
        profiled(rung("shared"), SHAPE)
    shown = typed("profile", "warptiled")
    assert shown.exit_code == 0 and "recorded" in shown.stdout and "issue slots" in shown.stdout
    of_any_size = typed("profile", "naive", "--size", "100", "--json")
    assert json.loads(of_any_size.stdout)["label"].startswith("recorded · NVIDIA H200"), (
        "what is recorded"
    )


def test_recorded_counters_are_of_this_source_and_a_rung_without_is_named():
    table = counters([rung.name for rung in (*LADDER, *FP32, *TENSOR)])
    assert not any("changed" in note for note in table.notes)
    assert table.title.startswith("recorded · NVIDIA H200 · ") and table.title.endswith("2048")
    busiest = {str(row[0]): str(row[-1]) for row in table.rows}
    assert busiest["naive"] == "L1 and shared" and busiest["split"] == "tensor cores"
    assert all(
        0 <= float(str(cell).removesuffix(" %")) <= 100 for row in table.rows for cell in row[1:-1]
    )
    fewer = counters(["naive", "best"])
    assert [row[0] for row in fewer.rows] == ["naive"] and fewer.notes == [
        "no counters are recorded of: best"
    ]
    with pytest.raises(BadRunFile, match=r"no counters of best are recorded: choose from naive, "):
        counters(["best"])
