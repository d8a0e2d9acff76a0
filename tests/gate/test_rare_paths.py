"""The gate searches for paths of a kernel that its other launches don't take.

It names what it does not reach.
"""

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import HEAD
from tests.gate.kernels import sequential
from tests.gate.numpy_device import NumpyDevice, NumpySubject
from worklog.emulator import launch, load
from worklog.emulator.coverage import TURNS, Coverage
from worklog.errors import LaunchFailed
from worklog.gate import Memory, exact, search
from worklog.gate.edges import check_edge_shapes, check_old_c, mistake_in
from worklog.gate.precision import SCALARS
from worklog.gate.search import check_rare_paths
from worklog.gate.words import condition as named
from worklog.kernel import Kernel, Program, rung
from worklog.kernel.emulated import EmulatedDevice, build
from worklog.problem import Domain, Shape
from worklog.runner.check import Checked, check
from worklog.runs import NeverRan

SIGNATURE = "float* C) {\n"
EFFORT = search.EFFORT


@pytest.fixture
def few_shapes(few_shapes, monkeypatch):
    """Launch few shapes, but search in full."""
    monkeypatch.setattr(search, "EFFORT", EFFORT)


def checked(
    condition: str, fault: str = "alpha = -alpha;", quick: bool = False
) -> tuple[Checked, int]:
    """Return the verdict on the first rung with a fault behind a condition, and the line."""
    kernel: Kernel = rung("naive")
    text = kernel.source.replace(SIGNATURE, f"{SIGNATURE}if ({condition}) {fault}\n", 1)
    return check(kernel.with_text(text), on="emulated", seed=3, quick=quick), text[
        : text.index(fault)
    ].count("\n") + 1


@pytest.mark.parametrize(
    ("condition", "fault", "named"),
    [
        ("M % 96 == 0 && N % 32 == 0", "return;", "at "),
        ("K == 157 && M > 40", "beta = 0.0f;", "x 157"),
        ("alpha == -3.5f && beta > 7.0f", "alpha = 1.0f;", "alpha = -3.5"),
        (
            "((size_t)A & 127) == 64",
            "alpha = -alpha;",
            "A (64|192) bytes behind a 256-byte boundary",
        ),
        ("blockIdx.x == 47", "return;", "at "),
        ("gridDim.x * gridDim.y == 11", "beta = 0.0f;", "at "),
        ("N / 48 == 5 && M / 12 % 4 == 3", "beta = 0.0f;", "at "),
        ("N == 1 && K >= 96", "K = K / 32 * 32;", "x 1"),
        ("M * 3 + N == 4001 && K % 7 == 3", "for (;;);", "at "),
        ("M * M + N * N == K * K", "alpha = -alpha;", "at "),
        ("M * N - K * K == 17", "beta = 2.0f * beta + 1.0f;", "at "),  # beta = -1 shows nothing
    ],
)
def test_a_fault_on_a_rare_path_is_found_and_its_launch_named(few_shapes, condition, fault, named):
    result, _ = checked(condition, fault)
    assert not result.verdict.accepted
    assert re.search(named, str(result.verdict.reason))


def test_a_search_knows_its_cheapest_launches_balances_both_terms_and_ends_a_launch_in_time(
    few_shapes, monkeypatch
):
    explore = search.Search.explore
    posed = search.Search.problem
    ratios = list[np.ndarray]()
    allowed = list[float]()

    def explored(self: search.Search, effort_limit: float) -> None:
        explore(self, effort_limit)
        for note in np.flatnonzero(self.is_met.any(axis=1)):
            assert self.work[self.cheapest[0, note]] == self.work[self.is_met[note]].min()
        assert not self.detectable_errors(self.rows)[1:, self.rows["K"] == 1].any(), (
            "of one term, A or B is short"
        )

    def problem(self: search.Search, row: int, claimed: str) -> Any:
        made, *rest = posed(self, row, claimed)
        if made.family == "single terms" and made.alpha and made.initial_c is not None:
            ratios.append(abs(made.beta * made.initial_c / made.alpha / (made.a @ made.b)).ravel())
        return made, *rest

    def judged(subject: Any, memory: Memory, *given: Any) -> Any:
        device = memory.device
        allowed.append(device.most_instructions - device.instructions)
        return mistake_in(subject, memory, *given)

    monkeypatch.setattr(search, "mistake_in", judged)
    monkeypatch.setattr(search.Search, "explore", explored)
    monkeypatch.setattr(search.Search, "problem", problem)
    checked("alpha == 0.3f && beta > 7.0f", "beta = 0.0f;", quick=True)
    sizes = np.concatenate(ratios)
    assert sizes.min() > 0.7 and sizes.max() < 1.5
    most = max(filter(math.isfinite, allowed))
    assert search.QUICK_EFFORT < most <= 1.5 * search.QUICK_EFFORT


