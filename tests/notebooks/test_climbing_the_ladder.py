"""What 05_climbing_the_ladder says in prose is true of the counts and of the recording."""

from __future__ import annotations

import re
from itertools import pairwise

import nbformat
import pytest

import worklog
from worklog.analysis.access_pattern import touches
from worklog.analysis.traffic import traffic
from worklog.kernel import sass
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab.notebooks import FOLDER

NAMES = [rung.name for rung in worklog.LADDER]
COUNTED = traffic()


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")


def needs(name: str) -> dict[str, float]:
    """The notebook's floors, in milliseconds. Rungs with shared memory look up next to nothing in L1."""
    counts, gpu = COUNTED.rungs[name], worklog.open_run().device
    lines = {"naive": 16.5, "coalesced": 1.0}.get(name, 8.0)
    clocks = gpu["multiprocessors"] * gpu["sm_clock_mhz"] * 1e3
    return {
        "multiply-adds": COUNTED.shape.flops / gpu["fp32_peak_tflops"] / 1e9,
        "L1 lines": counts.load_requests * lines / clocks,
        "shared wavefronts": counts.wavefronts / clocks,
    }


def measured(name: str) -> float:
    us = worklog.results([name], [4096]).measurements[0].us
    assert us is not None
    return us / 1e3


def recorded_names() -> list[str]:
    """Rungs of the ladder that the recording holds."""
    return [m.kernel for m in worklog.results(sizes=[4096]).measurements if m.kernel in NAMES]


def above(name: str) -> float:
    return measured(name) / max(needs(name).values())


@pytest.mark.parametrize(("name", "lines"), [("naive", [1, 32]), ("coalesced", [1, 1])])
def test_lines_of_the_first_two_rungs(name: str, lines: list[int]) -> None:
    requests = touches(worklog.rung(name)).requests
    loads = {(r.memory, len(set((r.floats // 32).flat))) for r in requests if not r.is_store}
    assert sorted(count for _, count in loads) == lines


def test_each_rung_is_faster_than_the_one_before() -> None:
    times = [measured(name) for name in recorded_names()]
    assert all(after < before for before, after in pairwise(times))
    assert times[1] / times[-1] > 5, "from coalesced on they fall to a small part"


def test_naive_sits_on_its_floor_and_the_others_a_constant_factor_above() -> None:
    assert 1 <= above("naive") < 1.2 < above("coalesced")
    factors = [above(name) for name in recorded_names()[1:]]
    assert min(factors) > 1 and max(factors) < 1.35 * min(factors)


def test_the_bottleneck_moves_from_l1_to_shared_memory_to_the_multiply_adds() -> None:
    busiest = [max(needs(name), key=lambda what: needs(name)[what]) for name in NAMES]
    assert busiest == ["L1 lines"] * 2 + ["shared wavefronts"] * 4 + ["multiply-adds"] * 6


def test_shared_memory_saves_a_twentieth_and_is_not_twice_as_fast() -> None:
    before, after = COUNTED.rungs["coalesced"], COUNTED.rungs["shared"]
    assert 0.04 < after.sectors_per_fma / before.sectors_per_fma < 0.06
    assert 1 < measured("coalesced") / measured("shared") < 2


def test_conflicts_are_where_the_prose_sees_them() -> None:
    shares = {name: COUNTED.rungs[name].conflict_share for name in NAMES}
    assert shares["tiles_2d"] > 0.3 and shares["vectorized"] > 0.3
    assert shares["shared"] == shares["tiles_1d"] == 0
    assert [shares[name] for name in NAMES[6:-1]] == [0] * 5, "from conflict_free on"
    assert 0 < shares["warptiled"] < 0.1
    one, two = COUNTED.rungs["tiles_1d"], COUNTED.rungs["tiles_2d"]
    assert 1 > two.wavefronts / one.wavefronts > 0.6, "paper promised a quarter"


def test_the_zigzag_reads_fewer_registers() -> None:
    tool = sass.disassembler()
    if tool is None:
        pytest.skip(sass.HOW_TO_GET)
    reads = []
    for name in ("pipelined", "register_banks"):
        rung = worklog.rung(name)
        compiled = compile_cuda(rung.source, rung.entry, options=rung.options)
        reads.append(sass.register_reads(sass.disassemble(compiled.cubin, tool), compiled.symbol))
    assert reads[0] > 2 > 1.6 > reads[1]


def test_padding_cures_the_write_of_as_and_quads_the_read_of_bs() -> None:
    """The dead end's table, which test_notebooks holds to a fresh run."""
    cells = nbformat.read(FOLDER / "05_climbing_the_ladder.ipynb", as_version=4).cells
    [table] = [cell.outputs[-1]["data"]["text/html"] for cell in cells if "rows of Bs padded" in cell.source]
    rows = re.findall(r"<th>(.+?)</th>((?:\s*<td>[\d.]+</td>){4})", table)
    found = {name: [float(number) for number in re.findall(r"[\d.]+", numbers)] for name, numbers in rows}
    plain, padded_b, padded_a, quads = found.values()
    assert padded_b == plain and min(plain) > 0
    assert padded_a[:2] == plain[:2] and padded_a[3] == 0
    assert quads[1] == 0 and quads[2:] == plain[2:]


def test_the_exercises() -> None:
    gpu, naive = worklog.open_run().device, COUNTED.rungs["naive"]
    by_sectors = naive.load_sectors / 4 / gpu["multiprocessors"] / gpu["sm_clock_mhz"] / 1e3
    assert 0.2 < by_sectors / measured("naive") < 0.3, "a quarter of its time"
    vectorized = COUNTED.rungs["vectorized"]
    left = needs("vectorized")["shared wavefronts"] * (1 - vectorized.conflict_share)
    assert left < needs("vectorized")["multiply-adds"]
