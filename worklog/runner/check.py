"""Check kernels without timing them: one kernel at every stage of the gate, or every rung on the emulator.

It runs on a GPU if there is one, else on the emulator at a small size, and the result states which. A kernel is
compiled with NVRTC in either case, so its resources and a wrong signature are known before anything is launched. A host
function (worklog.kernel.host_function) runs on a GPU only.
"""

from __future__ import annotations

import math
import pickle
import re
import secrets
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from worklog.emulator import ARCH, EmulatedDevice, build
from worklog.emulator.launch import require_matrices
from worklog.errors import BadSetting, Interrupted
from worklog.gate import SEED_BITS, Checker, Verdict, edge_shapes, passed
from worklog.gpu import gpu, gpu_reason, require_gpu
from worklog.kernel import LABEL, Device, Kernel, Subject, instruction_mix, tensor_operands
from worklog.kernel.nvrtc import Compiled, compile_cuda
from worklog.kernel.solution import Solution
from worklog.problem import SGEMM, Shape
from worklog.runner.child import Answer, advice, run_child
from worklog.runner.emulated_time import LIMIT_S, require_time
from worklog.runner.tasks import Progress, silent
from worklog.runs import verdict_table

if TYPE_CHECKING:
    from worklog.emulator import Finding

# Bits of each parameter, as PTX declares them; f: a float. Sizes of 64 bits are called "long M".
BITS = {one.name: f"{'f' * (one.dtype == 'float32')}32" for one in SGEMM.signature if not one.pointer}
OUTSIDE = ("global-out-of-bounds", "misaligned")  # findings of a kernel outside of its domain
EXAMPLE_DOMAIN = "--domain 'M % 64 == 0, N % 64 == 0, K % 8 == 0'"
TIMEOUT_S = 60.0
FURTHER = "further seeds"
GPU_SIZE = 1024
EMULATED_COPIES = 8  # of A, B and C in float32: the gate's own, the emulator's, and the references in float64


@dataclass(frozen=True, repr=False)
class Checked:
    """The gate's verdict on one kernel, or on a solution of a problem, which displays itself.

    shape: of a matrix product, or the problem and its dtype in words. label: where the kernel ran. compiled: by NVRTC,
    or None for a host function. findings: the emulator's, of all launches; each kind and place once. printed: lines of
    the first launch that prints, on the emulator. notes: of the instruction mix (worklog.kernel.mix). warnings:
    the kernel's, and where the code contradicts the claimed class.
    """

    kernel: Kernel
    verdict: Verdict
    shape: Shape | str
    label: str
    compiled: Compiled | None = None
    findings: tuple[Finding, ...] = ()
    printed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", replace(self.verdict, label=self.label))  # so that it may be shown alone

    @property
    def title(self) -> str:
        """File, kernel, shape or problem, and label."""
        place = "at" if isinstance(self.shape, Shape) else "for"
        return f"{self.kernel.file}: {self.kernel.entry} {place} {self.shape} · {self.label}"

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        spent = ("registers", "stack_bytes", "shared_bytes", "arch") if self.compiled else ()
        shape = self.shape
        return {
            "kernel": self.kernel.entry,
            "label": self.label,
            **({"shape": [shape.m, shape.n, shape.k]} if isinstance(shape, Shape) else {"problem": shape}),
            **{name: getattr(self.compiled, name) for name in spent},
            "findings": [asdict(finding) for finding in self.findings],
            "printed": list(self.printed),
            "adapted": list(self.kernel.adapted),
            "notes": [*self.verdict.notes, *self.notes],
            "warnings": [*self.kernel.warnings, *self.warnings],
            **self.verdict.as_dict(),
        }

    def __repr__(self) -> str:
        """For a terminal: every stage, the error map if something is wrong, and the resources."""
        compiled, verdict = self.compiled, self.verdict
        lines = [self.title, *(f"· {words}" for words in self.kernel.adapted)]
        for stage in verdict.stages:
            mark = "·" if stage.note else "✓" if stage.passed else "✗"
            lines.append(f"{mark} {stage.name}: {stage.detail}")
            if stage.where is not None:
                height, width = stage.where.tile
                which = "C" if isinstance(self.shape, Shape) else "the output"
                lines.append(f"    {which} in tiles of {height} x {width}: . right, o some elements wrong, # all")
                lines += [f"    {row}" for row in stage.where.picture().splitlines()]
        for finding in self.findings:
            if finding.message not in str(verdict.reason):  # the first finding is in the failed stage already
                lines.append(f"{'✗' if finding.is_error else '·'} {finding.at(self.kernel.file)}")
        lines += [f"| {line}" for line in self.printed]
        if compiled is not None:
            lines.append(
                f"{compiled.registers} registers and {compiled.stack_bytes} bytes of local memory per thread, "
                f"{compiled.shared_bytes + compiled.program.shared} bytes of shared memory per block ({compiled.arch})"
            )
        if not verdict.accepted and any(finding.kind in OUTSIDE for finding in self.findings):
            lines.append(f"· if {self.kernel.entry} takes whole tiles only, state its domain: {EXAMPLE_DOMAIN}")
        warnings = (*self.kernel.warnings, *self.warnings)
        lines += [f"· {note}" for note in self.notes] + [f"! {warning}" for warning in warnings]
        result = f"passed as {verdict.precision}" if verdict.accepted else "failed"
        result += "".join(f" ({said.partition(';')[0]})" for said in self.kernel.warnings)
        result += f" in {verdict.seconds:.1f} s" if verdict.seconds else ""
        return "\n".join([*lines, result + ("" if verdict.seed is None else f" (seed {verdict.seed})")])

    def _repr_html_(self) -> str:
        places = [finding.at(self.kernel.file) for finding in self.findings]
        notes = [*self.kernel.adapted, *places, *(f"| {line}" for line in self.printed), *self.notes]
        notes += [*self.kernel.warnings, *self.warnings]
        return replace(verdict_table(self.verdict.as_dict(), self.title), notes=notes).html()


