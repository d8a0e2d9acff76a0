"""The commands that look at the harness and the gate.

`worklog ablate`, `exploits` and `peers` show what is recorded without a GPU. `worklog doctor` shows
what is installed, the harness's settings and its calibration.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from worklog import runs
from worklog.benchmarks.declare import at, declared
from worklog.cli import options
from worklog.emulator.core import native
from worklog.errors import BadSetting, Interrupted, NvrtcMissing, WorklogError, install_command
from worklog.gpu import device
from worklog.harness import certificate
from worklog.kernel.disk_cache import cache_folder, cached_files
from worklog.kernel.nvrtc import newer_than_the_driver, nvrtc_version
from worklog.peers import compare
from worklog.peers import exploits as table_of
from worklog.problem import Shape
from worklog.runner import measure, sources
from worklog.runner.job import ABLATION_SIZES
from worklog.runner.session import calibrated, checked_energy
from worklog.runs.comparison import open_comparison
from worklog.runs.effects import effects, effects_text
from worklog.runs.files import not_writable
from worklog.runs.nvml import reason_names
from worklog.runs.sources import CHAPTERS, forced_source, live_runs, runs_dir
from worklog.settings import PITFALLS, SAMPLING, Harness

CHECK_S = 10.0  # of the energy counter


@click.command()
@options.kernel("rung", "RUNG")
@options.SIZES
@options.measuring
def ablate(
    *,
    rung: str,
    shapes: list[Shape],
    harness: Harness,
    out: Path | None,
    as_json: bool,
    **files: Any,
) -> None:
    """Measure one rung with each setting of the harness biased in turn.

    Shows how each bias changes the result. Without a GPU, the recording is shown.
    """
    if Path(rung).suffix:
        raise BadSetting(
            f"ablate takes a rung: of a file, bias one setting, as in worklog run {rung} --set "
            "l2=warm"
        )
    options.live_wanted(out=out, set=harness != Harness())
    with options.progress_bar() as progress:
        run = measure.ablate(
            rung, shapes or ABLATION_SIZES, harness=harness, progress=progress, out=out
        )
    rows = []
    for effect in effects(run, rung):
        rows.append({**asdict(effect), "factor": effect.factor, "visible": effect.visible})
    options.write_exports(rows, files, title=f"{rung} · {run.label}")
    text = effects_text(run, rung, options.terminal_width())
    if run.origin == "live":
        text += f"\nrun saved: {run.path}"
    options.show(rows, text, as_json)


@click.command()
@click.option("--only", "names", metavar="NAME[,NAME…]", help="Run only these exploits.")
@click.option(
    "--seeds",
    type=options.Whole(1, 1000),
    help="Number of seeds to check each exploit on (default: 1).",
)
@click.option(
    "--emulate", is_flag=True, help="Run the exploits on the emulator. Takes minutes, needs no GPU."
)
@options.out("Where to save the table.")
@options.JSON
def exploits(
    *, names: str | None, seeds: int | None, emulate: bool, out: Path | None, as_json: bool
) -> None:
    """Check kernels that are wrong in a known way.

    Shows which other harnesses would have passed them. With WORKLOG_SOURCE=recorded, or without a
    GPU and without options, the recorded table is shown. Exits with 1 if the gate is wrong about
    an exploit.
    """
    if names is None and not (out or seeds or emulate) and not sources.live_wanted():
        table = table_of.open_exploits()
    else:
        chosen = None if names is None else table_of.named(_exploit_names(names))
        with options.progress_bar() as progress:
            table = table_of.run_exploits(
                chosen, progress=progress, out=out, seeds=range(seeds or 1), emulate=emulate
            )
        if not table.rows:
            raise Interrupted("interrupted before the first exploit was finished")
        if out is not None:
            click.echo(f"table saved: {out}", err=True)
    options.show(table.as_dict(), table.text(options.terminal_width(150)), as_json)
    # Only a table that was made here can have been interrupted.
    if not table.complete and not table.origin:
        place = "shown" if out is None else f"in {out}"
        raise Interrupted(f"interrupted: finished rows are {place}")
    if table.failures:
        sys.exit(1)


def _exploit_names(names: str) -> list[str]:
    """Return names that are separated by commas. Raises BadSetting for none."""
    parts = [name.strip() for name in names.split(",") if name.strip()]
    if not parts:
        raise BadSetting("--only names no exploit: give one or more, such as --only zeros,kahan")
    return parts


@click.command()
@click.option(
    "--bench",
    "files",
    multiple=True,
    type=options.PATH,
    metavar="FILE.py",
    help="Time the benchmarks that FILE.py declares instead, cold and hot; repeat for more.",
)
@options.axes("As in `worklog bench`; repeat for more.")
@options.out()
@options.exports
@options.JSON
def peers(
    files: tuple[Path, ...],
    axes: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **exports: Path | None,
) -> None:
    """Time the same work with this harness and with others.

    The work is kernels of known length and cuBLAS, or declared benchmarks. The others are all
    harnesses that are installed. Without a GPU, or with WORKLOG_SOURCE=recorded, the recording is
    shown.
    """
    if axes and not files:
        raise BadSetting("--axis is for declared benchmarks: give --bench FILE.py")
    path = None
    if out is not None or files or sources.live_wanted():
        benchmarks = []
        for file in files:
            benchmarks += declared(file)
        if files:
            benchmarks = at(axes, benchmarks)
        device.require_gpu("omit --bench and --out to see the recorded comparison")
        with options.progress_bar() as progress:
            path = compare.compare(out, progress, benchmarks=benchmarks)
    table = open_comparison(path, "benchmarks" if files else "peers")
    rows = [{**row, "label": table.label} for row in table.document["rows"]]
    options.write_exports(rows, exports, title=table.label)
    text = compare.text(table)
    if path is not None:
        text += f"\nsaved: {path}"
    options.show(table.document, text, as_json)


@click.command()
@click.option(
    "--settings",
    is_flag=True,
    help="List the harness's settings and the pitfalls that they avoid.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure the harness: overhead, noise, L2 flush, peaks.",
)
@click.option(
    "--energy",
    "checks_energy",
    is_flag=True,
    help=(
        f"Compare NVML's energy counter with the integral of its power samples, over {CHECK_S:.0f} "
        "s of multiply-adds (GPU). Exits with 1 if they disagree."
    ),
)
@options.HARNESS
@options.JSON
def doctor(
    settings: bool, calibrate: bool, checks_energy: bool, harness: Harness, as_json: bool
) -> None:
    """Show what is installed and what is missing.

    Also shows what a missing part costs, and how to get it.

    --calibrate measures the event overhead, the error left after its removal, noise, if the L2
    flush works, and the ceilings of this GPU. Without a GPU, it shows the recording. Of the
    settings, it accepts only the clocks.
    """
    if settings + calibrate + checks_energy > 1:
        raise BadSetting(
            "--settings, --calibrate and --energy each show something else: omit all but one"
        )
    if harness.but(clocks="watched") != Harness() or (harness != Harness() and not calibrate):
        raise BadSetting(
            "--set takes only clocks here, with --calibrate, which uses the unbiased harness"
        )
    document: Any
    has_failed = False
    if checks_energy:
        device.require_gpu("`worklog doctor` without --energy needs none")
        check, label = checked_energy(CHECK_S)
        document = {"kind": "energy", "schema": 1, "label": label, "device": asdict(device.gpu())}
        document |= {"check": {**asdict(check), "difference": check.difference}}
        text = f"{label}\n{check.text()}"
        has_failed = not check.agrees
    elif calibrate:
        document, text = _calibration(harness)
    elif settings:
        document = [asdict(pitfall) for pitfall in PITFALLS]
        text = "\n".join(_settings())
    else:
        document = []
        lines = []
        for subject, state, advice in _findings():
            document.append(
                {"subject": subject, "state": state, "advice": advice, "good": not advice}
            )
            lines.append(f"{'·' if advice else '✓'} {subject}: {state}")
            if advice:
                lines.append(f"    {advice}")
        text = "\n".join(lines)
    options.show(document, text, as_json)
    if has_failed:
        sys.exit(1)


def _calibration(harness: Harness) -> tuple[dict[str, Any], str]:
    """Return the calibration of this machine, else the recorded one, as JSON and as text."""
    notes = list[str]()
    if options.live_wanted(set=harness != Harness()):
        calibration, label, notes = calibrated(harness.clocks)
        card = device.gpu()
    else:
        run = runs.open_run()
        label = run.label
        card = run.gpu
        calibration = run.calibration
    document = {
        "label": label,
        "device": asdict(card),
        "calibration": asdict(calibration),
        "remarks": [*notes, *calibration.remarks],
    }
    return document, "\n".join([certificate(calibration, card, label), *notes])


def _settings() -> Iterator[str]:
    """Yield the harness's settings and the pitfalls that they avoid."""
    for pitfall in PITFALLS:
        biased = f"biased: {', '.join(map(str, pitfall.biased))}"
        if pitfall.also:
            biased += f"; also unbiased: {', '.join(map(str, pitfall.also))}"
        yield f"{pitfall.setting} = {pitfall.unbiased} ({biased})"
        article = f"{pitfall.article} · " if pitfall.article else ""
        yield f"    {article}{pitfall.title}. {pitfall.what}"
    yield "precision and budget:"
    for name, (meaning, _) in SAMPLING.items():
        yield f"{name} = {getattr(Harness, name)}\n    {meaning}"


