"""Record how fast cuBLAS multiplies INT8, FP16 and FP32 on a card.

At its power limit, for notebook 10.

`python -m tests.record.int8 worklog/recordings/int8/h200.json` on a machine with a GPU and PyTorch;
half a minute. Each product is timed as worklog.time does, and launched in a row for two seconds, in
which NVML counts the card's energy and tells its SM clock.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import worklog
from worklog.gpu.device import gpu, nvml_handle
from worklog.runs.files import write_text

# of launches in a row, which wait for the GPU at their end
SIZES = (4096, 8192)
SECONDS = 2.0
AT_ONCE = 50
Product = Callable[[], torch.Tensor]


def products(size: int, device: str) -> dict[str, Product]:
    """Return cuBLAS's product of two random matrices in each format.

    Digits of 8 bits with a sum in INT32, and uniform numbers of -1 to 1. B's columns are
    contiguous, as cuBLAS's INT8 needs it.
    """
    random = torch.Generator(device).manual_seed(13)
    digits = [
        torch.randint(-127, 128, (size, size), dtype=torch.int8, device=device, generator=random)
        for _ in "AB"
    ]
    floats = [2 * torch.rand(size, size, device=device, generator=random) - 1 for _ in "AB"]
    halves = [matrix.half() for matrix in floats]
    multiply = {"INT8": torch._int_mm, "FP16": torch.mm, "FP32": torch.mm}
    operands = {"INT8": digits, "FP16": halves, "FP32": floats}
    return {name: partial(multiply[name], a, b.t()) for name, (a, b) in operands.items()}


def in_a_row(product: Product) -> dict[str, float]:
    """Launch in a row for SECONDS, after half of that to warm up.

    Returns microseconds and joules of one launch, watts of the card, and the median of its SM
    clock in MHz. Raises NVMLError.
    """
    import pynvml as nvml

    def launch(seconds: float) -> tuple[int, float, list[int]]:
        count = 0
        clocks = list[int]()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(AT_ONCE):
                product()
            clocks.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))  # while they run
            torch.cuda.synchronize()
            count += AT_ONCE
        return count, time.perf_counter() - start, clocks

    with nvml_handle() as handle:
        launch(SECONDS / 2)
        before = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # millijoules
        count, seconds, clocks = launch(SECONDS)
        joules = 1e-3 * (nvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before)
    return {
        "us": 1e6 * seconds / count,
        "joules": joules / count,
        "watts": joules / seconds,
        "sm_mhz": median(clocks),
    }


def record() -> dict[str, Any]:
    """Return the recording: each product alone with a cold L2, and in a row.

    Raises NVMLError.
    """
    import pynvml as nvml

    rows = list[dict[str, Any]]()
    labels = set[str]()
    for size in SIZES:
        for name, product in products(size, "cuda").items():
            timed = worklog.time(product, flops=2 * size**3, name=f"cuBLAS {name}")
            alone = {
                "us": timed.us,
                "us_low": timed.us_low,
                "us_high": timed.us_high,
                "sm_mhz": timed.sm_mhz,
            }
            rows.append(
                {"format": name, "size": size, "alone": alone, "in_a_row": in_a_row(product)}
            )
            labels.add(timed.label.replace("live", "recorded", 1))
            print(rows[-1])
    with nvml_handle() as handle:
        limit = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    head = {
        "kind": "int8",
        "schema": 1,
        "label": max(labels),
        "device": gpu().name,
        "limit_watts": limit,
    }
    return {
        **head,
        "driver": gpu().driver,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "rows": rows,
    }


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), record())
