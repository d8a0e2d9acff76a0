"""`worklog figures`, `article`, `site` and `journal`.

They write the charts of a run, the README's table, and a web page.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from worklog import plots, runs
from worklog.cli import options
from worklog.errors import BadSetting, NothingToDraw, WorklogError
from worklog.gate.precision import rms_limit
from worklog.kernel import RUNGS, tensor_products
from worklog.kernel.ladder import TENSOR
from worklog.lab.journal import journal as journal_text
from worklog.peers import exploits
from worklog.plots import Drawing, gallery
from worklog.plots.selection import shape_to_draw
from worklog.problem import Shape
from worklog.runner import check, execute, sources
from worklog.runner.job import Job, article_jobs, jobs_of
from worklog.runs import Run, cells
from worklog.runs.files import write_bytes, write_text
from worklog.runs.sources import CHAPTERS, in_steps, new_path
from worklog.runs.text import Table
from worklog.settings import Harness
from worklog.site import site_files

README = Path("README.md")
BROKEN = "grid_rounded_down"
MAX_PROCESSES = 8  # that draw charts
GROWTH = (128, 256, 512, 1024, 2048, 4096)
ELEMENTS = 16
# The README's table shows the shares at these sizes beside the large size's.
SMALL_SIZES = (1024, 512, 256)


def diagnosis() -> Drawing:
    """Draw a broken kernel, the emulator's findings, and how many other checks pass it.

    Raises NothingToDraw.
    """
    [exploit] = exploits.named([BROKEN])
    table = exploits.open_exploits()
    [row] = [row for row in table.rows if row.name == BROKEN]
    try:
        checked = check.check(exploit.kernel, on="emulated", seed=0)
    except WorklogError as error:
        raise NothingToDraw(str(error)) from error
    assert checked.verdict.where is not None, "an exploit with an error map"
    passed_by = len(row.passed_by)
    failed_by = len(row.refused_by)
    notes = {
        f"the bug in {exploit.kernel.file}": exploit.how,
        "other checks": f"{passed_by} of {passed_by + failed_by} checks of other projects pass it",
    }
    label = f"{checked.label} · other checks: {table.label}"
    return plots.tile_map(checked.verdict.where, label, name="diagnosis", notes=notes)


def error_growth() -> Drawing:
    """Draw the errors of rungs 23 and 24 against K: with promotion, and without.

    They are emulated.
    """
    finding = "Promotion decides the class: without it, the error of FP16x3 grows with K"
    label = f"emulated · sm_90 PTX; U(-1, 1), {ELEMENTS} x {ELEMENTS} elements of C"
    subtitle = (
        "u = 2⁻²⁴, and D is the 2-norm of an element's K products. Dashed: the limit of class fp32."
    )
    curves = tensor_products.error_growth(GROWTH, ELEMENTS)
    limit = {k: rms_limit(k) for k in GROWTH}
    return plots.curves(
        finding, curves, label, x="K", y="rms error, u·D", subtitle=subtitle, limit=limit
    )


def with_libraries() -> Run:
    """Return the recordings of the rung best, of tensor-core rungs, and of libraries.

    The libraries are Triton's and cuBLAS's products in short formats, which
    tests/record/fp32_by_libraries.py measures.
    """
    run = sources.at_4096((*TENSOR, RUNGS[-1]))
    libraries = Run.load(runs.recordings(CHAPTERS)["h200_libraries"], "recorded")
    kernels = run.kernels | libraries.kernels
    return replace(
        run,
        measurements=[*run.measurements, *libraries.select(shape=Shape.of(4096))],
        kernels=kernels,
    )


def sizes_in_steps() -> Drawing:
    """Draw the rates at sizes in steps, from recordings of their own."""
    return plots.sizes(in_steps())


def ladders_at_4096() -> Drawing:
    """Draw the rungs on FP32 cores and those on tensor cores, from recordings."""
    return plots.ladders(sources.at_4096(), 4096)


def accuracy_of_libraries() -> Drawing:
    """Draw rates and errors beside those of libraries, from recordings."""
    chart: Drawing = plots.accuracy(with_libraries(), 4096)
    return chart


def others(recorded: bool = True) -> dict[str, Callable[[], Drawing]]:
    """Return the figures that don't come from one run.

    They are a broken kernel, and the rungs past the article's ladder.

    recorded: True if the run's figures are of the article's recording; then the sizes come from
        recordings of their own
    """
    charts: dict[str, Callable[[], Drawing]] = {}
    if recorded:
        charts["sizes"] = sizes_in_steps
    charts["diagnosis"] = diagnosis
    charts["ladders"] = ladders_at_4096
    charts["accuracy"] = accuracy_of_libraries
    charts["error_growth"] = error_growth
    return charts


RUN = click.option(
    "--run",
    "file",
    type=options.PATH,
    help="A run, as for `worklog show` (default: the newest, else the recording).",
)


@click.command()
@RUN
@options.folder("figures", "Folder for SVG and PNG.")
def figures(file: str | None, out: Path) -> None:
    """Draw every chart that a run has the measurements for.

    The default is the newest run of the whole ladder.
    """
    run = runs.open_run(file) if file else sources.holding(jobs_of(None, 4096)[0])
    extra = others(file is None and run.origin == "recorded")
    with drawing_processes() as pool:
        drawn = _draw(run, out, extra=extra, drawn=plots.Drawn(), pool=pool)
    drawn.require_whole()


@click.command()
@options.folder("figures", "Folder for SVG and PNG.")
@click.option(
    "--resume",
    "resumed",
    metavar="RUN",
    help="Run of an interrupted or failed `worklog article`: measures only what it lacks.",
)
@options.HARNESS
def article(out: Path, resumed: str | None, harness: Harness) -> None:
    """Regenerate the article's figures and its table in README.md.

    Measures the article's kernels first; without a GPU, loads the recording.
    """
    _require_checkout()
    earlier = runs.open_run(resumed) if resumed is not None else None
    path = earlier.path if earlier is not None and earlier.path is not None else new_path()
    attempts = dict[str, Future[gallery.Attempt]]()
    with _telling_how_to_resume(path, out), drawing_processes() as pool:

        def draw_ahead() -> None:
            """Draw the charts that don't depend on the run."""
            if pool is not None and not attempts:
                for name, draw in others(recorded=False).items():
                    attempts[name] = pool.submit(gallery.attempt, draw)

        if earlier is not None:
            run = _resumed(earlier, harness, draw_ahead)
        elif options.live_wanted(set=harness != Harness()):
            run = _measured(article_jobs(), harness, draw_ahead, saved=path)
        else:
            run = sources.holding(article_jobs())
        options.print_run(run, as_json=False)
        drawn = plots.Drawn()
        for name, attempt in attempts.items():
            drawn.add(name, attempt.result(), out)
        extra = others(run.origin == "recorded")
        drawn = _draw(run, out, extra=extra, drawn=drawn, pool=pool)
        before = README.read_bytes() if README.is_file() else b""
        if run.shapes() and rewrite(README, markdown(run), *markers("table")):
            state = "unchanged" if README.read_bytes() == before else "rewritten"
            click.echo(f"table {state}: {README}")
        else:
            why_not = "it has no table markers" if README.is_file() else "there is no such file"
            click.echo(f"table not rewritten in {README}: {why_not}")
        drawn.require_whole()


