"""The harness: an unbiased way to time a kernel, and every known bias as a setting.

`Harness()` is unbiased. `Harness.naive()` is biased everywhere. `harness.but(l2="warm")` changes
one setting. `time_in_turn` times a subject and its baselines.
"""

from worklog.harness.batches import (
    Launch,
    Stopwatch,
    TimedLaunch,
    blocked,
    cross_check,
    input_sets,
    nothing,
)
from worklog.harness.calibration import calibrate, certificate
from worklog.harness.energy import check_counter
from worklog.harness.sampling import ONE_PLACEMENT, LoopResult, off_the_lock, time_in_turn
from worklog.settings import WALL_CLOCK, Harness

__all__ = [
    "ONE_PLACEMENT", "WALL_CLOCK", "Harness", "Launch", "LoopResult", "Stopwatch", "TimedLaunch",
    "blocked", "calibrate", "certificate", "check_counter", "cross_check", "input_sets", "nothing",
    "off_the_lock", "time_in_turn",
]  # fmt: skip
