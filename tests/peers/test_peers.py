"""What other harnesses pass and fail: their inputs, their old C, their sizes, their comparisons."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.gate.kernels import sequential, summed, wrong
from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from worklog.errors import LaunchFailed
from worklog.peers.checks import PEERS, Case
from worklog.problem.gemm import Domain, Shape

DEVICE = NumpyDevice()
BY_NAME = {peer.name: peer for peer in PEERS}
ALL = set(BY_NAME) - {"kernelbot", "robust-kbench"}  # that pass a right kernel; these have tolerances without a scale
OF_OTHER_SIZES = ALL - {"BackendBench", "sgemm.cu", "netlib"}
LOOSE = {"Vizuara", "KernelBench v0"}


@cache
def cases(name: str) -> list[Case]:
    return BY_NAME[name].cases(BY_NAME[name].small, 0)


def failure(name: str, function: Function, domain: Domain | None = None) -> str | None:
    return BY_NAME[name].failure(cases(name), NumpySubject(DEVICE, function, domain), DEVICE)


def passed_by(function: Function) -> set[str]:
    return {name for name in BY_NAME if failure(name, function) is None}


def zeroes_everything(p: Problem) -> None:
    p.a[:], p.c[:] = 0, 0


def in_double(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a.astype(np.float64) @ p.b.astype(np.float64)) + (p.beta * p.c if p.beta else 0)


def reads_c_at_beta_0(p: Problem) -> None:
    p.c[:] = p.alpha * summed(p.a, p.b) + p.beta * p.c


def adds_to_c(p: Problem) -> None:
    p.c[:] = p.alpha * summed(p.a, p.b) + (p.beta or 1) * p.c


def alpha_ignored(p: Problem) -> None:
    p.c[:] = summed(p.a, p.b) + (p.beta * p.c if p.beta else 0)


def leaves_rows(p: Problem, first: int) -> None:
    kept = p.c[first:].copy()
    sequential(p)
    p.c[first:] = kept


def last_row_unwritten(p: Problem) -> None:
    leaves_rows(p, p.m - 1)


def grid_rounded_down(p: Problem) -> None:
    leaves_rows(p, p.m // 16 * 16)


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        (sequential, ALL),
        (reads_c_at_beta_0, ALL),  # old values are finite, so 0 times them is 0
        (adds_to_c, {"Tensara", "SOL-ExecBench", "CUDA-L2", "SGEMM_CUDA", "sgemm.cu"}),  # zeros, or beta != 0
        (grid_rounded_down, OF_OTHER_SIZES),
        (wrong("k_tail_dropped"), OF_OTHER_SIZES),
        (alpha_ignored, ALL - {"SGEMM_CUDA", "sgemm.cu", "netlib"}),  # alpha = 1
        (wrong("not_a_number"), {"SGEMM_CUDA"}),  # a difference that is NaN isn't above a limit
        (last_row_unwritten, {"SOL-ExecBench"}),  # 99 % of 160 rows
        (wrong("writes_past_c"), ALL - {"CUDA-L2", "netlib"}),  # only these look behind C
        (wrong("faults"), set()),
        (wrong("does_nothing"), set()),
        (zeroes_everything, {"robust-kbench"}),  # computes its reference from what the kernel left of A and B
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_kernel_passes_where_its_mistake_is_not_looked_for(function: Function, passes: set[str]) -> None:
    assert passed_by(function) == passes


def test_short_formats_pass_a_hundredth_but_not_those_that_count_bits() -> None:
    accepted = passed_by(wrong("tf32_rounded"))
    assert LOOSE | {"KernelBench", "CUDA-L2"} <= accepted and not {"netlib", "kernelbot", "sgemm.cu"} & accepted
    assert set(BY_NAME) - {"kernelbot"} <= passed_by(in_double)


def test_a_launch_that_fails_and_a_size_outside_the_domain_are_reasons_and_a_lost_device_is_none() -> None:
    expected = "the launch failed: running a kernel: an illegal memory access was encountered"
    assert failure("Vizuara", wrong("faults")) == expected
    expected = "uses 160x160x1024, which is outside the kernel's domain (M % 3 == 0, N % 5 == 0)"
    assert failure("Vizuara", sequential, Domain(m=3, n=5)) == expected

    class Lost(NumpyDevice):  # after a fault that ends the context every launch fails, whatever its kernel
        def synchronize(self) -> None:
            raise LaunchFailed("running a kernel: an illegal memory access was encountered")

    device = Lost()
    with pytest.raises(LaunchFailed, match="illegal memory access"):
        BY_NAME["Vizuara"].failure(cases("Vizuara"), NumpySubject(device, sequential), device)


def test_cases_are_drawn_from_the_seed_and_differ_between_peers() -> None:
    drawn = [peer.cases(peer.small.split()[0], seed)[0] for peer in PEERS for seed in (5, 5, 6)]
    for first, again, other in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True):
        assert np.array_equal(first.a, again.a) and not np.array_equal(first.a, other.a)
        assert first.a.dtype == first.b.dtype == first.old.dtype == np.float32
    assert len({case.a.tobytes() for case in drawn[::3]}) == len({peer.mark for peer in PEERS}) == len(PEERS)


@pytest.mark.parametrize(
    ("peer", "reference", "c", "accepted"),
    [
        ("Vizuara", [100, 1], [100, 1.9], True),
        ("Vizuara", [100, 1], [100, 2.1], False),
        ("KernelBench", [1000, 0], [1000.1, 1e-4], True),
        ("KernelBench", [1000, 0], [1000.2, 0], False),
        ("SOL-ExecBench", [1.0] * 100, [1.0] * 99 + [7.0], True),
        ("SOL-ExecBench", [1.0] * 100, [1.0] * 98 + [1.03] * 2, False),
        ("SOL-ExecBench", [1.0] * 100, [1.0] * 99 + [float("nan")], False),
        ("SOL-ExecBench", [0.001, 0.002], [0.0, 0.0], False),
        ("flashinfer-bench", [1000.0, 0.001], [1005.0, 0.01], True),
        ("flashinfer-bench", [1000.0, 1.0], [1000.0, 1.02], False),
        ("flashinfer-bench", [1.0], [float("nan")], False),
        ("TritonBench", [4.0], [5.9], True),
        ("SGEMM_CUDA", [4.0, 4.0], [4.009, float("nan")], True),
        ("SGEMM_CUDA", [4.0], [4.011], False),
        ("sgemm.cu", [1e-3], [1.0002e-3], False),
        ("CUDA-L2", [2047.0, 2048.0], [2047.0, 9.0], True),
        ("CUDA-L2", [2047.0], [2046.0], False),
        ("BackendBench", [float("nan")], [float("nan")], True),
    ],
)
def test_a_comparison(peer: str, reference: list[float], c: list[float], accepted: bool) -> None:
    ones = np.ones((1, len(reference)), np.float32)
    case = Case(Shape(1, len(reference), 1), ones[:, :1], ones, ones, 1.0, 0.0, np.array([reference]))
    with np.errstate(invalid="ignore"):
        assert BY_NAME[peer].rule(np.array([c], np.float32), case) == accepted


def test_the_blas_tester_measures_in_the_size_of_the_terms() -> None:
    a, b = np.full((1, 9), 1000, np.float32), np.full((9, 1), 1000, np.float32)
    b[4:] *= -1
    b[0] = 0  # four terms of a million each way: the reference is small, its terms are not
    product = a.astype(np.float64) @ b
    case = Case(Shape(1, 1, 9), a, b, np.zeros((1, 1), np.float32), 1.0, 0.0, product)
    c, rule = (product + 15 * 2.0**-23 * 8e6).astype(np.float32), BY_NAME["netlib"].rule
    assert rule(c, case)
    assert not rule(2 * c - product.astype(np.float32) + 2, case)
    assert not rule(c, replace(case, behind=False))
