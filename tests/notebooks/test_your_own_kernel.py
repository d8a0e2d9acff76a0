"""What 08_your_own_kernel says in prose is true of its outputs, which test_notebooks holds to a fresh run; and of its
exercises."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

import worklog
from worklog.analysis.inspection import Inspection, inspect_file
from worklog.bench.check import check
from worklog.kernel import Kernel
from worklog.lab.notebooks import FOLDER

CELLS = [
    cell for cell in nbformat.read(FOLDER / "08_your_own_kernel.ipynb", as_version=4).cells if cell.cell_type == "code"
]
RACY, UNBOUNDED, MENDED = (cell for cell in CELLS if cell.source.startswith("%%rung"))


def shown(cell: nbformat.NotebookNode) -> str:
    return "\n".join(o.get("text") or str(o.get("data", {}).get("text/plain")) for o in cell.outputs)


def test_the_race_is_told_in_the_cells_lines() -> None:
    told = shown(RACY)
    reads, writes = map(int, re.findall(r"reads \(line (\d+)\) and thread 0 writes \(line (\d+)\)", told)[0])
    lines = RACY.source.splitlines()
    assert lines[reads - 1].lstrip().startswith("for (int k = 0") and "As[y][x] = " in lines[writes - 1]
    assert "shared-race" in told and told.rstrip().endswith("refused")


def test_the_missing_bounds_are_reads_and_writes() -> None:
    told = shown(UNBOUNDED)
    assert "global-out-of-bounds" in told and told.rstrip().endswith("refused")
    assert all(f"end of {matrix}" in told for matrix in "ABC")


def test_the_mended_one_has_its_row() -> None:
    told = shown(MENDED)
    assert "accepted as fp32" in told and re.search(r"mine skipped: the emulator gives no time", told)


def test_four_lies_between_its_neighbours() -> None:
    text = "\n".join(map(shown, CELLS))
    waves = {name: float(number) for name, number in re.findall(r"^(\w+) .* ([\d.]+) shared wavefronts", text, re.M)}
    assert waves["tiles_1d"] < waves["four"] < waves["shared"]
    times = {name: float(us) for name, us in re.findall(r"^(\w+) +([\d.]+) µs at 1024", text, re.M)}
    assert times["tiles_1d"] < times["shared"]


def inspected(folder: Path, elements: int) -> Inspection:
    """The notebook's kernel, with so many elements a thread."""
    [cell] = [cell for cell in CELLS if cell.source.startswith("FOUR")]
    source = cell.source.split('"""')[1].removeprefix("\\\n").replace("\\\n", "")
    rows = 16 * elements
    for old, new in (("[64]", f"[{rows}]"), ("* 64", f"* {rows}"), ("i < 64", f"i < {rows}")):
        source = source.replace(old, new)
    source = source.replace("acc[4]", f"acc[{elements}]").replace("i < 4;", f"i < {elements};")
    file = folder / "mine.cu"
    file.write_text(source, encoding="utf-8")
    return inspect_file(file, grid=f"(N + 15) // 16, (M + {rows - 1}) // {rows}", block="16,16")


def test_eight_elements_need_fewer_wavefronts_but_not_half(tmp_path: Path) -> None:
    def waves(elements: int) -> float:
        counts = inspected(tmp_path, elements).counts
        return (counts.shared_load.wavefronts + counts.shared_store.wavefronts) / counts.instructions["fma"]

    assert 0.6 < waves(8) / waves(4) < 0.95


@pytest.mark.parametrize(("claimed", "accepted"), [("tf32", True), ("fp32", False)])
def test_tf32_is_right_if_it_is_claimed(claimed: str, accepted: bool) -> None:
    rounded = "__uint_as_float((__float_as_uint(As[y][k]) + 0x1000u) & 0xffffe000u)"
    source = MENDED.source.partition("\n")[2].replace("As[y][k]", rounded)
    kernel = Kernel.from_source(
        source, file="cell", grid="(N + 15) // 16, (M + 15) // 16", block="16,16", claimed=claimed
    )
    verdict = check(kernel, worklog.Shape(48, 40, 24), on="emulated", seed=1).verdict
    assert verdict.accepted == accepted
    assert accepted or "low bits" in str(verdict.reason)
