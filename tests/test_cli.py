"""`worklog …` as a person types it: what it answers, what it leaves with, and that no mistake ends in a traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.helpers import measured, small_run
from worklog import bench, device, doctor, emulated
from worklog.cli import main
from worklog.errors import BadSetting
from worklog.gemm import Shape
from worklog.gremlins import GREMLINS
from worklog.harness.settings import Harness
from worklog.ladder import LADDER
from worklog.plans import Task
from worklog.runs import Measurement, Run, runs_dir

WHY = "this test has no GPU"


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, whatever machine this is; an empty home, and a folder of its own to write to."""
    for module in (bench, device, doctor):
        monkeypatch.setattr(module, "gpu_reason", lambda: WHY)
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def worklog(*words: str) -> Result:
    """Type it. An exception that is no exit would be a traceback."""
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def one_line(result: Result) -> str:
    """The complaint: one line on standard error, nothing on standard output, exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("worklog: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("worklog: ").rstrip("\n")


# ------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run"], f"no GPU to measure on: {WHY}; without one, open a recording"),
        (["run", "naive", "--size", "256"], f"no GPU to measure on: {WHY}"),
        (["ablate", "tiles_2d", "--size", "256"], "tiles_2d at 256 with clocks=ignored is not in the recorded run"),
        (["ablate", "warptiled", "--size", "100"], "size 100 is outside warptiled's domain"),
        (["run", "nonsense"], "there is no rung 'nonsense': choose from naive, coalesced, "),
        (["ablate", "nonsense"], "there is no rung 'nonsense': choose from naive, coalesced, "),
        (["run", "warptiled", "--size", "4100"], "size 4100 is outside warptiled's domain"),
        (["run", "--size", "0"], "size M = 0 is not a positive integer: give one such as 4096"),
        (["run", "--size", "-4096"], "size M = -4096 is not a positive integer"),
        (["run", "--size", "512x-1x512"], "size N = -1 is not a positive integer"),
        (["run", "--size", "big"], "size 'big' is not a number"),
        (["run", "--size", "256,,512"], "size '' is not a number"),
        (["run", "--size", ""], "size '' is not a number"),
        (["run", "--size", "1x2"], "size (1, 2) has 2 parts"),
        (["run", "--set", "l3=warm"], "cannot read --set l3=warm: give setting=value with a setting from clocks, "),
        (["run", "--set", "l2"], "cannot read --set l2"),
        (["run", "--set", "l2=tepid"], "l2 = 'tepid' is not a setting: choose from flush"),
        (["run", "--set", "gate=perhaps"], "gate = 'perhaps' is not a setting: choose from True, False, article"),
        (["run", "--set", "queue=perhaps"], "cannot read --set queue=perhaps: give true or false"),
        (["run", "--set", "precision=much"], "cannot read --set precision=much: give a number"),
        (["run", "--set", "precision=2"], "precision = 2.0 must be between 0 and 1"),
        (["run", "--set", "least_samples=0"], "least_samples = 0"),
        (["run", "--set", "budget_s=-1"], "budget_s = -1.0 must be a positive number"),
        (["figures", "--run", "missing.json"], "cannot read the run missing.json: No such file or directory"),
        (["figures", "--run", "."], "cannot read the run .: Is a directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(words: list[str], complaint: str) -> None:
    assert one_line(worklog(*words)).startswith(complaint)
    assert not runs_dir().exists(), "nothing was measured, so nothing is saved"


@pytest.mark.parametrize("content", ["", "not json", '{"schema": 99}', '{"schema": 1}', "[]", "\0"])
def test_a_run_file_that_is_none_is_one_line_and_stays(tmp_path: Path, content: str) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(content)
    assert "broken.json" in one_line(worklog("figures", "--run", str(broken)))
    assert broken.read_text() == content
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    "words", [["frobnicate"], ["run", "--bogus"], ["ablate"], ["figures", "--out"], ["settings", "x"]]
)
def test_what_is_no_command_is_usage(words: list[str]) -> None:
    result = worklog(*words)
    assert result.exit_code == 2
    assert "Error: " in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["run", "ablate"])
def test_an_existing_file_is_not_overwritten(tmp_path: Path, command: str) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("precious")
    complaint = one_line(worklog(command, "naive", "--out", str(kept)))
    assert complaint == f"{kept} exists already: give --out another name, or remove it first"
    assert kept.read_text() == "precious"


def test_live_forced_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert one_line(worklog("article")).startswith("WORKLOG_SOURCE=live, but there is no GPU to measure on")


def test_a_source_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "guessed")
    assert "set it to live or recorded" in one_line(worklog("figures"))


def test_no_traceback_in_a_shell_either() -> None:
    command = [sys.executable, "-m", "worklog", "run", "nonsense"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("worklog: there is no rung 'nonsense'")


# ------------------------------------------------------------------------------------------------------ no GPU needed


@pytest.mark.parametrize("words", [[], ["--help"], *([c, "-h"] for c in sorted(main.commands))])
def test_help(words: list[str]) -> None:
    result = worklog(*words)
    assert result.exit_code == (0 if words else 2)
    assert "Usage:" in result.output


def test_version() -> None:
    assert worklog("--version").output.startswith("worklog, version ")


def test_the_doctor_says_what_is_missing_and_what_to_do() -> None:
    result = worklog("doctor")
    assert result.exit_code == 0
    assert f"· gpu: {WHY}\n    No times can be measured here." in result.stdout
    assert re.search(r"^✓ kernels: 8 in ", result.stdout, re.MULTILINE)


def test_the_doctor_for_machines() -> None:
    result = worklog("doctor", "--json")
    assert result.exit_code == 0
    findings = {finding["subject"]: finding for finding in json.loads(result.stdout)}
    assert findings["gpu"]["good"] is False and findings["gpu"]["state"] == WHY and findings["gpu"]["advice"]
    assert findings["python"]["good"] and findings["kernels"]["good"]
    assert all(finding["good"] or finding["advice"] for finding in findings.values())


def test_settings_lists_every_gremlin() -> None:
    result = worklog("settings")
    assert result.exit_code == 0
    for gremlin in GREMLINS:
        assert f"{gremlin.setting} = {gremlin.honest} (lies: " in result.stdout
    assert [g["setting"] for g in json.loads(worklog("settings", "--json").stdout)] == [g.setting for g in GREMLINS]


def test_figures_of_a_run_file(tmp_path: Path) -> None:
    path = small_run(measurements=[measured("naive", 4096), measured("cuBLAS", 4096, ratio=1.0)]).save(
        tmp_path / "r.json"
    )
    result = worklog("figures", "--run", str(path), "--out", "drawn", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["label"] == "live · NVIDIA H200 · clocks as found · 2026-11-21"
    drawn = sorted(str(p) for p in Path("drawn").iterdir())
    assert sorted([*document["figures"], document["gallery"]]) == drawn
    assert "drawn/ladder.svg" in drawn and "drawn/ladder.png" in drawn
    assert "ablation" in document["not_drawn"]


def test_figures_that_a_run_has_nothing_for_say_why(tmp_path: Path) -> None:
    path = small_run(measurements=[Measurement("naive", (64, 64, 64), "refused", reason="wrong")]).save(
        tmp_path / "r.json"
    )
    result = worklog("figures", "--run", str(path))
    assert result.exit_code == 0
    assert "ladder not drawn: " in result.stdout


@pytest.fixture
def two_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The article executes two rungs instead of all."""
    execute = emulated.execute
    monkeypatch.setattr(emulated, "execute", lambda progress: execute(progress, LADDER[:2]))