def edited(name: str, old: str, new: str) -> Checked:
    text = rung(name).source
    assert old in text
    return check(rung(name).with_text(text.replace(old, new, 1)), on="emulated", seed=3)


OF_A = "A[(size_t)row * K + k]"
BOUND = "  if (row >= M"
WIDE = "__int_as_float(__float_as_int(A[(size_t)row * K + k]) & (%s ? 0xffffe000 : 0xffffffff))"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row >= M || col >= N", "row >= M || col >= N || K == 777"),
        ("row >= M || col >= N", "row >= M || col >= N || alpha == 0.3f"),
        ("row >= M || col >= N", "row >= M || col >= N || ((size_t)B & 0x70) == 0x30"),
        ("row >= M || col >= N", "row >= M || col >= min(N, 2000)"),
        ("k < K", "k < min(K, 2400)"),
        ("k < K", "k < K && k / 16 < 130"),
        (OF_A, "A[(size_t)row * K + (k + (M * K >> 17)) % K]"),
        (OF_A, WIDE % "(K > 1200)"),
        (OF_A, WIDE % "(M % 64 == 0 && N % 64 == 0)"),
        (OF_A, (f"(M % 56 == 0 && N % 40 == 0 ? __uint_as_float(__float_as_uint({OF_A}) & "
               f"0xffffe000) : {OF_A})")),
        ("k * N + col]", "k * N + col & 0xfffff]"),
        (SIGNATURE, f"{SIGNATURE}if (alpha * 8.0f == 5.0f) return;\n"),
        (SIGNATURE, f"{SIGNATURE}if (fabsf(alpha) < 1e-8f) alpha = 0.0f;\n"),
    ],
)  # fmt: skip
def test_what_the_compiler_makes_no_branch_of_is_found(few_shapes, old, new):
    reason = str(edited("naive", old, new).verdict.reason)
    assert reason.startswith(("rare paths", "corners", SCALARS))


def test_what_depends_on_data_is_found():
    rare = "if (K > 2100 && col < N && B[col] != 0.0f && fabsf(B[col]) < 0.25f) alpha = -alpha;\n"
    assert "rare paths" in str(edited("naive", BOUND, rare + BOUND).verdict.reason)


@pytest.mark.parametrize(
    "condition", ["row >= M || col >= N || K < 0", "row >= M || col >= min(N, 0x7fffffff)"]
)
def test_a_right_condition_of_the_same_form_passes_without_a_clause(few_shapes, condition):
    verdict = edited("naive", "row >= M || col >= N", condition).verdict
    assert (verdict.accepted, verdict.never_ran) == (True, ())


def test_edge_shapes_show_a_wrong_scalar_and_a_shortened_operand_so_that_the_search_need_not():
    device = EmulatedDevice()
    check_edge_shapes(rung("naive").load(device), Memory(device, np.random.default_rng(1)))
    (coverage,) = device.coverage.values()
    bounds = min(coverage.deciding)
    assert not any(any(coverage.lacking((bounds, held))) for held in (False, True))


def test_a_line_that_needs_many_steps_is_taken_before_what_is_cheaper():
    device = EmulatedDevice()
    kernel = rung("equal_shares")
    subject = kernel.load(device)
    memory = Memory(device, np.random.default_rng(3))
    problem = exact.ExactProblem("E1", *exact.family("E1", Shape(128, 512, 72), memory.rng))
    assert mistake_in(subject, memory, problem) is None
    line = kernel.source[: kernel.source.index("tile += skipped")].count("\n") + 1
    _, never_ran = check_rare_paths(subject, memory, quick=False)
    assert not any(part.first <= line <= part.last for part in never_ran)


