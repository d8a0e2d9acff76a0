"""What Nsight Compute recorded of the rungs: how busy a GPU's units were, and the bytes moved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from worklog.errors import BadRunFile
from worklog.kernel.ladder.names import source_changed
from worklog.problem import Shape
from worklog.runs import recordings
from worklog.runs.text import Bar, Table


def counters(rungs: Sequence[str]) -> Table:
    """Return a row per rung with the load of each unit, and the busiest unit.

    The load is a percentage of the unit's peak rate. It is over the launch of the product, without
    launches that split or add. "L1 and shared" is the pipe that serves both. A note names rungs
    that weren't recorded: `python -m tests.record.ncu bounds` records them.

    rungs: names of rungs
    Raises BadRunFile if no rung was recorded.
    """
    document = json.loads(recordings("counters")["h200"].read_text(encoding="utf-8"))
    kernels = document["kernels"]
    missing = [name for name in rungs if name not in kernels]
    recorded = [name for name in rungs if name in kernels]
    if not recorded:
        raise BadRunFile(
            f"no counters of {', '.join(missing)} are recorded: choose from {', '.join(kernels)}"
        )
    units = [*document["metrics"].values()]
    rows = []
    for name in recorded:
        percent = kernels[name]["percent"]
        shares = {unit: Bar(f"{percent[unit]:.0f} %", percent[unit] / 100) for unit in units}
        rows.append({"rung": name, **shares, "busiest": max(units, key=lambda unit: percent[unit])})
    stale = [name for name in recorded if source_changed(name, kernels)]
    notes = []
    if stale:
        notes.append(f"source changed since: {', '.join(stale)}")
    if missing:
        notes.append(f"no counters are recorded of: {', '.join(missing)}")
    return Table.of(f"{_label(document)} · at {Shape(*document['shape'])}", rows, notes=notes)


def moved_from_l2(shape: Shape) -> tuple[dict[str, int], str]:
    """Return the bytes between L2 and L1 in one launch of each rung, and their label.

    Rungs whose source has changed are left out. Empty if none is recorded: `python -m
    tests.record.ncu bytes` records them at 4096.
    """
    path = recordings("bytes").get("h200")
    if path is None:
        return {}, ""
    document = json.loads(path.read_text(encoding="utf-8"))
    if Shape(*document["shape"]) != shape:
        return {}, ""
    kernels = document["kernels"]
    moved = {
        name: int(kernels[name]["bytes"]["L2"])
        for name in kernels
        if not source_changed(name, kernels)
    }
    return moved, f"bytes: {_label(document)}"


def _label(document: dict[str, Any]) -> str:
    """Return the label of a recording by Nsight Compute."""
    return (
        f"recorded · {document['device']} · {document['date']} · Nsight Compute "
        f"{document['ncu'].split()[1]}"
    )
