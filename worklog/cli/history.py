"""What became of kernels: `worklog compare`, `worklog log` and `worklog rerun`."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from worklog.cli import options
from worklog.errors import BadSetting, Interrupted
from worklog.runs import Table, a_few, live_runs, open_run, recordings, runs_dir, tool, write_text
from worklog.runs.changes import compare as compare_sides
from worklog.runs.changes import history, saved, sides

NEW_FILES = ("--out", "--csv", "--markdown", "--parquet", "--bencher")  # each takes a file that must not exist


@click.command()
@click.argument("old", metavar="OLD[,OLD…]")
@click.argument("new", metavar="NEW[,NEW…]")
@click.option(
    "--threshold", type=click.FloatRange(0.1, 100), default=2.0, show_default=True, metavar="PERCENT",
    help="A slowdown of this size is to be found.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 2 where the driver, compiler or harness differs.")
@click.option("--markdown", type=options.FILE, callback=options.new_file, help="Also write it for a pull request.")
@click.option("--chart", type=options.FILE, metavar="NAME", help="Also draw it: NAME.svg, NAME.png, and both in dark.")
@options.JSON
def compare(
    old: str, new: str, threshold: float, strict: bool, markdown: Path | None, chart: Path | None, as_json: bool
) -> None:
    """Say of each kernel and size whether it became faster or slower, or neither, or that nothing can be told. A run is
    a file, a name of `worklog log`, a recording, or REVISION:PATH of a file in git; several of one side are pooled, a
    process each. Files of NVBench's --json are read too.

    Exits with 1 if a kernel is slower by more than half of the threshold and than its interval, or fails now; with 2 if
    the GPU model, the settings or the inputs differ. To confirm, pool another run: `worklog compare OLD NEW1,NEW2`.
    """
    if math.isnan(threshold):
        raise click.BadParameter("a number is meant", param_hint="--threshold")
    made, written = compare_sides(sides(old), sides(new), threshold / 100), list[Path]()
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


@click.command()
@click.option("--kernel", default="", metavar="NAME", help="Only runs that measured this kernel.")
@click.option("--gpu", default="", metavar="WORDS", help="Only cards with these words in their name or UUID.")
@click.option("--since", default="", metavar="DATE", help="Only from this UTC day, month or time on: 2026-11-27.")
@click.option("--until", default="", metavar="DATE", help="Only up to this UTC day, month or time.")
@click.option("--commit", default="", metavar="HASH", help="Only measured at this commit of worklog.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Remove all runs but the newest N.")
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
            raise BadSetting("--keep counts all runs: omit --kernel, --gpu, --since, --until and --commit")
        old = live_runs()[keep:]
        if old and not yes and not click.confirm(f"remove {len(old)} runs, the newest {old[0].stem}?", err=True):
            raise Interrupted("nothing is removed")
        for path in old:
            path.unlink(missing_ok=True)
        click.echo(f"removed: {len(old)} runs", err=True)
    if any(files.values()):
        options.write_exports(history(**words).to_dict("records"), files, title="runs of this machine")
    rows = list[dict[str, str]]()
    for run in saved(**words):
        kernels, sizes = (dict.fromkeys(getattr(m, what) for m in run.select()) for what in ("kernel", "place"))
        row = {"run": run.path.stem if run.path else "", "GPU": run.gpu.name}
        row |= {"commit": str(run.tool.get("commit") or "")[:9], "kernels": a_few(kernels), "sizes": a_few(sizes)}
        rows.append(row | {"measurements": str(len(run.measurements)), "": "" if run.complete else "cut short"})
    title = f"runs in {runs_dir()}" + ("" if rows else f": none; recorded ones: worklog show {' '.join(recordings())}")
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
        raise BadSetting(f"{name} wasn't made by a command that its file states: measure it again with `worklog run`")
    for option in NEW_FILES:
        words = [word for word in words if not word.startswith(f"{option}=")]
        while option in words:
            del words[words.index(option) : words.index(option) + 2]
    then, now = (about.get("commit", about["version"]) for about in ({"version": "?", **run.tool}, tool()))
    click.echo(f"worklog {shlex.join(words)}" + (f"  (was {then:.9}, is {now:.9})" if then != now else ""), err=True)
    context.find_root().command.main(words, prog_name="worklog", standalone_mode=True)
