"""The renderer of all tables, and a run, a measurement and a verdict as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from worklog.runs.estimates import over_shapes, process_label

if TYPE_CHECKING:
    from worklog.runs.measurement import Measurement
    from worklog.runs.run import Run


WIDTH = 160  # characters of a terminal whose width is not known
# Bars are translucent, so that the words on them are readable on a light page and on a dark one.
WITHIN, BEYOND = "#3b93d055", "#e0702455"


@dataclass(frozen=True)
class Bar:
    """A cell with a bar behind its words. share: length of the bar as a share of the cell, drawn between 0 and 1;
    beyond: drawn in the colour of what exceeds its limit.
    """

    words: str
    share: float | None
    beyond: bool = False

    def __str__(self) -> str:
        return self.words

    def html(self) -> str:
        """The words on their bar; without a share, the words alone."""
        if self.share is None:
            return escape(self.words)
        length, colour = 100 * min(max(self.share, 0.0), 1.0), BEYOND if self.beyond else WITHIN
        gradient = f"linear-gradient(90deg,{colour} {length:.1f}%,transparent 0)"
        return f'<span style="display:block;background:{gradient}">{escape(self.words)}</span>'


Cell = str | Bar


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of cells under a title, for a notebook and a terminal. columns: headings, or () for a table of facts. left:
    number of leading columns that are aligned to the left; the others are aligned to the right. notes: lines below.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, Cell]], left: int = 1, notes: Sequence[str] = ()) -> Table:
        """Rows that map columns to cells, all with the same columns; without rows, the title alone."""
        return cls(title, [*rows[0]], [[*row.values()] for row in rows], left, notes) if rows else cls(title, (), ())

    def text(self, width: int = WIDTH) -> str:
        """For a terminal of `width` characters: trailing columns that do not fit are left out and named."""
        cells = [[str(cell) for cell in row] for row in (*([self.columns] if self.columns else ()), *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        fitting = self._fitting(widths, width)
        lines = [self.title] if self.title else []
        for row in cells:
            padded = [
                f"{cell:<{size}}" if place < self.left else f"{cell:>{size}}"
                for place, (cell, size) in enumerate(zip(row, widths[:fitting], strict=False))
            ]
            lines.append((" " + "  ".join(padded)).rstrip())
        if fitting < len(widths):
            lines.append(f"  in a wider terminal: {', '.join(self.columns[fitting:])}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _fitting(self, widths: Sequence[int], width: int) -> int:
        """How many columns fit; the first half is always shown, and so is every column of a table of facts."""
        if not self.columns:
            return len(widths)
        least = len(widths) // 2
        return next((n for n in range(len(widths), least, -1) if sum(widths[:n]) + 2 * n <= width), least)

    def html(self) -> str:
        """For a notebook; the title is the caption that screen readers announce."""
        head = "".join(
            f'<th scope="col"{self._style(place)}>{escape(c)}</th>' if c else "<td></td>"  # no heading without a word
            for place, c in enumerate(self.columns)
        )
        body = "".join(f"<tr>{''.join(self._cell(*item) for item in enumerate(row))}</tr>" for row in self.rows)
        top = f"<thead><tr>{head}</tr></thead>" if self.columns else ""
        caption = f'<caption style="text-align:left;min-width:36em">{escape(self.title)}</caption>'
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        return f"<table>{caption}{top}<tbody>{body}</tbody></table>{notes}"

    __repr__, _repr_html_ = text, html

    def _cell(self, place: int, cell: Cell) -> str:
        inner = cell.html() if isinstance(cell, Bar) else escape(cell)
        tag = ("th", ' scope="row"') if place == 0 else ("td", "")
        return f"<{tag[0]}{tag[1]}{self._style(place)}>{inner}</{tag[0]}>"

    def _style(self, place: int) -> str:
        return f' style="text-align:{"left" if place < self.left else "right;white-space:nowrap"}"'

    def markdown(self) -> str:
        """For the README, without the title and the notes."""
        rule = ["---" if place < self.left else "--:" for place in range(len(self.columns))]
        lines = [f"| {' | '.join(self.columns)} |", f"|{'|'.join(rule)}|"]
        for row in self.rows:
            lines.append("| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in row) + " |")
        return "\n".join(lines)


def duration(microseconds: float, *, padded: bool = False) -> str:
    """With the unit that suits the size, in up to four digits: 8.4 µs, 2.65 ms, 1.2 s. padded: always four digits, for
    a column: 8.400 µs.
    """
    unit, scale = next((one for one in (("s", 1e6), ("ms", 1e3)) if microseconds >= one[1]), ("µs", 1.0))
    value = microseconds / scale
    return f"{f'{value:#.4g}'.rstrip('.') if padded else f'{value:.4g}'} {unit}"


def small(half_width: float) -> str:
    """Two digits after the point, or as many as show the first digit that is not 0: 0.05, 0.002."""
    digits = 2 if not 0 < half_width < 0.005 else -math.floor(math.log10(half_width))
    return f"{half_width:.{digits}f}"


def of_baseline(ratio: float, low: float | None, high: float | None) -> str:
    """A share of the baseline in percent, and to the same digit its interval, if any: 62.7 % ±0.3, 97.31 % ±0.08."""
    if low is None or high is None:
        return f"{100 * ratio:.1f} %"
    half = 50 * (high - low)
    words = f"{half:.1f}" if round(half, 2) >= 0.1 else small(half)
    digits = len(words.partition(".")[2]) or 1
    return f"{100 * ratio:.{digits}f} % ±{words}"


def bound(value: float) -> str:
    """An upper bound: two digits after the point, rounded up."""
    return f"{math.ceil(100 * abs(value) - 1e-9) / 100:.2f}"


def percent(share: float | None) -> str:
    """65.0 %, or 0.74 % for less than a tenth; "" for None."""
    return "" if share is None else f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def scaled(count: float) -> str:
    """A count in four digits: 8432, 84.32 k, 5.244 M."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if count >= scale:
            return f"{count / (1e3 if unit == 'k' else scale):.4g} {unit}"
    return f"{count:.4g}"


