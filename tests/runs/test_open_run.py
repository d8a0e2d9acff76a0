"""Which run is opened: the latest of this machine, a recording, or the given one."""

import subprocess
import warnings
from dataclasses import replace
from importlib import resources

import pytest

import worklog
from tests.helpers import GPU, measured, small_run, typed
from worklog import plots
from worklog.errors import BadRunFile, BadSetting, WorklogError
from worklog.runs import open_run, recorded_run, recordings
from worklog.runs.changes import open_revisions
from worklog.runs.sources import live_runs, new_path, newest_run, runs_dir
from worklog.settings import Harness


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """Return a shipped run, in a place of this test's own."""
    path = small_run(gpu=replace(GPU, name="NVIDIA A6000")).save(
        tmp_path / "package" / "recordings" / "a6000.jsonl"
    )
    monkeypatch.setattr(resources, "files", lambda name: tmp_path / "package")
    return path


def test_runs_are_kept_in_worklog_home_or_with_the_users_data(home, monkeypatch, tmp_path):
    path = new_path("2026-11-21T03:12:44+00:00")
    assert (
        path.parent == home / "runs"
        and path.name.startswith("2026-11-21T03-12-44Z-")
        and path.suffix == ".jsonl"
    )
    monkeypatch.delenv("WORKLOG_HOME")
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: str(tmp_path))
    assert runs_dir() == tmp_path / "runs"


@pytest.mark.parametrize(
    ("days", "source", "expected"),
    [
        ([21, 22, 20], "", "live · NVIDIA H200 · clocks as found · 2026-11-22"),
        ([], "", "recorded · NVIDIA A6000 · clocks as found · 2026-11-21"),
        ([21], "recorded", "recorded · NVIDIA A6000"),
        ([], "live", "measure one with `worklog run`"),
        ([21], "guessed", "set it to live or recorded"),
    ],
)
def test_the_latest_live_run_comes_first_then_the_recording_unless_one_is_forced(
    days, source, expected, home, recording, monkeypatch
):
    monkeypatch.setenv("WORKLOG_SOURCE", source)
    half_written = home / "runs" / ".2026-11-23T03-12-44Z-h200-4f2c.jsonl.123"
    half_written.parent.mkdir(parents=True)
    half_written.write_text("{")
    new_path("2026-11-24").touch()  # by a run whose first process isn't ready
    for day in days:
        created = f"2026-11-{day}T03:12:44+00:00"
        small_run(created=created).save(new_path(created))
    assert [path.name[8:10] for path in live_runs()] == sorted(map(str, days), reverse=True)
    try:
        text = open_run().label
    except WorklogError as error:
        text = str(error)
    assert expected in text and list(recordings()) == ["a6000"]


@pytest.fixture
def live(home):
    """Save a live run of one rung at 1024, and a newer one measured with a warm L2."""
    timed = [measured(name, 1024, us=142.0) for name in ("warptiled", "cuBLAS")]
    for created, l2 in (("2026-11-23", "flush"), ("2026-11-24", "warm")):
        run = small_run(created=created, measurements=timed, harness=Harness().but(l2=l2).as_dict())
        run.save(new_path(created))


def test_the_results_of_a_user_kernel_are_those_of_a_saved_run(live):
    small_run(measurements=[measured("mine", 1024), measured("naive", 1024)]).save(
        runs_dir() / "own.jsonl"
    )
    assert [m.kernel for m in worklog.results(["mine", "naive"], 1024).measurements] == [
        "mine",
        "naive",
    ]
    for name, says in (
        ("mine", r"mine at 4096: .*open_run\(kernels=\['mine'\]\)"),
        ("nave", "nave.* naive.* at 4096"),
    ):
        with pytest.raises(BadSetting, match=f"no saved run has {says}"):
            worklog.results(name)


def test_a_live_run_answers_for_what_it_holds_and_hides_no_recording(live):
    output = typed("run", "naive", "--size", "4096")
    assert (
        output.exit_code == 0 and "recorded · " in output.stdout and "live · " not in output.stdout
    )
    assert worklog.results("warptiled", 1024).label.endswith("2026-11-23"), (
        "unbiased, so not of the newest"
    )
    assert worklog.results("warptiled", 1024, l2="warm").label.endswith("2026-11-24")
    assert worklog.results(["naive", "warptiled"], 1024).origin == "recorded", (
        "one run for a comparison"
    )
    assert worklog.ablate("warptiled", 1024).origin == "recorded"
    with pytest.raises(BadSetting, match="harness needs a live measurement"):
        worklog.ablate("warptiled", 1024, harness=worklog.Harness().but(l2="warm"))
    assert newest_run(lambda run: run.origin == "recorded").path == recorded_run().path, (
        "the article's first"
    )
    for arguments, origin in (
        ({}, "live"),
        ({"shape": 4096}, "recorded"),
        ({"kernels": ["best"], "shape": 2048}, "recorded"),
    ):
        assert open_run(**arguments).origin == origin
    with pytest.raises(BadRunFile, match="no run holds nothing at 64: measure"):
        open_run(kernels="nothing", shape=64)


def test_the_figures_are_not_of_a_live_run_that_lacks_the_ladder(live, monkeypatch, tmp_path):
    options: list[str] = []
    monkeypatch.setattr(
        "worklog.plots.draw_all",
        lambda run, *_, **how: options.append(run.origin) or plots.Drawn(),
    )
    monkeypatch.chdir(tmp_path)
    drawn = typed("figures"), typed("article", "--out", "figures")
    assert [result.exit_code for result in drawn] == [0, 0]
    assert options == ["recorded", "recorded"]


def test_a_damaged_latest_run_is_skipped_with_a_warning_that_names_it(home, recording):
    path = small_run().save(home / "runs" / "2026-11-20.jsonl")
    (home / "runs" / "2026-11-21.json").write_text('{"schema": 1')
    with pytest.warns(
        UserWarning, match=r"skipped .*2026-11-21\.json is not a run: its first line"
    ):
        assert open_run().path == path
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert "worklog: skipped a run of this machine: " in typed("doctor", "--calibrate").stderr
    path.unlink()
    with pytest.warns(UserWarning, match="skipped"):
        assert open_run().origin == "recorded"


def test_without_any_recording_is_an_error(home, monkeypatch, tmp_path):
    monkeypatch.setattr(resources, "files", lambda name: tmp_path / "nowhere")
    with pytest.raises(BadRunFile, match="install gemm-worklog again"):
        open_run()


def test_a_git_revision_is_the_newest_clean_run_at_its_commit(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    commits = []
    for name in ("first", "second"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", name], check=True)
        done = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        commits.append(done.stdout.strip())
    first, second = commits
    tools = {"old": (first, False), "new": (second, False), "changed": (second, True)}
    for name, (commit, is_dirty) in tools.items():
        run = small_run(tool={"version": "1", "commit": commit, "dirty": is_dirty})
        run.save(new_path(name))
    for revision, commit in (("HEAD~1", first), ("HEAD", second), (second[:9], second)):
        run = open_run(revision)
        assert run.tool["commit"] == commit and not run.tool["dirty"], revision
    assert [len(open_revisions(revision)) for revision in ("HEAD~1", "HEAD~1,HEAD")] == [1, 2]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "third"], check=True)
    with pytest.raises(
        BadSetting, match=r"no saved run was measured at HEAD \(\w{12}\): check it out"
    ):
        open_run("HEAD")
