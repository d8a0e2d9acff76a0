"""Each kind of edit is made where it can be, what becomes of a mutant is told apart, and survivors need a reason."""

from __future__ import annotations

import json
from pathlib import Path

from tests.record import mutants
from tests.record.edits import chosen, edits
from tests.record.mutants import NOT_COMPILED, SURVIVED, TOO_SLOW, Outcome, kernels, tried

SOURCE = Path(__file__).with_name("mutated.cu").read_text(encoding="utf-8")


def test_every_kind_of_edit_is_made_and_comments_heads_and_assertions_are_left() -> None:
    every = edits(SOURCE)
    kinds = ["operator", "bound", "constant", "index", "name", "guard", "statement", "synchronisation"]
    assert {edit.kind for edit in every} == {*kinds, "alpha, beta"}
    assert {edit.line for edit in every} == {5, 6, 7, 8, 9, 10}
    for edit in every:
        mutant = edit.applied(SOURCE)
        assert mutant != SOURCE and mutant.count("\n") == SOURCE.count("\n")
    assert "bar.sync 1, 127;" in "".join(edit.applied(SOURCE) for edit in every)
    assert chosen(every, 9, 1) == chosen(every, 9, 1) != chosen(every, 9, 2)
    assert len({edit.kind for edit in chosen(every, 9, 1)}) == 9


def tried_edit(name: str, kind: str, old: str, new: str, **how: float) -> Outcome:
    """What becomes of the first such edit of a kernel."""
    every = edits(kernels()[name].source)
    return tried(name, next(e for e in every if (e.kind, e.new) == (kind, new) and e.old.startswith(old)), **how)


def test_what_becomes_of_a_mutant_is_told_apart_and_a_survivor_needs_a_reason() -> None:
    survivor = Outcome("tiles", "tiles.cu", "bound", "1:1: < → !=", SURVIVED, "", 0.1)
    done = [
        tried_edit("guarded_tiles", "name", "row", "col"),
        tried_edit("guarded_tiles", "alpha, beta", "alpha", "-alpha"),
        tried_edit("tiles", "synchronisation", "__syncthreads", ";"),
        survivor,
        tried_edit("guarded_tiles", "statement", "As[", ";", limit_s=1e-6),
    ]
    results = [NOT_COMPILED, "exact on edge shapes", "finding", SURVIVED, TOO_SLOW]
    assert [outcome.result for outcome in done] == results
    document = mutants.record(done, {survivor.name: "the same trips"})
    assert document["survivors"] == [{"mutant": survivor.name, "found": "", "explained": "the same trips"}]
    (path,) = mutants.FOLDER.glob("2*.json")
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert recorded["rows"] and all(survivor["explained"] for survivor in recorded["survivors"])
