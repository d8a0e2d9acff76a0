"""The harness: one unbiased way to time a kernel, and every known way to get it wrong as a setting.

`Harness()` is unbiased; `Harness.naive()` is biased everywhere; `harness.but(l2="warm")` changes one setting.
`time_pair` times a subject and a baseline on a `Timeline`: a CUDA stream, or a simulated one in the tests.
"""

from worklog.harness.sampling import Reading, Sample, time_pair
from worklog.harness.timeline import Timeline
from worklog.settings import Harness

__all__ = ["Harness", "Reading", "Sample", "Timeline", "time_pair"]
