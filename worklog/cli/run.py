"""`worklog run`, `worklog bench` (the benchmarks that a Python file declares), and `worklog show` (prints any run)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from worklog.cli import options, output, selection
from worklog.errors import BadSetting
from worklog.gpu import require_gpu
from worklog.kernel.best import table
from worklog.kernel.solution import Solution
from worklog.problem import Shape, drawn
from worklog.problem import shapes as shapes_of
from worklog.problem.axes import DRAWN
from worklog.runner import measure, solved
from worklog.runner.declare import declared
from worklog.runner.declare import measure as time_benchmarks
from worklog.runner.job import BASELINE, jobs_of
from worklog.runner.tuned import SHAPES
from worklog.runs import Run, open_run
from worklog.settings import Harness


@click.command()
@options.kernel_argument("kernels", "[RUNG|FILE.cu|FILE.py:FUNCTION|LIB.so:FUNCTION…]", nargs=-1)
@options.SIZES
@options.axis_option(
    'Sizes as axes N, M and K, all combinations: "N[pow2]=8:13", "K=512,1024:4096:1024". Any other name is '
    'a template argument in --entry: "BM=64,128", "T[type]=float,double".'
)
@click.option(
    "--shapes", "count", type=click.IntRange(1, 1000), metavar="COUNT",
    help=f"Draw this many shapes by --seed: {', '.join(DRAWN)}; none at which the rung best was tuned. Prints their "
    "shares of cuBLAS, the geometric mean and the lowest.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True, help="Seed of --shapes.")
@click.option(
    "--against", default="", metavar="NAME[,NAME…]", shell_complete=options.completing("kernels"),
    help=f"Baselines beside {BASELINE}: {selection.TORCH}, rungs, or your kernels, as FILE.cu, FILE.py:FUNCTION or "
    "LIB.so:FUNCTION. They take turns with each kernel in one loop.",
)  # fmt: skip
@options.HARNESS
@options.PROBLEM
@options.DTYPE
@click.option("--case", "cases", multiple=True, metavar="NAME", help='With --problem, only these: a name, or "n=*".')
@options.launch_options
@click.option("--preview", is_flag=True, help="Show what would be measured and how long it takes; needs no GPU.")
@options.DETAILS
@options.out_option()
@options.export_options
@options.JSON
def run(
    kernels: tuple[str, ...], shapes: list[Shape], axes: tuple[str, ...], count: int | None, seed: int, against: str,
    harness: Harness, problem: str | None, dtype: str, cases: tuple[str, ...], preview: bool, details: bool,
    out: Path | None, exports: dict[str, Path], as_json: bool, **launch: Any,
) -> None:  # fmt: skip
    """Check and time rungs (default: all, and cuBLAS) or your own kernels, at 4096 or the given sizes. Without a GPU,
    rungs are shown from the recording. With --problem, check and time solutions of a problem at each of its cases,
    beside its baseline; --set warmup=tensara --set stopping=tensara measures as Tensara does.

    Exits with 1 if a kernel fails the check.
    """
    if problem is not None:
        others = {"--size": shapes, "--axis": axes, "--shapes": count, "--preview": preview, "--against": against}
        solutions = [options.solution_of(file, launch, others) for file in kernels]
        measured = _measure_solutions(solutions, problem, dtype, cases=cases, harness=harness, out=out)
        output.print_run(measured, exports, as_json, details=details)
        output.exit_if_failed(measured)
        return
    options.require_no_case(dtype, cases)
    of_sizes, of_templates = selection.both_axes(axes)
    if count and (shapes or of_sizes):
        raise BadSetting("--shapes draws the sizes: omit --size and --axis, or omit --shapes")
    kinds = drawn(count, seed, SHAPES) if count else {}
    at = [*shapes, *(shapes_of(of_sizes) if of_sizes else ()), *kinds] or [Shape.of(4096)]
    chosen = selection.kernels_of(kernels, of_templates, launch)
    baselines = selection.baselines_of(against, launch)
    output.print_adapted([*chosen, *baselines])
    tasks, own = jobs_of(chosen or None, at, against=baselines)
    measure.require_measurable(tasks, harness, own)
    if preview:
        for kernel in own:
            if kernel.host is not None:
                kernel.host.require_loadable()
        selection.print_preview(tasks, {kernel.name: kernel.skipped for kernel in own}, harness, as_json)
        return
    rungs = [kernel for kernel in chosen if isinstance(kernel, str)]
    biased: dict[str, Any] = harness.biased()  # with these, the recording holds some measurements
    given = {"out": out, "set": harness != Harness().but(**biased), "against": baselines}
    if len(rungs) < len(chosen) or selection.live_wanted(**given):
        with output.progress_bar() as progress:
            measured = measure.measure(
                chosen or None, at, harness=harness, against=baselines, progress=progress, out=out
            )
    else:
        measured = measure.results(rungs or None, at, **biased)
    _add_notes(measured, f"{count} shapes drawn: --shapes {count} --seed {seed}" if count else "", "best" in rungs)
    output.print_run(measured, exports, as_json, details=details, kinds=kinds)
    output.exit_if_failed(measured)


def _measure_solutions(solutions: Sequence[Solution], problem: str, dtype: str, **how: Any) -> Run:
    """Check and time solutions of a problem at its cases. how: as for worklog.runner.solved.measure."""
    if not solutions:
        raise BadSetting("--problem needs a solution: name a .cu file, or a Python function as file.py:function")
    require_gpu(f"`worklog check FILE --problem {shlex.quote(problem)}` checks a .cu file on the emulator")
    with output.progress_bar() as progress:
        return solved.measure(solutions, problem, dtype, progress=progress, **how)


def _add_notes(measured: Run, drawn_by: str, with_best: bool) -> None:
    """Note in the run how its shapes were drawn, and whether the table of best is another GPU's or driver's."""
    stale = table().stale(measured.gpu.name, measured.gpu.driver) if with_best else None
    notes = [note for note in (drawn_by, stale) if note and note not in measured.notes]
    for note in notes:
        measured.add_note(note) if measured.origin == "live" else measured.notes.append(note)


@click.command()
@click.argument("file", type=options.PATH, metavar="FILE.py")
@options.axis_option('Other values of an axis: "N[pow2]=20:22", "dtype=float32"; repeat for more.')
@click.option("-b", "--filter", "filters", multiple=True, metavar="NAME", help='Only these: a name, or "soft*".')
@click.option("--against", default="", metavar="NAME[,NAME…]", help="Benchmarks of the file to take turns with.")
@click.option("-l", "--list", "listed", is_flag=True, help="Show the benchmarks, their axes and points; needs no GPU.")
@options.HARNESS
@options.DETAILS
@options.out_option()
@options.export_options
@options.JSON
def bench(
    file: Path, axes: tuple[str, ...], filters: tuple[str, ...], against: str, listed: bool, harness: Harness,
    details: bool, out: Path | None, exports: Mapping[str, Path], as_json: bool,
) -> None:  # fmt: skip
    """Time every benchmark that FILE.py declares with @worklog.bench, at each point of its axes.

    A point that the benchmark skips, that doesn't compile, or that doesn't fit the memory is skipped with its reason.
    Exits with 1 if a point fails. Results aren't checked: `worklog check` does that for matrix products, and `worklog
    run --problem` checks a solution before it is timed.
    """
    baselines = [declared(file, [name.strip()], axes)[0] for name in against.split(",") if name.strip()]
    benchmarks = declared(file, filters, axes)
    if listed:
        points = {b.name: [{**p.values, "skipped": p.skipped} for p in b.points()] for b in benchmarks}
        text = "\n".join(benchmark.table().text(output.terminal_width()) for benchmark in benchmarks)
        output.show(points, text, as_json)
        return
    require_gpu("--list shows the benchmarks and their points")
    with output.progress_bar() as progress:
        measured = time_benchmarks(benchmarks, baselines, harness=harness, progress=progress, out=out)
    output.print_run(measured, exports, as_json, details=details)
    output.exit_if_failed(measured)


@click.command()
@click.argument("file", required=False, type=options.PATH, metavar="[RUN.jsonl]")
@options.DETAILS
@click.option("--pivot", is_flag=True, help="Kernels beside each other at each size, the fastest and slowest marked.")
@click.option("--samples", is_flag=True, help="Write one row per sample with --csv and --parquet.")
@options.export_options
@options.JSON
def show(
    file: Path | None, details: bool, pivot: bool, samples: bool, exports: Mapping[str, Path], as_json: bool
) -> None:
    """Print a run: a file, else the newest run of this machine, else the recording."""
    taken, width = open_run(file), output.terminal_width()
    output.write_exports(exports, taken, of_samples=samples)
    text = taken.pivot().text(width) if pivot else taken.text(with_details=details, width=width).rstrip()
    output.show(output.measurements(taken), text, as_json)
