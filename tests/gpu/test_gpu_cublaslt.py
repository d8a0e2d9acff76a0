"""cuBLASLt on a real GPU: its algorithms are right in FP32, and the chosen one is fast."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.gpu.conftest import QUICK
from worklog.gpu.device import environment
from worklog.harness import time_in_turn
from worklog.problem import Shape
from worklog.runner.algorithms import choose
from worklog.runner.job import ALGORITHMS, product_job
from worklog.runner.launches import loop_on
from worklog.runner.worker import measure_job
from worklog.runs import CUBLAS, CUBLASLT, Run
from worklog.runs.statistics import summarize

SHAPES = [Shape.of(512), Shape(1024, 768, 256)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_algorithm_is_right_in_fp32(session, shape):
    candidates = session.load(CUBLASLT).candidates(shape)
    assert 2 <= len(candidates) <= ALGORITHMS
    assert [candidate.facts.index for candidate in candidates] == [*range(len(candidates))]
    checker = session.checker(shape)
    for candidate in candidates:
        launched = checker.check_launch(candidate)
        checker.buffers.restore()
        assert launched.passed, (str(candidate.facts), launched.detail)
        written = checker.buffers.run(candidate)
        assert not written.trespass, str(candidate.facts)
        stage = checker.check_timed_output(candidate)
        assert stage.passed, (str(candidate.facts), stage.detail)


@pytest.mark.parametrize("shape", [*SHAPES, Shape(1, 1, 1), Shape(1000, 17, 333)], ids=str)
def test_the_library_passes_the_gate_with_the_chosen_algorithm(session, shape):
    choice, remarks = choose(session, CUBLASLT, shape, QUICK)
    assert choice is not None, remarks
    verdict = session.verdict(CUBLASLT, shape)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == "fp32"


def test_the_chosen_algorithm_is_not_slower_than_the_heuristics_first(session):
    """In another loop than the one that chose it.

    The choice is as good as its loop is precise: QUICK stops at 5 %, and the chosen algorithm may
    be slower than the first one by as much.
    """
    shape = SHAPES[1]
    choice, remarks = choose(session, CUBLASLT, shape, QUICK)
    assert choice is not None, remarks
    library = session.load(CUBLASLT)
    first = library.candidates(shape)[0]
    assert library.kernels(shape) >= 1
    loop = loop_on(session, shape, QUICK, kernels=[library, first], names=("chosen", "first"))
    with closing(loop):
        options = loop.options(session.overhead_us(QUICK))
        reading = time_in_turn(session.timeline, loop.launches, QUICK, **options)
        assert loop.stage().passed
    summary = summarize(reading.samples, QUICK.as_dict(), session.calibration.offset_us)
    first_over_chosen = summary.ratios["first"]
    print(f"{choice}; the first takes {first_over_chosen.value:.3f} times as long")
    assert first_over_chosen.high > 1 - QUICK.precision


@pytest.mark.parametrize(
    "changes", [{"l2": "warm"}, {"timer": "graph", "l2": "rotate"}, {"placement": "fixed"}], ids=str
)
def test_an_algorithm_is_chosen_and_timed_under_every_harness(session, changes):
    session.chosen_algorithms.clear()
    job = product_job("warptiled", SHAPES[0], (), "cuBLASLt:3")
    m = measure_job(session, job, QUICK.but(**changes))
    assert m.status == "measured", m.reason
    assert m.against["cuBLASLt:3"] is not None, m.degradations
    assert 1 <= len(m.choices["cuBLASLt:3"].shares) <= 3


def test_the_command_prints_the_shares_of_both_baselines(tmp_path):
    command = [sys.executable, "-m", "worklog", "run", "warptiled", "--size", "1024"]
    done = subprocess.run(
        [*command, "--against", "cublaslt"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    heads = next(line for line in done.stdout.splitlines() if "TFLOP/s" in line)
    assert re.search(r"of cuBLAS\b(?!Lt).*of cuBLASLt", heads)
    assert re.search(r"cuBLASLt: algorithm \d+ in .* list, .* the fastest of \d+", done.stdout)
    (path,) = re.findall(r"run saved: (.*)", done.stdout)
    (m,) = Run.load(Path(path)).measurements
    assert [*m.against] == [CUBLAS, CUBLASLT] and None not in m.against.values()
    assert m.choices[CUBLASLT].algorithm.index < len(m.choices[CUBLASLT].shares)
