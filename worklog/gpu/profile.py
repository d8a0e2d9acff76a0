"""What the hardware counts in one launch of a kernel, by Nsight Compute's command line: how busy the units are, what
warps wait for and at which lines, and its counts beside the emulator's. One sentence says what limits the kernel.

`ncu` replays the launch some 30 times, with caches flushed before each and clocks as found; its time is none of ours.
"""

from __future__ import annotations

import csv
import io
import math
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from worklog.errors import WorklogError
from worklog.gpu.device import environment, gpu
from worklog.kernel import Kernel, rung
from worklog.kernel.inspection import inspect
from worklog.problem import Shape, random_inputs
from worklog.runs import Counters
from worklog.runs.text import Table, format_si, format_signed

SHARE = ".avg.pct_of_peak_sustained_elapsed"
# Nsight Compute's names, by ours: counts, which the emulator has too, and units, in percent of their peak rates.
COUNTS = {
    "global_load.requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store.requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_load.sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store.sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load.wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store.wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_load.conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store.conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "thread_fma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}
UNITS = {
    "FP32 cores": f"sm__pipe_fma_cycles_active{SHARE}",
    "tensor cores": f"sm__pipe_tensor_cycles_active{SHARE}",
    "issue slots": f"smsp__issue_active{SHARE}",
    "L1 and shared": f"l1tex__data_pipe_lsu_wavefronts{SHARE}",
    "L2": f"lts__t_sectors{SHARE}",
    "DRAM": f"dram__bytes{SHARE}",
}
OCCUPANCY = {"warps resident": "sm__warps_active.avg.pct_of_peak_sustained_active"}
OCCUPANCY["warps possible"] = "sm__maximum_warps_per_active_cycle_pct"
L2 = Counters.L2
DRAM = "bytes of DRAM"
# of 32 bytes, to and from L1; or all bytes
SECTORS = "lts__t_sectors_srcunit_tex.sum"
ALL_OF_L2 = "lts__t_bytes.sum"
OF_DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
SECTIONS = (
    "WarpStateStats",
    "SourceCounters",
    "ComputeWorkloadAnalysis",
    "Occupancy",
    "MemoryWorkloadAnalysis_Tables",
)
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)(?:_stall)?_per_issue_active\.ratio")
PIPE = re.compile(r"sm__inst_executed_pipe_([a-z0-9]+)\.avg\.pct_of_peak_sustained_active")
# percent; of the wavefronts; sectors per request; share
BUSY = 80.0
CONFLICTS = 0.1
SCATTERED = 8.0
OF_ISSUED = 0.9
FILLED = 0.75  # of the possible warps
# What limits a kernel, by the busiest unit or the most frequent stall, and the rung that attacked it.
LIMITS = {
    "FP32 cores": ("the multiply-adds themselves", "split"),
    "tensor cores": ("the tensor cores", "split"),
    "issue slots": ("instructions beside the multiply-adds", "vectorized"),
    "L2": ("what its blocks fetch from L2", "autotuned"),
    "DRAM": ("the bytes of DRAM", "shared"),
    "scattered": ("requests of a warp that touch many sectors", "coalesced"),
    "conflicts": ("bank conflicts in shared memory", "conflict_free"),
    "L1 and shared": ("the number of loads and stores", "tiles_2d"),
    "long_scoreboard": ("the latency of global memory", "double_buffered"),
    "short_scoreboard": ("the latency of shared memory", "pipelined"),
    "mio_throttle": ("the queue of shared-memory instructions", "tiles_2d"),
    "lg_throttle": ("the queue of global-memory instructions", "vectorized"),
    "blocks": ("too few blocks, or blocks that end at different times", ""),
    "no_instruction": ("the fetch of instructions", ""),
    "barrier": ("barriers at which the block waits", "barriers"),
    "dispatch": ("operands in one register bank", "register_banks"),
    "wait": ("dependent instructions one after the other", "tiles_1d"),
    "math_pipe_throttle": ("the multiply-adds themselves", "split"),
}
PERMIT = (
    "Nsight Compute may not read the counters (ERR_NVGPUCTRPERM): run as root, or let everyone: put `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia.conf, and restart"
)


