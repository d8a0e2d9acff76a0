"""The ruler: one honest way to time a kernel, and every known way to get it wrong as a setting.

`Harness()` is honest; `Harness.naive()` lies everywhere; `harness.but(l2="warm")` changes one setting. `time_pair`
measures a subject against the baseline on a `Timeline`, which is a CUDA stream here and a simulated one in the tests.
"""

from worklog.harness.sampling import Reading, Sample, time_pair
from worklog.harness.timeline import Timeline
from worklog.settings import Harness

__all__ = ["Harness", "Reading", "Sample", "Timeline", "time_pair"]
