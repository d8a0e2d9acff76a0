"""What a terminal may be and do: narrow, piped, in another encoding, full, interrupted, without a place to write."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.cli.conftest import worklog
from tests.helpers import measured, small_run
from worklog.cli import COMMANDS, main, options
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
    heavy = {"numpy", "scipy", "rich", "pandas", "matplotlib", "torch", "cupy", "worklog.emulator"}
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
