"""Kernels of other formats than FP32: right ones pass with the formats named, wrong ones fail."""

import re
from pathlib import Path

import numpy as np
import pytest

from worklog.errors import BadSetting
from worklog.gate.guarded_buffer import LaunchResult
from worklog.gate.precision import PrecisionReference, any_data, beyond_rounding, not_as_fp32
from worklog.gate.unfolding import enqueue_both
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape, random_inputs
from worklog.problem.epilogues import EPILOGUES, activated
from worklog.problem.formats import FLOAT16, FLOAT32, FORMATS, SINGLE, Types
from worklog.runner.check import check

FOLDER = Path(__file__).with_name("formats")
FORMATS_OF = {
    "half": "float16",
    "half_to_float": "float16, C float32",
    "bfloat16": "bfloat16",
    "half2": "float16",
    "wmma": "float16, C float32",
    "template": "float16",
    "ldmatrix": "float16",
    "batched": "float16",
    "biased": "bfloat16, C float32",
    "by_columns": "float16, C float32, B by columns",
    "e4m3": "float8_e4m3fn, C float32",
    "e5m2": "A float8_e5m2, B float8_e4m3fn, C float16",
    "int8": "int8, C int32",
    "dp4a": "int8, C int32, B by columns",
    "mma_s8": "int8, C int32, B by columns",
    "int8_scaled": "int8, C float32",
    "int32": "int32",
    "bias_relu": "float32, with relu",
    "int8_relu": "int8, C int32, with relu",
    "gelu_residual": "float16, with gelu",
    "gelu_tanh": "float32, with gelu tanh",
    "residual": "bfloat16, C float32",
}
EXACT = ("int8", "dp4a", "mma_s8", "int32", "int8_relu")
HALF_TYPES = Types(FLOAT16, FLOAT16, FLOAT16)


def kernel(name: str, old: str = "", new: str = "") -> Kernel:
    """Return a kernel of the folder, with one text in place of another."""
    source = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    assert old in source
    return Kernel.from_source(source.replace(old, new, 1) if old else source, file=f"{name}.cu")


def test_a_c_of_16_bits_that_the_factor_of_an_activation_overflows_is_launched_without_it():
    """The gate takes 16 x: of these elements, gelu's result is beyond 65,504 then."""
    device = EmulatedDevice()
    loaded = kernel("gelu_residual").load(device)
    shape = Shape(2, 2, 1)
    a = np.array([[100.0], [-3.0]], np.float32)
    b = np.array([[100.0, 0.5]], np.float32)
    vectors = [device.upload(np.zeros(size, np.float32), FLOAT16) for size in (2, 4)]
    loaded.use_operands(dict(zip(("bias", "residual"), vectors, strict=True)))
    factors = [device.upload(matrix.ravel(), FLOAT16) for matrix in (a, b)]
    c = device.upload(np.ones(4, np.float32), FLOAT16)
    enqueue_both(device, loaded, loaded.types, shape, 1.0, *factors, 0.0, c)
    assert (device.download(c).reshape(2, 2) == a @ b).all()


