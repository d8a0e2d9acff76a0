"""What commands measure and check, from the words of the command line: kernels, sizes, and a preview of them; and with
`--problem`, solutions of problems other than the ladder's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.cli.output import progress_bar, show, typed
from worklog.errors import BadSetting, CompileFailed, NvrtcMissing, meant
from worklog.gpu import device
from worklog.kernel import DEFAULTS, RUNGS, Kernel, instances, kernel_of
from worklog.problem import Axis, Space
from worklog.runner.job import BASELINE, Job, estimate
from worklog.settings import OPTIONS, Harness

if TYPE_CHECKING:
    from worklog.kernel.solution import Solution
    from worklog.runs import Run

TORCH = "torch"  # the baseline that isn't a rung
TAKEN = ("entry", "grid", "block", "include", "define", "arrays")  # options of a user kernel that a solution takes


def both_axes(words: Sequence[str]) -> tuple[list[Axis], list[Axis]]:
    """The axes M, N and K, and the others. Raises BadSetting."""
    axes = [Axis.parse(word) for word in words]
    return [axis for axis in axes if axis.name in ("M", "N", "K")], [a for a in axes if a.name not in ("M", "N", "K")]


def kernels_of(words: Sequence[str], axes: Sequence[Axis], **launch: Any) -> list[str | Kernel]:
    """Rungs and cuBLAS by name, and user kernels; a file's kernel has the name of its file. axes: template arguments of
    user kernels. Raises what worklog.kernel.ladder and compilable() raise, and BadSetting for a launch option that no
    kernel takes.
    """
    named = {record.name: record.name for record in RUNGS} | {BASELINE.lower(): BASELINE}
    listed: list[str] = []
    for word in words:
        listed += [word] if Path(word).exists() else word.strip(" ,").split(",")
    found: list[str | Kernel] = []
    for word in map(str.strip, listed):
        if word.lower() in named:
            found.append(named[word.lower()])
        else:
            found += compilable(instances(word, axes, launch) if axes else [kernel_of(word, launch)])
    if any(isinstance(kernel, Kernel) for kernel in found):
        return found if BASELINE in found else [*found, BASELINE]
    if axes:
        raise BadSetting(
            f"--axis {axes[0].name} stands for a template argument of a user kernel: name its file too (the axes of a "
            "problem are N, M and K)"
        )
    kernel_of(RUNGS[0].name, launch)  # raises BadSetting for an option that no rung takes
    return found


def baselines_of(words: str, **launch: Any) -> list[str | Kernel]:
    """The baselines beside cuBLAS: torch and rungs by name, and user kernels by their files. Raises what
    worklog.kernel.ladder raises, and BadSetting for a name that nothing has.
    """
    from worklog.kernel.pytorch import PRODUCT

    found, rungs = list[str | Kernel](), [record.name for record in RUNGS]
    for word in filter(None, (word.strip() for word in words.split(","))):
        if word.lower() == BASELINE.lower():
            continue
        if word.lower() == TORCH:
            found.append(Kernel.from_function(PRODUCT))
        elif word.lower() in rungs:
            found.append(word.lower())
        elif Path(word.partition(":")[0]).exists():
            found.append(kernel_of(word, launch))
        else:
            near = meant(word, [TORCH, *rungs])
            raise BadSetting(
                f"--against {word}: there is no such kernel{near}: name {BASELINE}, {TORCH}, a rung or a file"
            )
    return found


def compilable(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The instances of one user kernel. One that does not compile is marked as skipped, with the compiler's first line
    as the reason, before anything is measured.

    They are compiled for this GPU; without one, for the emulator, if NVRTC is installed. Raises CompileFailed if no
    instance compiles, and BadSetting for a signature other than the ladder's.
    """
    from worklog.runner.check import compile_for  # imported here: a run of rungs needs neither it nor the emulator

    live = device.gpu_reason() is None
    found: list[Kernel] = []
    errors: list[CompileFailed] = []
    for kernel in kernels:
        try:
            if kernel.host is None:
                compile_for(kernel, live)
            found.append(kernel)
        except CompileFailed as error:
            errors.append(error)
            found.append(replace(kernel, skipped=f"it does not compile: {str(error).splitlines()[0]}"))
        except NvrtcMissing:
            if live:
                raise
            found.append(kernel)
    if len(errors) == len(kernels):
        raise errors[0]
    return found


def show_preview(tasks: Sequence[Job], user_kernels: Sequence[Kernel], harness: Harness) -> None:
    """Print the number of measurements and a rough time for them."""
    skipped = {kernel.name: kernel.skipped for kernel in user_kernels if kernel.skipped}
    kept = [task for task in tasks if task.kernel not in skipped]
    seconds, source = estimate(kept, harness)
    takes = {task: {"seconds": round(its, 2)} for task, its in zip(kept, seconds, strict=True)}
    rows = [
        {"kernel": task.kernel, "against": list(task.baselines), **asdict(task.problem)}
        | takes.get(task, {"skipped": skipped.get(task.kernel)})
        for task in tasks
    ]
    names, written = dict.fromkeys(task.kernel for task in tasks), dict.fromkeys(str(task.problem) for task in tasks)
    axes = (Axis("kernels", tuple(names), "str"), Axis("sizes", tuple(written), "str"))
    space = Space("run", axes, lambda point: skipped.get(str(point["kernels"])))
    show(
        {"rates": source, "points": len(rows), "seconds": round(sum(seconds), 2), "measurements": rows},
        f"{space.preview(sum(seconds) / len(seconds))} (rough; rates: {source})",
    )


def problem() -> str | None:
    """What --problem names. Raises BadSetting for --dtype or --case without it."""
    named: str | None = typed("problem")
    if named is None and typed("case"):
        raise BadSetting("--case needs --problem: the cases of the ladder's SGEMM are sizes, as in --size 1024")
    if named is None and typed("dtype"):
        raise BadSetting("--dtype needs --problem: the ladder computes in float32; --class names a precision class")
    return named


def solution_of(what: str, launch: Mapping[str, Any], others: Mapping[str, object]) -> Solution:
    """The solution that a command names. launch: the options of a user kernel. others: options that the command takes
    for the ladder's problem only, and what was given. Raises BadSetting for one that was given.
    """
    from worklog.kernel.solution import Solution  # here and below: a run of rungs needs none of them

    given = {name: value for name, value in launch.items() if value is not None and value != DEFAULTS[name]}
    wrong = [name for name in given if name not in TAKEN] + [name for name, value in others.items() if value]
    if wrong:
        flag = OPTIONS[wrong[0]].flags[-1] if wrong[0] in OPTIONS else f"--{wrong[0]}"
        raise BadSetting(f"{flag} is for the ladder's SGEMM: omit it, or omit --problem")
    return Solution.of(what, **{name: value for name, value in given.items() if name in TAKEN})


def run_solutions(
    files: Sequence[str], harness: Harness, out: Path | None, launch: Mapping[str, Any], **others: Any
) -> Run:
    """Measure solutions at the cases of a problem. others: as for solution_of. Raises what
    worklog.runner.solved.measure() raises.
    """
    from worklog.runner import solved

    if not files:
        raise BadSetting("--problem needs a solution: name a .cu file, or a Python function as file.py:function")
    named, how = typed("problem"), {"cases": typed("case"), "harness": harness, "out": out}
    solutions = [solution_of(file, launch, others) for file in files]
    device.require_gpu(f"`worklog check FILE --problem {shlex.quote(named)}` checks a .cu file on the emulator")
    with progress_bar() as progress:
        return solved.measure(solutions, named, typed("dtype"), progress=progress, **how)
