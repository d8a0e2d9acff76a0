"""A guard is a comparison with a size, and the head of a loop is none."""

import pytest

from worklog.kernel import Kernel
from worklog.kernel.guards import guarded_sizes

HEAD = "__global__ void f(const float* A, const float* B, float* C, int m, int n, int k)"


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("if (threadIdx.x >= m) return;", ["M"]),
        ("if (threadIdx.x < n && threadIdx.y < m) C[0] = 1;", ["M", "N"]),
        ("for (int i = 0; i < k; ++i) C[i] = 1;", []),
        ("for (int i = 0; i < k; ++i) C[i] = i + 4 < k ? A[i] : 0;", ["K"]),
        ("while (threadIdx.x + 1 <= n) C[0] = 1;", ["N"]),
        ("if (m == n) C[0] = 1;", []),
    ],
)
def test_the_sizes_that_guards_compare_with(body, sizes):
    assert guarded_sizes(Kernel.from_source(f"{HEAD} {{ {body} }}")) == sizes
