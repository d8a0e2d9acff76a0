"""The puzzles of notebooks 04 to 06 judge solutions of other people.

Each file below solutions/ is an answer to the puzzle of its folder. Its first line states the
judgement: right, or the first cause, a count or what the gate finds. The notebook's own solutions
are graded where the notebooks are executed.
"""

import re
from collections import Counter
from pathlib import Path

import jupytext
import pytest

from tests.record.notebooks import sources
from worklog.errors import BadSetting, WorklogError
from worklog.kernel import Kernel, rung
from worklog.lab import puzzles
from worklog.lab.block_counts import BlockCount, block_counts
from worklog.lab.puzzles import (
    HINTS,
    NOT_ASSEMBLED,
    PHRASES,
    PUZZLES,
    attempt,
    reference_kernel,
    rounded_to,
)

FOLDER = Path(__file__).with_name("solutions")
FILES = sorted(FOLDER.glob("*/*.cu"))
JUDGED = "// judged: "

CELLS = [
    cell
    for source in sources(["04", "05", "06"])
    for cell in jupytext.read(source).cells
    if cell.source.startswith("%%puzzle")
]
STARTS = dict[str, str]()
SOLUTIONS = dict[str, str]()
for cell in CELLS:
    [(name, code)] = re.findall(r"%%puzzle (\w+)(.*)", cell.source, re.DOTALL)
    (SOLUTIONS if "tags" in cell.metadata else STARTS)[name] = code


def judgement(path: Path) -> str:
    """Return "right", or the cause that a solution's first line states."""
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first.startswith(JUDGED), path
    return first.removeprefix(JUDGED)


def solution(name: str) -> str:
    return (FOLDER / name).with_suffix(".cu").read_text(encoding="utf-8")


def test_the_notebook_has_a_start_and_a_solution_of_each():
    assert [*STARTS] == [*SOLUTIONS] == [*PUZZLES]


def test_each_puzzle_has_solutions_of_both_kinds():
    right = Counter(path.parent.name for path in FILES if judgement(path) == "right")
    wrong = Counter(path.parent.name for path in FILES if judgement(path) != "right")
    for name in PUZZLES:
        assert right[name] >= 2 and wrong[name] >= 3, name
    assert {*right, *wrong} == {*PUZZLES}


@pytest.fixture
def no_floors(monkeypatch):
    """Leave out the lower bounds of the time, which grade nothing and take a third of the work."""

    def failing(kernel: Kernel) -> None:
        raise WorklogError("this test needs no floor")

    monkeypatch.setattr(puzzles, "bound", failing)


@pytest.mark.usefixtures("no_floors")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_solution_is_judged_by_its_idea_and_the_hint_is_about_the_cause(path):
    judged = judgement(path)
    graded = attempt(path.parent.name, path.read_text(encoding="utf-8"))
    assert graded.right == (judged == "right"), graded
    if graded.right:
        assert graded.causes == () and "Hint" not in graded.feedback
        return
    assert graded.causes[0] == judged, graded
    hint = PUZZLES[path.parent.name].hint(judged)
    if path.stem == "unknown_joins":
        hint += f" ({NOT_ASSEMBLED})"
    assert graded.feedback.endswith(f"Hint: {hint}")
    for cause in graded.causes:
        if cause in PHRASES:
            before_number, after_number = PHRASES[cause].split("{}")
            pattern = rf"- it {re.escape(before_number)}[\d.]+{re.escape(after_number)}"
            assert re.search(pattern, graded.feedback), cause


@pytest.mark.parametrize("name", PUZZLES)
def test_the_reference_is_within_the_limits_and_the_step_before_is_not(name):
    puzzle = PUZZLES[name]
    reference = puzzles._compared(reference_kernel(puzzle.reference), puzzle)
    assert not [count.name for count in reference if count.is_over or count.is_notable]
    earlier = puzzles._compared(rung(puzzle.earlier), puzzle)
    assert [count.name for count in earlier if count.is_over]


@pytest.mark.parametrize("name", ["accumulator", "barrier"])
def test_a_start_is_not_an_answer_and_a_second_try_gets_the_same_hint(name):
    first = attempt(name, STARTS[name])
    assert not first.right
    assert attempt(name, STARTS[name]) == first


