"""What a pitfall does to a kernel's time, next to the unbiased measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worklog.problem import Shape
from worklog.runner.measure import results
from worklog.runs import Table, duration


def effect(kernel: str, sizes: Sequence[Shape | int], **setting: Any) -> Table:
    """A row for each size: the unbiased time, the time with these settings, and their difference at one clock; "–" for
    one without a time. Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    run, other = (results([kernel], [*sizes], **how) for how in ({}, setting))
    [(name, value), *more] = setting.items()
    changed, rows = f"{len(setting)} settings" if more else f"{name} = {value}", []
    for true, read in zip(run.measurements, other.measurements, strict=True):
        row = {"kernel": kernel, "at": str(true.problem)}
        row["unbiased"], row[changed] = ("–" if m.us is None else duration(m.us, padded=True) for m in (true, read))
        both = true.us is not None and read.us is not None
        row["difference"] = f"{round(run.difference(true, read).off, 3) + 0.0:+.1%}" if both else "–"
        row["clocks"] = " and ".join("–" if m.sm_mhz is None else f"{m.sm_mhz:.0f}" for m in (true, read)) + " MHz"
        rows.append(row)
    return Table.of(run.label if run.label == other.label else f"{run.label}; {other.label}", rows)
