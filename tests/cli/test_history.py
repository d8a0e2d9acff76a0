"""`worklog compare`, `log` and `run --against-revision`: what they say, write and exit with."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli.conftest import one_line, worklog
from tests.helpers import GPU, PLAIN, measured, small_run
from worklog.cli import main
from worklog.errors import BadSetting
from worklog.kernel import by_name, rung
from worklog.kernel.by_name import at_revision
from worklog.kernel.source import kernels_dir, read_source
from worklog.runner import execute, sources
from worklog.runner.messages import MeasureOrder
from worklog.runs import Run
from worklog.runs.sources import runs_dir
from worklog.runs.statistics import Estimate


def keep(name: str, us: float, **parts: Any) -> None:
    run = small_run(measurements=[measured("naive", us=us), measured("cuBLAS")], **parts)
    run.save(runs_dir() / f"2026-11-27T{name}.jsonl")


def test_compare_exits_with_1_on_a_regression_and_writes_it_for_a_pull_request():
    keep("old", 100.0)
    keep("new", 104.0)
    keep("later", 104.0, gpu=replace(GPU, driver="9"))
    slower = worklog("compare", "old", "new", "--markdown", "pr.md", "--chart", "changes")
    assert slower.exit_code == 1 and slower.stdout.startswith("1 slower, 1 same · threshold 2 %")
    text = Path("pr.md").read_text()
    assert "| naive | 512 | 100.0 µs | 104.0 µs | +4.00 % ±" in text and "▲ slower" in text
    assert "live · NVIDIA H200 · clocks as found · 2026-11-21" in text
    assert "<svg" in Path("changes.svg").read_text() and Path("changes_dark.png").is_file()
    assert (
        worklog("compare", "new", "old").exit_code
        == worklog("compare", "old", "old").exit_code
        == 0
    )
    assert worklog("compare", "old", "new", "--threshold", "10").exit_code == 0
    assert worklog("compare", "old", "new", "--threshold", "nan").exit_code == 2
    assert [
        worklog("compare", "old", "later", *strict).exit_code for strict in ([], ["--strict"])
    ] == [0, 2]
    document = json.loads(worklog("compare", "old,old", "new,new", "--json").stdout)
    (naive,) = (row for row in document["rows"] if row["kernel"] == "naive")
    change = naive["change"]
    assert change["verdict"] == "slower" and change["low"] < 0.04 < change["high"]
    assert "there is no run 'nothing'" in one_line(worklog("compare", "old", "nothing"))
    assert "half of the threshold" not in slower.stdout + text


def test_log_lists_exports_and_removes_runs_and_show_takes_their_names(monkeypatch):
    assert worklog("log").stdout.endswith("runs: none; recorded ones: worklog show h200\n")
    keep("10", 100.0)
    keep("11", 101.0)
    listed = worklog("log", "--csv", "all.csv").stdout.splitlines()
    assert [line.split()[0] for line in listed[2:]] == ["2026-11-27T11", "2026-11-27T10"]
    assert all({"512", "naive"} <= {*line.replace(",", " ").split()} for line in listed[2:])
    assert (
        Path("all.csv").read_text().count("\nnaive") == 0
        and Path("all.csv").read_text().count(",naive,") == 2
    )
    assert json.loads(worklog("log", "--kernel", "nothing", "--json").stdout) == []
    assert "101.0 µs" in worklog("show", "T11").stdout
    asked = CliRunner().invoke(main, ["log", "--keep", "1"], input="n\n")
    assert (
        "remove 1 runs" in asked.output
        and len([*runs_dir().iterdir()]) == 2
        and asked.exit_code == 130
    )
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(
            click, "confirm", lambda *_, **__: not (runs_dir() / "2026-11-27T10.jsonl").unlink()
        )
        assert worklog("log", "--keep", "1").exit_code == 0, "another process has removed it"
    keep("10", 100.0)
    assert worklog("log", "--keep", "1", "--yes").exit_code == 0
    assert [path.stem for path in runs_dir().iterdir()] == ["2026-11-27T11"]
    assert "--keep counts all runs" in one_line(worklog("log", "--keep", "1", "--gpu", "H200"))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository with a user kernel, its header and a rung, all changed since."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    used = PLAIN.replace("{", "{ int step = THEN;", 1)
    (folder / "mine.cu").write_text(f'#include "tile.cuh"\n// then\n{used}')
    (folder / "tile.cuh").write_text("constexpr int THEN = 1;\n")
    (folder / "01_naive.cu").write_text(f"// then\n{read_source(kernels_dir() / '01_naive.cu')}")
    for words in ("init -q", "add .", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", *words.split()], check=True, cwd=tmp_path)
    for file in folder.iterdir():
        file.write_text(file.read_text().replace("then", "now").replace("THEN", "NOW"))
    monkeypatch.setattr(by_name, "kernels_dir", lambda: folder)
    return folder


def test_a_kernel_of_a_revision_has_the_source_and_headers_of_then(repository):
    mine = at_revision("kernels/mine.cu", "HEAD", {"grid": "N, M", "block": "1"})
    assert mine.name == "mine@HEAD" and "then" in mine.source
    assert "THEN" in dict(mine.program.headers)["tile.cuh"]
    naive = at_revision("naive", "HEAD", {})
    assert naive.source.startswith("// then")
    for name in ("entry", "grid", "block", "domain", "arguments", "claimed"):
        assert getattr(naive, name) == getattr(rung("naive"), name)
    says = {
        "mine.py:f": "is a host function",
        "best": "takes several launches",
        "kernels/x.cu": "x.cu isn't in",
    }
    for what, why in says.items():
        with pytest.raises(BadSetting, match=why):
            at_revision(what, "HEAD", {})


@pytest.mark.parametrize(("ratio", "code", "says"), [(1.0, 0, "1 same"), (0.96, 1, "1 slower")])
def test_both_builds_take_turns_and_a_slower_one_exits_with_1(
    ratio, code, says, repository, monkeypatch
):
    def carry_out(order: MeasureOrder, **_: Any) -> Run:
        (job,) = order.jobs or ()
        (build,) = order.user_kernels.values()
        assert job.against == ("cuBLAS", build.name) == ("cuBLAS", "naive@HEAD")
        m = replace(measured(job.kernel), point=job.point)
        return small_run(
            measurements=[
                replace(
                    m,
                    against={
                        **m.against,
                        "naive@HEAD": Estimate(ratio, ratio - 0.003, ratio + 0.003),
                    },
                ),
                measured("cuBLAS"),
            ]
        )

    without_gpu = worklog("run", "naive", "--against-revision", "HEAD")
    assert (
        without_gpu.exit_code == 2
        and "--against-revision needs a live measurement" in without_gpu.stderr
    )
    monkeypatch.setattr(execute, "carry_out", carry_out)
    monkeypatch.setattr(sources, "live_wanted", lambda: True)
    result = worklog("run", "naive", "--size", "512", "--against-revision", "HEAD")
    assert result.exit_code == code and f"\n{says} · threshold 2 %" in result.stdout
    assert "old: builds of HEAD, in one loop" in result.stdout
    as_json = worklog("run", "naive", "--size", "512", "--against-revision", "HEAD", "--json")
    (row,) = json.loads(as_json.stdout)["changes"]["rows"]
    assert f"1 {row['change']['verdict']}" == says and as_json.exit_code == code
