"""What gate, GPU and calibration found, as records: the verdict with its stages and which elements of C are wrong; one
GPU as its driver describes it; and what the harness measured about itself on it, once per run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from worklog.runs.documents import Bar, Count, Positive, Shown, Table

# FP32 lanes of one multiprocessor by compute capability (CUDA C++ Programming Guide, arithmetic instructions
# throughput).
FP32_LANES = {(6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
FP32_LANES_SINCE_8_6 = 128
# BF16 tensor-core peak of an H100 or H200 SXM as NVIDIA's datasheet states it: the wrong roof for FP32.
BF16_DATASHEET_TFLOPS = 989.0
# The error that calibration allows on known lengths, in microseconds and as a share, whichever is larger.
TOLERANCE_US = 0.1
TOLERANCE = 0.002
# NVML's event reasons (nvml.h, nvmlClocksEventReason*): idle and clock settings are not throttling.
EVENT_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
STILL_CACHED = 0.02  # share of reads after a flush that works and are as quick as from L2: noise


@dataclass(frozen=True)
class ErrorMap:
    """Which elements of C (M, N) are wrong: how many of `checked`, and which rows and columns, in words. tile: height
    and width of one tile. tiles: row by row, the share of wrong elements in each. guess: the cause, if known.
    """

    shape: tuple[int, int]
    wrong: int
    checked: int
    rows: str
    columns: str
    tile: tuple[int, int]
    tiles: tuple[tuple[float, ...], ...]
    guess: str

    def __str__(self) -> str:
        words = f"{self.wrong} of {self.checked} elements are wrong: {self.rows}; {self.columns}"
        return f"{words}. {self.guess}" if self.guess else words

    @property
    def is_everywhere(self) -> bool:
        """Whether all elements are wrong, of which a picture shows nothing."""
        return self.wrong == self.shape[0] * self.shape[1]

    def picture(self) -> str:
        """C as text, one character per tile: "." right, "o" some elements wrong, "#" all of them."""
        return "\n".join(
            "".join("#" if x == 1 else "o" if x else "." for x in row) for row in self.tiles
        )


@dataclass(frozen=True)
class Stage:
    """One check: passed if measured <= limit, both in its own unit (wrong elements of exact stages, u·D of precision).
    detail: what was checked, or found where it failed. note: what a reader should know although it passed.
    """

    name: str
    passed: bool
    measured: float | None
    limit: float | None
    detail: str
    where: ErrorMap | None = None
    seconds: float = 0.0
    note: str = ""


def passed(name: str, detail: str, measured: float = 0, limit: float = 0, note: str = "") -> Stage:
    """A stage that passed; by default an exact one, with no element wrong."""
    return Stage(name, True, measured, limit, detail, note=note)


def failed(name: str, detail: str, wrong: float = 1, where: ErrorMap | None = None) -> Stage:
    """An exact stage that failed."""
    return Stage(name, False, wrong, 0, detail, where)


@dataclass(frozen=True)
class NeverRan:
    """Lines of the source, the first and the last, that no launch of a check ran. when: the condition under which they
    run, in words, or "". partly: they ran, but not all of their instructions, or never when this is true. file: the
    header that they are of, "" for the kernel's own file.
    """

    first: int
    last: int
    when: str = ""
    partly: bool = False
    file: str = ""

    def __str__(self) -> str:
        lines = (
            f"line {self.first}"
            if self.first == self.last
            else f"lines {self.first} to {self.last}"
        )
        lines += f" of {self.file}" if self.file else ""
        return f"{'part of ' * self.partly}{lines} never ran" + (
            f": {self.when}" if self.when else ""
        )


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """Passed, or failed at the last of its stages. precision: the class found, one of worklog.problem.gemm.CLASSES or
    "wrong"; None before that stage. seed: of the problems, which repeats them. label: where the kernel ran; "" in a
    run, which states it elsewhere. never_ran: on the emulator, what no launch ran. largest: M, N and K of the launches,
    each at most; None in older files. steps: of M, N and K in the domain. square: the domain is M = N = K only.
    """

    stages: tuple[Stage, ...]
    precision: str | None
    seed: int | None = None
    label: str = ""
    never_ran: tuple[NeverRan, ...] = ()
    largest: tuple[int, int, int] | None = None
    steps: tuple[int, int, int] = (1, 1, 1)
    square: bool = False

    def and_then(self, *stages: Stage) -> Verdict:
        """The same with more stages."""
        return replace(self, stages=(*self.stages, *stages))

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
        """In words: the class, the range of the launches, and what never ran; or "failed"."""
        if not self.accepted:
            return "failed"
        ranges = [
            f"{name} from {step:,} to {most:,}" + f" in steps of {step:,}" * (step > 1)
            for name, step, most in zip("MNK", self.steps, self.largest or (), strict=False)
        ]
        if ranges and self.square:
            ranges = [ranges[0].replace("M", "M = N = K", 1)]
        launched = f" for {', '.join(ranges)}" if ranges else ""
        return f"passed as {self.precision}{launched}" + "".join(
            f"; {lines}" for lines in self.never_ran
        )

    @property
    def reason(self) -> str | None:
        """For a failure, "stage: what was found"."""
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
        """For a failure, which elements are wrong, if the stage knows."""
        return self.failed.where if self.failed else None

    def as_dict(self) -> dict[str, Any]:
        """For a command's JSON."""
        own = {name: value for name, value in asdict(self).items() if name != "label"}
        return {"accepted": self.accepted, "reason": self.reason, **own}

    def table(self) -> Table:
        """Every stage, with how much of its limit was used."""
        rows = []
        for stage in self.stages:
            used = (
                stage.measured / stage.limit if stage.limit and stage.measured is not None else None
            )
            margin = f"{stage.measured:.4g} of {stage.limit:.4g}" if stage.limit else ""
            word = "✓\u00a0passed" if stage.passed else "✗\u00a0failed"
            rows.append(
                (stage.name, word, Bar(margin, used, beyond=not stage.passed), stage.detail)
            )
        seed = "" if self.seed is None else f" · seed {self.seed}"
        title = f"the gate: {self.result}{seed}" + (f" · {self.label}" if self.label else "")
        return Table(title, ("stage", "", "measured of limit", "detail"), rows, left=4)

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"failed at {self.reason}"


