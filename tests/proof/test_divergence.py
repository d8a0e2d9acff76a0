"""Barriers that only some threads of a block get to, in small kernels."""

import pytest

from worklog.emulator import load
from worklog.proof.divergence import Graph, divergence
from worklog.proof.stop import ProofStopped

HEAD = """.version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u32 size, .param .u64 data) {
.reg.b32 %r<9>; .reg.b64 %rd<9>; .reg.f32 %f<9>; .reg.pred %p<9>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u32 %r3, [size]; ld.param.u64 %rd1, [data];
"""
UNIFORM = {
    "straight": "bar.sync 0;",
    "a branch by the block": "setp.lt.s32 %p1, %r2, 5; @%p1 bra L; bar.sync 0; L:",
    "a branch by a size": "setp.lt.s32 %p1, %r3, 5; @%p1 bra L; bar.sync 0; L:",
    "behind a branch by the thread": (
        "setp.lt.s32 %p1, %r1, 5; @%p1 bra L; add.s32 %r4, %r4, 1; L: bar.sync 0;"
    ),
    "a loop by a size": (
        "mov.u32 %r4, 0; L: bar.sync 0; add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, %r3; @%p1 bra L;"
    ),
}
DIVERGENT = {
    "a branch by the thread": "setp.lt.s32 %p1, %r1, 5; @%p1 bra L; bar.sync 0; L:",
    "a guard": "setp.lt.s32 %p1, %r3, 5; @%p1 bar.sync 0;",
    "a return by the thread": "setp.lt.s32 %p1, %r1, 5; @%p1 ret; bar.sync 0;",
    "a return behind a branch by the thread": (
        "setp.lt.s32 %p1, %r1, 5; setp.lt.s32 %p2, %r3, 5; @%p1 bra L; @%p2 ret; L: bar.sync 0;"
    ),
    "a jump to the end": "setp.lt.s32 %p1, %r1, 5; @%p1 bra E; bar.sync 0; E:",
    "a loop by the thread": (
        "mov.u32 %r4, 0; L: bar.sync 0; add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, %r1; @%p1 bra L;"
    ),
    "a branch by what a loop by the thread counted": (
        "mov.u32 %r4, 0; L: add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, %r1; @%p1 bra L; "
        "setp.lt.s32 %p2, %r4, 3; @%p2 bra M; bar.sync 0; M:"
    ),
    "a branch by what a branch by the thread chose": (
        "mov.u32 %r4, 0; setp.lt.s32 %p1, %r1, 5; @%p1 bra L; mov.u32 %r4, 1; L: "
        "setp.eq.s32 %p2, %r4, 0; @%p2 bra M; bar.sync 0; M:"
    ),
    "a branch by loaded data": (
        "ld.global.u32 %r4, [%rd1]; setp.eq.s32 %p1, %r4, 0; @%p1 bra L; bar.sync 0; L:"
    ),
    "a branch by a shuffle": (
        "shfl.sync.idx.b32 %r4, %r3, 0, 31, -1; setp.eq.s32 %p1, %r4, 0; @%p1 bra L; bar.sync 0; L:"
    ),
}


def deciding(body: str, ending: str = "ret;"):
    """Return the branches by which only some threads get to each barrier."""
    kernel = load(f"{HEAD}{body} {ending} }}")
    graph = Graph.from_kernel(kernel)
    result = divergence(kernel, graph)
    barriers = [one for one in kernel.instructions if one.opcode.barrier]
    assert barriers
    return [result.deciding(graph, barrier) for barrier in barriers]


@pytest.mark.parametrize("name", UNIFORM)
def test_every_thread_gets_to_the_barrier(name):
    assert deciding(UNIFORM[name]) == [None]


@pytest.mark.parametrize("name", DIVERGENT)
def test_some_threads_may_not_get_to_the_barrier(name):
    [branch] = deciding(DIVERGENT[name])
    assert branch is not None
    assert branch.guard is not None


def test_a_jump_to_the_end_of_the_text_is_an_exit():
    body = "setp.lt.s32 %p1, %r1, 5; @%p1 bra E; bar.sync 0; ret; E:"
    [branch] = deciding(body, ending="")
    assert branch is not None


def test_a_loop_without_an_end_stops():
    kernel = load(f"{HEAD} L: bar.sync 0; bra L; }}")
    with pytest.raises(ProofStopped, match="no end"):
        Graph.from_kernel(kernel)


def test_the_blocks_of_nested_loops():
    kernel = load(
        f"{HEAD} mov.u32 %r4, 0; L: mov.u32 %r5, 0; M: add.s32 %r5, %r5, 1; "
        "setp.lt.s32 %p1, %r5, %r3; @%p1 bra M; add.s32 %r4, %r4, 1; "
        "setp.lt.s32 %p2, %r4, %r3; @%p2 bra L; ret; }"
    )
    loops = Graph.from_kernel(kernel).loops
    inner, outer = sorted(loops.values(), key=len)
    assert inner < outer
    assert len(inner) == 1
