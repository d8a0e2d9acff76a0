"""The baseline cuBLASLt: its algorithms are checked and timed, and the fastest is the baseline.

On the virtual GPU, whose algorithms have known times and faults.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from pytest import approx

from tests.cli.conftest import worklog
from tests.exploits.arrays import xp
from tests.helpers import measured, small_run
from tests.virtual.device import NOT_SUPPORTED, VirtualAlgorithm, VirtualCublasLt
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, VirtualSession
from worklog.cli.run import kernel_named
from worklog.errors import BadSetting, LaunchFailed
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.runner.execute import limit_s, order_of
from worklog.runner.job import algorithms_of, jobs_of, product_job
from worklog.runner.worker import measure_job
from worklog.runs import CUBLAS, CUBLASLT, Algorithm, Choice, Measurement, Run
from worklog.runs.statistics import Estimate

SHAPE = Shape(96, 64, 80)
CHOICE = Choice(Algorithm(4, 20, "128x64", "8x5", 1, 0, 0), (0.9, None, 0.95, 0.8, 1.02))


def plain(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)


@pytest.fixture
def session():
    xp.machine = Machine()
    return VirtualSession(xp.machine, Kernel.from_function(f"{__file__}:plain"))


def offer(session: VirtualSession, *offers: tuple[float, str]) -> VirtualCublasLt:
    """Let cuBLASLt offer algorithms of these factors and faults."""
    algorithms = [
        VirtualAlgorithm(session.device, index, factor, fault)
        for index, (factor, fault) in enumerate(offers)
    ]
    library = VirtualCublasLt(session.device, algorithms)
    session.loaded[CUBLASLT] = library
    return library


def run_plain(session: VirtualSession, name: str = CUBLASLT, **changes: object) -> Measurement:
    return measure_job(session, product_job("plain", SHAPE, (), name), QUICK.but(**changes))


def left_out(m: Measurement) -> list[str]:
    return [text for text in m.degradations if text.startswith(f"the baseline {CUBLASLT}")]


def test_the_fastest_algorithm_is_timed_again_beside_the_kernel_and_cublas(session):
    m = run_plain(session)
    assert [*m.against] == [CUBLAS, CUBLASLT]
    assert [side.name for side in m.samples.sides] == ["plain", CUBLAS, CUBLASLT]
    assert m.against[CUBLASLT].value == approx(0.8 * m.against[CUBLAS].value, rel=0.03)
    choice = m.choices[CUBLASLT]
    assert choice.algorithm.index == 1
    assert choice.shares == approx((1 / 1.1, 1 / 0.8, 1 / 1.2, 1.0), rel=0.03)
    assert left_out(m) == []


def test_a_number_of_algorithms_limits_the_choice(session):
    m = run_plain(session, "cuBLASLt:1")
    assert m.choices["cuBLASLt:1"].algorithm.index == 0 and [*m.against] == [CUBLAS, "cuBLASLt:1"]


def test_the_choice_is_made_once_for_all_kernels_of_a_session_at_a_shape(session, monkeypatch):
    first = run_plain(session)
    monkeypatch.setattr(VirtualCublasLt, "candidates", lambda *_: pytest.fail("chosen again"))
    assert run_plain(session).choices == first.choices


@pytest.mark.parametrize("fault", ["rounded", "refused"])
def test_a_wrong_or_refused_algorithm_is_left_out_and_said(session, fault):
    offer(session, (1.0, ""), (0.5, fault), (0.9, ""))
    m = run_plain(session)
    assert m.choices[CUBLASLT].algorithm.index == 2
    assert [share is None for share in m.choices[CUBLASLT].shares] == [False, True, False]
    (text,) = left_out(m)
    assert text.startswith("the baseline cuBLASLt: cuBLASLt algorithm 1 was left out: ")
    assert text.endswith(NOT_SUPPORTED) is (fault == "refused")


@pytest.mark.parametrize(
    ("offers", "reason"),
    [
        ([], "the heuristic offers no algorithm at this shape"),
        ([(1.0, "refused")], f"cuBLASLt algorithm 0 was left out: {NOT_SUPPORTED}"),
    ],
)
def test_without_an_algorithm_the_kernel_is_measured_without_the_baseline(session, offers, reason):
    offer(session, *offers)
    m = run_plain(session)
    assert m.us and m.against[CUBLASLT] is None and m.choices == {}
    assert left_out(m) == [f"the baseline cuBLASLt: {reason}"]
    assert run_plain(session, gate=False).against[CUBLASLT] is None


def test_a_library_that_fails_leaves_the_kernel_its_measurement(session, monkeypatch):
    def fails(*_: object) -> None:
        raise LaunchFailed("cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED")

    monkeypatch.setattr(session, "load_cublaslt", fails)
    m = run_plain(session)
    assert m.us and left_out(m) == [
        "the baseline cuBLASLt: cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED"
    ]


def test_an_algorithm_that_goes_wrong_while_it_is_timed_is_left_out(session):
    library = offer(session, (1.0, ""), (0.5, ""))
    cheat = library.algorithms[1]
    launches = iter(range(1000))
    enqueue = cheat.enqueue

    def stops_soon(*arguments: object) -> None:
        cheat.fault = "rounded" if next(launches) > 8 else ""
        enqueue(*arguments)

    cheat.enqueue = stops_soon
    m = run_plain(session)
    assert m.choices[CUBLASLT].algorithm.index == 0 and len(left_out(m)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"l2": "warm"},
        {"order": "sequential"},
        {"placement": "fixed"},
        {"timer": "graph", "l2": "rotate"},
        {"gate": False},
    ],
    ids=str,
)
def test_algorithms_are_chosen_under_every_harness(session, changes):
    job = product_job(CUBLAS, SHAPE, (), CUBLASLT)  # a host function isn't recorded into a graph
    m = measure_job(session, job, QUICK.but(**changes))
    assert m.choices[CUBLASLT].algorithm.index == 1
    assert m.against[CUBLASLT].value < m.against[CUBLAS].value


def test_a_choice_is_saved_shown_and_in_the_rows(tmp_path):
    m = replace(
        measured("naive"),
        against={CUBLAS: Estimate(0.5, 0.49, 0.51), CUBLASLT: Estimate(0.49, 0.48, 0.5)},
        choices={CUBLASLT: CHOICE},
    )
    path = small_run(measurements=[m]).save(tmp_path / "run.jsonl")
    run = Run.load(path)
    assert run.measurements[0].choices == {CUBLASLT: CHOICE}
    text = str(run)
    assert "of cuBLAS " in text and "of cuBLASLt" in text
    assert "cuBLASLt: algorithm 4 in its heuristic's list" in text
    assert "the fastest of 4 that were timed: id 20, tile 128x64" in text
    (row,) = run.rows()
    assert row["of cuBLASLt"] == 0.49 and "split-K 1" in row["algorithm of cuBLASLt"]
    assert "split-K 1" in repr(m)
    path = small_run(measurements=[measured("naive")]).save(tmp_path / "without.jsonl")
    assert "choices" not in path.read_text(encoding="utf-8")


def test_means_and_shares_say_which_baseline_they_divide_by():
    against = {CUBLAS: Estimate(0.5, 0.49, 0.51), CUBLASLT: Estimate(0.4, 0.39, 0.41)}
    rows = [replace(measured("naive", n), against=against) for n in (512, 1024)]
    run = small_run(measurements=rows)
    (means,) = run.means()
    assert means["geometric mean of cuBLAS"] == "50.0 %"
    assert means["geometric mean of cuBLASLt"] == "40.0 %"
    shares = run.shares()
    assert shares.title.startswith("share of cuBLAS, of cuBLASLt · ")
    assert [*shares.columns] == ["size", "naive", "naive of cuBLAS", "naive of cuBLASLt"]
    assert [str(cell) for cell in shares.rows[-1]] == ["lowest", "", "50.0 %", "40.0 %"]
    assert (
        small_run(measurements=[measured("naive")]).shares().title.startswith("share of cuBLAS · ")
    )


def test_names_on_the_command_line_have_a_number():
    assert kernel_named("cublaslt", {}) == CUBLASLT and algorithms_of(CUBLASLT) == 16
    assert kernel_named("cuBLASlt:4", {}) == "cuBLASLt:4" and algorithms_of("cuBLASLt:4") == 4
    assert algorithms_of(CUBLAS) is None and algorithms_of("mine.py:f") is None
    for name in ("cublaslt:", "cublaslt:0", "cublaslt:x", "cublaslt:999"):
        with pytest.raises(BadSetting, match="isn't a number of algorithms: give 1 to 100"):
            kernel_named(name, {})


def test_cublaslt_is_a_baseline_only_and_its_name_is_taken():
    jobs, _ = jobs_of(CUBLASLT, [64])
    with pytest.raises(BadSetting, match=r"is a baseline: name a kernel, .* --against cublaslt"):
        order_of(jobs, QUICK)
    jobs, _ = jobs_of("naive", [64], against=[CUBLASLT])
    assert order_of(jobs, QUICK).jobs[0].against == (CUBLAS, CUBLASLT)
    assert limit_s(jobs, QUICK) - limit_s(jobs_of("naive", [64])[0], QUICK) == QUICK.budget_s
    kernel = Kernel.from_function(f"{__file__}:plain", name=CUBLASLT)
    with pytest.raises(BadSetting, match="two kernels are called cuBLASLt"):
        order_of(jobs, QUICK, [kernel])


def test_the_command_prints_both_shares(tmp_path):
    """In a real child, on the virtual GPU."""
    name = f"{__file__}:plain"
    command = [sys.executable, "-m", "tests.virtual.command", "run", name, "--size", "64"]
    limits = ["--set", "most_samples=20", "--set", "budget_s=0.2"]
    done = subprocess.run(
        [*command, *limits, "--against", "cublaslt"],
        env={**os.environ, "WORKLOG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    heads = next(line for line in done.stdout.splitlines() if "TFLOP/s" in line)
    assert "of cuBLAS " in heads and "of cuBLASLt" in heads
    assert "cuBLASLt: algorithm 1 in its heuristic's list" in done.stdout
    assert "the fastest of 4 that were timed: " in done.stdout


def test_a_preview_names_it():
    result = worklog("run", "naive", "--against", "cublaslt,torch", "--preview", "--json")
    (row,) = json.loads(result.stdout)["measurements"]
    assert row["against"] == ["cuBLAS", "cuBLASLt", "torch"]
