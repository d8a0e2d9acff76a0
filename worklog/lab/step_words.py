"""A step of the ladder in words: a headline, a table of what both rungs cost, and the changed lines; text and HTML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from worklog.lab.steps import Side, Step
from worklog.lab.theme import colour
from worklog.runs.report import cells

NONE = "–"


@dataclass(frozen=True)
class Row:
    """One fact: of this rung, and of the one before ("" where there is none)."""

    name: str
    now: str
    before: str


def headline(step: Step) -> str:
    """The rung, the size, and the number or why there is none."""
    if not step.now.measured or step.now.measurement is None:
        return step.missing() or ""
    _, _, time, _, rate, share, *_ = cells(step.run, step.now.measurement)
    return f"{step.now.rung.name} at {step.shape}: {time} → {rate} TFLOP/s → {share} of cuBLAS"


def gain(step: Step) -> str:
    """How this rung's time compares with the one before."""
    if step.before is None:
        return "the first rung: all others are compared with it"
    one, other = step.now.measurement, step.before.measurement
    if one is None or other is None or not one.us or not other.us:
        return f"{step.before.rung.name} has no time at {step.shape} to compare with" if step.now.measured else ""
    factor = other.us / one.us
    noise = sum((m.us_high - m.us_low) / 2 / m.us for m in (one, other) if m.us and m.us_high and m.us_low)
    if abs(factor - 1) <= noise:
        return f"as fast as {step.before.rung.name}, within the noise of both"
    if factor > 1:
        return f"{factor:.3g} times as fast as {step.before.rung.name}"
    return f"{1 / factor:.3g} times as slow as {step.before.rung.name} at this size"


def changed(step: Step) -> str:
    """How much of the code is new."""
    came, went = step.lines
    if step.before is None:
        return f"{came} lines of code"
    return f"{came} lines of code came and {went} went, against {step.before.rung.name}"


def sections(step: Step) -> list[tuple[str, list[Row]]]:
    """Facts under the label of where they come from: the run, then the emulator."""
    timed = [
        _row(step, "time", lambda side: _cell(step, side, 2)),
        _row(step, "±95 %", lambda side: _cell(step, side, 3)),
        _row(step, "TFLOP/s", lambda side: _cell(step, side, 4)),
        _row(step, "of cuBLAS", lambda side: _cell(step, side, 5)),
        _row(step, "of the measured FP32 ceiling", lambda side: _cell(step, side, 6)),
        _row(step, "registers a thread", lambda side: NONE if side.registers is None else str(side.registers)),
        _row(step, "shared memory a block", _shared),
        _row(step, "resident on an SM", _resident),
        _row(
            step,
            "which is limited by",
            lambda side: " and ".join(side.occupancy.limited_by) if side.occupancy else NONE,
        ),
    ]
    counted = [
        _row(step, "sectors a global load", _counted("sectors_per_request", ".1f")),
        _row(step, "global sectors a multiply-add", _counted("sectors_per_fma", ".3g")),
        _row(step, "shared wavefronts a multiply-add", _counted("wavefronts_per_fma", ".3g")),
        _row(step, "of which bank conflicts", _conflicts),
    ]
    return [(step.run.full_label, timed), (f"{step.counted.label} · {step.counted.shape}, of a warp", counted)]


def _row(step: Step, name: str, say: Callable[[Side], str]) -> Row:
    return Row(name, say(step.now), "" if step.before is None else say(step.before))


def _cell(step: Step, side: Side, column: int) -> str:
    if side.measurement is None:
        return "not measured"
    if side.measurement.status != "measured":
        return side.measurement.status
    return cells(step.run, side.measurement)[column] or NONE


def _shared(side: Side) -> str:
    return NONE if side.shared_bytes is None else f"{side.shared_bytes / 1024:g} KiB"


