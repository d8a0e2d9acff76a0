"""What the hardware counts in one launch of a kernel, by Nsight Compute's command line.

The counts are how busy the units are, what warps wait for and at which lines, and those that the
emulator has, too. One sentence says what limits the kernel.

`ncu` replays the launch some 30 times, with caches flushed before each and clocks as found; its
time is none of ours.
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

from worklog.emulator.limits import LIMITS as LIMITS_OF_SM
from worklog.emulator.limits import Chip
from worklog.errors import WorklogError
from worklog.gpu.device import environment, gpu
from worklog.kernel import Kernel, rung
from worklog.kernel.inspection import inspect
from worklog.problem import Shape, random_inputs
from worklog.runs import Counters
from worklog.runs.text import Table, format_si, format_signed

SHARE = ".avg.pct_of_peak_sustained_elapsed"
# Nsight Compute's names, by ours: counts, which the emulator has too, and units, in percent of
# their peak rates.
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
FILLED = 0.75  # of the possible warps, or of the time in which a multiprocessor has a block
LEAST_WAIT = 15  # percent, of the reason that is called the limit
READY = ("selected", "not_selected")
SCHEDULERS = 4  # of a multiprocessor
# What limits a kernel, by the busiest unit or the most frequent stall, and the rung that attacked
# it.
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
    "Nsight Compute may not read the counters (ERR_NVGPUCTRPERM): run as root, or let everyone: "
    "put `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia.conf, and restart"
)


def profiled(kernel: Kernel, shape: Shape, alpha: float = 1.0, beta: float = 0.0) -> Counters:
    """Return the counters of one launch of a kernel's product, on the current GPU.

    The kernel must have run before, since under ncu its code comes from the disk cache.

    Raises WorklogError if ncu is missing, isn't permitted or fails, and for counters that are
    missing or not a number.
    """
    tool = shutil.which("ncu")
    if tool is None:
        raise WorklogError(
            "there is no ncu on PATH: install Nsight Compute, "
            "or the CUDA toolkit with its folder bin"
        )
    launched = kernel.at(shape, Chip.of_gpu(gpu()))
    name = launched.function.rpartition("::")[2]
    with TemporaryDirectory(prefix="worklog-ncu-") as folder_name:
        folder = Path(folder_name)
        report = folder / "report.ncu-rep"
        order = folder / "order"
        # The report quotes the source.
        (folder / Path(launched.file).name).write_text(launched.source, encoding="utf-8")
        order.write_bytes(pickle.dumps((kernel, shape, alpha, beta)))
        child = [sys.executable, "-P", "-m", "worklog.gpu.profile", str(order)]
        output = _ncu(tool, *_options(report, name, folder), *child)
        if not report.exists():
            last_line = output.strip().splitlines()[-1] if output else "no output"
            raise WorklogError(f"ncu saw no launch of {name}: {last_line}")
        read = ["--import", str(report), "--csv", "--print-units", "base", "--page"]
        raw = _ncu(tool, *read, "raw")
        source = _ncu(tool, *read, "source", "--print-source", "cuda,sass")
        version = _ncu(tool, "--version").strip().splitlines()[-1].split()[1]
    return counters_of(kernel.name, shape, raw=raw, source=source, version=version)


def _options(report: Path, function: str, folder: Path) -> list[str]:
    """Return ncu's options for one launch of a function.

    folder: has the function's source
    """
    metrics = [*COUNTS.values(), *UNITS.values(), ALL_OF_L2, *OF_DRAM]
    options = ["-o", str(report), "--clock-control", "none"]
    options += ["--kernel-name", f"regex:^{function}$", "--launch-count", "1"]
    options += ["--import-source", "yes", "--source-folders", str(folder)]
    options += ["--metrics", ",".join(metrics)]
    for section in SECTIONS:
        options += ["--section", section]
    return options


def _ncu(tool: str, *arguments: str) -> str:
    """Return what Nsight Compute prints. Raises WorklogError."""
    process = subprocess.run(
        [tool, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
    )
    output = f"{process.stdout}\n{process.stderr}"
    if "ERR_NVGPUCTRPERM" in output:
        raise WorklogError(PERMIT)
    if process.returncode:
        lines = [line for line in output.splitlines() if "==ERROR==" in line]
        lines = lines or output.strip().splitlines()[-1:]
        raise WorklogError(f"ncu exited with {process.returncode}: {' '.join(lines)}")
    return process.stdout


def launch(order: Path) -> None:
    """Launch a kernel once, in ncu's child."""
    from worklog.gpu.cuda import CudaDevice

    kernel, shape, alpha, beta = pickle.loads(order.read_bytes())
    device = CudaDevice()
    types = kernel.types
    host_a, host_b = types.laid_out(*random_inputs(shape, np.random.default_rng(0)))
    a = device.upload(host_a, types.a)
    b = device.upload(host_b, types.b)
    c = device.upload(np.zeros((shape.m, shape.n), np.float32), types.c)
    kernel.load(device).enqueue(shape, alpha, a, b, beta, c)
    device.synchronize()


