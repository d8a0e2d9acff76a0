"""`worklog new`, `check` and `inspect`: what a user starts from, and a kernel without a time, without a GPU too."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from worklog.analysis.prediction import Prediction, predicted
from worklog.analysis.trial import completed, kernel_of
from worklog.cli import options, several
from worklog.emulator import BUDGET
from worklog.errors import BadSetting, Interrupted, NoGpu, WorklogError
from worklog.gpu import device
from worklog.kernel import (
    OPTIONS,
    TEMPLATE,
    Kernel,
    counters,
    find_problem,
    new_rung,
    source_folder,
    starters,
)
from worklog.kernel import kernel_of as kernel_as_read
from worklog.problem import PROBLEMS, Shape
from worklog.runner import check as checks
from worklog.runner import estimate
from worklog.runs import Progress, require_writable, write_bytes

WATCH_S = 0.3
EXPLAINED = "notebook 04 explains the stages, u·D and E1 to E3: worklog new notebooks DIR writes it"
NOTEBOOKS = ("*.ipynb", "*.md", "examples/*.*")


@click.command(epilog=f"The package's problems: {', '.join(PROBLEMS)}.")
@click.argument(
    "what",
    metavar="FILE.cu|PROBLEM|notebooks|NAME",
    shell_complete=options.name_completer(PROBLEMS),
)
@click.argument("folder", type=options.PATH, metavar="[DIR]", required=False)
@options.DTYPE
@click.option(
    "--rung", "number", type=options.Whole(1, 29), metavar="N", help="Add rung N, with this name."
)
def new(what: str, folder: Path | None, dtype: str, number: int | None) -> None:
    """Write a commented SGEMM kernel that passes the check, to change into yours; or for a problem (one of the package,
    or your file.py:Class) CUDA source and a Python function to fill in, solution.cu and solution.py in a folder; or the
    notebooks with their examples. An existing file stays as it is. With --rung, add a rung to a checkout: a simple
    kernel in kernels/, its record in worklog/kernel/rungs.py and its entry in kernels/rungs.cuh.
    """
    if dtype and (folder is None or number is not None):
        raise BadSetting("--dtype is for a problem: give a problem and a folder")
    if number is not None:
        if folder is not None:
            raise BadSetting("--rung takes a name alone: omit the folder")
        written = new_rung(number, what)
        next_step = f"worklog check {what}"
    elif folder is None and what.endswith(".cu"):
        next_step = f"worklog check {shlex.quote(what)}"
        text = TEMPLATE.read_text(encoding="utf-8").replace("FILE", shlex.quote(what))
        written = _write({Path(what): text})
    elif folder is None:
        if what in (*PROBLEMS, "notebooks"):
            raise BadSetting(f"{what} needs a folder: worklog new {what} DIR")
        raise BadSetting(
            f"cannot write {what!r}: give a name that ends in .cu, or a problem or `notebooks` and a folder"
        )
    elif what == "notebooks":
        shipped = source_folder("_notebooks", "notebooks")
        sources = [path for kind in NOTEBOOKS for path in sorted(shipped.glob(kind))]
        written = _write(
            {folder / p.relative_to(shipped): p.read_text(encoding="utf-8") for p in sources}
        )
        as_root = " --allow-root" if os.geteuid() == 0 else ""
        next_step = (
            f"{shlex.quote(sys.executable)} -m jupyterlab{as_root} {shlex.quote(str(folder))}"
        )
    else:
        named = shlex.quote(what) + (f" --dtype {dtype}" if dtype else "")
        written = _write(starters(find_problem(what, dtype), named, folder))
        next_step = f"worklog check {shlex.quote(str(written[0]))} --problem {named}"
    for file in written:
        click.echo(f"written: {file}")
    click.echo(f"next: {next_step}")


def _write(files: Mapping[Path, str]) -> list[Path]:
    """Write new files, several of them with their folders. Raises BadSetting for one that exists."""
    for path in (path for file in files for path in (*file.parents[::-1], file)):
        if path.is_file():
            raise BadSetting(
                f"{path} exists already: give another {'folder' if len(files) > 1 else 'name'}"
            )
    for file, text in files.items():
        try:
            if len(files) > 1:
                file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as new_file:
                new_file.write(text)
        except OSError as error:
            lacks_folder = len(files) == 1 and not file.parent.exists()
            advice = f"make the folder {file.parent}" if lacks_folder else "give another name"
            raise BadSetting(f"cannot write {file}: {error.strerror}; {advice}") from error
    return [*files]


@click.command()
@options.kernel(
    "what", "FILE.cu…|FOLDER|FILE.py:FUNCTION|LIB.so:FUNCTION|RUNG", nargs=-1, required=True
)
@options.PROBLEM
@options.DTYPE
@options.launch
@options.size("The benchmark shape (default: 1024, or a small one without a GPU).")
@click.option(
    "--emulate/--no-emulate", default=None,
    help="Run it on the emulator alone, or on the GPU alone (default: both, the emulator at small shapes).",
)  # fmt: skip
@click.option(
    "--budget", type=options.Whole(1), default=BUDGET, show_default=True, metavar="INSTRUCTIONS",
    help="Emulator: maximum instructions per warp.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Search rare paths on the emulator for a shorter time.")
@click.option(
    "--seed",
    type=options.Whole(),
    help="Seed of the inputs: it repeats a verdict (default: random).",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Check again at each save of the file, and show what changed, until Ctrl-C.",
)
@options.JSON
def check(
    what: tuple[str, ...], problem: str | None, dtype: str, shape: Shape | None, emulate: bool | None, watch: bool,
    as_json: bool, **words: Any,
) -> None:  # fmt: skip
    """Check your kernel: one in a .cu file, or a host function, as file.py:function, module:function or
    lib.so:function. Exits with 1 if it fails. A kernel that passes is shown with a lower bound of its time, whose
    counts are in `worklog inspect`. --seed repeats a report, but for the seconds. Several kernels in a file, several
    files and the files of a folder get a table with a line for each kernel.

    A kernel's parameters and launch are read from its file and the files that include it; what no file states is found
    by launches on the emulator. Both are shown; --args, --grid and --block state them. With --problem, a .cu file has
    an extern "C" function `solution` that launches kernels, and file.py:function takes the problem's parameters;
    worklog new writes both to start from.

    On a GPU, NVIDIA's tool can watch the check, and prints each race in shared memory with its line:
    compute-sanitizer --tool racecheck --target-processes all python -m worklog check FILE.cu --size 128
    """
    named = what[0]
    on = {True: "emulated", False: "gpu", None: None}[emulate]
    file = Path(named.partition(":")[0])
    launch = {name: words.pop(name) for name in OPTIONS}
    if emulate is False:
        device.require_gpu("omit --no-emulate")
    if problem is None:
        options.require_no_case(dtype)
    elif len(what) > 1:
        raise BadSetting("--problem is for one file or function: name one")
    if watch and (as_json or len(what) > 1 or not file.is_file()):
        raise BadSetting("--watch needs a file and can't be used with --json")

    def run(subject: Kernel, progress: Progress) -> checks.Checked:
        if problem is None and shape is not None:
            subject.check(shape)
        if subject.host is not None and (reason := device.gpu_reason()) is not None:
            raise NoGpu(
                f"the emulator runs .cu files only, and a host function needs a GPU: {reason}"
            )
        emulated = subject.host is None and not checks.wants_gpu(on)
        if emulated and shape is not None and problem is None:
            click.echo(estimate.warning(subject, shape, words["budget"]), err=True, nl=False)
        checking: Callable[..., checks.Checked] = checks.check  # the emulator survives every kernel
        if not emulated:
            checking = partial(checks.check_in_child, emulate=emulate is not False)
        return checking(subject, shape, on=on, progress=progress, **words)

    def checked() -> tuple[Kernel, checks.Checked]:
        subject: Kernel
        if problem is not None:
            subject = options.solution_of(named, problem, dtype, launch, {"--size": shape})
        else:
            subject = kernel_of(named, launch)
        with options.progress_bar() as progress:
            return subject, run(subject, progress)

    if watch:
        with suppress(KeyboardInterrupt, Interrupted):
            _watch(file, lambda: checked()[1])
        return

    def document_of(subject: Kernel, result: checks.Checked) -> dict[str, Any]:
        return _document(result, _prediction(subject, result, shape))

    if problem is None and several.has_several(what, launch):
        sys.exit(several.check_all(what, launch, run, document_of, as_json=as_json))
    subject, result = checked()
    prediction = _prediction(subject, result, shape) if problem is None else None
    more = [] if prediction is None else [f"· {prediction.sentences[0]}"]
    more += [EXPLAINED] if problem is None else []
    options.show(_document(result, prediction), result.report(*more), as_json)
    if not result.verdict.accepted:
        sys.exit(1)


def _prediction(subject: Kernel, result: checks.Checked, shape: Shape | None) -> Prediction | None:
    """Return the lower bound of a kernel's time; None if it failed."""
    verdict = result.verdict
    return predicted(subject, shape, checked=verdict.largest) if verdict.accepted else None


