"""The real rungs, compiled and run by the emulator, before the same gate as on a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from worklog.emulator.device import EmulatedDevice
from worklog.gate import Checker, Verdict
from worklog.gate.shapes import BLOCK, DIFFER, edge_shapes
from worklog.kernel.ladder import rung


def examine(name: str, old: str = "", new: str = "", races: bool = True) -> Verdict:
    """Put a rung, with one piece of its source replaced, to the whole gate at a small shape."""
    record = rung(name)
    assert old in record.source
    device = EmulatedDevice(races=races)
    subject = replace(record, text=record.source.replace(old, new, 1)).load(device)
    return Checker(device, edge_shapes(record.domain)[0], seed=5).check(subject)


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("naive", "k < K; ++k", "k < K - 1; ++k", "(and at 1x7x2): "),
        ("naive", "if (row >= M || col >= N) return;", "if (row >= M - 1 || col >= N) return;", "never written"),
        ("naive", "if (row >= M || col >= N) return;", "if (row >= N || col >= M) return;", "out-of-bounds"),
        ("naive", "(size_t)row * K + k", "(size_t)row * N + k", "out-of-bounds"),
        ("naive", "if (row >= M || col >= N) return;", "if (row > M || col >= N) return;", "launch: 01_naive.cu:"),
        ("coalesced", "beta == 0.0f", "beta == 1.0f", "with alpha = 1, beta = 1"),
    ],
)
def test_a_slip_of_the_pen_does_not(name: str, old: str, new: str, reason: str) -> None:
    verdict = examine(name, old, new)
    assert not verdict.accepted
    assert reason in str(verdict.reason)


@pytest.mark.parametrize(
    ("name", "barrier"),
    [
        ("shared", "__syncthreads();  // wait: the tile"),
        ("tiles_2d", "__syncthreads();  // wait: faster warps"),
        ("double_buffered", "__syncthreads();  // wait: the first tile"),
        ("autotuned", "__syncthreads();  // wait: the next tile"),
        ("pipelined", "__syncthreads();  // wait: the next tile"),
    ],
)
def test_a_missing_barrier_does_not(name: str, barrier: str) -> None:
    verdict = examine(name, barrier, "//")
    assert str(verdict.reason).startswith("launch: ") and "race" in str(verdict.reason)


@pytest.mark.parametrize("wrong_at", [None, 0, 299])
def test_the_gates_own_kernel_finds_the_bit_that_differs(wrong_at: int | None) -> None:
    """NaN is equal to the same NaN, and 0 is not -0: bits are compared."""
    device = EmulatedDevice()
    kernel = device.compile(DIFFER)
    first = np.zeros(300, np.float32)
    first[5] = np.nan
    second = first.copy()
    if wrong_at is not None:
        second[wrong_at] = -0.0
    a, b, found = device.upload(first), device.upload(second), device.upload(np.zeros(4, np.float32))
    device.launch(kernel, (2, 1), BLOCK, (np.int32(300), a, b, np.int32(2), found))
    assert device.download(found).tolist() == [0, 0, 0 if wrong_at is None else 1, 0]
