"""`worklog new`, `check`, `inspect` and `sweep`: user kernels and tiles of a rung, without a GPU too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from worklog.analysis import inspection
from worklog.analysis.prediction import predicted
from worklog.cli import output
from worklog.cli.selection import problem, solution_of
from worklog.errors import BadSetting, NoGpu
from worklog.gpu import device
from worklog.kernel import TEMPLATE, Kernel, best, kernel_of, rung
from worklog.problem import Axis, Shape
from worklog.runner import check as checks
from worklog.runner import sweep as tiles
from worklog.runner import tuned
from worklog.runner.emulated_time import LIMIT_S
from worklog.runs import Run
from worklog.settings import Harness

THOROUGH_S = 60.0


@output.command(
    click.argument("what", metavar="FILE.cu|PROBLEM|NAME"),
    click.argument("folder", type=output.PATH, metavar="DIR", required=False),
    click.option("--dtype", default="", metavar="TYPE", help="Type of a problem's elements (default: its first)."),
    click.option("--rung", "number", type=click.IntRange(1, 29), metavar="N", help="Add rung N, with this name."),
)
def new(what: str, folder: Path | None, dtype: str, number: int | None) -> None:
    """Write a commented SGEMM kernel that passes the check, to change into yours; or for a problem (softmax,
    batched_gemm, or your own file.py:Class) CUDA source and a Python function to fill in, solution.cu and solution.py
    in a folder. An existing file stays as it is. With --rung, add a rung to a checkout: a simple kernel in kernels/,
    its record in worklog/kernel/rungs.py and its entry in kernels/rungs.cuh.
    """
    if number is not None:
        from worklog.kernel.starter import new_rung

        if folder is not None or dtype:
            raise BadSetting("--rung takes a name alone: omit the folder and --dtype")
        for file in new_rung(number, what):
            click.echo(f"written: {file}")
        click.echo(f"next: worklog check {what}")
        return
    named = shlex.quote(what) + (f" --dtype {dtype}" if dtype else "")
    if folder is not None:
        from worklog.kernel.starter import starters
        from worklog.runner.problems import find_problem

        files = starters(find_problem(what, dtype), named, folder)
    elif dtype:
        raise BadSetting("--dtype is for a problem: give a problem and a folder")
    elif what.endswith(".cu"):
        files = {Path(what): TEMPLATE.read_text(encoding="utf-8").replace("FILE", shlex.quote(what))}
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
        click.echo(f"written: {file}")
    first = shlex.quote(str(next(iter(files))))
    click.echo(f"next: worklog check {first}" + ("" if folder is None else f" --problem {named}"))


@output.command(
    click.argument("what", metavar="FILE.cu|FILE.py:FUNCTION|RUNG"),
    *output.PROBLEM,
    *output.LAUNCH,
    *output.CHECKED,
    output.size_option("The benchmark shape (default: 1024, or a small one without a GPU)."),
    click.option(
        "--on", type=click.Choice(["gpu", "emulated"]), help="Where to run it (default: the GPU if there is one)."
    ),
    output.flag("--emulate", about="Run it on the emulator, which finds races too: the same as --on emulated."),
    click.option(
        "--limit",
        type=click.FloatRange(min=0, min_open=True),
        default=LIMIT_S,
        show_default=True,
        metavar="SECONDS",
        help="Longest time on the emulator: a check doesn't start, with --problem no further case, that takes longer.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Seed of the inputs: it repeats a verdict (default: random)."
    ),
    output.flag("--thorough", about="Spend a minute on further seeds."),
    output.JSON,
)
def check(
    what: str,
    shape: Shape | None,
    on: str | None,
    emulate: bool,
    limit: float,
    seed: int | None,
    thorough: bool,
    **launch: Any,
) -> None:
    """Check your kernel: one in a .cu file, or a host function, as file.py:function, module:function or
    lib.so:function. Exits with 1 if it fails. A kernel that passes is shown with a lower bound of its time.

    A kernel's parameters and launch are read from its file where they are clear, and shown; --args, --grid and --block
    state them. With --problem, a .cu file has an extern "C" function `solution` that launches kernels, or one kernel,
    and file.py:function takes the problem's parameters; worklog new writes both to start from.

    On a GPU, NVIDIA's tool can watch the check, and prints each race in shared memory with its line:
    compute-sanitizer --tool racecheck --target-processes all python -m worklog check FILE.cu --size 128
    """
    if emulate and on == "gpu":
        raise BadSetting("--emulate and --on gpu contradict each other: omit one")
    on = "emulated" if emulate else on
    at: Shape | str | None = shape
    how: dict[str, Any] = {"thorough_s": THOROUGH_S if thorough else 0.0, "limit_s": limit, "seed": seed}
    named = problem()
    if named is not None:
        others = {"size": shape, "thorough": thorough}
        kernel: Kernel = solution_of(what, launch, others)
        at, how = named, {"dtype": output.typed("dtype"), "seed": seed, "limit_s": limit}
    else:
        kernel = kernel_of(what, launch)
        if shape is not None:
            kernel.check(shape)
        if kernel.host is not None and (reason := device.gpu_reason()) is not None:
            raise NoGpu(f"a host function needs a GPU ({reason}): the emulator runs .cu files")
    in_child = kernel.host is not None or checks.wants_gpu(on)  # the emulator survives every kernel
    with output.progress_bar() as progress:
        checked = (checks.check_in_child if in_child else checks.check)(kernel, at, on=on, progress=progress, **how)
    prediction = predicted(kernel, shape) if named is None and checked.verdict.accepted else None
    document = checked.as_dict() | {"prediction": prediction.as_dict() if prediction else None}
    output.show(document, f"{checked}\n\n{prediction}" if prediction else checked)
    if not checked.verdict.accepted:
        raise SystemExit(1)


@output.command(
    click.argument("what", metavar="RUNG|FILE.cu"),
    *output.LAUNCH,
    click.option("--arch", default="sm_90", show_default=True, help="What to compile for: sm_80,sm_90, or all."),
    output.size_option("The shape to count at (default: 4096; 128 for a user kernel, run in full up to 512)."),
    click.option("--out", type=output.PATH, metavar="FOLDER", help="Also write PTX and cubins into this folder."),
    output.JSON,
)
def inspect(what: str, arch: str, shape: Shape | None, out: Path | None, **launch: Any) -> None:
    """Show registers, occupancy, memory counts by source line, and a lower bound of the time. Needs no GPU."""
    kernel = kernel_of(what, launch, launched=False)
    found = inspection.inspect(kernel, shape, inspection.architectures(arch))
    prediction = predicted(kernel, shape) if kernel.grid else None
    files = [] if out is None else inspection.save(found, out)
    known: dict[str, Any] = {"adapted": list(kernel.adapted), "files": [str(path) for path in files]}
    known["prediction"] = prediction.as_dict() if prediction else None
    if not output.typed("json"):
        output.print_adapted([kernel])
    report = [inspection.report(found) + (f"\n\n{prediction}" if prediction else "")]
    output.show(found.as_dict() | known, "\n".join([*report, *(f"written: {path}" for path in files)]))


@output.command(
    click.argument("name", metavar="RUNG"),
    output.axis_option('A tile parameter and its values; repeat for more: "BM=64,128", "TN[pow2]=2:4".'),
    output.size_option("The shape to measure at.", default="4096"),
    output.flag("--preview", about="List the tiles without measuring; needs no GPU."),
    click.option("--from", "source", type=output.PATH, help="For best: make its table from this sweep's run."),
    output.out_option(),
    output.HARNESS,
    *output.EXPORT,
    output.JSON,
)
def sweep(
    name: str,
    axes: tuple[str, ...],
    shape: Shape,
    preview: bool,
    out: Path | None,
    harness: Harness,
    source: Path | None,
) -> None:
    """Check and time every tile of a rung that can be built, beside cuBLAS. Without a GPU, tiles are shown from the
    recording.

    `worklog sweep best` measures the tiles of that rung at shapes of its own, and makes the table from which it chooses
    a tile for each shape; `--preview` shows the table.
    """
    record, parsed = rung(name), [Axis.parse(axis) for axis in axes]
    if name == "best":
        _sweep_best(axes, preview, out, harness, source)
        return
    if not axes or source is not None:
        raise BadSetting(f"worklog sweep {name} takes --axis NAME=VALUES; --from is for best")
    tiles.tiles(record, parsed)
    live = not preview and output.live_wanted(harness, out)
    found = tiles.variants(record, parsed, shape=shape)
    click.echo(found.preview(), err=True)
    if preview:
        table = found.frame()
        if output.typed("json"):
            click.echo(table.to_json(orient="records", indent=1))
        elif found.kept:
            click.echo(table.to_string(index=False))
        return
    if live:
        with output.progress_bar() as progress:
            measured = tiles.sweep(found, harness=harness, progress=progress, out=out)
    else:
        measured = tiles.recorded(found)
    output.finish(measured)


def _sweep_best(axes: Sequence[str], preview: bool, out: Path | None, harness: Harness, source: Path | None) -> None:
    """Make the table of the rung best, or show it."""
    if axes:
        raise BadSetting("worklog sweep best takes no --axis: it measures every tile of its table")
    if preview:
        click.echo(tuned.shown(best.table()).text())
        return
    if source is not None:
        found = tuned.fitted(Run.load(source))
    else:
        device.require_gpu("--preview shows the table")
        with output.progress_bar() as progress:
            run = tuned.measured(device.gpu(), harness, progress, out)
        output.print_run(run)
        found = tuned.fitted(run)
    click.echo(tuned.shown(found).text())
    click.echo(f"written: {tuned.write(found)}")
