"""A run as tables and as data frames."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, overload

from worklog.problem import BATCH_AXIS, Shape
from worklog.runs.measurement import (
    COLUMNS,
    CUBLAS,
    ENERGY_LABEL,
    Measurement,
    cells,
    changed_words,
    marked_time,
    part_at,
    same_card,
    share_cells,
)
from worklog.runs.run_file import RunRecord
from worklog.runs.statistics import LaunchSeries, Samples, over_shapes
from worklog.runs.text import WIDTH, Bar, Cell, Table, duration, format_signed

if TYPE_CHECKING:
    import pandas

    from worklog.plots import Plots

ABOVE = (
    "above the FP32 ceiling: on tensor cores, or with fewer multiply-adds than M·N·K; else "
    "the time is wrong"
)
REPR_LINES = 40
REPR_WIDTH = 120
FASTEST = "★"
SAME = "≈"
SLOWEST = "▼"
ON_ONE_CARD = "kernels are compared on one card"
LEGEND = (
    f"{FASTEST} fastest, {SLOWEST} slowest, {SAME} not visibly slower than it at one clock",
    "the intervals are of each kernel alone; where two alternated, the paired ratio is narrower",
)
ENERGY_COLUMNS = ("joules", "gflop_per_joule", "watts")
# Columns of a frame: fields of a measurement with the same name, and paths to other fields.
COLUMNS_OF_FRAME = (
    "status", "reason", "us", "us_low", "us_high", "tflops", "baseline", "ratio", "ratio_low", "ratio_high",
    "joules", "gflop_per_joule", "watts", "no_energy", "of_ceiling", "of_roof", "gbs", "of_copy", "of_memory_peak", "sm_mhz", "converged", "label",
)  # fmt: skip
PARTS = dict(
    us_process="time.process", datapath="roof.datapath",
    flops="work.flops", elements="work.elements", bytes_read="work.bytes_read", bytes_written="work.bytes_written",
    hot_us="hot.value", hot_low="hot.low", hot_high="hot.high", hot_ratio="hot_ratio.value",
    precision="verdict.precision", samples="samples.n", overhead_us="samples.overhead_us",
    throttle_mask="samples.throttle_mask",
)  # fmt: skip


class _Charts:
    """`run.plot`, the charts of a run. IPython can't complete names behind a property."""

    @overload
    def __get__(self, run: None, owner: type[Run]) -> Self: ...
    @overload
    def __get__(self, run: Run, owner: type[Run]) -> Plots: ...
    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        # Imported by name: the charts import this package, and matplotlib is slow to import.
        return self if run is None else import_module("worklog.plots").Plots(run)


@dataclass(frozen=True)
class _Subject:
    """What a table of a run is about: a shape, or a benchmark with its axes."""

    title: str
    flops: int = 0  # by which tables are ordered
    axes: tuple[str, ...] = ()
    left: int = 2  # columns of text
    least_columns: int = COLUMNS
    has_run_notes: bool = True  # also if it isn't the last table of its run


def _subject_of(m: Measurement) -> _Subject:
    """Return the subject of the table with a measurement."""
    if m.point.is_product:
        title = " × ".join(map(str, m.shape or ()))
        if m.problem.batch > 1:
            title += f", batch {m.problem.batch}"
        return _Subject(title, m.problem.flops)
    axes = tuple(m.axes)
    left = max(1, len(axes))
    return _Subject(m.kernel, 0, axes, left, least_columns=left, has_run_notes=False)


