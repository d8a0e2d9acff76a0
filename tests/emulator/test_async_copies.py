"""mbarriers and the copies that complete on them: what they compute, and the mistakes that are found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import compiled, cuda, integers, kernel, run
from worklog.emulator import BudgetExceeded, Result, UnsupportedInstruction, launch
from worklog.emulator.launch import load_variables

SPECIALISED = cuda("warp_specialised")
BUGS = re.findall(r"\w+", SPECIALISED.split("enum Bug {")[1].split("}")[0])


def line_of(text: str) -> int:
    assert SPECIALISED.count(text) == 1, text
    return SPECIALISED[: SPECIALISED.index(text)].count("\n") + 1


def with_bug(source: str, bug: str, threads: int, arguments: list[Any]) -> Result:
    """Run one block of a kernel with one of its bugs."""
    code, names = compiled(source, "k"), re.findall(r"\w+", source.split("enum Bug {")[1].split("}")[0])
    variables = load_variables(code)
    variables["bug"][0] = names.index(bug)
    return launch(code, (1, 1), threads, arguments, source=source, variables=variables)


def specialised(bug: str, k: int = 96) -> tuple[bool, Result]:
    """Whether C is right, and the result, for 64 x 64 x k."""
    rng = np.random.default_rng(0)
    a, b, c = integers(rng, 64, k), integers(rng, k, 64), np.full((64, 64), np.nan, np.float32)
    result = with_bug(SPECIALISED, bug, 160, [64, 64, k, 1.0, a, b, 0.0, c])
    return np.array_equal(c, a @ b), result


def test_warps_hand_stages_over() -> None:
    right, result = specialised("NONE")
    assert right and result.findings == ()
    # 12 stages, each with 8 rows of B of 256 bytes.
    assert result.lines[COPY].global_load.bytes == 12 * 8 * 256


COPY, STORE, READ = line_of('"l"(from), "r"(bytes)'), line_of("a[k][r] = x.x"), line_of("const float4 b =")
ARRIVE, EXPECT, WAIT = line_of("mbarrier.arrive.shared"), line_of("mbarrier.arrive.expect_tx"), line_of('"r"(parity)')
REFILL = r"thread 128 of block \(0, 0, 0\) refills shared byte 2048 before thread \d+ has released what it reads"
EXTRA = r"arrives at the mbarrier at shared byte 16384 although all 33 arrivals of its phase 0 have been counted"
FOUND = {
    "RELEASES_WITHOUT_SYNCWARP": ("early-overwrite", COPY, REFILL),
    "RELEASES_BEFORE_READING": ("shared-race", STORE, r"thread \d+ of block \(0, 0, 0\) reads .* thread 128 writes"),
    "NO_WAIT_FOR_FULL": ("missing-wait", READ, r"thread 0 of block \(0, 0, 0\) reads shared byte 2048 that the copy"),
    "NO_WAIT_FOR_EMPTY": ("early-overwrite", COPY, "overwrites shared byte 2048 that the copy of line"),
    "FULL_PARITY_STAYS": ("wrong-phase", ARRIVE, "completes phase 1 of the mbarrier at shared byte 16416 before any"),
    "EMPTY_PARITY_STAYS": ("mbarrier-misuse", ARRIVE, EXTRA),
    "WAITS_FOR_ANOTHER_STAGE": ("missing-wait", READ, "reads shared byte 6144 that the copy"),
    "EXPECTS_MORE_BYTES": ("byte-count", EXPECT, "thread 128 .* expects 16 bytes more than the copies of phase 0"),
    "EXPECTS_FEWER_BYTES": ("byte-count", COPY, "thread 135 .* copies 256 bytes that the mbarrier at shared byte"),
    "COUNTS_FEWER_ARRIVALS": ("mbarrier-misuse", ARRIVE, "although all 32 arrivals .* 2048 bytes are still to come"),
    "NO_FENCE": ("unfenced-init", COPY, "no fence.mbarrier_init or fence.proxy.async follows"),
    "NO_BARRIER_AFTER_INIT": ("mbarrier-misuse", WAIT, r"with no __syncthreads\(\) after its mbarrier.init"),
    "ONE_MBARRIER_NOT_INITIALISED": ("mbarrier-misuse", WAIT, "which no thread has initialised"),
}


@pytest.mark.parametrize("bug", FOUND)
def test_a_wrong_hand_over_is_found(bug: str) -> None:
    kind, line, message = FOUND[bug]
    findings = specialised(bug)[1].findings
    assert [f for f in findings if (f.kind, f.line) == (kind, line) and re.search(message, f.message)], findings


DEADLOCKS = {
    "EMPTY_PARITY_INVERTED": "phase 0 of the mbarrier at shared byte 16416 lacks 4 of 4 arrivals",
    "COUNTS_MORE_ARRIVALS": "phase 0 of the mbarrier at shared byte 16384 lacks 1 of 34 arrivals",
}


@pytest.mark.parametrize("bug", DEADLOCKS)
def test_a_deadlock_names_the_mbarriers_that_are_waited_for(bug: str) -> None:
    with pytest.raises(BudgetExceeded, match=r"^deadlock or endless loop: thread \d+ of block \(0, 0, 0\)") as error:
        specialised(bug)
    assert DEADLOCKS[bug] in str(error.value)


# As libcu++ waits for its barriers: attempts are counted, then the clock is read.
COUNTS_ATTEMPTS = """  __shared__ unsigned long long barrier;
  unsigned place = __cvta_generic_to_shared(&barrier), done = 0, attempts = 0;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 33;" :: "r"(place));
  __syncthreads();
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(place));
  for (long long start = clock64(); !done && attempts < most; ++attempts) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(place) : "memory");
    if (attempts > 16 && clock64() - start > 40000) __nanosleep(100);
  }
  out[threadIdx.x] = attempts;
