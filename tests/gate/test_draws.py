"""A seed draws the same launches on every machine, so that a verdict that states it can be repeated: shapes, scalars,
data and what surrounds them. `python -m tests.gate.test_draws` notes them in draws.json.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.gate.kernels import sequential
from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from worklog.gate import SgemmChecker
from worklog.problem.gemm import Domain, Shape

DRAWS = Path(__file__).with_name("draws.json")
AROUND = 64  # elements beside each matrix
CASES: dict[str, tuple[Shape, Domain, str, str]] = {
    "any shape": (Shape(96, 80, 72), Domain(), "fp32", "emulated"),
    "whole tiles, on a GPU": (Shape(128, 192, 64), Domain(64, 64, 32), "fp32", "live"),
    "squares without alpha and beta": (Shape.of(64), Domain(square=True, alpha=False, beta=False), "fp32", "emulated"),
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
            digest.update(f"{buffer.start} {buffer.size}".encode() + buffer.beyond(AROUND, AROUND).tobytes())
        sequential(p)

    checker = SgemmChecker(device, shape, seed=0)
    for stage in checker.stages(NumpySubject(device, noted, domain, claimed=claimed)):
        assert stage.passed, stage.detail
        by_stage[stage.name] = digest.hexdigest()[:12]
    return by_stage


@pytest.mark.parametrize("name", CASES)
def test_a_seed_draws_the_same_launches(name):
    noted: dict[str, Any] = json.loads(DRAWS.read_text(encoding="utf-8"))
    assert draws(name) == noted.get(name), "other launches: if that is meant, python -m tests.stale --make draws"


if __name__ == "__main__":
    DRAWS.write_text(json.dumps({name: draws(name) for name in CASES}, indent=1) + "\n", encoding="utf-8")
