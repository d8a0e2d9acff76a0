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
from worklog.emulator import EmulatedDevice
from worklog.emulator.launch import load
from worklog.emulator.predict import predict
from worklog.errors import BadRunFile
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gpu.device import Gpu
from worklog.kernel import resources
from worklog.kernel.best import BULK, FILE, RAGGED, Table, Tile, choose, kernel_of, read, shares_of, table
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.source import filled
from worklog.problem.gemm import Domain, Shape
from worklog.runner import tuned
from worklog.runs.measurement import Measurement
from worklog.runs.run import recorded_run

BEST = worklog.rung("best")
SMALL = st.integers(1, 70)
DEVICE = EmulatedDevice()
GPU = Gpu.of(recorded_run().device)
LOADED = {
    (index, parts): kernel_of(tuned.TEMPLATES[index], parts).load(DEVICE)
    for index in (5, 10)  # the smallest tiles, which have the same code as the others
    for parts in (1, 3)
} | {(10, 96): kernel_of(tuned.TEMPLATES[10], 96).load(DEVICE)}


@settings(max_examples=20, deadline=None)
@given(m=SMALL, n=SMALL, k=SMALL, which=st.sampled_from(sorted(LOADED)), data=st.data())
def test_every_shape_is_right_with_every_width_and_any_parts(m: int, n: int, k: int, which: Any, data: Any) -> None:
    subject, rng = LOADED[which], np.random.default_rng(m * n * k)
    shape = subject.domain.padded(Shape(m, n, k))
    alpha, beta = (data.draw(st.sampled_from([0.0, 1.0, -0.5, 2.0])) for _ in range(2))
    a, b = (rng.integers(-8, 9, sizes).astype(np.float32) for sizes in ((shape.m, shape.k), (shape.k, shape.n)))
    before = rng.integers(-8, 9, (shape.m, shape.n)).astype(np.float32)
    result = Buffers(Memory(DEVICE, rng), a, b).run(subject, alpha, beta, before)
    assert result.trespass is None
    assert (result.c == alpha * (a @ b) + beta * before).all()


@pytest.mark.parametrize("parts", [1, 3])
def test_with_alpha_0_the_inputs_are_not_read_and_with_beta_0_c_is_not(parts: int) -> None:
    shape, nothing = Shape(5, 6, 7), np.full((5, 7), np.nan, np.float32)
    buffers = Buffers(Memory(DEVICE, np.random.default_rng(0)), nothing, np.full((7, 6), np.nan, np.float32))
    subject = LOADED[10, parts]
    assert (buffers.run(subject, 0.0, 2.0, 3.0).c == 6).all()
    assert (buffers.run(subject, 0.0, 0.0, np.full((shape.m, shape.n), np.nan, np.float32)).c == 0).all()


def test_the_largest_tile_compiles_without_a_warning_and_in_registers() -> None:
    out = compile_cuda(kernel_of(tuned.TEMPLATES[0]).program)
    assert "warning" not in out.log.lower(), out.log
    assert out.spill_store_bytes == 0
    tool = resources.disassembler()
    if tool is None or not version("nvidia-cuda-nvrtc").startswith("13.0."):
        pytest.skip("the order of the multiply-adds was chosen in the code of NVRTC 13.0, with a disassembler")
    assert resources.bank_conflicts(resources.disassemble(out.cubin, tool), out.symbol) < 0.05


