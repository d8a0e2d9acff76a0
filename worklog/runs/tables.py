"""A run as a table: text for a terminal, HTML for a notebook, Markdown for the README. The label stands with the
numbers, always.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from worklog.problem.gemm import Shape
from worklog.runs.markup import bar, table, verdict_html
from worklog.runs.run import Measurement, Run
from worklog.runs.statistics import over_shapes

COLUMNS = ("kernel", "gate", "time", "±95 %", "TFLOP/s", "of cuBLAS", "of ceiling", "SM MHz", "registers")
DETAILS = ("kernel", "rate", "GB/s", "of copy", "of memory peak", "of FP32 peak", "cycles", "SM MHz", "samples", "gate")
NO_LABEL = "of no run: nobody says where and how it was measured"
MEANS = ("kernel", "sizes", "mean TFLOP/s", "geometric mean TFLOP/s", "geometric mean of cuBLAS")


def label_line(run: Run) -> str:
    """The label with what the ruler did about itself."""
    offset, timer = run.calibration.get("offset_us"), run.harness.get("timer", "events")
    treated = "" if offset is None else f" · event offset {offset:.2f} µs {run.harness.get('offset', 'removed')}"
    if timer != "events":  # only an event pair has a known length of its own
        treated = f" · timer {timer}, nothing taken off"
    biased = [f"{m}" for m in sorted({d for x in run.select() for d in x.degradations if d.startswith("gate: ")})]
    return run.label + treated + (" · " + "; ".join(biased) if biased else "")


def duration(microseconds: float, *, padded: bool = False) -> str:
    """With a unit that suits the size, in up to four digits: 8.4 µs, 2.65 ms, 1.2 s. padded: always four, for a column:
    8.400 µs.
    """
    unit, scale = next((one for one in (("s", 1e6), ("ms", 1e3)) if microseconds >= one[1]), ("µs", 1.0))
    value = microseconds / scale
    return f"{f'{value:#.4g}'.rstrip('.') if padded else f'{value:.4g}'} {unit}"


def small(half_width: float) -> str:
    """Two digits after the point, or as many as it takes to be no zero: 0.05, 0.002."""
    digits = 2 if not 0 < half_width < 0.005 else -math.floor(math.log10(half_width))
    return f"{half_width:.{digits}f}"


def of_baseline(ratio: float, low: float | None, high: float | None) -> str:
    """A share of the baseline in percent with its interval, one as fine as the other: 62.7 % ±0.3, 97.31 % ±0.08."""
    half = 50 * (high - low) if high is not None and low is not None else float("nan")
    words = f"{half:.1f}" if round(half, 2) >= 0.1 else small(half)
    digits = len(words.partition(".")[2]) or 1
    return f"{100 * ratio:.{digits}f} % ±{words}"


def bound(value: float) -> str:
    """In two digits after the point and never below the value, for a sentence that says "at most"."""
    return f"{math.ceil(100 * abs(value) - 1e-9) / 100:.2f}"


def cells(run: Run, m: Measurement) -> tuple[str, ...]:
    """One measurement's row, in the order of COLUMNS. A refusal or a skip has its reason instead of a time."""
    registers = run.kernels.get(m.kernel, {}).get("registers")
    precision = (m.verdict or {}).get("precision")
    if m.status != "measured" or m.us is None or m.tflops is None or m.ratio is None:
        return (m.kernel, m.status, m.reason or "", "", "", "", "", "", "" if registers is None else str(registers))
    gate = f"{precision} ok" if m.verdict else "not asked"
    half = (m.us_high - m.us_low) / 2 / m.us if m.us_high is not None and m.us_low is not None else float("nan")
    return (
        m.kernel,
        gate,
        duration(m.us, padded=True) + ("" if m.converged else " *"),
        f"{small(100 * half)} %",
        f"{m.tflops:.2f}",
        of_baseline(m.ratio, m.ratio_low, m.ratio_high),
        "" if m.of_ceiling is None else f"{100 * m.of_ceiling:.1f} %",
        "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}",
        "" if registers is None else str(registers),
    )


