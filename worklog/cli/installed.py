"""`worklog doctor`: what is installed, what is missing, what that costs, and how to get it; the harness's settings and
its calibration. And `worklog notebooks`, which writes the notebooks that are installed into a folder of the user's.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from worklog import runs
from worklog.cli import options, output, selection
from worklog.errors import BadSetting, NvrtcMissing, WorklogError, install_command
from worklog.gpu import device
from worklog.harness.calibration import certificate
from worklog.kernel import disk_cache, kernels_dir, nvrtc, source_folder
from worklog.runner.session import calibrated
from worklog.settings import PITFALLS, SAMPLING, Harness

# What the absence of a package costs, and the extra that brings it.
PACKAGES = {
    "torch": ("PyTorch functions cannot be measured", "torch"),
    "jupyterlab": ("notebooks cannot be opened", ""),
    "ipywidgets": ("no widgets in notebooks", ""),
    "anywidget": ("no panel in notebooks", ""),
    "matplotlib": ("no figures", ""),
}


@click.command()
@click.option("--settings", is_flag=True, help="Instead, list the harness's settings and the pitfalls they avoid.")
@click.option("--calibrate", is_flag=True, help="Instead, measure the harness: overhead, noise, L2 flush, peaks.")
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
        raise BadSetting("--set takes only clocks here, with --calibrate, which uses the unbiased harness")
    if settings:
        output.show([asdict(pitfall) for pitfall in PITFALLS], settings_text(), as_json)
    elif calibrate:
        show_calibration(harness, as_json)
    else:
        findings = [*_findings()]
        document = [{**asdict(finding), "good": not finding.advice} for finding in findings]
        output.show(document, "\n".join(map(str, findings)), as_json)


def settings_text() -> str:
    """Each setting with the pitfall that it avoids, its unbiased value and its biased ones."""
    lines = list[str]()
    for pitfall in PITFALLS:
        also = f"; also unbiased: {', '.join(map(str, pitfall.also))}" if pitfall.also else ""
        lines.append(f"{pitfall.setting} = {pitfall.unbiased} (biased: {', '.join(map(str, pitfall.biased))}{also})")
        lines.append(f"    {f'{pitfall.article} · ' if pitfall.article else ''}{pitfall.title}. {pitfall.what}")
    sampling = [f"{name} = {getattr(Harness, name)}\n    {what}" for name, (what, _) in SAMPLING.items()]
    return "\n".join([*lines, "precision and budget:", *sampling])


def show_calibration(harness: Harness, as_json: bool) -> None:
    """Measure the harness, or show its recorded calibration."""
    notes = list[str]()
    if selection.live_wanted(set=harness != Harness()):
        calibration, label, notes = calibrated(harness.clocks)
        card = device.gpu()
    else:
        run = runs.open_run()
        label, card, calibration = run.label, run.gpu, run.calibration
    text = "\n".join([certificate(calibration, card, label), *notes])
    document = {"label": label, "device": asdict(card), "calibration": asdict(calibration)}
    output.show({**document, "remarks": [*notes, *calibration.remarks]}, text, as_json)


@dataclass(frozen=True)
class Finding:
    """One thing that was examined. advice: if it isn't good, what that costs and how to get it."""

    subject: str
    state: str
    advice: str = ""

    def __str__(self) -> str:
        if self.advice:
            return f"· {self.subject}: {self.state}\n    {self.advice}"
        return f"✓ {self.subject}: {self.state}"


