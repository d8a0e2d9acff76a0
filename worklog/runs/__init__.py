"""Results: runs, their measurements, and the records of the gate and the GPU.

Further modules have a face of their own: `sources` (the runs of this machine and of the package),
`changes` (runs compared with each other), `comparison` (harnesses compared with each other),
`effects` (of the pitfalls), `statistics`, `text` (tables and numbers), `files` and `nvml`. The
other modules are imported only inside this room.
"""

from worklog.runs.facts import (
    Calibration,
    CounterCheck,
    Counters,
    Energy,
    ErrorMap,
    Gpu,
    NeverRan,
    Stage,
    Verdict,
    failed,
    passed,
)
from worklog.runs.measurement import (
    CUBLAS,
    CUBLASLT,
    Algorithm,
    Choice,
    Context,
    Measurement,
    Ran,
    Roof,
    Work,
    cells,
    same_card,
    source_label,
)
from worklog.runs.run import Run
from worklog.runs.run_file import line, read_line
from worklog.runs.sources import open_run, recorded_run, recordings

__all__ = [
    "CUBLAS",
    "CUBLASLT",
    "Algorithm",
    "Calibration",
    "Choice",
    "Context",
    "CounterCheck",
    "Counters",
    "Energy",
    "ErrorMap",
    "Gpu",
    "Measurement",
    "NeverRan",
    "Ran",
    "Roof",
    "Run",
    "Stage",
    "Verdict",
    "Work",
    "cells",
    "failed",
    "line",
    "open_run",
    "passed",
    "read_line",
    "recorded_run",
    "recordings",
    "same_card",
    "source_label",
]