@pytest.mark.parametrize("name", FORMATS_OF)
def test_right_kernels_pass_and_the_verdict_names_the_formats(name):
    right = kernel(name)
    assert str(right.types) == FORMATS_OF[name]
    checked = check(right, on="emulated", seed=1, quick=True)
    assert checked.verdict.accepted, checked.verdict.reason
    precision = "exact" if name in EXACT else "fp32"
    if name == "gelu_residual":  # of a gelu's two halves, each is rounded to 16 bits
        precision = "fp32-emulated"
    assert checked.verdict.result.startswith(f"passed as {precision} on {FORMATS_OF[name]} for M")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("half", "k < K; ++k", "k < K - 1; ++k"),
        ("half", "alpha * sum", "__half2float(__float2half(alpha)) * sum"),
        ("half", "col >= N", "col > N"),
        ("half_to_float", "= alpha * sum", "= __half2float(__float2half(alpha * sum))"),
        ("bfloat16", "beta * ", ""),
        ("bfloat16", "B[k * N + col]", "B[k * K + col]"),
        ("half2", "sum.y += av * bv.y", "sum.y += av * bv.x"),
        ("half2", "_rn(sum.x, sum.y)", "_rn(sum.y, sum.x)"),
        ("wmma", "k += 16", "k += 32"),
        ("template", "    __syncthreads();\n    for", "    for"),
        ("template", "float acc", "T acc"),
        ("ldmatrix", "    __syncthreads();\n    for", "    for"),
        ("ldmatrix", "(n ^ k_row % 8)", "(n ^ k_row % 4)"),
        ("ldmatrix", "(row + 8) * N", "(row + 7) * N"),
        ("batched", "A += z * strideA; ", ""),
        ("batched", "z * strideB", "z * K * N"),
        ("batched", "z = blockIdx.z", "z = 0"),
        ("biased", "sum = bias[col]", "sum = 0"),
        ("biased", "bias[col]", "bias[col / 2]"),
        ("biased", "z < batch_count", "z < 1"),
        ("by_columns", "B[col * ldb + k]", "B[k * ldb + col]"),
        ("by_columns", "col * ldb", "col * K"),
        ("e4m3", "scale_a * scale_b", "scale_a"),
        ("e4m3", "float(B[k * N + col])", "float(B[k * N + col / 2 * 2])"),
        ("e5m2", "*scale_b", "1.0f"),
        ("e5m2", "float sum", "half sum"),
        ("bias_relu", "    __syncthreads();\n    for", "    for"),
        ("bias_relu", "k < K; k", "k + 16 <= K; k"),
        ("bias_relu", "k + tx < K", "k + tx <= K"),
        ("bias_relu", "row < M && col < N) C", "col < N) C"),
        ("gelu_residual", "k < K; ++k", "k < K - 1; ++k"),
        ("gelu_residual", "(bias[col])", "(bias[row])"),
        ("gelu_tanh", "0.5f * x *", "x *"),
        ("gelu_tanh", "0.044715f", "0.0f"),
        ("residual", "residual[row * N + col]", "residual[row * M + col]"),
        ("int8", "k < K; ++k", "k < K - 1; ++k"),
        ("dp4a", "    __syncthreads();\n    for", "    for"),
        ("mma_s8", "+ k + 16), a3", "+ k), a3"),
        ("int8_scaled", "sum.y += a * b.y", "sum.y += a * b.x"),
        # Right with small integers, positive powers of two, in the first tile, or in few products.
        ("bias_relu", "bias[col]", "bias[col % 64]"),
        ("bias_relu", "bias[col]", "(col == 1000 ? 0 : bias[col])"),
        ("bias_relu", "bias[col]", "rintf(4096 * bias[col]) / 4096"),
        ("int8_scaled", "scale_a * *scale_b", "fabsf(scale_a * *scale_b)"),
        ("int8_scaled", "scale * sum.x", "(int)(scale * sum.x)"),
        ("batched", "z = blockIdx.z;", "z = blockIdx.z % 4;"),
    ],
)
def test_wrong_kernels_fail(name, old, new):
    assert not check(kernel(name, old, new), on="emulated", seed=1, quick=True).verdict.accepted


