"""Tile parameters as axes: the variants of a rung that can be built, their resources, and their times beside cuBLAS
from a GPU or a recording. The kernel's own static assertions decide which tiles are valid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.errors import BadRunFile, BadSetting, CompileFailed, meant
from worklog.gpu import gpu
from worklog.kernel import LADDER, MAX_THREADS, WARP, Kernel, Occupancy, block_traffic_bytes, occupancy
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Axis, Point, Shape, Space, Value
from worklog.runner.job import BASELINE, Progress, silent
from worklog.runner.measure import CHANGED, live_wanted, measure
from worklog.runs import Run, recordings

if TYPE_CHECKING:
    import pandas

    from worklog.settings import Harness

ARCH = "sm_90"
SIZE = Shape.of(4096)
SECONDS_EACH = 1.5  # gate and timing of one kernel at 4096 on an H200, from the stages' seconds in the recording


@dataclass(frozen=True)
class Variant:
    """One tile that can be launched. values: from the axes. kernel: the rung with this tile, called "BM=64 TN=8".
    Registers and spilled bytes are per thread, shared bytes per block; resident: blocks and warps per SM.
    """

    values: Mapping[str, int]
    kernel: Kernel
    registers: int
    spilled_bytes: int
    shared_bytes: int
    resident: Occupancy

    @property
    def name(self) -> str:
        """As in runs."""
        return self.kernel.name


@dataclass(frozen=True)
class Variants:
    """All points of the axes. kept: those that can be launched, in the axes' order. arch: compiled for."""

    rung: Kernel
    space: Space
    shape: Shape
    arch: str
    kept: tuple[Variant, ...]

    @property
    def skipped(self) -> list[Point]:
        """The other points, with their reasons."""
        return [point for point in self.space.points() if point.skipped]

    def preview(self) -> str:
        """The number of variants, the reasons for those that are skipped, and the time of the others on a GPU."""
        return self.space.preview(SECONDS_EACH)

    def frame(self) -> pandas.DataFrame:
        """One row per variant: its axes, and its properties before a launch.

        blocks/SM and warps/SM: resident at once. FMA/float: multiply-adds per float read from shared memory.
        blocks: of the grid. L2 GB: fetched by all of them together.
        """
        import pandas

        rows = []
        for one in self.kept:
            tile = one.kernel.template
            row: dict[str, Any] = {**one.values, "threads": one.kernel.thread_count, "registers": one.registers}
            row |= {"spilled B": one.spilled_bytes, "shared B": one.shared_bytes}
            row |= {"blocks/SM": one.resident.blocks, "warps/SM": one.resident.warps}
            if {"TM", "TN"} <= tile.keys():
                row["FMA/float"] = round(tile["TM"] * tile["TN"] / (tile["TM"] + tile["TN"]), 2)
            row["blocks"] = math.prod(one.kernel.blocks(self.shape))
            row["L2 GB"] = round(block_traffic_bytes(tile, self.shape) / 1e9, 2)
            rows.append(row)
        return pandas.DataFrame(rows)


def variants(record: Kernel, axes: Sequence[Axis], *, shape: Shape = SIZE, arch: str | None = None) -> Variants:
    """Compile every combination of tile parameters, about half a second each.

    axes: named as the rung's tile parameters; the others keep their values. arch: default, the GPU's where results()
    would measure on one, else sm_90. Raises BadSetting for an axis that isn't a parameter of this rung, and
    NvrtcMissing.
    """
    arch = arch or (gpu().arch if live_wanted() else ARCH)
    space = tiles(record, axes)
    points = {str(point): {name: int(value) for name, value in point.values.items()} for point in space.points()}
    built = {name: _variant(record, name, values, shape, arch) for name, values in points.items()}

    def skip(values: Mapping[str, Value]) -> str | None:
        found = built[str(Point(values))]
        return found if isinstance(found, str) else None

    kept = tuple(found for found in built.values() if isinstance(found, Variant))
    return Variants(record, replace(space, skip=skip), shape, arch, kept)


def tiles(record: Kernel, axes: Sequence[Axis]) -> Space:
    """All combinations of the axes. Raises BadSetting, as variants() does."""
    for axis in axes:
        if axis.name not in record.template:
            names = ", ".join(record.template)
            near = meant(axis.name, record.template)
            raise BadSetting(f"{record.name} has no tile parameter {axis.name}{near}: choose from {names}")
        if not all(isinstance(value, int) and value > 0 for value in axis.values):
            raise BadSetting(f"axis {axis.name}: tile parameters are whole numbers from 1 on")
    return Space(record.name, tuple(axes))


