"""How far readings differ: between harnesses on the same work, and by each pitfall.

The document that `worklog peers` writes is shown without a GPU too. It isn't a run: most of its rows are other
harnesses' readings, shown as they gave them.

The effect of a pitfall is a biased reading over the unbiased one of the same kernel and size in one run, at one SM
clock. Pitfalls in how samples are taken were measured. Those in what is computed from samples (statistic, offset, roof)
are computed here, from the unbiased samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.problem import Shape
from worklog.runs.documents import (
    WIDTH,
    Date,
    NothingToDraw,
    Positive,
    Table,
    about,
    change_in_percent,
    read_json,
    signed,
)
from worklog.runs.estimates import PRECISION, compare_shares, is_visible, summarize
from worklog.runs.measurement import Measurement, same_card, source_label
from worklog.runs.records import BF16_DATASHEET_TFLOPS, Calibration
from worklog.runs.run import Run, recordings
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness, Pitfall, Value

if TYPE_CHECKING:
    import pandas


# the two kinds of work: a kernel of known length in microseconds, a product of size N
KNOWN = "spin"
CUBLAS = "cuBLAS"
SCHEMA = 1
Points = list[tuple[float, float]]
SEVERAL = "…"  # the value of an effect of several settings

TOGETHER = {
    frozenset(g.setting for g in PITFALLS if g.article): ("article", "the article's four together"),
    frozenset(HOW_ONE_MEASURES): ("all", "all that touch the time"),
}


@dataclass(frozen=True)
class Row:
    """One harness (`ruler` in the file) on one work: microseconds as it reads them and the seconds that it took, or the
    reason why there are none. work: "spin" with its true length in microseconds, "cuBLAS" with its N, or a declared
    benchmark with the value of its last axis of numbers above 0. low, high: its 95 % interval, if the harness states
    one; converged: whether it is as narrow as requested.
    """

    ruler: str
    work: str
    of: Positive
    us: float | None = None
    wall_s: float | None = None
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    converged: bool | None = None


@dataclass
class Comparison:
    """A document of `worklog peers`, as far as it is read here; `document` is all of it. promises: what is read beside
    the rows. origin: as its file says; "recorded" for a file that says nothing.
    """

    created: Date
    complete: bool
    device: dict[str, Any]
    calibration: Calibration
    rows: list[Row]
    promises: dict[str, Any]
    origin: str = "recorded"
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What must stand beside every number of it: source, device, clocks, date."""
        name = self.device.get("name", "unknown GPU")
        cut = "" if self.complete else " · cut short"
        return source_label(self.origin, name, "watched", self.created) + cut

    def frame(self) -> pandas.DataFrame:
        """One row per harness (`ruler`) and work: its reading in microseconds, or the reason why there is none."""
        import pandas

        return pandas.DataFrame(self.document["rows"]).assign(label=self.label)

    @property
    def harnesses(self) -> list[str]:
        """Every harness with a row, in order."""
        return [*dict.fromkeys(row.ruler for row in self.rows)]

    @property
    def reasons(self) -> dict[str, str]:
        """Why a harness did not read a work, by harness."""
        return {row.ruler: row.reason for row in self.rows if row.reason}

    def works(self, kind: str) -> list[float]:
        """The known lengths (KNOWN), sizes (CUBLAS) or values of a benchmark's last axis, smallest first."""
        return sorted({row.of for row in self.rows if row.work == kind})

    def us(self, kind: str, of: float, number: str = "us") -> dict[str, float]:
        """Microseconds of one work, by harness. number: or another one of its rows, as "wall_s"."""
        here = {
            row.ruler: getattr(row, number) for row in self.rows if (row.work, row.of) == (kind, of)
        }
        return {name: value for name, value in here.items() if value is not None}

    def wall_s(self, kind: str, of: float) -> dict[str, float]:
        """Seconds for one work, by harness, where that is known."""
        return self.us(kind, of, "wall_s")

    def errors(self) -> dict[str, Points]:
        """(true length, reading minus it) in microseconds of each harness that read a known length, shortest first."""
        lines: dict[str, Points] = {}
        for row in sorted(self.rows, key=lambda row: row.of):
            if row.work == KNOWN and row.us is not None:
                lines.setdefault(row.ruler, []).append((row.of, row.us - row.of))
        return lines


def open_comparison(path: str | Path | None = None, part: str = "peers") -> Comparison:
    """The comparison in a file that `worklog peers` wrote, or by default the recording that comes with the package:
    part "peers", "benchmarks" for `worklog peers --bench`, or "intervals" for what tests/record/intervals.py wrote.

    Raises BadRunFile for a file that isn't such a document, is damaged, or has a newer schema, NothingToDraw if the
    package holds no comparison.
    """
    advice = (
        "install gemm-worklog again" if path is None else "give a file that `worklog peers` wrote"
    )
    for known in recordings(part).values() if path is None else (Path(path),):
        document, comparison = read_json(known, Comparison, "peers", (SCHEMA,), advice)
        comparison.document = document
        return comparison
    raise NothingToDraw(
        "no comparison of harnesses is recorded: make one with `worklog peers` on a GPU"
    )


