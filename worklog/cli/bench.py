"""`worklog bench`: the benchmarks that a Python file declares; and `worklog show`, which prints any run."""

from __future__ import annotations

from pathlib import Path

import click

from worklog.cli import output
from worklog.settings import Harness


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.py")
@click.option(
    "-a",
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME[KIND]=VALUES",
    help='Other values of an axis: "N[pow2]=20:22", "dtype=float32"; repeat for more.',
)
@click.option(
    "-b", "--filter", "filters", multiple=True, metavar="NAME", help='Only these benchmarks: a name, or "soft*".'
)
@click.option(
    "--against",
    default="",
    metavar="NAME[,NAME…]",
    help="Benchmarks of the file that the others take turns with, in one loop.",
)
@click.option("-l", "--list", "listed", is_flag=True, help="Show the benchmarks, their axes and points; needs no GPU.")
@output.harness_option
@click.option("--details", is_flag=True, help="Add a second table: cycles per launch, energy, parts of the interval.")
@output.options(*output.PROBLEM, output.CASE)
@output.out_option()
@output.options(*output.EXPORT)
@output.json_option
def bench(
    file: Path,
    axes: tuple[str, ...],
    filters: tuple[str, ...],
    against: str,
    listed: bool,
    harness: Harness,
    details: bool,
    out: Path | None,
    as_json: bool,
    problem: str | None,
    dtype: str,
    cases: tuple[str, ...],
) -> None:
    """Time every benchmark that FILE.py declares with @worklog.bench, at each point of its axes.

    A point that the benchmark skips, that doesn't compile, or that doesn't fit the memory is skipped with its reason.
    Exits with 1 if a point fails. Results aren't checked: `worklog check` does that for matrix products,
    and a solution of a problem (--problem) is checked before it is timed.
    """
    from worklog.cli import selection  # imported here: --help doesn't wait for NumPy

    if problem is not None:
        others = {"axis": axes, "filter": filters, "against": against, "list": listed}
        solved = selection.run_solutions([str(file)], problem, dtype, cases, harness, out, {}, **others)
        output.finish(solved, with_details=details, as_json=as_json)
        return
    selection.require_no_dtype(dtype, cases)
    from worklog.errors import NoGpu
    from worklog.gpu import device
    from worklog.runner.declare import declared, measure

    baselines = [declared(file, [name.strip()], axes)[0] for name in against.split(",") if name.strip()]
    chosen = declared(file, filters, axes)
    if listed:
        if as_json:
            points = {one.name: [{**p.values, "skipped": p.skipped} for p in one.points()] for one in chosen}
            output.print_json(points)
        else:
            click.echo("\n".join(one.table().text(output.terminal_width()) for one in chosen))
        return
    if why := device.gpu_reason():
        raise NoGpu(f"no GPU to measure on: {why}; --list shows the benchmarks and their points")
    with output.progress_bar() as progress:
        measured = measure(chosen, baselines, harness=harness, progress=progress, out=out)
    output.finish(measured, with_details=details, as_json=as_json)


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[RUN.json]")
@click.option("--details", is_flag=True, help="Add a second table: rates, shares of peaks, cycles per launch.")
@click.option("--pivot", is_flag=True, help="Kernels beside each other at each size, the fastest and slowest marked.")
@click.option("--samples", is_flag=True, help="Write one row per sample with --csv and --parquet.")
@output.options(*output.EXPORT)
@output.json_option
def show(file: Path | None, details: bool, pivot: bool, samples: bool, as_json: bool) -> None:
    """Print a run: a file, else the newest run of this machine, else the recording."""
    from worklog.runs import open_run

    taken, width = open_run(file), output.terminal_width()
    output.export(taken, of_samples=samples)
    if as_json:
        output.print_json(output.measurements(taken))
        return
    click.echo(taken.pivot().text(width) if pivot else taken.text(with_details=details, width=width).rstrip())
