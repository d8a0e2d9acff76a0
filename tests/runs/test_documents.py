"""JSON from a file is of the declared types, or the part that isn't is named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from worklog.runs.documents import check, check_types, finite


@dataclass(frozen=True)
class Sample:
    us: float
    shape: tuple[int, int]
    reason: str | None = None


FITS: list[tuple[object, Any]] = [
    (1, float),
    (None, str | None),
    ({"clock": [1]}, Any),
    ([1, 2], tuple[int, int]),
    ((1, 2), tuple[int, int]),
    ([], tuple[int, ...]),
    ([[1.0, "a"]], list[tuple[float, str]]),
    ([None, {}], list[Any]),
    ({"a": 1}, dict[str, int]),
    ({"a": 1, "later": 2}, {"a": int}),
    ([{"a": 1}], [{"a": int}]),
]
MISFITS: list[tuple[object, Any, str]] = [
    (1.5, int, "x is 1.5"),
    (True, int, "x is True"),
    (True, float, "x is True"),
    (1, bool, "x is 1"),
    (None, str, "x is None"),
    ([1, 2, 3], tuple[int, int], "x is "),
    ("ab", tuple[str, ...], "x is 'ab'"),
    (["a", 1], list[str], "x is "),
    ({"a": "1"}, dict[str, int], "x is "),
    ([], dict[str, int], "x is "),
    ([], {"a": int}, r"x is \[\]"),
    ({}, {"a": int}, "x lacks a"),
    ([{"a": 1}, {"a": "1"}], [{"a": int}], "x 2 a is '1'"),
    (list(range(1000)), [str], "x 1 is 0"),
]


def test_a_value_that_is_not_as_declared_is_named() -> None:
    for value, declared in FITS:
        check("x", value, declared)
    for value, declared, says in MISFITS:
        with pytest.raises(ValueError, match=f"^{says}"):
            check("x", value, declared)
    check_types(Sample, {"us": 1, "shape": [1, 2], "added_by_a_later_tool": "high"})
    with pytest.raises(ValueError, match=r"^shape is \[0, 1, 2, .{50}$"):
        check_types(Sample, {"shape": list(range(1000))})


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_are_finite(text: str) -> None:
    assert json.loads("[2.5e3]", parse_float=finite, parse_constant=finite) == [2500.0]
    with pytest.raises(ValueError, match=f"^{text} isn't a finite number$"):
        json.loads(f"[{text}]", parse_float=finite, parse_constant=finite)
