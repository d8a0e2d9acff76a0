"""Rungs with one mistake; and every barrier of those that hand over tiles in different ways, and every barrier, wait
and commit of a kernel with asynchronous copies, removed in turn: each time there is a finding at a line concerned.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.helpers import compiled, cuda, edited, gemm, integers, smallest
from worklog.emulator import Finding, Result, launch
from worklog.kernel.ladder import rung

HAND_OVERS = "shared", "vectorized", "double_buffered", "pipelined"  # floats, quads, two tiles, two k
BARRIERS = [(name, number) for name in HAND_OVERS for number in range(rung(name).source.count("__syncthreads();"))]


def lines_of(finding: Finding) -> set[int]:
    """The lines that the finding names, and those that called the functions that they are in."""
    return {finding.line, finding.other_line or finding.line, *finding.callers}


@pytest.mark.parametrize(("name", "number"), BARRIERS)
def test_without_a_barrier_there_is_a_race_between_lines_that_use_the_tiles(name: str, number: int) -> None:
    record, (m, n, k) = rung(name), smallest(rung(name), 3)
    parts = record.source.split("__syncthreads();")
    source = "__syncthreads();".join([*parts[:number], parts[number] + parts[number + 1], *parts[number + 2 :]])
    kernel = compiled(source, record.entry)
    result = gemm(record, kernel, (m // 2, n, k), source=source, count=False)[2]
    assert {finding.kind for finding in result.findings} == {"shared-race"}
    tiles = {n for n, line in enumerate(source.splitlines(), 1) if re.search(r"(As|Bs|a_k|b_k)\[", line)}
    assert all({f.line, f.other_line} <= tiles for f in result.findings), [str(f) for f in result.findings]
    assert any(len({thread // 32 for thread in f.threads}) > 1 for f in result.findings)


COPIES = cuda("copies")


def multiplied(source: str) -> tuple[bool, Result]:
    """Whether the product is right, and what was found."""
    m, n, k = 64, 32, 96
    rng = np.random.default_rng(1)
    a, b, c = integers(rng, m, k), integers(rng, k, n), np.full((m, n), np.nan, np.float32)
    result = launch(compiled(source, "k"), (n // 32, m // 32), 128, [m, n, k, a, b, c], source=source)
    return bool((c == a @ b).all()), result


def test_the_kernel_with_copies_is_right_and_clean() -> None:
    right, result = multiplied(COPIES)
    assert right and result.findings == ()
    loads, stores = result.counts.global_load, result.counts.shared_store
    # Of 2 blocks of 4 warps, in 6 steps one copy of A and one of B, of 16 bytes per thread.
    assert (loads.requests, loads.sectors, loads.bytes, stores.requests) == (96, 96 * 16, 96 * 512, 0)


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        ("wait<1>();", "", "missing-wait", "acc[i] +="),
        ("wait<1>();", "wait<2>();", "missing-wait", "acc[i] +="),
        ("    commit();\n    wait", "\n    wait", "missing-wait", "acc[i] +="),
        ("  commit();\n  for", "\n  for", "missing-wait", "acc[i] +="),
        ("    __syncthreads();\n", "\n", "shared-race", "acc[i] +="),
        ("% 3, next = (now + 1) % 3;", "% 2, next = (now + 1) % 2;", "shared-race", "acc[i] +="),
        ("wait<1>();\n    __syncthreads();", "__syncthreads();\n    wait<1>();", "shared-race", "acc[i] +="),
        ("&A[(row + t / 4) * K + k0 + 16", "&A[(row + t / 4) * K + k0 + 32", "global-out-of-bounds", "k0 + 32"),
        ("&B[(k0 + 16 + t / 8) * N", "&B[(k0 + 17 + t / 8) * N", "global-out-of-bounds", "k0 + 17"),
        ("&As[next][t / 4]", "&As[next][t / 4 + 8]", "shared-out-of-bounds", "t / 4 + 8"),
        ("&Bs[0][t / 8][t % 8 * 4]", "&Bs[0][t / 8][t % 8 * 4 + 1]", "misaligned", "t % 8 * 4 + 1]"),
    ],
)
def test_the_kernel_with_copies_and_a_mistake(old: str, new: str, kind: str, text: str) -> None:
    source, _ = edited(COPIES, old, new)
    right, result = multiplied(source)
    assert not right or kind != "missing-wait", "a copy's data are there before they must be"
    ours = [finding for finding in result.findings if finding.kind == kind]
    assert ours, [finding.at("k.cu") for finding in result.findings]
    numbered = list(enumerate(source.splitlines(), 1))
    allowed = {n for n, line in numbered if "As[" in line or "Bs[" in line or "cp.async.cg" in line}
    (blamed,) = (n for n, line in numbered if text in line)
    assert all(lines_of(finding) <= allowed for finding in ours), [finding.at("k.cu") for finding in ours]
    assert any(blamed in lines_of(finding) for finding in ours), [finding.at("k.cu") for finding in ours]


RACE, GLOBAL, SHARED = "shared-race", "global-out-of-bounds", "shared-out-of-bounds"


# Edits of rungs, and what must be found: its kind, and texts of the edited source's lines that it must name.
FAULTS: dict[str, tuple[str, ...]] = {
    "writes into the buffer that is read": (
        *("autotuned", "store(buffer ^ 1)", "store(buffer)", RACE),
        *("[a_col + 0][a_row + r] = a.x;", "&a_k[i * ROWS]"),
    ),
    "one row too many": ("naive", "row >= M", "row > M", GLOBAL, "acc += A["),
    "one k too many": ("naive", "k < K", "k <= K", GLOBAL, "acc += A["),
    "C is M wide": ("coalesced", "[(size_t)row * N + col]", "[(size_t)row * M + col]", GLOBAL, "*c = beta"),
    "a row of B beyond the last": ("tiles_2d", "(k0 + b_row + r) * N", "(k0 + b_row + r + 1) * N", GLOBAL, "= B["),
    "reads a row behind the tile": ("shared", "As[row][k]", "As[row + 1][k]", SHARED, "acc += As[row + 1][k]"),
    "a third buffer": ("autotuned", "&As[buffer][k][row]", "&As[buffer + 1][k][row]", SHARED, "&a_k[i * ROWS]"),
    "an odd float4": ("vectorized", "K + k0 + a_col]", "K + k0 + a_col + 1]", "misaligned", "const float4 a ="),
    "a row of 129 floats": (
        *("vectorized", "Bs[BK][BN];", "Bs[BK][BN + 1];", "misaligned"),
        *("*(float4*)&Bs[b_row + r][b_col] =", "= *(const float4*)&Bs[k]"),
    ),
    "a row of Bs is not written": (
        *("shared", "    Bs[row][col] = B[", "    if (row != 5) Bs[row][col] = B["),
        *("uninitialised-shared", "acc += As[row][k] * Bs[k][col];"),
    ),
}
# Shapes that are not multiples of a tile, for the kernels that take them.
EDGES = {"one row too many": (63, 64, 8), "C is M wide": (64, 32, 8), "one k too many": (64, 64, 8)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(name: str) -> None:
    rung_name, old, new, kind, *texts = FAULTS[name]
    record = rung(rung_name)
    source, _ = edited(record.source, old, new)
    shape = EDGES.get(name) or smallest(record, 3)
    findings = gemm(record, compiled(source, record.entry), shape, source=source, count=False)[2].findings
    lines = source.splitlines()
    ours = [finding for finding in findings if finding.kind == kind]
    for text in texts:
        numbers = {number for number, line in enumerate(lines, 1) if text in line}
        named = {finding.line for finding in ours} | {finding.other_line for finding in ours}
        assert numbers & named, f"{text!r} (line {numbers}) is not among {[finding.at('k.cu') for finding in findings]}"
    for finding in ours:
        assert finding.text == lines[finding.line - 1].strip()
        assert 0 <= finding.threads[0] < record.thread_count and finding.count >= 1
