"""Records how busy each unit of the GPU is during each rung, by Nsight Compute: what bounds the rung.

`python -m tests.record.ncu_bounds OUT.json` on a machine with a GPU and ncu. The record made on an H200 is
worklog/recordings/counters/h200.json, which worklog.analysis.counters shows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.record.ncu_counts import ncu, profiled, provenance
from worklog.kernel.ladder import LADDER, TENSOR
from worklog.kernel.rungs import FP32
from worklog.problem.gemm import Shape

SHAPE = Shape.of(2048)
RUNGS = (*LADDER, *FP32, *TENSOR)
# Nsight Compute's name of each unit's share of its peak, and ours. The first name that this ncu has is taken.
UNITS = {
    "FP32 cores": ("sm__pipe_fma_cycles_active", "sm__inst_executed_pipe_fma"),
    "tensor cores": ("sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor"),
    "issue slots": ("smsp__issue_active", "sm__inst_issued"),
    "L1 and shared": ("l1tex__data_pipe_lsu_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared"),
    "L2": ("lts__t_sectors",),
    "DRAM": ("dram__bytes",),
}
SHARE = ".avg.pct_of_peak_sustained_elapsed"


def launch_all() -> None:
    """Launch each rung once."""
    from worklog.gpu.cuda import CudaDevice

    device, matrix = CudaDevice(), np.random.default_rng(0).random((SHAPE.m, SHAPE.n), dtype=np.float32)
    a, b, c = (device.upload(matrix) for _ in range(3))
    for record in RUNGS:
        record.load(device).enqueue(SHAPE, 1.0, a, b, 0.0, c)
    device.synchronize()


def main(out: Path) -> None:
    """Profile and write."""
    launch_all()  # compiled before, as of ncu_counts.compile_all
    known = set(ncu("--query-metrics", "--chips", "gh100").split())
    metrics = {next(name for name in names if name in known) + SHARE: unit for unit, names in UNITS.items()}
    shares = profiled(metrics, [record.name for record in RUNGS], "-m", "tests.record.ncu_bounds", "--launch")
    kernels = {record.name: {"sha256": record.program.code_sha256, "percent": shares[record.name]} for record in RUNGS}
    shape = [SHAPE.m, SHAPE.n, SHAPE.k]
    about = {**provenance(), "shape": shape, "alpha": 1.0, "beta": 0.0, "metrics": metrics, "kernels": kernels}
    out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    for name, kernel in kernels.items():
        print(f"{name:16}", *(f"{unit} {value:5.1f} %" for unit, value in kernel["percent"].items()))
    print(f"written: {out}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:
        launch_all()
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        sys.exit("usage: python -m tests.record.ncu_bounds OUT.json")
