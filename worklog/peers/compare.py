"""Other harnesses on the same work, and whether our 95 % intervals hold.

A harness that is missing or fails gets a row with the reason, and the document is written after every harness, so that
a crash in foreign code loses nothing.

`coverage` starts child processes one after the other, since physical pages, the event overhead and the gaps between
kernels differ between processes; `python -m worklog.peers.compare WORKS COUNT` is such a child, and calibrates the
overhead for itself. It prints JSON, an item for each work: each reading's low, middle and high in microseconds without
the overhead, its SM clock and its seconds, and the number of kernels of a launch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from worklog.errors import WorklogError, install_command
from worklog.gpu import gpu, software, tool
from worklog.kernel import rung
from worklog.peers.harnesses import HARNESSES, SAMPLING, OtherHarness, OurHarness, Read, Work, product
from worklog.runner.declare import Benchmark
from worklog.runner.tasks import Progress, silent
from worklog.runs import Table, claimed, median, new_path, runs_dir, write_text
from worklog.runs.comparison import CUBLAS, SCHEMA, Comparison, Row
from worklog.settings import Harness

KNOWN_US = (1, 2, 3, 5, 10, 20, 30, 50, 100, 300, 1000)
SIZES = (128, 256, 512, 1024, 2048, 4096)
OURS, KEPT, TRACED, HOT = "worklog", "worklog, offset kept", "worklog, CUPTI", "worklog, hot"  # names in recordings
AA_PAIRS, AA_SIZE = 50, 512
BESIDE = 3
OF_BENCHMARKS = SAMPLING.but(hot_ms=Harness().hot_ms)
PROMISED_SIZES = (512, 1024, 2048, 4096)


def compare(
    out: Path | None = None, progress: Progress = silent, only: str | None = None, benchmarks: Sequence[Benchmark] = ()
) -> Path:
    """Time everything with every harness on this GPU, in less than three minutes, and whether the intervals hold, in
    about six; the path of the document. only: "intervals" for the latter alone. benchmarks: time these instead, cold
    and hot. Raises NoGpu, BadRunFile where it cannot be written, and what `declared_works` raises.
    """
    from worklog.peers.harnesses import declared_works, works_on
    from worklog.runner.session import Session

    session, sampling = Session(), OF_BENCHMARKS if benchmarks else SAMPLING
    created = datetime.now(UTC).isoformat(timespec="seconds")
    path = out or runs_dir().parent / "peers" / new_path(gpu().name, created, "peers").name
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "peers",
        "origin": "live",
        "tool": tool(),
        "created": created,
        "complete": False,
        "device": gpu().as_dict(),
        "software": software(),
        "harness": sampling.as_dict(),
        "calibration": session.calibration.as_dict(),
        "rows": [],
        "promises": {"again": []},
    }
    works = declared_works(session, benchmarks) if benchmarks else works_on(session, KNOWN_US, SIZES)
    if benchmarks:
        document["benchmarks"] = [*dict.fromkeys(work.kind for work in works)]
    cublas = {work.of: work for work in works if work.kind == CUBLAS}
    ours = OurHarness(session.timeline, session.device, session.calibration.offset_us, sampling)
    # Each step returns rows or promises of the document.
    steps: list[tuple[str, Callable[[], list[Row] | dict[str, Any]]]] = [
        (OURS, lambda: our_rows(ours, works)),
        *((other.name, partial(rows_of, other, works)) for other in HARNESSES),
        (TRACED, lambda: traced_rows(ours, works)),
    ]
    if not benchmarks:
        steps[1:1] = [
            ("time to ±0.5 %", lambda: seconds_again(ours, [cublas[size] for size in PROMISED_SIZES])),
            ("A/A", lambda: same_twice(ours, cublas[AA_SIZE])),
        ]
        steps += [
            ("worklog beside CUPTI", lambda: beside_the_tracer(ours, list(cublas.values()))),
            ("intervals", lambda: {"coverage": coverage()}),
        ]
    steps = [(name, step) for name, step in steps if only in (None, name)]
    with claimed(path):
        for done, (name, step) in enumerate(steps):
            progress(done, len(steps), name)
            found = step()
            if isinstance(found, dict):
                document["promises"].update(found)
            else:
                document["rows"] += map(asdict, found)
            document["complete"] = done == len(steps) - 1
            document["promises"]["wall_s"] = wall_times(document["rows"], document["promises"]["again"])
            write_text(path, document)
    progress(len(steps), len(steps), "done")
    return path


def our_rows(ours: OurHarness, works: Sequence[Work]) -> list[Row]:
    """This harness, with the event overhead removed and with it kept: one reading each, shown in two ways; and the hot
    time where it is taken.
    """
    rows = []
    for work in works:
        read = ours.read(work)
        rows += [_row(OURS, work, read, ours.offset_us), _row(KEPT, work, read)]
        rows += [_row(HOT, work, read._replace(interval=read.hot))] if read.hot else []
    return rows


def traced_rows(ours: OurHarness, works: Sequence[Work]) -> list[Row]:
    """This harness with the GPU's own tracer as its timer."""
    rows = []
    for work in works:
        try:
            rows.append(_row(TRACED, work, ours.read(work, "cupti")))
        # The tracer is foreign code, one per process: no error in it may lose the other rows.
        except Exception as error:
            rows.append(Row(TRACED, work.kind, work.of, reason=_words(error)))
    return rows


