"""The binding of cuBLASLt, against a library that computes on the host's memory."""

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import integers
from worklog.errors import LaunchFailed, WorklogError
from worklog.gpu import cublaslt
from worklog.gpu.cublaslt import CallFailed, CublasLt, HeuristicResult, Library, alignment_of
from worklog.problem import Shape
from worklog.problem.formats import BFLOAT16, Types

SHAPE = Shape(5, 7, 3)
STREAM = 1234


class HostBuffer:
    """Memory of the host, at an address with this remainder of 512."""

    def __init__(self, elements: int, remainder: int = 0) -> None:
        memory = np.zeros(elements + 256, np.float32)
        start = (remainder - memory.ctypes.data) % 512 // 4
        self.array = memory[start : start + elements]
        self.size = elements
        self.nbytes = 4 * elements
        self.data = SimpleNamespace(ptr=self.array.ctypes.data)


class HostDevice:
    """A device whose launches run at once."""

    stream = SimpleNamespace(ptr=STREAM)

    def allocate(self, elements: int) -> HostBuffer:
        return HostBuffer(elements)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    source = Path(__file__).with_name("fake_cublaslt.c")
    library = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


@pytest.fixture
def fake(built):
    library = ctypes.CDLL(str(built))
    library.fake_stream.restype = ctypes.c_void_p
    library.fake_offer(3)
    library.fake_refuse(-1)
    return library


@pytest.fixture
def subject(fake):
    return CublasLt(HostDevice(), 16, Library(fake))


def filled(values: np.ndarray, remainder: int = 0) -> HostBuffer:
    buffer = HostBuffer(values.size, remainder)
    buffer.array[:] = values.ravel()
    return buffer


def operands(remainder: int = 0) -> tuple[HostBuffer, HostBuffer, HostBuffer]:
    a = integers(SHAPE.m, SHAPE.k)
    b = integers(SHAPE.k, SHAPE.n)
    return filled(a), filled(b), filled(integers(SHAPE.m, SHAPE.n, seed=1), remainder)


def expected(alpha: float, beta: float) -> np.ndarray:
    a = integers(SHAPE.m, SHAPE.k)
    b = integers(SHAPE.k, SHAPE.n)
    return alpha * (a @ b) + beta * integers(SHAPE.m, SHAPE.n, seed=1)


def test_the_structures_are_as_large_as_the_headers():
    assert ctypes.sizeof(HeuristicResult) == 64 + 8 + 4 + 4 + 16


def test_every_algorithm_computes_a_row_major_product_on_the_devices_stream(subject, fake):
    candidates = subject.candidates(SHAPE)
    assert [candidate.facts.id for candidate in candidates] == [20, 22, 23], "one had failed"
    assert [candidate.facts.index for candidate in candidates] == [0, 1, 2]
    for candidate in candidates:
        for beta in (0.0, 2.0):
            a, b, c = operands()
            candidate.enqueue(SHAPE, -3.0, a, b, beta, c)
            assert np.array_equal(c.array.reshape(SHAPE.m, SHAPE.n), expected(-3.0, beta))
    assert fake.fake_stream() == STREAM and fake.fake_open_preferences() == 0


def test_an_algorithm_has_names_as_in_the_header_and_numbers_beyond(subject):
    first, second, _ = [candidate.facts for candidate in subject.candidates(SHAPE)]
    assert str(first) == "id 20, tile 128x64, stages 8x5, split-K 1, 0 bytes of workspace"
    assert (second.tile, second.split_k, second.workspace_bytes) == ("number 502", 3, 2000)


def test_the_heuristic_is_asked_for_so_many_algorithms(fake):
    subject = CublasLt(HostDevice(), 1, Library(fake))
    assert len(subject.candidates(SHAPE)) == 1


def test_the_chosen_algorithm_runs_at_its_shape_and_the_first_one_elsewhere(subject, fake):
    chosen = subject.candidates(SHAPE)[1]
    subject.choose(chosen)
    fake.fake_refuse(chosen.facts.id)
    with pytest.raises(CallFailed, match="cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"):
        subject.enqueue(SHAPE, 1.0, *operands()[:2], 0.0, operands()[2])
    a, b, c = operands()
    other = Shape(SHAPE.m, SHAPE.n, SHAPE.k - 1)
    subject.enqueue(other, 1.0, a, b, 0.0, c)


def test_operands_of_a_lower_alignment_get_an_algorithm_that_takes_them(subject):
    aligned = subject.candidates(SHAPE)
    subject.choose(aligned[-1])  # it needs 256 bytes
    a, b, c = operands(remainder=16)
    assert alignment_of([a.data.ptr, b.data.ptr, c.data.ptr]) == 16
    subject.enqueue(SHAPE, 1.0, a, b, 0.0, c)
    assert np.array_equal(c.array.reshape(SHAPE.m, SHAPE.n), expected(1.0, 0.0))
    assert len(subject.product(SHAPE).algorithms(16, alignment=16)) == len(aligned) - 1


def test_a_workspace_is_the_callers_or_its_own(subject):
    needy = subject.candidates(SHAPE)[1]
    assert needy.workspace_elements(SHAPE) == 500
    a, b, c = operands()
    needy.use_workspace(HostBuffer(500))
    needy.enqueue(SHAPE, 1.0, a, b, 0.0, c)
    needy.use_workspace(HostBuffer(499))
    with pytest.raises(LaunchFailed, match="CUBLAS_STATUS_INVALID_VALUE"):
        needy.enqueue(SHAPE, 1.0, a, b, 0.0, c)
    needy.use_workspace(None)
    needy.enqueue(SHAPE, 1.0, a, b, 0.0, c)
    lent = HostBuffer(subject.workspace_elements(SHAPE))
    own = subject.workspace
    subject.use_workspace(lent)
    assert subject.workspace is lent
    subject.use_workspace(None)
    assert subject.workspace is own and own.nbytes == cublaslt.WORKSPACE_BYTES


def test_a_heuristic_without_an_algorithm_offers_none(subject, fake):
    fake.fake_offer(0)
    assert subject.candidates(SHAPE) == []
    a, b, c = operands()
    with pytest.raises(LaunchFailed, match="heuristic offers no algorithm at 5x7x3"):
        subject.enqueue(SHAPE, 1.0, a, b, 0.0, c)
    assert fake.fake_open_preferences() == 0


def test_types_of_16_bits_are_described_to_the_library(fake):
    """Only FP32 is reachable from a run: the fake library, which has no other, refuses them."""
    product = cublaslt.Product(Library(fake), SHAPE, Types(BFLOAT16, BFLOAT16))
    with pytest.raises(CallFailed, match="MatmulAlgoGetHeuristic: CUBLAS_STATUS_INVALID_VALUE"):
        product.algorithms(1)
    assert fake.fake_open_preferences() == 0


def test_a_missing_library_says_how_to_install_it(monkeypatch):
    def missing(name: str) -> ctypes.CDLL:
        raise RuntimeError(f"no {name} here\nlong story")

    monkeypatch.setattr(cublaslt, "nvidia_library", missing)
    with pytest.raises(WorklogError, match="cannot load cuBLASLt: no cublasLt here; install it"):
        Library()
