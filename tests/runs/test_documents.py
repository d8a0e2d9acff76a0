"""What JSON holds is of the declared types or is named: for every file that is read again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from worklog.runs.documents import check_types, finite, fits


@dataclass(frozen=True)
class Sample:
    us: float
    shape: tuple[int, int]
    reason: str | None = None


@pytest.mark.parametrize(
    ("value", "hint", "is_one"),
    [
        (1, int, True),
        (1.5, int, False),
        (True, int, False),
        (1, float, True),
        (True, float, False),
        (1, bool, False),
        (None, str | None, True),
        (None, str, False),
        ({"clock": [1]}, Any, True),
        ([1, 2], tuple[int, int], True),
        ((1, 2), tuple[int, int], True),
        ([1, 2, 3], tuple[int, int], False),
        ([1, 2, 3], tuple[int, ...], True),
        ([], tuple[int, ...], True),
        ("ab", tuple[str, ...], False),
        (["a", 1], list[str], False),
        ([[1.0, "a"]], list[tuple[float, str]], True),
        ([None, {}], list[Any], True),
        ({"a": 1}, dict[str, int], True),
        ({"a": "1"}, dict[str, int], False),
        ([], dict[str, int], False),
    ],
)
def test_a_value_fits_its_type(value: object, hint: object, is_one: bool) -> None:
    assert fits(value, hint) is is_one


def test_a_value_that_does_not_fit_is_named() -> None:
    check_types(Sample, {"us": 1, "shape": [1, 2]})
    with pytest.raises(TypeError, match=r"^us is 'fast'$"):
        check_types(Sample, {"shape": [1, 2], "us": "fast"})
    with pytest.raises(TypeError, match=r"^shape is \[0, 1, 2, .{50}$"):
        check_types(Sample, {"shape": list(range(1000))})


def test_what_a_later_tool_added_is_left_alone() -> None:
    check_types(Sample, {"us": 1.0, "humidity": "high"})


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_are_finite(text: str) -> None:
    assert json.loads("[2.5e3]", parse_float=finite, parse_constant=finite) == [2500.0]
    with pytest.raises(ValueError, match=f"^{text} is no finite number$"):
        json.loads(f"[{text}]", parse_float=finite, parse_constant=finite)
