"""Stage: every timed launch computed what was asked of it.

A kernel that is right while it is looked at can do something else while it is timed: copy the answer that it gave for
these inputs before, leave out a tile of every second launch, work on another stream and be late. So before each timed
launch A and B get contents that were never seen before and C a sentinel, and behind the end event C is projected on a
random vector of signs, all in the stream, with nothing between the two events. There is nothing to remember, no
launch that is not looked at, and whoever writes C later than the event is found not to have written it.

The contents are a hash of a random key and the index, so that the check makes them again instead of trusting what
the subject may have changed, and says so where it did. The signs are drawn after the subject was launched.
C is read first, right behind the end event. The projection C x is held against s A (B x) in FP64, in units
of u times the 2-norm of the row's products (worklog.gate.precision), whose limit for FP32 a row with one wrong
element exceeds unless that element is off by less than about 1e-5 of its row's norm. The rms over the rows of each
launch is held to the class's own limit, too: a largest error leaves a whole format's room (TF32 below fp32-emulated,
BF16 below TF32, eight-bit integers below BF16) to who is precise in the exam and knows from his count of launches, or
from the bits, when it is over.

What is found is memory of the GPU like any other, and a kernel can write anywhere. So the sums start from zero behind
each launch, and what they add up to is kept with a code made from a key that only this process has, a new one each
time: who changes it, or puts back what stood there before, is found. The events' and the clocks' own memory has no such
code. A kernel that finds the driver's timestamps and rewrites them is not seen here, nor by the second clock if it does
the same to that.

What it costs the number: nothing stands between the two events, but the launch finds the SMs as other kernels left
them, some of its code pushed out of the instruction caches. A kernel of some ten microseconds reads some percent longer
than without a look, never shorter, and so does the baseline beside it (tests/gpu/test_gpu_every_launch.py prints by how
much; notebooks/09_rulers_compared shows the same kernel with and without). From 1024 on it is below a percent.

The hash is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from worklog.gate.precision import (
    PROJECTED_OUTLIER,
    RMS_OF_CLASS,
    ROUNDING_OF_CLASS,
    UNIT_ROUNDOFF,
    emulated_limit,
    max_limit,
    rms_limit,
)
from worklog.gate.verdict import Stage, refused
from worklog.kernel.kernel import COMPILE_OPTIONS, Buffer, Device, Program
from worklog.problem.gemm import Shape

NAME = "every timed launch"
BLOCK = 256
ROWS_A_BLOCK = BLOCK // 32  # a warp a row
MOST_BLOCKS = 2048  # of the kernel that fills: each goes on through the matrices

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

// Short on purpose: what runs between two launches of a subject pushes its code out of the instruction caches.
__global__ void refill(u64 key, long long in_a, float* A, long long in_b, float* B, long long in_c, float* C,
                       float sentinel) {
  const long long most = in_a > in_b ? (in_a > in_c ? in_a : in_c) : (in_b > in_c ? in_b : in_c);
#pragma unroll 1
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < most; i += (long long)gridDim.x * BLOCK) {
    if (i < in_a) A[i] = content(key, i);
    if (i < in_b) B[i] = content(~key, i);
    if (i < in_c) C[i] = sentinel;
  }
}

// C x, first of all: what arrives later has not been written in time.
__global__ void observe(u64 signs, int M, int N, const float* C, double* Cx, unsigned* found) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (blockIdx.x == 0 && threadIdx.x < 12) found[threadIdx.x] = 0;
  if (row >= M) return;
  double sum = 0;
  for (int j = lane; j < N; j += 32) sum += (double)C[(long long)row * N + j] * sign(signs, j);
  sum = sum_of_warp(sum);
  if (lane == 0) Cx[row] = sum;
}

// found: the largest error (bits of a float), rows off, inputs changed, rows looked at, 2^32 - 1 - the first bad launch
// (or 0), nothing, then as doubles the sums of the errors' squares, of error times product, and of the products'
// squares. record: the same of all launches, but how often somebody else changed it instead of nothing, then the
// largest mean square of a launch's errors, the largest without what a smaller product explains, and its code.
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

__global__ void compare(u64 key, int M, int K, const float* A, const double* Cx, const double* Bx, const double* gauges,
                        float alpha, float limit, unsigned launch, unsigned* found) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= M) return;
  double product = 0, square = 0;
  unsigned changed = 0;
  for (int k = lane; k < K; k += 32) {
    const long long i = (long long)row * K + k;
    const float a = content(key, i);
    changed += __float_as_uint(A[i]) != __float_as_uint(a);
    product += (double)a * Bx[k];
    square += (double)a * a * gauges[k];
  }
  if (changed) atomicAdd(found + 2, changed);
  product = sum_of_warp(product);
  square = sum_of_warp(square);
  if (lane != 0) return;
  const double unit = UNIT_ROUNDOFF * sqrt(square), right = alpha * product / unit;
  const double difference = Cx[row] / unit - right, error = fabs(difference);
  double* sums = (double*)(found + 6);
  atomicAdd(sums, error * error);
  atomicAdd(sums + 1, difference * right);
  atomicAdd(sums + 2, right * right);
  atomicAdd(found + 3, 1u);
  atomicMax(found, error <= 3e38 ? __float_as_uint((float)error) : 0x7f800000u);
  if (!(error <= limit)) {
    atomicAdd(found + 1, 1u);
    atomicMax(found + 4, 0xffffffffu - launch);
  }
}

// Half of its bits, since the whole could be followed back to the key.
__device__ unsigned code(u64 key, const unsigned* record) {
  for (int i = 0; i < 10; ++i) key = (u64)hashed(key, record[i]) << 32 | hashed(~key, record[i]);
  return hashed(key, 10);
}

// One thread: adds what one launch left.
__global__ void seal(u64 before, u64 after, int M, const unsigned* found, unsigned* record) {
  const bool touched = record[10] != code(before, record);
  record[0] = max(record[0], found[0]);
  for (int i = 1; i < 4; ++i) record[i] += found[i];
  record[4] = max(record[4], found[4]);
  record[5] += touched;
  const double* sums = (const double*)(found + 6);
  double* worst = (double*)(record + 6);
  worst[0] = fmax(worst[0], sums[0] / M);
  worst[1] = fmax(worst[1], (sums[1] < 0 ? sums[0] - sums[1] * sums[1] / sums[2] : sums[0]) / M);
  record[10] = code(after, record);
}
"""
OPTIONS = (*COMPILE_OPTIONS, f"-DUNIT_ROUNDOFF={UNIT_ROUNDOFF!r}", f"-DBLOCK={BLOCK}")
ENTRIES = ("refill", "observe", "project", "compare", "seal")
PROGRAMS = tuple(Program("every_launch.cu", SOURCE, entry, OPTIONS) for entry in ENTRIES)


