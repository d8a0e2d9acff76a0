"""The live device: CUDA through CuPy. One non-blocking stream carries everything that the gate and the harness enqueue.

Nothing here is imported until a GPU is asked for.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.libs import cublas
from numpy.typing import NDArray

from worklog.errors import LaunchFailed, NvrtcMissing, OutOfMemory
from worklog.gpu.device import gpu, require_gpu
from worklog.kernel import (
    UNKNOWN_KERNELS,
    Block,
    Program,
    Runnable,
    compile_cuda,
    newer_than_the_driver,
    nvidia_library,
)
from worklog.problem import Shape
from worklog.runs.limits import TOO_MANY_BLOCKS

# cublas_api.h, cublasMath_t: CUBLAS_DEFAULT_MATH and CUBLAS_TF32_TENSOR_OP_MATH; CuPy names only the first.
MATH_MODES = {"fp32": 0, "tf32": 3}

CUDA_ERRORS = (
    cupy.cuda.runtime.CUDARuntimeError,
    cupy.cuda.driver.CUDADriverError,
    cublas.CUBLASError,
)


class CudaKernel:
    """An entry, loaded on the current GPU: the code that the emulator runs and `worklog inspect` shows. As cuModuleLoad
    does, each sets its `__device__` variables to their initial values. Raises as compile_cuda(), and NvrtcMissing where
    the driver can't load the code.
    """

    def __init__(self, program: Program, arch: str) -> None:
        if why := newer_than_the_driver():
            raise NvrtcMissing(why)
        self.compiled = out = compile_cuda(program, arch)
        with TemporaryDirectory() as folder:
            path = Path(folder, "image")
            path.write_bytes(out.cubin)
            self.function = function = cupy.RawModule(path=str(path)).get_function(out.symbol)
        # Not by the module's own option, which asks for relocatable code and so for the toolkit's cudadevrt.
        self.cooperative = program.cooperative
        self.shared = program.shared
        self.launch = (
            partial(function.kernel, enable_cooperative_groups=True)
            if program.cooperative
            else function
        )
        if self.shared:
            function.max_dynamic_shared_size_bytes = self.shared


def stream_of(handle: int) -> Any:
    """The CUDA stream of this handle as CuPy's; 0 is the legacy default stream."""
    external = type("External", (), {"__cuda_stream__": lambda _: (0, handle)})()
    return cupy.cuda.Stream.from_external(external) if handle else cupy.cuda.Stream.null


