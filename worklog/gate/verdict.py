"""The verdict of the gate: each stage with its margin, and for a failure which stage, why and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from worklog.gate.error_map import ErrorMap
from worklog.runs.report import verdict as verdict_table


@dataclass(frozen=True)
class Stage:
    """One check and its result.

    measured and limit are in the stage's own unit (wrong elements for the exact stages, units of u·D for precision);
    a stage passes when measured <= limit. detail: what was checked, or for a failure what was found. seconds: that it
    took. note: what a reader should know although the stage passed.
    """

    name: str
    passed: bool
    measured: float
    limit: float
    detail: str
    where: ErrorMap | None = None
    seconds: float = 0.0
    note: str = ""


def passed(name: str, detail: str, measured: float = 0, limit: float = 0) -> Stage:
    """A stage that passed; by default an exact one, with no element wrong."""
    return Stage(name, True, measured, limit, detail)


def failed(name: str, detail: str, wrong: float = 1, where: ErrorMap | None = None) -> Stage:
    """An exact stage that failed."""
    return Stage(name, False, wrong, 0, detail, where)


@dataclass(frozen=True, repr=False)
class Verdict:
    """Passed, or failed at the last of its stages. precision: the class found, one of worklog.problem.gemm.CLASSES or
    "wrong"; None before that stage. label: where the kernel ran, for display; a run file states it elsewhere.
    """

    stages: tuple[Stage, ...]
    precision: str | None
    label: str = field(default="", compare=False)

    def and_then(self, stage: Stage) -> Verdict:
        """The same with one more stage."""
        return replace(self, stages=(*self.stages, stage))

    @property
    def accepted(self) -> bool:
        """Whether every stage passed."""
        return all(stage.passed for stage in self.stages)

    @property
    def reason(self) -> str | None:
        """For a failure, "stage: what was found"."""
        for stage in self.stages:
            if not stage.passed:
                return f"{stage.name}: {stage.detail}"
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know although nothing failed because of it."""
        return tuple(stage.note for stage in self.stages if stage.note)

    @property
    def seconds(self) -> float:
        """What the stages took together."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def where(self) -> ErrorMap | None:
        """For a failure, which elements are wrong, if the stage knows."""
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
        return f"{self.precision} ok" if self.accepted else f"failed at {self.reason}"


def _stage(*, where: Mapping[str, Any] | None = None, **words: Any) -> Stage:
    return Stage(**words, where=None if where is None else _where(**where))


def _where(*, shape: Any, tile: Any, tiles: Any, **words: Any) -> ErrorMap:
    (m, n), (height, width) = shape, tile
    return ErrorMap(shape=(m, n), tile=(height, width), tiles=tuple(tuple(row) for row in tiles), **words)