@dataclass(frozen=True)
class Effect:
    """The effect of one biased setting on one kernel at one shape.

    setting: the pitfall's; "first_launch" if the first launch after a cold start counts as the time; "article" for the
    article's four together, "all" for everything that touches the time. unbiased, biased: the number that the pitfall
    `corrupts`, by both settings; a biased TFLOP/s of a median is that at the clock of the unbiased measurement. noise:
    by how much the logarithms of two equal numbers may differ, see worklog.runs.estimates; 0 if both come from the same
    samples. clock: the biased SM clock over the unbiased one minus 1, since an effect can act through it.
    """

    kernel: str
    shape: tuple[int, int, int]
    setting: str
    title: str
    article: int | None
    value: str
    corrupts: str
    unbiased: float
    biased: float
    noise: float
    label: str = ""
    clock: float | None = None

    @property
    def problem(self) -> Shape:
        """The shape as a Shape."""
        return Shape(*self.shape)

    @property
    def factor(self) -> float:
        """Biased over unbiased number: 1 is no effect, 2 inflates the result by a factor of two."""
        return self.biased / self.unbiased

    @property
    def visible(self) -> bool:
        """Whether the effect is visible: see is_visible()."""
        return is_visible(math.log(self.factor), self.noise)

    @property
    def step(self) -> float:
        """The factor, 1 where it is not visible."""
        return self.factor if self.visible else 1.0


def effects(run: Run, kernel: str) -> list[Effect]:
    """All effects on one kernel whose two numbers are positive and finite, sizes ascending, pitfalls in the table's
    order. Raises NothingToDraw if the run has no ablation of it.
    """
    known: list[Effect] = []
    own = [m for m in run.measurements if m.kernel == kernel and m.shape]
    mine = [m for m in own if m.status == "measured"]
    for shape in sorted({m.problem for m in mine if m.changed}, key=lambda s: s.flops):
        here = [m for m in reversed(mine) if m.problem == shape]
        unbiased = next((m for m in reversed(here) if not m.changed), None)
        if unbiased is not None and unbiased.tflops is not None:
            measured = {frozenset(m.changed): m for m in here if same_card(unbiased, m)}
            known += _at_one_shape(run, unbiased, measured)
    known = [e for e in known if e.unbiased > 0 and 0 < e.biased < math.inf]
    if not known:
        raise NothingToDraw(
            f"the run has no ablation of {kernel}: make one with `worklog ablate {kernel}`"
        )
    return known


def _at_one_shape(
    run: Run, unbiased: Measurement, measured: Mapping[frozenset[str], Measurement]
) -> list[Effect]:
    """Of each pitfall that was measured or can be computed. measured: by the settings that were changed."""
    numbers = {
        "of cuBLAS": unbiased.ratio,
        "of the roof": unbiased.of_roof,
        "TFLOP/s": unbiased.tflops,
    }
    made = list[Effect]()

    def add(
        pitfall: Pitfall, value: Value, biased: float | None, noise: float, clock: float | None
    ) -> None:
        words = pitfall.setting, pitfall.title, pitfall.article, str(value), pitfall.corrupts
        both = (numbers[pitfall.corrupts] or 0.0, biased or 0.0)
        at = astuple(unbiased.problem)
        made.append(Effect(unbiased.kernel, at, *words, *both, noise, unbiased.label, clock))

    def add_time(pitfall: Pitfall, value: Value, m: Measurement) -> None:
        difference = run.difference(unbiased, m)
        in_unbiased_time = (m.tflops or 0.0) * (m.us or 0.0) / (unbiased.us or 1.0)
        add(
            pitfall,
            value,
            in_unbiased_time / (1 + difference.off),
            difference.noise,
            difference.clock,
        )

    for pitfall in PITFALLS:
        m = measured.get(frozenset([pitfall.setting]))
        if not pitfall.resampled:
            number = _tflops(run, unbiased, **{pitfall.setting: pitfall.biased[0]})
            if pitfall.setting == "roof":
                number /= BF16_DATASHEET_TFLOPS
            add(pitfall, pitfall.biased[0], number, 0.0, 0.0)
        elif (
            m is not None and pitfall.corrupts == "of cuBLAS"
        ):  # a ratio of kernels that alternate is at one clock
            if unbiased.first is not None and m.first is not None:
                by_host = run.by_host(unbiased) or run.by_host(m)
                noise = compare_shares(unbiased.first, m.first, by_host).noise
                clock = run.difference(unbiased, m).clock
                add(pitfall, m.changed[pitfall.setting], m.ratio, noise, clock)
        elif m is not None:
            if pitfall.setting == "warmup":
                # The cold start as it usually happens: the first launch is the time. A median ignores it.
                cold = replace(
                    pitfall, setting="first_launch", title=f"{pitfall.title}, first launch believed"
                )
                first = _tflops(run, m, statistic="first")
                half = unbiased.time.relative_half_width if unbiased.time else 0.0
                add(cold, "none", first, PRECISION + half, None)
            add_time(pitfall, m.changed[pitfall.setting], m)
    own = {g.setting for g in PITFALLS if g.is_biased(run.harness.get(g.setting, g.unbiased))}
    for settings, (name, title) in TOGETHER.items():
        if m := measured.get(settings - own.union(run.unknown)):
            add_time(Pitfall(name, "", (), title, ""), SEVERAL, m)
    return made


