"""The verdict of the gate: the stages that ran, the one that failed and why, and which elements of C are wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from worklog.errors import LaunchFailed
from worklog.runs import verdict_table


@dataclass(frozen=True)
class ErrorMap:
    """Which elements of C (M, N) are wrong.

    wrong: the number of wrong elements, of `checked` that were compared. rows and columns: which, in words. tile:
    height and width of one tile. tiles: row by row, the share of wrong elements in each. guess: the cause, if known.
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
        """One line."""
        words = f"{self.wrong} of {self.checked} elements are wrong: {self.rows}; {self.columns}"
        return f"{words}. {self.guess}" if self.guess else words

    def picture(self) -> str:
        """C as text, one character per tile: "." right, "o" some elements wrong, "#" all of them."""
        return "\n".join("".join("#" if x == 1 else "o" if x else "." for x in row) for row in self.tiles)


@dataclass(frozen=True)
class Stage:
    """One check and its result: passed if measured <= limit, both in the stage's own unit (wrong elements for the exact
    stages, u·D for precision). detail: what was checked, or for a failure what is wrong. seconds: that it took. note:
    what a reader should know although the stage passed.
    """

    name: str
    passed: bool
    measured: float
    limit: float
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


def timed(stage: Callable[[], Stage]) -> Stage:
    """Run a stage, and note the seconds that it took."""
    started = time.perf_counter()
    return replace(stage(), seconds=time.perf_counter() - started)


def until_failure(stages: Iterator[Stage]) -> tuple[Stage, ...]:
    """The stages up to the first that fails, each with the seconds that it took. A launch that fails is a stage too."""
    ran: list[Stage] = []
    try:
        while not ran or ran[-1].passed:
            ran.append(timed(lambda: next(stages)))
    except StopIteration:
        pass
    except LaunchFailed as error:
        ran.append(failed("launch", str(error)))
    return tuple(ran)


@dataclass(frozen=True, repr=False)
class Verdict:
    """Passed, or failed at the last of its stages. precision: the class of the result, one of
    worklog.problem.gemm.CLASSES or "wrong"; None before that stage. label: where the kernel ran, for display; a run
    file states it elsewhere. seed: of the inputs, which repeats them.
    """

    stages: tuple[Stage, ...]
    precision: str | None
    label: str = field(default="", compare=False)
    seed: int | None = field(default=None, compare=False)

    def and_then(self, stage: Stage) -> Verdict:
        """The same with one more stage."""
        return replace(self, stages=(*self.stages, stage))

    @property
    def accepted(self) -> bool:
        """Whether every stage passed."""
        return all(stage.passed for stage in self.stages)

    @property
    def _failed(self) -> Stage | None:
        return next((stage for stage in self.stages if not stage.passed), None)

    @property
    def reason(self) -> str | None:
        """For a failure, "stage: what is wrong"."""
        return f"{self._failed.name}: {self._failed.detail}" if self._failed else None

    @property
    def where(self) -> ErrorMap | None:
        """For a failure, which elements are wrong, if the stage knows."""
        return self._failed.where if self._failed else None

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the stages."""
        return tuple(stage.note for stage in self.stages if stage.note)

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        words = {"accepted": self.accepted, "precision": self.precision, "reason": self.reason, "seed": self.seed}
        return {**words, "stages": [asdict(stage) for stage in self.stages]}

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> Verdict:
        """What as_dict() gave. Raises msgspec.ValidationError for anything else."""
        return msgspec.convert(words, cls)

    def _repr_html_(self) -> str:
        return verdict_table(self.as_dict(), self.label).html()

    def __repr__(self) -> str:
        return verdict_table(self.as_dict(), self.label).text()

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"failed at {self.reason}"
