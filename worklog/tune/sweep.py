"""Tile parameters as axes: the variants of a rung that can be built, their resources, and their times beside cuBLAS
from a GPU or a recording. The kernel's own static assertions decide which tiles are valid, and conditions which of them
are worth a launch: on the tile, and on what is known without one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, CompileFailed, meant
from worklog.gpu.device import gpu
from worklog.kernel import Kernel, block_traffic_bytes, compile_cuda, evaluate
from worklog.problem import Axis, Point, Shape, Space, Value
from worklog.runner.measure import CHANGED, SECONDS_EACH, live_wanted, measure
from worklog.runs import CUBLAS, BadRunFile, Measurement, Run, recorded_run, recordings
from worklog.runs.limits import MAX_THREADS, WARP, Occupancy, occupancy

if TYPE_CHECKING:
    import pandas

SIZE = Shape.of(4096)
SIGNS = {"<=": le, ">=": ge, "==": eq, "!=": ne, "<": lt, ">": gt}
# What a condition may name beside the tile, in the order in which it is known: of a block; of the compiled kernel, in
# registers per thread and bytes, per SM, and in percent; and of the emulator's counts, which take about a second.
RESOURCES = (
    "threads",
    "registers",
    "spilled",
    "shared",
    "blocks",
    "warps",
    "occupancy",
    "wave_fill",
)
COUNTED = ("conflicts",)


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

    def preview(self, is_live: bool = True) -> str:
        """The number of variants, the reasons for those that are skipped, and the time of the others on a GPU. is_live:
        whether they are measured; else they are looked up in a recording.
        """
        reasons = {str(point): point.skipped for point in self.skipped}
        space = replace(self.space, skip=lambda values: reasons.get(str(Point(values))))
        return space.preview(SECONDS_EACH if is_live else None, "measure" if is_live else "look up")

    def require_some(self) -> None:
        """Raise BadSetting where no variant is left."""
        if not self.kept:
            why = "; ".join(dict.fromkeys(str(point.skipped) for point in self.skipped))
            raise BadSetting(
                f"no tile is left to measure ({why}): choose other values, or fewer conditions"
            )

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


def variants(
    record: Kernel,
    axes: Sequence[Axis],
    *,
    shape: Shape = SIZE,
    arch: str | None = None,
    where: Sequence[str] = (),
    checked: bool = False,
    cpu: Executor | None = None,
) -> Variants:
    """Compile every combination of tile parameters, about half a second each.

    axes: named as the rung's tile parameters; the others keep their values. arch: default, the GPU's where results()
    would measure on one, else sm_90. where: conditions that hold for those that are kept, such as "BM * BN <= 16384" or
    "spilled == 0", of whole numbers: parameters, RESOURCES and COUNTED. checked: keep those that pass a quick check on
    the emulator. cpu: does the work (default: threads). Raises BadSetting for an axis that isn't a parameter of this
    rung, and for a condition; and NvrtcMissing.
    """
    space = space_of(record, axes, where)
    here = gpu() if live_wanted() else recorded_run().gpu
    arch = arch or here.arch
    with ThreadPoolExecutor() as threads:
        how = shape, arch, here.multiprocessors, where, checked
        made = [
            (point, (cpu or threads).submit(variant_of, record, point, *how))
            for point in space.points()
        ]
        results = [(point, future.result()) for point, future in made]
    kept = tuple(result for _, result in results if isinstance(result, Variant))
    skipped = tuple(Point(point.values, why) for point, why in results if isinstance(why, str))
    return Variants(record, space, shape, arch, kept, skipped)


def space_of(record: Kernel, axes: Sequence[Axis], where: Sequence[str] = ()) -> Space:
    """All combinations. Raises BadSetting as variants()."""
    for axis in axes:
        if axis.name not in record.template:
            near = meant(axis.name, record.template)
            names = ", ".join(record.template)
            raise BadSetting(
                f"{record.name} has no tile parameter {axis.name}{near}: choose from {names}"
            )
        if not all(isinstance(value, int) and value > 0 for value in axis.values):
            raise BadSetting(f"axis {axis.name}: tile parameters are whole numbers from 1 on")
    known = dict.fromkeys((*record.template, *RESOURCES, *COUNTED), 1)
    for condition in where:
        sides = re.split("<=|>=|==|!=|<|>", condition)
        if len(sides) != 2 or not all(map(str.strip, sides)):
            raise BadSetting(
                f"cannot read --where {condition!r}: compare two sides, as in 'BM * BN <= 16384'"
            )
        for side in sides:
            evaluate(side, known)
        if not _names(condition):
            raise BadSetting(f"--where {condition!r} names nothing: choose from {', '.join(known)}")
    return Space(record.name, tuple(axes))


def results(chosen: Variants) -> Run | None:
    """The kept variants' times: measured where there is a GPU, else from a recorded sweep, or None."""
    try:
        if not live_wanted():
            return recorded(chosen)
    except BadRunFile:
        return None
    chosen.require_some()
    return measure([*(variant.kernel for variant in chosen.kept), CUBLAS], [chosen.shape])


