"""Every rung, really executed without a GPU: the gate's word, what the emulator's detectors found, and what the rung
asks of memory. This is what `worklog article` can still do on a laptop; times it takes from the recording.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from worklog.emulator import Counts, EmulatedDevice, Kernel, predict
from worklog.emulator.counts import caveats
from worklog.gate import Checker
from worklog.kernel import Kernel as Record
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

    precision: the class that the gate found; reason: why it was refused, or None. findings: of the detectors, in all
    launches. sectors_per_request: of global loads. sectors_per_fma: of global loads and stores, for each multiply-add
    of a warp; wavefronts_per_fma: passes through shared memory, likewise. conflict_share: of those passes, the ones
    that bank conflicts added. caveats: where a GPU may count otherwise.
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
            "refused" if self.reason else f"{self.precision} ok",
            str(self.shape),
            str(self.findings or "none"),
            f"{self.sectors_per_request:.1f}",
            f"{self.sectors_per_fma:.3f}",
            f"{self.wavefronts_per_fma:.3f}",
            f"{100 * self.conflict_share:.0f} %",
        )


def execute(progress: Callable[[int, int, str], None], rungs: Sequence[Record] = LADDER) -> list[Executed]:
    """Put each rung to every stage of the gate on the emulator, at 256 padded to its domain; and count its traffic
    there. About two seconds a rung.
    """
    done = []
    for number, record in enumerate(rungs):
        progress(number, len(rungs), f"{record.name}, emulated")
        done.append(_executed(record))
    progress(len(rungs), len(rungs), "done")
    return done


def _executed(record: Record) -> Executed:
    device = EmulatedDevice()
    subject = record.load(device)
    shape = record.domain.padded(SMALL)
    verdict = Checker(device, shape, secrets.randbits(63)).check(subject)
    kernel: Kernel = subject.compiled.kernel  # type: ignore[attr-defined]
    counts = predict(kernel, record, shape).counts
    return Executed(
        record.name,
        device.label,
        shape,
        verdict.precision,
        verdict.reason,
        len(device.findings),
        counts.global_load.sectors_per_request,
        counts.global_sectors / counts.instructions["fma"],
        *_shared(counts),
        caveats(kernel),
    )


def _shared(counts: Counts) -> tuple[float, float]:
    """(wavefronts through shared memory per multiply-add of a warp, share of them due to bank conflicts)."""
    wavefronts = counts.shared_load.wavefronts + counts.shared_store.wavefronts
    conflicts = counts.shared_load.conflicts + counts.shared_store.conflicts
    return wavefronts / counts.instructions["fma"], conflicts / wavefronts if wavefronts else 0.0


def as_dict(executed: Sequence[Executed]) -> dict[str, Any]:
    """For machines."""
    rows = [{**asdict(row), "shape": [row.shape.m, row.shape.n, row.shape.k]} for row in executed]
    return {"label": executed[0].label, "rungs": rows}


def text(executed: Sequence[Executed], width: int = WIDTH) -> str:
    """A table for the terminal; failures with their reasons below it."""
    notes = [
        f"{', '.join(row.rung for row in executed if caveat in row.caveats)}: {caveat}"
        for caveat in dict.fromkeys(caveat for row in executed for caveat in row.caveats)
    ]
    notes += [f"{row.rung}: failed at {row.reason}" for row in executed if row.reason]
    rows = [row.cells for row in executed]
    return Table(f"executed here · {executed[0].label}", COLUMNS, rows, left=2, notes=notes).text(width)
