"""What commands show without a GPU.

From recordings, from the emulator, or from what is installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import one_line, worklog
from tests.conftest import WHY
from tests.helpers import PLAIN, RACY, measured, small_run
from worklog import plots
from worklog.cli import figures, options
from worklog.cli.figures import markers
from worklog.gpu import device
from worklog.kernel.ladder import RUNGS
from worklog.runner import check as checks
from worklog.runner.job import jobs_of
from worklog.runs import Run, recordings
from worklog.runs.sources import CHAPTERS, runs_dir
from worklog.runs.text import Progress
from worklog.settings import PITFALLS, SAMPLING, Harness
from worklog.site import SiteFiles

ROOT = Path(__file__).parents[2]


def test_the_doctor_says_what_is_missing_and_what_to_do(monkeypatch, tmp_path):
    result = worklog("doctor")
    assert result.exit_code == 0
    assert f"· gpu: {WHY}\n    No time can be measured here." in result.stdout
    assert "✓ recordings: h200, h100_drawn, h100_tiles, " in result.stdout
    assert "NVIDIA H100" in worklog("show", "h100_tiles").stdout
    assert not runs_dir().exists(), "nothing is made to see whether a folder can be written"
    (tmp_path / "file").write_text("no folder")
    for name in ("WORKLOG_HOME", "WORKLOG_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    monkeypatch.setenv("WORKLOG_SOURCE", "guessed")
    findings = {
        finding.pop("subject"): finding
        for finding in json.loads(worklog("doctor", "--json").stdout)
    }
    assert findings["gpu"]["state"] == WHY and findings["recordings"]["good"]
    subjects = ("gpu", "source", "runs", "cache", "python")
    bad = [subject for subject in subjects if not findings[subject]["good"]]
    assert bad == ["gpu", "source", "runs", "cache"]
    assert findings["runs"]["advice"].endswith(
        "file: Not a directory): set WORKLOG_HOME to another folder"
    )


def test_the_notebooks_are_written_once_with_their_examples():
    assert (
        "/jupyterlab" not in (said := worklog("new", "notebooks", "mine").stdout)
        and "-m jupyterlab" in said
    )
    assert {path.name for path in Path("mine").rglob("*.*")} >= {
        "00_start_here.ipynb",
        "seeds.md",
        "01_time_a_rung.py",
        "tables.py",
    }
    again = one_line(worklog("new", "notebooks", "mine"))
    assert again == "mine/00_start_here.ipynb exists already: give another folder"


def test_the_doctor_lists_every_setting():
    text = worklog("doctor", "--settings").stdout
    for name in (*(pitfall.setting for pitfall in PITFALLS), *SAMPLING):
        assert re.search(rf"^{name} = {getattr(Harness, name)}\b.*\n    \S", text, re.MULTILINE), (
            name
        )
    listed = json.loads(worklog("doctor", "--settings", "--json").stdout)
    assert [row["setting"] for row in listed] == [pitfall.setting for pitfall in PITFALLS]


def saved(path: Path) -> Path:
    """Save a run that holds one rung and the baseline."""
    return small_run(
        measurements=[measured("naive", 4096), measured("cuBLAS", 4096, ratio=1.0)]
    ).save(path)


def test_the_article_without_a_gpu_takes_what_there_is(monkeypatch, tmp_path):
    """One figure, and a run to draw it from."""

    given = list[Collection[str]]()

    def draw_all(
        taken: Run,
        out: Path,
        others: Collection[str],
        before: plots.Drawn,
        *,
        progress: Progress,
        pool: object,
    ) -> plots.Drawn:
        given.append(others)
        progress(2, 9, "figure ladder")
        paths = [
            out / f"ladder{mode}{suffix}" for mode in ("", "_dark") for suffix in (".svg", ".png")
        ]
        return plots.Drawn(
            paths=paths, missing={"peers": "nothing was compared"}, gallery=out / "README.md"
        )

    monkeypatch.setattr(plots, "draw_all", draw_all)
    monkeypatch.setattr(options, "LINE_S", 0.0)
    monkeypatch.setattr(
        "worklog.cli.figures.article_jobs", lambda: jobs_of(["naive", "cuBLAS"], 4096)[0]
    )
    saved(runs_dir() / "latest.json")
    assert "run it in a checkout of worklog, or name a folder" in one_line(worklog("article"))
    assert not Path("figures").exists()
    alone = worklog("article", "--out", "figures").stdout
    assert alone.endswith("table not rewritten in README.md: there is no such file\n")
    readme = tmp_path / "README.md"
    readme.write_text("\n".join(markers("table")))
    result = worklog("article")
    assert result.exit_code == 0 and result.stdout.startswith(
        "live · NVIDIA H200 · clocks as found · 2026-11-21"
    )
    assert result.stderr == "2 of 9 after 0 s: figure ladder\n"
    assert result.stdout.splitlines()[-5:] == [
        "  figures/ladder.svg",
        "  and beside each one .png, and both as _dark: 4 files",
        "  peers not drawn: nothing was compared",
        "all of them: figures/README.md",
        "table rewritten: README.md",
    ]
    assert "| naive | one thread, one element |" in readme.read_text(encoding="utf-8")
    of_file = worklog("figures", "--run", str(saved(tmp_path / "r.json")), "--out", "drawn").stdout
    assert of_file.startswith("figures from: live · NVIDIA H200 · clocks as found · 2026-11-21\n")
    assert "  drawn/ladder.svg\n" in of_file and "  peers not drawn: " in of_file
    worklog(
        "figures", "--run", "h200", "--out", "drawn"
    )  # whose sizes a recording has, unlike a run's of this machine
    assert ["sizes" in others for others in given] == [False, False, False, False]


@pytest.mark.parametrize("command", ["article", "figures"])
def test_a_figure_that_fails_is_named_after_everything_else_is_done(command, monkeypatch, tmp_path):
    """The table is rewritten, and the exit code is 1."""
    drawn = plots.Drawn(failed={"ladder": "KeyError: 'x' (ladder.py:1)"}, source=Path("kept.jsonl"))
    monkeypatch.setattr(plots, "draw_all", lambda *given, **options: drawn)
    monkeypatch.setattr(
        "worklog.cli.figures.article_jobs", lambda: jobs_of(["naive", "cuBLAS"], 4096)[0]
    )
    saved(runs_dir() / "latest.json")
    (tmp_path / "README.md").write_text("\n".join(markers("table")))
    result = worklog(command)
    assert result.exit_code == 1 and "1 figure could not be drawn" in result.stderr
    assert "  ladder: KeyError: 'x' (ladder.py:1)\n" in result.stderr
    assert "`worklog figures --run kept.jsonl`" in result.stderr
    assert result.stdout.endswith("table rewritten: README.md\n") is (command == "article")


def test_the_site_of_a_run_is_written_into_a_folder(monkeypatch, tmp_path):
    files = {"index.html": b"page", "data.js": bytes(1_250_000)}
    given = list[tuple[Any, Any]]()
    monkeypatch.setattr(
        "worklog.cli.figures.site_files", lambda *of: given.append(of[:2]) or SiteFiles(files, "")
    )
    said = worklog(
        "site", "--run", str(saved(tmp_path / "r.json")), "--grid", "grid.jsonl", "--out", "made"
    ).stdout
    assert said == "made/index.html opens in any browser: 2 files, 1.3 MB\n"
    assert {path.name: path.read_bytes() for path in Path("made").iterdir()} == files
    Path("index.html").write_text("mine")
    assert "index.html is of another site: give another folder with --out" in one_line(
        worklog("site", "--out", ".")
    )
    assert (
        Path("index.html").read_text() == "mine" and worklog("site", "--out", "made").exit_code == 0
    )
    assert worklog("site").exit_code == 0 and Path("site/index.html").is_file()
    [(run, grid), again, nothing] = given
    assert (
        run.measurements[0].kernel == "naive"
        and grid == Path("grid.jsonl")
        and again == nothing == (None, None)
    )


def test_a_site_whose_viewer_runs_no_kernels_says_why(monkeypatch):
    written = SiteFiles({"index.html": b"page", "data.js": b""}, "no compiler: install one")
    monkeypatch.setattr("worklog.cli.figures.site_files", lambda *_: written)
    lines = worklog("site", "--out", "made").stdout.splitlines()
    assert lines[1:] == ["its access viewer isn't live: no compiler: install one"]


def test_peers_without_a_gpu_shows_the_recorded_comparison():
    text = worklog("peers").stdout
    document = json.loads(worklog("peers", "--json").stdout)
    assert (
        text.startswith("recorded · NVIDIA H200 · ") and " spin 1 " in text and "saved" not in text
    )
    assert document["kind"] == "peers" and document["rows"]


def previewed(*words: str) -> dict[str, Any]:
    """Return what --preview --json prints."""
    result = worklog("run", "--preview", "--json", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["points"] == len(document["measurements"])
    return document


def test_a_preview_holds_each_measurement_once_and_says_how_long_they_take():
    result = worklog("run", "naive", "shared", "--size", "256,512,1024x1024x512", "--preview")
    assert result.stdout == "6 measurements, about 9 s\n"
    rows = previewed("naive, cuBLAS", "naive", "--size", "256,64x32x16", "--size", "256x256x256")[
        "measurements"
    ]
    assert [(row["kernel"], row["m"], row["k"]) for row in rows[1:3]] == [
        ("cuBLAS", 256, 256),
        ("naive", 64, 16),
    ]
    assert not runs_dir().exists()
    beside = previewed("warptiled", "--against", "cublas,torch,naive")["measurements"]
    assert [row["against"] for row in beside] == [["cuBLAS", "torch", "naive"]]


def test_a_preview_refuses_a_function_that_is_not_there():
    Path("mine.py").write_text("def f(alpha, A, B, beta, C): ...\n")
    assert worklog("run", "naive", "--against", "mine.py:f", "--preview").exit_code == 0
    said = one_line(worklog("run", "naive", "--against", "mine.py:g", "--preview"))
    assert said.endswith("mine.py has no function g: it has f")


def test_run_shows_a_biased_measurement_of_the_recording():
    shown = worklog("run", "warptiled", "--size", "1024", "--set", "l2=warm").stdout
    assert (
        shown.startswith("recorded · NVIDIA H200 · ") and "1024 × 1024 × 1024, l2 = warm\n" in shown
    )


def test_a_new_kernel_passes_as_it_is():
    assert worklog("new", "mine.cu").stdout == "written: mine.cu\nnext: worklog check mine.cu\n"
    assert "worklog check mine.cu " in Path("mine.cu").read_text(encoding="utf-8")
    checked = worklog("check", "mine.cu", "--size", "20x30x40")
    assert checked.exit_code == 0, checked.output
    assert (
        "· launch: grid (N + 15) / 16, (M + 15) / 16; block 16, 16; from a comment\n"
        in checked.stdout
    )
    assert "u·D" in checked.stdout and "notebook 14 explains the stages, u·D" in checked.stdout


def test_a_check_is_in_a_child_on_a_gpu_with_the_emulator_beside_it(monkeypatch):
    taken = list[tuple[str | None, bool | None]]()
    check = checks.check

    def briefly(
        *given: Any, on: str | None, emulate: bool | None = None, **how: Any
    ) -> checks.Checked:
        taken.append((on, emulate))
        return check(*given, on="emulated", **how)

    for name in ("check", "check_in_child"):
        monkeypatch.setattr(checks, name, briefly)
    assert one_line(worklog("check", "coalesced", "--no-emulate")).endswith("; omit --no-emulate")
    assert worklog("check", "coalesced", "--size", "32").exit_code == 0
    monkeypatch.setattr(checks, "gpu_reason", lambda: None)
    monkeypatch.setattr(device, "require_gpu", lambda advice: None)
    for words in ([], ["--emulate"], ["--no-emulate"]):
        worklog("check", "coalesced", "--size", "32", *words)
    assert taken == [(None, None), (None, True), ("emulated", None), ("gpu", False)]


def test_watch_checks_at_each_save_and_shows_what_changed(monkeypatch):
    file = Path("mine.cu")
    saves = iter([PLAIN.replace("acc +=", "acc += 1 +"), "int x = ;", RACY, PLAIN])
    file.write_text(PLAIN)

    def save(seconds: float) -> None:
        """Ctrl-C after the last one."""
        text = next(saves, None)
        if text is None:
            raise KeyboardInterrupt
        file.write_text(text)
        os.utime(file, ns=(0, len(text)))

    monkeypatch.setattr(
        "worklog.cli.check.time", SimpleNamespace(sleep=save, strftime=lambda how: "12:00:00")
    )
    launch = (
        "--grid",
        "N / 8, M / 8",
        "--block",
        "8,8",
        "--domain",
        "M % 8 == 0, N % 8 == 0, K % 8 == 0",
    )
    result = worklog("check", file, "--watch", *launch)
    assert result.exit_code == 0
    first, wrong, racy, right = result.stdout.split("\n12:00:00 ")
    assert "passed as fp32" in first and wrong.startswith("failed")
    assert "✗ exact on edge shapes (it passed before): at" in wrong
    assert "worklog: mine.cu" in wrong and "has no __global__ function" in wrong, (
        "a mistake doesn't end it"
    )
    assert "✗ launch: mine.cu:8: shared-race" in racy and "\n+ mine.cu:8: shared-race" in racy
    assert right.startswith("passed as fp32") and "\n− mine.cu:8: shared-race" in right
    assert "findings: 2 → 0" in right and "it failed before" not in right, (
        "no stage of that name ran now"
    )
    assert result.stderr.count("watching mine.cu: save it to check it again, Ctrl-C to stop") == 1
    assert "can't be used with --json" in one_line(worklog("check", "naive", "--watch"))


def test_a_new_rung_passes_as_it_is(tmp_path):
    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "worklog", *words]
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    for folder in ("worklog", "kernels"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with what Python has compiled
    written = typed("new", "--rung", "20", "staged_rows")
    assert written.returncode == 0 and written.stdout.count("written: ") == 3, written.stderr
    (tmp_path / "staged_rows").mkdir()  # a folder of that name isn't the kernel
    checked = typed("check", "staged_rows", "--emulate", "--seed", "1", "--quick")
    assert (
        checked.returncode == 0
        and "20_staged_rows.cu: sgemm_staged_rows<32, 32> at" in checked.stdout
    )
    assert "20 is staged_rows" in typed("new", "--rung", "20", "other").stderr
    (tmp_path / "kernels").rename(tmp_path / "worklog" / "_kernels")
    assert "checkout" in typed("new", "--rung", "27", "other").stderr


def test_what_was_read_from_a_kernel_is_said_before_it_is_measured():
    source = "__global__ void f(float* a, float* b, float* c, int n) {}"
    Path("mine.cu").write_text(f"// grid: N / 8, M   block: 8\n{source}")
    shown = worklog("run", "mine.cu", "--preview", "--size", "64")
    assert shown.exit_code == 0 and "2 measurements, about" in shown.stdout
    assert (
        "· mine.cu: parameters (a, b, c, n): passed as (A, B, C, N), with M = N = K; alpha = 1 and "
        in shown.stderr
    )


def test_run_takes_what_the_recording_lacks_from_another_one(tmp_path, monkeypatch):
    rows = [measured(name, size) for name in ("best", "split") for size in (96, 4096)]
    kernels = {"split": {"sha256": "another"}, "best": {"sha256": RUNGS[-1].program.code_sha256}}
    path = small_run(measurements=rows, kernels=kernels, created="2026-11-23T01:00:00+00:00").save(
        tmp_path / "a.jsonl"
    )
    for module in map(import_module, ("worklog.runs", "worklog.runs.sources")):
        monkeypatch.setattr(
            module,
            "recordings",
            lambda part="": {"a": path} if part == CHAPTERS else recordings(part),
        )
    label = "recorded · NVIDIA H200 · clocks as found · "
    alone = worklog("run", "best", "split", "--size", "96").stdout
    mixed = worklog("run", "split", "warptiled", "--size", "4096").stdout
    assert alone.startswith(f"{label}2026-11-23") and mixed.startswith(f"{label}2026-11-22")
    for text, size in ((alone, 96), (mixed, 4096)):
        assert f"  {label}2026-11-23 · source changed since (split at {size})" in text, (
            "best was measured as it is"
        )


def test_of_drawn_shapes_the_recording_shows_those_that_it_holds():
    answer = worklog("run", "best", "split", "--shapes", "48")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("recorded · NVIDIA H100 "), "the card that all of it is from"
    shares = re.findall(r"^ \d+x\d+x\d+ .*?( [\d.]+ % .*)$", answer.stdout, re.MULTILINE)
    both = [line for line in shares if line.count("%") == 2]
    assert (len(shares), len(both)) == (48, 3)
    assert "lacks 45 of these 96 measurements: measure on a GPU" in answer.stdout
    assert re.search(
        r"^ geometric mean +[\d.]+ % +[\d.]+ % at 3 of 48$", answer.stdout, re.MULTILINE
    )
    document = json.loads(worklog("run", "best", "split", "--shapes", "48", "--json").stdout)
    assert "the recording lacks 45 of these 96 measurements: measure on a GPU" in document["notes"]
    none = one_line(worklog("run", "best", "--shapes", "3", "--seed", "5"))
    assert "is not in the recorded run (it holds sizes " in none


def test_figures_of_recordings_need_no_run_of_this_machine(monkeypatch):
    """On a GPU with WORKLOG_SOURCE=live, too."""
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    monkeypatch.setattr("worklog.runner.sources.gpu_reason", lambda: None)
    for name, draw in figures.others(False).items():
        assert "recorded" in draw().alt or name in ("diagnosis", "error_growth")
