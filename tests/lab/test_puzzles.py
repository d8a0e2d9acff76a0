"""A puzzle grades the kernel of a cell. Notebook 05 holds all of them: each start isn't right, and each solution is."""

import re

import jupytext
import pytest

from tests.record.notebooks import sources
from worklog.errors import BadSetting
from worklog.lab import puzzles
from worklog.lab.puzzles import PUZZLES, attempt

CELLS = [cell for cell in jupytext.read(*sources(["05"])).cells if cell.source.startswith("%%puzzle")]
STARTS, SOLUTIONS = (
    dict(
        re.findall(r"%%puzzle (\w+)(.*)", cell.source, re.DOTALL)[0]
        for cell in CELLS
        if ("tags" in cell.metadata) == has
    )
    for has in (False, True)
)


def test_the_notebook_has_a_start_and_a_solution_of_each():
    assert [*STARTS] == [*SOLUTIONS] == [*PUZZLES]


def test_each_try_that_fails_gives_the_next_hint(monkeypatch):
    monkeypatch.setattr(puzzles, "_tries", puzzles.Counter())
    hints = PUZZLES["barrier"].hints
    for hint in (*hints, hints[-1]):
        graded = attempt("barrier", STARTS["barrier"])
        assert not graded.right and "shared-race" in graded.feedback and graded.feedback.endswith(f"Hint: {hint}")


def test_a_right_kernel_with_too_many_accesses_is_not_an_answer_and_less_than_the_rungs_is():
    graded = attempt("neighbours", SOLUTIONS["tiles"])
    assert graded.right and "emulated" in graded.feedback, "another idea with fewer sectors"
    graded = attempt("tiles", SOLUTIONS["neighbours"])
    assert not graded.right and re.search(r"17\.9 times the sectors of shared\b", graded.feedback)


BACK = "put the puzzle's kernel back"


@pytest.mark.parametrize(
    ("source", "says"),
    [("", BACK), ("int x;", BACK), ("__global__ void mine(float* C) { *C = 1.0f; }", "three: A, B and C")],
)
def test_a_cell_without_a_kernel_is_an_error_that_says_so(source, says):
    with pytest.raises(BadSetting, match=says):
        attempt("tiles", source)


def test_an_unknown_puzzle_names_the_others():
    with pytest.raises(BadSetting, match="neighbours, accumulator"):
        attempt("tile", STARTS["tiles"])
