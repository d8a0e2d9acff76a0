"""A kernel's cost without a GPU: resources, occupancy, and the memory counts of each source line. Never a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog import emulator
from worklog.emulator import Counts, Finding, NotPredictable, load
from worklog.errors import BadSetting, WorklogError
from worklog.kernel.emulated import ARCH, RESOURCES, EmulatedDevice, build
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import RUNGS
from worklog.kernel.prediction import WHOLE, predict
from worklog.kernel.resources import Compiled, MainLoop, loop_of, no_sass
from worklog.problem import Shape, random_inputs
from worklog.runs import Table, scaled
from worklog.runs.limits import LIMITS, Occupancy, occupancy

RUNG_SIZE = Shape.of(4096)
FILE_SIZE = Shape.of(128)
TRIAL = Shape(384, 384, 256)  # where a prediction for a larger size is compared with a full run
SASS_SHOWN = 12  # instructions of a main loop


@dataclass(frozen=True)
class Sass:
    """The machine code's main loop by architecture; note: why there is none."""

    loops: Mapping[str, MainLoop] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Inspection:
    """What is known of a kernel. compiled: PTX, cubin and resources per architecture; main: the one that is counted.
    threads: per block. lines: counts by source line, if it was run. caveats: why it wasn't, or where a GPU may count
    otherwise.
    """

    compiled: tuple[Compiled, ...] = field(repr=False)
    main: Compiled = field(repr=False)
    threads: int | None
    label: str
    sass: Sass
    shape: Shape | None = None
    lines: Mapping[int, Counts] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    caveats: tuple[str, ...] = ()

    @property
    def counts(self) -> Counts:
        """All lines together."""
        return emulator.total(self.lines)

    def occupancy(self, out: Compiled) -> Occupancy | None:
        """On one architecture; None if the block is unknown."""
        shared = out.shared_bytes + out.program.shared
        return (
            None
            if self.threads is None
            else occupancy(out.arch, self.threads, out.registers, shared)
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        program = self.main.program
        resources = []
        for out in self.compiled:
            at_once = self.occupancy(out)
            of_block = {"occupancy": None if at_once is None else asdict(at_once)}
            resources.append(
                {"arch": out.arch, **{name: getattr(out, name) for name in RESOURCES}, **of_block}
            )
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
                {"line": n, "text": text.get(n, ""), **asdict(cost)}
                for n, cost in self.lines.items()
            ],
            "caveats": list(self.caveats),
            "findings": [asdict(finding) for finding in self.findings],
            "sass_main_loop": {arch: loop.counts for arch, loop in self.sass.loops.items()},
            "sass_note": self.sass.note,
            "sass_bank_conflicts": {
                arch: loop.bank_conflicts for arch, loop in self.sass.loops.items()
            },
        }


def architectures(words: str) -> tuple[str, ...]:
    """Read "sm_90,sm_120" or "all". Raises BadSetting."""
    names = (
        tuple(LIMITS)
        if words.strip() == "all"
        else tuple(word.strip() for word in words.split(","))
    )
    for name in names:
        if name not in LIMITS:
            raise BadSetting(
                f"cannot compile for {name!r}: choose from {', '.join(LIMITS)}, or all"
            )
    return tuple(dict.fromkeys(names))


