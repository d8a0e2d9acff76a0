"""What a terminal may be and do.

Narrow, piped, in another encoding, full, interrupted, without a place to write.
"""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from tests.cli.conftest import one_line, worklog
from tests.helpers import measured, small_run
from worklog.cli import COMMANDS, main, options
from worklog.cli.interrupt import ExitOnInterrupt
from worklog.errors import BadSetting
from worklog.kernel.disk_cache import cache_folder
from worklog.problem import PROBLEMS
from worklog.runs import cells

ROOT = Path(__file__).parents[2]


def test_a_terminal_narrower_than_a_table_wraps_its_lines(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns, width in ((20, 60), (200, 200)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert options.terminal_width() == width


def test_a_runs_table_leaves_out_whole_columns_and_says_which():
    run = small_run(measurements=[measured("vectorized", 1024)])
    for columns in (60, 100):
        shown = run.text(width=columns).splitlines()
        (head,) = [line.split("  ") for line in shown if line.startswith(" kernel")]
        left_out = " ".join(shown).partition("in a wider terminal: ")[2]
        assert (
            max(len(line) for line in shown if line.startswith((" kernel", " vectorized")))
            <= columns
        )
        assert all(
            (column in map(str.strip, head)) != (column in left_out)
            for column in cells(run.measurements[0])
        )
        assert bool(left_out) is (columns < 100)


@pytest.mark.parametrize(("words", "needed"), [(["-h"], set()), (["run", "-h"], {"numpy", "rich"})])
def test_help_waits_for_no_library_that_it_does_not_need(words, needed):
    heavy = {
        "numpy",
        "scipy",
        "rich",
        "pandas",
        "matplotlib",
        "torch",
        "cupy",
        "worklog.emulator.launching",
    }
    code = f"""from worklog.cli import *; import sys
main({words}, standalone_mode=False)
print(*{heavy} & {{*sys.modules}})"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.splitlines()[-1].split()) == needed


def test_a_bar_is_on_standard_error(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    with options.progress_bar() as report:
        report(1, 2, "half of it")
    out, err = capsys.readouterr()
    assert out == "" and "half of it" in err


def test_help_lists_the_commands_in_whole_lines():
    lines = worklog("-h").stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == [*COMMANDS]
    assert not any(line.endswith("...") for line in lines)
    for name in COMMANDS:
        shown = worklog(name, "-h").stdout
        assert shown.startswith("Usage: "), name
        assert name not in ("check", "run") or all(problem in shown for problem in PROBLEMS), name


def test_without_a_terminal_progress_is_lines_on_standard_error(monkeypatch):
    monkeypatch.setattr(options, "LINE_S", 0.0)
    checked = worklog("check", "coalesced", "--emulate", "--size", "32", "--json")
    assert json.loads(checked.stdout)["accepted"] and " after " in checked.stderr


@pytest.mark.parametrize(
    ("words", "start", "offered"),
    [
        ([], "exp", ["exploits"]),
        (["run"], "wa", ["warptiled"]),
        (["run", "--against"], "nai", ["naive"]),
        (["run", "--against"], "to", ["torch"]),
        (["check", "a.cu", "--problem"], "so", ["softmax"]),
        (["new"], "so", ["softmax"]),
        (["run", "--set"], "l2=w", ["l2=warm"]),
        (["sweep", "best"], "--prev", ["--preview"]),
        (["run", "--problem"], "./mine", ["file"]),
    ],
)
def test_a_shell_completes_commands_and_what_options_name_and_else_files(words, start, offered):
    shell = ShellComplete(main, {}, "worklog", "_WORKLOG_COMPLETE")
    items = shell.get_completions(words, start)
    assert [item.value if item.type == "plain" else item.type for item in items] == offered


def in_a_shell(command: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `worklog` is this package's command."""
    function = f'worklog() {{ "{sys.executable}" -m worklog "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", function + command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "", **changed},
        capture_output=True,
        text=True,
        errors="replace",
    )


@pytest.mark.parametrize(
    ("command", "exit_code", "said"),
    [
        (
            "worklog log >/dev/full",
            1,
            "worklog: cannot write the output: No space left on device; free",
        ),
        ("worklog -h >/dev/full", 1, "worklog: cannot write the output: No space left on device;"),
        ("worklog doctor --settings >&-", 0, ""),
        ("worklog show h200 --json | head -1", 0, ""),
        (
            "mkdir x; cd x; rmdir ../x; worklog log",
            2,
            "worklog: the current folder doesn't exist any",
        ),
    ],
)  # fmt: skip
def test_a_full_a_closed_and_a_missing_place_are_one_line(command, exit_code, said):
    done = in_a_shell(command)
    assert (done.returncode, done.stderr.count("\n")) == (exit_code, bool(said)), done.stderr
    assert done.stderr.startswith(said)


@pytest.mark.parametrize(
    ("encoding", "replaced", "said"),
    [
        ("latin-1", "? python: ", ("worklog: each ? above is a character that latin-1 lacks: set "
                                  "PYTHONIOENCODING")),
        ("cp1252", "? python: ", "worklog: each ? above is a character that cp1252 lacks: set"),
        ("latin-1:backslashreplace", "\\u2713 python: ", ""),
        ("utf-8", "✓ python: ", ""),
    ],
)  # fmt: skip
def test_a_terminal_in_an_old_encoding_gets_question_marks_and_is_told(
    encoding, replaced, said, monkeypatch, capsys
):
    output = io.TextIOWrapper(io.BytesIO(), encoding.partition(":")[0])
    if ":" in encoding:
        output.reconfigure(errors=encoding.partition(":")[2])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        main(["doctor"], standalone_mode=False)
    assert output.buffer.getvalue().decode(output.encoding).startswith(replaced)
    error = capsys.readouterr().err
    assert error.startswith(said) and error.count("\n") == bool(said)


@pytest.mark.parametrize("module", ["click", "difflib", "numpy"])
def test_ctrl_c_while_the_program_loads_is_silent(module, tmp_path):
    """A module of this name stops the import as Ctrl-C does."""
    code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    (tmp_path / f"{module}.py").write_text(code)
    done = in_a_shell("worklog log", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_is_as_it_was_when_the_program_is_loaded():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen = list[Any]()
    with ExitOnInterrupt():
        seen.append(signal.getsignal(signal.SIGINT))
        with ExitOnInterrupt():  # it is set already
            pass
        seen.append(signal.getsignal(signal.SIGINT))
    assert seen[0] is seen[1] is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/run"), 1, ("worklog: cannot write "
                                                                      "/run: No space left")),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1, ("worklog: cannot write the output: Disk "
                                                          "quota exceeded;")),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), 2, ("worklog: cannot use "
                                                                           "/root/x: Permission")),
        (OSError(errno.EROFS, "Read-only file system", "/x"), 2, ("worklog: cannot use /x: "
                                                                 "Read-only file system; name")),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_used_is_one_line(monkeypatch, error, exit_code, said):
    def fail() -> None:
        raise error

    monkeypatch.setattr("worklog.cli.figures.journal_text", fail)
    result = worklog("journal")
    assert (result.exit_code, result.stderr.count("\n")) == (exit_code, 1), result.output
    assert result.stderr.startswith(said)


def test_an_account_without_a_home_is_told_what_to_set(monkeypatch):
    def without_a_home(uid: int) -> Any:
        raise KeyError(uid)

    for name in ("HOME", "WORKLOG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", without_a_home)
    for command in ("log", "show"):
        assert one_line(worklog(command)) == (
            "there is no home folder: set HOME, or WORKLOG_HOME to a folder"
        )
    monkeypatch.delenv("WORKLOG_CACHE")
    with pytest.raises(BadSetting, match="set HOME, or WORKLOG_CACHE to a folder"):
        cache_folder()