def counters_of(kernel: str, shape: Shape, *, raw: str, source: str, version: str) -> Counters:
    """Return the counters of one launch.

    raw, source: ncu's pages "raw" and "source" (cuda,sass) as CSV

    Raises WorklogError for a counter that is missing or not a number.
    """
    rows = [row for row in csv.reader(io.StringIO(raw[max(raw.find('"ID"'), 0) :])) if row]
    texts = dict(zip(rows[0], rows[-1], strict=True)) if len(rows) > 2 else {}

    def number(name: str) -> float:
        try:
            value = float(texts[name].replace(",", ""))
        except (KeyError, ValueError):
            raise WorklogError(
                f"ncu {version} has no counter {name} on this GPU: try another version"
            ) from None
        if math.isnan(value):
            raise WorklogError(f"ncu {version} counts NaN for {name}: try another version")
        return value

    values = {name: number(metric) for name, metric in (COUNTS | UNITS | OCCUPANCY).items()}
    values[L2] = 32 * number(SECTORS) if texts.get(SECTORS) else number(ALL_OF_L2)
    values[DRAM] = sum(map(number, OF_DRAM))
    stalls = {}
    for name in texts:
        pipe = PIPE.fullmatch(name)
        if pipe and number(name) >= 1:
            values[f"pipe {pipe[1]}"] = number(name)
        stall = STALL.fullmatch(name)
        if stall and number(name) > 0:
            stalls[stall[1]] = number(name)
    return Counters(kernel, (shape.m, shape.n, shape.k), values, stalls, _by_line(source), version)


def _by_line(source: str) -> dict[str, dict[str, int]]:
    """Return the samples of warps by line and by what they waited for.

    Ncu gives each line before its instructions.
    """
    lines = dict[str, dict[str, int]]()
    columns = list[str]()
    for row in csv.reader(io.StringIO(source)):
        if row[:2] == ["Line No", "Source"]:
            columns = row
        elif columns and len(row) == len(columns) and row[0].isdigit():
            waits = _waits(columns, row)
            if waits:
                lines[row[0]] = waits
    return lines


def _waits(columns: Sequence[str], row: Sequence[str]) -> dict[str, int]:
    """Return the samples of a line by what the warps waited for."""
    waits = {}
    for name, value in zip(columns, row, strict=True):
        is_stall = name.startswith("stall_") and "Not Issued" not in name
        if is_stall and value.isdigit() and int(value):
            waits[name.removeprefix("stall_")] = int(value)
    return waits


def limit(counters: Counters, arch: str) -> str:
    """Return a sentence: what limits the kernel, and by which number.

    It names the rung that attacked this limit.

    arch: of the GPU, such as "sm_90"
    """
    values = counters.values
    busiest = max(UNITS, key=lambda unit: values[unit])
    evidence = f"{busiest} {values[busiest]:.0f} % busy"
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
    if values[busiest] < BUSY:
        cause, numbers = _cause_of_idling(counters, arch)
        evidence += f", and {numbers}"
    if not cause:
        return f"{counters.kernel} isn't limited by one thing ({evidence})"
    limiter, attacking_rung = LIMITS.get(cause, (cause.replace("_", " "), ""))
    sentence = f"{counters.kernel} is limited by {limiter} ({evidence})"
    if attacking_rung and attacking_rung != counters.kernel:
        sentence += f"; {attacking_rung} attacked that: {rung(attacking_rung).idea}"
    return sentence