@pytest.mark.parametrize(
    ("name", "old", "new", "cause"),
    [
        ("bias_relu", "fmaxf(sum + bias[col], 0.0f)", "sum + bias[col]", "relu is left out"),
        ("bias_relu", "sum + bias[col], 0.0f)", "sum, 0.0f) + bias[col]",
         "relu is applied before bias"),
        ("bias_relu", "sum + bias[col]", "sum", "bias is ignored"),
        ("bias_relu", "epilogue: relu", "", "--epilogue relu"),
        ("int8_relu", "sum > 0 ? sum : 0", "sum", "relu is left out"),
        ("int8_relu", "int sum", "float sum", "sums are kept in float"),
        ("gelu_residual", "__half2float(residual", "2 * __half2float(residual",
         "residual is added twice"),
        ("gelu_residual", "__half2float(residual[row * N + col])", "0", "residual is ignored"),
        ("gelu_residual", "erff(x * 0.70710678f)",
         "tanhf(0.7978845608f * (x + 0.044715f * x * x * x))",
         "gelu tanh in place of gelu"),
        ("gelu_tanh", "tanhf(0.7978845608f * (x + 0.044715f * x * x * x))",
         "erff(x * 0.70710678f)", "gelu in place of gelu tanh"),
        ("residual", "sum + __bfloat162float(residual[row * N + col])",
         "(sum + __bfloat162float(residual[row * N + col]))", "alpha multiplies the residual, too"),
        ("residual", " + __bfloat162float(residual[row * N + col])", "", "residual is ignored"),
    ],
)  # fmt: skip
def test_mistakes_in_an_epilogue_are_named(name, old, new, cause):
    failure = check(kernel(name, old, new), on="emulated", seed=1, quick=True).verdict.failed
    assert failure is not None and cause in failure.detail, failure


@pytest.mark.parametrize("relu", ["x > 0 ? x : 0", "x < 0 ? 0 : x"])
def test_relu_may_drop_nan_or_keep_it(relu):
    result = relu.replace("x", "(sum + bias[col])")
    right = kernel("bias_relu", "fmaxf(sum + bias[col], 0.0f)", result)
    verdict = check(right, on="emulated", seed=1, quick=True).verdict
    assert verdict.accepted, verdict.reason
    drops_nan = relu == "x > 0 ? x : 0"
    assert ("relu makes NaN 0" in verdict.result) == drops_nan


def test_a_gelu_before_the_scales_is_named():
    source = (FOLDER / "e4m3.cu").read_text(encoding="utf-8")
    early = "scale_a * scale_b * 0.5f * sum * (1 + erff(0.70710678f * sum));"
    source = source.replace("scale_a * scale_b * sum;", early)
    gelu = Kernel.from_source(source, epilogue="gelu")
    failure = check(gelu, on="emulated", seed=1, quick=True).verdict.failed
    assert failure is not None and "gelu is applied before the scales" in failure.detail, failure


def test_an_unknown_epilogue_is_refused():
    source = (FOLDER / "bias_relu.cu").read_text(encoding="utf-8")
    with pytest.raises(BadSetting, match="epilogue: silu: give one of relu, gelu, gelu tanh"):
        Kernel.from_source(source, epilogue="silu")
    assert Kernel.from_source(source.replace("epilogue: relu", ""), epilogue="relu").types.epilogue


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_an_activation_of_x_less_that_of_minus_x_is_x(epilogue):
    values = np.linspace(-20, 20, 401)
    assert np.allclose(activated(epilogue, values) - activated(epilogue, -values), values)


@pytest.mark.parametrize(
    ("name", "old", "new", "cause"),
    [
        ("int8", "int sum", "float sum", "sums are kept in float"),
        ("int8", "int sum", "short sum", "sums are kept in 16 bits"),
        ("int8", "= sum;", "= max(-32768, min(32767, sum));", "sums are limited to 16 bits"),
        ("int8", "+= A[", "+= (uint8_t)A[", "the bytes of A are taken as unsigned"),
        ("int8", "A[row * K + k] *", "max(A[row * K + k], -127) *", "-128 in A is taken as -127"),
        ("dp4a", "alpha * sum", "sum", "alpha is ignored"),
        ("dp4a", "(As[threadIdx.y][i], Bs[threadIdx.x][i], sum)",
         "((unsigned)As[threadIdx.y][i], (unsigned)Bs[threadIdx.x][i], (unsigned)sum)",
         "the bytes of A and B are taken as unsigned"),
        ("mma_s8", "s32.s8.s8.s32", "s32.s8.u8.s32", "the bytes of B are taken as unsigned"),
        ("int8_scaled", "int4 sum = make_int4", "short4 sum = make_short4",
         "sums are kept in 16 bits"),
        ("int8_scaled", "scale_a * *scale_b", "scale_a", "scale of B is ignored"),
        ("int32", "int sum", "float sum", "sums are kept in float"),
    ],
)  # fmt: skip
def test_mistakes_with_integers_are_named(name, old, new, cause):
    failure = check(kernel(name, old, new), on="emulated", seed=1, quick=True).verdict.failed
    assert failure is not None and cause in failure.detail, failure