def test_a_line_of_a_header_is_named_with_its_file(few_shapes, tmp_path):
    text = rung("naive").source.replace(
        SIGNATURE, f"{SIGNATURE}if (A[0] == 12345.625f) beta += 1.0f;\n", 1
    )
    (tmp_path / "lib.cuh").write_text(text)
    (tmp_path / "mine.cu").write_text('#include "lib.cuh"\n')
    launch = {"grid": "(N + 31) / 32, (M + 31) / 32", "block": "1024", "domain": "any"}
    kernel = Kernel.from_file(tmp_path / "mine.cu", entry="sgemm_naive<32, 32>", **launch)
    assert [part.file for part in check(kernel, on="emulated", seed=3).verdict.never_ran] == [
        "lib.cuh"
    ]


def test_offsets_in_16_bits_are_found():
    assert not edited("naive", OF_A, "A[(unsigned short)(row * K) + k]").verdict.accepted


@pytest.mark.parametrize("k", [2, 40, 5000])
def test_the_problems_of_the_search_lose_bits_in_a_shorter_format_and_have_no_zeros(k):
    a, b = exact.family(
        exact.MIXED, Shape(7, 9, k), np.random.default_rng(1), headroom=exact.HEADROOM
    )
    assert (np.abs(a) >= 1).all() and (np.abs(b) >= 1).all()
    assert np.abs(a).max() > 2**11 and np.abs(b).max() > 2**11
    assert (np.abs(a) @ np.abs(b)).max() < 2**24 >> exact.HEADROOM


@pytest.mark.parametrize(
    "seed", [7, 26, 49]
)  # a launch at an odd K multiplies sums of long numbers
def test_an_algorithm_that_multiplies_sums_of_elements_is_right_on_rare_paths(few_shapes, seed):
    strassen = Path(__file__).parents[1] / "exploits" / "right" / "strassen.cu"
    result = check(Kernel.from_file(strassen, claimed="fp32-norm"), on="emulated", seed=seed)
    assert result.verdict.accepted, result.verdict.reason


def test_a_right_result_with_alpha_0_tells_nothing_of_a_and_b():
    device = NumpyDevice()
    told = list[tuple[bool, ...]]()
    vars(device)["coverage"] = {"": SimpleNamespace(tell=lambda *shown: told.append(shown))}
    memory = Memory(device, np.random.default_rng(1))
    subject = NumpySubject(device, sequential)
    for alpha in (0.0, 1.0, 2.0):
        problem = exact.ExactProblem(
            "", *exact.family(exact.MIXED, Shape(4, 5, 6), memory.rng), alpha=alpha
        )
        assert mistake_in(subject, memory, problem) is None
    assert told == [(), (False, False, False), (), (False, True, True), (), (False, True, True)]


def test_a_fault_that_comes_once_is_not_taken_for_strassens_rounding(few_shapes):
    both = "fabsf(A[(size_t)row * K + k]) > 2048.0f", "fabsf(B[(size_t)k * N + col]) > 2048.0f"
    text = rung("naive").source.replace("template <", "__device__ int times;\ntemplate <", 1)
    text = text.replace(
        "float acc = 0.0f;", "float acc = 0.0f;\n  bool of_a = false, of_b = false;"
    )
    text = text.replace("    acc += ", f"    of_a |= {both[0]}, of_b |= {both[1]};\n    acc += ")
    once = "if (K == 157 && of_a && of_b && atomicAdd(&times, 1) == 0) acc += 1.0f;"
    stage = check(
        rung("naive").with_text(text.replace("  // With beta", f"  {once}\n  // With beta")),
        on="emulated",
        seed=3,
    ).verdict.stages[-1]
    assert (stage.name, stage.passed) == ("rare paths", False), stage


def test_a_right_path_of_a_large_k_may_take_more_instructions_than_small_shapes(few_shapes):
    text = rung("warptiled").source.replace(
        SIGNATURE, f"{SIGNATURE}if (K > 8000 && M > 100) __syncthreads();\n", 1
    )
    verdict = check(rung("warptiled").with_text(text), on="emulated", seed=3).verdict
    assert (verdict.accepted, verdict.never_ran) == (True, ()), verdict
    assert verdict.largest[2] < 8000, "the search's launches aren't stated"


def test_a_launch_that_ends_at_a_misaligned_access_shows_no_path():
    device = EmulatedDevice()
    shape = Shape.of(128)
    a, b, c = (device.upload(np.ones(shape.m * shape.n + 1, np.float32)) for _ in range(3))
    rung("vectorized").load(device).enqueue(
        shape, 2.0, device.view(a, 1, shape.m * shape.k), b, 2.0, c
    )
    with pytest.raises(LaunchFailed, match="misaligned"):
        device.synchronize()
    assert not device.coverage


