"""What commands ask for where they would measure, and what they make of the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.conftest import WHY, one_line, worklog
from tests.helpers import measured, small_run
from worklog.cli.commands import main
from worklog.kernel import LADDER
from worklog.problem import Shape, drawn
from worklog.runner import measure as bench
from worklog.runner.tasks import Task
from worklog.runner.tuned import SHAPES
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run, runs_dir
from worklog.settings import Harness


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Task], Harness]]:
    """In place of the measuring: an answer made by hand. Gives what was asked for."""
    asked: list[tuple[list[Task], Harness]] = []

    def carry_out(tasks: Sequence[Task], harness: Harness, *, out: Path | None = None, **_: Any) -> Run:
        asked.append((list(tasks), harness))
        made = [
            Measurement(t.kernel, (t.shape.m, t.shape.n, t.shape.k), "refused", reason="wrong")
            if t.kernel == "shared"
            else replace(measured(t.kernel, **t.pitfalls), shape=astuple(t.problem))
            for t in tasks
        ]
        run = small_run(measurements=made)
        run.save(out or runs_dir() / "run.json")
        return run

    monkeypatch.setattr(bench, "carry_out", carry_out)
    monkeypatch.setattr(bench, "live_wanted", lambda: True)
    return asked


def test_run_asks_for_the_whole_ladder_at_4096_or_for_what_was_typed(
    answers: list[tuple[list[Task], Harness]],
) -> None:
    worklog("run")
    words = "run naive cuBLAS --size 256,512x128x64 --size 1024 --set l2=warm --set queue=no --out here.json"
    result = worklog(*words.split())
    (ladder, unbiased), (tasks, harness) = answers
    assert unbiased == Harness() and {t.shape for t in ladder} == {Shape.of(4096)}
    assert [t.kernel for t in ladder] == [r.name for r in LADDER] + ["cuBLAS"]
    assert harness == Harness().but(l2="warm", queue=False)
    sizes = ("256", "512x128x64", "1024")
    assert [str(t) for t in tasks] == [f"{name} at {size}" for size in sizes for name in ("naive", "cuBLAS")]
    assert result.exit_code == 0 and Path("here.json").is_file()
    assert result.stdout.endswith("run saved: here.json\n")


def test_run_draws_shapes_by_a_seed_that_the_run_keeps(answers: list[tuple[list[Task], Harness]]) -> None:
    result = worklog("run", "naive", "best", "--shapes", "6", "--seed", "3", "--out", "here.json")
    assert result.exit_code == 0, result.output
    ((tasks, _),) = answers
    kinds = drawn(6, 3, SHAPES)
    assert [t.shape for t in tasks] == [shape for shape in kinds for _ in range(2)]
    for shape, kind in kinds.items():
        assert re.search(rf"^ {shape} +{kind}( +100\.0 µs +50\.0 % ±1\.0){{2}}$", result.stdout, re.MULTILINE)
    assert re.search(r"^ geometric mean +50\.0 % +50\.0 %$", result.stdout, re.MULTILINE)
    drawn_by, stale = Run.load(Path("here.json")).notes
    assert drawn_by == "6 shapes drawn: --shapes 6 --seed 3"
    assert stale.startswith("best chooses by a table for an NVIDIA H200 with driver"), "this run names no driver"
    assert one_line(worklog("run", "--shapes", "6", "--size", "512")).startswith("--shapes draws the sizes")


MINE = (
    "__global__ void sgemm(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {}\n"
)
LAUNCH = ("--grid", "(N + 31) // 32, (M + 31) // 32", "--block", "32,32")


def test_run_takes_files_and_rungs_and_adds_the_baseline(answers: list[tuple[list[Task], Harness]]) -> None:
    for name in ("mine", "other"):
        Path(f"{name}.cu").write_text(MINE)
    result = worklog("run", "mine.cu", "naive", "other.cu", *LAUNCH, "--size", "256", "--details")
    assert result.exit_code == 0, result.output
    ((tasks, _),) = answers
    assert [t.kernel for t in tasks] == ["mine", "naive", "other", "cuBLAS"]
    assert "details" in result.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "naive", "--grid", "N"], "--grid is for a user kernel"),
        (["run", "naive.cu", *LAUNCH], "two kernels are called naive: rename one"),
        (["run", "mine.cu", *LAUNCH, "--domain", "M % 64 == 0", "--size", "100"], "size 100 is outside mine's domain"),
        (["run", "mine.cu", *LAUNCH], f"no GPU to measure on: {WHY}; `worklog check`"),
        (["check", "mine.py:f"], f"a host function needs a GPU ({WHY})"),
        (["check", "mine.cu", "--grid", "1", "--block", "x"], "cannot read 'x' in 'x': use integers and + - * / %"),
        (["check", "mine.cu", "--grid", "N +", "--block", "1"], "cannot read 'N +': use integers, M, N, K and + - *"),
    ],
)
def test_a_mistake_with_a_user_kernel_is_one_line(words: list[str], complaint: str) -> None:
    for name in ("mine", "naive"):
        Path(f"{name}.cu").write_text(MINE)
    Path("mine.py").write_text("def f(*_): pass\n")
    assert one_line(worklog(*words)).startswith(complaint)


def test_a_failed_check_is_shown_and_exits_with_1(answers: list[tuple[list[Task], Harness]]) -> None:
    result = worklog("run", "naive", "shared", "--size", "512")
    assert result.exit_code == 1
    assert "shared: failed: wrong" in result.stdout
    document = json.loads(worklog("run", "naive", "shared", "--json").stdout)
    assert document["label"].startswith("live · NVIDIA H200")
    assert document["measurements"][0]["kernel"] == "naive" and document["measurements"][0]["us"] == 100.0
    assert Path(document["path"]).is_file()


def test_ablate_shows_the_effect_of_each_pitfall_and_saves(
    answers: list[tuple[list[Task], Harness]], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = worklog("ablate", "naive", "--size", "512")
    assert result.exit_code == 0
    ((tasks, _),) = answers
    assert [t.kernel for t in tasks] == ["naive"] * len(tasks)
    assert result.stdout.splitlines()[-1].startswith("run saved: ")
    effects = json.loads(worklog("ablate", "naive", "--size", "512", "--json").stdout)
    assert {"l2", "timer", "warmup", "clocks"} <= {effect["setting"] for effect in effects}


def stopped(error: BaseException) -> Result:
    """The command while whose measurement something was raised."""

    def carry_out(*_: Any, **__: Any) -> Run:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "carry_out", carry_out)
        patch.setattr(bench, "live_wanted", lambda: True)
        return CliRunner().invoke(main, ["run"])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (bench.Interrupted("interrupted: 3 of 9 measurements are kept"), "interrupted: 3 of 9 measurements are kept"),
    ],
)
def test_an_interrupt_is_one_line_and_exits_with_130(error: BaseException, words: str) -> None:
    result = stopped(error)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", f"worklog: {words}\n")


@pytest.mark.parametrize("error", [AssertionError("a bug"), PermissionError(13, "Permission denied")])
def test_a_bug_and_an_error_of_the_system_keep_their_traceback(error: Exception) -> None:
    assert stopped(error).exception is error
