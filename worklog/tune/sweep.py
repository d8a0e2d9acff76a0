"""Tile parameters as axes: the variants of a rung that can be built, and their resources and times.

Times come from a GPU or a recording, and each alternated with cuBLAS. The kernel's static
assertions decide which tiles are valid. Conditions decide which of the valid tiles are worth a
launch: on the tile, and on what is known without a launch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

from worklog.emulator.limits import MAX_THREADS, WARP, Chip, Occupancy, occupancy
from worklog.errors import BadRunFile, BadSetting, CompileFailed, meant
from worklog.gpu.device import gpu
from worklog.kernel import Compiled, Kernel, evaluate
from worklog.kernel.ladder import block_traffic_bytes
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Shape
from worklog.problem.axes import Axis, Configuration, Space, Value
from worklog.runner.job import SECONDS_EACH
from worklog.runner.measure import measure
from worklog.runner.sources import CHANGED, live_wanted
from worklog.runs import CUBLAS, Measurement, Run, recorded_run, recordings

if TYPE_CHECKING:
    import pandas

SIZE = Shape.of(4096)
SIGNS = {"<=": le, ">=": ge, "==": eq, "!=": ne, "<": lt, ">": gt}
# What a condition may name in addition to the tile's parameters, in the order in which it is known:
# threads of a block; registers and spilled bytes per thread, shared bytes per block; blocks and
# warps per SM; occupancy and wave fill in percent.
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
COUNTED = ("conflicts",)  # of the emulator's counts, which take about a second


@dataclass(frozen=True)
class Variant:
    """A tile that can be launched."""

    values: Mapping[str, Value]  # of the axes
    kernel: Kernel  # the rung with this tile, called "BM=64 TN=8"
    registers: int  # per thread
    spilled_bytes: int  # per thread
    shared_bytes: int  # per block
    resident: Occupancy  # blocks and warps per SM

    @property
    def name(self) -> str:
        """The kernel's name in runs."""
        return self.kernel.name


@dataclass(frozen=True)
class Variants:
    """All points of the axes."""

    rung: Kernel
    space: Space
    shape: Shape
    arch: str  # that the variants are compiled for
    kept: tuple[Variant, ...]  # can be launched, in the order of the axes
    skipped: tuple[Configuration, ...]  # can't be launched, with the reasons

    def preview(self, is_live: bool = True) -> str:
        """Return the number of variants, why some are skipped, and the others' time.

        is_live: whether variants are measured on a GPU; else they are looked up in a recording
        """
        reasons = {str(point): point.skipped for point in self.skipped}
        space = replace(self.space, skip=lambda values: reasons.get(str(Configuration(values))))
        return space.preview(SECONDS_EACH if is_live else None, "measure" if is_live else "look up")

    def require_some(self) -> None:
        """Raise BadSetting if no variant is left."""
        if not self.kept:
            reasons = "; ".join(dict.fromkeys(str(point.skipped) for point in self.skipped))
            raise BadSetting(
                f"no tile is left to measure ({reasons}): choose other values, or fewer conditions"
            )

    def find(self, about: Mapping[str, Any]) -> tuple[str, str]:
        """Return the name of a kernel's variant, and a remark for its label.

        The name is "" if the kernel isn't a variant.

        about: the kernel's description in a run
        """
        for variant in self.kept:
            if variant.kernel.program.measured_as(about):
                return variant.name, ""
        for variant in self.kept:
            compiled = {"registers": variant.registers, "shared_bytes": variant.shared_bytes}
            if {"entry": variant.kernel.entry, **compiled}.items() <= about.items():
                return variant.name, f" · {CHANGED}"
        return "", ""

    def frame(self) -> pandas.DataFrame:
        """Return a row per variant: its axes, and its properties before a launch.

        blocks/SM and warps/SM: resident at once
        FMA/float: multiply-adds per float read from shared memory
        blocks: of the grid
        L2 GB: fetched by all blocks together
        """
        import pandas

        rows = []
        for variant in self.kept:
            tile = variant.kernel.template
            row: dict[str, Any] = {**variant.values, "threads": variant.kernel.thread_count}
            row["registers"] = variant.registers
            row["spilled B"] = variant.spilled_bytes
            row["shared B"] = variant.shared_bytes
            row["blocks/SM"] = variant.resident.blocks
            row["warps/SM"] = variant.resident.warps
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
    conditions: Sequence[str] = (),
    checked: bool = False,
    cpu: Executor | None = None,
) -> Variants:
    """Compile every combination of tile parameters, about half a second each.

    axes: named as the rung's tile parameters; the other parameters keep their values
    arch: default: the GPU's if results() would measure on a GPU, else sm_90
    conditions: that a kept variant meets, such as "BM * BN <= 16384" or "spilled == 0", of whole
        numbers: parameters, RESOURCES and COUNTED
    checked: whether a kept variant must also pass a quick check on the emulator
    cpu: does the work (default: threads)

    Raises NvrtcMissing, and BadSetting for a condition and for an axis that isn't a parameter of
    this rung.
    """
    space = space_of(record, axes, conditions)
    target = gpu() if live_wanted() else recorded_run().gpu
    arch = arch or target.arch
    with ThreadPoolExecutor() as threads:
        executor = cpu or threads
        variant_at = partial(
            variant_of,
            record.on_chip(Chip(arch, target.multiprocessors)),
            shape=shape,
            arch=arch,
            sms=target.multiprocessors,
            conditions=conditions,
            is_checked=checked,
        )
        futures = [(point, executor.submit(variant_at, point)) for point in space.configurations()]
        results = [(point, future.result()) for point, future in futures]
    kept = tuple(result for _, result in results if isinstance(result, Variant))
    skipped = tuple(
        Configuration(point.values, reason) for point, reason in results if isinstance(reason, str)
    )
    return Variants(record, space, shape, arch, kept, skipped)


