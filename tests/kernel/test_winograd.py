"""Winograd's form: both numbers of levels pass the gate, and small edits of the kernel fail."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.helpers import integers
from worklog.gate import edges
from worklog.gate.guarded_buffer import Memory
from worklog.gate.norms import check_norms
from worklog.gate.precision import BY_NORM, check_hard_data
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder.rungs import WINOGRAD_LEVELS, winograd, winograd_at
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Float32, Shape
from worklog.runner.check import check

BUDGET = 4 * 10**6  # instructions of a warp: 49 products take more than the default
SMALL = Shape(512, 1024, 96)


def product(kernel: Kernel, shape: Shape, multiprocessors: int, beta: float = 0.0) -> Float32:
    """Return 2 A B + beta C of integers on an emulated card."""
    device = EmulatedDevice(budget=BUDGET)
    a = integers(shape.m, shape.k)
    b = integers(shape.k, shape.n)
    old = integers(shape.m, shape.n) if beta else np.full((shape.m, shape.n), np.nan, np.float32)
    on_device = [device.upload(matrix) for matrix in (a, b, old)]
    subject = replace(kernel, multiprocessors=multiprocessors).load(device)
    subject.enqueue(shape, 2.0, on_device[0], on_device[1], beta, on_device[2])
    return device.download(on_device[2]).reshape(shape.m, shape.n)


@cache
def right_product(levels: int, beta: float) -> Float32:
    """Return the product of the kernel without an edit."""
    return product(winograd(levels), SMALL, 2, beta)


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
def test_the_kernel_passes(few_shapes, monkeypatch, levels):
    """The tile of both levels is large: one edge shape, and a benchmark shape of one tile."""
    every = edges.edge_shapes
    monkeypatch.setattr(edges, "edge_shapes", lambda domain: every(domain)[:1])
    verdict = check(
        winograd(levels), SMALL, on="emulated", seed=1, quick=True, budget=BUDGET
    ).verdict
    assert verdict.accepted, verdict.reason
    assert verdict.precision == BY_NORM


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
@pytest.mark.parametrize("multiprocessors", [1, 3, 200])
@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_any_number_of_blocks_is_right(levels, multiprocessors, beta):
    """A block takes several tiles, or none."""
    a = integers(SMALL.m, SMALL.k)
    b = integers(SMALL.k, SMALL.n)
    expected = 2 * (a @ b)
    if beta:
        expected += beta * integers(SMALL.m, SMALL.n)
    assert (product(winograd(levels), SMALL, multiprocessors, beta) == expected).all()


@pytest.mark.parametrize("tile", [{"BN": 128, "STAGES": 3}, {"BK": 16, "STAGES": 8}, {"GROUP": 1}])
def test_other_tiles_are_right(tile):
    kernel = winograd(1, **tile)
    a = integers(SMALL.m, SMALL.k)
    b = integers(SMALL.k, SMALL.n)
    assert (product(kernel, SMALL, 2) == 2 * (a @ b)).all()


@pytest.mark.parametrize("levels", WINOGRAD_LEVELS)
def test_no_register_is_spilled(levels):
    for launched in winograd(levels).passes:
        compiled = compile_cuda(launched.program, "sm_90a")
        assert (compiled.stack_bytes, compiled.spill_store_bytes) == (0, 0)


def test_it_is_refused_as_fp32_with_the_data_that_breaks_it_and_the_class_that_fits():
    device = EmulatedDevice(budget=BUDGET)
    memory = Memory(device, np.random.default_rng(1))
    subject = replace(winograd(), claimed="fp32").load(device)
    stage = check_hard_data(subject, memory, is_short=True, checked_shape=SMALL)
    assert not stage.passed
    assert "rows and columns times 2^-60 to 2^60" in stage.detail
    assert "claim fp32-norm" in stage.detail
    assert check_norms(winograd().load(device), memory, SMALL).passed


def test_the_levels_follow_the_work_of_the_busiest_multiprocessor():
    levels = {m: winograd_at(Shape.of(m)).template["LEVELS"] for m in (1024, 4096, 8192, 16384)}
    assert levels == {1024: 1, 4096: 1, 8192: 2, 16384: 2}
    assert winograd_at(Shape(8192 + 256, 8192, 8192)).template["LEVELS"] == 1
    assert rung("winograd").at(Shape.of(8192)).template["LEVELS"] == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s1 = x[2] + x[3]", "s1 = x[2] - x[3]"),
        ("s2 = s1 - x[0]", "s2 = s1 + x[0]"),
        ("factors[P7] = x[0] - x[2]", "factors[P7] = x[0] + x[2]"),
        ("factors[P3] = x[1] - s2", "factors[P3] = x[1] + s2"),
        ("t1 = x[1] - x[0]", "t1 = x[1] + x[0]"),
        ("t2 = x[3] - t1", "t2 = x[3] + t1"),
        ("factors[P7] = x[3] - x[1]", "factors[P7] = x[3] + x[1]"),
        ("factors[P4] = x[2] - t2", "factors[P4] = x[2] + t2"),
        ("if (inner == P5) add_kept(1, i, sums);", ""),
        ("inner == P2 || inner == P5) {", "inner == P5) {"),
        ("inner == P1 || inner == P6) {\n          keep", "inner == P1) {\n          keep"),
        ("product == P4 || product == P5", "product == P3 || product == P5"),
        ("if (beta != 0.0f) {", "if (beta == 0.0f) {"),
    ],
)
def test_edits_of_the_sums_give_another_product(old, new):
    source = winograd().source
    assert source.count(old) == 1
    kernel = winograd().with_text(source.replace(old, new))
    a = integers(SMALL.m, SMALL.k)
    b = integers(SMALL.k, SMALL.n)
    expected = 2 * (a @ b) - 0.5 * integers(SMALL.m, SMALL.n)
    assert (right_product(1, -0.5) == expected).all()
    assert (product(kernel, SMALL, 2, -0.5) != expected).any()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("work.m / 16 * (work.k / 8)", "work.m / 16 * (work.k / 8) - 1"),
        ("expect(full[stage], BK * (BM + BN) * 4)", "expect(full[stage], BK * BN * 4)"),
        ("step / STAGES % 2 ^ 1", "step / STAGES % 2"),
        ("        wait(full[step % STAGES], step / STAGES % 2);\n", ""),
        ("arrive(empty[(step - 1) % STAGES])", "arrive(empty[step % STAGES])"),
        ("init(empty[stage], THREADS / 32)", "init(empty[stage], THREADS / 64)"),
        ("(size_t)block * KEPT * BM * BN", "(size_t)block * BM * BN"),
    ],
)
@pytest.mark.usefixtures("few_shapes")
def test_edits_fail(old, new):
    source = winograd().source
    assert source.count(old) == 1
    kernel = winograd().with_text(source.replace(old, new))
    assert not check(kernel, on="emulated", seed=1, quick=True).verdict.accepted


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shared_sum = 2 + quadrant", "shared_sum = 2"),
        ("longer_sum = 6 + quadrant", "longer_sum = 6"),
        ("outer == P4 ? longer_sum : shared_sum", "shared_sum"),
        ("is_right(outer) * 2 * work.n", "is_right(outer) * work.n"),
        ("outer == P1 || outer == P6 || outer == P5", "outer == P1 || outer == P6"),
    ],
)
def test_edits_of_the_second_level_fail(old, new):
    source = winograd(2).source
    assert source.count(old) == 1
    a = integers(SMALL.m, SMALL.k)
    b = integers(SMALL.k, SMALL.n)
    kernel = winograd(2).with_text(source.replace(old, new))
    assert (product(kernel, SMALL, 2) != 2 * (a @ b)).any()