def _require_checkout() -> None:
    """Raise BadSetting if neither --out is given nor an article is in this folder."""
    source = click.get_current_context().get_parameter_source("out")
    if source is not ParameterSource.DEFAULT:
        return
    if README.is_file() and markers("table")[0] in README.read_text(encoding="utf-8"):
        return
    raise BadSetting(
        "there is no article in this folder (no README.md with the table's markers): "
        "run it in a checkout of worklog, or name a folder for the figures with --out"
    )


def _resumed(run: Run, harness: Harness, draw_ahead: Callable[[], None]) -> Run:
    """Measure what a run of the article lacks, with the run's settings.

    Needs no GPU if it lacks nothing.
    """
    if harness != Harness():
        raise BadSetting("--resume keeps the run's settings: omit --set")
    missing = sources.missing_from(run, article_jobs())
    if not missing:
        return run
    options.live_wanted(resume=True)
    return _measured(missing, Harness().but(**run.harness), draw_ahead, resumed=run)


def _measured(
    planned: Sequence[Job],
    harness: Harness,
    draw_ahead: Callable[[], None],
    *,
    saved: Path | None = None,
    resumed: Run | None = None,
) -> Run:
    """Measure the article's jobs.

    planned: the jobs, smallest size first
    draw_ahead: called once nothing short is left to measure: no core draws while short launches
        are timed
    saved: the file of a new run
    resumed: the run that gets the measurements
    """
    largest = max(job.shape.flops for job in planned)
    smaller = [job for job in planned if job.shape.flops < largest]

    def report(count: int, total: int, activity: str) -> None:
        progress(count, total, activity)
        if count > len(smaller):
            draw_ahead()

    with options.progress_bar() as progress:
        order = execute.order_of(planned, harness)
        return execute.carry_out(order, progress=report, out=saved, resumed=resumed)


