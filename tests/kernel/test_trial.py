"""What a file doesn't state is found by launches: the order of parameters, and the launch.

What it states stays.
"""

import re

import numpy as np
import pytest

from tests.helpers import TEXTURE, typed
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.kernel.trial import completed
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


@pytest.mark.parametrize(
    ("comment", "bytes_per_block"),
    [
        ("// shared: 8192\n// grid: (N + 15) / 16, (M + 15) / 16, block: 16, 16", 8192),
        ("// grid: (N + 15) / 16, (M + 15) / 16, block: 16, 16, shared: 2 * 16 * SIZE bytes", 512),
        (
            "// shared: a tile of each matrix\n// grid: (N + 15) / 16, (M + 15) / 16 block: 16, 16",
            0,
        ),
    ],
)
def test_a_comment_states_the_bytes_of_shared_memory_beside_the_launch(comment, bytes_per_block):
    dynamic = BODY.replace("{", "{ extern __shared__ float tile[]; tile[0] = 0;", 1)
    source = f"constexpr int SIZE = 16;\n{comment}\n{TEXTBOOK} "
    stated = found(source + dynamic)
    assert stated.block == "16, 16" and stated.launch.shared == bytes_per_block
    assert found(source + BODY).launch.shared == 0


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
    textbook = (
        f"__global__ void f({POINTERS}, int rowsOf1, int columnsOf1, int rowsOf2, int "
        f"columnsOf2) {BODY}"
    )
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
    assert kernel.arguments[3:] == ("M", "N", "K", "N", "K") and passes(kernel)
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
    """Its grid has exchanged axes.

    The order is found, and the check fails with the launch as it is stated.
    """
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
    assert "launch: by trial, neither its file nor one that includes it launches it" in str(
        kernel.remarks
    )


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


NAMED = "const float* A, const float* B, float* C"
SIZES = "int M, int N, int K"
PRODUCT = """if (row >= M || col >= N) return;
float s = 0; for (int i = 0; i < K; ++i) s += A[row * K + i] * B[i * N + col];
C[row * N + col] = s;"""
PRODUCT_NAMED = f"{{ {ROW} {COL} {PRODUCT} }}"
LAUNCH_NAMED = "dim3 t(16, 16), g((N + 15) / 16, (M + 15) / 16); f<<<g, t>>>(A, B, C, M, N, K);"
HOST_NAMED = f"void run({NAMED}, {SIZES}) {{ {LAUNCH_NAMED} }}"
ROW_MAJOR = f"__global__ void f({NAMED}, {SIZES}) {PRODUCT_NAMED} {HOST_NAMED}"
# A is M x N, B is N x K: the names N and K exchanged everywhere, in the host's code also.
INNER_IS_N = re.sub(r"\b[NK]\b", lambda name: {"N": "K", "K": "N"}[name[0]], ROW_MAJOR)
INNER_IS_N = INNER_IS_N.replace("int M, int K, int N", SIZES).replace("M, K, N)", "M, N, K)")
COLUMN_MAJOR = """
__global__ void f(int m, int n, int k, const float* dA, int lda, const float* dB, int ldb, float* dC, int ldc) {
  const int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
  if (i >= m || j >= n) return;
  float sum = 0.0f;
  for (int p = 0; p < k; ++p) sum += dA[i + p * lda] * dB[p + j * ldb];
  dC[i + j * ldc] = sum;
}
void run(int m, int n, int k, float* A, float* B, float* C) {
  f<<<dim3((m + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(m, n, k, A, m, B, k, C, m);
}"""
WITHOUT_LEADING = COLUMN_MAJOR.replace(", int ld", ", int no").replace(
    "A, m, B, k, C, m", "A, B, C"
)
WITHOUT_LEADING = re.sub(", int no[abc]", "", WITHOUT_LEADING)
WITHOUT_LEADING = WITHOUT_LEADING.replace("ldb", "k").replace("lda", "m").replace("ldc", "m")


def without_launch(source: str) -> str:
    return source[: source.index("void run")]


