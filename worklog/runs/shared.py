"""A run that its owner can send to somebody with another card.

A shared file is a run's file with a checksum in its last line, so every command that takes a run
reads it. It has numbers, versions and checksums. It has no text of its machine: of a run, only what
is listed here is written, and each text in it has a form in which nothing else fits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, BadSetting, NothingToDraw
from worklog.problem import CLASSES, Shape
from worklog.runs.facts import Calibration, Gpu, Verdict
from worklog.runs.files import read_text
from worklog.runs.measurement import CUBLAS, Measurement, Work, cells
from worklog.runs.run import Run
from worklog.runs.run_file import checksum, is_checksum, line
from worklog.runs.statistics import LaunchSeries, Samples
from worklog.runs.text import Table, a_few
from worklog.settings import Harness

SHARED = "shared"  # the origin of a run that somebody else measured
# Packages, drivers and libraries whose versions a run states and a shared file has.
SOFTWARE = (
    "python",
    "numpy",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvidia-cuda-nvrtc",
    "nvrtc",
    "cublas",
    "cuda_runtime",
    "cuda_driver",
)
VERSION = re.compile(r"\d[\d.]{0,20}")
HASH = re.compile(r"[0-9a-f]{7,64}")
NUMBERS_OF_A_KERNEL = ("registers", "local_bytes", "shared_bytes", "dynamic_shared_bytes")
NOT_CONVERGED = "not converged"
STAYS = "the text stays on the machine that measured"


@dataclass(frozen=True)
class SharedRun:
    """What is written of a run."""

    text: str  # of the file
    left_out: tuple[str, ...]  # kernels of the user's own, whose sources nobody else has


def share(run: Run, names: Collection[str]) -> SharedRun:
    """Return a run of this machine without the texts of this machine.

    names: kernels that the package has, and its baselines; others are left out

    Raises BadSetting for a run that was measured elsewhere or on several cards, and for a run
    without a time of these kernels.
    """
    if run.origin != "live":
        raise BadSetting(
            f"--share is for a run of this machine, and this one is {run.origin}: "
            "measure with `worklog run`"
        )
    if len(run.by_card()) > 1:
        raise BadSetting("--share is for a run on one card: measure with `worklog run` on one")
    # A user's kernel may have the name of a rung.
    public_names = {name for name in names if "user" not in run.kernels.get(name, {})}
    measurements = [m for m in run.select() if m.shape]
    left_out = dict.fromkeys(m.kernel for m in measurements if m.kernel not in public_names)
    numbers = [_numbers_of(m, public_names) for m in measurements if m.kernel in public_names]
    if not any(m.us for m in numbers):
        raise BadSetting("--share has nothing to write: the run has no time of a rung or of cuBLAS")
    kernels = {m.kernel: _about(run.kernels.get(m.kernel, {})) for m in numbers}
    shared = Run(
        harness=_settings(run.harness),
        gpu=_card(run.gpu),
        calibration=_calibration(run.calibration),
        tool=_tool(run.tool),
        software=_versions(run.software),
        created=run.created[:10],
        kernels={name: about for name, about in kernels.items() if about},
        measurements=numbers,
        complete=run.complete,
        origin=SHARED,
    )
    lines = shared.head_lines() + [line("measurement", m) for m in shared.measurements]
    if shared.complete:
        lines.append(line("end", {}))
    lines.append(checksum(lines))
    return SharedRun("".join(f"{text}\n" for text in lines), tuple(left_out))


def _card(gpu: Gpu) -> Gpu:
    """Return a GPU without its UUID."""
    return replace(gpu, driver=_version(gpu.driver), uuid="")


def _calibration(calibration: Calibration) -> Calibration:
    lengths = {
        length: us
        for length, us in calibration.offset_by_length_us.items()
        if VERSION.fullmatch(length)
    }
    return replace(calibration, offset_by_length_us=lengths)


def _settings(harness: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that this version knows. Their values are words of the package."""
    setting_names = {field.name for field in fields(Harness)}
    values = {name: value for name, value in harness.items() if name in setting_names}
    Harness(**values)
    return values


def _version(text: object) -> str:
    """Return the digits that a version begins with: 2.11.0 of 2.11.0+cu130; "" if it has none."""
    match = VERSION.match(str(text))
    return match[0] if match else ""


def _versions(software: Mapping[str, str]) -> dict[str, str]:
    return {name: _version(software[name]) for name in SOFTWARE if name in software}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the package's version, and the hashes of its commit and of its harness."""
    parts: dict[str, Any] = {"name": "gemm-worklog", "version": _version(tool.get("version"))}
    for name in ("commit", "harness"):
        if HASH.fullmatch(str(tool.get(name))):
            parts[name] = tool[name]
    if "dirty" in tool:
        parts["dirty"] = bool(tool["dirty"])
    return parts


