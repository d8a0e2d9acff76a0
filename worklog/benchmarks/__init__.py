"""Declared benchmarks: functions with axes, and the calls that they time."""

from worklog.benchmarks.call import WORK, Call, CallOptions, CrossCheck
from worklog.benchmarks.declare import (
    Benchmark,
    LoadedBenchmark,
    State,
    at,
    bench,
    benchmarks_of,
    declared,
)

__all__ = [
    "WORK",
    "Benchmark",
    "Call",
    "CallOptions",
    "CrossCheck",
    "LoadedBenchmark",
    "State",
    "at",
    "bench",
    "benchmarks_of",
    "declared",
]
