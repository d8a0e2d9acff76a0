"""From a kernel to a run on a real GPU: right kernels are measured, wrong ones fail. The last test is the ladder's own
promise, for the GPU that it was tuned on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.conftest import QUICK, Measured
from worklog.errors import LaunchFailed, OutOfMemory
from worklog.gate import SgemmChecker
from worklog.gate.guarded_buffer import Memory
from worklog.gpu.device import gpu
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.device import Program
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape
from worklog.runner.job import BASELINE
from worklog.runner.measure import measure
from worklog.runner.session import Session
from worklog.runs import open_run

ROOT = Path(__file__).parents[2]
NAMES = [record.name for record in LADDER]
SMALL = Shape.of(512)

# A launch finds NaN in the memory that the gate fouled before it.
FOUND = {
    "shared": "__shared__ volatile float slots[64]; const float found = slots[threadIdx.x % 64];",
    "local": "volatile float slots[64]; const float found = slots[(threadIdx.x + blockIdx.x) % 64];",
}


@pytest.mark.parametrize("memory", FOUND)
def test_a_launch_finds_no_number_in_memory_that_it_did_not_write(memory: str, session: Session) -> None:
    device, blocks, threads = session.device, 2048, 128
    body = f"{FOUND[memory]} out[blockIdx.x * blockDim.x + threadIdx.x] = found;"
    kernel = device.compile(Program("finds.cu", f"__global__ void finds(float* out) {{ {body} }}", "finds"))
    gate, out = Memory(device, np.random.default_rng(0)), device.upload(np.zeros(blocks * threads, np.float32))
    device.launch(kernel, (blocks, 1), threads, (out,))  # what a module's first launch allocates is clean
    gate.foul()
    device.launch(kernel, (blocks, 1), threads, (out,))
    assert np.isnan(device.download(out)).mean() > 0.5


@pytest.mark.parametrize("name", [*NAMES, BASELINE])
def test_every_rung_and_cublas_pass(session: Session, name: str) -> None:
    verdict = session.verdict(name, SMALL)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == "fp32"
    (precision,) = (stage for stage in verdict.stages if stage.name == "precision")
    assert 0 < precision.measured < precision.limit / 2


def test_cublas_passes_at_any_shape(session: Session) -> None:
    for shape in (Shape(384, 640, 256), Shape(1, 1, 1), Shape(1000, 17, 333)):
        verdict = SgemmChecker(session.device, shape, seed=1).check(session.baselines["fp32"])
        assert verdict.accepted, (shape, verdict.reason)


def test_cublas_with_tf32_fails_as_tf32(session: Session) -> None:
    checker = SgemmChecker(session.device, SMALL, seed=1)
    assert not checker.check(session.baselines["tf32"]).accepted
    a, b, c = checker.buffers.abc
    checker.buffers.poison()
    session.baselines["tf32"].enqueue(SMALL, 1.0, a, b, 0.0, c)
    timed = checker.check_timed_output(c)
    assert not timed.passed and "class tf32" in timed.detail


def test_an_illegal_launch_fails_and_the_session_goes_on(session: Session, measured: Measured) -> None:
    kernel = session.device.compile(rung("naive").program)
    with pytest.raises(LaunchFailed, match="launching a kernel"):
        session.device.launch(kernel, (1, 1), 4096, ())
    text = rung("naive").source
    wide = Kernel.from_source(text, entry=rung("naive").program.entry, name="wide", grid="M, N", block="64, 64")
    found = measured(wide, Shape.of(256))
    assert (found.status, found.us) == ("failed", None) and "launch" in str(found.reason)
    assert measured("coalesced", Shape.of(256)).us is not None


@pytest.mark.parametrize("changed", [{}, {"l2": "warm"}, {"timer": "graph", "l2": "rotate"}], ids=str)
def test_best_and_split_are_measured_as_any_rung_with_every_state_of_the_cache(changed: dict[str, Any]) -> None:
    names = ["best", "split"] if gpu().compute_capability == (9, 0) else ["best"]
    run = measure(names, [(1021, 1021, 1021), (128, 128, 16384)], harness=QUICK.but(**changed))
    assert [m.status for m in run.measurements] == ["measured"] * 2 * len(names), run
    assert set(run.kernels["best"]["choices"]) == {"1021", "128x128x16384"}


def test_a_run_holds_all_that_its_numbers_need(home: Path) -> None:
    run = measure(["naive", BASELINE], [256, (256, 128, 512)], harness=QUICK)
    assert run.complete and run.path is not None and run.path.parent == home / "runs"
    with pytest.raises(OutOfMemory, match="take a smaller size"):
        measure(["naive"], [400_000])
    loaded = open_run()
    assert loaded.path == run.path and loaded.measurements == run.measurements
    assert run.label.startswith(f"live · {gpu().name} · clocks as found")
    assert run.kernels["naive"]["sha256"] == rung("naive").program.code_sha256
    assert run.kernels["naive"]["registers"] > 0
    assert run.software["cublas"] and run.software["cuda_driver"]
    for m in run.measurements:
        assert m.us_low <= m.us <= m.us_high
        stages = [stage.name for stage in m.verdict.stages]
        assert {"every timed launch", "plausible"} <= {*stages}
        assert m.n >= QUICK.least_samples
        assert len(m.samples.sides[0].us) == len(m.samples.sides[0].sm_mhz) == len(m.samples.counts)
        assert m.sm_mhz is not None and 300 < m.sm_mhz < 4000


def test_at_4096_every_rung_is_faster_than_the_one_before(measured: Measured) -> None:
    """But for `pipelined`, whose tile is a smaller one. Two reach the article's shares, 84.8 % and 93.7 % of cuBLAS."""
    if "H200" not in gpu().name:
        pytest.skip(f"tiles were chosen for an H200, this is {gpu().name}")
    found = {name: measured(name, Shape.of(4096), Harness().but(budget_s=0.5, precision=0.01)) for name in NAMES}
    assert {m.status for m in found.values()} == {"measured"}, {name: m.reason for name, m in found.items()}
    times = {name: found[name].us or 0.0 for name in NAMES if name != "pipelined"}
    assert list(times.values()) == sorted(times.values(), reverse=True), times
    shares = {name: found[name].ratio or 0.0 for name in ("autotuned", "warptiled")}
    assert shares["autotuned"] >= 0.848 and shares["warptiled"] >= 0.937, shares
