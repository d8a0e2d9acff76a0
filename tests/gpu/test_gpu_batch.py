"""worklog.sgemm of a batch on a GPU: exact on integers, broadcast, strides, graphs, attention."""

from itertools import product
from typing import Any

import pytest

import worklog
from tests.helpers import integers

torch = pytest.importorskip("torch")
# On a GPU for which best's table may not hold, sgemm says once that a choice may be slow.
pytestmark = pytest.mark.filterwarnings("ignore:sgemm. best chooses by a table:UserWarning")
SHAPES = [(1, 1, 1), (33, 1, 515), (130, 257, 77), (128, 128, 16384)]


def batch(count: int, rows: int, columns: int, seed: int = 0, *, by_columns: bool = False) -> Any:
    """Return a batch of matrices of integers on the GPU, each by rows or by columns."""
    sizes = (columns, rows) if by_columns else (rows, columns)
    made = torch.from_numpy(integers(count * sizes[0], sizes[1], seed)).cuda()
    made = made.reshape(count, *sizes)
    return made.transpose(1, 2) if by_columns else made


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("by_columns", [*product((False, True), repeat=3)], ids=str)
@pytest.mark.parametrize("alone", ["", "A", "B"])
def test_each_product_is_exact_on_integers(shape, by_columns, alone):
    m, n, k = shape
    a = batch(5, m, k, 1, by_columns=by_columns[0])
    b = batch(5, k, n, 2, by_columns=by_columns[1])
    c = batch(5, m, n, 3, by_columns=by_columns[2])
    if alone == "A":
        a = a[2]
    if alone == "B":
        b = b[2]
    expected = 2 * (a @ b) + 3 * c
    assert torch.equal(worklog.sgemm(a, b), a @ b)
    assert worklog.sgemm(a, b, c, alpha=2, beta=3) is c
    assert torch.equal(c, expected)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_the_matrices_may_lie_at_any_distance(library):
    a, b, c = (batch(6, 64, 65, 1)[::2], batch(6, 65, 66, 2)[1::2], batch(6, 64, 66, 3)[::2])
    if library == "cupy":
        cupy = pytest.importorskip("cupy")
        a, b, c = map(cupy.asarray, (a, b, c))
        cupy.cuda.Stream.null.synchronize()
    expected = a @ b
    worklog.sgemm(a, b, c)
    assert bool((c == expected).all())


def test_a_batch_runs_in_a_graph_after_one_call():
    a = batch(4, 128, 4096)
    b = batch(4, 4096, 128)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        worklog.sgemm(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        c = worklog.sgemm(a, b)
    a.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(c, a @ b)


@pytest.mark.parametrize("length", [128, 512])
def test_attentions_products_are_those_of_bmm(length):
    queries, keys, values = (batch(16, length, 64, seed) for seed in range(3))
    scores = worklog.sgemm(queries, keys.transpose(1, 2))
    assert torch.equal(scores, queries.bmm(keys.transpose(1, 2)))
    weights = scores.remainder(5)
    assert torch.equal(worklog.sgemm(weights, values), weights.bmm(values))
