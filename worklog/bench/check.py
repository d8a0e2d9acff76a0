"""Check a user kernel, a rung or a host function at every stage of the gate, without timing it.

It runs on a GPU if there is one, else on the emulator at a small size, and the result says which. A kernel is compiled
with NVRTC in either case, so its resources and a wrong signature are known before anything is launched. A host function
(worklog.kernel.host_function) runs on a GPU only.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from worklog.analysis.instruction_mix import instruction_mix
from worklog.bench import job
from worklog.bench.child import Answer, advice, failed_stage, failure, run_child
from worklog.errors import BadSetting, Interrupted
from worklog.gate import Checker, Verdict
from worklog.gate.edge_shapes import edge_shapes
from worklog.gpu.device import gpu, gpu_reason, require_gpu
from worklog.kernel import Kernel
from worklog.kernel.device import Buffer, Device, Program, Subject
from worklog.kernel.host_function import LABEL
from worklog.kernel.nvrtc import Compiled, compile_cuda
from worklog.problem.gemm import Shape

if TYPE_CHECKING:
    from worklog.emulator import Finding

SIGNATURE = "(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)"
PARAMETERS = ("32", "32", "32", "f32", "64", "64", "f32", "64")  # bits of each, as PTX declares them; f: a float
SPENT = ("registers", "stack_bytes", "shared_bytes", "arch")
EMULATED_ARCH = "sm_90"
PATIENCE_S = 60.0
GPU_SIZE = 1024
EMULATED_COPIES = 8  # of A, B and C in float32: the gate's own, the emulator's, and what is worked out in float64


@dataclass(frozen=True, repr=False)
class Checked:
    """The gate's verdict on one kernel, which displays itself.

    label: where the kernel ran. compiled: by NVRTC, or None for a host function, which `host` names by file and
    function. findings: the emulator's, of all launches; each kind and place once. notes: what the code is made of
    (worklog.analysis.instruction_mix). warnings: where the code contradicts the class that was claimed.
    """

    verdict: Verdict
    shape: Shape
    label: str
    compiled: Compiled | None
    findings: tuple[Finding, ...] = ()
    host: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", replace(self.verdict, label=self.label))  # so that it may be shown alone

    @property
    def named(self) -> tuple[str, str]:
        """Where it is from, and what it is called there."""
        return self.host if self.compiled is None else (self.compiled.name, self.compiled.entry)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        spent = {name: getattr(self.compiled, name) for name in SPENT} if self.compiled else {}
        shape = [self.shape.m, self.shape.n, self.shape.k]
        told = {"notes": [*self.verdict.notes, *self.notes], "warnings": list(self.warnings)}
        found = {"findings": [asdict(finding) for finding in self.findings], **told}
        named = {"kernel": self.named[1], "label": self.label, "shape": shape}
        return {**named, **spent, **found, **self.verdict.as_dict()}

    def __repr__(self) -> str:
        return report(self)

    def _repr_html_(self) -> str:
        file, entry = self.named
        said = [*map(str, self.findings), *self.notes, *self.warnings]
        lines = "".join(f"<li>{escape(line)}</li>" for line in said)
        return f"<p>{escape(f'{file}: {entry} at {self.shape}')}</p>{self.verdict._repr_html_()}<ul>{lines}</ul>"


def report(checked: Checked) -> str:
    """For a terminal: every stage, the map of C if something is wrong, and the resources."""
    compiled, verdict = checked.compiled, checked.verdict
    file, entry = checked.named
    lines = [f"{file}: {entry} at {checked.shape} · {checked.label}"]
    for stage in verdict.stages:
        mark = "·" if stage.note else "✓" if stage.passed else "✗"
        lines.append(f"{mark} {stage.name}: {stage.detail}")
        if stage.where is not None:
            height, width = stage.where.tile
            lines.append(f"    C in tiles of {height} x {width}: . right, o some elements wrong, # all")
            lines += [f"    {row}" for row in stage.where.picture().splitlines()]
    for finding in checked.findings:
        if finding.message not in str(verdict.reason):  # the first one is the refusal's own
            lines.append(f"{'✗' if finding.is_error else '·'} {file}: {finding}")
    if compiled is not None:
        lines.append(
            f"{compiled.registers} registers, {compiled.stack_bytes} bytes of local memory a thread, "
            f"{compiled.shared_bytes} bytes of shared memory a block ({compiled.arch})"
        )
    lines += [f"· {note}" for note in checked.notes] + [f"! {warning}" for warning in checked.warnings]
    word = f"accepted as {verdict.precision}" if verdict.accepted else "refused"
    lines.append(f"{word}{took(verdict)}")
    return "\n".join(lines)


def took(verdict: Verdict) -> str:
    """The seconds of all stages; "" if the failed one never ended."""
    return f" in {verdict.seconds:.1f} s" if verdict.seconds else ""


def check(
    kernel: Kernel,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    seed: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    begun: Callable[[Checked], None] | None = None,
) -> Checked:
    """Check a kernel or a host function at every stage of the gate, in this process (see check_in_child).

    shape: the benchmark shape (default: 1024 padded to the domain on a GPU, a small one on the emulator). on: "gpu" or
    "emulated"; None takes the GPU where there is one. seed: for the questions (default: drawn now). progress: told
    before each launch how many there were, of 0 since the last one is not known before. begun: told before anything of
    the kernel's runs what is known by then, a result without stages. Raises NoGpu, CompileFailed, OutsideDomain,
    BadSetting, OutOfMemory.
    """
    live = wants_gpu(on) or kernel.host is not None
    if on == "emulated" and kernel.host is not None:
        raise BadSetting(f"{kernel.name} is a host function, which the emulator cannot run: check it on a GPU")
    if live:
        require_gpu()
    known = _before(kernel, live)
    shape = shape or (kernel.domain.padded(Shape.of(GPU_SIZE)) if live else edge_shapes(kernel.domain)[-1])
    kernel.check(shape)
    if not live:
        from worklog.emulator.launch import require_matrices

        require_matrices(shape, EMULATED_COPIES)
    known = replace(known, shape=shape)
    if begun is not None:
        begun(known)
    device = _device(live)
    made = kernel.load(device)
    exam = Checker(device, shape, secrets.randbits(63) if seed is None else seed)
    verdict = exam.check(made if progress is None else WithProgress(made, progress), kernel.claimed)
    found: dict[tuple[str, int, int | None], Finding] = {}
    for finding in getattr(device, "findings", ()):
        found.setdefault((finding.kind, finding.line, finding.other_line), finding)
    return replace(known, verdict=verdict, findings=tuple(found.values()))


def check_in_child(
    kernel: Kernel,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    seed: int | None = None,
    patience_s: float = PATIENCE_S,
    progress: Callable[[int, int, str], None] = lambda done, total, doing: None,
    command: Sequence[str] | None = None,
) -> Checked:
    """check() in a child process: a kernel that hangs, crashes or exits fails, and nothing else is harmed.

    patience_s: seconds that one launch may take before the kernel counts as hung; the emulator ends an endless kernel
    by itself. progress: called at each launch, and twice a second in between; its total is 0, since the last launch is
    not known before. command: as in worklog.bench.measure.carry_out. Raises what check() raises, and Interrupted.
    """
    begun: Checked | None = None

    def hear(answer: Answer) -> float | None:
        nonlocal begun
        if answer["is"] != "begun":
            return None
        begun = job.unpacked(answer["checked"])
        return math.inf if answer["bounded"] else patience_s

    order = job.check_order(kernel, shape, on, seed)
    try:
        last, end = run_child(
            order, hear, lambda done, doing: progress(done, 0, doing), patience_s=patience_s, command=command
        )
    except KeyboardInterrupt as interrupt:
        raise Interrupted(f"interrupted: {kernel.name} was not checked, and its process has ended") from interrupt
    if last.get("is") == "checked":
        checked = job.unpacked(last["checked"])
        *before, stage = checked.verdict.stages
        if checked.label.startswith("live") and stage.name == "launch" and not stage.passed:  # a GPU doesn't say more
            stage = replace(stage, detail=f"{stage.detail}; {advice(kernel)}")
        return replace(checked, verdict=replace(checked.verdict, stages=(*before, stage)))
    if begun is None:
        raise failure(last, end)
    return replace(begun, verdict=Verdict((failed_stage(last, end, kernel),), None))


def _before(kernel: Kernel, live: bool) -> Checked:
    """What is known before anything is launched, but for the shape. Raises CompileFailed, BadSetting, and WorklogError
    where the machine code cannot be read.
    """
    nothing, anywhere = Verdict((), None), Shape.of(GPU_SIZE)
    if kernel.host is not None:
        label = f"live · {gpu().name} · {LABEL}"
        return Checked(nothing, anywhere, label, None, host=(kernel.file, kernel.function))
    compiled, label = compile_for(kernel.program, live)
    found = instruction_mix(compiled)
    notes, warnings = tuple(found.notes), tuple(found.warnings(kernel.claimed))
    return Checked(nothing, anywhere, label, replace(compiled, cubin=b""), notes=notes, warnings=warnings)


def wants_gpu(on: str | None) -> bool:
    """Whether check() would take the GPU."""
    return on == "gpu" if on is not None else gpu_reason() is None


class WithProgress:
    """A subject that reports each launch before it is made."""

    def __init__(self, subject: Subject, progress: Callable[[int, int, str], None]) -> None:
        self._subject, self._progress, self._launches = subject, progress, 0
        self.name, self.domain = subject.name, subject.domain

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Report, and enqueue."""
        self._progress(self._launches, 0, f"launch {self._launches + 1} at {shape}")
        self._launches += 1
        self._subject.enqueue(shape, alpha, a, b, beta, c)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def compile_for(program: Program, live: bool) -> tuple[Compiled, str]:
    """What the compiler makes of it for the machine it will run on, and that machine's label; nothing is launched.
    Raises CompileFailed, and BadSetting for a signature that is not the ladder's.
    """
    if live:
        arch = "sm_" + "".join(map(str, gpu().compute_capability))
        compiled = compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options)
        label = f"live · {gpu().name}"
    else:
        from worklog.emulator.shipped import build

        built = build(program, EMULATED_ARCH)
        compiled, label = built.compiled, built.label
    _require_signature(compiled)
    return compiled, label


