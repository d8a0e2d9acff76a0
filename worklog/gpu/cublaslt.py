"""cuBLASLt: the algorithms that its heuristic offers for a product, each run by itself.

cuBLAS chooses an algorithm by itself. cuBLASLt lists the algorithms, the best guess first, so that
they can be timed: worklog.runner.algorithms does that.

Enumerators and structures are those of cublasLt.h and cublas_api.h of cuBLAS 13.10, and of CUDA's
library_types.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, WorklogError, install_command
from worklog.kernel import Program, Runnable
from worklog.kernel.nvrtc import nvidia_library
from worklog.problem import FLOAT_BYTES, Domain, Shape
from worklog.problem.formats import FLOAT32, INT8, INT32, SINGLE, Types
from worklog.runs import CUBLASLT, Algorithm

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice

# cublas_api.h, cublasStatus_t
SUCCESS = 0
NOT_SUPPORTED = 15
# library_types.h, cudaDataType: CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_8I and CUDA_R_32I.
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "int8": 3, "int32": 10}
TENSOR_TYPES = {"float16": "f16", "bfloat16": "bf16", "int8": "s8"}  # of PTX
# cublas_api.h, cublasComputeType_t: CUBLAS_COMPUTE_32F. It adds in FP32, and multiplies FP32
# operands as they are. CUBLAS_COMPUTE_32F_FAST_TF32 shortens them.
COMPUTE_32F = 68
COMPUTE_32F_FAST_TF32 = 77
# CUBLAS_COMPUTE_32I: products of int8 with a C of int32. alpha and beta are int32.
COMPUTE_32I = 72
# cuBLAS documentation, cublasGemmEx: the addresses and leading dimensions of int8 are multiples of
# 4. Its tensor cores' kernels need 16.
DOMAIN_OF_INT8 = "M % 16 == 0, N % 16 == 0, K % 16 == 0, A, B, C % 16 bytes"
# cublasLt.h, cublasLtMatmulDescAttributes_t: TRANSA and TRANSB; cublas_api.h, cublasOperation_t.
TRANSPOSE_FIRST = 3
TRANSPOSE_SECOND = 4
TRANSPOSED = 1
# cublasLt.h, cublasLtMatmulPreferenceAttributes_t: MAX_WORKSPACE_BYTES, a uint64_t, and
# MIN_ALIGNMENT_{A,B,C,D}_BYTES, each a uint32_t.
MAX_WORKSPACE = 1
MIN_ALIGNMENTS = (5, 6, 7, 8)
# cublasLt.h, cublasLtMatmulAlgoConfigAttributes_t. All are of 32 bits.
CONFIG_ID = 0
CONFIG_TILE = 1
CONFIG_SPLIT_K = 2
CONFIG_REDUCTION = 3
CONFIG_STAGES = 6
# The first of cublasLt.h, cublasLtMatmulTile_t: rows and columns of the column-major result, which
# is the transpose of C here. Later numbers are of other units.
TILE_NAMES = """
8x8 8x16 16x8 8x32 16x16 32x8 8x64 16x32 32x16 64x8 32x32 32x64 64x32 32x128 64x64 128x32 64x128
128x64 64x256 128x128 256x64 64x512 128x256 256x128 512x64 64x96 96x64 96x128 128x160 160x128
192x128 128x192 128x96 32x256 256x32
"""
TILES = dict(enumerate(TILE_NAMES.split(), start=1))
# cublasLt.h, cublasLtMatmulStages_t: terms of K in a stage, and stages.
STAGES = {
    **{number: f"16x{number}" for number in range(1, 7)},
    **{number: f"32x{number - 6}" for number in range(7, 13)},
    **{number: f"64x{number - 12}" for number in range(13, 19)},
    **{number: f"128x{number - 18}" for number in range(19, 25)},
    **{25: "32x10", 26: "8x4", 27: "16x10", 28: "8x5", 31: "8x3"},
}
# As large as cuBLAS's own workspace on Hopper (cuBLAS documentation, cublasSetWorkspace). It lets
# the heuristic offer algorithms that split K.
WORKSPACE_BYTES = 32 * 2**20
# cublasLt.h: the alignment of operands in bytes that the heuristic counts on by default. Timed
# buffers have it; the gate also launches on operands that are aligned to 16 bytes.
ALIGNMENT = 256


class HeuristicResult(ctypes.Structure):
    """cublasLt.h, cublasLtMatmulHeuristicResult_t. The algorithm is opaque."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", ctypes.c_float),
        ("reserved", c_int * 4),
    )


