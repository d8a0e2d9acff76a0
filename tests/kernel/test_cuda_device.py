"""What the live device passes to CuPy, as far as a stand-in for CuPy shows it.

tests/gpu has the same on a GPU.
"""

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from worklog.emulator.limits import Chip
from worklog.errors import LaunchFailed, NvrtcMissing
from worklog.kernel import nvrtc
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import compile_cuda

PLAIN = (
    "__device__ __forceinline__ float twice(float x) { return 2 * x; }\n__global__ void "
    "k(float* out) {}\n"
)
GRID = (
    "#include <cooperative_groups.h>\n__global__ void k(float* out) { "
    "cooperative_groups::this_grid().sync(); }\n"
)
ERRORS = ("runtime.CUDARuntimeError", "driver.CUDADriverError", "memory.OutOfMemoryError")


@pytest.fixture
def cuda(monkeypatch):
    """Return a device with a stand-in for CuPy.

    images: what it loads
    kernel: each launch
    """
    found: Any = SimpleNamespace(images=[], kernel=MagicMock())

    def module(path: str) -> Any:
        found.images.append(Path(path).read_bytes())
        return SimpleNamespace(get_function=lambda _: found.kernel)

    cupy = MagicMock(RawModule=module)
    libs = MagicMock(**{"cublas.CUBLASError": KeyError})
    cupy.cuda.configure_mock(**dict.fromkeys(ERRORS, KeyError))
    found.resident = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    for name, stand_in in (("cupy", cupy), ("cupy_backends.cuda.libs", libs)):
        monkeypatch.setitem(sys.modules, name, stand_in)
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.delitem(sys.modules, "worklog.gpu.cuda", raising=False)
    module_of_cuda = importlib.import_module("worklog.gpu.cuda")
    monkeypatch.setattr(module_of_cuda, "gpu", lambda: SimpleNamespace(multiprocessors=132))
    found.device = object.__new__(module_of_cuda.CudaDevice)
    monkeypatch.delitem(sys.modules, "worklog.gpu.cuda")
    found.device.stream = nullcontext()
    found.device.chip = Chip("sm_90")
    return found


def test_the_gpu_runs_the_code_that_the_emulator_runs_if_the_driver_can(cuda, monkeypatch):
    program = Program("k.cu", PLAIN, "k")
    cuda.device.compile(program)
    assert cuda.images == [compile_cuda(program).cubin]
    monkeypatch.setattr(nvrtc, "_driver_major", lambda: 12)
    with pytest.raises(NvrtcMissing, match="nvidia-cuda-nvrtc-cu12"):
        cuda.device.compile(program)


def test_blocks_that_wait_for_the_grid_are_launched_cooperatively(cuda):
    cuda.resident.return_value = 2
    for source in (PLAIN, GRID):
        cuda.device.launch(
            cuda.device.compile(Program("k.cu", source, "k", shared=16)), (3, 1), 64, ()
        )
    plain = call((3, 1), (64,), (), shared_mem=16)
    grid = {"shared_mem": 16, "enable_cooperative_groups": True}
    assert cuda.kernel.mock_calls == [plain, call.kernel((3, 1), (64,), (), **grid)]
    with pytest.raises(
        LaunchFailed, match="cooperative launch: 100,000, of which 264 run together"
    ):
        cuda.device.launch(cuda.device.compile(Program("k.cu", GRID, "k")), (50_000, 2), 64, ())


@pytest.mark.parametrize(("pointer", "stream"), [(7, "external 7"), (0, "the default")])
def test_pytorch_gets_the_default_stream_and_not_a_new_one(cuda, pointer, stream, monkeypatch):
    """torch.cuda.ExternalStream(0) is a new stream, which no event of another harness is on."""
    used: list[str] = []
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(
        is_available=lambda: True,
        ExternalStream=lambda pointer: f"external {pointer}" if pointer else "a new one",
        default_stream=lambda device=None: "the default",
        stream=lambda stream: nullcontext(used.append(stream)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    cuda.device.stream = type("Stream", (nullcontext,), {"ptr": pointer})()
    with cuda.device.loan("cupy").current():
        assert used == [stream]