@pytest.mark.parametrize(
    ("name", "old", "new", "limit"),
    [
        ("e4m3", "scale_b * sum", "scale_b * fminf(sum, 448.0f * 448.0f)", "200,704"),
        ("e4m3", "scale_b * sum", "scale_b * fmaxf(fminf(sum, 65504.0f), -65504.0f)", "65,504"),
        ("e5m2", "float(sum));", "fminf(float(sum), 65504.0f));", "65,504"),
    ],
)
def test_limited_sums_of_8_bit_floats_are_named(name, old, new, limit):
    failure = check(kernel(name, old, new), on="emulated", seed=1, quick=True).verdict.failed
    assert failure is not None and f"limited to {limit}" in failure.detail, failure


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("const int8_t* B", "const float* B", "two integers or two floats"),
        ("int32_t* C", "int8_t* C", "the gate takes a C of int, float"),
        ("const int8_t* A", "const int4* A", "packed int8_t"),
    ],
)
def test_formats_that_integers_have_no_product_of_are_refused(old, new, message):
    with pytest.raises(BadSetting, match=message):
        kernel("int8", old, new)


@pytest.mark.parametrize(("sum_type", "is_right"), [("int", True), ("float", False)])
def test_a_float_alpha_may_round_sums_beyond_24_bits_once(sum_type, is_right):
    source = (FOLDER / "int8.cu").read_text(encoding="utf-8")
    source = source.replace("int K)", "int K, float alpha)").replace("int sum", f"{sum_type} sum")
    scaled = Kernel.from_source(source.replace("= sum;", "= (int)(alpha * sum);"))
    verdict = check(scaled, on="emulated", seed=1, quick=True).verdict
    assert verdict.accepted == is_right, verdict.reason
    assert not is_right or "sums beyond 24 bits are rounded" in verdict.result


def test_sums_in_16_bits_are_found_and_named():
    short = kernel("half", "float sum = 0", "half sum = 0")
    added = "__half2float(A[row * K + k]) * __half2float(B[k * N + col])"
    for old, new in (
        ("alpha * sum", "alpha * __half2float(sum)"),
        (f"sum += {added}", f"sum = __float2half(__half2float(sum) + {added})"),
    ):
        assert old in short.source
        short = short.with_text(short.source.replace(old, new))
    failure = check(short, on="emulated", seed=1, quick=True).verdict.failed
    assert failure is not None
    assert failure.name.startswith("precision")
    assert "sums that are kept in 16 bits" in failure.detail


@pytest.mark.parametrize("name", ["half", "e4m3", "int8"])
def test_b_of_short_numbers_lies_by_columns_if_only_that_gives_the_product(name):
    by_columns = kernel(name, "B[k * N + col]", "B[col * K + k]")
    checked = check(by_columns, on="emulated", seed=1, quick=True)
    assert checked.verdict.accepted, checked.verdict.reason
    assert "B by columns for M" in checked.verdict.result
    assert any("--by-columns B states it" in line for line in checked.kernel.adapted)


def test_b_of_floats_by_columns_has_the_option_named():
    """There it may as well be a mistake."""
    source = kernel("half", "B[k * N + col]", "B[col * K + k]").source.replace("half*", "float*")
    source = source.replace("__half2float", "").replace("__float2half", "")
    verdict = check(Kernel.from_source(source), on="emulated", seed=1, quick=True).verdict
    assert not verdict.accepted and "--by-columns B" in verdict.reason


