"""`worklog …`: parses, calls, prints. What the words do is in the rooms to the left.

Exit codes: 0 done, 1 a refusal, 2 a mistake in what was asked, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog import __version__
from worklog.cli_gate import gate
from worklog.cli_kernels import check, inspect_, json_option, kernels_of, launch_options, measure_them, sweep
from worklog.cli_kernels import print_json as _print_json
from worklog.cli_kernels import progress_bar as _progress
from worklog.errors import BadSetting, WorklogError
from worklog.gemm import Shape

if TYPE_CHECKING:
    from worklog.emulated import Executed
    from worklog.plots import Drawn
    from worklog.runs import Run


class Commands(click.Group):
    """Prints this package's errors as one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a WorklogError ends in its message and exit code."""
        try:
            return super().invoke(ctx)
        except WorklogError as error:
            click.echo(f"worklog: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="worklog")
def main() -> None:
    """A worklog you can trust: SGEMM kernels, one honest ruler, and a gate that no wrong kernel passes."""


main.add_command(check)
main.add_command(gate)
main.add_command(inspect_)
main.add_command(sweep)


def _sizes(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> list[Shape]:
    return [Shape.of(word) for listed in words for word in listed.split(",")]


size_option = click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=_sizes,
    metavar="N[,N…]",
    help="Sizes: 4096, or M x N x K as 512x1024x256.",
)
out_option = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to save the run (default: among this machine's runs).",
)


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what is here, what is missing, what that costs and how to get it."""
    from worklog.doctor import examine

    findings = examine()
    if as_json:
        _print_json([asdict(finding) for finding in findings])
        return
    for finding in findings:
        click.echo(f"{'✓' if finding.good else '·'} {finding.subject}: {finding.state}")
        if finding.advice:
            click.echo(f"    {finding.advice}")


@main.command()
@click.argument("kernels", nargs=-1, metavar="[RUNG|FILE.cu|FILE.py:FUNCTION…]")
@size_option
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME[KIND]=VALUES",
    help='Sizes as axes N, M and K, all combinations: "N[pow2]=8:13", "K=512,1024:4096:1024".',
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SETTING=VALUE",
    help="Change one harness setting, e.g. l2=warm (see `worklog settings`).",
)
@launch_options
@click.option("--details", is_flag=True, help="A second table: GB/s, shares of copy and peaks, cycles of a launch.")
@out_option
@json_option
def run(
    kernels: tuple[str, ...],
    sizes: list[Shape],
    axes: tuple[str, ...],
    settings: tuple[str, ...],
    details: bool,
    out: Path | None,
    as_json: bool,
    **launch: Any,
) -> None:
    """Gate and time rungs (all of them and cuBLAS by default), or kernels of your own, at 4096 or the sizes given."""
    from worklog.axes import Axis, shapes
    from worklog.harness.settings import Harness, parse_settings

    _refuse_to_overwrite(out)
    harness = Harness().but(**parse_settings(settings))
    if axes:
        sizes = [*sizes, *shapes([Axis.parse(axis) for axis in axes])]
    asked = kernels_of(kernels, **launch) or None
    with _progress() as progress:
        measured = measure_them(asked, sizes or [Shape.of(4096)], harness=harness, progress=progress, out=out)
    if as_json:
        _print_json(_measurements(measured))
    else:
        _print_run(measured, with_details=details)
    if any(m.status == "refused" for m in measured.measurements):
        sys.exit(1)


@main.command()
@click.argument("rung")
@size_option
@out_option
@json_option
def ablate(rung: str, sizes: list[Shape], out: Path | None, as_json: bool) -> None:
    """Let each gremlin loose on one rung: what does it do to the number? Without a GPU, from the recording."""
    from worklog import bench
    from worklog.ablation import effects, text
    from worklog.plans import ABLATION_SIZES

    _refuse_to_overwrite(out)
    with _progress() as progress:
        measured = bench.ablate(rung, sizes or ABLATION_SIZES, progress=progress, out=out)
    if as_json:
        _print_json([asdict(effect) for effect in effects(measured, rung)])
        return
    click.echo(text(measured, rung))
    if measured.origin == "live":
        click.echo(f"run saved: {measured.path}")


@main.command(hidden=True)
@out_option
def grid(out: Path | None) -> None:
    """Record every combination of fixes that the notebooks' panel answers from. Minutes on a GPU."""
    from worklog.bench import carry_out
    from worklog.harness.settings import Harness
    from worklog.plans import grid_tasks

    _refuse_to_overwrite(out)
    with _progress() as progress:
        measured = carry_out(grid_tasks(), Harness(), progress=progress, out=out)
    click.echo(f"run saved: {measured.path} ({len(measured.measurements)} measurements)")


@main.command()
@json_option
def calibrate(as_json: bool) -> None:
    """Measure the ruler itself: its offset and what is left of it, its noise, whether its flush works, this GPU's
    ceilings.
    """
    from datetime import UTC, datetime

    from worklog.device import gpu
    from worklog.harness.certificate import certificate
    from worklog.session import Session

    found = Session().calibration
    if as_json:
        _print_json({"device": gpu().as_dict(), "calibration": found.as_dict(), "remarks": found.remarks})
        return
    click.echo(certificate(found, gpu(), datetime.now(UTC).date().isoformat()))


@main.command()
@click.option("--recorded", is_flag=True, help="Show the comparison that comes with the package, GPU or not.")
@out_option
@json_option
def peers(recorded: bool, out: Path | None, as_json: bool) -> None:
    """Time kernels of known length and cuBLAS with this ruler and with every other one that is installed. Without a
    GPU, from the recording.
    """
    from worklog.bench import live_wanted
    from worklog.device import require_gpu
    from worklog.peers.compare import compare, text
    from worklog.peers.comparison import open_comparison

    _refuse_to_overwrite(out)
    if recorded and out is not None:
        raise BadSetting("--recorded measures nothing that could be saved: leave --out away")
    if recorded or (out is None and not live_wanted()):
        path = None
    else:
        require_gpu()
        with _progress() as progress:
            path = compare(out, progress)
    found = open_comparison(path)
    if as_json:
        _print_json(found.document)
        return
    click.echo(text(found))
    if path is not None:
        click.echo(f"saved: {path}")


@main.command()
@json_option
def settings(as_json: bool) -> None:
    """List the harness settings: the gremlin each one fixes, its honest value and its lies."""
    from worklog.gremlins import GREMLINS

    if as_json:
        _print_json([asdict(gremlin) for gremlin in GREMLINS])
        return
    for gremlin in GREMLINS:
        number = f"{gremlin.article} · " if gremlin.article else ""
        also = f"; also honest: {', '.join(map(str, gremlin.also))}" if gremlin.also else ""
        click.echo(
            f"{gremlin.setting} = {gremlin.honest} (lies: {', '.join(map(str, gremlin.lies))}{also})\n"
            f"    {number}{gremlin.title}. {gremlin.what}"
        )


@main.command()
@click.option(
    "--run",
    "run_file",
    type=click.Path(path_type=Path),
    help="A run file (default: the latest live run, else the recording).",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("figures"),
    show_default=True,
    help="Folder for SVG and PNG.",
)
@json_option
def figures(run_file: Path | None, out: Path, as_json: bool) -> None:
    """Draw every chart that a run has the measurements for."""
    from worklog.runs import open_run

    taken = open_run(run_file)
    drawn = _draw(taken, out)
    if as_json:
        _print_json({"label": taken.label, **_figures(drawn)})
    else:
        _print_figures(taken, drawn)


@main.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("figures"),
    show_default=True,
    help="Folder for SVG and PNG.",
)
@click.option(
    "--readme",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("README.md"),
    show_default=True,
    help="File whose table is rewritten.",
)
@click.option("--emulate/--no-emulate", default=True, help="Without a GPU, execute every rung on the emulator.")
@json_option
def article(out: Path, readme: Path, emulate: bool, as_json: bool) -> None:
    """The main job: measure if there is a GPU, else take the recording and execute every rung on the emulator; draw
    the figures, print the table, update the README.
    """
    from worklog import bench
    from worklog.harness.settings import Harness
    from worklog.peers.comparison import open_comparison
    from worklog.plans import article_tasks
    from worklog.readme import rewrite, rewrite_comparison
    from worklog.runs import open_run

    live = bench.live_wanted()
    if live:
        with _progress() as progress:
            taken = bench.carry_out(article_tasks(), Harness(), progress=progress)
    else:
        taken = open_run()
    if not as_json:
        _print_run(taken)
    executed = [] if live or not emulate else _execute(as_json)
    drawn = _draw(taken, out)
    rewritten = rewrite(readme, taken) | rewrite_comparison(readme, open_comparison())
    if as_json:
        from worklog.emulated import as_dict

        seen = {"executed": as_dict(executed) if executed else None, "readme": str(readme) if rewritten else None}
        _print_json({**_measurements(taken), **_figures(drawn), **seen})
    else:
        _print_figures(taken, drawn)
        if rewritten:
            click.echo(f"tables rewritten: {readme}")
    if any(row.reason for row in executed):
        sys.exit(1)


