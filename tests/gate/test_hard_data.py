"""FP32 made of shorter numbers: right rungs pass, and each usual mistake in splitting fails."""

import re
from dataclasses import replace

import numpy as np
import pytest

from worklog.gate.guarded_buffer import Memory
from worklog.gate.precision import (
    MIXED,
    OVERFLOW,
    SCALARS,
    SHAPE,
    SPECIAL,
    SUBNORMAL,
    any_data,
    check_hard_data,
    least_overflow,
    not_as_fp32,
)
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder import rung
from worklog.problem import Float32
from worklog.runner.check import check
from worklog.runs import Stage


def hard_data(kernel: Kernel) -> Stage:
    device = EmulatedDevice()
    memory = Memory(device, np.random.default_rng(1))
    subject = kernel.load(device)
    subject.operands = lambda shape: ("f16",)
    return check_hard_data(subject, memory, is_short=True, checked_shape=SHAPE)


def edited(name: str, *edits: tuple[str, str]) -> Kernel:
    text = rung(name).source
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return rung(name).with_text(text)


def test_a_rung_that_states_any_data_gives_what_fp32_gives():
    assert all(rung(name).domain.any_data for name in ("wgmma", "split"))
    stage = hard_data(rung("wgmma"))
    assert stage.passed and stage.note == "", stage.detail


def test_what_a_right_split_loses_is_a_note_and_fails_any_data():
    stage = hard_data(rung("promoted"))
    assert stage.passed and stage.note == stage.clause
    assert re.fullmatch(
        rf"not as FP32: {SPECIAL}, {OVERFLOW} \(A or B of .*\), {MIXED}", stage.note
    )
    stated = hard_data(replace(rung("promoted"), rules=f"{rung('promoted').domain}, any data"))
    assert not stated.passed and SPECIAL in stated.detail and MIXED in stated.detail


def test_terms_behind_k_that_are_multiplied_by_0_turn_infinity_to_nan():
    """The last element of a row stands for those behind it, which count only if it is finite."""
    padded = (
        ("k < K; ++k", "k < (K + 7) / 8 * 8; ++k"),
        ("A[(size_t)row * K + k]", "A[(size_t)row * K + min(k, K - 1)]"),
    )
    masked = "B[(size_t)k * N + col]", "B[(size_t)min(k, K - 1) * N + col] * (k < K ? 1.0f : 0.0f)"
    kernel = edited("naive", *padded, masked)
    assert hard_data(replace(rung("naive"), rules="any data")).passed
    stage = hard_data(replace(kernel, rules="any data"))
    assert not stage.passed and f"70x67 and not as FP32: {SPECIAL}" in stage.detail


@pytest.mark.parametrize(
    ("term", "overflows"),
    [
        # Veltkamp's split, and factors of a product that is 1
        ("a = 4097 * x, b = a - x, hi = a - b; acc = fmaf(hi, y, acc) + (x - hi) * y", True),
        ("a = x * 0x1p30f, b = y * 0x1p-30f; acc += a * b", True),
        ("a = x, b = y; acc += a * b", False),
    ],
)
def test_the_verdict_says_that_finite_numbers_overflow(term, overflows):
    term = f"{{ float x = A[(size_t)row * K + k], y = B[(size_t)k * N + col], {term}; }}"
    sum_of_products = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
    stage = hard_data(edited("naive", (sum_of_products, term)))
    assert stage.passed and (OVERFLOW in stage.note) == overflows
    if not overflows:
        assert not stage.clause
        return
    [factor] = re.findall(rf"{OVERFLOW} \(A or B of (.*?)\)", stage.clause)
    assert 2.0**97 < float(factor) < 2.0**128


def test_a_sum_that_stops_at_infinity_fails_any_data():
    """Infinities of both signs are NaN, and so is NaN behind infinity."""
    term = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
    stops = f"{{ {term} if (fabsf(acc) > 0x1.fffffep127f) break; }}"
    stage = hard_data(replace(edited("naive", (term, stops)), rules="any data"))
    assert not stage.passed and f"not as FP32: {SPECIAL}" in stage.detail


def test_nan_of_another_row_is_named():
    """A tile of A runs into the next row, and meets zeros of B's tile."""
    term = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
    spoilt = "if (k == 0 && row + 1 < M) acc += A[(size_t)(row + 1) * K + 3] * 0.0f;"
    stage = hard_data(edited("naive", (term, f"{{ {term} {spoilt} }}")))
    assert stage.clause.startswith(f"not as FP32: {SPECIAL}")


