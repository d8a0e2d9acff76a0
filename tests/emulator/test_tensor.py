"""Tensor-core instructions of a warp: their arithmetic, the places of their operands, their counts, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.evaluate import evaluate
from tests.emulator.helpers import compiled
from tests.emulator.launches import KERNELS, launched
from tests.emulator.tensor_reference import BITS, KINDS, MMAS, Mma
from worklog.emulator import UnsupportedInstruction


def kinds(case: Mma) -> list[str]:
    """Of random operands: integers have one."""
    return [*KINDS] if case.types[2] != "s32" else ["any"]


@pytest.mark.parametrize(("case", "kind"), [(case, kind) for case in MMAS for kind in kinds(case)], ids=str)
def test_each_element_is_its_sum_by_the_rule(case: Mma, kind: str) -> None:
    a, b, c = case.operands(np.random.default_rng(0), kind)
    rows = slice(0, None, 1 if case.types[2] == "s32" else 3)  # sums of floats are slow in fractions
    np.testing.assert_array_equal(case.run(a, b, c)[rows], case.wanted(a[rows], b, c[rows]))


# What an H200 gave: A and B of the products that are not zero, C, and D.
GPUS_WORDS = [
    ("m16n8k8.row.col.f32.tf32.tf32.f32", [(0x1C800000, 0x1C800000), (0x99800000, 0x19800000)], 0, 0x1FF),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", [(0x1C00, 0x9C00), (0x1900, 0x1900)], 0, 0x8000007F),
    # By the rule alone: 511 and 1 times 2^-158, where emax is -133.
    ("m16n8k8.row.col.f32.tf32.tf32.f32", [(0x20FF8000, 0x13800000), (0x1C800000, 0x13800000)], 0, 1),
    ("m16n8k8.row.col.f16.f16.f16.f16", [(0x8400, 0x1000)], 0, 0),
    (
        "m8n8k4.row.col.f64.f64.f64.f64",
        [(0x78F << 52, 0x65A << 52), (0xF90 << 52, 0x734 << 52), (0x8B2 << 52, 0xEC7 << 52)],
        0,
        0x7FF << 52,
    ),
    *(
        ("m16n8k8.row.col.f64.f64.f64.f64", *words)
        for words in (
            ([(0x7FF689F4120444BA, 0x7FF1FA9BDBD8998D)], 0, 0x7FF9FA9BDBD8998D),
            ([(0x7FF259851CA6F93D, 1), (0xFFF126E0392C7042, 1)], 1, 0x7FFA59851CA6F93D),
            ([(1, 0xFFF4562AF6F24EA6)], 0x7FF72A2443DFBE62, 0xFFFC562AF6F24EA6),
            ([(0xFFF2DB249C5A2356, 1)], 0xFFFC577FC0E4556A, 0xFFFC577FC0E4556A),
            ([(0x7FF << 52, 0)], 1, 0xFFF8 << 48),
        )
    ),
]


@pytest.mark.parametrize(("form", "factors", "added", "right"), GPUS_WORDS)
def test_an_mma_gives_an_h200s_words(form: str, factors: list[tuple[int, int]], added: int, right: int) -> None:
    case = Mma(f"mma.sync.aligned.{form}")
    sizes = [(rows, words * case.word // BITS[t]) for (rows, words), t in zip(case.sizes, case.types, strict=True)]
    a, b, c = (np.zeros(size, f"u{BITS[type_] // 8}") for size, type_ in zip(sizes, case.types, strict=True))
    a[:, : len(factors)], b[:, : len(factors)] = np.array(factors, a.dtype).T[:, None]
    c[:] = added
    got = case.run(*(each.view(f"u{case.word // 8}") for each in (a, b, c)))
    assert set(got.view(c.dtype).ravel().tolist()) == {right}


def test_three_products_of_tf32_are_a_product_of_fp32() -> None:
    for parts, least, most in ((1, 1e-4, 1e-2), (3, 0, 8e-6)):
        (*_, a, b, _, c), result, _ = launched("mma_tf32", ("#define PARTS 1", f"#define PARTS {parts}"))
        assert result.findings == () and least < np.abs(c.reshape(128, 128) - a.astype(np.float64) @ b).max() < most
        assert result.counts.instructions["tensor"] == parts * 128**3 // (16 * 8 * 8)


def test_ldmatrix_takes_a_wavefront_per_matrix_and_more_with_bank_conflicts() -> None:
    for line, wavefronts in ((36, 4), (32, 32)):
        _, result, source = launched("mma_tf32", ("#define LINE 36", f"#define LINE {line}"))
        place = next(i.line for i in compiled(source, "k").instructions if i.op.startswith("ldmatrix"))
        counted = result.lines[place].shared_load
        assert (counted.requests, counted.wavefronts) == (512, 512 * wavefronts)


def test_wmma_multiplies_integers_bits_and_doubles_in_its_other_shapes() -> None:
    _, _, old, before, short = KERNELS["wmma_types"].arguments
    (a, b, c, d, e), _, _ = launched("wmma_types")

    def matrix(of: np.ndarray, rows: int, columns: int, line: int, by_rows: bool, start: int = 0) -> np.ndarray:
        lines = of[start : start + line * (rows if by_rows else columns)].reshape(-1, line)
        return lines[:, :columns] if by_rows else lines[:, :rows].T

    forms = [  # shape, line, whether A lies by rows, A, B, what is added to, the result, and where it is
        ((16, 16, 16), 32, True, a.view(np.int8), b.view(np.int8), old, c, 0),
        ((16, 16, 16), 32, False, a.view(np.int8), b.view(np.int8), old, c, 1024),
        ((32, 8, 16), 32, True, a, b, old, c, 2048),
        ((8, 32, 16), 48, False, a, b, old, c, 3072),
        ((8, 8, 4), 8, True, d[64:], d[128:], before, d, 0),
        ((8, 8, 4), 8, False, d[64:], d[128:], before, d, 192),
        ((32, 8, 16), 32, True, a.view(np.float16), e[1024:], short, e, 0),
        ((8, 32, 16), 32, False, a.view(np.float16), e[1024:], short, e, 2048),
    ]
    for (m, n, k), line, by_rows, left, right, sums, out, start in forms:
        b_by_rows = by_rows if out is e else not by_rows
        x, y = matrix(left, m, k, line, by_rows), matrix(right, k, n, line, b_by_rows)
        wanted = x.astype(np.float64) @ y + matrix(sums, m, n, line, True, start)
        np.testing.assert_allclose(matrix(out, m, n, line, False, start), wanted, rtol=1e-14, atol=1e-14)
    x, y = (np.unpackbits(of[: 8 * 32].reshape(8, 32)[:, :16], axis=1).astype(int) for of in (a, b))
    np.testing.assert_array_equal(c[5120:].reshape(-1, 32)[:8, :8], x @ y.T)


def test_an_mma_without_all_threads_of_its_warp_is_found() -> None:
    for change, block in ((('  asm volatile("mma', '  if (lane != 5) asm volatile("mma'), 32), ("", 31)):
        _, result, source = launched("mma_f16", change, block=block)
        line = next(i.line for i in compiled(source, "k").instructions if i.op.startswith("mma"))
        assert "divergent-warp" in [f.kind for f in result.findings if f.line == line] and not result.ok


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "mma.sync.aligned.m16n8k8.row.col.f32.e5m2.e5m2.f32"),
        ("mma.sync.aligned.m16n8k8.row", "mma.sync.aligned.m16n8k16.row"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m16n16.x4.shared.b8"),
    ],
)
def test_another_form_is_refused(old: str, new: str) -> None:
    text, held = MMAS[1].text(), MMAS[1].held
    if old not in text:
        text = "{ .reg .b64 q; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$d0,$d1,$d2,$d3}, [q]; }"
    with pytest.raises(UnsupportedInstruction, match="this form of a tensor-core instruction"):
        evaluate(text.replace(old, new), held[:4], held, np.zeros((len(held), 32), np.uint64))
