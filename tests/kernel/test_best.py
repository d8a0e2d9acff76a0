"""The rung `best`.

Right at any shape with every tile and any parts of K, chosen by a table that says what it is.
"""

import json
import math
import pickle
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worklog
from tests.helpers import integers
from worklog.emulator import load
from worklog.emulator.limits import Chip
from worklog.errors import WorklogError
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.kernel import resources
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder import best
from worklog.kernel.ladder.best import BULK, candidates, choose, fp32_bound, table
from worklog.kernel.ladder.rungs import any_shape, sliced
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.prediction import predict
from worklog.problem import Domain, Shape
from worklog.runs import Run, recorded_run, recordings
from worklog.runs.sources import CHAPTERS

BEST = worklog.rung("best")
SMALL = st.integers(1, 70)
DEVICE = EmulatedDevice()
TEMPLATES = [tile.template for tile in table().tiles if tile.kernel == "best"]
SLICED = [tile.template for tile in table().tiles if tile.kernel == "sliced"]
# The smallest tiles of each width, which have the same code as the others, and those of 16, 48 and
# 96 rows.
CASES = [(16, 64), *((index, parts) for index in (7, 16, 17, 18, 20, 21) for parts in (1, 3))]


@cache
def loaded(index: int, parts: int) -> Any:
    return any_shape(TEMPLATES[index], parts).load(DEVICE)


def require_exact(subject: Any, shape: Shape, alpha: float, beta: float) -> None:
    """Require the product of small integers, and that nothing beside it is written."""
    rng = np.random.default_rng(shape.flops)
    sizes = ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    a, b, before = (rng.integers(-8, 9, size).astype(np.float32) for size in sizes)
    result = Buffers(Memory(DEVICE, rng), a, b).run(subject, alpha, beta, before)
    assert result.trespass == "" and (result.c == alpha * (a @ b) + beta * before).all()


@settings(max_examples=12)
@given(m=SMALL, n=SMALL, k=SMALL, which=st.sampled_from(sorted(CASES)), data=st.data())
def test_every_shape_is_right_with_every_width_and_any_parts(m, n, k, which, data):
    subject = loaded(*which)
    alpha, beta = (data.draw(st.sampled_from([0.0, 1.0, -0.5, 2.0])) for _ in range(2))
    require_exact(subject, subject.domain.padded(Shape(m, n, k)), alpha, beta)


@pytest.mark.parametrize("parts", [1, 3])
def test_with_alpha_0_the_inputs_are_not_read_and_with_beta_0_c_is_not(parts):
    shape = Shape(5, 6, 7)
    nothing = np.full((5, 7), np.nan, np.float32)
    buffers = Buffers(
        Memory(DEVICE, np.random.default_rng(0)), nothing, np.full((7, 6), np.nan, np.float32)
    )
    subject = loaded(16, parts)
    assert (buffers.run(subject, 0.0, 2.0, 3.0).c == 6).all()
    assert (
        buffers.run(subject, 0.0, 0.0, np.full((shape.m, shape.n), np.nan, np.float32)).c == 0
    ).all()


@pytest.mark.parametrize("k", [1, 77, 4096])
def test_a_sliced_tile_is_offered_for_the_error_of_its_chain_lanes_and_warps(k):
    """A lane adds its products, then 5 steps add those of a warp.

    Then one thread adds those of the warps.
    """
    for template in SLICED:
        kernel = sliced(template)
        shape = Shape(1, template["BN"], k)
        least = fp32_bound(
            math.ceil(k / template["BK"]) + math.log2(32) + kernel.thread_count // 32
        )
        offered = [
            any(
                make() == kernel
                for _, make in candidates(shape, aligned=template["WIDTH"] == 4, max_error=error)
            )
            for error in (least, 0.999 * least)
        ]
        assert offered == [True, False], template


