"""The puzzles without a compiler: each has one right choice, by what the kernels do."""

from dataclasses import replace

import numpy as np
import pytest

from worklog.errors import WorklogError
from worklog.kernel.portable import planned
from worklog.lab.puzzles import PUZZLES as OF_NOTEBOOKS
from worklog.site import choices
from worklog.site.choices import MEASURES, PUZZLES, Edit, edited, excerpts

LEAST_CHOICES = 4


def is_right(puzzle, source):
    """Return whether the emulator here finds a choice right, as the page grades it."""
    kernel = choices.kernel_of(source)
    shape = puzzle.shape
    [(_, arrays, [launch])] = planned(kernel, [shape])
    for name in ("A", "B"):
        arrays[name][:] = np.random.default_rng(0).integers(-4, 5, arrays[name].size)
    arrays["C"][:] = np.nan
    result = launch.run()
    product = arrays["A"].reshape(shape.m, shape.k) @ arrays["B"].reshape(shape.k, shape.n)
    is_same = np.array_equal(product, arrays["C"].reshape(shape.m, shape.n))
    count = choices.counts_of(result.counts)[puzzle.measure]
    return result.ok and is_same and count <= choices.most_of(puzzle)


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda puzzle: puzzle.name)
def test_only_the_notebook_s_solution_is_right(puzzle):
    sources = choices.choices(puzzle)
    right = [source for source in sources if is_right(puzzle, source)]
    assert right == [choices.solutions()[puzzle.name]]
    assert len({*sources}) == len(sources) >= LEAST_CHOICES


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda puzzle: puzzle.name)
def test_the_lines_that_a_reader_sees_differ_from_choice_to_choice(puzzle):
    sources = choices.choices(puzzle)
    shown = excerpts(sources, choices.solutions()[puzzle.name])
    assert len({*shown}) == len(sources)
    for text, source in zip(shown, sources, strict=True):
        assert {*text.splitlines()} <= {*source.splitlines(), choices.LEFT_OUT}
        assert len(text.splitlines()) < len(source.splitlines())


def test_each_puzzle_of_the_notebooks_is_offered_and_the_right_choice_has_no_fixed_place():
    assert [puzzle.name for puzzle in PUZZLES] == [*OF_NOTEBOOKS]
    places = {choices.choices(puzzle).index(choices.solutions()[puzzle.name]) for puzzle in PUZZLES}
    assert len(places) > 2
    assert {puzzle.measure for puzzle in PUZZLES} <= {*MEASURES}


def test_an_edit_whose_text_is_not_in_the_solution_once_is_an_error():
    with pytest.raises(
        WorklogError, match="puzzle tiles: the notebook's solution has 'no' 0 times"
    ):
        edited(replace(PUZZLES[2], name="tiles"), [Edit("no", "yes")])


def test_lines_that_a_choice_leaves_out_are_nothing():
    solution = "a\nb\nc\n"
    assert excerpts([solution, "a\nc\n", "a\nx\nc\n"], solution) == ["b", choices.NOTHING, "x"]