POINTER_TO_POINTER = POINTER(c_void_p)
# The parameters of cublasLt.h's functions. Each returns a cublasStatus_t.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "Create": (POINTER_TO_POINTER,),
    "MatmulDescCreate": (POINTER_TO_POINTER, c_int, c_int),
    "MatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "MatrixLayoutCreate": (POINTER_TO_POINTER, c_int, c_uint64, c_uint64, c_int64),
    "MatmulPreferenceCreate": (POINTER_TO_POINTER,),
    "MatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "MatmulPreferenceDestroy": (c_void_p,),
    # handle, operation, layouts of A, B, C and D, preference
    "MatmulAlgoGetHeuristic": (
        *(c_void_p,) * 7,
        c_int,
        POINTER(HeuristicResult),
        POINTER(c_int),
    ),
    "MatmulAlgoConfigGetAttribute": (c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)),
    # handle, operation, alpha, A and its layout, B and its layout, beta, C and its layout, D and
    # its layout, algorithm, workspace
    "Matmul": (*(c_void_p,) * 14, c_size_t, c_void_p),
}


def tensor_operands(types: Types) -> tuple[str, ...]:
    """Return the types that tensor cores get, as in PTX; none in FP32."""
    if {types.a, types.b} == {FLOAT32}:
        return ()
    return tuple(TENSOR_TYPES.get(name, name) for name in dict.fromkeys(types.names[:2]))


@dataclass(frozen=True)
class ComputeType:
    """The types in which the libraries compute a product.

    compute: the cublasComputeType_t
    scalar: the format of alpha and beta, in DATA_TYPES
    """

    compute: int
    scalar: str

    def number(self, value: float) -> Any:
        """Return alpha or beta as the libraries read it."""
        return ctypes.c_int32(int(value)) if self.scalar == INT32.name else ctypes.c_float(value)


def compute_type(types: Types) -> ComputeType:
    """Return the types in which a product is computed.

    Raises LaunchFailed if the libraries have no such product. Of int8, they have C in int32 with
    B by columns: on an H200, others are refused (cublasStatus_t 15), and a C in float32 isn't the
    product of large integers.
    """
    is_missing = not {*types.names} <= {*DATA_TYPES} or INT32 in (types.a, types.b)
    if types.has_integers and (types.c != INT32 or types.by_columns != "B"):
        is_missing = True
    if is_missing:
        raise LaunchFailed(f"cuBLAS isn't called for {types}: there is no product to compare with")
    if types.c == INT32:
        return ComputeType(COMPUTE_32I, INT32.name)
    return ComputeType(COMPUTE_32F, FLOAT32.name)


def domain(types: Types) -> Domain:
    """Return the shapes and addresses for which the libraries have a product."""
    return Domain.of(DOMAIN_OF_INT8) if types.a == INT8 else Domain()


