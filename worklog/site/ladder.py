"""The ladder on the first page: a row for everything that was measured at one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from worklog.kernel import LADDER
from worklog.lab.rung_pages import RungPage
from worklog.plots.selection import class_of, labels, measured, rows
from worklog.problem import Shape
from worklog.runs import CUBLAS, Gpu, Measurement, Run, recordings
from worklog.runs.sources import load_recording
from worklog.runs.text import Table, duration, percent

# The folders with recordings of single rungs on other cards.
FOLDERS = ("grid", "chapters", "bounds")


@dataclass
class OtherCard:
    """What was recorded at a shape on a card that isn't the ladder's."""

    name: str = ""  # without the vendor and the memory; "" if nothing was recorded
    measurements: dict[str, Measurement] = field(default_factory=dict)  # by kernel
    labels: list[str] = field(default_factory=list)


def ladder(run: Run, shape: Shape) -> str:
    """Return a row for everything that was measured at a shape.

    A row opens to the kernel's times at other sizes. That of the first ladder also has what
    changed, what that costs, and what it gains; further ones would make the page long to load.
    """
    measurements = rows(run, shape)
    recorded = [load_recording(path) for path in _recordings()]
    other = another_card(recorded, run.gpu, shape)
    sizes = by_size([run, *recorded] if run.origin == "recorded" else [run], run.gpu)
    rungs = {record.name: RungPage(run, record.name, shape) for record in LADDER}
    fastest = max((m.tflops or 0.0 for m in measurements), default=0.0) or 1.0
    html = _heading(other)
    for m in measurements:
        row = _ladder_row(m, fastest, other.measurements.get(m.kernel))
        details = _sizes_table(sizes.get(m.kernel, {}))
        if m.kernel in rungs:
            details = rungs[m.kernel]._repr_html_() + details
        kind = ' class="baseline"' if m.kernel == CUBLAS else ""
        html += f'<details name="rung"{kind}><summary>{row}</summary>{details}</details>'
    about = f"At {shape}. The class is stated if the errors are larger than FP32's."
    sources = dict.fromkeys([*labels(run, measurements), *other.labels])
    lines = "<br>".join(escape(source) for source in sources)
    return f'{html}<p class="source">{about}<br>{lines}</p>'


def _recordings() -> list[Path]:
    """Return the recordings that have times of rungs."""
    paths = [path for name, path in recordings().items() if path.suffix == ".jsonl"]
    for folder in FOLDERS:
        paths += [path for path in recordings(folder).values() if path.suffix == ".jsonl"]
    return paths


def by_size(runs: Sequence[Run], gpu: Gpu) -> dict[str, dict[Shape, Measurement]]:
    """Return what was measured on a card without a pitfall, by kernel and square size.

    If several runs have a kernel and a size, the first one counts.
    """
    sizes = dict[str, dict[Shape, Measurement]]()
    for run in runs:
        for m in run.measurements:
            is_square = m.shape is not None and len({*m.shape}) == 1
            if run.gpu.name == gpu.name and m.us and not m.changed and is_square:
                sizes.setdefault(m.kernel, {}).setdefault(m.problem, m)
    return sizes


def _sizes_table(measurements: Mapping[Shape, Measurement]) -> str:
    """Return a kernel's times, rates and shares of cuBLAS by size, with their sources."""
    shapes = sorted(measurements, key=lambda shape: shape.flops)
    in_order = [measurements[shape] for shape in shapes]
    table_rows = [
        ("time", *(duration(m.us or 0.0, padded=True) for m in in_order)),
        ("TFLOP/s", *(f"{m.tflops:.2f}" for m in in_order)),
        ("of cuBLAS", *(percent(m.ratio) if m.kernel != CUBLAS else "" for m in in_order)),
    ]
    sources = dict.fromkeys(m.label for m in in_order)
    table = Table(f"By size: {'; '.join(sources)}", ("", *map(str, shapes)), table_rows)
    return f'<div class="scroll" tabindex="0">{table.html()}</div>'


def _heading(other: OtherCard) -> str:
    """Return the names of the ladder's columns."""
    on_other = f"on {other.name}" if other.name else ""
    names = ("kernel", "", "TFLOP/s", "time", "of cuBLAS", on_other)
    texts = "".join(f"<span>{escape(name)}</span>" for name in names)
    return f'<div class="row rung heading">{texts}</div>'


def _ladder_row(m: Measurement, fastest: float, other: Measurement | None) -> str:
    """Return a kernel's name, a bar of its rate, its numbers, and those of another card.

    fastest: the rate of a bar over the whole width, in TFLOP/s
    """
    name = m.kernel
    if measured(m) and class_of(m) != "fp32":
        name += f" · {class_of(m)}"
    width = 100 * (m.tflops or 0.0) / fastest
    bar = f'<span class="track"><i style="left:0;width:{width:.2f}%"></i></span>'
    texts = ["not measured", "", ""]
    if measured(m):
        share = "" if m.kernel == CUBLAS else percent(m.ratio)
        texts = [f"{m.tflops:.2f}", duration(m.us or 0.0, padded=True), share]
    if other:
        texts.append(f"{duration(other.us or 0.0, padded=True)} · {percent(other.ratio)}")
    else:
        texts.append("")
    numbers = "".join(f"<span>{text}</span>" for text in texts)
    return f'<span class="row rung"><span>{name}</span>{bar}{numbers}</span>'


def another_card(runs: Sequence[Run], gpu: Gpu, shape: Shape) -> OtherCard:
    """Return the measurements of another card at a shape, without a pitfall.

    If the runs have several other cards, it is the first one.
    """
    other = OtherCard()
    for run in runs:
        name = run.gpu.name.removeprefix("NVIDIA ").partition(" ")[0]
        if run.gpu.name == gpu.name or other.name not in ("", name):
            continue
        for m in run.select(shape=shape):
            if m.us and not m.changed:
                other.name = name
                other.measurements[m.kernel] = m
                if m.label not in other.labels:
                    other.labels.append(m.label)
    return other
