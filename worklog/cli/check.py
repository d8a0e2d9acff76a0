"""The commands `worklog new`, `check`, `profile` and `inspect`.

They write what a user starts from, and look at a kernel beyond its time, mostly without a GPU.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from worklog import proof
from worklog.cli import options, sarif, several
from worklog.emulator.launching import BUDGET
from worklog.errors import BadSetting, Interrupted, NoGpu, WorklogError
from worklog.gpu import device
from worklog.kernel import Kernel, source_folder
from worklog.kernel.by_name import OPTIONS
from worklog.kernel.by_name import kernel_of as kernel_as_read
from worklog.kernel.ladder import counters, new_rung
from worklog.kernel.prediction import Prediction, predicted
from worklog.kernel.solution import find_problem, starters
from worklog.kernel.trial import completed, kernel_of
from worklog.problem import PROBLEMS, Shape
from worklog.runner import check as checks
from worklog.runner import estimate
from worklog.runs.files import require_writable, write_bytes
from worklog.runs.text import Progress

TEMPLATE = Path(__file__).with_name("template.cu")  # a user kernel to start from
WATCH_S = 0.3
EXPLAINED = "notebook 14 explains the stages, u·D and E1 to E3: worklog new notebooks DIR writes it"
NOTEBOOKS = ("*.ipynb", "*.md", "examples/*.*", "story/*.py")


@click.command(epilog=f"The package's problems: {', '.join(PROBLEMS)}.")
@click.argument(
    "name",
    metavar="FILE.cu|PROBLEM|notebooks|NAME",
    shell_complete=options.name_completer(PROBLEMS),
)
@click.argument("folder", type=options.PATH, metavar="[DIR]", required=False)
@options.DTYPE
@click.option(
    "--rung", "number", type=options.Whole(1, 29), metavar="N", help="Add rung N, with this name."
)
def new(name: str, folder: Path | None, dtype: str, number: int | None) -> None:
    """Write a kernel, a solution of a problem, or the notebooks.

    FILE.cu gets a commented SGEMM kernel that passes the check, to change into yours. For a
    problem (one of the package, or your file.py:Class), a folder gets CUDA source and a Python
    function to fill in: solution.cu and solution.py. For `notebooks`, a folder gets the notebooks
    with their examples. An existing file stays as it is.

    With --rung, add a rung to a checkout: a simple kernel in kernels/, its record in
    worklog/kernel/ladder/rungs.py and its entry in kernels/rungs.cuh.
    """
    if dtype and (folder is None or number is not None):
        raise BadSetting("--dtype is for a problem: give a problem and a folder")
    if number is not None:
        if folder is not None:
            raise BadSetting("--rung takes a name alone: omit the folder")
        written = new_rung(number, name)
        next_step = f"worklog check {name}"
    elif folder is None:
        written = _write_kernel(name)
        next_step = f"worklog check {shlex.quote(name)}"
    elif name == "notebooks":
        written = _write_notebooks(folder)
        as_root = " --allow-root" if os.geteuid() == 0 else ""
        next_step = (
            f"{shlex.quote(sys.executable)} -m jupyterlab{as_root} {shlex.quote(str(folder))}"
        )
    else:
        problem = shlex.quote(name)
        if dtype:
            problem += f" --dtype {dtype}"
        written = _write(starters(find_problem(name, dtype), problem, folder))
        next_step = f"worklog check {shlex.quote(str(written[0]))} --problem {problem}"
    for file in written:
        click.echo(f"written: {file}")
    click.echo(f"next: {next_step}")


def _write_kernel(name: str) -> list[Path]:
    """Write the commented kernel. Raises BadSetting for a name that isn't a .cu file."""
    if name.endswith(".cu"):
        text = TEMPLATE.read_text(encoding="utf-8").replace("FILE", shlex.quote(name))
        return _write({Path(name): text})
    if name in (*PROBLEMS, "notebooks"):
        raise BadSetting(f"{name} needs a folder: worklog new {name} DIR")
    raise BadSetting(
        f"cannot write {name!r}: give a name that ends in .cu, or a problem or `notebooks` and a "
        "folder"
    )


