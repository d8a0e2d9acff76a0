"""Other harnesses on the same work as this one.

A harness that is missing or fails gets a row with the reason, and the document is written after every harness, so that
a crash in foreign code loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from worklog.gpu.device import gpu, software, tool
from worklog.harness import Harness, time_in_turn
from worklog.peers import harnesses
from worklog.peers.harnesses import HARNESSES, Timer, Work, by_timer, declared_works, in_words, rows_of, works_on
from worklog.runner.declare import Benchmark
from worklog.runner.job import Progress, silent
from worklog.runs import Estimate, Table, claimed, median, new_path, runs_dir, write_text
from worklog.runs.comparison import CUBLAS, SCHEMA, Comparison, Row

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline
    from worklog.runner.session import Session

KNOWN_US = (1, 2, 3, 5, 10, 20, 30, 50, 100, 300, 1000)
SIZES = (128, 256, 512, 1024, 2048, 4096)
OURS, KEPT, TRACED, HOT = "worklog", "worklog, offset kept", "worklog, CUPTI", "worklog, hot"  # names in recordings
SAMPLING = Harness().but(budget_s=3.0, hot_ms=0.0)
OF_BENCHMARKS = SAMPLING.but(hot_ms=Harness().hot_ms)
PROMISED_SIZES = (512, 1024, 2048, 4096)
AA_PAIRS, AA_SIZE = 50, 512
BESIDE = 3


class Read(NamedTuple):
    """One measurement. interval: the median with its interval, in microseconds, event overhead included. converged:
    whether it reached its precision without it. wall_s: seconds, warm-up included. sm_mhz: the median SM clock. hot:
    of launches in a row, without the overhead; None unless the harness takes it.
    """

    interval: Estimate
    converged: bool
    wall_s: float
    sm_mhz: float | None
    hot: Estimate | None = None


@dataclass(frozen=True)
class OurHarness:
    """This harness on a CuPy stream. offset_us: the event overhead."""

    timeline: CudaTimeline
    stream: Any
    offset_us: float
    sampling: Harness = SAMPLING

    def read(self, work: Work) -> Read:
        """One measurement of the work."""
        started = time.perf_counter()
        launch = partial(work.enqueue, self.stream)
        reading = time_in_turn(self.timeline, [launch], self.sampling, offset_us=self.offset_us, move=work.move)
        wall_s = time.perf_counter() - started
        work.settle()
        interval = median(reading.samples.counted(), reading.samples.placements())
        hot_us = reading.samples.sides[0].hot_us
        hot = median(hot_us) if hot_us else None
        return Read(interval, reading.converged, wall_s, reading.samples.sm_mhz, hot)

    def rows(self, works: Sequence[Work]) -> Iterator[Row]:
        """With the event overhead removed and with it kept: one measurement, shown in two ways; and the hot time where
        it is taken.
        """
        for work in works:
            read = self.read(work)
            shown = {OURS: read.interval.shifted(-self.offset_us), KEPT: read.interval, HOT: read.hot}
            for name, us in shown.items():
                if us is not None:
                    how = (read.wall_s, None, us.low, us.high, read.converged)
                    yield Row(name, work.kind, work.of, us.value, *how)


def compare(out: Path | None = None, progress: Progress = silent, benchmarks: Sequence[Benchmark] = ()) -> Path:
    """Time everything with every harness on this GPU, in less than three minutes; the path of the document. benchmarks:
    time these instead, cold and hot. Raises NoGpu, BadRunFile where it cannot be written, and what `declared_works`
    raises.
    """
    from worklog.runner.session import Session

    session, sampling = Session(), OF_BENCHMARKS if benchmarks else SAMPLING
    document = new_document(session, sampling)
    path = out or runs_dir().parent / "peers" / new_path(document["created"]).name
    works = declared_works(session, benchmarks) if benchmarks else works_on(session, KNOWN_US, SIZES)
    stream = session.device.stream
    ours = OurHarness(session.timeline, stream, session.calibration.offset_us, sampling)
    tracer = partial(harnesses.cupti_timer, session.timeline, stream)
    rows, promises = document["rows"], document["promises"]

    def add(read: Callable[[Sequence[Work]], Iterable[Row]]) -> None:
        rows.extend(map(asdict, read(works)))

    steps: dict[str, Callable[[], object]] = {OURS: lambda: add(ours.rows)}
    for name, (reader, extra) in {**HARNESSES, TRACED: (by_timer(TRACED, tracer), "peers")}.items():
        steps[name] = partial(add, partial(rows_of, name, reader, extra))
    if benchmarks:
        document["benchmarks"] = [*dict.fromkeys(work.kind for work in works)]
    else:
        cublas = {work.of: work for work in works if work.kind == CUBLAS}
        promised = [cublas[size] for size in PROMISED_SIZES]
        steps["A/A"] = lambda: promises.update(aa=same_twice(ours, cublas[AA_SIZE]))
        steps["worklog beside CUPTI"] = lambda: promises.update(beside_the_tracer(ours, tracer, [*cublas.values()]))
        steps["time to ±0.5 %"] = lambda: promises.update(wall_s=wall_times(ours, promised, rows))
    with claimed(path):
        for done, (name, step) in enumerate(steps.items()):
            progress(done, len(steps), name)
            step()
            document["complete"] = done == len(steps) - 1
            write_text(path, document)
    progress(len(steps), len(steps), "done")
    return path


def new_document(session: Session, sampling: Harness) -> dict[str, Any]:
    """The document before anything is read."""
    return {
        "schema": SCHEMA,
        "kind": "peers",
        "origin": "live",
        "tool": tool(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": False,
        "device": asdict(gpu()),
        "software": software(),
        "harness": sampling.as_dict(),
        "calibration": asdict(session.calibration),
        "rows": [],
        "promises": {"wall_s": []},
    }


def same_twice(ours: OurHarness, work: Work, pairs: int = AA_PAIRS) -> dict[str, Any]:
    """How often two readings of the same kernel agree: their 95 % intervals overlap."""
    intervals, agree = [], 0
    for _ in range(pairs):
        first, second = ours.read(work).interval, ours.read(work).interval
        agree += first.low <= second.high and second.low <= first.high
        intervals.append([[us.low, us.value, us.high] for us in (first, second)])
    return {"work": work.kind, "of": work.of, "pairs": pairs, "agree": agree, "intervals_us": intervals}


def beside_the_tracer(ours: OurHarness, tracer: Callable[[], Timer], works: Sequence[Work]) -> dict[str, Any]:
    """Work by events and by the tracer in turn, BESIDE times, so that the clock can't change between the two: the
    median of each one's readings, in microseconds. If the tracer fails, the reason is added to what was read.
    """
    points: list[dict[str, Any]] = []
    for work in works:
        try:
            traced_us = tracer()
            pairs = [(ours.read(work).interval.value, traced_us(work)) for _ in range(BESIDE)]
        # The tracer is foreign code, one per process: no error in it may end the comparison.
        except Exception as error:
            return {"beside_cupti": points, "beside_cupti_reason": in_words(error)}
        events_us, tracer_us = (median(side).value for side in zip(*pairs, strict=True))
        events_us -= ours.offset_us
        points.append({"work": work.kind, "of": work.of, "events_us": events_us, "tracer_us": tracer_us})
    return {"beside_cupti": points}


def wall_times(ours: OurHarness, works: Sequence[Work], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds to a ±0.5 % interval of cuBLAS by this harness (the median of some measurements, since the warm-up waits
    for the clock, and whether all converged), and by NVBench at the same size.
    """
    nvbench = {row["of"]: row["wall_s"] for row in rows if (row["ruler"], row["work"]) == ("NVBench cold", CUBLAS)}
    times = []
    for work in works:
        reads = [ours.read(work) for _ in range(BESIDE)]
        seconds, converged = median([read.wall_s for read in reads]).value, all(read.converged for read in reads)
        times.append(dict(of=work.of, worklog_s=seconds, converged=converged, nvbench_s=nvbench.get(work.of)))
    return times


