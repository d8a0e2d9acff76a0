"""What a kernel costs without running it on a GPU: what the compiler spent, how many blocks fit an SM, and what its
lines ask of memory. Counts and resources, never a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from worklog.emulator import Counts, EmulatedDevice, Finding, load, predict
from worklog.emulator.counts import caveats, total
from worklog.emulator.errors import NotPredictable, UnsupportedInstruction
from worklog.emulator.shipped import ARCH, Built, build
from worklog.errors import BadSetting, WorklogError
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import ARCHITECTURES, Compiled, UnknownArchitecture
from worklog.kernel.occupancy import Occupancy, occupancy
from worklog.kernel.sass import HOW_TO_GET, disassemble, disassembler, main_loop
from worklog.problem.gemm import Shape, random_inputs

RUNG_SIZE, FILE_SIZE = Shape.of(4096), Shape.of(128)
WHOLE = 512  # a file's kernel is run in full up to here; a prediction for more is tried at TRIAL, against a full run
TRIAL = Shape(384, 384, 256)


@dataclass(frozen=True)
class Spent:
    """One architecture's resources: registers and bytes of local memory a thread, static shared bytes a block, and the
    static occupancy (None where the block is not known).
    """

    arch: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    occupancy: Occupancy | None


@dataclass(frozen=True)
class Inspection:
    """All that was found. threads: of a block, None if it was not told. lines: counts by source line, empty if nothing
    was run; they are for `arch`. caveats: why nothing was run, or where a GPU may count otherwise. sass: instructions
    of the main loop, by architecture; without them, sass_note says why. compiled: PTX, cubin and logs, one an
    architecture.
    """

    file: str
    entry: str
    arch: str
    source: str
    threads: int | None
    spent: tuple[Spent, ...]
    label: str
    shape: Shape | None
    lines: Mapping[int, Counts]
    findings: tuple[Finding, ...]
    caveats: tuple[str, ...]
    sass: Mapping[str, Mapping[str, int]]
    sass_note: str
    compiled: tuple[Compiled, ...] = field(repr=False, default=())

    @property
    def counts(self) -> Counts:
        """All lines together."""
        return total(self.lines)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        text = self.source.splitlines()
        return {
            "kernel": self.entry,
            "file": self.file,
            "threads": self.threads,
            "label": self.label,
            "spent": [asdict(spent) for spent in self.spent],
            "shape": None if self.shape is None else [self.shape.m, self.shape.n, self.shape.k],
            "counts": asdict(self.counts) if self.lines else None,
            "lines": [
                {"line": n, "text": text[n - 1] if 0 < n <= len(text) else "", **asdict(counts)}
                for n, counts in self.lines.items()
            ],
            "caveats": list(self.caveats),
            "findings": [asdict(finding) for finding in self.findings],
            "sass_main_loop": {arch: dict(mix) for arch, mix in self.sass.items()},
            "sass_note": self.sass_note,
        }


def architectures(words: str) -> tuple[str, ...]:
    """Read "sm_90,sm_120" or "all". Raises UnknownArchitecture."""
    names = ARCHITECTURES if words.strip() == "all" else tuple(word.strip() for word in words.split(","))
    for name in names:
        if name not in ARCHITECTURES:
            raise UnknownArchitecture(
                f"there is no architecture {name!r} here: choose from {', '.join(ARCHITECTURES)}, or all"
            )
    return tuple(dict.fromkeys(names))


def inspect(what: str, *, shape: Shape | None, archs: Sequence[str], **words: Any) -> Inspection:
    """A rung by its name, or a .cu file by its path; words as for inspect_file. Raises what the two below do."""
    if not what.endswith(".cu"):
        given = [name for name, value in words.items() if value not in (None, "any")]
        if given:
            raise BadSetting(f"--{given[0]} is for a .cu file: a rung brings its own")
        return inspect_rung(rung(what), shape, archs)
    return inspect_file(Path(what), shape=shape, archs=archs, **words)


def inspect_rung(record: Kernel, shape: Shape | None = None, archs: Sequence[str] = (ARCH,)) -> Inspection:
    """A rung at a shape (default 4096), from a few of its blocks and a short K. About a second at any size.

    Raises OutsideDomain, UnknownArchitecture, and NvrtcMissing for an architecture other than sm_90 without NVRTC.
    """
    shape = shape or RUNG_SIZE
    record.check(shape)
    built = [build(record.program, arch) for arch in archs]
    main = _main(built)
    first = main.compiled
    predicted = predict(load(first.ptx, first.symbol, first.shared_accesses), record, shape)
    blocks = f"{predicted.blocks} block{'s' if predicted.blocks > 1 else ''}"
    label = f"{main.label} · predicted from {blocks}"
    return _inspection([b.compiled for b in built], record.thread_count, label, shape, predicted.lines, ())


def inspect_file(
    path: Path,
    *,
    entry: str | None = None,
    grid: str | None = None,
    block: str | None = None,
    domain: str = "any",
    shape: Shape | None = None,
    archs: Sequence[str] = (ARCH,),
) -> Inspection:
    """A kernel of one's own, if grid and block say how to launch it; else only what the compiler spent. It is run in
    full on random data up to WHOLE (default 128, padded to the domain). Beyond, its traffic is predicted from a few
    blocks, after the same prediction for a small shape was found to be what a full run counts there.

    Raises NotPredictable where it was not, CompileFailed, NvrtcMissing, OutsideDomain, UnknownArchitecture, BadSetting
    for words that cannot be read, and LaunchFailed for what cannot be launched. What the emulator does not cover is
    said in the result.
    """
    if grid is not None and block is None:
        raise BadSetting("--grid without --block: give both, and the kernel's traffic is counted too")
    kernel = Kernel.from_file(path, grid=grid or "", block=block or "", entry=entry, domain=domain)
    threads = None if block is None else kernel.thread_count
    built = [build(kernel.program, arch) for arch in archs]
    compiled, main = [b.compiled for b in built], _main(built)
    if grid is None:
        return _inspection(compiled, threads, main.label, None, {}, ())
    shape = shape or kernel.domain.padded(FILE_SIZE)
    kernel.check(shape)
    try:
        if max(shape.m, shape.n, shape.k) > WHOLE:
            lines, findings, label = _predicted(kernel, shape, main)
            return _inspection(compiled, threads, label, shape, lines, findings)
        lines, findings = _run(kernel, shape, main.compiled.arch)
    except UnsupportedInstruction as error:
        return _inspection(compiled, threads, main.label, shape, {}, (), (f"traffic not counted: {error}",))
    return _inspection(compiled, threads, main.label, shape, lines, findings)


def save(found: Inspection, folder: Path) -> list[Path]:
    """Write what was compiled into a folder: PTX, and where NVRTC made it the cubin, one of each for an architecture.

    Raises WorklogError where that cannot be written.
    """
    stem = f"{Path(found.file).stem}.{re.sub(r'[^A-Za-z0-9]+', '_', found.entry).strip('_')}"
    contents = {f"{stem}.{out.arch}.ptx": out.ptx.encode() for out in found.compiled}
    contents |= {f"{stem}.{out.arch}.cubin": out.cubin for out in found.compiled if out.cubin}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise WorklogError(f"cannot write into {folder}: {error.strerror}; give --out another folder") from error
    return [folder / name for name in sorted(contents)]


def _main(built: Sequence[Built]) -> Built:
    """The architecture to count for: sm_90 if it was asked for, else the first."""
    return next((b for b in built if b.compiled.arch == ARCH), built[0])


def _predicted(kernel: Kernel, shape: Shape, main: Built) -> tuple[Mapping[int, Counts], tuple[Finding, ...], str]:
    """Counts of a large shape by line, findings of a small one, and a label that says so."""
    out, small = main.compiled, kernel.domain.padded(TRIAL)
    parsed = load(out.ptx, out.symbol, out.shared_accesses)
    right, findings = _run(kernel, small, out.arch)
    if predict(parsed, kernel, small).lines != right:
        raise NotPredictable(
            f"{out.name}: the traffic of {out.entry} cannot be predicted from a few of its blocks (at {small}, a full "
            f"run counts otherwise): take a size of up to {WHOLE}, which is run in full"
        )
    predicted = predict(parsed, kernel, shape)
    label = f"{main.label} · predicted from {predicted.blocks} blocks, as a full run confirmed at {small}"
    return predicted.lines, findings, label


def _run(kernel: Kernel, shape: Shape, arch: str) -> tuple[Mapping[int, Counts], tuple[Finding, ...]]:
    """One launch with every detector and every counter on; beta = 0, so C holds NaN before."""
    device = EmulatedDevice(arch, count=True)
    a, b = random_inputs(shape, np.random.default_rng(0))
    c = np.full((shape.m, shape.n), np.nan, np.float32)
    kernel.load(device).enqueue(shape, 1.0, device.upload(a), device.upload(b), 0.0, device.upload(c))
    result = device.last
    return ({}, ()) if result is None else (result.lines, result.findings)


def _inspection(
    compiled: Sequence[Compiled],
    threads: int | None,
    label: str,
    shape: Shape | None,
    lines: Mapping[int, Counts],
    findings: tuple[Finding, ...],
    not_run: tuple[str, ...] = (),
) -> Inspection:
    first = next((out for out in compiled if out.arch == ARCH), compiled[0])
    sass, note = _sass(compiled)
    return Inspection(
        file=first.name,
        entry=first.entry,
        arch=first.arch,
        source=first.source,
        threads=threads,
        spent=tuple(_spent(out, threads) for out in compiled),
        label=label,
        shape=shape,
        lines=lines,
        findings=findings,
        caveats=caveats(load(first.ptx, first.symbol, first.shared_accesses)) if lines else not_run,
        sass=sass,
        sass_note=note,
        compiled=tuple(compiled),
    )


def _spent(out: Compiled, threads: int | None) -> Spent:
    resident = None if threads is None else occupancy(out.arch, threads, out.registers, out.shared_bytes)
    return Spent(
        out.arch,
        out.registers,
        out.stack_bytes,
        out.spill_store_bytes,
        out.spill_load_bytes,
        out.shared_bytes,
        resident,
    )


def _sass(compiled: Sequence[Compiled]) -> tuple[Mapping[str, Mapping[str, int]], str]:
    """The main loops by architecture, or why there are none."""
    tool = disassembler()
    if not all(out.cubin for out in compiled):
        return {}, "no SASS: the shipped PTX comes without machine code; it needs NVRTC"
    if tool is None:
        return {}, HOW_TO_GET
    found = {out.arch: main_loop(disassemble(out.cubin, tool), out.symbol) for out in compiled}
    return {arch: mix for arch, mix in found.items() if mix}, "" if any(found.values()) else "no loop with an FFMA"
