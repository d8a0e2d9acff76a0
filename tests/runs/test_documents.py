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


FITS: list[tuple[object, Any]] = [
    (1, int),
    (1, float),
    (None, str | None),
    ({"clock": [1]}, Any),
    ([1, 2], tuple[int, int]),
    ((1, 2), tuple[int, int]),
    ([1, 2, 3], tuple[int, ...]),
    ([], tuple[int, ...]),
    ([[1.0, "a"]], list[tuple[float, str]]),
    ([None, {}], list[Any]),
    ({"a": 1}, dict[str, int]),
]
MISFITS: list[tuple[object, Any]] = [
    (1.5, int),
    (True, int),
    (True, float),
    (1, bool),
    (None, str),
    ([1, 2, 3], tuple[int, int]),
    ("ab", tuple[str, ...]),
    (["a", 1], list[str]),
    ({"a": "1"}, dict[str, int]),
    ([], dict[str, int]),
]


def test_a_value_fits_its_type_or_not() -> None:
    assert [one for one in FITS if not fits(*one)] == [] == [one for one in MISFITS if fits(*one)]


def test_a_value_that_does_not_fit_is_named() -> None:
    check_types(Sample, {"us": 1, "shape": [1, 2], "added_by_a_later_tool": "high"})
    with pytest.raises(TypeError, match=r"^us is 'fast'$"):
        check_types(Sample, {"shape": [1, 2], "us": "fast"})
    with pytest.raises(TypeError, match=r"^shape is \[0, 1, 2, .{50}$"):
        check_types(Sample, {"shape": list(range(1000))})


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_are_finite(text: str) -> None:
    assert json.loads("[2.5e3]", parse_float=finite, parse_constant=finite) == [2500.0]
    with pytest.raises(ValueError, match=f"^{text} is no finite number$"):
        json.loads(f"[{text}]", parse_float=finite, parse_constant=finite)