COLUMNS = ("kernel", "gate", "time", "±95 %", "TFLOP/s", "of cuBLAS", "of ceiling", "SM MHz", "registers")
NO_LABEL = "not from a run: where and how it was measured is not known"


def cells(run: Run | None, m: Measurement) -> dict[str, str]:
    """The row of one measurement by column, without numbers for a kernel that failed or was skipped."""
    registers = None if run is None else run.kernels.get(m.kernel, {}).get("registers")
    row = dict.fromkeys(COLUMNS, "") | {"kernel": m.kernel, "registers": "" if registers is None else str(registers)}
    if m.status != "measured" or m.us is None:
        return row | {"gate": m.outcome, "time": "–"}
    half = None if m.us_high is None or m.us_low is None else (m.us_high - m.us_low) / 2 / m.us
    return row | {
        "gate": f"{m.verdict.get('precision')} ok" if m.verdict else "off",
        "time": duration(m.us, padded=True) + ("" if m.converged else " *"),
        "±95 %": "" if half is None else f"{small(100 * half)} %",
        "TFLOP/s": "" if m.tflops is None else f"{m.tflops:.2f}",
        "of cuBLAS": "" if m.ratio is None else of_baseline(m.ratio, m.ratio_low, m.ratio_high),
        "of ceiling": "" if m.of_ceiling is None else f"{100 * m.of_ceiling:.1f} %",
        "SM MHz": "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}",
    }


def place_cells(m: Measurement) -> dict[str, str]:
    """The row of one point of a benchmark by column: its axes, its time, the rates of its work, and its baseline."""
    row, more = cells(None, m), details(m)
    measured = row["time"] if m.status == "measured" else m.outcome
    rates = {name: more.get(name, "") for name in ("GB/s", "items/s", "of copy", "hot")}
    baseline = {f"of {m.baseline}": row["of cuBLAS"]} if m.baseline else {}
    rate = more["rate"] if m.tflops else ""
    rest = {"time": measured, "±95 %": row["±95 %"], "rate": rate, **rates, **baseline, "SM MHz": row["SM MHz"]}
    axes = {f"axis {name}" if name in rest else name: str(value) for name, value in m.axes.items()}
    return {**(axes or {"benchmark": m.kernel}), **rest}