def space_of(record: Kernel, axes: Sequence[Axis], conditions: Sequence[str] = ()) -> Space:
    """Return all combinations. Raises BadSetting as variants() does."""
    for axis in axes:
        if axis.name not in record.template:
            advice = meant(axis.name, record.template)
            names = ", ".join(record.template)
            raise BadSetting(
                f"{record.name} has no tile parameter {axis.name}{advice}: choose from {names}"
            )
        if not all(isinstance(value, int) and value > 0 for value in axis.values):
            raise BadSetting(f"axis {axis.name}: tile parameters are whole numbers from 1 on")
    variables = dict.fromkeys((*record.template, *RESOURCES, *COUNTED), 1)
    for condition in conditions:
        sides = re.split("<=|>=|==|!=|<|>", condition)
        if len(sides) != 2 or not all(map(str.strip, sides)):
            raise BadSetting(
                f"cannot read --where {condition!r}: compare two sides, as in 'BM * BN <= 16384'"
            )
        for side in sides:
            evaluate(side, variables)
        if not _names(condition):
            names = ", ".join(variables)
            raise BadSetting(f"--where {condition!r} names nothing: choose from {names}")
    return Space(record.name, tuple(axes))


def results(chosen: Variants) -> Run | None:
    """Return the kept variants' times: measured if there is a GPU, else recorded.

    None if no sweep has recorded any of the variants.
    """
    try:
        if not live_wanted():
            return recorded(chosen)
    except BadRunFile:
        return None
    chosen.require_some()
    return measure([*(variant.kernel for variant in chosen.kept), CUBLAS], [chosen.shape])


def recorded(chosen: Variants) -> Run:
    """Return the times of the kept variants from a recorded sweep of the same sources.

    A variant whose source has changed since needs as many registers and as much shared memory as
    the recorded tile, and its label states the change. A note names the variants that the sweep
    doesn't hold.

    Raises BadRunFile if no variant was recorded, and BadSetting if no variant is left.
    """
    chosen.require_some()
    for path in recordings("sweeps").values():
        run = Run.load(path, origin="recorded")
        times = list[Measurement]()
        kernels = dict[str, Any]()
        for m in run.select(shape=chosen.shape):
            about = run.kernels.get(m.kernel, {})
            name, remark = (CUBLAS, "") if m.kernel == CUBLAS else chosen.find(about)
            if not name:
                continue
            times.append(replace(m, kernel=name, context=replace(run.context, remark=remark)))
            if about:
                kernels[name] = about
        timed = {m.kernel for m in times}
        absent = [variant.name for variant in chosen.kept if variant.name not in timed]
        if len(absent) < len(chosen.kept):
            notes = [*run.notes]
            if absent:
                notes.append(f"not in the recorded run: {', '.join(absent)} (measure on a GPU)")
            return replace(run, measurements=times, kernels=kernels, notes=notes)
    raise BadRunFile(
        f"no such tile of {chosen.rung.name} at {chosen.shape} was recorded: measure on a GPU"
    )


