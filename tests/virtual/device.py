"""The virtual machine as a device (worklog.kernel): a non-blocking stream carries all work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tests.gate.numpy_device import NumpyDevice, Problem
from tests.virtual.arrays import SHORT_US, Array, VirtualArrays
from tests.virtual.machine import Machine
from worklog.emulator.limits import Chip
from worklog.errors import LaunchFailed
from worklog.kernel.device import Buffer, Runnable
from worklog.kernel.kernel import ANY_CHIP
from worklog.problem import Domain, Shape
from worklog.runs import Algorithm


class VirtualDevice(NumpyDevice):
    """A NumpyDevice whose queue is a stream of a machine."""

    def __init__(self, machine: Machine, chip: Chip = ANY_CHIP) -> None:
        super().__init__()
        self.machine = machine
        self.chip = chip
        self.emptied = 0
        self.stream = machine.stream()

    def enqueue(self, work: Callable[[], object], us: float = SHORT_US) -> None:
        self.machine.enqueue(us, lambda: work, self.stream)

    def product_us(self, problem: Problem) -> float:
        return 2 * problem.m * problem.n * problem.k / self.machine.flops_per_us

    def synchronize(self) -> None:
        self.machine.synchronize(self.stream)

    def synchronize_all(self) -> None:
        for stream in self.machine.streams:
            self.machine.synchronize(stream)

    def empty_cache(self) -> None:
        self.emptied += 1

    def loan(self, arrays: str) -> VirtualLoan:
        return VirtualLoan(self, arrays)


class VirtualLoan:
    """A VirtualDevice's memory and stream, as a Loan.

    PyTorch tensors and addresses are the host's own memory, where work is done at once: the
    machine is waited for before it.
    """

    def __init__(self, device: VirtualDevice, arrays: str) -> None:
        self.device = device
        self.arrays = arrays
        self.handle = id(device.stream)

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: str) -> Any:
        assert dtype == "float32"
        if self.arrays == "pointers":
            return int(buffer.data.ctypes.data)
        if self.arrays == "torch":
            import torch

            return torch.from_numpy(buffer.data.reshape(shape))
        return Array(self.device.machine, buffer, shape)

    def current(self) -> AbstractContextManager[None]:
        if self.arrays != "cupy":
            self.device.synchronize()
        return self.device.machine.on(self.device.stream)


class VirtualBaseline(Runnable):
    """The library's product. factor: of its time."""

    factor = 1.0

    def __init__(self, device: VirtualDevice, name: str) -> None:
        self.name = name
        self.claimed = "tf32" if name.endswith("TF32") else "fp32"
        self.version = "0"
        self.domain = Domain()
        self.device = device
        self.loan = device.loan("cupy")
        self.arrays = VirtualArrays(device.machine)

    def kernels(self, shape: Shape) -> int:
        return 1

    def operands(self, shape: Shape) -> tuple[str, ...]:
        return ()

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        self._product(shape, alpha, a, b, beta, c, rounded=self.claimed == "tf32")

    def _product(
        self,
        shape: Shape,
        alpha: float,
        a: Buffer,
        b: Buffer,
        beta: float,
        c: Buffer,
        *,
        rounded: bool,
    ) -> None:
        sizes = (a, shape.m, shape.k), (b, shape.k, shape.n), (c, shape.m, shape.n)
        for number in range(shape.batch):
            left, right, out = (
                self._matrix(buffer, rows, columns, number) for buffer, rows, columns in sizes
            )
            with self.loan.current():
                self.arrays.gemm(alpha, left, right, beta, out, rounded, self.factor)

    def _matrix(self, buffer: Buffer, rows: int, columns: int, number: int) -> Any:
        """Return the matrix of one product of a batch."""
        size = rows * columns
        part = buffer if buffer.size == size else self.device.view(buffer, number * size, size)
        return self.loan.array(part, (rows, columns), "float32")


NOT_SUPPORTED = "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"


class VirtualAlgorithm(VirtualBaseline):
    """An algorithm of VirtualCublasLt.

    factor: of the time of cuBLAS
    fault: "rounded" computes in TF32, "refused" is an algorithm that the library doesn't run
    """

    def __init__(
        self, device: VirtualDevice, index: int, factor: float = 1.0, fault: str = ""
    ) -> None:
        super().__init__(device, f"cuBLASLt algorithm {index}")
        self.factor = factor
        self.fault = fault
        self.facts = Algorithm(index, 20 + index, "128x64", "8x5", 1, 0, 0)

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        if self.fault == "refused":
            raise LaunchFailed(NOT_SUPPORTED)
        rounded = self.fault == "rounded"
        self._product(shape, alpha, a, b, beta, c, rounded=rounded)


class VirtualCublasLt(VirtualBaseline):
    """cuBLASLt with these algorithms, as worklog.gpu.cublaslt.CublasLt."""

    def __init__(self, device: VirtualDevice, algorithms: Sequence[VirtualAlgorithm]) -> None:
        super().__init__(device, "cuBLASLt")
        self.algorithms = algorithms

    def candidates(self, shape: Shape) -> Sequence[VirtualAlgorithm]:
        return self.algorithms

    def choose(self, candidate: VirtualAlgorithm) -> None:
        self.factor = candidate.factor
