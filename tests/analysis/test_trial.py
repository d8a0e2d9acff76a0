"""What a file doesn't state is found by launches: the order of parameters, and the launch. What it states stays."""

import re

import numpy as np
import pytest

from tests.helpers import typed
from worklog.analysis.trial import completed
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.runner.check import check

ROW = "int row = blockIdx.y * blockDim.y + threadIdx.y;"
COL = "int col = blockIdx.x * blockDim.x + threadIdx.x;"
POINTERS = "const float* first, const float* second, float* third"
SUM = """float sum = 0; for (int i = 0; i < inner; ++i) sum += first[row * inner + i] * second[i * columns + col];"""
STORE = "if (row < rows && col < columns) { %s third[row * columns + col] = sum; }"
TEXTBOOK = f"__global__ void product({POINTERS}, int rows, int columns, int inner)"
BODY = f"{{ {ROW} {COL} {STORE % SUM} }}"
LAUNCH = "dim3 t(16, 16), g((n + 15) / 16, (m + 15) / 16); product<<<g, t>>>(a, b, c, m, n, k);"
HOST = f"void run(float* a, float* b, float* c, int m, int n, int k) {{ {LAUNCH} }}"


def found(source: str, **words: object) -> Kernel:
    kernel = completed(Kernel.from_source(source, **words))
    kernel.require_launch()
    return kernel


def passes(kernel: Kernel) -> bool:
    shape = kernel.domain.padded(Shape(40, 56, 24))
    return check(kernel, shape, on="emulated", seed=1, quick=True).verdict.accepted


def test_the_order_that_gives_a_product_is_taken_and_shown():
    kernel = found(f"{TEXTBOOK} {BODY} {HOST}")
    assert kernel.arguments == ("A", "B", "C", "M", "N", "K")
    assert (kernel.grid, kernel.block) == ("(N + 15) / 16, (M + 15) / 16", "16, 16")
    [line] = [line for line in kernel.adapted if line.startswith("order: by trial")]
    assert re.search(r"the only one of 48 .* 64x96x32; --args 'A,B,C,M,N,K' states it", line)
    assert kernel.found == {"order": "by trial"} and not kernel.warnings
    assert passes(kernel)


@pytest.mark.parametrize(
    ("parameters", "order"),
    [
        ("int inner, int rows, int columns, " + POINTERS, "K,M,N,A,B,C"),
        (
            "float* third, int columns, const float* second, int inner, const float* first, int rows",
            "C,N,B,K,A,M",
        ),
        (f"{POINTERS}, unsigned rows, long columns, size_t inner", "A,B,C,M,long N,long K"),
    ],
)
def test_any_order_and_integer_type_is_found(parameters, order):
    kernel = found(f"// grid: 12, 16, block: 32, 16\n__global__ void f({parameters}) {BODY}")
    assert ",".join(kernel.arguments) == order


def test_alpha_and_beta_are_told_apart_by_what_they_do():
    body = BODY.replace("= sum", "= y * sum + x * third[row * columns + col]")
    kernel = found(
        f"{TEXTBOOK.replace('int rows', 'float x, float y, int rows')} {body}", block="16,16"
    )
    assert kernel.arguments[3:5] == ("beta", "alpha") and passes(kernel)


def test_a_square_kernel_is_taken_as_row_major_and_says_so():
    source = f"__global__ void product(float* M, float* N, float* P, int Width) {BODY}"
    for old, new in (("first", "M"), ("second", "N"), ("third", "P"), ("rows", "Width"), ("columns", "Width"),
                     ("inner", "Width")):  # fmt: skip
        source = source.replace(old, new)
    kernel = found(source, grid="(N + 15) / 16, (N + 15) / 16", block="16,16")
    assert kernel.arguments == ("A", "B", "C", "N") and kernel.domain.square
    assert "order: by trial, not unique (square): taken as row-major" in str(kernel.adapted)


def test_more_integers_than_sizes_are_sizes_again_or_what_the_host_passes():
    textbook = f"__global__ void f({POINTERS}, int rowsOf1, int columnsOf1, int rowsOf2, int columnsOf2) {BODY}"
    source = textbook.replace("rows &&", "rowsOf1 &&").replace("* columns", "* columnsOf2")
    source = source.replace("< columns", "< columnsOf2").replace("inner", "columnsOf1")
    kernel = found(f"// grid: 24, 24, block: 16, 16\n{source}")
    assert kernel.arguments[3:] in [("M", "K", inner, "N") for inner in "MNK"]
    said = str(kernel.adapted)
    assert "the first that gives A·B at 64x96x32, and others may" in said and "only" not in said
    step = f"__global__ void f({POINTERS}, int M, int N, int K, int step, int width) {BODY}"
    step = step.replace("rows", "M").replace("columns", "step").replace("inner", "width")
    launched = """void run(float* a, float* b, float* c, int m, int n, int k) {
      dim3 t(16, 16), g((n + 15) / 16, (m + 15) / 16); f<<<g, t>>>(a, b, c, m, n, k, n * 2 / 2, k); }"""
    kernel = found(f"{step} {launched}")
    assert kernel.arguments[3:] == ("M", "N", "K", "N * 2 / 2", "K") and passes(kernel)
    bound = kernel.bind(Shape(3, 5, 7), 1.0, "a", "b", 0.0, "c")
    assert bound == ("a", "b", "c", 3, 5, 7, 5, 7) and type(bound[6]) is np.int32


