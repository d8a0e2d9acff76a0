"""Faulty kernels, made from the rungs by one small edit each: the emulator names the mistake and the line. Missing
barriers are in test_mutations.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.emulator.helpers import compiled, edited, gemm, smallest
from worklog.emulator import Finding
from worklog.kernel.ladder import rung

COMPLETE = "__syncthreads();  // wait: the tile must be complete before any thread reads it"
NEXT = "__syncthreads();  // wait: the next tile must be complete, and this one no longer in use"
RACE, GLOBAL, SHARED = "shared-race", "global-out-of-bounds", "shared-out-of-bounds"


@dataclass(frozen=True)
class Fault:
    """An edit of a rung, and what must be found: its kind, and texts of the edited source's lines that it must name."""

    rung: str
    old: str
    new: str
    kind: str
    lines: tuple[str, ...]
    shape: tuple[int, int, int] | None = None


FAULTS = {
    "autotuned: writes into the buffer that is read": Fault(
        "autotuned",
        "store(buffer ^ 1)",
        "store(buffer)",
        RACE,
        ("[a_col + 0][a_row + r] = a.x;", "&a_k[i * ROWS]"),
    ),
    "warptiled: turns to the next buffer before it is written": Fault(
        "warptiled",
        "        if (k0 + BK < K) store(buffer);\n        " + NEXT,
        "        " + NEXT + "\n        if (k0 + BK < K) store(buffer);",
        RACE,
        ("&a_k[i * ROWS]", "[a_col + 0][a_row + r] = a.x;"),
    ),
    "naive: one row too many": Fault("naive", "row >= M", "row > M", GLOBAL, ("acc += A[",), (63, 64, 8)),
    "naive: one column too many": Fault("naive", "col >= N", "col > N", GLOBAL, ("*c = beta",), (64, 63, 8)),
    "naive: one k too many": Fault("naive", "k < K", "k <= K", GLOBAL, ("acc += A[",)),
    "coalesced: no bounds check": Fault(
        "coalesced", "if (row >= M || col >= N) return;", "", GLOBAL, ("acc += A[",), (33, 33, 8)
    ),
    "coalesced: C is M wide": Fault(
        "coalesced", "&C[(size_t)row * N + col]", "&C[(size_t)row * M + col]", GLOBAL, ("*c = beta",), (64, 32, 8)
    ),
    "shared: one tile too many": Fault("shared", "k0 < K", "k0 <= K", GLOBAL, ("Bs[row][col] = B[",)),
    "tiles_2d: a row of B beyond the last": Fault(
        "tiles_2d", "(k0 + b_row + r) * N", "(k0 + b_row + r + 1) * N", GLOBAL, ("= B[",)
    ),
    "vectorized: A by columns of B": Fault(
        "vectorized",
        "A[(size_t)(a_row + r) * K + k0 + a_col]",
        "A[(size_t)(a_row + r) * N + k0 + a_col]",
        GLOBAL,
        ("const float4 a =",),
    ),
    "shared: reads a row behind the tile": Fault(
        "shared", "As[row][k]", "As[row + 1][k]", SHARED, ("acc += As[row + 1][k]",)
    ),
    "tiles_1d: reads behind the tile": Fault(
        "tiles_1d", "k < BK; ++k", "k <= BK; ++k", SHARED, ("const float b = Bs[k][col];",)
    ),
    "autotuned: the third of two buffers": Fault(
        "autotuned",
        "&As[buffer][k][row]",
        "&As[buffer + 1][k][row]",
        SHARED,
        ("&a_k[i * ROWS]",),
    ),
    "vectorized: float4 at an odd float": Fault(
        "vectorized", "K + k0 + a_col]", "K + k0 + a_col + 1]", "misaligned", ("const float4 a =",)
    ),
    "vectorized: a row of 129 floats": Fault(
        "vectorized",
        "Bs[BK][BN];",
        "Bs[BK][BN + 1];",
        "misaligned",
        ("*(float4*)&Bs[b_row + r][b_col] =", "= *(const float4*)&Bs[k]"),
    ),
    "shared: a row of Bs is not written": Fault(
        "shared",
        "    Bs[row][col] = B[",
        "    if (row != 5) Bs[row][col] = B[",
        "uninitialised-shared",
        ("acc += As[row][k] * Bs[k][col];",),
    ),
    "tiles_1d: everybody writes one column": Fault(
        "tiles_1d", "As[a_row][a_col] =", "As[a_row][0] =", RACE, ("As[a_row][0] = A[",)
    ),
    "shared: some threads leave before the barrier": Fault(
        "shared",
        "  float acc = 0.0f;",
        "  if (row == 31 && col > 20) return;\n  float acc = 0.0f;",
        "barrier-after-exit",
        (COMPLETE,),
    ),
}


def findings_of(fault: Fault) -> tuple[tuple[Finding, ...], str]:
    record = rung(fault.rung)
    program = record.program
    source, _ = edited(program.source, fault.old, fault.new)
    kernel = compiled(source, record.entry)
    _, _, result = gemm(record, kernel, fault.shape or smallest(record), source=source)
    return result.findings, source


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is(name: str) -> None:
    fault = FAULTS[name]
    findings, source = findings_of(fault)
    lines = source.splitlines()
    ours = [finding for finding in findings if finding.kind == fault.kind]
    assert ours, f"not found; instead: {[str(finding) for finding in findings]}"
    for text in fault.lines:
        numbers = {number for number, line in enumerate(lines, 1) if text in line}
        assert numbers, f"the source has no {text!r}"
        named = {finding.line for finding in ours} | {finding.other_line for finding in ours}
        assert numbers & named, f"{text!r} (line {numbers}) is not among {[str(finding) for finding in ours]}"
    for finding in ours:
        assert finding.text == lines[finding.line - 1].strip()
        assert 0 <= finding.threads[0] < rung(fault.rung).thread_count
        assert finding.count >= 1
