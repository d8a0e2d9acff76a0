"""The buffers of a timed loop.

Which launch gets which, at random places in a pool, and still checked.
"""

import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice, NumpyKernel, NumpySubject, Problem
from tests.virtual.session import once
from worklog.gate import SgemmChecker
from worklog.kernel import Program, rung
from worklog.problem import Shape
from worklog.runner.launches import Loop, OutOfBoundsWrite, Pool, elements

SHAPE = Shape(32, 64, 32)
SETS = 6
KINDS: dict[str, dict[str, Any]] = {
    "witnessed": {"probed": True},
    "alternating": {},
    "rotating": {"sets": SETS},
}
Place = tuple[int, ...]  # of A, B and C


def correct(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a @ p.b)


def spills(p: Problem) -> None:
    correct(p)
    p.c_buffer.beyond(0, 1)[-1] = 1.0


def wrong_where_it_swaps() -> Any:
    """Right in one of two outputs that take turns."""
    seen: list[Place] = []

    def function(p: Problem) -> None:
        correct(p)
        seen.append(place_of(p))
        if seen[-1] != seen[0]:
            p.c[0, 0] += 1

    return function


def place_of(p: Problem) -> Place:
    return tuple(
        buffer.memory[buffer.start :].ctypes.data for buffer in (p.a_buffer, p.b_buffer, p.c_buffer)
    )


class Looped:
    """A loop, and where each of its launches found its buffers."""

    def __init__(
        self,
        kind: str,
        ours: Any = correct,
        theirs: Any = correct,
        pooled: bool = False,
        room: int = 8,
        **how: Any,
    ) -> None:
        self.device = NumpyDevice()
        self.ours = list[Place]()
        self.theirs = list[Place]()
        device: Any = self.device
        checker = SgemmChecker(device, SHAPE, 0)
        pool = Pool(device, room * elements(SHAPE, SETS), seed=1) if pooled else None
        noted = (self._noting(ours, self.ours), self._noting(theirs, self.theirs))
        how = {"in_step": True, "pool": pool, **KINDS[kind], **how}
        subjects = [NumpySubject(device, function) for function in noted]
        self.loop = Loop(checker, subjects, ("ours", "theirs"), **how)

    def _noting(self, function: Any, seen: list[Place]) -> Any:
        def noted(p: Problem) -> None:
            seen.append(place_of(p))
            function(p)

        return noted

    def turn(self, times: int) -> None:
        for _ in range(times):
            for launch in self.loop.launches:
                once(launch)
        self.device.synchronize()


@pytest.mark.parametrize("kind", ["witnessed", "alternating"])
@pytest.mark.parametrize("in_step", [True, False])
def test_in_step_the_two_swap_their_outputs_and_otherwise_each_has_its_own(kind, in_step):
    looped = Looped(kind, in_step=in_step)
    looped.turn(4)
    ours, theirs = ([c for _, _, c in seen] for seen in (looped.ours, looped.theirs))
    assert ours[0] == ours[2] and (ours[0] != ours[1]) is in_step
    assert not any(our == their for our, their in zip(ours, theirs, strict=True))
    assert {place[:2] for place in looped.ours + looped.theirs} == {looped.ours[0][:2]}


