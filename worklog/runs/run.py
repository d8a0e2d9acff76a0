"""Runs, as a user meets them: found on this machine or in the package, shown as tables, and as data frames."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from importlib import import_module, resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, WorklogError, listed, meant
from worklog.problem import Shape
from worklog.runs.documents import WIDTH, BadRunFile, Bar, Cell, Table, a_few, duration, git, signed
from worklog.runs.estimates import over_shapes
from worklog.runs.measurement import (
    COLUMNS,
    Measurement,
    at,
    cells,
    changed_words,
    same_card,
    share_cells,
)
from worklog.runs.record import RunRecord, runs_dir

if TYPE_CHECKING:
    import pandas

ABOVE = "above the FP32 ceiling: on tensor cores, or with fewer multiply-adds than M·N·K; else the time is wrong"
CHAPTERS = "chapters"  # the recordings of the rungs past the article's ladder
FASTEST = "+"
SAME = "≈"
SLOWEST = "−"
ON_ONE_CARD = "kernels are compared on one card"
LEGEND = (
    f"{FASTEST} fastest, {SLOWEST} slowest, {SAME} not visibly slower than it at one clock",
    "the intervals are of each kernel alone; where two alternated, the paired ratio is narrower",
)
# Columns of a frame: those that a measurement calls the same, and those that it has in a part.
COLUMNS_OF_FRAME = (
    "status", "reason", "us", "us_low", "us_high", "tflops", "baseline", "ratio", "ratio_low", "ratio_high",
    "of_ceiling", "of_roof", "gbs", "of_copy", "of_memory_peak", "sm_mhz", "converged", "label",
)  # fmt: skip
PARTS = dict(
    us_process="time.process", datapath="roof.datapath",
    flops="work.flops", elements="work.elements", bytes_read="work.bytes_read", bytes_written="work.bytes_written",
    hot_us="hot.value", hot_low="hot.low", hot_high="hot.high", hot_ratio="hot_ratio.value",
    precision="verdict.precision", samples="samples.n", overhead_us="samples.overhead_us",
    throttle_mask="samples.throttle_mask",
)  # fmt: skip


class _Charts:
    """`run.plot`, the charts of a run. Not a property, behind which IPython completes nothing."""

    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        # By name: this room lies below the charts, and matplotlib is slow to import.
        return self if run is None else import_module("worklog.plots").Plots(run)


class Run(RunRecord):
    """Measurements plus provenance: see RunRecord. It shows itself, and grows in its file."""

    plot = _Charts()

    def text(self, *, width: int = WIDTH) -> str:
        """The measurements under the run's own harness as text for a terminal of `width` characters, a table a size."""
        return "\n".join([self.full_label, *(table.text(width) for table in self.tables())]) + "\n"

    __repr__ = text

    def _repr_html_(self) -> str:
        tables = [
            replace(table, title=f"{table.title} · {self.label}").html() for table in self.tables()
        ]
        return "".join([f"<p>{escape(self.full_label)}</p>", *tables])

    def tables(self) -> list[Table]:
        """A table for each size, or for each benchmark with its axes as columns; last, the means over the sizes."""
        groups: dict[tuple[Any, ...], list[Measurement]] = {}
        for m in self.select() or self.measurements:
            of = m.shape or (m.kernel, *m.axes)
            groups.setdefault(
                (0 if m.shape is None else m.problem.flops, of, changed_words(m)), []
            ).append(m)
        shown: list[Table] = []
        for (_, of, changed), measurements in sorted(groups.items(), key=lambda item: item[0][0]):
            title = " × ".join(map(str, of)) + changed
            notes = self.footnotes(measurements)
            first = measurements[0]
            left = 2
            always = COLUMNS
            if first.shape is None:
                title = str(of[0]) + changed
                left = max(1, len(first.axes))
                always = left
                if len(shown) < len(groups) - 1:  # those of the run stand under its last benchmark
                    notes = notes[: len(notes) - len(self.notes)]
            rows = [cells(m, self.kernels.get(m.kernel, {}).get("registers")) for m in measurements]
            shown.append(replace(_known(title, rows, always), left=left, notes=notes))
        if over := self.means():
            shown.append(_known("over the cases" if "cases" in over[0] else "over the sizes", over))
        return shown

    def means(self) -> list[dict[str, str]]:
        """For each kernel measured at several sizes or cases of a problem: arithmetic means, which large ones dominate,
        and geometric means, in which all count alike. "sizes" or "cases" says over how many of the run's. If several
        cards measured them, each has means of its own.
        """
        parts = self.by_card()
        if len(parts) > 1:
            return [{"card": part.gpu.name, **row} for part in parts for row in part.means()]
        rows = []
        for kernel in dict.fromkeys(m.kernel for m in self.select()):
            every = [m for m in self.select(kernel) if m.shape or "case" in m.axes]
            timed = [
                m for m in every if m.status == "measured" and m.us and (m.ratio or not m.shape)
            ]
            if len(timed) < 2:
                continue
            of_cases = timed[0].shape is None
            row = {"kernel": kernel, "sizes": f"{len(timed)} of {len(self.shapes())}"}
            if of_cases:
                mean, _ = over_shapes([m.us or 0.0 for m in timed])
                row = {
                    "kernel": kernel,
                    "cases": f"{len(timed)} of {len(every)}",
                    "mean time": duration(mean),
                }
            if all(m.tflops for m in timed):
                mean, geometric = over_shapes([m.tflops or 0.0 for m in timed])
                digits = (
                    "#.3g" if of_cases else ".2f"
                )  # a problem's rates differ by more than a kernel's
                row |= {
                    "mean TFLOP/s": f"{mean:{digits}}",
                    "geometric mean TFLOP/s": f"{geometric:{digits}}",
                }
            if all(m.ratio for m in timed):
                _, ratio = over_shapes([m.ratio or 0.0 for m in timed])
                row[f"geometric mean of {timed[0].baseline}"] = f"{100 * ratio:.1f} %"
            rows.append(row)
        return rows

    def footnotes(self, measurements: Sequence[Measurement]) -> list[str]:
        """Why kernels failed or were skipped; each degradation and note of the gate once, with what it concerns."""
        lines = list[str]()
        concerned = dict[str, list[str]]()
        measured = [m for m in measurements if m.time]
        for m in measurements:
            if m.status != "measured":
                lines.append(
                    f"{m.kernel if m.shape else m.place or m.kernel}: {m.status}: {m.reason}"
                )
            above = [ABOVE] if (m.of_ceiling or 0.0) > 1 else []
            elsewhere = [m.label] if m.time and m.context not in (None, self.context) else []
            for said in (
                *m.degradations,
                *(m.verdict.notes if m.verdict else ()),
                *above,
                *elsewhere,
            ):
                concerned.setdefault(said, []).append(m.title if m.shape else m.place)
        if not all(m.converged for m in measured):
            lines.append("* the interval is wider than requested")
        if off := [
            f"{m.title}: {m.sm_mhz:.0f}, {signed(share)}"
            for m in measurements
            if (share := self.clock_off(m))
        ]:
            lines.append(
                f"SM MHz far from this run's median, so compare at one clock ({'; '.join(off)})"
            )
        for said, kernels in concerned.items():
            every = not measurements[0].shape and len(kernels) == len(measured)
            lines.append(said if every else f"{said} ({', '.join(dict.fromkeys(kernels))})")
        return lines + self.notes

    def frame(self) -> pandas.DataFrame:
        """One row per measurement, without raw samples: its kernel, m, n and k or the values of its axes (a column
        "axis us" for an axis that is called as another column), and all its numbers; for further baselines, a column
        "of NAME". clock_off: see clock_off().

        Example, of the run's own harness:
        `run.frame().query("changed == ''").pivot(index="kernel", columns="n", values="us")`.
        """
        import pandas

        return pandas.DataFrame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The rows of frame(), each with all columns."""
        made = list[dict[str, Any]]()
        for m in self.measurements:
            numbers = {name: getattr(m, name) for name in COLUMNS_OF_FRAME} | {
                "changed": _changed(m)
            }
            numbers |= {name: at(m, path) for name, path in PARTS.items()}
            numbers |= {
                f"of {name}": ratio and ratio.value for name, ratio in [*m.against.items()][1:]
            }
            numbers |= {
                "degradations": "; ".join(m.degradations),
                "source": m.label.partition(" · ")[0],
            }
            numbers["clock_off"] = self.clock_off(m)
            made.append({"kernel": m.kernel, **_place(m, numbers), **numbers})
        columns = dict.fromkeys(name for row in made for name in row)
        return [{name: row.get(name) for name in columns} for row in made]

    def samples(self) -> pandas.DataFrame:
        """One row per sample. of: "kernel" or "baseline" (further ones by name), "hot kernel" or "hot baseline" for
        launches in a row (one row per batch). number: in the order in which it was taken. us: microseconds of one
        launch, without the event overhead if the settings remove it; us_read: as it was read. counts: whether it is in
        the result. sm_mhz, placement: where they are known. Example, the standard deviation of each kernel at each
        size, by the run's own harness:
        `run.samples().query("counts and of == 'kernel' and changed == ''").groupby(["kernel", "n"]).us.std()`.
        """
        import pandas

        made = list[dict[str, Any]]()
        for m in self.measurements:
            place = _place(m, ("us", "us_read", "of", "number", "counts", "label"))
            head = {"kernel": m.kernel, **place, "changed": _changed(m), "against": m.baseline}
            for role, side in enumerate(m.samples.sides):
                of = ("kernel", "baseline")[role] if role < 2 else side.name
                for number, us in enumerate(side.us):
                    row = {
                        "of": of,
                        "number": number,
                        "us": round(us - m.samples.overhead_us, 4),
                        "us_read": us,
                    }
                    row["counts"] = number < len(m.samples.counts) and bool(
                        m.samples.counts[number]
                    )
                    row["sm_mhz"] = side.sm_mhz[number] if side.sm_mhz else None
                    row["placement"] = side.placement[number] if side.placement else None
                    made.append(head | row | {"label": m.label})
                for number, us in enumerate(side.hot_us):
                    row = {
                        "of": f"hot {of}",
                        "number": number,
                        "us": us,
                        "counts": True,
                        "label": m.label,
                    }
                    made.append(head | row)
        return pandas.DataFrame(made)

    def pivot(self) -> Table:
        """Times of kernels (rows) at sizes or points of axes (columns), as torch's Compare shows them: in each column
        the fastest and the slowest are marked, and what can't be distinguished from the fastest.
        """
        shown = self.select() or self.measurements
        names = self.rows_of(shown)
        rows: dict[str, dict[str, Cell]] = {name: {"kernel": name} for name in names}
        for place in dict.fromkeys(m.place for m in shown):
            there = {name: m for name, m in zip(names, shown, strict=True) if m.place == place}
            every = sorted(
                (m for m in there.values() if m.us is not None), key=lambda m: m.us or 0.0
            )
            for name, row in rows.items():
                m = there.get(name)
                row[place or "time"] = "" if m is None else m.status
                if m is not None and m.us is not None:
                    timed = [other for other in every if same_card(m, other)]
                    mark = SLOWEST if m is timed[-1] else ""
                    if m is timed[0]:
                        mark = FASTEST if len(timed) > 1 else ""
                    elif not self.difference(timed[0], m).visible:
                        mark = SAME
                    row[place or "time"] = Bar(
                        f"{mark} {duration(m.us, padded=True)}".strip(), (timed[0].us or 0.0) / m.us
                    )
        cards = [part.gpu.name for part in self.by_card()]
        notes = (*LEGEND, f"{ON_ONE_CARD}: {', '.join(cards)}") if len(cards) > 1 else LEGEND
        return Table.of(f"time · {self.label}", [*rows.values()], notes=notes)

    def shares(self, kinds: Mapping[Shape, str] = MappingProxyType({})) -> Table:
        """Times of kernels (columns) at sizes (rows), with their shares of cuBLAS; below, each kernel's geometric mean
        and its lowest share. kinds: of the sizes, for a column; then only these sizes are shown, in this order.
        """
        shown = [
            m
            for m in self.select() or self.measurements
            if m.shape and (not kinds or m.problem in kinds)
        ]
        names = self.rows_of(shown)
        there = {(name, m.problem): m for name, m in zip(names, shown, strict=True)}
        kernels = dict.fromkeys(names)
        rows = list[dict[str, Cell]]()
        for shape in kinds or dict.fromkeys(m.problem for m in shown):
            row: dict[str, Cell] = {"size": str(shape), **({"kind": kinds[shape]} if kinds else {})}
            for kernel in kernels:
                m = there.get((kernel, shape))
                row |= {kernel: "" if m is None else m.status, f"{kernel} of cuBLAS": ""}
                if m is not None and m.us is not None and m.first is not None:
                    row[kernel] = duration(m.us, padded=True)
                    row[f"{kernel} of cuBLAS"] = share_cells(m)[f"of {m.baseline}"]
            rows.append(row)
        ratios = dict[str, list[float]]()
        mixed = list[str]()
        for kernel in kernels:
            own = [m for name, m in zip(names, shown, strict=True) if name == kernel and m.ratio]
            if all(same_card(own[0], m) for m in own):
                ratios[kernel] = [m.ratio for m in own if m.ratio]
            else:
                mixed.append(kernel)
        sizes = len(rows)
        for name in ("geometric mean", "lowest") if any(ratios.values()) else ():
            below: dict[str, Cell] = {**dict.fromkeys(rows[0], ""), "size": name}
            for kernel, values in ratios.items():
                if values:
                    share = min(values) if name == "lowest" else over_shapes(values)[1]
                    of_these = f" at {len(values)} of {sizes}" if len(values) < sizes else ""
                    below[f"{kernel} of cuBLAS"] = f"{100 * share:.1f} %{of_these}"
            rows.append(below)
        notes = self.footnotes(shown) if shown else []
        if mixed:
            notes.append(f"no mean of several cards: {', '.join(mixed)}")
        return Table.of(
            f"share of cuBLAS · {self.label}", rows, left=2 if kinds else 1, notes=notes
        )


def _known(title: str, rows: Sequence[Mapping[str, Cell]], always: int = 1) -> Table:
    """A table without the columns that are empty in every row, but for the first ones."""
    names = dict.fromkeys(name for row in rows for name in row)
    known = [
        name
        for place, name in enumerate(names)
        if place < always or any(str(row.get(name, "")) for row in rows)
    ]
    return Table.of(title, [{name: row.get(name, "") for name in known} for row in rows])


def _changed(m: Measurement) -> str:
    return ", ".join(f"{name}={value}" for name, value in m.changed.items())


def _place(m: Measurement, taken: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
    place = dict(zip("mnk", m.shape, strict=True)) if m.shape else m.axes
    return {f"axis {name}" if name in taken else name: value for name, value in place.items()}


def live_runs() -> list[Path]:
    """Run files of this machine, newest first."""
    return _files(runs_dir())[::-1]


def kept_runs() -> Iterator[Run]:
    """The runs of this machine, newest first. One that can't be read is skipped with a warning that names it."""
    for path in live_runs():
        try:
            yield Run.load(path)
        except BadRunFile as error:
            if path.exists():  # it wasn't removed meanwhile
                warnings.warn(f"skipped a run of this machine: {error}; or remove it", stacklevel=3)


