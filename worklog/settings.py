"""The pitfalls that bias a measurement, each with the one setting that avoids it.
Harness, ablation, command line, panel and documentation come from these tables, so a pitfall is added here only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import Any

from worklog.errors import BadSetting, meant

Value = str | bool

WALL_CLOCK = "wall clock"  # the timer of a cross-check
# The words behind `worklog` of the command that is carried out; none in Python.
COMMAND = ContextVar[tuple[str, ...]]("COMMAND", default=())


@dataclass(frozen=True)
class Pitfall:
    """One way to get a wrong number. setting: its name in Harness. unbiased, biased: the values of the setting; also:
    other unbiased values. what: what goes wrong. article: its number among the article's four. corrupts: the number
    that it changes. resampled: whether it changes how samples are taken; else its effect follows from unbiased samples.
    """

    setting: str
    unbiased: Value
    biased: tuple[Value, ...]
    title: str
    what: str
    article: int | None = None
    corrupts: str = "TFLOP/s"
    resampled: bool = True
    also: tuple[Value, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value that the setting takes, the unbiased ones first."""
        return (self.unbiased, *self.also, *self.biased)

    def check(self, value: Any) -> None:
        """Raise BadSetting for a value that the setting doesn't take; True is not 1."""
        word = rule(value) if self.setting in RULES else value
        if not any(type(word) is type(known) and word == known for known in self.values):
            names = [str(known) for known in self.values]
            near = meant(str(value), names)
            raise BadSetting(
                f"{self.setting} = {value!r} is not a setting{near}: choose from {', '.join(names)}"
            )

    def is_biased(self, value: Value) -> bool:
        """Whether a value that the setting takes is a biased one."""
        return rule(value) in self.biased


def rule(value: Value) -> Value:
    """The value without its number: "count" of "count:10"."""
    return value.partition(":")[0] if isinstance(value, str) else value