def text(comparison: Comparison) -> str:
    """A table in microseconds: a line for each work, a column for each harness; then what is missing and why."""
    names = comparison.harnesses
    rows = []
    for kind in comparison.kinds:
        for of in comparison.works(kind):
            read = comparison.us(kind, of)
            rows.append((f"{kind} {of:g}", *(f"{read[name]:.2f}" if name in read else "–" for name in names)))
    lines = [f"{comparison.label} · microseconds as read by each harness"]
    lines += [f"  [{number}] {name}" for number, name in enumerate(names)]
    lines.append(Table("", ("", *(f"[{number}]" for number in range(len(names)))), rows).text())
    lines += [f"{name}: {reason}" for name, reason in comparison.reasons.items()]
    promises = comparison.document["promises"]
    if same := promises.get("aa"):
        lines.append(f"same kernel twice: {same['agree']} of {same['pairs']} pairs agree within their intervals")
    for point in promises.get("wall_s", ()):
        theirs = "–" if point["nvbench_s"] is None else f"{point['nvbench_s']:.2f} s"
        reached = "±0.5 % after" if point["converged"] else "±0.5 % not reached in"
        lines.append(f"cuBLAS {point['of']}: {reached} {point['worklog_s']:.2f} s; NVBench {theirs}")
    return "\n".join(lines)