@contextmanager
def drawing_processes() -> Iterator[Executor | None]:
    """Yield processes that draw charts; None on a single core."""
    cores = os.cpu_count() or 1
    if cores == 1:
        yield None
        return
    # Not fork: a thread of this process may hold a lock.
    pool = ProcessPoolExecutor(
        min(cores, MAX_PROCESSES),
        multiprocessing.get_context("spawn"),
        # Ctrl-C is for this process, which ends the pool's processes.
        partial(signal.signal, signal.SIGINT, signal.SIG_IGN),
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _telling_how_to_resume(path: Path, out: Path) -> Iterator[None]:
    """Add the command that resumes the run to an error, if something is saved."""
    try:
        yield
    except BadSetting:  # of the command itself, which would fail again
        raise
    except BaseException as error:
        if path.is_file():
            folder = [] if out == Path("figures") else ["--out", str(out)]
            command = ["worklog", "article", "--resume", str(path), *folder]
            error.add_note(f"nothing is measured again by: {shlex.join(command)}")
        raise


def _draw(
    run: Run,
    out: Path,
    *,
    extra: Mapping[str, Callable[[], Drawing]],
    drawn: plots.Drawn,
    pool: Executor | None,
) -> plots.Drawn:
    """Draw every chart of a run, and print what was drawn and what was not.

    extra: charts that don't come from the run
    drawn: charts that are drawn already
    """
    with options.progress_bar() as progress:
        drawn = plots.draw_all(run, out, extra, drawn, progress=progress, pool=pool)
    lines = [f"figures from: {run.label}"]
    light = [
        path for path in drawn.paths if path.suffix == ".svg" and not path.stem.endswith("_dark")
    ]
    if light:
        lines += [f"  {path}" for path in light]
        lines.append(f"  and beside each one .png, and both as _dark: {len(drawn.paths)} files")
    lines += [f"  {name} not drawn: {reason}" for name, reason in drawn.missing.items()]
    if drawn.gallery:
        lines.append(f"all of them: {drawn.gallery}")
    click.echo("\n".join(lines))
    return drawn


@click.command()
@RUN
@click.option(
    "--grid", type=options.PATH, help="The panel's run file, made by tests/record/grid.py."
)
@options.folder("site", "Folder for index.html.")
def site(file: str | None, grid: Path | None, out: Path) -> None:
    """Write a web site that needs no server.

    It has the notebooks, the panel, the ladder and what each warp touches. Its viewer runs kernels
    if the package ziglang is installed.
    """
    index = out / "index.html"
    if index.exists() and not (out / "data.js").exists():
        raise BadSetting(f"{index} is of another site: give another folder with --out")
    run = runs.open_run(file) if file else None
    with options.progress_bar() as progress:
        written = site_files(run, grid, progress)
    for name, content in written.files.items():
        write_bytes(out / name, content)
    size_mb = sum(map(len, written.files.values())) / 1e6
    click.echo(f"{index} opens in any browser: {len(written.files)} files, {size_mb:.1f} MB")
    if written.not_live:
        click.echo(f"its access viewer isn't live: {written.not_live}")


@click.command()
def journal() -> None:
    """Print your answers and your bets next to what was measured, as Markdown.

    The first answer to each exercise and the first bet on each step count: `worklog journal >
    mine.md`.
    """
    click.echo(journal_text(), nl=False)


def markers(part: str, command: str = "worklog article") -> tuple[str, str]:
    """Return the lines above and below a part of a page that a command rewrites."""
    return f"<!-- worklog {part}: rewritten by `{command}` -->", f"<!-- worklog {part} ends -->"


def rewrite(path: Path, text: str, begin: str, end: str) -> bool:
    """Put the text between two markers. Returns False without such a file or markers.

    Raises WorklogError for one marker alone.
    """
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    head, first_marker, tail = old.partition(begin)
    _, second_marker, foot = tail.partition(end)
    if first_marker and second_marker:
        write_text(path, f"{head}{begin}\n{text}\n{end}{foot}")
        return True
    if first_marker or end in old:
        raise WorklogError(
            f"{path} has only one of two markers: put {begin} before the table and {end} after it"
        )
    return False


def markdown(run: Run) -> str:
    """Return a run at 4096, else at its largest size, as Markdown with its label.

    It also has shares of cuBLAS at small sizes.
    """
    shape = shape_to_draw(run, None)
    measured_shapes = run.shapes()
    small_shapes = [Shape.of(size) for size in SMALL_SIZES]
    small_shapes = [small for small in small_shapes if small in measured_shapes and small != shape]
    shares = {}
    for m in run.select():
        if m.shape:
            shares[m.kernel, m.problem] = str(cells(m)["of cuBLAS"]).replace(" %", "")
    rows = []
    for m in run.select(shape=shape):
        rate = str(cells(m)["TFLOP/s"]) if m.status == "measured" else m.reason or m.status
        idea = run.kernels.get(m.kernel, {}).get("idea", "the baseline, against itself")
        small_shares = [
            shares.get((m.kernel, small), "").partition(" ±")[0] for small in small_shapes
        ]
        rows.append((m.kernel, idea, rate, shares[m.kernel, shape], *small_shares))
    columns = ["rung", "idea", "TFLOP/s", "% of cuBLAS"]
    columns += [f"at {small}" for small in small_shapes]
    table = Table("", columns, rows, left=2).markdown()
    caption = (
        f"C = A·B in FP32 at {shape.m} × {shape.n} × {shape.k}; each share is of cuBLAS in the "
        "same loop."
    )
    return f"{caption} {run.full_label}.\n\n{table}"