def recordings(part: str = "") -> dict[str, Path]:
    """Shipped runs by name, or the documents of a part: CHAPTERS, "grid", "sweeps", "peers", "turns", ..."""
    return {
        path.stem: path
        for path in _files(Path(str(resources.files("worklog"))) / "recordings" / part)
    }


def _files(folder: Path) -> list[Path]:
    """Those of JSON and of JSON Lines, by name; none that is half written, or claimed and still empty."""
    files = list[Path]()
    for path in folder.glob("*.json*"):
        with suppress(FileNotFoundError):  # another process has removed it
            if path.suffix in (".json", ".jsonl") and path.stat().st_size:
                files.append(path)
    return sorted(files)


def forced_source() -> str:
    """What WORKLOG_SOURCE forces: "live", "recorded" or "". Raises WorklogError for any other value."""
    source = os.environ.get("WORKLOG_SOURCE", "")
    if source not in ("", "live", "recorded"):
        raise WorklogError(
            f"WORKLOG_SOURCE={source} is not a source: set it to live or recorded, or unset it"
        )
    return source


def open_run(
    name: str | Path | None = None, *, kernels: Iterable[str] | str = (), shape: Any = None
) -> Run:
    """A run by the name of its file, by a part of the name that `worklog log` prints, by the name of a recording of the
    package, or of a file in a git revision as REVISION:PATH; without a name, the newest run of this machine that has
    these kernels and a time at this shape, else a recording that has. Its label says which. shape: as for
    worklog.measure (default: any).

    WORKLOG_SOURCE=live or =recorded forces one. Raises BadRunFile if there is none, and BadSetting.
    """
    if name is not None:
        return _named(str(name))
    names, shape = listed("kernels", kernels), None if shape is None else Shape.of(shape)

    def holds(run: Run) -> bool:
        timed = shape is None or any(m.us for m in run.select(shape=shape))
        return timed and all(run.select(name, shape) for name in names)

    if not holds(run := newest_run(holds)):
        raise BadRunFile(
            f"no run holds {', '.join(names) or 'a time'} at {shape or 'any size'}: measure it on a GPU"
        )
    return run


