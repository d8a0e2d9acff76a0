"""`worklog.sgemm`: the kernels of this package as a function of CuPy arrays and PyTorch tensors, on the library's
current stream; and of NumPy arrays, on the emulator.

A Plan keeps whatever doesn't depend on the matrices' addresses, so that a repeated call only looks it up.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, lru_cache, partial
from math import inf
from numbers import Real
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, OutOfMemory
from worklog.gpu.device import gpu
from worklog.kernel import SIZES, WIDE, Kernel, Loaded, rung
from worklog.kernel.best import LEAST_SPLIT_K, choose, table
from worklog.kernel.emulated import ARCH, EmulatedDevice
from worklog.kernel.trial import completed
from worklog.problem import FLOAT_BYTES, SGEMM, Shape, ctype_of
from worklog.runs import Gpu

MODES = {"fp32": "best", "split": "split"}
ALIGNMENT = 16  # bytes, of a kernel's widest access
MOST_SIZE = 2**31 - 1  # their parameters are int
MOST_EMULATED = Shape.of(512).flops
MOST_PLANS = 1024
BEFORE = "call sgemm once with these shapes and on this stream before the graph is captured"
FLOAT32 = np.dtype(np.float32)

# An array without its address: "numpy", "cupy" or "torch"; the number of its GPU, None for the host; its sizes; and its
# strides, which PyTorch counts in elements and the others in bytes.
Layout = tuple[str, int | None, tuple[int, ...], tuple[int, ...]]
Units = tuple[int, int, int]  # the powers of two that addresses of A, B and C are multiples of


def sgemm(
    A: Any,
    B: Any,
    C: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    mode: str | Kernel = "fp32",
    max_error: float | None = None,
) -> Any:
    """C = alpha A B + beta C in float32, as BLAS defines it; returns C.

    A, B, C: M x K, K x N and M x N matrices, all CuPy arrays or all PyTorch tensors on one GPU, each row-major or
    column-major without gaps. C: written in place; None for a new one, column-major if A and B are. The work is
    enqueued on the library's current stream and not waited for. mode: "fp32" for the rung best, which takes any shape
    and order; "split" for FP32 through tensor cores on compute capability 9.0 (the rung split, or best where the table
    expects that to be faster, and below K = 700, where split can be further off); or a kernel. These two take matrices
    that are all row-major or all column-major, at addresses in the kernel's domain; for others, "split" takes best and
    warns once, and a kernel is an error. NumPy arrays are multiplied on the emulator, up to 512 x 512 x 512.

    max_error, in place of mode: the fastest kernel, by the table, whose error is at most max_error (|alpha| |A| |B| +
    |beta C|) in each element, whatever the matrices hold: best, split, or one with sums in double precision, from
    max_error = 6e-8 on. The bounds (worklog.kernel.best) count roundings and follow from the shape alone, so the
    matrices aren't read first; usual errors are far smaller. Subnormal numbers may add (|alpha| K + 2) 2^-149. Elements
    for which |A| |B|, |alpha| times it or |beta C| is 2^127 or more may become infinite. Infinities and NaN in A reach
    their rows of C, those in B their columns, as in FP32, and no other element.

    A kernel's intermediate results are in a workspace per GPU and stream, which grows at the first call that needs more
    and is then reused. So a CUDA graph can be captured after one call with the same shapes on the same stream; it must
    not run at the same time as other calls on that stream, and with CuPy a call in a capture needs C. The table of best
    was measured on an H200 and an H100: a GPU of another compute capability, or with another number of multiprocessors,
    is warned of once; elsewhere split is expected to follow the peak of the memory, which is not measured. A process
    reads and compiles a rung's file once: restart it after editing the file.

    Raises BadSetting for arrays that the mode's kernel doesn't take, and for a max_error that no kernel keeps; NoGpu,
    OutOfMemory, LaunchFailed.
    """
    given: tuple[Any, ...] = alpha, beta, 0.0 if max_error is None else max_error
    for name, value in zip(("alpha", "beta", "max_error"), given, strict=True):
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise BadSetting(f"sgemm: {name} is {type(value).__name__}: give a number")
    alpha, beta = float(alpha), float(beta)
    how: Any = mode if max_error is None else float(max_error)
    if max_error is not None and mode != "fp32":
        raise BadSetting("sgemm: max_error chooses the kernel: omit mode")
    at_a, of_a = _read("A", A)
    at_b, of_b = _read("B", B)
    at_c, of_c = (0, None) if C is None else _read("C", C)
    if C is None and beta != 0:
        raise BadSetting("sgemm: beta is not 0, and there is no C to multiply by it: give C")
    units = at_a & -at_a & 255, at_b & -at_b & 255, at_c & -at_c & 255
    plan = _plan(how, alpha != 0, units, of_a, of_b, of_c)
    result = C
    if C is None:
        result = _empty(A, plan)
        at_c, _ = _read("C", result)
        if at_c & 255:  # by an allocator of the user's own
            plan = _plan(
                how, alpha != 0, (units[0], units[1], at_c & -at_c & 255), of_a, of_b, None
            )
    a_bytes, b_bytes, c_bytes = plan.memory
    for name, at, size in (("A", at_a, a_bytes), ("B", at_b, b_bytes)):
        if size and at < at_c + c_bytes and at_c < at + size:
            raise BadSetting(f"sgemm: C shares memory with {name}: give C memory of its own")
    factor = alpha if plan.reads else 0.0
    left = (at_a, A)
    right = (at_b, B)
    if plan.swapped:
        left = (at_b, B)
        right = (at_a, A)
    if plan.place and c_bytes:
        plan.place.launch(plan, factor, left[0], right[0], beta, at_c)
    elif c_bytes:
        if plan.shape.flops > MOST_EMULATED:
            raise BadSetting(
                f"sgemm: {plan.shape} takes too long on the emulator: give CuPy arrays or PyTorch tensors"
            )
        device = EmulatedDevice(races=False)
        c = result.T if plan.swapped else result
        by_rows = [
            matrix if matrix.flags.c_contiguous else matrix.T
            for matrix in (left[1], right[1], result)
        ]
        in_a, in_b, in_c = map(device.upload, by_rows)
        plan.kernel.load(device).enqueue(plan.shape, factor, in_a, in_b, beta, in_c)
        c[...] = device.download(in_c).reshape(c.shape)
    return result


@lru_cache(maxsize=64)
def _library(kind: type) -> str:
    """The library of an array's type, "" for types of other objects."""
    library = kind.__module__.partition(".")[0]
    return (
        library
        if library in ("numpy", "cupy", "torch") and hasattr(kind, "dtype") and hasattr(kind, "T")
        else ""
    )


