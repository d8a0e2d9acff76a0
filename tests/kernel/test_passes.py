"""A kernel of several launches with a workspace.

Launched in order, guarded, poisoned, moved, described and counted.
"""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice, NumpySubject
from tests.runner.test_launches import KINDS, SETS, correct
from tests.virtual.session import once
from worklog.gate import SgemmChecker
from worklog.gate.guarded_buffer import GUARD, OUTSIDE_WORKSPACE, Buffers, Memory
from worklog.gate.kept_state import check_state
from worklog.kernel import Kernel, Program
from worklog.kernel.device import Loaded
from worklog.kernel.emulated import EmulatedDevice, EmulatedFault
from worklog.kernel.launch import Launch
from worklog.kernel.launchable import compile_for
from worklog.kernel.prediction import bound
from worklog.kernel.signature import SGEMM_ARGUMENTS
from worklog.problem import Domain, Shape, random_inputs
from worklog.runner.launches import Loop, OutOfBoundsWrite, Pool, elements
from worklog.runs import recorded_run

SOURCE = Path(__file__).with_name("two_passes.cu")
SHAPE = Shape(9, 13, 7)
TWO = Kernel(
    "two",
    Program(SOURCE.name, SOURCE.read_text(), ""),
    (
        Launch(
            "products<TILE, PARTS>",
            "(N + TILE - 1) / TILE, (M + TILE - 1) / TILE, PARTS",
            "TILE, TILE",
        ),
        Launch("add<PARTS>", "(M * N + 63) / 64", "64"),
    ),
    template={"TILE": 8, "PARTS": 3},
    arguments=(*SGEMM_ARGUMENTS, "workspace"),
    workspace="4 * PARTS * M * N",
)


def mistaken(number: int) -> Kernel:
    return TWO.with_text(f"#define MISTAKE {number}\n{TWO.source}")


def run(kernel: Kernel, launches: int = 2, beta: float = 0.5) -> list[Any]:
    """Return what each launch leaves in C, and what it wrote outside.

    C is given as the difference from the product.
    """
    rng = np.random.default_rng(0)
    device = EmulatedDevice()
    a, b = (np.round(8 * matrix) for matrix in random_inputs(SHAPE, rng))
    buffers = Buffers(Memory(device, rng), a, b)
    subject = kernel.load(device)
    results = [buffers.run(subject, 2.0, beta, 3.0) for _ in range(launches)]
    return [(abs(result.c - (2 * (a @ b) + 3 * beta)).max(), result.trespass) for result in results]


def test_the_passes_run_in_order_and_share_the_workspace():
    assert run(TWO) == [(0, "")] * 2
    assert TWO.domain == Domain()
    assert [one.entry for one in TWO.passes] == ["products<8, 3>", "add<3>"]
    assert [one.blocks(SHAPE) for one in TWO.passes] == [(2, 2, 3), (2, 1)]


def test_a_launch_outside_its_workspace_is_seen():
    with pytest.raises(EmulatedFault, match="writes 4 bytes at 16 bytes past the end of workspace"):
        run(mistaken(1))


def test_nothing_in_the_workspace_helps_a_launch():
    device = EmulatedDevice()
    rng = np.random.default_rng(0)
    assert all(not error <= 0 for error, _ in run(mistaken(2)))
    memory = Memory(device, rng)
    subject = TWO.load(device)
    found = set()
    for _ in range(16):
        memory.lend(subject, SHAPE)
        assert isinstance(subject, Loaded) and subject.workspace is not None
        values = device.download(subject.workspace)
        assert values.size == 3 * 9 * 13 and len(np.unique(values)) == 1
        found.add("NaN" if np.isnan(values[0]) else "number")
    assert found == {"NaN", "number"}