def _write_notebooks(folder: Path) -> list[Path]:
    """Write the notebooks, their examples and their code into a folder."""
    shipped = source_folder("_notebooks", "notebooks")
    texts = {}
    for pattern in NOTEBOOKS:
        for path in sorted(shipped.glob(pattern)):
            texts[folder / path.relative_to(shipped)] = path.read_text(encoding="utf-8")
    return _write(texts)


def _write(texts: Mapping[Path, str]) -> list[Path]:
    """Write new files, several of them with their folders.

    Raises BadSetting for a file that exists.
    """
    kind = "folder" if len(texts) > 1 else "name"
    for file in texts:
        for path in (*file.parents[::-1], file):
            if path.is_file():
                raise BadSetting(f"{path} exists already: give another {kind}")
    for file, text in texts.items():
        try:
            if len(texts) > 1:
                file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as new_file:
                new_file.write(text)
        except OSError as error:
            lacks_folder = len(texts) == 1 and not file.parent.exists()
            advice = f"make the folder {file.parent}" if lacks_folder else "give another name"
            raise BadSetting(f"cannot write {file}: {error.strerror}; {advice}") from error
    return [*texts]


@dataclass(frozen=True)
class _CheckOptions:
    """The options of `worklog check` that hold for each kernel."""

    source: str  # the first file or function that is named
    problem: str | None
    dtype: str
    shape: Shape | None
    emulate: bool | None  # None for both the emulator and the GPU
    launch: Mapping[str, Any]  # the options of a user kernel
    settings: Mapping[str, Any]  # of the check: budget, quick, sweep and seed
    prove: bool  # also try to prove what holds for every shape

    def check(self, subject: Kernel, progress: Progress) -> checks.Checked:
        """Check a kernel, in a child process if the GPU runs it.

        Raises NoGpu for a host function without a GPU, and BadSetting for a proof about it.
        """
        if self.prove:
            subject.require_source("omit --prove")
        checked = self._checked(subject, progress)
        return replace(checked, proof=proof.prove(checked.kernel)) if self.prove else checked

    def _checked(self, subject: Kernel, progress: Progress) -> checks.Checked:
        """Check a kernel without a proof."""
        device_name = {True: "emulated", False: "gpu", None: None}[self.emulate]
        shape = self.shape
        if shape is not None:  # of an SGEMM: --problem refuses --size
            subject.check(shape)
        needs_gpu = subject.host is not None
        if needs_gpu and (reason := device.gpu_reason()) is not None:
            raise NoGpu(
                f"the emulator runs .cu files only, and a host function needs a GPU: {reason}"
            )
        if checks.runs_live(subject, device_name):
            return checks.check_in_child(
                subject,
                shape,
                emulate=self.emulate is not False,
                on=device_name,
                progress=progress,
                **self.settings,
            )
        if shape is not None:
            warning = estimate.warning(subject, shape, self.settings["budget"])
            click.echo(warning, err=True, nl=False)
        # No child process: the emulator survives every kernel.
        return checks.check(subject, shape, on=device_name, progress=progress, **self.settings)

    def check_source(self) -> tuple[Kernel, checks.Checked]:
        """Check the kernel that is named."""
        subject: Kernel
        if self.problem is not None:
            sgemm_options = {"--size": self.shape}
            subject = options.solution_of(
                self.source,
                self.problem,
                self.dtype,
                launch=self.launch,
                sgemm_options=sgemm_options,
            )
        else:
            subject = kernel_of(self.source, self.launch)
        with options.progress_bar() as progress:
            return subject, self.check(subject, progress)

    def document(self, subject: Kernel, result: checks.Checked) -> dict[str, Any]:
        """Return what --json prints of a kernel."""
        return _document(result, _prediction(subject, result, self.shape))