def beside_the_tracer(ours: OurHarness, works: Sequence[Work]) -> dict[str, Any]:
    """Work by events and by the tracer in turn, BESIDE times, so that the clock can't change between the two: the
    median of each one's readings, in microseconds. If the tracer fails, the reason is added to what was read.
    """
    found: list[dict[str, Any]] = []
    for work in works:
        try:
            pairs = [(ours.read(work).interval.value, ours.read(work, "cupti").interval.value) for _ in range(BESIDE)]
        except Exception as error:  # foreign code, as above
            return {"beside_cupti": found, "beside_cupti_reason": _words(error)}
        events_us, tracer_us = (median(side).value for side in zip(*pairs, strict=True))
        found.append(
            {"work": work.kind, "of": work.of, "events_us": events_us - ours.offset_us, "tracer_us": tracer_us}
        )
    return {"beside_cupti": found}


def _row(name: str, work: Work, read: Read, off: float = 0.0) -> Row:
    us = read.interval.shifted(-off)
    return Row(name, work.kind, work.of, us.value, read.wall_s, None, us.low, us.high, read.converged)


def rows_of(other: OtherHarness, works: Sequence[Work]) -> list[Row]:
    """Another harness's rows. Any error in it becomes the reason of its rows."""
    rows: list[Row] = []
    try:
        for name, work, us, wall_s in other.read(works):
            reason = None if isfinite(us) else f"it read {us} µs"
            seconds = wall_s if wall_s is not None and isfinite(wall_s) else None
            rows.append(Row(name, work.kind, work.of, us if reason is None else None, seconds, reason))
    # Foreign code may raise anything, at import or at any launch; none of it may end the comparison.
    except Exception as error:
        remedy = f"; to get it: {install_command(other.extra)}" if isinstance(error, ImportError) else ""
        why = f"{_words(error)}{remedy}"
        read = {(row.work, row.of) for row in rows}
        rows += [Row(other.name, w.kind, w.of, reason=why) for w in works if (w.kind, w.of) not in read]
    return rows


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def same_twice(ours: OurHarness, work: Work, pairs: int = AA_PAIRS) -> dict[str, Any]:
    """How often two readings of the same kernel agree: their 95 % intervals overlap."""
    found = []
    for _ in range(pairs):
        one, two = (ours.read(work).interval for _ in range(2))
        found.append([[one.low, one.value, one.high], [two.low, two.value, two.high]])
    agree = sum(one[0] <= two[2] and two[0] <= one[2] for one, two in found)
    return {"aa": {"work": work.kind, "of": work.of, "pairs": pairs, "agree": agree, "intervals_us": found}}


def seconds_again(ours: OurHarness, works: Sequence[Work]) -> dict[str, Any]:
    """Seconds of further readings: the warm-up waits for the clock, and how long varies."""
    again = []
    for work in works:
        for _ in range(BESIDE - 1):
            read = ours.read(work)
            again.append({"of": work.of, "wall_s": read.wall_s, "converged": read.converged})
    return {"again": again}


