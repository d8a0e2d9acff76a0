"""Stage: every timed launch computed what was asked of it.

A kernel that is right while it is looked at can do something else while it is timed: copy the answer that it gave for
these inputs before, leave out a tile of every second launch, work on another stream and be late. So before each timed
launch A and B get contents that were never seen before and C a sentinel, and behind the end event C is projected on a
random vector of signs, all in the stream, with nothing between the two events. There is nothing to remember, no
launch that is not looked at, and whoever writes C later than the event is found not to have written it.

The contents are a hash of a secret key and the index, so that the check makes them again instead of trusting what
the subject may have changed, and says so where it did. The projection C x is held against s A (B x) in FP64, in units
of u times the 2-norm of the row's products (worklog.gate.precision), whose limit for FP32 a row with one wrong
element exceeds unless that element is off by less than about 1e-5 of its row's norm.

The hash is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from worklog.gate.precision import PROJECTED_OUTLIER, UNIT_ROUNDOFF, emulated_limit, max_limit
from worklog.gate.verdict import Stage, refused
from worklog.gemm import Shape
from worklog.kernels import COMPILE_OPTIONS, Buffer, Device, Program

NAME = "every timed launch"
BLOCK = 256
ROWS_A_BLOCK = BLOCK // 32  # a warp a row
MOST_BLOCKS = 2048  # of the kernel that fills: each goes on through the matrices
RMS_OF_CLASS = {"tf32": 1.5e4, "fp16": 1.5e4, "bf16": 8e4}  # u·D, the largest that precision.classify calls so

SOURCE = """\
typedef unsigned long long u64;

__device__ unsigned hashed(u64 key, u64 index) {
  u64 x = key + index * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return (unsigned)(x >> 32);
}

// Uniform in -1 ... 1 without 0, all 24 bits of the significand in use.
__device__ float content(u64 key, u64 index) {
  const unsigned bits = hashed(key, index);
  const float magnitude = ((bits & 0xffffff) + 1) * 5.9604644775390625e-8f;
  return bits >> 31 ? -magnitude : magnitude;
}

__device__ float sign(u64 key, int index) { return hashed(key, index) >> 31 ? -1.0f : 1.0f; }

__device__ double sum_of_warp(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  return value;
}

__global__ void refill(u64 key, long long in_a, float* A, long long in_b, float* B, long long in_c, float* C,
                       float sentinel) {
  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long i = first; i < in_a; i += step) A[i] = content(key, i);
  for (long long i = first; i < in_b; i += step) B[i] = content(~key, i);
  for (long long i = first; i < in_c; i += step) C[i] = sentinel;
}

// found: the largest error (bits of a float), rows off, inputs changed, rows looked at, 2^32 - 1 - the first bad launch
__global__ void project(u64 key, u64 signs, int N, int K, const float* B, double* Bx, double* gauges,
                        unsigned* found) {
  const int k = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (k >= K) return;
  double sum = 0, squares = 0;
  unsigned changed = 0;
  for (int j = lane; j < N; j += 32) {
    const long long i = (long long)k * N + j;
    const float b = content(~key, i);
    changed += __float_as_uint(B[i]) != __float_as_uint(b);
    sum += (double)b * sign(signs, j);
    squares += (double)b * b;
  }
  if (changed) atomicAdd(found + 2, changed);
  sum = sum_of_warp(sum);
  squares = sum_of_warp(squares);
  if (lane == 0) {
    Bx[k] = sum;
    gauges[k] = squares;
  }
}

__global__ void compare(u64 key, u64 signs, int M, int N, int K, const float* A, const float* C, const double* Bx,
                        const double* gauges, float alpha, float limit, unsigned launch, unsigned* found) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= M) return;
  double off = 0, square = 0;
  unsigned changed = 0;
  for (int k = lane; k < K; k += 32) {
    const long long i = (long long)row * K + k;
    const float a = content(key, i);
    changed += __float_as_uint(A[i]) != __float_as_uint(a);
    off -= (double)alpha * a * Bx[k];
    square += (double)a * a * gauges[k];
  }
  for (int j = lane; j < N; j += 32) off += (double)C[(long long)row * N + j] * sign(signs, j);
  if (changed) atomicAdd(found + 2, changed);
  off = sum_of_warp(off);
  square = sum_of_warp(square);
  if (lane != 0) return;
  const double error = fabs(off) / (UNIT_ROUNDOFF * sqrt(square));
  atomicAdd(found + 3, 1u);
  atomicMax(found, error <= 3e38 ? __float_as_uint((float)error) : 0x7f800000u);
  if (!(error <= limit)) {
    atomicAdd(found + 1, 1u);
    atomicMax(found + 4, 0xffffffffu - launch);
  }
}
"""
OPTIONS = (*COMPILE_OPTIONS, f"-DUNIT_ROUNDOFF={UNIT_ROUNDOFF!r}")
PROGRAMS = tuple(Program("every_launch.cu", SOURCE, entry, OPTIONS) for entry in ("refill", "project", "compare"))


def limit(claimed: str, k: int) -> float:
    """Largest error of a row's projection that a kernel of the class may have, in u·D of the row."""
    if claimed == "fp32":
        return max_limit(k)
    return PROJECTED_OUTLIER * RMS_OF_CLASS.get(claimed, emulated_limit(k))


