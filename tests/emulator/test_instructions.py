"""Each arithmetic instruction gives the bits that an H200 gave.

The emulator runs it from PTX text.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.evaluate import Case, cases, crcs, evaluate, floats, with_one_nan

OF_GPU, OTHERS = cases()


def opcode_of(case: Case) -> str:
    return re.search(r"[a-z]\w+(?=\.)", case.text)[0]


WORDS = [
    line.split(" | ")
    for line in Path(__file__).with_name("words.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("opcode", dict.fromkeys(opcode_of(case) for case in (*OF_GPU, *OTHERS)))
def test_an_instruction_gives_the_right_bits(opcode):
    """`python -m pytest tests/gpu/test_gpu_instructions.py` on a GPU shows the rows that differ."""
    wrong = []
    for case in (case for case in (*OF_GPU, *OTHERS) if opcode_of(case) == opcode):
        (got,), _ = evaluate(case.text, [case.result], case.types, case.columns())
        wrong += [str(case)] * (crcs(got, case.result) != case.crcs)
    assert wrong == []


@pytest.mark.parametrize("text", dict.fromkeys(text for _, _, text in WORDS))
def test_a_row_gives_the_right_word(text):
    """Each row alone: one that is subnormal makes the emulator round all of them in another way."""
    for right, operands, _ in (row for row in WORDS if row[2] == text):
        (result, word) = right.split()
        pairs = [operand.split() for operand in operands.split(", ")]
        columns = [np.array([int(pattern, 16)], np.uint64) for _, pattern in pairs]
        (got,), _ = evaluate(text, [result], [type_ for type_, _ in pairs], columns)
        wanted = np.array([int(word, 16)], np.uint64)
        assert with_one_nan(got, result) == with_one_nan(wanted, result), (
            f"{operands}: got {int(got[0]):#x}"
        )


@pytest.mark.parametrize("name", ["min", "max"])
def test_floats_of_a_warp_are_reduced_without_those_that_are_nan(name):
    """PTX ISA, redux.sync: .f32, of sm_100a on."""
    column = floats("f32", 32, np.random.default_rng(3))
    (got,), _ = evaluate(f"redux.sync.{name}.f32 $d, $0, -1;", ["f32"], ["f32"], [column])
    numbers = column.astype(np.uint32).view(np.float32)
    assert np.isnan(numbers).any()
    assert (
        got.astype(np.uint32).view(np.float32) == getattr(numbers[~np.isnan(numbers)], name)()
    ).all()


APPROXIMATE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ex2.approx": np.exp2,
    "lg2.approx": np.log2,
    "sin.approx": np.sin,
    "cos.approx": np.cos,
    "tanh.approx": np.tanh,
    "sqrt.approx": np.sqrt,
    "rsqrt.approx": lambda x: 1 / np.sqrt(x),
    "rcp.approx": lambda x: 1 / x,
}
LEAST = np.float32(2.0**-126)


def flushed(x: np.ndarray) -> np.ndarray:
    """Subnormal numbers as zeros of their signs."""
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x).astype(np.float32)


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", APPROXIMATE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_approximate_functions_give_the_nearest_float_and_a_finding(name, ftz):
    rng = np.random.default_rng(2)
    column = np.concatenate(
        [floats("f32", 500, rng), np.float32(rng.uniform(-100, 100, 500)).view(np.uint32)]
    )
    x = column.astype(np.uint32).view(np.float32)
    (got,), result = evaluate(f"{name}{ftz}.f32 $d, $0;", ["f32"], ["f32"], [column])
    right = APPROXIMATE[name]((flushed(x) if ftz else x).astype(np.float64)).astype(np.float32)
    right = flushed(right) if ftz else right
    given = got.astype(np.uint32).view(np.float32)
    near = np.isclose(given, right, rtol=2.0**-23, atol=0, equal_nan=True)
    assert (near | (np.abs(given - right) <= LEAST) & (np.abs(right) < 2.0**-120))[
        ~np.isnan(x)
    ].all()
    (finding,) = result.findings
    assert (finding.kind, finding.is_error, finding.count) == ("approximation", False, 1000)
    assert finding.message.startswith(f"{name}{ftz}.f32 gives the nearest float32")
