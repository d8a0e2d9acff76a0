"""The access viewer's document.

Its counts are those of `inspect`, on every line; its words, those of each access. The picture of
a tile has the owners of its elements.
"""

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worklog import plots
from worklog.errors import BadSetting, NothingToDraw
from worklog.kernel import LADDER, Kernel, resources
from worklog.kernel.by_name import kernel_of
from worklog.kernel.emulated import CHIP
from worklog.kernel.inspection import inspect
from worklog.plots.charts.ownership import first_block
from worklog.problem import Shape
from worklog.viewer.accesses import AccessTrace, access
from worklog.viewer.trace import executed

# One for each way to read and to copy: columns, rows, tiles, float4, asynchronous and bulk copies,
# and a chosen tile.
RUNGS = ("naive", "coalesced", "tiles_2d", "conflict_free", "async_copies", "bulk_copies", "best")
EXPLOITS = Path(__file__).parents[1] / "exploits"
COSTS = ("sectors", "wavefronts", "conflicts")
SHAPES = {
    "best": Shape(128, 128, 64),
    "bulk_copies": Shape(128, 256, 32),
}  # of one block, as blocks take a second
SHAPES |= dict.fromkeys(("naive", "coalesced"), Shape(64, 64, 32))  # of four
SHAPES |= dict.fromkeys(("tiles_2d", "conflict_free", "async_copies"), Shape(128, 128, 32))


@pytest.fixture(autouse=True)
def without_machine_code(monkeypatch):
    """To disassemble takes `inspect` longer than to count, and no count needs it."""
    monkeypatch.setattr(resources, "disassembler", lambda: None)


def counted(kernel: Kernel, shape: Shape) -> dict[int, tuple[int, ...]]:
    """By line, what `inspect` counts.

    Sectors, wavefronts and conflicts of all accesses but those to local memory.
    """
    out = {}
    for line, counts in inspect(kernel, shape).lines.items():
        kinds = (
            counts.global_load,
            counts.global_store,
            counts.shared_load,
            counts.shared_store,
            counts.atomic,
        )
        sums = tuple(sum(getattr(kind, name) for kind in kinds) for name in COSTS)
        if any(sums):
            out[line] = sums
    return out


