"""wgmma: where its operands lie in shared memory, and its arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.evaluate import evaluate
from tests.emulator.helpers import integers
from tests.emulator.launches import launched
from tests.emulator.tensor_reference import BITS, dot, matrix_of, random_words
from tests.emulator.wgmma_reference import CASES, Case, wgmma
from worklog.emulator import Result, UnsupportedInstruction


def multiplied(
    case: Case, *matrices: np.ndarray, scaled: bool = True, threads: int = 128, old: str = "", new: str = ""
) -> tuple[np.ndarray, Result]:
    """The patterns of D, and the result."""
    text, registers, results = wgmma(case, *matrices, scaled)
    words = ["b32"] * len(registers)
    got, result = evaluate(text.replace(old, new), words[:results], words, registers[:, :threads], races=True)
    packed = BITS[case.sum_type] * case.columns // 32
    rows = matrix_of(got, packed, case.each, 4).astype(np.uint32) if threads == 128 else got
    return rows.view(f"u{BITS[case.sum_type] // 8}"), result


def bits(x: np.ndarray, type_: str) -> np.ndarray:
    if type_ == "bf16":
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    size = BITS[type_] // 8
    return x.astype(f"{'f' if 'f' in type_ else 'i'}{size}").view(f"u{size}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_layout_is_a_matrix_product(case: Case) -> None:
    """With C added and without, of numbers whose sums are exact."""
    a, b, c = (integers(np.random.default_rng(0), *shape) for shape in case.shapes)
    a, b = (abs(x) if case.type_ == "u8" else x for x in (a, b))
    own = [bits(x, type_) for x, type_ in zip((a, b, c), case.types, strict=True)]
    for scaled in (True, False):
        got, result = multiplied(case, *own, scaled=scaled)
        right = case.signs[0] * case.signs[1] * (a @ b.T) + (c if scaled else 0)
        np.testing.assert_array_equal(got, bits(right, case.sum_type))
        assert result.findings == ()


@pytest.mark.parametrize("case", [case for case in CASES if case.columns < 32 and case.signs == (1, 1)], ids=str)
def test_each_element_is_its_sum_by_the_rule(case: Case) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (random_words(rng, t, shape, "special") for t, shape in zip(case.types, case.shapes, strict=True))
    got, _ = multiplied(case, a, b, c)
    for i in range(0, 64, 9):
        right = [dot(a[i].tolist(), row.tolist(), int(x), *case.types[1:]) for row, x in zip(b, c[i], strict=True)]
        assert got[i].tolist() == right


def test_a_step_of_8_k_is_one_instruction_of_each_warp() -> None:
    assert launched("wgmma_tf32")[1].counts.instructions["tensor"] == 2 * 4 * 8  # blocks, warps, steps


def test_half_a_warp_group_is_found_and_another_form_is_refused() -> None:
    zeros = [np.zeros(shape, np.uint32) for shape in CASES[0].shapes]
    assert "divergent-warp" in {f.kind for f in multiplied(CASES[0], *zeros, threads=64)[1].findings}
    with pytest.raises(UnsupportedInstruction, match="warp-group tensor-core"):
        multiplied(CASES[0], *zeros, old="f32.tf32.tf32", new="f32.e4m3.e5m2")
