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


@dataclass(frozen=True, repr=False)
class Verdict:
    """Passed, or failed at the last of its stages. precision: the class found, one of worklog.problem.gemm.CLASSES or
    "wrong"; None before that stage. seed: of the problems, which repeats them. label: where the kernel ran; "" in a
    run, which states it elsewhere.
    """

    stages: tuple[Stage, ...]
    precision: str | None
    seed: int | None = None
    label: str = ""

    def and_then(self, *stages: Stage) -> Verdict:
        """The same with more stages."""
        return replace(self, stages=(*self.stages, *stages))

    @property
    def accepted(self) -> bool:
        """Whether every stage passed."""
        return all(stage.passed for stage in self.stages)

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
        words = {"accepted": self.accepted, "precision": self.precision, "reason": self.reason, "seed": self.seed}
        return {**words, "stages": [asdict(stage) for stage in self.stages]}

    def table(self) -> Table:
        """Every stage, with how much of its limit was used."""
        rows = []
        for stage in self.stages:
            used = stage.measured / stage.limit if stage.limit and stage.measured is not None else None
            margin = f"{stage.measured:.4g} of {stage.limit:.4g}" if stage.limit else ""
            word = "✓\u00a0passed" if stage.passed else "✗\u00a0failed"
            rows.append((stage.name, word, Bar(margin, used, beyond=not stage.passed), stage.detail))
        result = f"passed as {self.precision}" if self.accepted else "failed"
        seed = "" if self.seed is None else f" · seed {self.seed}"
        title = f"the gate: {result}{seed}" + (f" · {self.label}" if self.label else "")
        return Table(title, ("stage", "", "measured of limit", "detail"), rows, left=4)

    def _repr_html_(self) -> str:
        return self.table().html()

    def __repr__(self) -> str:
        return self.table().text()

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"failed at {self.reason}"