def inspect(
    kernel: Kernel, shape: Shape | None = None, archs: Sequence[str] = (ARCH,)
) -> Inspection:
    """A kernel at a shape; without grid and block, only its resources. An instruction that the emulator does not
    support is a caveat.

    The ladder's kernels (default: 4096) are predicted from a few of their blocks and a short K, in about a second. A
    user kernel is run in full on random data up to WHOLE (default: 128, padded to the domain); for larger sizes its
    counts are predicted, if the same prediction for a small shape equals the counts of a full run.

    Raises NotPredictable if it does not (of a rung, that is a caveat), CompileFailed, NvrtcMissing (the ladder still
    has sm_90), LaunchFailed, and BadSetting for an architecture, a host function, or a grid without a block.
    """
    if kernel.host is not None:
        raise BadSetting(
            f"{kernel.name} is a host function, which cannot be inspected: give a .cu file or a rung"
        )
    if kernel.grid and not kernel.block:
        raise BadSetting(
            "--grid needs --block: give both to count the kernel's memory requests too"
        )
    if kernel.choose is not None:
        kernel = kernel.at(
            shape or RUNG_SIZE, archs[0] if len(archs) == 1 else ""
        )  # of several, what all can run
    threads = kernel.thread_count if kernel.block else None
    built = [build(kernel.program, arch) for arch in archs]
    compiled = tuple(out for out, _ in built)
    main, label = next((pair for pair in built if pair[0].arch == ARCH), built[0])
    inspected = Inspection(compiled, main, threads, label, _main_loops(compiled))
    if not kernel.grid:
        return inspected
    own = kernel.number is None and all(
        kernel.code is not record.code for record in RUNGS
    )  # of no other tile
    shape = shape or (kernel.domain.padded(FILE_SIZE) if own else RUNG_SIZE)
    inspected = replace(inspected, shape=shape)
    findings: tuple[Finding, ...] = ()
    confirmed = ""
    try:
        parsed = load(main.ptx, main.symbol, main.shared_accesses)
        notes = emulator.caveats(parsed)
        if own:
            whole = max(shape.m, shape.n, shape.k) <= WHOLE.m
            small = shape if whole else kernel.domain.padded(TRIAL)
            lines, findings = _run(kernel, small, main.arch)
            if whole:
                return replace(inspected, lines=lines, findings=findings, caveats=notes)
            confirmed = f", as a full run confirmed at {small}"
            if predict(parsed, kernel, small).lines != lines:
                what = f"the memory requests of {kernel.entry} cannot be predicted from a few of its blocks"
                advice = f"take a size of up to {WHOLE}, which is run in full"
                raise NotPredictable(
                    f"{kernel.file}: {what}: the counts of a full run at {small} differ; {advice}"
                )
        predicted = predict(parsed, kernel, shape)
    except (emulator.UnsupportedInstruction, NotPredictable) as error:
        if own and isinstance(error, NotPredictable):
            raise
        return replace(inspected, caveats=(f"memory requests not counted: {error}",))
    label += f" · predicted from {predicted.blocks} block{'s' if predicted.blocks > 1 else ''}{confirmed}"
    return replace(inspected, label=label, lines=predicted.lines, findings=findings, caveats=notes)


def _run(
    kernel: Kernel, shape: Shape, arch: str
) -> tuple[Mapping[int, Counts], tuple[Finding, ...]]:
    """One launch with every detector and every counter on; beta = 0, so C holds NaN before."""
    device = EmulatedDevice(arch, count=True)
    a, b = random_inputs(shape, np.random.default_rng(0))
    c = np.full((shape.m, shape.n), np.nan, np.float32)
    kernel.load(device).enqueue(
        shape, 1.0, device.upload(a), device.upload(b), 0.0, device.upload(c)
    )
    assert device.last is not None
    return device.last.lines, device.last.findings


def _main_loops(compiled: Sequence[Compiled]) -> Sass:
    if not all(out.cubin for out in compiled):
        return Sass(note="no SASS: the shipped PTX comes without machine code; it needs NVRTC")
    loops = {out.arch: loop for out in compiled if (loop := loop_of(out.cubin, out.symbol))}
    known = {arch: loop for arch, loop in loops.items() if loop.counts}
    return Sass(known, "" if known else "no loop with an FFMA" if loops else no_sass())


def save(inspected: Inspection, folder: Path) -> list[Path]:
    """Write PTX, and the cubin where NVRTC made it, of each architecture into a folder. Raises WorklogError."""
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
    """For a terminal."""
    program = inspected.main.program
    counts = inspected.counts
    threads = "" if inspected.threads is None else f" · {inspected.threads} threads per block"
    resources = []
    for out in inspected.compiled:
        at_once = inspected.occupancy(out)
        row = {"arch": out.arch, "registers": str(out.registers), "stack B": str(out.stack_bytes)}
        row |= {
            "spills B": f"{out.spill_store_bytes}+{out.spill_load_bytes}",
            "shared B": str(out.shared_bytes),
        }
        row |= dict.fromkeys(("blocks/SM", "warps/SM", "occupancy"), "?") | {
            "limited by": "give --block"
        }
        if at_once:
            row |= {"blocks/SM": str(at_once.blocks), "warps/SM": str(at_once.warps)}
            row |= {
                "occupancy": f"{100 * at_once.share:.0f} %",
                "limited by": " and ".join(at_once.limited_by),
            }
        resources.append(row)
    parts = [
        f"{program.name}: {program.entry}{threads}",
        Table.of("", resources).text(),
        _sass(inspected.sass),
    ]
    if not inspected.lines:
        caveats = inspected.caveats or ("give --grid and --block to count memory requests by line",)
        return "\n\n".join([*parts, inspected.label, *caveats])
    mix = sorted(counts.instructions.items(), key=lambda item: -item[1])
    shares = ", ".join(
        f"{name} {100 * count / counts.all_instructions:.1f} %" for name, count in mix
    )
    if fma := counts.instructions.get("fma"):
        shared = counts.shared_load.wavefronts + counts.shared_store.wavefronts
        shares += f"; {shared / fma:.3f} shared wavefronts per warp multiply-add"
    parts.append(f"{inspected.label} · {inspected.shape} with alpha = 1, beta = 0")
    parts.append(f"{scaled(counts.all_instructions)} PTX instructions of a warp: {shares}")
    parts += [_memory(counts).text(), *(f"note: {caveat}" for caveat in inspected.caveats)]
    parts += [finding.at(program.name) for finding in inspected.findings]
    return "\n\n".join([*parts, _source(inspected)])


