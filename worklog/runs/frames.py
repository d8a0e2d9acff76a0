"""A run as data frames, for pandas, and its kernels beside each other at every place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting
from worklog.problem import Shape
from worklog.runs.documents import write_text
from worklog.runs.estimates import Estimate, over_shapes
from worklog.runs.measurement import Measurement, share_cells
from worklog.runs.record import RunRecord
from worklog.runs.table import Bar, Cell, Table, duration
from worklog.runs.tables import footnotes, tables

if TYPE_CHECKING:
    import pandas

FASTEST, SAME, SLOWEST, OTHER = "+", "≈", "−", ""
LEGEND = (
    f"{FASTEST} fastest, {SLOWEST} slowest, {SAME} not visibly slower than it at one clock",
    "the intervals are of each kernel alone; where two alternated, the paired ratio is narrower",
)


def measurements(run: RunRecord) -> pandas.DataFrame:
    """One row per measurement, without raw samples: its kernel, m, n and k or the values of its axes (a column "axis
    us" for an axis that is called as another column), and all its numbers; for further baselines, a column "of NAME".
    clock_off: see Run.clock_off.

    Example, of the run's own harness:
    `run.frame().query("changed == ''").pivot(index="kernel", columns="n", values="us")`.
    """
    import pandas

    return pandas.DataFrame(rows(run))


def rows(run: RunRecord) -> list[dict[str, Any]]:
    """The rows of measurements(), each with all columns."""
    made = []
    for m in run.measurements:
        further = [(name, ratio) for name, ratio in m.against.items() if name != m.baseline]
        numbers: dict[str, Any] = {
            "status": m.status,
            "reason": m.reason,
            "changed": _changed(m),
            **_columns(m.time, us="value", us_low="low", us_high="high"),
            **_columns(m.time, us_launches="launches", us_placement="placement", us_process="process"),
            "overhead_us": m.overhead_us,
            "tflops": m.tflops,
            "baseline": m.baseline,
            **_columns(m.first, ratio="value", ratio_low="low", ratio_high="high"),
            **{f"of {name}": ratio.value if ratio else None for name, ratio in further},
            "of_ceiling": m.of_ceiling,
            "of_roof": m.of_roof,
            "datapath": m.roof.datapath if m.roof else None,
            "flops": m.work.flops,
            "elements": m.work.elements,
            "bytes_read": m.work.bytes_read,
            "bytes_written": m.work.bytes_written,
            "gbs": m.gbs,
            "of_copy": m.of_copy,
            "of_memory_peak": m.of_memory_peak,
            **_columns(m.hot, hot_us="value", hot_low="low", hot_high="high"),
            **_columns(m.hot_ratio, hot_ratio="value"),
            "joules": m.energy.joules if m.energy else None,
            "watts": m.energy.watts if m.energy else None,
            "celsius": m.energy.celsius if m.energy else None,
            "sm_mhz": m.sm_mhz,
            "throttle_mask": m.throttle_mask,
            "converged": m.converged,
            "precision": m.verdict.precision if m.verdict else None,
            "samples": m.n,
            "degradations": "; ".join(m.degradations),
            "source": m.label.partition(" · ")[0],
            "label": m.label,
            "clock_off": run.clock_off(m),
        }
        made.append({"kernel": m.kernel, **_place(m, numbers), **numbers})
    columns = dict.fromkeys(name for row in made for name in row)
    return [{name: row.get(name) for name in columns} for row in made]


def _columns(estimate: Estimate | None, **columns: str) -> dict[str, Any]:
    """Parts of an estimate under other names."""
    return {name: getattr(estimate, part, None) for name, part in columns.items()}


def samples(run: RunRecord) -> pandas.DataFrame:
    """One row per sample. of: "kernel" or "baseline" (further ones by name), "hot kernel" or "hot baseline" for
    launches in a row (one row per batch). number: in the order in which it was taken. us: microseconds of one launch,
    without the event overhead if the settings remove it; us_read: as it was read. counts: whether it is in the result.
    sm_mhz, placement: where they are known. Example, the standard deviation of each kernel at each size, by the run's
    own harness: `run.samples().query("counts and of == 'kernel' and changed == ''").groupby(["kernel", "n"]).us.std()`.
    """
    import pandas

    made = list[dict[str, Any]]()
    for m in run.measurements:
        place = _place(m, ("us", "us_read", "of", "number", "counts", "label"))
        head = {"kernel": m.kernel, **place, "changed": _changed(m), "against": m.baseline}
        for role, side in enumerate(m.samples.sides):
            of = ("kernel", "baseline")[role] if role < 2 else side.name
            for number, us in enumerate(side.us):
                mhz = side.sm_mhz[number] if side.sm_mhz else None
                placement = side.placement[number] if side.placement else None
                counts = number < len(m.samples.counts) and bool(m.samples.counts[number])
                read = {"us": round(us - m.overhead_us, 4), "us_read": us, "counts": counts}
                row = {"of": of, "number": number, **read, "sm_mhz": mhz, "placement": placement, "label": m.label}
                made.append(head | row)
            for number, us in enumerate(side.hot_us):
                made.append(head | {"of": f"hot {of}", "number": number, "us": us, "counts": True, "label": m.label})
    return pandas.DataFrame(made)


def _place(m: Measurement, taken: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    place = dict(zip("mnk", m.shape, strict=True)) if m.shape else m.axes
    return {f"axis {name}" if name in taken else name: value for name, value in place.items()}


def _changed(m: Measurement) -> str:
    return ", ".join(f"{name}={value}" for name, value in m.changed.items())


def pivot(run: RunRecord) -> Table:
    """Times of kernels (rows) at sizes or points of axes (columns), as torch's Compare shows them: in each column the
    fastest and the slowest are marked, and what can't be distinguished from the fastest.
    """
    shown = run.select() or run.measurements
    kernels, places = (list(dict.fromkeys(values)) for values in ([m.kernel for m in shown], [m.place for m in shown]))
    rows: list[dict[str, Cell]] = [{"kernel": kernel} for kernel in kernels]
    for place in places:
        there = {m.kernel: m for m in shown if m.place == place}
        timed = sorted((m for m in there.values() if m.us is not None), key=lambda m: m.us or 0.0)
        fastest, slowest = (timed[0], timed[-1]) if timed else (None, None)
        for row, kernel in zip(rows, kernels, strict=True):
            m = there.get(kernel)
            row[place or "time"] = "" if m is None else _cell(run, m, fastest, slowest)
    return Table.of(f"time · {run.label}", rows, notes=LEGEND)


def _cell(run: RunRecord, m: Measurement, fastest: Measurement | None, slowest: Measurement | None) -> Cell:
    if fastest is None or m.us is None:
        return m.status
    within = not run.difference(fastest, m).visible
    mark = OTHER
    if fastest is not slowest:
        mark = FASTEST if m is fastest else SAME if within else SLOWEST if m is slowest else OTHER
    return Bar(f"{mark} {duration(m.us, padded=True)}".strip(), (fastest.us or 0.0) / m.us)


def shares(run: RunRecord, kinds: Mapping[Shape, str] = MappingProxyType({})) -> Table:
    """Times of kernels (columns) at sizes (rows), with their shares of cuBLAS; below, each kernel's geometric mean and
    its lowest share. kinds: of the sizes, for a column; then only these sizes are shown, in this order.
    """
    shown = [m for m in run.select() or run.measurements if m.shape]
    places = kinds or dict.fromkeys(m.problem for m in shown)
    there = {(m.kernel, m.problem): m for m in shown if m.problem in places}
    kernels, rows = dict.fromkeys(kernel for kernel, _ in there), list[dict[str, Cell]]()
    for shape in places:
        row: dict[str, Cell] = {"size": str(shape), **({"kind": kinds[shape]} if kinds else {})}
        for kernel in kernels:
            m = there.get((kernel, shape))
            row[kernel], row[f"{kernel} of cuBLAS"] = ("" if m is None else m.status), ""
            if m is not None and m.us is not None and m.first is not None:
                row[kernel] = duration(m.us, padded=True)
                row[f"{kernel} of cuBLAS"] = share_cells(m)[f"of {m.baseline}"]
        rows.append(row)
    ratios = {name: [m.ratio for (kernel, _), m in there.items() if kernel == name and m.ratio] for name in kernels}
    for name, of in (("geometric mean", lambda values: over_shapes(values)[1]), ("lowest", min)):
        of_kernels = {f"{kernel} of cuBLAS": f"{100 * of(known):.1f} %" for kernel, known in ratios.items() if known}
        rows += [{**dict.fromkeys(rows[0], ""), "size": name, **of_kernels}] if of_kernels else []
    notes = footnotes(run, [*there.values()]) if there else []
    return Table.of(f"share of cuBLAS · {run.label}", rows, left=2 if kinds else 1, notes=notes)


def markdown(shown: RunRecord | pandas.DataFrame, title: str = "") -> str:
    """The tables of a run with their label and footnotes, or a data frame below its title, as Markdown."""
    import pandas

    if isinstance(shown, pandas.DataFrame):
        rows = [[*map(str, row)] for row in shown.itertuples(index=False)]
        return f"### {title}\n\n{Table(title, [*map(str, shown.columns)], rows).markdown()}\n"
    parts = [f"{shown.full_label}\n"]
    for table in filter(None, chain(*tables(shown))):
        notes = "".join(f"- {note}\n" for note in table.notes)
        parts.append(f"### {table.title}\n\n{table.markdown()}\n" + (f"\n{notes}" if notes else ""))
    return "\n".join(parts)


def export(
    shown: RunRecord | pandas.DataFrame, kind: str, path: Path, *, title: str = "", of_samples: bool = False
) -> None:
    """Write a run, or a data frame with its title, as "csv", "parquet" (of a run, one row per measurement, or per
    sample) or "markdown". Raises BadSetting where pandas has no library for Parquet, and BadRunFile where the file
    can't be written.
    """
    import pandas

    if kind == "markdown":
        write_text(path, markdown(shown, title))
        return
    if not isinstance(shown, pandas.DataFrame):
        shown = samples(shown) if of_samples else measurements(shown)
    if kind == "csv":
        write_text(path, shown.to_csv(index=False))
        return
    try:
        shown.to_parquet(path, index=False)
    except ImportError as error:
        raise BadSetting("--parquet: pandas has no library that writes it: pip install pyarrow") from error
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}; give --parquet another name") from error
