"""A run as data frames, for pandas, and its kernels beside each other at every place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting
from worklog.runs.documents import without_nan, write_text
from worklog.runs.estimates import over_shapes
from worklog.runs.tables import Bar, Cell, Table, duration, footnotes, of_baseline, tables

if TYPE_CHECKING:
    import pandas

    from worklog.problem import Shape
    from worklog.runs.measurement import Measurement
    from worklog.runs.run import Run

SIDES = {"kernel": "", "baseline": "baseline_", "hot kernel": "hot_", "hot baseline": "hot_baseline_"}
NESTED = ("samples", "verdict", "shape", "axes", "changed", "degradations", "witnesses", "beside")
FASTEST, SAME, SLOWEST, OTHER = "+", "≈", "−", ""
LEGEND = (
    f"{FASTEST} fastest, {SLOWEST} slowest, {SAME} not visibly slower than it at one clock",
    "the intervals are of each kernel alone; where two alternated, the paired ratio is narrower",
)


def measurements(run: Run) -> pandas.DataFrame:
    """One row per measurement, without raw samples: its kernel, m, n and k or the values of its axes (a column "axis
    us" for an axis that is called as another column), and all its numbers. clock_off: see Run.clock_off.

    Example, of the run's own harness:
    `run.frame().query("changed == ''").pivot(index="kernel", columns="n", values="us")`.
    """
    import pandas

    return pandas.DataFrame(rows(run))


def rows(run: Run) -> list[dict[str, Any]]:
    """The rows of measurements(), each with all columns; NaN is None."""
    found = []
    for m in run.measurements:
        rest = {name: value for name, value in asdict(m).items() if name not in NESTED} | {
            "samples": m.n,
            "changed": _changed(m),
            "precision": (m.verdict or {}).get("precision"),
            "source": m.label.partition(" · ")[0],
            "degradations": "; ".join(m.degradations),
            "clock_off": run.clock_off(m),
        }
        found.append({"kernel": m.kernel, **_place(m, rest), **rest})
    columns = dict.fromkeys(name for row in found for name in row)
    return [{name: without_nan(row.get(name)) for name in columns} for row in found]


def samples(run: Run) -> pandas.DataFrame:
    """One row per sample. of: "kernel" or "baseline", "hot kernel" or "hot baseline" for launches in a row (one row per
    batch). number: in the order in which it was taken. us: microseconds of one launch, without the event overhead if
    the settings remove it; us_read: as it was read. counts: whether it is in the result. sm_mhz, placement: where they
    are known. Example, the standard deviation of each kernel at each size, by the run's own harness:
    `run.samples().query("counts and of == 'kernel' and changed == ''").groupby(["kernel", "n"]).us.std()`.
    """
    import pandas

    rows = list[dict[str, Any]]()
    for m in run.measurements:
        overhead = run.overhead_us(m)
        place = _place(m, ("us", "us_read", "of", "number", "counts", "label"))
        head = {"kernel": m.kernel, **place, "changed": _changed(m), "against": m.baseline}
        counted = m.samples.get("counts", [])
        for of, side in SIDES.items():
            columns = [m.samples.get(f"{side}{name}") or () for name in ("us", "sm_mhz", "placement")]
            for number, (us, mhz, placement) in enumerate(zip_longest(*columns)):
                counts = number < len(counted) and bool(counted[number])
                read = {"us": round(us - overhead, 4), "us_read": us, "counts": counts}
                row = {"of": of, "number": number} | ({"us": us, "counts": True} if "hot" in of else read)
                row |= {"sm_mhz": mhz, "placement": placement, "label": m.label}
                rows.append(head | row)
    return pandas.DataFrame(rows)


def _place(m: Measurement, taken: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    place = dict(zip("mnk", m.shape, strict=True)) if m.shape else m.axes
    return {f"axis {name}" if name in taken else name: value for name, value in place.items()}


def _changed(m: Measurement) -> str:
    return ", ".join(f"{name}={value}" for name, value in m.changed.items())


def pivot(run: Run) -> Table:
    """Times of kernels (rows) at sizes or points of axes (columns), as torch's Compare shows them: in each column the
    fastest and the slowest are marked, and what can't be distinguished from the fastest.
    """
    shown = run.select() or run.measurements
    kernels, places = (list(dict.fromkeys(values)) for values in ([m.kernel for m in shown], [m.place for m in shown]))
    rows: list[dict[str, Cell]] = [{"kernel": kernel} for kernel in kernels]
    for place in places:
        found = {m.kernel: m for m in shown if m.place == place}
        timed = [m for m in found.values() if m.us is not None and m.status == "measured"]
        ordered = sorted(timed, key=lambda m: m.us or 0.0)
        fastest, slowest = (ordered[0], ordered[-1]) if ordered else (None, None)
        for row, kernel in zip(rows, kernels, strict=True):
            m = found.get(kernel)
            row[place or "time"] = "" if m is None else _cell(run, m, fastest, slowest)
    return Table.of(f"time · {run.label}", rows, notes=LEGEND)


def _cell(run: Run, m: Measurement, fastest: Measurement | None, slowest: Measurement | None) -> Cell:
    if fastest is None or m.us is None or m.status != "measured":
        return m.outcome
    within = not run.difference(fastest, m).visible
    mark = OTHER
    if fastest is not slowest:
        mark = FASTEST if m is fastest else SAME if within else SLOWEST if m is slowest else OTHER
    return Bar(f"{mark} {duration(m.us, padded=True)}".strip(), (fastest.us or 0.0) / m.us)


def shares(run: Run, kinds: Mapping[Shape, str] = MappingProxyType({})) -> Table:
    """Times of kernels (columns) at sizes (rows), with their shares of cuBLAS; below, each kernel's geometric mean and
    its lowest share. kinds: of the sizes, for a column; then only these sizes are shown, in this order.
    """
    shown = [m for m in run.select() or run.measurements if m.shape]
    places = kinds or dict.fromkeys(m.problem for m in shown)
    found = {(m.kernel, m.problem): m for m in shown if m.problem in places}
    kernels, rows = dict.fromkeys(kernel for kernel, _ in found), list[dict[str, Cell]]()
    for shape in places:
        row: dict[str, Cell] = {"size": str(shape), **({"kind": kinds[shape]} if kinds else {})}
        for kernel in kernels:
            m, columns = found.get((kernel, shape)), (kernel, f"{kernel} of cuBLAS")
            words: tuple[Cell, Cell] = ("" if m is None else m.outcome, "")
            if m is not None and m.us is not None and m.ratio is not None:
                share = of_baseline(m.ratio, m.ratio_low, m.ratio_high)
                words = duration(m.us, padded=True), Bar(share, m.ratio)
            row.update(zip(columns, words, strict=True))
        rows.append(row)
    ratios = {name: [m.ratio for (one, _), m in found.items() if one == name and m.ratio] for name in kernels}
    for name, of in (("geometric mean", lambda found: over_shapes(found)[1]), ("lowest", min)):
        of_kernels = {f"{kernel} of cuBLAS": f"{100 * of(each):.1f} %" for kernel, each in ratios.items() if each}
        rows += [{**dict.fromkeys(rows[0], ""), "size": name, **of_kernels}] if of_kernels else []
    notes = footnotes(run, [*found.values()]) if found else []
    return Table.of(f"share of cuBLAS · {run.label}", rows, left=2 if kinds else 1, notes=notes)


def markdown(found: Run | pandas.DataFrame, title: str = "") -> str:
    """The tables of a run with their label and footnotes, or a data frame below its title, as Markdown."""
    import pandas

    if isinstance(found, pandas.DataFrame):
        rows = [[*map(str, row)] for row in found.itertuples(index=False)]
        return f"### {title}\n\n{Table(title, [*map(str, found.columns)], rows).markdown()}\n"
    parts = [f"{found.full_label}\n"]
    for table in filter(None, chain(*tables(found))):
        notes = "".join(f"- {note}\n" for note in table.notes)
        parts.append(f"### {table.title}\n\n{table.markdown()}\n" + (f"\n{notes}" if notes else ""))
    return "\n".join(parts)


def export(found: Run | pandas.DataFrame, kind: str, path: Path, *, title: str = "", of_samples: bool = False) -> None:
    """Write a run, or a data frame with its title, as "csv", "parquet" (of a run, one row per measurement, or per
    sample) or "markdown". Raises BadSetting where pandas has no library for Parquet, and BadRunFile where the file
    can't be written.
    """
    import pandas

    if kind == "markdown":
        write_text(path, markdown(found, title))
        return
    if not isinstance(found, pandas.DataFrame):
        found = samples(found) if of_samples else measurements(found)
    if kind == "csv":
        write_text(path, found.to_csv(index=False))
        return
    try:
        found.to_parquet(path, index=False)
    except ImportError as error:
        raise BadSetting("--parquet: pandas has no library that writes it: pip install pyarrow") from error
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}; give --parquet another name") from error