def _sass(sass: Sass) -> str:
    """The most frequent instructions of the main loop, one column per architecture."""
    if not sass.loops:
        return sass.note
    loops = [Counter(loop.counts) for loop in sass.loops.values()]
    names = dict.fromkeys(name for mix in loops for name in mix)
    shown = sorted(names, key=lambda name: -max(mix[name] for mix in loops))
    rows = [[name, *(str(mix[name]) for mix in loops)] for name in shown[:SASS_SHOWN]]
    if rest := shown[SASS_SHOWN:]:
        rows.append(["others", *(str(sum(mix[name] for name in rest)) for mix in loops)])
    rows.append(["all", *(str(mix.total()) for mix in loops)])
    rows.append(
        [
            "FFMAs with a bank conflict",
            *(f"{100 * loop.bank_conflicts:.1f} %" for loop in sass.loops.values()),
        ]
    )
    return Table("", ("main loop, SASS", *sass.loops), rows).text()


def _memory(counts: Counts) -> Table:
    rows = []
    for name in ("global_load", "global_store", "shared_load", "shared_store", "local", "atomic"):
        cost = getattr(counts, name)
        if not cost.requests:
            continue
        row = {
            "memory": name.replace("_", " "),
            "requests": scaled(cost.requests),
            "bytes": scaled(cost.bytes),
        }
        row |= dict.fromkeys(
            ("sectors", "sectors/request", "wavefronts", "per request", "conflicts"), ""
        )
        if name.startswith("shared"):
            row |= {"wavefronts": scaled(cost.wavefronts), "conflicts": scaled(cost.conflicts)}
            row["per request"] = f"{cost.wavefronts / cost.requests:.2f}"
        else:
            row |= {
                "sectors": scaled(cost.sectors),
                "sectors/request": f"{cost.sectors_per_request:.2f}",
            }
        rows.append(row)
    return Table.of("", rows)


def _source(inspected: Inspection) -> str:
    """The source below its header, each line with its share of the instructions and the cost of its requests."""
    everything = inspected.counts.all_instructions
    rows = [
        f"{'of all':>7} {'sectors per':>14} {'wavefronts per':>14}",
        f"{'instr.':>7} {'global request':>14} {'shared request':>14}  line   (! bank conflicts; load + store)",
    ]
    text = inspected.main.program.source.splitlines()
    header = next(
        (n for n, line in enumerate(text) if line.strip() and not line.startswith("//")), 0
    )
    for number, line in enumerate(text[header:], start=header + 1):
        share = ""
        sectors = list[str]()
        waves = list[str]()
        if counts := inspected.lines.get(number):
            if counts.all_instructions:
                share = f"{100 * counts.all_instructions / everything:.1f} %"
            of_global = (counts.global_load, counts.global_store)
            of_shared = (counts.shared_load, counts.shared_store)
            sectors = [f"{cost.sectors_per_request:.3g}" for cost in of_global if cost.requests]
            for cost in of_shared:
                if cost.requests:
                    waves.append(
                        f"{cost.wavefronts / cost.requests:.3g}" + ("!" if cost.conflicts else "")
                    )
        cost_words = f"{share:>7} {' + '.join(sectors):>14} {' + '.join(waves):>14}"
        rows.append(f"{cost_words}  {number:>4}  {line}".rstrip())
    return "\n".join(rows)
