"""What looking at each launch may add to the time of a short one: other kernels have pushed out its code."""

LOOKING_US = {256: 1.5, 1024: 0.15}  # by N: at 256 other kernels between two launches show