@pytest.mark.parametrize(
    ("source", "order", "meaning"),
    [
        (INNER_IS_N, "A,B,C,M,K,N", "A is M x N, B is N x K"),
        (COLUMN_MAJOR, "N,M,K,B,N,A,K,C,N", "column-major"),
        (WITHOUT_LEADING, "N,M,K,B,A,C", "column-major"),
    ],
)
def test_names_of_another_convention_are_found_by_their_product(source, order, meaning):
    for text in (source, without_launch(source)):
        kernel = found(text)
        assert ",".join(kernel.arguments) == order and passes(kernel)
        assert kernel.found["order"] == "by trial"
        line = f"and only {order} ({meaning}) gives A·B at 64x96x32; --args '{order}' states it"
        assert line in kernel.adapted[-1] and "order: by trial, the names say" in kernel.adapted[-1]
        of_columns = "for column-major matrices" in str(kernel.adapted)
        assert of_columns == (meaning == "column-major")
        described = [said for said in kernel.adapted if said.startswith("parameters")]
        assert len(described) == 1, "the order by names isn't described also"
        assert sum(said.startswith("launch:") for said in kernel.adapted) <= 1
        assert completed(kernel) is kernel, "one trial is enough"
    launched = found(source)
    assert launched.found == {"order": "by trial"} and not launched.warnings
    stated = found(source, args=order)
    assert (stated.arguments, stated.grid) == (launched.arguments, launched.grid)


def test_the_names_are_right_if_they_give_the_product_and_nothing_is_said():
    by_rows = COLUMN_MAJOR.replace("i + p * lda", "i * lda + p").replace("p + j", "j + p")
    by_rows = by_rows.replace("i + j * ldc", "i * ldc + j")
    by_rows = by_rows.replace("A, m, B, k, C, m", "A, k, B, n, C, n")
    for source in (ROW_MAJOR, by_rows):
        read = Kernel.from_source(source)
        kernel = completed(read)
        assert (kernel.arguments, kernel.launches) == (read.arguments, read.launches)
        assert (kernel.adapted, kernel.warnings) == (read.adapted, ())
        assert not kernel.found and not kernel.stated and passes(kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row * N + col", "row * M + col"),
        ("i * N + col", "i * K + col"),
        ("i < K;", "i < K - 1;"),
        ("g((N + 15) / 16, (M + 15) / 16)", "g((M + 15) / 16, (N + 15) / 16)"),
        ("A, B, C, M, N, K);", "A, B, C, N, M, K);"),
    ],
)
def test_a_mistake_in_a_kernel_or_its_launch_is_no_convention(old, new):
    """Also if another order gives the product, as for sizes that the host exchanges."""
    source = ROW_MAJOR.replace(old, new)
    assert source != ROW_MAJOR
    kernel = found(source)
    assert kernel.arguments == ("A", "B", "C", "M", "N", "K")
    assert not kernel.found and not passes(kernel)


def test_a_kernel_with_m_and_n_exchanged_stays_wrong():
    exchanged = re.sub(r"\b[MN]\b", lambda name: {"M": "N", "N": "M"}[name[0]], ROW_MAJOR)
    exchanged = exchanged.replace("int N, int M, int K", SIZES).replace("N, M, K)", "M, N, K)")
    assert found(exchanged, args="A,B,C,N,M,K").found == {}
    assert passes(found(exchanged, args="A,B,C,N,M,K"))
    kernel = found(exchanged)
    assert kernel.arguments == ("A", "B", "C", "M", "N", "K")
    assert not kernel.found and not passes(kernel)


def test_an_order_that_a_user_states_or_that_is_the_ladders_is_not_questioned():
    for source in (INNER_IS_N, without_launch(INNER_IS_N)):
        stated = found(source, args="A,B,C,M,N,K")
        assert stated.arguments == ("A", "B", "C", "M", "N", "K") and "order" not in stated.found
    ladder = (
        f"int M, int N, int K, float alpha, {NAMED.replace('float* C', 'float beta, float* C')}"
    )
    body = PRODUCT_NAMED.replace("= s;", "= alpha * s + beta * C[row * N + col];")
    body = re.sub(r"\b[NK]\b", lambda name: {"N": "K", "K": "N"}[name[0]], body)
    kernel = found(f"__global__ void f({ladder}) {body}", grid="64, 64", block="16, 16")
    assert ",".join(kernel.arguments) == "M,N,K,alpha,A,B,beta,C" and not kernel.found


def test_a_convention_is_found_for_a_kernel_that_takes_alpha_and_beta():
    scaled = INNER_IS_N.replace(
        "C[row * K + col] = s", "C[row * K + col] = alpha * s + beta * C[row * K + col]"
    )
    scaled = scaled.replace(f"f({NAMED}, {SIZES})", f"f({NAMED}, {SIZES}, float beta, float alpha)")
    scaled = scaled.replace("C, M, N, K);", "C, M, N, K, 0.0f, 1.0f);")
    kernel = found(scaled)
    assert ",".join(kernel.arguments) == "A,B,C,M,K,N,beta,alpha" and passes(kernel)
    ignored = found(scaled.replace("beta * C", "C"))
    assert ",".join(ignored.arguments) == "A,B,C,M,N,K,beta,alpha" and not passes(ignored)


