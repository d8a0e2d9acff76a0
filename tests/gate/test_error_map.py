"""A failed stage names the place of the errors and, for the usual mistakes, the cause."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from worklog.gate.exact import MOST_TILES, error_map, family
from worklog.problem import Float32, Shape
from worklog.runs import ErrorMap

SENTINEL = np.float32(-4e30)
RNG = np.random.default_rng(0)
A, B = family("E1", Shape(256, 192, 64), RNG)
RIGHT = A @ B
ALL = slice(None)


def in_eight_bits(values: Float32, bits: int, largest: float) -> Float32:
    """Integers rounded to a significand of so many bits, and at most the largest number in size."""
    (fraction, exponent) = np.frexp(values)
    short = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    return np.clip(short, -largest, largest).astype(np.float32)


def noise(*place: Any) -> Callable[[Float32], None]:
    """Values that no known mistake gives."""

    def change(c: Float32) -> None:
        c[place] += (1 + RNG.integers(1, 1000, np.shape(c[place]))).astype(np.float32)

    return change


def wrong(change: Callable[[Float32], Any]) -> ErrorMap:
    """Return the map of what a change does to the right result."""
    c = RIGHT.copy()
    changed = change(c)
    return error_map(c if changed is None else changed, RIGHT, SENTINEL, (A, B))


@pytest.mark.parametrize(
    ("change", "rows", "columns", "guess"),
    [
        (
            noise(255, ALL),
            "row 255",
            "all 192 columns",
            "Only the last row: a bound may be off by one.",
        ),
        (
            noise(ALL, 191),
            "all 256 rows",
            "column 191",
            "Only the last column: a bound may be off by one.",
        ),
        (
            noise(slice(240, 256), ALL),
            "rows 240 to 255",
            "all 192 columns",
            "Only rows from 240 to the end",
        ),
        (
            noise(ALL, slice(0, 192, 16)),
            "all 256 rows",
            "(0, 16, 32, 48, …, every 16th)",
            "Every 16th column",
        ),
        (
            noise(ALL, slice(0, 192, 32)),
            "all 256 rows",
            "(0, 32, 64, 96, …, every 32nd)",
            "Every 32nd column",
        ),
        (noise([1, 2, 5, 6, 9], 7), "5 rows (1, 2, 5, 6, …)", "column 7", ""),
        (
            noise(slice(64, 96), slice(32, 64)),
            "rows 64 to 95",
            "columns 32 to 63",
            "One tile of 32 x 32",
        ),
        (noise(7, 9), "row 7", "column 9", ""),
        (noise(255, 9), "row 255", "column 9", ""),
        (lambda c: c.__setitem__((3, 4), np.nan), "row 3", "column 4", "NaN or infinity"),
        (lambda c: c.fill(SENTINEL), "all 256 rows", "all 192 columns", "C was never written"),
        (
            lambda c: c[10:20].fill(SENTINEL),
            "rows 10 to 19",
            "all 192 columns",
            "These elements were never written",
        ),
        (
            lambda c: c * np.float32(2),
            "all 256 rows",
            "all 192 columns",
            "is 2 times the right one",
        ),
        (
            lambda c: A[:, :-8] @ B[:-8],
            "rows",
            "columns",
            "The terms from k = 56 to the end are missing",
        ),
        (lambda c: A[:, 4:] @ B[4:], "rows", "columns", "The terms up to k = 3 are missing"),
        (lambda c: A[:, 1:] @ B[1:], "rows", "columns", "The term k = 0 is missing"),
        (lambda c: c - A[:, 9:10] * B[9:10], "rows", "columns", "The term k = 9 is missing"),
        (lambda c: c[::-1], "all 256 rows", "all 192 columns", "at other places: an index of C"),
        (lambda c: A[:, ::-1] @ B, "all 256 rows", "columns", ""),
        (
            lambda c: (A - 2**-9 * abs(A)) @ B,
            "all 256 rows",
            "columns",
            "An operand lost its low bits",
        ),
        (lambda c: c + A[:, 9:10] * B[9:10], "rows", "columns", "The term k = 9 is added twice"),
        (
            lambda c: in_eight_bits(A, 4, 448) @ in_eight_bits(B, 4, 448),
            "rows",
            "columns",
            "A and B are rounded to FP8 (e4m3)",
        ),
        (
            lambda c: in_eight_bits(A, 3, 57344) @ in_eight_bits(B, 3, 57344),
            "rows",
            "columns",
            "A and B are rounded to FP8 (e5m2)",
        ),
        (lambda c: in_eight_bits(A, 4, 448) @ B, "rows", "columns", ""),
    ],
)
def test_the_usual_mistakes_are_named(change, rows, columns, guess):
    where = wrong(change)
    assert rows in where.rows and columns in where.columns
    assert guess in where.guess if guess else where.guess == ""


def test_a_term_is_named_only_if_no_other_term_explains_the_error():
    twin = A.copy()
    twin_b = B.copy()
    twin[:, 5] = twin[:, 4]
    twin_b[5] = twin_b[4]
    right = twin @ twin_b
    assert (
        error_map(right - twin[:, 4:5] * twin_b[4:5], right, SENTINEL, (twin, twin_b)).guess == ""
    )


def test_the_map_counts():
    where = wrong(noise(slice(64, 96), slice(32, 64)))
    assert where.shape == (256, 192) and where.wrong == 32 * 32 and where.checked == RIGHT.size
    assert where.tile == (8, 8) and str(where).startswith(
        "1024 of 49152 elements are wrong: rows 64 to 95; columns"
    )
    shares = np.array(where.tiles)
    assert shares.shape == (32, 24) and (shares[8:12, 4:8] == 1).all() and shares.sum() == 16
    assert where.picture().splitlines()[8] == "....####" + "." * 16


@pytest.mark.parametrize("size", [1, 7, 32, 33, 1000, 8192])
def test_a_map_is_small_at_any_size(size):
    right = np.zeros((size, 3), np.float32)
    c = np.zeros((size, 3), np.float32)
    c[-1, 2] = 5
    where = error_map(c, right, SENTINEL)
    assert len(where.tiles) <= MOST_TILES and where.tile[0] * len(where.tiles) >= size
    assert (
        where.tiles[-1][2] == round(1 / ((size - 1) % where.tile[0] + 1), 4)
        and sum(map(sum, where.tiles)) < 1.1
    )
    assert where.picture()[-1] in "#o"
