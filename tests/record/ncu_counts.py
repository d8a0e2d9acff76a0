"""Compares the emulator's counts with Nsight Compute's, for every rung, and records both.

`python -m tests.record.ncu_counts OUT.json` on a machine with a GPU and ncu; exit code 1 if any count differs. What an
H200 counted lies in tests/emulator/, where a test without a GPU holds the emulator to it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from worklog.emulator import Pointer, launch, load
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.problem.gemm import Shape

ROOT = Path(__file__).parents[2]
SHAPE, ALPHA, BETA = Shape.of(256), 1.5, 0.5
# Nsight Compute's name of each count, and ours.
METRICS = {
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
REPLAYED = {"shared_store": 0.2, "shared_load": 0.001}  # at most this share of the wavefronts


def emulated(record: Kernel, shape: Shape, alpha: float, beta: float, arch: str) -> dict[str, int]:
    """The emulator's counts of one launch, by our names."""
    out = compile_cuda(record.program, arch)
    sizes = (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n)
    a, b, c = (Pointer(None, 4 * size) for size in sizes)
    values = [shape.m, shape.n, shape.k, alpha, a, b, beta, c]
    kernel = load(out.ptx, out.symbol, out.shared_accesses)
    counts = launch(kernel, record.blocks(shape), record.threads, values, races=False, values=False).counts
    return {name: int(attrgetter(name)(counts)) for name in METRICS.values()}


def with_replays(here: dict[str, int], there: dict[str, int]) -> dict[str, int]:
    """The emulator's counts with what the hardware repeated for another reason than the addresses: one conflict and one
    wavefront more each time. A few percent of the shared stores and hardly any loads, different in every run.
    """
    found = dict(here)
    for access, most in REPLAYED.items():
        again = there[f"{access}.conflicts"] - here[f"{access}.conflicts"]
        if 0 < again <= most * there[f"{access}.wavefronts"]:
            found |= {f"{access}.{what}": here[f"{access}.{what}"] + again for what in ("conflicts", "wavefronts")}
    return found


def ncu(*arguments: str) -> str:
    """What Nsight Compute prints."""
    found = shutil.which("ncu")
    if found is None:
        sys.exit("ncu is not on PATH: it comes with the CUDA toolkit (nsight-compute)")
    done = subprocess.run([found, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ncu left with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def profiled(metrics: Mapping[str, str], rungs: Iterable[str], *python: str) -> dict[str, dict[str, float]]:
    """Nsight Compute's values of each rung's own kernel, by our names of the metrics. python: arguments of a Python
    that launches the rungs.
    """
    command = ["--clock-control", "none", "--csv", "--print-units", "base", "--print-kernel-base", "function"]
    command += ["--kernel-name", "regex:^sgemm_", "--metrics", ",".join(metrics), sys.executable, *python]
    return read_csv(ncu(*command), metrics, rungs)


def read_csv(text: str, metrics: Mapping[str, str], rungs: Iterable[str]) -> dict[str, dict[str, float]]:
    """Values by rung out of what `ncu --csv` prints: its own messages, then a table with a row for each metric."""
    start = text.find('"ID"')
    if start < 0:
        sys.exit(f"ncu printed no table:\n{text}")
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(text[start:])):
        kernel = re.search(r"sgemm_(\w+)", row["Kernel Name"] or "")
        if kernel and row["Metric Name"] in metrics:
            value = float(row["Metric Value"].replace(",", ""))
            found.setdefault(kernel[1], {})[metrics[row["Metric Name"]]] = value
    missing = [name for name in rungs if len(found.get(name, {})) != len(metrics)]
    if missing:
        sys.exit(f"ncu has no complete counts of {', '.join(missing)}:\n{text}")
    return found


def launch_all() -> None:
    """Launch each rung once. Under ncu NVRTC keeps its assembler's report to itself, so the rungs are launched without
    it first: then their code is in the disk cache.
    """
    from worklog.gpu.cuda import CudaDevice

    device, rng = CudaDevice(), np.random.default_rng(0)
    a, b, c = (device.upload(rng.uniform(-1, 1, (SHAPE.m, SHAPE.n)).astype(np.float32)) for _ in range(3))
    for record in LADDER:
        record.load(device).enqueue(SHAPE, ALPHA, a, b, BETA, c)
    device.synchronize()


def provenance() -> dict[str, Any]:
    from tests.gpu import same_ptx
    from worklog.gpu.device import gpu

    version = ncu("--version")
    return {
        "device": gpu().name,
        "arch": same_ptx.architecture(),
        "driver": gpu().driver,
        "ncu": version.strip().splitlines()[-1],
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "date": datetime.now(UTC).date().isoformat(),
        "shape": [SHAPE.m, SHAPE.n, SHAPE.k],
        "alpha": ALPHA,
        "beta": BETA,
    }


def main(out: Path) -> int:
    """Profile, emulate, compare, write. Returns 1 if any count differs."""
    record = provenance()
    launch_all()
    found = profiled(METRICS, [record.name for record in LADDER], "-m", "tests.record.ncu_counts", "--launch")
    there = {name: {what: round(value) for what, value in counts.items()} for name, counts in found.items()}
    kernels, differing = {}, 0
    for name, counted in there.items():
        here = emulated(rung(name), SHAPE, ALPHA, BETA, record["arch"])
        kernels[name] = {"sha256": rung(name).program.code_sha256, "counts": counted}
        expected = with_replays(here, counted)
        for what, value in counted.items():
            extra = f"  + {expected[what] - here[what]} replays" if expected[what] > here[what] else ""
            differing += expected[what] != value
            remark = extra + ("" if expected[what] == value else "  <-- differs")
            print(f"{name:12} {what:24} {record['device']} {value:>12,}  emulated {here[what]:>12,}{remark}")
    out.write_text(json.dumps({**record, "kernels": kernels}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(kernels) * len(METRICS) - differing} counts agree, {differing} differ; written: {out}")
    return 1 if differing else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:
        launch_all()
    elif len(sys.argv) == 2:
        sys.exit(main(Path(sys.argv[1])))
    else:
        sys.exit("usage: python -m tests.record.ncu_counts OUT.json")
