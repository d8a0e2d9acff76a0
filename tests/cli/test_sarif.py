"""`worklog check --sarif`: findings with their lines, for code-scanning tools."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import one_line, worklog
from tests.helpers import PLAIN

ACTION = Path(__file__).resolve().parents[2] / ".github/actions/check/action.yml"
LAUNCH = "// grid: (N + 15) / 16, (M + 7) / 8   block: 16, 8\n"
SHORT = PLAIN.replace("k < K", "k < K - 1")
RACE = """// grid: N / 32, M / 32
// block: 1024
// domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                     float* C) {
  __shared__ float As[32][32];
  const int y = threadIdx.x / 32, x = threadIdx.x % 32;
  const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 32) {
    As[y][x] = A[row * K + k0 + x];  // written
    __syncthreads();
    for (int k = 0; k < 32; ++k) {
      acc += As[y][k] * B[(k0 + k) * N + col];
    }
  }
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
"""


def results(path: str = "out.sarif") -> list[dict[str, Any]]:
    """Return the results of a log, and see that it is of the version that tools read."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    assert document["version"] == "2.1.0"
    [run] = document["runs"]
    assert run["tool"]["driver"]["name"] == "worklog"
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert rules == {result["ruleId"] for result in run["results"]}
    found: list[dict[str, Any]] = run["results"]
    return found


def place(location: dict[str, Any]) -> tuple[str, int]:
    """Return the file and the line of a location."""
    physical = location["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical.get("region", {}).get("startLine", 0)


def test_a_race_has_the_lines_of_both_accesses():
    Path("src").mkdir()
    Path("src/race.cu").write_text(RACE, encoding="utf-8")
    assert worklog("check", "src/race.cu", "--quick", "--sarif", "out.sarif").exit_code == 1
    race = next(result for result in results() if result["ruleId"] == "missing-syncwarp")
    assert race["level"] == "error"
    lines = RACE.splitlines()
    written = 1 + next(number for number, line in enumerate(lines) if "// written" in line)
    read = 1 + next(number for number, line in enumerate(lines) if "acc +=" in line)
    assert place(race["locations"][0]) == ("src/race.cu", written)
    assert place(race["relatedLocations"][0]) == ("src/race.cu", read)


def test_several_kernels_stand_in_one_log_and_a_wrong_result_without_a_line_is_about_its_file():
    wrong = LAUNCH + SHORT.replace("mine", "wrong")
    Path("two.cu").write_text(LAUNCH + PLAIN + wrong, encoding="utf-8")
    assert worklog("check", "two.cu", "--quick", "--sarif", "out.sarif").exit_code == 1
    [result] = results()
    assert result["ruleId"] == "exact on edge shapes"
    assert place(result["locations"][0]) == ("two.cu", 0)
    assert result["message"]["text"].startswith("wrong: ")


def test_a_kernel_that_passes_leaves_an_empty_log():
    Path("mine.cu").write_text(LAUNCH + PLAIN, encoding="utf-8")
    assert worklog("check", "mine.cu", "--quick", "--sarif", "out.sarif").exit_code == 0
    assert results() == []


@pytest.mark.parametrize("options", [("--watch",), ("--sarif",)])
def test_what_the_log_cannot_be_is_said(options):
    Path("mine.cu").write_text(LAUNCH + PLAIN, encoding="utf-8")
    if options == ("--sarif",):
        Path("folder").mkdir()
        result = worklog("check", "mine.cu", "--quick", "--sarif", "folder")
        assert result.exit_code == 2 and "folder" in result.stderr
    else:
        assert "--sarif" in one_line(worklog("check", "mine.cu", "--sarif", "x", *options))


def git(*arguments: str) -> None:
    """Run git in the current folder."""
    identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_the_action_checks_the_files_that_changed():
    git("init", "-q")
    Path("old.cu").write_text(LAUNCH + SHORT, encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "a wrong kernel")
    Path("my new.cu").write_text(LAUNCH + SHORT, encoding="utf-8")
    git("add", ".")
    script = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"][-1]["run"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "BASE": "HEAD", "SARIF": "out.sarif", "PATH": path}
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=environment, check=False)
    assert done.returncode == 1
    assert [place(result["locations"][0])[0] for result in results()] == ["my new.cu"]
