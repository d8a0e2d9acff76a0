"""The gate searches for paths of a kernel that its other launches don't take, and names what it does not reach."""

import pytest

from worklog.kernel import Kernel, rung
from worklog.runner.check import Checked, check
from worklog.runs.records import NeverRan

SIGNATURE = "float* C) {\n"


def checked(condition: str, fault: str = "alpha = -alpha;", name: str = "naive") -> tuple[Checked, int]:
    """A rung with a fault behind a condition, and the line."""
    kernel: Kernel = rung(name)
    text = kernel.source.replace(SIGNATURE, f"{SIGNATURE}if ({condition}) {fault}\n", 1)
    return check(kernel.with_text(text), on="emulated", seed=3), text[: text.index(fault)].count("\n") + 1


@pytest.mark.parametrize(
    ("condition", "fault", "named"),
    [
        ("M % 96 == 0 && N % 32 == 0", "return;", "at "),
        ("K == 157 && M > 40", "beta = 0.0f;", "x 157"),
        ("alpha == -3.5f && beta > 7.0f", "alpha = 1.0f;", "alpha = -3.5"),
        ("((size_t)A & 127) == 64", "alpha = -alpha;", "bytes behind a 256-byte boundary"),
        ("blockIdx.x == 47", "return;", "at "),
    ],
)
def test_a_fault_on_a_rare_path_is_found_and_its_launch_named(condition: str, fault: str, named: str) -> None:
    result, _ = checked(condition, fault)
    assert not result.verdict.accepted
    assert named in str(result.verdict.reason)


@pytest.mark.parametrize(
    ("condition", "when"), [("M > 99999999", "M >= 100000000"), ("N == 50000021", "N == 50000021")]
)
def test_what_no_launch_can_reach_is_named_with_its_condition(condition: str, when: str) -> None:
    result, line = checked(condition)
    assert result.verdict.never_ran == (NeverRan(line, line, when),)
    assert f"; line {line} never ran: {when}" in str(result).splitlines()[-1]
    assert result.as_dict()["never_ran"] == [{"first": line, "last": line, "when": when}]


def test_a_right_kernel_passes_without_a_clause_and_with_its_range() -> None:
    verdict = check(rung("shared"), on="emulated", seed=3).verdict
    assert (verdict.accepted, verdict.never_ran) == (True, ())
    assert verdict.result.startswith("passed as fp32 for M up to 1,1")
