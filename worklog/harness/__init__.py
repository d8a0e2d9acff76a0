"""The harness: one unbiased way to time a kernel, and every known way to get it wrong as a setting.

`Harness()` is unbiased; `Harness.naive()` is biased everywhere; `harness.but(l2="warm")` changes one setting.
`time_pair` times a subject and a baseline.
"""

from worklog.harness.sampling import time_pair
from worklog.runs.samples import Reading
from worklog.settings import Harness

__all__ = ["Harness", "Reading", "time_pair"]
