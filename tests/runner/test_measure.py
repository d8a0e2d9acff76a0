"""Whatever a kernel does to its process, here it is a verdict.

What was finished is kept, and the next one runs.
"""

import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers import GPU, measured, small_run
from tests.lab.waiting import WAIT_S, gone, until
from tests.runner.conftest import FOREIGN, mine
from worklog.errors import BadRunFile, BadSetting, CompileFailed, Interrupted, WorklogError
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.runner import execute, sources
from worklog.runner.child import run_child
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import jobs_of, product_job
from worklog.runner.messages import MeasureOrder
from worklog.runs import Run

SHAPE = Shape.of(512)


def measure(*names: str, **how: Any) -> Run:
    """Return the kernels measured in foreign processes."""
    how = {"command": FOREIGN, **how}
    own = [mine(name) for name in dict.fromkeys(names) if name != "naive"]
    jobs = [product_job(name, SHAPE) for name in names]
    return carry_out(order_of(jobs, how.pop("harness", Harness()), own), **how)


def test_what_is_measured_comes_back_and_is_saved(tmp_path):
    shown: list[tuple[int, int, str]] = []
    run = measure(
        "fine", "fine", out=tmp_path / "run.json", progress=lambda *step: shown.append(step)
    )
    assert [m.status for m in run.measurements] == ["measured", "measured"]
    assert run.complete and run.origin == "live" and run.notes == []
    assert Run.load(tmp_path / "run.json").measurements == run.measurements
    assert run.kernels["fine"]["choices"] == {"512": ["timed"]}
    assert (
        shown[0] == (0, 2, "starting") and (1, 2, "fine") in shown and shown[-1] == (2, 2, "done")
    )


def test_a_place_that_cannot_be_written_is_noticed_before_the_first_measurement(
    tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "file"))
    for out, why in (
        (None, "cannot write .*WORKLOG_HOME"),
        (tmp_path / "file" / "x", "cannot write"),
    ):
        with pytest.raises(BadRunFile, match=why):
            measure("fine", out=out, command=["/nothing", "is", "started"])


def test_while_a_run_is_measured_its_file_is_taken_and_what_held_nothing_is_gone(
    tmp_path, monkeypatch
):
    out = tmp_path / "run.json"
    home = tmp_path / "home"
    monkeypatch.setenv("WORKLOG_HOME", str(home))

    def second(*_: object) -> None:
        with pytest.raises(BadRunFile, match=r"run\.json exists already: give --out another name"):
            measure("fine", out=out)

    assert measure("fine", out=out, progress=second).complete
    with pytest.raises(OSError, match="nothing"):
        measure("fine", out=tmp_path / "other.json", command=["/nothing"])
    assert not (tmp_path / "other.json").exists()
    assert (
        measure("fine").path in list((home / "runs").iterdir())
        and len(list((home / "runs").iterdir())) == 1
    )


RUINOUS = {
    "segfaults": ("process", "SIGSEGV"),
    "leaves": ("process", "(exit code 0)"),
    "leaves talking": ("process", "(exit code 3), and last printed 'so long'"),
    "exits": ("process", "raised SystemExit: 0"),
    "raises": ("process", "raised ValueError: no such thing"),
    "illegal address": ("launch", "cudaErrorIllegalAddress"),
    "fills the GPU": ("memory", "take a smaller size"),
    "fills the memory": ("memory", "the host's memory is full"),
    "starts another": ("process", "(exit code 0)"),
}


def test_a_kernel_that_ends_its_process_is_refused_and_the_next_one_runs(pids, capfd):
    run = measure("first", *RUINOUS, "last")
    assert [m.kernel for m in run.measurements] == ["first", *RUINOUS, "last"]
    for m in run.measurements:
        if m.kernel in RUINOUS:
            stage, why = RUINOUS[m.kernel]
            assert (
                m.status == "failed"
                and str(m.reason).startswith(f"failed at {stage}: ")
                and why in str(m.reason)
            )
            assert ("worklog check --emulate" in str(m.reason)) is (stage != "memory")
            assert m.verdict is not None and not m.verdict.accepted
        else:
            assert m.status == "measured" and m.reason is None
    assert (
        run.complete
        and run.path is not None
        and Run.load(run.path).measurements == run.measurements
    )
    assert run.notes[-1].startswith("from last at 512 on: in a fresh process")
    assert pids()
    for pid in pids():
        until(lambda pid=pid: gone(pid))
    printed = capfd.readouterr()
    assert printed.out == "" and "so long" in printed.err