def check(
    what: Kernel,
    at: Shape | str | None = None,
    dtype: str = "",
    *,
    on: str | None = None,
    seed: int | None = None,
    thorough_s: float = 0.0,
    limit_s: float = LIMIT_S,
    progress: Progress = silent,
    begun: Callable[[Checked], None] = lambda known: None,
) -> Checked:
    """Check a kernel or a host function at every stage of the gate; or a solution at every case of a problem, on the
    emulator at the small ones. In this process: see check_in_child.

    at: the benchmark shape (default: 1024 padded to the domain on a GPU, a small one on the emulator); for a solution
    the problem, and dtype, as worklog.runner.problems.find_problem takes them. on: "gpu" or "emulated"; None takes the
    GPU where there is one. seed: of the inputs, for a solution of the sentinels (default: drawn now; the verdict on a
    kernel states it). thorough_s: check a kernel on further seeds until these seconds are over. limit_s: seconds that
    the emulator may take for one seed, as estimated before; for a solution, after which no case starts. progress:
    called before each launch, with a total of 0, since their number isn't known before the last one; for a solution
    before each case. begun: called before the first launch with a result without stages. Raises NoGpu, CompileFailed,
    BadSetting, OutOfMemory.
    """
    live, seed = wants_gpu(on) or what.host is not None, drawn(seed)
    if live and on == "emulated":
        raise BadSetting(f"{what.name} is a host function, which the emulator cannot run: check it on a GPU")
    if live:
        require_gpu()
    if isinstance(what, Solution):
        known, run = _of_solution(what, str(at), dtype, live, seed, limit_s)
    else:
        known, run = _of_kernel(what, at, live, seed, thorough_s, limit_s)
    begun(known)
    device = device_of(live)
    verdict = run(device, progress)
    found: dict[tuple[str, int, int | None], Finding] = {}
    for finding in getattr(device, "findings", ()):
        found.setdefault((finding.kind, finding.line, finding.other_line), finding)
    label = device.label if isinstance(device, EmulatedDevice) else known.label
    printed: tuple[str, ...] = getattr(device, "printed", ())
    return replace(known, label=label, verdict=verdict, findings=tuple(found.values()), printed=printed)


Checking = tuple[Checked, Callable[[Device, Progress], Verdict]]  # what is known before a launch, and what launches