def limit(claimed: str, k: int) -> float:
    """Largest error of a row's projection that a kernel of the class may have, in u·D of the row."""
    if claimed == "fp32":
        return max_limit(k)
    return PROJECTED_OUTLIER * RMS_OF_CLASS.get(claimed, emulated_limit(k))


def rms_limits(claimed: str, shape: Shape) -> tuple[float, float]:
    """Largest rms of the rows' errors in one launch, in u·D, and the largest without what a smaller product explains:
    the class's own, and room for chance where there are few rows or few products to even out.
    """
    room = 1 + 4 / float(np.sqrt(min(shape.m, shape.k)))
    own = {"fp32": rms_limit(shape.k), **RMS_OF_CLASS}.get(claimed, emulated_limit(shape.k))
    return own * room, ROUNDING_OF_CLASS.get(claimed, own) * room


@dataclass(frozen=True)
class Found:
    """What the checks of a loop left. error: the largest, in u·D. off: rows beyond the limit. changed: elements of A
    and B that were not what they should be. looked_at: rows. first: number of the first launch with a row off. touched:
    how often somebody else changed these numbers. rms: the largest of a launch's rows, and the largest without what a
    smaller product explains.
    """

    error: float
    off: int
    changed: int
    looked_at: int
    first: int
    touched: int
    rms: tuple[float, float]


def code(key: np.uint64, record: np.ndarray[Any, np.dtype[np.uint32]]) -> int:
    """What `seal` gives a record: 32 bits that only who has the key can work out."""
    state = int(key)
    for word in map(int, record[:10]):
        state = _hashed(state, word) << 32 | _hashed(~state, word)
    return _hashed(state, 10)


