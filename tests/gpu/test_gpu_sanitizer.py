"""compute-sanitizer on a real GPU: it reports an exploit's race or out-of-bounds access with its line."""

from __future__ import annotations

import pytest

from worklog.gate import Stage
from worklog.peers.exploits import exploits
from worklog.runner import sanitizer
from worklog.runner.sanitizer import find, ready

pytestmark = pytest.mark.skipif(find() is None, reason="compute-sanitizer is not installed")
BY_NAME = {exploit.name: exploit.kernel for exploit in exploits()}


def sanitize(name: str) -> list[Stage]:
    return sanitizer.sanitize(ready(BY_NAME[name], None), BY_NAME[name])


def test_a_right_kernel_is_clean() -> None:
    assert [(stage.name, stage.passed, stage.note) for stage in sanitize("guarded_tiles")] == [
        ("racecheck", True, ""),
        ("memcheck", True, ""),
    ]


@pytest.mark.parametrize("name", ["missing_first_barrier", "missing_second_barrier"])
def test_a_missing_barrier_is_a_race_with_its_lines(name: str) -> None:
    race, _ = sanitize(name)
    assert not race.passed, race.detail
    assert "Race reported between" in race.detail and f"{name}.cu:" in race.detail


@pytest.mark.parametrize(("name", "verb"), [("load_without_bounds", "read"), ("store_without_bounds", "write")])
def test_an_access_outside_a_matrix_is_reported_with_its_line(name: str, verb: str) -> None:
    _, memory = sanitize(name)
    assert not memory.passed and f"Invalid __global__ {verb}" in memory.detail and f"{name}.cu:" in memory.detail
