"""`worklog bench`: the benchmarks that a Python file declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from worklog.benchmarks.declare import declared
from worklog.cli import options
from worklog.cli.run import finish, split_names
from worklog.gpu.device import require_gpu
from worklog.runner.measure import measure_benchmarks
from worklog.settings import Harness


@click.command()
@click.argument("file", type=options.PATH, metavar="FILE.py")
@options.axes('Other values of an axis: "N[pow2]=20:22", "dtype=float32"; repeat for more.')
@click.option(
    "-b",
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME",
    help='Benchmarks to run: a name, or "soft*".',
)
@click.option(
    "--against",
    default="",
    metavar="NAME[,NAME…]",
    help="Benchmarks of the file to alternate with.",
)
@click.option(
    "-l",
    "--list",
    "is_listing",
    is_flag=True,
    help="Show the benchmarks, their axes and points. Needs no GPU.",
)
@options.measuring
def bench(
    *,
    file: Path,
    axes: tuple[str, ...],
    filters: tuple[str, ...],
    against: str,
    is_listing: bool,
    harness: Harness,
    out: Path | None,
    as_json: bool,
    **files: Any,
) -> None:
    """Time every benchmark that FILE.py declares with @worklog.bench.

    Each benchmark is timed at each point of its axes. A point is skipped with its reason if the
    benchmark skips it, if it doesn't compile, or if it doesn't fit the memory. Exits with 1 if a
    point fails.

    Results aren't checked: `worklog check` does that for matrix products, and `worklog run
    --problem` checks a solution before it is timed.
    """
    baselines = [declared(file, [name], axes)[0] for name in split_names(against)]
    benchmarks = declared(file, filters, axes)
    if is_listing:
        points = {}
        for benchmark in benchmarks:
            points[benchmark.name] = [
                {**point.values, "skipped": point.skipped}
                for point in benchmark.space.configurations()
            ]
        width = options.terminal_width()
        text = "\n".join(benchmark.table().text(width) for benchmark in benchmarks)
        options.show(points, text, as_json)
        return
    require_gpu("--list shows the benchmarks and their points")
    with options.progress_bar() as progress:
        measured = measure_benchmarks(
            benchmarks, baselines, harness=harness, progress=progress, out=out
        )
    finish(measured, as_json=as_json, **files)
