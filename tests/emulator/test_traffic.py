"""Requests, sectors and bank conflicts of the rungs.

Against theory worked out by hand and against a GPU's counters.
"""

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.helpers import compiled, edited, gemm, kernel, run, rung_kernel
from tests.record.ncu import emulated, with_replays
from worklog.emulator import Counts
from worklog.emulator.core.native import library
from worklog.emulator.reports import NotPredictable
from worklog.errors import BadSetting
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.prediction import predict
from worklog.problem import Shape

LANES = np.arange(32)
ALL = np.ones(32, bool)


def costs_of(
    addresses: np.ndarray, active: np.ndarray, width: int, *, shared: bool
) -> tuple[int, ...]:
    """Return the costs of a warp: `width` bytes per lane.

    Requests, sectors, wavefronts, bank conflicts, bytes and lines.
    """
    out = np.zeros(6, np.int64)
    mask = sum(1 << int(lane) for lane in np.flatnonzero(active))
    if mask:
        given = np.where(active, addresses, addresses[active.argmax()]).astype(np.uint64)
        library().costs_of(
            ctypes.c_void_p(given.ctypes.data),
            mask,
            width,
            shared,
            ctypes.c_void_p(out.ctypes.data),
        )
    return tuple(out.tolist())


def wave(addresses: np.ndarray, width: int, active: np.ndarray = ALL) -> tuple[int, int, int]:
    requests, _, waves, conflicts, *_ = costs_of(addresses, active, width, shared=True)
    return requests, waves, conflicts


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
        (
            LANES * 0,
            16,
            (2, 0),
        ),  # broadcast: two, as the H200 counts for the 128-bit broadcasts of the shared rung
        (LANES // 16 * 16, 16, (2, 0)),  # two addresses, pairs equal
        (LANES % 16 * 32, 16, (8, 4)),  # 32 bytes apart: two lanes of each eight meet in a bank
        (
            (LANES // 4 * 2 + LANES % 2) * 16,
            16,
            (2, 0),
        ),  # pairs (n, n ^ 2) share: 256 bytes, in two passes
        (np.where(LANES < 31, LANES & ~1, 31) * 16, 16, (4, 0)),  # one pair differs: no pairing
    ],
)
def test_wavefronts_of_one_warp(addresses, width, expected):
    assert wave(addresses, width) == (1, *expected)


@pytest.mark.parametrize("stride", [0, 1, 2, 8, 12, 32, 33])
def test_a_pattern_that_moves_costs_what_each_of_its_places_costs(stride):
    """The core keeps what a pattern cost, until its place in sectors and lines changes that."""
    data = np.zeros(33 * 32 + 40, np.float32)
    out = np.zeros(32, np.float32)
    body = f"""  float s = 0;
  #pragma unroll 1
  for (int k = 0; k < 40; ++k) s += in[threadIdx.x * {stride} + k];
  out[threadIdx.x] = s;"""
    load = run(kernel(body, "const float* in, float* out"), [data, out]).counts.global_load
    costs = [costs_of(LANES * stride * 4 + 4 * k, ALL, 4, shared=False) for k in range(40)]
    assert load.sectors == sum(cost[1] for cost in costs) and load.cache_lines == sum(
        cost[5] for cost in costs
    )


def test_idle_lanes_cost_nothing():
    some = LANES < 8
    assert wave(LANES * 128, 4, some) == (1, 8, 7)
    assert wave(LANES * 16, 16, some) == (1, 1, 0)
    assert wave(LANES * 128, 4, ~ALL) == (0, 0, 0)


@pytest.mark.parametrize(
    ("addresses", "expected", "lines"),
    [
        (LANES * 4, 4, 1),
        (LANES * 4 + 4, 5, 2),  # not at the start of a sector
        (LANES * 0, 1, 1),
        (LANES * 32, 32, 8),
        (LANES * 128, 32, 32),
        (LANES * 16, 16, 4),
        (LANES[::-1] * 8, 8, 2),
    ],
)
def test_sectors_and_lines_of_one_warp(addresses, expected, lines):
    requests, sectors, *_, touched = costs_of(addresses, ALL, 4, shared=False)
    assert (requests, sectors, touched) == (1, expected, lines)


