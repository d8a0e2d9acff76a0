"""The ladder on the first page: a row for everything that was measured at one shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from worklog.kernel import LADDER
from worklog.lab.rung_pages import RungPage
from worklog.plots.selection import class_of, labels, measured, rows
from worklog.problem import Shape
from worklog.runs import CUBLAS, Gpu, Measurement, Run, recordings
from worklog.runs.text import duration, percent

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

    A row of the first ladder opens to what changed, what that costs, and what it gains; further
    ones would make the page long to load.
    """
    measurements = rows(run, shape)
    rungs = {record.name: RungPage(run, record.name, shape) for record in LADDER}
    fastest = max((m.tflops or 0.0 for m in measurements), default=0.0) or 1.0
    other = another_card(run.gpu, shape)
    html = _heading(other)
    for m in measurements:
        row = _ladder_row(m, fastest, other.measurements.get(m.kernel))
        details = rungs[m.kernel]._repr_html_() if m.kernel in rungs else ""
        if details:
            html += f'<details name="rung"><summary>{row}</summary>{details}</details>'
        else:
            kind = "baseline" if m.kernel == CUBLAS else "further"
            html += f'<div class="{kind}">{row}</div>'
    about = f"At {shape}. The class is stated if the errors are larger than FP32's."
    sources = dict.fromkeys([*labels(run, measurements), *other.labels])
    lines = "<br>".join(escape(source) for source in sources)
    return f'{html}<p class="source">{about}<br>{lines}</p>'


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
        texts = [f"{m.tflops:.2f}", duration(m.us or 0.0), share]
    texts.append(f"{duration(other.us or 0.0)} · {percent(other.ratio)}" if other else "")
    numbers = "".join(f"<span>{text}</span>" for text in texts)
    return f'<span class="row rung"><span>{name}</span>{bar}{numbers}</span>'


def another_card(gpu: Gpu, shape: Shape) -> OtherCard:
    """Return the recordings of rungs on the first other card, without a pitfall."""
    card = OtherCard()
    for folder in FOLDERS:
        for path in recordings(folder).values():
            run = Run.load(path, "recorded")
            name = run.gpu.name.removeprefix("NVIDIA ").partition(" ")[0]
            if run.gpu.name != gpu.name and card.name in ("", name):
                _add(card, run, shape, name)
    return card


def _add(card: OtherCard, run: Run, shape: Shape, name: str) -> None:
    """Add a run's measurements at a shape that have no pitfall.

    name: of the run's card
    """
    for m in run.select(shape=shape):
        if not m.us or m.changed:
            continue
        card.name = name
        card.measurements[m.kernel] = m
        if m.label not in card.labels:
            card.labels.append(m.label)
