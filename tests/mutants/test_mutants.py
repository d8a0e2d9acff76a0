"""Each kind of edit is made where it can be, what becomes of a mutant is told apart, and survivors need a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.mutants import __main__ as command
from tests.mutants.edits import Edit, chosen, edits
from tests.mutants.trial import NOT_COMPILED, SURVIVED, TOO_SLOW, Outcome, kernels, tried
from worklog.runs import recordings

SOURCE = """// 1 + 1
template <int BM = 8>
__global__ void __launch_bounds__(BM * 2) k(int M, float alpha, float* C) {
  static_assert(BM > 4, "small");
  __shared__ float As[8][BM];
  if (threadIdx.x >= M) return;
  As[threadIdx.x][0] = alpha * M;
  __syncthreads();
  asm volatile("bar.sync 1, 128;" ::: "memory");
  C[(size_t)threadIdx.x * 2] = As[0][1];
}
"""


def test_every_kind_of_edit_is_made_and_comments_heads_and_assertions_are_left() -> None:
    every = edits(SOURCE)
    assert {one.kind for one in every} == {
        *("operator", "bound", "constant", "index", "name", "alpha, beta", "guard", "statement", "synchronisation")
    }
    assert {one.line for one in every} == {5, 6, 7, 8, 9, 10}
    for one in every:
        mutant = one.applied(SOURCE)
        assert mutant != SOURCE and mutant.count("\n") == SOURCE.count("\n")
    assert "bar.sync 1, 127;" in "".join(one.applied(SOURCE) for one in every)


def test_a_choice_follows_its_seed_and_holds_every_kind() -> None:
    every = edits(SOURCE)
    assert chosen(every, 9, 1) == chosen(every, 9, 1) != chosen(every, 9, 2)
    assert len({one.kind for one in chosen(every, 9, 1)}) == 9 == len(chosen(every, 9, 1))


def edit(name: str, kind: str, old: str, new: str) -> Edit:
    """The first such edit of a kernel."""
    return next(
        one for one in edits(kernels()[name].source) if one.kind == kind and one.new == new and one.old.startswith(old)
    )


def test_what_becomes_of_a_mutant_is_told_apart() -> None:
    survivor = Outcome("tiles", "tiles.cu", "bound", "1:1: < → !=", SURVIVED, "", 0.1)
    done = [
        tried("guarded_tiles", edit("guarded_tiles", "name", "row", "col"), 60),
        tried("guarded_tiles", edit("guarded_tiles", "alpha, beta", "alpha", "-alpha"), 60),
        tried("tiles", edit("tiles", "synchronisation", "__syncthreads", ";"), 60),
        survivor,
        tried("guarded_tiles", edit("guarded_tiles", "statement", "As[", ";"), 1e-3),
    ]
    assert [one.result for one in done] == [NOT_COMPILED, "exact on edge shapes", "finding", SURVIVED, TOO_SLOW]
    said = command.record(done, {survivor.name: "the same trips"})
    assert said["survivors"] == [{"mutant": survivor.name, "found": "", "explained": "the same trips"}]
    assert "not explained" not in str(command.table(said))
    assert f"not explained: {survivor.name}" in str(command.table(command.record(done, {})))


def test_the_command_exits_with_1_for_a_survivor_that_is_not_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Outcome("naive", "01_naive.cu", "bound", "1:1: < → <=", SURVIVED, "", 0.1)
    monkeypatch.setattr(command, "_all", lambda *_: iter([found]))
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    options = ["naive", "--out", str(tmp_path / "all.csv"), "--record", str(tmp_path / "table.json")]
    assert CliRunner().invoke(command.main, options).exit_code == 1
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 2
    (tmp_path / command.EXPLAINED).write_text(json.dumps({found.name: "equal"}))
    assert CliRunner().invoke(command.main, options).exit_code == 0
    assert json.loads((tmp_path / "table.json").read_text())["survivors"][0]["explained"] == "equal"
    monkeypatch.setattr(command, "_all", lambda *_: iter([replace(found, kernel="coalesced")]))
    kept = ["--keep", str(tmp_path / "all.csv"), "--record", str(tmp_path / "table.json")]
    assert CliRunner().invoke(command.main, ["coalesced", *kept], catch_exceptions=False).exit_code == 0
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["kernel"] for row in rows] == ["naive", "coalesced"]


def test_every_survivor_that_is_recorded_is_explained() -> None:
    ((_, path),) = (one for one in recordings(command.KIND).items() if one[0] != "explained")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert sum(row["mutants"] for row in document["rows"]) >= 700
    assert all(one["explained"] for one in document["survivors"])
