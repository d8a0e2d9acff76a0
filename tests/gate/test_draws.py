"""A seed draws the same launches on every machine, so that a verdict that states it can be repeated: shapes, scalars,
data and what surrounds them; and what a search for rare paths chooses from. `python -m tests.gate.test_draws` notes
them in draws.json.
"""

import json
import math
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gate.kernels import sequential
from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from worklog.emulator import EmulatedDevice
from worklog.gate import Memory, SgemmChecker, exact
from worklog.gate.edges import mistake_in
from worklog.gate.search import Search
from worklog.kernel import rung
from worklog.problem.gemm import Domain, Shape

DRAWS = Path(__file__).with_name("draws.json")
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


def draws(name: str) -> dict[str, str]:
    """Of each stage, a digest of the launches of a right kernel."""
    shape, domain, claimed, source = CASES[name]
    device, digest, by_stage = NumpyDevice(source), sha256(), dict[str, str]()

    def noted(p: Problem) -> None:
        digest.update(repr((p.m, p.n, p.k, float(p.alpha), float(p.beta))).encode())
        for buffer in (p.a_buffer, p.b_buffer, p.c_buffer):
            digest.update(
                f"{buffer.start} {buffer.size}".encode() + buffer.beyond(AROUND, AROUND).tobytes()
            )
        sequential(p)

    checker = SgemmChecker(device, shape, seed=0)
    for stage in checker.stages(NumpySubject(device, noted, domain, claimed=claimed)):
        assert stage.passed, stage.detail
        by_stage[stage.name] = digest.hexdigest()[:12]
    return by_stage


def searched(name: str) -> dict[str, str]:
    """Of a search in a rung for a few generations: digests of its rows, and of the first three problems."""
    device = EmulatedDevice()
    subject, memory = rung(name).load(device), Memory(device, np.random.default_rng(0))
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
    rows = sha256(
        b"".join(np.ascontiguousarray(search.rows[of]).tobytes() for of in sorted(search.rows))
    )
    by_problem = {"rows": rows.hexdigest()[:12]}
    for number in range(3):
        price, row = search.next(math.inf)
        problem, shifts, words = search.problem(row, "fp32")
        arrays = [
            array.tobytes() for array in (problem.a, problem.b, problem.before) if array is not None
        ]
        text = f"{price:.6g} {shifts} {words} {problem.alpha} {problem.beta}"
        by_problem[f"problem {number}"] = sha256(text.encode() + b"".join(arrays)).hexdigest()[:12]
    return by_problem


ALL = {name: partial(draws, name) for name in CASES}
ALL |= {f"rare paths of {name}": partial(searched, name) for name in ("naive", "equal_shares")}


@pytest.mark.parametrize("name", ALL)
def test_a_seed_draws_the_same_launches(name):
    noted: dict[str, Any] = json.loads(DRAWS.read_text(encoding="utf-8"))
    assert ALL[name]() == noted.get(name), (
        "other launches: if that is meant, python -m tests.stale --make draws"
    )


if __name__ == "__main__":
    DRAWS.write_text(
        json.dumps({name: of() for name, of in ALL.items()}, indent=1) + "\n", encoding="utf-8"
    )
