"""Faulty kernels, made from the rungs by one small edit each: the emulator names the mistake and the line. Missing
barriers are in test_mutations.
"""

from __future__ import annotations

import pytest

from tests.emulator.helpers import compiled, edited, gemm, smallest
from worklog.kernel.ladder import rung

RACE, GLOBAL, SHARED = "shared-race", "global-out-of-bounds", "shared-out-of-bounds"


# Edits of rungs, and what must be found: its kind, and texts of the edited source's lines that it must name.
FAULTS: dict[str, tuple[str, str, str, str, tuple[str, ...]]] = {
    "writes into the buffer that is read": (
        "autotuned",
        "store(buffer ^ 1)",
        "store(buffer)",
        RACE,
        ("[a_col + 0][a_row + r] = a.x;", "&a_k[i * ROWS]"),
    ),
    "one row too many": ("naive", "row >= M", "row > M", GLOBAL, ("acc += A[",)),
    "one k too many": ("naive", "k < K", "k <= K", GLOBAL, ("acc += A[",)),
    "C is M wide": ("coalesced", "[(size_t)row * N + col]", "[(size_t)row * M + col]", GLOBAL, ("*c = beta",)),
    "a row of B beyond the last": ("tiles_2d", "(k0 + b_row + r) * N", "(k0 + b_row + r + 1) * N", GLOBAL, ("= B[",)),
    "reads a row behind the tile": ("shared", "As[row][k]", "As[row + 1][k]", SHARED, ("acc += As[row + 1][k]",)),
    "the third of two buffers": (
        "autotuned",
        "&As[buffer][k][row]",
        "&As[buffer + 1][k][row]",
        SHARED,
        ("&a_k[i * ROWS]",),
    ),
    "float4 at an odd float": (
        "vectorized",
        "K + k0 + a_col]",
        "K + k0 + a_col + 1]",
        "misaligned",
        ("const float4 a =",),
    ),
    "a row of 129 floats": (
        "vectorized",
        "Bs[BK][BN];",
        "Bs[BK][BN + 1];",
        "misaligned",
        ("*(float4*)&Bs[b_row + r][b_col] =", "= *(const float4*)&Bs[k]"),
    ),
    "a row of Bs is not written": (
        "shared",
        "    Bs[row][col] = B[",
        "    if (row != 5) Bs[row][col] = B[",
        "uninitialised-shared",
        ("acc += As[row][k] * Bs[k][col];",),
    ),
}
# Shapes that are not multiples of a tile, for the kernels that take them.
EDGES = {"one row too many": (63, 64, 8), "C is M wide": (64, 32, 8), "one k too many": (64, 64, 8)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(name: str) -> None:
    rung_name, old, new, kind, texts = FAULTS[name]
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
