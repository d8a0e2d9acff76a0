"""What was found: runs, measurements, statistics, tables and comparisons, as files and data frames."""

from worklog.runs.documents import (
    WIDTH,
    Bar,
    Cell,
    Date,
    Shown,
    Table,
    a_few,
    about,
    bound,
    claimed,
    duration,
    git,
    not_writable,
    of_baseline,
    percent,
    read_json,
    read_text,
    require_file,
    require_writable,
    scaled,
    tool,
    write_bytes,
    write_text,
)
from worklog.runs.estimates import (
    CLOCK_OFF,
    LEAST_SAMPLES,
    PILOT,
    Difference,
    Estimate,
    Sample,
    Samples,
    Side,
    Summary,
    compare,
    estimate_of,
    event_overhead_us,
    median,
    paired_ratio,
    summarize,
)
from worklog.runs.measurement import Context, Measurement, Ran, Roof, Work, cells, source_label
from worklog.runs.record import line, new_path, read_line, runs_dir
from worklog.runs.records import Calibration, Counters, ErrorMap, Gpu, NeverRan, Stage, Verdict, failed, passed
from worklog.runs.run import (
    CHAPTERS,
    Run,
    forced_source,
    in_steps,
    kept_runs,
    live_runs,
    newest_run,
    open_run,
    recorded_run,
    recordings,
)

__all__ = [
    "CHAPTERS", "CLOCK_OFF", "LEAST_SAMPLES", "PILOT", "WIDTH", "Bar", "Calibration", "Cell", "Context", "Counters",
    "Date", "Difference", "ErrorMap", "Estimate", "Gpu", "Measurement", "NeverRan", "Ran", "Roof", "Run", "Sample",
    "Samples", "Shown", "Side", "Stage", "Summary", "Table", "Verdict", "Work", "a_few", "about", "bound", "cells",
    "claimed", "compare", "duration", "estimate_of", "event_overhead_us", "failed", "forced_source", "git",
    "in_steps", "kept_runs", "line", "live_runs", "median", "new_path", "newest_run", "not_writable", "of_baseline",
    "open_run", "paired_ratio", "passed", "percent", "read_json", "read_line", "read_text", "recorded_run",
    "recordings", "require_file", "require_writable", "runs_dir", "scaled", "source_label", "summarize", "tool",
    "write_bytes", "write_text",
]  # fmt: skip
