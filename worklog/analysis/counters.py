"""How busy the units of a GPU were in each rung, by Nsight Compute, as recorded in the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from worklog.kernel.ladder import source_changed
from worklog.problem import Shape
from worklog.runs import BadRunFile, Bar, Table, recordings


def counters(rungs: Sequence[str]) -> Table:
    """A row per rung with the percentage of each unit's peak rate over the launch of its product, without launches that
    split or add, and the busiest unit. "L1 and shared" is the pipe that serves both. A note names those that were not
    recorded: `python -m tests.record.ncu bounds` records them. Raises BadRunFile where no rung was.
    """
    document = json.loads(recordings("counters")["h200"].read_text(encoding="utf-8"))
    kernels = document["kernels"]
    missing, rungs = [name for name in rungs if name not in kernels], [name for name in rungs if name in kernels]
    if not rungs:
        raise BadRunFile(f"no counters of {', '.join(missing)} are recorded: choose from {', '.join(kernels)}")
    units = [*document["metrics"].values()]
    rows = []
    for name in rungs:
        percent = kernels[name]["percent"]
        shares = {unit: Bar(f"{percent[unit]:.0f} %", percent[unit] / 100) for unit in units}
        rows.append({"rung": name, **shares, "busiest": max(units, key=lambda unit: percent[unit])})
    stale = [name for name in rungs if source_changed(name, kernels)]
    notes = [f"source changed since: {', '.join(stale)}"] if stale else []
    notes += [f"no counters are recorded of: {', '.join(missing)}"] if missing else []
    return Table.of(f"{_label(document)} · at {Shape(*document['shape'])}", rows, notes=notes)


def moved_from_l2(shape: Shape) -> tuple[dict[str, int], str]:
    """Bytes between L2 and L1 in one launch of each rung at a shape, and their label: of rungs whose source is the same
    today. Empty where none is recorded: `python -m tests.record.ncu bytes` records them at 4096.
    """
    path = recordings("bytes").get("h200")
    if path is None:
        return {}, ""
    document = json.loads(path.read_text(encoding="utf-8"))
    if Shape(*document["shape"]) != shape:
        return {}, ""
    kernels = document["kernels"]
    moved = {name: int(kernels[name]["bytes"]["L2"]) for name in kernels if not source_changed(name, kernels)}
    return moved, f"bytes: {_label(document)}"


def _label(document: dict[str, Any]) -> str:
    return f"recorded · {document['device']} · {document['date']} · Nsight Compute {document['ncu'].split()[1]}"


def busiest(rung: str) -> str:
    """The unit of the GPU that was busiest in a rung, in words with its share and the label. Raises BadRunFile."""
    table = counters([rung])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    return f"{row['busiest']} {row[str(row['busiest'])]} busy, the busiest unit ({table.title})"
