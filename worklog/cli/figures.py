"""`worklog figures` and `worklog article`: the charts of a run, and the main job that draws them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.cli.output import (
    harness_option,
    json_option,
    live_wanted,
    measurements,
    print_json,
    print_run,
    progress_bar,
    terminal_width,
)
from worklog.errors import BadSetting

if TYPE_CHECKING:
    from worklog.bench.check import Executed
    from worklog.plots import Drawn
    from worklog.runs.run import Run
    from worklog.settings import Harness


@click.command(short_help="Draw every chart of a run.")
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
    from worklog.runs.run import open_run

    taken = open_run(run_file)
    _require_folder(out)
    drawn = _draw(taken, out)
    if as_json:
        print_json({"label": taken.label, **_figures(drawn)})
    else:
        _print_figures(taken, drawn)


@click.command(short_help="Measure (or take the recording), draw every figure, print.")
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
    help="File whose tables are rewritten.",
)
@click.option("--emulate/--no-emulate", default=True, help="Without a GPU, execute every rung on the emulator.")
@harness_option
@json_option
def article(out: Path, readme: Path, emulate: bool, harness: Harness, as_json: bool) -> None:
    """The main job: measure if there is a GPU, else take the recording and run every rung on the emulator; draw the
    figures, print the table, update the README.
    """
    from worklog.bench import measure as bench
    from worklog.bench.tasks import article_tasks
    from worklog.cli.readme import rewrite, rewrite_comparison
    from worklog.runs.comparison import open_comparison
    from worklog.runs.run import open_run

    live = live_wanted(harness)
    _require_folder(out)
    if live:
        with progress_bar() as progress:
            taken = bench.carry_out(article_tasks(), harness, progress=progress)
    else:
        taken = open_run()
    if not as_json:
        print_run(taken)
    executed = [] if live or not emulate else _execute(as_json)
    drawn = _draw(taken, out)
    rewritten = rewrite(readme, taken) | rewrite_comparison(readme, open_comparison())
    if as_json:
        from worklog.bench.check import as_dict

        seen = {"executed": as_dict(executed) if executed else None, "readme": str(readme) if rewritten else None}
        print_json({**measurements(taken), **_figures(drawn), **seen})
    else:
        _print_figures(taken, drawn)
        why_not = "it has no table markers" if readme.is_file() else "there is no such file"
        click.echo(f"tables rewritten: {readme}" if rewritten else f"tables not rewritten in {readme}: {why_not}")
    if any(row.reason for row in executed):
        sys.exit(1)


def _execute(quiet: bool) -> list[Executed]:
    """Run every rung on the emulator, and print a table of the results."""
    from worklog.bench import check

    with progress_bar() as progress:
        executed = check.execute(progress)
    if not quiet:
        click.echo(check.text(executed, terminal_width(100)))
    return executed


def _draw(taken: Run, out: Path) -> Drawn:
    """Draw every figure, and write the page that shows them."""
    from worklog.plots import draw_all

    return draw_all(taken, out)


def _figures(drawn: Drawn) -> dict[str, Any]:
    gallery = str(drawn.gallery) if drawn.gallery else None
    return {"figures": [str(path) for path in drawn.paths], "gallery": gallery, "not_drawn": drawn.missing}


def _print_figures(taken: Run, drawn: Drawn) -> None:
    click.echo(f"figures from: {taken.label}")
    light = [path for path in drawn.paths if path.suffix == ".svg" and not path.stem.endswith("_dark")]
    for path in light:
        click.echo(f"  {path}")
    if light:
        click.echo(f"  and beside each one .png, and both as _dark: {len(drawn.paths)} files")
    for name, why in drawn.missing.items():
        click.echo(f"  {name} not drawn: {why}")
    if drawn.gallery:
        click.echo(f"all of them: {drawn.gallery}")


def _require_folder(out: Path) -> None:
    from worklog.gpu.device import not_writable

    why = not_writable(out)
    if why is not None:
        raise BadSetting(f"cannot write figures into {out}: {why}; give another folder with --out")