def _of_kernel(kernel: Kernel, at: Any, live: bool, seed: int, thorough_s: float, limit_s: float) -> Checking:
    """Raises CompileFailed, BadSetting, and WorklogError where the machine code cannot be read."""
    shape: Shape = at or (kernel.domain.padded(Shape.of(GPU_SIZE)) if live else edge_shapes(kernel.domain)[-1])
    kernel.check(shape)
    known = Checked(kernel, Verdict((), None), shape, f"live · {gpu().name} · {LABEL}" if kernel.host else "")
    if kernel.host is None:
        compiled, label = compile_for(kernel.at(shape, _arch(live)), live)
        mix = instruction_mix(compiled)
        notes, warnings = tuple(mix.notes), tuple(mix.warnings(kernel.claimed))
        known = replace(known, label=label, compiled=replace(compiled, cubin=b""), notes=notes, warnings=warnings)
    tensor = uses_tensor_cores(kernel, shape, live)
    if not live:
        require_matrices(shape, EMULATED_COPIES)
        require_time(kernel, shape, limit_s)

    def run(device: Device, progress: Progress) -> Verdict:
        """The verdict on the first seed, or on the first of the further ones that fails."""
        subject = kernel.load(device)
        _report_launches(subject, device, progress)
        started, first = time.monotonic(), Checker(device, shape, seed).check(subject, kernel.claimed, tensor)
        found, further = first, 0
        while found.accepted and time.monotonic() - started < thorough_s:
            further += 1
            found = Checker(device, shape, seed + further).check(subject, kernel.claimed, tensor)
        if not found.accepted or not further:
            return found
        return first.and_then(passed(FURTHER, f"{further} more, up to {seed + further}, each at every stage above"))

    return known, run


def _of_solution(solution: Solution, problem: str, dtype: str, live: bool, seed: int, limit_s: float) -> Checking:
    """Raises BadSetting."""
    from worklog.gate.cases import check_cases  # here: to check a kernel needs neither
    from worklog.runner.problems import find_problem, small_cases

    posed = find_problem(problem, dtype)
    cases, left = ([one for part in posed.tests for one in part], []) if live else small_cases(posed)
    notes = (f"too large for the emulator, checked on a GPU: case {', case '.join(left)}",) if left else ()
    label = f"live · {gpu().name}" if live else "emulated"

    def run(device: Device, progress: Progress) -> Verdict:
        started = time.monotonic()

        def within(done: int, total: int, doing: str) -> None:
            progress(done, total, doing)
            if not live and done and time.monotonic() - started > limit_s:
                raise BadSetting(f"{done} of {total} cases took more than {limit_s:g} s: allow more with --limit")

        return check_cases(solution.ready(device, posed), posed, cases, device, seed=seed, progress=within)

    return Checked(solution, Verdict((), None), f"{posed.name} in {posed.dtype}", label, notes=notes), run


def drawn(seed: int | None) -> int:
    """The seed, or a new one."""
    return secrets.randbits(SEED_BITS) if seed is None else seed


def _report_launches(subject: Subject, device: Device, progress: Progress) -> None:
    """Call progress before each launch of the subject, and again and again during one on the emulator."""
    enqueue, numbers = subject.enqueue, count()

    def report(shape: Shape, *arguments: Any) -> None:
        number = next(numbers)
        doing = f"launch {number + 1} at {shape}"
        progress(number, 0, doing)
        if isinstance(device, EmulatedDevice):
            device.progress = lambda steps, budget: progress(
                number, 0, f"{doing}: {steps:,} instructions executed, of at most {budget:,}"
            )
        enqueue(shape, *arguments)

    subject.enqueue = report  # type: ignore[assignment, method-assign]


