"""The commands that look at the harness and the gate: `worklog ablate`, `grid`, `gate`, `calibrate`, `peers` and
`settings`. Without a GPU, each shows what is recorded.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from worklog.cli import output
from worklog.errors import BadSetting, Interrupted
from worklog.gpu import device
from worklog.harness.calibration import Calibration, certificate
from worklog.peers import compare, exploits
from worklog.problem import Shape
from worklog.runner import measure as bench
from worklog.runner.declare import at, declared
from worklog.runner.job import ABLATION_SIZES, ablation_jobs, estimate, grid_jobs
from worklog.runner.session import calibrated
from worklog.runs import effects, effects_frame, effects_text, open_comparison, open_run, read_part
from worklog.settings import PITFALLS, SAMPLING, Harness


@output.command(click.argument("rung"), output.SIZES, output.HARNESS, output.out_option(), *output.EXPORT, output.JSON)
def ablate(rung: str, sizes: list[Shape], harness: Harness, out: Path | None) -> None:
    """Measure one rung with each setting of the harness biased in turn, and show what that does to the number.

    Without a GPU, the recording is shown.
    """
    bench.require_measurable(ablation_jobs(rung, sizes or ABLATION_SIZES), harness)
    output.live_wanted(harness, out)
    with output.progress_bar() as progress:
        measured = bench.ablate(rung, sizes or ABLATION_SIZES, harness=harness, progress=progress, out=out)
    output.export(lambda: effects_frame(measured, rung), title=f"{rung} · {measured.label}")
    saved = f"\nrun saved: {measured.path}" if measured.origin == "live" else ""
    output.show([asdict(effect) for effect in effects(measured, rung)], effects_text(measured, rung) + saved)


@output.command(
    output.flag("--preview", about="Show how much would be measured and how long it takes; needs no GPU."),
    output.out_option(),
)
def grid(preview: bool, out: Path | None) -> None:
    """Record the combinations of settings that the panel in the notebooks shows. Takes minutes on a GPU."""
    tasks = grid_jobs()
    if preview:
        seconds, source = estimate(tasks, Harness())
        click.echo(f"grid: {len(tasks)} measurements, about {sum(seconds) / 60:.0f} min (rough; rates: {source})")
        return
    with output.progress_bar() as progress:
        measured = bench.carry_out(tasks, Harness(), progress=progress, out=out)
    click.echo(f"run saved: {measured.path} ({len(measured.measurements)} measurements)")


@output.command(
    output.flag("--exploits", "shown", about="The table of exploits: wrong kernels, and right ones."),
    click.option("--only", metavar="NAME[,NAME…]", help="Run only these exploits."),
    click.option("--seeds", type=click.IntRange(1, 1000), help="Check each on this many seeds (default: 1)."),
    output.flag("--emulate", about="Run them here on the emulator: takes minutes, needs no GPU."),
    output.flag("--small", about="Small sizes for the peers on a GPU too: a minute instead of several."),
    output.flag("--recorded", about="Show the recorded table (default without a GPU)."),
    output.out_option("Where to save the table."),
    output.JSON,
)
def gate(shown: bool, recorded: bool, out: Path | None, **how: Any) -> None:
    """Check kernels that are wrong in a known way, and show which other harnesses would have passed them. Exits with 1
    if the gate is wrong about one.
    """
    given = [f"--{name}" for name, value in {**how, "out": out}.items() if value is not None and value is not False]
    if not shown:
        if given or recorded or output.typed("json"):
            raise BadSetting("nothing to show: --exploits prints the table of exploits")
        click.echo(click.get_current_context().get_help())
        return
    if recorded and given:
        raise BadSetting(f"--recorded shows the recorded table: omit {', '.join(given)}")
    if recorded or not (given or bench.live_wanted()):
        table = exploits.open_exploits()
    else:
        only, seeds = how.pop("only"), range(how.pop("seeds") or 1)
        names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
        if names == []:
            raise BadSetting("--only names no exploit: give one or more, such as --only zeros,kahan")
        chosen = None if names is None else exploits.named(names)
        with output.progress_bar() as progress:
            table = exploits.run_exploits(chosen, seeds=seeds, progress=progress, out=out, **how)
        if not table.rows:
            raise Interrupted("interrupted before the first exploit was finished")
        if out is not None:
            click.echo(f"table saved: {out}", err=True)
    output.show(table.as_dict(), table.text(output.terminal_width(150)))
    if not (table.complete or table.origin):  # only a table that was made here can have been interrupted
        kept = f"finished rows are in {out}" if out is not None else "finished rows are shown"
        raise Interrupted(f"interrupted: {kept}")
    if table.failures:
        sys.exit(1)


@output.command(output.HARNESS, output.JSON)
def calibrate(harness: Harness) -> None:
    """Measure the harness itself: event overhead and the error left after its removal, noise, whether the L2 flush
    works, and the ceilings of this GPU. Of the settings, only the clocks can change. Without a GPU, the recording is
    shown.
    """
    if harness.but(clocks="watched") != Harness():
        raise BadSetting("calibrate uses the unbiased harness: --set takes only clocks here")
    if output.live_wanted(harness):
        found, label, notes = calibrated(harness.clocks)
        card = device.gpu()
    else:
        run = open_run()
        found, card = read_part(Calibration, run.calibration, "calibration"), device.Gpu.of(run.device)
        label, notes = run.label, []
    document = {"label": label, "device": card.as_dict(), "calibration": found.as_dict()}
    text = "\n".join([certificate(found, card, label), *notes])
    output.show({**document, "remarks": [*notes, *found.remarks]}, text)


@output.command(
    output.flag("--recorded", about="Show the recorded comparison (default without a GPU)."),
    click.option(
        "--bench",
        "files",
        multiple=True,
        type=output.PATH,
        metavar="FILE.py",
        help="Time the benchmarks that FILE.py declares instead, cold and hot; repeat for more.",
    ),
    output.axis_option("As of `worklog bench`; repeat for more."),
    output.out_option(),
    *output.EXPORT,
    output.JSON,
)
def peers(recorded: bool, files: tuple[Path, ...], axes: tuple[str, ...], out: Path | None) -> None:
    """Time kernels of known length and cuBLAS, or declared benchmarks, with this harness and with every other one that
    is installed. Without a GPU, the recording is shown.
    """
    if recorded and out is not None:
        raise BadSetting("--recorded shows the recorded comparison: omit --out")
    if axes and not files:
        raise BadSetting("--axis is for declared benchmarks: give --bench FILE.py")
    path = None
    if not recorded and (out is not None or files or bench.live_wanted()):
        chosen = at(axes, [one for file in files for one in declared(file)]) if files else []
        device.require_gpu("omit --bench and --out to see the recorded comparison")
        with output.progress_bar() as progress:
            path = compare.compare(out, progress, chosen)
    found = open_comparison(path, "benchmarks" if files else "peers")
    output.export(found.frame, title=found.label)
    output.show(found.document, compare.text(found) + ("" if path is None else f"\nsaved: {path}"))


@output.command(output.JSON)
def settings() -> None:
    """List the settings of the harness: the pitfall that each one avoids, its unbiased value and its biased ones."""
    lines = []
    for pitfall in PITFALLS:
        number = f"{pitfall.article} · " if pitfall.article else ""
        also = f"; also unbiased: {', '.join(map(str, pitfall.also))}" if pitfall.also else ""
        biased = ", ".join(map(str, pitfall.biased))
        lines.append(f"{pitfall.setting} = {pitfall.unbiased} (biased: {biased}{also})")
        lines.append(f"    {number}{pitfall.title}. {pitfall.what}")
    lines.append("precision and budget:")
    for name, what in SAMPLING.items():
        lines += [f"{name} = {getattr(Harness(), name)}", f"    {what}"]
    output.show([asdict(pitfall) for pitfall in PITFALLS], "\n".join(lines))
