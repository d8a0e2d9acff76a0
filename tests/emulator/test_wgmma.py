"""wgmma: where its operands lie in shared memory, its arithmetic, and what is found where a kernel does not wait."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import compiled, cuda, edited, integers
from tests.emulator.tensor_reference import BITS, dot, ptx_of, random_words
from tests.emulator.wgmma_reference import CASES, Case, sums_of, wgmma
from worklog.emulator import Result, UnsupportedInstruction, launch, load

SOURCE = cuda("wgmma_tf32")
PROXY = '    asm volatile("fence.proxy.async;" ::: "memory");\n'
FENCE = '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
BARRIER = "    __syncthreads();\n"


def run(case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray, scaled: bool) -> tuple[np.ndarray, Result]:
    text, registers, results = wgmma(case, a, b, c, scaled)
    stacked, out = np.stack(registers).astype(np.uint32), np.zeros((results, 128), np.uint32)
    result = launch(load(ptx_of(text, len(stacked), results), "k"), (1,), 128, [stacked, out])
    return out, result


def bits(x: np.ndarray, type_: str) -> np.ndarray:
    if type_ == "bf16":
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    size = BITS[type_] // 8
    return x.astype(f"{'f' if 'f' in type_ else 'i'}{size}").view(f"u{size}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_layout_is_a_matrix_product(case: Case) -> None:
    """With C added and without, of numbers whose sums are exact."""
    rng, k = np.random.default_rng(0), 256 // BITS[case.type_]
    a, b, c = integers(rng, 64, k), integers(rng, case.columns, k), integers(rng, 64, case.columns)
    a, b = (abs(x) if case.type_ == "u8" else x for x in (a, b))
    for scaled in (True, False):
        own = bits(a, case.type_), bits(b, case.type_), bits(c, case.sum_type)
        got, result = run(case, *own, scaled)
        wanted = case.signs[0] * case.signs[1] * (a @ b.T) + (c if scaled else 0)
        np.testing.assert_array_equal(got, np.stack(sums_of(bits(wanted, case.sum_type))))
        assert result.findings == ()


@pytest.mark.parametrize("case", [case for case in CASES if case.columns < 32 and case.signs == (1, 1)], ids=str)
def test_each_element_is_its_sum_by_the_rule(case: Case) -> None:
    rng, k = np.random.default_rng(0), 256 // BITS[case.type_]
    shapes, types = ((64, k), (case.columns, k), (64, case.columns)), (case.type_, case.type_, case.sum_type)
    a, b, c = (random_words(rng, t, x * y, "special").reshape(x, y) for (x, y), t in zip(shapes, types, strict=True))
    got, _ = run(case, a, b, c, True)
    wanted, tested = np.zeros_like(c), np.zeros_like(c)
    for i in range(0, 64, 9):
        wanted[i] = [dot(a[i].tolist(), row.tolist(), int(x), *types[1:]) for row, x in zip(b, c[i], strict=True)]
        tested[i] = -1 % 2 ** (8 * c.itemsize)
    expected, mask = (np.stack(sums_of(x)) for x in (wanted, tested))
    np.testing.assert_array_equal(got & mask, expected)


def multiply(source: str) -> tuple[bool, Result]:
    rng, c = np.random.default_rng(0), np.full((64, 128), np.nan, np.float32)
    a, b = integers(rng, 64, 64), integers(rng, 64, 128)
    result = launch(compiled(source, "k"), (2, 1), 128, [64, 128, 64, 1.0, a, b, 0.0, c], source=source)
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


def test_half_a_warp_group_is_found() -> None:
    a, b, c = (np.zeros(shape, np.uint32) for shape in ((64, 8), (8, 8), (64, 8)))
    text, registers, results = wgmma(CASES[0], a, b, c, True)
    stacked, out = np.stack(registers)[:, :64].copy(), np.zeros((results, 64), np.uint32)
    result = launch(load(ptx_of(text, len(stacked), results), "k"), (1,), 64, [stacked, out])
    assert "divergent-warp" in {f.kind for f in result.findings}


def test_another_form_is_refused() -> None:
    case = CASES[0]
    shapes = ((64, 8, "u4"), (case.columns, 8, "u4"), (64, case.columns, np.uint32))
    text, registers, results = wgmma(case, *(np.zeros((n, m), t) for n, m, t in shapes), True)
    with pytest.raises(UnsupportedInstruction, match="warp-group tensor-core"):
        ptx = ptx_of(text.replace("f32.tf32.tf32", "f32.e4m3.e5m2"), len(registers), results)
        launch(load(ptx, "k"), (1,), 128, [np.stack(registers), np.zeros((results, 128), np.uint32)])
