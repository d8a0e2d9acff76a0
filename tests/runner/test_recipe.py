"""The CI recipe: the commands of its steps, run by bash in a repository, on the virtual GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "notebooks" / "examples" / "regression.yml"
BENCHMARKS = """
import worklog
from tests.exploits.arrays import xp

@worklog.bench("N=64,128")
def product(state):
    a, b, c = (xp.empty(state.N, state.N) for _ in range(3))
    def launch():
        xp.gemm(1.0, a, b, 0.0, c)
    return launch
"""
SLOWER = BENCHMARKS.replace("    return", "        xp.gemm(1.0, a, b, 0.0, c)\n    return")


class Runner:
    """A self-hosted runner.

    A clone of a repository, the virtual GPU's `worklog`, and a `gh` that keeps the comment.
    """

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "clone"
        self.comment = folder / "comment.md"
        self.output = folder / "output"
        tools = folder / "tools"
        tools.mkdir()
        for name, does in {
            "worklog": f'exec {sys.executable} -P -m tests.virtual.command "$@"',
            "gh": f'test "$1 $2 $3 $4" = "pr comment 7 --body-file" && cp "$5" {self.comment}',
        }.items():
            (tools / name).write_text(f"#!/bin/sh\n{does}\n")
            (tools / name).chmod(0o755)
        self.recipe: dict[str, Any] = yaml.safe_load(RECIPE.read_text())
        given = {
            "MEASURE": "worklog bench benchmarks.py --set most_samples=32",
            "PULL_REQUEST": "7",
            "GH_TOKEN": "-",
        }
        self.env = os.environ | self.recipe["env"] | given | {"GITHUB_OUTPUT": str(self.output)}
        self.env |= {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "WORKLOG_HOME": str(folder),
        }
        for words in (f"init -q --bare {folder}/origin", f"clone -q {folder}/origin {self.clone}"):
            subprocess.run(["git", *words.split()], check=True, capture_output=True)

    def steps(self, job: str, text: str) -> int:
        """Return the exit code of the job's steps with these benchmarks committed."""
        (self.clone / "benchmarks.py").write_text(text)
        git = "git -c user.name=x -c user.email=x@x"
        subprocess.run(
            f"{git} add benchmarks.py; {git} commit -qm x --allow-empty",
            shell=True,
            cwd=self.clone,
            check=True,
        )
        for path in self.clone.glob("*.jsonl"):
            path.unlink()
        for step in self.recipe["jobs"][job]["steps"]:
            if "uses" in step:
                assert step["uses"].startswith("actions/checkout@"), "nothing else needs a network"
                continue
            command = step["run"]
            said = (
                re.findall(r"code=(\d)", self.output.read_text()) if self.output.exists() else [""]
            )
            command = command.replace("${{ steps.compare.outputs.code }}", said[-1])
            assert "${{" not in command
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", command], cwd=self.clone, env=self.env
            )
            if done.returncode:
                return done.returncode
        return 0


def test_a_slower_benchmark_fails_the_pull_request_and_the_table_is_its_comment(tmp_path):
    runner = Runner(tmp_path)
    assert runner.steps("record", BENCHMARKS) == 0
    assert runner.steps("compare", BENCHMARKS) == 0
    assert runner.comment.read_text().startswith("### worklog: 2 same · threshold 2 %")
    assert not (runner.clone / "new2.jsonl").exists(), "nothing is to be confirmed"
    assert runner.steps("compare", SLOWER) == 1
    assert "### worklog: 2 slower · threshold 2 %" in runner.comment.read_text()
    assert "| product | N=64 |" in runner.comment.read_text()
    assert (runner.clone / "new2.jsonl").exists(), "a second process confirms it"
