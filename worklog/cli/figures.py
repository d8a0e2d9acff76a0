"""`worklog figures`, `article` and `site`: the charts of a run, the job that draws them all, and a web page of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from worklog import plots
from worklog.analysis import tensor_products
from worklog.cli import output
from worklog.cli import readme as tables
from worklog.errors import NothingToDraw, WorklogError
from worklog.gate.precision import rms_limit
from worklog.kernel import RUNGS, TENSOR, Kernel
from worklog.peers import exploits
from worklog.plots import Drawing
from worklog.problem import Shape
from worklog.runner import check, emulated_rungs
from worklog.runner import measure as bench
from worklog.runs import Run, in_steps, open_comparison, open_run, recorded_run
from worklog.settings import Harness

BROKEN = "grid_rounded_down"


def diagnosis() -> Drawing:
    """A broken kernel, what the check on the emulator says about it, and how many other checks pass it. Raises
    NothingToDraw where it cannot be compiled.
    """
    [exploit], table = exploits.named([BROKEN]), exploits.open_exploits()
    [row] = [row for row in table.rows if row.name == BROKEN]
    try:
        checked = check.check(exploit.kernel, on="emulated", seed=0)
    except WorklogError as error:
        raise NothingToDraw(str(error)) from error
    assert checked.verdict.where is not None, "an exploit with an error map"
    passed_by, refused_by = len(row.passed_by), len(row.refused_by)
    notes = {
        f"the bug in {exploit.kernel.file}": exploit.how,
        "other checks": f"{passed_by} of {passed_by + refused_by} checks of other projects pass it",
    }
    label = f"{checked.label} · other checks: {table.label}"
    return plots.tile_map(checked.verdict.where, label, name="diagnosis", notes=notes)


GROWTH, ELEMENTS = (128, 256, 512, 1024, 2048, 4096), 16


def error_growth() -> Drawing:
    """The errors of rungs 23 and 24 against K, emulated: with promotion, and without."""
    finding = "Promotion decides the class: without it, the error of FP16x3 grows with K"
    label = f"emulated · sm_90 PTX; U(-1, 1), {ELEMENTS} x {ELEMENTS} elements of C"
    curves = tensor_products.error_growth(GROWTH, ELEMENTS)
    return plots.error_growth(finding, curves, {k: rms_limit(k) for k in GROWTH}, label)


def at_4096(rungs: Iterable[Kernel] = RUNGS) -> Run:
    """The recordings of these rungs, as far as there are any, and of cuBLAS at 4096."""
    measured, _ = tasks.jobs_of([*(rung.name for rung in rungs), tasks.BASELINE], [4096])
    return bench.recorded(measured, recorded_run(), partly=True)


def with_libraries() -> Run:
    """The rung best and those on tensor cores, beside Triton's and cuBLAS's products in short formats, which
    tests/record/fp32_by_libraries.py measures.
    """
    run, libraries = at_4096((*TENSOR, RUNGS[-1])), open_run(kernels=["triton_tf32x3"], size=4096)
    kernels = run.kernels | libraries.kernels
    return replace(run, measurements=[*run.measurements, *libraries.select(shape=Shape.of(4096))], kernels=kernels)


def others(recorded: bool = True) -> dict[str, Callable[[], Drawing]]:
    """The figures that don't come from one run: a broken kernel, and the rungs past the article's ladder. recorded:
    whether the others are of the article's recording; then the sizes come from recordings of their own.
    """
    stepped: dict[str, Callable[[], Drawing]] = {"sizes": lambda: plots.sizes(in_steps())} if recorded else {}
    return stepped | {
        "diagnosis": diagnosis,
        "ladders": lambda: plots.ladders(at_4096(), 4096),
        "accuracy": lambda: plots.accuracy(with_libraries(), 4096),
        "error_growth": error_growth,
    }


FIGURES = output.folder_option("figures", "Folder for SVG and PNG.")


@output.command(
    click.option(
        "--run", "run_file", type=output.PATH, help="A run file (default: the newest ladder, else the recording)."
    ),
    FIGURES,
    click.option("--only", multiple=True, metavar="NAME", help="Draw only these figures (default: all)."),
    output.JSON,
)
def figures(run_file: Path | None, out: Path, only: tuple[str, ...]) -> None:
    """Draw every chart that a run has the measurements for."""
    ladder, _ = tasks.jobs_of(None, 4096)
    taken = open_run(run_file) if run_file else bench.holding(ladder)
    drawn = plots.draw_all(taken, out, others(run_file is None and taken.origin == "recorded"), only)
    output.show({"label": taken.label, **_as_dict(drawn)}, _text(drawn, taken.label))


@output.command(
    FIGURES,
    click.option(
        "--readme", type=output.FILE, default="README.md", show_default=True, help="Where tables are rewritten."
    ),
    click.option("--emulate/--no-emulate", default=True, help="Without a GPU, execute every rung on the emulator."),
    output.HARNESS,
    output.JSON,
)
def article(out: Path, readme: Path, emulate: bool, harness: Harness) -> None:
    """The main job: measure if there is a GPU, else take the recording and run every rung on the emulator; draw the
    figures, print the table, update the README.
    """
    live, executed, as_json = output.live_wanted(harness), list[emulated_rungs.Row](), output.typed("json")
    planned = tasks.article_jobs()
    if live:  # a reader of one line, such as head -1, has gone before the work begins
        click.echo(f"live · {len(planned)} measurements", err=as_json)
    with output.progress_bar() as progress:
        taken = bench.carry_out(planned, harness, progress=progress) if live else bench.holding(planned)
    if not as_json:
        output.print_run(taken)
    if emulate and not live:
        with output.progress_bar() as progress:
            executed = emulated_rungs.execute(progress)
        if not as_json:
            click.echo(emulated_rungs.text(executed, output.terminal_width(100)))
    drawn = plots.draw_all(taken, out, others(taken.origin == "recorded"))
    rewritten = tables.rewrite(readme, tables.parts_of(taken, open_comparison(), at_4096()))
    rows = {"label": executed[0]["label"], "rungs": executed} if executed else None
    rest = {"executed": rows, "readme": str(readme) if rewritten else None}
    why_not = "it has no table markers" if readme.is_file() else "there is no such file"
    said = f"tables rewritten: {readme}" if rewritten else f"tables not rewritten in {readme}: {why_not}"
    output.show({**output.measurements(taken), **_as_dict(drawn), **rest}, f"{_text(drawn, taken.label)}\n{said}")
    if any(row["reason"] for row in executed):
        sys.exit(1)


def _as_dict(drawn: plots.Drawn) -> dict[str, Any]:
    gallery = str(drawn.gallery) if drawn.gallery else None
    return {"figures": [str(path) for path in drawn.paths], "gallery": gallery, "not_drawn": drawn.missing}


def _text(drawn: plots.Drawn, label: str) -> str:
    light = [path for path in drawn.paths if path.suffix == ".svg" and not path.stem.endswith("_dark")]
    lines = [f"figures from: {label}", *(f"  {path}" for path in light)]
    if light:
        lines.append(f"  and beside each one .png, and both as _dark: {len(drawn.paths)} files")
    lines += [f"  {name} not drawn: {why}" for name, why in drawn.missing.items()]
    if drawn.gallery:
        lines.append(f"all of them: {drawn.gallery}")
    return "\n".join(lines)


@output.command(
    click.option("--run", type=output.PATH, help="A run file (default: the newest, else the recording)."),
    click.option("--grid", type=output.PATH, help="A run file of `worklog grid` for the panel."),
    output.folder_option("site", "Folder for index.html."),
    output.JSON,
)
def site(run: Path | None, grid: Path | None, out: Path) -> None:
    """Write index.html, which shows the panel, the ladder and the charts in a browser without a server or a network."""
    from worklog.lab.site import site as page
    from worklog.runs import write_text

    path = out / "index.html"
    write_text(path, page(run, grid))
    size = path.stat().st_size
    output.show({"page": str(path), "bytes": size}, f"{path}: {size / 1e6:.1f} MB, opens in any browser")
