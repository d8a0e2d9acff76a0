"""The commands that make, print and compare runs.

`worklog run`, `worklog bench` (the benchmarks that a Python file declares) and `worklog sweep` (the
tiles of a rung) make runs. `worklog show` prints any run. `worklog compare` and `worklog log` take
saved runs.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from worklog.benchmarks.declare import declared
from worklog.cli import options
from worklog.errors import BadSetting, Interrupted, meant
from worklog.gpu.device import require_gpu, visible_cards
from worklog.kernel import OPTIONS, RUNGS, Kernel, Solution, at_revision, best, rung
from worklog.kernel.trial import completed, kernel_of
from worklog.problem import DRAWN, Axis, Shape, drawn, spoken
from worklog.runner import execute, measure
from worklog.runner.job import SECONDS_EACH, Job, jobs_of
from worklog.runs import CUBLAS, Run, open_run, recordings
from worklog.runs.changes import compare_revisions, of_one_loop, open_revisions
from worklog.runs.files import require_writable, write_text
from worklog.runs.sources import history, live_runs, runs_dir, saved
from worklog.runs.text import Table, a_few
from worklog.settings import Harness
from worklog.tune import sweep as tiles
from worklog.tune.cluster import Cluster, Workers
from worklog.tune.tuner import STRATEGIES, ranking, search

# The baselines that aren't rungs: host functions
FUNCTIONS = {"torch": "worklog.kernel.pytorch:torch"}
NAMES = {name.lower(): name for name in (*(rung.name for rung in RUNGS), CUBLAS, *FUNCTIONS)}


@click.command()
@options.kernel("kernels", "[RUNG|FILE.cu|FILE.py:FUNCTION|LIB.so:FUNCTION…]", nargs=-1)
@options.SIZES
@click.option(
    "--shapes", "count", type=options.Whole(1, 1000), metavar="COUNT",
    help=f"Number of shapes to draw by --seed: {', '.join(DRAWN)}. The rung best was tuned at none of them. Prints "
    "the shares of cuBLAS, the geometric mean and the lowest.",
)  # fmt: skip
@click.option(
    "--seed", type=options.Whole(), default=42, show_default=True, help="Seed of --shapes."
)
@click.option(
    "--against", default="", metavar="NAME[,NAME…]", shell_complete=options.name_completer(NAMES.values()),
    help=f"Baselines beside {CUBLAS}: {', '.join(FUNCTIONS)}, rungs, or your kernels, as FILE.cu, FILE.py:FUNCTION or "
    "LIB.so:FUNCTION. They alternate with each kernel in one loop.",
)  # fmt: skip
@click.option(
    "--against-revision", "revision", metavar="REV",
    help="Git revision of the kernel to alternate with. Exits with 1 if the kernel became slower.",
)  # fmt: skip
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
@click.option(
    "--preview",
    is_flag=True,
    help="Show what would be measured and how long it takes. Needs no GPU.",
)
@options.measuring
def run(
    kernels: tuple[str, ...], shapes: list[Shape], count: int | None, seed: int, against: str,
    revision: str | None, harness: Harness, problem: str | None, dtype: str, cases: tuple[str, ...], preview: bool,
    out: Path | None, as_json: bool, **files: Any,
) -> None:  # fmt: skip
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
            "--shapes": count,
            "--preview": preview,
            "--against": against,
            "--against-revision": revision,
        }
        solutions = _solutions(kernels, problem, dtype, launch, sgemm_options)
        with options.progress_bar() as progress:
            measured = measure.measure_solutions(
                solutions, cases=cases, harness=harness, progress=progress, out=out
            )
        _finish(measured, as_json=as_json, **files)
        return
    options.require_no_case(dtype, cases)
    _require_one_choice_of_shapes(kernels, shapes, count)
    kinds = drawn(count, seed, best.table().shapes) if count else {}
    sizes = [*shapes, *kinds] or [Shape.of(4096)]
    names = _kernel_names(kernels)
    chosen, baselines = _choose(names, against, launch)
    if revision is not None:
        baselines.append(_at_revision(kernels, revision, launch))
        chosen = chosen[:1]
    options.print_adapted([*chosen, *baselines])
    jobs, user_kernels = jobs_of(chosen or None, sizes, against=baselines)
    execute.require_measurable(jobs, harness, user_kernels)
    if preview:
        _preview(jobs, user_kernels, as_json)
        return
    rungs = [kernel for kernel in chosen if isinstance(kernel, str)]
    biased: dict[str, Any] = harness.biased()  # with these, the recording holds some measurements
    _require_gpu_for_user_kernels(names, chosen)
    if len(rungs) < len(chosen) or options.live_wanted(
        out=out,
        set=harness != Harness().but(**biased),
        **{"against-revision": revision},
        against=baselines,
    ):
        with options.progress_bar() as progress:
            measured = execute.carry_out(
                jobs, harness, user_kernels=user_kernels, progress=progress, out=out
            )
    else:
        measured = measure.results(rungs or None, sizes, some=bool(count), **biased)
    if count:
        _add_note(measured, f"{count} shapes drawn: --shapes {count} --seed {seed}")
    if "best" in rungs:
        _add_note(measured, best.table().stale(measured.gpu))
    table = _shares(measured, kinds) if kinds else None
    if revision is None:
        _finish(measured, as_json=as_json, table=table, **files)
    else:
        _finish_against(revision, measured, as_json=as_json, table=table, **files)


def _solutions(
    kernels: Sequence[str],
    problem: str,
    dtype: str,
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
        options.solution_of(file, problem, dtype, launch, sgemm_options) for file in kernels
    ]
    options.require_gpu_for(kernels[0], problem)
    return solutions


def _require_one_choice_of_shapes(
    kernels: Sequence[str], shapes: Sequence[Shape], count: int | None
) -> None:
    """Raise BadSetting for --shapes with --size, or without a kernel."""
    if count and shapes:
        raise BadSetting("--shapes draws the sizes: omit --size, or omit --shapes")
    if count and not kernels:
        raise BadSetting(
            "--shapes draws any sizes, which few rungs take: name kernels, as in worklog run best --shapes 5"
        )


def _kernel_names(arguments: Sequence[str]) -> list[str]:
    """Return the names in the arguments: a file, or several names with commas."""
    names = []
    for argument in arguments:
        names += [argument] if Path(argument).exists() else _split(argument)
    return names


def _split(names: str) -> list[str]:
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
    baselines = [kernel_named(name, launch) for name in _split(against)]
    if not any(isinstance(kernel, Kernel) for kernel in (*chosen, *baselines)):
        kernel_of(RUNGS[0].name, launch)  # raises BadSetting for an option that no rung takes
    if CUBLAS not in chosen and any(isinstance(kernel, Kernel) for kernel in chosen):
        chosen.append(CUBLAS)
    return chosen, [kernel for kernel in baselines if kernel != CUBLAS]


def _preview(jobs: Sequence[Job], user_kernels: Sequence[Kernel], as_json: bool) -> None:
    """Print what would be measured, and how long it takes. Loads host functions."""
    for kernel in user_kernels:
        if kernel.host is not None:
            kernel.host.loaded()
    rows = []
    for job in jobs:
        row = {"kernel": job.kernel, "against": [*job.against], "set": job.pitfalls}
        rows.append({**row, **asdict(job.shape)})
    seconds = SECONDS_EACH * len(jobs)
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
        if isinstance(kernel, Kernel):
            options.require_gpu_for(name)


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


def _finish(measured: Run, **printing: Any) -> None:
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
    _finish(measured, as_json=as_json, extra={"changes": asdict(changes)}, **printing)
    if not as_json:
        click.echo(f"\n{changes.table().text(options.terminal_width())}")
    sys.exit(changes.exit_code())


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
    file: Path, axes: tuple[str, ...], filters: tuple[str, ...], against: str, is_listing: bool, harness: Harness,
    out: Path | None, as_json: bool, **files: Any,
) -> None:  # fmt: skip
    """Time every benchmark that FILE.py declares with @worklog.bench.

    Each benchmark is timed at each point of its axes. A point is skipped with its reason if the
    benchmark skips it, if it doesn't compile, or if it doesn't fit the memory. Exits with 1 if a
    point fails.

    Results aren't checked: `worklog check` does that for matrix products, and `worklog run
    --problem` checks a solution before it is timed.
    """
    baselines = [declared(file, [name], axes)[0] for name in _split(against)]
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
        measured = measure.measure_benchmarks(
            benchmarks, baselines, harness=harness, progress=progress, out=out
        )
    _finish(measured, as_json=as_json, **files)


@click.command()
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--pivot",
    is_flag=True,
    help="Kernels beside each other at each size, the fastest and slowest marked.",
)
@click.option("--samples", is_flag=True, help="Write one row per sample with --csv and --parquet.")
@options.exports
@options.JSON
def show(name: str | None, pivot: bool, samples: bool, as_json: bool, **files: Any) -> None:
    """Print a run.

    RUN is a file, a name of `worklog log`, a recording, or REVISION:PATH. The default is the
    newest run of this machine, else the recording.
    """
    if samples and not (files["csv"] or files["parquet"]):
        raise BadSetting("--samples is for --csv and --parquet: name a file")
    run = open_run(name)
    options.print_run(
        run, as_json=as_json, table=run.pivot() if pivot else None, samples=samples, **files
    )


@click.command()
@options.kernel("name", "RUNG")
@options.axes('A tile parameter and its values; repeat for more: "BM=64,128", "TN[pow2]=2:4".')
@options.size("The shape to measure at.", default="4096")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only tiles that meet this condition: 'BM * BN <= 16384' or 'spilled == 0'; repeat for more. Names: tile "
    f"parameters, {', '.join(tiles.RESOURCES)} (the last two in percent) and {', '.join(tiles.COUNTED)} (percent of "
    "the shared wavefronts, counted on the emulator).",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default=STRATEGIES[0],
    show_default=True,
    help="Order in which tiles are measured.",
)
@click.option(
    "--trials", type=options.Whole(1), help="Maximum number of tiles to measure (default: all)."
)
@click.option(
    "--seed",
    type=options.Whole(),
    default=0,
    show_default=True,
    help="Seed for --strategy random and optuna.",
)
@click.option("--fresh", is_flag=True, help="Also measure tiles that were measured before.")
@click.option(
    "--scheduler",
    default="",
    metavar="ADDRESS",
    help="Measure on the GPUs of this Dask cluster; 'local' starts one on every GPU of this machine (the default if "
    "several GPUs are visible).",
)
@click.option("--preview", is_flag=True, help="List the tiles without measuring. Needs no GPU.")
@click.option(
    "--check",
    "is_checked",
    is_flag=True,
    help="With --preview: only tiles that pass a check on the emulator.",
)
@options.measuring
def sweep(
    name: str, axes: tuple[str, ...], shape: Shape, conditions: tuple[str, ...], preview: bool, is_checked: bool,
    scheduler: str, harness: Harness, out: Path | None, as_json: bool, **files: Any,
) -> None:  # fmt: skip
    """Check and time the tiles of a rung, each alternating with cuBLAS.

    Then the fastest tiles are timed against each other in one loop on each card. Without a GPU,
    tiles are shown from the recording.

    Run the same command to resume an interrupted sweep. Finished tiles are skipped unless their
    source, the shape, the settings, the compiler, the driver or the GPU changed.
    """
    _require_no_file(name)
    record = rung(name)
    if name == "best":
        raise BadSetting("worklog sweep takes any rung but best, whose tiles stand in a table")
    if not axes:
        raise BadSetting(f"worklog sweep {name} takes --axis NAME=VALUES, such as --axis BM=64,128")
    if is_checked and not preview:
        raise BadSetting("--check is for --preview: a measured tile is checked on the GPU")
    parameters = [Axis.parse(axis) for axis in axes]
    tiles.space_of(record, parameters, conditions)  # raises before workers start
    strategy = {option: files.pop(option) for option in ("strategy", "trials", "seed", "fresh")}
    is_live = False
    if not preview:
        is_live = scheduler not in ("", "local") or options.live_wanted(
            out=out,
            set=harness != Harness(),
            trials=strategy["trials"],
            fresh=strategy["fresh"],
        )
    with _workers(scheduler, is_live) as workers, options.progress_bar() as progress:
        variants = tiles.variants(
            record,
            parameters,
            shape=shape,
            where=conditions,
            checked=is_checked,
            cpu=workers.cpu,
        )
        if not preview:
            variants.require_some()
        click.echo(variants.preview(is_live=is_live or preview), err=True)
        if is_live:
            measured = search(
                variants, workers, harness=harness, progress=progress, out=out, **strategy
            )
    if is_live:
        _finish(measured, table=ranking(measured), as_json=as_json, **files)
    elif not preview:
        _finish(tiles.recorded(variants), as_json=as_json, **files)
    elif as_json:
        click.echo(variants.frame().to_json(orient="records", indent=1))
    elif variants.kept:
        click.echo(variants.frame().to_string(index=False))


def _require_no_file(name: str) -> None:
    """Raise BadSetting, with the command that times one tile, for a .cu file."""
    if Path(name).suffix == ".cu":
        command = f"worklog run {shlex.quote(name)} -D BM=64"
        raise BadSetting(
            f"sweep takes a rung: time each tile of your kernel by itself, as in {command}"
        )


def _workers(scheduler: str, is_live: bool) -> Cluster | Workers:
    """Return the workers of a sweep: a cluster if it is named, or if several GPUs are visible."""
    cards = visible_cards()
    has_several = is_live and len(cards) > 1
    if scheduler or (has_several and find_spec("distributed")):
        return Cluster(scheduler.replace("local", ""), cards)
    return Workers()


def kernel_named(name: str, launch: Mapping[str, Any]) -> str | Kernel:
    """Return a kernel by its name: a rung, cuBLAS, one of FUNCTIONS, or a user kernel.

    A user kernel is named by its file and function, and has the name of its file.

    launch: the options of a user kernel

    Raises what worklog.kernel.ladder raises, and BadSetting for an unknown name.
    """
    listed = NAMES.get(name.lower())
    if listed is not None:
        return Kernel.from_function(FUNCTIONS[listed]) if listed in FUNCTIONS else listed
    if not (":" in name or Path(name).suffix or Path(name).exists() or Path(f"{name}.cu").exists()):
        advice = meant(name, NAMES.values())
        raise BadSetting(
            f"there is no kernel {name!r}{advice}: name a file, or {', '.join(NAMES.values())}"
        )
    return kernel_of(name, launch)


@click.command()
@click.argument("old", metavar="OLD[,OLD…]")
@click.argument("new", metavar="NEW[,NEW…]")
@click.option(
    "--threshold", type=options.Percent(0.1, 100), default=2.0, show_default=True, metavar="PERCENT",
    help="Smallest slowdown to detect. A change counts from half of it on, if it exceeds its noise.",
)  # fmt: skip
@click.option(
    "--strict", is_flag=True, help="Exit with 2 if the driver, compiler or harness differs."
)
@click.option(
    "--markdown",
    type=options.FILE,
    callback=options.new_file,
    help="Also write the report as Markdown, for a pull request.",
)
@click.option(
    "--chart",
    type=options.FILE,
    metavar="NAME",
    help="Also draw the changes: NAME.svg, NAME.png, and both in dark.",
)
@options.JSON
def compare(
    old: str,
    new: str,
    threshold: float,
    strict: bool,
    markdown: Path | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Compare two sets of runs.

    Reports each kernel and size as faster, slower, same or cannot tell. A run is a file, a name
    of `worklog log`, a recording, a git revision such as HEAD~1 (the newest run of this machine at
    its commit), or REVISION:PATH of a file in git. Several runs of one side are pooled, each as one
    process. Files of NVBench's --json are also read.

    Exits with 1 if a kernel fails now, or is slower by more than its interval and half of the
    threshold. Exits with 2 if the GPU model, the settings or the inputs differ. To confirm, pool
    another run: `worklog compare OLD NEW1,NEW2`.
    """
    _require_no_kernels(old, new)
    if chart is not None:
        require_writable(chart.parent, str(chart), "give --chart another name")
        chart = chart.with_suffix("") if chart.suffix in (".svg", ".png") else chart
    changes = compare_revisions(open_revisions(old), open_revisions(new), threshold / 100)
    written = list[Path]()
    if markdown is not None:
        write_text(markdown, changes.markdown())
        written.append(markdown)
    if chart is not None:
        from worklog import plots  # here: matplotlib is slow to import

        written += plots.save(plots.changes(changes), chart)
    for path in written:
        click.echo(f"written: {path}", err=True)
    options.show(asdict(changes), changes.table().text(options.terminal_width()), as_json)
    sys.exit(changes.exit_code(strict))


def _require_no_kernels(old: str, new: str) -> None:
    """Raise BadSetting, with the command that compares kernels, if .cu files are named."""
    if Path(old).suffix == ".cu" or Path(new).suffix == ".cu":
        arguments = f"{shlex.quote(new)} --against {shlex.quote(old)}"
        raise BadSetting(
            f"compare takes saved runs, not kernels: on a GPU, `worklog run {arguments}` times both in one loop"
        )


@click.command()
@click.option("--kernel", default="", metavar="NAME", help="Only runs that measured this kernel.")
@click.option(
    "--gpu",
    default="",
    metavar="WORDS",
    help="Only runs on a GPU with these words in its name or UUID.",
)
@click.option(
    "--since",
    default="",
    metavar="DATE",
    help="Only runs since this UTC day, month or time: 2026-11-27.",
)
@click.option(
    "--until", default="", metavar="DATE", help="Only runs up to this UTC day, month or time."
)
@click.option(
    "--commit", default="", metavar="HASH", help="Only runs measured at this commit of worklog."
)
@click.option("--keep", type=options.Whole(), metavar="N", help="Remove all runs but the newest N.")
@click.option("--yes", is_flag=True, help="With --keep: don't ask.")
@options.exports
@options.JSON
def log(keep: int | None, yes: bool, as_json: bool, **filters: Any) -> None:
    """List the runs that this machine keeps, the newest first.

    --csv, --markdown and --parquet write all their measurements as one table. `worklog show`
    and `compare` take a run by its name or a part of it.
    """
    files = {name: filters.pop(name) for name in ("csv", "markdown", "parquet")}
    if keep is not None:
        if any(filters.values()):
            raise BadSetting(
                "--keep counts all runs: omit --kernel, --gpu, --since, --until and --commit"
            )
        _remove_all_but(keep, is_confirmed=yes)
    if any(files.values()):
        options.write_exports(
            history(**filters).to_dict("records"), files, title="runs of this machine"
        )
    rows = [_log_row(run) for run in saved(**filters)]
    title = f"runs in {runs_dir()}"
    if not rows:
        title += f": none; recorded ones: worklog show {' '.join(recordings())}"
    options.show(rows, Table.of(title, rows, left=5).text(options.terminal_width()), as_json)


def _remove_all_but(count: int, *, is_confirmed: bool) -> None:
    """Remove all runs but the newest, after a confirmation."""
    old = live_runs()[count:]
    question = f"remove {len(old)} runs, the newest {old[0].stem}?" if old else ""
    if old and not is_confirmed and not click.confirm(question, err=True):
        raise Interrupted("nothing is removed")
    for path in old:
        path.unlink(missing_ok=True)
    click.echo(f"removed: {len(old)} runs", err=True)


def _log_row(run: Run) -> dict[str, str]:
    """Return what `worklog log` lists of a run."""
    measurements = [*run.select()]
    return {
        "run": run.path.stem if run.path else "",
        "GPU": run.gpu.name,
        "commit": str(run.tool.get("commit") or "")[:9],
        "kernels": a_few(dict.fromkeys(m.kernel for m in measurements)),
        "sizes": a_few(dict.fromkeys(m.place for m in measurements)),
        "measurements": str(len(run.measurements)),
        "": "" if run.complete else "cut short",
    }
