"""The gate names the sizes beyond those of a verdict at which a kernel can't be right."""

import pytest

from worklog.errors import BadSetting
from worklog.gate.limits import check_limits, require_grid
from worklog.kernel import Kernel, rung
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runs import Stage

BOX = (1200, 1200, 1100)
LOOP = "  float acc = 0.0f;\n"
STAGED = (
    "  __shared__ volatile float staged[4096];\n  for (int k = threadIdx.x; k < K; k += "
    "1024) staged[k] = 0;\n"
)


def edited(old: str, new: str) -> Kernel:
    text = rung("naive").source
    assert old in text
    return rung("naive").with_text(text.replace(old, new, 1))


def limits_of(kernel: Kernel, *, quick: bool = False) -> Stage:
    stage = check_limits(kernel.load(EmulatedDevice()), BOX, quick=quick)
    assert stage.passed
    return stage


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("A[(size_t)row * K + k]", "A[row * K + k]", "overflows from M·K = 2^31 on, in line 26"),
        ("B[(size_t)k * N + col]", "B[k * N + col]", "overflows from N·K = 2^31 on, in line 26"),
        ("C[(size_t)row * N + col]", "C[row * N + col]", "overflows from M·N = 2^31 on, in line"),
        (
            "A[(size_t)row * K + k]",
            "*(const float*)((const char*)A + (int)((unsigned)(row * K + k) * 4u))",
            "overflows from M·K = 2^29 on, in line 26",
        ),
        (LOOP, STAGED + LOOP, "K ≤ 4,096: shared-out-of-bounds in line 25"),
    ],
)
def test_an_access_outside_of_memory_beyond_the_verdict_is_named(old, new, named):
    assert named in limits_of(edited(old, new)).note
    quick = limits_of(edited(old, new), quick=True)
    assert not quick.note and quick.detail.endswith("; nothing was launched there")


TICKETS = "atomicAdd(&tickets[(M / 32) * (N / 32) * (K / 32)], 0);\n"


@pytest.mark.parametrize(("count", "fits"), [(37 * 37 * 34 + 1, True), (37 * 37 * 34, False)])
def test_what_is_too_small_for_the_largest_sizes_together_fails(count, fits):
    text = rung("naive").source.replace(LOOP, TICKETS + LOOP)
    kernel = rung("naive").with_text(f"__device__ int tickets[{count}];\n{text}")
    stage = check_limits(kernel.load(EmulatedDevice()), BOX, quick=True)
    assert stage.passed == fits
    if not fits:
        assert stage.detail.startswith("at 1200x1200x1100: global-out-of-bounds in line ")


def test_blocks_that_wait_are_not_launched_alone():
    spin = "while (*(volatile const float*)A == 12345.0f) {}\n"
    stage = limits_of(edited(LOOP, spin + LOOP))
    assert stage.note == "M, N and K weren't launched at their largest together"


@pytest.mark.parametrize("name", ["naive", "coalesced", "warptiled", "vectorized"])
def test_a_kernel_without_limits_has_no_note(name):
    assert not limits_of(rung(name)).note


def test_a_kernel_that_reads_the_number_of_multiprocessors_was_tested_with_one_number():
    stride = 'int n;\n  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(n));\n' + LOOP
    assert limits_of(edited(LOOP, stride)).clause == "tested where %nsmid is 132"
    assert not limits_of(rung("naive")).clause


def test_a_grid_with_a_row_for_each_block_ends_at_65535_rows():
    kernel = Kernel.from_source(rung("naive").source, grid="(N + 31) / 32, M", block="32, 32")
    assert limits_of(kernel, quick=True).note == "M ≤ 65,535: a grid has 65,535 blocks along y"
    require_grid(kernel, Shape(65_535, 5, 2))
    with pytest.raises(BadSetting, match=r"has 65,536 blocks along y at 65536x5x2.*smaller size"):
        require_grid(kernel, Shape(65_536, 5, 2))
