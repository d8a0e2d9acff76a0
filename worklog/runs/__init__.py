"""What was found: runs, measurements, statistics, tables and comparisons, as files and data frames."""

from worklog.runs.ablation import TOGETHER, Effect, effect_in_words, effects, effects_frame, effects_text, older
from worklog.runs.clocks import CLOCK_OFF, Difference, Timed, clock_in_words, compare
from worklog.runs.comparison import CUBLAS, KNOWN, Comparison, Points, open_comparison
from worklog.runs.documents import (
    Date,
    claimed,
    not_writable,
    read_json,
    read_part,
    read_text,
    require_file,
    require_writable,
    write_bytes,
    write_text,
)
from worklog.runs.estimates import LEAST_SAMPLES, PILOT, Estimate, about, estimate_of, median, paired_ratio
from worklog.runs.frames import export
from worklog.runs.measurement import AGAINST, Measurement
from worklog.runs.run import (
    CHAPTERS,
    Run,
    forced_source,
    in_steps,
    live_runs,
    new_path,
    newest_run,
    open_run,
    recorded_run,
    recordings,
    runs_dir,
    source_label,
)
from worklog.runs.samples import Reading, Sample, event_overhead_us, summarize
from worklog.runs.tables import WIDTH, Bar, Cell, Table, bound, cells, duration, percent, scaled, verdict_table

__all__ = [
    "AGAINST", "CHAPTERS", "CLOCK_OFF", "CUBLAS", "KNOWN", "LEAST_SAMPLES", "PILOT", "TOGETHER", "WIDTH", "Bar", "Cell",
    "Comparison", "Date", "Difference", "Effect", "Estimate", "Measurement", "Points", "Reading", "Run", "Sample",
    "Table", "Timed", "about", "bound", "cells", "claimed", "clock_in_words", "compare", "duration", "effect_in_words",
    "effects", "effects_frame", "effects_text", "estimate_of", "event_overhead_us", "export", "forced_source",
    "in_steps", "live_runs", "median", "new_path", "newest_run", "not_writable", "older", "open_comparison", "open_run",
    "paired_ratio", "percent", "read_json", "read_part", "read_text", "recorded_run", "recordings", "require_file",
    "require_writable", "runs_dir", "scaled", "source_label", "summarize", "verdict_table", "write_bytes", "write_text",
]  # fmt: skip