@pytest.mark.parametrize(
    ("condition", "when"),
    [
        ("M > 99999999", "M >= 100000000"),
        ("N == 50000021", "N == 50000021"),
        ("K > 1041204192", "K >= 1041204193"),
        ("alpha == 0.3f && M > 20000000", "M >= 20000001 and alpha == 0.300000012"),
        ("((size_t)C >> 33 & 3) == 3", "a condition on the address of C"),
        (
            "((size_t)A & 127) == 64 && N > 20000000",
            "N >= 20000001 and the address of A % 128 == 64",
        ),
        (
            "((size_t)B & 255) == 32 && M > 20000000",
            "M >= 20000001 and the address of B % 256 == 32",
        ),
        ("A == B && K > 1", "a condition on K and the address of A and the address of B"),
    ],
)
def test_what_no_launch_can_reach_is_named_with_its_condition(few_shapes, condition, when):
    result, line = checked(condition)
    assert result.verdict.never_ran == (NeverRan(line, line, when, True),)
    assert f"; part of line {line} never ran: {when}" in str(result).splitlines()[0]
    never = {"first": line, "last": line, "when": when, "partly": True, "file": "", "untried": ""}
    assert list(result.as_dict()["never_ran"]) == [never]


FORMS = (
    "K == 84",
    "K != 84",
    "K >= 84",
    "K < 84",
    "12 <= K <= 84",
    "K % 12 == 8",
    "K % 12 != 8",
    "K % 8 != 4",
)


@pytest.mark.parametrize(
    ("condition", "step"), [*product(FORMS, (1, 4)), ("K % 159 == 2", 1), ("K % 2 == 1", 1)]
)
def test_a_condition_on_one_variable_has_the_words_that_a_reader_would_write(condition, step):
    """Its form in the kernel is unknown: K takes each multiple of a step."""
    values = step * np.arange(1, 321)
    truth = eval(f"lambda K: {condition.replace('12 <= K <= 84', '(12 <= K) & (K <= 84)')}")
    row = next(value for value in values if truth(value))
    words = named(
        lambda rows: truth(rows["K"]), {"K": row}, {"K": values}, np.random.default_rng(1)
    )
    assert [bool(eval(words, {"K": value})) for value in values] == [
        truth(value) for value in values
    ]
    assert words == condition or step == 4


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("(M * 2654435761u >> 16) == 77u && (N * 2654435761u >> 16) == 78u", True),
        ("(M * 2654435761u >> 16) == 77u && N < 0", False),
        ("K * 4 % 4 == 1 && N > 7", False),
        ("A[0] == 12345.625f", True),
    ],
)
def test_a_choice_that_no_draw_made_is_named_unless_a_part_of_its_condition_is_never_near(
    few_shapes, condition, named
):
    result, line = checked(condition, quick=True)
    assert result.verdict.accepted
    assert result.verdict.never_ran == ((NeverRan(line, line, "", True),) if named else ())


@pytest.mark.parametrize(
    ("voted", "named"), [("k0 + lane < K", False), ("__float_as_int(a) != 0x7fc12345", True)]
)
def test_a_vote_on_known_values_that_never_happens_has_no_clause(few_shapes, voted, named):
    """The compiler tests before `while (left)` whether there is a lane.

    The first lane always is there.
    """
    text = Path(__file__).with_name("votes.cu").read_text(encoding="utf-8")
    kernel = Kernel.from_source(
        text.replace("(VOTED)", f"({voted})"), grid="(N + 31) / 32, M", block="32"
    )
    verdict = check(kernel, on="emulated", seed=3, quick=True).verdict
    assert (verdict.accepted, bool(verdict.never_ran)) == (True, named), verdict


def test_quick_leaves_out_the_search_for_expensive_launches_but_names_what_they_would_run(
    few_shapes,
):
    condition = "M > 1500 && N > 1300"
    result, line = checked(condition, quick=True)
    assert result.verdict.never_ran == (NeverRan(line, line, "M >= 1501 and N >= 1301", True),)
    assert not checked(condition)[0].verdict.accepted


def test_a_condition_that_takes_too_long_to_find_is_left_out(few_shapes, monkeypatch):
    monkeypatch.setattr(search, "EFFORT", 0.0)
    result, line = checked("K > 1041204192", quick=True)
    assert result.verdict.never_ran == (NeverRan(line, line, "", True),)