def _document(result: checks.Checked, prediction: Prediction | None) -> dict[str, Any]:
    """Return what --json prints of a kernel."""
    return result.as_dict() | {"prediction": prediction.as_dict() if prediction else None}


def _watch(file: Path, checked: Callable[[], checks.Checked]) -> None:
    """Check a file again at each save, and show the first result, then what has changed since the one before."""
    before = None
    saved = 0
    announced = False
    while True:
        with suppress(FileNotFoundError):  # an editor may write a new file in its place
            if (now := file.stat().st_mtime_ns) != saved:
                saved = now
                try:
                    result = checked()
                    click.echo(result if before is None else "\n".join(_changes(before, result)))
                    before = result
                except Interrupted:
                    raise
                except WorklogError as error:
                    click.echo(f"worklog: {error}")
                if not announced:
                    click.echo(
                        f"watching {file}: save it to check it again, Ctrl-C to stop", err=True
                    )
                    announced = True
        time.sleep(WATCH_S)


def _changes(before: checks.Checked, now: checks.Checked) -> Iterator[str]:
    """The time and the result; stages that fail or failed before; findings that are new or gone, and counts."""
    yield f"\n{time.strftime('%H:%M:%S')} {str(now).splitlines()[0]}"
    earlier = {stage.name: stage.passed for stage in before.verdict.stages}
    for stage in now.verdict.stages:
        passed_before = earlier.get(stage.name)
        if not stage.passed:
            yield f"✗ {stage.name}{' (it passed before)' if passed_before else ''}: {stage.detail}"
        elif passed_before is False:
            yield f"✓ {stage.name}: it failed before"
    old, new = ({(f.kind, f.text): f for f in checked.findings} for checked in (before, now))
    for mark, kept, other in (("+", new, old), ("−", old, new)):
        yield from (
            f"{mark} {finding.at(now.kernel.file)}"
            for key, finding in kept.items()
            if key not in other
        )
    yield f"stages: {len(earlier)} → {len(now.verdict.stages)}; findings: {len(before.findings)} → {len(now.findings)}"