@click.command()
@options.kernel(
    "sources", "FILE.cu…|FOLDER|FILE.py:FUNCTION|LIB.so:FUNCTION|RUNG", nargs=-1, required=True
)
@options.PROBLEM
@options.DTYPE
@options.launch
@options.size("The benchmark shape (default: 1024, or a small one without a GPU).")
@click.option(
    "--emulate/--no-emulate",
    default=None,
    help=(
        "Check on the emulator alone, or on the GPU alone (default: both, the emulator at small "
        "shapes)."
    ),
)
@click.option(
    "--budget",
    type=options.Whole(1),
    default=BUDGET,
    show_default=True,
    metavar="INSTRUCTIONS",
    help="Emulator: maximum instructions per warp.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Launch a sample of the sizes instead of each, and search rare paths for a shorter time.",
)
@click.option(
    "--seed",
    type=options.Whole(),
    help="Seed of the inputs, to repeat a verdict (default: random).",
)
@click.option(
    "--prove",
    is_flag=True,
    help="Also prove bounds and race freedom for every shape, with z3: pip install "
    "'gemm-worklog[proof]'.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Check again at each save of the file, and show what changed, until Ctrl-C.",
)
@options.JSON
@click.option(
    "--sarif",
    "sarif_file",
    type=options.FILE,
    metavar="FILE",
    help="Also write the findings with their lines to FILE, for code-scanning tools.",
)
def check(
    *,
    sources: tuple[str, ...],
    problem: str | None,
    dtype: str,
    shape: Shape | None,
    emulate: bool | None,
    prove: bool,
    watch: bool,
    as_json: bool,
    sarif_file: Path | None,
    **settings: Any,
) -> None:
    """Check your kernel: one in a .cu file, or a host function.

    A host function is named as file.py:function, module:function or lib.so:function. Exits with 1
    if the kernel fails. The verdict states the sizes for which it holds: the largest ones were
    launched together with the smallest, and each value of M, N and K beside tiny ones, as far as
    the emulator can in some seconds. A kernel that passes is shown with a lower bound of its time.
    `worklog inspect` shows the counts behind the bound. --seed repeats a report, except for the
    seconds. Several kernels in a file, several files, and the files of a folder get a table with a
    line for each kernel.

    A kernel's parameters and launch are read from its file and the files that include it. What no
    file states is found by launches on the emulator. Both are shown. --args, --grid and --block
    set them. A parameter of type CUtensorMap is made as the launcher's cuTensorMapEncodeTiled makes
    it, or as a comment states it: "tensor maps: tma_a = A, box 64 x 32 of half, swizzle 64B".
    --prove also proves, without a launch, that accesses stay in bounds and don't race at
    any shape of the domain. It reaches kernels with affine addresses, and states what it can't
    prove. With --problem, a .cu file has an extern "C" function `solution` that launches
    kernels, and file.py:function has the problem's parameters. `worklog new` writes both to start
    from.

    On a GPU, NVIDIA's tool can watch the check, and prints each race in shared memory with its
    line: compute-sanitizer --tool racecheck --target-processes all python -m worklog check
    FILE.cu --size 128
    """
    launch = {name: settings.pop(name) for name in OPTIONS}
    settings["sweep"] = not (settings["quick"] or watch)
    request = _CheckOptions(sources[0], problem, dtype, shape, emulate, launch, settings, prove)
    if prove:
        _require_provable(problem)
    if emulate is False:
        device.require_gpu("omit --no-emulate")
    if problem is None:
        options.require_no_case(dtype)
    elif len(sources) > 1:
        raise BadSetting("--problem is for one file or function: name one")
    if watch:
        file = Path(sources[0].partition(":")[0])
        if as_json or sarif_file or len(sources) > 1 or not file.is_file():
            raise BadSetting("--watch needs a file and can't be used with --json or --sarif")
        with suppress(KeyboardInterrupt, Interrupted):
            _watch(file, lambda: request.check_source()[1])
        return
    if problem is None and several.has_several(sources, launch):
        rows = several.check_all(sources, launch, request.check, request.document, as_json=as_json)
        if sarif_file is not None:
            checked = [(row.file, row.checked) for row in rows if row.checked is not None]
            write_bytes(sarif_file, sarif.log(checked), "give another place with --sarif")
        sys.exit(several.exit_code(rows))
    subject, result = request.check_source()
    prediction = None
    remarks = []
    if problem is None:
        prediction = _prediction(subject, result, shape)
        if prediction is not None:
            remarks.append(f"· {prediction.sentences[0]}")
        remarks.append(EXPLAINED)
    options.show(_document(result, prediction), result.report(*remarks), as_json)
    if sarif_file is not None:
        path = source_folder("_kernels", "kernels") / subject.file
        path = Path(sources[0]) if Path(sources[0]).is_file() else path
        write_bytes(sarif_file, sarif.log([(path, result)]), "give another place with --sarif")
    if not result.verdict.accepted:
        sys.exit(1)


