"""`worklog doctor`: what is installed, what is missing, what that costs, and how to get it. It changes and measures
nothing. And `worklog notebooks`, which writes the notebooks that are installed into a folder of the user's.
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

from worklog.cli import output
from worklog.errors import NvrtcMissing, WorklogError, install_command
from worklog.gpu import device
from worklog.kernel import disk_cache, kernels_dir, source_folder
from worklog.kernel.nvrtc import newer_than_the_driver, nvrtc_version
from worklog.runs import Run, forced_source, live_runs, not_writable, recordings, require_writable, runs_dir

# What the absence of a package costs, and the extra that brings it.
PACKAGES = {
    "torch": ("PyTorch functions cannot be measured", "torch"),
    "jupyterlab": ("notebooks cannot be opened", ""),
    "ipywidgets": ("no widgets in notebooks", ""),
    "anywidget": ("no size slider in the notebooks' panels", ""),
    "matplotlib": ("no figures", ""),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was examined. advice: what its absence costs and how to get it."""

    subject: str
    good: bool
    state: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{'✓' if self.good else '·'} {self.subject}: {self.state}" + f"\n    {self.advice}" * bool(self.advice)


@output.command(output.JSON)
def doctor() -> None:
    """Show what is installed, what is missing, what that costs, and how to get it."""
    python = Finding("python", True, platform.python_version())
    findings = [python, *_gpu(), *_source(), *_packages(), _nvrtc(), _kernels(), _recordings(), _runs(), _cache()]
    output.show([asdict(finding) for finding in findings], "\n".join(map(str, findings)))


def _gpu() -> Iterator[Finding]:
    reason = device.gpu_reason()
    if reason is not None:
        cost = "No time can be measured here. Charts and notebooks use the recorded run and say so: worklog article"
        yield Finding("gpu", False, reason, cost)
        return
    card = device.gpu()
    facts = f"{card.name}, compute capability {'.'.join(map(str, card.compute_capability))}"
    facts += f", {card.multiprocessors} SMs, L2 {card.l2_bytes / 2**20:.0f} MiB, driver {card.driver}"
    yield Finding("gpu", True, facts)
    peaks = f"FP32 {card.fp32_peak_tflops:.1f} TFLOP/s at {card.sm_clock_mhz:.0f} MHz"
    yield Finding("peaks", True, f"{peaks}, memory {card.memory_peak_gbs:.0f} GB/s, as computed")
    watch = device.ClockWatch()
    if watch.reason:
        advice = "Throttling is visible only in the SM clock, and results say so. To mend: install nvidia-ml-py."
        yield Finding("clocks", False, watch.reason, advice)
        return
    now = device.reason_names(watch.reasons())
    advice = "Not locked: results are labelled “clocks as found”. To lock: --set clocks=locked, as root."
    yield Finding("clocks", True, f"watched: SM clock read in every sample, throttle reasons now: {now}", advice)


def _source() -> Iterator[Finding]:
    """The effect of WORKLOG_SOURCE, if it is set."""
    try:
        if forced := forced_source():
            yield Finding("source", True, f"WORKLOG_SOURCE={forced} forces it")
    except WorklogError as error:
        cost = "every command that measures or opens a recording fails with this message"
        yield Finding("source", False, str(error), cost)


def _packages() -> Iterator[Finding]:
    for name, (cost, extra) in PACKAGES.items():
        here = find_spec(name) is not None
        advice = "" if here else f"{cost}: {install_command(extra)}"
        yield Finding(name, here, "installed" if here else "missing", advice)


def _nvrtc() -> Finding:
    """NVRTC, and whether the driver can load what it compiles."""
    try:
        state, why = "CUDA {}.{}".format(*nvrtc_version()), newer_than_the_driver()
    except NvrtcMissing as error:
        return Finding("nvrtc", False, "missing", f"without it only the rungs run, from the package's PTX: {error}")
    return Finding("nvrtc", why is None, state, why or "")


def _kernels() -> Finding:
    try:
        folder = kernels_dir()
    except WorklogError as error:
        return Finding("kernels", False, str(error))
    return Finding("kernels", True, f"{len(list(folder.glob('[0-9]*.cu')))} in {folder}")


def _broken(paths: Iterable[Path]) -> list[str]:
    """Open each run; why those that can't be read can't."""
    broken = []
    for path in paths:
        try:
            Run.load(path)
        except WorklogError as error:
            broken.append(str(error))
    return broken


def _recordings() -> Finding:
    """Open every shipped run."""
    broken = _broken(recordings().values())
    good = bool(recordings()) and not broken
    advice = "" if good else "nothing to show without a GPU: install gemm-worklog again"
    return Finding("recordings", good, "; ".join(broken) or ", ".join(recordings()) or "none", advice)


def _runs() -> Finding:
    """Where live runs are saved, and those that can't be read."""
    folder, paths = runs_dir(), live_runs()
    state = f"latest {paths[0]}" if paths else f"none yet in {folder}"
    if why := not_writable(folder):
        return Finding("runs", False, f"{state}, which is not writable ({why})", "set WORKLOG_HOME to another folder")
    if broken := _broken(paths):
        return Finding("runs", False, "; ".join(broken), "they are skipped: remove them")
    return Finding("runs", True, state)


def _cache() -> Finding:
    """Where compiled code is kept."""
    folder = disk_cache.folder()
    sizes = [size for _, size, _ in disk_cache.entries(folder)]
    state = f"{len(sizes)} outputs of the compiler and the disassembler, {sum(sizes) / 1e6:.1f} MB, in {folder}"
    if why := not_writable(folder):
        cost = "a program is compiled again in each process: set WORKLOG_CACHE to another folder"
        return Finding("cache", False, f"{state}, which is not writable ({why})", cost)
    return Finding("cache", True, state)


@output.command(
    click.argument(
        "folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default="worklog-notebooks"
    ),
    output.flag("--force", about="Overwrite files that differ from this version."),
)
def notebooks(folder: Path, force: bool) -> None:
    """Write the notebooks and their examples into DIR (default: worklog-notebooks), and print how to open them. An
    existing file that differs is kept, and named.
    """
    require_writable(folder, f"notebooks into {folder}", "give another folder")
    shipped = source_folder("_notebooks", "notebooks")
    sources = [path for kind in ("*.ipynb", "*.md", "examples/*.*") for path in sorted(shipped.glob(kind))]
    written, kept = 0, []
    for source in sources:
        name = source.relative_to(shipped)
        target, content = folder / name, source.read_bytes()
        differs = target.exists() and target.read_bytes() != content
        if differs and not force:
            kept.append(str(name))
        elif differs or not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            written += 1
    click.echo(f"{written} of {len(sources)} files written into {folder}")
    if kept:
        click.echo(f"kept, because they differ from this version: {', '.join(kept)} (--force overwrites them)")
    click.echo(f"to open them: {_jupyter()} {shlex.quote(str(folder))}")


def _jupyter() -> str:
    """The command that starts JupyterLab in this environment."""
    on_path = shutil.which("jupyter-lab")
    here = on_path is not None and Path(on_path).parent == Path(sys.executable).parent
    command = "jupyter lab" if here else f"{shlex.quote(sys.executable)} -m jupyterlab"
    return f"{command} --allow-root" if os.geteuid() == 0 else command
