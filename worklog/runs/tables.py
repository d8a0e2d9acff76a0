"""A run as tables: one a size, or one a benchmark, with details and footnotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from worklog.runs.estimates import over_shapes
from worklog.runs.measurement import COLUMNS, Measurement, cells, changed_words, details, share_cells
from worklog.runs.record import RunRecord
from worklog.runs.table import WIDTH, Cell, Table, duration


def place_cells(m: Measurement) -> dict[str, Cell]:
    """The row of one point of a benchmark by column: its axes, its time, the rates of its work, and its baselines."""
    row, more = cells(m), details(m)
    rest: dict[str, Cell] = {
        "time": row["time"] if m.status == "measured" else m.status,
        "±95 %": row["±95 %"],
        "rate": more["rate"] if m.tflops else "",
        **{name: more[name] for name in ("GB/s", "items/s", "of copy", "hot")},
        **share_cells(m),
        "SM MHz": row["SM MHz"],
    }
    axes: dict[str, Cell] = {f"axis {name}" if name in rest else name: str(value) for name, value in m.axes.items()}
    return {**(axes or {"benchmark": m.kernel}), **rest}


def means(run: RunRecord) -> list[dict[str, str]]:
    """For each kernel measured at several sizes or cases of a problem: arithmetic means, which large ones dominate, and
    geometric means, in which all count alike. "sizes" or "cases" says over how many of the run's.
    """
    rows = []
    for kernel in dict.fromkeys(m.kernel for m in run.select()):
        every = [m for m in run.select(kernel) if m.shape or "case" in m.axes]
        timed = [m for m in every if m.status == "measured" and m.us and (m.ratio or not m.shape)]
        if len(timed) < 2:
            continue
        of_cases = timed[0].shape is None
        row = {"kernel": kernel, "sizes": f"{len(timed)} of {len(run.shapes())}"}
        if of_cases:
            mean, _ = over_shapes([m.us or 0.0 for m in timed])
            row = {"kernel": kernel, "cases": f"{len(timed)} of {len(every)}", "mean time": duration(mean)}
        if all(m.tflops for m in timed):
            mean, geometric = over_shapes([m.tflops or 0.0 for m in timed])
            digits = "#.3g" if of_cases else ".2f"  # a problem's rates differ by more than a kernel's
            row |= {"mean TFLOP/s": f"{mean:{digits}}", "geometric mean TFLOP/s": f"{geometric:{digits}}"}
        if all(m.ratio for m in timed):
            _, ratio = over_shapes([m.ratio or 0.0 for m in timed])
            row[f"geometric mean of {timed[0].baseline}"] = f"{100 * ratio:.1f} %"
        rows.append(row)
    return rows


def footnotes(run: RunRecord, measurements: Sequence[Measurement]) -> list[str]:
    """Why kernels failed or were skipped; each degradation and note of the gate once, with what it concerns."""
    lines = [
        f"{m.kernel if m.shape else m.place or m.kernel}: {m.status}: {m.reason}"
        for m in measurements
        if m.status != "measured"
    ]
    if any(m.status == "measured" and not m.converged for m in measurements):
        lines.append("* the interval is wider than requested")
    concerned: dict[str, list[str]] = {}
    for m in measurements:
        noted = [*m.verdict.notes] if m.verdict else []
        if m.status == "measured" and m.context not in (None, run.context):
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


def tables(run: RunRecord) -> list[tuple[Table, Table | None]]:
    """A table for each size, or for each benchmark with its axes as columns, and beside it, its details; last, the
    means over the sizes.
    """
    groups: dict[tuple[Any, ...], list[Measurement]] = {}
    for m in run.select() or run.measurements:
        of = m.shape or (m.kernel, *m.axes)
        groups.setdefault((0 if m.shape is None else m.problem.flops, of, changed_words(m)), []).append(m)
    shown: list[tuple[Table, Table | None]] = []
    for (_, of, changed), measurements in sorted(groups.items(), key=lambda item: item[0][0]):
        product = measurements[0].shape is not None
        title = (" × ".join(map(str, of)) if product else str(of[0])) + changed
        left, rows, notes = 2, [], footnotes(run, measurements)
        if product:
            rows = [cells(m, run.kernels.get(m.kernel, {}).get("registers")) for m in measurements]
        else:
            rows, left = [place_cells(m) for m in measurements], max(1, len(measurements[0].axes))
            if len(shown) < len(groups) - 1:  # those of the run stand under its last benchmark
                notes = notes[: len(notes) - len(run.notes)]
        main = replace(_known(title, rows, COLUMNS.index("registers") + 1 if product else left), left=left, notes=notes)
        shown.append((main, _known(f"{title}, details", [details(m) for m in measurements])))
    over = means(run)
    title = "over the cases" if over and "cases" in over[0] else "over the sizes"
    return [*shown, (_known(title, over), None)] if over else shown


def _known(title: str, rows: Sequence[Mapping[str, Cell]], always: int = 1) -> Table:
    """A table without the columns that are empty in every row, but for the first ones."""
    names = dict.fromkeys(name for row in rows for name in row)
    known = [name for place, name in enumerate(names) if place < always or any(str(row.get(name, "")) for row in rows)]
    return Table.of(title, [{name: row.get(name, "") for name in known} for row in rows])


def text(run: RunRecord, *, with_details: bool = False, width: int = WIDTH) -> str:
    """The measurements under the run's own harness as text for a terminal of `width` characters, a table a size."""
    parts = [run.full_label]
    for main, further in tables(run):
        parts.append(main.text(width))
        if with_details and further is not None:
            parts.append(further.text(width))
    return "\n".join(parts) + "\n"


def html(run: RunRecord) -> str:
    """The same as HTML, with a bar for the share of cuBLAS; details are folded away."""
    parts = [f"<p>{escape(run.full_label)}</p>"]
    for main, further in tables(run):
        parts.append(replace(main, title=f"{main.title} · {run.label}").html())
        if further is not None:
            folded = replace(further, title=f"{further.title} · {run.label}").html()
            parts.append(f"<details><summary>details</summary>{folded}</details>")
    return "".join(parts)
