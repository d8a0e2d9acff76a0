"""The commands that look at the harness and the gate: `worklog ablate`, `exploits` and `peers`, which show what is
recorded without a GPU; and `worklog doctor`: what is installed, the harness's settings and its calibration.
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
from worklog.cli import options
from worklog.emulator.core import native
from worklog.errors import BadSetting, Interrupted, NvrtcMissing, WorklogError, install_command
from worklog.gpu import device
from worklog.harness import certificate
from worklog.kernel import cache_folder, cached_files, newer_than_the_driver, nvrtc_version
from worklog.peers import compare
from worklog.peers import exploits as table_of
from worklog.problem import Shape
from worklog.runner import measure
from worklog.runner.declare import at, declared
from worklog.runner.session import calibrated
from worklog.runs import effects, effects_text, live_runs, open_comparison
from worklog.settings import PITFALLS, SAMPLING, Harness


@click.command()
@options.kernel("rung", "RUNG")
@options.SIZES
@options.measuring
def ablate(
    rung: str, shapes: list[Shape], harness: Harness, out: Path | None, as_json: bool, **shown: Any
) -> None:
    """Measure one rung with each setting of the harness biased in turn, and show what that does to the number.
    Without a GPU, the recording is shown.
    """
    if Path(rung).suffix:
        raise BadSetting(
            f"ablate takes a rung: of a file, bias one setting, as in worklog run {rung} --set l2=warm"
        )
    options.live_wanted(out=out, set=harness != Harness())
    with options.progress_bar() as progress:
        run = measure.ablate(
            rung, shapes or measure.ABLATION_SIZES, harness=harness, progress=progress, out=out
        )
    rows = [asdict(e) | {"factor": e.factor, "visible": e.visible} for e in effects(run, rung)]
    options.write_exports(rows, shown, title=f"{rung} · {run.label}")
    text = effects_text(run, rung, options.terminal_width())
    text += f"\nrun saved: {run.path}" if run.origin == "live" else ""
    options.show(rows, text, as_json)


@click.command()
@click.option("--only", metavar="NAME[,NAME…]", help="Run only these exploits.")
@click.option(
    "--seeds", type=options.Whole(1, 1000), help="Check each on this many seeds (default: 1)."
)
@click.option(
    "--emulate", is_flag=True, help="Run them here on the emulator: takes minutes, needs no GPU."
)
@options.out("Where to save the table.")
@options.JSON
def exploits(only: str | None, out: Path | None, as_json: bool, **how: Any) -> None:
    """Check kernels that are wrong in a known way, and show which other harnesses would have passed them. With
    WORKLOG_SOURCE=recorded, or without a GPU and any option, the recorded table is shown. Exits with 1 if the gate is
    wrong about one.
    """
    if only is not None or out or any(how.values()) or measure.live_wanted():
        names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
        if names == []:
            raise BadSetting(
                "--only names no exploit: give one or more, such as --only zeros,kahan"
            )
        chosen = None if names is None else table_of.named(names)
        how["seeds"] = range(how["seeds"] or 1)
        with options.progress_bar() as progress:
            table = table_of.run_exploits(chosen, progress=progress, out=out, **how)
        if not table.rows:
            raise Interrupted("interrupted before the first exploit was finished")
        if out is not None:
            click.echo(f"table saved: {out}", err=True)
    else:
        table = table_of.open_exploits()
    options.show(table.as_dict(), table.text(options.terminal_width(150)), as_json)
    if not (
        table.complete or table.origin
    ):  # only a table that was made here can have been interrupted
        raise Interrupted(
            f"interrupted: finished rows are {'shown' if out is None else f'in {out}'}"
        )
    if table.failures:
        sys.exit(1)


@click.command()
@click.option(
    "--bench", "files", multiple=True, type=options.PATH, metavar="FILE.py",
    help="Time the benchmarks that FILE.py declares instead, cold and hot; repeat for more.",
)  # fmt: skip
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
    """Time kernels of known length and cuBLAS, or declared benchmarks, with this harness and with every other one that
    is installed. Without a GPU, or with WORKLOG_SOURCE=recorded, the recording is shown.
    """
    if axes and not files:
        raise BadSetting("--axis is for declared benchmarks: give --bench FILE.py")
    path = None
    if out is not None or files or measure.live_wanted():
        benchmarks = (
            at(axes, [benchmark for file in files for benchmark in declared(file)]) if files else []
        )
        device.require_gpu("omit --bench and --out to see the recorded comparison")
        with options.progress_bar() as progress:
            path = compare.compare(out, progress, benchmarks=benchmarks)
    table = open_comparison(path, "benchmarks" if files else "peers")
    options.write_exports(
        [row | {"label": table.label} for row in table.document["rows"]], exports, title=table.label
    )
    options.show(
        table.document, compare.text(table) + ("" if path is None else f"\nsaved: {path}"), as_json
    )


@click.command()
@click.option(
    "--settings",
    is_flag=True,
    help="Instead, list the harness's settings and the pitfalls they avoid.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Instead, measure the harness: overhead, noise, L2 flush, peaks.",
)
@options.HARNESS
@options.JSON
def doctor(settings: bool, calibrate: bool, harness: Harness, as_json: bool) -> None:
    """Show what is installed, what is missing, what that costs, and how to get it.

    --calibrate measures event overhead and the error left after its removal, noise, whether the L2 flush works, and
    the ceilings of this GPU; without a GPU, it shows the recording. Of the settings, only the clocks can change there.
    """
    if settings and calibrate:
        raise BadSetting("--settings and --calibrate each show something else: omit one")
    if harness.but(clocks="watched") != Harness() or (harness != Harness() and not calibrate):
        raise BadSetting(
            "--set takes only clocks here, with --calibrate, which uses the unbiased harness"
        )
    if calibrate:
        notes = list[str]()
        if options.live_wanted(set=harness != Harness()):
            calibration, label, notes = calibrated(harness.clocks)
            card = device.gpu()
        else:
            run = runs.open_run()
            label = run.label
            card = run.gpu
            calibration = run.calibration
        document: Any = {"label": label, "device": asdict(card), "calibration": asdict(calibration)}
        document["remarks"] = [*notes, *calibration.remarks]
        lines = [certificate(calibration, card, label), *notes]
    elif settings:
        document = [asdict(pitfall) for pitfall in PITFALLS]
        lines = []
        for pitfall in PITFALLS:
            also = f"; also unbiased: {', '.join(map(str, pitfall.also))}" if pitfall.also else ""
            biased = ", ".join(map(str, pitfall.biased))
            lines.append(f"{pitfall.setting} = {pitfall.unbiased} (biased: {biased}{also})")
            lines.append(
                f"    {f'{pitfall.article} · ' if pitfall.article else ''}{pitfall.title}. {pitfall.what}"
            )
        lines.append("precision and budget:")
        lines += [
            f"{name} = {getattr(Harness, name)}\n    {what}" for name, (what, _) in SAMPLING.items()
        ]
    else:
        document = []
        lines = []
        for subject, state, advice in _findings():
            document.append(
                {"subject": subject, "state": state, "advice": advice, "good": not advice}
            )
            lines.append(
                f"{'·' if advice else '✓'} {subject}: {state}"
                + (f"\n    {advice}" if advice else "")
            )
    options.show(document, "\n".join(lines), as_json)


def _findings() -> Iterator[tuple[str, str, str]]:
    """What was examined, how it is, and if that isn't good, what it costs and how to get it."""
    yield "python", platform.python_version(), ""
    if (reason := device.gpu_reason()) is None:
        card = device.gpu()
        watch = device.ClockWatch()
        facts = f"{card.name}, compute capability {'.'.join(map(str, card.compute_capability))}"
        facts += f", {card.multiprocessors} SMs, L2 {card.l2_bytes / 2**20:.0f} MiB, driver {card.driver}"
        yield "gpu", facts, ""
        peaks = f"FP32 {card.fp32_peak_tflops:.1f} TFLOP/s at {card.sm_clock_mhz:.0f} MHz"
        yield "peaks", f"{peaks}, memory {card.memory_peak_gbs:.0f} GB/s, as computed", ""
        if watch.reason:
            cost = "Throttling is visible only in the SM clock, and results say so. To mend: install nvidia-ml-py."
            yield "clocks", watch.reason, cost
        else:
            state = f"throttle reasons now: {runs.reason_names(watch.reasons()) or 'none'}; results are labelled"
            state = f"watched: SM clock read in every sample, {state} “clocks as found”. To lock: --set clocks=locked"
            yield "clocks", f"{state}, as root", ""
    else:
        cost = "No time can be measured here. Charts and notebooks use the recorded run and say so: worklog article"
        yield "gpu", reason, cost
    try:
        if forced := runs.forced_source():
            yield "source", f"WORKLOG_SOURCE={forced} forces it", ""
    except WorklogError as error:
        yield (
            "source",
            str(error),
            "every command that measures or opens a recording fails with this message",
        )
    advice = (
        ""
        if find_spec("torch")
        else f"PyTorch functions cannot be measured: {install_command('torch')}"
    )
    yield "torch", "missing" if advice else "installed", advice
    try:  # the driver may not load what it compiles
        yield "nvrtc", "CUDA {}.{}".format(*nvrtc_version()), newer_than_the_driver() or ""
    except NvrtcMissing as error:
        yield "nvrtc", "missing", f"without it only the rungs run, from the package's PTX: {error}"
    try:
        yield "emulator", f"its core is {native.library()._name}", ""
    except WorklogError as error:
        yield "emulator", "its core is missing", f"no kernel runs without a GPU: {error}"
    shipped = runs.recordings()
    saved = live_runs()
    cache = cache_folder()
    advice = "" if shipped else "nothing to show without a GPU: install gemm-worklog again"
    yield "recordings", ", ".join(shipped | runs.recordings(runs.CHAPTERS)) or "none", advice
    advice = _not_writable(runs.runs_dir(), "set WORKLOG_HOME to another folder")
    yield "runs", f"latest {saved[0]}" if saved else f"none yet in {runs.runs_dir()}", advice
    sizes = [entry.stat().st_size for entry in cached_files()]
    state = f"{len(sizes)} outputs of the compiler and the disassembler, {sum(sizes) / 1e6:.1f} MB, in {cache}"
    cost = "a program is compiled again in each process: set WORKLOG_CACHE to another folder"
    yield "cache", state, _not_writable(cache, cost)


def _not_writable(folder: Path, advice: str) -> str:
    reason = runs.not_writable(folder)
    return f"not writable ({reason}): {advice}" if reason else ""
