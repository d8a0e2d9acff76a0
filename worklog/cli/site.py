"""`worklog site`: the panel, the ladder and the charts as a web page of one file."""

from __future__ import annotations

from pathlib import Path

import click

from worklog.cli import output
from worklog.cli.figures import folder_option
from worklog.lab.site import site as page


@click.command()
@click.option(
    "--run",
    type=click.Path(path_type=Path),
    help="A run file for the ladder and the charts (default: the latest live run, else the recording).",
)
@click.option("--grid", type=click.Path(path_type=Path), help="A run file of `worklog grid` for the panel.")
@folder_option("site", "Folder for index.html.")
@output.json_option
def site(run: Path | None, grid: Path | None, out: Path, as_json: bool) -> None:
    """Write index.html, which shows the panel, the ladder and the charts in a browser without a server or a network."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.html"
    path.write_text(page(run, grid), encoding="utf-8", newline="\n")
    if as_json:
        output.print_json({"page": str(path), "bytes": path.stat().st_size})
    else:
        click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB, opens in any browser")