@pytest.mark.usefixtures("two_rungs")
def test_the_article_without_a_gpu_takes_what_there_is(tmp_path: Path) -> None:
    run = small_run(measurements=[measured("naive", 4096), measured("cuBLAS", 4096, ratio=1.0)])
    run.save(runs_dir() / "latest.json")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- worklog table: rewritten by `worklog article` -->\n<!-- worklog table ends -->\n")
    result = worklog("article")
    assert result.exit_code == 0
    assert result.stdout.startswith("live · NVIDIA H200 · clocks as found · 2026-11-21")
    assert "  figures/ladder.svg\n" in result.stdout
    assert "tables rewritten: README.md" in result.stdout
    assert "executed here · emulated · sm_90 PTX" in result.stdout
    assert re.search(r"^ coalesced +fp32 ok +256 +none +2\.5 ", result.stdout, re.MULTILINE)
    assert "| naive | one thread, one element |" in readme.read_text(encoding="utf-8")


@pytest.mark.usefixtures("two_rungs")
def test_the_article_for_machines_is_one_document(tmp_path: Path) -> None:
    small_run(measurements=[measured("naive", 4096), measured("cuBLAS", 4096, ratio=1.0)]).save(runs_dir() / "r.json")
    result = worklog("article", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [m["kernel"] for m in document["measurements"]] == ["naive", "cuBLAS"]
    assert document["figures"] and document["readme"] is None
    assert document["executed"]["label"] == "emulated · sm_90 PTX"
    assert [(row["rung"], row["precision"], row["findings"]) for row in document["executed"]["rungs"]] == [
        ("naive", "fp32", 0),
        ("coalesced", "fp32", 0),
    ]


def test_the_article_can_leave_the_emulator_out(tmp_path: Path) -> None:
    small_run(measurements=[measured("naive", 4096), measured("cuBLAS", 4096, ratio=1.0)]).save(runs_dir() / "r.json")
    assert json.loads(worklog("article", "--json", "--no-emulate").stdout)["executed"] is None


# --------------------------------------------------------------------------------------------- what a GPU would answer


Carry = Callable[..., Run]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Task], Harness]]:
    """In place of the measuring: an answer made by hand. Gives what was asked for."""
    asked: list[tuple[list[Task], Harness]] = []

    def carry_out(tasks: Sequence[Task], harness: Harness, *, out: Path | None = None, **_: Any) -> Run:
        asked.append((list(tasks), harness))
        made = [
            Measurement(t.kernel, (t.shape.m, t.shape.n, t.shape.k), "refused", reason="wrong")
            if t.kernel == "shared"
            else measured(t.kernel, t.shape.m, **t.gremlins)
            for t in tasks
        ]
        run = small_run(measurements=made)
        run.save(out or runs_dir() / "run.json")
        return run

    monkeypatch.setattr(bench, "carry_out", carry_out)
    return asked


