"""Every rung on the emulator: the gate's verdict, and its memory accesses counted in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from worklog.emulator import caveats, load, predict
from worklog.kernel import LADDER, Kernel
from worklog.problem import Shape
from worklog.runner.check import check
from worklog.runner.job import Progress
from worklog.runs import WIDTH, Table

SMALL = Shape.of(256)
Row = dict[str, Any]


def execute(progress: Progress, rungs: Sequence[Kernel] = LADDER) -> list[Row]:
    """Run every stage of the gate for each rung on the emulator, at 256 padded to its domain, and count its memory
    accesses there. About two seconds per rung.

    In a row: precision: the class that the gate found; reason: why it failed, or None. findings: number of the
    emulator's. sectors_per_request: of global loads. sectors_per_fma: of global loads and stores, per FMA of a warp;
    wavefronts_per_fma: through shared memory, likewise. conflict_share: share of those wavefronts that bank conflicts
    added. caveats: where a GPU may count otherwise.
    """
    rows: list[Row] = []
    for number, rung in enumerate(rungs):
        progress(number, len(rungs), f"{rung.name}, emulated")
        shape = rung.domain.padded(SMALL)
        checked = check(rung, shape, on="emulated")
        assert checked.compiled is not None
        kernel = load(checked.compiled.ptx, checked.compiled.symbol, checked.compiled.shared_accesses)
        counts = predict(kernel, rung, shape).counts
        fma, shared = counts.instructions["fma"], (counts.shared_load, counts.shared_store)
        wavefronts = sum(accesses.wavefronts for accesses in shared)
        conflicts = sum(accesses.conflicts for accesses in shared)
        row: Row = {"rung": rung.name, "label": checked.label, "shape": [*astuple(shape)]}
        row |= {"precision": checked.verdict.precision, "reason": checked.verdict.reason}
        row |= {"findings": len(checked.findings), "sectors_per_request": counts.global_load.sectors_per_request}
        row |= {"sectors_per_fma": counts.global_sectors / fma, "wavefronts_per_fma": wavefronts / fma}
        row |= {"conflict_share": conflicts / wavefronts if wavefronts else 0.0, "caveats": caveats(kernel)}
        rows.append(row)
    progress(len(rungs), len(rungs), "done")
    return rows


def text(executed: Sequence[Row], width: int = WIDTH) -> str:
    """A table for a terminal of `width` characters; failures with their reasons below it."""
    of_caveat, failures, cells = dict[str, list[str]](), list[str](), list[dict[str, str]]()
    for row in executed:
        for caveat in row["caveats"]:
            of_caveat.setdefault(caveat, []).append(row["rung"])
        if row["reason"]:
            failures.append(f"{row['rung']}: failed at {row['reason']}")
        cell = {"rung": row["rung"], "gate": "failed" if row["reason"] else f"{row['precision']} ok"}
        cell |= {"at": str(Shape.of(row["shape"])), "findings": str(row["findings"] or "none")}
        cell |= {"sectors/request": f"{row['sectors_per_request']:.1f}", "sectors/FMA": f"{row['sectors_per_fma']:.3f}"}
        cell |= {"shared wavefronts/FMA": f"{row['wavefronts_per_fma']:.3f}"}
        cells.append(cell | {"bank conflicts": f"{100 * row['conflict_share']:.0f} %"})
    notes = [f"{', '.join(rungs)}: {caveat}" for caveat, rungs in of_caveat.items()] + failures
    return Table.of(f"executed here · {executed[0]['label']}", cells, left=2, notes=notes).text(width)
