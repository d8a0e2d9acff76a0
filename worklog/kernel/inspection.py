"""A kernel's cost without a GPU: resources, occupancy, and the memory counts of each source line.

Never a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from worklog.emulator import Counts, Finding, load
from worklog.emulator import PtxKernel as Code
from worklog.emulator.limits import LIMITS, Chip, Occupancy, occupancy
from worklog.emulator.ptx import UnsupportedInstruction
from worklog.emulator.reports import NotPredictable, total
from worklog.emulator.reports import caveats as emulated_caveats
from worklog.errors import BadSetting, WorklogError
from worklog.kernel.clang import NOTE
from worklog.kernel.emulated import ARCH, RESOURCES, EmulatedDevice, build
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import RUNGS
from worklog.kernel.prediction import WHOLE, predict
from worklog.kernel.resources import Compiled, MainLoop, loop_of, no_sass
from worklog.problem import Shape, random_inputs
from worklog.runs.text import Table, format_si, scrolling

RUNG_SIZE = Shape.of(4096)
FILE_SIZE = Shape.of(128)
TRIAL = Shape(384, 384, 256)  # where a prediction for a larger size is compared with a full run
SASS_SHOWN = 12  # instructions of a main loop
MARKS = "(! bank conflicts; load + store)"  # in the costs of a source line
# Of a source line in a page: it keeps its indent, wraps, and isn't squeezed by the numbers.
CODE_STYLE = "text-align:left;font-family:monospace;white-space:pre-wrap;min-width:18em"


@dataclass(frozen=True)
class Sass:
    """The machine code's main loops."""

    loops: Mapping[str, MainLoop] = field(default_factory=dict)  # by architecture
    note: str = ""  # why there is none


