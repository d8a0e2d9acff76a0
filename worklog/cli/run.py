"""`worklog run`, `worklog bench` (the benchmarks that a Python file declares), and `worklog show` (prints any run)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.cli import output
from worklog.errors import BadSetting
from worklog.gpu import device
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.problem import Shape


@output.command(
    click.argument("kernels", nargs=-1, metavar="[RUNG|FILE.cu|FILE.py:FUNCTION…]"),
    output.SIZES,
    output.axis_option(
        'Sizes as axes N, M and K, all combinations: "N[pow2]=8:13", "K=512,1024:4096:1024". Any other name is '
        'a template argument in --entry: "BM=64,128", "T[type]=float,double".',
        "NAME[KIND]=VALUES",
    ),
    click.option(
        "--shapes",
        "count",
        type=click.IntRange(1, 1000),
        metavar="COUNT",
        help="Draw this many shapes by --seed: powers of two, primes, off by one, tall, flat, deep; none at which the "
        "rung best was tuned. Prints their shares of cuBLAS, the geometric mean and the lowest.",
    ),
    click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True, help="Seed of --shapes."),
    click.option(
        "--against",
        default="",
        metavar="NAME[,NAME…]",
        help="Baselines beside cuBLAS: torch, rungs, or your kernels' files. They take turns with each kernel in one "
        "loop.",
    ),
    output.HARNESS,
    *output.PROBLEM,
    output.CASE,
    *output.LAUNCH,
    *output.CHECKED,
    output.flag("--preview", about="Show what would be measured and how long it takes; needs no GPU."),
    output.flag("--details", about="Add a second table: GB/s, shares of copy and peaks, cycles per launch."),
    output.out_option(),
    *output.EXPORT,
    output.JSON,
)
def run(
    kernels: tuple[str, ...],
    sizes: list[Shape],
    axes: tuple[str, ...],
    count: int | None,
    seed: int,
    against: str,
    harness: Harness,
    preview: bool,
    details: bool,
    out: Path | None,
    **launch: Any,
) -> None:
    """Check and time rungs (default: all, and cuBLAS) or your own kernels, at 4096 or the given sizes. Without a GPU,
    rungs are shown from the recording. With --problem, check and time solutions of a problem at each of its cases,
    beside its baseline; --set warmup=tensara --set stopping=tensara measures as Tensara does.

    Exits with 1 if a kernel fails the check.
    """
    from worklog.cli import selection
    from worklog.kernel.best import table
    from worklog.problem import Shape, drawn, shapes
    from worklog.runner import measure as bench  # imported here: --help doesn't wait for NumPy
    from worklog.runner.job import jobs_of

    if selection.problem() is not None:
        others = {"size": sizes, "axis": axes, "shapes": count, "preview": preview, "against": against}
        output.finish(selection.run_solutions(kernels, harness, out, launch, **others), with_details=details)
        return
    of_sizes, of_templates = selection.both_axes(axes)
    kinds: dict[Shape, str] = {}
    if count:
        from worklog.runner.tuned import SHAPES

        if sizes or of_sizes:
            raise BadSetting("--shapes draws the sizes: omit --size and --axis, or omit --shapes")
        kinds = drawn(count, seed, SHAPES)
    sizes = [*sizes, *(shapes(of_sizes) if of_sizes else ()), *kinds] or [Shape.of(4096)]
    chosen = selection.kernels_of(kernels, of_templates, **launch) or None
    baselines = selection.baselines_of(against, **launch)
    output.print_adapted([*(chosen or ()), *baselines])
    tasks, own = jobs_of(chosen, sizes, against=baselines)
    bench.require_measurable(tasks, harness, own)
    if preview:
        selection.show_preview(tasks, own, harness)
        return
    rungs = [kernel for kernel in chosen or () if isinstance(kernel, str)]
    of_the_user = len(rungs) < len(chosen or ())
    biased: dict[str, Any] = harness.biased()  # with these, the recording holds some measurements
    if of_the_user or output.live_wanted(harness, out, against=bool(baselines), known=biased):
        with output.progress_bar() as progress:
            measured = bench.measure(chosen, sizes, harness=harness, against=baselines, progress=progress, out=out)
    else:
        measured = bench.results(rungs or None, sizes, **biased)
    said = [f"{count} shapes drawn: --shapes {count} --seed {seed}"] if count else []
    if "best" in rungs:
        said += filter(None, [table().stale(measured.device.get("name", ""), measured.device.get("driver", ""))])
    if new := [note for note in said if note not in measured.notes]:
        measured.notes += new
        if measured.origin == "live":
            measured.save()
    output.finish(measured, with_details=details, kinds=kinds)


@output.command(
    click.argument("file", type=output.PATH, metavar="FILE.py"),
    output.axis_option(
        'Other values of an axis: "N[pow2]=20:22", "dtype=float32"; repeat for more.', "NAME[KIND]=VALUES"
    ),
    click.option(
        "-b", "--filter", "filters", multiple=True, metavar="NAME", help='Only these benchmarks: a name, or "soft*".'
    ),
    click.option(
        "--against",
        default="",
        metavar="NAME[,NAME…]",
        help="Benchmarks of the file that the others take turns with, in one loop.",
    ),
    output.flag("-l", "--list", "listed", about="Show the benchmarks, their axes and points; needs no GPU."),
    output.HARNESS,
    output.flag("--details", about="Add a second table: cycles per launch, energy, parts of the interval."),
    *output.PROBLEM,
    output.CASE,
    output.out_option(),
    *output.EXPORT,
    output.JSON,
)
def bench(
    file: Path,
    axes: tuple[str, ...],
    filters: tuple[str, ...],
    against: str,
    listed: bool,
    harness: Harness,
    details: bool,
    out: Path | None,
) -> None:
    """Time every benchmark that FILE.py declares with @worklog.bench, at each point of its axes.

    A point that the benchmark skips, that doesn't compile, or that doesn't fit the memory is skipped with its reason.
    Exits with 1 if a point fails. Results aren't checked: `worklog check` does that for matrix products,
    and a solution of a problem (--problem) is checked before it is timed.
    """
    from worklog.cli import selection
    from worklog.runner.declare import declared, measure

    if selection.problem() is not None:
        others = {"axis": axes, "filter": filters, "against": against, "list": listed}
        output.finish(selection.run_solutions([str(file)], harness, out, {}, **others), with_details=details)
        return
    baselines = [declared(file, [name.strip()], axes)[0] for name in against.split(",") if name.strip()]
    chosen = declared(file, filters, axes)
    if listed:
        points = {one.name: [{**p.values, "skipped": p.skipped} for p in one.points()] for one in chosen}
        output.show(points, "\n".join(one.table().text(output.terminal_width()) for one in chosen))
        return
    device.require_gpu("--list shows the benchmarks and their points")
    with output.progress_bar() as progress:
        measured = measure(chosen, baselines, harness=harness, progress=progress, out=out)
    output.finish(measured, with_details=details)


@output.command(
    click.argument("file", required=False, type=output.PATH, metavar="[RUN.json]"),
    output.flag("--details", about="Add a second table: rates, shares of peaks, cycles per launch."),
    output.flag("--pivot", about="Kernels beside each other at each size, the fastest and slowest marked."),
    output.flag("--samples", about="Write one row per sample with --csv and --parquet."),
    *output.EXPORT,
    output.JSON,
)
def show(file: Path | None, details: bool, pivot: bool, samples: bool) -> None:
    """Print a run: a file, else the newest run of this machine, else the recording."""
    from worklog.runs import open_run

    taken, width = open_run(file), output.terminal_width()
    output.export(taken, of_samples=samples)
    text = taken.pivot().text(width) if pivot else taken.text(with_details=details, width=width).rstrip()
    output.show(output.measurements(taken), text)
