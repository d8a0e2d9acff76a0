"""`worklog.sgemm`: the kernels of this package as a function of arrays.

CuPy arrays and PyTorch tensors are multiplied on the library's current stream, NumPy arrays on the
emulator. A Plan keeps whatever doesn't depend on the matrices' addresses, so that a repeated call
only looks up the plan.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, lru_cache, partial
from math import inf
from numbers import Real
from typing import Any, Literal, cast

import numpy as np

from worklog.blas.batch import Stack, are_joinable, batch_count, require_apart
from worklog.blas.layout import Layout, orders, read
from worklog.emulator.limits import Chip
from worklog.errors import BadSetting, LaunchFailed, OutOfMemory, hinted
from worklog.gpu.device import gpu
from worklog.kernel import WIDE, Dispatcher, Kernel, Loaded, rung
from worklog.kernel.emulated import CHIP, EmulatedDevice
from worklog.kernel.ladder.best import LEAST_SPLIT_K, choose, is_batch_faster, table
from worklog.kernel.trial import completed
from worklog.problem import FLOAT_BYTES, SGEMM, Matrix, Shape, ctype_of
from worklog.runs import Gpu

Mode = Literal["fp32", "split", "winograd"]
MODES: dict[Mode, str] = {"fp32": "best", "split": "split", "winograd": "winograd"}
ACCESS_BYTES = 16  # bytes, of a kernel's widest access
MAX_EMULATED = Shape.of(512).flops
MAX_PLANS = 1024
MAX_GRID_Z = 65535  # blocks, of any GPU
BEFORE = "call sgemm once with these shapes and on this stream before the graph is captured"

Units = tuple[int, int, int]  # the powers of two that addresses of A, B and C are multiples of


@hinted
def sgemm(
    A: Matrix,
    B: Matrix,
    C: Matrix | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    mode: Mode | Kernel = "fp32",
    max_error: float | None = None,
) -> Matrix:
    """Compute C = alpha A B + beta C in float32, as BLAS defines it, and return C.

    A, B, C: M x K, K x N and M x N matrices, all CuPy arrays or all PyTorch tensors on one GPU,
    each row-major or column-major without gaps. C: written in place; None for a new matrix,
    column-major if A and B are. The work is enqueued on the library's current stream and not waited
    for. mode: "fp32" for the rung best, which takes any shape and order; "split" for FP32 through
    tensor cores on compute capability 9.0 (the rung split, or best where the table expects that to
    be faster, and below K = 700, where split can be further off); "winograd" for fewer
    multiplications on compute capability 9.0, at multiples of M = 256, N = 512 and K = 16 (of a
    column-major C, N = 256 and M = 512); or a kernel. These three take matrices that are all
    row-major or all column-major, at addresses in the kernel's domain; for others, "split" takes
    best and warns once, and "winograd" and a kernel are errors. NumPy arrays are multiplied on the
    emulator, up to 512 x 512 x 512.

    With "winograd", the largest numbers of A and B bound an element's error, not its row and its
    column: small rows beside large ones lose bits (the class fp32-norm). Infinities and NaN reach
    up to 4 rows or columns of C, and what is infinite in FP32 may be NaN.

    A batch: A or B, or both, with three dimensions, B x M x K and B x K x N; a matrix is for all
    products, and C has three dimensions. Each matrix of a batch is without gaps, at any distance
    from the next one. If A's matrices lie behind each other and B is one matrix, it is one product.
    If the matrices of all three lie behind each other, mode "fp32" may launch all products at once.
    Else each product is launched, by one call.

    max_error, in place of mode: the fastest kernel, by the table, whose error is at most max_error
    (|alpha| |A| |B| + |beta C|) in each element, whatever the matrices hold: best, split, or one
    with sums in double precision, from max_error = 6e-8 on. The bounds (worklog.kernel.ladder.best)
    count roundings and follow from the shape alone, so the matrices aren't read first; usual errors
    are far smaller. Subnormal numbers may add (|alpha| K + 2) 2^-149. Elements for which |A| |B|,
    |alpha| times it or |beta C| is 2^127 or more may become infinite. Infinities and NaN in A reach
    their rows of C, those in B their columns, as in FP32, and no other element.

    A kernel's intermediate results are in a workspace per GPU and stream, which grows at the first
    call that needs more and is then reused. So a CUDA graph can be captured after one call with the
    same shapes on the same stream; it must not run at the same time as other calls on that stream,
    and with CuPy a call in a capture needs C. The table of best was measured on an H200 and an
    H100: a GPU of another compute capability, or with another number of multiprocessors, is warned
    of once; elsewhere split is expected to follow the peak of the memory, which is not measured. A
    process reads and compiles a rung's file once: restart it after editing the file.

    Raises BadSetting for arrays that the mode's kernel doesn't take, and for a max_error that no
    kernel keeps; NoGpu, OutOfMemory, LaunchFailed.
    """
    _require_numbers(alpha, beta, 0.0 if max_error is None else max_error)
    alpha = float(alpha)
    beta = float(beta)
    choice: Any = mode if max_error is None else float(max_error)
    if max_error is not None and mode != "fp32":
        raise BadSetting("sgemm: max_error chooses the kernel: omit mode")
    address_a, layout_a = read("A", A)
    address_b, layout_b = read("B", B)
    address_c, layout_c = (0, None) if C is None else read("C", C)
    if C is None and beta != 0:
        raise BadSetting("sgemm: beta is not 0, and there is no C to multiply by it: give C")
    if len(layout_a[2]) == 3 or len(layout_b[2]) == 3:
        return cast(Matrix, _multiply_batch(A, B, C, alpha=alpha, beta=beta, choice=choice))
    units = (
        address_a & -address_a & 255,
        address_b & -address_b & 255,
        address_c & -address_c & 255,
    )
    plan = _plan(choice, alpha != 0, units, layout_a, layout_b, layout_c)
    result: Matrix = _empty(A, plan) if C is None else C
    if C is None:
        address_c, _ = read("C", result)
        if address_c & 255:  # by a user's allocator
            units = (units[0], units[1], address_c & -address_c & 255)
            plan = _plan(choice, alpha != 0, units, layout_a, layout_b, None)
    _require_apart(plan, address_a, address_b, address_c)
    factor = alpha if plan.reads else 0.0
    c_bytes = plan.memory[2]
    if plan.place and c_bytes:
        if plan.swapped:
            address_a, address_b = address_b, address_a
        plan.place.launch(plan, [(factor, address_a, address_b, beta, address_c)])
    elif c_bytes:
        _emulate(plan, factor, A, B, beta=beta, c=result)
    return result


def _multiply_batch(
    A: Any, B: Any, C: Any | None, *, alpha: float, beta: float, choice: Any
) -> Any:
    """Multiply a batch: one product if A's rows can be joined, else a product each.

    choice: a mode, a kernel, or the largest error
    """
    a = Stack.from_array("A", *read("A", A))
    b = Stack.from_array("B", *read("B", B))
    count = batch_count(a, b)
    plan = _plan(choice, alpha != 0, (a.unit, b.unit, 0), a.layout, b.layout, None)
    result: Any = _empty(A, plan, count) if C is None else C
    c = Stack.from_array("C", *read("C", result))
    c.require_result(count, plan.size)
    require_apart(c, a, b)
    if not isinstance(choice, Kernel) and are_joinable(a, b, c):  # a kernel's domain may not hold
        a = a.joined()
        c = c.joined()
        count = 1
    is_dense = all(stack.count and stack.step == stack.nbytes for stack in (a, b, c))
    at_once = count if is_dense and count <= MAX_GRID_Z else 1
    units = (a.unit, b.unit, c.unit)
    plan = _plan(choice, alpha != 0, units, a.layout, b.layout, c.layout, at_once)
    factor = alpha if plan.reads else 0.0
    if plan.place and count and c.nbytes:
        pair = (b, a) if plan.swapped else (a, b)
        launches = count // plan.shape.batch
        plan.place.launch(plan, _products(launches, pair, c, factor=factor, beta=beta))
    elif count and c.nbytes:
        _require_short(plan, count)
        if plan.shape.batch > 1:
            _emulate(plan, factor, A, B, beta=beta, c=result)
            return result
        for number in range(count):
            factors = (a.matrix(A, number), b.matrix(B, number))
            _emulate(plan, factor, *factors, beta=beta, c=c.matrix(result, number))
    return result


def _products(
    count: int, factors: tuple[Stack, Stack], c: Stack, *, factor: float, beta: float
) -> list[tuple[float, ...]]:
    """Return what a launch takes for each product of a batch: see OnGpu.launch().

    factors: in the order in which the kernel takes them
    """
    first, second = factors
    products = list[tuple[float, ...]]()
    for number in range(count):
        addresses = (first.address_of(number), second.address_of(number))
        products.append((factor, *addresses, beta, c.address_of(number)))
    return products


def _require_short(plan: Plan, count: int = 1) -> None:
    """Raise BadSetting if the emulator takes too long for so many products."""
    shape = plan.shape.single
    if count * shape.flops > MAX_EMULATED:
        products = f"{count} products of {shape}" if count > 1 else f"{shape}"
        raise BadSetting(
            f"sgemm: {products} takes too long on the emulator: give CuPy arrays or PyTorch tensors"
        )


def _require_numbers(*numbers: Any) -> None:
    """Raise BadSetting if alpha, beta or max_error, in this order, isn't a number."""
    for name, value in zip(("alpha", "beta", "max_error"), numbers, strict=True):
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise BadSetting(f"sgemm: {name} is {type(value).__name__}: give a number")


