"""The pictures of notebook 03: what they draw is what the emulator counts."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from pytest import approx

from tests.plots.conftest import full_run
from worklog.emulator import launch, load
from worklog.kernel import Program, memories
from worklog.kernel.emulated import build
from worklog.plots import ground
from worklog.plots.ground.touched import touched_by
from worklog.plots.ground.waiting import Turns
from worklog.plots.style import ACCENT, BASELINE, FAINT
from worklog.runs.files import write_text
from worklog.viewer.accesses import access

WARP = 32
READS = """extern "C" __global__ void from_global(const float* x, const int* at, float* out) {
  out[threadIdx.x] = x[at[threadIdx.x]];
}
extern "C" __global__ void from_shared(const float* x, const int* at, float* out) {
  __shared__ float copy[2048];
  for (int i = threadIdx.x; i < 2048; i += 32) copy[i] = x[i];
  __syncthreads();
  out[threadIdx.x] = copy[at[threadIdx.x]];
}"""
STRIDES = (0, 1, 2, 3, 5, 8, 16, 32, 33)


def counted(entry: str, indices: list[int]):
    """Return the emulator's counts of a request at these floats, beside those of other loads."""
    compiled, _ = build(Program("reads.cu", READS, entry))
    kernel = load(compiled.ptx, compiled.symbol)
    arrays = [np.arange(2048, dtype=np.float32), np.array(indices, np.int32), np.zeros(WARP)]
    arrays[2] = arrays[2].astype(np.float32)
    counts = launch(kernel, (1,), WARP, arrays).counts
    np.testing.assert_array_equal(arrays[2], np.array(indices, np.float32))
    return counts


@pytest.mark.parametrize("stride", STRIDES)
def test_lines_sectors_and_wavefronts_are_those_of_the_emulator(stride):
    indices = [stride * lane for lane in range(WARP)]
    request = touched_by(indices)
    loads = counted("from_global", indices).global_load  # and one of the 32 indices
    assert len(request.sectors) == loads.sectors - 4
    assert len(request.lines) == loads.cache_lines - 1
    assert request.wavefronts == counted("from_shared", indices).shared_load.wavefronts


@pytest.mark.parametrize("stride", STRIDES)
def test_the_drawn_floats_are_those_of_the_request_and_of_its_sectors(stride):
    chart = ground.touched({"some": range(0, max(1, WARP * stride), max(1, stride))})
    [axes] = chart.axes
    cells = {
        to_hex(shapes.get_facecolor()[0]): {
            path.get_extents().bounds for path in shapes.get_paths()
        }
        for shapes in axes.collections
    }
    assert len(cells[ACCENT]) == (WARP if stride else 1)
    assert len(cells[FAINT]) % 8 == 0 and cells[ACCENT] <= cells[FAINT]
    assert len(axes.patches) == len({stride * lane // WARP for lane in range(WARP)})


def test_in_row_major_order_a_lanes_byte_follows_from_its_row_and_column():
    for name, apart in (("naive", 256), ("coalesced", 4)):
        chart = ground.grid(access(name))
        lanes = [row for row in chart.rows if row.startswith("lane ")]
        assert len(lanes) == WARP and lanes[1].endswith(f"byte {apart}")
        assert lanes[31].endswith(f"byte {31 * apart}")
    blocks, warps, _ = ground.grid(access("coalesced")).axes
    assert len(blocks.patches) == 4
    odd_warps, first_warp, first_lane = (
        sum(path.get_extents().width * path.get_extents().height for path in drawn.get_paths())
        for drawn in warps.collections
    )
    assert (odd_warps, first_warp, first_lane) == (16 * WARP, WARP, 1)


@pytest.mark.parametrize(
    ("warps", "used", "latency", "busy"),
    [(1, 10, 90, 0.1), (5, 10, 90, 0.5), (10, 10, 90, 1.0), (64, 10, 90, 1.0), (1, 10, 0, 1.0)],
)
def test_warps_fill_each_others_waits_until_the_unit_is_busy(warps, used, latency, busy):
    turns = Turns(warps, used, latency)
    assert turns.busy == approx(busy)
    until = 50 * turns.period_cycles
    starts = sorted(start for warp in range(warps) for start in turns.starts(warp, until))
    assert np.diff(starts).min() >= used, "one warp at a time"
    assert used * len(starts) / until == approx(busy, rel=0.03)
    own = np.diff(turns.starts(0, until))
    assert (own >= used + latency - 1e-9).all(), "a warp has its data before its next turn"


def test_a_memory_that_was_not_measured_has_a_grey_bar_of_its_peak_and_no_latency(monkeypatch):
    monkeypatch.setattr(memories, "recordings", lambda part: {})
    _, rates, latencies = ground.memories(full_run()).axes
    colours = [to_hex(bar.get_facecolor()) for bar in rates.patches]
    assert colours == [ACCENT, BASELINE, BASELINE, ACCENT, ACCENT]
    assert [bar.get_width() > 0 for bar in latencies.patches] == [False] * 3 + [True] * 2


def test_what_is_recorded_is_drawn(monkeypatch, tmp_path):
    run = full_run()
    path = tmp_path / "made.json"
    latencies = [
        {"chased": chased, "bytes": 1024, "cycles": cycles}
        for cycles, chased in enumerate(dict.fromkeys(memories.CHASED.values()), start=4)
    ]
    write_text(
        path,
        {
            "kind": memories.KIND,
            "schema": memories.SCHEMA,
            "device": run.gpu.name,
            "label": "a label",
            "latencies": latencies,
            "read_gbs": {"L1": 12000},
        },
    )
    monkeypatch.setattr(memories, "recordings", lambda part: {"made": path})
    chart = ground.memories(run)
    assert "as soon" in chart.headline and "a label" in chart.alt
    assert "not recorded" not in chart.alt and "Latencies without a bar" not in chart.alt
    assert "12 TB/s of" in chart.alt and "4 cycles" in chart.alt
    another = replace(run, gpu=replace(run.gpu, name="another"))
    assert "not recorded" in ground.memories(another).alt
