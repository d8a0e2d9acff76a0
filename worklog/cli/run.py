"""`worklog run`: check and time rungs, user kernels and solutions of a problem."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from worklog.cli import options
from worklog.errors import BadSetting, meant
from worklog.kernel import RUNGS, Kernel
from worklog.kernel.by_name import OPTIONS, at_revision
from worklog.kernel.ladder import NAMED, best
from worklog.kernel.solution import Solution
from worklog.kernel.trial import completed, kernel_of
from worklog.problem import Shape
from worklog.problem.axes import spoken
from worklog.problem.drawn_shapes import DRAWN, drawn
from worklog.runner import execute, measure, sources
from worklog.runner.job import ALGORITHMS, SECONDS_EACH, Job, algorithms_of, jobs_of
from worklog.runs import CUBLAS, CUBLASLT, Run
from worklog.runs.changes import of_one_loop
from worklog.runs.text import Table
from worklog.settings import Harness

# The baselines that aren't rungs: host functions
FUNCTIONS = {"torch": "worklog.kernel.pytorch:torch"}
LIBRARIES = (CUBLAS, CUBLASLT, *FUNCTIONS)
NAMES = {name.lower(): name for name in (*NAMED, *LIBRARIES)}


@click.command()
@options.kernel("kernels", "[RUNG|FILE.cu|FILE.py:FUNCTION|LIB.so:FUNCTION…]", nargs=-1)
@options.SIZES
@click.option(
    "--batch",
    "batches",
    multiple=True,
    metavar="COUNT[,COUNT…]",
    callback=lambda _, __, lists: _batches(lists),
    help=(
        "Products that a launch computes, for kernels that take `int batch` (default: 1). cuBLAS "
        "computes them by one call of its strided batched product."
    ),
)
@click.option(
    "--shapes",
    "count",
    type=options.Whole(1, 1000),
    metavar="COUNT",
    help=(
        f"Number of shapes to draw by --seed: {', '.join(DRAWN)}. The rung best was tuned at none "
        "of them. Prints the shares of cuBLAS, the geometric mean and the lowest."
    ),
)
@click.option(
    "--seed", type=options.Whole(), default=42, show_default=True, help="Seed of --shapes."
)
@click.option(
    "--against",
    default="",
    metavar="NAME[,NAME…]",
    shell_complete=options.name_completer(NAMES.values()),
    help=(
        f"Baselines beside {CUBLAS} and its own choice of algorithm: {CUBLASLT.lower()} (the "
        f"fastest of the {ALGORITHMS} algorithms that the library lists first; "
        f"{CUBLASLT.lower()}:N for N), {', '.join(FUNCTIONS)}, rungs, or your kernels, as FILE.cu, "
        "FILE.py:FUNCTION or LIB.so:FUNCTION. They alternate with each kernel in one loop."
    ),
)
@click.option(
    "--against-revision",
    "revision",
    metavar="REV",
    help="Git revision of the kernel to alternate with. Exits with 1 if the kernel became slower.",
)
@options.PROBLEM
@options.DTYPE
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help='Cases of --problem to run: a name, or "n=*".',
)
@options.launch
@options.ENERGY
@click.option(
    "--preview",
    is_flag=True,
    help="Show what would be measured and how long it takes. Needs no GPU.",
)
@options.measuring
def run(
    *,
    kernels: tuple[str, ...],
    shapes: list[Shape],
    batches: list[int],
    count: int | None,
    seed: int,
    against: str,
    revision: str | None,
    harness: Harness,
    problem: str | None,
    dtype: str,
    cases: tuple[str, ...],
    preview: bool,
    out: Path | None,
    as_json: bool,
    **files: Any,
) -> None:
    """Check and time rungs or your own kernels.

    The default is all rungs and cuBLAS, at 4096 or the given sizes. Without a GPU, rungs are
    shown from the recording. With --problem, check and time solutions of a problem at each of its
    cases, beside its baseline; --set warmup=tensara --set stopping=tensara measures as Tensara
    does.

    Exits with 1 if a kernel fails the check.
    """
    launch = {name: files.pop(name) for name in OPTIONS}
    if problem is not None:
        sgemm_options = {
            "--size": shapes,
            "--batch": batches,
            "--shapes": count,
            "--preview": preview,
            "--against": against,
            "--against-revision": revision,
        }
        solutions = _solutions(kernels, problem, dtype, launch=launch, sgemm_options=sgemm_options)
        with options.progress_bar() as progress:
            measured = measure.measure_solutions(
                solutions, cases=cases, harness=harness, progress=progress, out=out
            )
        finish(measured, as_json=as_json, **files)
        return
    options.require_no_case(dtype, cases)
    _require_one_choice_of_shapes(kernels, [*shapes, *batches], count)
    kinds = drawn(count, seed, best.table().shapes) if count else {}
    sizes = _in_batches([*shapes, *kinds] or [Shape.of(4096)], batches)
    names = _kernel_names(kernels)
    chosen, baselines = _choose(names, against, launch)
    if revision is not None:
        baselines.append(_at_revision(kernels, revision, launch))
        chosen = chosen[:1]
    options.print_adapted([*chosen, *baselines])
    jobs, user_kernels = jobs_of(chosen or None, sizes, against=baselines)
    order = execute.order_of(jobs, harness, user_kernels)
    if preview:
        _preview(jobs, user_kernels, SECONDS_EACH + harness.energy_s, as_json=as_json)
        return
    rungs = [kernel for kernel in chosen if isinstance(kernel, str)]
    biased: dict[str, Any] = harness.biased()  # with these, the recording holds some measurements
    _require_gpu_for_user_kernels(names, chosen)
    if len(rungs) < len(chosen) or options.live_wanted(
        out=out,
        energy=harness.energy_s,
        set=harness != Harness().but(**biased),
        **{"against-revision": revision},
        against=baselines,
    ):
        with options.progress_bar() as progress:
            measured = execute.carry_out(order, progress=progress, out=out)
    else:
        measured = _recorded(jobs, biased, is_whole_ladder=not chosen, is_drawn=bool(count))
    if count:
        _add_note(measured, f"{count} shapes drawn: --shapes {count} --seed {seed}")
    if "best" in rungs:
        _add_note(measured, best.table().stale(measured.gpu))
    table = _shares(measured, kinds) if kinds else None
    if revision is None:
        finish(measured, as_json=as_json, table=table, **files)
    else:
        _finish_against(revision, measured, as_json=as_json, table=table, **files)


def _solutions(
    kernels: Sequence[str],
    problem: str,
    dtype: str,
    *,
    launch: Mapping[str, Any],
    sgemm_options: Mapping[str, object],
) -> list[Solution]:
    """Return the solutions of a problem, which only a GPU runs.

    launch, sgemm_options: as for options.solution_of()

    Raises NoGpu, and BadSetting if no solution is named.
    """
    if not kernels:
        raise BadSetting(
            "--problem needs a solution: name a .cu file, or a Python function as file.py:function"
        )
    solutions = [
        options.solution_of(file, problem, dtype, launch=launch, sgemm_options=sgemm_options)
        for file in kernels
    ]
    options.require_gpu_for(kernels[0], problem)
    return solutions


def _batches(lists: Sequence[str]) -> list[int]:
    """Return the numbers of several lists with commas. Raises BadSetting."""
    batches = []
    for numbers in lists:
        for number in numbers.split(","):
            if not number.strip().isdecimal():
                raise BadSetting(f"--batch {numbers!r}: expected numbers of products, such as 8")
            batches.append(int(number))
    return batches


def _in_batches(shapes: Sequence[Shape], batches: Sequence[int]) -> list[Shape]:
    """Return each shape with each number of products; the shapes themselves without numbers."""
    if not batches:
        return [*shapes]
    batched = []
    for batch in batches:
        batched += [replace(shape, batch=batch) for shape in shapes]
    return batched


def _require_one_choice_of_shapes(
    kernels: Sequence[str], chosen: Sequence[object], count: int | None
) -> None:
    """Raise BadSetting for --shapes with another choice, or without a kernel.

    chosen: by --size and --batch
    """
    if count and chosen:
        raise BadSetting("--shapes draws the sizes: omit --size and --batch, or omit --shapes")
    if count and not kernels:
        raise BadSetting(
            "--shapes draws any sizes, which few rungs take: name kernels, as in worklog run best "
            "--shapes 5"
        )


def _kernel_names(arguments: Sequence[str]) -> list[str]:
    """Return the names in the arguments: a file, or several names with commas."""
    names = []
    for argument in arguments:
        names += [argument] if Path(argument).exists() else split_names(argument)
    return names


def split_names(names: str) -> list[str]:
    """Return names that are separated by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _choose(
    names: Sequence[str], against: str, launch: Mapping[str, Any]
) -> tuple[list[str | Kernel], list[str | Kernel]]:
    """Return the kernels to measure, and their baselines beside cuBLAS.

    launch: the options of a user kernel
    """
    chosen = [kernel_named(name, launch) for name in names]
    if against and not against.strip(" ,"):
        raise BadSetting(f"--against {against!r} names no kernel: name one, or omit it")
    baselines = [kernel_named(name, launch) for name in split_names(against)]
    user_kernels = _user_kernels(chosen)
    if not user_kernels and not _user_kernels(baselines):
        kernel_of(RUNGS[0].name, launch)  # raises BadSetting for an option that no rung takes
    if user_kernels and CUBLAS not in chosen:
        chosen.append(CUBLAS)
    return chosen, [kernel for kernel in baselines if kernel != CUBLAS]


