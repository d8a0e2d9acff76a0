"""worklog.sgemm of a batch: NumPy's product on the emulator, errors, and what a GPU is given."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worklog
from tests.helpers import integers
from tests.test_blas import OnHost
from tests.test_blas import noting as noting  # a fixture
from worklog.blas import product as module
from worklog.errors import BadSetting

SIZE = st.integers(0, 6)


def batch(count: int, rows: int, columns: int, seed: int = 0, *, by_columns: bool = False) -> Any:
    """Return a batch of matrices of integers, each by rows or by columns."""
    sizes = (columns, rows) if by_columns else (rows, columns)
    made = integers(count * sizes[0], sizes[1], seed).reshape(count, *sizes)
    return made.swapaxes(1, 2) if by_columns else made


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 3),
    m=SIZE,
    n=SIZE,
    k=SIZE,
    orders=st.tuples(*[st.booleans()] * 3),
    alone=st.sampled_from(["", "A", "B"]),
    has_c=st.booleans(),
)
def test_each_product_of_a_batch_is_numpys(count, m, n, k, orders, alone, has_c):
    a = batch(count, m, k, 1, by_columns=orders[0])
    b = batch(count, k, n, 2, by_columns=orders[1])
    if alone == "A":
        a = batch(1, m, k, 1, by_columns=orders[0])[0]
    if alone == "B":
        b = batch(1, k, n, 2, by_columns=orders[1])[0]
    c = batch(count, m, n, 3, by_columns=orders[2]) if has_c else None
    expected = 2 * (a @ b) - (0.5 * c if has_c else 0)
    found = worklog.sgemm(a, b, c, alpha=2, beta=-0.5 if has_c else 0)
    assert found.shape == (count, m, n) and found.dtype == np.float32
    assert (found == expected).all()
    assert not has_c or found is c


@pytest.mark.parametrize("step", [-1, 2, -2])
def test_the_matrices_of_a_batch_may_lie_at_any_distance(step):
    a = batch(6, 3, 4, 1)[::step]
    b = batch(6, 4, 5, 2)[::step]
    c = batch(6, 3, 5, 3)[::step]
    assert (worklog.sgemm(a, b, c) == a @ b).all()


def test_a_factor_that_is_broadcast_is_read_for_each_product():
    a = np.broadcast_to(integers(3, 4), (5, 3, 4))
    b = batch(5, 4, 2)
    assert (worklog.sgemm(a, b) == a @ b).all()
    same = np.broadcast_to(integers(4, 2), (5, 4, 2))
    assert (worklog.sgemm(a, same) == a @ same).all()


def test_with_one_factor_for_all_joined_rows_are_one_product(noting):
    a = OnHost((8, 64, 32), 2**20, (4 * 64 * 32, 4 * 32, 4))
    b = OnHost((32, 96), 2**30)
    c = OnHost((8, 64, 96), 2**40, (4 * 64 * 96, 4 * 96, 4))
    worklog.sgemm(a, b, c)
    [launch] = noting.launches
    assert launch[2:10] == (8 * 64, 96, 32, 1.0, 2**20, 2**30, 0.0, 2**40)


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_batch_is_a_launch_for_each_product_with_one_plan(noting, is_swapped):
    a_step = 2 * 4 * 64 * 32  # with a gap between the matrices
    a = OnHost((3, 64, 32), 2**20, (a_step, 4 * 32, 4))
    b = OnHost((3, 32, 96), 2**30, (4 * 32 * 96, 4 * 96, 4))
    strides = (4, 4 * 64) if is_swapped else (4 * 96, 4)
    c = OnHost((3, 64, 96), 2**40, (4 * 64 * 96, *strides))
    worklog.sgemm(a, b, c, alpha=2.0)
    assert len(noting.launches) == 3
    for number, launch in enumerate(noting.launches):
        factors = (2**20 + number * a_step, 2**30 + number * 4 * 32 * 96)
        sizes = (96, 64, 32) if is_swapped else (64, 96, 32)
        addresses = factors[::-1] if is_swapped else factors
        result = 2**40 + number * 4 * 64 * 96
        assert launch[2:10] == (*sizes, 2.0, *addresses, 0.0, result)
    plans = module._plan.cache_info().misses
    worklog.sgemm(a, b, c)
    assert module._plan.cache_info().misses == plans


@pytest.mark.parametrize("is_swapped", [False, True])
def test_matrices_that_follow_each_other_are_multiplied_by_one_launch(noting, is_swapped):
    """Of as many blocks along z as there are products."""
    a = OnHost((16, 128, 64), 2**20, (4 * 128 * 64, 4 * 64, 4))
    b = OnHost((16, 64, 128), 2**30, (4 * 64 * 128, 4, 4 * 64))
    strides = (4, 4 * 128) if is_swapped else (4 * 128, 4)
    c = OnHost((16, 128, 128), 2**40, (4 * 128 * 128, *strides))
    worklog.sgemm(a, b, c)
    [launch] = noting.launches
    factors = (2**30, 2**20) if is_swapped else (2**20, 2**30)
    assert launch[2:10] == (128, 128, 64, 1.0, *factors, 0.0, 2**40)
    assert [grid[2] for grid in noting.grids] == [16]


def test_few_large_products_are_launched_each(noting):
    """In parts of K, which keep a GPU busy that 5 products of 4 tiles don't."""
    a = OnHost((2, 128, 16384), 2**20, (4 * 128 * 16384, 4 * 16384, 4))
    b = OnHost((2, 16384, 128), 2**30, (4 * 128 * 16384, 4 * 128, 4))
    c = OnHost((2, 128, 128), 2**40, (4 * 128 * 128, 4 * 128, 4))
    worklog.sgemm(a, b, c)
    assert len(noting.launches) == 4 and noting.grids[0][2] > 2, "parts, and their sum, twice"