def sweep(
    found: Variants, *, harness: Harness | None = None, progress: Progress = silent, out: Path | None = None
) -> Run:
    """Check and time the kept variants and cuBLAS on this GPU. Raises what worklog.measure raises, and BadSetting where
    no variant is left.
    """
    if not found.kept:
        raise BadSetting(f"nothing to measure: {found.preview()}")
    kernels: list[str | Kernel] = [*(variant.kernel for variant in found.kept), BASELINE]
    return measure(kernels, [found.shape], harness=harness, progress=progress, out=out)


def results(found: Variants) -> Run | None:
    """The kept variants' times: measured where there is a GPU, else from a recorded sweep. None where none of them was
    recorded.
    """
    if live_wanted():
        return sweep(found)
    try:
        return recorded(found)
    except BadRunFile:
        return None


def recorded(found: Variants) -> Run:
    """The times of the kept variants from a recorded sweep of the same sources, or of earlier ones that compiled to as
    many registers and as much shared memory: their label says so. A note names the variants that it doesn't hold.
    Raises BadRunFile, naming what was recorded, where none of them was, and BadSetting where no variant is left.
    """
    if not found.kept:
        raise BadSetting(f"nothing to measure: {found.preview()}")
    earlier = {(v.kernel.program.entry, v.registers, v.shared_bytes): v.name for v in found.kept}
    held = []
    for path in recordings("sweeps").values():
        run = Run.load(path, origin="recorded")
        known = {BASELINE: (BASELINE, "")}
        for name, about in run.kernels.items():
            compiled = about.get("entry"), about.get("registers"), about.get("shared_bytes")
            if same := [variant.name for variant in found.kept if variant.kernel.program.measured_as(about)]:
                known[name] = same[0], ""
            elif compiled in earlier:
                known[name] = earlier[compiled], f" · {CHANGED}"
        of_shape = [(m, *known[m.kernel]) for m in run.select(shape=found.shape) if m.kernel in known]
        there = [replace(m, kernel=name, context=replace(run.context, remark=since)) for m, name, since in of_shape]
        absent = [v.name for v in found.kept if v.name not in {m.kernel for m in there}]
        if len(absent) < len(found.kept):
            missing = [f"not in the recorded run: {', '.join(absent)} (measure on a GPU)"] if absent else []
            kernels = {known[name][0]: about for name, about in run.kernels.items() if name in known}
            return replace(run, measurements=there, kernels=kernels, notes=[*run.notes, *missing])
        held.append(_held(run))
    others = f" (recorded: {'; '.join(held)})" if held else ""
    raise BadRunFile(f"no such tile of {found.rung.name} at {found.shape} was recorded{others}: measure on a GPU")


def _held(run: Run) -> str:
    """The sizes, the rung and the values of each axis, of a recorded sweep."""
    values: dict[str, dict[str, None]] = {}
    rungs: dict[str, None] = {}
    for name, about in run.kernels.items():
        entry = about.get("entry", "")
        for record in LADDER:
            if entry.startswith(f"{record.function}<"):
                rungs[record.name] = None
                for axis, _, value in (word.partition("=") for word in name.split()):
                    values.setdefault(axis, {})[value] = None
    axes = " ".join(f"{axis}={','.join(known)}" for axis, known in values.items())
    return f"{', '.join(rungs)} at {', '.join(map(str, run.shapes()))}" + (f" with {axes}" if axes else "")


def _variant(record: Kernel, name: str, values: Mapping[str, int], shape: Shape, arch: str) -> Variant | str:
    """The compiled variant, or the reason for skipping it."""
    own = replace(record, name=name, template={**record.template, **values}, number=None, idea="")
    threads = own.thread_count
    if threads < WARP or threads % WARP:
        return f"no whole warps: {threads} threads for {own.template['BM'] * own.template['BN']} outputs"
    if threads > MAX_THREADS:
        return f"more than {MAX_THREADS} threads per block"
    if shape not in own.domain:
        return f"{shape} is not a multiple of the tile"
    try:
        out = compile_cuda(own.program, arch)
    except CompileFailed as failed:
        return _reason(failed)
    resident = occupancy(arch, threads, out.registers, out.shared_bytes)
    if not resident.blocks:
        return f"no block fits an SM: too much of {' and '.join(resident.limited_by)}"
    spilled = out.spill_store_bytes + out.spill_load_bytes
    return Variant(dict(values), own, out.registers, spilled, out.shared_bytes, resident)


def _reason(failed: CompileFailed) -> str:
    """The static assertion's or the assembler's message, for a tile that does not compile. Raises any other error."""
    asserted = re.search(r'static assertion failed with "([^"]+)"', str(failed))
    if asserted:
        return f"the kernel requires that {asserted[1]}"
    if "uses too much shared data" in str(failed):
        return "more static shared memory than a block may have"
    raise failed
