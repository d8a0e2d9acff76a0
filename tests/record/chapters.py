"""Records what a notebook compares beyond the article's run, in one run on one card.

`python -m tests.record.chapters tiles worklog/recordings/chapters/h100_tiles.jsonl` on a machine
with a GPU; half a minute. `autotuned` and `pipelined` at each other's tile, beside the rungs before
and after, for notebook 06.

`python -m tests.record.chapters waits worklog/recordings/chapters/h100_waits.jsonl`; two minutes.
The rungs with tiles, with L2 flushed and left warm, for notebook 07.

`python -m tests.record.chapters causes worklog/recordings/chapters/h200_causes.jsonl`; six minutes.
Rungs in which one part of their step is undone, and rungs without the word in their symbol that
keeps the order of multiply-adds; and what the warps of every rung wait for, as Nsight Compute
counts it, for notebooks 04 to 07, 09 and 10.

`python -m tests.record.chapters small worklog/recordings/chapters/h200_small.jsonl`; three minutes.
The same counts at 1024.

`python -m tests.record.chapters bounds worklog/recordings/bounds/h100.jsonl`; two minutes. Kernels
of one row, with loads that are marked as read once and without; `split` and its first pass; and
what Nsight Compute counts of `best` and `split` where their speed ends, for notebooks 09 and 10.

`python -m tests.record.chapters halves worklog/recordings/chapters/h200_halves.jsonl`; minutes.
The rungs of kernels/hgemm beside cuBLAS and the fastest of cuBLASLt, `hgemm_cluster` with another
scope of its arrivals, and what Nsight Compute counts, for notebook 18.

`python -m tests.record.chapters winograd worklog/recordings/chapters/h200_winograd.jsonl`; minutes.
Winograd's form with one and two levels beside cuBLAS and the fastest rungs, for notebook 09.

`python -m tests.record.chapters energy worklog/recordings/settings/h200_energy.jsonl`; two
minutes. The joules of a launch of some rungs, Winograd's form and cuBLAS, for notebook 10. It isn't
among the chapters: the pages take a rung's time from the first chapter that has it. Nor are:

`python -m tests.record.chapters digits worklog/recordings/settings/h200_digits.jsonl`; a minute.
Six products of INT8 beside rung 26, with their joules and what Nsight Compute counts, for the same
notebook.

`python -m tests.record.chapters workloads worklog/recordings/settings/h200_workloads.jsonl`; four
minutes. `best` beside cuBLAS at shapes that people have.
"""

import sys
from dataclasses import replace
from pathlib import Path

import worklog
from notebooks.story.halves import with_scope
from worklog.gpu.profile import limit, profiled
from worklog.kernel import LADDER, Kernel
from worklog.kernel.ladder import FP32, TENSOR, rungs
from worklog.kernel.source import kernels_dir
from worklog.problem import Shape
from worklog.problem.workloads import WORKLOADS
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import Changes, product_job
from worklog.runs import CUBLAS, CUBLASLT, Run
from worklog.settings import Harness

TILES = (
    ("autotuned", dict(BN=128, MIN_BLOCKS=2)),  # pipelined's
    ("autotuned", dict(BN=128, TN=8, MIN_BLOCKS=2)),  # double_buffered's
    ("pipelined", dict(BN=256, MIN_BLOCKS=1)),  # autotuned's
)
# Each undoes one part of a step, or takes one part of it alone.
ISOLATED_TEXTS = (
    (
        "double_buffered, two barriers",
        "double_buffered",
        (("    if (k0 + BK < K) store", "    __syncthreads();\n    if (k0 + BK < K) store"),),
    ),
    *(
        (f"{name}, order not kept", name, (("cutlass", "another"),))
        for name in ("register_banks", "warptiled", "bulk_copies")
    ),
)
ISOLATED_TILES = (("tiles_2d", dict(BM=64, BN=64)), ("specialized", dict(BN=128)))
# columns, and k at a time
ROWS = ("1x4096x4096", "1x8192x512", "1x512x8192")
ROW_TILES = ((8, 512), (32, 128))
COUNTED = (("best", "1x4096x4096 769x1000x4095 2049x1021x640 4096"), ("split", "4096"))

# Of the ladder, in its order. The gate launches naive for seconds at 4096.
ENERGY = ("naive", "shared", "tiles_2d", "vectorized", "warptiled", "bulk_copies", "best")
ENERGY += ("winograd", *(kernel.name for kernel in TENSOR))
UNCHECKED: Changes = (("gate", False),)
HALVES = ("hgemm_mma", "hgemm_wgmma", "hgemm_tma", "hgemm_cluster")


def tiles(out: Path) -> None:
    """Two rungs at each other's tile."""
    kernels = list[object](
        ["double_buffered", "autotuned", "pipelined", "register_banks", "cuBLAS"]
    )
    kernels += [worklog.rung(name).with_tile(**tile) for name, tile in TILES]
    worklog.measure(kernels, [1024, 2048, 4096], out=out)


def causes(out: Path) -> None:
    """Rungs with one part of their step undone, and what the warps of each rung wait for."""
    kernels = list[object](["tiles_1d", "conflict_free", "barriers", "cuBLAS"])
    for name, rung_name, edits in ISOLATED_TEXTS:
        rung = worklog.rung(rung_name)
        text = rung.source
        for old, new in edits:
            if old not in text:
                raise ValueError(f"{rung_name} has no longer: {old}")
            text = text.replace(old, new)
        changed = replace(rung.with_text(text), name=name, number=None, idea="")
        kernels += [rung_name, changed]
    for name, tile in ISOLATED_TILES:
        kernels += [name, worklog.rung(name).with_tile(**tile)]
    run = worklog.measure(kernels, [1024, 4096], out=out)
    count(run, 4096)


