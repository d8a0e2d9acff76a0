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
from worklog.gpu.device import gpu
from worklog.kernel import MAX_THREADS, WARP, Kernel, Occupancy, block_traffic_bytes, occupancy
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Axis, Point, Shape, Space, Value
from worklog.runner.job import BASELINE, SECONDS_EACH, Progress, silent
from worklog.runner.measure import CHANGED, live_wanted, measure
from worklog.runs import Measurement, Run, recordings

if TYPE_CHECKING:
    import pandas

    from worklog.settings import Harness

SIZE = Shape.of(4096)


@dataclass(frozen=True)
class Variant:
    """One tile that can be launched. values: from the axes. kernel: the rung with this tile, called "BM=64 TN=8".
    Registers and spilled bytes are per thread, shared bytes per block; resident: blocks and warps per SM.
    """

    values: Mapping[str, Value]
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
    """All points of the axes. skipped: those that can't be launched, with their reasons. kept: the others, in the axes'
    order. arch: compiled for.
    """

    rung: Kernel
    space: Space
    shape: Shape
    arch: str
    kept: tuple[Variant, ...]
    skipped: tuple[Point, ...]

    def preview(self) -> str:
        """The number of variants, the reasons for those that are skipped, and the time of the others on a GPU."""
        reasons = {str(point): point.skipped for point in self.skipped}
        return replace(self.space, skip=lambda values: reasons.get(str(Point(values)))).preview(SECONDS_EACH)

    def require_some(self) -> None:
        """Raise BadSetting where no variant is left."""
        if not self.kept:
            raise BadSetting(f"nothing to measure: {self.preview()}")

    def same(self, about: Mapping[str, Any]) -> tuple[str, str]:
        """The name of the variant that a kernel in a run is, "" for none, and what its label says."""
        for variant in self.kept:
            if variant.kernel.program.measured_as(about):
                return variant.name, ""
        for variant in self.kept:
            compiled = {"registers": variant.registers, "shared_bytes": variant.shared_bytes}
            if {"entry": variant.kernel.entry, **compiled}.items() <= about.items():
                return variant.name, f" · {CHANGED}"
        return "", ""

    def frame(self) -> pandas.DataFrame:
        """One row per variant: its axes, and its properties before a launch.

        blocks/SM and warps/SM: resident at once. FMA/float: multiply-adds per float read from shared memory.
        blocks: of the grid. L2 GB: fetched by all of them together.
        """
        import pandas

        rows = []
        for variant in self.kept:
            tile = variant.kernel.template
            row: dict[str, Any] = {**variant.values, "threads": variant.kernel.thread_count}
            row |= {"registers": variant.registers, "spilled B": variant.spilled_bytes}
            row |= {"shared B": variant.shared_bytes}
            row |= {"blocks/SM": variant.resident.blocks, "warps/SM": variant.resident.warps}
            if {"TM", "TN"} <= tile.keys():
                row["FMA/float"] = round(tile["TM"] * tile["TN"] / (tile["TM"] + tile["TN"]), 2)
            row["blocks"] = math.prod(variant.kernel.blocks(self.shape))
            row["L2 GB"] = round(block_traffic_bytes(tile, self.shape) / 1e9, 2)
            rows.append(row)
        return pandas.DataFrame(rows)


def variants(record: Kernel, axes: Sequence[Axis], *, shape: Shape = SIZE, arch: str | None = None) -> Variants:
    """Compile every combination of tile parameters, about half a second each.

    axes: named as the rung's tile parameters; the others keep their values. arch: default, the GPU's where results()
    would measure on one, else sm_90. Raises BadSetting for an axis that isn't a parameter of this rung, and
    NvrtcMissing.
    """
    for axis in axes:
        if axis.name not in record.template:
            near, names = meant(axis.name, record.template), ", ".join(record.template)
            raise BadSetting(f"{record.name} has no tile parameter {axis.name}{near}: choose from {names}")
        if not all(isinstance(value, int) and value > 0 for value in axis.values):
            raise BadSetting(f"axis {axis.name}: tile parameters are whole numbers from 1 on")
    arch, space = arch or (gpu().arch if live_wanted() else "sm_90"), Space(record.name, tuple(axes))
    made = [(point, _variant(record, point, shape, arch)) for point in space.points()]
    kept = [variant for _, variant in made if isinstance(variant, Variant)]
    skipped = [Point(point.values, why) for point, why in made if isinstance(why, str)]
    return Variants(record, space, shape, arch, tuple(kept), tuple(skipped))


