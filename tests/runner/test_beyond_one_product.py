"""Timed launches of a batch, and of kernels with operands and an activation, each checked.

The gate's kernels and the subjects run on the emulator, which has no clock: a loop's launches are
enqueued one by one, as the harness does.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyKernel
from tests.virtual.device import VirtualDevice
from tests.virtual.gpu import L2_BYTES, MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, VirtualSession, once
from worklog.errors import BadSetting
from worklog.gate import SgemmChecker, beyond_product
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.problem.formats import SINGLE
from worklog.runner.execute import order_of
from worklog.runner.job import jobs_of
from worklog.runner.launches import Loop
from worklog.runner.products import product_types, work_of
from worklog.runner.worker import measure_job
from worklog.runs import CUBLAS, Measurement

FORMATS = Path(__file__).parents[1] / "gate" / "formats"
SHAPE = Shape(21, 19, 17)
BATCH = Shape(21, 19, 17, batch=3)
PRODUCTS = """// grid: (N + 15) / 16, (M + 15) / 16, batch   block: 16, 16
__global__ void products(int M, int N, int K, float alpha, const float* A, const float* B, float* C,
                         int batch) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x, z = blockIdx.z;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[(z * M + row) * K + k] * B[(z * K + k) * N + col];
  C[(z * M + row) * N + col] = alpha * sum;
}
"""
LAYER = """// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16   epilogue: {epilogue}
__global__ void layer(const float* A, const float* B, float* C, int M, int N, int K,
                      const float* bias, const float* residual, float scale) {{
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  float x = scale * sum + bias[col] + residual[row * N + col];
  C[row * N + col] = {result};
}}
"""
RESULTS = {
    "relu": "fmaxf(x, 0.0f)",
    "gelu": "0.5f * x * (1.0f + erff(x * 0.70710678f))",
    "gelu tanh": "0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))",
}


def layer(epilogue: str) -> str:
    """Return a source with a bias, a residual, a scale and an activation."""
    stated = epilogue.replace(" ", "_")
    source = LAYER.format(epilogue=stated, result=RESULTS.get(epilogue, "x"))
    return source if epilogue else source.replace("   epilogue: ", "")


def loop_on(source: str, shape: Shape, **how: Any) -> Loop:
    """Return a loop of a kernel beside a library's product."""
    device = EmulatedDevice()
    kernel = Kernel.from_source(source)
    library = Kernel.from_source(PRODUCTS)
    checker = SgemmChecker(device, shape, seed=1, types=product_types(kernel.types))
    kernels = [kernel.load(device), library.load(device)]
    return Loop(checker, kernels, ("kernel", "library"), in_step=True, **how)


def stage_of(source: str, shape: Shape, *, probed: bool) -> Any:
    """Return the stage on two launches of each kernel."""
    loop = loop_on(source, shape, probed=probed)
    for _ in range(2):
        for launch in loop.launches:
            once(launch)
    stage = loop.stage()
    loop.close()
    return stage


@pytest.mark.parametrize("probed", [True, False])
def test_each_product_of_a_timed_batch_is_checked(probed):
    assert stage_of(PRODUCTS, BATCH, probed=probed).passed
    skips = PRODUCTS.replace("float sum = 0;", "float sum = 0; if (z == 1) K = K - 1;")
    assert not stage_of(skips, BATCH, probed=probed).passed


@pytest.mark.parametrize("probed", [True, False])
@pytest.mark.parametrize("epilogue", ["", *RESULTS])
def test_timed_launches_have_real_operands_and_are_checked(epilogue, probed):
    source = layer(epilogue)
    stage = stage_of(source, SHAPE, probed=probed)
    assert stage.passed, stage.detail
    for right, wrong in (
        ("+ bias[col]", ""),
        ("scale * sum", "sum"),
        ("residual[row * N + col]", "residual[col]"),
        ("k < K", "k < K - 1"),
    ):
        assert not stage_of(source.replace(right, wrong), SHAPE, probed=probed).passed, wrong


def test_an_activation_that_is_left_out_of_timed_launches_is_found():
    source = layer("relu").replace("fmaxf(x, 0.0f)", "x")
    assert not stage_of(source, SHAPE, probed=True).passed


def test_operands_are_neutral_again_behind_the_loop():
    loop = loop_on(layer("relu"), SHAPE, probed=True)
    kernel: Any = loop.bare[0].kernel
    assert {*kernel.operands_in_use} == {"bias", "residual", "scale"}
    assert beyond_product(kernel) == ("bias", "residual", "scale", "relu")
    loop.close()
    assert not kernel.operands_in_use


def test_the_work_of_a_batch_is_that_of_its_products():
    one, all_products = work_of(SHAPE), work_of(BATCH)
    for name in ("flops", "elements", "bytes_read", "bytes_written"):
        assert getattr(all_products, name) == 3 * getattr(one, name), name


def test_a_batch_is_for_kernels_that_take_one():
    jobs, kernels = jobs_of([Kernel.from_source(PRODUCTS)], "64 batch 3")
    assert jobs[0].shape == Shape(64, 64, 64, batch=3)
    order_of(jobs, Harness(), kernels)
    for names, against in ((["naive"], []), (["cuBLAS"], ["cuBLASLt"])):
        jobs, kernels = jobs_of(names, "64 batch 3", against=against)
        with pytest.raises(BadSetting, match="computes one product in a launch"):
            order_of(jobs, Harness(), kernels)


def test_a_host_function_gets_arrays_of_a_batch():
    pytest.importorskip("torch")
    device = VirtualDevice(Machine())
    kernel = Kernel.from_function("worklog.kernel.pytorch:torch")
    checker = SgemmChecker(device, BATCH, seed=1)
    assert checker.check_launch(kernel.load(device)).passed


