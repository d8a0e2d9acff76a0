"""What the gate says: each stage with its margin, and for a refusal which stage, why and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from worklog.runs.report import verdict as verdict_table


@dataclass(frozen=True)
class Where:
    """Which elements of C are wrong.

    shape: M and N. wrong: how many elements, of `checked` that were compared. rows and columns: in words. tile: height
    and width of one cell of `tiles`, which holds, row by row, the share of wrong elements in each tile of C. guess:
    what the pattern looks like, or "" where it looks like nothing known.
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
        """In one line."""
        found = f"{self.wrong} of {self.checked} elements are wrong: {self.rows}; {self.columns}"
        return f"{found}. {self.guess}" if self.guess else found

    def picture(self) -> str:
        """C as text, a character a tile: "." right, "o" some elements wrong, "#" all of them."""
        return "\n".join("".join("#" if x == 1 else "o" if x else "." for x in row) for row in self.tiles)


@dataclass(frozen=True)
class Stage:
    """One question and its answer.

    measured and limit are in the stage's own unit (wrong elements for the exact stages, units of u·D for precision);
    a stage passes when measured <= limit. detail says what was asked, or for a failure what was found. seconds: what
    asking cost. note: what a reader should know although the stage passed.
    """

    name: str
    passed: bool
    measured: float
    limit: float
    detail: str
    where: Where | None = None
    seconds: float = 0.0
    note: str = ""


def passed(name: str, detail: str, measured: float = 0, limit: float = 0) -> Stage:
    """A stage that passed; by default an exact one, with no element wrong."""
    return Stage(name, True, measured, limit, detail)


def refused(name: str, detail: str, wrong: float = 1, where: Where | None = None) -> Stage:
    """An exact stage that failed."""
    return Stage(name, False, wrong, 0, detail, where)


@dataclass(frozen=True, repr=False)
class Verdict:
    """Accepted, or refused at the last of its stages. precision: the class found, one of worklog.gate.precision.CLASSES
    or "wrong"; None before that stage. label: where the kernel ran, in what is shown; a run file says it elsewhere.
    """

    stages: tuple[Stage, ...]
    precision: str | None
    label: str = field(default="", compare=False)

    def and_then(self, stage: Stage) -> Verdict:
        """The same with one stage more."""
        return replace(self, stages=(*self.stages, stage))

    @property
    def accepted(self) -> bool:
        """Whether every stage passed."""
        return all(stage.passed for stage in self.stages)

    @property
    def reason(self) -> str | None:
        """For a refusal, "stage: what was found"."""
        for stage in self.stages:
            if not stage.passed:
                return f"{stage.name}: {stage.detail}"
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know although nothing was refused for it."""
        return tuple(stage.note for stage in self.stages if stage.note)

    @property
    def seconds(self) -> float:
        """What the stages cost together."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def where(self) -> Where | None:
        """For a refusal, which elements are wrong, if the stage knows."""
        return next((stage.where for stage in self.stages if not stage.passed), None)

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return {
            "accepted": self.accepted,
            "precision": self.precision,
            "reason": self.reason,
            "stages": [asdict(s) for s in self.stages],
        }

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> Verdict:
        """What as_dict() gave, JSON's lists as tuples again. Raises KeyError or TypeError for anything else."""
        return cls(tuple(_stage(**stage) for stage in words["stages"]), words["precision"])

    def _repr_html_(self) -> str:
        return verdict_table(self.as_dict(), self.label).html()

    def __repr__(self) -> str:
        return verdict_table(self.as_dict(), self.label).text()

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"refused at {self.reason}"


def _stage(*, where: Mapping[str, Any] | None = None, **words: Any) -> Stage:
    return Stage(**words, where=None if where is None else _where(**where))


def _where(*, shape: Any, tile: Any, tiles: Any, **words: Any) -> Where:
    (m, n), (height, width) = shape, tile
    return Where(shape=(m, n), tile=(height, width), tiles=tuple(tuple(row) for row in tiles), **words)