def details(m: Measurement) -> tuple[str, ...]:
    """One measurement's further numbers, in the order of DETAILS; what the run does not hold stays empty.

    GB/s: each matrix once over the time. of copy: of the measured rate of a copy; of memory peak and of FP32 peak: of
    what the memory's and the SMs' clocks allow on paper, the SMs' being the one that was seen. cycles: of the SM clock,
    in one launch. gate: what all its stages took.
    """
    if m.status != "measured" or m.us is None or m.tflops is None:
        return (m.kernel, m.status, *[""] * (len(DETAILS) - 3), _gate_took(m))
    return (
        m.kernel,
        f"{m.tflops:.2f} TFLOP/s" if m.tflops >= 1 else f"{1e3 * m.tflops:.1f} GFLOP/s",
        "" if m.gbs is None else f"{m.gbs:.4g}",
        _percent(m.of_copy),
        _percent(m.of_memory_peak),
        _percent(m.of_roof),
        "" if m.sm_mhz is None else _scaled(m.us * m.sm_mhz),
        "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}",
        str(m.n),
        _gate_took(m),
    )


def _gate_took(m: Measurement) -> str:
    """0.42 s, or nothing where the gate was not asked or the run does not say."""
    seconds = sum(stage.get("seconds", 0.0) for stage in (m.verdict or {}).get("stages", ()))
    return f"{seconds:.2f} s" if seconds else ""


def _scaled(count: float) -> str:
    """Four digits: 8432, 84.32 k, 5.244 M."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if count >= scale:
            return f"{count / (1e3 if unit == 'k' else scale):.4g} {unit}"
    return f"{count:.4g}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def means(run: Run) -> list[tuple[str, ...]]:
    """Over the sizes of the run's own harness, for each kernel that was measured at several, in the order of MEANS: the
    arithmetic mean of the rates, which large sizes decide, and geometric means, which all decide alike. A kernel that
    has no time at some size is averaged over the others, and their number is told.
    """
    every = len(run.shapes())
    rows: list[tuple[str, ...]] = []
    for kernel in dict.fromkeys(m.kernel for m in run.select()):
        found = [m for m in run.select(kernel) if m.status == "measured" and m.tflops and m.ratio]
        if len(found) < 2:
            continue
        mean, geometric = over_shapes([m.tflops or 0.0 for m in found])
        _, ratio = over_shapes([m.ratio or 0.0 for m in found])
        sizes = f"{len(found)} of {every}"
        rows.append((kernel, sizes, f"{mean:.2f}", f"{geometric:.2f}", f"{100 * ratio:.1f} %"))
    return rows


def footnotes(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    """What was degraded and what the gate noted, each thing once with the kernels it befell."""
    befell: dict[str, list[str]] = {}
    for m in measurements:
        noted = [stage["note"] for stage in (m.verdict or {}).get("stages", ()) if stage.get("note")]
        if m.status == "measured" and m.label not in ("", run.label_under(m.changed)):
            noted.append(m.label)
        for degradation in (*m.degradations, *noted):
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
        biased = "".join(f", {setting} = {value}" for setting, value in m.changed.items())
        found.setdefault((m.problem, biased), []).append(m)
    ordered = sorted(found.items(), key=lambda item: item[0][0].flops)
    return [(f"{shape.m} × {shape.n} × {shape.k}{biased}", measurements) for (shape, biased), measurements in ordered]


def text(run: Run, *, with_details: bool = False) -> str:
    """The run's own measurements as terminal text, a table for each size."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=160, force_terminal=False, force_jupyter=False)
    print_tables(run, console, with_details=with_details)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def print_tables(run: Run, console: Any, *, with_details: bool = False) -> None:
    """Print label, tables and footnotes on a rich console. with_details: a second table for each size."""
    from rich.markup import escape

    console.print(escape(label_line(run)), highlight=False)
    for title, measurements in groups(run):
        refused: list[str] = []
        rows: list[tuple[str, ...]] = []
        for m in measurements:
            row = cells(run, m)
            if m.status != "measured":
                refused.append(f"{m.kernel}: {m.status}: {m.reason}")
                row = (row[0], row[1], "–", *row[3:])
            rows.append(row)
        _print_table(console, title, COLUMNS, rows)
        if with_details:
            _print_table(console, f"{title}, details", DETAILS, [details(m) for m in measurements])
        for line in refused + footnotes(run, measurements):
            console.print("  " + escape(line), highlight=False, soft_wrap=True)
    over = means(run)
    if over:
        _print_table(console, "over the sizes", MEANS, over)


