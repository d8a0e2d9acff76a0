"""Several baselines, and the gate's roof.

Each baseline alternates with each kernel, is gated like a kernel, and has a separate column. A
time is possible or not by the datapath that the kernel's code uses.
"""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pytest import approx

import worklog
from tests.exploits.arrays import xp
from tests.helpers import small_run
from tests.virtual.arrays import Array, VirtualArrays
from tests.virtual.device import VirtualBaseline
from tests.virtual.machine import Machine
from tests.virtual.session import GPU, PEAK_TFLOPS, QUICK, VirtualSession, measure
from worklog.benchmarks import Call
from worklog.cli.run import kernel_named
from worklog.errors import BadSetting
from worklog.gate.checker import fp32_roof
from worklog.gpu.clocks import Peaks
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runner.execute import order_of
from worklog.runner.job import jobs_of, product_job
from worklog.runner.launches import Loop, OutOfBoundsWrite
from worklog.runner.products import loop_of
from worklog.runner.timing import time_on
from worklog.runner.worker import measure_job
from worklog.runs import CUBLAS, Measurement, Run, Work

SHAPE = Shape(96, 64, 80)
HOST = """
from tests.exploits.arrays import xp

def plain(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)

def slow(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, 0.0, xp.empty(*C.shape))
    xp.gemm(alpha, A, B, beta, C)

def wrong(alpha, A, B, beta, C):
    xp.gemm(abs(alpha), A, B, beta, C)

def rounded(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C, rounded=True)
"""


@pytest.fixture
def host(tmp_path):
    xp.machine = Machine()
    (tmp_path / "host.py").write_text(HOST)
    return {
        name: Kernel.from_function(f"{tmp_path}/host.py:{name}")
        for name in ("plain", "slow", "wrong")
    }


def ratio_to(m: Measurement, name: str) -> float:
    ratio = m.against[name]
    assert ratio is not None, m.degradations
    return ratio.value


def test_all_baselines_take_turns_with_the_kernel_in_one_loop(host):
    session = VirtualSession(xp.machine, *host.values())
    m = measure_job(session, product_job("plain", SHAPE, (), "slow", "wrong"), QUICK)
    assert m.status == "measured" and [*m.against] == ["cuBLAS", "slow", "wrong"]
    assert [side.name for side in m.samples.sides] == ["plain", "cuBLAS", "slow"]
    assert len({len(side.us) for side in m.samples.sides}) == 1
    assert 1.5 < ratio_to(m, "slow") < 2.0  # its second product finds a warm cache
    assert ratio_to(m, "cuBLAS") != ratio_to(m, "slow") and m.against["wrong"] is None
    assert any(said.startswith("the baseline wrong failed at") for said in m.degradations)
    assert str(small_run(measurements=[m])).count("–") == 1, "it has no number"
    turned = measure_job(session, product_job("slow", SHAPE, (), "plain"), QUICK)
    assert ratio_to(turned, "plain") == approx(1 / ratio_to(m, "slow"), rel=0.05)
    failed = measure_job(session, product_job("wrong", SHAPE, (), "plain"), QUICK)
    assert failed.status == "failed" and failed.against == {"cuBLAS": None, "plain": None}


@pytest.mark.parametrize(("claimed", "status"), [("tf32", "measured"), ("fp32", "failed")])
def test_a_timed_output_is_judged_by_the_class_that_the_kernel_claims(
    claimed, status, host, tmp_path
):
    """With a warm L2, in which only the last launch's output is checked."""
    kernel = Kernel.from_function(f"{tmp_path}/host.py:rounded", claimed=claimed)
    session = VirtualSession(xp.machine, kernel)
    m = measure_job(session, product_job("rounded", SHAPE), QUICK.but(l2="warm"))
    assert m.status == status, m.reason


@pytest.mark.parametrize(
    ("changes", "in_step"),
    [({}, True), ({"order": "sequential"}, False), ({"timer": "graph", "l2": "rotate"}, False)],
)
def test_kernels_share_buffers_where_they_take_turns_launch_by_launch(changes, in_step):
    loop = loop_of(
        VirtualSession(Machine()), product_job(CUBLAS, SHAPE), QUICK.but(**changes), [CUBLAS]
    )
    assert loop.in_step is in_step


