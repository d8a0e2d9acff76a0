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
    for number, record in enumerate(rungs):
        progress(number, len(rungs), f"{record.name}, emulated")
        shape = record.domain.padded(SMALL)
        checked = check(record, shape, on="emulated")
        compiled, verdict = checked.compiled, checked.verdict
        assert compiled is not None
        kernel = load(compiled.ptx, compiled.symbol, compiled.shared_accesses)
        counts = predict(kernel, record, shape).counts
        fma = counts.instructions["fma"]
        wavefronts = counts.shared_load.wavefronts + counts.shared_store.wavefronts
        conflicts = counts.shared_load.conflicts + counts.shared_store.conflicts
        row: Row = {"rung": record.name, "label": checked.label, "shape": [*astuple(shape)]}
        row |= {"precision": verdict.precision, "reason": verdict.reason, "findings": len(checked.findings)}
        row |= {"sectors_per_request": counts.global_load.sectors_per_request}
        row |= {"sectors_per_fma": counts.global_sectors / fma, "wavefronts_per_fma": wavefronts / fma}
        row |= {"conflict_share": conflicts / wavefronts if wavefronts else 0.0, "caveats": caveats(kernel)}
        rows.append(row)
    progress(len(rungs), len(rungs), "done")
    return rows


def text(executed: Sequence[Row], width: int = WIDTH) -> str:
    """A table for a terminal of `width` characters; failures with their reasons below it."""
    distinct = dict.fromkeys(caveat for row in executed for caveat in row["caveats"])
    notes = [f"{', '.join(r['rung'] for r in executed if caveat in r['caveats'])}: {caveat}" for caveat in distinct]
    notes += [f"{row['rung']}: failed at {row['reason']}" for row in executed if row["reason"]]
    cells = [
        {
            "rung": row["rung"],
            "gate": "failed" if row["reason"] else f"{row['precision']} ok",
            "at": str(Shape(*row["shape"])),
            "findings": str(row["findings"] or "none"),
            "sectors/request": f"{row['sectors_per_request']:.1f}",
            "sectors/FMA": f"{row['sectors_per_fma']:.3f}",
            "shared wavefronts/FMA": f"{row['wavefronts_per_fma']:.3f}",
            "bank conflicts": f"{100 * row['conflict_share']:.0f} %",
        }
        for row in executed
    ]
    return Table.of(f"executed here · {executed[0]['label']}", cells, left=2, notes=notes).text(width)