def _read(name: str, array: Any) -> tuple[int, Layout]:
    """The address of a float32 array's first element, and its layout. Raises BadSetting for anything else."""
    library = _library(array.__class__)
    if not library:
        raise BadSetting(
            f"sgemm: {name} is {type(array).__name__}: give a NumPy or CuPy array or a PyTorch tensor"
        )
    torch = sys.modules["torch"] if library == "torch" else None
    if array.dtype != (torch.float32 if torch else FLOAT32):
        dtype = str(array.dtype).removeprefix("torch.")
        raise BadSetting(
            f"sgemm: {name} is {dtype}, and the kernels compute in float32: convert it"
        )
    if torch is None:
        at, device = (
            (array.ctypes.data, None) if library == "numpy" else (array.data.ptr, array.device.id)
        )
        return at, (library, device, array.shape, array.strides)
    if not array.is_cuda:
        raise BadSetting(
            f"sgemm: {name} is a tensor on the {array.device}: move it to a GPU with .cuda()"
        )
    if array.requires_grad and torch.is_grad_enabled():
        raise BadSetting(
            f"sgemm: {name} requires a gradient, and the kernels have none: use torch.no_grad()"
        )
    return array.data_ptr(), (library, array.get_device(), array.shape, array.stride())


def _orders(name: str, layout: Layout) -> tuple[bool, bool]:
    """Whether a matrix is row-major, and column-major. Raises BadSetting for what isn't a matrix, or has gaps."""
    library, _, shape, strides = layout
    if len(shape) != 2:
        raise BadSetting(f"sgemm: {name} has {len(shape)} dimensions: give a matrix")
    (rows, columns) = shape
    (down, along) = strides
    if max(rows, columns) > MOST_SIZE:
        raise BadSetting(
            f"sgemm: {name} is {rows} x {columns}: kernels take sizes up to {MOST_SIZE}"
        )
    unit = 1 if library == "torch" else FLOAT_BYTES
    empty = not (rows and columns)
    by_rows = empty or ((columns == 1 or along == unit) and (rows == 1 or down == columns * unit))
    by_columns = empty or ((rows == 1 or down == unit) and (columns == 1 or along == rows * unit))
    if not (by_rows or by_columns):
        advice = "multiply into a new matrix and copy that: C[...] = worklog.sgemm(A, B)"
        if name != "C":
            advice = (
                f"give {name}.contiguous()"
                if library == "torch"
                else f"give {library}.ascontiguousarray({name})"
            )
        raise BadSetting(
            f"sgemm: {name} has gaps, as a view of a larger one, and kernels take none: {advice}"
        )
    return by_rows, by_columns


