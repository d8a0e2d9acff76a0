"""What a call of worklog.sgemm costs the host, beside torch.mm and cupy.matmul: `python -m tests.gpu.bench_sgemm_host`.

Only the enqueueing is timed. The calls take turns in batches, and the GPU is waited for after each batch, so that the
queue never fills. Exits with 1 where sgemm costs more than MORE_US beside torch.mm.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

import worklog
from worklog.gpu import gpu

SIZES = (64, 256, 512, 2048)  # split launches several kernels at the last one
ROUNDS, BATCH = 300, 20
MORE_US = {"sgemm fp32": 10.0, "sgemm split": 20.0}
Calls = dict[str, Callable[[], object]]


def calls_at(size: int) -> Calls:
    """What is timed, by name."""
    import cupy
    import torch

    a, b, c = (torch.rand(size, size, device="cuda") for _ in range(3))
    of_cupy = [cupy.random.random((size, size), cupy.float32) for _ in range(2)]
    return {
        "torch.mm": lambda: torch.mm(a, b),
        "cupy.matmul": lambda: cupy.matmul(*of_cupy),
        "sgemm fp32": lambda: worklog.sgemm(a, b),
        "sgemm split": lambda: worklog.sgemm(a, b, mode="split"),
        "sgemm fp32, C given": lambda: worklog.sgemm(a, b, c),
        "sgemm fp32 of CuPy": lambda: worklog.sgemm(*of_cupy),
    }


def batch(call: Callable[[], object]) -> float:
    """Microseconds per call."""
    import torch

    start = perf_counter_ns()
    for _ in range(BATCH):
        call()
    us = (perf_counter_ns() - start) / BATCH / 1e3
    torch.cuda.synchronize()
    return us


def main() -> int:
    """Print the medians, what they are beside torch.mm, and a profile of the most expensive call of sgemm."""
    worst, missed = (0.0, "", calls_at(SIZES[0])), 0
    print(
        f"host, µs per call (median of {ROUNDS} batches of {BATCH}), {gpu().name}\n{'size':>6}  {'call':20}  µs  - mm"
    )
    for size in SIZES:
        calls, names = calls_at(size), list(calls_at(size))
        found: dict[str, list[float]] = {name: [] for name in names}
        for name in names * 3:
            batch(calls[name])
        gc.disable()
        for turn in range(ROUNDS):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                found[name].append(batch(calls[name]))
        gc.enable()
        us = {name: median(samples) for name, samples in found.items()}
        for name in names:
            more = us[name] - us["torch.mm"]
            missed += more > MORE_US.get(name, more)
            print(f"{size:6}  {name:20}  {us[name]:6.2f}  {more:+7.2f}  {us[name] / us['torch.mm']:5.2f} x")
            if name in MORE_US and more > worst[0]:
                worst = more, name, calls
    _, name, calls = worst
    name = name or "sgemm fp32"
    print(f"\nprofile of {name}")
    with cProfile.Profile() as profile:
        for _ in range(20):
            batch(calls[name])
    pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(15)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