def _require_apart(plan: Plan, address_a: int, address_b: int, address_c: int) -> None:
    """Raise BadSetting if C shares memory with A or B."""
    a_bytes, b_bytes, c_bytes = plan.memory
    for name, address, size in (("A", address_a, a_bytes), ("B", address_b, b_bytes)):
        if size and address < address_c + c_bytes and address_c < address + size:
            raise BadSetting(f"sgemm: C shares memory with {name}: give C memory of its own")


def _emulate(plan: Plan, factor: float, a: Any, b: Any, *, beta: float, c: Any) -> None:
    """Multiply NumPy arrays on the emulator.

    factor: alpha, or 0 if A and B aren't read
    """
    _require_short(plan)
    if plan.swapped:
        a, b = b, a
    device = EmulatedDevice(races=False)
    by_rows = [
        matrix if matrix.flags.c_contiguous else matrix.swapaxes(-1, -2) for matrix in (a, b, c)
    ]
    device_a, device_b, device_c = map(device.upload, by_rows)
    kernel = plan.kernel.load(device)
    kernel.enqueue(plan.shape, factor, device_a, device_b, beta, device_c)
    target = c.swapaxes(-1, -2) if plan.swapped else c
    target[...] = device.download(device_c).reshape(target.shape)


class Plan:
    """The common part of calls whose matrices differ only in their addresses.

    mode: or the largest error, a float
    has_alpha: whether alpha isn't 0
    units: the largest powers of two that the addresses of A, B and C are multiples of, 0 for 256
        and more
    layout_a, layout_b, layout_c: None for a new C
    at_once: products that one launch may compute, whose matrices follow each other in memory

    size: of C
    memory: bytes of A, B and C
    swapped: whether C^T = B^T A^T is computed, since C is column-major
    reads: whether A and B are read
    place: the GPU, None for the emulator
    launches: functions of the driver, with their arguments after the stream; empty until they are
        compiled
    values: read by the launches: alpha, the addresses of A and B, beta, the addresses of C and the
        workspace
    workspace: the number of its elements

    Raises BadSetting for matrices that don't fit each other.
    """

    def __init__(
        self,
        mode: Any,
        has_alpha: bool,
        units: Units,
        layout_a: Layout,
        layout_b: Layout,
        layout_c: Layout | None,
        at_once: int = 1,
    ) -> None:
        a_by_rows, a_by_columns = orders("A", layout_a)
        b_by_rows, b_by_columns = orders("B", layout_b)
        self.library, device, (m, k), _ = layout_a
        inner, n = layout_b[2]
        if k != inner:
            raise BadSetting(
                f"sgemm: A is {m} x {k} and B {inner} x {n}: A needs as many columns as B has rows"
            )
        if layout_c is None:
            c_by_rows = a_by_rows or b_by_rows
            c_by_columns = 1 in (m, n)
        else:
            c_by_rows, c_by_columns = orders("C", layout_c)
        for name, (library, number, shape, _) in (
            ("B", layout_b),
            ("C", layout_c or (self.library, device, (m, n), ())),
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
        # A matrix of one row or one column has both orders.
        all_by_columns = all((a_by_columns, b_by_columns, c_by_columns))
        all_by_rows = all((a_by_rows, b_by_rows, c_by_rows))
        self.size = (m, n)
        self.swapped = not c_by_rows or (all_by_columns and not all_by_rows)
        self.memory = (FLOAT_BYTES * m * k, FLOAT_BYTES * k * n, FLOAT_BYTES * m * n)
        if self.swapped:
            m, n = n, m
            a_by_rows = b_by_columns
            b_by_rows = a_by_columns
            units = (units[1], units[0], units[2])
        self.reads = has_alpha and k != 0  # otherwise A and B aren't read, as in BLAS
        self.place = None if device is None else _on_gpu(device)
        self.shape = Shape(*(max(1, size) for size in (m, n, k)))
        self._batch = replace(self.shape, batch=at_once)
        self.kernel = self._kernel(mode, a_by_rows, b_by_rows, units)
        self.launches: list[tuple[Any, list[int]]] = []
        self.values: list[Any] = []
        self.workspace = 0

    @property
    def _chip(self) -> Chip:
        """The chip that the kernel is launched on."""
        return self.place.device.chip if self.place else CHIP

    def _kernel(self, mode: Any, a_by_rows: bool, b_by_rows: bool, units: Units) -> Kernel:
        """Return the kernel for the matrices."""
        is_users = isinstance(mode, Kernel)
        is_by_error = isinstance(mode, float)
        chip = self._chip
        card = self.place.card if self.place else None
        if not is_users and not is_by_error and mode not in MODES:
            raise BadSetting(
                f"sgemm: mode is {mode!r}: choose from {', '.join(MODES)}, or give a kernel"
            )
        if is_users:
            kernel = completed(mode)
        elif is_by_error:
            kernel = rung("best")
        else:
            kernel = rung(MODES[mode])
        may_split = False
        if self.reads:
            is_long = mode == "split" and self.shape.k >= LEAST_SPLIT_K
            may_split = is_by_error or is_long
        kernel.require_source("call the function itself")
        if missing := kernel.missing_on(chip.arch):
            raise BadSetting(f"sgemm: {kernel.name} can't be launched: {missing}; take mode='fp32'")
        # The choice of best also depends on the orders.
        is_best = isinstance(kernel, Dispatcher) and kernel.choose is choose
        if not (a_by_rows and b_by_rows) and not is_best:
            reason = (
                f"some matrices are row-major and some column-major, and {kernel.name} takes "
                "one order for all"
            )
            if mode != "split":
                raise BadSetting(f"sgemm: {reason}: take best, or copy")
            if may_split and choose(self.shape, chip=chip, split=True, gpu=card).name == "split":
                warn_once(f"sgemm: {reason}: best is used instead, which is slower")
        is_winograd = mode == "winograd"
        if is_winograd and self.shape not in kernel.domain:
            raise BadSetting(
                f"sgemm: {self.shape} is outside of winograd's domain ({kernel.domain}): pad the "
                "matrices with zeros, or take mode='fp32'"
            )
        if (is_users or is_winograd) and not is_best and self.reads:
            kernel = kernel.at(self.shape, chip)
            names = "BAC" if self.swapped else "ABC"
            for name, address_unit, unit in zip(names, units, kernel.domain.bytes_of, strict=True):
                if address_unit % unit:
                    needs = f"which {kernel.name} needs ({kernel.domain})"
                    raise BadSetting(
                        f"sgemm: {name} is not at a multiple of {unit} bytes, {needs}: take best, "
                        "or copy"
                    )
            return kernel
        return self._best_kernel(
            aligned=all(address_unit % ACCESS_BYTES == 0 for address_unit in units),
            a_by_columns=not a_by_rows,
            b_by_columns=not b_by_rows,
            split=may_split,
            max_error=mode if is_by_error else inf,
            gpu=card,
        )

    def _best_kernel(self, **options: Any) -> Kernel:
        """Return the rung best. The shape becomes a batch's if one launch is faster.

        options: see candidates()
        """
        chip = self._chip
        is_batch = self._batch.batch > 1 and not options["split"]
        if is_batch and is_batch_faster(self._batch, chip=chip, **options):
            self.shape = self._batch
        kernel = _best(**options)
        kernel.at(self.shape, chip)  # raises BadSetting if no kernel keeps the error
        return kernel

    def prepare(self, loaded: Loaded) -> None:
        """Prepare the launches of a kernel.

        CuPy packs the arguments anew for each launch; here the driver copies them.
        """
        driver = sys.modules["cupy"].cuda.driver
        launches, self.workspace = loaded.launches_at(self.shape)
        if any(kernel.maps for kernel, *_ in launches):
            raise BadSetting(f"sgemm: {loaded.name} takes tensor maps: sgemm passes none on a GPU")
        fields: dict[str, Any] = {
            parameter.name: ctype_of(parameter)() for parameter in SGEMM.signature
        }
        fields["workspace"] = ctypes.c_void_p()
        for name, size in zip("MNK", (self.shape.m, self.shape.n, self.shape.k), strict=True):
            fields[name].value = size
            fields[WIDE + name] = ctypes.c_int64(size)
        self.values = [fields[name] for name in ("alpha", "A", "B", "beta", "C", "workspace")]
        # The arguments are the same for each pass.
        addresses = [ctypes.addressof(fields[name]) for name in launches[0][0].arguments]
        arguments = (ctypes.c_void_p * len(addresses))(*addresses)
        # Keep the memory that the driver reads, and the modules of the functions.
        self._references = (fields, arguments, launches)
        for kernel, compiled, grid, block in launches:
            threads = (block,) if isinstance(block, int) else block
            sizes = *(*grid, 1)[:3], *(*threads, 1, 1)[:3], compiled.shared
            function = compiled.function.kernel.ptr
            if kernel.program.cooperative:
                launch = partial(driver.launchCooperativeKernel, function, *sizes)
                self.launches.append((launch, [ctypes.addressof(arguments)]))
            else:
                launch = partial(driver.launchKernel, function, *sizes)
                self.launches.append((launch, [ctypes.addressof(arguments), 0]))


_plan = lru_cache(maxsize=MAX_PLANS)(Plan)


@cache  # so that its kernels are compiled once
def _best(**options: Any) -> Kernel:
    """Return the rung best, choosing with options (see candidates())."""
    return Dispatcher.from_kernel(rung("best"), partial(choose, **options), batches=True)


def _empty(other: Any, plan: Plan, count: int | None = None) -> Any:
    """Return a new C of the library, on the device of another matrix.

    count: of the matrices of a batch; None for a matrix
    """
    matrix_size = plan.size[::-1] if plan.swapped else plan.size
    size = matrix_size if count is None else (count, *matrix_size)
    if plan.library == "torch":
        matrix = other.new_empty(size)
    else:
        with other.device if plan.place else nullcontext():
            matrix = sys.modules[plan.library].empty(size, np.float32)
    if not plan.swapped:
        return matrix
    return matrix.T if count is None else matrix.swapaxes(1, 2)


class OnGpu:
    """Multiplies matrices on a GPU.

    device: a CudaDevice
    context: of CUDA
    """

    def __init__(self, number: int, device: Any, context: int, card: Gpu) -> None:
        self.number = number
        self.device = device
        self.context = context
        self.card = card
        # A plan's arguments and a stream's workspace are for one caller at a time.
        self._lock = threading.Lock()
        self._loaded: dict[Kernel, Loaded] = {}
        self._workspaces: dict[int, Any] = {}  # by the stream's handle
        # By address. A graph uses its workspaces whenever it is launched.
        self._in_graphs: dict[int, Any] = {}

    def launch(self, plan: Plan, products: Sequence[tuple[float, ...]]) -> None:
        """Enqueue a plan's launches for each product on the library's current stream.

        products: each with alpha, the addresses of A and B, beta, and the address of C

        Raises LaunchFailed, and what the first call on a stream raises.
        """
        cuda = sys.modules["cupy"].cuda
        is_elsewhere = cuda.driver.ctxGetCurrent() != self.context
        with self._lock, cuda.Device(self.number) if is_elsewhere else nullcontext():
            # A new thread gets the context at its first call.
            if is_elsewhere and cuda.driver.ctxGetCurrent() != self.context:
                cuda.runtime.memGetInfo()
            if plan.library == "torch":
                # As torch.compile does: torch.cuda.current_stream() creates an object, in 2 µs.
                stream = int(sys.modules["torch"]._C._cuda_getCurrentRawStream(self.number))
            else:
                stream = int(cuda.get_current_stream().ptr)
            workspace = 0 if plan.launches and not plan.workspace else self._workspace(plan, stream)
            try:
                for arguments in products:
                    for value, argument in zip(plan.values, (*arguments, workspace), strict=True):
                        value.value = argument
                    for launch, driver_arguments in plan.launches:
                        launch(stream, *driver_arguments)
            except cuda.driver.CUDADriverError as error:
                raise LaunchFailed(f"launching a kernel: {error}") from error

    def _workspace(self, plan: Plan, stream: int) -> int:
        """Return the address of the stream's workspace, 0 for none. Compile the plan if it is new.

        Raises OutOfMemory, and BadSetting in a capture.
        """
        # The legacy default stream can't be captured, and asking about it would end another
        # stream's capture.
        is_capturing = bool(stream) and bool(
            sys.modules["cupy"].cuda.runtime.streamIsCapturing(stream)
        )
        kernel = plan.kernel
        if not plan.launches:
            if is_capturing and not (
                kernel in self._loaded and self._loaded[kernel].is_ready(plan.shape)
            ):
                raise BadSetting(f"sgemm: {kernel.name} at {plan.shape} is new: {BEFORE}")
            if kernel.follows_shape and (reason := table().stale(self.card)):
                warn_once(f"sgemm: {reason}")
            if kernel not in self._loaded:
                kernel.require_launch()
                self._loaded[kernel] = Loaded(kernel, self.device)
            plan.prepare(self._loaded[kernel])
        if not plan.workspace:
            return 0
        workspace = self._workspaces.get(stream)
        if workspace is None or workspace.size < plan.workspace:
            size = f"{plan.shape} needs {FLOAT_BYTES * plan.workspace / 2**20:.1f} MiB of workspace"
            if is_capturing:
                raise BadSetting(f"sgemm: {size}: {BEFORE}")
            from worklog.gpu.cuda import stream_of

            self.device.stream = stream_of(stream)
            try:
                workspace = self.device.allocate(plan.workspace)
            except OutOfMemory as error:
                raise OutOfMemory(f"sgemm: {size}: {error}") from error
            self._workspaces[stream] = workspace
        address = int(workspace.data.ptr)
        if is_capturing:
            self._in_graphs[address] = workspace
        return address


@cache
def _on_gpu(number: int) -> OnGpu:
    """Return the GPU with this number. Raises NoGpu."""
    import cupy

    from worklog.gpu.cuda import CudaDevice

    with cupy.cuda.Device(number):
        return OnGpu(number, CudaDevice(), cupy.cuda.driver.ctxGetCurrent(), gpu())


@cache
def warn_once(message: str) -> None:
    """Warn once per process, at the line that calls sgemm."""
    warnings.warn(message, stacklevel=6)