def profiled(kernel: Kernel, shape: Shape, alpha: float = 1.0, beta: float = 0.0) -> Counters:
    """Count one launch of a kernel's product at a shape, on the current GPU. The kernel must have run before, since
    under ncu its code comes from the disk cache. Raises WorklogError where ncu is missing, isn't permitted or fails,
    and for counters that are missing or not a number.
    """
    tool = shutil.which("ncu")
    if tool is None:
        raise WorklogError(
            "there is no ncu on PATH: install Nsight Compute, or the CUDA toolkit with its folder bin"
        )
    own = kernel.at(shape, gpu().arch)
    name = own.function.rpartition("::")[2]
    with TemporaryDirectory(prefix="worklog-ncu-") as folder:
        report = Path(folder) / "report.ncu-rep"
        order = Path(folder) / "order"
        (Path(folder) / Path(own.file).name).write_text(
            own.source, encoding="utf-8"
        )  # which the report quotes
        order.write_bytes(pickle.dumps((kernel, shape, alpha, beta)))
        metrics = [*COUNTS.values(), *UNITS.values(), ALL_OF_L2, *OF_DRAM]
        command = [
            "-o",
            str(report),
            "--clock-control",
            "none",
            "--kernel-name",
            f"regex:^{name}$",
            "--launch-count",
            "1",
        ]
        command += [
            "--import-source",
            "yes",
            "--source-folders",
            folder,
            "--metrics",
            ",".join(metrics),
        ]
        command += [word for section in SECTIONS for word in ("--section", section)]
        said = _ncu(tool, *command, sys.executable, "-P", "-m", "worklog.gpu.profile", str(order))
        if not report.exists():
            raise WorklogError(
                f"ncu saw no launch of {name}: {said.strip().splitlines()[-1] if said else 'no output'}"
            )
        read = ["--import", str(report), "--csv", "--print-units", "base", "--page"]
        raw, source = (
            _ncu(tool, *read, *page)
            for page in (["raw"], ["source", "--print-source", "cuda,sass"])
        )
        version = _ncu(tool, "--version").strip().splitlines()[-1].split()[1]
    return counters_of(kernel.name, shape, raw, source, version)


def _ncu(tool: str, *arguments: str) -> str:
    """What Nsight Compute prints. Raises WorklogError."""
    command = tool, *arguments
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment()
    )
    said = f"{done.stdout}\n{done.stderr}"
    if "ERR_NVGPUCTRPERM" in said:
        raise WorklogError(PERMIT)
    if done.returncode:
        lines = [
            line for line in said.splitlines() if "==ERROR==" in line
        ] or said.strip().splitlines()[-1:]
        raise WorklogError(f"ncu exited with {done.returncode}: {' '.join(lines)}")
    return done.stdout


def launch(order: Path) -> None:
    """In ncu's child: the one launch."""
    from worklog.gpu.cuda import CudaDevice

    kernel, shape, alpha, beta = pickle.loads(order.read_bytes())
    device = CudaDevice()
    (a, b) = random_inputs(shape, np.random.default_rng(0))
    c = device.upload(np.zeros((shape.m, shape.n), np.float32))
    kernel.load(device).enqueue(shape, alpha, device.upload(a), device.upload(b), beta, c)
    device.synchronize()


def counters_of(kernel: str, shape: Shape, raw: str, source: str, version: str) -> Counters:
    """From ncu's pages "raw" and "source" (cuda,sass) as CSV, of one launch. Raises WorklogError for a counter that is
    missing or not a number.
    """
    rows = [row for row in csv.reader(io.StringIO(raw[max(raw.find('"ID"'), 0) :])) if row]
    text = dict(zip(rows[0], rows[-1], strict=True)) if len(rows) > 2 else {}

    def number(name: str) -> float:
        try:
            value = float(text[name].replace(",", ""))
        except (KeyError, ValueError):
            raise WorklogError(
                f"ncu {version} has no counter {name} on this GPU: try another version"
            ) from None
        if math.isnan(value):
            raise WorklogError(f"ncu {version} counts NaN for {name}: try another version")
        return value

    values = {name: number(metric) for name, metric in (COUNTS | UNITS | OCCUPANCY).items()}
    values[L2] = 32 * number(SECTORS) if text.get(SECTORS) else number(ALL_OF_L2)
    values[DRAM] = sum(map(number, OF_DRAM))
    values |= {
        f"pipe {match[1]}": number(name)
        for name in text
        if (match := PIPE.fullmatch(name)) and number(name) >= 1
    }
    stalls = {
        match[1]: number(name)
        for name in text
        if (match := STALL.fullmatch(name)) and number(name) > 0
    }
    return Counters(kernel, (shape.m, shape.n, shape.k), values, stalls, _by_line(source), version)


def _by_line(source: str) -> dict[str, dict[str, int]]:
    """Samples of warps by line and what they waited for; ncu gives each line before its instructions."""
    lines = dict[str, dict[str, int]]()
    columns = list[str]()
    for row in csv.reader(io.StringIO(source)):
        if row[:2] == ["Line No", "Source"]:
            columns = row
        elif columns and len(row) == len(columns) and row[0].isdigit():
            waits = {
                name.removeprefix("stall_"): int(value)
                for name, value in zip(columns, row, strict=True)
                if name.startswith("stall_")
                and "Not Issued" not in name
                and value.isdigit()
                and int(value)
            }
            if waits:
                lines[row[0]] = waits
    return lines


