"""What commands ask for where they would measure, and what they make of the answer."""

import json
import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import worklog
from tests.cli.test_mistakes import FILES
from tests.helpers import GPU, measured, small_run
from worklog.kernel import LADDER
from worklog.kernel.best import table
from worklog.problem import Shape, drawn
from worklog.runner import measure as bench
from worklog.runner.measure import Job
from worklog.runs import runs_dir
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run
from worklog.settings import PITFALLS, Harness

Asked = list[tuple[list[Job], Harness]]


@pytest.fixture
def asked(monkeypatch):
    """What was asked for. In place of the measuring: an answer made by hand, in which the rung shared fails."""
    found: Asked = []

    def carry_out(
        tasks: Sequence[Job], harness: Harness, *, out: Path | None = None, **_: Any
    ) -> Run:
        found.append((list(tasks), harness))
        made = [
            Measurement(t.kernel, astuple(t.problem), "failed", reason="wrong")
            if t.kernel == "shared"
            else replace(measured(t.kernel, **t.pitfalls), shape=astuple(t.problem))
            for t in tasks
        ]
        run = small_run(measurements=made, gpu=replace(GPU, driver="1"))
        run.save(out or runs_dir() / "run.jsonl")
        return run

    monkeypatch.setattr(bench, "carry_out", carry_out)
    monkeypatch.setattr(bench, "live_wanted", lambda: True)
    return found


def test_run_asks_for_the_whole_ladder_at_4096_or_for_what_was_typed(asked):
    worklog("run")
    words = "run naive cuBLAS --size 256,512x128x64 --size 1024 --set l2=warm --set queue=no --out here.json"
    result = worklog(*words.split())
    for name in ("mine", "other"):
        Path(f"{name}.cu").write_text(FILES["mine.cu"])
    own = worklog(
        "run", "mine.cu", "naive", "other.cu", "--grid", "N, M", "--block", "1", "--size", "256"
    )
    (ladder, unbiased), (tasks, harness), (with_files, _) = asked
    assert unbiased == Harness() and {t.shape for t in ladder} == {Shape.of(4096)}
    assert [t.kernel for t in ladder] == [r.name for r in LADDER] + ["cuBLAS"]
    assert harness == Harness().but(l2="warm", queue=False)
    sizes = ("256", "512x128x64", "1024")
    assert [str(t) for t in tasks] == [
        f"{name} at {size}" for size in sizes for name in ("naive", "cuBLAS")
    ]
    assert result.exit_code == 0 and Path("here.json").is_file()
    assert result.stdout.endswith("run saved: here.json\n")
    assert [t.kernel for t in with_files] == ["mine", "naive", "other", "cuBLAS"], (
        "the baseline comes too"
    )
    assert own.exit_code == 0


def test_run_draws_shapes_by_a_seed_that_the_run_keeps(asked):
    result = worklog("run", "naive", "best", "--shapes", "6", "--seed", "3", "--out", "here.json")
    assert result.exit_code == 0, result.output
    ((tasks, _),) = asked
    kinds = drawn(6, 3, table().shapes)
    assert [t.shape for t in tasks] == [shape for shape in kinds for _ in range(2)]
    for shape, kind in kinds.items():
        assert re.search(
            rf"^ {shape} +{kind}( +100\.0 µs +50\.0 % ±1\.0){{2}}$", result.stdout, re.MULTILINE
        )
    assert re.search(r"^ geometric mean +50\.0 % +50\.0 %$", result.stdout, re.MULTILINE)
    assert Run.load(Path("here.json")).notes == ["6 shapes drawn: --shapes 6 --seed 3"], (
        "its GPU is the table's"
    )


def test_a_failed_check_is_shown_and_exits_with_1(asked):
    result = worklog("run", "naive", "shared", "--size", "512")
    assert result.exit_code == 1 and "shared: failed: wrong" in result.stdout
    document = json.loads(worklog("run", "naive", "shared", "--json").stdout)
    assert document["label"].startswith("live · NVIDIA H200")
    assert (
        document["measurements"][0]["kernel"] == "naive"
        and document["measurements"][0]["us"] == 100.0
    )
    assert Path(document["path"]).is_file()


def test_a_measured_sweep_is_shown_and_exits_with_1_if_a_kernel_failed(monkeypatch):
    ran = small_run(
        measurements=[
            measured("BM=64"),
            Measurement("BM=128", (512,) * 3, "failed", reason="wrong"),
        ]
    )
    monkeypatch.setattr("worklog.cli.options.live_wanted", lambda **_: True)
    monkeypatch.setattr("worklog.cli.run.search", lambda *_, **__: ran)
    monkeypatch.setattr("worklog.cli.run.visible_cards", lambda: ["0"])
    result = worklog("sweep", "tiles_2d", "--axis", "BM=64", "--size", "512")
    assert result.exit_code == 1 and re.search(
        r" BM=64 +50\.0 % .*\n BM=128 +failed ", result.stdout
    ), result.output


def test_a_sweep_of_tiles_that_cannot_be_starts_no_workers(monkeypatch):
    def start(*_: Any) -> None:
        raise AssertionError("workers were started")

    monkeypatch.setattr("worklog.cli.options.live_wanted", lambda **_: True)
    for name in ("Workers", "Cluster"):
        monkeypatch.setattr(f"worklog.cli.run.{name}", start)
    result = worklog("sweep", "tiles_2d", "--axis", "BM=64", "--where", "XX == 64")
    assert result.exit_code == 2 and "XX" in result.stderr, result.output


def test_ablate_shows_the_effect_of_each_pitfall_and_saves(asked):
    result = worklog("ablate", "naive", "--size", "512")
    assert result.exit_code == 0 and result.stdout.splitlines()[-1].startswith("run saved: ")
    ((tasks, _),) = asked
    assert {t.kernel for t in tasks} == {"naive"}
    effects = json.loads(worklog("ablate", "naive", "--size", "512", "--json").stdout)
    assert {effect["setting"] for effect in effects} >= {
        pitfall.setting for pitfall in PITFALLS if pitfall.article
    }
    assert all(effect["factor"] == effect["biased"] / effect["unbiased"] for effect in effects)