def test_bytes_and_sums_are_those_of_theory():
    """Of 128 x 128 x 128 with beta 0, worked out by hand.

    The other counts are held to a GPU's below.
    """
    record, kernel, _ = rung_kernel("coalesced")
    counts = gemm(record, kernel, (128, 128, 128), races=False)[2].counts
    steps = 512 * 128  # of 512 warps along K: one float of A for the warp, 128 bytes of B
    assert counts.global_load.bytes == steps * 2 * 32 * 4
    assert counts.global_sectors == steps * (1 + 4) + 512 * 4
    assert counts.instructions["fma"] * 32 == counts.thread_fma
    assert counts.all_instructions == sum(counts.instructions.values())


def test_counts_belong_to_lines():
    record, kernel, source = rung_kernel("tiles_1d")
    result = gemm(record, kernel, (64, 64, 64), source=source)[2]
    lines = source.splitlines()
    loads = {
        lines[line - 1].strip()
        for line, counts in result.lines.items()
        if counts.global_load.requests
    }
    assert loads == {
        "As[a_row][a_col] = A[(size_t)a_row * K + k0 + a_col];",
        "Bs[b_row][b_col] = B[(size_t)(k0 + b_row) * N + b_col];",
    }
    barriers = [
        lines[line - 1].strip()
        for line, counts in result.lines.items()
        if "barrier" in counts.instructions
    ]
    assert len(barriers) == 2 and all(text.startswith("__syncthreads();") for text in barriers)
    assert sum(result.lines.values(), Counts()) == result.counts
    assert gemm(record, kernel, (64, 64, 64))[2].counts == result.counts, "launches do not add up"
    assert gemm(record, kernel, (64, 64, 64), count=False)[2].lines == {}


@pytest.mark.parametrize(
    ("name", "shape", "beta"),
    [
        ("naive", (100, 68, 203), 0.5),
        ("coalesced", (33, 264, 320), 0.5),
        ("shared", (128, 96, 320), 0.0),
        ("vectorized", (256, 512, 200), 0.0),
        ("pipelined", (128, 384, 104), 0.5),
        ("warptiled", (256, 384, 112), 0.5),
        ("warptiled", (128, 128, 16), 0.5),
    ],
)
def test_a_prediction_is_the_full_runs_count(name, shape, beta):
    record, code, _ = rung_kernel(name)
    full = gemm(record, code, shape, beta=beta, races=False)[2]
    predicted = predict(code, record, Shape(*shape), beta=beta)
    assert predicted.counts == full.counts and predicted.lines == full.lines
    assert "predicted" in predicted.label


def test_what_cannot_be_predicted():
    with pytest.raises(BadSetting):
        predict(rung_kernel("shared")[1], rung("shared"), Shape(100, 128, 128))
    source = rung_kernel("coalesced")[2]
    looked_up, line = edited(source, "A[(size_t)row * K + k]", "A[(size_t)row * K + (int)A[k]]")
    with pytest.raises(NotPredictable, match=f":{line}: an address"):
        predict(compiled(looked_up, rung("coalesced").entry), rung("coalesced"), Shape(64, 64, 64))


RECORDS = [
    json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(Path(__file__).parent.glob("ncu_*.json"))
]


@pytest.mark.parametrize("name", [record.name for record in LADDER])
def test_every_count_is_the_gpus(name):
    (launch,) = {
        (*record["shape"], record["alpha"], record["beta"], record["arch"]) for record in RECORDS
    }
    here = emulated(rung(name), Shape(*launch[:3]), *launch[3:])
    for record in RECORDS:
        assert rung(name).program.measured_as(record["kernels"][name])
        counted = record["kernels"][name]["counts"]
        assert with_replays(here, counted) == counted, record["device"]
        fewer = here["global_store.sectors"] - counted["global_store.sectors"]
        assert fewer == 0 or "H100" in record["device"], "only an H100 was seen to count fewer"
