"""The gate's verdict as a record: its stages, and which elements of C are wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from worklog.runs.table import Bar, Table


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

    def picture(self) -> str:
        """C as text, one character per tile: "." right, "o" some elements wrong, "#" all of them."""
        return "\n".join("".join("#" if x == 1 else "o" if x else "." for x in row) for row in self.tiles)


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


@dataclass(frozen=True)
class NeverRan:
    """Lines of the source, the first and the last, that no launch of a check ran. when: the condition under which they
    run, in words, or "". A single line that ran, but never when this is true, counts too.
    """

    first: int
    last: int
    when: str = ""

    def __str__(self) -> str:
        lines = f"line {self.first}" if self.first == self.last else f"lines {self.first} to {self.last}"
        return f"{lines} never ran" + (f": {self.when}" if self.when else "")


@dataclass(frozen=True, repr=False)
class Verdict:
    """Passed, or failed at the last of its stages. precision: the class found, one of worklog.problem.gemm.CLASSES or
    "wrong"; None before that stage. seed: of the problems, which repeats them. label: where the kernel ran; "" in a
    run, which states it elsewhere. never_ran: on the emulator, what no launch ran. largest: M, N and K of the launches,
    each at most; None in older files.
    """

    stages: tuple[Stage, ...]
    precision: str | None
    seed: int | None = None
    label: str = ""
    never_ran: tuple[NeverRan, ...] = ()
    largest: tuple[int, int, int] | None = None

    def and_then(self, *stages: Stage) -> Verdict:
        """The same with more stages."""
        return replace(self, stages=(*self.stages, *stages))

    @property
    def accepted(self) -> bool:
        """Whether every stage passed."""
        return all(stage.passed for stage in self.stages)

    @property
    def result(self) -> str:
        """In words: the class, the range of the launches, and what never ran; or "failed"."""
        if not self.accepted:
            return "failed"
        sizes = zip("MNK", self.largest or (), strict=False)
        up_to = ", ".join(f"{name} up to {size:,}" for name, size in sizes)
        never = "".join(f"; {lines}" for lines in self.never_ran)
        return f"passed as {self.precision}" + (f" for {up_to}" if up_to else "") + never

    @property
    def reason(self) -> str | None:
        """For a failure, "stage: what was found"."""
        return next((f"{stage.name}: {stage.detail}" for stage in self.stages if not stage.passed), None)

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
        return next((stage.where for stage in self.stages if not stage.passed), None)

    def as_dict(self) -> dict[str, Any]:
        """For a command's JSON."""
        words: dict[str, Any] = {
            "accepted": self.accepted,
            "precision": self.precision,
            "reason": self.reason,
            "seed": self.seed,
        }
        words |= {"never_ran": [asdict(lines) for lines in self.never_ran], "largest": self.largest}
        return {**words, "stages": [asdict(stage) for stage in self.stages]}

    def table(self) -> Table:
        """Every stage, with how much of its limit was used."""
        rows = []
        for stage in self.stages:
            used = stage.measured / stage.limit if stage.limit and stage.measured is not None else None
            margin = f"{stage.measured:.4g} of {stage.limit:.4g}" if stage.limit else ""
            word = "✓\u00a0passed" if stage.passed else "✗\u00a0failed"
            rows.append((stage.name, word, Bar(margin, used, beyond=not stage.passed), stage.detail))
        seed = "" if self.seed is None else f" · seed {self.seed}"
        title = f"the gate: {self.result}{seed}" + (f" · {self.label}" if self.label else "")
        return Table(title, ("stage", "", "measured of limit", "detail"), rows, left=4)

    def _repr_html_(self) -> str:
        return self.table().html()

    def __repr__(self) -> str:
        return self.table().text()

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"failed at {self.reason}"
