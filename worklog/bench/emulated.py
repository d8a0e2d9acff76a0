"""Every rung executed without a GPU: the gate's verdict, the emulator's findings and the memory counts. `worklog
article` shows this on a laptop, beside the recorded times.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from worklog.bench.tasks import Progress
from worklog.emulator import EmulatedDevice, predict
from worklog.emulator.counts import caveats
from worklog.gate import Checker
from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER
from worklog.problem.gemm import Shape
from worklog.runs.table import WIDTH, Table

SMALL = Shape.of(256)
COLUMNS = (
    "rung",
    "gate",
    "at",
    "findings",
    "sectors/request",
    "sectors/FMA",
    "shared wavefronts/FMA",
    "bank conflicts",
)


@dataclass(frozen=True)
class Executed:
    """One rung on the emulator.

    precision: the class that the gate found; reason: why it failed, or None. findings: number of the emulator's
    findings in all launches. sectors_per_request: of global loads. sectors_per_fma: of global loads and stores, per FMA
    of a warp; wavefronts_per_fma: through shared memory, likewise. conflict_share: share of those wavefronts that bank
    conflicts added. caveats: where a GPU may count otherwise.
    """

    rung: str
    label: str
    shape: Shape
    precision: str | None
    reason: str | None
    findings: int
    sectors_per_request: float
    sectors_per_fma: float
    wavefronts_per_fma: float
    conflict_share: float
    caveats: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        return (
            self.rung,
            "failed" if self.reason else f"{self.precision} ok",
            str(self.shape),
            str(self.findings or "none"),
            f"{self.sectors_per_request:.1f}",
            f"{self.sectors_per_fma:.3f}",
            f"{self.wavefronts_per_fma:.3f}",
            f"{100 * self.conflict_share:.0f} %",
        )


def execute(progress: Progress, rungs: Sequence[Kernel] = LADDER) -> list[Executed]:
    """Run every stage of the gate for each rung on the emulator, at 256 padded to its domain, and count its memory
    accesses there. About two seconds per rung.
    """
    done = []
    for number, record in enumerate(rungs):
        progress(number, len(rungs), f"{record.name}, emulated")
        done.append(_executed(record))
    progress(len(rungs), len(rungs), "done")
    return done


def _executed(record: Kernel) -> Executed:
    device, shape = EmulatedDevice(), record.domain.padded(SMALL)
    subject = record.load(device)
    verdict = Checker(device, shape, secrets.randbits(63)).check(subject)
    kernel = subject.compiled.kernel  # type: ignore[attr-defined]
    counts = predict(kernel, record, shape).counts
    wavefronts = counts.shared_load.wavefronts + counts.shared_store.wavefronts
    conflicts = counts.shared_load.conflicts + counts.shared_store.conflicts
    return Executed(
        record.name,
        device.label,
        shape,
        verdict.precision,
        verdict.reason,
        len(device.findings),
        counts.global_load.sectors_per_request,
        counts.global_sectors / counts.instructions["fma"],
        wavefronts / counts.instructions["fma"],
        conflicts / wavefronts if wavefronts else 0.0,
        caveats(kernel),
    )


def as_dict(executed: Sequence[Executed]) -> dict[str, Any]:
    """For machines."""
    rows = [{**asdict(row), "shape": [row.shape.m, row.shape.n, row.shape.k]} for row in executed]
    return {"label": executed[0].label, "rungs": rows}


def text(executed: Sequence[Executed], width: int = WIDTH) -> str:
    """A table for a terminal of `width` characters; failures with their reasons below it."""
    distinct = dict.fromkeys(caveat for row in executed for caveat in row.caveats)
    notes = [f"{', '.join(row.rung for row in executed if caveat in row.caveats)}: {caveat}" for caveat in distinct]
    notes += [f"{row.rung}: failed at {row.reason}" for row in executed if row.reason]
    rows = [row.cells for row in executed]
    return Table(f"executed here · {executed[0].label}", COLUMNS, rows, left=2, notes=notes).text(width)