def test_a_count_is_named_with_its_line_the_reference_and_the_step_before():
    graded = attempt("neighbours", STARTS["neighbours"])
    line = 1 + next(i for i, text in enumerate(STARTS["neighbours"].splitlines()) if "+= A" in text)
    [fact] = [fact for fact in graded.feedback.splitlines() if "sectors of A" in fact]
    assert re.findall(r"\d[\d.]*\d|\d", fact) == ["32", str(line), "1.0", "32", "2.1"]
    [row] = [row for row in graded.label.splitlines() if row.startswith(" lookups")]
    assert row.split()[1:] == ["33", "3.2", "2.0", "33"]
    assert "at least 273.1 ms" in graded.label


def test_the_gates_notes_are_shown_with_a_right_answer():
    reads_c = SOLUTIONS["neighbours"].replace("beta == 0.0f ? alpha * acc : ", "")
    graded = attempt("neighbours", reads_c)
    assert graded.right and "\n! C is read where beta is 0" in graded.feedback


def test_a_right_answer_reports_counts_above_the_references():
    kernel = puzzles._kernel(solution("columns/transposed_padded"))
    compared = puzzles._compared(kernel, PUZZLES["columns"])
    assert not any(count.is_over for count in compared)
    [notable] = [count for count in compared if count.is_notable]
    assert notable.name == "wavefronts" and notable.row["reference"] == "0.66"


def test_an_answer_that_cannot_be_counted_is_not_right(monkeypatch):
    def failing(kernel: Kernel) -> None:
        raise WorklogError("too many accesses")

    monkeypatch.setattr(puzzles, "block_counts", failing)
    graded = attempt("neighbours", SOLUTIONS["neighbours"])
    assert not graded.right and "isn't compared" in graded.feedback
    assert "too many accesses" in graded.feedback


def test_a_kernel_without_a_body_gets_a_hint_about_its_stores():
    signature = STARTS["neighbours"].partition("{")[0]
    graded = attempt("neighbours", f"{signature}{{}}\n")
    assert (
        graded.causes == (puzzles.NONE_WRITTEN,) and "stores its elements of C" in graded.feedback
    )


def test_every_limit_and_every_failure_has_a_phrase_and_a_hint():
    names = {name for puzzle in PUZZLES.values() for name in puzzle.all_limits}
    assert names <= {*PHRASES} == {*block_counts(rung("naive")).by_name}
    assert {*PHRASES} <= {*HINTS}
    for puzzle in PUZZLES.values():
        assert {*puzzle.hints} <= {*HINTS}
        assert puzzle.hint("a kind of finding that is new") == puzzle.hint(puzzles.OTHER_FAILURE)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 2, "0.0"),
        (0.0625, 2, "0.062"),
        (0.00009, 2, "0.000090"),
        (1.0, 2, "1.0"),
        (1.184, 3, "1.18"),
        (9.96, 2, "10"),
        (99.6, 2, "100"),
        (273.4, 2, "273"),
    ],
)
def test_a_count_has_two_digits_and_no_exponent(value, digits, text):
    assert rounded_to(value, digits) == text


def test_a_count_over_its_limit_never_looks_like_the_limit():
    limited = puzzles._Compared(
        "wavefronts", BlockCount(1.12), reference=1.0, earlier=2.0, limit=1.1, is_exact=True
    )
    assert limited.is_over and limited.row["yours"] == "1.12" and limited.row["at most"] == "1.10"


BACK = "put the puzzle's kernel back"


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("tiles", "", BACK),
        ("tiles", "int x;", BACK),
        ("tiles", "__global__ void mine(float* C) { *C = 1.0f; }", "the gate passes A, B and C"),
        ("tiles", STARTS["tiles"].replace("// grid", "// Grid of blocks"), "states no launch"),
        ("tile", STARTS["tiles"], "neighbours, accumulator"),
        ("", STARTS["tiles"], "neighbours, accumulator"),
    ],
)
def test_a_cell_without_a_kernel_and_an_unknown_puzzle_are_errors_that_say_so(name, source, says):
    with pytest.raises(BadSetting, match=says):
        attempt(name, source)