@pytest.mark.parametrize(("in_step", "ahead"), [(True, SETS // 2), (False, 0)])
def test_in_a_rotation_each_set_is_used_in_turn_and_the_baseline_is_half_a_round_ahead(
    in_step, ahead
):
    looped = Looped("rotating", in_step=in_step)
    looped.turn(SETS + 1)
    assert len(set(looped.ours)) == SETS and looped.ours[-1] == looped.ours[0]
    assert not {c for _, _, c in looped.ours} & {c for _, _, c in looped.theirs}
    assert [place[:2] for place in looped.theirs[: SETS - ahead]] == [
        place[:2] for place in looped.ours[ahead:SETS]
    ]
    assert looped.loop.stage().passed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooled", [False, True])
def test_a_wrong_output_fails_and_a_wrong_baseline_is_named(kind, pooled):
    looped = Looped(kind, wrong_where_it_swaps(), pooled=pooled)
    looped.turn(4)
    assert not looped.loop.stage().passed
    looped = Looped(kind, theirs=wrong_where_it_swaps(), pooled=pooled)
    looped.turn(4)
    assert looped.loop.stage().detail.startswith("of the baseline noted: 2 rows off") == (
        kind == "witnessed"
    )


@pytest.mark.parametrize("pooled", [False, True])
def test_a_product_of_before_the_loop_is_not_taken_for_the_loops(pooled):
    device: Any = NumpyDevice()
    checker = SgemmChecker(device, SHAPE, 0)
    a, b, c = checker.buffers.abc
    NumpySubject(device, correct).enqueue(SHAPE, 1.0, a, b, 0.0, c)
    device.synchronize()
    pool = Pool(device, 8 * elements(SHAPE), seed=1) if pooled else None
    loop = Loop(
        checker,
        [NumpySubject(device, lambda p: None)] * 2,
        ("ours", "theirs"),
        in_step=True,
        pool=pool,
    )
    once(loop.launches[0])
    device.synchronize()
    assert not loop.stage().passed


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_output_is_judged_though_only_the_baseline_was_launched_after_a_move(kind):
    def passes(ours: Any) -> bool:
        looped = Looped(kind, ours, pooled=True, in_step=False)
        for launch in looped.loop.launches:
            for _ in range(3):
                looped.loop.move()
                once(launch)
        return looped.loop.stage().passed

    assert passes(correct) and not passes(wrong_where_it_swaps())
    with pytest.raises(OutOfBoundsWrite, match="it wrote outside C"):
        passes(spills)


@pytest.mark.parametrize("warm", [False, True])
def test_each_launch_of_a_witnessed_loop_is_checked_and_a_warm_one_follows_another(warm):
    looped = Looped("witnessed", warm=warm)
    looped.turn(4)
    stage = looped.loop.stage()
    assert stage.passed and stage.detail.startswith("4 launches")
    assert len(looped.ours) == (8 if warm else 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pools_memory_is_free_as_soon_as_its_loop_is_gone(kind):
    looped = Looped(kind, pooled=True, warm=True)
    looped.turn(2)
    memory = weakref.ref(looped.loop.pool.allocation.memory)
    gc.disable()
    try:
        del looped
        assert memory() is None, "of gigabytes: it can't wait until Python looks for cycles"
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(5))
def test_a_placement_is_aligned_to_512_bytes_and_has_no_overlap(seed):
    sizes = [1000, 1, 4096, 777]
    device = NumpyDevice()
    pool: Any = Pool(device, 8000, seed)
    placed = sorted((buffer.start, buffer.start + buffer.size) for buffer in pool.place(sizes))
    assert all(start % 128 == 0 for start, _ in placed) and placed[-1][1] <= 8000
    assert all(end <= start for (_, end), (start, _) in pairwise(placed))


@pytest.mark.parametrize("kind", KINDS)
def test_each_move_is_to_another_place_allocates_nothing_and_is_guarded(kind):
    looped = Looped(kind, pooled=True)
    looped.device.upload = looped.device.allocate = lambda *_: pytest.fail("a move allocates")
    for _ in range(9):
        looped.loop.move()
        looped.turn(2)
    assert len({a for a, _, _ in looped.ours}) >= 9
    stage = looped.loop.stage()
    assert stage.passed, stage.detail
    spilled = Looped(kind, spills, pooled=True)
    spilled.turn(2)
    with pytest.raises(OutOfBoundsWrite, match="outside C"):
        spilled.loop.stage()


def test_a_pool_of_the_elements_that_a_loop_states_has_room_for_it():
    looped = Looped("rotating", pooled=True, room=1)
    looped.turn(2)
    assert looped.loop.stage().passed


def test_a_gpu_without_room_has_no_pool(monkeypatch):
    device: Any = NumpyDevice()
    device.free_bytes = lambda: 2**28 + 4 * 1000
    assert Pool.to_hold(device, 1000) is None
    found = Pool.to_hold(device, 500)
    assert found is not None and np.isclose(found.elements, 1000, atol=128)
    device.free_bytes = lambda: 2**40
    monkeypatch.setattr("worklog.runner.launches.POOL_BYTES", 4 * 2000)
    roomy = Pool.to_hold(device, 10)
    assert roomy is not None and np.isclose(roomy.elements, 2000, atol=128)


class CodeInPlaces(NumpyDevice):
    """Notes which loaded code each launch of a rung runs."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded = list[weakref.ref[NumpyKernel]]()
        self.ran = list[int]()

    def compile(self, program: Program) -> NumpyKernel:
        if "naive" not in program.entry:
            return super().compile(program)
        number = len(self.loaded)

        def function(p: Problem) -> None:
            self.ran.append(number)
            correct(p)

        kernel = NumpyKernel(function)
        self.loaded.append(weakref.ref(kernel))
        return kernel


@pytest.mark.parametrize(
    ("warm", "long", "keeps", "codes"),
    [(True, 0, [], 4), (True, 1, [], 1), (False, 0, [], 1), (True, 0, ["count"], 1)],
)
def test_short_kernels_are_loaded_again_in_each_placement_and_launched_before_their_time(
    warm, long, keeps, codes, monkeypatch
):
    """But not what keeps variables, which loading resets.

    One that stops after some launches would not get there.
    """
    monkeypatch.setattr("worklog.runner.launches.SHORT_FLOPS", SHAPE.flops - long)
    device: Any = CodeInPlaces()
    checker = SgemmChecker(device, SHAPE, 0)
    both = [rung("naive").load(device) for _ in ("subject", "baseline")]
    for kernel in both:
        kernel.variables = lambda shape: keeps
    loop = Loop(
        checker,
        both,
        ("a", "b"),
        in_step=True,
        warm=warm,
        pool=Pool(device, 8 * elements(SHAPE), seed=1),
    )
    for _ in range(3):
        loop.move()
        for launch in loop.launches:
            once(launch)
        device.synchronize()
        assert device.ran[-2:] == [len(device.loaded) - 2, len(device.loaded) - 1]
        assert codes == 1 or all(device.ran.count(code) == 2 for code in device.ran[-2:]), (
            "a first launch may load"
        )
    assert len(device.loaded) == 2 * codes and all(kernel() for kernel in device.loaded)
    loop.close()
    gc.collect()
    assert sum(kernel() is not None for kernel in device.loaded) <= 4, (
        "the first, which describes it, and the last"
    )


@pytest.mark.parametrize(
    ("how", "changes"),
    [
        ({"probed": True}, True),
        ({"inputs": "zeros"}, True),
        ({"probed": True, "inputs": "zeros"}, True),
        ({}, False),
    ],
)
def test_a_loop_that_changes_the_inputs_restores_them_and_no_other_loads_them_again(how, changes):
    device: Any = NumpyDevice()
    checker = SgemmChecker(device, SHAPE, 0)
    inputs = checker.buffers.abc[:2]
    before = [device.download(buffer) for buffer in inputs]
    loaded = list[bool]()
    restore = checker.buffers.restore
    checker.buffers.restore = lambda *hosts: (loaded.append(not hosts), restore(*hosts))
    loop = Loop(checker, [NumpySubject(device, correct)], ("ours",), in_step=True, **how)
    once(loop.launches[0])
    device.synchronize()
    loop.close()
    assert loaded == [True] * changes
    after = [device.download(buffer) for buffer in inputs]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
