"""The table of gremlins: everything that corrupts a measurement, with the one setting that fixes it.

The harness, the ablation, the command line, the widgets and the documentation are generated from this table, so a
gremlin is added here and nowhere else. It is data only, so that what merely shows results can read it too.
"""

from __future__ import annotations

from dataclasses import dataclass

Value = str | bool

# BF16 tensor-core peak of an H100 or H200 SXM as NVIDIA's datasheet states it: the wrong roof for FP32.
BF16_DATASHEET_TFLOPS = 989.0


@dataclass(frozen=True)
class Gremlin:
    """One way to be fooled. setting: its name in Harness. honest and lies: the values of the setting.
    also: other values that do not lie. numbered: whether a value may be followed by ":" and a number.

    article: its number among the article's four, or None for one that the article does not name. what: what goes
    wrong. corrupts: the number that the lie moves. resampled: whether the lie is in how samples are taken; otherwise
    it is in what is made of them, and can be told from honest samples.
    """

    setting: str
    title: str
    honest: Value
    lies: tuple[Value, ...]
    article: int | None
    what: str
    corrupts: str = "TFLOP/s"
    resampled: bool = True
    also: tuple[Value, ...] = ()
    numbered: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        """Every value that the setting takes, the honest ones first."""
        return (self.honest, *self.also, *self.lies)

    def takes(self, value: object) -> bool:
        """Whether the setting takes this value; True is not 1."""
        return any(value is known or (isinstance(value, str) and self._word(value) == known) for known in self.values)

    def is_lie(self, value: Value) -> bool:
        """Whether a value that the setting takes is one of its lies."""
        return self._word(value) in self.lies

    def _word(self, value: Value) -> Value:
        return rule(value) if self.numbered else value


def rule(value: Value) -> Value:
    """The value without its number: "count" of "count:10"."""
    return value.partition(":")[0] if isinstance(value, str) else value


GREMLINS: tuple[Gremlin, ...] = (
    Gremlin(
        "clocks",
        "clocks drift",
        "watched",
        ("ignored",),
        1,
        "The SM clock moves with load and heat, and with it every time.",
        also=("locked",),
    ),
    Gremlin(
        "timer",
        "the launch is asynchronous",
        "events",
        ("host",),
        2,
        "A host clock around a launch times the queue, not the kernel.",
        also=("graph", "cupti"),
    ),
    Gremlin(
        "l2",
        "L2 stays warm",
        "flush",
        ("warm",),
        3,
        "The launch before left the inputs in L2, where a single call would not find them.",
        also=("rotate",),
    ),
    Gremlin(
        "warmup",
        "cold start",
        "steady",
        ("none",),
        4,
        "A first launch pays for loading the module and for clocks that are still rising.",
        also=("count", "time", "salykova", "tensara"),
        numbered=True,
    ),
    Gremlin(
        "queue",
        "the launch bubble",
        True,
        (False,),
        None,
        "Between two events on an empty stream, the GPU waits for the host to launch.",
    ),
    Gremlin(
        "offset",
        "the event pair has a length",
        "removed",
        ("kept",),
        None,
        "Two events around nothing read some microseconds; every kernel gets them on top.",
        resampled=False,
    ),
    Gremlin(
        "statistic",
        "one fat outlier",
        "median",
        ("mean", "min", "first"),
        None,
        "A mean follows the one sample that was interrupted; a minimum shows the luckiest.",
        resampled=False,
    ),
    Gremlin(
        "order",
        "drift between two kernels",
        "interleaved",
        ("sequential",),
        None,
        "Timed one after the other, kernel and baseline see different weather.",
        corrupts="of cuBLAS",
    ),
    Gremlin("inputs", "easy data", "random", ("zeros", "ones"), None, "Zeros draw less power, and hide wrong answers."),
    Gremlin(
        "gate",
        "wrong answers are fast",
        True,
        (False, "article"),
        None,
        "Without a check, the fastest kernel is the one that does least; with a loose one, BF16.",
    ),
    Gremlin(
        "baseline",
        "the baseline runs on another datapath",
        "fp32",
        ("tf32",),
        None,
        "cuBLAS may use tensor cores with 10-bit mantissas when asked for FP32.",
        corrupts="of cuBLAS",
    ),
    Gremlin(
        "roof",
        "the wrong roof",
        "fp32",
        ("bf16_datasheet",),
        None,
        "A share of another datapath's peak says nothing.",
        corrupts="of the roof",
        resampled=False,
    ),
)
