"""The live device: CUDA through CuPy.

One non-blocking stream carries everything that the gate and the harness enqueue. Nothing here is
imported until a GPU is asked for.
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

from worklog.emulator.limits import TOO_MANY_BLOCKS, Chip
from worklog.errors import LaunchFailed, NvrtcMissing, OutOfMemory
from worklog.gpu.cublaslt import (
    COMPUTE_32F_FAST_TF32,
    DATA_TYPES,
    compute_type,
    domain,
    tensor_operands,
)
from worklog.gpu.device import gpu, require_gpu
from worklog.gpu.tensor_maps import DriverMaps
from worklog.kernel import UNKNOWN_KERNELS, Block, Program, Runnable
from worklog.kernel.nvrtc import compile_cuda, newer_than_the_driver, nvidia_library
from worklog.kernel.tensor_map import BoundMap
from worklog.problem import Shape
from worklog.problem.formats import FLOAT32, SINGLE, WORD_BYTES, Format, Types

# cublas_api.h, cublasMath_t: CUBLAS_DEFAULT_MATH and CUBLAS_TF32_TENSOR_OP_MATH.
# CuPy names only the first.
MATH_MODES = {"fp32": 0, "tf32": 3}
DEFAULT_ALGORITHM = -1  # cublas_api.h, cublasGemmAlgo_t: CUBLAS_GEMM_DEFAULT

CUDA_ERRORS = (
    cupy.cuda.runtime.CUDARuntimeError,
    cupy.cuda.driver.CUDADriverError,
    cublas.CUBLASError,
)


class CudaKernel:
    """An entry, loaded on the current GPU.

    It is the code that the emulator runs and `worklog inspect` shows. Loading sets its `__device__`
    variables to their initial values, as cuModuleLoad does. Raises as compile_cuda(), and
    NvrtcMissing if the driver can't load the code.
    """

    def __init__(self, program: Program, arch: str) -> None:
        reason = newer_than_the_driver()
        if reason:
            raise NvrtcMissing(reason)
        self.compiled = compile_cuda(program, arch)
        with TemporaryDirectory() as folder:
            path = Path(folder, "image")
            path.write_bytes(self.compiled.cubin)
            module = cupy.RawModule(path=str(path))
            self.function = module.get_function(self.compiled.symbol)
        # Not by the module's own option, which asks for relocatable code and so for the toolkit's
        # cudadevrt.
        self.cooperative = program.cooperative
        self.shared = program.shared
        self.launch = self.function
        if program.cooperative:
            self.launch = partial(self.function.kernel, enable_cooperative_groups=True)
        if self.shared:
            self.function.max_dynamic_shared_size_bytes = self.shared


def stream_of(handle: int) -> Any:
    """Return the CUDA stream of this handle as CuPy's; 0 is the legacy default stream."""
    external = type("External", (), {"__cuda_stream__": lambda _: (0, handle)})()
    return cupy.cuda.Stream.from_external(external) if handle else cupy.cuda.Stream.null


def uploaded_at_once(host: NDArray[np.uint8]) -> Any:
    """Return a device array with these bytes.

    They are copied on a stream of their own: another stream may be recording a graph.
    """
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = cupy.empty(host.size, host.dtype)
        array.set(host, stream=stream)
    stream.synchronize()
    return array


