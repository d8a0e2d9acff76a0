"""`worklog check`, `inspect`, `sweep` and `gate`, and the options of a user kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worklog.cli.output import harness_option, json_option, print_json, progress_bar, require_new_file, terminal_width
from worklog.errors import BadSetting, Interrupted, NoGpu

if TYPE_CHECKING:
    from worklog.kernel import Kernel
    from worklog.problem.axes import Axis
    from worklog.problem.gemm import Shape
    from worklog.runs.run import Run
    from worklog.settings import Harness


def launch_options(command: Any) -> Any:
    """The options of a user kernel."""
    options = (
        click.option("--grid", metavar="X,Y", help="Blocks, from M, N and K: '(N + 31) / 32, (M + 31) / 32'."),
        click.option("--block", metavar="X[,Y]", help="Threads per block: 256, or 32,8."),
        click.option(
            "--entry", help="The kernel, with template arguments if it has any (default: the only one in the file)."
        ),
        click.option(
            "--domain",
            default="any",
            show_default=True,
            help="Shapes that it takes: 'M % 64 == 0, K % 8 == 0'.",
        ),
        click.option("--class", "claimed", default="fp32", show_default=True, help="Minimum precision class."),
        click.option(
            "--arrays",
            default="",
            metavar="cupy|torch",
            help="Arrays that a host function takes (default: ARRAYS of its file, else cupy).",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def both_axes(words: Sequence[str]) -> tuple[list[Axis], list[Axis]]:
    """The axes M, N and K, and the others. Raises BadSetting."""
    from worklog.problem.axes import SIZES, TEMPLATES, Axis

    of_sizes, others = list[Axis](), list[Axis]()
    for word in words:
        name = word.partition("=")[0].partition("[")[0].strip()
        if name in ("M", "N", "K", ""):
            of_sizes.append(Axis.parse(word, SIZES))
        else:
            others.append(Axis.parse(word, TEMPLATES))
    return of_sizes, others


def kernels_of(words: Sequence[str], axes: Sequence[Axis] = (), **launch: Any) -> list[str | Kernel]:
    """Rungs and cuBLAS by name, and user kernels; a file's kernel has the name of its file. axes: template arguments of
    user kernels. An instance that does not compile is skipped, with the compiler's first line as the reason.

    Raises what worklog.kernel.ladder raises, CompileFailed for a kernel of which no instance compiles, and BadSetting
    for a launch option that no kernel takes.
    """
    from worklog.bench.tasks import BASELINE
    from worklog.kernel.ladder import LADDER, instances, kernel_of

    named = {BASELINE, *(record.name for record in LADDER)}
    found: list[str | Kernel] = []
    for word in words:
        if word in named:
            found.append(word)
        elif axes:
            found += compilable(instances(word, axes, launch))
        else:
            found += compilable([kernel_of(word, launch)])
    own = any(not isinstance(kernel, str) for kernel in found)
    if own and BASELINE not in found:
        found.append(BASELINE)
    if not own and (launch["grid"] or launch["block"] or launch["entry"]):
        raise BadSetting("--grid, --block and --entry are for a user kernel: name its file too")
    if not own and axes:
        raise BadSetting(
            f"--axis {axes[0].name} stands for a template argument of a user kernel: name its file too (the axes of a "
            "problem are N, M and K)"
        )
    if not own and launch["arrays"]:
        raise BadSetting("--arrays is for a host function: name its file and function too")
    return found


def compilable(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The instances of one user kernel, those that do not compile marked as skipped, before anything is measured.

    They are compiled for this GPU; without one, for the emulator, if NVRTC is installed. Raises CompileFailed if no
    instance compiles, and BadSetting for a signature other than the ladder's.
    """
    from worklog.bench.check import compile_for
    from worklog.errors import CompileFailed
    from worklog.gpu.device import gpu_reason
    from worklog.kernel.nvrtc import NvrtcMissing

    live = gpu_reason() is None
    found: list[Kernel] = []
    errors: list[CompileFailed] = []
    for kernel in kernels:
        try:
            if kernel.host is None:
                compile_for(kernel.program, live)
            found.append(kernel)
        except CompileFailed as error:
            errors.append(error)
            found.append(replace(kernel, skipped=f"it does not compile: {str(error).splitlines()[0]}"))
        except NvrtcMissing:
            if live:
                raise
            found.append(kernel)
    if len(errors) == len(kernels):
        raise errors[0]
    return found