def _device(live: bool) -> Device:
    if live:
        from worklog.gpu.cuda import CudaDevice

        return CudaDevice()
    from worklog.emulator.device import EmulatedDevice

    return EmulatedDevice(EMULATED_ARCH)


def _require_signature(compiled: Compiled) -> None:
    """Raise BadSetting for a kernel that takes something else than the gate passes, or that wants shared memory at its
    launch, of which it gets none.
    """
    entry = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\((.*?)\)", compiled.ptx, re.DOTALL)
    declared = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]\d+)", entry[1]) if entry else ()
    found = tuple(kind if kind.startswith("f") else kind[1:] for kind in declared)
    dynamic = re.search(r"\.extern\s+\.shared\s.*?([\w$]+)\[\]", compiled.ptx)
    if dynamic is not None and re.search(rf"{re.escape(dynamic[1])}\b", compiled.ptx[entry.end() if entry else 0 :]):
        raise BadSetting(
            f"{compiled.name}: {compiled.entry} takes shared memory at its launch (extern __shared__), and the gate "
            "gives none: declare an array of a fixed size"
        )
    if found != PARAMETERS:
        raise BadSetting(
            f"{compiled.name}: {compiled.entry} takes {len(found)} parameters of {', '.join(found) or 'no'} bits; "
            f"the gate launches {SIGNATURE}, row-major"
        )