def test_a_square_kernel_has_no_convention_but_its_names():
    """By columns, its product is B·A by rows, which a mistake also gives."""
    square = re.sub(r"\b[MNK]\b", "n", PRODUCT_NAMED.replace("A[", "B_[").replace("B[", "A["))
    square = square.replace("B_[", "B[")
    source = f"__global__ void f({NAMED}, int n) {square}"
    kernel = found(source, grid="(N + 15) / 16, (N + 15) / 16", block="16, 16")
    assert kernel.arguments == ("A", "B", "C", "N") and not kernel.found and not passes(kernel)


def test_the_trial_is_at_lengths_that_the_tile_divides():
    """A grid of whole tiles has no block at short lengths.

    Without guards, a larger grid leaves C.
    """
    body = """const int i = blockIdx.x * 128 + threadIdx.x, j = blockIdx.y * 2 + threadIdx.y;
      float s = 0; for (int p = 0; p < k; ++p) s += a[i + p * m] * b[p + j * k]; c[i + j * m] = s;"""
    for grid in ("m / 128", "(m + 127) / 128"):
        source = f"""__global__ void f(const float* a, const float* b, float* c, int m, int n, int k) {{ {body} }}
          void run(float* a, float* b, float* c, int m, int n, int k) {{
            f<<<dim3({grid}, n / 2), dim3(128, 2)>>>(a, b, c, m, n, k); }}"""
        kernel = found(source)
        assert kernel.arguments == ("B", "A", "C", "N", "M", "K")
        assert "gives A·B at 256x384x128" in kernel.adapted[-1]


def test_without_a_trial_the_order_stays():
    start = "float s = 0;"
    unsupported = INNER_IS_N.replace(start, f"{TEXTURE} {start}")
    broken = INNER_IS_N.replace(start, "float s = missing;")
    large = re.sub(r"g\(\(.*?\) / 16\)", "g(512, 512)", INNER_IS_N)
    for source in (unsupported, broken, large):
        assert source != INNER_IS_N
        kernel = found(source)
        assert kernel.arguments == ("A", "B", "C", "M", "N", "K") and not kernel.found


def test_a_file_of_another_convention_keeps_what_is_said_of_its_headers(tmp_path):
    (tmp_path / ".git").mkdir()
    for folder in ("include", "src"):
        (tmp_path / folder).mkdir()
    (tmp_path / "include" / "side.h").write_text("#define SIDE 16\n")
    source = INNER_IS_N.replace("t(16, 16)", "t(SIDE, SIDE)")
    (tmp_path / "src" / "mine.cu").write_text(f'#include "side.h"\n{source}')
    kernel = completed(Kernel.from_file(tmp_path / "src" / "mine.cu"))
    assert kernel.name == "mine" and kernel.arguments[3:] == ("M", "K", "N")
    assert any(line.startswith("side.h: from ") for line in kernel.adapted)


def test_a_launch_that_a_program_has_changed_stays():
    changed = Kernel.from_source(INNER_IS_N).with_launch(grid="8, 8")
    kernel = completed(changed)
    assert kernel.grid == "8, 8" and kernel.arguments == changed.arguments


def test_the_users_grid_is_in_the_sizes_of_the_product():
    words = {"grid": "(N + 15) / 16, (M + 15) / 16", "block": "16, 16"}
    kernel = found(without_launch(INNER_IS_N), **words)
    assert kernel.arguments[3:] == ("M", "K", "N") and passes(kernel)
    assert (kernel.grid, kernel.block) == (words["grid"], words["block"])


def test_a_launch_is_found_for_a_kernel_that_takes_two_sizes():
    """Its grid covers M, which the kernel doesn't take."""
    body = """float s = 0; for (int i = 0; i < wA; ++i) s += A[row * wA + i] * B[i * wB + col];
      C[row * wB + col] = s;"""
    source = (
        f"__global__ void f(float* C, {NAMED[: NAMED.rindex(',')]}, int wA, int wB) {{ {ROW} "
        f"{COL} {body} }}"
    )
    kernel = found(source, domain="M % 32 == 0, N % 32 == 0")
    assert kernel.arguments == ("C", "A", "B", "K", "N") and passes(kernel)
    assert kernel.grid == "(N + 31) / 32, (M + 31) / 32"


