"""Records of a run beside its times: the gate's verdict, the GPU, the calibration, counters.

The verdict has its stages and a map of the wrong elements of C. The GPU is as its driver describes
it. The calibration has the harness's measurements of itself, once per run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from worklog.runs.files import Count, Positive, Whole
from worklog.runs.text import Bar, Displayable, Table

# FP32 lanes of a multiprocessor by compute capability (CUDA C++ Programming Guide, arithmetic
# instructions throughput).
FP32_LANES = {(6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
FP32_LANES_SINCE_8_6 = 128
STILL_CACHED = 0.02  # share of reads that are as quick as from L2 after a working flush: noise


@dataclass(frozen=True)
class ErrorMap:
    """The wrong elements of C (M, N)."""

    shape: tuple[int, int]
    wrong: int  # number of wrong elements among the checked elements
    checked: int
    rows: str  # of the wrong elements, as text
    columns: str
    tile: tuple[int, int]  # height and width
    tiles: tuple[tuple[float, ...], ...]  # row by row, the share of wrong elements in each tile
    guess: str  # the cause, if it's known

    def __str__(self) -> str:
        text = f"{self.wrong} of {self.checked} elements are wrong: {self.rows}; {self.columns}"
        return f"{text}. {self.guess}" if self.guess else text

    @property
    def is_everywhere(self) -> bool:
        """Whether all elements are wrong, so that a picture shows nothing."""
        return self.wrong == self.shape[0] * self.shape[1]

    def picture(self) -> str:
        """Return C as text: a tile is "." if right, "o" if partly wrong, else "#"."""
        return "\n".join("".join(map(_tile_character, row)) for row in self.tiles)


def _tile_character(wrong_share: float) -> str:
    if wrong_share == 1:
        return "#"
    return "o" if wrong_share else "."


@dataclass(frozen=True)
class Stage:
    """A check, which is passed if measured <= limit.

    measured, limit: in the check's unit: wrong elements for exact stages, u·D for precision
    detail: what was checked; or what was found, if it failed
    where: the wrong elements, if they are known
    note: a remark for the reader of a passed check
    clause: what the verdict's line states about a passed check
    """

    name: str
    passed: bool
    measured: float | None
    limit: float | None
    detail: str
    where: ErrorMap | None = None
    seconds: float = 0.0
    note: str = ""
    clause: str = ""


def passed(
    name: str,
    detail: str,
    *,
    measured: float = 0,
    limit: float = 0,
    note: str = "",
    clause: str = "",
) -> Stage:
    """Return a stage that passed; by default an exact stage without wrong elements."""
    return Stage(name, True, measured, limit, detail, note=note, clause=clause)


def failed(name: str, detail: str, wrong: float = 1, where: ErrorMap | None = None) -> Stage:
    """Return an exact stage that failed."""
    return Stage(name, False, wrong, 0, detail, where)


@dataclass(frozen=True)
class NeverRan:
    """Lines of the source that no launch of a check ran, or that ran with few values."""

    first: int
    last: int
    when: str = ""  # the condition under which they run, as text
    partly: bool = False  # they ran, but not all their instructions, or never when `when` is true
    file: str = ""  # the header that contains them; "" for the kernel's own file
    untried: str = ""  # if the lines ran: the entries or values in them that no launch had

    def __str__(self) -> str:
        text = f"line {self.first}"
        if self.last != self.first:
            text = f"lines {self.first} to {self.last}"
        if self.file:
            text += f" of {self.file}"
        if self.untried:
            return f"{self.untried} in {text}"
        if self.partly:
            text = f"part of {text}"
        text += " never ran"
        if self.when:
            text += f": {self.when}"
        return text


@dataclass(frozen=True, repr=False)
class Verdict(Displayable):
    """The gate's verdict on a kernel: passed, or failed at the last of its stages."""

    stages: tuple[Stage, ...]
    precision: str | None  # one of worklog.problem.CLASSES or "wrong"; None before that stage
    seed: int | None = None  # of the problems, which repeats them
    label: str = ""  # where the kernel ran; "" in a run, which states it elsewhere
    never_ran: tuple[NeverRan, ...] = ()  # on the emulator
    largest: tuple[int, int, int] | None = None  # M, N and K of the launches; None in older files
    steps: tuple[int, int, int] = (1, 1, 1)  # of M, N and K in the domain
    square: bool = False  # the domain is M = N = K only
    # How many values of M, N and K were launched, except by the search; None in older files.
    ran: tuple[int, int, int] | None = None
    types: str = ""  # the formats of A, B and C; "" for float32

    def with_stage(self, *stages: Stage) -> Verdict:
        """Return the verdict with more stages."""
        return replace(self, stages=(*self.stages, *stages))

    def beside_emulated(self, emulated: Verdict) -> Verdict:
        """Return a GPU's verdict with the emulator's stages and what never ran there."""
        stages = [replace(stage, name=f"{stage.name} (emulated)") for stage in emulated.stages]
        return replace(self.with_stage(*stages), never_ran=emulated.never_ran)

    @property
    def accepted(self) -> bool:
        """Whether every stage passed."""
        return self.failed is None

    @property
    def failed(self) -> Stage | None:
        """The stage that failed."""
        return next((stage for stage in self.stages if not stage.passed), None)

    @property
    def result(self) -> str:
        """The class, the launches' range and number, and the clauses; or "failed"."""
        if not self.accepted:
            return "failed"
        ranges = []
        for name, step, largest in zip("MNK", self.steps, self.largest or (), strict=False):
            text = f"{name} from {step:,} to {largest:,}"
            if step > 1:
                text += f" in steps of {step:,}"
            ranges.append(text)
        if ranges and self.square:
            ranges = [ranges[0].replace("M", "M = N = K", 1)]
        launches = f" for {', '.join(ranges)}{self._ran_in_words()}" if ranges else ""
        clauses = [stage.clause for stage in self.stages if stage.clause]
        clauses += [str(lines) for lines in self.never_ran]
        clauses = list(dict.fromkeys(clauses))  # a GPU and the emulator may state the same
        formats = f" on {self.types}" if self.types else ""
        return "; ".join([f"passed as {self.precision}{formats}{launches}", *clauses])

    def _ran_in_words(self) -> str:
        """Return how many values within the launches' range ran, after a space; "" if unknown."""
        if self.ran is None or self.largest is None:
            return ""
        names = ["sizes"] if self.square else "MNK"
        missing = False
        counts = list[str]()
        for name, step, largest, ran in zip(
            names, self.steps, self.largest, self.ran, strict=False
        ):
            stated = largest // step
            if ran < stated:
                missing = True
                counts.append(f"{ran:,} of {stated:,} {name}")
            else:
                counts.append(f"every {name.removesuffix('s')}")
        if not missing:
            if self.square:
                return " (every size ran)"
            return " (every M, N and K ran, not every combination)"
        return f" ({', '.join(counts)} ran)"

    @property
    def reason(self) -> str | None:
        """The failed stage and its finding, as "stage: finding", if any failed."""
        return f"{self.failed.name}: {self.failed.detail}" if self.failed else None

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the stages."""
        return tuple(stage.note for stage in self.stages if stage.note)

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def where(self) -> ErrorMap | None:
        """The wrong elements of the stage that failed, if they are known."""
        return self.failed.where if self.failed else None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for a command's JSON."""
        fields = {name: value for name, value in asdict(self).items() if name != "label"}
        return {"accepted": self.accepted, "reason": self.reason, **fields}

    def table(self) -> Table:
        """Return a row per stage, with the share of the limit that was used."""
        rows = []
        for stage in self.stages:
            share = None
            if stage.limit and stage.measured is not None:
                share = stage.measured / stage.limit
            margin = f"{stage.measured:.4g} of {stage.limit:.4g}" if stage.limit else ""
            outcome = "✓\u00a0passed" if stage.passed else "✗\u00a0failed"
            bar = Bar(margin, share, beyond=not stage.passed)
            rows.append((stage.name, outcome, bar, stage.detail))
        title = f"the gate: {self.result}"
        if self.seed is not None:
            title += f" · seed {self.seed}"
        if self.label:
            title += f" · {self.label}"
        return Table(title, ("stage", "", "measured of limit", "detail"), rows, left=4)

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"failed at {self.reason}"