def sweep(
    chosen: Variants, *, harness: Harness | None = None, progress: Progress = silent, out: Path | None = None
) -> Run:
    """Check and time the kept variants and cuBLAS on this GPU. Raises what worklog.measure raises, and BadSetting where
    no variant is left.
    """
    chosen.require_some()
    kernels: list[str | Kernel] = [*(variant.kernel for variant in chosen.kept), BASELINE]
    return measure(kernels, [chosen.shape], harness=harness, progress=progress, out=out)


def results(chosen: Variants) -> Run | None:
    """The kept variants' times: measured where there is a GPU, else from a recorded sweep, or None."""
    try:
        return sweep(chosen) if live_wanted() else recorded(chosen)
    except BadRunFile:
        return None


def recorded(chosen: Variants) -> Run:
    """The times of the kept variants from a recorded sweep of the same sources, or of earlier ones that compiled to as
    many registers and as much shared memory: their label says so. A note names the variants that it doesn't hold.
    Raises BadRunFile where none of them was recorded, and BadSetting where no variant is left.
    """
    chosen.require_some()
    for path in recordings("sweeps").values():
        run = Run.load(path, origin="recorded")
        times, kernels = list[Measurement](), dict[str, Any]()
        for m in run.select(shape=chosen.shape):
            about = run.kernels.get(m.kernel, {})
            name, since = (BASELINE, "") if m.kernel == BASELINE else chosen.same(about)
            if name:
                times.append(replace(m, kernel=name, context=replace(run.context, remark=since)))
                kernels |= {name: about} if about else {}
        timed = {m.kernel for m in times}
        absent = [variant.name for variant in chosen.kept if variant.name not in timed]
        if len(absent) < len(chosen.kept):
            missing = [f"not in the recorded run: {', '.join(absent)} (measure on a GPU)"] if absent else []
            return replace(run, measurements=times, kernels=kernels, notes=[*run.notes, *missing])
    raise BadRunFile(f"no such tile of {chosen.rung.name} at {chosen.shape} was recorded: measure on a GPU")


def _variant(record: Kernel, point: Point, shape: Shape, arch: str) -> Variant | str:
    """The compiled variant, or the reason for skipping it. Raises CompileFailed for any error but a tile's."""
    template = {**record.template, **{name: int(value) for name, value in point.values.items()}}
    own = replace(record, name=str(point), template=template, number=None, idea="")
    threads = own.thread_count
    if threads % WARP:
        return f"no whole warps: {threads} threads for {template['BM'] * template['BN']} outputs"
    if threads > MAX_THREADS:
        return f"more than {MAX_THREADS} threads per block"
    if shape not in own.domain:
        return f"{shape} is not a multiple of the tile"
    try:
        out = compile_cuda(own.program, arch)
    except CompileFailed as failed:
        if asserted := re.search(r'static assertion failed with "([^"]+)"', str(failed)):
            return f"the kernel requires that {asserted[1]}"
        if "bytes of static shared memory are more than" in str(failed):
            return "more static shared memory than a block may have"
        raise
    resident = occupancy(arch, threads, out.registers, out.shared_bytes)
    if not resident.blocks:
        return f"no block fits an SM: too much of {' and '.join(resident.limited_by)}"
    spilled = out.spill_store_bytes + out.spill_load_bytes
    return Variant(point.values, own, out.registers, spilled, out.shared_bytes, resident)