def _cause_of_idling(counters: Counters, arch: str) -> tuple[str, str]:
    """Return why no unit is busy, as a key of LIMITS, and the numbers that show it.

    The key is "" if no reason has a large share.
    """
    values = counters.values
    resident, possible = (values[name] for name in OCCUPANCY)
    total = sum(counters.stalls.values())
    if arch in LIMITS_OF_SM and total:
        # Each stall is a number of warps per issued instruction, so their sum is all warps of a
        # scheduler, divided by the instructions that it issues in a cycle.
        warps = resident / 100 * LIMITS_OF_SM[arch].warps / SCHEDULERS
        occupied = min(1.0, values["issue slots"] / (100 * warps / total))
        if occupied < FILLED:
            return (
                "blocks",
                f"{100 - 100 * occupied:.0f} % of the multiprocessors' time has no block",
            )
    if resident < FILLED * possible:
        return "blocks", (
            f"{resident:.0f} % of the warps resident where {possible:.0f} % are possible"
        )
    waiting = {name: count for name, count in counters.stalls.items() if name not in READY}
    if not waiting:
        return "", "what its warps wait for isn't known"
    cause = max(waiting, key=lambda name: waiting[name])
    share = 100 * waiting[cause] / total
    if share < LEAST_WAIT:
        return "", f"at most {share:.0f} % of the warps' cycles wait for one reason, {cause}"
    return cause, f"{share:.0f} % of the warps' cycles wait for {cause}"


def tables(counters: Counters, kernel: Kernel) -> list[Table]:
    """Return tables of the counts, of the units' shares, and of the waiting lines.

    The counts are beside the emulator's; the shares have occupancy and stalls.

    kernel: for the emulator's counts and the text of the lines
    """
    text = kernel.at(Shape(*counters.shape)).source
    return [_counts(counters, kernel), _shares(counters), _lines(counters, text.splitlines())]


def _counts(counters: Counters, kernel: Kernel) -> Table:
    """Return the table of the hardware's counts, beside the emulator's."""
    shape = Shape(*counters.shape)
    values = counters.values
    try:
        counts: object = inspect(kernel, shape).counts
        notes = [
            (
                "the hardware repeats up to a fifth of the shared stores, not by their addresses: "
                "each is a conflict"
            ),
        ]
        notes.append(
            "an H100 counts up to 3 % fewer sectors of global stores than the addresses have, "
            "others in each run"
        )
    except WorklogError as error:
        counts = None
        notes = [f"not emulated: {error}"]
    rows = []
    for name in COUNTS:
        emulated = None if counts is None else attrgetter(name)(counts)
        row = {
            "count": name.replace("_", " ").replace(".", " "),
            "hardware": format_si(values[name]),
            "emulated": "" if emulated is None else format_si(emulated),
            "difference": format_signed(values[name] / emulated - 1, 2) if emulated else "",
        }
        rows.append(row)
    for name in (L2, DRAM):
        hardware = format_si(values[name])
        rows.append({"count": name, "hardware": hardware, "emulated": "", "difference": ""})
    title = f"{counters.kernel} at {shape} · one launch · Nsight Compute {counters.ncu}"
    return Table.of(title, rows, notes=notes)


def _shares(counters: Counters) -> Table:
    """Return the table of the units' shares of their peaks, and of the warps' cycles."""
    values = counters.values
    shares = {name: f"{values[name]:.1f} %" for name in (*UNITS, *OCCUPANCY)}
    shares |= {name: f"{value:.1f} %" for name, value in values.items() if name.startswith("pipe ")}
    total = sum(counters.stalls.values()) or 1.0
    for name, count in sorted(counters.stalls.items(), key=lambda stall: -stall[1]):
        if count > 0.01 * total:
            shares[f"warps: {name}"] = f"{100 * count / total:.1f} %"
    return Table("of the peak, or of the warps' cycles", (), [*shares.items()])


def _lines(counters: Counters, text: Sequence[str], row_count: int = 8) -> Table:
    """Return the table of the lines at which warps wait most.

    text: the lines of the source
    """

    def count(waits: Mapping[str, int]) -> int:
        return sum(samples for name, samples in waits.items() if name != "selected")

    total = sum(map(count, counters.lines.values())) or 1
    by_count = sorted(counters.lines.items(), key=lambda line: -count(line[1]))
    rows = []
    for number, waits in by_count[:row_count]:
        code = text[int(number) - 1].strip() if int(number) <= len(text) else ""
        row = {
            "line": number,
            "of all waits": f"{100 * count(waits) / total:.1f} %",
            "most": max(waits, key=lambda name: waits[name] * (name != "selected")),
            "code": code,
        }
        rows.append(row)
    return Table.of("where warps wait", rows)


if __name__ == "__main__":
    launch(Path(sys.argv[1]))
