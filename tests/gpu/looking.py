"""What looking at each launch may add to the time of a short one: other kernels have pushed out its code."""

# By N, against no gate: at 256 other kernels between two launches show, 0.4 to 0.8 µs for cuBLAS, 1.1 for two in a row.
LOOKING_US = {256: 1.5, 1024: 0.15}
# The fence's part of it, least and most: at 256 from -0.3 µs for cuBLAS to 0.65 for two kernels in a row.
FENCE_US = {256: (-0.5, 1.0), 1024: (-0.15, 0.15)}
