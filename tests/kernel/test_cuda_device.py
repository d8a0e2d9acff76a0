"""What the live device passes to CuPy, as far as a stand-in for CuPy shows it. tests/gpu has the same on a GPU."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from worklog.errors import CompileFailed
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import compile_cuda

PLAIN = "__device__ __forceinline__ float twice(float x) { return 2 * x; }\n__global__ void k(float* out) {}\n"
VARIABLE = "__device__ alignas(8) unsigned times[2] = {1};\n__global__ void k(float* out) {}\n"
GRID = "#include <cooperative_groups.h>\n__global__ void k(float* out) { cooperative_groups::this_grid().sync(); }\n"


class StandIn:
    """CuPy's RawModule and RawKernel; it notes each module and each launch."""

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.launches: list[dict[str, Any]] = []
        self.driver = 13_000

    def module(self, **words: Any) -> Any:
        self.modules.append(words if "code" in words else {"image": Path(words["path"]).read_bytes()})
        return SimpleNamespace(get_function=lambda _: self)

    num_regs = local_size_bytes = shared_size_bytes = 0

    def __call__(self, grid: Any, block: Any, arguments: Any, **words: Any) -> None:
        self.launches.append({"grid": grid, "block": block, **words})

    kernel = __call__


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_in = StandIn()
    cupy: Any = ModuleType("cupy")
    cupy.RawModule = stand_in.module
    errors = SimpleNamespace(CUDARuntimeError=KeyError, CUDADriverError=KeyError)
    compiler = SimpleNamespace(CompileException=KeyError)
    memory = SimpleNamespace(OutOfMemoryError=MemoryError)
    runtime = SimpleNamespace(CUDARuntimeError=KeyError, driverGetVersion=lambda: stand_in.driver)
    cupy.cuda = SimpleNamespace(runtime=runtime, driver=errors, compiler=compiler, memory=memory)
    libs: Any = ModuleType("cupy_backends.cuda.libs")
    libs.cublas = SimpleNamespace(CUBLASError=KeyError)
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libs)
    monkeypatch.delitem(sys.modules, "worklog.gpu.cuda", raising=False)
    found = importlib.import_module("worklog.gpu.cuda")
    monkeypatch.delitem(sys.modules, "worklog.gpu.cuda")
    device = object.__new__(found.CudaDevice)
    device.stream, device.arch = nullcontext(), "sm_90"
    return SimpleNamespace(device=device, stand_in=stand_in)


def test_a_second_compilation_of_a_source_with_variables_is_a_module_of_its_own(cuda: Any) -> None:
    cuda.stand_in.driver = 12_090  # CuPy compiles
    for source in (PLAIN, VARIABLE):
        for _ in range(3):
            cuda.device.compile(Program("k.cu", source, "k"))
    texts = [module["code"] for module in cuda.stand_in.modules]
    assert len(set(texts[:3])) == 1, "without variables CuPy may give the module that it has"
    assert len(set(texts[3:])) == 3


def test_the_gpu_runs_the_code_that_the_emulator_runs_and_what_cupy_compiles_says_so(cuda: Any) -> None:
    program = Program("k.cu", PLAIN, "k")
    cuda.device.compile(program)
    assert cuda.stand_in.modules == [{"image": compile_cuda(program).cubin}] and cuda.device.remarks == ()
    cuda.stand_in.driver = 12_090
    assert "compiled by CuPy with -ftz=true" in str(cuda.device.remarks)


def test_what_needs_sm_90a_needs_a_driver_that_loads_it(cuda: Any) -> None:
    cuda.stand_in.driver = 12_090
    with pytest.raises(CompileFailed, match=r"k\.cu needs a driver for CUDA 13: update the driver"):
        cuda.device.compile(Program("k.cu", PLAIN + "// setmaxnreg\n", "k"))


def test_blocks_that_wait_for_the_grid_are_launched_cooperatively(cuda: Any) -> None:
    cuda.stand_in.driver = 12_090
    for source in (PLAIN, GRID):
        cuda.device.launch(cuda.device.compile(Program("k.cu", source, "k", shared=16)), (3, 1), 64, ())
    plain, grid = cuda.stand_in.launches
    assert plain == {"grid": (3, 1), "block": (64,), "shared_mem": 16}
    assert grid == {**plain, "enable_cooperative_groups": True}


@pytest.mark.parametrize(("pointer", "stream"), [(7, "external 7"), (0, "the default")])
def test_pytorch_gets_the_default_stream_and_not_a_new_one(
    cuda: Any, pointer: int, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