def test_a_host_functions_process_measures_nothing_else(monkeypatch):
    orders: list[list[str]] = []

    def noted(order: MeasureOrder, *rest: Any, **how: Any) -> Any:
        orders.append([job.kernel for job in order.jobs or ()])
        return run_child(order, *rest, **how)

    monkeypatch.setattr(execute, "run_child", noted)
    names = ["first", "last", "fine", "fine", "other", "first", "last"]
    own = [
        mine("first"),
        mine("last"),
        *(Kernel.from_function(f"os:{name}") for name in ("fine", "other")),
    ]
    tasks = [product_job(name, SHAPE) for name in names]
    tasks[-1] = product_job("last", SHAPE, (), "fine")
    run = carry_out(order_of(tasks, Harness(), own), command=FOREIGN)
    assert [m.kernel for m in run.measurements] == names and run.complete
    assert orders == [["first", "last"], ["fine", "fine"], ["other"], ["first"], ["last"]]


def test_a_kernel_that_hangs_is_ended_and_the_next_one_runs(pids, monkeypatch):
    def impatient(order: MeasureOrder, *rest: Any, timeout_s: float, **how: Any) -> Any:
        """Only with the first process: the second one may be slow."""
        hangs = (order.jobs or [])[0].kernel != "fine"
        return run_child(order, *rest, timeout_s=0.5 if hangs else timeout_s, **how)

    monkeypatch.setattr(execute, "run_child", impatient)
    run = measure("hangs with the lock", "fine")
    assert [m.status for m in run.measurements] == ["failed", "measured"]
    assert "hung: no progress for " in str(run.measurements[0].reason)
    assert all(map(gone, pids()))


def test_a_process_that_ends_early_after_its_last_measurement_is_noted():
    run = measure("fine", "leaves a thread that leaves")
    assert [m.status for m in run.measurements] == ["measured", "measured"] and run.complete
    assert "leaves a thread that leaves at 512 ended early: its process exited" in run.notes[-1]


@pytest.mark.parametrize(
    ("kernel", "error", "says"),
    [
        ("does not compile", CompileFailed, r"^x\.cu:3: expected a ';'$"),
        ("no such entry", CompileFailed, r"^x\.cu: there is no kernel x$"),
        ("naive", WorklogError, r"ValueError: of a rung: a mistake in worklog(?s:.)*Traceback"),
    ],
)
def test_what_says_nothing_about_a_kernel_is_raised_here_too(kernel, error, says, tmp_path):
    with pytest.raises(error, match=says) as raised:
        measure("fine", kernel, out=tmp_path / "run.json")
    assert type(raised.value) is error
    kept = Run.load(tmp_path / "run.json")
    assert [m.status for m in kept.measurements] == ["measured"] and not kept.complete


def test_a_process_that_is_never_ready_is_an_error():
    with pytest.raises(WorklogError, match=r"no kernel was launched.*exit code 4"):
        measure("never ready")


def test_a_mistake_is_found_before_a_process_starts():
    for tasks, why in (
        ([], "nothing to measure"),
        ([product_job("nonsense", SHAPE)], "no rung 'nonsense'"),
    ):
        with pytest.raises(BadSetting, match=why):
            order_of(tasks, Harness())


def test_a_stop_ends_a_kernel_that_hangs_and_keeps_what_is_finished(pids, tmp_path):
    stop = threading.Event()
    out = tmp_path / "run.json"

    def progress(*_: object) -> None:
        if len(pids()) == 2:
            stop.set()

    with pytest.raises(Interrupted, match=f"1 of 3 measurements are kept in {out}"):
        measure("fine", "hangs with another", "fine", stop=stop, progress=progress, out=out)
    until(lambda: all(map(gone, pids())))
    assert [m.kernel for m in Run.load(out).measurements] == ["fine"]


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
from tests.runner.test_measure import FOREIGN, Shape, measure, mine
from worklog.runner.check import check_in_child
from worklog.errors import Interrupted
try:
    {call}