@click.command()
@options.kernel("what", "RUNG|FILE.cu")
@options.launch
@options.size("The shape to count at.", default="2048")
@options.out()
@options.JSON
def profile(what: str, shape: Shape, out: Path | None, as_json: bool, **launch: Any) -> None:
    """Check and time a kernel, then count one launch with Nsight Compute: units, stalls, occupancy, bytes, and its
    counts beside the emulator's; the run keeps them. Without a GPU, show the recorded shares of a rung's units.

    Exits with 1 if the kernel fails the check.
    """
    from worklog.analysis import profile  # here: a check doesn't need it
    from worklog.runner import measure

    kernel = kernel_of(what, launch)
    kernel.check(shape)
    if kernel.host is not None:
        raise BadSetting(f"{kernel.name} is a host function: profile its program with ncu itself")
    if kernel.number is not None and not options.live_wanted(out=out):
        recorded = counters([kernel.name])
        known = dict(zip(recorded.columns, map(str, recorded.rows[0]), strict=True))
        options.show({"label": recorded.title, **known}, recorded.text(), as_json)
        return
    if kernel.number is None:
        options.require_gpu_for(what)
    with options.progress_bar() as progress:
        run = measure.measure([kernel], [shape], progress=progress, out=out)
    if run.measurements[0].status != "measured":
        options.print_run(run, as_json=as_json)
        sys.exit(1)
    counted = profile.profiled(kernel, shape)
    run.add_counters(counted)
    parts = [run.text(), *(table.text() for table in profile.tables(counted, kernel))]
    parts += [profile.limit(counted), f"run saved: {run.path}"]
    document = {"limit": profile.limit(counted), "path": str(run.path), **asdict(counted)}
    options.show(document, "\n\n".join(parts), as_json)


@click.command()
@options.kernel("what", "RUNG|FILE.cu")
@options.launch
@click.option(
    "--arch", default="sm_90", show_default=True, help="What to compile for: sm_80,sm_90, or all."
)
@options.size(
    "The shape to count at (default: 4096; 128 for a user kernel, run in full up to 512)."
)
@click.option(
    "--out",
    type=options.FOLDER,
    metavar="FOLDER",
    help="Also write PTX and cubins into this folder.",
)
@click.option(
    "--html",
    type=options.PATH,
    metavar="FILE",
    help="Also write a page that shows what each warp touches.",
)
@options.JSON
def inspect(
    what: str,
    arch: str,
    shape: Shape | None,
    out: Path | None,
    html: Path | None,
    as_json: bool,
    **launch: Any,
) -> None:
    """Show registers, occupancy, memory counts by source line, and a lower bound of the time. Needs no GPU."""
    from worklog.analysis import (
        accesses,
        inspection,
    )  # here: a check needs neither it nor starter code

    if out is not None:
        require_writable(out, str(out), "give --out another folder")
    if html is not None and html.suffix != ".html":  # it may be the kernel's file
        raise BadSetting(f"--html writes a web page: give a name that ends in .html, not {html}")
    if html is not None:
        require_writable(html.parent, str(html), "give --html another file")
    kernel = kernel_as_read(what, launch)
    try:
        kernel = completed(kernel)
    except Interrupted:
        raise
    except WorklogError:  # code without a launch is shown without counts
        pass
    if kernel.host is None:
        kernel.require_instance()
    inspected = inspection.inspect(kernel, shape, inspection.architectures(arch))
    prediction = predicted(kernel, shape) if kernel.grid else None
    files = [] if out is None else inspection.save(inspected, out)
    if html is not None:
        from worklog.lab.pages import viewer  # here: matplotlib is slow to import

        write_bytes(
            html,
            viewer([accesses.access(kernel, shape).document]).encode(),
            "give --html another file",
        )
        files.append(html)
    if not as_json:
        options.print_adapted([kernel])
    more = {"adapted": [*kernel.adapted], "files": [*map(str, files)]}
    document = (
        inspected.as_dict() | more | {"prediction": prediction.as_dict() if prediction else None}
    )
    text = inspection.report(inspected) + (f"\n\n{prediction}" if prediction else "")
    options.show(document, "\n".join([text, *(f"written: {path}" for path in files)]), as_json)
