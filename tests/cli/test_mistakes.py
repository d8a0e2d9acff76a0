"""No mistake ends in a traceback: one line says what is wrong and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import one_line, worklog
from worklog.runs.run import runs_dir


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "warptiled", "--size", "128"], "warptiled at 128 is not in the recorded run (it holds sizes 256, "),
        (["run", "naive", "--set", "l2=rotate"], "--set needs a live measurement"),
        (["run", "naive", "--out", "new.json"], "--out needs a live measurement"),
        (["ablate", "tiles_2d", "--size", "256"], "tiles_2d at 256 with clocks=ignored is not in the recorded run"),
        (["ablate", "warptiled", "--size", "100"], "size 100 is outside warptiled's domain"),
        (["ablate", "naive", "--out", "new.json"], "--out needs a live measurement"),
        (["check", "naive", "--on", "gpu", "--emulate"], "--emulate and --on gpu contradict each other"),
        (["ablate", "nonsense"], "there is no rung 'nonsense': choose from naive, coalesced, "),
        (["ablate", "naiv"], "there is no rung 'naiv' (did you mean naive?): choose from"),
        (["ablate", "naiv", "--out", "new.json"], "there is no rung 'naiv'"),
        (
            ["ablate", "shared"],
            "shared at 256 with clocks=ignored is not in the recorded run at any size: take naive, ",
        ),
        (["run", "--set", "l2=wram"], "l2 = 'wram' is not a setting (did you mean warm?): choose from "),
        (["run", "--set", "bugdet_s=1"], "cannot read --set bugdet_s=1 (did you mean budget_s?): give "),
        (["gate", "--json"], "nothing to show: --exploits prints"),
        (["gate", "--exploits", "--recorded", "--emulate"], "--recorded shows the recorded table: omit --emulate"),
        (["gate", "--exploits", "--seeds", "3"], "no GPU to run the exploits on"),
        (["gate", "--exploits", "--emulate", "--only", "one_of_mine"], "there is no exploit one_of_mine"),
        (["gate", "--exploits", "--emulate", "--only", " , "], "--only names no exploit"),
        (["run", "warptiled", "--size", "4100"], "size 4100 is outside warptiled's domain"),
        (["run", "--size", "big"], "size 'big' is not a number"),
        (["run", "--size", "256,,512"], "size '' is not a number"),
        (["run", "--set", "l3=warm"], "cannot read --set l3=warm: give setting=value with a setting from clocks, "),
        (["run", "--set", "queue=perhaps"], "cannot read --set queue=perhaps: give true or false"),
        (["run", "--axis", "BM=64", "naive"], "--axis BM stands for a template argument of a user kernel"),
        (["figures", "--run", "missing.json"], "cannot read missing.json: No such file or directory"),
        (["figures", "--run", "."], "cannot read .: Is a directory"),
        (["site", "--grid", "missing.json"], "cannot read missing.json: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(words: list[str], complaint: str) -> None:
    assert one_line(worklog(*words)).startswith(complaint)
    assert not runs_dir().exists(), "nothing was measured, so nothing is saved"


@pytest.mark.parametrize("content", ["", "not json", '{"schema": 99}', '{"schema": 1}', "[]", "\0"])
def test_a_broken_run_file_is_one_line_and_stays(tmp_path: Path, content: str) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(content)
    assert "broken.json" in one_line(worklog("figures", "--run", str(broken)))
    assert broken.read_text() == content
    assert not (tmp_path / "figures").exists()


def test_an_unknown_command_or_option_is_a_usage_error() -> None:
    for words in (["chek"], ["run", "--bogus"], ["ablate"], ["figures", "--out"], ["settings", "x"]):
        result = worklog(*words)
        assert result.exit_code == 2 and "Error: " in result.stderr, words
    assert "No such command 'chek'. (did you mean check?)" in worklog("chek").stderr


def test_the_gate_alone_says_what_it_can_do() -> None:
    shown = worklog("gate")
    assert shown.exit_code == 0 and "--exploits" in shown.stdout


@pytest.mark.parametrize("command", ["run", "ablate"])
def test_an_existing_file_is_not_overwritten(tmp_path: Path, command: str) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("precious")
    complaint = one_line(worklog(command, "naive", "--out", str(kept)))
    assert complaint == f"{kept} exists already: give --out another name, or remove it first"
    assert kept.read_text() == "precious"


def test_live_forced_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert one_line(worklog("run", "warptiled", "--size", "100")).startswith("size 100 is outside warptiled's domain")
    assert one_line(worklog("article")).startswith("WORKLOG_SOURCE=live, but there is no GPU to measure on")


def test_an_unknown_source_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "guessed")
    for words in (["figures"], ["article"], ["peers"], ["calibrate"], ["ablate", "naive"]):
        assert "set it to live or recorded" in one_line(worklog(*words))
    doctor = worklog("doctor")
    assert doctor.exit_code == 0 and "· source: WORKLOG_SOURCE=guessed is not a source" in doctor.stdout


def test_no_traceback_in_a_shell_either() -> None:
    command = [sys.executable, "-m", "worklog", "run", "nonsense"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("worklog: there is no rung 'nonsense'")