def recorded(chosen: Variants) -> Run:
    """The times of the kept variants from a recorded sweep of the same sources, or of earlier ones that compiled to as
    many registers and as much shared memory: their label says so. A note names the variants that it doesn't hold.
    Raises BadRunFile where none of them was recorded, and BadSetting where no variant is left.
    """
    chosen.require_some()
    for path in recordings("sweeps").values():
        run = Run.load(path, origin="recorded")
        times = list[Measurement]()
        kernels = dict[str, Any]()
        for m in run.select(shape=chosen.shape):
            about = run.kernels.get(m.kernel, {})
            name, since = (CUBLAS, "") if m.kernel == CUBLAS else chosen.same(about)
            if name:
                times.append(replace(m, kernel=name, context=replace(run.context, remark=since)))
                kernels |= {name: about} if about else {}
        timed = {m.kernel for m in times}
        absent = [variant.name for variant in chosen.kept if variant.name not in timed]
        if len(absent) < len(chosen.kept):
            missing = (
                [f"not in the recorded run: {', '.join(absent)} (measure on a GPU)"]
                if absent
                else []
            )
            return replace(run, measurements=times, kernels=kernels, notes=[*run.notes, *missing])
    raise BadRunFile(
        f"no such tile of {chosen.rung.name} at {chosen.shape} was recorded: measure on a GPU"
    )


def variant_of(
    record: Kernel,
    point: Point,
    shape: Shape,
    arch: str,
    sms: int,
    where: Sequence[str] = (),
    checked: bool = False,
) -> Variant | str:
    """The compiled variant, or the reason for skipping it. sms: of the GPU. where, checked: as for variants(). Raises
    CompileFailed for any error but a tile's.
    """
    template = {**record.template, **{name: int(value) for name, value in point.values.items()}}
    own = replace(record, name=str(point), template=template, number=None, idea="")
    if reason := _unmet(where, template):
        return reason
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
    together = sms * resident.blocks
    blocks = math.prod(own.blocks(shape))
    wave_fill = 100 * blocks // (-(-blocks // together) * together)
    numbers = (threads, out.registers, spilled, out.shared_bytes, resident.blocks, resident.warps)
    known = dict(zip(RESOURCES, (*numbers, int(100 * resident.share), wave_fill), strict=True))
    if reason := _unmet(where, known, template):
        return reason
    if any(_names(condition) & {*COUNTED} for condition in where):
        from worklog.kernel.inspection import (
            inspect,
        )  # here: `worklog run --help` needs no emulator

        counts = inspect(own).counts
        shared = counts.shared_load + counts.shared_store
        conflicts = 100 * shared.conflicts // max(shared.wavefronts, 1)
        if reason := _unmet(where, {"conflicts": conflicts}, template | known):
            return reason
    if checked:
        from worklog.runner.check import check

        if not (verdict := check(own, on="emulated", quick=True).verdict).accepted:
            return f"it fails the check on the emulator at {verdict.reason}"
    return Variant(point.values, own, out.registers, spilled, out.shared_bytes, resident)


def _names(condition: str) -> set[str]:
    return {*re.findall(r"[A-Za-z_]\w*", condition)} - {"min", "max"}


def _unmet(where: Sequence[str], new: Mapping[str, int], old: Mapping[str, int] = {}) -> str:
    """That the first condition on what has just become known doesn't hold; "" if all do."""
    for condition in where:
        names = _names(condition)
        known = {**old, **new}
        if names & {*new} and names <= {*known}:
            left, sign, right = re.split("(<=|>=|==|!=|<|>)", condition)
            if not SIGNS[sign](evaluate(left, known), evaluate(right, known)):
                return f"not {condition}"
    return ""