def _require_provable(problem: str | None) -> None:
    """Raise ProverMissing without z3, and BadSetting for a problem."""
    proof.require_z3()
    if problem is not None:
        raise BadSetting("--prove is about matrix products: omit --problem or --prove")


def _prediction(subject: Kernel, result: checks.Checked, shape: Shape | None) -> Prediction | None:
    """Return the lower bound of a kernel's time; None if it failed."""
    verdict = result.verdict
    if not verdict.accepted:
        return None
    return predicted(subject, shape, device.gpu_here(), checked=verdict.largest)


def _document(result: checks.Checked, prediction: Prediction | None) -> dict[str, Any]:
    """Return what --json prints of a kernel."""
    return result.as_dict() | {"prediction": prediction.as_dict() if prediction else None}


def _watch(file: Path, check_file: Callable[[], checks.Checked]) -> None:
    """Check a file again at each save, and show the first result, then what has changed."""
    previous = None
    saved_ns = 0
    is_announced = False
    while True:
        with suppress(FileNotFoundError):  # an editor may write a new file in its place
            modified_ns = file.stat().st_mtime_ns
            if modified_ns != saved_ns:
                saved_ns = modified_ns
                previous = _check_again(previous, check_file)
                if not is_announced:
                    click.echo(
                        f"watching {file}: save it to check it again, Ctrl-C to stop", err=True
                    )
                    is_announced = True
        time.sleep(WATCH_S)


def _check_again(
    previous: checks.Checked | None, check_file: Callable[[], checks.Checked]
) -> checks.Checked | None:
    """Print a check's result, or what has changed since the previous result.

    Returns the result, or the previous result if the file can't be checked.
    """
    try:
        result = check_file()
        click.echo(result if previous is None else "\n".join(_changes(previous, result)))
    except Interrupted:
        raise
    except WorklogError as error:
        click.echo(f"worklog: {error}")
        return previous
    return result


def _changes(previous: checks.Checked, result: checks.Checked) -> Iterator[str]:
    """Yield the time and the result, and how stages and findings changed.

    Stages that fail or failed before are shown, and findings that are new or gone, and the counts.
    """
    yield f"\n{time.strftime('%H:%M:%S')} {str(result).splitlines()[0]}"
    previous_stages = {stage.name: stage.passed for stage in previous.verdict.stages}
    stages = result.verdict.stages
    for stage in stages:
        has_passed = previous_stages.get(stage.name)
        if not stage.passed:
            remark = " (it passed before)" if has_passed else ""
            yield f"✗ {stage.name}{remark}: {stage.detail}"
        elif has_passed is False:
            yield f"✓ {stage.name}: it failed before"
    old = {(finding.kind, finding.text): finding for finding in previous.findings}
    new = {(finding.kind, finding.text): finding for finding in result.findings}
    file = result.kernel.file
    yield from (f"+ {finding.at(file)}" for key, finding in new.items() if key not in old)
    yield from (f"− {finding.at(file)}" for key, finding in old.items() if key not in new)
    stage_counts = f"stages: {len(previous_stages)} → {len(stages)}"
    yield f"{stage_counts}; findings: {len(previous.findings)} → {len(result.findings)}"