# The words that these settings take, each with the names and defaults of its numbers, which may follow after ":"; a
# clock of 0 MHz is chosen. worklog.harness.rules has the rules.
RULES: dict[str, dict[str, dict[str, float]]] = {
    "clocks": {"watched": {}, "ignored": {}, "locked": {"MHz": 0}},
    "warmup": {
        "steady": {}, "count": {"launches": 10}, "time": {"ms": 25.0}, "salykova": {},
        "tensara": {"N": 5000, "products": 10, "pause ms": 500.0},
    },
    "stopping": {
        "interval": {}, "count": {"launches": 10}, "time": {"ms": 100.0}, "salykova": {},
        "tensara": {"variation %": 1.0, "least": 5, "most": 20}, "nvbench": {"noise %": 0.5, "ms": 500.0, "least": 10},
    },
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Harness:
    """How to measure. Each field up to `roof` belongs to one pitfall, and its default is unbiased; the others say how
    long to measure. Raises BadSetting for a value that PITFALLS and SAMPLING don't have.
    """

    clocks: str = "watched"
    timer: str = "events"
    l2: str = "flush"
    warmup: str = "steady"
    queue: bool = True
    offset: str = "removed"
    statistic: str = "median"
    order: str = "interleaved"
    turns: str = "balanced"
    placement: str = "varied"
    inputs: str = "random"
    gate: bool | str = True
    baseline: str = "fp32"
    roof: str = "fp32"
    precision: float = 0.005
    least_samples: int = 10
    most_samples: int = 2000
    budget_s: float = 8.0
    stopping: str = "interval"
    graph_launches: int = 10
    hot_ms: float = 10.0
    sleep_ms: float = 0.0
    least_share: float = 0.0

    def __post_init__(self) -> None:
        for pitfall in PITFALLS:
            pitfall.check(getattr(self, pitfall.setting))
        for name, (_, limits) in SAMPLING.items():
            value = getattr(self, name)
            kind = type(getattr(Harness, name))
            if type(value) is not kind and not (
                kind is float and type(value) is int
            ):  # True is no number
                raise BadSetting(
                    f"{name} = {value!r} is of type {type(value).__name__}: give {TYPES[kind]}"
                )
            if limits is not None and not limits[0] <= value <= limits[1]:
                most = "" if limits[1] == math.inf else f" to {limits[1]:g}"
                raise BadSetting(
                    f"{name} = {value!r} must be {'from' if most else 'at least'} {limits[0]:g}{most}"
                )
        for name in RULES:
            if (name, getattr(self, name)) != ("warmup", "none"):
                split_rule(name, getattr(self, name))
        if self.least_samples > self.most_samples:
            raise BadSetting(
                f"least_samples = {self.least_samples} is above most_samples = {self.most_samples}"
            )
        if self.timer == "graph" and self.l2 == "flush":
            raise BadSetting(
                "timer = graph cannot flush between its launches: set l2=rotate too (cold) or l2=warm"
            )
        if self.timer == "graph" and self.warmup == "none":
            raise BadSetting(
                "timer = graph and warmup = none contradict: what is recorded has been launched before"
            )

    def __repr__(self) -> str:
        """What differs from the unbiased harness."""
        changed = [
            f"{name}={value!r}"
            for name, value in self.as_dict().items()
            if value != getattr(Harness, name)
        ]
        return f"Harness({', '.join(changed)})"

    @classmethod
    def naive(cls) -> Harness:
        """The first biased value of every pitfall."""
        return cls().but(**{pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS})

    @property
    def queues(self) -> bool:
        """Whether each timed launch is enqueued behind a blocking kernel."""
        return self.queue and self.timer != "host"

    def but(self, **changes: Any) -> Harness:
        """The same harness with some settings changed."""
        known = self.as_dict()
        for name in changes:
            if name not in known:
                raise BadSetting(
                    f"there is no setting {name!r}{meant(name, known)}: choose from {', '.join(known)}"
                )
        return replace(self, **changes)

    def biased(self) -> dict[str, Value]:
        """The settings that are biased."""
        return {
            g.setting: getattr(self, g.setting)
            for g in PITFALLS
            if g.is_biased(getattr(self, g.setting))
        }

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return asdict(self)


def _pitfall(
    setting: str, biased: tuple[Value, ...], title: str, what: str, **more: Any
) -> Pitfall:
    return Pitfall(setting, getattr(Harness, setting), biased, title, what, **more)


PITFALLS = (
    _pitfall("clocks", ("ignored",), "clocks drift",
             "The SM clock changes with load and temperature, and every time changes with it.",
             article=1, also=("locked",)),
    _pitfall("timer", ("host",), "the launch is asynchronous",
             "A host clock around a launch times the queue, not the kernel.", article=2, also=("graph",)),
    _pitfall("l2", ("warm",), "L2 stays warm",
             "The launch before left the inputs in L2, where a single call would not find them.",
             article=3, also=("rotate",)),
    _pitfall("warmup", ("none",), "cold start",
             "A first launch has costs that later ones don't have, such as loading its module.",
             article=4, also=("count", "time", "salykova", "tensara")),
    _pitfall("queue", (False,), "the launch bubble",
             "Between two events on an empty stream, the GPU waits for the host to launch."),
    _pitfall("offset", ("kept",), "the event pair has a length",
             "Two events around nothing read some microseconds; every kernel gets them on top.", resampled=False),
    _pitfall("statistic", ("mean", "min", "first"), "one fat outlier",
             "A mean follows the one sample that was interrupted; a minimum shows the luckiest.", resampled=False),
    _pitfall("order", ("sequential",), "drift between two kernels",
             "Timed one after the other, kernel and baseline run at different clocks and temperatures.",
             corrupts="of cuBLAS"),
    _pitfall("turns", ("fixed",), "what ran before",
             "A kernel that ran just before has left its code in the instruction caches. If all turns have one order, "
             "each kernel always follows the same other one.", corrupts="of cuBLAS"),
    _pitfall("placement", ("fixed",), "buffers and code stay in one place",
             "Buffers and code lie in one place for all samples; a time can depend on the addresses of A, B, C and of "
             "the code, and an interval over launches in one place can't see it."),
    _pitfall("inputs", ("zeros", "ones"), "easy data", "Zeros draw less power, and hide wrong answers."),
    _pitfall("gate", (False, "article"), "wrong answers are fast",
             "Without a check, the fastest kernel is the one that does least; with a loose one, BF16."),
    _pitfall("baseline", ("tf32",), "the baseline runs on another datapath",
             "cuBLAS may use tensor cores with 10-bit mantissas when asked for FP32.", corrupts="of cuBLAS"),
    _pitfall("roof", ("bf16_datasheet",), "the wrong roof",
             "A share of another datapath's peak says nothing.", corrupts="of the roof", resampled=False),
)  # fmt: skip
# How long to measure: what each setting means, and the lowest and highest number, or None for a word.
SAMPLING: dict[str, tuple[str, tuple[float, float] | None]] = {
    "precision": (
        "relative half-width of the 95 % interval at which sampling stops",
        (1e-6, 0.999),
    ),
    "least_samples": ("minimum number of samples", (1, math.inf)),
    "most_samples": ("maximum number of samples", (1, math.inf)),
    "budget_s": ("seconds for the samples of one kernel at one size", (1e-6, 1e9)),
    "stopping": (
        f"the stopping criterion: {', '.join(RULES['stopping'])}; results state what it doesn't check",
        None,
    ),
    "graph_launches": ("launches in one graph (timer = graph), fewer of slow kernels", (1, 10_000)),
    "hot_ms": (
        "milliseconds of launches in a row for the hot time beside the cold one; 0 for none",
        (0, 1000),
    ),
    "sleep_ms": (
        "milliseconds that the host sleeps and the GPU idles before each sample",
        (0, 60_000),
    ),
    "least_share": (
        "share of the baseline below which, with its interval, sampling stops; 0 for none",
        (0, 1e9),
    ),
}
# These change what is measured. The others change how, and the ablation sets all of them together.
HOW_ONE_MEASURES = tuple(
    g.setting for g in PITFALLS if g.setting not in ("baseline", "inputs", "roof", "gate")
)
TYPES: dict[type, str] = {
    float: "a number",
    int: "a whole number",
    str: "a word such as 'interval'",
}
TRUTH = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings for Harness.but() from words such as "l2=warm", "queue=false" or "precision=0.01". Raises BadSetting."""
    defaults = Harness().as_dict()
    settings = dict[str, Any]()
    for pair in pairs:
        name, equals, word = pair.partition("=")
        if not (name and equals):
            raise BadSetting(f"cannot read --set {pair}: give setting=value, such as l2=warm")
        if name in settings:
            raise BadSetting(f"--set {pair}: {name} is set twice; give it one value")
        kind = type(defaults.get(name, word))
        try:
            settings[name] = TRUTH.get(word.lower(), word) if kind is bool else kind(word)
        except ValueError as error:
            raise BadSetting(f"cannot read --set {pair}: give {TYPES[kind]}") from error
    return settings


def split_rule(setting: str, word: str) -> tuple[str, list[float]]:
    """The name and the numbers of a word such as "count:10" or "nvbench:0.3:200", each that isn't given at its default.
    Raises BadSetting.
    """
    name, *texts = word.split(":")
    rules = RULES[setting]
    if name not in rules or len(texts) > len(rules[name]):
        choices = [
            known + "".join(f"[:{unit}" for unit in units) + "]" * len(units)
            for known, units in rules.items()
        ]
        raise BadSetting(f"{setting} = {word!r} is not a setting: choose from {', '.join(choices)}")
    numbers = list(rules[name].values())
    for place, (unit, text) in enumerate(
        zip(rules[name], texts, strict=False)
    ):  # the others keep their defaults
        try:
            number = float(text)
        except ValueError as error:
            raise BadSetting(f"{setting} = {word!r}: {text!r} is not a number ({unit})") from error
        whole = isinstance(numbers[place], int)
        if not 0 < number < 1e9 or (whole and not number.is_integer()):
            raise BadSetting(
                f"{setting} = {word!r}: give a {'whole ' if whole else ''}number above 0 ({unit})"
            )
        numbers[place] = number
    return name, numbers