def test_a_host_function_is_called_on_new_buffers_before_they_are_timed(host):
    """It may record a graph for their addresses, which can't be done behind a blocking kernel."""
    session = VirtualSession(xp.machine, host["plain"])
    subject: Any = session.load("plain")
    seen = list[object]()
    function = subject.function

    def counted(alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        seen.append(c.buffer.start)
        function(alpha, a, b, beta, c)

    subject.function = counted
    loop = loop_of(session, product_job("plain", SHAPE), QUICK, [CUBLAS])
    assert seen == [c.start for _, _, c in loop.bare[0].buffers]
    loop.move()
    assert seen[-2:] == [c.start for _, _, c in loop.bare[0].buffers] and len(seen) == 4
    loop.close()


def test_each_kernel_meets_cublas_and_each_further_baseline_in_a_column_of_its_own(host, tmp_path):
    jobs, own = jobs_of([host["plain"], host["slow"]], [SHAPE], against=[host["slow"], "cuBLAS"])
    assert [(job.kernel, job.against) for job in jobs] == [
        ("plain", ("cuBLAS", "slow")),
        ("slow", ("cuBLAS",)),
    ]
    m = measure_job(VirtualSession(xp.machine, *own), jobs[0], QUICK)
    run = Run.load(small_run(measurements=[m]).save(tmp_path / "run.jsonl"))
    assert run.select() == [m] and m.baseline == "cuBLAS"
    assert " of cuBLAS " in str(run) and "of slow" in str(run)
    assert run.frame()["of slow"][0] == ratio_to(m, "slow")


def test_the_memory_of_an_earlier_shape_is_given_back(monkeypatch):
    session = VirtualSession(Machine())
    left = list[Loop]()
    monkeypatch.setattr(Loop, "close", lambda loop: left.append(loop))
    for size in (64, 64, 96):
        measure(session, CUBLAS, Shape.of(size))
    assert len(left) == 3 and session.device.emptied == 2


def test_a_kernel_without_alpha_is_no_baseline(tmp_path):
    file = tmp_path / "small.cu"
    file.write_text(
        "__global__ void small(int M, int N, int K, const float* A, const float* B, float* C) {}"
    )
    kernel = Kernel.from_file(file, grid="N, M", block="1")
    tasks, own = jobs_of(["naive"], [256], against=[kernel])
    with pytest.raises(BadSetting, match="small can't be a baseline: it must take alpha"):
        order_of(tasks, QUICK, own)
    tasks, own = jobs_of(["naive"], [100], against=["tiles_2d"])
    with pytest.raises(BadSetting, match="size 100 is outside tiles_2d's domain"):
        order_of(tasks, QUICK, own)


@pytest.mark.parametrize(("name", "dimensions"), [("addmm", 2), ("baddbmm", 3)])
def test_pytorch_is_asked_for_fp32(monkeypatch, name, dimensions):
    asked: list[object] = []
    cuda = SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True))
    product = SimpleNamespace(backends=SimpleNamespace(cuda=cuda))
    setattr(product, name, lambda *x, **named: asked.append((x, named)))
    c = SimpleNamespace(dim=lambda: dimensions)
    monkeypatch.setitem(sys.modules, "torch", product)
    kernel = kernel_named("torch", {})
    assert kernel.name == "torch" and kernel.host is not None
    function, arrays = kernel.host.loaded()
    function(-1.0, "a", "b", 0.0, c)
    assert arrays == "torch" and asked == [((c, "a", "b"), {"beta": 0.0, "alpha": -1.0, "out": c})]
    assert not cuda.matmul.allow_tf32


def test_what_cannot_be_measured_here_is_skipped_and_says_why():
    session = VirtualSession(Machine())
    session.gpu = replace(session.gpu, compute_capability=(8, 0))
    found = measure_job(session, product_job("bulk_copies", Shape.of(256)), QUICK)
    assert (found.status, found.reason) == (
        "skipped",
        worklog.rung("bulk_copies").missing_on("sm_80"),
    )
    session.device.free_bytes = lambda: 0
    [said] = [
        said for said in measure(session, CUBLAS, Shape.of(64)).degradations if "placement" in said
    ]
    assert said.startswith("placement: fixed, the GPU's memory has no room for others; ")


