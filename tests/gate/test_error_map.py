"""A refusal names the place and, for the usual mistakes, the line to look at."""

from __future__ import annotations

import numpy as np
import pytest

from worklog.gate.exact import family
from worklog.gate.verdict import MOST_TILES, ErrorMap, Stage, Verdict, error_map, whereabouts
from worklog.problem.gemm import Float32, Shape

SENTINEL = np.float32(-4e30)
SHAPE = Shape(256, 192, 64)
RNG = np.random.default_rng(0)
A, B = family("E1", SHAPE, RNG)
RIGHT = A @ B


def wrong(change: object) -> ErrorMap:
    """Locate what a change does to the right answer."""
    c = RIGHT.copy()
    assert callable(change)
    changed = change(c)
    return error_map(c if changed is None else changed, RIGHT, SENTINEL, (A, B))


def noise(c: Float32, *place: slice | int) -> None:
    """Values that no known mistake gives."""
    region = c[place]
    c[place] = region + (1 + RNG.integers(1, 1000, np.shape(region))).astype(np.float32)


ALL = slice(None)


@pytest.mark.parametrize(
    ("change", "rows", "columns", "guess"),
    [
        (lambda c: noise(c, 255, ALL), "row 255", "all 192 columns", "Only the last row: a bound is off by one."),
        (lambda c: noise(c, ALL, 191), "all 256 rows", "column 191", "Only the last column: a bound is off by one."),
        (lambda c: noise(c, slice(240, 256), ALL), "rows 240 to 255", "all 192 columns", "Only rows from 240 to the"),
        (lambda c: noise(c, ALL, slice(0, 192, 16)), "all 256 rows", "every 16th", "Every 16th column"),
        (lambda c: noise(c, slice(64, 96), slice(32, 64)), "rows 64 to 95", "columns 32 to 63", "One tile of 32 x 32"),
        (lambda c: noise(c, 7, 9), "row 7", "column 9", ""),
        (lambda c: c.__setitem__((3, 4), np.nan), "row 3", "column 4", "NaN or infinity"),
        (lambda c: c.fill(SENTINEL), "all 256 rows", "all 192 columns", "C was never written"),
        (lambda c: c[10:20].fill(SENTINEL), "rows 10 to 19", "all 192 columns", "These elements were never written"),
        (lambda c: c * np.float32(2), "all 256 rows", "all 192 columns", "is 2 times the right one"),
        (lambda c: A[:, :-8] @ B[:-8], "rows", "columns", "The terms from k = 56 to the end are missing"),
        (lambda c: A[:, 4:] @ B[4:], "rows", "columns", "The terms up to k = 3 are missing"),
        (lambda c: c - A[:, 9:10] * B[9:10], "rows", "columns", "The term k = 9 is missing"),
        (lambda c: c + A[:, 9:10] * B[9:10], "rows", "columns", "The term k = 9 is added twice"),
    ],
)
def test_the_usual_mistakes_are_named(change: object, rows: str, columns: str, guess: str) -> None:
    where = wrong(change)
    assert rows in where.rows and columns in where.columns
    assert guess in where.guess if guess else where.guess == ""


def test_a_guess_is_made_only_if_it_is_the_only_one() -> None:
    """In a single element, several terms may explain the error."""
    twin = A.copy()
    twin[:, 5], twin_b = twin[:, 4], B.copy()
    twin_b[5] = twin_b[4]
    right = twin @ twin_b
    c = right - twin[:, 4:5] * twin_b[4:5]
    assert error_map(c, right, SENTINEL, (twin, twin_b)).guess == ""


def test_counts_and_map() -> None:
    where = wrong(lambda c: noise(c, slice(64, 96), slice(32, 64)))
    assert where.shape == (256, 192) and where.wrong == 32 * 32 and where.checked == RIGHT.size
    assert where.tile == (8, 8)
    shares = np.array(where.tiles)
    assert shares.shape == (32, 24)
    assert (shares[8:12, 4:8] == 1).all() and shares.sum() == 16
    assert where.picture().splitlines()[8] == "....####" + "." * 16


@pytest.mark.parametrize("size", [1, 7, 32, 33, 1000, 4096, 8192])
def test_a_map_is_small_at_any_size(size: int) -> None:
    right, c = np.zeros((size, 3), np.float32), np.zeros((size, 3), np.float32)
    c[-1, 2] = 5
    where = error_map(c, right, SENTINEL)
    assert len(where.tiles) <= MOST_TILES and where.tile[0] * len(where.tiles) >= size
    assert sum(map(sum, where.tiles)) > 0 and where.tiles[-1][2] > 0
    assert where.picture()[-1] in "#o"


def test_a_verdict_passes_the_place_on() -> None:
    where = wrong(lambda c: noise(c, 7, 9))
    verdict = Verdict((Stage("a", True, 0, 0, "fine"), Stage("b", False, 1, 0, "off", where)), None)
    assert verdict.where is where
    assert str(where) == "1 of 49152 elements are wrong: row 7; column 9"
    assert verdict.as_dict()["stages"][1]["where"]["rows"] == "row 7"


@pytest.mark.parametrize(
    ("indices", "total", "words"),
    [
        (range(8), 8, "all 8 rows"),
        ([7], 8, "row 7"),
        (range(4, 8), 8, "rows 4 to 7"),
        ([15, 31, 47], 48, "3 rows (15, 31, 47, every 16th)"),
        ([1, 2, 5, 6, 9], 48, "5 rows (1, 2, 5, 6, …)"),
    ],
)
def test_whereabouts(indices: object, total: int, words: str) -> None:
    assert whereabouts(np.array(list(indices)), total, "row") == words  # type: ignore[call-overload]