@dataclass(frozen=True, repr=False)
class Inspection:
    """A kernel's resources, occupancy and counts."""

    compiled: tuple[Compiled, ...]  # PTX, cubin and resources by architecture
    main: Compiled  # the compiled code that is counted
    threads: int | None  # per block
    label: str
    sass: Sass
    shape: Shape | None = None
    lines: Mapping[int, Counts] = field(default_factory=dict)  # by source line, if it was run
    findings: tuple[Finding, ...] = ()
    caveats: tuple[str, ...] = ()  # why it wasn't run, or on what a GPU may count otherwise

    @property
    def counts(self) -> Counts:
        """The counts of all lines together."""
        return total(self.lines)

    def occupancy(self, out: Compiled) -> Occupancy | None:
        """Return an architecture's occupancy; None if block or registers are unknown.

        out: the code that is compiled for the architecture
        """
        if self.threads is None or not out.has_resources:
            return None
        shared = out.shared_bytes + out.program.shared
        return occupancy(out.arch, self.threads, out.registers, shared)

    def __repr__(self) -> str:
        return report(self)

    def _repr_html_(self) -> str:
        return report_html(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the inspection for JSON."""
        program = self.main.program
        resources = []
        for out in self.compiled:
            block_occupancy = self.occupancy(out)
            row: dict[str, Any] = {"arch": out.arch}
            row |= {name: getattr(out, name) if out.has_resources else None for name in RESOURCES}
            row["occupancy"] = None if block_occupancy is None else asdict(block_occupancy)
            resources.append(row)
        text = dict(enumerate(program.source.splitlines(), 1))
        return {
            "kernel": program.entry,
            "file": program.name,
            "threads": self.threads,
            "label": self.label,
            "resources": resources,
            "shape": None if self.shape is None else [self.shape.m, self.shape.n, self.shape.k],
            "counts": asdict(self.counts) if self.lines else None,
            "lines": [
                {"line": number, "text": text.get(number, ""), **asdict(cost)}
                for number, cost in self.lines.items()
            ],
            "caveats": list(self.caveats),
            "findings": [asdict(finding) for finding in self.findings],
            "sass_main_loop": {arch: loop.counts for arch, loop in self.sass.loops.items()},
            "sass_note": self.sass.note,
            "sass_bank_conflicts": {
                arch: loop.bank_conflicts for arch, loop in self.sass.loops.items()
            },
        }


def architectures(text: str) -> tuple[str, ...]:
    """Return the architectures in a text such as "sm_90,sm_120" or "all".

    Raises BadSetting.
    """
    names = [*LIMITS] if text.strip() == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in LIMITS:
            raise BadSetting(
                f"cannot compile for {name!r}: choose from {', '.join(LIMITS)}, or all"
            )
    return tuple(dict.fromkeys(names))


def inspect(
    kernel: Kernel, shape: Shape | None = None, archs: Sequence[str] = (ARCH,)
) -> Inspection:
    """Inspect a kernel at a shape; without grid and block, return only its resources.

    shape: default: 4096 for the ladder's kernels; for a user kernel, 128 padded to the domain
    archs: the architectures to compile for

    The ladder's kernels are predicted from a few of their blocks and a short K, in about a
    second. A user kernel is run in full on random data up to WHOLE. For larger sizes its counts
    are predicted, if the same prediction for a small shape equals the counts of a full run. An
    instruction that the emulator doesn't support is a caveat.

    Raises NotPredictable if the prediction differs (for a rung, that is a caveat); CompileFailed;
    NvrtcMissing (the ladder still has sm_90); LaunchFailed; and BadSetting for an architecture,
    a host function, or a grid without a block.
    """
    kernel.require_source()
    if kernel.grid and not kernel.block:
        raise BadSetting(
            "--grid needs --block: give both to count the kernel's memory requests too"
        )
    # For several architectures, a kernel that all of them can run.
    kernel = kernel.at(shape or RUNG_SIZE, Chip(archs[0] if len(archs) == 1 else ""))
    threads = kernel.thread_count if kernel.block else None
    built = [build(kernel.program, arch) for arch in archs]
    compiled = tuple(out for out, _ in built)
    main, label = next((pair for pair in built if pair[0].arch == ARCH), built[0])
    inspected = Inspection(compiled, main, threads, label, _main_loops(compiled))
    if not kernel.grid:
        return inspected
    is_user_kernel = _is_user_kernel(kernel)
    default = kernel.domain.padded(FILE_SIZE) if is_user_kernel else RUNG_SIZE
    shape = shape or default
    inspected = replace(inspected, shape=shape)
    try:
        code = load(main.ptx, main.symbol, main.shared_accesses)
        caveats = emulated_caveats(code)
        if not main.has_resources:
            caveats = (NOTE, *caveats)
        with_caveats = replace(inspected, caveats=caveats)
        if is_user_kernel:
            return _with_user_counts(with_caveats, code, kernel, shape)
        return _with_prediction(with_caveats, code, kernel, shape)
    except (UnsupportedInstruction, NotPredictable) as error:
        if is_user_kernel and isinstance(error, NotPredictable):
            raise
        return replace(inspected, caveats=(f"memory requests not counted: {error}",))


def _is_user_kernel(kernel: Kernel) -> bool:
    """Return whether a kernel is neither a rung nor a rung with another tile."""
    return kernel.number is None and all(kernel.code is not rung.code for rung in RUNGS)


def _with_user_counts(
    inspected: Inspection, code: Code, kernel: Kernel, shape: Shape
) -> Inspection:
    """Return an inspection with a user kernel's counts, from a full run or predicted.

    Raises NotPredictable if the prediction for a small shape differs from a full run.
    """
    arch = inspected.main.arch
    if max(shape.m, shape.n, shape.k) <= WHOLE.m:
        lines, findings = _run(kernel, shape, arch)
        return replace(inspected, lines=lines, findings=findings)
    small = kernel.domain.padded(TRIAL)
    lines, findings = _run(kernel, small, arch)
    if predict(code, kernel, small).lines != lines:
        reason = (
            f"the memory requests of {kernel.entry} cannot be predicted from a few of its blocks"
        )
        advice = f"take a size of up to {WHOLE}, which is run in full"
        raise NotPredictable(
            f"{kernel.file}: {reason}: the counts of a full run at {small} differ; {advice}"
        )
    predicted = _with_prediction(inspected, code, kernel, shape)
    label = f"{predicted.label}, as a full run confirmed at {small}"
    return replace(predicted, label=label, findings=findings)


def _with_prediction(inspected: Inspection, code: Code, kernel: Kernel, shape: Shape) -> Inspection:
    """Return an inspection with counts that are predicted from a few blocks."""
    predicted = predict(code, kernel, shape)
    plural = "s" if predicted.blocks > 1 else ""
    label = f"{inspected.label} · predicted from {predicted.blocks} block{plural}"
    return replace(inspected, label=label, lines=predicted.lines)


def _run(
    kernel: Kernel, shape: Shape, arch: str
) -> tuple[Mapping[int, Counts], tuple[Finding, ...]]:
    """Launch a kernel once with every detector and every counter on.

    Return its counts by source line, and the findings. beta = 0, so C is filled with its poison.
    """
    device = EmulatedDevice(Chip(arch), count=True)
    a, b = random_inputs(shape, np.random.default_rng(0))
    c = np.full((shape.m, shape.n), kernel.types.c.poison, np.float32)
    on_device_a, on_device_b, on_device_c = map(device.upload, (a, b, c), kernel.types.formats)
    kernel.load(device).enqueue(shape, 1.0, on_device_a, on_device_b, 0.0, on_device_c)
    assert device.last is not None
    return device.last.lines, device.last.findings


def _main_loops(compiled: Sequence[Compiled]) -> Sass:
    """Return the main loops of the compiled code, or why there is none."""
    if not all(out.cubin for out in compiled):
        return Sass(note="no SASS: there is no machine code; it needs NVRTC")
    loops = {out.arch: loop for out in compiled if (loop := loop_of(out.cubin, out.symbol))}
    if not loops:
        return Sass(note=no_sass())
    multiply_add_loops = {arch: loop for arch, loop in loops.items() if loop.counts}
    if not multiply_add_loops:
        return Sass(note="no loop with an FFMA")
    return Sass(multiply_add_loops)


def save(inspected: Inspection, folder: Path) -> list[Path]:
    """Write each architecture's PTX, and its cubin if NVRTC made it, into a folder.

    Return the files. Raises WorklogError.
    """
    program = inspected.main.program
    stem = f"{Path(program.name).stem}.{re.sub(r'[^A-Za-z0-9]+', '_', program.entry).strip('_')}"
    contents = {f"{stem}.{out.arch}.ptx": out.ptx.encode() for out in inspected.compiled}
    contents |= {f"{stem}.{out.arch}.cubin": out.cubin for out in inspected.compiled if out.cubin}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise WorklogError(
            f"cannot write into {folder}: {error.strerror}; give --out another folder"
        ) from error
    return [folder / name for name in sorted(contents)]


def report(inspected: Inspection) -> str:
    """Return the inspection as text for a terminal."""
    texts = [part if isinstance(part, str) else part.text() for part in _parts(inspected)]
    if inspected.lines:
        texts.append(_source(inspected))
    return "\n\n".join(texts)


def report_html(inspected: Inspection) -> str:
    """Return the inspection for a notebook."""
    html = ""
    for part in _parts(inspected):
        html += f"<p>{escape(part)}</p>" if isinstance(part, str) else part.html()
    if inspected.lines:
        html += _source_html(inspected)
    return html


def _parts(inspected: Inspection) -> list[str | Table]:
    """Return the sentences and the tables above the source."""
    program = inspected.main.program
    threads = "" if inspected.threads is None else f" · {inspected.threads} threads per block"
    parts: list[str | Table] = [
        f"{program.name}: {program.entry}{threads}",
        _resources(inspected),
        _sass(inspected.sass),
    ]
    if not inspected.lines:
        caveats = inspected.caveats or ("give --grid and --block to count memory requests by line",)
        return [*parts, inspected.label, *caveats]
    counts = inspected.counts
    mix = sorted(counts.instructions.items(), key=lambda item: -item[1])
    shares = ", ".join(
        f"{name} {100 * count / counts.all_instructions:.1f} %" for name, count in mix
    )
    if fma := counts.instructions.get("fma"):
        shared = counts.shared_load.wavefronts + counts.shared_store.wavefronts
        shares += f"; {shared / fma:.3f} shared wavefronts per warp multiply-add"
    parts.append(f"{inspected.label} · {inspected.shape} with alpha = 1, beta = 0")
    parts.append(f"{format_si(counts.all_instructions)} PTX instructions of a warp: {shares}")
    parts += [_memory(counts), *(f"note: {caveat}" for caveat in inspected.caveats)]
    return [*parts, *(finding.at(program.name) for finding in inspected.findings)]


def _resources(inspected: Inspection) -> Table:
    """Return the table of resources and occupancy, a row per architecture."""
    rows = []
    for out in inspected.compiled:
        row = {
            "arch": out.arch,
            "registers": str(out.registers),
            "stack B": str(out.stack_bytes),
            "spills B": f"{out.spill_store_bytes}+{out.spill_load_bytes}",
            "shared B": str(out.shared_bytes),
            "blocks/SM": "?",
            "warps/SM": "?",
            "occupancy": "?",
            "limited by": "give --block",
        }
        if not out.has_resources:
            row |= dict.fromkeys(("registers", "stack B", "spills B", "shared B"), "?")
            row["limited by"] = "unknown without NVRTC"
        if block_occupancy := inspected.occupancy(out):
            row["blocks/SM"] = str(block_occupancy.blocks)
            row["warps/SM"] = str(block_occupancy.warps)
            row["occupancy"] = f"{100 * block_occupancy.share:.0f} %"
            row["limited by"] = " and ".join(block_occupancy.limited_by)
        rows.append(row)
    return Table.of("", rows)


def _sass(sass: Sass) -> str | Table:
    """Return the table of the main loop's most frequent instructions, or why there is none.

    It has a column per architecture.
    """
    if not sass.loops:
        return sass.note
    loops = [Counter(loop.counts) for loop in sass.loops.values()]
    names = dict.fromkeys(chain.from_iterable(loops))
    by_count = sorted(names, key=lambda name: -max(mix[name] for mix in loops))
    rows = [[name, *(str(mix[name]) for mix in loops)] for name in by_count[:SASS_SHOWN]]
    if other_names := by_count[SASS_SHOWN:]:
        rows.append(["others", *(str(sum(mix[name] for name in other_names)) for mix in loops)])
    rows.append(["all", *(str(mix.total()) for mix in loops)])
    rows.append(
        [
            "FFMAs with a register-bank conflict",
            *(f"{100 * loop.bank_conflicts:.1f} %" for loop in sass.loops.values()),
        ]
    )
    return Table("", ("main loop, SASS", *sass.loops), rows)


def _memory(counts: Counts) -> Table:
    """Return the table of requests, a row per kind of memory and direction."""
    rows = []
    for name in ("global_load", "global_store", "shared_load", "shared_store", "local", "atomic"):
        cost = getattr(counts, name)
        if not cost.requests:
            continue
        row = {
            "memory": name.replace("_", " "),
            "requests": format_si(cost.requests),
            "bytes": format_si(cost.bytes),
        }
        row |= dict.fromkeys(
            ("sectors", "sectors/request", "wavefronts", "per request", "conflicts"), ""
        )
        if name.startswith("shared"):
            row |= {
                "wavefronts": format_si(cost.wavefronts),
                "conflicts": format_si(cost.conflicts),
            }
            row["per request"] = f"{cost.wavefronts / cost.requests:.2f}"
        else:
            row |= {
                "sectors": format_si(cost.sectors),
                "sectors/request": f"{cost.sectors_per_request:.2f}",
            }
        rows.append(row)
    return Table.of("", rows)


def _source(inspected: Inspection) -> str:
    """Return the source below its header, with costs before each line.

    The costs are the line's share of the instructions, and the cost of its requests.
    """
    all_instructions = inspected.counts.all_instructions
    rows = [
        f"{'of all':>7} {'sectors per':>14} {'wavefronts per':>14}",
        f"{'instr.':>7} {'global request':>14} {'shared request':>14}  line   {MARKS}",
    ]
    for number, line in _source_lines(inspected):
        costs = _line_costs(inspected.lines.get(number), all_instructions)
        share, sectors, wavefronts = costs
        rows.append(f"{share:>7} {sectors:>14} {wavefronts:>14}  {number:>4}  {line}".rstrip())
    return "\n".join(rows)


def _source_html(inspected: Inspection) -> str:
    """Return the source below its header as a table. A line that is too long wraps."""
    all_instructions = inspected.counts.all_instructions
    names = ("of all instr.", "sectors per global request", "wavefronts per shared request", "line")
    headings = "".join(f'<th scope="col" style="text-align:right">{name}</th>' for name in names)
    headings += f'<th scope="col" style="text-align:left">{MARKS}</th>'
    body = ""
    for number, line in _source_lines(inspected):
        costs = _line_costs(inspected.lines.get(number), all_instructions)
        cells = "".join(
            f'<td style="text-align:right;white-space:nowrap">{cost}</td>' for cost in costs
        )
        cells += f'<th scope="row" style="text-align:right">{number}</th>'
        body += f'<tr>{cells}<td style="{CODE_STYLE}">{escape(line)}</td></tr>'
    table = f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"
    return scrolling(table, f"source of {inspected.main.program.entry}")


def _source_lines(inspected: Inspection) -> list[tuple[int, str]]:
    """Return the source lines below the header, with their numbers."""
    text = inspected.main.program.source.splitlines()
    header_lines = _header_length(text)
    return [*enumerate(text[header_lines:], start=header_lines + 1)]


def _header_length(lines: Sequence[str]) -> int:
    """Return the number of empty lines and comments at the beginning."""
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("//"):
            return number
    return 0


def _line_costs(counts: Counts | None, all_instructions: int) -> tuple[str, str, str]:
    """Return a source line's share of all instructions, sectors and wavefronts.

    counts: of the line; None if it has no instructions
    all_instructions: of all lines
    """
    share = ""
    sectors = list[str]()
    wavefronts = list[str]()
    if counts:
        if counts.all_instructions:
            share = f"{100 * counts.all_instructions / all_instructions:.1f} %"
        for cost in (counts.global_load, counts.global_store):
            if cost.requests:
                sectors.append(f"{cost.sectors_per_request:.3g}")
        for cost in (counts.shared_load, counts.shared_store):
            if cost.requests:
                mark = "!" if cost.conflicts else ""
                wavefronts.append(f"{cost.wavefronts / cost.requests:.3g}{mark}")
    return share, " + ".join(sectors), " + ".join(wavefronts)