def test_run_asks_for_the_whole_ladder_at_4096(answers: list[tuple[list[Task], Harness]]) -> None:
    worklog("run")
    ((tasks, harness),) = answers
    assert harness == Harness()
    assert [t.kernel for t in tasks] == [r.name for r in bench.LADDER] + ["cuBLAS"]
    assert {t.shape for t in tasks} == {Shape.of(4096)}


def test_run_asks_for_what_was_typed(answers: list[tuple[list[Task], Harness]]) -> None:
    words = [
        "run",
        "naive",
        "cuBLAS",
        "--size",
        "256,512x128x64",
        "--size",
        "1024",
        "--set",
        "l2=warm",
        "--set",
        "queue=no",
    ]
    result = worklog(*words, "--out", "here.json")
    assert result.exit_code == 0
    ((tasks, harness),) = answers
    assert harness == Harness().but(l2="warm", queue=False)
    assert [str(t) for t in tasks] == [
        f"{name} at {size}" for size in ("256", "512x128x64", "1024") for name in ("naive", "cuBLAS")
    ]
    assert Path("here.json").is_file()
    assert result.stdout.endswith("run saved: here.json\n")


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
    assert "of memory peak" in result.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "none.cu", *LAUNCH], "cannot read none.cu: No such file or directory"),
        (["run", "mine.cu"], "a file's kernel needs a launch: give --grid"),
        (["run", "naive", "--grid", "N"], "--grid, --block and --entry are for a kernel of your own"),
        (["run", "naive.cu", *LAUNCH], "a kernel of yours is called naive, as another one is: give it another name"),
        (["run", "mine.cu", "mine.cu", *LAUNCH], "a kernel of yours is called mine, as another one is"),
        (["run", "mine.cu", *LAUNCH, "--domain", "M % 64 == 0", "--size", "100"], "size 100 is outside the domain"),
        (["run", "mine.cu", *LAUNCH], f"no GPU to measure on: {WHY}; without one, `worklog check` puts a kernel"),
    ],
)
def test_a_slip_about_a_kernel_of_ones_own_is_one_line(words: list[str], complaint: str) -> None:
    for name in ("mine", "naive"):
        Path(f"{name}.cu").write_text(MINE)
    assert one_line(worklog(*words)).startswith(complaint)