@dataclass(frozen=True)
class Found:
    """What the checks of a loop left. error: the largest, in u·D. off: rows beyond the limit. changed: elements of A
    and B that were not what they should be. looked_at: rows. first: number of the first launch with a row off.
    """

    error: float
    off: int
    changed: int
    looked_at: int
    first: int


class LaunchChecker:
    """The stage's kernels on one device. Raises CompileFailed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.refill, self.project, self.compare = map(device.compile, PROGRAMS)

    def launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Enqueue one of them."""
        self.device.launch(kernel, (blocks, 1), BLOCK, arguments)


class Witness:
    """Looks at each launch of one subject in one timed loop, which computes C = alpha A B on buffers that it may
    refill. Nothing here waits for the device before `stage`.
    """

    def __init__(self, checker: LaunchChecker, shape: Shape, claimed: str = "fp32", alpha: float = 1.0) -> None:
        self.checker, self.shape, self.alpha = checker, shape, alpha
        self.limit = limit(claimed, shape.k)
        self.launches = 0
        self._key = 0
        upload = checker.device.upload
        self._found = upload(np.zeros(8, np.float32))
        self._bx, self._gauges = (upload(np.zeros(2 * shape.k, np.float32)) for _ in range(2))  # doubles

    def prepare(self, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Enqueue new contents for A and B, and a sentinel for C."""
        self.launches += 1
        self._key = secrets.randbits(64)
        i64, shape = np.int64, self.shape
        sizes = [i64(rows * columns) for rows, columns in ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))]
        sentinel = np.float32(-3e30 * (1 + secrets.randbits(20) / 2**20))
        blocks = min(MOST_BLOCKS, -(-int(max(sizes)) // BLOCK))
        arguments = (sizes[0], a, sizes[1], b, sizes[2], c, sentinel)
        self.checker.launch(self.checker.refill, blocks, np.uint64(self._key), *arguments)

    def check(self, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Enqueue the look at what the launch since `prepare` left in C."""
        u64, i32, f32 = np.uint64, np.int32, np.float32
        m, n, k = i32(self.shape.m), i32(self.shape.n), i32(self.shape.k)
        keys = u64(self._key), u64(secrets.randbits(64))
        vectors = self._bx, self._gauges
        judged = f32(self.alpha), f32(self.limit), np.uint32(self.launches), self._found
        self.checker.launch(self.checker.project, -(-int(k) // ROWS_A_BLOCK), *keys, n, k, b, *vectors, self._found)
        blocks = -(-int(m) // ROWS_A_BLOCK)
        self.checker.launch(self.checker.compare, blocks, *keys, m, n, k, a, c, *vectors, *judged)

    def found(self) -> Found:
        """Wait, and read. Raises LaunchFailed."""
        words = self.checker.device.download(self._found)
        _, off, changed, looked_at, first = (int(word) for word in words.view(np.uint32)[:5])
        return Found(float(words[0]), off, changed, looked_at, 2**32 - 1 - first)

    def stage(self) -> Stage:
        """The verdict on all launches since the start. Raises LaunchFailed."""
        found = self.found()
        if found.looked_at != self.launches * self.shape.m % 2**32:
            return refused(NAME, f"{found.looked_at} rows of {self.launches} launches were looked at: not all of them")
        if found.changed:
            return refused(NAME, f"it changed {found.changed} elements of its inputs", found.changed)
        if found.off:
            where = f"the first in launch {found.first} of {self.launches}, on inputs new to it"
            return refused(NAME, f"{found.off} rows off by more than rounding, {where}", found.off)
        detail = (
            f"{self.launches} launches, each on inputs never seen before: rows within {found.error:.3g} u·D "
            f"(up to {self.limit:.4g})"
        )
        return Stage(NAME, True, found.error, self.limit, detail)
