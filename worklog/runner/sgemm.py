"""`worklog.sgemm`: the kernels of this package as a function of CuPy arrays and PyTorch tensors, on the library's
current stream; and of NumPy arrays, on the emulator.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache, lru_cache, partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from worklog.emulator import ARCH, EmulatedDevice
from worklog.errors import BadSetting, BadShape, OutOfMemory
from worklog.gpu import gpu
from worklog.kernel import Kernel, rung
from worklog.kernel.best import MOST_WORKSPACE, choose, table
from worklog.kernel.loaded import Loaded
from worklog.problem import FLOAT_BYTES, Shape

MODES = {"fp32": "best", "split": "split"}
ALIGNMENT = 16  # bytes, of a kernel's widest access
MOST_SIZE = 2**31 - 1  # their parameters are int
MOST_EMULATED = Shape.of(512).flops
BEFORE = "call sgemm once with these shapes and on this stream before the graph is captured"


class Matrix(NamedTuple):
    """A matrix of float32 in some library's array. library: "numpy", "cupy" or "torch". device: its number, None for
    the host. address: of its first element. by_rows, by_columns: whether it is row-major, and column-major, without
    gaps.
    """

    name: str
    array: Any
    library: str
    device: int | None
    address: int
    shape: tuple[int, int]
    by_rows: bool = True
    by_columns: bool = False

    @classmethod
    def of(cls, name: str, array: Any) -> Matrix:
        """Raises BadSetting for anything but a matrix of float32 in one of the libraries."""
        library = type(array).__module__.partition(".")[0]
        if library not in ("numpy", "cupy", "torch") or not hasattr(array, "dtype") or not hasattr(array, "shape"):
            raise BadSetting(f"sgemm: {name} is {type(array).__name__}: give a CuPy array or a PyTorch tensor")
        if (dtype := str(array.dtype).removeprefix("torch.")) != "float32":
            raise BadSetting(f"sgemm: {name} is {dtype}, and the kernels compute in float32: convert it")
        if len(array.shape) != 2:
            raise BadShape(f"sgemm: {name} has {len(array.shape)} dimensions: give a matrix")
        if library == "torch":
            if not array.is_cuda:
                raise BadSetting(f"sgemm: {name} is a tensor on the {array.device}: move it to a GPU with .cuda()")
            if array.requires_grad and sys.modules["torch"].is_grad_enabled():
                raise BadSetting(f"sgemm: {name} requires a gradient, and the kernels have none: use torch.no_grad()")
            address, device, unit = array.data_ptr(), array.device.index, 1
            down, along = array.stride()
        else:
            on_host, unit = library == "numpy", FLOAT_BYTES
            address, device = (array.ctypes.data, None) if on_host else (array.data.ptr, array.device.id)
            down, along = array.strides
        rows, columns = array.shape
        empty = not (rows and columns)
        by_rows = empty or ((columns == 1 or along == unit) and (rows == 1 or down == columns * unit))
        by_columns = empty or ((rows == 1 or down == unit) and (columns == 1 or along == rows * unit))
        return cls(name, array, library, device, address, (rows, columns), by_rows, by_columns)

    @property
    def transposed(self) -> Matrix:
        """The same memory, rows as columns."""
        swapped = self._replace(by_rows=self.by_columns, by_columns=self.by_rows)
        return swapped._replace(array=self.array.T, shape=self.shape[::-1])

    @property
    def end(self) -> int:
        """The address behind it. It has no gaps."""
        return self.address + FLOAT_BYTES * self.shape[0] * self.shape[1]


def sgemm(A: Any, B: Any, C: Any = None, *, alpha: float = 1.0, beta: float = 0.0, mode: str | Kernel = "fp32") -> Any:
    """C = alpha A B + beta C in float32, as BLAS defines it; returns C.

    A, B, C: M x K, K x N and M x N matrices, all CuPy arrays or all PyTorch tensors on one GPU, each row-major or
    column-major without gaps. C: written in place; None for a new one, column-major if A and B are. The work is
    enqueued on the library's current stream and not waited for. mode: "fp32" for the rung best, which takes any shape
    and order; "split" for FP32 through tensor cores on compute capability 9.0 (the rung split, or best where the table
    expects that to be faster); or a kernel. These two take matrices that are all row-major or all column-major, at
    multiples of 16 bytes; for others, "split" takes best and warns once, and a kernel is an error. NumPy arrays are
    multiplied on the emulator, up to 512 x 512 x 512.

    A kernel's intermediate results are in a workspace per GPU and stream, which grows at the first call that needs
    more and is then reused. So a CUDA graph can be captured after one call with the same shapes on the same stream; it
    must not run at the same time as other calls on that stream, and with CuPy a call in a capture needs C. Without
    memory for the workspace, both modes take a kernel that needs none, and warn once. They also warn once if the table
    of best was made on another GPU or driver.

    Raises BadSetting and BadShape for arrays that it doesn't take, OutsideDomain, NoGpu, OutOfMemory, LaunchFailed.
    """
    a, b = Matrix.of("A", A), Matrix.of("B", B)
    (m, k), (inner, n) = a.shape, b.shape
    factors: tuple[tuple[str, Any], ...] = (("alpha", alpha), ("beta", beta))
    for name, value in factors:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise BadSetting(f"sgemm: {name} is {type(value).__name__}: give a number")
    if k != inner:
        raise BadShape(f"sgemm: A is {m} x {k} and B {inner} x {n}: A needs as many columns as B has rows")
    if C is None and beta != 0:
        raise BadSetting("sgemm: beta is not 0, and there is no C to multiply by it: give C")
    if max(m, n, k) > MOST_SIZE:
        raise BadShape(f"sgemm: {m} x {n} x {k}: kernels take sizes up to {MOST_SIZE}")
    result = _empty(a, (m, n), a.by_rows or b.by_rows) if C is None else C
    c = Matrix.of("C", result)
    if c.shape != (m, n):
        raise BadShape(f"sgemm: C is {c.shape[0]} x {c.shape[1]}, and A B is {m} x {n}")
    for one in (a, b, c):
        if one.library != a.library:
            raise BadSetting(f"sgemm: A is of {a.library} and {one.name} of {one.library}: take one library")
        if one.device != a.device:
            raise BadSetting(f"sgemm: A is on GPU {a.device} and {one.name} on GPU {one.device}: take one GPU")
        if not (one.by_rows or one.by_columns):
            advice = "multiply into a new matrix and copy that: C[...] = worklog.sgemm(A, B)"
            if one is not c:
                of_torch, of_others = f"{one.name}.contiguous()", f"{one.library}.ascontiguousarray({one.name})"
                advice = f"give {of_torch if one.library == 'torch' else of_others}"
            raise BadSetting(f"sgemm: {one.name} has gaps, as a view of a larger one, and kernels take none: {advice}")
        if one is not c and max(c.address, one.address) < min(c.end, one.end):
            raise BadSetting(f"sgemm: C shares memory with {one.name}: give C memory of its own")
    if not c.by_rows:
        a, b, c = b.transposed, a.transposed, c.transposed  # C^T = B^T A^T
    place = None if a.device is None else _on_gpu(a.device)
    shape = Shape(*(max(1, size) for size in (*c.shape, k)))
    reads = alpha != 0 and k != 0  # otherwise A and B are not read, as in BLAS
    aligned = (a.address | b.address | c.address) % ALIGNMENT == 0
    kernels = _kernels(mode, place.device.arch if place else ARCH, shape, a.by_rows, b.by_rows, aligned, reads)
    operands = shape, float(alpha) if reads else 0.0, a, b, float(beta), c
    if place and m and n:
        place.launch(kernels, *operands)
    elif m and n:
        _emulate(kernels[0], *operands)
    return result


@lru_cache(maxsize=4096)
def _kernels(
    mode: str | Kernel, arch: str, shape: Shape, a_by_rows: bool, b_by_rows: bool, aligned: bool, reads: bool
) -> tuple[Kernel, ...]:
    """The kernel for these matrices, and one without a workspace if there is one. reads: whether A and B are read."""
    if not isinstance(mode, Kernel) and mode not in MODES:
        raise BadSetting(f"sgemm: mode is {mode!r}: choose from {', '.join(MODES)}, or give a kernel")
    kernel, best = mode if isinstance(mode, Kernel) else rung(MODES[mode]), rung("best")
    if kernel.host is not None:
        raise BadSetting(f"{kernel.name} is a host function: call the function itself")
    if missing := kernel.missing_on(arch):
        raise BadSetting(f"sgemm: {kernel.name} can't be launched: {missing}; take mode='fp32'")
    if kernel.choose is not best.choose:  # which follows the orders, too
        kernel = kernel.at(shape)
    if not reads or (mode == "split" and not table().split_pays(shape)):
        kernel = best
    elif kernel.choose is None and not (aligned and a_by_rows and b_by_rows):
        found = f"not all arrays are at multiples of {ALIGNMENT} bytes, and {kernel.name} takes no others"
        if aligned:
            found = f"some matrices are row-major and some column-major, and {kernel.name} takes one order for all"
        if mode != "split":
            raise BadSetting(f"sgemm: {found}: take best, or copy")
        once(f"sgemm: {found}: best is used instead, which is slower", 4)
        kernel = best
    of_best = [_best(most, aligned, not a_by_rows, not b_by_rows) for most in (MOST_WORKSPACE, 0)]
    if kernel.choose is not None:
        return tuple(of_best)
    return (kernel, of_best[1]) if mode == "split" else (kernel,)


@cache
def _best(most_workspace: int, aligned: bool, a_by_columns: bool, b_by_columns: bool) -> Kernel:
    """The rung best, choosing among the kernels for these orders."""
    orders = {"a_by_columns": a_by_columns, "b_by_columns": b_by_columns}
    return replace(rung("best"), choose=partial(choose, aligned=aligned, most_workspace=most_workspace, **orders))


def _empty(like: Matrix, shape: tuple[int, int], by_rows: bool) -> Any:
    """A new matrix of the library, on the device of another one."""
    stored = shape if by_rows else shape[::-1]
    if like.library == "torch":
        made = like.array.new_empty(stored)
    else:
        library = sys.modules[like.library]
        with nullcontext() if like.device is None else library.cuda.Device(like.device):
            made = library.empty(stored, np.float32)
    return made if by_rows else made.T


def _emulate(kernel: Kernel, shape: Shape, alpha: float, a: Matrix, b: Matrix, beta: float, c: Matrix) -> None:
    """Multiply NumPy arrays. Raises BadSetting for a large product."""
    if shape.flops > MOST_EMULATED:
        raise BadSetting(f"sgemm: {shape} takes too long on the emulator: give CuPy arrays or PyTorch tensors")
    device = EmulatedDevice(races=False)
    in_a, in_b, in_c = (device.upload(one.array if one.by_rows else one.array.T) for one in (a, b, c))
    kernel.load(device).enqueue(shape, alpha, in_a, in_b, beta, in_c)
    c.array[...] = device.download(in_c).reshape(c.shape)


class OnGpu:
    """Multiplies arrays on one GPU. device: a CudaDevice, whose stream becomes the current one of each call."""

    def __init__(self, number: int, device: Any) -> None:
        self.number, self.device = number, device
        self._lock = threading.Lock()
        self._loaded: dict[tuple[Kernel, str], Loaded] = {}
        self._workspaces: dict[int, Any] = {}  # by the stream's handle
        self._in_graphs: list[Any] = []  # a graph uses them whenever it is launched

    @classmethod
    def of(cls, number: int) -> OnGpu:
        """Of the GPU with this number. Raises NoGpu."""
        import cupy

        from worklog.gpu.cuda import CudaDevice

        with cupy.cuda.Device(number):
            return cls(number, CudaDevice())

    def launch(
        self, kernels: Sequence[Kernel], shape: Shape, alpha: float, a: Matrix, b: Matrix, beta: float, c: Matrix
    ) -> None:
        """Enqueue the first one, or the second one where memory is too short, on the library's current stream."""
        with self._lock, self.current(a.library) as (handle, capturing):
            if len(kernels) > 1:
                warn_of_a_stale_table(*self.identity())
            subject = self._prepared(kernels, shape, handle, capturing)
            at_a, at_b, at_c = (np.uint64(one.address) for one in (a, b, c))
            subject.enqueue(shape, alpha, at_a, at_b, beta, at_c)

    @contextmanager
    def current(self, library: str) -> Iterator[tuple[int, bool]]:
        """The library's current stream as the device's: its handle, and whether a graph is captured on it."""
        import cupy

        from worklog.gpu.cuda import stream_of

        with cupy.cuda.Device(self.number):
            if library == "torch":
                handle = int(sys.modules["torch"].cuda.current_stream(self.number).cuda_stream)
                stream = stream_of(handle)
            else:
                stream = cupy.cuda.get_current_stream()
                handle = int(stream.ptr)
            self.device.stream = stream
            # The legacy default stream can't be captured, and asking about it would end another stream's capture.
            yield handle, bool(handle) and bool(cupy.cuda.runtime.streamIsCapturing(handle))

    def identity(self) -> tuple[str, str]:
        """The GPU's name and the driver's version."""
        found = gpu()
        return found.name, found.driver

    def _subject(self, kernel: Kernel) -> Loaded:
        """The kernel, compiled once, and again where a rung's file has changed."""
        key = kernel, kernel.source
        if key not in self._loaded:
            loaded = kernel.load(self.device)
            assert isinstance(loaded, Loaded)
            self._loaded[key] = loaded
        return self._loaded[key]

    def _prepared(self, kernels: Sequence[Kernel], shape: Shape, handle: int, capturing: bool) -> Loaded:
        """A kernel, compiled, with a workspace of this stream."""
        for kernel in kernels:
            if capturing and not ((kernel, kernel.source) in self._loaded and self._subject(kernel).is_ready(shape)):
                raise BadSetting(f"sgemm: {kernel.name} at {shape} is new: {BEFORE}")
            subject = self._subject(kernel)
            needed, held = subject.workspace_elements(shape), self._workspaces.get(handle)
            if needed and (held is None or held.size < needed):
                if capturing:
                    raise BadSetting(f"sgemm: {shape} needs {4 * needed / 2**20:.1f} MiB of workspace: {BEFORE}")
                try:
                    held = self._workspaces[handle] = self.device.allocate(needed)
                except OutOfMemory as error:
                    if kernel is kernels[-1]:
                        raise
                    once(f"sgemm: {error}; best takes kernels without a workspace instead, which may be slower")
                    continue
            if needed:
                assert held is not None
                subject.use_workspace(held)
                self._in_graphs += [held] * (capturing and not any(held is one for one in self._in_graphs))
            return subject
        raise AssertionError("a kernel without a workspace needs no memory")


_on_gpu = cache(OnGpu.of)


@cache
def once(said: str, stacklevel: int = 5) -> None:
    """Warn of this once per process. stacklevel: of the line that calls sgemm."""
    warnings.warn(said, stacklevel=stacklevel)


@cache
def warn_of_a_stale_table(name: str, driver: str) -> None:
    """Say so where best's table was made on another GPU or under another driver."""
    if why := table().stale(name, driver):
        once(f"sgemm: {why}")
