"""Check kernels without timing them: a kernel or a host function at every stage of the gate, or a solution at every
case of a problem.

It runs on a GPU if there is one, else on the emulator at a small size, and the result states which. A kernel is
compiled with NVRTC in either case, so its resources and a wrong signature are known before anything is launched.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from worklog import emulator, gate
from worklog.emulator import BUDGET, BudgetExceeded, Finding
from worklog.errors import BadSetting, Interrupted, WorklogError, kind_and_message
from worklog.gate import ALIGNMENT, OLD_C, SEED_BITS, SgemmChecker
from worklog.gpu.device import gpu, gpu_reason, require_gpu
from worklog.kernel import (
    LABEL,
    Compiled,
    Device,
    Kernel,
    Runnable,
    Solution,
    find_problem,
)
from worklog.kernel.emulated import ARCH, EmulatedDevice
from worklog.kernel.trial import completed
from worklog.problem import Problem, Shape, Words, called, each, is_array
from worklog.runner import estimate
from worklog.runs import ErrorMap, Progress, Verdict, silent

if TYPE_CHECKING:
    from worklog.runner.child import Say

TIMEOUT_S = 60.0
GPU_SIZE = 1024
MOST_BESIDE = 600_000_000  # instructions of warps on the emulator beside a GPU: about a minute
# Of a case on the emulator: beyond these it takes more than some seconds.
EMULATED_FLOPS = 2**24
EMULATED_BYTES = 2**21
INFERRED_DOMAIN = "the domain is inferred from the grid"  # how the kernel's warning begins
MOST_LINES = 12  # of a report, behind the verdict and the findings
EMULATED_COPIES = (
    8  # of A, B and C in float32: the gate's own, the emulator's, and the references in float64
)


@dataclass(frozen=True, repr=False)
class Checked:
    """The gate's verdict on one kernel, or on a solution of a problem, which displays itself.

    shape: of a matrix product, or the problem and its dtype in words. label: where the kernel ran. compiled: by NVRTC,
    or None for a host function. findings: the emulator's, of all launches; each kind and place once. printed: lines of
    the first launch that prints, on the emulator. notes: of the instruction mix (worklog.kernel.resources). warnings:
    where the code contradicts the claimed class.
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
        object.__setattr__(
            self, "verdict", replace(self.verdict, label=self.label)
        )  # so that it may be shown alone

    @property
    def title(self) -> str:
        """File, kernel, shape or problem, and label."""
        place = "at" if isinstance(self.shape, Shape) else "for"
        return f"{self.kernel.file}: {self.kernel.entry} {place} {self.shape} · {self.label}"

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The kernel's, and those of its code."""
        return (*self.kernel.warnings, *self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        shape = self.shape
        compiled = self.compiled
        words: dict[str, Any] = {"kernel": self.kernel.entry, "label": self.label}
        words |= (
            {"shape": [shape.m, shape.n, shape.k]}
            if isinstance(shape, Shape)
            else {"problem": shape}
        )
        for name in ("registers", "stack_bytes", "shared_bytes", "arch") if compiled else ():
            words[name] = getattr(compiled, name)
        words |= {
            "findings": [asdict(finding) for finding in self.findings],
            "printed": list(self.printed),
        }
        words |= {"adapted": list(self.kernel.adapted), "notes": [*self.verdict.notes, *self.notes]}
        return {**words, "warnings": list(self.all_warnings), **self.verdict.as_dict()}

    def report(self, *more: str) -> str:
        """Return the verdict, what is wrong, and at most MOST_LINES lines about the check.

        more: lines of the caller, behind those about the kernel
        """
        seconds = self.verdict.seconds
        about = [*self._about(), *self._remarks(), *self._counts(), *more]
        about += [f"time: {seconds:.1f} s"] if seconds else []
        if len(about) > MOST_LINES:
            left = len(about) - MOST_LINES + 1
            about[MOST_LINES - 1 :] = [f"… and {left} more lines, which --json has"]
        return "\n".join([self._verdict(), *self._findings(), *about])

    def __repr__(self) -> str:
        """For a terminal."""
        return self.report()

    def brief(self, most: int) -> str:
        """Return the verdict, what is wrong and the advice in at most `most` lines, without a map of C."""
        wrong = self._wrong()
        advice = [f"· {note}" for note in self._advice()]
        lines = "\n".join([self._verdict(), *wrong[:1], *advice, *wrong[1:]]).splitlines()
        if len(lines) > most:
            left = len(lines) - most + 1
            lines[most - 1 :] = [f"… and {left} more lines"]
        return "\n".join(lines)

    @property
    def result(self) -> str:
        """The result, and what leaves shapes open; without the seed."""
        verdict = self.verdict
        if verdict.failed is not None:
            return f"{verdict.result} at {verdict.failed.name}"
        return verdict.result + "".join(
            f" ({said.partition(';')[0]})" for said in self.kernel.warnings
        )

    def _verdict(self) -> str:
        """Return the result and the seed."""
        seed = self.verdict.seed
        return self.result if seed is None else f"{self.result} (seed {seed})"

    def _advice(self) -> list[str]:
        """Return the notes about a failure, without those about the instructions."""
        of_instructions = self.compiled.mix.notes if self.compiled else ()
        return [note for note in self.notes if note not in of_instructions]

    def _findings(self) -> list[str]:
        """Return what is wrong: the stage that failed, where C is wrong, findings, and what was printed."""
        return [*self._wrong(with_map=True), *(f"| {line}" for line in self.printed)]

    def _wrong(self, *, with_map: bool = False) -> list[str]:
        """Return the stage that failed, with a map of where C is wrong, and the findings."""
        lines = list[str]()
        for stage in self.verdict.stages:
            if not stage.passed:
                lines.append(f"✗ {stage.name}: {stage.detail}")
                lines += self._picture(stage.where) if with_map else []
        for finding in self.findings:
            is_told = finding.message in str(self.verdict.reason)  # the first one, by the stage
            if not is_told:
                lines.append(f"{'✗' if finding.is_error else '·'} {finding.at(self.kernel.file)}")
        return lines

    def _picture(self, where: ErrorMap | None) -> list[str]:
        """Return a map of C with a line that explains it; nothing where it would be the same all over."""
        if where is None or where.is_everywhere:
            return []
        height, width = where.tile
        which = "C" if isinstance(self.shape, Shape) else "the output"
        key = f"{which} in tiles of {height} x {width}: . right, o some elements wrong, # all"
        return [f"    {line}" for line in (key, *where.picture().splitlines())]

    def _about(self) -> list[str]:
        """Return the label, and what was read from the source."""
        return [self.title, *(f"· {words}" for words in self.kernel.adapted)]

    def _counts(self) -> list[str]:
        """Return what passed, and the resources."""
        compiled = self.compiled
        verdict = self.verdict
        lines = list[str]()
        right = [stage for stage in verdict.stages if stage.passed]
        if right:
            names = "; ".join(stage.name for stage in right if not stage.note)
            noted = "; ".join(stage.name for stage in right if stage.note)
            names += f"; with a remark: {noted}" if noted else ""
            lines.append(f"✓ {len(right)} stage{'s' * (len(right) > 1)} passed: {names}")
        lines += [f"✓ {stage.name}: {stage.detail}" for stage in right if stage.limit]
        is_emulated = self.label.startswith("emulated") or any(
            "(emulated)" in stage.name for stage in verdict.stages
        )
        if is_emulated and verdict.accepted and not self.findings:
            lines.append(
                "✓ no race, access out of bounds or uninitialized read in any launch on the emulator"
            )
        if compiled is not None:
            lines.append(
                f"{compiled.registers} registers and {compiled.stack_bytes} bytes of local memory per thread, "
                f"{compiled.shared_bytes + compiled.program.shared} bytes of shared memory per block ({compiled.arch})"
            )
        return lines

    def _remarks(self) -> list[str]:
        """Return warnings, and notes: of a stage with its name."""
        lines = [f"! {warning}" for warning in self.all_warnings]
        for stage in self.verdict.stages:
            if stage.note and stage.note not in self.all_warnings:
                lines.append(f"· {stage.name}: {stage.note}")
        return [*lines, *(f"· {note}" for note in self.notes)]

    def _repr_html_(self) -> str:
        places = [finding.at(self.kernel.file) for finding in self.findings]
        notes = [
            *self.kernel.adapted,
            *places,
            *(f"| {line}" for line in self.printed),
            *self.notes,
        ]
        return replace(
            replace(self.verdict, label=self.title).table(), notes=[*notes, *self.all_warnings]
        ).html()


def check(
    what: Kernel,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    seed: int | None = None,
    budget: int = BUDGET,
    beside: bool = False,
    quick: bool = False,
    progress: Progress = silent,
    begun: Callable[[Checked], None] = lambda known: None,
) -> Checked:
    """Check a kernel or a host function at every stage of the gate; or a solution at every case of its problem, on the
    emulator at the small ones. In this process: see check_in_child.

    shape: the benchmark's (default: 1024 padded to the domain on a GPU, a small one on the emulator). on: "gpu" or
    "emulated"; None takes the GPU where there is one. seed: of the inputs, for a solution of the sentinels (default:
    drawn now; the verdict on a kernel states it). budget: as for worklog.emulator.launch. beside: a GPU checks it too,
    so an endless launch is a BadSetting. quick: search rare paths on the emulator for a shorter time. progress: called
    before each launch, with a total of 0, since their number isn't known before the last one; for a solution before
    each case. begun: called before the first launch with a result without stages. Raises NoGpu, CompileFailed,
    BadSetting, OutOfMemory.
    """
    what = completed(what)
    live = wants_gpu(on) or what.host is not None
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    if live and on == "emulated":
        raise BadSetting(
            f"{what.name} is a host function, which the emulator cannot run: check it on a GPU"
        )
    if live:
        require_gpu()
    on_gpu = gpu() if live else None
    if isinstance(what, Solution):
        posed = find_problem(what.problem, what.dtype)
        cases, large = ([*posed.tests[0], *posed.tests[1]], []) if live else small_cases(posed)
        notes = (
            (f"too large for the emulator, checked on a GPU: case {', case '.join(large)}",)
            if large
            else ()
        )
        label = f"live · {on_gpu.name}" if on_gpu else "emulated"
        known = Checked(
            what, Verdict((), None), f"{posed.name} in {posed.dtype}", label, notes=notes
        )
        begun(known)
        device = device_of(live, budget)
        verdict = gate.check_cases(
            what.load(device), posed, cases, device, seed=seed, progress=progress
        )
        told = getattr(device, "findings", ())
    else:
        shape = shape or (
            what.domain.padded(Shape.of(GPU_SIZE)) if live else gate.edge_shapes(what.domain)[-1]
        )
        what.check(shape)
        known = Checked(
            what, Verdict((), None), shape, f"live · {on_gpu.name} · {LABEL}" if on_gpu else ""
        )
        if what.host is None:
            compiled, label = gate.compile_for(
                what.at(shape, on_gpu.arch if on_gpu else ARCH), on_gpu
            )
            gate.require_blocks(what)
            mix = compiled.mix
            about: dict[str, Any] = {
                "notes": tuple(mix.notes),
                "warnings": tuple(mix.warnings(what.claimed)),
            }
            known = replace(known, label=label, compiled=replace(compiled, cubin=b""), **about)
        if not live:
            needed = EMULATED_COPIES * shape.compulsory_bytes
            emulator.require_memory(needed, f"size {shape} on the emulator", "use a smaller size")
        begun(known)
        device = device_of(live, budget)
        if isinstance(device, EmulatedDevice) and beside:
            device.most_instructions = MOST_BESIDE
        subject = what.load(device)
        _report_launches(subject, device, progress, beside, shape)
        checker = SgemmChecker(device, shape, seed, quick=quick)
        verdict = checker.check(subject)
        told = tuple(getattr(device, "findings", ()))  # without those of launches for advice
        if known.compiled and not verdict.accepted:
            verdict, advice = gate.explained(verdict, what, known.compiled, subject, checker, told)
            # The domain that the grid implies is no advice where a narrower one is right.
            is_stale = any("--domain '" in note for note in advice)
            left = what.warnings
            if is_stale:
                left = tuple(said for said in left if not said.startswith(INFERRED_DOMAIN))
            known = replace(
                known, kernel=replace(what, warnings=left), notes=(*known.notes, *advice)
            )
    findings: dict[tuple[str, int, int | None], Finding] = {}
    for finding in told:
        if not (verdict.accepted and finding.is_error):  # these are of launches that may fail
            findings.setdefault((finding.kind, finding.line, finding.other_line), finding)
    label = device.label if isinstance(device, EmulatedDevice) else known.label
    inferred = (
        stage.note for stage in verdict.stages if stage.name in (ALIGNMENT, OLD_C) and stage.note
    )
    return replace(
        known,
        label=label,
        verdict=verdict,
        findings=tuple(findings.values()),
        printed=getattr(device, "printed", ()),
        warnings=(*known.warnings, *inferred),
    )


def small_cases(problem: Problem) -> tuple[list[Words], list[str]]:
    """Samples and test cases that the emulator can run, and the names of the others. Raises BadSetting where none is
    small enough.
    """
    kept = list[Words]()
    left = list[str]()
    for words in (*problem.tests[0], *problem.tests[1]):
        name = words["name"]
        small = (called(problem, "get_flops", words, case=name) or 0) <= EMULATED_FLOPS
        if small:  # only then are its inputs made
            inputs = each(called(problem, "create_inputs", of=words["create_inputs"], case=name))
            small = sum(value.nbytes for value in inputs if is_array(value)) <= EMULATED_BYTES
        kept += [words] if small else []
        left += [] if small else [name]
    if not kept:
        raise BadSetting(
            f"{problem.name} has no case that is small enough for the emulator: return one from generate_sample, with "
            f"at most {EMULATED_FLOPS:,} operations and {EMULATED_BYTES / 2**20:.0f} MiB of inputs"
        )
    return kept, left


def _report_launches(
    subject: Runnable, device: Device, progress: Progress, beside: bool, largest: Shape
) -> None:
    """Call progress before each launch of the subject, and again and again during one on the emulator. beside: an
    endless launch there is a BadSetting. largest: the shape that the check's time depends on.
    """
    enqueue = subject.enqueue
    launches = 0
    finished = 0
    whole = estimate.LAUNCHES * estimate.work(largest)

    def share(work: float) -> str:
        return f"about {min(99.0, 100 * work / whole):.1f} % of the check"

    def report(shape: Shape, *arguments: Any) -> None:
        nonlocal launches, finished
        number, launches = launches, launches + 1
        doing = f"launch {launches} at {shape}"
        progress(number, 0, doing)
        if isinstance(device, EmulatedDevice):
            device.progress = lambda done, blocks: progress(
                number,
                0,
                f"{doing}: {done:,} of {blocks:,} blocks, "
                f"{share(finished + done / blocks * estimate.work(shape))}",
            )
        try:
            enqueue(shape, *arguments)
        except BudgetExceeded as error:
            if beside and str(error).startswith("after"):  # no deadlock: the GPU decides
                raise BadSetting(str(error)) from error
            raise
        finished += estimate.work(shape)
        if isinstance(device, EmulatedDevice):
            device.progress = lambda done, blocks: progress(
                number, 0, f"{doing}: checking its result, {share(finished)}"
            )

    subject.enqueue = report  # type: ignore[method-assign]


def check_in_child(
    what: Kernel,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    emulate: bool = True,
    seed: int | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = silent,
    command: Sequence[str] | None = None,
    budget: int = BUDGET,
    quick: bool = False,
) -> Checked:
    """check() in a child process: a kernel that hangs, crashes or exits fails, and nothing else is harmed. While the
    child works on a GPU, this process runs the kernel on the emulator at small shapes, for its races and for code that
    never runs: one verdict has the stages of both. emulate: False leaves that out.

    timeout_s: seconds that one launch may take on a GPU before the kernel counts as hung; the emulator ends an endless
    kernel by itself. progress: called at each launch, and twice a second in between, with a total of 0. command: as in
    worklog.runner.measure.carry_out. Raises what check() raises, and Interrupted.
    """

    from worklog.runner.child import run_child  # here: the emulator alone needs no process

    def emulating(done: int, total: int, doing: str) -> None:
        if child.done():
            child.result()  # raises what has ended it
            progress(done, total, f"{doing}, emulated")

    what = completed(what)
    live = what.host is not None or wants_gpu(on)
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    how: dict[str, Any] = {"seed": seed, "budget": budget, "quick": quick}
    order = {"do": "check", "what": what, "how": {"shape": shape, "on": on, **how}}
    why_not = "a host function" if what.host is not None else "" if emulate else "--no-emulate"
    emulated: Checked | None = None
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        limits: dict[str, Any] = {
            "timeout_s": timeout_s if live else math.inf,
            "stop": stop,
            "command": command,
        }
        child = pool.submit(lambda: [*run_child(order, progress, **limits)])
        try:
            if live and not why_not:
                try:
                    emulated = check(what, on="emulated", beside=True, progress=emulating, **how)
                except Interrupted:
                    raise
                except WorklogError as error:
                    why_not = str(error).partition("\n")[0]
                except Exception as error:  # of any kind: the GPU's verdict stands
                    why_not = kind_and_message(error)
            *answers, end = child.result()
        except KeyboardInterrupt as interrupt:
            raise Interrupted(
                f"interrupted: {what.name} was not checked, and its process has ended"
            ) from interrupt
        finally:
            stop.set()
    known = [
        answer["checked"] for answer in answers if "checked" in answer
    ]  # the first one without stages
    if not known:
        raise end.error()
    checked: Checked = known[-1]
    if all(answer["is"] != "checked" for answer in answers):
        checked = replace(
            checked, verdict=Verdict((end.stage(what, emulated=True),), None, seed=seed)
        )
    if live and emulated is None:
        note = (
            f"not run on the emulator ({why_not}): it looks for races and for code that never runs"
        )
        checked = replace(checked, notes=(*checked.notes, note))
    if emulated is None:
        return checked
    stages = [replace(stage, name=f"{stage.name} (emulated)") for stage in emulated.verdict.stages]
    return replace(
        emulated,
        shape=checked.shape,
        compiled=checked.compiled,
        label=f"{checked.label} · beside {emulated.label}",
        verdict=checked.verdict.and_then(*stages),
        notes=tuple(dict.fromkeys(checked.notes + emulated.notes)),
        warnings=tuple(dict.fromkeys(checked.warnings + emulated.warnings)),
    )


def answer(order: Mapping[str, Any], say: Say) -> None:
    """Check a kernel or a solution. Answers: "begun" with what is known before a launch, then "checked" with all."""
    checked = check(
        order["what"],
        **order["how"],
        progress=lambda done, _, doing: say("progress", done=done, doing=doing),
        begun=lambda begun: say("begun", checked=begun),
    )
    say("checked", checked=checked)


def wants_gpu(on: str | None) -> bool:
    """Whether check() would take the GPU."""
    return on == "gpu" if on is not None else gpu_reason() is None


def device_of(live: bool, budget: int = BUDGET) -> Device:
    """The GPU, or the emulator, with its budget."""
    if not live:
        return EmulatedDevice(budget=budget)
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()