def test_sizes_past_32_bits_and_more_rows_of_tiles_than_a_grid_has_are_covered() -> None:
    """The last block reads and writes inside matrices of more than 2^31 elements."""
    kernel = kernel_of(tuned.TEMPLATES[10])
    out = compile_cuda(kernel.program)
    parsed = load(out.ptx, out.symbol, out.shared_accesses)
    for shape in (Shape(5_000_001, 65, 513), Shape(65, 5_000_001, 513)):
        x, y, z = kernel.blocks(shape)
        rows, columns = -(-shape.m // 64), -(-shape.n // 16)
        assert y <= 65535 and z == 1 and x * y >= rows * columns
        last = ((rows - 1) % y) * x + (rows - 1) // y * columns + columns - 1
        counts = predict(parsed, kernel, shape, blocks={last: 1}).counts
        tall, wide = shape.m - (rows - 1) * 64, shape.n - (columns - 1) * 16
        assert counts.global_store.bytes == 4 * tall * wide


def test_best_takes_every_shape_and_resolves_to_ordinary_kernels() -> None:
    assert BEST.domain == Domain() and pickle.loads(pickle.dumps(BEST)) == BEST
    few, deep, odd = BEST.at(Shape.of(4096)), BEST.at(Shape(128, 128, 16384)), BEST.at(Shape.of(1021))
    assert few.after == () and few.workspace == ""
    assert deep.after and deep.bytes_of("workspace", Shape(128, 128, 16384)) > 128 * 128 * 4
    assert (few.template["WIDTH"], odd.template["WIDTH"]) == (4, 1)
    fresh = replace(BEST, text="// another text").at(Shape.of(4096))
    assert (fresh.source, fresh.template) == ("// another text", few.template)
    assert choose(Shape.of(4096), aligned=False).template["WIDTH"] == 1

    assert not choose(Shape(128, 128, 16384), most_workspace=0).workspace
    assert all(Shape.of(n) in BEST.at(Shape.of(n)).domain for n in range(1, 70))


def test_on_compute_capability_9_0_bulk_copies_and_ragged_are_among_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """bulk_copies at shapes of whole tiles, ragged at any; their code runs on no other GPU."""
    monkeypatch.setattr("worklog.kernel.best.EQUAL", 1e9)  # the largest tile that may be taken
    shape, odd, hopper = Shape.of(4096), Shape(133, 257, 30), partial(choose.__wrapped__, arch="sm_90")
    assert hopper(shape) == BULK and BULK.only_on_9_0
    for at in (partial(hopper, shape, aligned=False), partial(hopper, odd)):
        ragged = at()
        assert ragged.file == "19_ragged.cu" and [one.function for one in ragged.before] == ["copy_rows"]
        assert ragged.after == ()  # each block has the same number of whole tiles
        assert at(most_workspace=0).workspace == "" and at(most_workspace=0).file == BEST.file
    for other in (choose(shape), choose(shape, arch="sm_80"), hopper(shape, a_by_columns=True)):
        assert other.file == BEST.file
    anew = replace(BEST, choose=choose.__wrapped__)  # not what is kept for this shape
    for shape, file, name in ((Shape(128, 256, 24), BULK.file, "sgemm_bulk_copies<"), (odd, ragged.file, "copy_rows")):
        subject, rng = anew.load(DEVICE, fresh=True), np.random.default_rng(0)
        assert DEVICE.arch == "sm_90" and subject.kernel.at(shape, DEVICE.arch).file == file
        a, b = (rng.integers(-9, 10, size).astype(np.float32) for size in ((shape.m, shape.k), (shape.k, shape.n)))
        given = [DEVICE.upload(x) for x in (a, b, np.zeros((shape.m, shape.n), np.float32))]
        subject.enqueue(shape, 1.0, *given[:2], 0.0, given[2])
        assert (DEVICE.download(given[2]).reshape(shape.m, shape.n) == a @ b).all()
        assert anew.describe(subject)["choices"][str(shape)][0]["entry"].startswith(name)


def test_ragged_gets_as_many_blocks_as_the_gpu_holds_or_whole_parts_of_each_tile() -> None:
    (tile,) = (one for one in table().tiles if one.kernel == "ragged" and one.template["BN"] == 256)
    assert shares_of(tile, Shape.of(4096), 132) == [128, 132]
    assert shares_of(tile, Shape(128, 512, 64), 132) == [2, 4, 6, 8, 132]  # each part has two tiles of K at least
    assert table().us(tile, 132, Shape.of(4095)) > table().us(tile, 132, Shape.of(4096))  # copies cost time
    assert table().us(tile, 132, Shape.of(4096), aligned=False) > table().us(tile, 132, Shape.of(4096))


def test_a_run_file_has_what_was_launched_at_each_shape() -> None:
    subject: Any = BEST.load(DEVICE)
    shape = Shape(8, 8, 256)
    a, b, c = (DEVICE.upload(np.ones(size, np.float32)) for size in (8 * 256, 256 * 8, 8 * 8))
    subject.enqueue(shape, 1.0, a, b, 0.0, c)
    assert (DEVICE.download(c) == shape.k).all()
    about = json.loads(json.dumps(BEST.describe(subject)))
    assert [launch["entry"] for launch in about["choices"]["8x8x256"]] == [one.entry for one in BEST.at(shape).passes]


def test_the_table_names_each_tile_once_and_says_whether_it_was_measured() -> None:
    found = read(json.loads(FILE.read_text()))
    assert found == table() and found.label.startswith(("estimated for an ", "measured on an "))
    known = [*tuned.TEMPLATES, BULK.template, *RAGGED]
    assert [tile.template for tile in found.tiles] == [
        one for one in known if any(one == t.template for t in found.tiles)
    ]
    assert len(found.tiles) >= 16
    assert filled("WIDTH", tuned.TEMPLATES[0]) == "4"


def with_every_tile(found: Table) -> Table:
    """An older sweep has fewer tiles."""
    held = {tuned.name_of(tile.template, 1): tile for tile in found.tiles}
    ours = [held.get(tuned.name_of(one, 1), Tile(one, 4, 2.0, 1.0, 0.5)) for one in tuned.TEMPLATES]
    return replace(found, tiles=(*ours, *(tile for tile in found.tiles if tile.kernel != "best")))


def swept(true: Table) -> list[Measurement]:
    """What a sweep would measure if these were the true times."""
    kinds = {tuned.name_of(tile.template, n): (tile, n) for tile in true.tiles for n in (1, tuned.MANY)}
    for tile in (one for one in true.tiles if one.kernel == "ragged"):
        kinds |= {tuned.name_of(tile.template, n): (tile, n * true.multiprocessors) for n in (1, tile.resident)}
    kinds[BULK.name] = next((tile, 1) for tile in true.tiles if tile.kernel == BULK.name)
    return [
        Measurement(
            name,
            astuple(shape),
            "measured",
            us=true.split_us(shape) if name == "split" else true.us(*kinds[name], shape),
        )
        for name, shape in tuned.points(GPU)
    ]


def test_a_sweep_gives_back_the_times_that_made_it() -> None:
    new = {"launch_us": 3.0, "sum_us": 4.0, "sum_gbs": 2000.0, "copy_us": 5.0, "copy_gbs": 3000.0}
    run, true = recorded_run(), replace(with_every_tile(table()), **new, split_launch_us=9.0)
    alone = [1.0 if t.resident == 1 else 1.5 for t in true.tiles]
    tiles = tuple(
        replace(t, alone_us=ratio * t.shared_us, block_us=0.5) for t, ratio in zip(true.tiles, alone, strict=True)
    )
    true = replace(true, tiles=tiles)
    found = tuned.fitted(replace(run, measurements=swept(true)))
    assert found.label.startswith("measured on an NVIDIA H200, driver ") and "estimated" not in found.label
    assert {name: getattr(found, name) for name in new} == pytest.approx(new, rel=0.05)
    for shape in tuned.SHAPES:
        assert found.split_us(shape) == pytest.approx(true.split_us(shape), rel=0.01)
    for tile, other in zip(tiles, found.tiles, strict=True):
        assert asdict(other) == asdict(tile) | {
            name: pytest.approx(getattr(tile, name), rel=0.05) for name in ("alone_us", "shared_us", "block_us")
        }
    without = [m for m in swept(true) if "WIDTH" in m.kernel or m.kernel == BULK.name]
    older = tuned.fitted(replace(run, measurements=without))
    assert older.label.endswith("; of ragged estimated; of split estimated") and len(older.tiles) == len(tiles)
    cut = tuned.fitted(replace(run, measurements=[m for m in swept(true) if m.problem not in tuned.COPIED]))
    assert cut.label.endswith("; of ragged's copies as in the table before") and cut.copy_us == table().copy_us
    with pytest.raises(BadRunFile, match="measure: worklog sweep best"):
        tuned.fitted(run)


def test_a_sweep_measures_what_its_kernels_are_and_every_tile() -> None:
    points = tuned.points(GPU)
    assert len({*points}) == len(points) <= 300  # about 0.8 s each
    assert {kernel.name for kernel in tuned.kernels(GPU)} == {name for name, _ in points} - {BULK.name, "split"}
    older = replace(GPU, compute_capability=(8, 0))
    assert {name for name, _ in tuned.points(older)} == {kernel.name for kernel in tuned.kernels(older)}
    ragged = pickle.loads(pickle.dumps(tuned.kernels(GPU)[-1]))
    assert ragged.at(Shape(999, 999, 999)).template == RAGGED[-1]


def test_the_command_shows_the_table_and_makes_it_from_a_sweeps_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = typed("sweep", "best", "--preview")
    assert shown.exit_code == 0 and table().label.split(":")[0] in " ".join(shown.output.split())
    assert len(re.findall(r"^ *\d+ x \d+ x \d+ ", shown.output, re.MULTILINE)) == len(table().tiles)
    for words in (["naive"], ["best", "--axis", "BM=64"], ["best", "--from", str(tmp_path), "--estimate"]):
        assert typed("sweep", *words).exit_code == 2
    monkeypatch.setattr(tuned, "FILE", tmp_path / "best.json")
    path = tmp_path / "run.json"
    replace(recorded_run(), measurements=swept(with_every_tile(table()))).save(path)
    done = typed("sweep", "best", "--from", str(path))
    assert done.exit_code == 0, done.output
    written = read(json.loads((tmp_path / "best.json").read_text()))
    assert written.label.startswith("measured on an NVIDIA H200")
    assert [tile.template for tile in written.tiles] == [*tuned.TEMPLATES, BULK.template, *RAGGED]