def wall_times(rows: Sequence[dict[str, Any]], again: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds to a ±0.5 % interval of cuBLAS by this harness (the median of its readings, and whether all converged),
    and by NVBench at the same size.
    """
    found = {(row["ruler"], row["of"]): row for row in rows if row["work"] == "cuBLAS"}
    times = []
    for size in PROMISED_SIZES:
        if (OURS, size) not in found:
            continue
        readings = [found[OURS, size], *(reading for reading in again if reading["of"] == size)]
        times.append(
            {
                "of": size,
                "worklog_s": median([reading["wall_s"] for reading in readings]).value,
                "converged": all(reading["converged"] for reading in readings),
                "nvbench_s": found.get(("NVBench cold", size), {}).get("wall_s"),
            }
        )
    return times


def text(comparison: Comparison) -> str:
    """A table in microseconds: a line for each work, a column for each harness; then what is missing and why."""
    names = comparison.harnesses
    rows = [
        (f"{kind} {of:g}", *(f"{read[name]:.2f}" if name in read else "–" for name in names))
        for kind in comparison.kinds
        for of in comparison.works(kind)
        for read in [comparison.us(kind, of)]
    ]
    numbers = [f"[{number}]" for number in range(len(names))]
    lines = [comparison.label + (" · microseconds as read by each harness" if rows else "")]
    if rows:
        lines += [f"  {number} {name}" for number, name in zip(numbers, names, strict=True)]
        lines.append(Table("", ("", *numbers), rows).text())
    lines += [f"{name}: {reason}" for name, reason in comparison.reasons.items()]
    promises = comparison.document["promises"]
    same = promises.get("aa")
    if same:
        lines.append(f"same kernel twice: {same['agree']} of {same['pairs']} pairs agree within their intervals")
    for work, (within, across) in comparison.coverage().items():
        lines.append(
            f"{work}: the 95 % interval of a difference holds 0 in {within:.1%} of pairs in one process, "
            f"{across:.1%} across processes"
        )
    for point in promises.get("wall_s", ()):
        theirs = "–" if point["nvbench_s"] is None else f"{point['nvbench_s']:.2f} s"
        reached = "±0.5 % after" if point["converged"] else "±0.5 % not reached in"
        lines.append(f"cuBLAS {point['of']}: {reached} {point['worklog_s']:.2f} s; NVBench {theirs}")
    return "\n".join(lines)


# On an H100, cuBLAS launches 2 kernels at 256, and 1 at the other sizes. The rung is a short launch of 1 kernel.
COVERAGE_WORKS = ((CUBLAS, 256), (CUBLAS, 1024), (CUBLAS, 2048), (CUBLAS, 4096), ("shared", 256))
PROCESSES, PAIRS = 25, 8  # of each process: 200 pairs in total
LIMIT_S = 300.0  # for one child


def coverage(
    *,
    processes: int = PROCESSES,
    pairs: int = PAIRS,
    works: Sequence[tuple[str, int]] = COVERAGE_WORKS,
    command: Sequence[str] = (sys.executable, "-P", "-m", "worklog.peers.compare"),
) -> list[dict[str, Any]]:
    """For each work, the intervals of 2 x pairs readings in each process, and the median seconds of a reading. Raises
    WorklogError with the last line that the child printed.
    """
    found: list[list[dict[str, Any]]] = []
    for _ in range(processes):
        arguments = [*command, json.dumps(works), str(2 * pairs)]
        child = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if child.returncode:
            words = (child.stderr.strip().splitlines() or ["no message"])[-1]
            raise WorklogError(f"the process that measures the intervals ended with {child.returncode}: {words}")
        found.append(json.loads(child.stdout.splitlines()[-1]))
    return [
        {
            "work": kind,
            "of": size,
            "intervals_us": [one["intervals_us"] for one in each],
            "sm_mhz": [one["sm_mhz"] for one in each],
            "wall_s": median([s for one in each for s in one["wall_s"]]).value,
            "kernels": each[0]["kernels"],
        }
        for (kind, size), each in zip(works, zip(*found, strict=True), strict=True)
    ]


def main(works: str, count: str) -> None:
    """Read each work `count` times in turn."""
    from worklog.gpu.cuda import CudaDevice
    from worklog.harness.calibration import read_known_lengths
    from worklog.harness.cuda_timeline import CudaTimeline

    device = CudaDevice()
    timeline = CudaTimeline(device)
    overhead = read_known_lengths(timeline).offset_us
    ours, found = OurHarness(timeline, device, overhead), list[dict[str, Any]]()
    for kind, size in json.loads(works):
        work = product(size, None if kind == CUBLAS else rung(kind))
        reads = [ours.read(work) for _ in range(int(count))]
        times = [read.interval.shifted(-overhead) for read in reads]
        found.append(
            {
                "intervals_us": [[us.low, us.value, us.high] for us in times],
                "sm_mhz": [read.sm_mhz for read in reads],
                "wall_s": [read.wall_s for read in reads],
                "kernels": work.kernels,
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