def shown(kernel: Kernel, shape: Shape, blocks: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return the same from the steps of blocks."""
    sums = dict[int, Counter[str]]()
    for block in blocks:
        own = access(kernel, shape, block)
        for kind, *_ in (
            step for warp in range(len(own.document["steps"])) for step in own.steps(warp)
        ):
            if "pill" in kind:
                sectors, _, wavefronts, conflicts = kind["counts"]
                line = sums.setdefault(own.document["pills"][kind["pill"]][0], Counter())
                line.update(dict(zip(COSTS, (sectors, wavefronts, conflicts), strict=True)))
                assert (
                    sum(map(len, kind.get("rows", []))) == wavefronts
                    or "not counted" in kind["cost"]
                ), kind["text"]
    return {
        line: tuple(costs[name] for name in COSTS)
        for line, costs in sums.items()
        if any(costs.values())
    }


@pytest.mark.parametrize(
    "name", [*RUNGS, *sorted(EXPLOITS.glob("right/*.cu")), *sorted(EXPLOITS.glob("wrong/*.cu"))[:3]]
)
def test_counts_equal_those_of_inspect_on_every_line_of_a_rung_or_a_user_kernel(name):
    kernel = kernel_of(str(name), {})
    shape = SHAPES.get(name, kernel.domain.padded(Shape(32, 32, 16)))
    kernel = kernel.at(shape, CHIP)
    assert shown(kernel, shape, range(math.prod(kernel.blocks(shape)))) == counted(kernel, shape)


@pytest.mark.parametrize("name", ["naive", "tiles_2d", "ragged"])
def test_the_block_that_is_shown_accesses_its_buffers_only(name):
    kernel = kernel_of(name, {})
    assert not executed(kernel, kernel.domain.padded(Shape(200, 300, 64))).result.findings


def at_first(shown: AccessTrace) -> dict[str, Any]:
    """Return the step that the viewer shows first."""
    warp, step = shown.document["start"]
    return [kind for kind, *_ in shown.steps(warp) if "pill" in kind][step]


def test_the_accesses_of_a_warp_in_words():
    naive = {kind["text"]: kind["cost"] for kind in access("naive").document["kinds"]}
    assert naive["32 lanes read 32 floats of A"] == "32 sectors where 4 would do, 12.5 % used"
    assert naive["32 lanes read 1 float of B"] == "1 sector, the least possible"
    bulk = {
        kind["cost"]
        for kind in access("bulk_copies").document["kinds"]
        if "bulk copy" in kind.get("text", "")
    }
    assert bulk == {"32 sectors"}, "the least possible"
    [multiplied] = {
        kind["text"]
        for kind in access("wgmma").document["kinds"]
        if "tensor" in kind.get("text", "")
    }
    assert (
        multiplied == "The tensor cores read 288 lines of 16 bytes of shared memory, without lanes"
    )
    first = at_first(access("vectorized"))
    words = "32 lanes read 64 floats of Bs as float4", "8 wavefronts, 4 of them for bank conflicts"
    assert (first["text"], first["cost"]) == words
    read = {start // 4 + k for start in first["lanes"] for k in range(4)}
    assert {word for phase in first["rows"] for delivered in phase for word in delivered} == read


def test_lanes_have_their_distances_from_the_first_also_in_another_block():
    for block in (0, 1):
        kinds = {
            kind["text"]: kind["lanes"]
            for kind in access("coalesced", None, block).document["kinds"]
        }
        assert kinds["32 lanes write 32 floats of C"] == [4 * lane for lane in range(32)]


def test_a_barrier_stands_between_the_writes_of_a_tile_and_its_reads():
    inside = [
        kind for kind, *_ in access("vectorized").steps(0) if "wait" in kind or "rows" in kind
    ]
    order = [
        "wait" if "wait" in kind else "write" if kind.get("writes") else "read" for kind in inside
    ]
    changes = [what for before, what in zip(["", *order], order, strict=False) if what != before]
    assert changes == ["write", "wait", "read", "wait"] * 4


def test_a_kernel_without_waste_opens_in_its_main_loop_and_a_copy_reads_global_memory():
    shown = access("bulk_copies")
    assert at_first(shown)["text"].endswith("floats of shared as float4")
    copies = {
        kind["text"]: kind.get("writes", 0) for kind in shown.document["kinds"] if "box" in kind
    }
    assert shown.document["matrices"]["A"] == [256, 32, 0, 0, 128, 32], (
        "rows and columns of A, and the part to draw"
    )
    assert list(copies.values()) == [0] and "bytes of B to shared memory" in next(iter(copies))
    assert list(access("split").document["matrices"]) == ["C"], (
        "its bulk copies bring the parts of A and B"
    )


def test_the_elements_that_a_warp_finds_in_shared_memory_are_known_from_the_first_one_of_a_on():
    shown = access("tiles_2d")
    holds = [kind["hold"] for kind in shown.document["kinds"] if "hold" in kind]
    assert holds and all(None not in hold for hold in holds)
    rows, columns, *_ = shown.document["matrices"]["A"]
    of_b = {
        (first >= rows * columns, "Bs" in kind["text"])
        for kind, _, first in shown.steps(0)
        if "hold" in kind
    }
    of_a = [
        first for kind, _, first in shown.steps(0) if "read 2 floats of As" in kind.get("text", "")
    ]
    assert {first % columns for first in of_a} == {*range(columns)}, "each k of a row"
    copied = next(
        step
        for step in access("async_copies").steps(0)
        if "floats of Bs" in step[0].get("text", "")
    )
    assert copied[2] >= rows * columns and copied[0]["hold"] == [*range(128)]
    assert of_b == {(True, True), (False, False)}, "elements of B are counted behind those of A"


def test_a_read_that_the_assembler_joins_with_the_one_before_it_costs_nothing_more():
    reads = "float x = s[threadIdx.x / 2 * 2];\n  float y = s[threadIdx.x / 2 * 2 + 1];"
    text = f"""__global__ void gemm(const float* A, const float* B, float* C, int n) {{ __shared__ float s[32];
  s[threadIdx.x] = A[threadIdx.x]; __syncthreads();
  {reads} C[threadIdx.x] = x * y + B[threadIdx.x];\n}}"""
    pills = access(Kernel.from_source(text, grid="1", block="32"), 32).document["pills"]
    assert [pill[:3] for pill in pills if pill[1].startswith("read s")] == [
        [3, "read s · 1 wavefront", 0], [4, "read s · part of a neighbour's access", 0],
    ]  # fmt: skip


def test_a_block_that_is_not_there_is_an_error():
    with pytest.raises(BadSetting, match="naive has 4 blocks"):
        access("naive", block=4)


@pytest.mark.parametrize("name", ["naive", "tiles_1d", "tiles_2d", "best", "split", "bulk_copies"])
def test_every_thread_that_stores_owns_as_many_elements(name):
    """Also in a rung with a workspace, variables, or warps that only copy."""
    shown = access(name)
    owners, _ = first_block(shown)
    threads, elements = np.unique(owners, return_counts=True)
    assert (owners >= 0).all() and len({*elements.tolist()}) == 1
    if shown.kernel in LADDER[:6]:
        assert owners.shape == (shown.kernel.template["BM"], shown.kernel.template["BN"])
        assert threads.tolist() == list(range(shown.kernel.threads))


def test_owners_are_those_that_the_headers_describe():
    row, column = np.indices((128, 128))
    assert (first_block(access("tiles_2d"))[0] == row // 8 * 16 + column // 8).all()


@pytest.mark.parametrize(
    "name", ["equal_shares", "ragged"]
)  # the latter's first block writes to the workspace
def test_where_no_thread_stores_there_are_no_owners_to_draw(name):
    with pytest.raises(NothingToDraw, match=f"{name}: no thread"):
        plots.ownership(access(name))
