"""What commands ask for where they would measure, and what they make of the answer."""

import json
import re
import shlex
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import worklog
from tests.cli.test_mistakes import FILES
from tests.helpers import GPU, measured, product, small_run
from worklog import plots
from worklog.cli import figures
from worklog.cli.figures import markers
from worklog.cli.options import ENERGY_S
from worklog.kernel import LADDER, Kernel
from worklog.kernel.ladder.best import table
from worklog.plots import gallery
from worklog.problem import Shape
from worklog.problem.drawn_shapes import drawn
from worklog.runner import execute, sources
from worklog.runner.job import Job, ablation_jobs, jobs_of
from worklog.runner.messages import MeasureOrder
from worklog.runs import CounterCheck, Measurement, Run
from worklog.runs.sources import runs_dir
from worklog.settings import PITFALLS, Harness

Asked = list[tuple[list[Job], Harness]]


@pytest.fixture
def asked(monkeypatch):
    """Replace the measuring by an answer made by hand, in which the rung shared fails.

    Returns the list of requests.
    """
    found: Asked = []

    def carry_out(order: MeasureOrder, *, out: Path | None = None, **_: Any) -> Run:
        tasks = list(order.jobs or ())
        found.append((tasks, order.harness))
        made = [
            Measurement(t.kernel, t.point, "failed", reason="wrong")
            if t.kernel == "shared"
            else replace(measured(t.kernel, **t.pitfalls), point=t.point)
            for t in tasks
        ]
        run = small_run(measurements=made, gpu=replace(GPU, driver="1"))
        run.save(out or runs_dir() / "run.jsonl")
        return run

    monkeypatch.setattr(execute, "carry_out", carry_out)
    monkeypatch.setattr("worklog.cli.options.require_gpu", lambda advice: None)
    monkeypatch.setattr(sources, "live_wanted", lambda: True)
    return found


def test_run_asks_for_the_whole_ladder_at_4096_or_for_what_was_typed(asked):
    worklog("run")
    words = (
        "run naive cuBLAS --size 256,512x128x64 --size 1024 --set l2=warm --set queue=no "
        "--out here.json"
    )
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


def test_run_asks_for_the_energy_of_a_launch_by_a_flag_or_a_setting(asked):
    worklog("run", "naive", "--energy")
    worklog("run", "naive", "--energy", "--set", "energy_s=3")
    assert [harness.energy_s for _, harness in asked] == [ENERGY_S, 3.0]
    previews = [
        json.loads(worklog("run", "naive", "--preview", "--json", *flag).stdout)["seconds"]
        for flag in ([], ["--energy"])
    ]
    assert previews[1] == previews[0] + ENERGY_S


@pytest.mark.parametrize("counter_joules", [5000.0, 5300.0])
def test_doctor_compares_the_energy_counter_with_the_power(counter_joules, monkeypatch):
    check = CounterCheck(10.0, counter_joules, 5000.0, 900, 20.0, 40.0)
    monkeypatch.setattr("worklog.cli.harness.checked_energy", lambda seconds: (check, "live · X"))
    monkeypatch.setattr("worklog.gpu.device.require_gpu", lambda advice: None)
    monkeypatch.setattr("worklog.gpu.device.gpu", lambda: GPU)
    result = worklog("doctor", "--energy")
    assert result.exit_code == (0 if check.agrees else 1)
    assert result.stdout.startswith("live · X\n") and check.text() in result.stdout
    document = json.loads(worklog("doctor", "--energy", "--json").stdout)
    assert document["check"]["counter_joules"] == counter_joules
    assert document["check"]["difference"] == check.difference


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
            Measurement("BM=128", product(512), "failed", reason="wrong"),
        ]
    )
    monkeypatch.setattr("worklog.cli.options.live_wanted", lambda **_: True)
    monkeypatch.setattr("worklog.cli.sweep.search", lambda *_, **__: ran)
    monkeypatch.setattr("worklog.cli.sweep.visible_cards", lambda: ["0"])
    result = worklog("sweep", "tiles_2d", "--axis", "BM=64", "--size", "512")
    assert result.exit_code == 1 and re.search(
        r" BM=64 +50\.0 % .*\n BM=128 +failed ", result.stdout
    ), result.output


@pytest.mark.parametrize("is_live", [True, False])
def test_a_run_looks_for_a_gpu_once_and_checks_each_size_once(is_live, asked, monkeypatch):
    counts = Counter[str]()

    def live_wanted() -> bool:
        counts["gpu"] += 1
        return is_live

    check = Kernel.check

    def counted(kernel: Kernel, shape: Shape) -> None:
        counts[f"{kernel.name} at {shape}"] += 1
        check(kernel, shape)

    monkeypatch.setattr(sources, "live_wanted", live_wanted)
    monkeypatch.setattr(Kernel, "check", counted)
    result = worklog("run", "naive", "cuBLAS", "--size", "512,1024")
    assert result.exit_code == 0, result.output
    assert counts == {"gpu": 1, "naive at 512": 1, "naive at 1024": 1}
    assert len(asked) == is_live