def test_a_workspace_is_allocated_once_and_again_only_for_a_larger_one():
    device = EmulatedDevice()
    subject = TWO.load(device)
    assert isinstance(subject, Loaded)

    def launch(shape: Shape) -> Any:
        sizes = (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
        a, b, c = (device.upload(np.ones(size, np.float32)) for size in sizes)
        subject.enqueue(shape, 1.0, a, b, 0.0, c)
        assert (device.download(c) == shape.k).all()
        return subject.workspace

    first = launch(SHAPE)
    assert launch(SHAPE) is launch(Shape(2, 2, 2)) is first
    assert launch(Shape(9, 14, 7)) is not first
    subject.use_workspace(None)
    assert subject.workspace is None and launch(SHAPE) is not None


def test_every_pass_is_described_and_compiled_before_a_check_and_its_parameters_are_compared():
    about = (subject := TWO.load(EmulatedDevice())).describe()
    assert subject.kernels(SHAPE) == 2
    assert about["workspace"] == "4 * PARTS * M * N" and about["arguments"][-1] == "workspace"
    assert [one["entry"] for one in about["passes"]] == ["products<8, 3>", "add<3>"]
    assert all(one["registers"] > 0 for one in about["passes"])
    assert TWO.program.sha256 != mistaken(1).program.sha256
    assert compile_for(TWO, None)[0].program.entry == "products<8, 3>"
    with pytest.raises(Exception, match="takes 9 parameters"):
        compile_for(replace(TWO, arguments=SGEMM_ARGUMENTS), None)


def test_a_bound_counts_all_passes_and_reads_the_inputs_once():
    shape = Shape(200, 200, 192)
    gpu = recorded_run().gpu
    whole, *each = (bound(one, shape, gpu) for one in (TWO, *TWO.passes))
    assert whole.counts.thread_fma == sum(one.counts.thread_fma for one in each)
    assert whole.limits["L1 lookups"] == pytest.approx(
        sum(one.limits["L1 lookups"] for one in each)
    )
    assert whole.limits["DRAM reads"] == each[0].limits["DRAM reads"]


class Owner(NumpySubject):
    """A Python function with a workspace."""

    workspace: Any = None

    def workspace_elements(self, shape: Shape) -> int:
        return shape.m * shape.n


def test_each_launch_of_a_kernel_that_keeps_variables_has_a_workspace_of_its_shapes_size():
    def product(p: Any) -> None:
        assert owner.workspace.size == p.m * p.n
        correct(p)

    owner: Any = Owner(NumpyDevice(), product)
    vars(owner).update(
        relocate=lambda: None, launches_at=lambda shape: ((), 0), variables=lambda shape: ["n"]
    )
    stage = check_state(owner, Memory(owner.device, np.random.default_rng(0)))
    assert stage.passed and stage.note == "keeps n between launches", stage


def test_a_pool_of_the_least_size_holds_the_sets_and_the_workspace():
    device: Any = NumpyDevice()
    both = (Owner(device, correct), NumpySubject(device, correct))
    shape = Shape(1, 1, 1)
    least = Pool(device, elements(shape, SETS, both))
    Loop(
        SgemmChecker(device, shape, 0), both, ("", ""), in_step=True, sets=SETS, pool=least
    ).close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spilled", [None, 1.0])
def test_a_placement_moves_the_workspace_between_guards_and_a_launch_there_is_checked(
    kind, spilled
):
    def product(p: Any) -> None:
        assert kind != "witnessed" or np.isnan(owner.workspace.data).all()
        owner.workspace.data[:] = (p.a @ p.b).ravel()
        p.c[:] = p.alpha * owner.workspace.data.reshape(p.m, p.n)
        owner.workspace.beyond(0, 1)[-1] = spilled or owner.workspace.beyond(0, 1)[-1]

    device: Any = NumpyDevice()
    owner = Owner(device, product)
    pool = Pool(device, 4 * elements(SHAPE, SETS, (owner,)), seed=1)
    checker = SgemmChecker(device, SHAPE, 0)
    other = NumpySubject(device, correct)
    loop = Loop(checker, (owner, other), ("owner", "other"), in_step=True, pool=pool, **KINDS[kind])
    places = set()
    with (
        nullcontext()
        if spilled is None
        else pytest.raises(OutOfBoundsWrite, match=OUTSIDE_WORKSPACE)
    ):
        for _ in range(3):
            loop.move()
            places.add(owner.workspace.start)
            assert owner.workspace.size == SHAPE.m * SHAPE.n and owner.workspace.start >= GUARD
            for launch in loop.launches:
                once(launch)
            device.synchronize()
        assert loop.stage().passed
    loop.close()
    assert len(places) == (3 if spilled is None else 1) and owner.workspace is None