def small(out: Path) -> None:
    """Count what the warps of each rung wait for where a launch takes tens of microseconds."""
    count(worklog.measure(["cuBLAS"], 1024, out=out), 1024)


def count(run: Run, size: int) -> None:
    """Add what Nsight Compute counts of every rung to a run."""
    for rung in (*LADDER, *FP32, *TENSOR):
        counted = profiled(rung, Shape.of(size))
        run.add_counters(counted)
        print(rung.name, size, limit(counted, run.gpu.arch), flush=True)


def waits(out: Path) -> None:
    """Each rung that copies tiles, with both states of L2 one after the other."""
    jobs = [
        product_job(rung.name, Shape.of(size), changed)
        for size in (256, 512, 768, 1024)
        for rung in LADDER
        for changed in ((), (("l2", "warm"),))
        if "BK" in rung.template
    ]
    carry_out(order_of(jobs, Harness()), out=out)


def bounds(out: Path) -> None:
    """Return what bounds `best` and `split`."""
    by_tile = {
        f"{columns} x {depth}": rungs.sliced(dict(BM=1, BN=columns, BK=depth, TN=4, WIDTH=4))
        for columns, depth in ROW_TILES
    }
    rows = [replace(kernel, name=name, number=None, idea="") for name, kernel in by_tile.items()]
    rows += [
        replace(kernel, name=f"{kernel.name}, plain loads").with_text(
            kernel.source.replace("__ldcs(", "*(")
        )
        for kernel in rows
    ]
    jobs = [product_job(kernel.name, Shape.of(size)) for size in ROWS for kernel in rows]
    passes = list[Kernel]()
    for size in map(Shape.of, (4096, 8192)):
        whole = rungs.split_at(size)
        first = replace(
            whole,
            name=f"first pass at {size}",
            launches=whole.launches[:1],
            main=0,
            number=None,
            idea="",
        )
        passes.append(first)
        jobs += [product_job("split", size), product_job(first.name, size, (("gate", False),))]
    run = carry_out(order_of(jobs, Harness(), [*rows, *passes]), out=out)
    for name, sizes in COUNTED:
        for size in map(Shape.of, sizes.split()):
            counted = profiled(worklog.rung(name), size)
            run.add_counters(counted)
            print(name, size, limit(counted, run.gpu.arch))


def halves(out: Path) -> None:
    """Time the rungs of halves at 4096, the last two at 8192, and count at 4096.

    The gate has passed a kernel at 4096 when it is timed at 8192, where a check takes a minute.
    """
    folder = kernels_dir() / "hgemm"
    kernels = [Kernel.from_file(folder / f"{name}.cu") for name in HALVES]
    *_, last = kernels
    scoped = with_scope(last)
    in_step = replace(last.with_tile(SKEW=0), name=f"{last.name}, in step")
    variants = (scoped, in_step)
    against = (CUBLASLT,)
    jobs = [
        product_job(kernel.name, Shape.of(4096), (), *against, types=kernel.types)
        for kernel in (*kernels, *variants)
    ]
    jobs += [
        product_job(kernel.name, Shape.of(8192), UNCHECKED, *against, types=kernel.types)
        for kernel in (*kernels[-2:], *variants)
    ]
    run = carry_out(order_of(jobs, Harness(), [*kernels, *variants]), out=out)
    for kernel in (*kernels, scoped):
        counted = profiled(kernel, Shape.of(4096))
        run.add_counters(counted)
        print(kernel.name, limit(counted, run.gpu.arch), flush=True)


def winograd(out: Path) -> None:
    """Time Winograd's form beside cuBLAS and the fastest rungs, and one level beside two.

    The gate passes each kernel at 4096. At 8192 and 16384 a check takes minutes.
    """
    levels = [
        replace(rungs.winograd(count), name=f"winograd, {count} level{'s' if count > 1 else ''}")
        for count in rungs.WINOGRAD_LEVELS
    ]
    names = [*(kernel.name for kernel in levels), "best", "bulk_copies"]
    jobs = [product_job(name, Shape.of(4096)) for name in names]
    jobs += [
        product_job(name, Shape.of(size), UNCHECKED) for size in (8192, 16384) for name in names
    ]
    carry_out(order_of(jobs, Harness(), levels), out=out)


def energy(out: Path) -> None:
    """Measure the joules of a launch at 4096, during a second of launches in a row."""
    worklog.measure([*ENERGY, CUBLAS], 4096, out=out, harness=Harness(energy_s=1))


def digits(out: Path) -> None:
    """Measure INT8's six products and `split`, and count them at 4096.

    The gate passes them at 4096. At 8192 a check takes a minute.
    """
    names = ("digits", "split")
    jobs = [product_job(name, Shape.of(4096)) for name in names]
    jobs += [product_job(name, Shape.of(8192), UNCHECKED) for name in names]
    run = carry_out(order_of(jobs, Harness(energy_s=1)), out=out)
    for name in names:
        counted = profiled(worklog.rung(name), Shape.of(4096))
        run.add_counters(counted)
        print(name, limit(counted, run.gpu.arch), flush=True)


def workloads(out: Path) -> None:
    """Time `best` at shapes that people have, at each for half a second or less."""
    shapes = [shape for group in WORKLOADS.values() for shape in group]
    worklog.measure("best", shapes, out=out, harness=Harness(budget_s=0.5, hot_ms=0.0))


if __name__ == "__main__":
    recordings = {
        "tiles": tiles,
        "waits": waits,
        "causes": causes,
        "small": small,
        "bounds": bounds,
        "halves": halves,
        "winograd": winograd,
        "energy": energy,
        "digits": digits,
        "workloads": workloads,
    }
    recordings[sys.argv[1]](Path(sys.argv[2]))
