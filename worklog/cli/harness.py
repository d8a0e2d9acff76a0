"""The commands that look at the harness and the gate: `worklog ablate`, `exploits` and `peers`. Without a GPU, each
shows what is recorded.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from worklog.cli import options
from worklog.cli.run import print_preview
from worklog.errors import BadSetting, Interrupted
from worklog.gpu.device import require_gpu
from worklog.peers import compare
from worklog.peers import exploits as table_of
from worklog.problem import Shape
from worklog.runner import measure
from worklog.runner.declare import at, declared
from worklog.runner.job import ABLATION_SIZES, ablation_jobs, grid_jobs
from worklog.runs.ablation import effects, effects_frame, effects_text
from worklog.runs.comparison import open_comparison
from worklog.settings import Harness


@click.command()
@options.kernel("rung", "[RUNG]", required=False)
@click.option("--grid", is_flag=True, help="Instead, record the combinations of settings that the panel shows.")
@options.SIZES
@click.option("--preview", is_flag=True, help="Show how much would be measured and how long it takes; needs no GPU.")
@options.measuring
def ablate(
    rung: str | None, grid: bool, shapes: list[Shape], harness: Harness, preview: bool, out: Path | None,
    as_json: bool, **shown: Any,
) -> None:  # fmt: skip
    """Measure one rung with each setting of the harness biased in turn, and show what that does to the number.

    Without a GPU, the recording is shown. --grid takes minutes on a GPU: `worklog site --grid FILE` shows its run.
    """
    if (rung is None) != grid or (grid and (shapes or harness != Harness())):
        raise BadSetting("name a rung, or give --grid without a rung, --size and --set")
    shapes = shapes or [Shape.of(size) for size in ABLATION_SIZES]
    jobs = ablation_jobs(rung, shapes) if rung is not None else grid_jobs()
    measure.require_measurable(jobs, harness)
    if preview:
        print_preview(jobs, as_json)
        return
    if rung is None or options.live_wanted(out=out, set=harness != Harness()):
        with options.progress_bar() as progress:
            run = measure.carry_out(jobs, harness, progress=progress, out=out)
    else:
        run = measure.ablate(rung, shapes)
    if rung is None:
        options.print_run(run, as_json=as_json, **shown)
        return
    if any(shown.values()):
        options.write_exports(effects_frame(run, rung), shown, title=f"{rung} · {run.label}")
    text = effects_text(run, rung) + (f"\nrun saved: {run.path}" if run.origin == "live" else "")
    options.show([asdict(effect) for effect in effects(run, rung)], text, as_json)


@click.command()
@click.option("--only", metavar="NAME[,NAME…]", help="Run only these exploits.")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Check each on this many seeds (default: 1).")
@click.option("--emulate", is_flag=True, help="Run them here on the emulator: takes minutes, needs no GPU.")
@options.out("Where to save the table.")
@options.JSON
def exploits(only: str | None, out: Path | None, as_json: bool, **how: Any) -> None:
    """Check kernels that are wrong in a known way, and show which other harnesses would have passed them. With
    WORKLOG_SOURCE=recorded, or without a GPU and any option, the recorded table is shown. Exits with 1 if the gate is
    wrong about one.
    """
    if only is not None or out or any(how.values()) or measure.live_wanted():
        names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
        if names == []:
            raise BadSetting("--only names no exploit: give one or more, such as --only zeros,kahan")
        chosen = None if names is None else table_of.named(names)
        how["seeds"] = range(how["seeds"] or 1)
        with options.progress_bar() as progress:
            table = table_of.run_exploits(chosen, progress=progress, out=out, **how)
        if not table.rows:
            raise Interrupted("interrupted before the first exploit was finished")
        if out is not None:
            click.echo(f"table saved: {out}", err=True)
    else:
        table = table_of.open_exploits()
    options.show(table.as_dict(), table.text(options.terminal_width(150)), as_json)
    if not (table.complete or table.origin):  # only a table that was made here can have been interrupted
        raise Interrupted(f"interrupted: finished rows are {'shown' if out is None else f'in {out}'}")
    if table.failures:
        sys.exit(1)


@click.command()
@click.option(
    "--bench", "files", multiple=True, type=options.PATH, metavar="FILE.py",
    help="Time the benchmarks that FILE.py declares instead, cold and hot; repeat for more.",
)  # fmt: skip
@options.axes("As of `worklog bench`; repeat for more.")
@options.out()
@options.exports
@options.JSON
def peers(
    files: tuple[Path, ...], axes: tuple[str, ...], out: Path | None, as_json: bool, **exports: Path | None
) -> None:
    """Time kernels of known length and cuBLAS, or declared benchmarks, with this harness and with every other one that
    is installed. Without a GPU, or with WORKLOG_SOURCE=recorded, the recording is shown.
    """
    if axes and not files:
        raise BadSetting("--axis is for declared benchmarks: give --bench FILE.py")
    path = None
    if out is not None or files or measure.live_wanted():
        benchmarks = at(axes, [benchmark for file in files for benchmark in declared(file)]) if files else []
        require_gpu("omit --bench and --out to see the recorded comparison")
        with options.progress_bar() as progress:
            path = compare.compare(out, progress, benchmarks=benchmarks)
    table = open_comparison(path, "benchmarks" if files else "peers")
    if any(exports.values()):
        options.write_exports(table.frame(), exports, title=table.label)
    options.show(table.document, compare.text(table) + ("" if path is None else f"\nsaved: {path}"), as_json)
