"""Check kernels without timing them.

A kernel or a host function goes through every stage of the gate, a solution through every case of
its problem. The check runs on a GPU if there is one, else on the emulator at a small size, and the
result states which. A kernel is compiled with NVRTC in either case, so its resources and a wrong
signature are known before anything is launched.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from worklog import gate
from worklog.emulator import Finding
from worklog.emulator.launching import BUDGET
from worklog.emulator.limits import Chip
from worklog.emulator.memory import require_memory
from worklog.emulator.reports import BudgetExceeded
from worklog.errors import BadSetting, Interrupted, WorklogError, kind_and_message
from worklog.gate import ALIGNMENT, OLD_C, SEED_BITS, SgemmChecker
from worklog.gate.bounds import check_array_bounds, check_bounds_of_solution
from worklog.gate.limits import require_grid
from worklog.gpu.device import gpu, gpu_reason, require_gpu
from worklog.kernel import LABEL, Compiled, Device, Kernel, Runnable
from worklog.kernel.clang import NOTE
from worklog.kernel.emulated import CHIP, EmulatedDevice
from worklog.kernel.launchable import compile_for
from worklog.kernel.solution import Solution, find_problem
from worklog.kernel.trial import completed
from worklog.problem import Problem, Shape, Words, called
from worklog.problem.arrays import each, is_array
from worklog.runner import estimate
from worklog.runner.messages import CheckBegun, CheckEnded, CheckOrder, Progressed
from worklog.runs import ErrorMap, Gpu, Verdict
from worklog.runs.text import Progress, silent

if TYPE_CHECKING:
    from worklog.proof import Proof

TIMEOUT_S = 60.0
GPU_SIZE = 1024
# Instructions of warps on the emulator if a GPU also checks the kernel: about a minute.
MOST_BESIDE = 600_000_000
# The largest case on the emulator: beyond these limits it takes more than some seconds.
EMULATED_FLOPS = 2**24
EMULATED_BYTES = 2**21
INFERRED_DOMAIN = "the domain is inferred from the grid"  # how the kernel's warning begins
MOST_LINES = 12  # of a report, behind the verdict and the findings
SHOWN_S = 0.05  # the least time that is shown
# Copies of A, B and C in float32: the gate's, the emulator's, and the references in float64.
EMULATED_COPIES = 8


@dataclass(frozen=True, repr=False)
class Checked:
    """The gate's verdict on a kernel, or on a solution of a problem. It displays itself."""

    kernel: Kernel
    verdict: Verdict
    shape: Shape | str  # of a matrix product, else the problem and its dtype as text
    label: str  # states where the kernel ran
    compiled: Compiled | None = None  # by NVRTC; None for a host function
    findings: tuple[Finding, ...] = ()  # the emulator's, of all launches; each kind and place once
    printed: tuple[str, ...] = ()  # lines of the first launch that prints, on the emulator
    notes: tuple[str, ...] = ()  # on the instruction mix (worklog.kernel.resources)
    warnings: tuple[str, ...] = ()  # the code contradicts the claimed class
    unchecked_arrays: str = ""  # why the bounds of arrays weren't checked, on the emulator
    proof: Proof | None = None  # what holds for every shape, if a proof was tried

    def __post_init__(self) -> None:
        # The verdict has the label, so that it may be shown alone.
        object.__setattr__(self, "verdict", replace(self.verdict, label=self.label))

    @property
    def title(self) -> str:
        """File, kernel, shape or problem, and label."""
        place = "at" if isinstance(self.shape, Shape) else "for"
        return f"{self.kernel.file}: {self.kernel.entry} {place} {self.shape} · {self.label}"

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The kernel's warnings, and the warnings on its code."""
        return (*self.kernel.warnings, *self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        document: dict[str, Any] = {"kernel": self.kernel.entry, "label": self.label}
        if isinstance(self.shape, Shape):
            document["shape"] = [self.shape.m, self.shape.n, self.shape.k]
        else:
            document["problem"] = self.shape
        if self.compiled:
            for name in ("registers", "stack_bytes", "shared_bytes", "arch"):
                value = getattr(self.compiled, name)
                document[name] = value if self.compiled.has_resources or name == "arch" else None
        document["findings"] = [asdict(finding) for finding in self.findings]
        document["printed"] = list(self.printed)
        document["adapted"] = list(self.kernel.adapted)
        document["unchecked_arrays"] = self.unchecked_arrays
        document["proof"] = self.proof.as_dict() if self.proof else None
        document["notes"] = [*self.verdict.notes, *self.notes]
        document["warnings"] = list(self.all_warnings)
        return document | self.verdict.as_dict()

    def report(self, *lines: str) -> str:
        """Return the verdict, the errors and at most MOST_LINES lines about the check.

        lines: the caller's, printed below the lines about the kernel
        """
        about = [*self._about(), *self.remarks(), *self._counts(), *lines]
        if self.verdict.seconds >= SHOWN_S:
            about.append(f"time: {self.verdict.seconds:.1f} s")
        if len(about) > MOST_LINES:
            left = len(about) - MOST_LINES + 1
            about[MOST_LINES - 1 :] = [f"… and {left} more lines, which --json has"]
        return "\n".join([self._verdict(), *self._findings(), *about])

    def __repr__(self) -> str:
        """Return the report for a terminal."""
        return self.report()

    def brief(self, max_lines: int) -> str:
        """Return the verdict, what is wrong and the advice, without a map of C.

        max_lines: the number of lines, the last of which counts the lines that don't fit
        """
        wrong = self._wrong()
        advice = [f"· {note}" for note in self._advice()]
        lines = "\n".join([self._verdict(), *wrong[:1], *advice, *wrong[1:]]).splitlines()
        if len(lines) > max_lines:
            left = len(lines) - max_lines + 1
            lines[max_lines - 1 :] = [f"… and {left} more lines"]
        return "\n".join(lines)

    @property
    def result(self) -> str:
        """The result and the warnings that leave shapes unchecked, without the seed."""
        verdict = self.verdict
        if verdict.failed is not None:
            return f"{verdict.result} at {verdict.failed.name}"
        warnings = [f" ({warning.partition(';')[0]})" for warning in self.kernel.warnings]
        tested = verdict.result + "".join(warnings)
        return f"tested: {tested}; {self.proof.summary}" if self.proof else tested

    def _verdict(self) -> str:
        """Return the result and the seed."""
        seed = self.verdict.seed
        return self.result if seed is None else f"{self.result} (seed {seed})"

    def _advice(self) -> list[str]:
        """Return the notes about a failure, without those about the instructions."""
        instruction_notes = self.compiled.mix.notes if self.compiled else ()
        return [note for note in self.notes if note not in instruction_notes]

    def _findings(self) -> list[str]:
        """Return the failed stage, a map of the errors in C, the findings and the output."""
        return [*self._wrong(with_map=True), *(f"| {line}" for line in self.printed)]

    def _wrong(self, *, with_map: bool = False) -> list[str]:
        """Return the stage that failed, with a map of where C is wrong, and the findings."""
        lines: list[str] = []
        for stage in self.verdict.stages:
            if stage.passed:
                continue
            lines.append(f"✗ {stage.name}: {stage.detail}")
            if with_map:
                lines += self._picture(stage.where)
        for finding in self.findings:
            # The stage's detail already reports the first finding.
            is_reported = finding.message in str(self.verdict.reason)
            if not is_reported:
                lines.append(f"{'✗' if finding.is_error else '·'} {finding.at(self.kernel.file)}")
        return lines

    def _picture(self, errors: ErrorMap | None) -> list[str]:
        """Return a map of C with its legend; no lines if the map is the same everywhere."""
        if errors is None or errors.is_everywhere:
            return []
        height, width = errors.tile
        output = "C" if isinstance(self.shape, Shape) else "the output"
        legend = f"{output} in tiles of {height} x {width}: . right, o some elements wrong, # all"
        return [f"    {line}" for line in (legend, *errors.picture().splitlines())]

    def _about(self) -> list[str]:
        """Return the title, the proof, and the remarks on what was read from the source."""
        lines = [self.title]
        if self.proof:
            mark = "✓" if self.proof.is_proved else "·"
            lines += [f"{mark} {line}" for line in self.proof.lines]
        return [*lines, *(f"· {remark}" for remark in self.kernel.adapted)]

    def _counts(self) -> list[str]:
        """Return the stages that passed and the resources."""
        lines = self._passed_stages()
        if self._is_emulated() and self.verdict.accepted and not self.findings:
            lines.append(
                "✓ no race, access out of bounds or uninitialized read in any launch on the "
                "emulator"
            )
            if self.unchecked_arrays:
                lines[-1] += f"; local arrays not checked: {self.unchecked_arrays}"
        compiled = self.compiled
        if compiled is not None and compiled.has_resources:
            lines.append(
                f"{compiled.registers} registers and {compiled.stack_bytes} bytes of local memory "
                "per thread, "
                f"{compiled.shared_bytes + compiled.program.shared} bytes of shared memory per "
                f"block ({compiled.arch})"
            )
        return lines

    def _passed_stages(self) -> list[str]:
        """Return a line with the names of all stages that passed, and the details of some."""
        passed = [stage for stage in self.verdict.stages if stage.passed]
        if not passed:
            return []
        names = "; ".join(stage.name for stage in passed if not stage.note)
        with_notes = "; ".join(stage.name for stage in passed if stage.note)
        if with_notes:
            names += f"; with a remark: {with_notes}"
        plural = "s" if len(passed) > 1 else ""
        line = f"✓ {len(passed)} stage{plural} passed: {names}"
        return [line, *(f"✓ {stage.name}: {stage.detail}" for stage in passed if stage.limit)]

    def _is_emulated(self) -> bool:
        """Return whether some stage ran on the emulator."""
        if self.label.startswith("emulated"):
            return True
        return any("(emulated)" in stage.name for stage in self.verdict.stages)

    def remarks(self) -> list[str]:
        """Return the warnings and the notes. A stage's note has the stage's name."""
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
        table = replace(self.verdict, label=self.title).table()
        return replace(table, notes=[*notes, *self.all_warnings]).html()


def check(
    kernel: Kernel,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    seed: int | None = None,
    budget: int = BUDGET,
    is_beside_gpu: bool = False,
    quick: bool = False,
    sweep: bool = False,
    progress: Progress = silent,
    begun: Callable[[Checked], None] = lambda _checked: None,
) -> Checked:
    """Check a kernel, a host function or a solution in this process.

    A kernel or a host function is checked at every stage of the gate, a solution at every case of
    its problem, on the emulator at the small cases. See check_in_child for another process.

    shape: the benchmark's (default: 1024 padded to the domain on a GPU, a small shape on the
        emulator)
    on: "gpu" or "emulated"; None chooses the GPU if there is one
    seed: of the inputs, for a solution of the sentinels (default: drawn now; the verdict on a
        kernel states it)
    budget: as for worklog.emulator.launch
    is_beside_gpu: whether a GPU also checks the kernel, so that an endless launch is a BadSetting
    quick: search rare paths on the emulator for a shorter time
    sweep: launch each size that the verdict states
    progress: called before each launch, with a total of 0, since the number of launches isn't known
        before the last launch; for a solution, called before each case
    begun: called before the first launch with a result without stages

    Raises NoGpu, CompileFailed, BadSetting and OutOfMemory.
    """
    kernel = completed(kernel)
    is_live = runs_live(kernel, on)
    if seed is None:
        seed = secrets.randbits(SEED_BITS)
    if is_live:
        require_gpu()
    found_gpu = gpu() if is_live else None
    if isinstance(kernel, Solution):
        return _check_solution(
            kernel, found_gpu, seed=seed, budget=budget, progress=progress, begun=begun
        )
    shape = shape or _default_shape(kernel, is_live)
    kernel.check(shape)
    checked = _compiled(kernel, shape, found_gpu)
    if not is_live:
        needed = EMULATED_COPIES * shape.compulsory_bytes
        require_memory(needed, f"size {shape} on the emulator", "use a smaller size")
    begun(checked)
    device = device_of(is_live, budget)
    if isinstance(device, EmulatedDevice) and is_beside_gpu:
        device.most_instructions = MOST_BESIDE
    subject = kernel.load(device)
    _report_launches(subject, device, progress, is_beside_gpu=is_beside_gpu, largest=shape)
    checker = SgemmChecker(device, shape, seed, types=kernel.types, quick=quick, sweep=sweep)
    # The emulator's products are small: a BLAS's threads would do little but wait for work.
    with threadpool_limits(None if is_live else 1, "blas"):
        verdict = checker.check(subject)
    findings = tuple(getattr(device, "findings", ()))  # without the findings of launches for advice
    if checked.compiled and not verdict.accepted:
        verdict, advice = gate.explained(
            verdict,
            kernel,
            compiled=checked.compiled,
            subject=subject,
            checker=checker,
            findings=findings,
        )
        checked = _with_advice(checked, advice)
    if isinstance(device, EmulatedDevice):
        arrays = check_array_bounds(kernel, shape, budget)
        checked = replace(checked, unchecked_arrays=arrays.unchecked)
        verdict = arrays.added_to(verdict)
    return _finished(checked, verdict, device, findings)


def _check_solution(
    solution: Solution,
    found_gpu: Gpu | None,
    *,
    seed: int,
    budget: int,
    progress: Progress,
    begun: Callable[[Checked], None],
) -> Checked:
    """Check a solution at every case of its problem, on the emulator at the small cases.

    found_gpu: the GPU that runs the check; None for the emulator
    """
    problem = find_problem(solution.problem, solution.dtype)
    notes: tuple[str, ...] = ()
    if found_gpu:
        cases = [*problem.tests[0], *problem.tests[1]]
        label = f"live · {found_gpu.name}"
    else:
        cases, large = small_cases(problem)
        label = "emulated"
        if large:
            names = ", case ".join(large)
            notes = (f"too large for the emulator, checked on a GPU: case {names}",)
    title = f"{problem.name} in {problem.dtype}"
    checked = Checked(solution, Verdict((), None), title, label, notes=notes)
    begun(checked)
    device = device_of(found_gpu is not None, budget)
    subject = solution.load(device)
    verdict = gate.check_cases(subject, problem, cases, device, seed=seed, progress=progress)
    if isinstance(device, EmulatedDevice):
        arrays = check_bounds_of_solution(solution, problem, cases, seed, budget)
        checked = replace(checked, unchecked_arrays=arrays.unchecked)
        verdict = arrays.added_to(verdict)
    return _finished(checked, verdict, device, getattr(device, "findings", ()))


def _default_shape(kernel: Kernel, is_live: bool) -> Shape:
    """Return 1024 padded to the domain on a GPU, a small shape on the emulator."""
    if is_live:
        return kernel.domain.padded(Shape.of(GPU_SIZE))
    return gate.edge_shapes(kernel.domain)[-1]


def _compiled(kernel: Kernel, shape: Shape, found_gpu: Gpu | None) -> Checked:
    """Return a result without stages, with the compiled kernel unless it is a host function.

    found_gpu: the GPU that runs the check; None for the emulator
    """
    label = f"live · {found_gpu.name} · {LABEL}" if found_gpu else ""
    checked = Checked(kernel, Verdict((), None), shape, label)
    if kernel.host is not None:
        return checked
    chip = Chip.of_gpu(found_gpu) if found_gpu else CHIP
    compiled, label = compile_for(kernel.at(shape, chip), found_gpu)
    gate.require_blocks(kernel)
    require_grid(kernel.at(shape, chip), shape)
    return replace(
        checked,
        label=label,
        compiled=replace(compiled, cubin=b""),
        notes=tuple(compiled.mix.notes if compiled.has_resources else [NOTE, *compiled.mix.notes]),
        warnings=tuple(compiled.mix.warnings(kernel.claimed, kernel.types)),
    )


def _with_advice(checked: Checked, advice: list[str]) -> Checked:
    """Return the result with notes about a failure.

    The warning about a domain that the grid implies is dropped if the advice is a narrower domain.
    """
    warnings = checked.kernel.warnings
    if any("--domain '" in note for note in advice):
        warnings = tuple(warning for warning in warnings if not warning.startswith(INFERRED_DOMAIN))
    kernel = replace(checked.kernel, warnings=warnings)
    return replace(checked, kernel=kernel, notes=(*checked.notes, *advice))


def _finished(
    checked: Checked, verdict: Verdict, device: Device, reported: Iterable[Finding]
) -> Checked:
    """Return the result with its verdict, and with each kind and place of finding once.

    reported: all findings of the device
    """
    findings: dict[tuple[str, int, int | None], Finding] = {}
    for finding in reported:
        # Errors of an accepted kernel come from launches that may fail.
        if not (verdict.accepted and finding.is_error):
            findings.setdefault((finding.kind, finding.line, finding.other_line), finding)
    inferred = [
        stage.note for stage in verdict.stages if stage.name in (ALIGNMENT, OLD_C) and stage.note
    ]
    return replace(
        checked,
        label=device.label if isinstance(device, EmulatedDevice) else checked.label,
        verdict=verdict,
        findings=tuple(findings.values()),
        printed=getattr(device, "printed", ()),
        warnings=(*checked.warnings, *inferred),
    )


def small_cases(problem: Problem) -> tuple[list[Words], list[str]]:
    """Return the cases that the emulator can run, and the names of the others.

    Raises BadSetting if no case is small enough.
    """
    small: list[Words] = []
    large: list[str] = []
    for case in (*problem.tests[0], *problem.tests[1]):
        if _is_small(problem, case):
            small.append(case)
        else:
            large.append(case["name"])
    if not small:
        raise BadSetting(
            f"{problem.name} has no case that is small enough for the emulator: return one from "
            "generate_sample, with "
            f"at most {EMULATED_FLOPS:,} operations and {EMULATED_BYTES / 2**20:.0f} MiB of inputs"
        )
    return small, large


def _is_small(problem: Problem, case: Words) -> bool:
    """Return whether the emulator can run a case. Only a case of few operations gets inputs."""
    name = case["name"]
    flops = called(problem, "get_flops", case, case=name) or 0
    if flops > EMULATED_FLOPS:
        return False
    inputs = each(called(problem, "create_inputs", of=case["create_inputs"], case=name))
    size_bytes: int = sum(value.nbytes for value in inputs if is_array(value))
    return size_bytes <= EMULATED_BYTES


def _report_launches(
    subject: Runnable, device: Device, progress: Progress, *, is_beside_gpu: bool, largest: Shape
) -> None:
    """Call progress before each launch, and repeatedly during a launch on the emulator.

    is_beside_gpu: whether a GPU also checks the kernel, so that an endless launch is a BadSetting
    largest: the shape that the check's time depends on
    """
    enqueue = subject.enqueue
    launches = 0
    finished_work = 0
    total_work = estimate.LAUNCHES * estimate.work(largest)

    def share(work: float) -> str:
        return f"about {min(99.0, 100 * work / total_work):.1f} % of the check"

    def report(shape: Shape, *arguments: Any) -> None:
        nonlocal launches, finished_work
        finished_launches = launches
        launches += 1
        title = f"launch {launches} at {shape}"
        work = estimate.work(shape)

        def report_blocks(finished: int, blocks: int) -> None:
            percent = share(finished_work + finished / blocks * work)
            progress(finished_launches, 0, f"{title}: {finished:,} of {blocks:,} blocks, {percent}")

        def report_check(_finished: int, _blocks: int) -> None:
            progress(finished_launches, 0, f"{title}: checking its result, {share(finished_work)}")

        progress(finished_launches, 0, title)
        if isinstance(device, EmulatedDevice):
            device.progress = report_blocks
        try:
            enqueue(shape, *arguments)
        except BudgetExceeded as error:
            # Without a deadlock, the GPU decides.
            if is_beside_gpu and str(error).startswith("after"):
                raise BadSetting(str(error)) from error
            raise
        finished_work += work
        if isinstance(device, EmulatedDevice):
            device.progress = report_check

    subject.enqueue = report  # type: ignore[method-assign]


def check_in_child(
    kernel: Kernel,
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
    sweep: bool = False,
) -> Checked:
    """Check in a child process: a kernel that hangs, crashes or exits only fails.

    While the child works on a GPU, this process runs the kernel on the emulator at small shapes, to
    find races and code that never runs. One verdict has the stages of both.

    emulate: whether to run the kernel on the emulator while the child works on a GPU
    timeout_s: seconds that one launch may take on a GPU before the kernel counts as hung; the
        emulator ends an endless kernel by itself
    progress: called at each launch, and twice a second in between, with a total of 0
    command: as for worklog.runner.execute.carry_out

    Raises what check() raises, and Interrupted.
    """
    # Here: the emulator alone needs no process.
    from worklog.runner.child import run_child

    kernel = completed(kernel)
    is_live = runs_live(kernel, on)
    if seed is None:
        seed = secrets.randbits(SEED_BITS)
    options: dict[str, Any] = {"seed": seed, "budget": budget, "quick": quick, "sweep": sweep}
    order = CheckOrder(kernel=kernel, shape=shape, on=on, **options)
    limit_s = timeout_s if is_live else math.inf
    reason = kernel.not_emulated or ("" if emulate else "--no-emulate")
    emulated: Checked | None = None
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(
            lambda: [*run_child(order, progress, timeout_s=limit_s, stop=stop, command=command)]
        )
        try:
            if is_live and not reason:
                emulated, reason = _emulated(kernel, child, progress, options)
            *answers, end = child.result()
        except KeyboardInterrupt as interrupt:
            raise Interrupted(
                f"interrupted: {kernel.name} was not checked, and its process has ended"
            ) from interrupt
        finally:
            stop.set()
    checked = _answered(kernel, answers, end, seed)
    if is_live and emulated is None:
        note = (
            f"not run on the emulator ({reason}): it looks for races and for code that never runs"
        )
        return replace(checked, notes=(*checked.notes, note))
    if emulated is None:
        return checked
    return _with_emulated(checked, emulated)


def _emulated(
    kernel: Kernel, child: Future[list[Any]], progress: Progress, options: dict[str, Any]
) -> tuple[Checked | None, str]:
    """Return the result of the emulator, or the reason why there is none.

    child: checks the kernel on a GPU meanwhile. Raises what has ended it.
    options: the seed, the budget and the effort of the check
    """

    def report(launches: int, total: int, title: str) -> None:
        if child.done():
            child.result()  # raises what has ended it
            progress(launches, total, f"{title}, emulated")

    try:
        return check(kernel, on="emulated", is_beside_gpu=True, progress=report, **options), ""
    except Interrupted:
        raise
    except WorklogError as error:
        return None, str(error).partition("\n")[0]
    except Exception as error:  # of any kind: the GPU's verdict stands
        return None, kind_and_message(error)


def _answered(kernel: Kernel, answers: Sequence[Any], end: Any, seed: int) -> Checked:
    """Return the child's result, failed if the child ended early.

    answers: the child's, of which the first result is without stages
    end: how the child ended. Raises its error if there is no result.
    """
    begun: Checked | None = None
    for answer in answers:
        if isinstance(answer, CheckEnded):
            checked: Checked = answer.checked
            return checked
        if isinstance(answer, CheckBegun):
            begun = answer.checked
    if begun is None:
        raise end.error()
    stage = end.stage(kernel, emulated=True)
    return replace(begun, verdict=Verdict((stage,), None, seed=seed))


def _with_emulated(checked: Checked, emulated: Checked) -> Checked:
    """Return one result with the stages of the GPU and of the emulator."""
    return replace(
        emulated,
        shape=checked.shape,
        compiled=checked.compiled,
        label=f"{checked.label} · beside {emulated.label}",
        verdict=checked.verdict.beside_emulated(emulated.verdict),
        notes=tuple(dict.fromkeys(checked.notes + emulated.notes)),
        warnings=tuple(dict.fromkeys(checked.warnings + emulated.warnings)),
    )


def answer(order: CheckOrder, pipe: Connection) -> None:
    """Check a kernel or a solution in a child process.

    Answers CheckBegun with what is known before a launch, then CheckEnded with the whole result.
    """
    checked = check(
        order.kernel,
        order.shape,
        on=order.on,
        seed=order.seed,
        budget=order.budget,
        quick=order.quick,
        sweep=order.sweep,
        progress=lambda launches, _, title: pipe.send(Progressed(launches, title)),
        begun=lambda checked: pipe.send(CheckBegun(checked)),
    )
    pipe.send(CheckEnded(checked))


def runs_live(kernel: Kernel, on: str | None) -> bool:
    """Return whether check() runs a kernel on the GPU.

    Raises BadSetting for another place, and for the emulator if only a GPU can run the kernel.
    """
    if on not in (None, "gpu", "emulated"):
        raise BadSetting(f"on = {on!r}: give gpu or emulated")
    if kernel.not_emulated and on == "emulated":
        raise BadSetting(
            f"{kernel.name} is {kernel.not_emulated}, which the emulator cannot run: "
            "check it on a GPU"
        )
    if on is None:
        return bool(kernel.not_emulated) or gpu_reason() is None
    return on == "gpu"


def device_of(live: bool, budget: int = BUDGET) -> Device:
    """Return the GPU, or the emulator with its budget."""
    if not live:
        return EmulatedDevice(budget=budget)
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()