@dataclass(frozen=True)
class Gpu:
    """One CUDA device as its driver describes it. Clocks in MHz (the highest the driver states), memory in bytes. uuid:
    of the card, "" where it isn't known.
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
        """As in sm_90."""
        return "sm_" + "".join(map(str, self.compute_capability))

    @property
    def fp32_peak_tflops(self) -> float:
        """SMs x FP32 lanes x 2 (a multiply and an add) x clock."""
        lanes = FP32_LANES.get(self.compute_capability, FP32_LANES_SINCE_8_6)
        return self.multiprocessors * lanes * 2 * self.sm_clock_mhz / 1e6

    @property
    def memory_peak_gbs(self) -> float:
        """Memory clock x 2 (double data rate) x bus width, in GB/s."""
        return self.memory_clock_mhz * 2 * self.memory_bus_bits / 8 / 1e3


def reason_names(mask: int) -> str:
    """Words for a mask of event reasons, "" for none."""
    return ", ".join(name for bit, name in EVENT_REASONS.items() if mask & bit)


def throttled(mask: int) -> str:
    """Words for those of a mask's event reasons that are throttling, "" for none."""
    return reason_names(mask & THROTTLING)


@dataclass(frozen=True)
class Counters:
    """What Nsight Compute counted in one launch of a kernel at M, N and K. values: by the names of
    worklog.gpu.profile: counts, bytes, and percent of peaks. stalls: by reason, the warps that wait per issued
    instruction. lines: by line of the source, samples of its warps by reason. ncu: its version.
    """

    L2: ClassVar[str] = "bytes of L2"  # to and from L1, among the values
    kernel: str
    shape: tuple[Count, Count, Count]
    values: dict[str, float]
    stalls: dict[str, float]
    lines: dict[str, dict[str, int]]
    ncu: str


def allowed_us(known_us: float) -> float:
    """The error in microseconds that is allowed on a kernel of this known length."""
    return max(TOLERANCE_US, TOLERANCE * known_us)


@dataclass(frozen=True)
class Calibration:
    """What the harness measured about itself. Microseconds, TFLOP/s, GB/s.

    offset_us: event overhead, the median of offset_by_length_us: by how much readings exceed each known length. slope:
    microseconds read per true one beyond it. tick_us: smallest step between two readings. fp32_tflops: multiply-adds
    alone. copy_gbs: device-to-device copy, bytes read plus written. l2_gbs: reads of a buffer that stays in L2. sm_mhz:
    clock during the FP32 ceiling. aa_ratio and its 95 % interval: a kernel against itself. launch_us: host time per
    launch. warm_cycles, cold_cycles: of a single read from L2, and after a flush; still_cached: share of the latter
    that were as quick as from L2.
    """

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

    @property
    def error_us(self) -> dict[float, float]:
        """By known length, the error that the event overhead leaves. Both in microseconds."""
        middle = float(np.median([*self.offset_by_length_us.values()]))
        return {float(known): over - middle for known, over in self.offset_by_length_us.items()}

    @property
    def worst_us(self) -> float:
        """The largest error, with its sign."""
        return max(self.error_us.values(), key=abs)

    @property
    def within_tolerance(self) -> bool:
        """Whether the error at every length is allowed."""
        return all(abs(error) <= allowed_us(known) for known, error in self.error_us.items())

    @property
    def flush_evicts(self) -> bool:
        """Whether reads after a flush are slower, and almost none as quick as from L2."""
        return self.still_cached <= STILL_CACHED and self.cold_cycles > self.warm_cycles

    @property
    def remarks(self) -> list[str]:
        """What a result must state about the harness: tolerances that it exceeds on this machine."""
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