def test_the_inputs_of_a_batch_differ_and_lie_as_stated():
    checker = SgemmChecker(EmulatedDevice(), BATCH, seed=1, types=SINGLE)
    assert checker.a.shape == (3, 21, 17) and checker.b.shape == (3, 17, 19)
    a = checker.device.download(checker.buffers.abc[0])
    assert np.array_equal(a, checker.a.ravel())
    assert not np.array_equal(checker.a[0], checker.a[1])
    with pytest.raises(BadSetting, match="check one product"):
        checker.check(Kernel.from_source(PRODUCTS).load(checker.device))


# ------------------------------------------------------------------- timed, on a virtual machine


def products(m, n, k, alpha, a, b, c, count):
    """Compute what PRODUCTS does."""
    left = a.data[: count * m * k].reshape(count, m, k)
    right = b.data[: count * k * n].reshape(count, k, n)
    c.data[: count * m * n] = (alpha * (left @ right)).ravel()


def layer_of_relu(a, b, c, m, n, k, bias, residual, scale):
    """Compute what the layer of relu does."""
    product = a.data[: m * k].reshape(m, k) @ b.data[: k * n].reshape(k, n)
    added = bias.data[:n] + residual.data[: m * n].reshape(m, n)
    c.data[: m * n] = np.fmax(scale * product + added, 0).ravel()


class FunctionDevice(VirtualDevice):
    """A virtual device with a function in place of a user kernel's code.

    us: of a launch
    """

    function: Callable[..., None]
    us: float

    def compile(self, program):
        if program.entry not in ("products", "layer"):
            return super().compile(program)
        kernel = NumpyKernel(self.function, gemm=False)
        compiled = SimpleNamespace(variables=(), mix=SimpleNamespace(operands=()), resources={})
        object.__setattr__(kernel, "compiled", compiled)
        return kernel

    def launch(self, kernel, grid, block, arguments):
        if kernel.function is self.function:
            self.enqueue(lambda: self.function(*arguments), self.us)
        else:
            super().launch(kernel, grid, block, arguments)


def measured(
    source: str, function: Callable[..., None], shape: Shape, harness: Harness = QUICK
) -> Measurement:
    """Return the measurement of a kernel that takes twice as long as the library."""
    machine = Machine()
    machine.l2_bytes = L2_BYTES
    gpu = VirtualGpu(machine, clock=lambda now: MHZ)
    device = FunctionDevice(machine, gpu.device.chip)
    device.source = "live"
    device.function = function
    device.us = 2 * shape.flops / machine.flops_per_us
    gpu.device = device
    gpu.stream = device.stream
    kernel = Kernel.from_source(source)
    session = VirtualSession(machine, kernel, timeline=gpu)
    session.load_cublas = lambda: session.baselines["fp32"]  # type: ignore[method-assign]
    [job], _ = jobs_of([kernel], shape)
    return measure_job(session, job, harness)


def test_a_batch_is_timed_beside_the_librarys():
    shape = Shape(64, 64, 64, batch=3)
    m = measured(PRODUCTS, products, shape)
    assert m.status == "measured", m.reason
    assert m.problem == shape and m.work == work_of(shape)
    assert m.us == pytest.approx(2 * shape.flops / Machine().flops_per_us, rel=0.05)
    assert m.ratio is not None and m.ratio < 0.6
    assert not m.beyond and "alone" not in m.label


def test_a_kernel_with_an_activation_is_timed_and_labelled():
    m = measured(layer("relu"), layer_of_relu, Shape(64, 64, 64))
    assert m.status == "measured", m.reason
    assert m.against[CUBLAS] is not None, m.degradations
    assert m.beyond == ("bias", "residual", "scale", "relu")
    assert m.baseline_remark.endswith("without bias, residual, scale, relu")
    extra_bytes = m.work.bytes_read - work_of(Shape(64, 64, 64)).bytes_read
    assert extra_bytes == 4 * (64 + 64 * 64)


def test_a_residual_is_not_timed_where_matrices_take_turns():
    m = measured(layer("relu"), layer_of_relu, Shape(64, 64, 64), QUICK.but(l2="rotate"))
    assert m.status == "skipped" and "residual isn't copied" in m.reason


def test_a_kernel_that_is_wrong_in_one_product_of_its_timed_launches_has_no_time():
    def wrong_in_the_last(m, n, k, alpha, a, b, c, count):
        products(m, n, k, alpha, a, b, c, count)
        if count == 3:
            c.data[-1] += 1

    m = measured(PRODUCTS, wrong_in_the_last, Shape(64, 64, 64, batch=3))
    assert m.status == "failed" and "every timed launch" in m.reason


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gelu_residual", SHAPE),
        ("residual", SHAPE),
        ("int8_scaled", Shape(21, 20, 17)),
        ("int8_relu", SHAPE),
        ("gelu_tanh", SHAPE),
        ("biased", BATCH),
        ("batched", BATCH),
    ],
)
def test_right_kernels_of_each_format_pass_in_timed_launches(name, shape):
    kernel = Kernel.from_file(FORMATS / f"{name}.cu")
    device = EmulatedDevice()
    checker = SgemmChecker(device, shape, seed=1, types=product_types(kernel.types))
    for probed in (True, False):
        loop = Loop(checker, [kernel.load(device)], (name,), in_step=True, probed=probed)
        for _ in range(2):
            once(loop.launches[0])
        stage = loop.stage()
        loop.close()
        assert stage.passed, stage.detail
