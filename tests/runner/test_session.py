"""A session checks a kernel at several sizes.

What depends on no size is launched once, and the box stays stated.
"""

import pytest
from pytest import approx

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, VirtualSession
from worklog.gate import SgemmChecker
from worklog.gate.edges import EDGE_SHAPES
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.runner.job import product_job
from worklog.runner.worker import measure_job
from worklog.runs import Verdict

ONCE = {
    EDGE_SHAPES,
    "alpha, beta and C of 24 bits",
    "C of NaN, beta = 0",
    "A and B of NaN, alpha = 0",
    "alignment",
}


def product(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)


def wrong_in_small_ones(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)
    if C.shape[0] < 64:
        xp.fill(C, 0.0)


@pytest.fixture
def session():
    xp.machine = Machine()
    names = ("product", "wrong_in_small_ones")
    kernels = [Kernel.from_function(f"{__file__}:{name}", name=name) for name in names]
    return VirtualSession(xp.machine, *kernels)


def test_a_job_with_energy_has_the_joules_of_a_launch_in_a_row(session):
    m = measure_job(session, product_job("product", 64), QUICK.but(energy_s=0.2))
    assert m.status == "measured" and m.energy is not None and m.no_energy == ""
    assert m.watts == approx(500.0, rel=0.05)
    assert m.joules == approx(500.0 * 1e-6 * m.energy.us, rel=0.05)
    assert m.energy.us == approx(m.hot.value, rel=0.05)


def details(verdict: Verdict) -> dict[str, str]:
    return {stage.name: stage.detail for stage in verdict.stages}


def test_what_no_size_changes_is_launched_once_and_said(session):
    first, second = (session.verdict("product", Shape.of(n)) for n in (64, 96))
    assert first.accepted and second.accepted and [*details(first)] == [*details(second)]
    for name, detail in details(second).items():
        is_repeated = detail == f"{details(first)[name]} (once for all sizes, with 64)"
        assert is_repeated is (name in ONCE), name
    assert second.largest == first.largest and min(first.largest) > 500
    assert "at 96" in details(second)["exact at the benchmark shape"]


def test_the_other_stages_draw_the_same_problems_for_a_kernel_that_comes_later(session):
    """Else a kernel could get easier ones. The shapes below a large one are drawn."""
    session.verdict("product", Shape.of(64))
    seed = session.checker(Shape.of(512)).seed
    fresh = SgemmChecker(session.device, Shape.of(512), seed).check(session.load("product"))
    later = session.verdict("product", Shape.of(512))
    assert fresh.seed == later.seed
    for name, detail in details(fresh).items():
        is_same = details(later)[name] == detail
        assert is_same or name in (*ONCE, "corners")  # of the largest sizes so far


def test_a_kernel_that_fails_at_small_shapes_fails_at_each_size(session):
    for n in (64, 96):
        verdict = session.verdict("wrong_in_small_ones", Shape.of(n))
        assert not verdict.accepted and verdict.stages[-1].name == EDGE_SHAPES
    assert session.verdict("product", Shape.of(96)).accepted, "another kernel"
