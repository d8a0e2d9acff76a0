"""wgmma: where its operands lie in shared memory, its arithmetic, and what is found where a kernel does not wait."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.evaluate import evaluate
from tests.emulator.helpers import cuda, edited, integers, run
from tests.emulator.tensor_reference import BITS, dot, matrix_of, random_words
from tests.emulator.wgmma_reference import CASES, Case, wgmma
from worklog.emulator import Result, UnsupportedInstruction

SOURCE = cuda("wgmma_tf32")
PROXY = '    asm volatile("fence.proxy.async;" ::: "memory");\n'
FENCE = '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
BARRIER = "    __syncthreads();\n"


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


def multiply(source: str) -> tuple[bool, Result]:
    rng, c = np.random.default_rng(0), np.full((64, 128), np.nan, np.float32)
    a, b = integers(rng, 64, 64), integers(rng, 64, 128)
    result = run(source, [64, 128, 64, 1.0, a, b, 0.0, c], grid=(2, 1), block=128)
    return np.array_equal(c, a @ b), result


def test_a_kernel_multiplies_matrices() -> None:
    right, result = multiply(SOURCE)
    assert right and result.findings == ()
    assert result.counts.instructions["tensor"] == 2 * 4 * 8  # blocks, warps, steps of 8 k


@pytest.mark.parametrize(
    ("old", "new", "kinds", "message"),
    [
        (PROXY, "", {"missing-fence"}, "was written in line 42, with no fence.proxy.async in between"),
        (FENCE, "", {"missing-fence"}, "executes wgmma.mma_async before any wgmma.fence"),
        ("group.sync.aligned 0", "group.sync.aligned 1", {"early-overwrite", "missing-wait"}, "wgmma.wait_group"),
        (BARRIER + "  }", "  }", {"shared-race"}, "with neither an mbarrier nor __syncthreads() between them"),
        (PROXY + BARRIER, PROXY, {"shared-race"}, "with neither an mbarrier nor __syncthreads() between them"),
        ("[64][32], b[64][32]", "[64][32], b[32][32]", {"shared-out-of-bounds"}, "block's 12288 bytes"),
        ("descriptor(stage.a) + k", "descriptor(stage.a) + t % 2 + k", {"descriptor"}, "differs from its warp's"),
    ],
)
def test_mistakes_are_found(old: str, new: str, kinds: set[str], message: str) -> None:
    findings = multiply(edited(SOURCE, old, new)[0])[1].findings
    assert kinds <= {f.kind for f in findings}, findings
    assert any(message in f.message for f in findings)


def test_half_a_warp_group_is_found_and_another_form_is_refused() -> None:
    zeros = [np.zeros(shape, np.uint32) for shape in CASES[0].shapes]
    assert "divergent-warp" in {f.kind for f in multiplied(CASES[0], *zeros, threads=64)[1].findings}
    with pytest.raises(UnsupportedInstruction, match="warp-group tensor-core"):
        multiplied(CASES[0], *zeros, old="f32.tf32.tf32", new="f32.e4m3.e5m2")
