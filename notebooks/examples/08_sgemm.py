"""Multiply CuPy arrays or PyTorch tensors by this package's kernels; NumPy arrays are multiplied on the emulator.

With CuPy or PyTorch, only the import and the two matrices change.
"""

import numpy as np

import worklog

rng = np.random.default_rng(0)
A, B = rng.random((37, 200), np.float32), rng.random((200, 51), np.float32)


def off(C):
    return f"up to {abs(C - A.astype(float) @ B).max():.1e} off, emulated"


C = worklog.sgemm(A, B)  # the rung best, which takes any shape
print("any shape:", off(C))
worklog.sgemm(A, B, C, alpha=2, beta=-1)  # in place: 2 A B - C
print("in place: ", off(C))
print("one rung: ", off(worklog.rung("naive")(A, B)))
print("split:    ", off(worklog.rung("split")(A, B)))  # FP32 by tensor cores
