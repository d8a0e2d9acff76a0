"""What commands measure, from the words of the command line: kernels and baselines; whether to, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from worklog.cli import output
from worklog.errors import BadSetting, CompileFailed, NvrtcMissing, meant
from worklog.gpu import device
from worklog.kernel import RUNGS, Kernel, instances, kernel_of
from worklog.kernel.pytorch import PRODUCT
from worklog.problem import Axis, spoken
from worklog.runner import measure
from worklog.runner.job import BASELINE, SECONDS_EACH, Job

TORCH = "torch"  # the baseline that isn't a rung
NAMES = {name.lower(): name for name in (*(rung.name for rung in RUNGS), BASELINE, TORCH)}


def live_wanted(**given: object) -> bool:
    """Whether to measure; if not, an option that needs it raises BadSetting where it is given."""
    live = measure.live_wanted()
    for option, value in given.items():
        if value and not live:
            raise BadSetting(f"--{option} needs a live measurement, and there is no GPU here: omit it")
    return live


def kernel_named(word: str, launch: Mapping[str, Any]) -> str | Kernel:
    """A rung or cuBLAS by its name, torch, or a user kernel by its file and function, which has the name of its file.
    Raises what worklog.kernel.ladder raises, and BadSetting for a name that nothing has.
    """
    name = NAMES.get(word.lower())
    if name is not None:
        return Kernel.from_function(PRODUCT) if name == TORCH else name
    if not (":" in word or Path(word).suffix or Path(word).exists() or Path(f"{word}.cu").exists()):
        near = meant(word, NAMES.values())
        raise BadSetting(f"there is no kernel {word!r}{near}: name a file, or {', '.join(NAMES.values())}")
    return kernel_of(word, launch)


def kernels_of(words: Sequence[str], axes: Sequence[Axis], launch: Mapping[str, Any]) -> list[str | Kernel]:
    """The kernels to measure, with cuBLAS beside those of a user. axes: template arguments of user kernels. Raises what
    kernel_named() and compilable() raise, and BadSetting for an axis or a launch option that no kernel takes.
    """
    names, chosen = list[str](), list[str | Kernel]()
    for word in words:
        names += [word] if Path(word).exists() else filter(None, map(str.strip, word.split(",")))
    for word in names:
        own = axes and word.lower() not in NAMES
        chosen += compilable(instances(word, axes, launch)) if own else [kernel_named(word, launch)]
    if any(isinstance(kernel, Kernel) for kernel in chosen):
        return chosen if BASELINE in chosen else [*chosen, BASELINE]
    if axes:
        raise BadSetting(
            f"--axis {axes[0].name} stands for a template argument of a user kernel: name its file too (the axes of a "
            "problem are N, M and K)"
        )
    kernel_of(RUNGS[0].name, launch)  # raises BadSetting for an option that no rung takes
    return chosen


def baselines_of(words: str, launch: Mapping[str, Any]) -> list[str | Kernel]:
    """The baselines beside cuBLAS."""
    named = [kernel_named(word, launch) for word in map(str.strip, words.split(",")) if word]
    return [kernel for kernel in named if kernel != BASELINE]


def compilable(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The instances of one user kernel, compiled for this GPU or, without one, for the emulator. One that does not
    compile is skipped, with the compiler's first line as the reason, before anything is measured. Raises CompileFailed
    if none compiles, and BadSetting for a signature other than the ladder's.
    """
    from worklog.runner.compiled import compile_for  # here: a run of rungs needs neither it nor the emulator

    live = device.gpu_reason() is None
    marked, errors = list[Kernel](), list[CompileFailed]()
    for kernel in kernels:
        try:
            compile_for(kernel, live)
        except CompileFailed as error:
            errors.append(error)
            kernel = replace(kernel, skipped=f"it does not compile: {str(error).splitlines()[0]}")
        except NvrtcMissing:
            if live:
                raise
        marked.append(kernel)
    if len(errors) == len(kernels):
        raise errors[0]
    return marked


def print_preview(jobs: Sequence[Job], as_json: bool, skipped: Mapping[str, str] = {}) -> None:
    """Print the number of measurements and a rough time for them. skipped: reasons, by kernel."""
    rows = list[dict[str, Any]]()
    for job in jobs:
        rows.append({"kernel": job.kernel, "against": [*job.baselines], "set": job.pitfalls, **asdict(job.problem)})
        rows[-1] |= {"skipped": skipped[job.kernel]} if skipped.get(job.kernel) else {}
    left = sum("skipped" not in row for row in rows)
    skips = f" ({len(jobs) - left} of them skipped)" if left < len(jobs) else ""
    text = f"{len(jobs)} measurements{skips}, about {spoken(SECONDS_EACH * left)}"
    text += "".join(f"\n{name} skipped: {reason}" for name, reason in skipped.items() if reason)
    output.show({"points": len(jobs), "seconds": SECONDS_EACH * left, "measurements": rows}, text, as_json)
