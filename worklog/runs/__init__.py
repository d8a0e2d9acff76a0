"""What was found: runs, measurements, statistics, tables and comparisons, as files and data frames."""

from worklog.runs.documents import (
    WIDTH,
    Bar,
    Cell,
    Table,
    about,
    bound,
    claimed,
    duration,
    not_writable,
    percent,
    read_text,
    require_file,
    scaled,
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
from worklog.runs.measurement import Context, Measurement, Roof, Work, cells, source_label
from worklog.runs.record import line, new_path, runs_dir
from worklog.runs.records import Calibration, Gpu, Stage, Verdict
from worklog.runs.run import CHAPTERS, Run, forced_source, in_steps, newest_run, open_run, recorded_run, recordings

__all__ = [
    "CHAPTERS", "CLOCK_OFF", "LEAST_SAMPLES", "PILOT", "WIDTH", "Bar", "Calibration", "Cell", "Context", "Difference",
    "Estimate", "Gpu", "Measurement", "Roof", "Run", "Sample", "Samples", "Side", "Stage", "Summary",
    "Table", "Verdict", "Work", "about", "bound", "cells", "claimed", "compare", "duration", "estimate_of",
    "event_overhead_us", "forced_source", "in_steps", "line", "median", "new_path", "newest_run", "not_writable",
    "open_run", "paired_ratio", "percent", "read_text", "recorded_run", "recordings", "require_file", "runs_dir",
    "scaled", "source_label", "summarize", "write_bytes", "write_text",
]  # fmt: skip
