"""`worklog gate`: what the gate refuses, what it accepts, and what others would have passed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.cli.output import json_option, print_json, progress_bar, require_new_file, terminal_width
from worklog.errors import BadSetting, Interrupted

if TYPE_CHECKING:
    from worklog.exploits.table import ExploitTable


@click.command(short_help="Show every exploit, and who would have passed it.")
@click.option("--exploits", "asked", is_flag=True, help="The table of every exploit: wrong ones, and right ones.")
@click.option("--only", metavar="NAME[,NAME…]", help="Run only these exploits.")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Put each to the gate on so many seeds (default: 1).")
@click.option("--emulate", is_flag=True, help="Run them here on the emulator: minutes, and no GPU is needed.")
@click.option("--small", is_flag=True, help="Peers ask at small sizes on a GPU too: a minute instead of several.")
@click.option("--recorded", is_flag=True, help="Show the recorded table (default without a GPU).")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to save the table, to be shown or shipped."
)
@json_option
def gate(asked: bool, recorded: bool, out: Path | None, as_json: bool, **how: Any) -> None:
    """Show what the gate does with every known way to be wrong, and which other harnesses would have passed it."""
    from rich.console import Console

    from worklog.exploits.table import open_exploits, print_table

    if not asked:
        raise BadSetting("say what to show: --exploits prints every exploit with the gate's word on it")
    if _recorded(recorded, out, how):
        table = open_exploits()
    else:
        table = _tried(out, {**how, "only": _chosen(how["only"]), "seeds": range(how["seeds"] or 1)})
    if as_json:
        print_json(table.as_dict())
    else:
        print_table(table, Console(width=terminal_width(150)))
    if not (table.complete or table.origin):  # only what was tried here and now can have been interrupted
        kept = f"what was finished is in {out}" if out is not None else "what was finished is shown"
        raise Interrupted(f"interrupted: {kept}")
    if table.failures:
        sys.exit(1)


def _recorded(recorded: bool, out: Path | None, how: Mapping[str, Any]) -> bool:
    """Whether the recording is meant. Raises BadSetting for a contradiction."""
    from worklog.bench.measure import live_wanted

    given = _given({**how, "out": out})
    if recorded and given:
        raise BadSetting(f"--recorded shows what was recorded: leave out {', '.join(given)}")
    return recorded or not (given or live_wanted())


def _given(how: Mapping[str, Any]) -> list[str]:
    """The options that were given, an empty one too."""
    return [f"--{name}" for name, value in how.items() if value is not None and value is not False]


def _chosen(only: str | None) -> Sequence[Any] | None:
    """What --only names. Raises BadSetting."""
    from worklog.exploits.catalogue import named

    if only is None:
        return None
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        raise BadSetting("--only names no exploit: give one or more, as in --only zeros,kahan, or leave it out")
    return named(names)


def _saved(table: ExploitTable, out: Path | None) -> ExploitTable:
    if out is not None:
        table.save(out)
        click.echo(f"table saved: {out}", err=True)
    return table


def _tried(out: Path | None, how: Mapping[str, Any]) -> ExploitTable:
    from worklog.exploits.trials import try_all

    require_new_file(out)
    with progress_bar() as progress:
        table = try_all(**how, progress=progress)
    if not table.rows:
        raise Interrupted("interrupted before anything was finished")
    return _saved(table, out)
