"""What looking at each launch may add to the time of a short one: other kernels have pushed out its code."""

LOOKING_US = 1.5  # one launch of one or two kernels
