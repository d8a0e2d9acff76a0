"""Operands beyond a product: which numbers a kernel reads of a bias and of a scale."""

import pytest

from tests.gate.test_formats import kernel
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.runner.check import check

LOAD = "__device__ float load(const float* s, int i) { return s[i]; }\n"


def verdict(subject):
    return check(subject, on="emulated", seed=1, quick=True).verdict


def test_a_scale_of_each_row_and_of_each_column_is_read_from_the_code():
    subject = kernel("row_and_column_scales")
    assert subject.arguments[3:5] == ("row scale", "column scale")
    assert verdict(subject).accepted


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        (" * scale_b[col]", " * (scale_b[col] > -1e9f ? 1.0f : 0.0f)", "column scale is ignored"),
        ("scale_a[row]", "scale_a[row / 64 * 64]", "first number of the row scale"),
        ("scale_a[row]", "scale_a[col]", "past the end of row scale"),
        ("scale_b[col]", "scale_b[row]", "past the end of column scale"),
        ("scale_a[row]", "rintf(scale_a[row])", "of all bits"),
    ],
)
def test_wrong_vectors_of_scales_are_named(old, new, cause):
    failure = verdict(kernel("row_and_column_scales", old, new)).failed
    assert failure is not None and cause in failure.detail, failure


def test_a_comment_states_a_scale_that_the_code_hides():
    source = kernel("row_and_column_scales").source.replace("scale_a[row]", "load(scale_a, row)")
    source = source.replace("__global__", f"{LOAD}__global__")
    failure = verdict(Kernel.from_source(source)).failed
    assert failure is not None and "// scale of A: per row" in failure.detail
    stated = Kernel.from_source(f"// scale of A: per token\n{source}")
    assert stated.arguments[3] == "row scale"
    assert verdict(stated).accepted


@pytest.mark.parametrize(
    ("comment", "is_vector"), [("per tensor", False), ("per column", True), ("0.5 of it", False)]
)
def test_a_comment_decides_before_the_code(comment, is_vector):
    source = kernel("int8_scaled").source
    stated = Kernel.from_source(f"// scale of B: {comment}\n{source}")
    assert ("column scale" in stated.arguments) == is_vector


def test_a_scale_of_blocks_and_a_vector_of_unclear_dimension_are_refused():
    source = kernel("row_and_column_scales").source
    with pytest.raises(BadSetting, match="the gate passes a scale per row, or per tensor"):
        Kernel.from_source(f"// scale of A: per block of 128\n{source}", block=256)
    source = source.replace("const float* scale_b, ", "").replace(" * scale_b[col]", "")
    unclear = source.replace("scale_a", "scale")
    with pytest.raises(BadSetting, match="state // scale: per row, or per column"):
        Kernel.from_source(unclear, block=256)
    assert verdict(Kernel.from_source(f"// scale: per row\n{unclear}")).accepted


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("bias_relu", "bias[col]", "bias[row]"),
        ("biased", "sum = bias[col]", "sum = bias[row]"),
    ],
)
def test_a_bias_along_the_other_dimension_is_named(name, old, new):
    failure = verdict(kernel(name, old, new)).failed
    assert failure is not None and "it is the bias of a row" in failure.detail, failure


def test_a_bias_of_rows_that_is_read_by_columns_is_named():
    source = kernel("bias_relu").source.replace("* bias", "* row_bias")
    failure = verdict(Kernel.from_source(source.replace("bias[col]", "row_bias[col]"))).failed
    assert failure is not None and "it is the bias of a column" in failure.detail, failure
    assert verdict(Kernel.from_source(source.replace("bias[col]", "row_bias[row]"))).accepted


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("bias_relu", "bias[col]", "bias[row % 256]"),
        ("row_and_column_scales", "scale_a[row]", "scale_a[row % 512]"),
        ("residual", "residual[row * N", "residual[row % 512 * N"),
    ],
)
def test_operands_of_far_rows_are_checked(name, old, new):
    source = kernel(name, old, new).source.replace("* bias", "* row_bias")
    subject = Kernel.from_source(source.replace("bias[row", "row_bias[row"))
    failure = verdict(subject).failed
    assert failure is not None and failure.name == "epilogue", failure


@pytest.mark.parametrize(
    ("old", "new", "layout"),
    [
        ("", "", "bfloat16, B by columns, with relu"),
        ("weight[col * K + k]", "weight[k * N + col]", "bfloat16, with relu"),
    ],
)
def test_a_layers_names_are_read_and_its_weights_layout_is_found(old, new, layout):
    checked = check(kernel("linear", old, new), on="emulated", seed=1, quick=True)
    assert checked.verdict.accepted, checked.verdict.reason
    assert f"on {layout} for M" in checked.verdict.result


@pytest.mark.parametrize(
    ("old", "new"), [("k < K;", "k < K - 1;"), ("sum = bias[col]", "sum = 0"), ("fmaxf", "fminf")]
)
def test_wrong_layers_fail(old, new):
    assert not verdict(kernel("linear", old, new)).accepted


def test_an_unclear_order_with_a_bias_is_refused_with_the_bias_named():
    source = kernel("linear").source.replace("* x,", "* p,").replace("x[row", "p[row")
    with pytest.raises(BadSetting, match=r"for each \?: --args '\?,\?,bias,\?,M,N,K'"):
        check(Kernel.from_source(source), on="emulated", seed=1, quick=True)


def test_the_b_of_a_layer_is_its_bias():
    source = kernel("linear").source.replace("* bias", "* b").replace("bias[col]", "b[col]")
    source = source.replace("weight", "w").replace("out", "y")
    subject = Kernel.from_source(source)
    assert subject.arguments[:4] == ("A", "B", "bias", "C")


def test_the_names_of_more_pointers_are_asked_for():
    source = kernel("linear").source.replace("* bias", "* shift").replace("bias[col]", "shift[col]")
    with pytest.raises(BadSetting, match=r"for each .*--args '.,.,.,.,M,N,K'"):
        Kernel.from_source(source).require_launch()