def _preview(
    jobs: Sequence[Job], user_kernels: Sequence[Kernel], seconds_each: float, *, as_json: bool
) -> None:
    """Print what would be measured, and how long it takes. Loads host functions."""
    for kernel in user_kernels:
        kernel.require_loadable()
    rows = []
    for job in jobs:
        row = {"kernel": job.kernel, "against": [*job.against], "set": job.pitfalls}
        rows.append({**row, **asdict(job.shape)})
    seconds = seconds_each * len(jobs)
    text = f"{len(jobs)} measurement{'' if len(jobs) == 1 else 's'}, about {spoken(seconds)}"
    options.show({"points": len(jobs), "seconds": seconds, "measurements": rows}, text, as_json)


def _at_revision(kernels: Sequence[str], revision: str, launch: Mapping[str, Any]) -> Kernel:
    """Return the kernel as it was in a revision. Raises BadSetting for several kernels."""
    if len(kernels) != 1:
        raise BadSetting("--against-revision takes one kernel: run the kernels one by one")
    return completed(at_revision(kernels[0], revision, launch))


def _require_gpu_for_user_kernels(names: Sequence[str], chosen: Sequence[str | Kernel]) -> None:
    """Raise NoGpu if a user kernel is among the kernels to measure.

    names: of the first of them, as they were typed
    """
    for name, kernel in zip(names, chosen, strict=False):
        if _user_kernels([kernel]):
            options.require_gpu_for(name)


