"""Proofs of rungs, of users' kernels, and of wrong ones, which must not be proved."""

import pytest

from tests.proof import kernels
from tests.proof.mutants import MUTANTS
from worklog.errors import BadSetting
from worklog.kernel import HostKernel, Kernel, rung
from worklog.proof import prove
from worklog.proof.claims import BOUNDS, RACES
from worklog.proof.proof import BARRIERS, LARGEST_SIZES

PROVED = ("naive", "coalesced", "shared", "tiles_1d", "tiles_2d", "vectorized", "double_buffered")
LARGEST = LARGEST_SIZES[0]


@pytest.mark.parametrize("name", (*PROVED, "warptiled", "lane_map"))
def test_a_rung_is_proved(name):
    proof = prove(rung(name))
    assert proof.is_proved, str(proof)
    assert proof.exhausted == 0
    assert proof.largest == LARGEST
    kinds = {claim.kind for claim in proof.claims}
    has_shared = name not in ("naive", "coalesced")
    assert kinds == ({BOUNDS, RACES, BARRIERS} if has_shared else {BOUNDS, RACES})
    arrays = {claim.subject for claim in proof.claims if claim.kind == BOUNDS}
    assert arrays >= {"reads of A", "reads of B", "reads of C", "writes of C"}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_is_not_proved(name):
    mutant = MUTANTS[name]
    proof = prove(mutant.kernel, LARGEST)
    assert not proof.is_proved
    assert not proof.stopped
    assert proof.exhausted == 0
    assert {claim.kind for claim in proof.unproved} & mutant.kinds, str(proof)


@pytest.mark.parametrize("make", (kernels.guarded, kernels.rolled))
def test_a_kernel_of_a_user_is_proved(make):
    proof = prove(make())
    assert proof.is_proved, str(proof)
    assert proof.largest == LARGEST


def test_a_kernel_with_narrow_indices_is_proved_for_smaller_matrices():
    kernel = kernels.narrow()
    assert "wrap around" in str(prove(kernel, LARGEST))
    proof = prove(kernel)
    assert proof.is_proved
    assert proof.largest == LARGEST_SIZES[1]
    assert f"{proof.largest:,}" in proof.summary
    # One element of A more than 2**31 - 1.
    assert not prove(kernel, 46_341).is_proved
    assert prove(kernel, 46_340).is_proved


@pytest.mark.parametrize(
    ("name", "reason"),
    [("async_copies", "cp.async"), ("barriers", "mbarrier"), ("split", "one launch")],
)
def test_a_proof_stops_with_a_reason(name, reason):
    proof = prove(rung(name))
    assert not proof.is_proved
    assert not proof.claims
    assert reason in proof.stopped
    assert proof.summary == f"not proved: {proof.stopped}"


def changed(before: str, after: str) -> Kernel:
    """Return the kernel of tiles with guards, after a change."""
    kernel = kernels.guarded()
    assert kernel.source.count(before) == 1
    return kernel.with_text(kernel.source.replace(before, after))


def test_an_address_that_depends_on_data_is_not_proved():
    proof = prove(changed("B[(size_t)k_b * N + col]", "B[(size_t)A[0]]"), LARGEST)
    [claim] = [claim for claim in proof.unproved if claim.subject == "reads of B"]
    assert "cvt" in claim.reason
    indirect = "B[((const int*)A)[0]]"
    proof = prove(changed("B[(size_t)k_b * N + col]", indirect), LARGEST)
    [claim] = [claim for claim in proof.unproved if claim.subject == "reads of B"]
    assert "loaded data" in claim.reason


def test_a_loop_with_a_step_that_grows_is_not_proved():
    kernel = kernels.narrow()
    source = kernel.source.replace("++k", "k += k + 1")
    assert source != kernel.source
    proof = prove(kernel.with_text(source), 2**15)
    reasons = {claim.subject: claim.reason for claim in proof.unproved}
    assert "step" in reasons["reads of A"]


def test_a_condition_of_early_iterations_is_not_assumed_in_late_ones():
    loop = "for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];"
    kernel = kernels.narrow()
    assert kernel.source.count(loop) == 1
    late = """
#pragma unroll 1
    for (int k = 0; k < K; ++k) {
      if (k < 5) acc += A[row * K + k];
      else if (k >= 7) acc += B[K * N + k];
    }
    """
    proof = prove(kernel.with_text(kernel.source.replace(loop, late)), 2**15)
    assert [claim.subject for claim in proof.unproved] == ["reads of B"]


def test_a_grid_that_is_not_affine_stops():
    kernel = kernels.narrow().with_launch(grid="(N + 15) / 16, (M + 15) / 16 * (2048 / K)")
    assert "grid" in prove(kernel).stopped


def test_too_few_blocks_are_in_bounds_and_too_many_are_not():
    kernel = kernels.rolled()
    assert prove(kernel.with_launch(grid="N / 16, 1")).is_proved
    proof = prove(kernel.with_launch(grid="N / 16 + 1, M / 16"), LARGEST)
    assert {claim.subject for claim in proof.unproved if claim.kind == BOUNDS} == {
        "reads of B",
        "reads of C",
        "writes of C",
    }


def test_a_grid_with_a_second_layer_of_blocks_races():
    kernel = kernels.rolled()
    proof = prove(kernel.with_launch(grid="N / 16, M / 16, 2"))
    assert {(claim.kind, claim.subject) for claim in proof.unproved} == {(RACES, "C")}


def test_a_proof_repeats():
    first = prove(rung("tiles_1d"))
    second = prove(rung("tiles_1d"))
    assert (first.claims, first.queries) == (second.claims, second.queries)
    document = first.as_dict()
    assert document["proved"]
    assert len(document["claims"]) == len(first.claims)


def test_a_host_function_has_no_proof():
    function = Kernel.from_function(test_a_proof_repeats)
    assert isinstance(function, HostKernel)
    with pytest.raises(BadSetting, match="host function"):
        prove(function)
