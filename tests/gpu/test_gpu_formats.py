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


@pytest.mark.parametrize("name", ["dp4a", "mma_s8"])
def test_int8_is_timed_beside_cublas(session, own, name):
    kernel = Kernel.from_file(KERNELS / f"{name}.cu")
    own[kernel.name] = kernel
    [job], _ = jobs_of([kernel], 1024)
    try:
        m = measure_job(session, job, QUICK)
    finally:
        session.types = SINGLE
    assert m.status == "measured", m.reason
    assert m.against[CUBLAS] is not None, m.degradations
    print(m)


@pytest.mark.parametrize("name", ["e4m3", "int32"])
def test_without_a_product_of_cublas_the_kernel_is_timed_alone(session, own, name):
    kernel = Kernel.from_file(KERNELS / f"{name}.cu")
    own[kernel.name] = kernel
    [job], _ = jobs_of([kernel], 512)
    try:
        m = measure_job(session, job, QUICK)
    finally:
        session.types = SINGLE
    assert m.status == "measured", m.reason
    assert any("cuBLAS isn't called for" in line for line in m.degradations), m.degradations


def test_a_kernel_with_an_activation_is_not_timed(session, own):
    kernel = Kernel.from_file(KERNELS / "bias_relu.cu")
    own[kernel.name] = kernel
    [job], _ = jobs_of([kernel], 512)
    try:
        m = measure_job(session, job, QUICK)
    finally:
        session.types = SINGLE
    assert m.status == "skipped" and "relu hides a part" in m.reason, m


def test_a_kernel_is_timed_beside_both_libraries(session, own):
    kernel = Kernel.from_file(KERNELS / "ldmatrix.cu")
    own[kernel.name] = kernel
    [job], _ = jobs_of([kernel], 1024, against=[CUBLASLT])
    try:
        m = measure_job(session, job, QUICK)
    finally:
        session.types = SINGLE
    assert m.status == "measured", m.reason
    assert [*m.against] == [CUBLAS, CUBLASLT]
    assert None not in m.against.values(), m.degradations
    print(m)