def test_the_largest_tile_compiles_without_a_warning_and_in_registers():
    out = compile_cuda(any_shape(TEMPLATES[0]).program)
    assert "warning" not in out.log.lower(), out.log
    assert out.spill_store_bytes == 0
    loop = resources.loop_of(out.cubin, out.symbol)
    if loop is None or not version("nvidia-cuda-nvrtc").startswith("13.0."):
        pytest.skip(
            "the order of the multiply-adds was chosen in the code of NVRTC 13.0, with a "
            "disassembler"
        )
    assert loop.bank_conflicts < 0.05


def test_sizes_past_32_bits_and_more_rows_of_tiles_than_a_grid_has_are_covered():
    """The last block reads and writes inside matrices of more than 2^31 elements."""
    kernel = any_shape(TEMPLATES[14])
    out = compile_cuda(kernel.program)
    parsed = load(out.ptx, out.symbol, out.shared_accesses)
    for shape in (Shape(5_000_001, 65, 513), Shape(65, 5_000_001, 513)):
        x, y, z = kernel.blocks(shape)
        rows = -(-shape.m // 64)
        columns = -(-shape.n // 32)
        assert y <= 65535 and z == 1 and x * y >= rows * columns
        last = ((rows - 1) % y) * x + (rows - 1) // y * columns + columns - 1
        counts = predict(parsed, kernel, shape, blocks={last: 1}).counts
        tall = shape.m - (rows - 1) * 64
        wide = shape.n - (columns - 1) * 32
        assert counts.global_store.bytes == 4 * tall * wide


def test_best_takes_every_shape_and_resolves_to_ordinary_kernels():
    assert BEST.domain == Domain(bytes_of=(16, 16, 16)) and pickle.loads(pickle.dumps(BEST)) == BEST
    few = BEST.at(Shape.of(4096))
    deep = BEST.at(Shape(128, 128, 16384))
    odd = BEST.at(Shape.of(1021))
    assert len(few.launches) == 1 and few.workspace == ""
    assert len(deep.launches) == 2 and deep.workspace_bytes(Shape(128, 128, 16384)) > 128 * 128 * 4
    assert (few.template["WIDTH"], odd.template["WIDTH"]) == (4, 1)
    fresh = BEST.with_text("// another text").at(Shape.of(4096))
    assert (fresh.source, fresh.template) == ("// another text", few.template)
    assert choose(Shape.of(4096), aligned=False).template["WIDTH"] == 1
    assert all(Shape.of(n) in BEST.at(Shape.of(n)).domain for n in range(1, 70))


def test_the_blocks_of_many_shapes_are_those_of_each():
    shapes = [
        Shape(128, 128, 16384),
        Shape.of(4096),
        Shape.of(1021),
        Shape(256, 128, 16384),
        Shape(128, 128, 16384),
    ]
    chosen = [BEST.at(shape, DEVICE.chip) for shape in shapes]
    sizes = np.transpose([*(shape.sizes for shape in shapes)])
    for launched in chosen[0].passes:
        key = launched.program.sha256
        blocks = list[tuple[int, ...]]()
        for kernel, shape in zip(chosen, shapes, strict=True):
            own = [part.blocks(shape)[:2] for part in kernel.passes if part.program.sha256 == key]
            blocks += own or [(0, 0)]
        assert BEST.load(DEVICE).grids(key, *sizes).T.tolist() == [*map(list, blocks)]
        assert (0, 0) in blocks and blocks[0] == blocks[-1] != blocks[3]


def test_on_compute_capability_9_0_bulk_copies_is_among_the_tiles(monkeypatch):
    """At aligned shapes of its whole tiles; its code runs on no other GPU.

    A run says what was launched.
    """
    *tiles, bulk = table().tiles
    at_once = replace(bulk, alone_us=0.0, shared_us=0.0, block_us=0.0)
    monkeypatch.setattr(
        best, "table", partial(replace, table(), tiles=(*tiles, at_once), read_gbs=math.inf)
    )
    shape = Shape(128, 256, 24)
    any_gpu = choose.__wrapped__
    hopper = partial(any_gpu, chip=Chip("sm_90"))
    assert hopper(shape) == BULK and BULK.missing_on("sm_80")
    others = any_gpu(shape), any_gpu(shape, chip=Chip("sm_80")), hopper(Shape(133, 257, 30))
    others += hopper(shape, aligned=False), hopper(shape, a_by_columns=True)
    assert {other.file for other in others} <= {BEST.file, "sliced.cu"}
    subject: Any = replace(BEST, choose=any_gpu).load(DEVICE, fresh=True)
    require_exact(subject, shape, 1.0, 0.0)
    about = json.loads(json.dumps(subject.describe()))
    assert about["choices"][str(shape)][0]["entry"].startswith("sgemm_bulk_copies<")


def test_blocks_that_run_together_are_replaced_together_where_a_multiprocessor_holds_few():
    """At 1792 in two parts, 392 tiles.

    Behind 264 in a first wave, 128 are left for 132 multiprocessors.
    """
    free = replace(
        table(), multiprocessors=132, launch_us=0.0, sum_us=0.0, sum_gbs=math.inf, read_gbs=math.inf
    )
    tile = replace(table().tiles[0], resident=2, alone_us=1.0, shared_us=1.0, block_us=0.0)
    assert free.us(tile, 2, Shape.of(1792)) == 2 * 112 + 2 * 112
    assert free.us(replace(tile, resident=4), 4, Shape.of(1792)) == 4 * 56 + 2 * 56  # 256 left
    assert free.us(replace(tile, block_us=10.0), 2, Shape.of(1792)) == 4 * 112 + 2 * 10, "two waves"
    assert free.us(replace(tile, resident=1, alone_us=3.0), 1, Shape.of(128)) == 3 * 16, (
        "a block alone"
    )
    assert free.us(tile, 1, Shape(2816, 1536, 800)) == 2 * 100, "264 blocks and no second wave"
    added_us = 4 * (2 * 2 + 1) * 1792**2 / 1e3
    assert replace(free, sum_gbs=1.0).us(tile, 2, Shape.of(1792)) == pytest.approx(
        4 * 112 + added_us
    )
    slow = replace(free, read_gbs=1.0, row_bytes=4.0)
    for shape, busy_us, few in (
        (Shape(2816, 1536, 800), 200, 1.0),
        (Shape(128, 1536, 800), 100, 132 / 24),
    ):
        read = shape.compulsory_bytes + 4 * 800 * 12
        assert slow.us(tile, 1, shape) == pytest.approx(math.hypot(busy_us, few * read / 1e3))
    assert replace(free, sum_us=5.0).us(tile, 2, Shape.of(1792)) == 4 * 112 + 5, (
        "and a launch that adds the parts"
    )


def test_the_table_names_each_tile_once_and_says_where_it_was_measured(monkeypatch, tmp_path):
    assert table().label.startswith("measured on an ")
    assert [tile.template for tile in table().tiles] == [*TEMPLATES, *SLICED, BULK.template]
    assert len({str(tile.template) for tile in table().tiles}) == len(table().tiles)
    assert len({*table().shapes}) == len(table().shapes) >= 30
    monkeypatch.setattr(best, "FILE", tmp_path / "none.json")
    with pytest.raises(WorklogError, match="install gemm-worklog again"):
        table.__wrapped__()


@pytest.mark.parametrize("template", SLICED, ids=str)
def test_k_that_threads_share_out_is_exact_and_nothing_beyond_is_read(template):
    kernel = sliced(template)
    for m, n, k in ((1, 1, 1), (1, 40, 517), (17, 5, 1030), (9, 33, 64)):
        for alpha, beta in ((1, 0), (-0.5, 2), (0, 1)):
            require_exact(kernel.load(DEVICE), kernel.domain.padded(Shape(m, n, k)), alpha, beta)
    assert not DEVICE.findings


@pytest.mark.parametrize("index", [17, 18, 20])
def test_a_tile_copies_the_whole_of_an_a_in_column_major_order_or_is_not_taken(index):
    """Tiles of 48 and 96 rows: 32 lanes along them don't always end at a tile's last row."""
    tile = best.Tile(TEMPLATES[index], 1, 1.0, 1.0, 1.0)
    taken = tile.takes(tile.template["WIDTH"], True)
    assert taken == (tile.template["WIDTH"] == 1 and tile.template["BM"] == 96)
    kernel = any_shape(tile.template, 1, True)
    if taken:
        shape = kernel.domain.padded(Shape(101, 131, 40))
        a, b = integers(shape.m, shape.k), integers(shape.k, shape.n)
        factors = map(DEVICE.upload, (np.ascontiguousarray(a.T), b))
        c = DEVICE.upload(np.zeros(shape.m * shape.n, np.float32))
        kernel.load(DEVICE).enqueue(shape, 1.0, *factors, 0.0, c)
        assert (DEVICE.download(c).reshape(shape.m, shape.n) == a @ b).all()
    else:
        with pytest.raises(WorklogError, match="the passes cover the tile"):
            kernel.load(DEVICE).launches_at(kernel.domain.padded(Shape.of(96)))


def test_tall_products_of_transposed_matrices_take_a_tile_that_copies_them():
    for m in range(1000, 3000, 48):
        chosen = choose(Shape(m, 484, 4059), a_by_columns=True)
        tile = best.Tile(chosen.template, 1, 1.0, 1.0, 1.0)
        assert tile.takes(4, True), m


def test_thin_products_take_the_kernel_that_shares_out_k_where_both_factors_are_by_rows():
    thin = (
        (1, 4096, 4096),
        (4095, 1, 63),
        (2, 4096, 4096),
        (3, 3, 255),
        (255, 3, 1023),
        (7, 127, 1023),
    )
    assert {choose(Shape(*shape)).file for shape in thin} == {"sliced.cu"}
    assert {choose(Shape.of(n)).file for n in (1024, 2047)} == {"30_best.cu"}
    for how in ({"a_by_columns": True}, {"b_by_columns": True}):
        assert choose(Shape(3, 3, 255), **how).file == "30_best.cu"
    assert choose(Shape(1, 4096, 4096), a_by_columns=True).file == "sliced.cu", "one row is both"
    assert choose(Shape(1, 4096, 4096)).template["WIDTH"] == 4
    for narrow in (choose(Shape(1, 4095, 4096)), choose(Shape(1, 4096, 4096), aligned=False)):
        assert narrow.template["WIDTH"] == 1 and narrow.template["BN"] >= 8, "whole sectors of B"


def test_wide_rows_of_b_are_read_where_they_occupy_the_gpu():
    """On an H100, 1x4096x4096 took 26.7 µs by 32 columns a block and 33.1 µs by 8.

    1x512x8192 took 21.1 and 10.1.
    """
    assert (
        choose(Shape(1, 4096, 4096)).template["BN"]
        >= 16
        > choose(Shape(1, 512, 8192)).template["BN"]
    )


def test_no_kernel_is_expected_to_read_faster_than_the_memory():
    for shape in (Shape(1, 4096, 4096), Shape(4096, 1, 4096), Shape(4097, 9, 1023)):
        for us, _ in best.candidates(shape):
            assert us > table().launch_us + shape.compulsory_bytes / table().read_gbs / 1e3


@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_a_choice_by_times_of_an_h200_loses_less_than_3_percent_on_an_h100(size):
    """By the recordings: kernels that are bound by FP32's units take 0.97 to 1.00 of the time."""
    files = recordings(CHAPTERS)
    on_h200 = recorded_run()
    of_h200 = {
        m.kernel: m.us for m in on_h200.select(shape=Shape.of(size)) if m.us and not m.changed
    }
    of_h100 = {
        m.kernel: m.us
        for m in Run.load(files["h100_tiles"], "recorded").select(shape=Shape.of(size))
        if m.us
    }
    ratios = [of_h100[name] / us for name, us in of_h200.items() if name in of_h100]
    assert (
        len(ratios) == 5
        and min(ratios) > 0.965
        and max(ratios) < 1
        and max(ratios) / min(ratios) < 1.03
    )