def show_preview(
    kernels: Sequence[str | Kernel] | None, sizes: Sequence[Shape], harness: Harness, as_json: bool
) -> None:
    """Print the number of measurements and a rough time for them. Raises what measuring them would raise."""
    from worklog.bench.measure import require_measurable
    from worklog.bench.tasks import estimate, tasks_of
    from worklog.problem.axes import Axis, Space

    tasks, user_kernels = tasks_of(kernels, sizes)
    require_measurable(tasks, harness, user_kernels)
    skipped = {kernel.name: kernel.skipped for kernel in user_kernels if kernel.skipped}
    seconds, source = estimate([task for task in tasks if task.kernel not in skipped], harness)
    if as_json:
        rows, left = list[dict[str, Any]](), iter(seconds)
        for task in tasks:
            why = skipped.get(task.kernel)
            rest = {"seconds": round(next(left), 2)} if why is None else {"skipped": why}
            rows.append({"kernel": task.kernel, "m": task.shape.m, "n": task.shape.n, "k": task.shape.k, **rest})
        print_json({"rates": source, "points": len(rows), "seconds": round(sum(seconds), 2), "measurements": rows})
        return
    names, written = dict.fromkeys(task.kernel for task in tasks), dict.fromkeys(str(task.shape) for task in tasks)
    axes = (Axis("kernels", tuple(names), "str"), Axis("sizes", tuple(written), "str"))
    space = Space("run", axes, lambda point: skipped.get(str(point["kernels"])))
    click.echo(f"{space.preview(sum(seconds) / len(seconds))} (rough; rates: {source})")


def measure_them(kernels: Sequence[str | Kernel] | None, *words: Any, **more: Any) -> Run:
    """worklog.bench.measure.measure, with advice for user kernels if there is no GPU."""
    from worklog.bench import measure as bench
    from worklog.gpu.device import gpu_reason

    foreign = any(not isinstance(kernel, str) for kernel in kernels or ())
    try:
        return bench.measure(kernels, *words, **more)
    except NoGpu as error:
        if not foreign:
            raise
        advice = "`worklog check` checks a user kernel on the emulator"
        raise NoGpu(f"no GPU to measure on: {gpu_reason()}; {advice}") from error


@click.command(short_help="Check your kernel at every stage of the gate.")
@click.argument("what", metavar="FILE.cu|FILE.py:FUNCTION|RUNG")
@launch_options
@click.option("--size", metavar="N", help="The benchmark shape (default: 1024, or a small one without a GPU).")
@click.option(
    "--on", type=click.Choice(["gpu", "emulated"]), help="Where to run it (default: the GPU if there is one)."
)
@click.option("--emulate", is_flag=True, help="Run it on the emulator, as --on emulated: it finds races too.")
@click.option("--racecheck", is_flag=True, help="compute-sanitizer's racecheck and memcheck too, on a GPU.")
@json_option
def check(
    what: str, size: str | None, on: str | None, emulate: bool, racecheck: bool, as_json: bool, **words: Any
) -> None:
    """Check your kernel: one with the ladder's signature in a .cu file, or a host function, as file.py:function,
    module:function or lib.so:function. Exits with 1 if it fails.
    """
    from worklog.bench import check as here
    from worklog.bench import sanitizer
    from worklog.gpu.device import gpu_reason
    from worklog.kernel.ladder import kernel_of
    from worklog.problem.gemm import Shape

    if emulate and on == "gpu":
        raise BadSetting("--emulate and --on gpu contradict each other: omit one")
    kernel, on = kernel_of(what, words), "emulated" if emulate else on
    if kernel.host is not None and gpu_reason() is not None:
        raise NoGpu(f"a host function needs a GPU ({gpu_reason()}): the emulator runs .cu files")
    tool = sanitizer.ready(kernel, on) if racecheck else None
    run_check = here.check_in_child if here.wants_gpu(on) else here.check  # the emulator survives every kernel
    shape = None if size is None else Shape.of(size)
    with progress_bar() as progress:
        checked = run_check(kernel, shape, on=on, progress=progress)
        for stage in sanitizer.sanitize(tool, kernel) if tool else ():
            checked = replace(checked, verdict=checked.verdict.and_then(stage))
    if as_json:
        print_json(checked.as_dict())
    else:
        click.echo(here.report(checked))
    if not checked.verdict.accepted:
        sys.exit(1)


