"""Mutants of kernels: which edits are made and drawn, and what becomes of a mutant."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.record import mutants
from tests.record.mutants import (
    EQUAL,
    FULL,
    NOT_COMPILED,
    QUICK,
    SURVIVED,
    TOO_SLOW,
    UNEDITED,
    Outcome,
    tried,
)
from tests.record.mutations import Edit, drawn, edits
from worklog.kernel import rung

SOURCE = Path(__file__).with_name("mutated.cu").read_text(encoding="utf-8")
LADDER = ("shared", "double_buffered", "bulk_copies", "tf32")


def test_comments_heads_and_assertions_are_left_and_no_line_is_added():
    every = edits(SOURCE)
    assert {SOURCE.count("\n", 0, edit.start) + 1 for edit in every} == {5, 6, 7, 8, 9, 10}
    for edit in every:
        mutant = edit.applied(SOURCE)
        assert mutant != SOURCE and mutant.count("\n") == SOURCE.count("\n")
    assert "bar.sync 1, 127;" in "".join(edit.applied(SOURCE) for edit in every)


def test_a_line_above_leaves_the_names_of_edits_and_no_two_share_a_name():
    names = [str(edit) for edit in edits(SOURCE)]
    assert names == [str(edit) for edit in edits("// a comment\n" + SOURCE)]
    again = edits(SOURCE + SOURCE)  # each line twice
    assert len({str(edit) for edit in again}) == len(again)


@pytest.mark.parametrize(
    ("name", "kind", "old", "new"),
    [
        ("shared", "thread index", "threadIdx.x", "(threadIdx.x + 1)"),
        ("shared", "trip count", "k0 < K", "k0 + BK < K"),
        ("shared", "trip count", "k0 += BK", "k0 += 2 * BK"),
        ("shared", "trip count", "++k", "k += 2"),
        ("shared", "initial value", "acc = 0.0f", "acc"),
        ("tiles_2d", "initial value", "acc[TM][TN] = {}", "acc[TM][TN] = {1.0f}"),
        ("shared", "weaker barrier", "__syncthreads();", "__syncwarp();"),
        ("async_copies", "vector width", "copy<16>(", "copy<4>("),
        ("shared", "narrow sum", "float ", "int "),
        ("shared", "narrow index", "int", "short"),
        ("double_buffered", "stale buffer", "buffer ^ 1", "buffer"),
        ("bulk_copies", "stale buffer", " % 2 ^ 1", " % 2"),
        ("shared", "guard", "beta == 0.0f", "false"),
        ("double_buffered", "guard", "(k0 + BK < K)", "(false)"),
        (
            "shared",
            "order of alpha and beta",
            "alpha * acc + beta * *c",
            "alpha * (acc + beta * *c)",
        ),
        ("shared", "stride", "K", "(K - 1)"),
        ("conflict_free", "padding", "BM + 4", "BM"),
        ("shared", "store", "*c = ", "*c += "),
    ],
)
def test_each_rule_makes_the_mistake_that_it_is_named_after(name, kind, old, new):
    assert any(
        (edit.kind, edit.old, edit.new) == (kind, old, new) for edit in edits(rung(name).source)
    )


def test_a_part_of_the_sum_a_return_and_a_float2_are_put_in_their_place():
    source = rung("vectorized").source
    by_kind = {kind: [] for kind in ("part of the sum", "early return", "vector width")}
    for edit in edits(source):
        if edit.kind in by_kind:
            by_kind[edit.kind].append(edit.applied(source))
    assert any("k0 += BK) { if (k0 > 0) break;" in text for text in by_kind["part of the sum"])
    assert any("if (threadIdx.x >= 32) return; for (int k0" in t for t in by_kind["early return"])
    assert any("*(float2*)&b[j] = *(const float2*)" in text for text in by_kind["vector width"])


def test_a_moved_barrier_stands_before_the_statement_that_it_followed():
    source = rung("shared").source
    (moved,) = [edit for edit in edits(source) if edit.kind == "moved barrier"]
    mutant = moved.applied(source)
    assert sorted(mutant.splitlines()) == sorted(source.splitlines())
    assert mutant.index("__syncthreads()") < mutant.index("Bs[row][col] = B")


def test_edits_are_drawn_from_kernels_and_kinds_in_turn_by_the_seed():
    sources = {name: rung(name).source for name in LADDER}
    taken = drawn(sources, 90, 1)
    assert taken == drawn(sources, 90, 1) != drawn(sources, 90, 2)
    assert sorted(Counter(name for name, _ in taken).values()) == [22, 22, 23, 23]
    assert len(set(taken)) == 90
    kinds = Counter(edit.kind for name, edit in taken if name == "bulk_copies")
    assert max(kinds.values()) == 1  # of 24 kinds
    few = drawn({"small": SOURCE, "shared": sources["shared"]}, 200, 1)
    counts = Counter(name for name, _ in few)
    assert counts == {"small": len(edits(SOURCE)), "shared": 200 - len(edits(SOURCE))}


def edit_of(name: str, kind: str, old: str, new: str) -> Edit:
    """Return the first such edit of a kernel."""
    for edit in edits(mutants.kernels()[name][0].source):
        if (edit.kind, edit.new) == (kind, new) and edit.old.startswith(old):
            return edit
    raise LookupError(f"{name} has no edit {old} → {new}")


@pytest.mark.parametrize(
    ("name", "edit", "limit_s", "result"),
    [
        ("guarded_tiles", ("name", "row", "col"), 60, NOT_COMPILED),
        ("guarded_tiles", ("alpha, beta", "alpha", "-alpha"), 60, "exact on edge shapes"),
        ("tiles", ("synchronisation", "__syncthreads", ";"), 60, "finding"),
        ("guarded_tiles", ("statement", "As[", ";"), 1e-6, TOO_SLOW),
    ],
)
def test_what_becomes_of_a_mutant_is_told_apart(name, edit, limit_s, result):
    outcome = tried(name, edit_of(name, *edit), limit_s=limit_s)
    assert outcome.result == result
    assert outcome.is_killed == (result in ("exact on edge shapes", "finding"))


def test_a_mutant_that_is_equal_at_one_tile_is_killed_by_the_other(monkeypatch):
    small, own = mutants.kernels()["tiles_2d"]
    edit = edit_of("tiles_2d", "name", "TM", "TN")
    monkeypatch.setattr(mutants, "kernels", lambda: {"tiles_2d": (own,)})
    assert tried("tiles_2d", edit).result == EQUAL  # TM is TN
    monkeypatch.setattr(mutants, "kernels", lambda: {"tiles_2d": (own, small)})
    outcome = tried("tiles_2d", edit)
    assert outcome.is_killed and outcome.tile == mutants.tile_text(small)


def test_every_rung_has_two_tiles_that_differ():
    for name in mutants.SMALL_TILES:
        small, own = mutants.kernels()[name]
        assert small.source == own.source and small.entry != own.entry
        assert small.thread_count <= own.thread_count


def test_a_kernel_that_fails_unedited_is_told_and_a_right_one_passes(monkeypatch):
    small, own = mutants.kernels()["shared"]
    wrong = own.with_text(own.source.replace("alpha * acc", "acc"))
    monkeypatch.setattr(mutants, "kernels", lambda: {"shared": (small, wrong)})
    passed = mutants.unedited("shared", 0)
    failed = mutants.unedited("shared", 1)
    assert (passed.result, passed.is_killed) == (SURVIVED, False)
    assert failed.is_killed and failed.tile == failed.edit == mutants.tile_text(own)


KILLED = Outcome(
    "shared",
    "03_shared.cu",
    "bound",
    "1:1: < → >",
    "finding",
    "a race",
    tile=mutants.tile_text(rung("shared")),
    effort=QUICK,
    seconds=1.0,
)
SURVIVOR = replace(KILLED, edit="1:1: < → !=", result=SURVIVED, detail="", tile="")


def test_the_table_counts_by_kernel_and_kind_and_a_survivor_has_its_reason():
    unchanged = replace(SURVIVOR, kind="name", edit="2:1: M → N", result=EQUAL)
    noted = replace(SURVIVOR, detail=mutants.SEPARATOR.join(["fp32", "a note", "of its own"]))
    original = replace(noted, kind=UNEDITED, detail=mutants.SEPARATOR.join(["fp32", "a note"]))
    explained = {SURVIVOR.name: "the same trips"}
    document = mutants.record([KILLED, noted, unchanged], [original], explained)
    results = {"finding": 1, SURVIVED: 1, EQUAL: 1}
    assert document["rows"] == [{"kernel": "shared", "mutants": 3, "results": results}]
    assert [(row["kind"], row["mutants"]) for row in document["kinds"]] == [
        ("bound", 2),
        ("name", 1),
    ]
    assert document["killed"] == {
        "all": 1,
        "at the own tile only": 1,
        "by the full check only": 0,
    }
    assert document["unedited"] == {"checks": 1, "refused": []}
    (survivor,) = document["survivors"]
    assert (survivor["mutant"], survivor["explained"]) == (SURVIVOR.name, "the same trips")
    assert survivor["found"] == "of its own"


@pytest.mark.parametrize("name", ["2026-11-27", mutants.RECORDED.stem])
def test_every_recorded_survivor_has_a_reason(name):
    path = mutants.FOLDER / f"{name}.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert recorded["rows"] and all(survivor["explained"] for survivor in recorded["survivors"])


def test_a_stopped_run_goes_on_and_only_survivors_are_checked_in_full(tmp_path, monkeypatch):
    found = {"1:1: < → >": KILLED, "1:1: < → !=": SURVIVOR}
    mutations = [
        ("shared", Edit("bound", 0, "1", 1, 1, "<", ">")),
        ("shared", Edit("bound", 0, "1", 1, 1, "<", "!=")),
    ]
    asked = []

    def run(function, wanted, path, jobs):
        asked.extend((effort, str(edit)) for _, edit, effort in wanted)
        return {(n, str(e)): replace(found[str(e)], effort=effort) for n, e, effort in wanted}

    monkeypatch.setattr(mutants, "_run", run)
    path = tmp_path / "outcomes.jsonl"
    row = asdict(KILLED) | {"source": mutants.digest("shared")}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    outcomes = mutants.all_outcomes(mutations, path, jobs=1, full=True)
    assert asked == [(QUICK, "1:1: < → !="), (FULL, "1:1: < → !=")]
    assert outcomes == [KILLED, replace(SURVIVOR, effort=FULL)]


def test_outcomes_of_another_source_are_tried_again_and_the_last_line_counts(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    assert mutants.read_outcomes(path) == {}
    ours = {"source": mutants.digest("shared")}
    rows = [
        asdict(SURVIVOR) | ours,
        asdict(replace(SURVIVOR, effort=FULL)) | ours,
        asdict(KILLED) | {"source": "another"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert mutants.read_outcomes(path) == {
        ("shared", SURVIVOR.edit): replace(SURVIVOR, effort=FULL)
    }
