"""Requests, sectors and bank conflicts of the rungs, against theory worked out by hand and against a GPU's counters."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import compiled, edited, gemm, run, rung_kernel
from worklog.emulator import Access, Counts, NotPredictable, Pointer, launch
from worklog.emulator.predict import predict
from worklog.emulator.traffic import sectors, wavefronts
from worklog.errors import OutsideDomain
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape

LANES = np.arange(32)
ALL = np.ones((1, 32), bool)


def wave(addresses: np.ndarray, width: int, active: np.ndarray = ALL) -> tuple[int, int, int]:
    return wavefronts(np.asarray(addresses, np.int64).reshape(-1, 32), active, width)


# One warp's shared-memory access: (addresses, width) to (wavefronts, conflicts).
@pytest.mark.parametrize(
    ("addresses", "width", "expected"),
    [
        (LANES * 4, 4, (1, 0)),  # side by side
        (LANES * 0, 4, (1, 0)),  # one word for all
        (LANES * 8, 4, (2, 1)),  # every other bank
        (LANES * 128, 4, (32, 31)),  # one bank
        (LANES * 132, 4, (1, 0)),  # one bank further each row: padding at work
        (LANES // 2 * 4, 4, (1, 0)),  # pairs share a word
        (LANES * 1, 1, (1, 0)),  # bytes, four to a word
        (LANES * 8, 8, (2, 0)),  # 256 bytes take two passes
        (LANES // 2 * 8, 8, (1, 0)),  # pairs (n, n ^ 1) share: 128 bytes in one pass
        (LANES * 0, 8, (1, 0)),
        (LANES * 16, 16, (4, 0)),  # 512 bytes take four passes
        (LANES * 0, 16, (2, 0)),  # broadcast: two, as the H200 counts for the 128-bit broadcasts of the shared rung
        (LANES // 16 * 16, 16, (2, 0)),  # two addresses, pairs equal
        (LANES % 16 * 32, 16, (8, 4)),  # 32 bytes apart: two lanes of each eight meet in a bank
        (
            (LANES // 4 * 2 + LANES % 2) * 16,
            16,
            (2, 0),
        ),  # pairs (n, n ^ 2) share: 256 different bytes, in two passes of 128
        (np.where(LANES < 31, LANES & ~1, 31) * 16, 16, (4, 0)),  # one pair differs: no pairing
    ],
)
def test_wavefronts_of_one_warp(addresses: np.ndarray, width: int, expected: tuple[int, int]) -> None:
    assert wave(addresses, width) == (1, *expected)


def test_idle_lanes_cost_nothing() -> None:
    some = (LANES < 8).reshape(1, 32)
    assert wave(LANES * 128, 4, some) == (1, 8, 7)
    assert wave(LANES * 16, 16, some) == (1, 1, 0)
    assert wave(LANES * 128, 4, ~ALL) == (0, 0, 0)


@pytest.mark.parametrize(
    ("addresses", "width", "expected"),
    [
        (LANES * 4, 4, 4),
        (LANES * 4 + 4, 4, 5),  # not at the start of a sector
        (LANES * 0, 4, 1),
        (LANES * 128, 4, 32),
        (LANES * 16, 16, 16),
        (LANES[::-1] * 8, 8, 8),
    ],
)
def test_sectors_of_one_warp(addresses: np.ndarray, width: int, expected: int) -> None:
    assert sectors(addresses.astype(np.int64).reshape(1, 32), ALL, width) == (1, expected)


def counts_of(name: str, shape: tuple[int, int, int], beta: float = 0.5) -> Counts:
    record, kernel, source = rung_kernel(name)
    return gemm(record, kernel, shape, alpha=1.5, beta=beta, source=source)[2].counts


def test_naive_reads_a_column_of_rows() -> None:
    """A: 32 rows, 32 sectors; B: one float for the warp; C: 32 rows, read and written. 512 warps, 128 steps."""
    counts = counts_of("naive", (128, 128, 128))
    assert counts.global_load.requests == 512 * 128 * 2 + 512
    assert counts.global_load.sectors == 512 * 128 * (32 + 1) + 512 * 32
    assert (counts.global_store.requests, counts.global_store.sectors) == (512, 512 * 32)


def test_the_same_kernel_without_beta_gives_the_h200s_counts() -> None:
    """Nsight Compute on an H200, two kernels of this design at 128 cubed: the numbers below."""
    naive, coalesced = counts_of("naive", (128, 128, 128), 0.0), counts_of("coalesced", (128, 128, 128), 0.0)
    assert (naive.global_requests, naive.global_sectors) == (131_584, 2_179_072)
    assert (coalesced.global_requests, coalesced.global_sectors) == (131_584, 329_728)


def test_coalesced_reads_rows() -> None:
    """A: one float for the warp; B and C: 128 bytes, 4 sectors."""
    counts = counts_of("coalesced", (128, 128, 128))
    assert counts.global_load.sectors == 512 * 128 * (1 + 4) + 512 * 4
    assert counts.global_load.bytes == (512 * 128 * 2 + 512) * 32 * 4


def test_shared_tiles_save_global_traffic() -> None:
    """Each of 16 blocks of 32 warps brings 4 tiles of A and B, 4 sectors a request; then reads 32 k from shared memory.

    Its 32 floats of A are one row, which ptxas reads as 8 x 16 bytes; B is one float a lane.
    """
    counts = counts_of("shared", (128, 128, 128), 0.0)
    tiles = 16 * 32 * 4
    assert (counts.global_load.requests, counts.global_load.sectors) == (2 * tiles, 2 * tiles * 4)
    assert counts.shared_load.requests == tiles * (8 + 32)
    assert counts.shared_load.wavefronts == tiles * (8 * 2 + 32)
    assert counts.shared_load.conflicts == 0
    assert counts.shared_store == Access(2 * tiles, 0, 2 * tiles, 0, 2 * tiles * 128)


def test_vectorized_has_the_conflicts_that_its_layout_implies() -> None:
    """One block, 8 warps, 16 tiles. Loads of B lie 32 bytes apart: 8 passes, not 4. Transposing stores: 2, not 1."""
    counts = counts_of("vectorized", (128, 128, 128), 0.0)
    steps = 8 * 128
    assert counts.global_load.requests == 8 * 16 * 2
    assert counts.global_load.sectors == 8 * 16 * 2 * 16
    assert counts.shared_load.requests == steps * 4
    assert counts.shared_load.wavefronts == steps * (2 * 2 + 2 * 8)
    assert counts.shared_load.conflicts == steps * 2 * 4
    assert counts.shared_store.conflicts == 8 * 16 * 4


def test_the_last_rungs_read_without_conflicts() -> None:
    for name, shape in (("autotuned", (128, 256, 64)), ("warptiled", (128, 128, 64))):
        counts = counts_of(name, shape)
        assert counts.shared_load.conflicts == 0, name
    # Each lane pair of a warp shares its 16 bytes of A or of B: two passes a request, not four.
    assert counts.shared_load.wavefronts == 2 * counts.shared_load.requests


@pytest.mark.parametrize("record", LADDER, ids=[r.name for r in LADDER])
def test_every_rung_multiplies_mnk_times(record: object) -> None:
    name = record.name  # type: ignore[attr-defined]
    m, n, k = 128, 256, 64
    counts = counts_of(name, (m, n, k), 0.0)
    # The epilogue's alpha * acc + beta * c may be a multiply-add more.
    assert m * n * k <= counts.thread_fma <= m * n * (k + 1)
    assert counts.instructions["fma"] * 32 == counts.thread_fma
    assert counts.all_instructions == sum(counts.instructions.values())


def test_counts_belong_to_lines() -> None:
    record, kernel, source = rung_kernel("tiles_1d")
    result = gemm(record, kernel, (64, 64, 64), source=source)[2]
    lines = source.splitlines()
    loads = {lines[line - 1].strip() for line, counts in result.lines.items() if counts.global_load.requests}
    assert loads == {
        "As[a_row][a_col] = A[(size_t)a_row * K + k0 + a_col];",
        "Bs[b_row][b_col] = B[(size_t)(k0 + b_row) * N + b_col];",
    }
    barriers = {
        lines[line - 1].strip()[:16] for line, counts in result.lines.items() if "barrier" in counts.instructions
    }
    assert barriers == {"__syncthreads();"}
    assert sum(result.lines.values(), Counts()) == result.counts


def test_a_view_off_the_sector_costs_a_sector_more() -> None:

    source = 'extern "C" __global__ void k(const float* in, float* out) { out[threadIdx.x] = in[threadIdx.x]; }'
    kernel = compiled(source, "k")
    data, out = np.ones(32, np.float32), np.zeros(32, np.float32)
    for skew, expected in ((0, 4), (16, 5), (32, 4)):
        result = launch(kernel, (1,), 32, [Pointer(data, 128, skew=skew), out])
        assert result.counts.global_load.sectors == expected


def test_counts_can_be_left_out() -> None:
    source = 'extern "C" __global__ void k(float* out) { out[threadIdx.x] = 1.0f; }'
    result = run(source, [np.zeros(32, np.float32)], count=False)
    assert result.lines == {}
    assert result.counts == Counts()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("naive", (96, 128, 256)),
        ("naive", (100, 68, 203)),
        ("coalesced", (130, 100, 197)),
        ("coalesced", (33, 264, 320)),
        ("shared", (128, 96, 320)),
        ("tiles_1d", (256, 192, 264)),
        ("tiles_2d", (384, 256, 200)),
        ("vectorized", (256, 512, 264)),
        ("autotuned", (384, 768, 200)),
        ("autotuned", (128, 256, 8)),
        ("warptiled", (512, 384, 304)),
        ("warptiled", (128, 128, 16)),
    ],
)
def test_a_prediction_is_the_full_runs_count(name: str, shape: tuple[int, int, int]) -> None:
    record, kernel, _ = rung_kernel(name)
    for beta in (0.0, 0.5):
        _, _, full = gemm(record, kernel, shape, alpha=1.5, beta=beta)
        predicted = predict(kernel, record, Shape(*shape), alpha=1.5, beta=beta)
        assert predicted.counts == full.counts
        assert predicted.lines == full.lines
        assert "predicted" in predicted.label


def test_predictions_of_large_sizes_follow_the_formulas() -> None:
    record, kernel, _ = rung_kernel("vectorized")
    n = 4096
    counts = predict(kernel, record, Shape(n, n, n)).counts
    assert counts.thread_fma == n**3 + counts.thread_fma % n**3
    assert counts.global_load.bytes == 2 * (n // 128) * n * n * 4
    assert counts.global_load.sectors * 32 == counts.global_load.bytes


def test_what_cannot_be_predicted() -> None:
    with pytest.raises(OutsideDomain):
        predict(rung_kernel("shared")[1], rung("shared"), Shape(100, 128, 128))
    source = rung_kernel("coalesced")[2]
    looked_up, line = edited(source, "A[(size_t)row * K + k]", "A[(size_t)row * K + (int)A[k]]")
    with pytest.raises(NotPredictable, match=f"line {line}"):
        predict(compiled(looked_up, rung("coalesced").entry), rung("coalesced"), Shape(64, 64, 64))


def test_costs_follow_addresses_that_move_and_spread_in_a_loop() -> None:
    """Turn i reads floats i + lane, then every i-th float: what the turn before cost does not tell."""
    source = """extern "C" __global__ void k(const float* in, float* out) {
  float sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    sum += in[i + threadIdx.x];
    sum += in[i * threadIdx.x];
  }
  out[threadIdx.x] = sum;
}
"""
    lines = run(source, [np.ones(256, np.float32), np.zeros(32, np.float32)]).lines
    shifted = sum(len({(i + lane) // 8 for lane in range(32)}) for i in range(8))
    spread = sum(len({i * lane // 8 for lane in range(32)}) for i in range(8))
    assert (lines[5].global_load.requests, lines[5].global_load.sectors) == (8, shifted)
    assert (lines[6].global_load.requests, lines[6].global_load.sectors) == (8, spread)


def test_launches_do_not_add_up() -> None:
    record, kernel, _ = rung_kernel("tiles_1d")
    first = gemm(record, kernel, (64, 64, 64))[2].counts
    assert gemm(record, kernel, (64, 64, 64))[2].counts == first