def test_a_kernel_that_reads_whole_vectors_is_not_launched_at_other_addresses(few_shapes):
    read = "float2 v = M * K > 1 ? *(const float2*)A : float2();"
    result, _ = checked(
        "((size_t)A & 127) == 68 && K > 9",
        f"__threadfence(); {read} if (v.x + v.y > 3e38f) return;",
    )
    assert result.verdict.accepted, result.verdict.reason


def test_a_right_kernel_passes_without_a_clause_and_with_its_range():
    verdict = check(rung("shared"), on="emulated", seed=3).verdict
    assert (verdict.accepted, verdict.never_ran) == (True, ())
    ranges = [rf"{name} from 32 to [\d,]+ in steps of 32" for name in "MNK"]
    clause = "; reads A and B where alpha is 0"
    assert re.fullmatch(
        rf"passed as fp32 for {', '.join(ranges)} \(.* ran\){clause}", verdict.result
    )
    squares = replace(verdict, square=True).result
    ranges = r"M = N = K from 32 to [\d,]+ in steps of 32 \(\d+ of \d+ sizes ran\)"
    assert re.fullmatch(f"passed as fp32 for {ranges}{clause}", squares)


@pytest.mark.parametrize(
    "condition", ["", "__float_as_uint(beta) == 0 ? alpha * acc : "]
)  # -0 has other bits
@pytest.mark.parametrize(("rules", "accepted"), [("any", True), ("any M, N, K, any data", False)])
def test_nan_in_c_at_beta_0_is_told_and_fails_a_domain_of_any_data(condition, rules, accepted):
    device = EmulatedDevice()
    kernel = rung("naive")
    text = kernel.source.replace("beta == 0.0f ? alpha * acc : ", condition)
    loaded = kernel.with_text(text).load(device)
    loaded.domain = Domain.of(rules)
    stage = check_old_c(loaded, Memory(device, np.random.default_rng(1)))
    assert (stage.passed, "NaN" in (stage.note or stage.detail)) == (accepted, True)
    assert not check_old_c(kernel.load(device), Memory(device, np.random.default_rng(1))).note


def test_the_long_way_of_a_division_is_no_path_of_its_own():
    """The compiler divides numbers of 64 bits as such of 32 where they are small."""
    text = (
        'extern "C" __global__ void k(long long* x, long long a, long long b) { if (a > 7) '
        "x[0] = a / b; }"
    )
    compiled = build(Program("k.cu", text, "k"))[0]
    coverage = Coverage(load(compiled.ptx, compiled.symbol), ("", "", ""), (32,))
    branches = [i.pc for i in coverage.kernel.instructions if i.parts[0] == "bra" and i.guard]
    divided = [coverage.divides((pc, held)) for pc in branches for held in (False, True)]
    assert len(branches) == 2 and divided.count(True) == 1


def test_whether_a_copy_ignores_its_source_is_a_choice():
    body = """.reg .pred %p; .reg .b32 %m, %s; .reg .b64 %a; .shared .align 4 .b8 s[4];
ld.param.u32 %m, [M]; ld.param.u64 %a, [A]; mov.u32 %s, s; setp.gt.u32 %p, %m, 7;
cp.async.ca.shared.global [%s], [%a], 4, %p; ret;"""
    entry = f".visible .entry k(.param .u32 M, .param .u64 A)\n{{\n{body}\n}}"
    coverage = Coverage(load(HEAD + entry), ("M", "A"), (32,))
    buffer = np.zeros(32, np.float32)
    (pc,) = coverage.deciding
    coverage.add(launch(coverage.kernel, (1,), 32, [7, buffer]))
    assert [coverage.lacks((pc, held)) for held in (False, True)] == [False, True]
    notes, _ = coverage.judged({"M": np.array([7, 8])})
    assert notes[coverage.judge.places[pc, True]].tolist() == [False, True]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("M * N > 2**20", "a condition on M and N"),  # each matters in other launches
        ("K % 384 != 128", "K % 384 != 128"),
        ("K % 640 == 256", "K % 640 == 256"),
        ("(K % 640 == 256) | (K % 640 == 384)", "a condition on K"),
        ("(K != 512) & (M >= 640)", "M >= 640 and K != 512"),
        ("(K > 128) & (K < 640)", "256 <= K <= 512"),
        ("A % 64 == 0", "the address of A % 64 == 0"),
    ],
)
def test_a_condition_is_named_by_the_sizes_that_matter(condition, words):
    tried = {name: 128 * np.arange(1, 200) for name in ("M", "N", "K")} | {
        "A": 2**20 + 4 * np.arange(64)
    }
    row = {"M": 2**14, "N": 2**14, "K": 256, "A": 2**20}
    assert (
        named(lambda rows: eval(condition, {}, rows), row, tried, np.random.default_rng(1)) == words
    )


