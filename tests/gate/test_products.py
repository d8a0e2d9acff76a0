"""The label for products that are not kept to 24 bits: told of whoever does it, and never a reason to refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.right import RIGHT, epilogue, in_double, strassen, summed
from tests.gate.wrong_stages import holds_integers
from tests.gate.wrong_values import bf16, tf32, tf32_rounded, truncates
from worklog.gate import Checker, Verdict
from worklog.gate.precision import NAME, SHORT
from worklog.problem.gemm import Domain, Float32, Shape

DEVICE = NumpyDevice()
EXAM = Checker(DEVICE, Shape(96, 160, 128), 5)


def verdict(function: Function, claimed: str = "fp32", domain: Domain | None = None) -> Verdict:
    return EXAM.check(NumpySubject(DEVICE, function, domain), claimed)


def split(values: Float32, parts: int, to: object) -> list[Float32]:
    """The first parts of a sum of short numbers that is the value."""
    assert callable(to)
    found = []
    for _ in range(parts):
        found.append(to(values))
        values = values - found[-1]
    return found


def three_tf32(p: Problem) -> None:
    """Three products of 11-bit parts for one: the product of the low parts is left out."""
    (a_high, a_low), (b_high, b_low) = split(p.a, 2, tf32), split(p.b, 2, tf32)
    epilogue(p, (summed(a_low, b_high) + summed(a_high, b_low)) + summed(a_high, b_high))


def four_tf32(p: Problem) -> None:
    """All four."""
    (a_high, a_low), (b_high, b_low) = split(p.a, 2, tf32), split(p.b, 2, tf32)
    low = summed(a_low, b_low) + summed(a_low, b_high)
    epilogue(p, (low + summed(a_high, b_low)) + summed(a_high, b_high))


def six_bf16(p: Problem) -> None:
    """Six of the nine products of 8-bit parts, the larger ones: of 12-bit integers nothing is lost."""
    a, b = split(p.a, 3, bf16), split(p.b, 3, bf16)
    pairs = [(i, j) for i in range(3) for j in range(3) if i + j <= 2]
    terms = [summed(a[i], b[j]) for i, j in sorted(pairs, key=sum, reverse=True)]
    epilogue(p, sum(terms[1:], terms[0]))


@pytest.mark.parametrize(("function", "domain"), RIGHT, ids=lambda value: getattr(value, "__name__", str(value)))
def test_whoever_multiplies_whole_elements_has_no_note(function: Function, domain: Domain) -> None:
    found = verdict(function, domain=domain if EXAM.shape in domain else None)
    assert found.accepted and found.stages[-2].name == NAME
    assert found.notes == ((f"products are {SHORT}",) if function is strassen else ())


@pytest.mark.parametrize("function", [three_tf32, strassen])
def test_short_products_are_told_and_not_refused(function: Function) -> None:
    found = verdict(function)
    assert found.accepted and found.precision == "fp32" and str(found) == "fp32 ok"
    assert found.notes == (f"products are {SHORT}",)
    told = found.stages[-2]
    assert "differ at 96x160x128" in told.detail and 0 < told.measured <= told.limit
    assert Verdict.from_dict(json.loads(json.dumps(found.as_dict()))) == found


@pytest.mark.parametrize("function", [four_tf32, six_bf16, in_double])
def test_who_leaves_nothing_out_has_no_note(function: Function) -> None:
    assert verdict(function).notes == ()


def test_an_accumulator_that_truncates_keeps_its_products() -> None:
    assert verdict(truncates, "fp32-emulated").notes == ()


def test_nobody_asks_a_short_format() -> None:
    found = verdict(tf32_rounded, "tf32")
    assert found.accepted and NAME not in [stage.name for stage in found.stages]


def test_whoever_writes_outside_only_here_is_refused_all_the_same() -> None:
    def only_here(p: Problem) -> None:
        epilogue(p, summed(p.a, p.b))
        if holds_integers(p) and np.count_nonzero(p.b) == p.n and p.k > 1:
            p.c_buffer.beyond(0, 2)[-1] = 0

    found = verdict(only_here)
    assert found.reason == "products: family E4 at 96x160x128: it wrote outside C"
