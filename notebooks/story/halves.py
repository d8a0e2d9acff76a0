"""Tables of the story's second ladder, halves on tensor cores (18)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from worklog.kernel import Kernel
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.resources import disassemble, disassembler, no_sass
from worklog.kernel.source import kernels_dir
from worklog.problem import Shape
from worklog.runs import Counters, Measurement, Run, recordings
from worklog.runs.text import Table, duration, percent

WITHOUT_SCOPE = "mbarrier.arrive.shared::cluster"
WITH_SCOPE = "mbarrier.arrive.release.cluster.shared::cluster"
# What Nsight Compute calls a warp's state, and what it means here.
STATES = {
    "selected": "issues",
    "membar": "memory barrier",
    "barrier": "end of the block",
    "gmma": "tensor cores",
    "long_scoreboard": "an mbarrier, or global memory",
    "mio_throttle": "queue to shared",
}
BUSY = ("tensor cores", "issue slots", "L1 and shared", "L2", "DRAM")
BARRIER = re.compile(r"MEMBAR[.\w]*")  # in machine code


@cache
def recorded() -> Run:
    """Return the run of tests/record/chapters.py, halves."""
    return Run.load(recordings("chapters")["h200_halves"], "recorded")


@cache
def checked_at_8192() -> Run:
    """Return a run of `hgemm_cluster` at 8192, with the gate's check of that size."""
    return Run.load(recordings("chapters")["h200_halves_8192"], "recorded")


def _measured(size: int, *names: str) -> Iterator[Measurement]:
    """Yield the measurements at a size, of all kernels or of some, in the recording's order.

    At 8192 the kernels were timed without a check.
    """
    for m in recorded().measurements:
        if m.point.shape == Shape.of(size) and (not names or m.kernel in names):
            yield m


def shares(size: int, baseline: str, *names: str) -> dict[str, float]:
    """Return each kernel's speed over a baseline's, by its name. names: as for table()"""
    ratios = {m.kernel: m.against[baseline] for m in _measured(size, *names)}
    return {name: ratio.value for name, ratio in ratios.items() if ratio}


def table(size: int, *names: str) -> Table:
    """Return the times of the kernels, of all or of some."""
    return _table(f"FP16 at {size}: {recorded().label}", _measured(size, *names))


def table_of(run: Run) -> Table:
    """Return the times of a run."""
    return _table(run.label, run.measurements)


def _table(title: str, measurements: Iterable[Measurement]) -> Table:
    """Return the times of the kernels."""
    rows = []
    for m in measurements:
        row = {"kernel": m.kernel, "time": duration(m.us or math.nan, padded=True)}
        row["TFLOP/s"] = f"{m.tflops:.0f}"
        for name, ratio in m.against.items():
            if ratio is None:
                continue
            half_width = (ratio.high - ratio.low) / 2
            row[f"of {name}"] = f"{percent(ratio.value)} ±{100 * half_width:.1f}"
        row["of the peak at its clock"] = percent(m.of_roof)
        row["SM MHz"] = f"{m.sm_mhz:.0f}"
        rows.append(row)
    return Table.of(title, rows)


def counted(*names: str) -> Table:
    """Return how busy the units are, and the bytes that L2 serves, at 4096."""
    rows = []
    for counters in counters_of(*names):
        row = {"kernel": counters.kernel}
        for unit in BUSY:
            row[unit] = f"{counters.values[unit]:.0f} %"
        row["MB of L2"] = f"{counters.values['bytes of L2'] / 1e6:.0f}"
        rows.append(row)
    return Table.of(f"busy at 4096: {_label()}", rows)


def waits(*names: str) -> Table:
    """Return what the warps do with their cycles at 4096, in percent."""
    rows = []
    for counters in counters_of(*names):
        total = sum(counters.stalls.values())
        row = {"kernel": counters.kernel}
        for state, meaning in STATES.items():
            row[meaning] = percent(counters.stalls.get(state, 0.0) / total)
        others = sum(share for state, share in counters.stalls.items() if state not in STATES)
        row["other"] = percent(others / total)
        rows.append(row)
    return Table.of(f"cycles of the warps at 4096: {_label()}", rows)


def counters_of(*names: str) -> Iterator[Counters]:
    """Yield the counters of some kernels, in the order of the names."""
    by_name = {counters.kernel: counters for counters in recorded().counters}
    for name in names:
        yield by_name[name]


def _label() -> str:
    """Return where the counters come from."""
    return f"{recorded().label} · Nsight Compute {recorded().counters[0].ncu}"


def cluster() -> Kernel:
    """Return the kernel whose blocks share a tile of B."""
    return Kernel.from_file(kernels_dir() / "hgemm" / "hgemm_cluster.cu")


def with_scope(kernel: Kernel) -> Kernel:
    """Return a kernel whose arrivals at another block's mbarrier state a scope."""
    headers = tuple(
        (name, text.replace(WITHOUT_SCOPE, WITH_SCOPE)) for name, text in kernel.code.headers
    )
    if headers == kernel.code.headers:
        raise ValueError(f"the headers of {kernel.name} have no longer: {WITHOUT_SCOPE}")
    return replace(
        kernel, name=f"{kernel.name}, with a scope", code=replace(kernel.code, headers=headers)
    )


def arrivals() -> Table:
    """Return the machine code of the first arrival at another block's mbarrier, both ways.

    Without NVIDIA's disassembler, a note says so.
    """
    tool = disassembler()
    if tool is None:
        return Table.of(no_sass(), [])
    without = cluster()
    rows = []
    for kernel, ptx in ((with_scope(without), WITH_SCOPE), (without, WITHOUT_SCOPE)):
        sass = disassemble(compile_cuda(kernel.program).cubin, tool)
        barriers = ", ".join(_barriers_before_an_arrival(sass))
        rows.append({"PTX": f"{ptx}.b64", "barriers before it": barriers or "none"})
    return Table.of("compiled for sm_90a", rows)


def _barriers_before_an_arrival(sass: str) -> list[str]:
    """Return the memory barriers of the multiplying loop before it arrives at another block.

    sass: as nvdisasm prints it
    """
    loop = sass[sass.index("HGMMA") :]
    before, arrival, _ = loop.partition("SYNCS.ARRIVE.TRANS64.RED")
    if not arrival:
        raise ValueError("the machine code has no arrival at another block")
    return BARRIER.findall(before)