class Plan:
    """What calls have in common whose matrices differ only in their addresses. mode: or the largest error, a float.
    by_alpha: whether alpha isn't 0. at: the largest power of two that the addresses of A, B and C are multiples of, 0
    for 256 and more. of_c: None for a new C. Raises BadSetting for matrices that don't fit each other.

    size: of C. memory: bytes of A, B and C. swapped: whether C^T = B^T A^T is computed, since C is column-major. reads:
    whether A and B are read. place: the GPU, None for the emulator. launches, as soon as they are compiled: functions
    of the driver, with what they take behind the stream. values: what these read: alpha, the addresses of A and B,
    beta, and those of C and the workspace. workspace: its elements.
    """

    def __init__(
        self, mode: Any, by_alpha: bool, at: Units, of_a: Layout, of_b: Layout, of_c: Layout | None
    ) -> None:
        (a_by_rows, a_by_columns) = _orders("A", of_a)
        (b_by_rows, b_by_columns) = _orders("B", of_b)
        self.library, device, (m, k), _ = of_a
        inner, n = of_b[2]
        if k != inner:
            raise BadSetting(
                f"sgemm: A is {m} x {k} and B {inner} x {n}: A needs as many columns as B has rows"
            )
        c_by_rows, c_by_columns = (
            (a_by_rows or b_by_rows, 1 in (m, n)) if of_c is None else _orders("C", of_c)
        )
        for name, (library, number, shape, _) in (
            ("B", of_b),
            ("C", of_c or (self.library, device, (m, n), ())),
        ):
            if name == "C" and tuple(shape) != (m, n):
                raise BadSetting(f"sgemm: C is {shape[0]} x {shape[1]}, and A B is {m} x {n}")
            if library != self.library:
                raise BadSetting(
                    f"sgemm: A is of {self.library} and {name} of {library}: take one library"
                )
            if number != device:
                raise BadSetting(
                    f"sgemm: A is on GPU {device} and {name} on GPU {number}: take one GPU"
                )
        all_by_columns = a_by_columns and b_by_columns and c_by_columns  # one row or column is both
        self.size = (m, n)
        self.swapped = not c_by_rows or (all_by_columns and not (a_by_rows and b_by_rows))
        self.memory = FLOAT_BYTES * m * k, FLOAT_BYTES * k * n, FLOAT_BYTES * m * n
        if self.swapped:
            m, n, a_by_rows, b_by_rows, at = n, m, b_by_columns, a_by_columns, (at[1], at[0], at[2])
        self.reads = by_alpha and k != 0  # otherwise A and B are not read, as in BLAS
        self.place = None if device is None else _on_gpu(device)
        self.shape = Shape(*(max(1, size) for size in (m, n, k)))
        self.kernel = self._kernel(mode, a_by_rows, b_by_rows, at)
        self.launches: list[tuple[Any, list[int]]] = []
        self.values: list[Any] = []
        self.workspace = 0

    def _kernel(self, mode: Any, a_by_rows: bool, b_by_rows: bool, at: Units) -> Kernel:
        """The kernel for these matrices."""
        best = rung("best")
        arch = self.place.device.arch if self.place else ARCH
        card = self.place.card if self.place else None
        if not isinstance(mode, Kernel | float) and mode not in MODES:
            raise BadSetting(
                f"sgemm: mode is {mode!r}: choose from {', '.join(MODES)}, or give a kernel"
            )
        split = self.reads and (
            isinstance(mode, float) or (mode == "split" and self.shape.k >= LEAST_SPLIT_K)
        )
        kernel = (
            completed(mode)
            if isinstance(mode, Kernel)
            else best
            if isinstance(mode, float)
            else rung(MODES[mode])
        )
        if kernel.host is not None:
            raise BadSetting(f"{kernel.name} is a host function: call the function itself")
        if missing := kernel.missing_on(arch):
            raise BadSetting(f"sgemm: {kernel.name} can't be launched: {missing}; take mode='fp32'")
        if (
            not (a_by_rows and b_by_rows) and kernel.choose is not best.choose
        ):  # which follows the orders, too
            why = f"some matrices are row-major and some column-major, and {kernel.name} takes one order for all"
            if mode != "split":
                raise BadSetting(f"sgemm: {why}: take best, or copy")
            if split and choose(self.shape, arch=arch, split=True, gpu=card).name == "split":
                once(f"sgemm: {why}: best is used instead, which is slower")
        if isinstance(mode, Kernel) and kernel.choose is not best.choose and self.reads:
            kernel = kernel.at(self.shape)
            for name, place, unit in zip(
                "BAC" if self.swapped else "ABC", at, kernel.domain.bytes_of, strict=True
            ):
                if place % unit:
                    needs = f"which {kernel.name} needs ({kernel.domain})"
                    raise BadSetting(
                        f"sgemm: {name} is not at a multiple of {unit} bytes, {needs}: take best, or copy"
                    )
            return kernel
        aligned = all(place % ALIGNMENT == 0 for place in at)
        limit = mode if isinstance(mode, float) else inf
        kernel = _best(aligned, a_by_rows, b_by_rows, split, limit, card)
        kernel.at(self.shape, arch)  # raises BadSetting if none keeps the error
        return kernel

    def prepare(self, loaded: Loaded) -> None:
        """The launches of a kernel. CuPy packs the arguments anew each time; here the driver copies them."""
        driver = sys.modules["cupy"].cuda.driver
        launches, self.workspace = loaded.launches_at(self.shape)
        of: dict[str, Any] = {
            parameter.name: ctype_of(parameter)() for parameter in SGEMM.signature
        }
        of["workspace"] = ctypes.c_void_p()
        for name, size in zip(SIZES, (self.shape.m, self.shape.n, self.shape.k), strict=True):
            of[name].value = size
            of[WIDE + name] = ctypes.c_int64(size)
        self.values = [of[name] for name in ("alpha", "A", "B", "beta", "C", "workspace")]
        places = [
            ctypes.addressof(of[name]) for name in launches[0][0].arguments
        ]  # the same for each pass
        arguments = (ctypes.c_void_p * len(places))(*places)
        self._kept = (
            of,
            arguments,
            launches,
        )  # what the driver reads, and the modules of the functions
        for kernel, compiled, grid, block in launches:
            threads = (block,) if isinstance(block, int) else block
            sizes = *(*grid, 1)[:3], *(*threads, 1, 1)[:3], compiled.shared
            together = kernel.program.cooperative
            launch = driver.launchCooperativeKernel if together else driver.launchKernel
            rest = [ctypes.addressof(arguments)] if together else [ctypes.addressof(arguments), 0]
            self.launches.append((partial(launch, compiled.function.kernel.ptr, *sizes), rest))


