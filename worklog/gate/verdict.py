"""What the gate says: each stage with its margin, and for a refusal which stage, why and where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One question and its answer.

    measured and limit are in the stage's own unit (wrong elements for the exact stages, units of u·D for precision);
    a stage passes when measured <= limit. detail says what was asked, or for a failure what was found and where.
    """

    name: str
    passed: bool
    measured: float
    limit: float
    detail: str


@dataclass(frozen=True)
class Verdict:
    """Accepted, or refused at the last of its stages. precision: the class found, "fp32", "tf32", "bf16" or "wrong";
    None before that stage.
    """

    stages: tuple[Stage, ...]
    precision: str | None

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

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return {
            "accepted": self.accepted,
            "precision": self.precision,
            "reason": self.reason,
            "stages": [asdict(s) for s in self.stages],
        }

    def __str__(self) -> str:
        return f"{self.precision} ok" if self.accepted else f"refused at {self.reason}"