class CudaDevice:
    """The current CUDA GPU, as worklog.kernel.device.Device. arch: as "sm_90". Raises NoGpu where there is none."""

    source = "live"

    def __init__(self) -> None:
        require_gpu()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.arch = f"sm_{cupy.cuda.Device().compute_capability}"

    def compile(self, program: Program) -> CudaKernel:
        """Compile for this GPU. Raises CompileFailed with the source line, and NvrtcMissing."""
        with self.errors(f"loading {program.entry}"):
            return CudaKernel(program, self.arch)

    def upload(self, host: NDArray[np.float32]) -> Any:
        """A flat device array with the elements of `host`. Raises OutOfMemory."""
        with self.errors(f"allocating {host.nbytes / 2**20:.0f} MiB"), self.stream:
            return cupy.asarray(np.ascontiguousarray(host, dtype=np.float32)).ravel()

    def allocate(self, elements: int) -> Any:
        """A flat float32 device array that isn't initialised. Raises OutOfMemory."""
        with self.errors(f"allocating {4 * elements / 2**20:.0f} MiB"), self.stream:
            return cupy.empty(elements, cupy.float32)

    def copy(self, to: Any, source: Any) -> None:
        """Enqueue a copy of the elements of `source`, of the same size, on the device."""
        with self.errors("copying on the GPU"):
            to.data.copy_from_device_async(source.data, source.nbytes, self.stream)

    def overwrite(self, buffer: Any, host: NDArray[np.float32]) -> None:  # noqa: D102
        with self.errors("copying to the GPU"), self.stream:
            buffer.set(np.ascontiguousarray(host, dtype=np.float32).ravel(), stream=self.stream)

    def fill(self, buffer: Any, value: float) -> None:  # noqa: D102
        with self.errors("filling a buffer"), self.stream:
            buffer.fill(value)

    def download(self, buffer: Any) -> NDArray[np.float32]:  # noqa: D102
        with self.errors("copying from the GPU"):
            host: NDArray[np.float32] = buffer.get(stream=self.stream)
            self.stream.synchronize()
        return host

    def view(self, buffer: Any, start: int, size: int) -> Any:
        """Part of a buffer, without a copy."""
        return buffer[start : start + size]

    def launch(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> None:
        """Enqueue a launch. Raises LaunchFailed for a cooperative one of more blocks than run together."""
        with self.errors("launching a kernel"), self.stream:
            threads = (block,) if isinstance(block, int) else block
            if kernel.cooperative:
                in_each = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
                most = (
                    in_each(kernel.function.kernel.ptr, math.prod(threads), kernel.shared)
                    * gpu().multiprocessors
                )
                if math.prod(grid) > most:
                    raise LaunchFailed(TOO_MANY_BLOCKS.format(math.prod(grid), most))
            kernel.launch(grid, threads, tuple(arguments), shared_mem=kernel.shared)

    def synchronize(self) -> None:
        """Wait for the stream; an asynchronous fault surfaces here."""
        with self.errors("running a kernel"):
            self.stream.synchronize()

    def loan(self, arrays: str) -> CudaLoan:
        """Its memory and stream for host functions. arrays: one of worklog.kernel.host_function.ARRAYS."""
        return CudaLoan(self, arrays)

    def synchronize_all(self) -> None:
        """Wait for all streams of this process on the GPU."""
        with self.errors("waiting for the GPU"):
            cupy.cuda.runtime.deviceSynchronize()

    def idle(self, within_s: float) -> bool:
        """Whether all work of this process ends within some seconds. CUDA knows no time-out, so a thread waits, and
        stays behind if the work never ends. Raises LaunchFailed.
        """
        number = cupy.cuda.runtime.getDevice()
        failed = list[LaunchFailed]()

        def wait() -> None:
            try:
                cupy.cuda.runtime.setDevice(number)
                self.synchronize_all()
            except LaunchFailed as error:
                failed.append(error)

        waiting = threading.Thread(target=wait, name="worklog waits for the GPU", daemon=True)
        waiting.start()
        waiting.join(within_s)
        for error in failed:
            raise error
        return not waiting.is_alive()

    def empty_cache(self) -> None:
        """Give back the memory that CuPy and PyTorch hold for later."""
        cupy.get_default_memory_pool().free_all_blocks()
        if (torch := sys.modules.get("torch")) is not None:
            torch.cuda.empty_cache()

    def free_bytes(self) -> int:
        """Free memory of the GPU."""
        cupy.get_default_memory_pool().free_all_blocks()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn CUDA's exceptions into this package's, with what was being done."""
        try:
            yield
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(
                f"{doing}: {error}; take a smaller size, or free the GPU's memory"
            ) from error
        except CUDA_ERRORS as error:
            raise LaunchFailed(f"{doing}: {error}") from error


class CudaLoan:
    """A CudaDevice's memory and stream for host functions. arrays: "cupy", "torch" or "pointers"."""

    def __init__(self, device: CudaDevice, arrays: str) -> None:
        self.device = device
        self.arrays = arrays
        self.handle = int(device.stream.ptr)
        self._external: Any = None
        if arrays == "torch":
            import_module("torch")

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """The first elements of the buffer's memory as a CuPy array or a PyTorch tensor of this shape and type, or its
        address. CuPy has no bfloat16, and gets uint16.
        """
        if self.arrays == "pointers":
            return int(buffer.data.ptr)
        torch = sys.modules["torch"] if self.arrays == "torch" else None
        kind = (
            getattr(torch, dtype)
            if torch
            else cupy.dtype("uint16" if dtype == "bfloat16" else dtype)
        )
        words = torch.as_tensor(buffer, device="cuda") if torch else buffer
        if words.dtype != kind:
            words = words.view((torch or cupy).uint8)[: math.prod(shape) * kind.itemsize].view(kind)
        return words[: math.prod(shape)].reshape(shape)

    @contextmanager
    def current(self) -> Iterator[None]:
        """The stream as CuPy's current one, and as PyTorch's where that is loaded."""
        torch = sys.modules.get("torch")
        if torch is not None and self._external is None and torch.cuda.is_available():
            # ExternalStream(0) would be a new stream of PyTorch's.
            of_handle = torch.cuda.ExternalStream if self.handle else torch.cuda.default_stream
            self._external = of_handle(self.handle or None)
        with (
            self.device.stream,
            nullcontext() if self._external is None else torch.cuda.stream(self._external),  # type: ignore[union-attr]
        ):
            yield


def captured(stream: Any, launches: Sequence[Callable[[], None]]) -> Any:
    """A CUDA graph of these launches, in this order; none of them runs. Raises CUDA_ERRORS, what a launch raises, and
    NotImplementedError for a library that CuPy doesn't call while recording.
    """
    with stream:
        stream.begin_capture()
        try:
            for launch in launches:
                launch()
        finally:  # a capture that stays open would swallow everything that follows
            graph = stream.end_capture()
    return graph


class Cublas(Runnable):
    """cuBLAS SGEMM on a device's stream.

    math: "fp32" (the default math on FP32 data; the gate proves it by the error level, so CUBLAS_PEDANTIC_MATH isn't
    needed) or "tf32" (tensor cores with 10-bit mantissas).
    """

    program: Program | None = None
    workspace: Any

    def __init__(self, device: CudaDevice, math: str = "fp32") -> None:
        self.name = "cuBLAS" if math == "fp32" else "cuBLAS TF32"
        self.claimed = math
        with device.errors("creating a cuBLAS handle, which needs free GPU memory"):
            self.handle = cublas.create()
        cublas.setMathMode(self.handle, MATH_MODES[math])
        # As large as its own (cuBLAS documentation, cublasSetWorkspace). Ours can move: split-K products write to it.
        self.workspace = self._own = device.allocate(
            2**23 if gpu().compute_capability >= (9, 0) else 2**20
        )
        self._kernels: dict[Shape, int] = {}
        self.device = device
        self._follow()

    @property
    def version(self) -> str:
        """Version of the library that is loaded."""
        number = cublas.getVersion(self.handle)
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def _follow(self) -> None:
        """Enqueue on the device's present stream from now on."""
        self.stream = self.device.stream
        self._call("SetStream_v2", ctypes.c_void_p(self.stream.ptr))
        self.use_workspace(self.workspace)  # which cuBLAS forgets when the stream changes

    def kernels(self, shape: Shape) -> int:
        """How many kernels a launch at this shape enqueues: the nodes of a CUDA graph that is never launched, whose
        operands have no memory of their own; UNKNOWN_KERNELS if the launch can't be captured.
        """
        if shape not in self._kernels:
            own = self.workspace
            count = ctypes.c_size_t()
            try:
                graph = captured(
                    self.stream, [partial(self.enqueue, shape, 1.0, own, own, 0.0, own)]
                )
                nvidia_library("cuda").cuGraphGetNodes(
                    ctypes.c_void_p(graph.graph), None, ctypes.byref(count)
                )
            except (*CUDA_ERRORS, LaunchFailed):
                count.value = 0
            self._kernels[shape] = count.value or UNKNOWN_KERNELS
        return self._kernels[shape]

    def operands(self, shape: Shape) -> tuple[str, ...]:
        """In FP32, it doesn't use tensor cores."""
        return ("tf32",) if self.claimed == "tf32" else ()

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return {"library": "cuBLAS", "domain": str(self.domain)}

    def workspace_elements(self, shape: Shape) -> int:  # noqa: D102
        return int(self.workspace.size)

    def use_workspace(self, buffer: Any) -> None:
        """Take this memory for intermediate results from now on; None: memory of its own."""
        self.workspace = used = self._own if buffer is None else buffer
        self._call("SetWorkspace_v2", ctypes.c_void_p(used.data.ptr), ctypes.c_size_t(used.nbytes))

    def enqueue(self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        """Row-major C = A B is column-major C^T = B^T A^T, so B comes first and no operand is transposed."""
        if self.device.stream is not self.stream:
            self._follow()
        m = shape.m
        n = shape.n
        k = shape.k
        dense = cublas.CUBLAS_OP_N
        a_at, b_at, c_at = (ctypes.c_void_p(matrix.data.ptr) for matrix in (a, b, c))
        alpha_at, beta_at = (ctypes.byref(ctypes.c_float(scalar)) for scalar in (alpha, beta))
        self._call("Sgemm_v2", dense, dense, n, m, k, alpha_at, b_at, n, a_at, k, beta_at, c_at, n)

    def _call(self, function: str, *arguments: Any) -> None:
        """Past CuPy, which changes the handle's stream, and refuses calls while recording (cupy/cupy#6290)."""
        status = getattr(nvidia_library("cublas"), f"cublas{function}")(
            ctypes.c_void_p(self.handle), *arguments
        )
        if status:
            raise LaunchFailed(f"cublas{function}: cublasStatus_t {status}")
