"""`worklog sweep`: the tiles of a rung."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from worklog.cli import options
from worklog.cli.run import finish
from worklog.errors import BadSetting
from worklog.gpu.device import visible_cards
from worklog.kernel import rung
from worklog.problem import Shape
from worklog.problem.axes import Axis
from worklog.settings import Harness
from worklog.tune import sweep as tiles
from worklog.tune.cluster import Cluster, Workers
from worklog.tune.tuner import STRATEGIES, ranking, search


@click.command()
@options.kernel("name", "RUNG")
@options.axes('A tile parameter and its values; repeat for more: "BM=64,128", "TN[pow2]=2:4".')
@options.size("The shape to measure at.", default="4096")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help=(
        "Only tiles that meet this condition: 'BM * BN <= 16384' or 'spilled == 0'; repeat for "
        f"more. Names: tile parameters, {', '.join(tiles.RESOURCES)} (the last two in percent) "
        f"and {', '.join(tiles.COUNTED)} (percent of the shared wavefronts, counted on the "
        "emulator)."
    ),
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
    help=(
        "Measure on the GPUs of this Dask cluster; 'local' starts one on every GPU of this machine "
        "(the default if several GPUs are visible)."
    ),
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
    *,
    name: str,
    axes: tuple[str, ...],
    shape: Shape,
    conditions: tuple[str, ...],
    preview: bool,
    is_checked: bool,
    scheduler: str,
    harness: Harness,
    out: Path | None,
    as_json: bool,
    **files: Any,
) -> None:
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
            conditions=conditions,
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
        finish(measured, table=ranking(measured), as_json=as_json, **files)
    elif not preview:
        finish(tiles.recorded(variants), as_json=as_json, **files)
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
