"""What was found: runs, measurements, statistics, tables and comparisons, as files and data frames."""

from worklog.runs.documents import (
    Date,
    claimed,
    not_writable,
    read_json,
    read_text,
    require_file,
    require_writable,
    write_bytes,
    write_text,
)
from worklog.runs.estimates import (
    CLOCK_OFF,
    LEAST_SAMPLES,
    PILOT,
    Estimate,
    Sample,
    Samples,
    Side,
    Summary,
    estimate_of,
    event_overhead_us,
    median,
    paired_ratio,
    summarize,
)
from worklog.runs.measurement import Context, Measurement, Roof, Work, cells, source_label
from worklog.runs.record import Difference, compare, line, new_path, read_line, runs_dir
from worklog.runs.records import Calibration, Gpu, KnownLengths, Stage, Verdict
from worklog.runs.run import (
    CHAPTERS,
    Run,
    export,
    forced_source,
    in_steps,
    live_runs,
    newest_run,
    open_run,
    recorded_run,
    recordings,
)
from worklog.runs.table import WIDTH, Bar, Cell, Table, about, bound, duration, percent, scaled

__all__ = [
    "CHAPTERS", "CLOCK_OFF", "LEAST_SAMPLES", "PILOT", "WIDTH", "Bar", "Calibration", "Cell", "Context", "Date",
    "Difference", "Estimate", "Gpu", "KnownLengths", "Measurement", "Roof", "Run", "Sample", "Samples", "Side", "Stage",
    "Summary", "Table", "Verdict", "Work", "about", "bound", "cells", "claimed", "compare", "duration", "estimate_of",
    "event_overhead_us", "export", "forced_source", "in_steps", "line", "live_runs", "median", "new_path", "newest_run",
    "not_writable", "open_run", "paired_ratio", "percent", "read_json", "read_line", "read_text", "recorded_run",
    "recordings", "require_file", "require_writable", "runs_dir", "scaled", "source_label", "summarize", "write_bytes",
    "write_text",
]  # fmt: skip