def details(m: Measurement) -> dict[str, str]:
    """Further numbers of one measurement by column; what the run does not hold stays empty.

    GB/s: compulsory bytes over the time. items/s: elements of A and B over the time. of copy: share of the measured
    rate of a copy; of memory peak and of FP32 peak: share of the theoretical peaks, the latter at the SM clock that
    was seen. cycles: SM cycles of one launch. hot: time of a launch in a row of launches, with a warm L2. mJ, W, °C:
    energy of one launch, average power and temperature of the same. ±95 %: the two parts of the time's interval.
    gate: seconds that its stages took.
    """
    seconds = sum(stage.get("seconds", 0.0) for stage in (m.verdict or {}).get("stages", ()))
    rate = "" if m.status == "measured" else m.outcome
    if m.status != "measured":
        m = type(m)(m.kernel, m.shape, m.status, axes=m.axes)  # without its numbers
    elif m.tflops is not None:
        rate = f"{m.tflops:.2f} TFLOP/s" if m.tflops >= 1 else f"{1e3 * m.tflops:.1f} GFLOP/s"
    return {
        "kernel": m.kernel if m.shape else m.place or m.kernel,
        "rate": rate,
        "GB/s": "" if m.gbs is None else f"{m.gbs:.4g}",
        "items/s": "" if m.elements is None or m.us is None else scaled(1e6 * m.elements / m.us),
        "of copy": percent(m.of_copy),
        "of memory peak": percent(m.of_memory_peak),
        f"of {(m.datapath or 'fp32').upper()} peak": percent(m.of_roof),
        "cycles": "" if m.cycles is None else scaled(m.cycles),
        "SM MHz": "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}",
        "hot": "" if m.hot_us is None else duration(m.hot_us, padded=True),
        f"hot of {m.baseline}": percent(m.hot_ratio),
        "mJ": "" if m.joules is None else f"{1e3 * m.joules:.3g}",
        "W": "" if m.watts is None else f"{m.watts:.0f}",
        "°C": "" if m.celsius is None else f"{m.celsius:.0f}",
        "samples": str(m.n or ""),
        "parts of ±95 %": ", ".join(f"{half} % {part}" for part, half in _halves(m).items()),
        "gate": f"{seconds:.2f} s" if seconds else "",
    }


def means(run: Run) -> list[dict[str, str]]:
    """For each kernel measured at several sizes or cases of a problem: arithmetic means, which large ones dominate, and
    geometric means, in which all count alike. "sizes" or "cases" says over how many of the run's.
    """
    rows = []
    for kernel in dict.fromkeys(m.kernel for m in run.select()):
        every = [m for m in run.select(kernel) if m.shape or "case" in m.axes]
        found = [m for m in every if m.status == "measured" and m.us and (m.ratio or not m.shape)]
        if len(found) < 2:
            continue
        of_cases = found[0].shape is None
        row = {"kernel": kernel, "sizes": f"{len(found)} of {len(run.shapes())}"}
        if of_cases:
            mean, _ = over_shapes([m.us or 0.0 for m in found])
            row = {"kernel": kernel, "cases": f"{len(found)} of {len(every)}", "mean time": duration(mean)}
        if all(m.tflops for m in found):
            mean, geometric = over_shapes([m.tflops or 0.0 for m in found])
            digits = "#.3g" if of_cases else ".2f"  # a problem's rates differ by more than a kernel's
            row |= {"mean TFLOP/s": f"{mean:{digits}}", "geometric mean TFLOP/s": f"{geometric:{digits}}"}
        if all(m.ratio for m in found):
            _, ratio = over_shapes([m.ratio or 0.0 for m in found])
            row[f"geometric mean of {found[0].baseline}"] = f"{100 * ratio:.1f} %"
        rows.append(row)
    return rows


