"""A mutant of the code has a name that no formatter changes.

It is noticed by a test that fails, not by one that is too slow or takes its process with it.
"""

import os
import subprocess
import sys
from multiprocessing import Pipe
from typing import Any

import pytest

from tests.record import mutants_of_code as mutants
from tests.record.mutants_fork import ROOT, Answer

SOURCE = '''
LIMIT = 8
NAMES = dict(zip("ab", (1, 2), strict=True))

class Case:
    size: int = 3

    def of(self, m, n):
        """At most 9."""
        if m + n > LIMIT or min(m, n) < 0:
            raise ValueError(f"{m + 1} is too large")
        print(m, n)
        return divmod(m, n), [m == n, m == n]
'''
WIDE = SOURCE.replace("m + n > LIMIT or", "(\n            m  +  n > LIMIT\n        ) or")
NAMES = {
    "module: 8 → 9: 9",
    "module: 1 → 2: (2, 2)",
    "module: 2 → 3: (1, 3)",
    "module: swapped arguments: dict(zip((1, 2), 'ab', strict=True))",
    "Case: 3 → 4: 4",
    "Case.of: Or → And: m + n > LIMIT and min(m, n) < 0",
    "Case.of: Gt → GtE: m + n >= LIMIT or min(m, n) < 0",
    "Case.of: Add → Sub: m - n > LIMIT",
    "Case.of: Lt → LtE: m + n > LIMIT or min(m, n) <= 0",
    "Case.of: 0 → 1: min(m, n) < 1",
    "Case.of: without: raise ValueError(f'{m + 1} is too large')",
    "Case.of: Add → Sub: m - 1",
    "Case.of: 1 → 2: m + 2",
    "Case.of: without: print(m, n)",
    "Case.of: swapped arguments: print(n, m)",
    "Case.of: swapped arguments: (divmod(n, m), [m == n, m == n])",
    "Case.of: Eq → NotEq: [m != n, m == n]",
    "Case.of: Eq → NotEq: [m == n, m != n]",
}
TESTS = """
import os, time
import pytest

def test_dies(): os._exit(0)

@pytest.mark.timeout(0.2)
def test_is_late(): time.sleep(60)

def test_waits(): raise TimeoutError("another process is late")

def test_skips(): pytest.skip("elsewhere")

def test_passes(): pass

def test_fails(): assert False
"""


def test_each_change_has_a_name_of_its_own_that_is_the_same_in_another_format():
    assert {place.name for place in mutants.places(SOURCE)} == NAMES
    assert [place.name for place in mutants.places(WIDE)] == [
        place.name for place in mutants.places(SOURCE)
    ]
    twice = mutants.places("def f(x):\n    g(x, 1)\n    g(x, 1)\n")
    assert [place.name for place in twice if "swapped" in place.name] == [
        "f: swapped arguments: g(1, x)",
        "f: swapped arguments: g(1, x) #2",
    ]


@pytest.mark.parametrize("source", [SOURCE, WIDE])
def test_a_mutant_is_its_change_and_nothing_else(source):
    for place in mutants.places(source):
        text = mutants.changed(source, place.node, place.text)
        assert mutants.is_possible(source, place, text), place.name
        assert text != source


def test_what_notes_where_mutants_run_changes_nothing_else(capsys):
    numbered = list(enumerate(mutants.places(SOURCE)))
    noted = mutants.noting(SOURCE, [(number, at.node, at.depth) for number, at in numbered])
    assert len(noted.splitlines()) == len(SOURCE.splitlines())
    seen = set[int]()
    names = dict[str, Any]()
    exec(compile(noted, "noted", "exec"), {"mutant_runs": seen.add}, names)
    assert {numbered[number][1].constant for number in seen} == {"LIMIT", "NAMES", "size"}
    assert names["LIMIT"] == 8 and names["Case"].size == 3


def test_every_equivalent_names_a_place_of_the_code(capsys):
    named = {mutant.name for mutant in mutants.stated()}
    assert named == mutants.equivalents().keys(), capsys.readouterr().out


def test_equivalents_are_names_each_with_a_reason():
    for name, reason in mutants.equivalents().items():
        path, scope, change, _ = name.split(": ", 3)
        assert (ROOT / path).is_file() and scope and change and reason, name


@pytest.mark.parametrize(
    ("names", "answer"),
    [
        (["passes", "skips"], Answer()),
        (["passes", "fails", "dies"], Answer("test_mutant.py::test_fails")),
        (["dies", "is_late", "waits", "fails"], Answer("test_mutant.py::test_fails")),
        (
            ["dies", "is_late", "waits", "passes"],
            Answer(
                why="test_mutant.py::test_dies ends its process, test_mutant.py::test_is_late "
                "takes too long, "
                "test_mutant.py::test_waits takes too long"
            ),
        ),
    ],
)
def test_a_late_test_or_a_dead_process_is_no_failure(names, answer, forks):
    forks.send(("", "", "", [f"test_mutant.py::test_{name}" for name in names]))
    assert forks.poll(60) and forks.recv() == answer


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    """Yield a pytest that forks for each request."""
    folder = tmp_path_factory.mktemp("forks")
    (folder / "test_mutant.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    ours, theirs = Pipe()
    options = ("-q", "-s", "-p", "no:cacheprovider", "-p", "tests.record.mutants_fork")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MUTANTS": str(theirs.fileno())},
        pass_fds=[theirs.fileno()],
        stdout=subprocess.DEVNULL,
    )
    theirs.close()
    assert ours.poll(60) and ours.recv() == 6
    yield ours
    ours.send(None)
    process.wait(timeout=60)
    ours.close()