def check_in_child(
    what: Kernel,
    at: Shape | str | None = None,
    dtype: str = "",
    *,
    on: str | None = None,
    seed: int | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = silent,
    command: Sequence[str] | None = None,
    **how: Any,
) -> Checked:
    """check() in a child process: a kernel that hangs, crashes or exits fails, and nothing else is harmed.

    timeout_s: seconds that one launch may take on a GPU before the kernel counts as hung; the emulator ends an endless
    kernel by itself. progress: called at each launch, and twice a second in between, with a total of 0. command: as in
    worklog.runner.measure.carry_out. how: thorough_s and limit_s, as for check(). Raises what check() raises, and
    Interrupted.
    """
    results: list[Checked] = []  # without stages before the first launch, then the whole one

    def take(answer: Answer) -> None:
        if "checked" in answer:  # the child is trusted: unpickling runs what it sends
            results.append(pickle.loads(b64decode(answer["checked"])))

    seed = drawn(seed)
    order = {"do": "check", "what": what, "how": {"at": at, "dtype": dtype, "on": on, "seed": seed, **how}}
    limited = what.host is not None or wants_gpu(on)
    try:
        end = run_child(order, take, progress, timeout_s=timeout_s if limited else math.inf, command=command)
    except KeyboardInterrupt as interrupt:
        raise Interrupted(f"interrupted: {what.name} was not checked, and its process has ended") from interrupt
    if not results:
        raise end.error()
    checked = results[-1]
    if end.kind != "checked":
        return replace(checked, verdict=Verdict((end.stage(what),), None, seed=seed))
    *before, stage = checked.verdict.stages
    if checked.label.startswith("live") and stage.name == "launch" and not stage.passed:  # a GPU doesn't say more
        stage = replace(stage, detail=f"{stage.detail}; {advice(what)}")
    return replace(checked, verdict=replace(checked.verdict, stages=(*before, stage)))


def wants_gpu(on: str | None) -> bool:
    """Whether check() would take the GPU."""
    return on == "gpu" if on is not None else gpu_reason() is None


def compile_for(kernel: Kernel, live: bool) -> tuple[Compiled, str]:
    """The kernel compiled for the GPU or the emulator, and the label of that machine; nothing is launched. Raises
    CompileFailed, and BadSetting for parameters that don't take its arguments.
    """
    found = _built(kernel, live)
    for one, (compiled, _) in zip(kernel.passes, found, strict=True):
        _require_signature(one, compiled)
    return found[len(kernel.before)]


def _arch(live: bool) -> str:
    return gpu().arch if live else ARCH


def _built(kernel: Kernel, live: bool) -> list[tuple[Compiled, str]]:
    """Each pass, compiled for the GPU or the emulator, and the label of that machine."""
    if live:
        return [(compile_cuda(one.program, gpu().arch), f"live · {gpu().name}") for one in kernel.passes]
    return [build(one.program) for one in kernel.passes]


def uses_tensor_cores(kernel: Kernel, shape: Shape, live: bool) -> bool | None:
    """Whether the code of its launches at a shape has tensor-core instructions; None for a host function."""
    if kernel.host is not None:
        return None
    return bool(tensor_operands(compiled for compiled, _ in _built(kernel.at(shape, _arch(live)), live)))


def device_of(live: bool) -> Device:
    """The GPU, or the emulator."""
    if not live:
        return EmulatedDevice()
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()


def _require_signature(kernel: Kernel, compiled: Compiled) -> None:
    """Raise BadSetting for a kernel that takes other parameters than the gate passes, or dynamic shared memory, since
    the gate passes none.
    """
    program = compiled.program
    entry = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\((.*?)\)", compiled.ptx, re.DOTALL)
    declared = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]\d+)", entry[1]) if entry else ()
    found = tuple(kind if kind.startswith("f") else kind[1:] for kind in declared)
    dynamic = re.search(r"\.extern\s+\.shared\s.*?([\w$]+)\[\]", compiled.ptx)
    if (
        dynamic is not None
        and not program.shared
        and re.search(rf"{re.escape(dynamic[1])}\b", compiled.ptx[entry.end() if entry else 0 :])
    ):
        raise BadSetting(
            f"{program.name}: {program.entry} takes dynamic shared memory (extern __shared__): give its bytes per "
            "block with --shared BYTES"
        )
    if found != tuple(BITS.get(name, "64") for name in kernel.arguments):
        raise BadSetting(
            f"{program.name}: {program.entry} takes {len(found)} parameters of {', '.join(found) or 'no'} bits, which "
            f"don't take ({', '.join(kernel.arguments)}): give their order, as in --args 'A,B,C,M,N,K'; sizes are "
            "integers, alpha, beta and the matrices' elements are float"
        )
