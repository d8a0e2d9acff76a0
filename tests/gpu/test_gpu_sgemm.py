"""worklog.sgemm on a GPU.

CuPy and PyTorch, single products and batches, streams, graphs, layouts, alignment, and the gate on
every tile of best.
"""

import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import worklog
from tests import helpers
from tests.products import drawn, largest_error
from worklog.errors import BadSetting
from worklog.gate import SgemmChecker
from worklog.gpu.device import gpu
from worklog.kernel.ladder.best import table
from worklog.kernel.ladder.rungs import EXACT, any_shape, sliced
from worklog.problem import Shape

# On a GPU for which best's table may not hold, sgemm says once that a choice may be slow.
pytestmark = pytest.mark.filterwarnings("ignore:sgemm. best chooses by a table:UserWarning")
SHAPES = (
    (1, 1, 1),
    (33, 1, 1021),
    (1, 1000, 77),
    (1, 4100, 515),
    (4097, 1, 512),
    (1021, 1021, 1021),
    (128, 128, 16384),
    (2048, 130, 64),
)
SHAPES_OF_BATCHES = ((33, 1, 515), (130, 257, 77), (128, 128, 16384))


def integers(library: Any, rows: int, columns: int, seed: int = 0, *, products: int = 0) -> Any:
    """Return a matrix of integers on the GPU, or a batch of so many matrices."""
    host = helpers.integers((products or 1) * rows, columns, seed)
    if products:
        host = host.reshape(products, rows, columns)
    return library.asarray(host) if library.__name__ == "cupy" else library.from_numpy(host).cuda()


@pytest.fixture(params=["cupy", "torch"])
def library(request):
    return pytest.importorskip(request.param)


def same(one: Any, other: Any) -> bool:
    return bool((one == other).all())


@pytest.mark.parametrize(
    ("shape", "batched"),
    [*product(SHAPES, [""]), *product(SHAPES_OF_BATCHES, ["ABC", "BC", "AC"])],
    ids=str,
)
@pytest.mark.parametrize("by_columns", [*product((False, True), repeat=3)], ids=str)
def test_it_is_exact_on_integers(library, shape, batched, by_columns):
    m, n, k = shape
    matrices = []
    for name, size, by in zip("ABC", ((m, k), (k, n), (m, n)), by_columns, strict=True):
        products = 5 if name in batched else 0
        stored = integers(library, *(size[::-1] if by else size), products=products)
        matrices.append(stored.swapaxes(-1, -2) if by else stored)
    a, b, c = matrices
    expected = 2 * (a @ b) + 3 * c
    assert worklog.sgemm(a, b, c, alpha=2, beta=3) is c
    assert same(c, expected)
    assert same(worklog.sgemm(a, b), a @ b)


def test_split_is_as_accurate_as_fp32(library):
    if gpu().compute_capability != (9, 0):
        pytest.skip("the rung split is for compute capability 9.0")
    a, b = (integers(library, 1021, 1021, seed) * 0.1 for seed in range(2))
    exact = (
        (a.astype("d") @ b.astype("d")) if library.__name__ == "cupy" else a.double() @ b.double()
    )
    assert (
        float(abs(worklog.sgemm(a, b, mode="split") - exact).max())
        <= float(abs(a @ b - exact).max()) * 1.5
    )


@pytest.mark.parametrize("max_error", [6.1e-8, 1e-6, 2e-5, 1e-3])
@pytest.mark.parametrize(
    "shape", [(70, 1021, 515), (1021, 1021, 1021), (2048, 2048, 2048), (128, 128, 16384)], ids=str
)
def test_no_drawn_product_misses_max_error(shape: tuple[int, int, int], max_error: float) -> None:
    cupy = pytest.importorskip("cupy")
    for seed in range(13):  # a kind each, and one more: 208 products
        product = drawn(seed, Shape(*shape))
        a, b, c = map(cupy.asarray, (product.a, product.b, product.c))
        worklog.sgemm(a, b, c, alpha=product.alpha, beta=product.beta, max_error=max_error)
        assert largest_error(product, c, cupy) <= max_error, (seed, product.kind)


@pytest.mark.parametrize("mode", ["fp32", "split"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (128, 128, 16384), (2048, 2048, 512)], ids=str)
def test_a_repeated_call_opens_no_file_and_is_right_on_other_arrays(
    library, shape, mode, monkeypatch
):
    m, n, k = shape
    if mode == "split" and gpu().compute_capability != (9, 0):
        pytest.skip("the rung split is for compute capability 9.0")

    def multiply(seed: int, offset: int = 0, by_columns: bool = False) -> None:
        memory = integers(library, 1, m * k + offset, seed)[0]
        b = integers(library, n, k, seed).T if by_columns else integers(library, k, n, seed)
        a = memory[offset:].reshape(m, k)
        c = integers(library, m, n, seed)
        expected = 2 * (a @ b) + c
        found = worklog.sgemm(a, b, c, alpha=2, beta=1, mode=mode)
        assert bool(abs(found - expected).max() < 0.5), "of integers"

    with warnings.catch_warnings(
        action="ignore", category=UserWarning
    ):  # split takes best for some
        for seed in (1, 2):
            multiply(seed)
            multiply(seed, offset=1)
            multiply(seed, by_columns=True)
    a, b, c = (integers(library, *sizes) for sizes in ((m, k), (k, n), (m, n)))
    worklog.sgemm(a, b, c, mode=mode)

    def refuse(*arguments: Any, **words: Any) -> Any:
        raise AssertionError(f"a repeated call looks for {arguments}")

    with monkeypatch.context() as patched:
        for name in ("builtins.open", "io.open", "os.stat"):
            patched.setattr(name, refuse)
        worklog.sgemm(a, b, c, mode=mode)
    assert bool(abs(c - a @ b).max() < 0.5)


