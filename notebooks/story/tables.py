"""Tables of the story: what warps wait for (04 to 07, 09, 10), what hides L2's latency (07), power (10)."""

from __future__ import annotations

import json
import math

from worklog.kernel import rung
from worklog.kernel.resources import no_sass
from worklog.lab.ladder_tables import LOOPS, main_loops
from worklog.runs import Calibration, Run, recordings
from worklog.runs.text import Table, duration, format_energy, percent


def fetched_ahead(calibration: Calibration, *names: str) -> Table:
    """Return how far ahead each rung's machine code fetches a tile.

    Columns: the multiply-adds from the last fetch of a tile to its first store; the clocks that
    these take in all warps of a quarter of a multiprocessor that has one block; and the clocks that
    a warm L2 saves per tile if a read waits for the rest of its latency only. Without NVIDIA's
    disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(names).items():
        hidden_cycles = loop.ahead * rung(name).thread_count // 128
        cold_wait = max(0.0, calibration.cold_cycles - hidden_cycles)
        warm_wait = max(0.0, calibration.warm_cycles - hidden_cycles)
        row = {"kernel": name, "multiply-adds ahead": f"{loop.ahead}"}
        row["clocks ahead"] = f"{hidden_cycles}"
        row["a warm L2 saves"] = f"{cold_wait - warm_wait:.0f}"
        rows.append(row)
    return Table.of(LOOPS if rows else no_sass(), rows)


def beside_reading() -> Table:
    """Return the times of few rows, and what share of a reading kernel's speed they reach (09).

    That kernel reads B alone.
    """
    run = Run.load(recordings("chapters")["h200_rows"], "recorded")
    ours, cublas = (
        {m.point: m for m in run.measurements if m.kernel == name} for name in ("sgemm", "cublas")
    )
    rows = []
    for point, m in ours.items():
        reading_us = m.us * m.ratio if m.us and m.ratio else math.nan
        row = {
            "M x N x K": str(point.value("size")),
            "reading B": duration(reading_us, padded=True),
        }
        for name, timed in (("worklog.sgemm", m), ("cuBLAS", cublas[point])):
            row[name] = duration(timed.us or math.nan, padded=True)
            row[f"{name}, of reading"] = percent(timed.ratio)
        rows.append(row)
    return Table.of(run.label, rows)


# What Nsight Compute calls a warp's state, and what it means here.
STATES = {
    "selected": "issues",
    "not_selected": "ready",
    "long_scoreboard": "global memory",
    "lg_throttle": "queue to L1",
    "short_scoreboard": "shared memory",
    "mio_throttle": "queue to shared",
    "barrier": "barrier",
    "dispatch": "register operands",
}


def waits(*names: str, size: int = 4096) -> Table:
    """Return what the warps of each rung do with their cycles, in percent, as Nsight Compute counts.

    Columns: issuing an instruction; ready, while another warp issues; waiting for data of global
    memory, for room in the queue to it, for data of shared memory and room in its queue, at a
    barrier, or for operands of a register bank; and all other waits.

    size: 1024 or 4096
    """
    recording = "h200_small" if size == 1024 else "h200_causes"
    run = Run.load(recordings("chapters")[recording], "recorded")
    shape = (size, size, size)
    counted = {counters.kernel: counters for counters in run.counters if counters.shape == shape}
    rows = []
    for name in names:
        stalls = counted[name].stalls
        total = sum(stalls.values())
        row: dict[str, str] = {"rung": name}
        for state, meaning in STATES.items():
            row[meaning] = percent(stalls.get(state, 0.0) / total)
        others = sum(share for state, share in stalls.items() if state not in STATES)
        row["other"] = percent(others / total)
        rows.append(row)
    ncu = counted[names[0]].ncu
    return Table.of(f"cycles of the warps at {size}: {run.label} · Nsight Compute {ncu}", rows)


def power_cap() -> Table:
    """Return cuBLAS's products in INT8, FP16 and FP32 on a card at its power limit.

    They are launched back to back. 6 products in INT8 or 3 in FP16 come near FP32's error: the last
    column is the share of FP32's time that these take.
    """
    document = json.loads(recordings("int8")["h200"].read_text(encoding="utf-8"))
    rows = []
    products = {"INT8": 6, "FP16": 3, "FP32": 1}
    times_us = {
        (record["format"], record["size"]): record["in_a_row"]["us"] for record in document["rows"]
    }
    for record in document["rows"]:
        name = record["format"]
        size = record["size"]
        us = times_us[name, size]
        share = products[name] * us / times_us["FP32", size]
        row = {"product": f"{name} at {size}", "time": duration(us, padded=True)}
        row["T(FL)OP/s"] = f"{2e-6 * size**3 / us:.0f}"
        row["W"] = f"{record['in_a_row']['watts']:.0f}"
        row["of FP32's time, x 6, 3, 1"] = percent(share)
        rows.append(row)
    return Table.of(f"{document['label']}, power limit {document['limit_watts']:.0f} W", rows)


def six_products() -> Table:
    """Return the times, clocks and energies of six products of INT8 and of rung 26 (10).

    The cycles are the time at the median SM clock while it was measured.
    """
    run = Run.load(recordings("settings")["h200_digits"], "recorded")
    rows = []
    for m in run.measurements:
        us = m.us or math.nan
        sm_mhz = m.sm_mhz or math.nan
        row = {"kernel": f"{m.kernel} at {m.point.shape.m}", "time": duration(us, padded=True)}
        row["of cuBLAS"] = percent(m.ratio)
        row["SM MHz"] = f"{sm_mhz:.0f}"
        row["million cycles"] = f"{1e-6 * us * sm_mhz:.3f}"
        row["in a row"] = duration(m.energy.us or math.nan, padded=True) if m.energy else ""
        row["energy"] = format_energy(m.joules or math.nan)
        rows.append(row)
    note = "8192: not checked by the gate, which takes a minute there; the same code at 4096 is"
    return Table.of(run.label, rows, notes=[note])