"""


def test_a_wait_that_counts_its_attempts_is_a_deadlock_unless_it_ends() -> None:
    source, out = kernel(COUNTS_ATTEMPTS, "unsigned* out, unsigned most"), np.zeros(32, np.uint32)
    assert run(source, [out, 100]).ok and out.tolist() == [100] * 32
    with pytest.raises(BudgetExceeded, match=r"^deadlock or endless loop: .*\n.*\n.* lacks 1 of 33 arrivals"):
        run(source, [out, 2**32 - 1])


def test_each_bug_of_the_kernel_is_tested() -> None:
    assert {"NONE", *FOUND, *DEADLOCKS} == set(BUGS)


VALUES = np.arange(100, 356, dtype=np.uint32)


def bulk_copies() -> np.ndarray:
    """What kernels/bulk_copies.cu writes."""
    lanes, pairs = np.arange(64), VALUES[:64] + VALUES[63::-1]
    wanted = [VALUES[:252], VALUES[:4], pairs, lanes, lanes, lanes * 0, lanes * 0 + 1, lanes * 0 + 1]
    return np.concatenate(wanted).astype(np.uint32)


# Kernels without findings: threads of their block, arrays, and what becomes of the last one. GPUs give the same.
CASES: dict[str, tuple[int, list[Any], np.ndarray]] = {
    "mbarriers": (32, [np.zeros(288, np.uint32)], np.repeat(np.array([2, 1, 1, 0, 1, 0, 1, 0, 1], np.uint32), 32)),
    "bulk_copies": (64, [VALUES, np.zeros(640, np.uint32)], bulk_copies()),
}


@pytest.mark.parametrize("name", CASES)
def test_each_form_does_what_it_should(name: str) -> None:
    threads, arrays, expected = CASES[name]
    arguments = [array.copy() for array in arrays]
    result = launch(compiled(cuda(name), "k"), (1,), threads, arguments, source=cuda(name))
    assert result.findings == ()
    np.testing.assert_array_equal(arguments[-1], expected)


@pytest.mark.parametrize(
    ("bug", "kind", "message"),
    [
        ("NO_WAIT_FOR_CP_ASYNC", "missing-wait", "reads bytes that the cp.async of line"),
        ("NO_WAIT_FOR_READ", "early-overwrite", "may still be reading: use cp.async.bulk.wait_group.read"),
        ("WAITS_FOR_ONE_GROUP", "early-overwrite", "overwrites shared byte 256 that the copy of line"),
        ("NO_PROXY_FENCE", "missing-fence", "with no fence.proxy.async in between"),
        ("ANOTHER_BLOCK", "shared-out-of-bounds", "asks for block 1 of its cluster, which has one block"),
        ("TOO_FEW_BYTES", "byte-count", "copies 16 bytes that the mbarrier at shared byte 1280 has not expected"),
    ],
)
def test_a_missing_step_of_a_copy_is_found(bug: str, kind: str, message: str) -> None:
    threads, arrays, _ = CASES["bulk_copies"]
    findings = with_bug(cuda("bulk_copies"), bug, threads, [array.copy() for array in arrays]).findings
    assert [f for f in findings if f.kind == kind and message in f.message], findings


def test_a_cluster_of_two_blocks_is_refused() -> None:
    source = kernel("", "").replace("__global__", "__global__ void __cluster_dims__(2, 1, 1)", 1).replace("void k", "k")
    with pytest.raises(UnsupportedInstruction, match="clusters of more than one block"):
        compiled(source, "k")
