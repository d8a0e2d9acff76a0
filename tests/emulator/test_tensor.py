"""Tensor-core instructions of a warp.

Their arithmetic, the places of their operands, their counts, and mistakes.
"""

import zlib

import numpy as np
import pytest

from tests.emulator.evaluate import evaluate
from tests.emulator.helpers import compiled
from tests.emulator.launches import launched
from tests.emulator.tensor import CRCS, MMAS, TENSOR, WGMMAS, Mma, Wgmma, results_of
from worklog.emulator.ptx import UnsupportedInstruction


def crc(case: Mma | Wgmma, kind: str) -> str:
    got = [results_of(launch, evaluate)[0] for launch in case.launches(kind)]
    return f"{zlib.crc32(np.concatenate(got).astype('<u8').tobytes()):08x}"


@pytest.mark.parametrize(
    ("case", "kind"), [(case, kind) for case in TENSOR for kind in case.kinds], ids=str
)
def test_an_instruction_gives_the_gpus_bits(case, kind):
    assert crc(case, kind) == CRCS[f"{case} {kind}"]


def test_three_products_of_tf32_are_a_product_of_fp32():
    for parts, least, most in ((1, 1e-4, 1e-2), (3, 0, 8e-6)):
        (*_, a, b, _, c), result, _ = launched(
            "mma_tf32", ("#define PARTS 1", f"#define PARTS {parts}")
        )
        assert (
            result.findings == ()
            and least < np.abs(c.reshape(128, 128) - a.astype(np.float64) @ b).max() < most
        )
        assert result.counts.instructions["tensor"] == parts * 128**3 // (16 * 8 * 8)


def test_ldmatrix_takes_a_wavefront_per_matrix_and_more_with_bank_conflicts():
    for line, wavefronts in ((36, 4), (32, 32)):
        _, result, source = launched("mma_tf32", ("#define LINE 36", f"#define LINE {line}"))
        place = next(
            i.line for i in compiled(source, "k").instructions if i.op.startswith("ldmatrix")
        )
        counted = result.lines[place].shared_load
        assert (counted.requests, counted.wavefronts) == (512, 512 * wavefronts)


def test_an_mma_without_all_threads_of_its_warp_is_found():
    for change, block in (
        (('  asm volatile("mma', '  if (lane != 5) asm volatile("mma'), 32),
        ("", 31),
    ):
        _, result, source = launched("mma_f16", change, block=block)
        line = next(i.line for i in compiled(source, "k").instructions if i.op.startswith("mma"))
        assert (
            "divergent-warp" in [f.kind for f in result.findings if f.line == line]
            and not result.ok
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
            "mma.sync.aligned.m16n8k8.row.col.f32.e5m2.s8.f32",
        ),
        ("mma.sync.aligned.m16n8k8.row", "mma.sync.aligned.m16n8k16.row"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m16n16.x4.shared.b8"),
        ("f32.tf32.tf32", "f32.e4m3.e5m2"),  # whose step has 32 numbers of K
    ],
)
def test_another_form_is_refused(old, new):
    launch = (
        next(MMAS[1].launches("any")) if old.startswith("mma") else next(WGMMAS[0].launches("any"))
    )
    if old.startswith("ldmatrix"):
        launch = launch._replace(text=f"{{ .reg .b64 q; {old} {{$d0,$d1,$d2,$d3}}, [q]; }}")
    with pytest.raises(
        UnsupportedInstruction,
        match=r"this form of a tensor-core instruction|warp-group tensor-core",
    ):
        results_of(launch._replace(text=launch.text.replace(old, new)), evaluate)


def test_a_step_of_8_k_is_one_instruction_of_each_warp():
    assert (
        launched("wgmma_tf32")[1].counts.instructions["tensor"] == 2 * 4 * 8
    )  # blocks, warps, steps


@pytest.mark.parametrize("case", WGMMAS, ids=str)
def test_a_wgmma_by_a_whole_warp_group_is_right_and_by_half_of_one_is_found(case):
    launch = next(case.launches("near"))
    assert results_of(launch, evaluate, races=True)[1].findings == ()
    _, half = results_of(launch._replace(registers=launch.registers[:, :64]), evaluate, races=True)
    assert "divergent-warp" in {finding.kind for finding in half.findings}
