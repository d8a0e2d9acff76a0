"""A seed draws the same launches on every machine.

So a verdict that states the seed can be repeated: shapes, scalars, data and what surrounds them,
and what a search for rare paths chooses from. `python -m tests.gate.test_draws` lists them in
draws/, a line a launch.
"""

import math
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.gate.kernels import sequential
from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from tests.noted import keep, require_as_noted
from worklog.gate import Memory, SgemmChecker, exact
from worklog.gate.edges import mistake_in
from worklog.gate.search import Search
from worklog.kernel import rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Domain, Shape

DRAWS = Path(__file__).with_name("draws")
AROUND = 64  # elements beside each matrix
CASES: dict[str, tuple[Shape, Domain, str, str]] = {
    "any shape": (Shape(96, 80, 72), Domain(), "fp32", "emulated"),
    "whole tiles, on a GPU": (Shape(128, 192, 64), Domain(64, 64, 32), "fp32", "live"),
    "squares without alpha and beta": (
        Shape.of(64),
        Domain(square=True, alpha=False, beta=False),
        "fp32",
        "emulated",
    ),
    "tf32, any data, loads of 16 bytes": (
        Shape(66, 132, 260),
        Domain(1, 4, 4, any_data=True, bytes_of=(16, 16, 4)),
        "tf32",
        "emulated",
    ),
    "bf16": (Shape(70, 33, 64), Domain(), "bf16", "emulated"),
}


def digest(*data: bytes) -> str:
    return sha256(b"".join(data)).hexdigest()[:8]


def draws(name: str) -> str:
    """Return the launches of a right kernel in each stage.

    Of a launch: sizes and scalars, and of each matrix its place and a digest of its data with what
    surrounds it.
    """
    shape, domain, claimed, source = CASES[name]
    device = NumpyDevice(source)
    lines = list[str]()

    def noted(p: Problem) -> None:
        columns = [f"{p.m} {p.n} {p.k} alpha={float(p.alpha)} beta={float(p.beta)}"]
        for letter, buffer in zip("ABC", (p.a_buffer, p.b_buffer, p.c_buffer), strict=True):
            data = digest(buffer.beyond(AROUND, AROUND).tobytes())
            columns.append(f"{letter}: {buffer.size} at {buffer.start} {data}")
        lines.append(", ".join(columns))
        sequential(p)

    checker = SgemmChecker(device, shape, seed=0)
    stage_line = 0
    for stage in checker.stages(NumpySubject(device, noted, domain, claimed=claimed)):
        assert stage.passed, stage.detail
        lines.insert(stage_line, f"[{stage.name}]")
        stage_line = len(lines)
    return "\n".join(lines) + "\n"


def searched(name: str) -> str:
    """Return what a search in a rung for a few generations chooses from.

    These are its columns, and the first three problems.
    """
    device = EmulatedDevice()
    subject = rung(name).load(device)
    memory = Memory(device, np.random.default_rng(0))
    problem = exact.ExactProblem(
        "E1", *exact.family("E1", subject.domain.padded(Shape(33, 47, 20)), memory.rng)
    )
    assert mistake_in(subject, memory, problem) is None
    ((key, _), coverage), *_ = device.coverage.items()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worklog.gate.search.GENERATIONS", 3)
        patch.setattr(Search, "hopeful", lambda self: False)
        search = Search(subject, key, coverage, memory.rng)
        search.explore(math.inf)
    lines = list[str]()
    for column in sorted(search.rows):
        values = np.ascontiguousarray(search.rows[column])
        lines.append(f"{column}: {len(values)} rows {digest(values.tobytes())}")
    for number in range(3):
        price, row = search.cheapest_launch(math.inf)
        problem, shifts, text = search.problem(row, subject.claim)
        lines.append(f"problem {number}: {text}, price {price:.6g}, shifts {shifts}")
        lines.append(f"    alpha={problem.alpha} beta={problem.beta}")
        for letter, array in zip("ABC", (problem.a, problem.b, problem.initial_c), strict=True):
            if array is not None:
                lines.append(f"    {letter}: {array.shape} {digest(array.tobytes())}")
    return "\n".join(lines) + "\n"


ALL = {name: partial(draws, name) for name in CASES}
ALL |= {f"rare paths of {name}": partial(searched, name) for name in ("naive", "equal_shares")}


@pytest.mark.parametrize("name", ALL)
def test_a_seed_draws_the_same_launches(name):
    advice = "other launches: if that is meant, python -m tests.stale --make draws"
    require_as_noted(DRAWS, name, ALL[name](), advice)


def test_other_launches_fail_with_what_differs(tmp_path):
    keep(tmp_path, {"a case": "[products]\n16 16 8 alpha=1\n16 16 9 alpha=1\n"})
    with pytest.raises(pytest.fail.Exception, match=r"-16 16 9 alpha=1\n\+16 16 9 alpha=-3"):
        require_as_noted(tmp_path, "a case", "[products]\n16 16 8 alpha=1\n16 16 9 alpha=-3\n", "")
    with pytest.raises(pytest.fail.Exception, match="what to do\n--- as it was kept"):
        require_as_noted(tmp_path, "a new case", "[products]\n", "what to do")
    keep(tmp_path, {"a new case": "[products]\n"})
    assert [file.name for file in tmp_path.iterdir()] == ["a_new_case.txt"]


if __name__ == "__main__":
    for changed in keep(DRAWS, {name: text_of() for name, text_of in ALL.items()}):
        print(f"other launches: {changed}")