def test_the_least_factor_of_an_overflow_is_that_of_finite_products():
    a = np.array([[1e30, 0], [1e35, 1], [np.inf, 1]], np.float32)
    b = np.array([[1, 1e-35, 1e30], [1, 1, 1]], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        c = (a.astype(np.float64) @ b).astype(np.float32)
    assert least_overflow(a, b, c) == np.inf
    c[1, 1] = np.inf
    assert least_overflow(a, b, c) == np.float32(1e35)
    c[0, 0] = np.nan
    assert least_overflow(a, b, c) == np.float32(1e30)


def test_an_error_that_grows_with_k_shows_at_a_long_k():
    """Sums that stay in the tensor cores' accumulator are as precise as FP32's at short K."""
    stage = hard_data(edited("promoted", ("PROMOTE = 128", "PROMOTE = 1 << 30")))
    assert (
        stage.passed and "class fp32-emulated at 128x256x1024: its error grows with K" in stage.note
    )


def test_a_result_that_overflows_where_the_old_c_is_subtracted_is_judged_without_a_warning():
    stage = hard_data(edited("naive", ("alpha * acc + beta * *c", "copysignf(3.4e38f, *c)")))
    assert MIXED in stage.note, stage.detail


STORED_TWICE = "if ((again[i / 32] >> i % 32 & 1) == 0) store", "if (true) store"
# A doubtful element isn't computed again in a part of each tile.
TRUSTED = "bool precise = ", "bool precise = (row_of(i) % BM >= 32 && column_of(i) % BN >= 32) || "
ONE_SCALE_FOR_A_TILE = (
    (
        "largest_b[i] = 0;",
        "largest_b[i] = 0;\n  if (threadIdx.x == 0) largest_a[0] = 0;\n  __syncthreads();",
    ),
    ("largest_a[r] = most;", "atomicMax(&largest_a[0], most);"),
    ("largest_a[row + 16 * i + g + r * 8]", "largest_a[0]"),
    ("largest_a[c_row]", "largest_a[0]"),
)


@pytest.mark.parametrize(
    ("name", "edits", "said"),
    [
        (
            "promoted",
            [("k0 < K; k0 += BK", "k0 < min(K, 512); k0 += BK")],
            "128x256x1024: class wrong",
        ),
        ("wgmma", [("&B[c], K, N, lane", "&B[c], K, M, lane")], SPECIAL),  # M is not N
        ("wgmma", [STORED_TWICE], MIXED),  # with a beta
        ("wgmma", [TRUSTED], ""),
        ("promoted", ONE_SCALE_FOR_A_TILE, "scale each row of A and each column of B by itself"),
    ],
)
def test_a_mistake_in_splitting_fails(name, edits, said):
    stage = hard_data(edited(name, *edits))
    assert not stage.passed and said in stage.detail


def flushed(x: Float32) -> Float32:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("seed", range(12))
def test_a_kernel_that_flushes_subnormals_keeps_numbers_of_different_size(seed):
    """CuPy compiles with -ftz=true. Sums that are subnormal on the way are lost, too."""
    a, b = any_data(SHAPE, np.random.default_rng(seed))
    c = np.zeros((SHAPE.m, SHAPE.n), np.float32)
    with np.errstate(all="ignore"):
        for k in range(SHAPE.k):
            product = np.outer(flushed(a)[:, k].astype(np.float64), flushed(b)[k])
            c = flushed((c.astype(np.float64) + product).astype(np.float32))
    assert SPECIAL in (unlike := not_as_fp32(a, b, c)) and MIXED not in unlike


def test_only_rows_below_the_least_normal_number_are_called_subnormal():
    for size, kind in ((1.0, MIXED), (0.5, SUBNORMAL), (0.0, MIXED)):
        a = np.full((1, 4), size * 2.0**-126, np.float32)
        b = np.full((4, 1), 2.0**60, np.float32)
        assert not_as_fp32(a, b, np.ones((1, 1), np.float32)) == {kind: 1}


@pytest.mark.parametrize(
    "product", ["alpha * 8.0f * (acc * 0.125f)", "alpha * 0x1p-12f * (acc * 4096)"]
)
def test_a_scalar_that_overflows_or_vanishes_on_the_way_fails(few_shapes, product):
    text = rung("naive").source.replace("alpha * acc", product)
    verdict = check(rung("naive").with_text(text), on="emulated", seed=1, quick=True).verdict
    assert verdict.failed is not None and verdict.failed.name == SCALARS, verdict