def variant_of(
    record: Kernel,
    point: Configuration,
    *,
    shape: Shape,
    arch: str,
    sms: int,
    conditions: Sequence[str] = (),
    is_checked: bool = False,
) -> Variant | str:
    """Return the compiled variant, or the reason for skipping it.

    sms: number of the GPU's SMs
    conditions: as for variants()
    is_checked: as checked of variants()

    Raises CompileFailed for any error that doesn't depend on the tile.
    """
    template = {**record.template, **{name: int(value) for name, value in point.values.items()}}
    kernel = replace(record, name=str(point), template=template, number=None, idea="")
    reason = _unmet(conditions, template) or _invalid_launch(kernel, shape)
    if reason:
        return reason
    compiled = _compiled(kernel, arch)
    if isinstance(compiled, str):
        return compiled
    resident = occupancy(arch, kernel.thread_count, compiled.registers, compiled.shared_bytes)
    if not resident.blocks:
        return f"no block fits an SM: too much of {' and '.join(resident.limited_by)}"
    wave_blocks = sms * resident.blocks
    blocks = math.prod(kernel.blocks(shape))
    wave_count = -(-blocks // wave_blocks)
    spilled_bytes = compiled.spill_store_bytes + compiled.spill_load_bytes
    resources = {
        "threads": kernel.thread_count,
        "registers": compiled.registers,
        "spilled": spilled_bytes,
        "shared": compiled.shared_bytes,
        "blocks": resident.blocks,
        "warps": resident.warps,
        "occupancy": int(100 * resident.share),
        "wave_fill": 100 * blocks // (wave_count * wave_blocks),
    }
    reason = _unmet(conditions, resources, template)
    if not reason and any(_names(condition) & {*COUNTED} for condition in conditions):
        reason = _unmet(conditions, {"conflicts": _conflicts(kernel)}, template | resources)
    if not reason and is_checked:
        reason = _failed_check(kernel)
    if reason:
        return reason
    return Variant(
        point.values, kernel, compiled.registers, spilled_bytes, compiled.shared_bytes, resident
    )


def _invalid_launch(kernel: Kernel, shape: Shape) -> str:
    """Return why a variant can't be launched at a shape, or ""."""
    threads = kernel.thread_count
    if threads % WARP:
        outputs = kernel.template["BM"] * kernel.template["BN"]
        return f"no whole warps: {threads} threads for {outputs} outputs"
    if threads > MAX_THREADS:
        return f"more than {MAX_THREADS} threads per block"
    if shape not in kernel.domain:
        return f"{shape} is not a multiple of the tile"
    return ""


def _compiled(kernel: Kernel, arch: str) -> Compiled | str:
    """Return the compiled variant, or the reason why its tile doesn't compile.

    Raises CompileFailed for any other error.
    """
    try:
        return compile_cuda(kernel.program, arch)
    except CompileFailed as failed:
        asserted = re.search(r'static assertion failed with "([^"]+)"', str(failed))
        if asserted:
            return f"the kernel requires that {asserted[1]}"
        if "bytes of static shared memory are more than" in str(failed):
            return "more static shared memory than a block may have"
        raise


def _conflicts(kernel: Kernel) -> int:
    """Return the wavefronts of shared memory that bank conflicts cause, in percent."""
    # Here: `worklog sweep --help` needs no emulator.
    from worklog.kernel.inspection import inspect

    counts = inspect(kernel).counts
    shared = counts.shared_load + counts.shared_store
    return 100 * shared.conflicts // max(shared.wavefronts, 1)


def _failed_check(kernel: Kernel) -> str:
    """Return how a variant fails a quick check on the emulator, or ""."""
    from worklog.runner.check import check

    verdict = check(kernel, on="emulated", quick=True).verdict
    return "" if verdict.accepted else f"it fails the check on the emulator at {verdict.reason}"


def _names(condition: str) -> set[str]:
    return {*re.findall(r"[A-Za-z_]\w*", condition)} - {"min", "max"}


def _unmet(conditions: Sequence[str], new: Mapping[str, int], old: Mapping[str, int] = {}) -> str:
    """Return the first condition that isn't met, as a reason; "" if all are met.

    new: the values that have just become known; conditions without any of them are skipped
    old: the values that were known before
    """
    variables = {**old, **new}
    for condition in conditions:
        names = _names(condition)
        if names & {*new} and names <= {*variables}:
            left, sign, right = re.split("(<=|>=|==|!=|<|>)", condition)
            if not SIGNS[sign](evaluate(left, variables), evaluate(right, variables)):
                return f"not {condition}"
    return ""
