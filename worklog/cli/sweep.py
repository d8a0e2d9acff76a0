"""`worklog sweep`: the tiles of a rung, and the table from which the rung best chooses."""

from __future__ import annotations

from pathlib import Path

import click

from worklog.cli import options, output, selection
from worklog.errors import BadSetting
from worklog.gpu import device
from worklog.kernel import best, rung
from worklog.problem import Axis, Shape
from worklog.runner import sweep as tiles
from worklog.runner import tuned
from worklog.runs import Run
from worklog.settings import Harness


@click.command()
@options.kernel_argument("name", "RUNG")
@options.axis_option('A tile parameter and its values; repeat for more: "BM=64,128", "TN[pow2]=2:4".')
@options.size_option("The shape to measure at.", default="4096")
@click.option("--preview", is_flag=True, help="List the tiles without measuring; needs no GPU.")
@click.option("--from", "source", type=options.PATH, help="For best: make its table from this sweep's run.")
@options.out_option()
@options.HARNESS
@options.export_options
@options.JSON
def sweep(
    name: str, axes: tuple[str, ...], shape: Shape, preview: bool, source: Path | None,
    out: Path | None, harness: Harness, exports: dict[str, Path], as_json: bool,
) -> None:  # fmt: skip
    """Check and time every tile of a rung that can be built, beside cuBLAS. Without a GPU, tiles are shown from the
    recording.

    `worklog sweep best` measures the tiles of that rung at shapes of its own, and makes the table from which it chooses
    a tile for each shape; `--preview` shows the table.
    """
    if name == "best":
        if axes:
            raise BadSetting("worklog sweep best takes no --axis: it has tiles and shapes of its own")
        _sweep_best(preview, source, out, harness, exports, as_json)
        return
    record = rung(name)
    if not axes or source is not None:
        raise BadSetting(f"worklog sweep {name} takes --axis NAME=VALUES; --from is for best")
    live = not preview and selection.live_wanted(out=out, set=harness != Harness())
    variants = tiles.variants(record, [Axis.parse(axis) for axis in axes], shape=shape)
    click.echo(variants.preview(), err=True)
    if preview:
        frame = variants.frame()
        if as_json:
            click.echo(frame.to_json(orient="records", indent=1))
        elif variants.kept:
            click.echo(frame.to_string(index=False))
        return
    if live:
        with output.progress_bar() as progress:
            measured = tiles.sweep(variants, harness=harness, progress=progress, out=out)
    else:
        measured = tiles.recorded(variants)
    output.print_run(measured, exports, as_json)
    output.exit_if_failed(measured)


def _sweep_best(
    preview: bool, source: Path | None, out: Path | None, harness: Harness, exports: dict[str, Path], as_json: bool
) -> None:
    """Show the table of the rung best, or make it: from a run, or from what is measured now."""
    if preview:
        click.echo(tuned.shown(best.table()).text())
        return
    if source is not None:
        run = Run.load(source)
    else:
        device.require_gpu("--preview shows the table")
        with output.progress_bar() as progress:
            run = tuned.measured(device.gpu(), harness, progress, out)
        output.print_run(run, exports, as_json)
    table = tuned.fitted(run)
    click.echo(f"{tuned.shown(table).text()}\nwritten: {tuned.write(table)}")