def test_two_threads_on_two_streams_are_right_together():
    torch = pytest.importorskip("torch")

    def multiply(seed: int) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            a = integers(torch, 128, 4096, seed)
            b = integers(torch, 4096, 128, seed)
            expected = a @ b
            return all(same(worklog.sgemm(a, b), expected) for _ in range(200))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(multiply, range(4)))


@pytest.mark.parametrize("shape", [(1021, 1021, 1021), (128, 128, 16384)], ids=str)
def test_it_runs_in_a_graph_of_cupy_after_one_call(shape):
    cupy = pytest.importorskip("cupy")
    m, n, k = shape
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = integers(cupy, m, k)
        b = integers(cupy, k, n)
        c = integers(cupy, m, n)
        worklog.sgemm(a, b, c)
        stream.begin_capture()
        worklog.sgemm(a, b, c)
        graph = stream.end_capture()
        for seed in (1, 2):
            a[...] = integers(cupy, m, k, seed)
            c[...] = 0
            graph.launch(stream)
            stream.synchronize()
            assert same(c, a @ b)


@pytest.mark.parametrize("products", [0, 4])
def test_it_runs_in_a_graph_of_torch_after_one_call(products):
    torch = pytest.importorskip("torch")
    a = integers(torch, 256, 4096, products=products)
    b = integers(torch, 4096, 256, products=products)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        worklog.sgemm(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        c = worklog.sgemm(a, b)
    a.copy_(integers(torch, 256, 4096, 1, products=products))
    graph.replay()
    torch.cuda.synchronize()
    assert same(c, a @ b)


def test_the_matrices_of_a_batch_may_lie_at_any_distance(library):
    sizes = enumerate(((64, 65), (65, 66), (64, 66)))
    a, b, c = (integers(library, *size, seed, products=6)[seed % 2 :: 2] for seed, size in sizes)
    expected = a @ b
    worklog.sgemm(a, b, c)
    assert same(c, expected)


@pytest.mark.parametrize("length", [128, 512])
def test_attentions_products_are_those_of_bmm(length):
    torch = pytest.importorskip("torch")
    queries, keys, values = (integers(torch, length, 64, seed, products=16) for seed in range(3))
    scores = worklog.sgemm(queries, keys.transpose(1, 2))
    assert torch.equal(scores, queries.bmm(keys.transpose(1, 2)))
    weights = scores.remainder(5)
    assert torch.equal(worklog.sgemm(weights, values), weights.bmm(values))


def test_a_new_shape_in_a_capture_is_an_error_and_the_capture_goes_on():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = integers(cupy, 320, 320)
        c = cupy.empty_like(a)
        worklog.sgemm(a[:32, :32].copy(), a[:32, :32].copy())
        stream.begin_capture()
        with pytest.raises(BadSetting, match="is new: call sgemm once"):
            worklog.sgemm(a, a, c)
        stream.end_capture()


TILES = [tile for tile in table().tiles if tile.kernel == "best"]
TILES += [tile for tile in table().batched if tile.template not in [t.template for t in TILES]]
TEMPLATES = [tile.template for tile in TILES]


def name_of(template: Mapping[str, int]) -> str:
    return f"{template['BM']}x{template['BN']}x{template['BK']} w{template['WIDTH']}"


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("template", TEMPLATES, ids=name_of)
def test_every_tile_passes_the_gate(template, parts):
    passes_the_gate(any_shape(template, parts))


@pytest.mark.parametrize("products", [1, 3])
@pytest.mark.parametrize("by_columns", [*product((False, True), repeat=2)][1:], ids=str)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: name_of(tile.template))
def test_every_tile_is_exact_in_every_order_that_it_takes(tile, by_columns, products):
    from worklog.gpu.cuda import CudaDevice

    if not tile.takes(tile.template["WIDTH"], by_columns[0]):
        pytest.skip("the tile doesn't copy an A in column-major order")
    device = CudaDevice()
    kernel = any_shape(tile.template, 1, by_columns[0], by_columns[1], products > 1)
    shape = kernel.domain.padded(Shape(203, 259, 101))
    a = helpers.integers(products * shape.m, shape.k, 1).reshape(products, shape.m, shape.k)
    b = helpers.integers(products * shape.k, shape.n, 2).reshape(products, shape.k, shape.n)
    stored = [x.swapaxes(1, 2) if by else x for x, by in zip((a, b), by_columns, strict=True)]
    factors = [device.upload(np.ascontiguousarray(x).ravel()) for x in stored]
    c = device.allocate(products * shape.m * shape.n)
    kernel.load(device).enqueue(replace(shape, batch=products), 1.0, *factors, 0.0, c)
    assert (device.download(c).reshape(products, shape.m, shape.n) == a @ b).all()


@pytest.mark.parametrize(
    "template", [tile.template for tile in table().tiles if tile.kernel == "sliced"], ids=str
)
def test_every_tile_whose_threads_share_out_k_passes_the_gate(template):
    passes_the_gate(sliced(template))


def test_sums_in_double_precision_pass_the_gate():
    passes_the_gate(EXACT)


def passes_the_gate(kernel: worklog.Kernel) -> None:
    from worklog.gpu.cuda import CudaDevice

    device = CudaDevice()
    verdict = SgemmChecker(device, kernel.domain.padded(Shape(1000, 1021, 515)), 0).check(
        kernel.load(device)
    )
    assert verdict.accepted and verdict.precision == "fp32", verdict.reason
