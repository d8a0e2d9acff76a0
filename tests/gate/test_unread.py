"""What BLAS doesn't read: A and B where alpha is 0, and C where beta is 0; both hold NaN then."""

import numpy as np
import pytest

from tests.gate.kernels import epilogue, summed
from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from worklog.gate import Memory
from worklog.gate.edges import check_old_c, check_unread_inputs
from worklog.problem import Domain
from worklog.runs import Stage

NEITHER = "elements are neither beta C nor NaN"


def plain(p: Problem) -> None:
    """Compute alpha A B, also where alpha is 0."""
    epilogue(p, summed(p.a, p.b))


def as_blas(p: Problem) -> None:
    """Read neither A and B nor C where they are multiplied by 0."""
    product = np.zeros_like(p.c) if p.alpha == 0 else summed(p.a, p.b)
    epilogue(p, product)


def scales_c(p: Problem) -> None:
    """Have a path for alpha = 0, which multiplies C by beta, also by 0."""
    if p.alpha == 0:
        p.c[:] = p.beta * p.c
    else:
        plain(p)


def leaves_c(p: Problem) -> None:
    """Have a path for alpha = 0, which is right for beta = 1 alone."""
    if p.alpha != 0:
        plain(p)


def drops_nan(p: Problem) -> None:
    """Compute a maximum, which drops NaN."""
    epilogue(p, np.fmax(summed(p.a, p.b), np.float32(-1e30)))


def stage_of(check: object, function: Function, domain: Domain | None = None) -> Stage:
    subject = NumpySubject(NumpyDevice(), function, domain)
    assert callable(check)
    stage: Stage = check(subject, Memory(subject.device, np.random.default_rng(0)))
    return stage


@pytest.mark.parametrize(
    ("function", "reason", "clause"),
    [
        (plain, "", "reads A and B where alpha is 0"),
        (as_blas, "", ""),
        (scales_c, "", ""),
        (leaves_c, NEITHER, ""),
        (drops_nan, "", ""),
    ],
)
def test_alpha_0_over_nan_gives_beta_c_or_nan_which_the_verdict_names(function, reason, clause):
    stage = stage_of(check_unread_inputs, function)
    assert stage.passed is (reason == "") and reason in stage.detail and stage.clause == clause


def test_a_kernel_without_beta_is_launched_with_alpha_0_alone():
    def product(p: Problem) -> None:
        assert (p.alpha, p.beta) == (0, 0)
        p.c[:] = 0

    assert stage_of(check_unread_inputs, product, Domain(beta=False)).passed


@pytest.mark.parametrize(
    ("function", "note"),
    [(plain, ""), (as_blas, ""), (scales_c, "C is read where alpha and beta are 0: ")],
)
@pytest.mark.parametrize("any_data", [False, True])
def test_a_c_of_nan_is_not_read_where_alpha_and_beta_are_0(function, note, any_data):
    """A kernel that states any data fails."""
    stage = stage_of(check_old_c, function, Domain(any_data=any_data))
    assert stage.passed is not (bool(note) and any_data)
    assert (stage.note or stage.detail).startswith(note) or note in stage.detail
    assert bool(stage.note) is (bool(note) and not any_data)
