"""The buffers of a timed loop at random placements in a pool: aligned, apart, filled anew, and still checked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from worklog.bench.launches import Loop, Pool, alternating, elements, rotating, witnessed
from worklog.gate import Checker
from worklog.problem.gemm import Shape

SHAPE, L2 = Shape(32, 48, 16), 2**15
KINDS = ("witnessed", "alternating", "rotating")


def correct(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a @ p.b)


def spills(p: Problem) -> None:
    correct(p)
    p.c_buffer.beyond(0, 1)[-1] = 1.0


def loop_of(kind: str, device: Any, function: Any = correct) -> tuple[Loop, list[tuple[int, ...]]]:
    """A loop in a pool, and where each of its launches found A, B and C."""
    seen: list[tuple[int, ...]] = []

    def subject(p: Problem) -> None:
        seen.append((p.a_buffer.start, p.b_buffer.start, p.c_buffer.start))
        function(p)

    checker, pool = Checker(device, SHAPE, 0), Pool(device, 8 * elements(SHAPE, 16), seed=1)
    ours, theirs = NumpySubject(device, subject), NumpySubject(device, correct)
    if kind == "witnessed":
        return witnessed(checker, ours, theirs, True, ("fp32", "fp32"), warm=False, pool=pool), seen
    if kind == "alternating":
        return alternating(checker, ours, theirs, True, pool), seen
    return rotating(checker, ours, theirs, True, device, L2, pool), seen


@pytest.mark.parametrize("seed", range(20))
def test_a_placement_is_aligned_to_512_bytes_and_has_no_overlap(seed: int) -> None:
    sizes, device = [1000, 1, 4096, 777], NumpyDevice()
    pool: Any = Pool(device, 8000, seed)  # type: ignore[arg-type]
    placed = sorted((buffer.start, buffer.start + buffer.size) for buffer in pool.place(sizes))
    assert all(start % 128 == 0 for start, _ in placed) and placed[-1][1] <= 8000
    assert all(end <= start for (_, end), (start, _) in pairwise(placed))


@pytest.mark.parametrize("kind", KINDS)
def test_each_move_is_to_another_place_allocates_nothing_and_stays_right(kind: str) -> None:
    device = NumpyDevice()
    loop, seen = loop_of(kind, device)
    assert loop.move is not None
    device.upload = device.allocate = lambda *_: pytest.fail("a move allocates")  # type: ignore[method-assign, assignment]
    for _ in range(9):
        loop.move()
        for _ in range(2):
            loop.subject()
            loop.baseline()
    device.synchronize()
    assert len({place[0] for place in seen}) >= 9
    stage = loop.stages[-1]()
    assert stage.passed, stage.detail


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_launch_that_writes_outside_c_fails_in_a_pool_too(kind: str) -> None:
    loop, _ = loop_of(kind, NumpyDevice(), spills)
    for _ in range(2):
        loop.subject()
        loop.baseline()
    assert "outside C" in loop.stages[-1]().detail


def test_a_gpu_without_room_has_no_pool() -> None:
    device: Any = NumpyDevice()
    device.free_bytes = lambda: 2**28 + 4 * 1000
    assert Pool.to_hold(device, 1000) is None
    found = Pool.to_hold(device, 500)
    assert found is not None and np.isclose(found.elements, 1000, atol=128)