def _findings() -> Iterator[Finding]:
    yield Finding("python", platform.python_version())
    if (reason := device.gpu_reason()) is None:
        yield from _gpu()
    else:
        cost = "No time can be measured here. Charts and notebooks use the recorded run and say so: worklog article"
        yield Finding("gpu", reason, cost)
    try:
        if forced := runs.forced_source():
            yield Finding("source", f"WORKLOG_SOURCE={forced} forces it")
    except WorklogError as error:
        yield Finding("source", str(error), "every command that measures or opens a recording fails with this message")
    for name, (cost, extra) in PACKAGES.items():
        advice = f"{cost}: {install_command(extra)}" if find_spec(name) is None else ""
        yield Finding(name, "missing" if advice else "installed", advice)
    try:  # the driver may not load what it compiles
        yield Finding("nvrtc", "CUDA {}.{}".format(*nvrtc.nvrtc_version()), nvrtc.newer_than_the_driver() or "")
    except NvrtcMissing as error:
        yield Finding("nvrtc", "missing", f"without it only the rungs run, from the package's PTX: {error}")
    try:
        yield Finding("kernels", f"{len(list(kernels_dir().glob('[0-9]*.cu')))} in {kernels_dir()}")
    except WorklogError as error:
        yield Finding("kernels", "missing", str(error))
    shipped, saved = runs.recordings(), runs.live_runs()
    unreadable = _unreadable(shipped.values(), whole=True)
    advice = "nothing to show without a GPU: install gemm-worklog again" if unreadable or not shipped else ""
    yield Finding("recordings", unreadable or ", ".join(shipped) or "none", advice)
    advice = _not_writable(runs.runs_dir(), "set WORKLOG_HOME to another folder")
    if not advice and (unreadable := _unreadable(saved)):
        advice = f"they are skipped, remove them: {unreadable}"
    yield Finding("runs", f"latest {saved[0]}" if saved else f"none yet in {runs.runs_dir()}", advice)
    sizes, folder = [size for _, size, _ in disk_cache.entries(disk_cache.folder())], disk_cache.folder()
    state = f"{len(sizes)} outputs of the compiler and the disassembler, {sum(sizes) / 1e6:.1f} MB, in {folder}"
    cost = "a program is compiled again in each process: set WORKLOG_CACHE to another folder"
    yield Finding("cache", state, _not_writable(folder, cost))


def _gpu() -> Iterator[Finding]:
    card, watch = device.gpu(), device.ClockWatch()
    facts = f"{card.name}, compute capability {'.'.join(map(str, card.compute_capability))}"
    facts += f", {card.multiprocessors} SMs, L2 {card.l2_bytes / 2**20:.0f} MiB, driver {card.driver}"
    yield Finding("gpu", facts)
    peaks = f"FP32 {card.fp32_peak_tflops:.1f} TFLOP/s at {card.sm_clock_mhz:.0f} MHz"
    yield Finding("peaks", f"{peaks}, memory {card.memory_peak_gbs:.0f} GB/s, as computed")
    if watch.reason:
        advice = "Throttling is visible only in the SM clock, and results say so. To mend: install nvidia-ml-py."
        yield Finding("clocks", watch.reason, advice)
        return
    state = f"watched: SM clock read in every sample, throttle reasons now: {device.reason_names(watch.reasons())}"
    yield Finding("clocks", f"{state}; results are labelled “clocks as found”. To lock: --set clocks=locked, as root")


def _unreadable(paths: Iterable[Path], *, whole: bool = False) -> str:
    """Open each run; why those that can't be read can't. whole: one that was cut short can't."""
    reasons = []
    for path in paths:
        try:
            if not runs.Run.load(path).complete and whole:
                reasons.append(f"{path} was cut short")
        except WorklogError as error:
            reasons.append(str(error))
    return "; ".join(reasons)


def _not_writable(folder: Path, advice: str) -> str:
    reason = runs.not_writable(folder)
    return f"not writable ({reason}): {advice}" if reason else ""


@click.command()
@click.argument(
    "folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default="worklog-notebooks"
)
@click.option("--force", is_flag=True, help="Overwrite files that differ from this version.")
def notebooks(folder: Path, force: bool) -> None:
    """Write the notebooks and their examples into DIR (default: worklog-notebooks), and print how to open them. An
    existing file that differs is kept, and named.
    """
    runs.require_writable(folder, f"notebooks into {folder}", "give another folder")
    shipped = source_folder("_notebooks", "notebooks")
    sources = [path for kind in ("*.ipynb", "*.md", "examples/*.*") for path in sorted(shipped.glob(kind))]
    written, kept = 0, list[str]()
    for source in sources:
        name, content = source.relative_to(shipped), source.read_bytes()
        old = (folder / name).read_bytes() if (folder / name).exists() else None
        if old is None or (force and old != content):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            written += 1
        elif old != content:
            kept.append(str(name))
    click.echo(f"{written} of {len(sources)} files written into {folder}")
    if kept:
        click.echo(f"kept, because they differ from this version: {', '.join(kept)} (--force overwrites them)")
    on_path = shutil.which("jupyter-lab")
    here = on_path is not None and Path(on_path).parent == Path(sys.executable).parent
    jupyter = "jupyter lab" if here else f"{shlex.quote(sys.executable)} -m jupyterlab"
    jupyter += " --allow-root" if os.geteuid() == 0 else ""
    click.echo(f"to open them: {jupyter} {shlex.quote(str(folder))}")
