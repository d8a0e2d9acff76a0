"""The package may only become easier to read.

The counts of tests/readable.py keep to their ceilings.
"""

import ast

import pytest

from tests import readable


def test_no_room_is_harder_to_read_than_it_was():
    assert readable.raised(readable.counts(), readable.ceilings()) == []


def test_a_count_that_rises_fails_and_one_that_falls_lowers_the_ceiling():
    limit = {"gate": {"names": 2}, "runs": {"twice": 1}}
    lines = readable.raised({"gate": {"names": 3, "tuples": 1}}, limit)
    assert [line.partition(": python")[0] for line in lines] == [
        "gate: 3 names, at most 2",
        "gate: 1 tuples, at most 0",
        "runs: 0 twice, fewer than 1",
    ]


@pytest.mark.parametrize(
    ("statement", "is_unrelated"),
    [
        ("a, b = 1, 2", True),
        ("a, b = b, a", False),
        ("a, b = a + b, a", False),
        ("a, b = pair", False),
        ("a, *b = 1, 2", False),
    ],
)
def test_only_values_that_need_not_be_assigned_together_count(statement, is_unrelated):
    (node,) = ast.parse(statement).body
    assert readable.is_unrelated_tuple(node) == is_unrelated


@pytest.mark.parametrize(
    ("docstring", "faults"),
    [
        ("Return the sum.", []),
        ("Return the sum.\n\nterms: of it", []),
        ("Return the sum,\nand more.", ["summaries"]),
        ("Return " + "the very long " * 6 + "sum.", ["summaries"]),
        ("What the sum is.", ["moods"]),
        (None, []),
    ],
)
def test_a_docstring_begins_with_a_line_that_has_a_verb(docstring, faults):
    assert readable.docstring_faults(docstring, indent=0) == faults