def _tflops(run: Run, m: Measurement, **changed: Value) -> float:
    """TFLOP/s from the measurement's samples under the unbiased settings but for the changed ones."""
    calibration = m.context.calibration if m.context else run.calibration
    summary = summarize(m.samples, Harness().but(**changed).as_dict(), calibration.offset_us)
    return (m.work.flops or 0) / summary.time.value / 1e6


def effect_in_words(effect: Effect, factors: bool | None = None) -> str:
    """In words that fit a cell: "+9.0 %", "× 195", "0" when not visible. factors: default, from × 3 and ÷ 3 on."""
    factor = effect.factor
    noise = effect.noise
    if not effect.visible:
        return "0"
    if factors if factors is not None else not 1 / 3 < factor < 3:
        sign, times = ("× ", factor) if factor > 1 else ("÷ ", 1 / factor)
        return sign + about(times, noise, _three_digits).removeprefix("about ")
    return change_in_percent(factor - 1, noise)


def _three_digits(number: float) -> str:
    """Three significant digits, zeros included: 4.70, 43.0, 63 600; more near 1, which would look like no effect."""
    if number < 1.005:
        return f"{number:.4f}"
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}".replace(",", " ") if rounded >= 100 else f"{rounded:#.3g}"


def factor_cell(effect: Effect) -> str:
    """Return the biased number over the unbiased one, to the digits that the noise allows; 1 if it isn't visible."""
    if not effect.visible:
        return "1"
    return about(effect.factor, effect.noise, _plain_factor).removeprefix("about ")


def _plain_factor(factor: float) -> str:
    """Write a factor: 11 000, 43.0, 1.244, 0.998, and 1.0006, which would look like no effect as 1.000."""
    if factor >= 100:
        return _three_digits(factor)
    if factor >= 10:
        return f"{factor:.1f}"
    decimals = math.ceil(-math.log10(abs(factor - 1))) if factor != 1 else 0
    return f"{factor:.{max(3, decimals)}f}" if factor >= 0.1 else f"{factor:.3g}"


def effects_text(run: Run, kernel: str, width: int = WIDTH) -> str:
    """A table for a terminal of this width: a row for each pitfall, a column for each size."""
    lines: dict[tuple[str, str, str], dict[Shape, Effect]] = {}
    for e in effects(run, kernel):
        # as --set takes it
        name = f"{e.setting}={e.value}"
        title = e.title
        if e.value == SEVERAL:
            name = e.title
            title = ""
        elif e.setting == "first_launch":
            name = f"warmup={e.value}, first launch"
        lines.setdefault((f"{e.article or ' '} {name}", e.corrupts, title), {})[e.problem] = e
    sizes = list(dict.fromkeys(size for row in lines.values() for size in row))
    rows = []
    for (name, number, title), at in lines.items():
        cells = [factor_cell(at[size]) if size in at else "–" for size in sizes]
        clocks = sorted(e.clock for e in at.values() if e.clock is not None)
        ends = dict.fromkeys(
            signed(end, 2) for end in (*clocks[:1], *clocks[-1:])
        )  # one where both look alike
        rows.append((name, *cells, number, " to ".join(ends) or "–", title))
    heading = f"{kernel}: the number with a pitfall over the number without, at one clock (1: no visible effect)"
    columns = "  setting", *map(str, sizes), "number", "SM clock", "pitfall"
    return Table(f"{run.label}\n{heading}", columns, rows, notes=older(run)).text(width)


def older(run: Run) -> list[str]:
    """The remark on pitfalls that this run is older than."""
    return (
        [f"not in this run, and counted as unbiased: {', '.join(run.unknown)}"]
        if run.unknown
        else []
    )