except Interrupted as error:
    print(error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("measure('fine', 'hangs')", "1 of 2 measurements are kept in "),
        ("check_in_child(mine('hangs'), Shape.of(64), command=FOREIGN)", "hangs was not checked"),
    ],
)
def test_ctrl_c_ends_a_kernel_that_hangs(call, says, pids):
    command = (sys.executable, "-c", INTERRUPTED.format(call=call))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until(lambda: pids())
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=WAIT_S)
    assert printed.startswith("130 interrupted: ") and says in printed
    assert all(map(gone, pids()))


@pytest.mark.parametrize("is_cut_short", [True, False])
def test_a_resumed_run_keeps_what_it_has_and_gets_what_it_lacks(is_cut_short, tmp_path):
    out = tmp_path / "run.jsonl"
    first = measure("first", "fine", out=out)
    if is_cut_short:
        lines = out.read_text().splitlines()
        out.write_text("\n".join([*lines[:-1], '{"kind": "measurement", "kernel": "cut sh']))
    resumed = measure("last", "other", resumed=Run.load(out))
    assert out.read_text().count('"end"') == 1
    assert resumed.path == out and resumed.complete
    for run in (resumed, Run.load(out)):
        assert [m.kernel for m in run.measurements] == ["first", "fine", "last", "other"]
        assert run.measurements[:2] == first.measurements
        assert run.created == first.created and run.gpu == first.gpu
        assert re.search(r"^from last at 512 on: resumed at 20.*calibrated again$", run.notes[-1])


def test_an_interrupted_resumption_counts_all_measurements(pids, tmp_path):
    out = tmp_path / "run.jsonl"
    stop = threading.Event()
    measure("first", out=out)
    how = {"stop": stop, "progress": lambda *_: pids() and stop.set()}
    with pytest.raises(Interrupted, match=f"2 of 3 measurements are kept in {out}"):
        measure("last", "hangs", resumed=Run.load(out), **how)
    assert [m.kernel for m in Run.load(out).measurements] == ["first", "last"]


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"gpu": replace(GPU, name="NVIDIA H100")}, "GPU name NVIDIA H100 there, NVIDIA H200 here"),
        ({"gpu": replace(GPU, uuid="GPU-1")}, "GPU uuid GPU-1 there,  here"),
        ({"software": {"cublas": "12.0"}}, "cublas 12.0 there, unknown here"),
        ({"tool": {"harness": "0a1b"}}, "worklog's harness 0a1b there, None here"),
    ],
)
def test_a_run_of_another_setup_is_not_resumed(changed, differs, tmp_path):
    run = measure("first")
    other = replace(run, **changed)
    other.save(tmp_path / "other.jsonl")
    with pytest.raises(BadSetting, match=rf"can't be resumed: .*{differs}.*measure anew"):
        measure("last", resumed=Run.load(tmp_path / "other.jsonl"))
    assert [m.kernel for m in Run.load(tmp_path / "other.jsonl").measurements] == ["first"]


def test_a_run_lacks_what_it_never_measured_and_is_not_resumed_with_another_source():
    jobs, _ = jobs_of(["naive", "shared"], [256, 512])
    biased = jobs_of(["naive"], [256], (("l2", "warm"),))[0]
    rows = [measured("naive", 256), measured("shared", 512), measured("naive", 256, l2="warm")]
    run = small_run(measurements=rows)
    lacking = sources.missing_from(run, [*jobs, *biased])
    assert [str(job) for job in lacking] == ["shared at 256", "naive at 512"]
    run.kernels["naive"] = {"sha256": "0" * 64}
    with pytest.raises(BadSetting, match="the source of naive has changed since"):
        sources.missing_from(run, jobs)