def _recorded(
    jobs: Sequence[Job], biased: Mapping[str, Any], *, is_whole_ladder: bool, is_drawn: bool
) -> Run:
    """Return a run that holds the jobs under biased settings.

    is_whole_ladder: whether the run's notes name the rungs that were never recorded
    is_drawn: whether measurements that no recording holds are only counted in the notes
    """
    biased_jobs = [replace(job, changed=tuple(biased.items())) for job in jobs]
    run = sources.holding(biased_jobs)
    return sources.recorded(biased_jobs, run, partly=is_whole_ladder, some=is_drawn)


def _user_kernels(kernels: Iterable[str | Kernel]) -> list[Kernel]:
    """Return the kernels that are a user's, and not named as a rung or a library."""
    return [kernel for kernel in kernels if isinstance(kernel, Kernel)]


def _add_note(measured: Run, note: str | None) -> None:
    """Add a note to a run that doesn't have it. Only a live run saves it."""
    if not note or note in measured.notes:
        return
    if measured.origin == "live":
        measured.add_note(note)
    else:
        measured.notes.append(note)


def _shares(measured: Run, kinds: Mapping[Shape, str]) -> Table:
    """Return the table of a run's drawn shapes with their kinds, under the run's label."""
    problems = {m.problem for m in measured.measurements}
    table = measured.shares({shape: kind for shape, kind in kinds.items() if shape in problems})
    return replace(table, title=f"{measured.full_label}\n{table.title}")


def finish(measured: Run, **printing: Any) -> None:
    """Print a run. Exits with 1 if a kernel, or a baseline beside it, failed the check."""
    options.print_run(measured, **printing)
    for m in measured.measurements:
        if m.status == "failed":
            sys.exit(1)
        if m.status == "measured" and m.shape and None in m.against.values():
            sys.exit(1)


def _finish_against(revision: str, measured: Run, *, as_json: bool, **printing: Any) -> None:
    """Print a run and what changed since a revision. Exits with 1 if it became slower."""
    changes = of_one_loop(measured, f"@{revision}")
    finish(measured, as_json=as_json, extra={"changes": asdict(changes)}, **printing)
    if not as_json:
        click.echo(f"\n{changes.table().text(options.terminal_width())}")
    sys.exit(changes.exit_code())


def kernel_named(name: str, launch: Mapping[str, Any]) -> str | Kernel:
    """Return a kernel by its name: a rung, one of LIBRARIES, or a user kernel.

    A user kernel is named by its file and function, and has the name of its file.

    launch: the options of a user kernel

    Raises what worklog.kernel.by_name raises, and BadSetting for an unknown name.
    """
    listed = NAMES.get(name.lower())
    if listed is not None:
        return Kernel.from_function(FUNCTIONS[listed]) if listed in FUNCTIONS else listed
    library, colon, number = name.partition(":")
    if library.lower() == CUBLASLT.lower():
        baseline = f"{CUBLASLT}{colon}{number}"
        algorithms_of(baseline)  # raises BadSetting
        return baseline
    if not (":" in name or Path(name).suffix or Path(name).exists() or Path(f"{name}.cu").exists()):
        advice = meant(name, NAMES.values())
        raise BadSetting(
            f"there is no kernel {name!r}{advice}: name a file, or {', '.join(NAMES.values())}"
        )
    return kernel_of(name, launch)