@dataclass(frozen=True)
class Gpu:
    """A CUDA device as its driver describes it.

    Clocks are the highest that the driver states.
    uuid: of the card; "" if it isn't known
    """

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: Count
    l2_bytes: Count
    memory_bytes: Count
    sm_clock_mhz: Positive
    memory_clock_mhz: Positive
    memory_bus_bits: Count
    driver: str
    uuid: str = ""

    @property
    def arch(self) -> str:
        """The architecture, such as sm_90."""
        return "sm_" + "".join(map(str, self.compute_capability))

    @property
    def fp32_peak_tflops(self) -> float:
        """The FP32 peak: SMs x FP32 lanes x 2 (a multiply and an add) x clock."""
        lanes = FP32_LANES.get(self.compute_capability, FP32_LANES_SINCE_8_6)
        return self.multiprocessors * lanes * 2 * self.sm_clock_mhz / 1e6

    @property
    def memory_peak_gbs(self) -> float:
        """Memory clock x 2 (double data rate) x bus width, in GB/s."""
        return self.memory_clock_mhz * 2 * self.memory_bus_bits / 8 / 1e3


@dataclass(frozen=True)
class Counters:
    """Nsight Compute's counters of a launch.

    shape: M, N and K
    values: counts, bytes, and percent of peaks, by the names of worklog.gpu.profile
    stalls: by reason, the warps that wait per issued instruction
    lines: by line of the source, samples of its warps by reason
    ncu: the version of Nsight Compute
    """

    L2: ClassVar[str] = "bytes of L2"  # to and from L1, among the values
    kernel: str
    shape: tuple[Count, Count, Count]
    values: dict[str, float]
    stalls: dict[str, float]
    lines: dict[str, dict[str, int]]
    ncu: str


