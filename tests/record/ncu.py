"""Records what Nsight Compute counts in one launch of each rung, on a machine with a GPU and ncu.

`python -m tests.record.ncu counts tests/emulator/ncu_h200.json`: memory accesses and multiply-adds
at 256, compared with the emulator's; exits with 1 if any count differs. A test holds the emulator
to those of an H200 and an H100. `python -m tests.record.ncu bounds
worklog/recordings/counters/h200.json`: how busy each unit is at 2048, which
worklog.kernel.ladder.counters shows. `python -m tests.record.ncu bytes
worklog/recordings/bytes/h200.json`: bytes that multiprocessors moved to and from L2, and L2 to and
from DRAM, at 4096, for the roofline.
"""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import numpy as np

from worklog.emulator import Pointer, launch, load
from worklog.gpu.profile import COUNTS, DRAM, L2, UNITS, profiled
from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER, TENSOR
from worklog.kernel.ladder.rungs import FP32
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.problem import Shape

ALPHA = 1.5
BETA = 0.5
REPLAYED = {"shared_store": 0.2, "shared_load": 0.001}  # at most this share of the wavefronts
FEWER = 0.03  # at most this share of the sectors of global stores


def emulated(record: Kernel, shape: Shape, alpha: float, beta: float, arch: str) -> dict[str, int]:
    """Return the emulator's counts of one launch, by our names."""
    out = compile_cuda(record.program, arch)
    a, b, c = (
        Pointer(None, 4 * size)
        for size in (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
    )
    values = [shape.m, shape.n, shape.k, alpha, a, b, beta, c]
    kernel = load(out.ptx, out.symbol, out.shared_accesses)
    counts = launch(kernel, record.blocks(shape), record.threads, values, races=False).counts
    return {name: int(attrgetter(name)(counts)) for name in COUNTS}


def with_replays(here: dict[str, int], there: dict[str, int]) -> dict[str, int]:
    """Return the emulator's counts with what the hardware repeated.

    The reason for a repetition isn't the addresses: one conflict and one wavefront more each
    time. A few percent of the shared stores and hardly any loads, different in every run. And
    without the sectors of global stores that an H100 didn't count, others in every run; why, we
    don't know.
    """
    counts = dict(here)
    for access, most in REPLAYED.items():
        again = there[f"{access}.conflicts"] - here[f"{access}.conflicts"]
        if 0 < again <= most * there[f"{access}.wavefronts"]:
            counts[f"{access}.conflicts"] += again
            counts[f"{access}.wavefronts"] += again
    if (
        0
        < here["global_store.sectors"] - there["global_store.sectors"]
        <= FEWER * here["global_store.sectors"]
    ):
        counts["global_store.sectors"] = there["global_store.sectors"]
    return counts


@click.command()
@click.argument("which", type=click.Choice(["counts", "bounds", "bytes"]))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
def main(which: str, out: Path) -> None:
    """Profile each rung and write OUT."""
    rungs: Sequence[Kernel] = LADDER if which == "counts" else (*LADDER, *FP32, *TENSOR)
    shape = Shape.of({"counts": 256, "bounds": 2048, "bytes": 4096}[which])
    alpha, beta = (ALPHA, BETA) if which == "counts" else (1.0, 0.0)
    from tests.gpu import same_ptx
    from worklog.gpu.cuda import CudaDevice
    from worklog.gpu.device import gpu

    device = CudaDevice()
    rng = np.random.default_rng(0)
    a, b, c = (
        device.upload(rng.uniform(-1, 1, (shape.m, shape.n)).astype(np.float32)) for _ in range(3)
    )
    document: dict[str, Any] = {
        "device": gpu().name,
        "arch": same_ptx.architecture(),
        "driver": gpu().driver,
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "date": datetime.now(UTC).date().isoformat(),
        "shape": [shape.m, shape.n, shape.k],
        "alpha": alpha,
        "beta": beta,
        "metrics": {metric: unit for unit, metric in UNITS.items()},
        "kernels": {},
    }
    differing = 0
    for record in rungs:
        record.load(device).enqueue(
            shape, alpha, a, b, beta, c
        )  # its code is in the disk cache now
        device.synchronize()
        counters = profiled(record, shape, alpha, beta)
        values = counters.values
        shown = dict[str, Any]()
        if which == "bounds":
            shown["percent"] = {unit: values[unit] for unit in UNITS}
        elif which == "bytes":
            shown["bytes"] = {"L2": round(values[L2]), "DRAM": round(values[DRAM])}
        else:
            shown["counts"] = {name: round(values[name]) for name in COUNTS}
            expected = with_replays(
                emulated(record, shape, alpha, beta, document["arch"]), shown["counts"]
            )
            differing += shown["counts"] != expected
            print(
                record.name,
                "as emulated"
                if shown["counts"] == expected
                else f"differs from the emulated {expected}:",
            )
        print(record.name, shown, flush=True)
        document["ncu"] = f"Version {counters.ncu}"
        document["kernels"][record.name] = {"sha256": record.program.code_sha256, **shown}
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