def _print_table(console: Any, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """What a narrow terminal has no room for is left out from the last column on, and said."""
    from rich.markup import escape
    from rich.table import Table

    fitting = _fitting(console.width, columns, rows)
    table = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 1))
    for column in columns[:fitting]:
        table.add_column(column, justify="left" if column in ("kernel", "gate") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row[:fitting]))
    console.print(table)
    if fitting < len(columns):
        console.print(f"  in a wider terminal: {', '.join(columns[fitting:])}", highlight=False)


def _fitting(width: int, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How many columns stand side by side in so many characters; the first half always do."""
    widths = [2 + max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    return next((n for n in range(len(columns), len(columns) // 2, -1) if sum(widths[:n]) <= width), len(columns) // 2)


def html(run: Run) -> str:
    """The run's own measurements as HTML, with a bar for the share of cuBLAS; further numbers are folded away. Screen
    readers get a caption.
    """
    parts = [f"<p>{escape(label_line(run))}</p>"]
    for title, measurements in groups(run):
        rows = "".join(_row(run, m) for m in measurements)
        parts.append(_table(f"{title} · {run.label}", COLUMNS, rows))
        parts += [f"<p><small>{escape(note)}</small></p>" for note in footnotes(run, measurements)]
        further = _table(f"{title}, details · {run.label}", DETAILS, _plain(details(m) for m in measurements))
        parts.append(f"<details><summary>details</summary>{further}</details>")
    over = means(run)
    if over:
        parts.append(_table(f"over the sizes · {run.label}", MEANS, _plain(over)))
    return "".join(parts)


def _table(caption: str, columns: Sequence[str], rows: str) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(run: Run, m: Measurement) -> str:
    row = [escape(cell) for cell in cells(run, m)]
    if m.status != "measured":  # the reason takes the room of the numbers
        reason = f'<td colspan="{len(row) - 3}" style="text-align:left;white-space:normal">{row[2]}</td>'
        return f'<tr><th scope="row">{row[0]}</th><td>{row[1]}</td>{reason}<td>{row[-1]}</td></tr>'
    if m.ratio is not None:
        row[5] = bar(cells(run, m)[5], m.ratio)
    return _tr(row)


def _plain(rows: Iterable[Sequence[str]]) -> str:
    return "".join(_tr([escape(cell) for cell in row]) for row in rows)


def _tr(row: Sequence[str]) -> str:
    """A table's row from cells that are HTML."""
    others = "".join(f'<td style="white-space:nowrap">{cell}</td>' for cell in row[1:])
    return f'<tr><th scope="row">{row[0]}</th>{others}</tr>'


def measurement_html(m: Measurement) -> str:
    """One measurement by itself, with bars for its shares; the gate's stages are folded away."""
    rows = [(escape(name), bar(words, share)) for name, words, share in _facts(m)]
    gate = f"<details><summary>the gate</summary>{verdict_html(m.verdict)}</details>" if m.verdict else ""
    return table(f"{_named(m)} · {m.label or NO_LABEL}", (), rows) + gate


def measurement_text(m: Measurement) -> str:
    """One measurement by itself for a terminal."""
    lines = [f"  {name:14} {words}" for name, words, _ in _facts(m)]
    return "\n".join([_named(m), m.label or NO_LABEL, *lines])


def _named(m: Measurement) -> str:
    biased = "".join(f", {setting} = {value}" for setting, value in m.changed.items())
    return f"{m.kernel} at {m.problem}{biased}"


def _facts(m: Measurement) -> list[tuple[str, str, float | None]]:
    """Name, words and, where it is a share, how large."""
    if m.status != "measured" or m.us is None:
        return [(m.status, m.reason or "no reason given", None)]
    _, gate, time, half, rate, share, ceiling, clock, _ = cells(Run(device={}, harness={}), m)
    told: list[tuple[str, str, float | None]] = [
        ("gate", gate, None),
        ("time", f"{time} ±{half} (95 %)", None),
        ("TFLOP/s", rate, None),
        ("of cuBLAS", share, m.ratio),
        ("of ceiling", ceiling, m.of_ceiling),
        ("SM MHz", clock, None),
        ("samples", f"{m.n} of {len(m.samples.get('counts', []))} count", None),
        *(("degraded", degradation, None) for degradation in m.degradations),
    ]
    return [fact for fact in told if fact[1]]


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
