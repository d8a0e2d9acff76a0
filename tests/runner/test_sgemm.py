"""worklog.sgemm: BLAS's semantics on the emulator, clear errors, and what a GPU's streams and graphs need."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worklog
from worklog.errors import BadSetting, OutOfMemory, OutsideDomain, WorklogError
from worklog.kernel.best import MOST_WORKSPACE, choose, table
from worklog.kernel.device import Resources
from worklog.problem.gemm import Shape
from worklog.runner import sgemm as module
from worklog.runner.sgemm import Matrix, OnGpu


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    for one in (module.once, module.warn_of_a_stale_table, module._kernels):
        one.cache_clear()


SIZE = st.integers(0, 20)
ROWS, COLUMNS = np.ascontiguousarray, np.asfortranarray


def integers(rows: int, columns: int, seed: int = 0) -> Any:
    return np.random.default_rng([rows, columns, seed]).integers(-8, 9, (rows, columns)).astype(np.float32)


@settings(max_examples=3)
@given(m=SIZE, n=SIZE, k=SIZE, orders=st.tuples(*[st.sampled_from([ROWS, COLUMNS])] * 3), new=st.booleans())
def test_it_is_blas_in_every_order_and_with_sizes_of_0(m: int, n: int, k: int, orders: Any, new: bool) -> None:
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
def test_beyond_one_tile_each_order_is_right(orders: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = (order(one) for order, one in zip(orders, (integers(m, k), integers(k, n)), strict=True))
    assert (worklog.sgemm(a, b) == a @ b).all()
    assert (worklog.sgemm(a, b, COLUMNS(integers(m, n)), beta=1) == a @ b + integers(m, n)).all()


def test_without_alpha_nothing_is_read_and_without_beta_c_is_not() -> None:
    nothing = np.full((3, 3), np.nan, np.float32)
    assert (worklog.sgemm(nothing, nothing, alpha=0) == 0).all()
    assert (worklog.sgemm(integers(3, 2), integers(2, 3), nothing.copy()) == integers(3, 2) @ integers(2, 3)).all()


@pytest.mark.parametrize(("name", "shape"), [("naive", (33, 40, 7)), ("ragged", (5, 8, 4)), ("ragged", (5, 7, 3))])
def test_a_rung_is_called_the_same_way_and_has_its_passes_at_each_shape(name: str, shape: tuple[int, ...]) -> None:
    """At the first of its shapes, no pass of ragged copies its factors, and the code of its kernel is the same."""
    m, n, k = shape
    a, b = integers(m, k), integers(k, n)
    assert (worklog.rung(name)(a, b, alpha=-1) == -(a @ b)).all()
    with pytest.raises(OutsideDomain, match=f"size {m}x{n}x{k} is outside warptiled's domain"):
        worklog.rung("warptiled")(a, b)


A, B = integers(4, 4), integers(4, 4)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"A": A.astype(np.float64)}, "A is float64, and the kernels compute in float32: convert it"),
    "library": ({"B": [[1.0]]}, "B is list: give a CuPy array or a PyTorch tensor"),
    "dimensions": ({"A": A[0]}, "A has 1 dimensions: give a matrix"),
    "inner": ({"B": integers(3, 4)}, "A is 4 x 4 and B 3 x 4: A needs as many columns as B has rows"),
    "C": ({"C": integers(4, 5)}, "C is 4 x 5, and A B is 4 x 4"),
    "gaps": (
        {"A": integers(4, 8)[:, ::2]},
        r"A has gaps, .* give numpy.ascontiguousarray\(A\)",
    ),
    "view": ({"C": integers(4, 8)[:, :4]}, r"C has gaps, .* C\[\.\.\.\] = worklog.sgemm\(A, B\)"),
    "size": (
        {"A": np.broadcast_to(np.float32(1), (2**31, 4))},
        "2147483648 x 4 x 4: kernels take sizes up to 2147483647",
    ),
    "orders": (
        {"B": COLUMNS(B), "mode": worklog.rung("naive")},
        "some matrices are row-major and some column-major, and naive takes one order for all: take best, or copy",
    ),
    "overlap": ({"C": A}, "C shares memory with A: give C memory of its own"),
    "beta": ({"beta": 2}, "beta is not 0, and there is no C to multiply by it"),
    "alpha": ({"alpha": "2"}, "alpha is str: give a number"),
    "mode": ({"mode": "bf16"}, "mode is 'bf16': choose from fp32, split"),
    "large": (
        {"A": np.zeros((2048, 4), np.float32), "B": np.zeros((4, 2**20), np.float32)},
        "too long on the emulator",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_it_does_not_take_is_an_error_of_one_line(case: str) -> None:
    changed, why = WRONG[case]
    words: dict[str, Any] = {"A": A.copy(), "B": B.copy(), **changed}
    if case == "overlap":
        words["A"] = words["C"]
    with pytest.raises(WorklogError, match=why) as found:
        worklog.sgemm(words.pop("A"), words.pop("B"), words.pop("C", None), **words)
    assert "\n" not in str(found.value)


def test_a_tensor_on_the_host_and_one_that_needs_a_gradient_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"__module__": "torch", "dtype": "torch.float32", "shape": (2, 2), "device": "cpu", "requires_grad": True}
    host, needing = (type("Tensor", (), {**words, "is_cuda": on_gpu})() for on_gpu in (False, True))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(is_grad_enabled=lambda: True))
    with pytest.raises(BadSetting, match=r"A is a tensor on the cpu: move it to a GPU with \.cuda\(\)"):
        worklog.sgemm(host, host)
    with pytest.raises(BadSetting, match=r"A requires a gradient, and the kernels have none: use torch\.no_grad\(\)"):
        worklog.sgemm(needing, needing)


class Noting:
    """A GPU as far as OnGpu needs one. It notes launches; arguments are addresses."""

    arch = "sm_80"

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.allocated: list[int] = []
        self.compiled: list[str] = []
        self.free = 2**40

    def compile(self, program: Any) -> Any:
        self.compiled.append(program.entry)
        return type("Executable", (), {"resources": Resources(1, 0, 0), "entry": program.entry})

    def allocate(self, elements: int) -> Any:
        if 4 * elements > self.free:
            raise OutOfMemory("allocating 1 MiB: out of memory")
        self.allocated.append(elements)
        return np.zeros(elements, np.float32)

    def launch(self, kernel: Any, grid: Any, block: Any, arguments: Any) -> None:
        self.launches.append((kernel.entry, *arguments))


class Place(OnGpu):
    """On a GPU whose library says which stream is current."""

    stream, capturing, driver = 7, False, table().driver

    def __init__(self) -> None:
        self.noting = Noting()
        super().__init__(0, self.noting)

    @contextmanager
    def current(self, library: str) -> Iterator[tuple[int, bool]]:
        yield self.stream, self.capturing

    def identity(self) -> tuple[str, str]:
        return table().gpu, self.driver

    def multiply(self, shape: Shape, most: int = MOST_WORKSPACE, aligned: bool = True) -> None:
        sizes = (shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n)
        a, b, c = (
            Matrix(one, None, "cupy", 0, address, size)
            for one, address, size in zip("ABC", (2**20, 2**30, 2**40), sizes, strict=True)
        )
        self.launch([module._best(each, aligned, False, False) for each in (most, 0)], shape, 1.0, a, b, 0.0, c)


DEEP, DEEPER = Shape(128, 128, 16384), Shape(1024, 1024, 65536)  # in parts of K


def test_a_workspace_belongs_to_a_stream_and_grows() -> None:
    place = Place()
    for stream, shape in ((7, DEEP), (7, DEEP), (8, DEEP), (7, DEEPER), (7, DEEP), (7, Shape.of(4096))):
        place.stream = stream
        place.multiply(shape)
    assert len(place.noting.allocated) == 3 and place.noting.allocated[0] == place.noting.allocated[1]
    assert len(place.noting.compiled) == len(set(place.noting.compiled))
    assert place.noting.launches[-1][5:9:2] == (2**20, 0.0)


def test_nothing_is_compiled_or_allocated_while_a_graph_is_captured() -> None:
    place = Place()
    place.capturing = True
    with pytest.raises(
        BadSetting, match=f"best at {DEEP} is new: call sgemm once with these shapes and on this stream"
    ):
        place.multiply(DEEP)
    place.capturing = False
    place.multiply(DEEP)
    place.capturing = True
    place.multiply(DEEP)
    with pytest.raises(BadSetting, match=f"{DEEPER} is new: call sgemm once"):
        place.multiply(DEEPER)
    place.stream = 8
    with pytest.raises(BadSetting, match=r"needs .* MiB of workspace: call sgemm once"):
        place.multiply(DEEP)
    place.stream, place.capturing = 7, False
    held = place.noting.launches[-1][-1]
    place.multiply(DEEPER)
    assert any(held is one for one in place._in_graphs), "a graph's workspace lives as long as the process"


def test_without_memory_for_parts_of_k_best_takes_one_part_and_says_so_once() -> None:
    place = Place()
    place.noting.free = 1000
    with pytest.warns(UserWarning, match="out of memory; best takes kernels without a workspace") as said:
        place.multiply(DEEP)
        place.multiply(DEEP)
    assert len(said) == 1
    assert place.noting.launches[-1][0] == choose(DEEP, most_workspace=0).entry


def test_a_table_of_another_driver_is_named() -> None:
    place = Place()
    with warnings.catch_warnings(action="error"):
        place.multiply(Shape.of(64))
    place.driver = "1.2.3"
    with pytest.warns(UserWarning, match="with driver 1.2.3: the result is right, and may be slower; worklog sweep"):
        place.multiply(Shape.of(64))


class OnHost:
    """A CuPy array as far as sgemm reads it before a launch."""

    __module__ = "cupy"
    dtype, itemsize = "float32", 4
    device = SimpleNamespace(id=0)

    def __init__(self, shape: tuple[int, int], address: int, strides: tuple[int, int] | None = None) -> None:
        self.shape, self.strides = shape, strides or (4 * shape[1], 4)
        self.data = SimpleNamespace(ptr=address)

    @property
    def T(self) -> OnHost:  # noqa: N802
        return OnHost(self.shape[::-1], self.data.ptr, self.strides[::-1])


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place()
    monkeypatch.setattr(module, "_on_gpu", lambda number: found)
    return found


def multiply(side: int, offset: int = 0, by_columns: bool = False, mode: Any = "fp32") -> None:
    a, b, c = (OnHost((side, side), address + offset) for address in (2**20, 2**30, 2**40))
    worklog.sgemm(a, b.T if by_columns else b, c, mode=mode)


def test_a_misaligned_array_takes_narrow_accesses_and_other_kernels_refuse_it(place: Place) -> None:
    multiply(64, offset=4)
    assert place.noting.launches[-1][0] == choose(Shape.of(64), aligned=False).entry
    with pytest.raises(BadSetting, match=r"not all arrays are at multiples of 16 bytes, and warptiled .* or copy"):
        multiply(128, offset=4, mode=worklog.rung("warptiled"))
    with pytest.raises(BadSetting, match=r"split can't be launched: .* this GPU runs sm_80; take mode"):
        multiply(4096, mode="split")


def test_split_is_taken_where_it_pays_and_otherwise_best(place: Place) -> None:
    place.noting.arch = "sm_90"

    def launched(*arguments: Any, **words: Any) -> str:
        multiply(*arguments, mode="split", **words)
        return str(place.noting.launches[-1][0]).partition("<")[0].removesuffix("_sum")

    assert launched(4096) == "sgemm_split" and launched(32) == "sgemm_best"
    for words in ({"by_columns": True}, {"offset": 4}):
        with pytest.warns(UserWarning, match="and split takes .*: best is used instead, which is slower") as said:
            assert launched(4096, **words) == "sgemm_best"
        assert said[0].filename == __file__
    place.noting.free = 2**20
    place.stream = 9
    with pytest.warns(UserWarning, match="out of memory; best takes kernels without a workspace") as said:
        assert launched(4096) == "sgemm_bulk_copies", "which best takes here"
    assert said[0].filename == __file__


@pytest.mark.parametrize(("library", "handle"), [("cupy", 5), ("torch", 6), ("torch", 0)])
def test_the_stream_is_the_librarys_current_one(library: str, handle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy: Any = ModuleType("cupy")
    null = SimpleNamespace(ptr=0)
    cupy.cuda = SimpleNamespace(
        Device=lambda number: nullcontext(),
        get_current_stream=lambda: SimpleNamespace(ptr=5),
        runtime=SimpleNamespace(streamIsCapturing=lambda ptr: ptr == 6),
    )
    current = SimpleNamespace(cuda_stream=handle)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    streams = SimpleNamespace(stream_of=lambda handle: SimpleNamespace(ptr=handle) if handle else null)
    monkeypatch.setitem(sys.modules, "worklog.gpu.cuda", streams)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda _: current)))
    place = OnGpu(0, SimpleNamespace(stream=None))
    with place.current(library) as found:
        assert found == (handle, handle == 6)
        assert place.device.stream.ptr == handle and (place.device.stream is null) is (handle == 0)


def test_one_library_and_one_gpu() -> None:
    here, elsewhere = OnHost((4, 4), 2**20), OnHost((4, 4), 2**30)
    with pytest.raises(BadSetting, match="A is of numpy and B of cupy"):
        worklog.sgemm(A, here, A.copy())
    elsewhere.device = SimpleNamespace(id=1)
    with pytest.raises(BadSetting, match="A is on GPU 0 and C on GPU 1"):
        worklog.sgemm(here, here, elsewhere)
