"""What 07_autotuning_and_beyond says in prose is true of its outputs, which test_notebooks holds to a fresh run, and of
the recording."""

from __future__ import annotations

import re

import nbformat
import pytest

import worklog
from worklog.lab.notebooks import FOLDER


@pytest.fixture(scope="module")
def said() -> str:
    """All text outputs."""
    notebook = nbformat.read(FOLDER / "07_autotuning_and_beyond.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(o.get("text") or str(o.get("data", {}).get("text/plain")) for o in outputs)


def test_two_registers_too_many_and_many_more(said: str) -> None:
    [table] = re.findall(r"^128 128 8  1.*\n(?:.*\n){2}.*$", said, re.MULTILINE)
    (r1, s1, b1), (r2, s2, b2), (r3, s3, b3), (r4, s4, b4) = [
        [int(word) for word in line.split()[-3:]] for line in table.splitlines()
    ]
    assert (r1 - r2, s1, s2, b1, b2) == (2, 0, 0, 1, 2)
    assert r3 - r4 > 50 and s3 == 0 < s4 and (b3, b4) == (1, 2)


def test_shared_memory_is_not_what_decides(said: str) -> None:
    shared = [float(ms) for ms in re.findall(r"([\d.]+) ms in shared memory at least", said)]
    [adds] = [float(ms) for ms in re.findall(r"([\d.]+) ms in multiply-adds at least", said)]
    assert len(shared) == 2 and max(shared) < adds


def test_the_dead_ends(said: str) -> None:
    lines = re.findall(r"^(\w+) +(?:as it is|changed) +(\d+) registers, (.*)$", said, re.MULTILINE)
    (_, as_it_is, wide), (_, unrolled, same), (_, kept, _), (_, other, _) = lines
    assert wide == same and "LDS.128" in wide and int(as_it_is) < int(unrolled)
    assert kept != other


def test_the_tile_that_wins_at_4096_loses_at_1024(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    run = worklog.results(["tiles_1d", "autotuned"], [1024, 4096])
    rates = {(m.kernel, m.shape[0]): m.tflops or 0.0 for m in run.measurements}
    assert rates["autotuned", 4096] > 2 * rates["tiles_1d", 4096]
    assert rates["autotuned", 1024] < rates["tiles_1d", 1024]
    x, y = worklog.rung("autotuned").blocks(worklog.Shape.of(1024))
    assert x * y < run.device["multiprocessors"] / 2