def test_a_tile_that_the_host_passes_as_a_number_is_no_size():
    body = BODY.replace("rows", "n").replace("columns", "n").replace("inner", "n")
    body = body.replace("blockDim.y", "tile").replace("blockDim.x", "tile")
    source = f"""__global__ void f({POINTERS}, int n, int tile) {body}
      int main() {{ int n = 1024; dim3 t(16, 16), g((n + 15) / 16, (n + 15) / 16); f<<<g, t>>>(a, b, c, n, 16); }}"""
    kernel = found(source)
    assert kernel.arguments == ("A", "B", "C", "N", "16") and passes(kernel)
    stated = Kernel.from_source(source, args="A,B,C,N,16")
    assert stated.arguments == kernel.arguments and not stated.stated
    for wrong in ("A,B,C,N,x", "16,A,B,C,N"):
        with pytest.raises(BadSetting, match=r"16|'x' is none of"):
            Kernel.from_source(source, args=wrong)


def test_what_the_host_states_is_not_repaired():
    """Its grid has exchanged axes: the order is found, and the check fails with the launch as it is stated."""
    exchanged = HOST.replace("g((n + 15) / 16, (m + 15) / 16)", "g((m + 15) / 16, (n + 15) / 16)")
    kernel = found(f"{TEXTBOOK} {BODY} {exchanged}")
    assert kernel.grid == "(M + 15) / 16, (N + 15) / 16" and not passes(kernel)
    assert kernel.arguments == ("A", "B", "C", "M", "N", "K")
    assert re.search(
        r"order: by trial, 67 % of C at 64x96x32 are right",
        str(kernel.adapted).replace("67%", "67 %"),
    )


def test_names_that_tell_are_not_overruled():
    """A kernel that computes B·A passes for no other order."""
    named = BODY.replace("first", "B").replace("second", "A").replace("third", "C")
    source = f"__global__ void f(const float* A, const float* B, float* C, int n) {named}"
    for old in ("rows", "columns", "inner"):
        source = source.replace(old, "n")
    kernel = found(source)
    assert kernel.arguments == ("A", "B", "C", "N") and "order" not in kernel.found
    assert kernel.found == {"launch": "by trial"} and not passes(kernel)


TURNED = (
    "int row = blockIdx.x * blockDim.x + threadIdx.x;",
    "int col = blockIdx.y * blockDim.y + threadIdx.y;",
)
FLAT = (
    "int row = blockIdx.y * 32 + threadIdx.x / 32;",
    "int col = blockIdx.x * 32 + threadIdx.x % 32;",
)


@pytest.mark.parametrize(
    ("indices", "words", "grid", "block"),
    [
        ((ROW, COL), {}, "(N + 31) / 32, (M + 31) / 32", "32, 32"),
        (TURNED, {}, "(M + 31) / 32, (N + 31) / 32", "32, 32"),
        ((ROW, COL), {"block": "16,8"}, "(N + 15) / 16, (M + 7) / 8", "16, 8"),
        (FLAT, {}, "(N + 31) / 32, (M + 31) / 32", "1024"),
    ],
)
def test_a_launch_that_nobody_states_is_found_and_its_time_says_so(indices, words, grid, block):
    body = BODY.replace(ROW, indices[0]).replace(COL, indices[1])
    source = (
        f"__global__ void f(const float* A, const float* B, float* C, int M, int N, int K) {body}"
    )
    for old, new in (
        ("first", "A"),
        ("second", "B"),
        ("third", "C"),
        ("rows", "M"),
        ("columns", "N"),
        ("inner", "K"),
    ):
        source = source.replace(old, new)
    kernel = found(source, **words)
    assert (kernel.grid, kernel.block) == (grid, block) and passes(kernel)
    assert "launch: by trial, no file here launches it" in str(kernel.remarks)