class Run(RunRecord):
    """Measurements with their provenance, which display themselves: see RunRecord."""

    plot = _Charts()

    def text(self, *, width: int = WIDTH) -> str:
        """Return the run's tables for a terminal of `width` characters."""
        return "\n".join([self.full_label, *(table.text(width) for table in self.tables())]) + "\n"

    __str__ = text

    def __repr__(self) -> str:
        """Return the beginning of the tables, at most REPR_LINES lines of REPR_WIDTH characters."""
        lines = list[str]()
        for line in self.text(width=REPR_WIDTH).splitlines():
            lines += textwrap.wrap(line, REPR_WIDTH, subsequent_indent="    ")
        if len(lines) > REPR_LINES:
            hidden = len(lines) - REPR_LINES + 1
            lines[REPR_LINES - 1 :] = [f"… {hidden} more lines: print(run) shows all"]
        return "\n".join(lines)

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def _repr_html_(self) -> str:
        tables = [
            replace(table, title=f"{table.title} · {self.label}").html() for table in self.tables()
        ]
        return "".join([f"<p>{escape(self.full_label)}</p>", *tables])

    def tables(self) -> list[Table]:
        """Return a table per size, or per benchmark with its axes as columns.

        The last table has the means over the sizes.
        """
        groups: dict[tuple[_Subject, str], list[Measurement]] = {}
        for m in self.select() or self.measurements:
            groups.setdefault((_subject_of(m), changed_words(m)), []).append(m)
        in_order = sorted(groups.items(), key=lambda item: item[0][0].flops)
        tables: list[Table] = []
        for (subject, changed), measurements in in_order:
            notes = self.footnotes(measurements)
            is_last = len(tables) == len(groups) - 1
            if not (is_last or subject.has_run_notes):
                notes = notes[: len(notes) - len(self.notes)]
            rows = [cells(m, self.kernels.get(m.kernel, {}).get("registers")) for m in measurements]
            table = _without_empty_columns(subject.title + changed, rows, subject.least_columns)
            tables.append(replace(table, left=subject.left, notes=notes))
        if means := self.means():
            title = "over the cases" if "cases" in means[0] else "over the sizes"
            tables.append(_without_empty_columns(title, means))
        return tables

    def means(self) -> list[dict[str, str]]:
        """Return the means of each kernel that was measured at several sizes or cases.

        Large sizes dominate arithmetic means; all sizes have the same weight in geometric means.
        "sizes" or "cases" is the number of them, and that of the run. If several cards measured
        them, each card has its own means.
        """
        parts = self.by_card()
        rows = []
        if len(parts) > 1:
            for part in parts:
                rows += [{"card": part.gpu.name, **row} for row in part.means()]
            return rows
        for kernel in dict.fromkeys(m.kernel for m in self.select()):
            measurements = [m for m in self.select(kernel) if m.shape or "case" in m.axes]
            timed = [m for m in measurements if _has_mean(m)]
            if len(timed) > 1:
                rows.append({"kernel": kernel, **self._means_of(timed, len(measurements))})
        return rows

    def _means_of(self, timed: Sequence[Measurement], cases: int) -> dict[str, str]:
        """Return the means of a kernel's times, rates and ratios.

        timed: its measurements that have a time
        cases: the number of all its measurements
        """
        is_of_cases = "case" in timed[0].axes
        if is_of_cases:
            mean, _ = over_shapes([m.us or 0.0 for m in timed])
            row = {"cases": f"{len(timed)} of {cases}", "mean time": duration(mean)}
        else:
            row = {"sizes": f"{len(timed)} of {len(self.shapes())}"}
        if all(m.tflops for m in timed):
            mean, geometric = over_shapes([m.tflops or 0.0 for m in timed])
            # The rates of a problem's cases differ by more than the rates of a kernel's sizes.
            digits = "#.3g" if is_of_cases else ".2f"
            row["mean TFLOP/s"] = f"{mean:{digits}}"
            row["geometric mean TFLOP/s"] = f"{geometric:{digits}}"
        if all(m.ratio for m in timed):
            _, ratio = over_shapes([m.ratio or 0.0 for m in timed])
            row[f"geometric mean of {timed[0].baseline}"] = f"{100 * ratio:.1f} %"
        for name in [*timed[0].against][1:]:
            estimates = [m.against.get(name) for m in timed]
            values = [estimate.value for estimate in estimates if estimate]
            if len(values) == len(timed):
                _, ratio = over_shapes(values)
                row[f"geometric mean of {name}"] = f"{100 * ratio:.1f} %"
        return row

    def footnotes(self, measurements: Sequence[Measurement]) -> list[str]:
        """Return the notes on measurements, and those of the run.

        These are the reasons of kernels that failed or were skipped, and each degradation and note
        of the gate once, with the kernels that it concerns.
        """
        lines = list[str]()
        subjects = dict[str, list[str]]()
        measured = [m for m in measurements if m.time]
        for m in measurements:
            if m.status != "measured":
                name = m.kernel if m.shape else m.place or m.kernel
                lines.append(f"{name}: {m.status}: {m.reason}")
            for remark in self._remarks(m):
                subjects.setdefault(remark, []).append(m.title if m.shape else m.place)
        if not all(m.converged for m in measured):
            lines.append("* the interval is wider than requested")
        clocks = []
        for m in measurements:
            share = self.clock_off(m)
            if share:
                clocks.append(f"{m.title}: {m.sm_mhz:.0f}, {format_signed(share)}")
        if clocks:
            lines.append(
                f"SM MHz far from this run's median, so compare at one clock ({'; '.join(clocks)})"
            )
        for remark, names in subjects.items():
            concerns_all = not measurements[0].shape and len(names) == len(measured)
            if concerns_all:
                lines.append(remark)
            else:
                lines.append(f"{remark} ({', '.join(dict.fromkeys(names))})")
        return lines + self.notes

    def _remarks(self, m: Measurement) -> list[str]:
        """Return the remarks on a measurement that other measurements may share."""
        remarks = [f"{name}: {choice}" for name, choice in m.choices.items()]
        remarks += m.degradations
        if m.baseline_remark:
            remarks.append(m.baseline_remark)
        if m.energy:
            remarks.append(f"energy: {m.no_energy}" if m.no_energy else ENERGY_LABEL)
        if m.verdict:
            remarks += m.verdict.notes
        if (m.of_ceiling or 0.0) > 1:
            remarks.append(ABOVE)
        if m.time and m.context not in (None, self.context):
            remarks.append(m.label)
        return remarks

    def frame(self) -> pandas.DataFrame:
        """Return a row per measurement, without raw samples.

        A row has the kernel, m, n and k (and the batch, if the run has batches) or the values of the axes, and all numbers. If another
        column has the name of an axis, the axis's column is "axis us", for example. For further
        baselines, there is a column "of NAME", and "algorithm of NAME" if one was chosen for it.
        clock_off: see clock_off().
        joules, gflop_per_joule, watts: of a launch in a row (see worklog.runs.Energy), NaN if
            no_energy says why

        Example, of the run's own harness:
        `run.frame().query("changed == ''").pivot(index="kernel", columns="n", values="us")`.
        """
        import pandas

        rows = self.rows()
        frame = pandas.DataFrame(rows, columns=None if rows else frame_columns())
        # Without any number, pandas would keep None, which isn't NaN.
        return frame.astype(dict.fromkeys(ENERGY_COLUMNS, float))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of frame(), each with all columns."""
        rows = list[dict[str, Any]]()
        has_batches = any(m.shape and m.problem.batch > 1 for m in self.measurements)
        for m in self.measurements:
            numbers = {name: getattr(m, name) for name in COLUMNS_OF_FRAME}
            numbers["changed"] = _changed(m)
            numbers |= {name: part_at(m, path) for name, path in PARTS.items()}
            for name, ratio in [*m.against.items()][1:]:
                numbers[f"of {name}"] = ratio.value if ratio else ratio
            for name, choice in m.choices.items():
                numbers[f"algorithm of {name}"] = str(choice.algorithm)
            numbers["degradations"] = "; ".join(m.degradations)
            numbers["source"] = m.label.partition(" · ")[0]
            numbers["clock_off"] = self.clock_off(m)
            place = _place(m, numbers)
            if has_batches and m.shape:
                place[BATCH_AXIS] = m.problem.batch
            rows.append({"kernel": m.kernel, **place, **numbers})
        columns = dict[str, None]()
        for row in rows:
            columns |= dict.fromkeys(row)
        return [{name: row.get(name) for name in columns} for row in rows]

    def samples(self) -> pandas.DataFrame:
        """Return a row per sample.

        of: "kernel" or "baseline" (further baselines by name), "hot kernel" or "hot baseline" for
            back-to-back launches, which have a row per batch
        number: in the order in which the samples were taken
        us: microseconds of a launch, without the event overhead if the settings remove it
        us_read: as it was read
        counts: whether the sample is in the result
        sm_mhz, placement: if they are known

        Example, the standard deviation of each kernel at each size, by the run's own harness:
        `run.samples().query("counts and of == 'kernel' and changed == ''").groupby(["kernel",
        "n"]).us.std()`.
        """
        import pandas

        rows = list[dict[str, Any]]()
        for m in self.measurements:
            place = _place(m, ("us", "us_read", "of", "number", "counts", "label"))
            head = {"kernel": m.kernel, **place, "changed": _changed(m), "against": m.baseline}
            for number, side in enumerate(m.samples.sides):
                role = ("kernel", "baseline")[number] if number < 2 else side.name
                side_rows = _sample_rows(m.samples, side, role)
                rows += [head | row | {"label": m.label} for row in side_rows]
        return pandas.DataFrame(rows)

    def pivot(self) -> Table:
        """Return the times of kernels (rows) at sizes or points of axes (columns).

        As in torch's Compare, the fastest and the slowest of each column are marked, and those
        that can't be distinguished from the fastest.
        """
        measurements = self.select() or self.measurements
        names = self.rows_of(measurements)
        rows: dict[str, dict[str, Cell]] = {name: {"kernel": name} for name in names}
        for place in dict.fromkeys(m.place for m in measurements):
            by_name = {
                name: m for name, m in zip(names, measurements, strict=True) if m.place == place
            }
            timed = [m for m in by_name.values() if m.us is not None]
            timed.sort(key=lambda m: m.us or 0.0)
            for name, row in rows.items():
                m = by_name.get(name)
                row[place or "time"] = "" if m is None else self._pivot_cell(m, timed)
        cards = [part.gpu.name for part in self.by_card()]
        notes = (*LEGEND, f"{ON_ONE_CARD}: {', '.join(cards)}") if len(cards) > 1 else LEGEND
        return Table.of(f"time · {self.label}", [*rows.values()], notes=notes)

    def _pivot_cell(self, m: Measurement, timed: Sequence[Measurement]) -> Cell:
        """Return a measurement's time with its mark, or its status.

        timed: the measurements of its column that have a time, fastest first
        """
        if m.us is None:
            return m.status
        rivals = [rival for rival in timed if same_card(m, rival)]
        fastest = rivals[0]
        mark = ""
        if m is fastest:
            mark = FASTEST if len(rivals) > 1 else ""
        elif not self.difference(fastest, m).visible:
            mark = SAME
        elif m is rivals[-1]:
            mark = SLOWEST
        return Bar(f"{mark} {duration(m.us, padded=True)}".strip(), (fastest.us or 0.0) / m.us)

    def shares(self, kinds: Mapping[Shape, str] = MappingProxyType({})) -> Table:
        """Return the times and shares of cuBLAS of kernels (columns) at sizes (rows).

        The last rows have each kernel's geometric mean and its lowest share. Further baselines have
        columns of their own, and are named in the title.

        kinds: the kinds of the sizes, for a column; the table has only these sizes, in this order
        """
        measurements = [m for m in self.select() or self.measurements if m.shape]
        if kinds:
            measurements = [m for m in measurements if m.problem in kinds]
        names = self.rows_of(measurements)
        by_place = {(name, m.problem): m for name, m in zip(names, measurements, strict=True)}
        baselines = _baselines(names, measurements)
        rows = list[dict[str, Cell]]()
        for shape in kinds or dict.fromkeys(m.problem for m in measurements):
            row: dict[str, Cell] = {"size": str(shape)}
            if kinds:
                row["kind"] = kinds[shape]
            for kernel in dict.fromkeys(names):
                row |= _share_cells_at(kernel, by_place.get((kernel, shape)), baselines[kernel])
            rows.append(row)
        ratios, mixed = _ratios_on_a_card(names, measurements, baselines)
        rows += _summary_rows(ratios, rows)
        notes = self.footnotes(measurements) if measurements else []
        if mixed:
            notes.append(f"no mean of several cards: {', '.join(mixed)}")
        in_title = {CUBLAS: None}
        for of_kernel in baselines.values():
            in_title.update(of_kernel)
        return Table.of(
            f"share of {', of '.join(in_title)} · {self.label}",
            rows,
            left=2 if kinds else 1,
            notes=notes,
        )


def frame_columns() -> list[str]:
    """Return the columns that every frame of matrix products has."""
    derived = ["degradations", "source", "clock_off"]
    return ["kernel", *"mnk", *COLUMNS_OF_FRAME, "changed", *PARTS, *derived]


def _has_mean(m: Measurement) -> bool:
    """Return whether a measurement has the numbers that means are made of."""
    return bool(m.status == "measured" and m.us and (m.ratio or not m.shape))


def _sample_rows(samples: Samples, side: LaunchSeries, role: str) -> list[dict[str, Any]]:
    """Return a row per sample of a side, and per batch of back-to-back launches."""
    rows = list[dict[str, Any]]()
    for number, us in enumerate(side.us):
        rows.append(
            {
                "of": role,
                "number": number,
                "us": round(us - samples.overhead_us, 4),
                "us_read": us,
                "counts": number < len(samples.counts) and bool(samples.counts[number]),
                "sm_mhz": side.sm_mhz[number] if side.sm_mhz else None,
                "placement": side.placement[number] if side.placement else None,
            }
        )
    for number, us in enumerate(side.hot_us):
        rows.append({"of": f"hot {role}", "number": number, "us": us, "counts": True})
    return rows


def _baselines(
    names: Sequence[str], measurements: Sequence[Measurement]
) -> dict[str, dict[str, None]]:
    """Return the baselines of each kernel, cuBLAS first.

    names: of the measurements
    """
    baselines = dict[str, dict[str, None]]()
    for name, m in zip(names, measurements, strict=True):
        baselines.setdefault(name, {CUBLAS: None}).update(dict.fromkeys(m.against))
    return baselines


def _share_cells_at(
    kernel: str, m: Measurement | None, baselines: Collection[str]
) -> dict[str, Cell]:
    """Return the cells of a kernel at a size: its time or its status, and its shares."""
    row: dict[str, Cell] = {kernel: "" if m is None else m.status}
    row |= {f"{kernel} of {name}": "" for name in baselines}
    if m is not None and m.us is not None and m.first is not None:
        row[kernel] = marked_time(m.us, is_converged=m.converged)
        row |= {f"{kernel} {column}": cell for column, cell in share_cells(m).items()}
    return row


def _ratios_on_a_card(
    names: Sequence[str],
    measurements: Sequence[Measurement],
    baselines: Mapping[str, Collection[str]],
) -> tuple[dict[str, list[float]], list[str]]:
    """Return the ratios of each kernel that a single card measured, and the other kernels.

    The ratios are by column: a kernel and a baseline.

    names: of the measurements
    baselines: of each kernel
    """
    ratios = dict[str, list[float]]()
    mixed = list[str]()
    for kernel in dict.fromkeys(names):
        of_kernel = [
            m for name, m in zip(names, measurements, strict=True) if name == kernel and m.ratio
        ]
        if not all(same_card(of_kernel[0], m) for m in of_kernel):
            mixed.append(kernel)
            continue
        for baseline in baselines[kernel]:
            estimates = [m.against.get(baseline) for m in of_kernel]
            values = [estimate.value for estimate in estimates if estimate]
            ratios[f"{kernel} of {baseline}"] = values
    return ratios, mixed


def _summary_rows(
    ratios: Mapping[str, Sequence[float]], rows: Sequence[Mapping[str, Cell]]
) -> list[dict[str, Cell]]:
    """Return rows with the geometric mean and the lowest of each kernel's ratios, if any.

    ratios: by column
    rows: those of the sizes
    """
    if not any(ratios.values()):
        return []
    summaries = list[dict[str, Cell]]()
    for name in ("geometric mean", "lowest"):
        summary: dict[str, Cell] = {**dict.fromkeys(rows[0], ""), "size": name}
        for column, values in ratios.items():
            if not values:
                continue
            share = min(values) if name == "lowest" else over_shapes(values)[1]
            number = f" at {len(values)} of {len(rows)}" if len(values) < len(rows) else ""
            summary[column] = f"{100 * share:.1f} %{number}"
        summaries.append(summary)
    return summaries


def _without_empty_columns(
    title: str, rows: Sequence[Mapping[str, Cell]], least_columns: int = 1
) -> Table:
    """Return a table without the columns that are empty in every row.

    least_columns: the number of leading columns that are kept
    """
    names = dict[str, None]()
    for row in rows:
        names |= dict.fromkeys(row)
    columns = [
        name
        for number, name in enumerate(names)
        if number < least_columns or any(str(row.get(name, "")) for row in rows)
    ]
    return Table.of(title, [{name: row.get(name, "") for name in columns} for row in rows])


def _changed(m: Measurement) -> str:
    """Return the settings of a measurement that differ from the run's."""
    return ", ".join(f"{name}={value}" for name, value in m.changed.items())


def _place(m: Measurement, columns: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
    """Return the sizes or axes of a measurement, with names that differ from other columns."""
    place = dict(zip("mnk", m.shape, strict=True)) if m.shape else m.axes
    return {f"axis {name}" if name in columns else name: value for name, value in place.items()}
