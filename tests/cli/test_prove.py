"""`worklog check --prove`: what was tested, and what is proved for every shape."""

import json
from pathlib import Path

from tests.cli.conftest import one_line, worklog
from tests.cli.test_sarif import RACE
from worklog.proof import prover

NAMED = ("--emulate", "--quick", "--seed", "1", "--prove")


def test_the_verdict_keeps_tested_and_proved_apart():
    result = worklog("check", "naive", *NAMED)
    assert result.exit_code == 0, result.output
    verdict = result.stdout.splitlines()[0]
    tested, _, proved = verdict.partition("; proved: ")
    assert tested.startswith("tested: passed as fp32 for M from 1 to")
    assert "any M, N, K, each size at most 1,073,741,824" in proved
    assert "✓ proved for any M, N, K" in result.stdout


def test_without_the_option_nothing_is_called_proved():
    result = worklog("check", "naive", *NAMED[:-1])
    assert result.stdout.startswith("passed as fp32")
    assert "proved" not in result.stdout


def test_json_has_each_claim():
    result = worklog("check", "naive", *NAMED, "--json")
    proof = json.loads(result.stdout)["proof"]
    assert proof["proved"]
    assert {claim["kind"] for claim in proof["claims"]} == {"bounds", "race freedom"}


def test_a_racy_kernel_is_not_proved_and_the_reason_has_the_lines():
    Path("race.cu").write_text(RACE, encoding="utf-8")
    result = worklog("check", "race.cu", *NAMED, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert not document["accepted"]
    lines = RACE.splitlines()
    [written] = [number for number, line in enumerate(lines, 1) if "// written" in line]
    [read] = [number for number, line in enumerate(lines, 1) if "acc += As" in line]
    races = [claim for claim in document["proof"]["claims"] if claim["subject"] == "As"]
    unproved = [claim["lines"] for claim in races if not claim["proved"]]
    assert [written, read] in unproved


def test_a_kernel_beyond_proofs_passes_and_the_reason_is_shown():
    result = worklog("check", "async_copies", *NAMED)
    assert result.exit_code == 0, result.output
    assert "; not proved: line" in result.stdout.splitlines()[0]
    assert "cp.async" in result.stdout


def test_without_z3_the_extra_is_named_before_the_check(monkeypatch):
    def missing(_name):
        raise ImportError

    prover.z3.cache_clear()
    monkeypatch.setattr(prover, "import_module", missing)
    assert "gemm-worklog[proof]" in one_line(worklog("check", "naive", *NAMED))


def test_a_problem_has_no_proof():
    result = worklog("check", "mine.cu", "--problem", "row_sums", "--prove")
    assert "--problem" in one_line(result)