_plan = lru_cache(maxsize=MOST_PLANS)(Plan)


@cache  # so that its kernels are compiled once
def _best(
    aligned: bool, a_by_rows: bool, b_by_rows: bool, split: bool, max_error: float, card: Gpu | None
) -> Kernel:
    """The rung best, choosing among the kernels for these orders."""
    orders = {"a_by_columns": not a_by_rows, "b_by_columns": not b_by_rows}
    how = partial(choose, aligned=aligned, **orders, split=split, max_error=max_error, gpu=card)
    return replace(rung("best"), choose=how)


def _empty(like: Any, plan: Plan) -> Any:
    """A new C of the library, on the device of another matrix."""
    size = plan.size[::-1] if plan.swapped else plan.size
    if plan.library == "torch":
        made = like.new_empty(size)
    else:
        with like.device if plan.place else nullcontext():
            made = sys.modules[plan.library].empty(size, np.float32)
    return made.T if plan.swapped else made


class OnGpu:
    """Multiplies matrices on one GPU. device: a CudaDevice. context: of CUDA."""

    def __init__(self, number: int, device: Any, context: int, card: Gpu) -> None:
        self.number = number
        self.device = device
        self.context = context
        self.card = card
        self._lock = (
            threading.Lock()
        )  # a plan's arguments and a stream's workspace are for one caller at a time
        self._loaded: dict[Kernel, Loaded] = {}
        self._workspaces: dict[int, Any] = {}  # by the stream's handle
        self._in_graphs: dict[
            int, Any
        ] = {}  # by address: a graph uses them whenever it is launched

    def launch(self, plan: Plan, *given: float) -> None:
        """Enqueue a plan's launches on the library's current stream. given: alpha, the addresses of A and B, beta, and
        that of C. Raises LaunchFailed, and what the first call on a stream raises.
        """
        cuda = sys.modules["cupy"].cuda
        elsewhere = cuda.driver.ctxGetCurrent() != self.context
        with self._lock, cuda.Device(self.number) if elsewhere else nullcontext():
            if (
                elsewhere and cuda.driver.ctxGetCurrent() != self.context
            ):  # a new thread gets it at its first call
                cuda.runtime.memGetInfo()
            if (
                plan.library == "torch"
            ):  # as torch.compile does: torch.cuda.current_stream() makes an object, in 2 µs
                stream = int(sys.modules["torch"]._C._cuda_getCurrentRawStream(self.number))
            else:
                stream = int(cuda.get_current_stream().ptr)
            workspace = 0 if plan.launches and not plan.workspace else self._workspace(plan, stream)
            for value, now in zip(plan.values, (*given, workspace), strict=True):
                value.value = now
            try:
                for launch, arguments in plan.launches:
                    launch(stream, *arguments)
            except cuda.driver.CUDADriverError as error:
                raise LaunchFailed(f"launching a kernel: {error}") from error

    def _workspace(self, plan: Plan, stream: int) -> int:
        """The stream's workspace, 0 for none; compiles the plan. Raises BadSetting in a capture, OutOfMemory."""
        # The legacy default stream can't be captured, and asking about it would end another stream's capture.
        capturing = bool(stream) and bool(
            sys.modules["cupy"].cuda.runtime.streamIsCapturing(stream)
        )
        kernel = plan.kernel
        if not plan.launches:
            if capturing and not (
                kernel in self._loaded and self._loaded[kernel].is_ready(plan.shape)
            ):
                raise BadSetting(f"sgemm: {kernel.name} at {plan.shape} is new: {BEFORE}")
            if kernel.choose is not None and (why := table().stale(self.card)):
                once(f"sgemm: {why}")
            if kernel not in self._loaded:
                kernel.require_launch()
                self._loaded[kernel] = Loaded(kernel, self.device)
            plan.prepare(self._loaded[kernel])
        if not plan.workspace:
            return 0
        held = self._workspaces.get(stream)
        if held is None or held.size < plan.workspace:
            size = f"{plan.shape} needs {FLOAT_BYTES * plan.workspace / 2**20:.1f} MiB of workspace"
            if capturing:
                raise BadSetting(f"sgemm: {size}: {BEFORE}")
            from worklog.gpu.cuda import stream_of

            self.device.stream = stream_of(stream)
            try:
                held = self._workspaces[stream] = self.device.allocate(plan.workspace)
            except OutOfMemory as error:
                raise OutOfMemory(f"sgemm: {size}: {error}") from error
        at = int(held.data.ptr)
        if capturing:
            self._in_graphs[at] = held
        return at


@cache
def _on_gpu(number: int) -> OnGpu:
    """The GPU with this number. Raises NoGpu."""
    import cupy

    from worklog.gpu.cuda import CudaDevice

    with cupy.cuda.Device(number):
        return OnGpu(number, CudaDevice(), cupy.cuda.driver.ctxGetCurrent(), gpu())


@cache
def once(said: str) -> None:
    """Warn of this once per process, at the line that calls sgemm."""
    warnings.warn(said, stacklevel=5)