def footnotes(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    """Why kernels failed or were skipped; each degradation and note of the gate once, with what it concerns."""
    lines = [
        f"{m.kernel if m.shape else m.place or m.kernel}: {m.outcome}: {m.reason}"
        for m in measurements
        if m.status != "measured"
    ]
    if any(m.status == "measured" and not m.converged for m in measurements):
        lines.append("* the interval is wider than requested")
    concerned: dict[str, list[str]] = {}
    for m in measurements:
        noted = [stage["note"] for stage in (m.verdict or {}).get("stages", ()) if stage.get("note")]
        if m.status == "measured" and m.label not in ("", run.label_under(m.changed)):
            noted.append(m.label)
        for degradation in (*m.degradations, *noted):
            concerned.setdefault(degradation, []).append(m.title if m.shape else m.place)
    if off := [f"{m.title}: {m.sm_mhz:.0f}, {share:+.1%}" for m in measurements if (share := run.clock_off(m))]:
        lines.append(f"SM MHz far from this run's median, so compare at one clock ({'; '.join(off)})")
    count = sum(m.status == "measured" for m in measurements)
    for what, kernels in concerned.items():
        every = not measurements[0].shape and len(kernels) == count
        lines.append(what if every else f"{what} ({', '.join(dict.fromkeys(kernels))})")
    return lines + run.notes


def tables(run: Run) -> list[tuple[Table, Table | None]]:
    """A table for each size, or for each benchmark with its axes as columns, and beside it, its details; last, the
    means over the sizes.
    """
    groups: dict[tuple[Any, ...], list[Measurement]] = {}
    for m in run.select() or run.measurements:
        of = m.shape or (m.kernel, *m.axes)
        groups.setdefault((0 if m.shape is None else m.problem.flops, of, _changed(m)), []).append(m)
    found: list[tuple[Table, Table | None]] = []
    for (_, of, changed), measurements in sorted(groups.items(), key=lambda item: item[0][0]):
        title = (" × ".join(map(str, of)) if measurements[0].shape else str(of[0])) + changed
        rows: list[dict[str, Cell]] = []
        for m in measurements:
            row = cells(run, m) if m.shape else place_cells(m)
            share = f"of {m.baseline}"
            bar = {share: Bar(row[share], m.ratio if m.status == "measured" else None)} if share in row else {}
            others = {f"of {o.baseline}": cells(None, o) for o in run.against(m)}
            rows.append({**row, **bar, **{name: one["of cuBLAS"] or one["gate"] for name, one in others.items()}})
        left = 2 if measurements[0].shape else max(1, len(measurements[0].axes))
        always = COLUMNS.index("registers") + 1 if measurements[0].shape else left
        beside = [other for m in measurements for other in run.against(m) if other.status != "measured"]
        notes = footnotes(run, [*measurements, *beside])
        if not measurements[0].shape and len(found) < len(groups) - 1:  # those of the run, under its last benchmark
            notes = notes[: len(notes) - len(run.notes)]
        main = replace(_known(title, rows, always), left=left, notes=notes)
        found.append((main, _known(f"{title}, details", [details(m) for m in measurements])))
    over = means(run)
    title = "over the cases" if over and "cases" in over[0] else "over the sizes"
    return [*found, (_known(title, over), None)] if over else found


def _known(title: str, rows: Sequence[Mapping[str, Cell]], always: int = 1) -> Table:
    """A table without the columns that are empty in every row, but for the first ones."""
    names = dict.fromkeys(name for row in rows for name in row)
    known = [name for place, name in enumerate(names) if place < always or any(str(row.get(name, "")) for row in rows)]
    return Table.of(title, [{name: row.get(name, "") for name in known} for row in rows])


def text(run: Run, *, with_details: bool = False, width: int = WIDTH) -> str:
    """The measurements under the run's own harness as text for a terminal of `width` characters, a table a size."""
    parts = [run.full_label]
    for main, further in tables(run):
        parts.append(main.text(width))
        if with_details and further is not None:
            parts.append(further.text(width))
    return "\n".join(parts) + "\n"


def html(run: Run) -> str:
    """The same as HTML, with a bar for the share of cuBLAS; details are folded away."""
    parts = [f"<p>{escape(run.full_label)}</p>"]
    for main, further in tables(run):
        parts.append(replace(main, title=f"{main.title} · {run.label}").html())
        if further is not None:
            folded = replace(further, title=f"{further.title} · {run.label}").html()
            parts.append(f"<details><summary>details</summary>{folded}</details>")
    return "".join(parts)


def _changed(m: Measurement) -> str:
    return "".join(f", {setting} = {value}" for setting, value in m.changed.items())


def facts(m: Measurement) -> Table:
    """One measurement by itself: each fact with a bar where it is a share."""
    title = f"{m.title}{_changed(m)} · {m.label or NO_LABEL}"
    if m.status != "measured" or m.us is None:
        return Table(title, (), [(m.outcome, m.reason or "no reason given")], left=2)
    row, more = cells(None, m), details(m)
    parts = ", ".join(f"±{half} % of {part}" for part, half in _halves(m).items())
    rows: list[tuple[str, Cell]] = [
        ("gate", row["gate"]),
        ("time", f"{row['time']} ±{row['±95 %']} (95 %){parts and ': '}{parts}"),
        ("TFLOP/s", row["TFLOP/s"]),
        *((f"of {one.baseline}", Bar(cells(None, one)["of cuBLAS"], one.ratio)) for one in (m, *m.beside)),
        ("hot", more["hot"] and f"{more['hot']}, launches in a row with a warm L2"),
        ("energy", more["mJ"] and f"{more['mJ']} mJ a launch, {more['W']} W, {more['°C'] or '–'} °C"),
        ("of ceiling", Bar(row["of ceiling"], m.of_ceiling)),
        *((name, more[name]) for name in (() if m.shape else ("GB/s", "of copy", "items/s"))),
        *((name, more[name]) for name in more if m.datapath and name == f"of {m.datapath.upper()} peak"),
        ("SM MHz", row["SM MHz"]),
        ("samples", f"{m.n} of {len(m.samples.get('counts', []))} count{m.scatter}"),
        *(
            (name, found if isinstance(found, str) else f"{duration(found)}, warm L2")
            for name, found in m.witnesses.items()
        ),
        *(("degraded", degradation) for degradation in m.degradations),
    ]
    return Table(title, (), [fact for fact in rows if str(fact[1])], left=2)


def _halves(m: Measurement) -> dict[str, str]:
    """Percent of the parts of the time's interval that are known: launches, placements of the buffers, processes."""
    parts = {"launches": m.us_launches, "placement": m.us_placement}
    parts[process_label(m.samples.get("kernels", ()))] = m.us_process
    return {part: small(100 * half / m.us) for part, half in parts.items() if m.us is not None and half is not None}


def measurement_html(m: Measurement) -> str:
    """One measurement by itself for a notebook; the stages of the gate are folded away."""
    gate = f"<details><summary>the gate</summary>{verdict_table(m.verdict).html()}</details>" if m.verdict else ""
    return facts(m).html() + gate


def verdict_table(found: Mapping[str, Any], label: str = "") -> Table:
    """A verdict as a run file holds it: every stage with how much of its limit was used. label: where the kernel ran,
    if the surroundings do not say so.
    """
    rows = []
    for stage in found["stages"]:
        used = stage["measured"] / stage["limit"] if stage["limit"] else None
        margin = f"{stage['measured']:.4g} of {stage['limit']:.4g}" if stage["limit"] else ""
        word = "✓\u00a0passed" if stage["passed"] else "✗\u00a0failed"
        rows.append((stage["name"], word, Bar(margin, used, beyond=not stage["passed"]), stage["detail"]))
    result = f"passed as {found['precision']}" if found["accepted"] else "failed"
    seed = "" if found.get("seed") is None else f" · seed {found['seed']}"
    title = f"the gate: {result}{seed}" + (f" · {label}" if label else "")
    return Table(title, ("stage", "", "measured of limit", "detail"), rows, left=4)
