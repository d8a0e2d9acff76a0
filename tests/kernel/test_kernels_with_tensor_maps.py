"""Kernels whose parameters are tensor maps: right ones pass, wrong ones fail, and errors advise."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from worklog.emulator.ptx import UnsupportedInstruction
from worklog.errors import BadSetting, LaunchFailed
from worklog.gpu.tensor_maps import encode as encode_map
from worklog.kernel import Kernel
from worklog.kernel.prediction import count_all
from worklog.kernel.signature import matrix_of_map
from worklog.kernel.trial import completed
from worklog.problem import Shape
from worklog.runner.check import check
from worklog.viewer.trace import executed

FOLDER = Path(__file__).with_name("tensor_maps")
RIGHT = {
    "float_comment": ("map of A", "map of B"),
    "float_pointer": ("address of a map of A", "address of a map of B"),
    "float_multicast": ("map of A", "map of B"),
    "half_swizzled": ("map of A", "map of B"),
    "half_wgmma": ("map of A", "map of B"),
}
COMMENT = "// tensor maps: tma_a = A, box 32 x 32; tma_b = B, box 32 x 32\n"


def kernel(name: str, *changes: tuple[str, str]) -> Kernel:
    """Return a kernel of the folder, with one text in place of another."""
    source = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new, 1)
    return Kernel.from_source(source, file=f"{name}.cu")


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(name):
    right = kernel(name)
    assert tuple(value for value in right.arguments if "map of" in value) == RIGHT[name]
    checked = check(right, on="emulated", seed=1, quick=True)
    assert checked.verdict.accepted, checked.verdict.reason


WRONG = [
    ("float_comment", [("tma_a = A, box 32 x 32", "tma_a = A, box 16 x 32")], "byte-count"),
    ("float_comment", [("tma_a = A", "tma_a = B"), ("tma_b = B", "tma_b = A")], "are wrong"),
    ("float_comment", [("tma_a = A, box 32 x 32", "tma_a = A, box 32 x 32, swizzle 128B")], ""),
    ("float_comment", [("    wait(", "    if (k) wait(")], "early-overwrite"),
    ("float_comment", [("    __syncthreads();\n  }\n  for", "  }\n  for")], "early-overwrite"),
    ("float_pointer", [("make_map(A, M, K)", "make_map(A, K, M)")], ""),
    (
        "half_swizzled",
        [("A, box TILE x TILE of half, swizzle 64B", "A, box TILE x TILE of half")],
        "",
    ),
    ("half_swizzled", [("(column / 8 ^ row / 2 % 4)", "(column / 8)")], "are wrong"),
    ("half_wgmma", [("SWIZZLE_128B", "SWIZZLE_NONE")], "are wrong"),
    ("half_wgmma", [("map_of<BM, BK>(A", "map_of<BM / 2, BK>(A")], "byte-count"),
    ("half_wgmma", [("    wait(&barrier, phase);\n", "")], ""),
    ("float_multicast", [("(unsigned short)3", "(unsigned short)1")], "byte-count"),
    ("float_multicast", [("a_tile[first]", "a_tile[0]")], ""),
    ("float_multicast", [("    meet();\n  }", "    __syncthreads();\n  }")], "early-overwrite"),
    ("float_multicast", [("  meet();\n  float", "  __syncthreads();\n  float")], "mbarrier-misuse"),
]


@pytest.mark.parametrize(("name", "changes", "reason"), WRONG)
def test_wrong_kernels_fail(name, changes, reason):
    verdict = check(kernel(name, *changes), on="emulated", seed=1, quick=True).verdict
    assert not verdict.accepted
    assert reason in verdict.reason


def test_the_domain_has_the_drivers_rules_for_strides_and_addresses():
    assert str(kernel("half_swizzled").domain) == "N % 8 == 0, K % 8 == 0, A, B % 16 bytes"
    of_floats = kernel("float_comment")
    assert of_floats.domain.k == 4
    assert any("inferred from the tensor maps" in line for line in of_floats.warnings)


def test_host_code_states_what_the_map_has():
    map_a, map_b = kernel("half_wgmma").maps
    assert (map_a.sizes, map_b.sizes) == (("K", "M"), ("N", "K"))
    assert (map_a.box, map_a.swizzle, map_a.promotion) == (("64", "64"), 128, 256)
    assert map_a.layout("A", (("M", 130), ("N", 8), ("K", 72))).strides == (144,)


def test_a_comment_counts_before_the_host_code():
    stated = kernel(
        "half_wgmma", ("constexpr", "// tensor map: tma_b, box 8 x 8 of half\nconstexpr")
    )
    assert [tensor_map.box for tensor_map in stated.maps] == [("64", "64"), ("8", "8")]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("float_comment", [(COMMENT, "")], "the box of tma_a and tma_b isn't known: state it in a"),
        (
            "float_comment",
            [("32 x 32; tma_b", "of 32; tma_b")],
            "'tma_a = A, box of 32' in a comment",
        ),
        (
            "float_comment",
            [("32 x 32; tma_b", "32 x 32 of double; tma_b")],
            "no matrices of double",
        ),
        ("float_comment", [("32 x 32; tma_b", "32 x 32, swizzle 48B; tma_b")], "'swizzle 48B' is"),
        (
            "half_wgmma",
            [("uint32_t box[2] = {", "uint32_t box[2] = {rows % 3 + ")],
            r"line 99: .* its box",
        ),
        (
            "half_wgmma",
            [("TYPE_FLOAT16", "TYPE_FLOAT64")],
            r"line 99: .*its elements aren't float",
        ),
        ("half_wgmma", [("INTERLEAVE_NONE", "INTERLEAVE_16B")], r"line 99: .*it is interleaved"),
    ],
)
def test_a_map_that_is_not_known_is_an_error_with_advice(name, changes, message):
    with pytest.raises(BadSetting, match=message) as raised:
        kernel(name, *changes).require_launch()
    assert "// tensor maps: " in str(raised.value)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ("300 x 32", "1 to 256 elements"),
        ("32 x 2", "8 bytes, which is no multiple of 16"),
        ("32 x 64, swizzle 128B", "256 bytes, more than the swizzle's 128"),
        ("2 x 32 x 32", "the box has 3 dimensions, and the tensor has 2"),
    ],
)
def test_a_map_that_the_driver_does_not_make_is_an_error(box, message):
    wrong = kernel("float_comment", ("tma_a = A, box 32 x 32", f"tma_a = A, box {box}"))
    with pytest.raises(BadSetting, match=message):
        wrong.bind(Shape(32, 32, 32), 1.0, None, None, 0.0, None)


def test_unclear_names_are_stated_in_a_comment_or_by_an_option():
    source = (FOLDER / "float_comment.cu").read_text(encoding="utf-8").replace(COMMENT, "")
    renamed = source.replace("tma_a", "first").replace("tma_b", "second")
    assert not Kernel.from_source(renamed).arguments
    with pytest.raises(BadSetting, match=r"--args .*// tensor maps: first = A"):
        completed(Kernel.from_source(renamed)).require_launch()  # no trial takes place
    comment = "// tensor maps: first = A, box 32 x 32; second = B, box 32 x 32\n"
    assert Kernel.from_source(comment + renamed).arguments[:2] == ("map of A", "map of B")
    without_matrices = comment.replace("= A,", ",").replace("= B,", ",")
    ordered = Kernel.from_source(without_matrices + renamed, args="A,B,C,M,N,K,alpha,beta")
    assert ordered.arguments[:2] == ("map of A", "map of B")


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        *((name, "A") for name in ("tensorMapA", "tma_a", "a_map", "tmaA", "descA", "A", "TMA_A")),
        *((name, "B") for name in ("d_tma_map_B", "tensor_map_b", "tmB", "tma_load_b")),
        *((name, "") for name in ("map", "tensorMap", "output", "tma_ab")),
    ],
)
def test_a_name_says_the_matrix(name, matrix):
    assert matrix_of_map(name) == matrix


def test_the_driver_gets_the_map():
    calls = []

    def encode(*arguments: object) -> int:
        calls.append(arguments)
        return len(calls) - 1

    driver = SimpleNamespace(cuTensorMapEncodeTiled=encode)
    layout = kernel("half_wgmma").maps[0].layout("A", (("M", 130), ("N", 8), ("K", 72)))
    struct = encode_map(layout, 4096, driver)
    assert struct.nbytes == 128
    place, type_, rank, address, sizes, strides, box, steps, *modes = calls[0]
    assert place.value % 64 == 0
    assert [type_.value, rank.value, address.value] == [6, 2, 4096]
    assert [*sizes] == [72, 130] and strides[0] == 144 and [*box] == [64, 64] and [*steps] == [1, 1]
    assert [mode.value for mode in modes] == [0, 3, 3, 0]
    with pytest.raises(LaunchFailed, match="cuTensorMapEncodeTiled: error 1"):
        encode_map(layout, 4096, driver)


def test_the_emulators_map_is_of_the_matrix_at_its_address():
    right = kernel("float_comment")
    a, b, c = (np.zeros(1024, np.float32) for _ in range(3))
    maps = right.bind(Shape(32, 32, 32), 1.0, a, b, 0.0, c)[:2]
    assert [bound.buffer is buffer for bound, buffer in zip(maps, (a, b), strict=True)] == [
        True
    ] * 2
    assert maps[0].layout is right.bind(Shape(32, 32, 32), 1.0, b, a, 0.0, c)[0].layout


CACHED = """
CUtensorMap *cached_a = 0, *cached_b = 0;
int cached_m = 0;
void launch(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
  if (!cached_a) {
    cached_a = make_map(A, M, K);
    cached_b = make_map(B, K, N);
    cached_m = M;
  }
  assert(M == cached_m);
  gemm_tma<<<dim3(N / TILE, M / TILE), dim3(32, 8)>>>(cached_a, cached_b, C, M, N, K, alpha, beta);
}
"""


def test_maps_that_host_code_keeps_for_the_next_launch_are_read():
    """Each run of the host code starts with new variables."""
    source = (FOLDER / "float_pointer.cu").read_text(encoding="utf-8")
    cached = Kernel.from_source(source[: source.index("void launch(")] + CACHED)
    assert cached.maps == kernel("float_pointer").maps
    assert cached.grid == "N / 32, M / 32"


def test_predictions_and_traces_have_the_traffic_of_maps():
    shape = Shape(64, 64, 64)
    for name, nbytes in (("half_wgmma", 2 * 64 * 64 * 2), ("float_pointer", 4 * 2 * 64 * 32 * 4)):
        right = kernel(name)
        run = executed(right, shape)
        assert not run.result.findings
        counts = count_all(run.code, right, shape)
        assert sum(line.global_load.bytes for line in counts.values()) == nbytes


def test_a_map_by_value_needs_grid_constant():
    """Without it, the kernel takes the address of a copy in local memory, which TMA can't read."""
    copied = kernel(
        "float_comment", ("const __grid_constant__ CUtensorMap tma_a", "CUtensorMap tma_a")
    )
    assert copied.arguments[0] == "map of A"
    with pytest.raises(UnsupportedInstruction, match="const __grid_constant__ CUtensorMap"):
        check(copied, on="emulated", seed=1, quick=True)


def test_a_map_of_a_column_major_matrix_has_a_warning():
    source = ("map_of<BK, BN>(B, K, N)", "map_of<BN, BK>(B, N, K)")
    assert kernel("half_wgmma", source).warnings[0].startswith("tma_b maps B as N x K")
    assert "row-major" not in " ".join(kernel("half_wgmma").warnings)


def test_a_swizzle_that_the_emulator_does_not_have_is_no_failure():
    wide = kernel("half_swizzled", ("swizzle 64B", "swizzle 128B"))
    with pytest.raises(UnsupportedInstruction, match="of 64 bytes are shorter than its swizzle"):
        check(wide, on="emulated", seed=1, quick=True)
