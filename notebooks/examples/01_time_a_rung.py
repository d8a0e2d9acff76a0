"""Time a rung of the ladder next to cuBLAS.

Without a GPU, the numbers come from the recording that ships with the package. The label says which it was.
"""

import worklog

run = worklog.results(
    ["tiles_1d", "vectorized"], shapes=[1024, 4096]
)  # each kernel is checked, then timed
print(run)

columns = ["kernel", "us", "us_low", "us_high", "tflops", "ratio"]  # ratio: share of cuBLAS
print(run.frame()[columns].to_string(index=False))
print(run.label)
