"""The names that `import worklog` offers: what they promise, and what they show in a notebook."""

import builtins
import inspect
import re
import sys
from dataclasses import replace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import worklog
from worklog import errors, runs
from worklog.runs.sources import CHAPTERS

PUBLIC = [
    *(getattr(worklog, name) for name in worklog.__all__),
    *(getattr(worklog.plots, name) for name in worklog.plots.__all__),
    *(getattr(worklog.lab, name) for name in worklog.lab.__all__),
]


def promised(documented: object) -> set[str]:
    """Return the errors that an object's docstring, or those of its methods, name after Raises."""
    members = [documented]
    if inspect.isclass(documented):
        members += [member for name, member in vars(documented).items() if name[0] != "_"]
    names = set[str]()
    for member in members:
        for sentence in re.findall(r"Raises? ([^.]+)", inspect.getdoc(member) or ""):
            names |= {*re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", sentence)}
    return names


def test_every_error_that_a_docstring_promises_can_be_imported_from_errors():
    names = set[str]().union(*map(promised, PUBLIC))
    assert {"NoGpu", "BadSetting", "BadRunFile", "NothingToDraw", "CompileFailed"} <= names
    for name in names:
        assert issubclass(getattr(errors, name), errors.WorklogError), name


@pytest.fixture
def shell():
    """Return a shell as in a notebook, without a history file."""
    return InteractiveShell(config=Config(HistoryManager={"enabled": False}))


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("worklog.open_run('nothing')", "BadSetting: there is no run 'nothing'"),
        ("worklog.plots.ladder(3)", "BadSetting: ladder: run: give a run, such as"),
        ("worklog.Harness(l2='cold')", "BadSetting: l2 = 'cold' is not a setting"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_an_error_of_a_user_is_one_line_in_a_notebook(shell, capsys, cell, line):
    shell.run_cell(f"import worklog\n{cell}")
    shown = capsys.readouterr().out.strip().splitlines()
    if cell == "1 / 0":
        assert len(shown) > 3, "other errors keep their traceback"
    else:
        assert len(shown) == 1 and shown[0].startswith(line)


def test_a_star_import_replaces_no_builtin_and_no_standard_module():
    names = {}
    exec("from worklog import *", names)
    taken = {*names} - {"__builtins__"}
    assert {"measure", "results", "Run"} <= taken
    assert not taken & ({*sys.stdlib_module_names} | {*dir(builtins)})
    assert "time" in dir(worklog) and callable(worklog.time)


@pytest.mark.parametrize("name", ["", CHAPTERS, "grid"])
def test_a_recorded_runs_repr_fits_a_terminal_and_its_text_is_whole(name):
    path = sorted(runs.recordings(name).values())[0]
    run = worklog.Run.load(path, "recorded")
    lines = repr(run).splitlines()
    assert 1 < len(lines) <= 40 and max(map(len, lines)) <= 120
    assert lines[0] == run.full_label and str(run) == run.text()
    if len(str(run).splitlines()) > 60:
        assert re.fullmatch(r"… \d+ more lines: print\(run\) shows all", lines[-1])
    assert len(run) == len(run.measurements) and [*run] == run.measurements


def test_a_run_without_measurements_has_no_length_and_a_frame_with_columns():
    run = replace(runs.recorded_run(), measurements=[])
    assert len(run) == 0 and [*run] == []
    full = runs.recorded_run().frame()
    assert [*run.frame().columns] == [*full.columns] and len(run.frame()) == 0


def test_history_without_a_run_is_an_empty_frame_with_columns(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    frame = worklog.history()
    assert len(frame) == 0
    assert {"run", "created", "gpu", "uuid", "commit", "kernel", "n", "us"} <= {*frame.columns}
    assert frame.pivot_table("us", "created", "n").empty


def test_the_panel_names_the_recorded_sizes_if_it_has_no_time_at_a_size():
    [line] = worklog.lab.panel("vectorized", 1000).text()
    assert line.endswith("vectorized at 1000, unbiased; choose from the sizes 256, 1024, 4096")
    [line, *_] = worklog.lab.panel("vectorized", 1024).text()
    assert "choose from" not in line