def _hashed(key: int, index: int) -> int:
    """As the kernels' own: 64-bit arithmetic, its upper half."""
    x = (key + index * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x >> 32


class LaunchChecker:
    """The stage's kernels on one device. Raises CompileFailed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.refill, self.observe, self.project, self.compare, self.seal = map(device.compile, PROGRAMS)

    def launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        """Enqueue one of them."""
        self.device.launch(kernel, (blocks, 1), BLOCK, arguments)


class Witness:
    """Looks at each launch of one subject in one timed loop, which computes C = alpha A B on buffers that it may
    refill: `prepare`, the launch, `observe`, `check`. Nothing here waits for the device before `stage`.
    """

    def __init__(self, checker: LaunchChecker, shape: Shape, claimed: str = "fp32", alpha: float = 1.0) -> None:
        self.checker, self.shape, self.alpha = checker, shape, alpha
        self.limit, self.rms_limits = limit(claimed, shape.k), rms_limits(claimed, shape)
        self.claimed, self.launches = claimed, 0
        self._key, self._signs = np.uint64(0), np.uint64(0)
        upload = checker.device.upload
        self._found = upload(np.zeros(12, np.float32))
        self._seal, record = np.uint64(secrets.randbits(64)), np.zeros(12, np.uint32)
        record[10] = code(self._seal, record)
        self._record = upload(record.view(np.float32))
        self._cx = upload(np.zeros(2 * shape.m, np.float32))  # doubles
        self._bx, self._gauges = (upload(np.zeros(2 * shape.k, np.float32)) for _ in range(2))

    def prepare(self, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Enqueue new contents for A and B, and a sentinel for C."""
        self.launches += 1
        self._key = np.uint64(secrets.randbits(64))
        i64, shape = np.int64, self.shape
        in_a, in_b, in_c = i64(shape.m * shape.k), i64(shape.k * shape.n), i64(shape.m * shape.n)
        sentinel = np.float32(-3e30 * (1 + secrets.randbits(20) / 2**20))
        blocks = min(MOST_BLOCKS, -(-int(max(in_a, in_b, in_c)) // BLOCK))
        self.checker.launch(self.checker.refill, blocks, self._key, in_a, a, in_b, b, in_c, c, sentinel)

    def observe(self, c: Buffer) -> None:
        """Draw signs, and enqueue C's projection on them, before anything else after the launch since `prepare`."""
        self._signs = np.uint64(secrets.randbits(64))
        m, n = np.int32(self.shape.m), np.int32(self.shape.n)
        blocks = -(-self.shape.m // ROWS_A_BLOCK)
        self.checker.launch(self.checker.observe, blocks, self._signs, m, n, c, self._cx, self._found)

    def check(self, a: Buffer, b: Buffer) -> None:
        """Enqueue the comparison of what was observed with what belongs there."""
        m, n, k = (np.int32(size) for size in (self.shape.m, self.shape.n, self.shape.k))
        vectors = self._bx, self._gauges
        judged = np.float32(self.alpha), np.float32(self.limit), np.uint32(self.launches), self._found
        blocks = -(-self.shape.k // ROWS_A_BLOCK)
        project = self._key, self._signs, n, k, b, *vectors, self._found
        self.checker.launch(self.checker.project, blocks, *project)
        blocks = -(-self.shape.m // ROWS_A_BLOCK)
        compare = self._key, m, k, a, self._cx, *vectors, *judged
        self.checker.launch(self.checker.compare, blocks, *compare)
        before, self._seal = self._seal, np.uint64(secrets.randbits(64))
        device = self.checker.device
        device.launch(self.checker.seal, (1, 1), 1, (before, self._seal, m, self._found, self._record))

    def found(self) -> Found:
        """Wait, and read. Raises LaunchFailed."""
        record = self.checker.device.download(self._record)
        _, off, changed, looked_at, first, touched = (int(word) for word in record.view(np.uint32)[:6])
        touched += int(record.view(np.uint32)[10]) != code(self._seal, record.view(np.uint32))
        whole, left = (float(np.sqrt(mean)) for mean in record[6:10].view(np.float64))
        return Found(float(record[0]), off, changed, looked_at, 2**32 - 1 - first, touched, (whole, left))

    def stage(self) -> Stage:
        """The verdict on all launches since the start. Raises LaunchFailed."""
        found = self.found()
        if found.touched:
            return refused(NAME, "what was found of its launches was changed by somebody else", found.touched)
        if found.looked_at != self.launches * self.shape.m % 2**32:
            return refused(NAME, f"{found.looked_at} rows of {self.launches} launches were looked at: not all of them")
        if found.changed:
            return refused(NAME, f"it changed {found.changed} elements of its inputs", found.changed)
        if found.off:
            where = f"the first in launch {found.first} of {self.launches}, on inputs new to it"
            return refused(NAME, f"{found.off} rows off by more than rounding, {where}", found.off)
        for rms, most in zip(found.rms, self.rms_limits, strict=True):
            if not rms <= most:
                told = f"in one of its launches rows have an rms of {rms:.4g} u·D (up to {most:.4g})"
                return Stage(NAME, False, rms, most, f"{told}, and {self.claimed} was claimed")
        detail = (
            f"{self.launches} launches, each on inputs never seen before: rows within {found.error:.3g} u·D "
            f"(up to {self.limit:.4g})"
        )
        return Stage(NAME, True, found.error, self.limit, detail)