@dataclass(frozen=True)
class Calibration:
    """The harness's measurements of itself.

    offset_us: the event overhead, the median of offset_by_length_us
    offset_by_length_us: the excess of readings over each known length
    tick_us: smallest step between two readings
    fp32_tflops: of multiply-adds alone
    copy_gbs: of a device-to-device copy, bytes read plus written
    l2_gbs: of reads from a buffer that stays in L2
    sm_mhz: clock during the FP32 ceiling
    slope: microseconds read per true microsecond beyond the overhead
    aa_ratio, aa_low, aa_high: a kernel against itself, with its 95 % interval
    launch_us: host time per launch
    warm_cycles: of a single read from L2
    cold_cycles: of a single read after a flush
    still_cached: share of reads after a flush that were as quick as from L2
    """

    # The error that is allowed on a known length: the larger of these microseconds and this share.
    TOLERANCE_US: ClassVar[float] = 0.1
    TOLERANCE: ClassVar[float] = 0.002

    offset_us: float
    offset_by_length_us: dict[str, float]
    tick_us: float
    fp32_tflops: Positive
    copy_gbs: Positive
    l2_gbs: Positive
    sm_mhz: float | None
    slope: float
    aa_ratio: float
    aa_low: float
    aa_high: float
    launch_us: float
    warm_cycles: float
    cold_cycles: float
    still_cached: float

    @classmethod
    def allowed_us(cls, known_us: float) -> float:
        """Return the error in µs that is allowed on a kernel of this known length."""
        return max(cls.TOLERANCE_US, cls.TOLERANCE * known_us)

    @property
    def error_us(self) -> dict[float, float]:
        """The error without the event overhead by known length, both in µs."""
        offset_us = float(np.median([*self.offset_by_length_us.values()]))
        return {
            float(length_us): excess_us - offset_us
            for length_us, excess_us in self.offset_by_length_us.items()
        }

    @property
    def worst_us(self) -> float:
        """The largest error, with its sign."""
        return max(self.error_us.values(), key=abs)

    @property
    def within_tolerance(self) -> bool:
        """Whether the error at every length is allowed."""
        return all(abs(error) <= self.allowed_us(length) for length, error in self.error_us.items())

    @property
    def flush_evicts(self) -> bool:
        """Whether almost no reads after a flush are as quick as from L2.

        The median read must also be slower.
        """
        return self.still_cached <= STILL_CACHED and self.cold_cycles > self.warm_cycles

    @property
    def remarks(self) -> list[str]:
        """The remarks for every result: tolerances exceeded on this machine."""
        remarks = []
        if not self.within_tolerance:
            remarks.append(
                f"harness: kernels of known length are read up to {self.worst_us:+.2f} µs wrong"
            )
        if not self.flush_evicts:
            remarks.append(
                f"l2: after a flush {self.still_cached:.0%} of the reads are as quick as from L2"
            )
        return remarks


@dataclass(frozen=True)
class Energy:
    """The energy of a launch, by NVML's counter during launches in a row with a warm L2.

    The counter is of the whole board: memory, voltage regulators and idle power are in the number.
    """

    joules: Positive | None = None  # of one launch; None if `reason` says why
    us: Positive | None = None  # of one launch, in this loop
    launches: Whole = 0
    seconds: float = 0.0  # from the first to the last step of the counter that counts
    steps: Whole = 0  # of the counter, in this time
    reason: str = ""  # why there is no number

    @property
    def watts(self) -> float | None:
        """The power of the board in the loop."""
        return 1e6 * self.joules / self.us if self.joules and self.us else None


@dataclass(frozen=True)
class CounterCheck:
    """NVML's energy counter, compared with the integral of power samples."""

    TOLERANCE: ClassVar[float] = 0.05

    seconds: float
    counter_joules: float
    integral_joules: float
    power_samples: int
    step_ms: float  # the median step of the counter
    longest_step_ms: float

    @property
    def difference(self) -> float:
        """The counter over the integral, minus 1."""
        return self.counter_joules / self.integral_joules - 1

    @property
    def agrees(self) -> bool:
        """Whether the counter and the integral agree within the tolerance."""
        return abs(self.difference) <= self.TOLERANCE

    def text(self) -> str:
        """Describe the comparison."""
        verdict = "within" if self.agrees else "outside of"
        return (
            f"energy counter:         {self.counter_joules:.1f} J in {self.seconds:.2f} s, "
            f"{self.counter_joules / self.seconds:.1f} W\n"
            f"integral of the power:  {self.integral_joules:.1f} J, {self.power_samples} samples\n"
            f"difference:             {100 * self.difference:+.2f} %, {verdict} the tolerance of "
            f"{self.TOLERANCE:.0%}\n"
            f"steps of the counter:   {self.step_ms:.1f} ms (median), "
            f"{self.longest_step_ms:.1f} ms (longest)"
        )
