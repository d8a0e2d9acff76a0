"""Several products in one launch: operands of each, and distances between them."""

import numpy as np
import pytest

from tests.gate.test_formats import FOLDER, kernel
from worklog.gate import Memory
from worklog.gate.batch import check_batch
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem.formats import FLOAT16
from worklog.runner.check import check

OWN_STRIDE = ("long long strideC,", "long long strideC, long long stride_residual,")


def verdict(batched):
    return check(batched, on="emulated", seed=1, quick=True).verdict


def with_own_stride(args=None):
    source = kernel("batched_residual", *OWN_STRIDE).source
    source = source.replace("residual += z * strideC", "residual += z * stride_residual")
    return Kernel.from_source(source, args=args)


@pytest.mark.parametrize("batched", [kernel("batched_residual"), with_own_stride()], ids=str)
def test_each_product_may_have_a_residual_of_its_own(batched):
    assert verdict(batched).accepted


def test_one_residual_for_all_products_has_a_distance_of_0():
    order = "A,B,C,residual,bias,M,N,K,M * K,K * N,M * N,0,batch,alpha"
    assert verdict(with_own_stride(order)).accepted
    failure = verdict(kernel("batched_residual", " residual += z * strideC;")).failed
    assert failure is not None and "the residual of the first product" in failure.detail


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("bias[col]", "(z ? 0 : bias[col])", "bias is ignored"),
        ("alpha * sum", "(z ? 1 : alpha) * sum", "alpha is ignored"),
        ("__float2half(fmaxf(", "__float2half((z ? -1e9f : 0) < 0 ? alpha * sum + bias[col] + "
         "__half2float(residual[row * N + col]) : fmaxf(", "relu is left out"),
    ],
)  # fmt: skip
def test_what_the_first_product_alone_has_is_named(old, new, cause):
    failure = verdict(kernel("batched_residual", old, new)).failed
    assert failure is not None and cause in failure.detail, failure


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("A += z * strideA", "A += z * M * K", "strideA isn't"),
        ("z * strideB", "z * strideA", "strideA and strideB aren't"),
        ("z * strideC", "z * M * N", "strideC isn't"),
        ("z * strideA", "z * (unsigned short)strideA", "strideA isn't"),
    ],
)
def test_the_distance_that_is_wrong_is_named(old, new, named):
    failure = verdict(kernel("batched", old, new)).failed
    assert failure is not None and named in failure.detail, failure


@pytest.mark.parametrize("matrix", ["A", "B", "C"])
@pytest.mark.parametrize("type_", ["int", "unsigned"])
def test_offsets_of_32_bits_are_found_where_distances_have_64(matrix, type_):
    failure = verdict(kernel("batched", f"stride{matrix};", f"({type_})stride{matrix};")).failed
    assert failure is not None and f"stride{matrix} isn't computed in 64" in failure.detail, failure


def test_distances_of_32_bits_are_right():
    source = (FOLDER / "batched.cu").read_text(encoding="utf-8").replace("long long", "int")
    assert verdict(Kernel.from_source(source)).accepted


def test_reserved_memory_is_zero_and_holds_what_is_written():
    device = EmulatedDevice()
    reserved = device.reserve(2**32, FLOAT16)
    assert reserved.size == 2**32
    end = device.view(reserved, 2**32 - 4, 4)
    device.overwrite(device.view(end, 1, 1), np.array([2.5], np.float32))
    assert device.download(end).tolist() == [0, 2.5, 0, 0]


LEADING = """#include <cuda_fp16.h>
// grid: (N + 15) / 16, (M + 15) / 16, batch   block: 16, 16
__global__ void bgemm(const half* A, int lda, long long strideA, const half* B, int ldb,
                      long long strideB, float* C, int ldc, long long strideC, int M, int N, int K,
                      int batch) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x, z = blockIdx.z;
  if (row >= M || col >= N) return;
  const half* a = A + z * strideA;
  const half* b = B + z * strideB;
  float sum = 0;
  for (int k = 0; k < K; ++k)
    sum += __half2float(a[row * lda + k]) * __half2float(b[k * ldb + col]);
  C[z * strideC + row * ldc + col] = sum;
}
"""


def stage_of(old="", new=""):
    """Return the stage for a batch of LEADING with one text in place of another."""
    assert old in LEADING
    subject = Kernel.from_source(LEADING.replace(old, new, 1)).load(EmulatedDevice())
    return check_batch(subject, Memory(subject.device, np.random.default_rng(0)))


def test_a_batch_of_longer_rows_is_right():
    assert stage_of().passed


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("row * lda", "row * (z ? K : lda)", "lda"),
        ("k * ldb", "k * (z ? N : ldb)", "ldb"),
        ("row * ldc", "row * (z ? N : ldc)", "ldc"),
    ],
)
def test_a_leading_dimension_that_the_first_product_alone_has_is_named(old, new, named):
    stage = stage_of(old, new)
    assert not stage.passed
    assert f"with {named} above the rows' length" in stage.detail, stage


@pytest.mark.parametrize(
    "limited", ["z % 8", "z % 64", "(unsigned char)z", "(z == batch - 1 && z > 9 ? 0 : z)"]
)
def test_products_beyond_the_first_few_are_checked(limited):
    assert not stage_of("A + z", f"A + {limited}").passed
