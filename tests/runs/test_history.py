"""The runs that a machine keeps: named, chosen, removed, and not lost.

Files of git and of NVBench.
"""

import json
import multiprocessing
import os
import random
import subprocess
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

import worklog
from tests.helpers import GPU, measured, small_run
from worklog.errors import BadRunFile, BadSetting
from worklog.runs import Run, open_run
from worklog.runs.changes import ProcessMedian, compare_revisions, open_revisions
from worklog.runs.files import reserve
from worklog.runs.sources import new_path, runs_dir, saved


@pytest.fixture(autouse=True)
def at_home(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def keep(day: str, kernel: str = "naive", **parts: Any) -> Path:
    """Keep a run of that day of November among this machine's."""
    run = small_run(
        created=f"2026-11-{day}T03:12:44+00:00",
        measurements=[measured(kernel), measured("cuBLAS")],
        **parts,
    )
    return run.save(runs_dir() / f"2026-11-{day}T03-12-44Z-a{day}b.jsonl")


def test_runs_are_chosen_by_kernel_card_date_and_commit_and_open_as_one_frame():
    keep("20", tool={"version": "1", "commit": "abc" * 13})
    keep("23", "shared", gpu=replace(GPU, name="NVIDIA H100", uuid="GPU-77"))
    keep("25")
    days = [run.created[8:10] for run in saved()]
    assert days == ["25", "23", "20"]

    def chosen(**filters: str) -> str:
        return " ".join(run.created[8:10] for run in saved(**filters))

    assert chosen(kernel="shared") == chosen(gpu="h100") == chosen(gpu="gpu-77") == "23"
    assert chosen(commit="abca") == "20"
    assert (chosen(since="2026-11-23"), chosen(until="2026-11-23"), chosen(until="2026-10")) == (
        "25 23",
        "23 20",
        "",
    )
    frame = worklog.history("naive")
    assert [*frame.kernel] == ["naive"] * 2 and frame.us.tolist() == [100.0] * 2
    assert frame.set_index("run").created["2026-11-20T03-12-44Z-a20b"].startswith("2026-11-20")
    (runs_dir() / "2026-11-26.jsonl").write_text('{"kind":"head","schema":2}\n')
    with pytest.warns(
        UserWarning, match="skipped a run of this machine: .*2026-11-26.jsonl"
    ) as caught:
        assert len(saved()) == 3
    assert caught[0].filename == __file__, "where the runs are asked for"


def test_a_run_is_named_by_its_file_a_part_of_its_name_a_recording_or_a_git_revision(tmp_path):
    kept_paths = keep("20")
    keep("23")
    assert (
        open_run("a20b").path
        == open_run(str(kept_paths)).path
        == Run.load(str(kept_paths)).path
        == kept_paths
    )
    assert open_run("h200").origin == "recorded"
    with pytest.raises(BadSetting, match=r"not a git repository.*; run it in a git repository, or"):
        open_run("HEAD:record.jsonl")
    (tmp_path / "record.jsonl").write_bytes(kept_paths.read_bytes())
    for command in ("init -q", "add record.jsonl", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", *command.split()], check=True)
    (tmp_path / "record.jsonl").write_text("changed since")
    assert [m.kernel for m in open_run("HEAD:record.jsonl").measurements] == ["naive", "cuBLAS"]
    for source, says in {
        "2026": "names 2 runs .*: give more of the name",
        "a20c": "there is no run 'a20c': give a file, a name of `worklog log`, a recording",
        "": "there is no run ''",
        "HEAD:other": "git show: .*other.*; give a revision and a path that it holds",
    }.items():
        with pytest.raises(BadSetting, match=says):
            open_run(source)
    with pytest.raises(BadRunFile, match=r"record\.jsonl is not"):
        open_run("record.jsonl")


def nvbench(path: Path, us: float, card: str = "NVIDIA H200") -> str:
    """Return what NVBench writes about one benchmark at two states, one of them skipped."""
    values = {
        "time/gpu/mean": us / 1e6,
        "time/gpu/stdev/relative": 0.01,
        "sample_size": 400,
        "sm_clock_rate/mean": 1.9e9,
    }
    summaries = [
        {"tag": "nv/empty"},
        {"tag": "nv/words", "data": [{"name": "value", "type": "string", "value": ""}]},
    ]
    for tag, value in values.items():
        data = [
            {"name": "hide", "value": ""},
            {"name": "value", "type": "float64", "value": str(value)},
        ]
        summaries.append({"tag": f"nv/cold/{tag}", "data": data})
    axes = [{"name": "N", "type": "int64", "value": "512"}]
    timed = {
        "name": "Device=0 N=512",
        "device": 0,
        "axis_values": axes,
        "is_skipped": False,
        "summaries": summaries,
    }
    skipped = {
        "name": "Device=0",
        "device": 0,
        "axis_values": None,
        "summaries": None,
        "skip_reason": "too small",
    }
    document = {
        "meta": {"version": {"nvbench": {"string": "0.1.0"}}},
        "devices": [{"id": 0, "name": card}],
        "benchmarks": [{"name": "sort", "states": [timed, skipped]}],
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_files_of_nvbench_are_compared_by_the_same_rule(tmp_path):
    files = [nvbench(tmp_path / f"{us}.json", us) for us in (100.0, 104.0)]
    compared = compare_revisions(open_revisions(files[0]), open_revisions(files[1]))
    row, skipped = compared.rows
    assert (row.kernel, row.place, row.old_us, row.new_us) == (
        "sort",
        "Device=0 N=512",
        approx(100.0),
        approx(104.0),
    )
    [side] = open_revisions(files[0])
    assert side.readings["sort", "Device=0 N=512"] == ProcessMedian(
        approx(100.0), approx(1.96 * 0.01 / 20, rel=1e-3), 1900.0
    )
    assert side.readings["sort", "Device=0"] == "skipped: too small"
    assert (row.change.verdict, skipped.change.verdict, compared.exit_code()) == (
        "slower",
        "cannot tell",
        1,
    )
    assert (
        compare_revisions(
            open_revisions(files[0]),
            open_revisions(nvbench(tmp_path / "x.json", 104.0, card="NVIDIA H100")),
        ).exit_code()
        == 2
    )
    (tmp_path / "cut.json").write_text('{"benchmarks": [{}]}')
    with pytest.raises(BadRunFile, match=r"cut\.json isn't a whole file of NVBench's --json"):
        open_revisions(str(tmp_path / "cut.json"))


# A process that pytest forks may wait for ever for a lock that a thread of pytest held.
CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload([__name__])


def write_runs(home: str, finished: Connection) -> None:
    """Write runs of five measurements until the end of this process.

    Names each run that is finished.
    """
    os.environ["WORKLOG_HOME"] = home
    for number in range(10**6):
        run = small_run(measurements=[], complete=False)
        with reserve(
            path := new_path(f"{os.getpid()}-{number}")
        ):  # of thousands in a second, two would have one name
            run = Run.begin(run.head_lines(), path)
            for part in range(5):
                run.add(measured(name := f"k{os.getpid()}_{number}_{part}"), about={"file": "x.cu"})
                finished.send(name)
            run.end()


def start_writing(home: Path) -> tuple[Any, Connection]:
    heard, finished = CLEAN.Pipe(duplex=False)
    process = CLEAN.Process(target=write_runs, args=(str(home), finished), daemon=True)
    process.start()
    finished.close()
    return process, heard


def kill(process: Any, heard: Connection) -> list[str]:
    """Kill a process; what it had finished since."""
    process.kill()
    process.join()
    names = list[str]()
    with heard, suppress(EOFError, OSError):
        while True:
            names.append(heard.recv())
    return names


def test_a_process_that_is_killed_loses_no_finished_measurement_and_disturbs_no_other(tmp_path):
    rng = random.Random(40)
    steady = start_writing(tmp_path)
    finished = list[str]()
    for _ in range(20):
        process, heard = start_writing(tmp_path)
        finished += [heard.recv() for _ in range(rng.randint(1, 9))]
        time.sleep(rng.uniform(0, 0.001))
        finished += kill(process, heard)
    outcomes = kill(*steady)
    with warnings.catch_warnings(
        action="ignore", category=UserWarning
    ):  # of runs that were killed in their head
        kernels_kept = [m.kernel for run in saved() for m in run.measurements]
    assert {*finished, *outcomes} <= {*kernels_kept} and len(kernels_kept) == len({*kernels_kept})
    assert len({name.partition("_")[0] for name in finished}) == 20 and len(outcomes) > 20
