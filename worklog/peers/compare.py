"""Other harnesses on the same work as this one.

A harness that is missing or fails gets a row with the reason. The document is written after every
harness, so that a crash in foreign code loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.benchmarks.declare import Benchmark
from worklog.gpu.device import gpu, software
from worklog.harness import Harness, time_in_turn
from worklog.peers import harnesses
from worklog.peers.harnesses import (
    HARNESSES,
    Timer,
    Workload,
    by_timer,
    declared_works,
    in_words,
    rows_of,
    works_on,
)
from worklog.runs import CUBLAS
from worklog.runs.comparison import SCHEMA, Comparison, HarnessReading
from worklog.runs.files import reserve, tool, write_text
from worklog.runs.sources import new_path, runs_dir
from worklog.runs.statistics import Estimate, median
from worklog.runs.text import Progress, Table, silent

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline
    from worklog.harness import LoopResult
    from worklog.runner.session import Session

KNOWN_US = (1, 2, 3, 5, 10, 20, 30, 50, 100, 300, 1000)
SIZES = (128, 256, 512, 1024, 2048, 4096)
# names in recordings
OURS = "worklog"
KEPT = "worklog, offset kept"
TRACED = "worklog, CUPTI"
HOT = "worklog, hot"
SAMPLING = Harness().but(budget_s=3.0, hot_ms=0.0)
AA_PAIRS = 50
AA_SIZE = 512
BESIDE = 3


@dataclass(frozen=True)
class OurHarness:
    """This harness on a CuPy stream."""

    timeline: CudaTimeline
    stream: Any
    offset_us: float  # the event overhead
    sampling: Harness = SAMPLING

    def read(self, work: Workload) -> tuple[LoopResult, Estimate, float]:
        """Return a measurement, its median, and the seconds that it took.

        The median is in microseconds, event overhead included.
        """
        started = time.perf_counter()
        launch = partial(work.enqueue, self.stream)
        reading = time_in_turn(
            self.timeline, [launch], self.sampling, offset_us=self.offset_us, move=work.move
        )
        wall_s = time.perf_counter() - started
        work.settle()
        return reading, median(reading.samples.counted(), reading.samples.placements()), wall_s

    def rows(self, works: Sequence[Workload]) -> Iterator[HarnessReading]:
        """Yield the rows of each work.

        The event overhead is removed in one row and kept in another one. If launches were also
        timed back to back, there is a row for their time.
        """
        for work in works:
            reading, median_us, wall_s = self.read(work)
            estimates = {OURS: median_us.shifted(-self.offset_us), KEPT: median_us}
            hot_us = reading.samples.sides[0].hot_us
            if hot_us:
                estimates[HOT] = median(hot_us)
            for name, us in estimates.items():
                yield HarnessReading(
                    name,
                    work.kind,
                    work.of,
                    us.value,
                    wall_s,
                    None,
                    us.low,
                    us.high,
                    reading.converged,
                )


def compare(
    out: Path | None = None, progress: Progress = silent, benchmarks: Sequence[Benchmark] = ()
) -> Path:
    """Time everything with every harness on this GPU, and return the document's path.

    It takes less than three minutes.
    benchmarks: to time instead, cold and hot
    Raises NoGpu, BadRunFile if the document can't be written, and what `declared_works` raises.
    """
    from worklog.runner.session import Session

    session = Session()
    sampling = SAMPLING.but(hot_ms=Harness().hot_ms) if benchmarks else SAMPLING
    document = new_document(session, sampling)
    path = out or runs_dir().parent / "peers" / new_path(document["created"]).name
    works = (
        declared_works(session, benchmarks) if benchmarks else works_on(session, KNOWN_US, SIZES)
    )
    ours = OurHarness(
        session.timeline, session.device.stream, session.calibration.offset_us, sampling
    )
    if benchmarks:
        document["benchmarks"] = [*dict.fromkeys(work.kind for work in works)]
    steps = _steps(document, ours, works, has_promises=not benchmarks)
    with reserve(path):
        for number, (name, step) in enumerate(steps.items()):
            progress(number, len(steps), name)
            step()
            document["complete"] = number == len(steps) - 1
            write_text(path, document)
    progress(len(steps), len(steps), "done")
    return path


def _steps(
    document: dict[str, Any], ours: OurHarness, works: Sequence[Workload], *, has_promises: bool
) -> dict[str, Callable[[], object]]:
    """Return the steps of a comparison by name. Each step adds its results to the document.

    has_promises: also test what this harness promises of cuBLAS
    """
    tracer = partial(harnesses.cupti_timer, ours.timeline, ours.stream)

    def add(read: Callable[[Sequence[Workload]], Iterable[HarnessReading]]) -> None:
        document["rows"] += map(asdict, read(works))

    steps: dict[str, Callable[[], object]] = {OURS: lambda: add(ours.rows)}
    for name, (reader, extra) in {**HARNESSES, TRACED: (by_timer(TRACED, tracer), "peers")}.items():
        steps[name] = partial(add, partial(rows_of, name, reader, extra))
    if not has_promises:
        return steps
    cublas = [work for work in works if work.kind == CUBLAS]
    aa_work = next(work for work in cublas if work.of == AA_SIZE)
    promises = document["promises"]

    def add_aa() -> None:
        promises.update(aa=same_twice(ours, aa_work))

    def add_tracer() -> None:
        promises.update(beside_the_tracer(ours, tracer, cublas))

    steps["A/A"] = add_aa
    steps["worklog beside CUPTI"] = add_tracer
    return steps


def new_document(session: Session, sampling: Harness) -> dict[str, Any]:
    """Return the document before anything is timed."""
    return {
        "schema": SCHEMA,
        "kind": "peers",
        "origin": "live",
        "tool": tool(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": asdict(gpu()),
        "software": software(),
        "calibration": asdict(session.calibration),
        "harness": sampling.as_dict(),
        "rows": [],
        "promises": {},
    }


def same_twice(ours: OurHarness, work: Workload, pairs: int = AA_PAIRS) -> dict[str, Any]:
    """Return how often two readings of the same kernel agree.

    They agree if their 95 % intervals overlap.
    """
    intervals = []
    agree = 0
    for _ in range(pairs):
        _, first, _ = ours.read(work)
        _, second, _ = ours.read(work)
        if first.low <= second.high and second.low <= first.high:
            agree += 1
        intervals.append([[us.low, us.value, us.high] for us in (first, second)])
    return {
        "work": work.kind,
        "of": work.of,
        "pairs": pairs,
        "agree": agree,
        "intervals_us": intervals,
    }


def beside_the_tracer(
    ours: OurHarness, tracer: Callable[[], Timer], works: Sequence[Workload]
) -> dict[str, Any]:
    """Return the median times of each work by events and by the tracer.

    Times are in microseconds. Events and tracer alternate BESIDE times, so that the clock can't
    change between them. If the tracer fails, the reason is added to the times so far.
    """
    points: list[dict[str, Any]] = []
    for work in works:
        try:
            traced_us = tracer()
            pairs = [(ours.read(work)[1].value, traced_us(work)) for _ in range(BESIDE)]
        # The tracer is foreign code, one per process: no error in it may end the comparison.
        except Exception as error:
            return {"beside_cupti": points, "beside_cupti_reason": in_words(error)}
        events_us, tracer_us = (median(side).value for side in zip(*pairs, strict=True))
        events_us -= ours.offset_us
        points.append(
            {"work": work.kind, "of": work.of, "events_us": events_us, "tracer_us": tracer_us}
        )
    return {"beside_cupti": points}


def text(comparison: Comparison) -> str:
    """Return a table in microseconds: a line for each work, a column for each harness.

    Below it is what is missing, and why.
    """
    names = comparison.harnesses
    rows = []
    for kind in dict.fromkeys(row.work for row in comparison.rows):
        for size in comparison.works(kind):
            times_us = comparison.us(kind, size)
            columns = [f"{times_us[name]:.2f}" if name in times_us else "–" for name in names]
            rows.append((f"{kind} {size:g}", *columns))
    lines = [f"{comparison.label} · microseconds as read by each harness"]
    lines += [f"  [{number}] {name}" for number, name in enumerate(names)]
    lines.append(Table("", ("", *(f"[{number}]" for number in range(len(names)))), rows).text())
    lines += [f"{name}: {reason}" for name, reason in comparison.reasons.items()]
    aa = comparison.promises.get("aa")
    if aa:
        lines.append(
            f"same kernel twice: {aa['agree']} of {aa['pairs']} pairs agree within their intervals"
        )
    return "\n".join(lines)