def test_a_sweep_of_tiles_that_cannot_be_starts_no_workers(monkeypatch):
    def start(*_: Any) -> None:
        raise AssertionError("workers were started")

    monkeypatch.setattr("worklog.cli.options.live_wanted", lambda **_: True)
    for name in ("Workers", "Cluster"):
        monkeypatch.setattr(f"worklog.cli.sweep.{name}", start)
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


@pytest.fixture
def article(monkeypatch, tmp_path):
    """Measure an article of two kernels and an ablation in a real child on a virtual GPU.

    Yields how often each of the two charts was drawn that don't depend on the run.
    """
    (tmp_path / "README.md").write_text("\n".join(markers("table")))
    quick = (("least_samples", 6), ("most_samples", 12), ("budget_s", 0.1), ("hot_ms", 0.0))
    jobs, _ = jobs_of(["naive", "cuBLAS"], [64, 128], quick)
    for job in ablation_jobs("naive", [64]):
        if job.pitfalls:
            jobs.append(replace(job, changed=(*job.pitfalls.items(), *quick)))
    jobs.sort(key=lambda job: job.shape.flops)
    command = (sys.executable, "-m", "tests.virtual.ladder_job")
    monkeypatch.setattr(figures, "article_jobs", lambda: jobs)
    monkeypatch.setattr(sources, "live_wanted", lambda: True)
    monkeypatch.setattr(sources, "source_changed", lambda *_: False)  # a function stands in for it
    monkeypatch.setattr(execute, "carry_out", partial(execute.carry_out, command=command))
    monkeypatch.setattr(gallery, "rendered", lambda chart: {".svg": chart.svg().encode()})
    # Another process would not see what is replaced here.
    monkeypatch.setattr(figures, "drawing_processes", partial(ThreadPoolExecutor, 1))
    counts = Counter[str]()

    def fails() -> plots.Drawing:
        counts["fails"] += 1
        raise ValueError("no such chart")

    def drawn() -> plots.Drawing:
        counts["drawn"] += 1
        return plots.traffic()

    monkeypatch.setattr(figures, "others", lambda recorded=True: {"fails": fails, "drawn": drawn})
    return counts


def test_an_interrupted_article_goes_on_by_the_command_that_it_prints(article, monkeypatch):
    """Each step of the live command, up to the figures and the README's table."""
    stop = threading.Event()
    carry_out = execute.carry_out
    seen: list[int] = []

    def interrupted(order: MeasureOrder, *, progress: Any, **how: Any) -> Run:
        def report(done: int, total: int, doing: str) -> None:
            if done == 2:
                stop.set()
            progress(done, total, doing)

        return carry_out(order, progress=report, stop=stop, **how)

    def counting(order: MeasureOrder, **how: Any) -> Run:
        seen.append(len(order.jobs or ()))
        return carry_out(order, **how)

    monkeypatch.setattr(execute, "carry_out", interrupted)
    first = worklog("article", "--out", "my charts")
    assert first.exit_code == 130 and not Path("my charts").exists()
    said = re.search(
        r"worklog: interrupted: (\d) of (\d+) measurements are kept in (\S+)\n"
        r"nothing is measured again by: worklog (.*)\n$",
        first.stderr,
    )
    assert said is not None, first.stderr
    kept = int(said[1])
    of = int(said[2])
    path = said[3]
    assert kept == len(Run.load(path).measurements) in (2, 3)
    monkeypatch.setattr(execute, "carry_out", counting)
    second = worklog(*shlex.split(said[4]))
    assert second.exit_code == 1, second.stderr
    assert second.stdout.startswith("live · a virtual GPU · ") and "cut short" not in second.stdout
    assert second.stdout.endswith("table rewritten: README.md\n")
    assert "  fails: ValueError: no such chart" in second.stderr
    assert f"--resume {path} --out 'my charts'" in second.stderr
    assert seen == [of - kept] and len(Run.load(path).measurements) == of
    drawn = {path.stem for path in Path("my charts").glob("*.svg")}
    assert {"ladder", "ablation_naive", "drawn"} <= drawn
    assert article == {"fails": 1, "drawn": 1}
    monkeypatch.setattr(sources, "live_wanted", lambda: False)
    worklog(*shlex.split(said[4]))
    assert seen == [of - kept] and article == {"fails": 2, "drawn": 2}, "nothing was measured"


def test_a_run_of_other_settings_is_not_resumed(article):
    small_run(measurements=[measured("naive", 64)]).save("run.jsonl")
    asked_again = worklog("article", "--resume", "run.jsonl", "--set", "l2=warm")
    assert "--resume keeps the run's settings: omit --set" in asked_again.stderr
    elsewhere = worklog("article", "--resume", "run.jsonl")
    assert elsewhere.exit_code == 2
    assert (
        "run.jsonl can't be resumed: GPU name NVIDIA H200 there, a virtual GPU" in elsewhere.stderr
    )
    assert "nothing is measured again by" not in elsewhere.stderr
