"""The rung `best`: right at any shape with every tile and any parts of K, chosen by a table that says what it is."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import asdict, astuple, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worklog
from tests.helpers import typed
from worklog.analysis.prediction import predict
from worklog.emulator import EmulatedDevice, load
from worklog.errors import BadRunFile, WorklogError
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.kernel import best, resources
from worklog.kernel.best import BULK, Table, choose, kernel_of, read, table, work_of
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem.gemm import Domain, Shape
from worklog.runner import tuned
from worklog.runs import Estimate, recorded_run
from worklog.runs.measurement import Measurement

BEST = worklog.rung("best")
SMALL = st.integers(1, 70)
DEVICE = EmulatedDevice()
GPU = recorded_run().gpu
LOADED = {
    (index, parts): kernel_of(tuned.TEMPLATES[index], parts).load(DEVICE)
    for index in (7, 16)  # the smallest tiles of each width, which have the same code as the others
    for parts in (1, 3)
} | {(16, 64): kernel_of(tuned.TEMPLATES[16], 64).load(DEVICE)}


@settings(max_examples=12)
@given(m=SMALL, n=SMALL, k=SMALL, which=st.sampled_from(sorted(LOADED)), data=st.data())
def test_every_shape_is_right_with_every_width_and_any_parts(m: int, n: int, k: int, which: Any, data: Any) -> None:
    subject, rng = LOADED[which], np.random.default_rng(m * n * k)
    shape = subject.domain.padded(Shape(m, n, k))
    alpha, beta = (data.draw(st.sampled_from([0.0, 1.0, -0.5, 2.0])) for _ in range(2))
    a, b = (rng.integers(-8, 9, sizes).astype(np.float32) for sizes in ((shape.m, shape.k), (shape.k, shape.n)))
    before = rng.integers(-8, 9, (shape.m, shape.n)).astype(np.float32)
    result = Buffers(Memory(DEVICE, rng), a, b).run(subject, alpha, beta, before)
    assert result.trespass == ""
    assert (result.c == alpha * (a @ b) + beta * before).all()


@pytest.mark.parametrize("parts", [1, 3])
def test_with_alpha_0_the_inputs_are_not_read_and_with_beta_0_c_is_not(parts: int) -> None:
    shape, nothing = Shape(5, 6, 7), np.full((5, 7), np.nan, np.float32)
    buffers = Buffers(Memory(DEVICE, np.random.default_rng(0)), nothing, np.full((7, 6), np.nan, np.float32))
    subject = LOADED[16, parts]
    assert (buffers.run(subject, 0.0, 2.0, 3.0).c == 6).all()
    assert (buffers.run(subject, 0.0, 0.0, np.full((shape.m, shape.n), np.nan, np.float32)).c == 0).all()


def test_the_largest_tile_compiles_without_a_warning_and_in_registers() -> None:
    out = compile_cuda(kernel_of(tuned.TEMPLATES[0]).program)
    assert "warning" not in out.log.lower(), out.log
    assert out.spill_store_bytes == 0
    tool = resources.disassembler()
    if tool is None or not version("nvidia-cuda-nvrtc").startswith("13.0."):
        pytest.skip("the order of the multiply-adds was chosen in the code of NVRTC 13.0, with a disassembler")
    assert resources.main_loop(resources.disassemble(out.cubin, tool), out.symbol).bank_conflicts < 0.05


def test_sizes_past_32_bits_and_more_rows_of_tiles_than_a_grid_has_are_covered() -> None:
    """The last block reads and writes inside matrices of more than 2^31 elements."""
    kernel = kernel_of(tuned.TEMPLATES[14])
    out = compile_cuda(kernel.program)
    parsed = load(out.ptx, out.symbol, out.shared_accesses)
    for shape in (Shape(5_000_001, 65, 513), Shape(65, 5_000_001, 513)):
        x, y, z = kernel.blocks(shape)
        rows, columns = -(-shape.m // 64), -(-shape.n // 32)
        assert y <= 65535 and z == 1 and x * y >= rows * columns
        last = ((rows - 1) % y) * x + (rows - 1) // y * columns + columns - 1
        counts = predict(parsed, kernel, shape, blocks={last: 1}).counts
        tall, wide = shape.m - (rows - 1) * 64, shape.n - (columns - 1) * 32
        assert counts.global_store.bytes == 4 * tall * wide


def test_best_takes_every_shape_and_resolves_to_ordinary_kernels() -> None:
    assert BEST.domain == Domain(bytes_of=(16, 16, 16)) and pickle.loads(pickle.dumps(BEST)) == BEST
    few, deep, odd = BEST.at(Shape.of(4096)), BEST.at(Shape(128, 128, 16384)), BEST.at(Shape.of(1021))
    assert len(few.launches) == 1 and few.workspace == ""
    assert len(deep.launches) == 2 and deep.workspace_bytes(Shape(128, 128, 16384)) > 128 * 128 * 4
    assert (few.template["WIDTH"], odd.template["WIDTH"]) == (4, 1)
    fresh = BEST.with_text("// another text").at(Shape.of(4096))
    assert (fresh.source, fresh.template) == ("// another text", few.template)
    assert choose(Shape.of(4096), aligned=False).template["WIDTH"] == 1
    assert all(Shape.of(n) in BEST.at(Shape.of(n)).domain for n in range(1, 70))


def test_on_compute_capability_9_0_bulk_copies_is_among_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """At aligned shapes of its whole tiles; its code runs on no other GPU. A run says what was launched."""
    *tiles, bulk = table().tiles
    at_once = replace(bulk, alone_us=0.0, shared_us=0.0, block_us=0.0)
    monkeypatch.setattr(best, "table", partial(replace, table(), tiles=(*tiles, at_once)))
    shape, any_gpu = Shape(128, 256, 24), choose.__wrapped__
    hopper = partial(any_gpu, arch="sm_90")
    assert hopper(shape) == BULK and BULK.missing_on("sm_80")
    others = any_gpu(shape), any_gpu(shape, arch="sm_80"), hopper(Shape(133, 257, 30))
    others += hopper(shape, aligned=False), hopper(shape, a_by_columns=True)
    assert {other.file for other in others} == {BEST.file}
    subject: Any = replace(BEST, choose=any_gpu).load(DEVICE, fresh=True)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, size).astype(np.float32) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    assert (Buffers(Memory(DEVICE, rng), a, b).run(subject, 1.0, 0.0, 0.0).c == a @ b).all()
    about = json.loads(json.dumps(subject.describe()))
    assert about["choices"][str(shape)][0]["entry"].startswith("sgemm_bulk_copies<")


def test_blocks_that_run_together_are_replaced_together_where_a_multiprocessor_holds_few() -> None:
    """At 1792 in two parts, 392 tiles: behind 264 in a first wave, 128 are left for 132 multiprocessors."""
    tile = replace(table().tiles[0], resident=2)
    assert work_of(tile, 2, Shape.of(1792), 132).rounds == ((2, 112), (2, 112))
    even = replace(tile, resident=4)
    assert work_of(even, 4, Shape.of(1792), 132).rounds == ((4, 56), (2, 56))  # 256 left


def test_the_table_names_each_tile_once_and_says_whether_it_was_measured() -> None:
    assert table().label.startswith("measured on an ")
    assert [tile.template for tile in table().tiles] == [*tuned.TEMPLATES, BULK.template]


def swept(true: Table) -> list[Measurement]:
    """What a sweep would measure if these were the true times."""
    counts = (1, tuned.SEVERAL, tuned.MANY)
    kinds = {tuned.name_of(one.template, n): (one, n) for one in true.tiles[:-1] for n in counts}
    kinds[BULK.name] = true.tiles[-1], 1
    return [
        timed(name, shape, true.split_us(shape) if name == "split" else true.us(*kinds[name], shape))
        for name, shape in tuned.points(GPU)
    ]


def timed(name: str, shape: Shape, us: float) -> Measurement:
    return Measurement(name, astuple(shape), time=Estimate(us, us, us))


def test_a_sweep_gives_back_the_times_that_made_it() -> None:
    new = {"launch_us": 3.0, "sum_us": 4.0, "sum_gbs": 2000.0}
    run, true = recorded_run(), replace(table(), **new, split_launch_us=9.0)
    alone = [1.0 if t.resident == 1 else 1.5 for t in true.tiles]
    tiles = tuple(
        replace(t, alone_us=ratio * t.shared_us, block_us=0.5) for t, ratio in zip(true.tiles, alone, strict=True)
    )
    true = replace(true, tiles=tiles)
    biased = replace(swept(true)[0], time=Estimate(0.01, 0.01, 0.01), changed={"l2": "warm"})
    found = tuned.fitted(replace(run, measurements=[*swept(true), biased]))
    assert found.label.startswith("measured on an NVIDIA H200, driver ") and "split" not in found.label
    assert {name: getattr(found, name) for name in new} == pytest.approx(new, rel=0.05)
    for shape in tuned.SHAPES:
        assert found.split_us(shape) == pytest.approx(true.split_us(shape), rel=0.01)
    for tile, other in zip(tiles, found.tiles, strict=True):
        assert asdict(other) == asdict(tile) | {
            name: pytest.approx(getattr(tile, name), rel=0.05) for name in ("alone_us", "shared_us", "block_us")
        }
    older = tuned.fitted(replace(run, measurements=[m for m in swept(true) if "WIDTH" in m.kernel]))
    assert older.label.endswith("; of split as in the table before") and len(older.tiles) == len(tiles) - 1
    of_first = {tuned.name_of(tiles[0].template, n) for n in (1, tuned.SEVERAL, tuned.MANY)}
    late = [timed(m.kernel, m.problem, (m.us or 0.0) + 20.0 * (m.kernel in of_first)) for m in swept(true)]
    disturbed = tuned.fitted(replace(run, measurements=late))
    assert disturbed.launch_us == pytest.approx(3.0, rel=0.05), "one tile alone doesn't move the table"
    with pytest.raises(BadRunFile, match="measure: worklog sweep best"):
        tuned.fitted(run)


def test_a_sweep_measures_what_its_kernels_are_and_every_tile() -> None:
    points, names = tuned.points(GPU), {kernel.name for kernel in tuned.kernels()}
    assert len({*points}) == len(points) <= 360  # about 0.8 s each
    assert {name for name, _ in points} == names | {BULK.name, "split"}
    assert {name for name, _ in tuned.points(replace(GPU, compute_capability=(8, 0)))} == names


def test_the_command_shows_the_table_and_makes_it_from_a_sweeps_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = typed("sweep", "best", "--preview")
    assert shown.exit_code == 0 and table().label.split(":")[0] in " ".join(shown.output.split())
    assert len(re.findall(r"^ *\d+ x \d+ x \d+ ", shown.output, re.MULTILINE)) == len(table().tiles)
    monkeypatch.setattr(tuned, "FILE", tmp_path / "best.json")
    path = tmp_path / "run.json"
    replace(recorded_run(), measurements=swept(table())).save(path)
    done = typed("sweep", "best", "--from", str(path))
    assert done.exit_code == 0, done.output
    written = read(tmp_path / "best.json")
    assert written.label.startswith("measured on an NVIDIA H200") and len(written.tiles) == len(table().tiles)
    with pytest.raises(WorklogError, match="install gemm-worklog again"):
        read(path)
    monkeypatch.setattr(tuned, "FILE", path / "best.json")
    with pytest.raises(WorklogError, match="install the package where you may write"):
        tuned.write(table())
