"""Tile parameters as axes: which variants of a rung can be built at all, what each would spend, and their times beside
cuBLAS where there is a GPU or a recording.

The kernel's own static assertions say which tiles divide; they are asked, not written down a second time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.bench.measure import live_wanted, measure
from worklog.bench.tasks import BASELINE
from worklog.errors import BadSetting, CompileFailed
from worklog.gpu.device import gpu
from worklog.kernel.kernel import Program
from worklog.kernel.ladder import Rung
from worklog.kernel.nvrtc import Compiled, compile_cuda
from worklog.kernel.occupancy import MAX_THREADS, WARP, Occupancy, occupancy
from worklog.kernel.user_kernel import UserKernel
from worklog.problem.axes import Axis, Point, Space, Value
from worklog.problem.gemm import Shape
from worklog.runs.run import Run

if TYPE_CHECKING:
    import pandas

    from worklog.bench.measure import Progress

ARCH = "sm_90"
SIZE = Shape.of(4096)
# What the gate and the clock take for one kernel at 4096 on an H200, from the stages' own seconds in the recording.
SECONDS_EACH = 1.5


@dataclass(frozen=True)
class Variant:
    """One tile that can be launched. values: what the axes gave it. record: the rung with this tile. Registers and
    spilled bytes are a thread's, shared_bytes a block's; resident: how many blocks an SM holds.
    """

    values: Mapping[str, int]
    record: Rung
    registers: int
    spilled_bytes: int
    shared_bytes: int
    resident: Occupancy

    @property
    def name(self) -> str:
        """As it stands in runs: "BM=64 TN=8"."""
        return _words(self.values)

    @property
    def kernel(self) -> UserKernel:
        """For worklog.measure and worklog.bench.check."""
        return replace(UserKernel.of(self.record), title=self.name)


@dataclass(frozen=True)
class Variants:
    """What became of every point. kept: can be launched, in the axes' order. skipped: the others, each with its reason.
    arch: what was compiled for.
    """

    rung: Rung
    space: Space
    shape: Shape
    arch: str
    kept: tuple[Variant, ...]
    skipped: tuple[Point, ...]

    def preview(self) -> str:
        """How many there are, what is skipped and why, and how long the others would take on a GPU."""
        return self.space.preview(SECONDS_EACH)

    def frame(self) -> pandas.DataFrame:
        """One row a variant: its axes, and what is known without running it.

        blocks/SM and warps/SM: resident at once. FMA/float: multiply-adds for each float read from shared memory.
        blocks: of the grid. L2 GB: fetched by all of them together.
        """
        import pandas

        return pandas.DataFrame([_row(variant, self.shape) for variant in self.kept])


def variants(
    record: Rung,
    axes: Sequence[Axis],
    *,
    shape: Shape = SIZE,
    arch: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Variants:
    """Every combination of tile parameters, compiled: about half a second each.

    axes: named as the rung's tile parameters; what no axis names stays as it is. arch: what to compile for (default:
    the GPU's where results() would measure on one, else sm_90). tell: called with each point before it is compiled.
    Raises BadSetting for an axis that is no parameter of this rung, NvrtcMissing.
    """
    arch = arch or _arch()
    for axis in axes:
        if axis.name not in record.tile:
            raise BadSetting(f"{record.name} has no tile parameter {axis.name}: choose from {', '.join(record.tile)}")
        if not all(isinstance(value, int) and value > 0 for value in axis.values):
            raise BadSetting(f"axis {axis.name}: tile parameters are whole numbers from 1 on")
    kept: dict[str, Variant] = {}

    def skip(values: Mapping[str, Value]) -> str | None:
        point = {name: int(value) for name, value in values.items()}
        if _words(point) in kept:
            return None
        if tell is not None:
            tell(_words(point))
        built = _variant(record, point, shape, arch)
        if isinstance(built, str):
            return built
        kept[_words(point)] = built
        return None

    points = list(Space(record.name, tuple(axes), skip).points())
    reasons = {_words(p.values): p.skipped for p in points}
    space = Space(record.name, tuple(axes), lambda values: reasons[_words(values)])
    return Variants(record, space, shape, arch, tuple(kept.values()), tuple(p for p in points if p.skipped))


def sweep(found: Variants, *, progress: Progress | None = None, out: Path | None = None) -> Run:
    """Gate and time the kept variants and cuBLAS on this GPU. Raises what worklog.measure does, and BadSetting where
    nothing is left to measure.
    """
    if not found.kept:
        raise BadSetting(f"nothing to measure: {found.preview()}")
    told: dict[str, Any] = {} if progress is None else {"progress": progress}
    return measure([*(variant.kernel for variant in found.kept), BASELINE], [found.shape], out=out, **told)


def results(found: Variants) -> Run | None:
    """The kept variants' times: measured where there is a GPU, else from a recorded sweep, as far as it holds these
    very sources. None where none of them was recorded.
    """
    if live_wanted():
        return sweep(found)
    sources = {variant.name: variant.kernel.program.sha256 for variant in found.kept}
    for path in recorded():
        run = Run.load(path, origin="recorded")
        same = {name for name, sha in sources.items() if run.kernels.get(name, {}).get("sha256") == sha}
        run.measurements = [m for m in run.select(shape=found.shape) if m.kernel in same | {BASELINE}]
        if any(m.kernel in same for m in run.measurements):
            return run
    return None


def recorded() -> list[Path]:
    """The sweeps that come with the package: runs, but of no rungs, so they are not among worklog.runs.run.recordings."""
    return sorted((Path(str(resources.files("worklog"))) / "recordings" / "sweeps").glob("*.json"))


def _arch() -> str:
    return "sm_" + "".join(map(str, gpu().compute_capability)) if live_wanted() else ARCH


def _words(values: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _variant(record: Rung, values: Mapping[str, int], shape: Shape, arch: str) -> Variant | str:
    """The compiled variant, or why there is none."""
    own = replace(record, tile={**record.tile, **values})
    outputs = math.prod(own.tile.get(name, 1) for name in ("BM", "BN"))
    if own.block < WARP or own.block % WARP:
        return f"no whole warps: {own.block} threads for {outputs} outputs"
    if own.block > MAX_THREADS:
        return f"more than {MAX_THREADS} threads a block"
    if shape not in own.domain:
        return f"{shape} is no multiple of the tile"
    program = Program.of(own)
    try:
        out = compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options)
    except CompileFailed as failed:
        return _why(failed)
    resident = occupancy(arch, own.block, out.registers, out.shared_bytes)
    if not resident.blocks:
        return f"no block fits an SM: too much of {' and '.join(resident.limited_by)}"
    return _kept(values, own, out, resident)


def _kept(values: Mapping[str, int], own: Rung, out: Compiled, resident: Occupancy) -> Variant:
    spilled = out.spill_store_bytes + out.spill_load_bytes
    return Variant(dict(values), own, out.registers, spilled, out.shared_bytes, resident)


def _why(failed: CompileFailed) -> str:
    """The kernel's own words, or the assembler's, for a tile that does not compile. Any other mistake is raised."""
    asserted = re.search(r'static assertion failed with "([^"]+)"', str(failed))
    if asserted:
        return f"the kernel needs that {asserted[1]}"
    if re.search(r"uses too much shared data", str(failed)):
        return "more static shared memory than a block may have"
    raise failed


def _row(variant: Variant, shape: Shape) -> dict[str, Any]:
    blocks = math.prod(variant.record.grid(shape))
    tile = variant.record.tile
    row: dict[str, Any] = dict(variant.values)
    row |= {"threads": variant.record.block, "registers": variant.registers, "spilled B": variant.spilled_bytes}
    row |= {"shared B": variant.shared_bytes, "blocks/SM": variant.resident.blocks, "warps/SM": variant.resident.warps}
    if {"TM", "TN"} <= tile.keys():
        row["FMA/float"] = round(tile["TM"] * tile["TN"] / (tile["TM"] + tile["TN"]), 2)
    row["blocks"] = blocks
    row["L2 GB"] = round(variant.record.block_traffic_bytes(shape) / 1e9, 2)
    return row
