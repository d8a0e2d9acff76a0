"""`worklog new`, `check`, `inspect` and `sweep`: user kernels and tiles of a rung, without a GPU too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from worklog.analysis import inspection
from worklog.analysis.prediction import Prediction, predicted
from worklog.cli import output
from worklog.cli.selection import check_solution, require_no_dtype, starter_code
from worklog.errors import BadSetting, NoGpu
from worklog.gpu import device
from worklog.kernel import TEMPLATE, best, kernel_of, rung
from worklog.problem import TILES, Axis, Shape
from worklog.runner import check as checks
from worklog.runner import sanitizer, tuned
from worklog.runner import sweep as tiles
from worklog.runner.emulated_time import LIMIT_S
from worklog.runs import Run, recorded_run
from worklog.settings import Harness

THOROUGH_S = 60.0


@click.command()
@click.argument("what", metavar="FILE.cu|PROBLEM")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR", required=False)
@click.option("--dtype", default="", metavar="TYPE", help="Type of a problem's elements (default: its first).")
def new(what: str, folder: Path | None, dtype: str) -> None:
    """Write a commented SGEMM kernel that passes the check, to change into yours; or for a problem (softmax,
    batched_gemm, or your own file.py:Class) CUDA source and a Python function to fill in, solution.cu and solution.py
    in a folder. An existing file stays as it is.
    """
    if folder is not None:
        files = starter_code(what, dtype, folder)
    elif what.endswith(".cu"):
        require_no_dtype(dtype)
        text = TEMPLATE.read_text(encoding="utf-8")
        files = {Path(what): text.replace("FILE", shlex.quote(what))}
    else:
        raise BadSetting(f"cannot write {what}: give a name that ends in .cu, or a problem and a folder")
    if there := next((file for file in files if file.exists()), None):
        raise BadSetting(f"{there} exists already: give another name")
    for file, text in files.items():
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as new_file:
                new_file.write(text)
        except OSError as error:
            raise BadSetting(f"cannot write {file}: {error.strerror}; give another name") from error
    first, *others = map(str, files)
    written = "".join(f"written: {file}\n" for file in (first, *others))
    solves = f" --problem {shlex.quote(what)}" + f" --dtype {dtype}" * bool(dtype) if folder is not None else ""
    click.echo(f"{written}next: worklog check {shlex.quote(first)}{solves}")


@click.command()
@click.argument("what", metavar="FILE.cu|FILE.py:FUNCTION|RUNG")
@output.options(*output.PROBLEM, *output.LAUNCH, *output.CHECKED)
@output.size_option("The benchmark shape (default: 1024, or a small one without a GPU).")
@click.option(
    "--on", type=click.Choice(["gpu", "emulated"]), help="Where to run it (default: the GPU if there is one)."
)
@click.option(
    "--emulate", is_flag=True, help="Run it on the emulator, which finds races too: the same as --on emulated."
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Longest time on the emulator; a check that is estimated to take longer doesn't start.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the inputs: it repeats a verdict (default: random).")
@click.option("--thorough", is_flag=True, help="Spend a minute on further seeds.")
@click.option("--racecheck", is_flag=True, help="Also run compute-sanitizer's racecheck and memcheck; needs a GPU.")
@output.json_option
def check(
    what: str,
    shape: Shape | None,
    on: str | None,
    emulate: bool,
    limit: float,
    seed: int | None,
    thorough: bool,
    racecheck: bool,
    problem: str | None,
    dtype: str,
    as_json: bool,
    **launch: Any,
) -> None:
    """Check your kernel: one in a .cu file, or a host function, as file.py:function, module:function or
    lib.so:function. Exits with 1 if it fails. A kernel that passes is shown with a lower bound of its time.

    A kernel's parameters and launch are read from its file where they are clear, and shown; --args, --grid and --block
    state them. With --problem, a .cu file has an extern "C" function `solution` that launches kernels, or one kernel,
    and file.py:function takes the problem's parameters; worklog new writes both to start from.
    """
    if emulate and on == "gpu":
        raise BadSetting("--emulate and --on gpu contradict each other: omit one")
    on = "emulated" if emulate else on
    if problem is not None:
        solved = check_solution(what, problem, dtype, on, launch, size=shape, racecheck=racecheck)
        _print_checked(solved, None, as_json)
        return
    require_no_dtype(dtype)
    kernel = kernel_of(what, launch)
    if shape is not None:
        kernel.check(shape)
    reason = device.gpu_reason()
    if kernel.host is not None and reason is not None:
        raise NoGpu(f"a host function needs a GPU ({reason}): the emulator runs .cu files")
    tool = sanitizer.ready(kernel, on) if racecheck else None
    run_check = checks.check_in_child if checks.wants_gpu(on) else checks.check  # the emulator survives every kernel
    with output.progress_bar() as progress:
        thorough_s = THOROUGH_S if thorough else 0.0
        how: dict[str, Any] = {"on": on, "seed": seed, "thorough_s": thorough_s, "limit_s": limit}
        checked = run_check(kernel, shape, progress=progress, **how)
        for stage in sanitizer.sanitize(tool, kernel) if tool else ():
            checked = replace(checked, verdict=checked.verdict.and_then(stage))
    _print_checked(checked, predicted(kernel, shape) if checked.verdict.accepted else None, as_json)


def _print_checked(checked: checks.Checked, prediction: Prediction | None, as_json: bool) -> None:
    """Print what a check has found. Exits with 1 for a failed one."""
    if as_json:
        output.print_json(checked.as_dict() | {"prediction": prediction.as_dict() if prediction else None})
    else:
        click.echo(f"{checked}\n\n{prediction}" if prediction else checked)
    if not checked.verdict.accepted:
        raise SystemExit(1)


@click.command()
@click.argument("what", metavar="RUNG|FILE.cu")
@output.options(*output.LAUNCH)
@click.option("--arch", default="sm_90", show_default=True, help="What to compile for: sm_80,sm_90, or all.")
@output.size_option("The shape to count at (default: 4096; 128 for a user kernel, run in full up to 512).")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Also write PTX and cubins into this folder."
)
@output.json_option
def inspect(what: str, arch: str, shape: Shape | None, out: Path | None, as_json: bool, **launch: Any) -> None:
    """Show registers, occupancy, memory counts by source line, and a lower bound of the time. Needs no GPU."""
    kernel = kernel_of(what, launch, launched=False)
    found = inspection.inspect(kernel, shape, inspection.architectures(arch))
    prediction = predicted(kernel, shape) if kernel.grid else None
    files = [] if out is None else inspection.save(found, out)
    if as_json:
        known: dict[str, Any] = {"adapted": list(kernel.adapted)}
        known |= {"prediction": prediction.as_dict() if prediction else None, "files": [str(path) for path in files]}
        output.print_json(found.as_dict() | known)
        return
    output.print_adapted([kernel])
    click.echo(inspection.report(found) + (f"\n\n{prediction}" if prediction else ""))
    for path in files:
        click.echo(f"written: {path}")


@click.command()
@click.argument("name", metavar="RUNG")
@output.axis_option('A tile parameter and its values; repeat for more: "BM=64,128", "TN[pow2]=2:4".')
@output.size_option("The shape to measure at.", default="4096")
@click.option("--preview", is_flag=True, help="List the tiles without measuring; needs no GPU.")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="For best: make its table from this sweep's run."
)
@click.option("--estimate", is_flag=True, help="For best: make its table from lower bounds, without measuring.")
@output.out_option()
@output.harness_option
@output.options(*output.EXPORT)
@output.json_option
def sweep(
    name: str,
    axes: tuple[str, ...],
    shape: Shape,
    preview: bool,
    out: Path | None,
    harness: Harness,
    as_json: bool,
    source: Path | None,
    estimate: bool,
) -> None:
    """Check and time every tile of a rung that can be built, beside cuBLAS. Without a GPU, tiles are shown from the
    recording.

    `worklog sweep best` measures the tiles of that rung at shapes of its own, and makes the table from which it chooses
    a tile for each shape; `--preview` shows the table.
    """
    record, parsed = rung(name), [Axis.parse(axis, TILES) for axis in axes]
    if name == "best":
        _sweep_best(axes, preview, out, harness, source, estimate)
        return
    if not axes or source is not None or estimate:
        raise BadSetting(f"worklog sweep {name} takes --axis NAME=VALUES; --from and --estimate are for best")
    tiles.tiles(record, parsed)
    live = not preview and output.live_wanted(harness, out)
    found = tiles.variants(record, parsed, shape=shape)
    click.echo(found.preview(), err=True)
    if preview:
        table = found.frame()
        if as_json:
            click.echo(table.to_json(orient="records", indent=1))
        elif found.kept:
            click.echo(table.to_string(index=False))
        return
    if live:
        with output.progress_bar() as progress:
            measured = tiles.sweep(found, harness=harness, progress=progress, out=out)
    else:
        measured = tiles.recorded(found)
    output.finish(measured, as_json=as_json)


def _sweep_best(
    axes: Sequence[str], preview: bool, out: Path | None, harness: Harness, source: Path | None, estimate: bool
) -> None:
    """Make the table of the rung best, or show it."""
    if axes or (source is not None and estimate):
        raise BadSetting("worklog sweep best takes no --axis, and one of --from and --estimate")
    if preview:
        click.echo(tuned.shown(best.table()).text())
        return
    if estimate:
        found = tuned.estimated(device.Gpu.of(recorded_run().device))
    elif source is not None:
        found = tuned.fitted(Run.load(source))
    else:
        device.require_gpu()
        with output.progress_bar() as progress:
            run = tuned.measured(device.gpu(), harness, progress, out)
        output.print_run(run)
        found = tuned.fitted(run)
    click.echo(tuned.shown(found).text())
    click.echo(f"written: {tuned.write(found)}")