@click.command(name="inspect", short_help="Registers, occupancy, and memory counts by source line.")
@click.argument("what", metavar="RUNG|FILE.cu")
@click.option("--entry", help="The kernel in the file, with template arguments if it has any (default: the only one).")
@click.option("--grid", metavar="X,Y", help="Blocks of a user kernel: '(N + 31) / 32, (M + 31) / 32'.")
@click.option("--block", metavar="X[,Y]", help="Threads per block of a user kernel: 256, or 32,8.")
@click.option("--domain", default="any", show_default=True, help="Shapes that a user kernel takes: 'M % 64 == 0'.")
@click.option("--arch", default="sm_90", show_default=True, help="What to compile for: sm_80,sm_90, or all.")
@click.option(
    "--size",
    metavar="N",
    help="The shape to count at (default: 4096; 128 for a user kernel, run in full up to 512).",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Write PTX and cubins there too.")
@json_option
def inspect_(what: str, arch: str, size: str | None, out: Path | None, as_json: bool, **words: Any) -> None:
    """Show registers, occupancy and memory counts by source line. Needs no GPU, and shows no time."""
    from worklog.analysis.inspection import architectures, inspect, report, save
    from worklog.problem.gemm import Shape

    found = inspect(what, shape=None if size is None else Shape.of(size), archs=architectures(arch), **words)
    files = [] if out is None else save(found, out)
    if as_json:
        print_json({**found.as_dict(), "files": [str(path) for path in files]})
    else:
        click.echo(report(found))
        for path in files:
            click.echo(f"written: {path}")


@click.command(short_help="Check and time the tiles of a rung.")
@click.argument("name", metavar="RUNG")
@click.option(
    "--axis",
    "axes",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help='A tile parameter and its values; repeat for more: "BM=64,128", "TN[pow2]=2:4".',
)
@click.option("--size", default="4096", show_default=True, metavar="N", help="The shape to measure at.")
@click.option("--preview", is_flag=True, help="List the tiles without measuring; needs no GPU.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to save the run.")
@harness_option
@json_option
def sweep(
    name: str, axes: tuple[str, ...], size: str, preview: bool, out: Path | None, harness: Harness, as_json: bool
) -> None:
    """Check and time every tile of a rung that can be built, beside cuBLAS."""
    from worklog.bench.sweep import sweep as measure_all
    from worklog.bench.sweep import variants
    from worklog.gpu.device import require_gpu
    from worklog.kernel.ladder import rung
    from worklog.problem.axes import TILES, Axis
    from worklog.problem.gemm import Shape

    require_new_file(out)
    if not preview:
        require_gpu()
    found = variants(rung(name), [Axis.parse(axis, TILES) for axis in axes], shape=Shape.of(size))
    click.echo(found.preview(), err=True)
    if preview:
        table = found.frame()
        if as_json:
            click.echo(table.to_json(orient="records", indent=1))
        elif found.kept:
            click.echo(table.to_string(index=False))
        return
    with progress_bar() as progress:
        run = measure_all(found, harness=harness, progress=progress, out=out)
    if as_json:
        rows = json.loads(run.frame().to_json(orient="records"))
        print_json({"label": run.label, "path": str(run.path), "measurements": rows})
    else:
        click.echo(f"{run}run saved: {run.path}")
    if any(m.status == "refused" for m in run.measurements):
        sys.exit(1)


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
