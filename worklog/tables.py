"""A run as a table: text for a terminal, HTML for a notebook, Markdown for the README. The label stands with the
numbers, always.
"""

from __future__ import annotations

import html as html_escape
import io
from collections.abc import Sequence
from typing import Any

from worklog.gemm import Shape
from worklog.runs import Measurement, Run

COLUMNS = ("kernel", "gate", "time", "±95 %", "TFLOP/s", "of cuBLAS", "of ceiling", "SM MHz", "registers")


def label_line(run: Run) -> str:
    """The label with what the ruler did about itself."""
    offset, timer = run.calibration.get("offset_us"), run.harness.get("timer", "events")
    treated = "" if offset is None else f" · event offset {offset:.2f} µs {run.harness.get('offset', 'removed')}"
    if timer != "events":  # only an event pair has a known length of its own
        treated = f" · timer {timer}, nothing taken off"
    lies = [f"{m}" for m in sorted({d for x in run.select() for d in x.degradations if d.startswith("gate: ")})]
    return run.label + treated + (" · " + "; ".join(lies) if lies else "")


def duration(microseconds: float) -> str:
    """With a unit that suits the size: 8.4 µs, 2.65 ms, 1.2 s."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:.4g} {unit}"
    return f"{microseconds:.4g} µs"


def cells(run: Run, m: Measurement) -> tuple[str, ...]:
    """One measurement's row, in the order of COLUMNS. A refusal or a skip has its reason instead of a time."""
    registers = run.kernels.get(m.kernel, {}).get("registers")
    precision = (m.verdict or {}).get("precision")
    if m.status != "measured" or m.us is None or m.tflops is None or m.ratio is None:
        return (m.kernel, m.status, m.reason or "", "", "", "", "", "", "" if registers is None else str(registers))
    gate = f"{precision} ok" if m.verdict else "not asked"
    half = (m.us_high - m.us_low) / 2 / m.us if m.us_high is not None and m.us_low is not None else float("nan")
    ratio_half = (
        50 * (m.ratio_high - m.ratio_low) if m.ratio_high is not None and m.ratio_low is not None else float("nan")
    )
    return (
        m.kernel,
        gate,
        duration(m.us) + ("" if m.converged else " *"),
        f"{100 * half:.2f} %",
        f"{m.tflops:.2f}",
        f"{100 * m.ratio:.1f} % ±{ratio_half:.{1 if ratio_half >= 0.1 else 2}f}",
        "" if m.of_ceiling is None else f"{100 * m.of_ceiling:.1f} %",
        "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}",
        "" if registers is None else str(registers),
    )


def footnotes(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    """What was degraded, each thing once with the kernels it befell."""
    befell: dict[str, list[str]] = {}
    for m in measurements:
        for degradation in m.degradations:
            befell.setdefault(degradation, []).append(f"{m.kernel} at {m.problem}")
    lines = [f"{what} ({', '.join(dict.fromkeys(who))})" for what, who in befell.items()]
    if any(m.status == "measured" and not m.converged for m in measurements):
        lines.insert(0, "* the interval is wider than asked for")
    return lines + run.notes


def groups(run: Run) -> list[tuple[str, list[Measurement]]]:
    """Measurements by size, each group with its title: those under the run's own harness, or where there are none,
    the others.
    """
    found: dict[tuple[Shape, str], list[Measurement]] = {}
    for m in run.select() or run.measurements:
        lies = "".join(f", {setting} = {value}" for setting, value in m.changed.items())
        found.setdefault((m.problem, lies), []).append(m)
    ordered = sorted(found.items(), key=lambda item: item[0][0].flops)
    return [(f"{shape.m} × {shape.n} × {shape.k}{lies}", measurements) for (shape, lies), measurements in ordered]


def text(run: Run) -> str:
    """The run's own measurements as terminal text, a table for each size."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=160, force_terminal=False, force_jupyter=False)
    print_tables(run, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def print_tables(run: Run, console: Any) -> None:
    """Print label, tables and footnotes on a rich console."""
    from rich.markup import escape
    from rich.table import Table

    console.print(escape(label_line(run)), highlight=False)
    for title, measurements in groups(run):
        table = Table(
            title=title,
            title_justify="left",
            box=None,
            header_style="bold",
            padding=(0, 1),
        )
        for column in COLUMNS:
            table.add_column(column, justify="left" if column in ("kernel", "gate") else "right", overflow="fold")
        refused = []
        for m in measurements:
            row = cells(run, m)
            if m.status != "measured":
                refused.append(f"{m.kernel}: {m.status}: {m.reason}")
                row = (row[0], row[1], "–", *row[3:])
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
        for line in refused + footnotes(run, measurements):
            console.print("  " + escape(line), highlight=False, soft_wrap=True)


def html(run: Run) -> str:
    """The run's own measurements as HTML, with a bar for the share of cuBLAS. Screen readers get a caption."""
    parts = [f"<p>{html_escape.escape(label_line(run))}</p>"]
    for title, measurements in groups(run):
        parts.append(
            f"<table><caption>{html_escape.escape(title)} · {html_escape.escape(run.label)}</caption><thead><tr>"
        )
        parts += [f'<th scope="col">{column}</th>' for column in COLUMNS]
        parts.append("</tr></thead><tbody>")
        for m in measurements:
            row = [html_escape.escape(cell) for cell in cells(run, m)]
            if m.status != "measured":  # the reason takes the room of the numbers
                parts.append(
                    f'<tr><th scope="row">{row[0]}</th><td>{row[1]}</td>'
                    f'<td colspan="{len(row) - 3}" style="text-align:left;white-space:normal">{row[2]}</td>'
                    f"<td>{row[-1]}</td></tr>"
                )
                continue
            if m.ratio is not None:
                share = min(100.0, 100 * m.ratio)
                bar = f"background:linear-gradient(90deg,#9ecae1 {share:.1f}%,transparent 0);display:block"
                row[5] = f'<span style="{bar}">{row[5]}</span>'
            parts.append(
                f'<tr><th scope="row">{row[0]}</th>'
                + "".join(f'<td style="white-space:nowrap">{cell}</td>' for cell in row[1:])
                + "</tr>"
            )
        parts.append("</tbody></table>")
        parts += [f"<p><small>{html_escape.escape(note)}</small></p>" for note in footnotes(run, measurements)]
    return "".join(parts)


def markdown(run: Run, shape: Shape) -> str:
    """One size as a Markdown table with its label, for the README."""
    lines = [f"C = A·B in FP32 at {shape.m} × {shape.n} × {shape.k}. {label_line(run)}.", ""]
    header = ("rung", "what it adds", "time", "TFLOP/s", "of cuBLAS", "of the measured FP32 ceiling", "registers")
    lines += ["| " + " | ".join(header) + " |", "|---|---|--:|--:|--:|--:|--:|"]
    for m in run.select(shape=shape):
        row = cells(run, m)
        idea = run.kernels.get(m.kernel, {}).get("idea", "the baseline, against itself")
        shown = (row[0], idea, row[2], row[4], row[5], row[6], row[8])
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in shown) + " |")
    return "\n".join(lines)
