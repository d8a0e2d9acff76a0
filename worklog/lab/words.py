"""The panel's answer in words: the number, the truth beside it, and what else the lies moved; as text and as HTML."""

from __future__ import annotations

import re
from html import escape

from worklog.lab.model import Answer, Step
from worklog.lab.readings import Reading
from worklog.lab.theme import colour
from worklog.runs.table import duration
from worklog.settings import PITFALLS

GATES = {
    False: "the gate is off: nobody asked whether the result is right",
    "article": "the gate asked only the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
MOVED = 0.005  # a share of cuBLAS or of the roof that moved by less is not worth a line


def in_lines(told: str) -> str:
    """Each sentence and each part of a list on a line of its own: what a page without a kernel shows."""
    return re.sub(r"(?<=[.;]) ", "\n", told)


def headline(reading: Reading) -> str:
    """The number that one would publish: time, rate, share of cuBLAS."""
    rate = f"{reading.tflops:.3g}" if reading.tflops < 1000 else f"{reading.tflops:.0f}"
    return f"{duration(reading.time.value)} → {rate} TFLOP/s → {share(reading.ratio.value)} of cuBLAS"


def truth(answer: Answer) -> str:
    """The honest time, and how far off this one is."""
    if not answer.changed:
        return f"this is the honest reading, {interval(answer.reading)}"
    unbiased = f"honest: {duration(answer.unbiased.time.value)}"
    if not answer.biased:
        return f"{unbiased}; here the lies change the time by less than its noise, {interval(answer.reading)}"
    statistic, count = answer.settings["statistic"], len(answer.reading.samples)  # only the median has an interval
    itself = interval(answer.reading) if statistic == "median" else f"the {statistic} of {count} samples"
    return f"{unbiased}; this reading {amount(answer.off)}, itself {itself}"


def amount(off: float) -> str:
    """How far off, in words that suit the size."""
    if off >= 2:
        return f"is {off + 1:.3g} times too long"
    if off <= -2 / 3:
        return f"is {1 / (off + 1):.3g} times too short"
    return f"lies by {signed(100 * off)} %"


def interval(reading: Reading) -> str:
    """The half-width of the 95 % interval, and of how many samples."""
    return f"±{100 * reading.time.relative_half_width:.2g} % (95 %) from {len(reading.samples)} samples"


def signed(value: float) -> str:
    """A difference with its sign, one digit after the point."""
    return f"{value:+.1f}".replace("-", "−")


def share(value: float) -> str:
    """A share in percent, three digits."""
    return f"{100 * value:.3g} %"


def others(answer: Answer) -> list[str]:
    """What the lies moved besides the time: the shares of cuBLAS and of the roof, and whether the result is right."""
    reading, unbiased = answer.reading, answer.unbiased
    lines = []
    if abs(reading.ratio.value / unbiased.ratio.value - 1) > MOVED:
        lines.append(f"of cuBLAS: {share(reading.ratio.value)} here, {share(unbiased.ratio.value)} honestly")
    if unbiased.of_roof and reading.of_roof and abs(reading.of_roof / unbiased.of_roof - 1) > MOVED:
        lines.append(f"of the roof: {share(reading.of_roof)} here, {share(unbiased.of_roof)} honestly")
    lines += [words for value, words in GATES.items() if answer.settings["gate"] == value]
    return lines + notes(reading)


def notes(reading: Reading) -> list[str]:
    """What went less well than asked for while the samples were taken; the settings themselves are on the left."""
    known = {f"{g.setting}: {value}" for g in PITFALLS for value in g.biased}
    return [d for d in reading.measurement.degradations if d not in known and not d.startswith("gate:")]


def step_words(step: Step) -> tuple[str, str]:
    """A step's name and what it does to the time."""
    name = " + ".join(g.setting for g in step.pitfalls if g.corrupts == "TFLOP/s")
    number = next((f"{g.article} " for g in step.pitfalls if g.article), "")
    if not step.visible:
        return number + name, "not visible"
    return number + name, f"{'+' if step.us > 0 else '−'}{duration(abs(step.us))}"


def html(answer: Answer) -> str:
    """The answer for a notebook: the number large, the truth under it, coloured where it lies."""
    told = f"color:{colour('accent' if answer.off > 0 else 'lie')};font-weight:600" if answer.biased else ""
    lines = "".join(f"<div>{escape(line)}</div>" for line in others(answer))
    true = escape(truth(answer)).replace(" %", "&nbsp;%")
    return (
        f'<div><div style="font-size:1.35em;font-weight:600;line-height:1.5">'
        f"{escape(headline(answer.reading))}</div>"
        f'<div style="line-height:1.5;{told}">{true}</div>'
        f'<div style="font-size:0.9em;line-height:1.4">{lines}</div></div>'
    )


def html_trouble(message: str) -> str:
    """Why there is no number."""
    return f'<div style="line-height:1.5">{escape(message)}</div>'