def _about(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checksum of a kernel's code, and its resources."""
    parts: dict[str, Any] = {}
    if HASH.fullmatch(str(about.get("sha256"))):
        parts["sha256"] = about["sha256"]
    for name in NUMBERS_OF_A_KERNEL:
        if isinstance(about.get(name), int):
            parts[name] = about[name]
    return parts


def _numbers_of(m: Measurement, public_names: Collection[str]) -> Measurement:
    """Return a measurement with its numbers, and without its texts.

    public_names: kernels and baselines that may be named
    """
    verdict = None
    if m.verdict and m.verdict.precision in CLASSES:
        seed = m.verdict.seed
        verdict = Verdict((), m.verdict.precision, seed, largest=m.verdict.largest)
    degradations = []
    for text in m.degradations:
        subject = NOT_CONVERGED if text.startswith(NOT_CONVERGED) else "a remark"
        degradations.append(f"{subject}: {STAYS}")
    return Measurement(
        m.kernel,
        m.point,
        m.status,
        reason=None if m.status == "measured" else STAYS,
        verdict=verdict,
        time=m.time,
        against={name: ratio for name, ratio in m.against.items() if name in public_names},
        work=Work(m.work.flops, m.work.elements, m.work.bytes_read, m.work.bytes_written),
        roof=replace(m.roof, datapath=None) if m.roof else None,
        samples=_samples(m, public_names),
        degradations=tuple(dict.fromkeys(degradations)),
    )


def _samples(m: Measurement, public_names: Collection[str]) -> Samples:
    """Return the samples of the kernel and of the baselines that may be named."""
    sides: list[LaunchSeries] = []
    for number, side in enumerate(m.samples.sides):
        if number == 0:
            sides.append(replace(side, name=m.kernel))
        elif side.name in public_names:
            sides.append(side)
    return replace(m.samples, sides=sides)


def open_shared(path: Path) -> Run:
    """Return the run of a shared file.

    Raises BadRunFile for a file without a checksum, and what Run.load() raises, as for a file that
    has changed since it was written.
    """
    run = Run.load(path, SHARED)
    if not is_checksum(read_text(path).rstrip("\n").rpartition("\n")[2]):
        raise BadRunFile(
            f"{path} has no checksum: it was cut short, or `worklog show --share` didn't write it"
        )
    return run


def side_by_side(ours: Run, theirs: Run, remarks: Sequence[str] = ()) -> Table:
    """Return the times of two runs at the kernels and sizes of a shared run.

    Each row is of one card, and so is each ratio.

    remarks: further notes
    """
    rows = []
    missing = []
    for m in sorted(theirs.select(), key=lambda m: (m.problem.flops, m.problem)):
        ours_here = ours.select(m.kernel, m.problem)
        if not ours_here:
            missing.append(m.title)
        rows += [_row("ours", measurement) for measurement in ours_here]
        rows.append(_row("theirs", m))
    notes = [*_notes(ours, theirs), *remarks]
    if missing:
        notes.append(f"ours has no time of {a_few(missing)}")
    title = "ours and theirs: each row is of one card, and its ratio is of that card's own cuBLAS"
    return Table.of(title, rows, left=4, notes=notes)


@dataclass(frozen=True)
class Shares:
    """The shares of cuBLAS on two cards at a size, in percent."""

    shape: Shape
    by_card: dict[str, dict[str, float]]  # by the card, by kernel

    @property
    def kernels(self) -> list[str]:
        """The kernels, without cuBLAS."""
        ours = next(iter(self.by_card.values()))
        return [name for name in ours if name != CUBLAS]

    @property
    def finding(self) -> str:
        """The kernel with the largest share on our card, and its share on each card."""
        ours = next(iter(self.by_card.values()))
        best = max(self.kernels, key=lambda name: ours[name])
        texts = [f"{shares[best]:.1f} % on {card}" for card, shares in self.by_card.items()]
        return f"{best} at {self.shape}, of the card's own cuBLAS: {', '.join(texts)}"


def shares_of_both(ours: Run, theirs: Run) -> Shares:
    """Return the shares of cuBLAS at the largest size of both runs.

    Both have a share of a kernel there.

    Raises NothingToDraw without such a size.
    """
    for shape in reversed(theirs.shapes()):
        of_ours = _shares_at(ours, shape)
        of_theirs = _shares_at(theirs, shape)
        common = [name for name in of_theirs if name in of_ours]
        if any(name != CUBLAS for name in common):
            return Shares(
                shape,
                {
                    f"{ours.gpu.name} (ours)": {name: of_ours[name] for name in common},
                    f"{theirs.gpu.name} (theirs)": {name: of_theirs[name] for name in common},
                },
            )
    raise NothingToDraw("there is no chart: the runs have no kernel with a share at the same size")


def _shares_at(run: Run, shape: Shape) -> dict[str, float]:
    """Return each kernel's share of cuBLAS on the run's card, in percent."""
    shares = {}
    for m in run.by_card()[0].select(shape=shape):
        ratio = m.against.get(CUBLAS)
        if ratio:
            shares[m.kernel] = 100 * ratio.value
    return shares


def _row(owner: str, m: Measurement) -> dict[str, Any]:
    """Return a measurement's row, with the card that every number in it is of.

    owner: "ours" or "theirs"
    """
    card = f"{owner}: {m.context.gpu.name}" if m.context else owner
    row = cells(m)
    columns = ("gate", "time", "±95 %", "TFLOP/s", "of cuBLAS")
    numbers = {name: row[name] for name in columns}
    return {"size": m.place, "kernel": m.kernel, "card": card, **numbers}


def _notes(ours: Run, theirs: Run) -> list[str]:
    """Return the labels of both runs, and what differs apart from the card."""
    notes = [f"ours: {ours.full_label}", f"theirs: {theirs.full_label}"]
    differing = [
        f"{name} = {ours.harness.get(name, 'unknown')} (ours), {value} (theirs)"
        for name, value in theirs.harness.items()
        if ours.harness.get(name) != value
    ]
    if differing:
        notes.append(f"settings that differ: {', '.join(differing)}")
    return notes