def _resident(side: Side) -> str:
    if side.occupancy is None:
        return NONE
    at_once = side.occupancy
    return f"{at_once.blocks} × {side.rung.block} threads, {100 * at_once.share:.0f} %"


def _counted(name: str, form: str) -> Callable[[Side], str]:
    def say(side: Side) -> str:
        return NONE if side.traffic is None else format(getattr(side.traffic, name), form)

    return say


def _conflicts(side: Side) -> str:
    return NONE if side.traffic is None or not side.traffic.wavefronts else f"{100 * side.traffic.conflict_share:.0f} %"


def said_html(step: Step) -> str:
    """The number large, the idea and the gain under it."""
    lines = [step.now.rung.idea, gain(step), *step.notes]
    told = "".join(f'<div style="line-height:1.4">{escape(line)}</div>' for line in lines if line)
    number = f'<div style="font-size:1.2em;font-weight:600;line-height:1.5">{escape(headline(step))}</div>'
    return number + told


def table_html(step: Step) -> str:
    """What both rungs cost and how fast they are, under the labels of the sources."""
    names = [step.now.rung.name] + ([step.before.rung.name] if step.before else [])
    head = "".join(f'<th scope="col" style="text-align:right">{escape(name)}</th>' for name in names)
    parts = [f"<table style='line-height:1.35'><thead><tr><td></td>{head}</tr></thead>"]
    for source, rows in sections(step):
        label = f'<th scope="rowgroup" colspan="{len(names) + 1}" style="{LABEL}">{escape(source)}</th>'
        parts.append(f"<tbody><tr>{label}</tr>")
        for row in rows:
            values = [row.now] + ([row.before] if step.before else [])
            told = "".join(f'<td style="{VALUE}">{escape(value)}</td>' for value in values)
            parts.append(f'<tr><th scope="row" style="{NAME}">{escape(row.name)}</th>{told}</tr>')
        parts.append("</tbody>")
    return "".join([*parts, "</table>"])


LABEL = f"text-align:left;font-weight:400;font-size:0.85em;padding-top:0.5em;color:{colour('muted')}"
NAME = "text-align:left;font-weight:400"
VALUE = "text-align:right;padding-left:1.2em;white-space:nowrap"


def diff_html(step: Step, *, comments: bool) -> str:
    """The changed lines, each with its sign and in words for a screen reader; the keyboard can scroll them."""
    names = f"{step.now.rung.file} against {step.before.rung.file}" if step.before else step.now.rung.file
    looks = {"+": f"background:{_tint('belittles')}", "-": f"background:{_tint('flatters')}"}
    said = {"+": "ins", "-": "del"}
    lines = []
    for mark, line in step.diff(comments=comments):
        tag = said.get(mark, "span")
        look = f"text-decoration:none;display:block;{looks.get(mark, '')}"
        lines.append(f'<{tag} style="{look}">{mark} {escape(line)}</{tag}>')
    head = f'<div style="font-weight:600;line-height:1.4">{escape(names)} · {escape(changed(step))}</div>'
    box = "max-height:32em;overflow:auto;white-space:pre;line-height:1.35;font-size:0.9em;margin:0.3em 2px"
    whole = f'<span style="display:inline-block;min-width:100%">{"".join(lines)}</span>'  # as wide as its longest line
    return f'{head}<pre tabindex="0" role="region" aria-label="{escape(names)}" style="{box}">{whole}</pre>'


def _tint(role: str) -> str:
    return f"color-mix(in srgb, {colour(role)} 35%, transparent)"


def text(step: Step) -> str:
    """All of it but the changed lines, for a page without a kernel and for who does not see the picture."""
    parts = [headline(step), step.now.rung.idea, changed(step), gain(step), *step.notes]
    for source, rows in sections(step):
        told = [f"{row.name} {row.now}" + (f" (before: {row.before})" if row.before else "") for row in rows]
        parts.append(f"{'; '.join(told)}. Source: {source}")
    return ". ".join(part for part in parts if part) + "."