class CallFailed(LaunchFailed):
    """A function of cuBLASLt has returned another status than success.

    status: the cublasStatus_t
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Library:
    """cuBLASLt with a handle on the current GPU.

    Raises WorklogError if it isn't installed, and CallFailed.
    """

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        self._library = _loaded() if library is None else library
        self._library.cublasLtGetStatusName.restype = ctypes.c_char_p
        self._library.cublasLtGetStatusName.argtypes = (c_int,)
        self.handle = self.create("Create")

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function. Raises CallFailed with the name of the status."""
        status = self._function(function)(*arguments)
        if status != SUCCESS:
            name = self._library.cublasLtGetStatusName(status).decode()
            raise CallFailed(f"cublasLt{function}: {name}", status)

    def create(self, function: str, *arguments: Any) -> c_void_p:
        """Return what a function creates."""
        created = c_void_p()
        self.call(function, byref(created), *arguments)
        return created

    def _function(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, f"cublasLt{name}")
        function.argtypes = SIGNATURES[name]
        function.restype = c_int
        return function  # type: ignore[no-any-return]


def _loaded() -> ctypes.CDLL:
    """Return the installed library. Raises WorklogError."""
    try:
        return nvidia_library("cublasLt")
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise WorklogError(
            f"cannot load cuBLASLt: {reason}; install it with: {install_command('cuda13')}, or "
            "with cuda12 for an older driver"
        ) from error


@dataclass(frozen=True)
class Offered:
    """An algorithm that the heuristic offers, as the library takes it back."""

    facts: Algorithm
    opaque: Any


class Product:
    """C = alpha A B + beta C of one shape, in row-major order. Raises CallFailed.

    Row-major C = A B is column-major C^T = B^T A^T, as for worklog.gpu.cuda.Cublas: B comes first,
    and only a factor that lies by columns is transposed. The library's descriptors of it are kept
    for the whole process.

    types: the formats of A, B and C, in DATA_TYPES
    """

    def __init__(self, library: Library, shape: Shape, types: Types = SINGLE) -> None:
        self.library = library
        self._compute_type = compute_type(types)
        scalar = DATA_TYPES[self._compute_type.scalar]
        self._operation = library.create("MatmulDescCreate", self._compute_type.compute, scalar)
        in_b = (shape.k, shape.n) if "B" in types.by_columns else (shape.n, shape.k)
        in_a = (shape.m, shape.k) if "A" in types.by_columns else (shape.k, shape.m)
        self._b = self._layout(types.b.name, *in_b)
        self._a = self._layout(types.a.name, *in_a)
        self._c = self._layout(types.c.name, shape.n, shape.m)
        # B is the library's first factor.
        for matrix, attribute in (("B", TRANSPOSE_FIRST), ("A", TRANSPOSE_SECOND)):
            if matrix in types.by_columns:
                value = c_int(TRANSPOSED)
                size = ctypes.sizeof(value)
                library.call(
                    "MatmulDescSetAttribute", self._operation, attribute, byref(value), size
                )

    def _layout(self, dtype: str, rows: int, columns: int) -> c_void_p:
        """Return the layout of a column-major matrix without gaps."""
        return self.library.create("MatrixLayoutCreate", DATA_TYPES[dtype], rows, columns, rows)

    def algorithms(self, count: int, alignment: int = ALIGNMENT) -> list[Offered]:
        """Return up to `count` algorithms in the heuristic's order.

        The list is empty if it offers none.

        alignment: of A, B and C in bytes
        """
        results = (HeuristicResult * count)()
        returned = c_int()
        preference = self._preference(alignment)
        try:
            self.library.call(
                "MatmulAlgoGetHeuristic",
                self.library.handle,
                self._operation,
                self._b,
                self._a,
                self._c,
                self._c,
                preference,
                count,
                results,
                byref(returned),
            )
        except CallFailed as error:
            if error.status != NOT_SUPPORTED:
                raise
            return []
        finally:
            self.library.call("MatmulPreferenceDestroy", preference)
        usable = [result for result in results[: returned.value] if result.state == SUCCESS]
        return [self._offered(index, result) for index, result in enumerate(usable)]

    def _preference(self, alignment: int) -> c_void_p:
        """Return the preference with the limit of the workspace and the alignment of operands."""
        preference = self.library.create("MatmulPreferenceCreate")
        workspace = c_uint64(WORKSPACE_BYTES)
        values: list[tuple[int, Any]] = [(MAX_WORKSPACE, workspace)]
        values += [(attribute, c_uint32(alignment)) for attribute in MIN_ALIGNMENTS]
        for attribute, value in values:
            size = ctypes.sizeof(value)
            self.library.call(
                "MatmulPreferenceSetAttribute", preference, attribute, byref(value), size
            )
        return preference

    def _offered(self, index: int, result: HeuristicResult) -> Offered:
        """Return a result of the heuristic with its configuration."""
        opaque = (c_uint64 * 8)(*result.algorithm)

        def config(attribute: int) -> int:
            value = c_uint32()
            size = ctypes.sizeof(value)
            written = c_size_t()
            self.library.call(
                "MatmulAlgoConfigGetAttribute",
                opaque,
                attribute,
                byref(value),
                size,
                byref(written),
            )
            return value.value

        tile = config(CONFIG_TILE)
        stages = config(CONFIG_STAGES)
        facts = Algorithm(
            index,
            id=config(CONFIG_ID),
            tile=TILES.get(tile, f"number {tile}"),
            stages=STAGES.get(stages, f"number {stages}"),
            split_k=config(CONFIG_SPLIT_K),
            reduction=config(CONFIG_REDUCTION),
            workspace_bytes=result.workspace_bytes,
        )
        return Offered(facts, opaque)

    def enqueue(
        self,
        offered: Offered,
        alpha: float,
        a: int,
        b: int,
        beta: float,
        c: int,
        *,
        workspace: int,
        workspace_bytes: int,
        stream: int,
    ) -> None:
        """Enqueue the product by an algorithm. Raises CallFailed.

        a, b, c, workspace: addresses
        """
        alpha_at, beta_at = (byref(self._compute_type.number(scalar)) for scalar in (alpha, beta))
        self.library.call(
            "Matmul",
            self.library.handle,
            self._operation,
            alpha_at,
            b,
            self._b,
            a,
            self._a,
            beta_at,
            c,
            self._c,
            c,
            self._c,
            offered.opaque,
            workspace,
            workspace_bytes,
            stream,
        )