def test_a_write_outside_a_timed_buffer_fails_the_kernel(monkeypatch):
    def trespasses(loop: Loop) -> None:
        if loop.guarded:
            raise OutOfBoundsWrite("it wrote outside C")

    monkeypatch.setattr(Loop, "require_intact", trespasses)
    found = measure(VirtualSession(Machine()), CUBLAS, Shape.of(64))
    assert (found.status, found.reason) == (
        "failed",
        "failed at every timed launch: it wrote outside C",
    )


def test_samples_off_the_clock_that_was_locked_are_said_and_labelled_as_found(host):
    session = VirtualSession(xp.machine, *host.values())
    locked = QUICK.but(clocks="locked:1395")
    found = measure_job(session, product_job("plain", SHAPE, (), "slow"), locked)
    assert found.changed["clocks"] == "watched" and "locked to 1395 MHz, but" in str(
        found.degradations
    )
    a, b, c = (xp.empty(64, 64) for _ in range(3))
    alone = time_on(session, Call(xp.gemm, (1.0, a, b, 0.0, c)), locked)
    assert "clocks as found" in alone.label and "locked to 1395 MHz, but" in str(alone.degradations)
    assert alone.changed == {}


PEAKS = Peaks(GPU, GPU.sm_clock_mhz)


class Faster(VirtualArrays):
    """Right products at a rate, in FLOP per microsecond."""

    rate = 0.0

    def _product_us(self, a: Array, b: Array) -> float:
        return 2 * a.shape[0] * a.shape[1] * b.shape[1] / self.rate


@pytest.mark.parametrize(
    ("name", "times", "detail"),
    [
        ("naive", 0.9, "possible by FP32 lanes"),
        ("naive", 1.2, "by FP32 lanes: work or time is missing"),
        ("promoted", 4.0, "possible by 3 products of f16 on tensor cores"),
        (
            "promoted",
            6.7,
            "3 products of f16 on tensor cores, and FP32 lanes: work or time is missing",
        ),
    ],
)
def test_a_kernel_is_held_to_what_its_code_can_reach(name, times, detail):
    """Return a rung's code, with right results, at a speed of so many FP32 peaks."""
    session = VirtualSession(Machine())
    session.loaded[name] = subject = VirtualBaseline(session.device, name)
    subject.operands = rung(name).load(EmulatedDevice()).operands
    subject.arrays = Faster(session.device.machine)
    subject.arrays.rate = 1e6 * PEAK_TFLOPS * times
    found = measure(session, name, Shape.of(128))
    assert found.status == ("failed" if "missing" in detail else "measured")
    (stage,) = (stage for stage in found.verdict.stages if stage.name == "plausible")
    assert detail in stage.detail and stage.passed == (found.status == "measured")
    biased = measure(session, name, Shape.of(128), QUICK.but(l2="warm"))
    assert biased.status == "measured" and biased.verdict.stages[-1].name != "plausible", (
        "it may look too fast"
    )


def test_without_a_known_peak_of_tensor_cores_no_rate_is_called_impossible():
    work = Work(flops=10**12)
    cards = [replace(GPU, compute_capability=version) for version in ((9, 0), (9, 9))]
    assert [bool(Peaks(card, GPU.sm_clock_mhz).impossible(1.0, work)) for card in cards] == [
        True,
        False,
    ]


def test_the_roof_is_the_peak_over_the_least_number_of_products():
    def beside(*operands: str) -> float:
        return fp32_roof(operands, PEAKS)[0] - PEAKS["fp32"]

    assert beside() == 0
    assert beside("f16") == approx(PEAKS["fp16"] / 3) and beside("tf32") == approx(
        PEAKS["tf32"] / 3
    )
    assert beside("bf16") == approx(PEAKS["bf16"] / 6) and beside("s8") == approx(PEAKS["fp8"] / 6)
    assert beside("f64") == approx(PEAKS["fp64_tensor"])
    assert beside("tf32", "f16") == beside("f16"), "the fastest way counts"
    assert beside("a type of tomorrow") == max(PEAKS.values())


def test_the_class_by_norms_may_exceed_the_peak_by_the_products_that_it_omits():
    peak, in_words = fp32_roof((), PEAKS, "fp32-norm")
    assert peak == approx(PEAKS["fp32"] * 64 / 49)
    assert "49 products in place of 64" in in_words
