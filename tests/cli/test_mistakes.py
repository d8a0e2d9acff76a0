"""No mistake ends in a traceback: one line says what is wrong and what to do."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.conftest import one_line, worklog
from tests.conftest import WHY
from tests.helpers import SIGNATURE
from worklog.cli import main
from worklog.runner import measure as bench
from worklog.runs import runs_dir
from worklog.runs.run import Run

LAUNCH = "--grid '(N + 31) // 32, (M + 31) // 32' --block 32,32"
# Files in the folder in which the commands below are typed.
FILES = {
    "taken": "no folder",
    "kept.json": "precious",
    **dict.fromkeys(
        ("mine.cu", "naive.cu", "my kernel.cu"), f"__global__ void sgemm({SIGNATURE}) {{}}\n"
    ),
    "mine.py": "def f(*_): pass\n",
    "bench.py": '\nimport worklog\n@worklog.bench("N=1,2")\ndef softmax(state): pass\n',
}


@pytest.fixture
def files(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return FILES


NO_GPU = f"no GPU to measure on: {WHY}; "
EXISTS = "kept.json exists already: give --out another name, or remove it first$"
MISTAKES = [
    # What the recording lacks, and what needs a GPU
    (
        "run warptiled --size 128",
        r"warptiled at 128 is not in the recorded run \(it holds sizes 256, ",
    ),
    ("run naive --set timer=graph --set l2=warm", "--set needs a live measurement"),
    ("run naive --out new.json", "--out needs a live measurement"),
    ("doctor --calibrate --set clocks=locked", "--set needs a live measurement"),
    ("sweep tiles_2d --axis BM=64 --set l2=warm", "--set needs a live measurement"),
    (f"run mine.cu --against torch,naive {LAUNCH}", f"{NO_GPU}`worklog check FILE.cu`"),
    ("run mine.cu --problem softmax", f"{NO_GPU}`worklog check FILE --problem softmax` checks"),
    ("bench bench.py", f"{NO_GPU}--list shows"),
    ("sweep tiles_2d --axis BM=64 --trials 1", "--trials needs a live measurement"),
    (
        "check mine.py:f --problem softmax",
        rf"the emulator runs .cu files only, and a host function needs a GPU: {WHY}",
    ),
    (
        "check mine.py:f",
        rf"the emulator runs .cu files only, and a host function needs a GPU: {WHY}",
    ),
    # Names, sizes, settings and launches
    ("run naive ' , '", "' , ' names no kernel: name a rung or a file"),
    ("check ''", "'' names no kernel"),
    (
        "rerun ''",
        r"there is no run '': give a file, a name of `worklog log`, a recording \(h100_drawn, .*\), or REVISION:PATH",
    ),
    ("log --since 2026-9", "'2026-9' isn't a UTC day, month or time: write it as 2026-11-27"),
    ("log --since 2026-13", "'2026-13' isn't a UTC day, month or time: write it as 2026-11-27"),
    (
        "run NAIV",
        r"there is no kernel 'NAIV' \(did you mean naive\?\): name a file, or naive, .*, cuBLAS, torch",
    ),
    ("run warptiled --against toch", r".*did you mean torch\?"),
    ("run --size 256,,512", "size '' is not a number"),
    ("run shared --size 100 --preview", "size 100 is outside shared's domain"),
    ("run naive --grid N", "--grid is for a .cu file: a rung has its own"),
    # Options that contradict each other, or need another one
    ("check mine.cu --problem softmax --size 64", "--size is for the ladder's SGEMM: omit it"),
    ("check mine.cu --problem softmax --grid 1", "--grid is for the ladder's SGEMM: omit it"),
    ("run --problem softmax", "--problem needs a solution"),
    ("check mine.cu --dtype float16", "--dtype needs --problem"),
    ("run --case 'n=*'", "--case needs --problem"),
    ("run --shapes 6 --size 512", "--shapes draws the sizes"),
    ("doctor --settings --calibrate", ".*omit one"),
    ("doctor --set clocks=locked", "--set takes only clocks here, with --calibrate"),
    ("exploits --emulate --only ' , '", "--only names no exploit"),
    (
        "exploits --emulate --only zero",
        r"there is no exploit zero \(did you mean zeros\?\): .* worklog exploits lists all$",
    ),
    (
        "ablate mine.cu",
        "ablate takes a rung: of a file, bias one setting, as in worklog run mine.cu --set l2=warm$",
    ),
    ("peers --axis N=1", "--axis is for declared benchmarks"),
    ("show --samples", "--samples is for --csv and --parquet: name a file"),
    ("sweep warptiled", "worklog sweep warptiled takes --axis"),
    ("sweep best --axis BM=64", "worklog sweep takes any rung but best"),
    (
        "sweep naive --axis BM=64",
        r"no tile is left to measure \(more than 1024 threads per block\)",
    ),
    # Files
    ("check none.cu", "cannot read none.cu: No such file or directory"),
    ("new mine.cu", "mine.cu exists already: give another name$"),
    ("new notebooks taken/below", "taken exists already: give another folder$"),
    ("new --rung 27 'A b'", "cannot name a rung 'A b': start with a-z"),
    ("new --rung 27 naive", "rung 1 is naive already"),
    ("new none/mine.cu", "cannot write none/mine.cu: No such file or directory"),
    ("new other.cu --dtype float16", "--dtype is for a problem"),
    ("new staged DIR --rung 20", "--rung takes a name alone"),
    (
        "article --out taken/figures",
        "cannot write figures into taken/figures: taken: .*; give another folder with --out",
    ),
    (
        "inspect mine.cu --html mine.cu",
        "--html writes a web page: give a name that ends in .html, not mine.cu$",
    ),
    ("run naive --out kept.json", EXISTS),
    ("show --csv kept.json", "kept.json exists already: give --csv another name"),
    ("show h200 --markdown none/h200.md", "there is no folder none for --markdown: make it"),
    (
        "peers --out taken/run.json",
        "cannot write taken/run.json: taken: Not a directory; give --out another name$",
    ),
]


@pytest.mark.parametrize(("line", "complaint"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_2_before_anything_is_measured_or_written(
    files, tmp_path, monkeypatch, line, complaint
):
    def minutes(*_: Any, **__: Any) -> None:
        raise AssertionError("minutes of work for a mistake")

    monkeypatch.setattr(bench, "run_child", minutes)
    monkeypatch.setattr("worklog.peers.exploits.ExploitGate", minutes)
    assert re.match(complaint, one_line(worklog(*shlex.split(line))))
    assert {path.name: path.read_text() for path in tmp_path.glob("*.*")} | {
        "taken": "no folder"
    } == files
    assert not any(place.exists() for place in (runs_dir(), Path("figures"), Path("site")))


def test_an_unknown_command_or_option_is_a_usage_error(files):
    for line in ("chek", "run --bogus", "figures --out", "doctor x", "new \udcfc.cu"):
        result = worklog(*line.split())
        assert result.exit_code == 2 and "Error: " in result.stderr, line
    assert "No such command 'chek'. (did you mean check?)" in worklog("chek").stderr


@pytest.mark.parametrize(
    ("source", "line", "complaint"),
    [
        ("live", "run warptiled --size 100", "size 100 is outside warptiled's domain"),
        ("live", "peers", f"{NO_GPU}unset WORKLOG_SOURCE=live"),
        ("", "peers --out made.json", f"{NO_GPU}omit --bench and --out"),
        ("guessed", "exploits", ".*set it to live or recorded"),
    ],
)
def test_a_forced_source_that_is_not_there_is_one_line(monkeypatch, source, line, complaint):
    monkeypatch.setenv("WORKLOG_SOURCE", source)
    assert re.match(complaint, one_line(worklog(*line.split())))


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (KeyboardInterrupt(), 130, "worklog: interrupted\n"),
        (
            bench.Interrupted("interrupted: 3 of 9 measurements are kept"),
            130,
            "worklog: interrupted: 3 of 9 .*\n",
        ),
        (AssertionError("a bug"), 1, ""),
        (PermissionError(13, "Permission denied"), 1, ""),
    ],
)
def test_an_interrupt_is_one_line_and_a_bug_keeps_its_traceback(
    monkeypatch, error, exit_code, said
):
    def carry_out(*_: Any, **__: Any) -> Run:
        raise error

    monkeypatch.setattr(bench, "carry_out", carry_out)
    monkeypatch.setattr(bench, "live_wanted", lambda: True)
    result = CliRunner().invoke(main, ["run"])
    assert (result.exit_code, result.stdout) == (exit_code, "") and re.fullmatch(
        said, result.stderr
    )
    assert (result.exception is error) is (exit_code == 1)
