"""Blocks that do what the traced block does, at the distances that the viewer's document has."""

import math
from typing import Any

import pytest

from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.viewer.accesses import AccessTrace, access, common_shape
from worklog.viewer.blocks import compared_blocks

# Columns, tiles, float4 through shared memory, bulk copies, and shares of K in a workspace.
RUNGS = {
    "naive": Shape(64, 96, 8),
    "shared": Shape(64, 64, 64),
    "conflict_free": Shape(256, 128, 16),
    "bulk_copies": None,
    "equal_shares": None,
}
Steps = list[tuple[Any, ...]]


def elements(document: dict[str, Any], kind: dict[str, Any], first: int, moved: Any) -> list[Any]:
    """Return the elements of A, then B, that a step holds, after A and B have moved by bytes."""
    held = [first + offset for offset in kind.get("hold", ()) if offset is not None]
    distance = {
        name: moved[document["arrays"].index(name)] // 4 if name in document["arrays"] else 0
        for name in "AB"
    }
    return [
        element + distance["A" if element < document["of_a"] else "B"] for element in held
    ]  # fmt: skip


def steps_of(traced: AccessTrace, block: int) -> list[Steps]:
    """Return the steps of each warp of a block: text, cost, array, bytes of lanes, elements."""
    document = traced.document
    moved = dict(document["blocks"])[block]
    warps = list[Steps]()
    for warp in range(len(document["steps"])):
        steps: Steps = []
        for kind, byte, first in traced.steps(warp):
            if "wait" in kind:
                steps.append((kind["wait"],))
                continue
            place = byte + moved[kind["array"]]
            lanes = [None if lane is None else place + lane for lane in kind.get("lanes", ())]
            held = elements(document, kind, first, moved)
            steps.append((kind["text"], kind["cost"], place, lanes, held))
        warps.append(steps)
    return warps


@pytest.mark.parametrize("name", RUNGS)
def test_each_block_has_the_addresses_and_the_elements_that_it_has_if_it_is_traced(name):
    shape = RUNGS[name]
    first = access(name, shape)
    numbers = [number for number, _ in first.document["blocks"]]
    assert numbers == compared_blocks(math.prod(first.document["grid"])), "none is left out"
    assert len(numbers) > 1
    for number in {numbers[1], numbers[-1]}:
        traced = access(name, shape, number)
        assert steps_of(first, number) == steps_of(traced, number)
        assert steps_of(first, number) != steps_of(first, 0)


def test_distances_are_also_known_from_the_last_block_backwards():
    first, last = access("shared"), access("shared", None, 3)
    assert dict(last.document["blocks"])[3] == [0] * len(last.document["arrays"])
    assert steps_of(last, 0) == steps_of(first, 0)


def blocks_of(kernel: Kernel, shape: Shape) -> list[int]:
    return [number for number, _ in access(kernel, shape).document["blocks"]]


def one_warp(body: str, grid: str = "3") -> Kernel:
    """Return a kernel of one warp, which has `t` and a shared array."""
    text = f"""__global__ void gemm(const float* A, const float* B, float* C, int n) {{
      __shared__ float s[32]; int t = threadIdx.x, b = blockIdx.x; s[t] = 0.0f;
      {body} }}"""
    return Kernel.from_source(text, grid=grid, block="32")


def test_a_block_at_the_edge_of_the_matrices_does_something_else():
    numbers = {number for number, _ in access("naive", Shape(40, 96, 8)).document["blocks"]}
    assert numbers == {0, 1, 2}, "the blocks below have 8 rows"
    edge = access("naive", Shape(40, 96, 8), 4).document
    assert [number for number, _ in edge["blocks"]] == [3, 4, 5]


@pytest.mark.parametrize(
    "body",
    [
        # The last block reads A backwards.
        "C[32 * b + t] = A[b < 2 ? 32 * b + t : 95 - t] + B[t];",
        # It finds another value in shared memory, though it reads the same places.
        "s[t] = A[32 * b + t] * (b < 2); __syncthreads(); C[32 * b + t] = s[31 - t] + B[t];",
        # It writes to another place in shared memory.
        "s[b < 2 ? t : 31 - t] = A[32 * b + t] + B[t]; __syncthreads(); C[32 * b + t] = s[t];",
        # Another lane takes no part.
        "if (t != (b < 2 ? 31 : 0)) C[32 * b + t] = A[32 * b + t] + B[t];",
        # It waits once more.
        "if (b == 2) __syncthreads(); C[32 * b + t] = A[32 * b + t] + B[t];",
    ],
)
def test_a_block_that_differs_in_any_way_is_left_out(body):
    assert blocks_of(one_warp(body), Shape(32, 32, 32)) == [0, 1]


def test_the_blocks_of_a_kernel_that_needs_all_of_them_are_compared():
    kernel = one_warp("atomicAdd(&C[32 * b + t], A[32 * b + t] + B[t]);")
    assert blocks_of(kernel, Shape(32, 32, 32)) == [0, 1, 2]


def test_a_large_grid_is_compared_at_some_blocks_from_the_first_to_the_last():
    assert compared_blocks(64) == [*range(64)]
    some = compared_blocks(1000)
    assert len({*some}) == len(some) < 64
    assert some == sorted(some) and (some[0], some[-1]) == (0, 999)


def test_two_kernels_have_a_shape_in_common_that_both_can_run():
    assert common_shape(["naive", "coalesced"]) == access_shape("naive")
    shape = common_shape(["shared", "vectorized"])
    assert shape == Shape(256, 256, 64)
    for name in ("shared", "vectorized"):
        assert access(name, shape).document["about"].startswith("M, N, K = 256, 256, 64")


def access_shape(name: str) -> Shape:
    """Return the shape at which access() runs a rung by default."""
    matrices = access(name).document["matrices"]
    return Shape(matrices["A"][0], matrices["B"][1], matrices["A"][1])