@pytest.mark.parametrize("widths", [("K", "N"), ("wA", "wB")])
def test_a_kernel_that_takes_only_the_widths_of_a_and_b_has_its_rows_from_the_grid(widths):
    of_a, of_b = widths
    sum_of = SUM.replace("inner", of_a).replace("columns", of_b)
    body = f"{{ {ROW} {COL} {sum_of} third[row * {of_b} + col] = sum; }}"
    for old, new in (("first", "A"), ("second", "B"), ("third", "C")):
        body = body.replace(old, new)
    source = f"__global__ void f(float* C, float* A, float* B, int {of_a}, int {of_b}) {body}"
    kernel = found(source, domain="M % 32 == 0, N % 32 == 0")
    assert kernel.arguments == ("C", "A", "B", "K", "N")
    assert (kernel.grid, kernel.block) == ("(N + 31) / 32, (M + 31) / 32", "32, 32")
    assert kernel.found == {"launch": "by trial"} and passes(kernel)


def test_a_kernel_without_a_launch_that_never_gives_a_product_asks_for_one(tmp_path):
    wrong = f"{TEXTBOOK} {BODY.replace('+=', '-=')}"
    with pytest.raises(
        BadSetting, match=r"needs a launch.*--grid .*of \d+ launches that were tried"
    ):
        found(wrong)
    (tmp_path / "mine.cu").write_text(wrong)
    refused = typed("check", tmp_path / "mine.cu", "--emulate")
    assert refused.exit_code == 2 and "none gives a product" in " ".join(refused.stderr.split())
    nothing = f"{TEXTBOOK} {{}} {HOST}"
    with pytest.raises(BadSetting, match=r"none of \d+ orders of its parameters gives a product"):
        found(nothing)


def test_the_verdict_and_the_run_say_what_was_found(tmp_path):
    (tmp_path / "mine.cu").write_text(f"{TEXTBOOK} {BODY} {HOST}")
    report = typed("check", tmp_path / "mine.cu", "--emulate", "--quick")
    assert report.exit_code == 0 and "· order: by trial" in report.stdout
    kernel = completed(Kernel.from_file(tmp_path / "mine.cu"))
    assert kernel.describe()["found"] == {"order": "by trial"}


def test_where_a_header_was_found_is_still_said_after_a_trial(tmp_path):
    (tmp_path / ".git").mkdir()
    for folder in ("include", "src"):
        (tmp_path / folder).mkdir()
    (tmp_path / "include" / "side.h").write_text("#define SIDE 16\n")
    host = HOST.replace("t(16, 16)", "t(SIDE, SIDE)")
    (tmp_path / "src" / "mine.cu").write_text(f'#include "side.h"\n{TEXTBOOK} {BODY} {host}')
    kernel = completed(Kernel.from_file(tmp_path / "src" / "mine.cu"))
    assert kernel.found and any(line.startswith("side.h: from ") for line in kernel.adapted)
    assert "the names don't say" not in str(kernel.adapted)


def test_one_variable_for_several_sizes_says_nothing_of_the_axes_and_they_are_tried():
    """The host's block and tile are taken as stated."""
    body = BODY.replace("rows", "M").replace("columns", "N").replace("inner", "K")
    for old, new in (("first", "A"), ("second", "B"), ("third", "C")):
        body = body.replace(old, new)
    for turned in (False, True):
        indices = body
        if turned:
            indices = body.replace(ROW, TURNED[0]).replace(COL, TURNED[1])
        source = f"""__global__ void f(const float* A, const float* B, float* C, int M, int N, int K) {indices}
          void run(float* a, float* b, float* c, int n) {{
            f<<<dim3((n + 7) / 8, (n + 7) / 8), dim3(8, 8)>>>(a, b, c, n, n, n); }}"""
        kernel = found(source)
        axes = ("M", "N") if turned else ("N", "M")
        assert kernel.grid == ", ".join(f"({size} + 7) / 8" for size in axes) and passes(kernel)
        assert kernel.block == "8, 8" and kernel.found == {"axes": "by trial"}
        assert "the grid's axes: by trial" in str(kernel.remarks)


def test_the_hosts_dynamic_shared_memory_is_there_in_a_trial():
    body = BODY.replace(ROW, f"extern __shared__ float kept[]; {ROW}").replace(
        "+= ", "+= (kept[255] = 1) * "
    )
    kernel = found(f"{TEXTBOOK} {body} {HOST.replace('<<<g, t>>>', '<<<g, t, 1024>>>')}")
    assert kernel.launch.shared == 1024 and kernel.found == {"order": "by trial"}


def test_a_value_that_was_never_set_is_named_where_no_launch_gives_a_product():
    unset = 'float unset; asm volatile("" : "=f"(unset));'
    half = BODY.replace("float sum", f"{unset} float sum").replace(
        "= sum;", "= col % 2 ? unset : sum;"
    )
    with pytest.raises(BadSetting, match=r"gives 50% of C, and NaN where a value was never set"):
        found(f"{TEXTBOOK} {half}", args="A,B,C,M,N,K")