def alignment_of(addresses: Sequence[int]) -> int:
    """Return the largest power of two that divides all addresses, up to ALIGNMENT."""
    alignment = ALIGNMENT
    while any(address % alignment for address in addresses):
        alignment //= 2
    return alignment


class CublasLt(Runnable):
    """cuBLASLt's product on a device's stream, with sums in FP32.

    At a shape for which an algorithm was chosen, it runs that algorithm. Elsewhere, as at the small
    shapes of the gate, it runs the first one that the heuristic offers.

    count: algorithms that the heuristic is asked for
    types: the formats of A, B and C

    Raises WorklogError if the library isn't installed, and CallFailed.
    """

    program: Program | None = None
    workspace: Any

    def __init__(
        self,
        device: CudaDevice,
        count: int,
        library: Library | None = None,
        types: Types = SINGLE,
    ) -> None:
        self.name = CUBLASLT
        self.types = types
        self.domain = domain(types)
        self.claimed = types.default_precision
        self.device = device
        self.count = count
        self.library = Library() if library is None else library
        self._products: dict[Shape, Product] = {}
        self._algorithms: dict[tuple[Shape, int], Offered] = {}  # by shape and alignment
        self._kernels: dict[Shape, int] = {}
        self._default_workspace: Any = device.allocate(WORKSPACE_BYTES // FLOAT_BYTES)
        self.workspace = self._default_workspace

    def candidates(self, shape: Shape) -> list[LtAlgorithm]:
        """Return the algorithms that the heuristic offers at a shape, in its order."""
        offered = self.product(shape).algorithms(self.count)
        return [LtAlgorithm(self, shape, algorithm) for algorithm in offered]

    def choose(self, candidate: LtAlgorithm) -> None:
        """Run this algorithm at its shape from the next launch on."""
        self._algorithms[candidate.shape, ALIGNMENT] = candidate.offered
        self._kernels.pop(candidate.shape, None)

    def product(self, shape: Shape) -> Product:
        """Return the product of a shape, described once."""
        if shape not in self._products:
            self._products[shape] = Product(self.library, shape, self.types)
        return self._products[shape]

    def kernels(self, shape: Shape) -> int:
        """Return how many kernels a launch at this shape enqueues."""
        if shape not in self._kernels:
            matrix = self._default_workspace
            launch = partial(self.enqueue, shape, 1.0, matrix, matrix, 0.0, matrix)
            self._kernels[shape] = self.device.count_kernels(launch)
        return self._kernels[shape]

    def operands(self, shape: Shape) -> tuple[str, ...]:
        """Return the types that tensor cores get: none in FP32."""
        return tensor_operands(self.types)

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return {"library": CUBLASLT, "domain": str(self.domain)}

    def workspace_elements(self, shape: Shape) -> int:  # noqa: D102
        return WORKSPACE_BYTES // FLOAT_BYTES

    def use_workspace(self, buffer: Any) -> None:
        """Set the workspace; None sets the default workspace."""
        self.workspace = self._default_workspace if buffer is None else buffer

    def enqueue(self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        """Enqueue C = alpha A B + beta C. Raises LaunchFailed."""
        addresses = [matrix.data.ptr for matrix in (a, b, c)]
        alignment = alignment_of(addresses)
        if (shape, alignment) not in self._algorithms:
            offered = self.product(shape).algorithms(1, alignment)
            if not offered:
                raise LaunchFailed(f"{CUBLASLT}'s heuristic offers no algorithm at {shape}")
            self._algorithms[shape, alignment] = offered[0]
        self.run(
            shape,
            self._algorithms[shape, alignment],
            alpha,
            addresses,
            beta,
            workspace=self.workspace,
        )

    def run(
        self,
        shape: Shape,
        offered: Offered,
        alpha: float,
        addresses: Sequence[int],
        beta: float,
        *,
        workspace: Any,
    ) -> None:
        """Enqueue a product by an algorithm. Raises LaunchFailed.

        addresses: of A, B and C
        workspace: a buffer, or None
        """
        a, b, c = addresses
        self.product(shape).enqueue(
            offered,
            alpha,
            a,
            b,
            beta,
            c,
            workspace=0 if workspace is None else workspace.data.ptr,
            workspace_bytes=0 if workspace is None else workspace.nbytes,
            stream=int(self.device.stream.ptr),
        )


class LtAlgorithm(Runnable):
    """An algorithm of cuBLASLt at the shape for which the heuristic has offered it.

    facts: what a run records of it
    """

    program: Program | None = None

    def __init__(self, library: CublasLt, shape: Shape, offered: Offered) -> None:
        self.library = library
        self.shape = shape
        self.offered = offered
        self.facts = offered.facts
        self.name = f"{CUBLASLT} algorithm {offered.facts.index}"
        self.types = library.types
        self.domain = library.domain
        self.claimed = library.claimed

    def operands(self, shape: Shape) -> tuple[str, ...]:  # noqa: D102
        return self.library.operands(shape)

    def workspace_elements(self, shape: Shape) -> int:  # noqa: D102
        return -(-self.facts.workspace_bytes // FLOAT_BYTES)

    def enqueue(self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        """Enqueue C = alpha A B + beta C. Raises LaunchFailed."""
        addresses = [matrix.data.ptr for matrix in (a, b, c)]
        workspace: Any = self.workspace
        if workspace is None and self.facts.workspace_bytes:
            workspace = self.library.workspace
        self.library.run(shape, self.offered, alpha, addresses, beta, workspace=workspace)