def _execute(quiet: bool) -> list[Executed]:
    """Every rung on the emulator, with a table of what came of it."""
    from rich.console import Console

    from worklog import emulated

    with _progress() as progress:
        executed = emulated.execute(progress)
    if not quiet:
        emulated.print_table(executed, Console(width=None if sys.stdout.isatty() else 160))
    return executed


def _measurements(taken: Run) -> dict[str, Any]:
    rows = json.loads(taken.frame().to_json(orient="records"))
    return {"label": taken.label, "path": str(taken.path), "measurements": rows}


def _print_run(taken: Run, *, with_details: bool = False) -> None:
    from rich.console import Console

    from worklog.tables import print_tables

    print_tables(taken, Console(width=None if sys.stdout.isatty() else 160), with_details=with_details)
    if taken.origin == "live":
        click.echo(f"run saved: {taken.path}")


def _draw(taken: Run, out: Path) -> Drawn:
    """Every figure, and the page that shows them."""
    from worklog.plots import draw_all, write_gallery

    drawn = draw_all(taken, out)
    return replace(drawn, gallery=write_gallery(drawn, out))


def _figures(drawn: Drawn) -> dict[str, Any]:
    gallery = str(drawn.gallery) if drawn.gallery else None
    return {"figures": [str(path) for path in drawn.paths], "gallery": gallery, "not_drawn": drawn.missing}


def _print_figures(taken: Run, drawn: Drawn) -> None:
    click.echo(f"figures from: {taken.label}")
    for path in drawn.paths:
        click.echo(f"  {path}")
    for name, why in drawn.missing.items():
        click.echo(f"  {name} not drawn: {why}")
    if drawn.gallery:
        click.echo(f"all of them: {drawn.gallery}")


def _refuse_to_overwrite(out: Path | None) -> None:
    if out is not None and out.exists():
        raise BadSetting(f"{out} exists already: give --out another name, or remove it first")