@click.command()
@options.kernel("name", "RUNG|FILE.cu")
@options.launch
@options.size("The shape to count at.", default="2048")
@options.out()
@options.JSON
def profile(name: str, shape: Shape, out: Path | None, as_json: bool, **launch: Any) -> None:
    """Check and time a kernel, then count one launch with Nsight Compute.

    Prints the use of units, stalls, occupancy and bytes, and these counts beside the emulator's.
    The run keeps them. Without a GPU, shows the recorded shares of a rung's units.

    Exits with 1 if the kernel fails the check.
    """
    from worklog.gpu import profile  # here: a check doesn't need it
    from worklog.runner import measure

    kernel = kernel_of(name, launch)
    kernel.check(shape)
    kernel.require_source("profile its program with ncu itself")
    if kernel.number is not None and not options.live_wanted(out=out):
        recorded = counters([kernel.name])
        shares = dict(zip(recorded.columns, map(str, recorded.rows[0]), strict=True))
        options.show({"label": recorded.title, **shares}, recorded.text(), as_json)
        return
    if kernel.number is None:
        options.require_gpu_for(name)
    with options.progress_bar() as progress:
        run = measure.measure([kernel], [shape], progress=progress, out=out)
    if run.measurements[0].status != "measured":
        options.print_run(run, as_json=as_json)
        sys.exit(1)
    counted = profile.profiled(kernel, shape)
    run.add_counters(counted)
    parts = [run.text(), *(table.text() for table in profile.tables(counted, kernel))]
    limit = profile.limit(counted, run.gpu.arch)
    parts += [limit, f"run saved: {run.path}"]
    document = {"limit": limit, "path": str(run.path), **asdict(counted)}
    options.show(document, "\n\n".join(parts), as_json)


@click.command()
@options.kernel("name", "RUNG|FILE.cu")
@options.launch
@click.option(
    "--arch",
    default="sm_90",
    show_default=True,
    help="Architectures to compile for: sm_80,sm_90, or all.",
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
    *,
    name: str,
    arch: str,
    shape: Shape | None,
    out: Path | None,
    html: Path | None,
    as_json: bool,
    **launch: Any,
) -> None:
    """Show registers, occupancy, memory counts by source line, and a time bound.

    The bound is a lower bound of the time. Needs no GPU.
    """
    # Imported here: a check needs neither of them nor starter code.
    from worklog.kernel import inspection
    from worklog.viewer import accesses

    if out is not None:
        require_writable(out, str(out), "give --out another folder")
    if html is not None and html.suffix != ".html":  # it may be the kernel's file
        raise BadSetting(f"--html writes a web page: give a name that ends in .html, not {html}")
    if html is not None:
        require_writable(html.parent, str(html), "give --html another file")
    kernel = kernel_as_read(name, launch)
    try:
        kernel = completed(kernel)
    except Interrupted:
        raise
    except WorklogError:  # code without a launch is shown without counts
        pass
    kernel.require_instance()
    inspected = inspection.inspect(kernel, shape, inspection.architectures(arch))
    prediction = predicted(kernel, shape, device.gpu_here()) if kernel.grid else None
    files = [] if out is None else inspection.save(inspected, out)
    if html is not None:
        from worklog.site.pages import viewer  # here: matplotlib is slow to import

        page = viewer([accesses.access(kernel, shape).document])
        write_bytes(html, page.encode(), "give --html another file")
        files.append(html)
    if not as_json:
        options.print_adapted([kernel])
    document = {
        **inspected.as_dict(),
        "adapted": [*kernel.adapted],
        "files": [*map(str, files)],
        "prediction": prediction.as_dict() if prediction else None,
    }
    text = inspection.report(inspected)
    if prediction:
        text += f"\n\n{prediction}"
    lines = [text, *(f"written: {path}" for path in files)]
    options.show(document, "\n".join(lines), as_json)
