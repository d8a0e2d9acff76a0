"""`worklog gate`: which wrong kernels the gate finds, and which other harnesses would have passed them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from worklog.cli.output import json_option, print_json, progress_bar, require_new_file, terminal_width
from worklog.errors import BadSetting, Interrupted


@click.command(short_help="Show every exploit, and which harnesses pass it.")
@click.option("--exploits", "shown", is_flag=True, help="The table of exploits: wrong kernels, and right ones.")
@click.option("--only", metavar="NAME[,NAME…]", help="Run only these exploits.")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Check each on this many seeds (default: 1).")
@click.option("--emulate", is_flag=True, help="Run them here on the emulator: takes minutes, needs no GPU.")
@click.option("--small", is_flag=True, help="Small sizes for the peers on a GPU too: a minute instead of several.")
@click.option("--recorded", is_flag=True, help="Show the recorded table (default without a GPU).")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to save the table.")
@json_option
def gate(shown: bool, recorded: bool, out: Path | None, as_json: bool, **how: Any) -> None:
    """Check kernels that are wrong in a known way, and show which other harnesses would have passed them. Exits with 1
    if the gate is wrong about one.
    """
    from worklog.bench.measure import live_wanted
    from worklog.peers.exploits import named, open_exploits, run_exploits

    if not shown:
        raise BadSetting("nothing to show: --exploits prints the table of exploits")
    given = [f"--{name}" for name, value in {**how, "out": out}.items() if value is not None and value is not False]
    if recorded and given:
        raise BadSetting(f"--recorded shows the recorded table: omit {', '.join(given)}")
    if recorded or not (given or live_wanted()):
        table = open_exploits()
    else:
        require_new_file(out)
        only, seeds = how.pop("only"), range(how.pop("seeds") or 1)
        names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
        if names == []:
            raise BadSetting("--only names no exploit: give one or more, such as --only zeros,kahan")
        with progress_bar() as progress:
            table = run_exploits(None if names is None else named(names), seeds=seeds, progress=progress, **how)
        if not table.rows:
            raise Interrupted("interrupted before the first exploit was finished")
        if out is not None:
            table.save(out)
            click.echo(f"table saved: {out}", err=True)
    if as_json:
        print_json(table.as_dict())
    else:
        click.echo(table.text(terminal_width(150)))
    if not (table.complete or table.origin):  # only a table that was made here can have been interrupted
        kept = f"finished rows are in {out}" if out is not None else "finished rows are shown"
        raise Interrupted(f"interrupted: {kept}")
    if table.failures:
        sys.exit(1)
