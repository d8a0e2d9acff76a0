"""`worklog gate`: what the gate refuses, what it accepts, and what others would have passed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from worklog.cli_kernels import json_option, print_json, progress_bar
from worklog.errors import BadSetting

if TYPE_CHECKING:
    from worklog.exploits.table import ExploitTable


@click.command()
@click.option("--exploits", "asked", is_flag=True, help="The table of every exploit: wrong kernels, and right ones.")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Put each to the gate on so many seeds (default: 1).")
@click.option("--emulate", is_flag=True, help="Run them here on the emulator: minutes, and no GPU is needed.")
@click.option("--small", is_flag=True, help="Peers ask at small sizes on a GPU too: a minute instead of several.")
@click.option("--recorded", is_flag=True, help="Show the recorded table (default without a GPU).")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to save the table, to be shown or shipped."
)
@json_option
def gate(
    asked: bool, seeds: int | None, emulate: bool, small: bool, recorded: bool, out: Path | None, as_json: bool
) -> None:
    """Show what the gate does with every known way to be wrong, and which other harnesses would have passed it."""
    from rich.console import Console

    from worklog.exploits.table import open_exploits, print_table

    if not asked:
        raise BadSetting("say what to show: --exploits prints every exploit with the gate's word on it")
    shown = _recorded(recorded, emulate or small, seeds, out)
    table = open_exploits() if shown else _tried(emulate, small, seeds or 1, out)
    if as_json:
        print_json(table.as_dict())
    else:
        print_table(table, Console(width=None if sys.stdout.isatty() else 160))
    if table.failures:
        sys.exit(1)


def _recorded(recorded: bool, emulate: bool, seeds: int | None, out: Path | None) -> bool:
    """Whether the recording is meant. Raises BadSetting for a contradiction."""
    from worklog.bench import live_wanted

    if recorded and (emulate or seeds or out):
        raise BadSetting("--recorded shows what was recorded: leave out --emulate, --small, --seeds and --out")
    if recorded or emulate:
        return recorded
    return not (seeds or out or live_wanted())


def _tried(emulate: bool, small: bool, seeds: int, out: Path | None) -> ExploitTable:
    from worklog.exploits.trials import try_all

    if out is not None and out.exists():
        raise BadSetting(f"{out} exists already: give --out another name, or remove it first")
    with progress_bar() as progress:
        table = try_all(emulate=emulate, small=small, seeds=range(seeds), progress=progress)
    if out is not None:
        table.save(out)
        click.echo(f"table saved: {out}", err=True)
    return table
