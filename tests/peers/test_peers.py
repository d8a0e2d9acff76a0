"""What other harnesses pass and refuse: their inputs, their old C, their sizes, their comparisons."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.right import epilogue, in_double, reads_c_at_beta_0, sequential
from tests.gate.wrong import wrong
from worklog.errors import LaunchFailed
from worklog.peers import rules
from worklog.peers.checks import PEERS, Peer, Question, passes
from worklog.peers.rules import Expected
from worklog.problem.gemm import Domain, Float32, Shape

DEVICE = NumpyDevice()
BY_NAME = {peer.name: peer for peer in PEERS}


@cache
def questions(name: str) -> list[Question]:
    return BY_NAME[name].questions("emulated", 0)


def passed_by(function: Function, domain: Domain | None = None) -> set[str]:
    subject = NumpySubject(DEVICE, function, domain)
    return {peer.name for peer in PEERS if passes(peer, questions(peer.name), subject, DEVICE) is None}


def test_marks_and_names_are_unique() -> None:
    assert len(PEERS) >= 14
    assert len({peer.name for peer in PEERS}) == len({peer.mark for peer in PEERS}) == len(PEERS)
    assert all(len(peer.mark) == 2 for peer in PEERS)
    assert all(peer.source for peer in PEERS), "each rule says where it was read"


def test_an_honest_kernel_is_refused_by_tolerances_that_know_no_scale() -> None:
    assert set(BY_NAME) - passed_by(sequential) == {"kernelbot", "robust-kbench"}
    assert set(BY_NAME) - passed_by(in_double) <= {"kernelbot"}


def test_who_fills_c_with_zeros_passes_what_adds_to_it() -> None:
    """So do those who ask with a beta that is not 0 and nothing else."""
    assert passed_by(wrong("adds_to_c")) == {"Tensara", "SOL-ExecBench", "CUDA-L2"} | {"SGEMM_CUDA", "sgemm.cu"}


def test_who_asks_multiples_only_passes_a_grid_that_is_rounded_down() -> None:
    expected = set(BY_NAME) - {"kernelbot", "robust-kbench", "BackendBench", "sgemm.cu", "netlib"}
    assert passed_by(wrong("grid_rounded_down")) == passed_by(wrong("k_tail_dropped")) == expected


def test_who_asks_alpha_1_passes_whoever_ignores_it() -> None:
    assert passed_by(sequential) - passed_by(wrong("alpha_ignored")) == {"SGEMM_CUDA", "sgemm.cu", "netlib"}


def test_a_difference_that_is_nan_is_not_above_a_limit() -> None:
    assert passed_by(wrong("not_a_number")) == {"SGEMM_CUDA"}


def test_short_formats_pass_a_hundredth() -> None:
    assert {"Vizuara", "KernelBench v0", "KernelBench", "CUDA-L2"} <= passed_by(wrong("tf32_rounded"))
    assert {"Vizuara", "KernelBench v0", "CUDA-L2"} <= passed_by(wrong("bf16_inputs"))
    assert {"Vizuara", "KernelBench v0", "SOL-ExecBench"} <= passed_by(wrong("scaled_by_1_001"))
    assert not {"netlib", "kernelbot", "sgemm.cu"} & passed_by(wrong("tf32_rounded"))


def test_99_percent_misses_a_row_of_160() -> None:
    assert passed_by(wrong("last_row_unwritten")) == {"SOL-ExecBench"}


def test_whoever_writes_too_far_is_seen_only_by_those_who_look() -> None:
    assert passed_by(sequential) - passed_by(wrong("writes_past_c")) == {"CUDA-L2", "netlib"}


def test_the_inputs_that_were_changed_are_the_references_inputs() -> None:
    def zeroes_everything(p: Problem) -> None:
        p.a[:], p.c[:] = 0, 0

    assert passed_by(zeroes_everything) == {"robust-kbench"}
    assert "robust-kbench" not in passed_by(wrong("clobbers_a"))


def test_what_does_not_launch_or_does_nothing_is_refused_by_all() -> None:
    assert passed_by(wrong("faults")) == passed_by(wrong("does_nothing")) == set()
    peer = BY_NAME["Vizuara"]
    why = passes(peer, questions("Vizuara"), NumpySubject(DEVICE, wrong("faults")), DEVICE)
    assert why == "the launch failed: running a kernel: an illegal memory access was encountered"


def test_a_fixed_list_of_sizes_refuses_a_kernel_with_a_domain() -> None:
    subject = NumpySubject(DEVICE, sequential, Domain(m=3, n=5))
    why = passes(BY_NAME["Vizuara"], questions("Vizuara"), subject, DEVICE)
    assert why == "uses 160x160x1024, which is outside the kernel's domain (M % 3 == 0, N % 5 == 0)"


def test_old_values_of_c_are_finite_so_that_reading_them_at_beta_0_is_no_fault() -> None:
    assert passed_by(reads_c_at_beta_0) == passed_by(sequential)


def test_a_live_machine_is_asked_the_peers_own_sizes() -> None:
    peer = replace(BY_NAME["Vizuara"], live=(Shape(8, 8, 8),))
    assert [asked.shape for asked in peer.questions("live", 0)] == [Shape(8, 8, 8)]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_questions_are_drawn_from_the_seed(peer: Peer) -> None:
    smaller = replace(peer, small=peer.small[:1])
    (one, *_), (again, *_), (other, *_) = (smaller.questions("emulated", seed) for seed in (5, 5, 6))
    assert np.array_equal(one.a, again.a) and not np.array_equal(one.a, other.a)
    assert one.a.dtype == one.b.dtype == one.old.dtype == np.float32


# ------------------------------------------------------------------------------------------- the comparisons alone


def expected(reference: list[float]) -> Expected:
    product = np.array([reference])
    one = np.ones((1, len(reference)), np.float32)
    return Expected(product, (one[:, :1], one, one))


@pytest.mark.parametrize(
    ("rule", "reference", "got", "word"),
    [
        (rules.largest_share, [100, 1], [100, 1.9], True),
        (rules.largest_share, [100, 1], [100, 2.1], False),
        (rules.close(1e-4, 1e-4), [1000, 0], [1000.1, 1e-4], True),
        (rules.close(1e-4, 1e-4), [1000, 0], [1000.2, 0], False),
        (rules.most_of_them, [1.0] * 100, [1.0] * 99 + [7.0], True),
        (rules.most_of_them, [1.0] * 100, [1.0] * 98 + [7.0] * 2, False),
        (rules.most_of_them, [1.0] * 100, [1.0] * 99 + [float("nan")], False),
        (rules.most_of_them, [0.001, 0.002], [0.0, 0.0], False),
        (rules.either, [1000.0, 0.001], [1005.0, 0.01], True),
        (rules.either, [1000.0, 1.0], [1000.0, 1.02], False),
        (rules.close(0.5, 1e-5), [4.0], [5.9], True),
        (rules.no_difference_above, [4.0, 4.0], [4.009, float("nan")], True),
        (rules.no_difference_above, [4.0], [4.011], False),
        (rules.relative, [1e-3], [1.0002e-3], False),
        (rules.exact_up_to_2047, [2047.0, 2048.0], [2047.0, 9.0], True),
        (rules.exact_up_to_2047, [2047.0], [2046.0], False),
        (rules.equal_nan, [float("nan")], [float("nan")], True),
    ],
)
def test_a_comparison(rule: rules.Rule, reference: list[float], got: list[float], word: bool) -> None:
    c: Float32 = np.array([got], np.float32)
    with np.errstate(invalid="ignore"):
        assert rule(c, expected(reference)) is word


def test_the_blas_tester_measures_in_the_size_of_the_terms() -> None:
    a, b = np.full((1, 9), 1000, np.float32), np.full((9, 1), 1000, np.float32)
    b[4:] *= -1
    b[0] = 0  # four terms of a million each way: the reference is small, its terms are not
    product = a.astype(np.float64) @ b
    old = np.zeros((1, 1), np.float32)
    c = (product + 15 * 2.0**-23 * 8e6).astype(np.float32)
    assert rules.in_eps_of_its_terms(c, Expected(product, (a, b, old)))
    assert not rules.in_eps_of_its_terms(2 * c - product.astype(np.float32) + 2, Expected(product, (a, b, old)))
    assert not rules.in_eps_of_its_terms(c, Expected(product, (a, b, old), behind=False))


def test_epilogue_is_used() -> None:
    """The right kernels of these tests write alpha A B + beta C."""

    def direct(p: Problem) -> None:
        epilogue(p, p.a @ p.b)

    assert {"SGEMM_CUDA", "netlib"} <= passed_by(direct)


def test_a_lost_device_is_no_peers_word() -> None:
    """After a fault that ends the context every launch fails, and none of them says anything about its kernel."""

    class Lost(NumpyDevice):
        def synchronize(self) -> None:
            raise LaunchFailed("running a kernel: an illegal memory access was encountered")

    device = Lost()
    with pytest.raises(LaunchFailed, match="illegal memory access"):
        passes(BY_NAME["Vizuara"], questions("Vizuara"), NumpySubject(device, sequential), device)