def _findings() -> Iterator[tuple[str, str, str]]:
    """Yield each part's name, its state, and advice.

    The advice is "" if the state is good. Else it says what the state costs and how to mend it.
    """
    yield "python", platform.python_version(), ""
    yield from _gpu_findings()
    try:
        source = forced_source()
        if source:
            yield "source", f"WORKLOG_SOURCE={source} forces it", ""
    except WorklogError as error:
        cost = "every command that measures or opens a recording fails with this message"
        yield "source", str(error), cost
    if find_spec("torch"):
        yield "torch", "installed", ""
    else:
        cost = f"PyTorch functions can't be measured: {install_command('torch')}"
        yield "torch", "missing", cost
    try:  # the driver may not load what it compiles
        yield "nvrtc", "CUDA {}.{}".format(*nvrtc_version()), newer_than_the_driver() or ""
    except NvrtcMissing as error:
        yield "nvrtc", "missing", f"without it only the rungs run, from the package's PTX: {error}"
    try:
        yield "emulator", f"its core is {native.library()._name}", ""
    except WorklogError as error:
        yield "emulator", "its core is missing", f"no kernel runs without a GPU: {error}"
    yield from _file_findings()


def _gpu_findings() -> Iterator[tuple[str, str, str]]:
    """Yield the findings on the GPU and its clocks, as _findings() does."""
    reason = device.gpu_reason()
    if reason is not None:
        cost = (
            "No time can be measured here. Charts and notebooks use the recorded run and say so: "
            "worklog article"
        )
        yield "gpu", reason, cost
        return
    card = device.gpu()
    watch = device.ClockWatch()
    facts = f"{card.name}, compute capability {'.'.join(map(str, card.compute_capability))}"
    facts += (
        f", {card.multiprocessors} SMs, L2 {card.l2_bytes / 2**20:.0f} MiB, driver {card.driver}"
    )
    yield "gpu", facts, ""
    peaks = f"FP32 {card.fp32_peak_tflops:.1f} TFLOP/s at {card.sm_clock_mhz:.0f} MHz"
    yield "peaks", f"{peaks}, memory {card.memory_peak_gbs:.0f} GB/s, as computed", ""
    if watch.reason:
        cost = (
            "Throttling is visible only in the SM clock, and results say so. To mend: install "
            "nvidia-ml-py."
        )
        yield "clocks", watch.reason, cost
        return
    throttling = reason_names(watch.reasons()) or "none"
    state = f"watched: SM clock read in every sample, throttle reasons now: {throttling}; "
    state += "results are labelled “clocks as found”. To lock: --set clocks=locked, as root"
    yield "clocks", state, ""


def _file_findings() -> Iterator[tuple[str, str, str]]:
    """Yield the findings on recordings, runs and the cache, as _findings() does."""
    shipped = runs.recordings()
    saved = live_runs()
    cache = cache_folder()
    advice = "" if shipped else "nothing to show without a GPU: install gemm-worklog again"
    yield "recordings", ", ".join(shipped | runs.recordings(CHAPTERS)) or "none", advice
    advice = _not_writable(runs_dir(), "set WORKLOG_HOME to another folder")
    yield "runs", f"latest {saved[0]}" if saved else f"none yet in {runs_dir()}", advice
    sizes = [entry.stat().st_size for entry in cached_files()]
    state = (
        f"{len(sizes)} outputs of the compiler and the disassembler, {sum(sizes) / 1e6:.1f} MB, "
        f"in {cache}"
    )
    cost = "a program is compiled again in each process: set WORKLOG_CACHE to another folder"
    yield "cache", state, _not_writable(cache, cost)


def _not_writable(folder: Path, advice: str) -> str:
    """Return the advice if a folder isn't writable, with the reason; else ""."""
    reason = not_writable(folder)
    return f"not writable ({reason}): {advice}" if reason else ""