def test_more_products_than_a_grid_has_blocks_are_launched_each(noting):
    count = module.MAX_GRID_Z + 1
    a = OnHost((count, 8, 8), 2**20, (256, 32, 4))
    b = OnHost((count, 8, 8), 2**36, (256, 32, 4))
    c = OnHost((count, 8, 8), 2**40, (256, 32, 4))
    worklog.sgemm(a, b, c)
    assert len(noting.launches) == count


def test_the_alignment_is_that_of_every_matrix_of_a_batch(noting):
    """The second of these matrices begins at 4 bytes beyond a multiple of 16."""
    size = 128
    b = OnHost((2, size, size), 2**30, (4 * size * size, 4 * size, 4))
    c = OnHost((2, size, size), 2**40, (4 * size * size, 4 * size, 4))
    entries = []
    for step in (4 * size * size, 4 * size * size + 4):
        worklog.sgemm(OnHost((2, size, size), 2**20, (step, 4 * size, 4)), b, c)
        entries.append(noting.launches[-1][0])
    assert entries[0] != entries[1]


@pytest.mark.parametrize(
    ("a", "b", "c", "message"),
    [
        (batch(2, 3, 4), batch(3, 4, 5), None, "A has 2 matrices and B 3: give as many"),
        (batch(2, 3, 4), batch(2, 5, 4), None, "A is 3 x 4 and B 5 x 4"),
        (batch(2, 3, 4)[None], batch(2, 4, 5), None, "A has 4 dimensions: give a matrix"),
        (batch(2, 3, 8)[:, :, ::2], batch(2, 4, 5), None, "A has gaps"),
        (batch(2, 3, 4), batch(2, 4, 5), batch(2, 3, 4), "C is 2 x 3 x 4, and A B is 2 x 3 x 5"),
        (batch(2, 3, 4), batch(2, 4, 5), integers(3, 5), "C is 3 x 5, and A B is 2 x 3 x 5"),
        (integers(3, 4), integers(4, 5), batch(2, 3, 5), "C has 3 dimensions: give a matrix"),
        (
            batch(2, 3, 4),
            batch(2, 4, 5),
            np.lib.stride_tricks.as_strided(integers(3, 5), (2, 3, 5), (0, 20, 4)),
            "C's matrices share memory",
        ),
        (
            np.zeros((9, 256, 512), np.float32),
            np.zeros((9, 512, 256), np.float32),
            None,
            "9 products of 256x256x512 takes too long on the emulator",
        ),
    ],
)
def test_a_batch_that_does_not_fit_is_an_error(a, b, c, message):
    with pytest.raises(BadSetting, match=message):
        worklog.sgemm(a, b, c)


def test_a_c_that_shares_memory_with_a_factor_is_an_error():
    memory = batch(4, 4, 4)
    with pytest.raises(BadSetting, match="C shares memory with B"):
        worklog.sgemm(batch(2, 4, 4), memory[:2], memory[1:3])
    assert (
        worklog.sgemm(batch(2, 4, 4), memory[:2], memory[2:]) == batch(2, 4, 4) @ memory[:2]
    ).all()