FACTORS = """template <typename T, int SIDE>
__global__ void product(int rows, int columns, int inner, T {0}, const T* A, const T* B, T {1}, T* C) {{
  int row = blockIdx.y * SIDE + threadIdx.y, col = blockIdx.x * SIDE + threadIdx.x;
  if (row >= rows || col >= columns) return;
  T sum = 0;
  for (int i = 0; i < inner; ++i) sum += A[row * inner + i] * B[i * columns + col];
  C[row * columns + col] = {0} * sum + {1} * C[row * columns + col];
}}
template <typename T>
void run(int m, int n, int k, const T* {0}, const T* a, const T* b, const T* {1}, T* c) {{
  dim3 t(16, 16), g((n + 15) / 16, (m + 15) / 16);
  product<T, 16><<<g, t>>>(m, n, k, *{0}, a, b, *{1}, c);
}}
template void run<float>(int, int, int, const float*, const float*, const float*, const float*, float*);
"""


@pytest.mark.parametrize("names", [("alpha", "beta"), ("first", "second")])
def test_factors_of_a_templates_type_are_found(names):
    kernel = found(FACTORS.format(*names))
    assert ",".join(kernel.arguments) == "M,N,K,alpha,A,B,beta,C"
    assert (kernel.entry, kernel.grid) == ("product<float, 16>", "(N + 15) / 16, (M + 15) / 16")
    assert passes(kernel)


def test_a_launch_that_is_found_has_no_more_blocks_than_the_kernel_needs():
    source = """__global__ __launch_bounds__(256) void product(
    int M, int N, int K, const float* A, const float* B, float* C) {
  int row = blockIdx.y * 32 + threadIdx.x / 8;
  for (int j = 0; j < 16; ++j) {
    int col = blockIdx.x * 128 + threadIdx.x % 8 * 16 + j;
    float sum = 0;
    for (int i = 0; row < M && col < N && i < K; ++i) sum += A[row * K + i] * B[i * N + col];
    if (row < M && col < N) C[row * N + col] = sum;
  }
}"""
    kernel = found(source)
    assert (kernel.grid, kernel.block) == ("(N + 127) / 128, (M + 31) / 32", "256")


LEADING = """
__global__ void sgemm(int M, int N, int K, const float* A, int lda, const float* B, int ldb,
                      float* C, int ldc) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[ROW(row, k, lda)] * B[ROW(k, col, ldb)];
  C[ROW(row, col, ldc)] = sum;
}
void f(int M, int N, int K, float* A, float* B, float* C) {
  int lda = LDA, ldb = LDB, ldc = LDC;
  sgemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(M, N, K, A, lda, B, ldb, C, ldc);
}
"""
BY_ROWS = "#define ROW(row, column, width) (row) * (width) + (column)\n"
BY_COLUMNS = "#define ROW(row, column, height) (row) + (column) * (height)\n"


@pytest.mark.parametrize(
    ("indices", "right", "wrong"),
    [(BY_ROWS, "KNN", ("MNN", "KKN", "KNM")), (BY_COLUMNS, "MKM", ("KNN", "MNM", "MKN"))],
)
def test_leading_dimensions_are_what_the_host_passes(indices, right, wrong):
    def launched_with(sizes: str) -> Kernel:
        text = indices + LEADING
        for name, size in zip(("LDA", "LDB", "LDC"), sizes, strict=True):
            text = text.replace(name, size)
        return found(text)

    assert passes(launched_with(right))
    for sizes in wrong:
        kernel = launched_with(sizes)
        is_as_named = sizes == "KNN"
        assert ("the host code passes" in str(kernel.adapted)) != is_as_named
        assert not passes(kernel)


def test_a_leading_dimension_that_is_computed_is_what_it_is():
    text = LEADING.replace("LDB", "N").replace("LDC", "N")
    kernel = found(BY_ROWS + text.replace("LDA", "K + 1"))
    assert "K + 1" in kernel.arguments and not passes(kernel)
    unclear = found(BY_ROWS + text.replace("LDA", "M > K ? M : K"))
    assert "lda: what the host code passes isn't read, and K is taken" in unclear.warnings
    other = text[text.index("void f") :].replace("void f", "void g").replace("LDA", "M")
    several = found(BY_ROWS + text.replace("LDA", "K") + other)
    assert "lda: the host code passes K or M, and K is taken" in several.warnings


def test_matrices_that_the_host_exchanges_are_named():
    named = f"{TEXTBOOK.replace('first', 'A').replace('second', 'B').replace('third', 'C')}"
    body = BODY.replace("first", "A").replace("second", "B").replace("third", "C")
    source = f"{named} {body} {HOST}".replace("rows", "M").replace("columns", "N")
    source = source.replace("inner", "K")
    assert "passes" not in str(found(source).adapted)
    exchanged = found(source.replace("(a, b, c,", "(d_b, d_a, c,"))
    assert "the host code passes d_b for A and d_a for B" in str(exchanged.adapted)
