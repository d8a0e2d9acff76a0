"""`worklog show`, `compare` and `log`: the commands for saved runs."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from worklog.cli import options
from worklog.errors import BadSetting, Interrupted
from worklog.runs import CUBLAS, Run, open_run, recordings
from worklog.runs.changes import compare_revisions, open_revisions
from worklog.runs.files import require_writable, write_text
from worklog.runs.shared import open_shared, shares_of_both, side_by_side
from worklog.runs.shared import share as shared_run
from worklog.runs.sources import history, live_runs, runs_dir, saved
from worklog.runs.text import Table, a_few

SHARES = "Share of cuBLAS in percent. Each share is of one card: its kernel, beside its own cuBLAS."


@click.command()
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--pivot",
    is_flag=True,
    help="Kernels beside each other at each size, the fastest and slowest marked.",
)
@click.option("--samples", is_flag=True, help="Write one row per sample with --csv and --parquet.")
@click.option(
    "--share",
    type=options.FILE,
    callback=options.new_file,
    help=(
        "Also write a run of this machine for others: numbers, versions and checksums, without "
        "names of the machine, its users or its folders."
    ),
)
@click.option(
    "--from",
    "shared",
    type=options.FILE,
    help="Print the run beside the run in a file that --share wrote on another card.",
)
@click.option(
    "--chart",
    type=options.FILE,
    metavar="NAME",
    help="With --from, also draw the shares of cuBLAS: NAME.svg, NAME.png, and both in dark.",
)
@options.exports
@options.JSON
def show(
    name: str | None,
    *,
    pivot: bool,
    samples: bool,
    share: Path | None,
    shared: Path | None,
    chart: Path | None,
    as_json: bool,
    **files: Any,
) -> None:
    """Print a run.

    RUN is a file, a name of `worklog log`, a recording, or REVISION:PATH. The default is the
    newest run of this machine, else the recording.

    To share a run with somebody who has another card: `worklog run`, then `worklog show --share
    FILE`. They print yours beside theirs with `worklog show --from FILE`.
    """
    if samples and not (files["csv"] or files["parquet"]):
        raise BadSetting("--samples is for --csv and --parquet: name a file")
    run = open_run(name)
    if shared is not None:
        if pivot or share or any(files.values()):
            raise BadSetting("--from prints two runs: omit --pivot, --share and the files")
        _print_both(run, open_shared(shared), chart, as_json=as_json)
        return
    if chart is not None:
        raise BadSetting("--chart is for --from: `worklog figures` draws the charts of one run")
    if share is not None:
        _share(run, share)
    options.print_run(
        run, as_json=as_json, table=run.pivot() if pivot else None, samples=samples, **files
    )


def _print_both(ours: Run, theirs: Run, chart: Path | None, *, as_json: bool) -> None:
    """Print a run beside the run of somebody else, with the kernels whose code differs.

    chart: the name of a chart that is also drawn
    """
    from worklog.kernel.ladder import source_changed  # here: a run is printed without a compiler

    if chart is not None:
        from worklog import plots  # here: matplotlib is slow to import

        stem = _stem_of_chart(chart)
        shares = shares_of_both(ours, theirs)
        source = f"{ours.label}; {theirs.label}"
        drawn = plots.bars(
            shares.finding, shares.by_card, source, subtitle=SHARES, accented=shares.kernels
        )
        for path in plots.save(drawn, stem):
            click.echo(f"written: {path}", err=True)
    remarks = []
    for owner, run in (("ours", ours), ("theirs", theirs)):
        changed = [name for name in theirs.kernels if source_changed(name, run.kernels)]
        if changed:
            remarks.append(f"{owner}: other code than this version's: {', '.join(changed)}")
    table = side_by_side(ours, theirs, remarks)
    rows = [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]
    document = {"rows": rows, "notes": table.notes}
    options.show(document, table.text(options.terminal_width()), as_json)


def _share(run: Run, path: Path) -> None:
    """Write the file of a run that others may have, and print what it leaves out."""
    from worklog.kernel import RUNGS  # here: a run is printed without a compiler

    names = [kernel.name for kernel in RUNGS]
    written = shared_run(run, [*names, CUBLAS, f"{CUBLAS} TF32"])
    write_text(path, written.text)
    click.echo(f"written: {path}", err=True)
    if written.left_out:
        click.echo(f"left out, since others don't have it: {', '.join(written.left_out)}", err=True)


@click.command()
@click.argument("old", metavar="OLD[,OLD…]")
@click.argument("new", metavar="NEW[,NEW…]")
@click.option(
    "--threshold",
    type=options.Percent(0.1, 100),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help=(
        "Smallest slowdown to detect. A change counts from half of it on, if it exceeds its noise."
    ),
)
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
    *,
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
        chart = _stem_of_chart(chart)
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


def _stem_of_chart(chart: Path) -> Path:
    """Return a chart's name without a suffix. Raises BadSetting if it can't be written."""
    require_writable(chart.parent, str(chart), "give --chart another name")
    return chart.with_suffix("") if chart.suffix in (".svg", ".png") else chart


def _require_no_kernels(old: str, new: str) -> None:
    """Raise BadSetting, with the command that compares kernels, if .cu files are named."""
    if Path(old).suffix == ".cu" or Path(new).suffix == ".cu":
        arguments = f"{shlex.quote(new)} --against {shlex.quote(old)}"
        raise BadSetting(
            f"compare takes saved runs, not kernels: on a GPU, `worklog run {arguments}` times "
            "both in one loop"
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