def _named(word: str) -> Run:
    if Path(word).is_file():
        return Run.load(word)
    kept = [path for path in live_runs() if word and word in path.stem]
    if len(kept) > 1:
        raise BadSetting(
            f"{word} names {len(kept)} runs ({a_few(path.stem for path in kept)}): give more of the name"
        )
    shipped = recordings(CHAPTERS) | recordings()
    if kept or word in shipped:
        return Run.load(kept[0]) if kept else Run.load(shipped[word], "recorded")
    if ":" in word:
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(git("show", word))
            file.flush()
            try:
                return Run.load(file.name)
            except BadRunFile as error:
                raise BadRunFile(str(error).replace(file.name, word)) from error
    if word and Path(word).exists():
        kind = "a folder" if Path(word).is_dir() else "a pipe or a device"
        raise BadSetting(f"{word} is {kind}, not a run: give the file of a run")
    near = meant(word, [path.stem for path in live_runs()] + [*shipped])
    advice = f"give a file, a name of `worklog log`, a recording ({', '.join(shipped)}), or REVISION:PATH"
    raise BadSetting(f"there is no run {word!r}{near}: {advice}")


def newest_run(holds: Callable[[Run], object] = lambda run: True) -> Run:
    """The newest run of this machine that `holds` what is asked, else a recording that does, else the article's.
    WORKLOG_SOURCE forces one; raises BadRunFile if there is none.
    """
    forced = forced_source()
    for run in () if forced == "recorded" else kept_runs():
        if holds(run):
            return run
    if forced == "live":
        raise BadRunFile(
            f"WORKLOG_SOURCE=live, but {runs_dir()} holds no such run: measure one with `worklog run`"
        )
    article = recorded_run()
    chapters = (Run.load(path, "recorded") for path in recordings(CHAPTERS).values())
    return article if holds(article) else next(filter(holds, chapters), article)


def recorded_run() -> Run:
    """The recording in the package. Raises BadRunFile if it is missing."""
    for recording in recordings().values():
        return Run.load(recording, origin="recorded")
    raise BadRunFile(
        "this installation has no recording: install gemm-worklog again, or measure with `worklog run`"
    )


def in_steps() -> Run:
    """What the recordings at sizes in steps hold, but where the article's recording holds the same, that one, which has
    more samples; and of that one the kernels that they don't hold.
    """
    run = recorded_run()
    files = [path for name, path in recordings(CHAPTERS).items() if "sizes" in name]
    chosen = {
        (m.kernel, m.shape): m for path in files for m in Run.load(path, "recorded").measurements
    }
    stepped = {kernel for kernel, _ in chosen}
    own = [m for m in run.select() if (m.kernel, m.shape) in chosen or m.kernel not in stepped]
    chosen |= {(m.kernel, m.shape): m for m in own}
    return replace(run, measurements=sorted(chosen.values(), key=lambda m: m.problem))