def limit(counters: Counters) -> str:
    """One sentence: what limits the kernel, by which number, and the rung that attacked that."""
    values = counters.values
    busiest = max(UNITS, key=lambda unit: values[unit])
    said = f"{busiest} {values[busiest]:.0f} % busy"
    cause = busiest
    if busiest == "L1 and shared":
        waves = values["shared_load.wavefronts"] + values["shared_store.wavefronts"]
        conflicts = values["shared_load.conflicts"] + values["shared_store.conflicts"]
        if conflicts > CONFLICTS * waves:
            cause = "conflicts"
        elif values["global_load.sectors"] > SCATTERED * values["global_load.requests"]:
            cause = "scattered"
    elif busiest == "issue slots" and values["FP32 cores"] > OF_ISSUED * values[busiest]:
        cause = "FP32 cores"
    waiting = {
        name: count
        for name, count in counters.stalls.items()
        if name not in ("selected", "not_selected")
    }
    resident, possible = (values[name] for name in OCCUPANCY)
    if values[busiest] < BUSY and resident < FILLED * possible:
        cause = "blocks"
        said += f", and {resident:.0f} % of the warps resident where {possible:.0f} % are possible"
    elif values[busiest] < BUSY and waiting:
        cause = max(waiting, key=lambda name: waiting[name])
        share = 100 * waiting[cause] / sum(counters.stalls.values())
        said += f", and {share:.0f} % of the warps' cycles wait for {cause}"
    words, name = LIMITS.get(cause, (cause.replace("_", " "), ""))
    attacked = (
        f"; {name} attacked that: {rung(name).idea}" if name and name != counters.kernel else ""
    )
    return f"{counters.kernel} is limited by {words} ({said}){attacked}"


def tables(counters: Counters, kernel: Kernel) -> list[Table]:
    """Counts beside the emulator's, the units' shares with occupancy and stalls, and the lines at which warps wait.
    kernel: for the emulator's counts and the text of the lines.
    """
    shape = Shape(*counters.shape)
    values = counters.values
    rows = []
    try:
        counts: object = inspect(kernel, shape).counts
        notes = [
            "the hardware repeats up to a fifth of the shared stores, not by their addresses: each is a conflict"
        ]
        notes += [
            "an H100 counts up to 3 % fewer sectors of global stores than the addresses have, others in each run"
        ]
    except WorklogError as error:
        counts = None
        notes = [f"not emulated: {error}"]
    for name in COUNTS:
        row = {
            "count": name.replace("_", " ").replace(".", " "),
            "hardware": format_si(values[name]),
        }
        here = attrgetter(name)(counts) if counts is not None else None
        off = "" if not here else format_signed(values[name] / here - 1, 2)
        rows.append(row | {"emulated": "" if here is None else format_si(here), "difference": off})
    rows += [
        {"count": name, "hardware": format_si(values[name]), "emulated": "", "difference": ""}
        for name in (L2, DRAM)
    ]
    title = f"{counters.kernel} at {shape} · one launch · Nsight Compute {counters.ncu}"
    units = {name: f"{values[name]:.1f} %" for name in (*UNITS, *OCCUPANCY)}
    units |= {name: f"{value:.1f} %" for name, value in values.items() if name.startswith("pipe ")}
    total = sum(counters.stalls.values()) or 1.0
    most = sorted(counters.stalls.items(), key=lambda stall: -stall[1])
    units |= {
        f"warps: {name}": f"{100 * count / total:.1f} %"
        for name, count in most
        if count > 0.01 * total
    }
    return [Table.of(title, rows, notes=notes), Table("of the peak, or of the warps' cycles", (), [*units.items()]),
            _lines(counters, kernel.at(shape).source.splitlines())]  # fmt: skip


def _lines(counters: Counters, text: Sequence[str], most: int = 8) -> Table:
    def waits(of: Mapping[str, int]) -> int:
        return sum(count for name, count in of.items() if name != "selected")

    total = sum(map(waits, counters.lines.values())) or 1
    rows = []
    for number, of in sorted(counters.lines.items(), key=lambda line: -waits(line[1]))[:most]:
        reason = max(of, key=lambda name: of[name] * (name != "selected"))
        code = text[int(number) - 1].strip() if int(number) <= len(text) else ""
        rows.append(
            {
                "line": number,
                "of all waits": f"{100 * waits(of) / total:.1f} %",
                "most": reason,
                "code": code,
            }
        )
    return Table.of("where warps wait", rows)


if __name__ == "__main__":
    launch(Path(sys.argv[1]))
