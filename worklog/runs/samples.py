"""Samples: what the harness reads, a run file stores and a plot draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed

NAN = float("nan")
Turn = tuple["Sample", "Sample"]  # one launch of the subject and one of the baseline


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (event overhead included), SM clock in MHz, and whether it counts.
    around_us: the global timer's microseconds for the launch with the flush before it. placement: number of the
    placement of the buffers. Raises LaunchFailed for a time that isn't finite and 0 or more.
    """

    us: float
    sm_mhz: float
    counts: bool = True
    around_us: float = NAN
    placement: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: the driver's events or the tracer don't work here "
                "(some virtual GPUs, confidential computing): compare with --set timer=cupti"
            )


@dataclass
class Reading:
    """All samples of a subject and of the baseline, turn by turn, and what went wrong while they were taken."""

    subject: list[Sample] = field(default_factory=list)
    baseline: list[Sample] = field(default_factory=list)
    throttle_mask: int = 0
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)

    def counted(self, which: str) -> list[float]:
        """Microseconds of the samples of "subject" or "baseline" that count."""
        return [sample.us for sample in self._counting(which)]

    def placements(self, which: str) -> list[int]:
        """The placement of each of these samples."""
        return [sample.placement for sample in self._counting(which)]

    def clocks(self, which: str) -> list[tuple[float, float]]:
        """Of these samples: microseconds by the events, and by the global timer around the launch if it was read."""
        samples = self._counting(which)
        return [(sample.us, sample.around_us) for sample in samples if sample.around_us == sample.around_us]

    @property
    def sm_mhz(self) -> float | None:
        """Median SM clock of the subject's samples that count, or None if it could not be read."""
        clocks = [sample.sm_mhz for sample in self._counting("subject") if np.isfinite(sample.sm_mhz)]
        return float(np.median(clocks)) if clocks else None

    def comparisons(self) -> tuple[list[float], list[float], list[int]]:
        """Microseconds of the subject and of the baseline in each turn that counts, and its placement.

        Where all turns have one placement, the mean over each two turns in a row that both count: the subject goes
        first in one, the baseline in the other, and callers that alternate buffers swap them. Without two such turns,
        single ones again.
        """
        turns = list(zip(self.subject, self.baseline, strict=False))  # timed in sequence, one side may have more
        chosen: list[tuple[Turn, ...]] = [(turn,) for turn in turns if turn[0].counts]
        if len({subject.placement for subject, _ in turns}) == 1:
            twos = zip(turns[::2], turns[1::2], strict=False)
            chosen = [two for two in twos if all(s.counts for turn in two for s in turn)] or chosen
        means = [[sum(turn[side].us for turn in turns) / len(turns) for turns in chosen] for side in (0, 1)]
        return means[0], means[1], [turns[0][0].placement for turns in chosen]

    def columns(self) -> dict[str, list[Any]]:
        """The samples as a run file stores them. around_us isn't stored."""
        return {
            "us": [round(s.us, 3) for s in self.subject],
            "sm_mhz": [round(s.sm_mhz, 1) for s in self.subject],
            "baseline_us": [round(s.us, 3) for s in self.baseline],
            "baseline_sm_mhz": [round(s.sm_mhz, 1) for s in self.baseline],
            "counts": [int(s.counts) for s in self.subject],
            "placement": [s.placement for s in self.subject],
            "baseline_placement": [s.placement for s in self.baseline],
        }

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[Any]]) -> Reading:
        """The samples of a run file. A file from before `placement` has one placement."""
        counts = columns["counts"]
        return cls(
            _samples(columns, "us", "sm_mhz", "placement", counts),
            _samples(columns, "baseline_us", "baseline_sm_mhz", "baseline_placement", counts),
        )

    def _counting(self, which: str) -> list[Sample]:
        return [sample for sample in getattr(self, which) if sample.counts]


def _samples(
    columns: Mapping[str, Sequence[Any]], us: str, clock: str, place: str, counts: Sequence[int]
) -> list[Sample]:
    """One side's samples. If it has more of them than the other, the last ones don't count."""
    times = columns.get(us, ())
    clocks, places = columns.get(clock) or [NAN] * len(times), columns.get(place) or [0] * len(times)
    rows = zip_longest(times, clocks, counts[: len(times)], places, fillvalue=0)
    return [
        Sample(time, NAN if mhz is None else mhz, bool(count), placement=placement)
        for time, mhz, count, placement in rows
    ]
