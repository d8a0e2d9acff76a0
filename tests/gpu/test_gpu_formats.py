"""Matrices of 16 bits on a GPU: the gate's verdicts, the libraries' products, and the times."""

from pathlib import Path

import numpy as np
import pytest

from tests.gpu.conftest import QUICK
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape, random_inputs
from worklog.problem.formats import FORMATS, INT8, INT32, SINGLE, Types
from worklog.runner.check import check
from worklog.runner.job import jobs_of
from worklog.runner.worker import measure_job
from worklog.runs import CUBLAS, CUBLASLT

KERNELS = Path(__file__).parents[1] / "gate" / "formats"
NAMES = sorted(path.stem for path in KERNELS.glob("*.cu"))
TYPES = [
    Types(FORMATS[factor], FORMATS[factor], FORMATS[result])
    for factor in ("float16", "bfloat16")
    for result in (factor, "float32")
]


@pytest.mark.parametrize("name", NAMES)
def test_right_kernels_pass(name):
    checked = check(Kernel.from_file(KERNELS / f"{name}.cu"), on="gpu", seed=1, quick=True)
    assert checked.verdict.accepted, checked.verdict.reason
    assert checked.label.startswith("live")


def test_sums_in_16_bits_fail():
    source = (KERNELS / "half.cu").read_text(encoding="utf-8")
    source = source.replace("float sum = 0;", "half sum = 0;")
    source = source.replace(
        "sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);",
        "sum = __hfma(A[row * K + k], B[k * N + col], sum);",
    )
    source = source.replace("alpha * sum", "alpha * __half2float(sum)")
    failure = check(Kernel.from_source(source), on="gpu", seed=1, quick=True).verdict.failed
    assert failure is not None and "sums that are kept in 16 bits" in failure.detail


@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_emulators_bit_by_bit(name):
    from worklog.gpu.cuda import CudaDevice

    kernel = Kernel.from_file(KERNELS / f"{name}.cu")
    shape = kernel.domain.padded(Shape(130, 190, 70))
    inputs = random_inputs(shape, np.random.default_rng(0), types=kernel.types)
    results = []
    for device in (CudaDevice(), EmulatedDevice()):
        c = np.zeros((shape.m, shape.n), np.float32)
        buffers = [
            device.upload(host, format_)
            for host, format_ in zip((*inputs, c), kernel.types.formats, strict=True)
        ]
        kernel.load(device).enqueue(shape, 1.0, buffers[0], buffers[1], 0.0, buffers[2])
        results.append(device.download(buffers[2]))
    if "tanh" in name:  # tanhf takes ex2.approx, which the emulator rounds correctly
        assert np.allclose(results[0], results[1], rtol=2**-20, atol=2**-20)
    else:
        assert np.array_equal(results[0], results[1])


def test_cublas_passes_the_gate_on_int8(session):
    session.types = Types(INT8, INT8, INT32, by_columns="B")
    try:
        verdict = session.verdict(CUBLAS, Shape(256, 384, 512))
    finally:
        session.types = SINGLE
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("library", [CUBLAS, CUBLASLT])
def test_libraries_pass_the_gate(session, library, types):
    session.types = types
    try:
        verdict = session.verdict(library, Shape(256, 384, 512))
    finally:
        session.types = SINGLE
    assert verdict.accepted, verdict.reason


# Products without a call of cuBLAS are timed alone.
TIMED = [
    ("dp4a", "1024", [CUBLAS]),
    ("mma_s8", "1024", [CUBLAS]),
    ("ldmatrix", "1024", [CUBLAS, CUBLASLT]),
    ("e4m3", "512", []),
    ("int32", "512", []),
    ("batched", "256 batch 8", [CUBLAS]),
    ("biased", "256 batch 3", [CUBLAS]),
    ("bias_relu", "512", [CUBLAS]),
    ("gelu_residual", "512", [CUBLAS]),
    ("gelu_tanh", "512", [CUBLAS]),
    ("int8_scaled", "512", []),
]


@pytest.mark.parametrize(("name", "shape", "baselines"), TIMED, ids=[row[0] for row in TIMED])
def test_a_kernel_is_timed_beside_the_libraries(session, own, name, shape, baselines):
    kernel = Kernel.from_file(KERNELS / f"{name}.cu")
    own[kernel.name] = kernel
    [job], _ = jobs_of([kernel], shape, against=baselines[1:])
    try:
        m = measure_job(session, job, QUICK)
    finally:
        session.types = SINGLE
    print(m)
    assert m.status == "measured", m.reason
    assert [name for name, ratio in m.against.items() if ratio] == baselines, m.degradations
    assert ("product alone" in m.baseline_remark) == bool(m.beyond and baselines)
    if not baselines:
        assert any("cuBLAS isn't called for" in line for line in m.degradations), m.degradations


def test_only_the_last_launch_of_a_batch_and_of_an_activation_can_be_checked(session, own):
    for name, shape in (("batched", "256 batch 8"), ("bias_relu", "512")):
        kernel = Kernel.from_file(KERNELS / f"{name}.cu")
        own[kernel.name] = kernel
        [job], _ = jobs_of([kernel], shape)
        try:
            m = measure_job(session, job, QUICK.but(l2="warm"))
        finally:
            session.types = SINGLE
        assert m.status == "measured", m.reason


@pytest.mark.parametrize(
    "types",
    [SINGLE, *TYPES, Types(by_columns="AB"), Types(INT8, INT8, INT32, by_columns="B")],
    ids=str,
)
def test_cublas_computes_each_product_of_a_batch(session, types):
    session.types = types
    try:
        stage = session.checker(Shape(48, 80, 64, batch=5)).check_launch(session.baseline("fp32"))
    finally:
        session.types = SINGLE
    assert stage.passed, stage.detail


def test_cublas_computes_a_batch_in_tf32(session):
    checker = session.checker(Shape(48, 80, 64, batch=5))
    stage = checker.check_launch(session.baseline("tf32"))
    assert stage.passed, stage.detail
