"""`worklog check` and `worklog inspect`: the two commands that take a kernel of the user's own. Like the rest of the
command line they parse, call and print.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from worklog.gemm import Shape

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table.")


def print_json(document: Any) -> None:
    """One document on standard output."""
    click.echo(json.dumps(document, indent=1))


@click.command()
@click.argument("what", metavar="FILE.cu|RUNG")
@click.option("--grid", metavar="X,Y", help="Blocks, from M, N and K: '(N + 31) // 32, (M + 31) // 32'.")
@click.option("--block", metavar="X[,Y]", help="Threads of a block: 256, or 32,8.")
@click.option("--entry", help="The kernel, with template arguments if it has any (default: the only one in the file).")
@click.option("--domain", default="any", show_default=True, help="Shapes that it takes: 'M % 64 == 0, K % 8 == 0'.")
@click.option("--class", "claimed", default="fp32", show_default=True, help="Precision that it must have at least.")
@click.option("--size", metavar="N", help="The benchmark shape (default: 1024, or a small one without a GPU).")
@click.option(
    "--on", type=click.Choice(["gpu", "emulated"]), help="Where to run it (default: the GPU if there is one)."
)
@click.option("--emulate", is_flag=True, help="Run it on the emulator, as --on emulated: it finds races too.")
@json_option
def check(what: str, size: str | None, on: str | None, emulate: bool, as_json: bool, **words: Any) -> None:
    """Put a kernel of your own to the gate: one of the ladder's signature, in a .cu file. Leaves 1 if it is refused."""
    from worklog.brought import brought
    from worklog.check import check as put_to_the_gate
    from worklog.check import report

    kernel, on = brought(what, **words), "emulated" if emulate else on
    checked = put_to_the_gate(kernel, None if size is None else Shape.of(size), on=on)
    if as_json:
        print_json(checked.as_dict())
    else:
        click.echo(report(checked))
    if not checked.verdict.accepted:
        sys.exit(1)


@click.command(name="inspect")
@click.argument("what", metavar="RUNG|FILE.cu")
@click.option("--entry", help="The kernel in the file, with template arguments if it has any (default: the only one).")
@click.option("--grid", metavar="X,Y", help="Blocks of a file's kernel: '(N + 31) // 32, (M + 31) // 32'.")
@click.option("--block", metavar="X[,Y]", help="Threads of a block of a file's kernel: 256, or 32,8.")
@click.option("--domain", default="any", show_default=True, help="Shapes that a file's kernel takes: 'M % 64 == 0'.")
@click.option("--arch", default="sm_90", show_default=True, help="What to compile for: sm_80,sm_90, or all.")
@click.option(
    "--size", metavar="N", help="The shape to count at (default: 4096; 128 for a file, which is run in full)."
)
@json_option
def inspect_(what: str, arch: str, size: str | None, as_json: bool, **words: Any) -> None:
    """Say what a kernel costs, without a GPU and never as a time: registers, occupancy, memory traffic line by line."""
    from worklog.annotated import report
    from worklog.inspection import architectures, inspect

    found = inspect(what, shape=None if size is None else Shape.of(size), archs=architectures(arch), **words)
    if as_json:
        print_json(found.as_dict())
    else:
        click.echo(report(found))