class CudaDevice:
    """The current CUDA GPU, as worklog.kernel.device.Device. Raises NoGpu without a GPU."""

    source = "live"

    def __init__(self) -> None:
        require_gpu()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.chip = Chip.of_gpu(gpu())
        self._maps = DriverMaps(uploaded_at_once)

    def compile(self, program: Program) -> CudaKernel:
        """Compile for this GPU.

        Raises CompileFailed with the source line, and NvrtcMissing.
        """
        with self.errors(f"loading {program.entry}"):
            return CudaKernel(program, self.chip.arch)

    def upload(self, host: NDArray[np.float32], format_: Format = FLOAT32) -> Any:
        """Return a flat device array with the elements of `host`. Raises OutOfMemory."""
        with self.errors(f"allocating {host.nbytes / 2**20:.0f} MiB"), self.stream:
            if format_ == FLOAT32:
                return cupy.asarray(np.ascontiguousarray(host, dtype=np.float32)).ravel()
            memory = cupy.empty(-(-format_.nbytes(host.size) // WORD_BYTES), cupy.float32)
        buffer = self.as_format(memory, format_, host.size)
        self.overwrite(buffer, host)
        return buffer

    def allocate(self, elements: int) -> Any:
        """Return an uninitialised flat float32 device array. Raises OutOfMemory."""
        with self.errors(f"allocating {4 * elements / 2**20:.0f} MiB"), self.stream:
            return cupy.empty(elements, cupy.float32)

    def copy(self, to: Any, source: Any) -> None:
        """Enqueue a copy of the elements of `source`, of the same size, on the device."""
        with self.errors("copying on the GPU"):
            to.data.copy_from_device_async(source.data, source.nbytes, self.stream)

    def overwrite(self, buffer: Any, host: NDArray[np.float32]) -> None:  # noqa: D102
        with self.errors("copying to the GPU"), self.stream:
            buffer.set(np.ascontiguousarray(host, dtype=buffer.dtype).ravel(), stream=self.stream)

    def fill(self, buffer: Any, value: float) -> None:  # noqa: D102
        with self.errors("filling a buffer"), self.stream:
            if buffer.dtype == np.float32:
                buffer.fill(value)
            else:  # by its bits: CuPy doesn't compute with all formats
                bits = np.array(value, buffer.dtype).view(f"u{buffer.itemsize}")
                buffer.view(bits.dtype).fill(int(bits))

    def download(self, buffer: Any) -> NDArray[np.float32]:  # noqa: D102
        with self.errors("copying from the GPU"):
            host = buffer.get(stream=self.stream)
            self.stream.synchronize()
        values: NDArray[np.float32] = host.astype(np.float32, copy=False)
        return values

    def view(self, buffer: Any, start: int, size: int) -> Any:
        """Return a part of a buffer, without a copy."""
        return buffer[start : start + size]

    def as_format(self, buffer: Any, format_: Format, size: int) -> Any:
        """Return a buffer's first bytes as elements of another format, without a copy."""
        return buffer.view(cupy.uint8)[: format_.nbytes(size)].view(format_.dtype)

    def launch(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> None:
        """Enqueue a launch.

        Raises LaunchFailed for a cooperative launch of more blocks than run together.
        """
        with self.errors("launching a kernel"), self.stream:
            threads = (block,) if isinstance(block, int) else block
            if kernel.cooperative:
                blocks_per_sm = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    kernel.function.kernel.ptr, math.prod(threads), kernel.shared
                )
                limit = blocks_per_sm * gpu().multiprocessors
                if math.prod(grid) > limit:
                    raise LaunchFailed(TOO_MANY_BLOCKS.format(math.prod(grid), limit))
            passed = tuple(map(self._passed, arguments))
            kernel.launch(grid, threads, passed, shared_mem=kernel.shared)

    def _passed(self, argument: Any) -> Any:
        """Return an argument for CuPy: the driver's encoding of a tensor map, else itself."""
        return self._maps.argument(argument) if isinstance(argument, BoundMap) else argument

    def count_kernels(self, launch: Callable[[], None]) -> int:
        """Return how many kernels a launch enqueues on the stream.

        They are the nodes of a CUDA graph that is never launched. Returns UNKNOWN_KERNELS if the
        launch can't be captured.
        """
        count = ctypes.c_size_t()
        try:
            graph = captured(self.stream, [launch])
            nvidia_library("cuda").cuGraphGetNodes(
                ctypes.c_void_p(graph.graph), None, ctypes.byref(count)
            )
        except (*CUDA_ERRORS, LaunchFailed):
            return UNKNOWN_KERNELS
        return count.value or UNKNOWN_KERNELS

    def synchronize(self) -> None:
        """Wait for the stream; an asynchronous fault surfaces here."""
        with self.errors("running a kernel"):
            self.stream.synchronize()

    def loan(self, arrays: str) -> CudaLoan:
        """Return the device's memory and stream for host functions.

        arrays: one of worklog.kernel.host_function.ARRAYS
        """
        return CudaLoan(self, arrays)

    def synchronize_all(self) -> None:
        """Wait for all streams of this process on the GPU."""
        with self.errors("waiting for the GPU"):
            cupy.cuda.runtime.deviceSynchronize()

    def idle(self, within_s: float) -> bool:
        """Return whether all work of this process ends within some seconds.

        CUDA can't time out, so a thread waits; it leaks if the work never ends.

        Raises LaunchFailed.
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
        """Free the memory that CuPy and PyTorch keep for later."""
        cupy.get_default_memory_pool().free_all_blocks()
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.cuda.empty_cache()

    def free_bytes(self) -> int:
        """Return the free memory of the GPU."""
        cupy.get_default_memory_pool().free_all_blocks()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    @contextmanager
    def errors(self, activity: str) -> Iterator[None]:
        """Turn CUDA's exceptions into this package's, with what was being done."""
        try:
            yield
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(
                f"{activity}: {error}; take a smaller size, or free the GPU's memory"
            ) from error
        except CUDA_ERRORS as error:
            raise LaunchFailed(f"{activity}: {error}") from error


class CudaLoan:
    """A CudaDevice's memory and stream for host functions.

    arrays: "cupy", "torch" or "pointers"
    """

    def __init__(self, device: CudaDevice, arrays: str) -> None:
        self.device = device
        self.arrays = arrays
        self.handle = int(device.stream.ptr)
        self._external: Any = None
        if arrays == "torch":
            import_module("torch")

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return the buffer's first elements in this shape and type, or its address.

        They are a CuPy array or a PyTorch tensor. CuPy has no bfloat16, and gets uint16.
        """
        if self.arrays == "pointers":
            return int(buffer.data.ptr)
        library: Any
        if self.arrays == "torch":
            library = sys.modules["torch"]
            elements = library.as_tensor(buffer, device="cuda")
            element_type = getattr(library, dtype)
        else:
            library = cupy
            elements = buffer
            element_type = cupy.dtype("uint16" if dtype == "bfloat16" else dtype)
        count = math.prod(shape)
        if elements.dtype != element_type:
            raw = elements.view(library.uint8)[: count * element_type.itemsize]
            elements = raw.view(element_type)
        return elements[:count].reshape(shape)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream CuPy's current stream, and PyTorch's if that is loaded."""
        torch = sys.modules.get("torch")
        if torch is not None and self._external is None and torch.cuda.is_available():
            # ExternalStream(0) would be a new stream of PyTorch's.
            if self.handle:
                self._external = torch.cuda.ExternalStream(self.handle)
            else:
                self._external = torch.cuda.default_stream(None)
        with (
            self.device.stream,
            nullcontext() if self._external is None else torch.cuda.stream(self._external),  # type: ignore[union-attr]
        ):
            yield


def captured(stream: Any, launches: Sequence[Callable[[], None]]) -> Any:
    """Return a CUDA graph of these launches, in this order. None of them runs.

    Raises CUDA_ERRORS, what a launch raises, and NotImplementedError for a library that CuPy
    doesn't call while recording.
    """
    with stream:
        stream.begin_capture()
        try:
            for launch in launches:
                launch()
        finally:  # a capture that stays open would swallow everything that follows
            graph = stream.end_capture()
    return graph


def _layout(rows: int, columns: int, is_by_columns: bool) -> tuple[int, int]:
    """Return cuBLAS's operation and leading dimension for a factor of the transposed product."""
    if is_by_columns:
        return cublas.CUBLAS_OP_T, rows
    return cublas.CUBLAS_OP_N, columns


class Cublas(Runnable):
    """cuBLAS's product on a device's stream: SGEMM, or GemmEx with sums in FP32 or int32.

    A batch is one call of GemmStridedBatchedEx.

    math: "fp32" (the default math on FP32 data) or "tf32" (tensor cores with 10-bit mantissas).
        The gate proves "fp32" by the error level, so CUBLAS_PEDANTIC_MATH isn't needed.
    types: the formats of A, B and C
    """

    program: Program | None = None
    workspace: Any

    def __init__(self, device: CudaDevice, math: str = "fp32", *, types: Types = SINGLE) -> None:
        self.name = "cuBLAS" if math == "fp32" else "cuBLAS TF32"
        self.claimed = math if types == SINGLE else types.default_precision
        self.types = types
        self.domain = domain(types)
        with device.errors("creating a cuBLAS handle, which needs free GPU memory"):
            self.handle = cublas.create()
        cublas.setMathMode(self.handle, MATH_MODES[math])
        # As large as cuBLAS's own (cuBLAS documentation, cublasSetWorkspace). This one can move:
        # split-K products write to it.
        elements = 2**23 if gpu().compute_capability >= (9, 0) else 2**20
        self._default_workspace = device.allocate(elements)
        self.workspace = self._default_workspace
        self._kernels: dict[Shape, int] = {}
        self.device = device
        self._follow()

    @property
    def version(self) -> str:
        """The version of the library that is loaded."""
        number = cublas.getVersion(self.handle)
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def _follow(self) -> None:
        """Enqueue on the device's current stream from now on."""
        self.stream = self.device.stream
        self._call("SetStream_v2", ctypes.c_void_p(self.stream.ptr))
        self.use_workspace(self.workspace)  # cuBLAS forgets it when the stream changes

    def kernels(self, shape: Shape) -> int:
        """Return how many kernels a launch at this shape enqueues.

        The launch is only counted, so its operands have no memory of their own.
        """
        if shape not in self._kernels:
            matrix = self.workspace
            launch = partial(self.enqueue, shape, 1.0, matrix, matrix, 0.0, matrix)
            self._kernels[shape] = self.device.count_kernels(launch)
        return self._kernels[shape]

    def operands(self, shape: Shape) -> tuple[str, ...]:
        """Return the types that tensor cores get: none in FP32."""
        if self.types != SINGLE:
            return tensor_operands(self.types)
        return ("tf32",) if self.claimed == "tf32" else ()

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return {"library": "cuBLAS", "domain": str(self.domain)}

    def workspace_elements(self, shape: Shape) -> int:  # noqa: D102
        return int(self.workspace.size)

    def use_workspace(self, buffer: Any) -> None:
        """Set the workspace; None sets the default workspace."""
        self.workspace = self._default_workspace if buffer is None else buffer
        address = ctypes.c_void_p(self.workspace.data.ptr)
        self._call("SetWorkspace_v2", address, ctypes.c_size_t(self.workspace.nbytes))

    def enqueue(self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        """Enqueue C = alpha A B + beta C; of a batch, all products in one call.

        Row-major C = A B is column-major C^T = B^T A^T, so B comes first, and only a factor that
        lies by columns is transposed.
        """
        if self.device.stream is not self.stream:
            self._follow()
        m, n, k = shape.sizes
        operation_b, leading_b = _layout(k, n, "B" in self.types.by_columns)
        operation_a, leading_a = _layout(m, k, "A" in self.types.by_columns)
        computed_in = compute_type(self.types)
        alpha_at, beta_at = (ctypes.byref(computed_in.number(scalar)) for scalar in (alpha, beta))
        arguments: list[Any] = [operation_b, operation_a, n, m, k, alpha_at]
        arguments += self._matrix(1, b, leading_b, shape)
        arguments += self._matrix(0, a, leading_a, shape)
        arguments += [beta_at, *self._matrix(2, c, n, shape)]
        if self._is_sgemm(shape):
            self._call("Sgemm_v2", *arguments)
            return
        compute = computed_in.compute
        if self.types == SINGLE and self.claimed == "tf32":
            compute = COMPUTE_32F_FAST_TF32
        if shape.batch == 1:
            self._call("GemmEx", *arguments, compute, DEFAULT_ALGORITHM)
        else:
            self._call("GemmStridedBatchedEx", *arguments, shape.batch, compute, DEFAULT_ALGORITHM)

    def _is_sgemm(self, shape: Shape) -> bool:
        """Return whether the product is one in float32."""
        return {*self.types.formats} == {FLOAT32} and shape.batch == 1

    def _matrix(self, number: int, matrix: Any, leading: int, shape: Shape) -> list[Any]:
        """Return a matrix as arguments of a call.

        They are its address, its type unless the call is SGEMM's, its leading dimension, and the
        distance to the next one in a batch.

        number: 0 for A, 1 for B, 2 for C
        """
        arguments: list[Any] = [ctypes.c_void_p(matrix.data.ptr)]
        if not self._is_sgemm(shape):
            arguments.append(DATA_TYPES[self.types.names[number]])
        arguments.append(leading)
        if shape.batch > 1:
            arguments.append(ctypes.c_longlong(shape.single.elements[number]))
        return arguments

    def _call(self, function: str, *arguments: Any) -> None:
        """Call cuBLAS, not through CuPy.

        CuPy changes the handle's stream, and refuses calls while recording (cupy/cupy#6290).
        """
        status = getattr(nvidia_library("cublas"), f"cublas{function}")(
            ctypes.c_void_p(self.handle), *arguments
        )
        if status:
            raise LaunchFailed(f"cublas{function}: cublasStatus_t {status}")
