"""worklog.sgemm.

BLAS's semantics on the emulator, clear errors, and what a GPU's streams and graphs need.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worklog
from tests.helpers import GPU, integers
from worklog.blas import product as module
from worklog.blas.product import OnGpu
from worklog.emulator.limits import Chip
from worklog.errors import BadSetting, OutOfMemory, WorklogError
from worklog.kernel.ladder.best import choose
from worklog.problem import SGEMM, Shape, ctype_of


@pytest.fixture(autouse=True)
def nothing_said_before():
    for one in (module.warn_once, module._plan):
        one.cache_clear()


SIZE = st.integers(0, 20)
ROWS = np.ascontiguousarray
COLUMNS = np.asfortranarray


class OnHost:
    """A CuPy array as far as sgemm reads it before a launch."""

    __module__ = "cupy"
    dtype = "float32"

    def __init__(
        self, shape: tuple[int, ...], address: int, strides: tuple[int, ...] = (), gpu: int = 0
    ) -> None:
        self.shape = shape
        self.strides = strides or (4 * shape[1], 4)
        self.device = nullcontext[Any]()
        self.data = SimpleNamespace(ptr=address)
        vars(self.device)["id"] = gpu

    @property
    def T(self) -> OnHost:  # noqa: N802
        return OnHost(self.shape[::-1], self.data.ptr, self.strides[::-1])


@settings(max_examples=3)
@given(
    m=SIZE,
    n=SIZE,
    k=SIZE,
    orders=st.tuples(*[st.sampled_from([ROWS, COLUMNS])] * 3),
    new=st.booleans(),
)
def test_it_is_blas_in_every_order_and_with_sizes_of_0(m, n, k, orders, new):
    made = integers(m, k), integers(k, n), integers(m, n, 1)
    a, b, old = (order(one) for order, one in zip(orders, made, strict=True))
    c = None if new else old.copy(order="K")
    found = worklog.sgemm(a, b, c, alpha=2, beta=0 if new else -0.5)
    assert (new or found is c) and found.dtype == np.float32
    assert (found == 2 * (a @ b) - (0 if new else 0.5 * old)).all()
    if min(m, n, k) < 2:  # which has both orders
        return
    by_columns = orders[:2] == (COLUMNS, COLUMNS) if new else orders[2] is COLUMNS
    assert found.T.flags.c_contiguous if by_columns else found.flags.c_contiguous


@pytest.mark.parametrize("orders", [(ROWS, COLUMNS), (COLUMNS, ROWS)], ids=["A B^T", "A^T B"])
@pytest.mark.parametrize("shape", [(67, 51, 37), (68, 52, 36)], ids=str)
def test_beyond_one_tile_each_order_is_right(orders, shape):
    m, n, k = shape
    a, b = (order(one) for order, one in zip(orders, (integers(m, k), integers(k, n)), strict=True))
    assert (worklog.sgemm(a, b) == a @ b).all()
    assert (worklog.sgemm(a, b, COLUMNS(integers(m, n)), beta=1) == a @ b + integers(m, n)).all()


def test_without_alpha_nothing_is_read_and_without_beta_c_is_not():
    nothing = np.full((3, 3), np.nan, np.float32)
    for mode in ("fp32", worklog.rung("naive")):  # naive reads A and B whatever alpha is
        assert (worklog.sgemm(nothing, nothing, alpha=0, mode=mode) == 0).all()
    assert (
        worklog.sgemm(integers(3, 2), integers(2, 3), nothing.copy())
        == integers(3, 2) @ integers(2, 3)
    ).all()


@pytest.mark.parametrize("order", [ROWS, COLUMNS])
def test_winograd_is_exact_on_integers_in_both_orders(order):
    a = order(integers(512, 32))
    b = order(integers(32, 512))
    c = order(integers(512, 512))
    expected = 2 * (a @ b) - 0.5 * c
    assert (worklog.sgemm(a, b, c, alpha=2, beta=-0.5, mode="winograd") == expected).all()


@pytest.mark.parametrize(
    ("name", "shape"), [("naive", (33, 40, 7)), ("ragged", (5, 8, 4)), ("ragged", (5, 7, 3))]
)
def test_a_rung_is_called_the_same_way_and_has_its_passes_at_each_shape(name, shape):
    """At the first of its shapes, no pass of ragged copies its factors.

    The code of its kernel is the same.
    """
    m, n, k = shape
    a = integers(m, k)
    b = integers(k, n)
    assert (worklog.rung(name)(a, b, alpha=-1) == -(a @ b)).all()
    with pytest.raises(BadSetting, match=f"size {m}x{n}x{k} is outside warptiled's domain"):
        worklog.rung("warptiled")(a, b)


A = integers(4, 4)
B = integers(4, 4)
TOO_LONG = {"A": np.zeros((2048, 4), np.float32), "B": np.zeros((4, 2**20), np.float32)}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"A": A.astype(np.float64)},
            "A is float64, and the kernels compute in float32: convert it",
        ),
        ({"B": [[1.0]]}, "B is list: give a NumPy or CuPy array or a PyTorch tensor"),
        ({"A": A[0]}, "A has 1 dimensions: give a matrix"),
        ({"B": integers(3, 4)}, "A is 4 x 4 and B 3 x 4: A needs as many columns as B has rows"),
        ({"C": integers(4, 5)}, "C is 4 x 5, and A B is 4 x 4"),
        ({"A": integers(4, 8)[:, ::2]}, r"A has gaps, .* give numpy.ascontiguousarray\(A\)"),
        ({"C": integers(4, 8)[:, :4]}, r"C has gaps, .* C\[\.\.\.\] = worklog.sgemm\(A, B\)"),
        (
            {"A": np.broadcast_to(np.float32(1), (2**31, 4))},
            "A is 2147483648 x 4: kernels take sizes up to 2147483647",
        ),
        (
            {"B": COLUMNS(B), "mode": worklog.rung("naive")},
            "some matrices are row-major .*: take best, or copy",
        ),
        ({"A": A, "C": A}, "C shares memory with A: give C memory of its own"),
        ({"beta": 2}, "beta is not 0, and there is no C to multiply by it"),
        ({"alpha": "2"}, "alpha is str: give a number"),
        ({"mode": "bf16"}, "mode is 'bf16': choose from fp32, split, winograd"),
        (
            {"mode": "winograd"},
            r"4 is outside of winograd's domain \(M % 256 == 0, .*\): pad the matrices with zeros",
        ),
        ({"max_error": 1e-8}, "no kernel keeps max_error=1e-08 at 4: give 5.96e-08 or more"),
        ({"max_error": 1e-3, "mode": "split"}, "max_error chooses the kernel: omit mode"),
        ({"max_error": "1e-3"}, "max_error is str: give a number"),
        (
            {"mode": worklog.Kernel.from_function("numpy:dot")},
            "dot is a host function: call the function itself",
        ),
        (TOO_LONG, "too long on the emulator"),
        ({"B": OnHost((4, 4), 2**20)}, "A is of numpy and B of cupy"),
        (
            {"A": OnHost((4, 4), 0), "B": OnHost((4, 4), 64), "C": OnHost((4, 4), 128, gpu=1)},
            "on GPU 0 and C on GPU 1",
        ),
    ],
)
def test_what_it_does_not_take_is_an_error_of_one_line(changed, why):
    words: dict[str, Any] = {"A": A, "B": B, "C": None, **changed}
    with pytest.raises(WorklogError, match=why) as found:
        worklog.sgemm(words.pop("A"), words.pop("B"), words.pop("C"), **words)
    assert "\n" not in str(found.value)


def test_a_tensor_on_the_host_and_one_that_needs_a_gradient_are_errors(monkeypatch):
    words = {
        "__module__": "torch",
        "dtype": "torch.float32",
        "T": None,
        "device": "cpu",
        "requires_grad": True,
    }
    words |= {
        "shape": (4,),
        **dict.fromkeys(("data_ptr", "get_device", "stride"), lambda tensor: 0),
    }
    host, needing = (type("Tensor", (), {**words, "is_cuda": on_gpu})() for on_gpu in (False, True))
    torch = SimpleNamespace(is_grad_enabled=lambda: True, float32="torch.float32")
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(
        BadSetting, match=r"A is a tensor on the cpu: move it to a GPU with \.cuda\(\)"
    ):
        worklog.sgemm(host, host)
    with pytest.raises(
        BadSetting,
        match=r"A requires a gradient, and the kernels have none: use worklog\.pytorch\.sgemm",
    ):
        worklog.sgemm(needing, needing)
    torch.is_grad_enabled = lambda: False
    with pytest.raises(BadSetting, match="A has 1 dimensions: give a matrix"):
        worklog.sgemm(needing, needing)


class Noting:
    """A GPU, and CuPy on it, as far as sgemm needs them.

    It notes launches as a driver reads them: entry, stream, and the values of the parameters.
    """

    chip = Chip("sm_80")
    stream_handle = 7
    capturing = False
    empty: Any = None

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.grids: list[tuple[int, ...]] = []
        self.allocated: list[int] = []
        self.programs: list[Any] = []
        self.free = 2**40
        self.context = 11
        self.stream: Any = None
        self.place: Any = None

    @property
    def cuda(self) -> Any:
        driver = SimpleNamespace(
            ctxGetCurrent=lambda: self.context,
            launchKernel=self.launch,
            launchCooperativeKernel=lambda *numbers: self.launch(*numbers, "together"),
            CUDADriverError=MemoryError,
        )
        runtime = SimpleNamespace(
            streamIsCapturing=lambda ptr: self.capturing, memGetInfo=self.make_current
        )
        current = SimpleNamespace(ptr=self.stream_handle)
        return SimpleNamespace(
            driver=driver,
            runtime=runtime,
            get_current_stream=lambda: current,
            Device=lambda number: nullcontext(),
        )

    def make_current(self) -> None:
        self.context = 11

    def compile(self, program: Any) -> Any:
        self.programs.append(program)
        function = SimpleNamespace(kernel=SimpleNamespace(ptr=len(self.programs) - 1))
        return SimpleNamespace(function=function, shared=program.shared)

    def allocate(self, elements: int) -> Any:
        if 4 * elements > self.free:
            raise OutOfMemory("allocating 1 MiB: out of memory")
        self.allocated.append(elements)
        return SimpleNamespace(size=elements, data=SimpleNamespace(ptr=2**50 + len(self.allocated)))

    def launch(self, function: int, *numbers: int) -> None:
        *sizes, stream, arguments, how = numbers
        program = self.programs[function]
        assert self.context == 11 and len(sizes) == 7 and min(sizes[:6]) > 0
        assert how == ("together" if program.cooperative else 0)
        kinds = {parameter.name: ctype_of(parameter) for parameter in SGEMM.signature}
        kinds |= {"workspace": ctypes.c_void_p, "long N": ctypes.c_int64}
        at = (ctypes.c_void_p * len(program.arguments)).from_address(arguments)
        values = (
            kinds[name].from_address(address).value
            for name, address in zip(program.arguments, at, strict=True)
        )
        self.launches.append((program.entry, stream, *values))
        self.grids.append(tuple(sizes[:3]))


@pytest.fixture
def noting(monkeypatch):
    found = Noting()
    found.place = OnGpu(0, found, 11, GPU)
    monkeypatch.setattr(module, "_on_gpu", lambda number: found.place)
    monkeypatch.setitem(sys.modules, "cupy", found)
    streams = SimpleNamespace(stream_of=lambda handle: SimpleNamespace(ptr=handle))
    monkeypatch.setitem(sys.modules, "worklog.gpu.cuda", streams)
    return found


def operands(shape: Shape, offset: int = 0) -> list[OnHost]:
    sizes = (shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n)
    return [
        OnHost(size, at + offset) for size, at in zip(sizes, (2**20, 2**30, 2**40), strict=True)
    ]


def multiply(
    side: Shape | int, offset: int = 0, by_columns: bool = False, mode: Any = "fp32"
) -> None:
    a, b, c = operands(Shape.of(side), offset)
    worklog.sgemm(a, b.T if by_columns else b, c, mode=mode)


# in parts of K
DEEP = Shape(128, 128, 16384)
DEEPER = Shape(1024, 1024, 65536)


def test_a_workspace_belongs_to_a_stream_and_grows(noting):
    for stream, shape in (
        (7, DEEP),
        (7, DEEP),
        (8, DEEP),
        (7, DEEPER),
        (7, DEEP),
        (7, Shape.of(4096)),
    ):
        # as in a new thread
        noting.stream_handle = stream
        noting.context = 0
        multiply(shape)
        assert noting.launches[-1][1] == stream and noting.context == 11
    assert len(noting.allocated) == 3 and noting.allocated[0] == noting.allocated[1]
    assert noting.stream.ptr == 7, "where memory was allocated last"
    entries = [program.entry for program in noting.programs]
    assert len(entries) == len(set(entries))


@pytest.mark.parametrize(
    ("shape", "mode"),
    [
        (Shape.of(64), "fp32"),
        (DEEP, "fp32"),
        (Shape.of(4096), "split"),
        (Shape.of(128), "warptiled"),
    ],
)
def test_a_repeated_call_looks_up_its_plan(shape, mode, noting):
    """It opens no file, and calls few functions, since each costs the host about 0.1 µs."""
    noting.chip = Chip("sm_90")
    mode = mode if mode in module.MODES else worklog.rung(mode)
    multiply(shape, mode=mode)
    first, noting.launches = noting.launches, []
    again = operands(shape, 4096)
    calls = list[str]()

    def note(frame: Any, event: str, called: Any) -> None:
        assert event != "c_call" or called.__name__ not in ("open", "stat")
        if event == "call" and frame.f_code.co_filename == module.__file__:
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        worklog.sgemm(*again, alpha=2.0, mode=mode)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 8, calls
    assert len(noting.launches) == len(first)
    for before, after in zip(first, noting.launches, strict=True):
        addresses = (2.0, again[0].data.ptr, again[1].data.ptr, 0.0, again[2].data.ptr)
        assert after == (*before[:5], *addresses, *before[10:])
        assert before[2:6] == (shape.m, shape.n, shape.k, 1.0)


def test_a_kernel_that_waits_for_its_grid_is_launched_together(noting):
    text = (
        "__global__ void f(float* A, float* B, float* C, long N) { "
        "cooperative_groups::this_grid().sync(); }"
    )
    multiply(32, mode=worklog.Kernel.from_source(text, grid="N / 32", block="32, 8"))
    assert noting.launches == [("f", 7, 2**20, 2**30, 2**40, 32)]


def test_a_column_major_c_swaps_the_factors(noting):
    a, b, _ = operands(Shape(64, 96, 32))
    worklog.sgemm(a, b, OnHost((96, 64), 2**40).T)
    assert noting.launches[-1][1:10] == (7, 96, 64, 32, 1.0, b.data.ptr, a.data.ptr, 0.0, 2**40)
    with pytest.raises(BadSetting, match="C shares memory with B"):
        worklog.sgemm(a, b, OnHost((64, 96), b.data.ptr + 4 * (32 * 96 - 1)))
    worklog.sgemm(a, b, OnHost((64, 96), b.data.ptr + 4 * 32 * 96))


@pytest.mark.parametrize(("m", "n"), [(1, 96), (96, 1)])
def test_a_vector_and_a_matrix_by_columns_are_swapped_so_that_both_are_by_rows(m, n, noting):
    a = OnHost((999, m), 2**20).T
    b = OnHost((n, 999), 2**30).T
    worklog.sgemm(a, b, OnHost((m, n), 2**40))
    entry, *values = noting.launches[-1]
    assert entry.startswith("sgemm_sliced<") and values == [
        7,
        n,
        m,
        999,
        1.0,
        2**30,
        2**20,
        0.0,
        2**40,
    ]
    x = COLUMNS(integers(m, 40))
    y = COLUMNS(integers(40, n))
    assert (worklog.sgemm(x, y) == x @ y).all() and worklog.sgemm(x, y).shape == (m, n)


def test_nothing_is_compiled_or_allocated_while_a_graph_is_captured(noting):
    noting.capturing = True
    with pytest.raises(
        BadSetting,
        match=f"best at {DEEP} is new: call sgemm once with these shapes and on this stream",
    ):
        multiply(DEEP)
    noting.capturing = False
    multiply(DEEP)
    noting.capturing = True
    module._plan.cache_clear()  # as many other shapes would do
    multiply(DEEP)
    with pytest.raises(BadSetting, match=f"{DEEPER} is new: call sgemm once"):
        multiply(DEEPER)
    noting.stream_handle = 8
    with pytest.raises(BadSetting, match=r"needs .* MiB of workspace: call sgemm once"):
        multiply(DEEP)
    noting.stream_handle = 7
    noting.capturing = False
    held = noting.launches[-1][-1]
    multiply(DEEPER)
    in_graphs = module._on_gpu(0)._in_graphs
    assert [*in_graphs] == [held], "a graph's workspace lives as long as the process"
    noting.stream_handle = 0
    noting.capturing = True
    multiply(DEEP)  # the legacy stream can't be captured, and isn't asked


def test_without_memory_for_a_workspace_the_error_names_its_size(noting):
    noting.free = 1000
    with pytest.raises(OutOfMemory, match=f"sgemm: {DEEP} needs 2.0 MiB of workspace: allocating"):
        multiply(DEEP)
    noting.free = 2**40
    multiply(DEEP)
    assert len(noting.launches) == 2


def test_a_gpu_is_named_for_which_the_table_may_not_hold(noting):
    with warnings.catch_warnings(action="error"):
        multiply(64)
        noting.place.card = replace(
            GPU, name="NVIDIA H100 80GB HBM3", memory_clock_mhz=2619.0, memory_bus_bits=5120
        )
        multiply(48)
    noting.place.card = replace(GPU, name="NVIDIA H100 PCIe", multiprocessors=114)
    with pytest.warns(
        UserWarning, match="this is an NVIDIA H100 PCIe with 114: .* may be slower"
    ) as said:
        a, b, c = operands(Shape.of(32))
        worklog.sgemm(a, b, c)
    assert said[0].filename == __file__


@pytest.mark.parametrize("name", ["equal_shares", "ragged", "split"])
def test_a_block_per_multiprocessor_of_the_gpu_is_launched(name, noting):
    noting.chip = Chip("sm_90", 114)
    multiply(2048, mode=worklog.rung(name))
    assert (114, 1, 1) in noting.grids
    multiply(4096, mode="split")
    assert noting.grids[-1] == (114, 1, 1)


def test_a_misaligned_array_takes_narrow_accesses_and_other_kernels_refuse_it(noting):
    worklog.sgemm(*operands(Shape.of(64))[:2], operands(Shape.of(64), offset=4)[2])
    assert noting.launches[-1][0] == choose(Shape.of(64), aligned=False).entry
    noting.empty = lambda size, dtype: OnHost(size, 2**40 + 4)  # by an allocator of the user's own
    worklog.sgemm(*operands(Shape.of(96))[:2])
    assert noting.launches[-1][0] == choose(Shape.of(96), aligned=False).entry
    assert noting.launches[-1][9] == 2**40 + 4
    with pytest.raises(
        BadSetting, match=r"A is not at a multiple of 16 bytes, which warptiled needs .* or copy"
    ):
        multiply(128, offset=4, mode=worklog.rung("warptiled"))
    for wrong, name in enumerate("ABC"):
        by_columns = [
            OnHost((128, 128), 2**20 + 2**30 * number + 4 * (number == wrong)).T
            for number in range(3)
        ]
        with pytest.raises(BadSetting, match=f"{name} is not at a multiple of 16 bytes"):
            worklog.sgemm(*by_columns, mode=worklog.rung("warptiled"))
    multiply(128, offset=4, mode=worklog.rung("tiles_2d"))
    assert "tiles_2d" in noting.launches[-1][0]
    with pytest.raises(
        BadSetting, match=r"split can't be launched: .* this GPU runs sm_80; take mode"
    ):
        multiply(4096, mode="split")


def test_split_is_taken_where_it_pays_and_otherwise_best(noting):
    noting.chip = Chip("sm_90")

    def launched(*arguments: Any, **words: Any) -> str:
        multiply(*arguments, mode="split", **words)
        return str(noting.launches[-1][0]).partition("<")[0].removesuffix("_sum")

    small = {"sgemm_best", "sgemm_sliced"}  # one of these
    assert launched(4096) == "sgemm_split" and launched(32) in small
    assert launched(4096, offset=4) == "sgemm_split"
    assert [launched(Shape(4096, 4096, k)) for k in (699, 700)] == ["sgemm_best", "sgemm_split"]
    thin = Shape(4096, 128, 2048)
    assert launched(thin) in ("sgemm_split", "add_parts")
    noting.place.card = replace(GPU, memory_clock_mhz=0.5 * GPU.memory_clock_mhz)
    module._plan.cache_clear()
    assert launched(thin) == "sgemm_best", "where memory is slower"
    with warnings.catch_warnings(action="error"):
        assert launched(32, by_columns=True) in small, "as for any order"
    with pytest.warns(
        UserWarning, match="and split takes .*: best is used instead, which is slower"
    ) as said:
        assert launched(4096, by_columns=True) == "sgemm_best"
    assert said[0].filename == __file__


def test_winograd_is_taken_only_when_asked_and_is_never_replaced(noting):
    noting.chip = Chip("sm_90")
    multiply(8192, mode="winograd")
    first, second = noting.launches[-2:]
    assert first[0].startswith("form_sums<") and second[0].startswith("sgemm_winograd<")
    assert noting.grids[-1] == (132, 1, 1)
    with pytest.raises(BadSetting, match="A is not at a multiple of 16 bytes, which winograd"):
        multiply(8192, offset=4, mode="winograd")
    with pytest.raises(BadSetting, match="winograd takes one order for all: take best, or copy"):
        multiply(8192, by_columns=True, mode="winograd")
    with pytest.raises(BadSetting, match="8200 is outside of winograd's domain"):
        multiply(8200, mode="winograd")


def test_the_stream_of_a_tensor_is_torchs_current_one(noting, monkeypatch):
    torch = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda number: 40 + number)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    plan = module._plan("fp32", True, (0, 0, 0), *(("cupy", 0, (64, 64), (256, 4)) for _ in "ABC"))
    plan.library = "torch"
    OnGpu(1, noting, 11, GPU).launch(plan, [(1.0, 2**20, 2**30, 0.0, 2**40)])
    assert noting.launches[-1][1] == 41
