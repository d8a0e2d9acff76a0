"""Runs: `worklog run`, `worklog bench` (the benchmarks that a Python file declares) and `worklog sweep` (the tiles of a
rung) make them, `worklog show` prints any, and `worklog compare`, `worklog log` and `worklog rerun` take those kept.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from worklog.cli import options
from worklog.errors import BadSetting, Interrupted, meant
from worklog.gpu.device import require_gpu, visible_cards
from worklog.kernel import OPTIONS, RUNGS, Kernel, at_revision, best, rung
from worklog.kernel.trial import completed, kernel_of
from worklog.problem import DRAWN, Axis, Shape, drawn, spoken
from worklog.runner import measure
from worklog.runner.declare import declared
from worklog.runner.declare import measure as time_benchmarks
from worklog.runs import (
    CUBLAS,
    Run,
    Table,
    a_few,
    live_runs,
    open_run,
    recordings,
    require_writable,
    runs_dir,
    tool,
    write_text,
)
from worklog.runs.changes import compare as compare_sides
from worklog.runs.changes import history, of_one_loop, saved, sides
from worklog.settings import Harness
from worklog.tune import sweep as tiles
from worklog.tune.cluster import Cluster, Workers
from worklog.tune.tuner import STRATEGIES, ranking, search

FUNCTIONS = {
    "torch": "worklog.kernel.pytorch:torch"
}  # the baselines that aren't rungs: host functions
NAMES = {name.lower(): name for name in (*(rung.name for rung in RUNGS), CUBLAS, *FUNCTIONS)}
NEW_FILES = (
    "--out",
    "--csv",
    "--markdown",
    "--parquet",
    "--bencher",
)  # each takes a file that must not exist


@click.command()
@options.kernel("kernels", "[RUNG|FILE.cu|FILE.py:FUNCTION|LIB.so:FUNCTION…]", nargs=-1)
@options.SIZES
@click.option(
    "--shapes", "count", type=options.Whole(1, 1000), metavar="COUNT",
    help=f"Draw this many shapes by --seed: {', '.join(DRAWN)}; none at which the rung best was tuned. Prints their "
    "shares of cuBLAS, the geometric mean and the lowest.",
)  # fmt: skip
@click.option(
    "--seed", type=options.Whole(), default=42, show_default=True, help="Seed of --shapes."
)
@click.option(
    "--against", default="", metavar="NAME[,NAME…]", shell_complete=options.completing(NAMES.values()),
    help=f"Baselines beside {CUBLAS}: {', '.join(FUNCTIONS)}, rungs, or your kernels, as FILE.cu, FILE.py:FUNCTION or "
    "LIB.so:FUNCTION. They take turns with each kernel in one loop.",
)  # fmt: skip
@click.option(
    "--against-revision", "revision", metavar="REV",
    help="Take turns with the kernel as it was in this git revision, and exit with 1 if it became slower.",
)  # fmt: skip
@options.PROBLEM
@options.DTYPE
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help='With --problem, only these: a name, or "n=*".',
)
@options.launch
@click.option(
    "--preview",
    is_flag=True,
    help="Show what would be measured and how long it takes; needs no GPU.",
)
@options.measuring
def run(
    kernels: tuple[str, ...], shapes: list[Shape], count: int | None, seed: int, against: str,
    revision: str | None, harness: Harness, problem: str | None, dtype: str, cases: tuple[str, ...], preview: bool,
    out: Path | None, as_json: bool, **shown: Any,
) -> None:  # fmt: skip
    """Check and time rungs (default: all, and cuBLAS) or your own kernels, at 4096 or the given sizes. Without a GPU,
    rungs are shown from the recording. With --problem, check and time solutions of a problem at each of its cases,
    beside its baseline; --set warmup=tensara --set stopping=tensara measures as Tensara does.

    Exits with 1 if a kernel fails the check.
    """
    launch = {name: shown.pop(name) for name in OPTIONS}
    if problem is not None:
        others = {"--size": shapes, "--shapes": count, "--preview": preview, "--against": against}
        others |= {"--against-revision": revision}
        if not kernels:
            raise BadSetting(
                "--problem needs a solution: name a .cu file, or a Python function as file.py:function"
            )
        solutions = [options.solution_of(file, problem, dtype, launch, others) for file in kernels]
        options.require_gpu_for(kernels[0], problem)
        with options.progress_bar() as progress:
            measured = measure.measure_solutions(
                solutions, cases=cases, harness=harness, progress=progress, out=out
            )
        _finish(measured, as_json=as_json, **shown)
        return
    options.require_no_case(dtype, cases)
    if count and shapes:
        raise BadSetting("--shapes draws the sizes: omit --size, or omit --shapes")
    if count and not kernels:
        raise BadSetting(
            "--shapes draws any sizes, which few rungs take: name kernels, as in worklog run best --shapes 5"
        )
    kinds = drawn(count, seed, best.table().shapes) if count else {}
    at = [*shapes, *kinds] or [Shape.of(4096)]
    names = list[str]()
    chosen = list[str | Kernel]()
    for word in kernels:
        names += [word] if Path(word).exists() else filter(None, map(str.strip, word.split(",")))
    chosen += [kernel_named(name, launch) for name in names]
    if against and not against.strip(" ,"):
        raise BadSetting(f"--against {against!r} names no kernel: name one, or omit it")
    named = [kernel_named(word, launch) for word in map(str.strip, against.split(",")) if word]
    if not any(isinstance(kernel, Kernel) for kernel in (*chosen, *named)):
        kernel_of(RUNGS[0].name, launch)  # raises BadSetting for an option that no rung takes
    if CUBLAS not in chosen and any(isinstance(kernel, Kernel) for kernel in chosen):
        chosen.append(CUBLAS)
    baselines = [kernel for kernel in named if kernel != CUBLAS]
    if revision is not None:
        if len(kernels) != 1:
            raise BadSetting("--against-revision takes one kernel: run the kernels one by one")
        chosen, baselines = (
            chosen[:1],
            [*baselines, completed(at_revision(kernels[0], revision, launch))],
        )
    options.print_adapted([*chosen, *baselines])
    jobs, own = measure.jobs_of(chosen or None, at, against=baselines)
    measure.require_measurable(jobs, harness, own)
    if preview:
        for kernel in own:
            if kernel.host is not None:
                kernel.host.loaded()
        rows = [
            {
                "kernel": job.kernel,
                "against": [*job.baselines],
                "set": job.pitfalls,
                **asdict(job.problem),
            }
            for job in jobs
        ]
        seconds = measure.SECONDS_EACH * len(jobs)
        text = f"{len(jobs)} measurement{'' if len(jobs) == 1 else 's'}, about {spoken(seconds)}"
        options.show({"points": len(jobs), "seconds": seconds, "measurements": rows}, text, as_json)
        return
    rungs = [kernel for kernel in chosen if isinstance(kernel, str)]
    biased: dict[str, Any] = harness.biased()  # with these, the recording holds some measurements
    needing = {"out": out, "set": harness != Harness().but(**biased), "against-revision": revision}
    for word, subject in zip(names, chosen, strict=False):
        if isinstance(subject, Kernel):
            options.require_gpu_for(word)
    if len(rungs) < len(chosen) or options.live_wanted(**needing, against=baselines):
        with options.progress_bar() as progress:
            measured = measure.carry_out(
                jobs, harness, user_kernels=own, progress=progress, out=out
            )
    else:
        measured = measure.results(rungs or None, at, some=bool(count), **biased)
    stale = best.table().stale(measured.gpu) if "best" in rungs else None
    for note in (f"{count} shapes drawn: --shapes {count} --seed {seed}" if count else None, stale):
        if note and note not in measured.notes:
            measured.add_note(note) if measured.origin == "live" else measured.notes.append(note)
    table = None
    held = {m.problem for m in measured.measurements}
    if kinds:
        table = measured.shares({shape: kind for shape, kind in kinds.items() if shape in held})
        table = replace(table, title=f"{measured.full_label}\n{table.title}")
    changes = of_one_loop(measured, f"@{revision}") if revision is not None else None
    _finish(
        measured,
        as_json=as_json,
        table=table,
        more={"changes": asdict(changes)} if changes else {},
        **shown,
    )
    if changes is not None:
        if not as_json:
            click.echo(f"\n{changes.table().text(options.terminal_width())}")
        sys.exit(changes.exit_code())


def _finish(measured: Run, **shown: Any) -> None:
    """Print a run, and exit with 1 if a kernel, or a baseline beside one, failed the check."""
    options.print_run(measured, **shown)
    failed = [m for m in measured.measurements if m.status == "failed"]
    failed += [
        m
        for m in measured.measurements
        if m.status == "measured" and m.shape and None in m.against.values()
    ]
    if failed:
        sys.exit(1)


@click.command()
@click.argument("file", type=options.PATH, metavar="FILE.py")
@options.axes('Other values of an axis: "N[pow2]=20:22", "dtype=float32"; repeat for more.')
@click.option(
    "-b",
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME",
    help='Only these benchmarks: a name, or "soft*".',
)
@click.option(
    "--against",
    default="",
    metavar="NAME[,NAME…]",
    help="Benchmarks of the file to take turns with.",
)
@click.option(
    "-l",
    "--list",
    "listed",
    is_flag=True,
    help="Show the benchmarks, their axes and points; needs no GPU.",
)
@options.measuring
def bench(
    file: Path, axes: tuple[str, ...], filters: tuple[str, ...], against: str, listed: bool, harness: Harness,
    out: Path | None, as_json: bool, **shown: Any,
) -> None:  # fmt: skip
    """Time every benchmark that FILE.py declares with @worklog.bench, at each point of its axes.

    A point that the benchmark skips, that doesn't compile, or that doesn't fit the memory is skipped with its reason.
    Exits with 1 if a point fails. Results aren't checked: `worklog check` does that for matrix products, and `worklog
    run --problem` checks a solution before it is timed.
    """
    baselines = [
        declared(file, [name.strip()], axes)[0] for name in against.split(",") if name.strip()
    ]
    benchmarks = declared(file, filters, axes)
    if listed:
        points = {
            b.name: [{**p.values, "skipped": p.skipped} for p in b.space.points()]
            for b in benchmarks
        }
        text = "\n".join(
            benchmark.table().text(options.terminal_width()) for benchmark in benchmarks
        )
        options.show(points, text, as_json)
        return
    require_gpu("--list shows the benchmarks and their points")
    with options.progress_bar() as progress:
        measured = time_benchmarks(
            benchmarks, baselines, harness=harness, progress=progress, out=out
        )
    _finish(measured, as_json=as_json, **shown)


@click.command()
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--pivot",
    is_flag=True,
    help="Kernels beside each other at each size, the fastest and slowest marked.",
)
@click.option("--samples", is_flag=True, help="Write one row per sample with --csv and --parquet.")
@click.option(
    "--bencher",
    type=options.FILE,
    callback=options.new_file,
    help="Also write Bencher's metrics to a file.",
)
@options.exports
@options.JSON
def show(name: str | None, pivot: bool, samples: bool, as_json: bool, **files: Any) -> None:
    """Print a run: a file, a name of `worklog log`, a recording, or REVISION:PATH; else the newest run of this machine,
    else the recording.
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
@click.option("--preview", is_flag=True, help="List the tiles without measuring; needs no GPU.")
@click.option(
    "--check",
    "checked",
    is_flag=True,
    help="With --preview: only tiles that pass a check on the emulator.",
)
@options.measuring
def sweep(
    name: str, axes: tuple[str, ...], shape: Shape, where: tuple[str, ...], preview: bool, checked: bool,
    scheduler: str, harness: Harness, out: Path | None, as_json: bool, **shown: Any,
) -> None:  # fmt: skip
    """Check and time the tiles of a rung, each beside cuBLAS, and then the fastest ones against each other in one loop
    on each card. Without a GPU, tiles are shown from the recording.

    Run the same command to resume an interrupted sweep. Finished tiles are skipped unless their source, the shape, the
    settings, the compiler, the driver or the GPU changed.
    """
    if Path(name).suffix == ".cu":
        one = f"worklog run {shlex.quote(name)} -D BM=64"
        raise BadSetting(
            f"sweep takes a rung: time each tile of your kernel by itself, as in {one}"
        )
    record = rung(name)
    if name == "best":
        raise BadSetting("worklog sweep takes any rung but best, whose tiles stand in a table")
    if not axes:
        raise BadSetting(f"worklog sweep {name} takes --axis NAME=VALUES, such as --axis BM=64,128")
    if checked and not preview:
        raise BadSetting("--check is for --preview: a measured tile is checked on the GPU")
    given = [Axis.parse(axis) for axis in axes]
    tiles.space_of(record, given, where)  # raises before workers start
    how = {option: shown.pop(option) for option in ("strategy", "trials", "seed", "fresh")}
    needing = {
        "out": out,
        "set": harness != Harness(),
        "trials": how["trials"],
        "fresh": how["fresh"],
    }
    live = not preview and (scheduler not in ("", "local") or options.live_wanted(**needing))
    cards = visible_cards()
    several = live and len(cards) > 1 and find_spec("distributed")
    cluster = Cluster(scheduler.replace("local", ""), cards) if scheduler or several else Workers()
    with cluster as workers, options.progress_bar() as progress:
        chosen = tiles.variants(
            record, given, shape=shape, where=where, checked=checked, cpu=workers.cpu
        )
        if not preview:
            chosen.require_some()
        click.echo(chosen.preview(is_live=live or preview), err=True)
        if live:
            measured = search(chosen, workers, harness=harness, progress=progress, out=out, **how)
    if live:
        _finish(measured, table=ranking(measured), as_json=as_json, **shown)
    elif not preview:
        _finish(tiles.recorded(chosen), as_json=as_json, **shown)
    elif as_json:
        click.echo(chosen.frame().to_json(orient="records", indent=1))
    elif chosen.kept:
        click.echo(chosen.frame().to_string(index=False))


def kernel_named(word: str, launch: Mapping[str, Any]) -> str | Kernel:
    """A rung, cuBLAS or one of FUNCTIONS by its name, or a user kernel by its file and function, which has the name of
    its file. Raises what worklog.kernel.ladder raises, and BadSetting for a name that nothing has.
    """
    name = NAMES.get(word.lower())
    if name is not None:
        return Kernel.from_function(FUNCTIONS[name]) if name in FUNCTIONS else name
    if not (":" in word or Path(word).suffix or Path(word).exists() or Path(f"{word}.cu").exists()):
        near = meant(word, NAMES.values())
        raise BadSetting(
            f"there is no kernel {word!r}{near}: name a file, or {', '.join(NAMES.values())}"
        )
    return kernel_of(word, launch)


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
    """Compare two sets of runs. Reports each kernel and size as faster, slower, same or cannot tell. A run is
    a file, a name of `worklog log`, a recording, or REVISION:PATH of a file in git; several of one side are pooled, a
    process each. Files of NVBench's --json are read too.

    Exits with 1 if a kernel is slower by more than half of the threshold and than its interval, or fails now; with 2 if
    the GPU model, the settings or the inputs differ. To confirm, pool another run: `worklog compare OLD NEW1,NEW2`.
    """
    _require_no_kernels(old, new)
    if chart is not None:
        require_writable(chart.parent, str(chart), "give --chart another name")
        chart = chart.with_suffix("") if chart.suffix in (".svg", ".png") else chart
    made = compare_sides(sides(old), sides(new), threshold / 100)
    written = list[Path]()
    if markdown is not None:
        write_text(markdown, made.markdown())
        written.append(markdown)
    if chart is not None:
        from worklog import plots  # here: matplotlib is slow to import

        written += plots.save(plots.changes(made), chart)
    for path in written:
        click.echo(f"written: {path}", err=True)
    options.show(asdict(made), made.table().text(options.terminal_width()), as_json)
    sys.exit(made.exit_code(strict))


def _require_no_kernels(old: str, new: str) -> None:
    """Raise BadSetting, with the command that compares kernels, if these words name .cu files."""
    if Path(old).suffix == ".cu" or Path(new).suffix == ".cu":
        both = f"{shlex.quote(new)} --against {shlex.quote(old)}"
        raise BadSetting(
            f"compare takes saved runs, not kernels: on a GPU, `worklog run {both}` times both in one loop"
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
def log(keep: int | None, yes: bool, as_json: bool, **words: Any) -> None:
    """List the runs that this machine keeps, the newest first; --csv, --markdown and --parquet write all their
    measurements as one table. `worklog show`, `compare` and `rerun` take a run by its name or a part of it.
    """
    files = {name: words.pop(name) for name in ("csv", "markdown", "parquet")}
    if keep is not None:
        if any(words.values()):
            raise BadSetting(
                "--keep counts all runs: omit --kernel, --gpu, --since, --until and --commit"
            )
        old = live_runs()[keep:]
        if (
            old
            and not yes
            and not click.confirm(f"remove {len(old)} runs, the newest {old[0].stem}?", err=True)
        ):
            raise Interrupted("nothing is removed")
        for path in old:
            path.unlink(missing_ok=True)
        click.echo(f"removed: {len(old)} runs", err=True)
    if any(files.values()):
        options.write_exports(
            history(**words).to_dict("records"), files, title="runs of this machine"
        )
    rows = list[dict[str, str]]()
    for run in saved(**words):
        kernels, sizes = (
            dict.fromkeys(getattr(m, what) for m in run.select()) for what in ("kernel", "place")
        )
        row = {"run": run.path.stem if run.path else "", "GPU": run.gpu.name}
        row |= {
            "commit": str(run.tool.get("commit") or "")[:9],
            "kernels": a_few(kernels),
            "sizes": a_few(sizes),
        }
        rows.append(
            row
            | {"measurements": str(len(run.measurements)), "": "" if run.complete else "cut short"}
        )
    title = f"runs in {runs_dir()}" + (
        "" if rows else f": none; recorded ones: worklog show {' '.join(recordings())}"
    )
    options.show(rows, Table.of(title, rows, left=5).text(options.terminal_width()), as_json)


@click.command()
@click.argument("name", metavar="RUN")
@click.pass_context
def rerun(context: click.Context, name: str) -> None:
    """Run the command of a saved run again, in this folder, into a new run. Its files are read from here as they are
    now; --out and other files to write are left out.
    """
    run = open_run(name)
    if not (words := [*run.tool.get("command", ())]):
        raise BadSetting(
            f"{name} doesn't state the command that made it: measure it again with `worklog run`"
        )
    for option in NEW_FILES:
        words = [word for word in words if not word.startswith(f"{option}=")]
        while option in words:
            del words[words.index(option) : words.index(option) + 2]
    then, now = (
        about.get("commit", about["version"]) for about in ({"version": "?", **run.tool}, tool())
    )
    click.echo(
        f"worklog {shlex.join(words)}" + (f"  (was {then:.9}, is {now:.9})" if then != now else ""),
        err=True,
    )
    context.find_root().command.main(words, prog_name="worklog", standalone_mode=True)
