"""Records what Nsight Compute counts in one launch of each rung, on a machine with a GPU and ncu.

`python -m tests.record.ncu counts tests/emulator/ncu_h200.json`: memory accesses and multiply-adds at 256, compared
with the emulator's; exits with 1 if any count differs. A test holds the emulator to the H200's.
`python -m tests.record.ncu bounds worklog/recordings/counters/h200.json`: how busy each unit is at 2048, which
worklog.analysis.counters shows.
`python -m tests.record.ncu bytes worklog/recordings/bytes/h200.json`: bytes that multiprocessors moved to and from L2,
and L2 to and from DRAM, at 4096, for the roofline.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import numpy as np

from worklog.emulator import Pointer, launch, load
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import LADDER, TENSOR, rung
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.kernel.rungs import FP32
from worklog.problem.gemm import Shape

ALPHA, BETA = 1.5, 0.5
# Nsight Compute's name of each count, and ours.
COUNTS = {
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "global_load.requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "global_store.requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global_load.sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global_store.sectors",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "shared_load.wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "shared_store.wavefronts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "shared_load.conflicts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "shared_store.conflicts",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": "thread_fma",
}
# Nsight Compute's name of each unit's share of its peak, and ours. The first name that this ncu has is taken.
UNITS = {
    "FP32 cores": ("sm__pipe_fma_cycles_active", "sm__inst_executed_pipe_fma"),
    "tensor cores": ("sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor"),
    "issue slots": ("smsp__issue_active", "sm__inst_issued"),
    "L1 and shared": ("l1tex__data_pipe_lsu_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared"),
    "L2": ("lts__t_sectors",),
    "DRAM": ("dram__bytes",),
}
# Sectors of 32 bytes between L1 and L2, without those between the halves of L2; and bytes of DRAM.
MOVED = {"L2": ("lts__t_sectors_srcunit_tex", "lts__t_sectors"), "DRAM": ("dram__bytes",)}
SHARE = ".avg.pct_of_peak_sustained_elapsed"
REPLAYED = {"shared_store": 0.2, "shared_load": 0.001}  # at most this share of the wavefronts


def emulated(record: Kernel, shape: Shape, alpha: float, beta: float, arch: str) -> dict[str, int]:
    """The emulator's counts of one launch, by our names."""
    out = compile_cuda(record.program, arch)
    a, b, c = (Pointer(None, 4 * size) for size in (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n))
    values = [shape.m, shape.n, shape.k, alpha, a, b, beta, c]
    kernel = load(out.ptx, out.symbol, out.shared_accesses)
    counts = launch(kernel, record.blocks(shape), record.threads, values, races=False, values=False).counts
    return {name: int(attrgetter(name)(counts)) for name in COUNTS.values()}


def with_replays(here: dict[str, int], there: dict[str, int]) -> dict[str, int]:
    """The emulator's counts with what the hardware repeated for another reason than the addresses: one conflict and one
    wavefront more each time. A few percent of the shared stores and hardly any loads, different in every run.
    """
    counts = dict(here)
    for access, most in REPLAYED.items():
        again = there[f"{access}.conflicts"] - here[f"{access}.conflicts"]
        if 0 < again <= most * there[f"{access}.wavefronts"]:
            counts[f"{access}.conflicts"] += again
            counts[f"{access}.wavefronts"] += again
    return counts


def ncu(*arguments: str) -> str:
    """What Nsight Compute prints."""
    done = subprocess.run(("ncu", *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ncu exited with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def profiled(metrics: Mapping[str, str], rungs: Sequence[Kernel], which: str) -> dict[str, dict[str, float]]:
    """Nsight Compute's values of each rung's own kernel, by our names of the metrics: of its table, which has a row for
    each metric, below its messages.
    """
    command = ["--clock-control", "none", "--csv", "--print-units", "base", "--print-kernel-base", "function"]
    command += ["--kernel-name", "regex:^sgemm_", "--metrics", ",".join(metrics)]
    text = ncu(*command, sys.executable, "-m", "tests.record.ncu", which)
    values: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(text[max(text.find('"ID"'), 0) :])):
        kernel = re.search(r"sgemm_(\w+)", row.get("Kernel Name") or "")
        if kernel and row["Metric Name"] in metrics:
            value = float(row["Metric Value"].replace(",", ""))
            values.setdefault(kernel[1], {})[metrics[row["Metric Name"]]] = value
    if missing := [record.name for record in rungs if len(values.get(record.name, ())) != len(metrics)]:
        sys.exit(f"ncu has no complete counts of {', '.join(missing)}:\n{text}")
    return values


@click.command()
@click.argument("which", type=click.Choice(["counts", "bounds", "bytes"]))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), required=False)
def main(which: str, out: Path | None) -> None:
    """Profile each rung and write OUT (without it: only launch each rung)."""
    rungs: Sequence[Kernel] = LADDER if which == "counts" else (*LADDER, *FP32, *TENSOR)
    shape = Shape.of({"counts": 256, "bounds": 2048, "bytes": 4096}[which])
    alpha, beta = (ALPHA, BETA) if which == "counts" else (1.0, 0.0)
    from tests.gpu import same_ptx
    from worklog.gpu.cuda import CudaDevice
    from worklog.gpu.device import gpu

    # Under ncu, NVRTC keeps its assembler's report to itself, so the rungs' code must be in the disk cache before.
    device, rng = CudaDevice(), np.random.default_rng(0)
    a, b, c = (device.upload(rng.uniform(-1, 1, (shape.m, shape.n)).astype(np.float32)) for _ in range(3))
    for record in rungs:
        record.load(device).enqueue(shape, alpha, a, b, beta, c)
    device.synchronize()
    if out is None:
        return
    metrics = COUNTS
    if which != "counts":
        known = set(ncu("--query-metrics", "--chips", "gh100").split())
        units, ending = (UNITS, SHARE) if which == "bounds" else (MOVED, ".sum")
        metrics = {next(name for name in names if name in known) + ending: unit for unit, names in units.items()}
    document: dict[str, Any] = {
        "device": gpu().name,
        "arch": same_ptx.architecture(),
        "driver": gpu().driver,
        "ncu": ncu("--version").strip().splitlines()[-1],
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "date": datetime.now(UTC).date().isoformat(),
        "shape": [shape.m, shape.n, shape.k],
        "alpha": alpha,
        "beta": beta,
        **({"metrics": metrics} if which != "counts" else {}),
        "kernels": {},
    }
    differing = 0
    for name, values in profiled(metrics, rungs, which).items():
        shown: dict[str, Any] = {"percent": values}
        if which == "bytes":
            shown = {"bytes": {"L2": 32 * round(values["L2"]), "DRAM": round(values["DRAM"])}}
        if which == "counts":
            shown = {"counts": {what: round(value) for what, value in values.items()}}
            expected = with_replays(emulated(rung(name), shape, alpha, beta, document["arch"]), shown["counts"])
            differing += shown["counts"] != expected
            print(name, "as emulated" if shown["counts"] == expected else f"differs from the emulated {expected}:")
        print(name, *(f"{what} {value:.5g}" for what, value in values.items()))
        document["kernels"][name] = {"sha256": rung(name).program.code_sha256, **shown}
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