def test_choices_of_code_with_many_loops_are_computed_to_their_end():
    """With the budget of a kernel's launch, a right kernel failed as if it never ended."""
    step = "add.s32 %i, %i, 1;\n" + "setp.eq.s32 %q, %i, %m;\n@%q mov.u32 %x, %i;\n" * 25
    loops = "".join(
        f"mov.u32 %i, 0;\nL{n}: {step}setp.lt.s32 %p, %i, %m;\n@%p bra L{n};\n" for n in range(150)
    )
    body = f".reg .pred %p, %q;\n.reg .b32 %i, %m, %x;\nld.param.u32 %m, [M];\n{loops}ret;"
    coverage = Coverage(
        load(f"{HEAD}.visible .entry k(.param .u32 M)\n{{\n{body}\n}}"), ("M",), (32,)
    )
    last = max(pc for pc, _ in coverage.judge.places)
    notes, _ = coverage.judged({"M": np.array([1, TURNS - 1])})
    assert notes[coverage.judge.places[last, True]].tolist() == [False, True]


def test_what_depends_on_a_loop_that_was_left_too_early_is_not_known():
    """A tail of one term after a loop of two was said to have parts that never ran."""
    body = """.reg .pred %p, %q; .reg .b32 %i, %k;
ld.param.u32 %k, [K];
mov.u32 %i, 0;
L: add.s32 %i, %i, 2;
setp.lt.s32 %p, %i, %k;
@%p bra L;
setp.lt.s32 %q, %i, %k;
@%q bra END;
END: ret;"""
    kernel = load(f"{HEAD}.visible .entry k(.param .u32 K)\n{{\n{body}\n}}")
    coverage = Coverage(kernel, ("K",), (32,))
    in_loop, after = sorted(coverage.deciding)
    notes, _ = coverage.judged({"K": np.array([7, 2 * TURNS, 9 * TURNS])})

    def rows(pc: int, holds: bool) -> list[bool]:
        return [bool(made) for made in notes[coverage.judge.places[pc, holds]]]

    assert rows(in_loop, True) == [True, True, True]
    assert rows(after, True) == [False, False, False]
    assert rows(after, False) == [True, False, False]


@pytest.mark.parametrize("seed", [1, 3])
def test_a_tail_that_the_compiler_unrolls_has_no_part_that_never_ran(few_shapes, seed):
    term = "acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];"
    loop = f"  for (int k = 0; k < K; ++k) {{\n    {term}\n  }}\n"
    text = rung("naive").source
    assert loop in text
    pairs = f"""  int k = 0;
  for (; k + 2 <= K; k += 2) {{
    {term}
    acc += A[(size_t)row * K + k + 1] * B[(size_t)(k + 1) * N + col];
  }}
  for (; k < K; ++k) {term}
"""
    kernel = rung("naive").with_text(text.replace(loop, pairs))
    verdict = check(kernel, on="emulated", seed=seed).verdict
    assert (verdict.accepted, verdict.never_ran) == (True, ())


def test_code_that_no_thread_of_the_block_reaches_is_not_named(few_shapes):
    """The helper's line is only in a remainder of a loop of two turns."""
    path = Path(__file__).with_name("helper_in_a_short_loop.cu")
    kernel = Kernel.from_file(path, grid="(N + 31) / 32, (M + 31) / 32", block="256")
    verdict = check(kernel, on="emulated", seed=1).verdict
    assert (verdict.accepted, verdict.never_ran) == (True, ())


@pytest.mark.parametrize("name", ["naive", "shared", "vectorized"])
def test_no_search_fails_and_leaves_the_verdict_alone(few_shapes, name):
    """An error in a search is a remark, so a verdict without it looks as if it had ended."""
    verdict = check(rung(name), on="emulated", seed=1).verdict
    assert not [note for note in verdict.notes if "failed, which doesn't change" in note]