def test_run_for_machines(answers: list[tuple[list[Task], Harness]]) -> None:
    result = worklog("run", "naive", "--json")
    document = json.loads(result.stdout)
    assert document["label"].startswith("live · NVIDIA H200")
    assert document["measurements"][0]["kernel"] == "naive" and document["measurements"][0]["us"] == 100.0
    assert Path(document["path"]).is_file()


def test_a_refusal_is_shown_and_leaves_1(answers: list[tuple[list[Task], Harness]]) -> None:
    result = worklog("run", "naive", "shared", "--size", "512")
    assert result.exit_code == 1
    assert "shared: refused: wrong" in result.stdout


def test_ablate_without_a_gpu_tells_the_recorded_effects() -> None:
    result = worklog("ablate", "naive", "--size", "256,4096")
    assert result.exit_code == 0
    assert result.stdout.startswith("recorded · NVIDIA H200")
    assert "run saved" not in result.stdout


@pytest.mark.parametrize("words", [[], ["--recorded"]])
def test_peers_without_a_gpu_tells_the_recorded_comparison(words: list[str]) -> None:
    result = worklog("peers", *words)
    assert result.exit_code == 0
    assert result.stdout.startswith("recorded · NVIDIA H200 · clocks as found · ")
    assert re.search(r"^ +spin 1 +\d", result.stdout, re.MULTILINE) and "saved" not in result.stdout
    document = json.loads(worklog("peers", *words, "--json").stdout)
    assert document["kind"] == "peers" and document["rows"]


def test_peers_that_shall_measure_without_a_gpu_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_line(worklog("peers", "--out", "new.json")).startswith(f"no GPU to measure on: {WHY}")
    assert one_line(worklog("peers", "--recorded", "--out", "new.json")).startswith("--recorded measures nothing")
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert one_line(worklog("peers")).startswith("WORKLOG_SOURCE=live, but there is no GPU to measure on")
    assert not Path("new.json").exists()


def test_ablate_tells_each_gremlin_and_saves(
    answers: list[tuple[list[Task], Harness]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "live_wanted", lambda: True)
    result = worklog("ablate", "naive", "--size", "512")
    assert result.exit_code == 0
    ((tasks, _),) = answers
    assert [t.kernel for t in tasks] == ["naive"] * len(tasks)
    assert result.stdout.splitlines()[-1].startswith("run saved: ")
    effects = json.loads(worklog("ablate", "naive", "--size", "512", "--json").stdout)
    assert {"l2", "timer", "warmup", "clocks"} <= {effect["setting"] for effect in effects}


def test_an_interrupt_leaves_130_and_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Run:
        raise bench.Interrupted("interrupted: 3 of 9 measurements are kept in run.json")

    monkeypatch.setattr(bench, "carry_out", interrupted)
    result = worklog("run")
    assert result.exit_code == 130
    assert result.stderr == "worklog: interrupted: 3 of 9 measurements are kept in run.json\n"


def test_an_unreadable_mistake_below_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this package's errors become one line; a bug keeps its traceback."""

    def buggy(*_: Any, **__: Any) -> Run:
        raise AssertionError("a bug")

    monkeypatch.setattr(bench, "carry_out", buggy)
    assert isinstance(CliRunner().invoke(main, ["run"]).exception, AssertionError)
    assert BadSetting.exit_code == 2