def test_b_of_short_numbers_in_neither_layout_is_wrong():
    wrong = kernel("half", "B[k * N + col]", "B[col * N + k]")
    assert not check(wrong, on="emulated", seed=1, quick=True).verdict.accepted


def test_float_matrices_may_lie_by_columns_if_that_is_stated():
    source = (FOLDER / "by_columns.cu").read_text(encoding="utf-8")
    source = re.sub(r"const half\*", "const float*", source).replace("__half2float", "float")
    stated = check(Kernel.from_source(source), on="emulated", seed=1, quick=True).verdict
    assert stated.accepted and "on float32, B by columns" in stated.result, stated.reason
    unstated = source.replace("by columns: B", "")
    assert not check(
        Kernel.from_source(unstated), on="emulated", seed=1, quick=True
    ).verdict.accepted


@pytest.mark.parametrize(
    ("types", "is_named"), [(Types(by_columns="B"), False), (HALF_TYPES, True)]
)
def test_sums_in_16_bits_are_a_cause_where_a_matrix_has_16_bits(types, is_named):
    rng = np.random.default_rng(0)
    a, b = random_inputs(Shape(64, 64, 64), rng, types=types)
    noisy = a @ b + rng.normal(0, 1e-2, (64, 64)).astype(np.float32)
    result = LaunchResult(noisy, np.float32(0), "", FLOAT32)
    _, stage = PrecisionReference(a, b, rng, types).judge("precision", result, "fp32")
    assert ("sums that are kept in 16 bits" in stage.detail) == is_named


def test_rounding_c_is_no_error_and_what_is_left_keeps_its_sign():
    right = np.array([1.0, -1.0, 1e-8, 1000.0])
    rounded = FLOAT16.rounded((right + np.array([1e-4, -1e-4, 0, 0.2])).astype(np.float32))
    assert not beyond_rounding(rounded - right, right, FLOAT16).any()
    error = beyond_rounding(np.array([-0.01]), np.array([1.0]), FLOAT16)
    assert -0.01 < error[0] < -0.009
    assert beyond_rounding(np.array([1e-9]), np.array([1.0]), FLOAT32)[0] == 1e-9


@pytest.mark.parametrize("name", FORMATS)
def test_memory_repeats_a_value_and_gives_it_back(name):
    format_ = FORMATS[name]
    for value in (0.0, -2.0 if format_.is_integer else -2.5, 2.0**format_.largest_exponent):
        assert format_.first_of(format_.repeated(value)) == value
    poison = format_.first_of(format_.repeated(format_.poison))
    assert np.array_equal(poison, format_.poison, equal_nan=True)


@pytest.mark.parametrize("types", [SINGLE, HALF_TYPES, Types(*[FORMATS["bfloat16"]] * 3)], ids=str)
def test_a_right_result_on_any_data_is_as_in_fp32(types):
    rng = np.random.default_rng(0)
    a, b = any_data(Shape(66, 70, 64), rng, types)
    assert np.array_equal(types.a.rounded(a), a, equal_nan=True)
    with np.errstate(invalid="ignore", over="ignore"):
        right = types.c.rounded((a.astype(np.float64) @ b).astype(np.float32))
    unlike = not_as_fp32(a, b, right, types)
    assert not unlike
    finite = np.isfinite(right)
    wrong = right.copy()
    with np.errstate(over="ignore"):
        wrong[finite] *= np.float32(1 + 2.0**-6)
    assert not_as_fp32(a, b, wrong, types)


def test_saturated_sums_are_named():
    rng = np.random.default_rng(0)
    a, b = any_data(Shape(66, 70, 64), rng, HALF_TYPES)
    with np.errstate(invalid="ignore", over="ignore"):
        right = (a.astype(np.float64) @ b).astype(np.float32)
        saturated = FLOAT16.rounded(np.clip(right, -65504, 65504))
    saturated[~np.isfinite(right)] = right[~np.isfinite(right)]
    assert "sums beyond C's range that don't become infinite" in not_as_fp32(
        a, b, saturated, HALF_TYPES
    )
