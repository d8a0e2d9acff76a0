"""`worklog doctor`: what is installed, what is missing, what that costs, and how to get it. It changes and measures
nothing.
"""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass

from worklog.bench import sanitizer
from worklog.errors import WorklogError
from worklog.gpu.device import ClockWatch, gpu, gpu_reason, not_writable, reason_names
from worklog.kernel.kernel import kernels_dir
from worklog.runs.run import Run, forced_source, live_runs, recordings, runs_dir


@dataclass(frozen=True)
class Finding:
    """One thing that was examined. advice: what its absence costs and how to get it; "" if nothing is missing."""

    subject: str
    good: bool
    state: str
    advice: str = ""


def examine() -> list[Finding]:
    """Examine everything that a result may depend on."""
    return [Finding("python", True, platform.python_version()), *_gpu(), *_source(), *_packages(), *_files()]


def _gpu() -> list[Finding]:
    reason = gpu_reason()
    if reason is not None:
        return [
            Finding(
                "gpu",
                False,
                reason,
                "No time can be measured here. Charts and notebooks use the recorded run and say so: worklog article",
            ),
        ]
    card = gpu()
    capability = ".".join(map(str, card.compute_capability))
    found = [
        Finding(
            "gpu",
            True,
            f"{card.name}, compute capability {capability}, {card.multiprocessors} SMs, "
            f"L2 {card.l2_bytes / 2**20:.0f} MiB, driver {card.driver}",
        ),
        Finding(
            "peaks",
            True,
            f"FP32 {card.fp32_peak_tflops:.1f} TFLOP/s at {card.sm_clock_mhz:.0f} MHz, "
            f"memory {card.memory_peak_gbs:.0f} GB/s, as computed",
        ),
    ]
    watch = ClockWatch()
    if watch.reason:
        advice = "Throttling is visible only in the SM clock, and results say so. To mend: install nvidia-ml-py."
        return [*found, Finding("clocks", False, watch.reason, advice)]
    state = f"watched: SM clock read in every sample, throttle reasons now: {reason_names(watch.reasons())}"
    return [
        *found,
        Finding(
            "clocks",
            True,
            state,
            "Not locked: results are labelled “clocks as found”. To lock: --set clocks=locked, as root.",
        ),
    ]


def _source() -> list[Finding]:
    """The effect of WORKLOG_SOURCE, if it is set."""
    try:
        forced = forced_source()
    except WorklogError as error:
        return [
            Finding(
                "source", False, str(error), "every command that measures or opens a recording fails with this message"
            )
        ]
    return [Finding("source", True, f"WORKLOG_SOURCE={forced} forces it")] if forced else []


def _packages() -> list[Finding]:
    costs = {
        "torch": "torch functions cannot be measured; the ladder does not need it",
        "jupyterlab": "notebooks cannot be opened: pip install jupyterlab",
        "ipywidgets": "no widgets in notebooks: pip install ipywidgets",
        "anywidget": "no size slider in the notebooks' panels: pip install anywidget",
        "matplotlib": "no figures: pip install matplotlib",
    }
    found = []
    for name, cost in costs.items():
        here = importlib.util.find_spec(name) is not None
        found.append(Finding(name, here, "installed" if here else "missing", "" if here else cost))
    nvrtc = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("cuda") is not None
    found.append(
        Finding(
            "nvrtc",
            nvrtc,
            "installed" if nvrtc else "missing",
            ""
            if nvrtc
            else "without a GPU only the rungs run, from the PTX in the package: "
            "pip install nvidia-cuda-nvrtc cuda-bindings",
        )
    )
    tool = sanitizer.find()
    cost = (
        ""
        if tool
        else "`worklog check --racecheck` needs it: it is in the CUDA toolkit; --emulate finds races without it"
    )
    found.append(Finding("compute-sanitizer", tool is not None, str(tool or "missing"), cost))
    return found


def _files() -> list[Finding]:
    try:
        folder = kernels_dir()
        found = [Finding("kernels", True, f"{len(list(folder.glob('[0-9]*.cu')))} in {folder}")]
    except WorklogError as error:
        found = [Finding("kernels", False, str(error))]
    return [*found, _recordings(), _runs()]


def _recordings() -> Finding:
    """Open every shipped run."""
    advice = "nothing to show without a GPU: install gemm-worklog again"
    broken = []
    for path in recordings().values():
        try:
            Run.load(path, origin="recorded")
        except WorklogError as error:
            broken.append(str(error))
    if broken:
        return Finding("recordings", False, "; ".join(broken), advice)
    names = ", ".join(recordings())
    return Finding("recordings", bool(names), names or "none", "" if names else advice)


def _runs() -> Finding:
    """Where live runs are saved."""
    folder, latest = runs_dir(), next(live_runs(), None)
    state = f"latest {latest}" if latest else f"none yet in {folder}"
    why = not_writable(folder)
    if why is None:
        return Finding("runs", True, state)
    return Finding("runs", False, f"{state}, which is not writable ({why})", "set WORKLOG_HOME to another folder")
