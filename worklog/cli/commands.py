"""`worklog …`: parses the arguments, calls a room, prints.

Exit codes: 0 done, 1 a failed check, 2 a usage error, 130 interrupted.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog import __version__
from worklog.cli.figures import article, figures
from worklog.cli.kernels import (
    both_axes,
    check,
    gate,
    inspect_,
    kernels_of,
    launch_options,
    measure_them,
    show_preview,
    sweep,
)
from worklog.cli.output import (
    Commands,
    harness_option,
    json_option,
    live_wanted,
    measurements,
    print_json,
    print_run,
    progress_bar,
    require_new_file,
)
from worklog.errors import BadSetting

if TYPE_CHECKING:
    from worklog.problem.gemm import Shape
    from worklog.settings import Harness


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="worklog")
def main() -> None:
    """Check and time SGEMM kernels on NVIDIA GPUs beside cuBLAS, and draw the charts."""


def _sizes(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> list[Shape]:
    from worklog.problem.gemm import (
        Shape,  # imported here: it needs NumPy, and --help and typing errors must not wait for it
    )

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


@main.command(short_help="Show what is installed and what is missing.")
@json_option
def doctor(as_json: bool) -> None:
    """Show what is installed, what is missing, what that costs, and how to get it."""
    from worklog.cli.doctor import examine

    findings = examine()
    if as_json:
        print_json([asdict(finding) for finding in findings])
        return
    for finding in findings:
        click.echo(f"{'✓' if finding.good else '·'} {finding.subject}: {finding.state}")
        if finding.advice:
            click.echo(f"    {finding.advice}")


@main.command(short_help="Check and time kernels beside cuBLAS.")
@click.argument("kernels", nargs=-1, metavar="[RUNG|FILE.cu|FILE.py:FUNCTION…]")
@size_option
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME[KIND]=VALUES",
    help='Sizes as axes N, M and K, all combinations: "N[pow2]=8:13", "K=512,1024:4096:1024". Any other name is '
    'a template argument in --entry: "BM=64,128", "T[type]=float,double".',
)
@harness_option
@launch_options
@click.option("--preview", is_flag=True, help="Show what would be measured and how long it takes; needs no GPU.")
@click.option("--details", is_flag=True, help="Add a second table: GB/s, shares of copy and peaks, cycles per launch.")
@out_option
@json_option
def run(
    kernels: tuple[str, ...],
    sizes: list[Shape],
    axes: tuple[str, ...],
    harness: Harness,
    preview: bool,
    details: bool,
    out: Path | None,
    as_json: bool,
    **launch: Any,
) -> None:
    """Check and time rungs (default: all, and cuBLAS) or your own kernels, at 4096 or the given sizes.

    Exits with 1 if a kernel fails the check.
    """
    from worklog.problem.axes import shapes
    from worklog.problem.gemm import Shape

    require_new_file(out)
    of_sizes, of_templates = both_axes(axes)
    if of_sizes:
        sizes = [*sizes, *shapes(of_sizes)]
    sizes = sizes or [Shape.of(4096)]
    asked = kernels_of(kernels, of_templates, **launch) or None
    if preview:
        show_preview(asked, sizes, harness, as_json)
        return
    with progress_bar() as progress:
        measured = measure_them(asked, sizes, harness=harness, progress=progress, out=out)
    if as_json:
        print_json(measurements(measured))
    else:
        print_run(measured, with_details=details)
    if any(m.status == "refused" for m in measured.measurements):
        sys.exit(1)


@main.command(short_help="Bias the harness one setting at a time, and compare.")
@click.argument("rung")
@size_option
@harness_option
@out_option
@json_option
def ablate(rung: str, sizes: list[Shape], harness: Harness, out: Path | None, as_json: bool) -> None:
    """Measure one rung with each setting of the harness biased in turn, and show what that does to the number.

    Without a GPU, the recording is shown.
    """
    from worklog.bench import measure as bench
    from worklog.bench.tasks import ABLATION_SIZES
    from worklog.runs.ablation import effects, text

    require_new_file(out)
    live_wanted(harness, out)
    with progress_bar() as progress:
        measured = bench.ablate(rung, sizes or ABLATION_SIZES, harness=harness, progress=progress, out=out)
    if as_json:
        print_json([asdict(effect) for effect in effects(measured, rung)])
        return
    click.echo(text(measured, rung))
    if measured.origin == "live":
        click.echo(f"run saved: {measured.path}")


@main.command(hidden=True)
@out_option
def grid(out: Path | None) -> None:
    """Record every combination of settings that the panel in the notebooks shows. Takes minutes on a GPU."""
    from worklog.bench.measure import carry_out
    from worklog.bench.tasks import grid_tasks
    from worklog.settings import Harness

    require_new_file(out)
    with progress_bar() as progress:
        measured = carry_out(grid_tasks(), Harness(), progress=progress, out=out)
    click.echo(f"run saved: {measured.path} ({len(measured.measurements)} measurements)")


for command in (inspect_, check, sweep, gate):
    main.add_command(command)


@main.command(short_help="Calibrate the harness.")
@harness_option
@json_option
def calibrate(harness: Harness, as_json: bool) -> None:
    """Measure the harness itself: event overhead and the error left after its removal, noise, whether the L2 flush
    works, and the ceilings of this GPU. Of the settings, only the clocks can change. Without a GPU, the recording is
    shown.
    """
    from worklog.bench.session import calibrated
    from worklog.gpu.device import Gpu, gpu
    from worklog.harness.calibration import Calibration, certificate
    from worklog.runs.run import open_run
    from worklog.settings import Harness

    if harness.but(clocks="watched") != Harness():
        raise BadSetting("calibrate uses the unbiased harness: --set takes only clocks here")
    if live_wanted(harness):
        found, label, notes = calibrated(harness.clocks)
        card = gpu()
    else:
        run = open_run()
        found, card, label, notes = Calibration(**run.calibration), Gpu.of(run.device), run.label, []
    if as_json:
        document = {"label": label, "device": card.as_dict(), "calibration": found.as_dict()}
        print_json({**document, "remarks": [*notes, *found.remarks]})
        return
    click.echo("\n".join([certificate(found, card, label), *notes]))


@main.command(short_help="Compare this harness with others on the same work.")
@click.option("--recorded", is_flag=True, help="Show the recorded comparison (default without a GPU).")
@click.option("--only", type=click.Choice(["intervals"]), help="Measure only whether the 95 % intervals hold.")
@out_option
@json_option
def peers(recorded: bool, only: str | None, out: Path | None, as_json: bool) -> None:
    """Time kernels of known length and cuBLAS with this harness and with every other one that is installed. Without a
    GPU, the recording is shown.
    """
    from worklog.bench.measure import live_wanted
    from worklog.gpu.device import require_gpu
    from worklog.peers.compare import compare, text
    from worklog.runs.comparison import open_comparison

    require_new_file(out)
    if recorded and out is not None:
        raise BadSetting("--recorded shows the recorded comparison: omit --out")
    if recorded or (out is None and only is None and not live_wanted()):
        path = None
    else:
        require_gpu()
        with progress_bar() as progress:
            path = compare(out, progress, only)
    found = open_comparison(path)
    if as_json:
        print_json(found.document)
        return
    click.echo(text(found))
    if path is not None:
        click.echo(f"saved: {path}")


@main.command(short_help="List the settings of the harness.")
@json_option
def settings(as_json: bool) -> None:
    """List the settings of the harness: the pitfall that each one avoids, its unbiased value and its biased ones."""
    from worklog.settings import PITFALLS, SAMPLING, Harness

    if as_json:
        print_json([asdict(pitfall) for pitfall in PITFALLS])
        return
    for pitfall in PITFALLS:
        number = f"{pitfall.article} · " if pitfall.article else ""
        also = f"; also unbiased: {', '.join(map(str, pitfall.also))}" if pitfall.also else ""
        click.echo(
            f"{pitfall.setting} = {pitfall.unbiased} (biased: {', '.join(map(str, pitfall.biased))}{also})\n"
            f"    {number}{pitfall.title}. {pitfall.what}"
        )
    click.echo("precision and budget:")
    for name, what in SAMPLING.items():
        click.echo(f"{name} = {getattr(Harness(), name)}\n    {what}")


main.add_command(figures)
main.add_command(article)
