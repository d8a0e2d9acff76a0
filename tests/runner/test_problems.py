"""`worklog check --problem`: any problem goes through one gate, on the emulator too."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from tests.helpers import typed
from worklog import Problem
from worklog.cli import main
from worklog.errors import BadSetting
from worklog.gate import check_cases
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.solution import Solution, find_problem
from worklog.problem import PROBLEMS
from worklog.runner.check import small_cases

SOFTMAX = (Path(__file__).parents[1] / "problem" / "softmax.cu").read_text(encoding="utf-8")
DOUBLED = """\
import numpy as np
import worklog

class Doubled(worklog.Problem):
    parameters = [
        {"name": "x", "type": "T", "pointer": True, "const": True},
        {"name": "y", "type": "T", "pointer": True, "const": False},
        {"name": "n", "type": "size_t", "pointer": False, "const": False},
    ]
    dtypes = {"float32": (0, 0), "float16": (0, 0), "int8": (0, 0)}
    is_exact = True

    def reference_solution(self, x):
        return 2 * x

    def generate_test_cases(self):
        return [
            self.case(f"n={n}", lambda rng, n=n: rng.integers(-9, 9, n).astype(self.dtype), n=n)
            for n in (3, 70)
        ]

    def get_extra_params(self, test_case):
        return [test_case["n"]]
"""


pytestmark = pytest.mark.usefixtures("laptop")


def worklog(source: str, problem: str, *words: str, file: str = "mine.cu") -> Result:
    Path(file).write_text(source, encoding="utf-8")
    return typed("check", file, "--problem", problem, *words)


def refused(result: Result) -> str:
    """Return the only line of a usage error."""
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    return result.stderr


def test_a_solution_of_several_kernels_passes_every_case_by_name_with_its_seed():
    result = worklog(SOFTMAX, "softmax")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "passed as float32"
    assert "mine.cu: solution for softmax in float32 · emulated · sm_90 PTX" in lines
    samples = find_problem("softmax").tests[0]
    names = "; ".join(f"case {sample['name']}" for sample in samples)
    passed = next(line for line in lines if "stages passed" in line)
    assert names in passed and passed.endswith("; bit-equal when repeated")
    assert "too large for the emulator, checked on a GPU: case 65536 x 64" in result.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        (
            "(output, columns, columns)",
            "(output, columns, columns - 1)",
            "column 32. Only the last column",
        ),
        (" - partial[0]", "", "around 100: seed "),
        ("i < last; i += 32) y", "i < last + 1; i += 32) y", "global-out-of-bounds"),
        ("blocks = (rows + 1 - 1) / 1", "blocks = (rows + 1) / 2", "were never written"),
        ("sum = 0.0f;", "sum = 1.0f;", "elements are wrong"),
        (
            "  float largest",
            "  const_cast<float*>(x)[first] = 1.0f;\n  float largest",
            "it changed its input input",
        ),
    ],
)
def test_a_wrong_solution_fails_at_a_case_and_says_where(right, wrong, found):
    assert right in SOFTMAX
    result = worklog(SOFTMAX.replace(right, wrong, 1), "softmax")
    assert result.exit_code == 1 and found in result.stdout, result.output
    if "columns - 1" in wrong:
        assert "the output in tiles of" in result.stdout


@pytest.mark.parametrize(
    ("exact", "step", "end", "said"),
    [
        (
            True,
            "1e-6f",
            1,
            "✗ bit-equal when repeated: in case n=70, launch 2 differs from the first in ",
        ),
        (
            False,
            "1e-6f",
            0,
            "· bit-equal when repeated: in case n=70, launch 2 differs from the first in ",
        ),
        (False, "1e-2f", 1, "✗ "),
    ],
)
def test_launches_that_differ_fail_an_exact_problem_and_are_stated_for_others(
    exact, step, end, said
):
    loose = DOUBLED.replace("(0, 0)", "(1e-3, 1e-3)").replace(
        "is_exact = True", f"is_exact = {exact}"
    )
    Path("own.py").write_text(loose)
    result = worklog(
        f"""\
__device__ int launches;
__global__ void twice(const float* x, float* y, size_t n) {{
  if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x] + launches * {step};
  __syncthreads();
  if (threadIdx.x == 0) ++launches;
}}
extern "C" void solution(const float* x, float* y, size_t n) {{ twice<<<1, 96>>>(x, y, n); }}
""",
        "own.py",
    )
    assert result.exit_code == end and said in result.stdout, result.output


@pytest.mark.parametrize(("last", "end"), [(3, 0), (4, 1)])
def test_a_local_array_of_a_solution_has_bounds(last, end):
    pytest.importorskip("ziglang", reason="clang comes with the extra [bounds]")
    Path("own.py").write_text(DOUBLED)
    source = f"""
__global__ void twice(const float* x, float* y, size_t n) {{
  float part[4] = {{}};
  if (threadIdx.x >= n) return;
  for (int j = 0; j < 4; ++j) part[j] = x[threadIdx.x] / 2;
  float sum = 0;
  for (int j = 0; j <= {last}; ++j) sum += part[j];
  y[threadIdx.x] = sum;
}}
extern "C" void solution(const float* x, float* y, size_t n) {{ twice<<<1, 96>>>(x, y, n); }}
"""
    result = worklog(source, "own.py")
    assert result.exit_code == end, result.output
    assert ("array bounds: mine.cu:7: index 4 is out of bounds" in result.stdout) == bool(end)


def test_a_launch_has_three_dimensions_and_a_file_without_solution_is_an_error():
    Path("own.py").write_text(DOUBLED)
    source = """
__global__ void twice(const float* x, float* y, size_t n) {
  if (blockIdx.z * 32 + threadIdx.x < n) y[blockIdx.z * 32 + threadIdx.x] = 2 * x[blockIdx.z * 32 + threadIdx.x];
}
extern "C" void solution(const float* x, float* y, size_t n) {
  dim3 blocks(1, 1, (n + 31) / 32);
  twice<<<blocks, dim3(32)>>>(x, y, n);
}
"""
    found = json.loads(worklog(source, "own.py", "--json").stdout)
    assert (
        found["problem"] == "Doubled in float32"
        and found["accepted"]
        and found["precision"] == "float32"
    )
    advice = refused(worklog(source.replace("void solution", "void solve"), "own.py"))
    assert (
        'write extern "C" void solution(const float* x, ' in advice
        and "its kernels (twice)" in advice
    )


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            "float* x, float* y",
            "takes 2 parameters, and softmax passes 4: declare solution(const float* input, ",
        ),
        ("float x, float* y, int n, int m", "takes float x, and softmax passes const float* input"),
    ],
)
def test_another_signature_is_an_error_with_the_right_one(parameters, said):
    assert said in refused(worklog(f'extern "C" void solution({parameters}) {{}}', "softmax"))


def test_sgemm_is_an_instance():
    kernel = Path(main.__module__ and __file__).parents[2] / "worklog/cli/template.cu"
    parameters = (
        "int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C"
    )
    source = f"""{kernel.read_text(encoding="utf-8")}
extern "C" void solution({parameters}) {{
  sgemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(M, N, K, alpha, A, B, beta, C);
}}"""
    assert worklog(source, "sgemm").exit_code == 0
    assert worklog(source.replace("alpha * acc :", "acc :"), "sgemm").exit_code == 1


@pytest.mark.parametrize(
    ("dtype", "kind"), [("float16", "__half"), ("int8", "signed char"), ("float32", "float")]
)
def test_a_problem_of_a_file_in_each_of_its_dtypes(dtype, kind):
    Path("own.py").write_text(DOUBLED)
    source = f"""\
#include <cuda_fp16.h>
__global__ void twice(const {kind}* x, {kind}* y, size_t n) {{
  const size_t i = blockIdx.x * 32 + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}}
extern "C" void solution(const {kind}* x, {kind}* y, size_t n) {{ twice<<<(n + 31) / 32, 32>>>(x, y, n); }}
"""
    result = worklog(source, "own.py:Doubled", "--dtype", dtype)
    assert result.exit_code == 0, result.output
    assert f"passed as {dtype}" in result.stdout
    off_by_one = worklog(source.replace("i < n)", "i + 1 < n)"), "own.py", "--dtype", dtype)
    assert off_by_one.exit_code == 1 and "Only the last column" in off_by_one.stdout


@pytest.mark.parametrize("words", [("softmax", "--dtype", "float16"), ("own.py:Doubled",)])
def test_starter_code_compiles_and_fails_the_check_until_it_is_filled_in(words):
    Path("own.py").write_text(DOUBLED)
    what, *dtype = words
    written = typed("new", what, "my folder", *dtype)
    assert written.exit_code == 0, written.output
    assert written.stdout.endswith(
        f"next: worklog check 'my folder/solution.cu' --problem {' '.join(words)}\n"
    )
    failed = typed("check", "my folder/solution.cu", "--problem", *words)
    assert failed.exit_code == 1 and "the output was never written" in failed.stdout, failed.output
    python = Path("my folder/solution.py").read_text()
    compile(python, "solution.py", "exec")
    assert f"def solution({', '.join(p.name for p in find_problem(what).signature)}):" in python
    assert f"--problem {' '.join(words)}\n" in python
    again = typed("new", what, "my folder")
    assert "solution.cu exists already" in refused(again)
    assert "own.py exists already: give another folder" in refused(typed("new", what, "own.py"))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("float* more; cudaMallocHost(&more, 4);", '"cudaMallocHost" is undefined'),
        ("divide<<<1, 1>>>(output, columns, unknown);", '"unknown" is undefined'),
        ("divide<<<1, 1>>>(output, columns);", "too few arguments"),
        ("nothing<<<1, 1>>>(output);", '"nothing" is undefined'),
        (
            "divide<<<1, 1>>>(columns, columns, columns);",
            'incompatible with parameter of type "float *"',
        ),
    ],
)
def test_host_code_that_cannot_run_is_an_error_with_its_line(statement, said):
    source = SOFTMAX.replace("  cudaDeviceSynchronize();", f"  {statement}")
    line = source[: source.index(statement)].count("\n") + 1
    error = refused(worklog(source, "softmax"))
    assert f"mine.cu:{line}: cannot run" in error and said in error
    assert "compute grids and launch kernels" in error


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "divide<<<rows - rows, 1>>>(output, columns, columns);",
            "divide is launched with 0 x 1 x 1",
        ),
        (
            "divide<<<1, 1>>>(output + 1, columns, columns);",
            "pass a parameter of solution as it is",
        ),
        ("while (true) rows += 2;", "solution can't be run: "),
        (
            "for (int n = 0; n < 2000; ++n) divide<<<1, 1>>>(output, columns, columns);",
            "more than 1024",
        ),
        ("output[0] = 1.0f;", "solution can't be run: "),
    ],
)
def test_a_launch_that_no_device_could_take_is_an_error(statement, said):
    source = SOFTMAX.replace("  cudaDeviceSynchronize();", f"  {statement}")
    error = refused(worklog(source, "softmax"))
    assert error.startswith("worklog: mine.cu: ") and said in error


def test_a_solution_may_compute_what_it_launches():
    """Loops, conditions, functions and templates: host code is run."""
    launch = SOFTMAX[SOFTMAX.index("  divide<<<") :].partition(";")[0] + ";"
    helper = "static int half_of(int n) { return n / 2; }\n"
    looped = (
        "  for (int part = 0; part < half_of(2); ++part) {\n"
        f"    if (rows > 0) {{ {launch.strip()} }} else {{ }}\n  }}"
    )
    source = helper + SOFTMAX.replace(launch, looped)
    assert source != helper + SOFTMAX
    assert worklog(source, "softmax").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("signed char", -3),
        ("unsigned char", 200),
        ("short", -300),
        ("float", 0.5),
        ("double", 1e300),
        ("__half", -2),
        ("long long", -(2**40)),
        ("bool", 1),
    ],
)
def test_a_kernel_gets_the_number_that_the_host_passes(kind, value):
    """Numbers of all types are recorded with their bits."""
    launch = SOFTMAX[SOFTMAX.index("  divide<<<") :].partition(";")[0] + ";"
    right = f"(float)x == (float)({kind})({value})"
    set_nan = f"__global__ void wrong(float* y, {kind} x) {{ if (!({right})) y[0] = NAN; }}\n"
    then = f"{launch}\n  wrong<<<1, 1>>>(output, ({kind})({value}));"
    source = f"#include <cuda_fp16.h>\n{set_nan}" + SOFTMAX.replace(launch, then)
    assert worklog(source, "softmax").exit_code == 0
    wrong = source.replace(
        f"wrong<<<1, 1>>>(output, ({kind})({value}))", f"wrong<<<1, 1>>>(output, ({kind})0)"
    )
    assert worklog(wrong, "softmax").exit_code == 1


def test_a_variable_of_two_kernels_is_an_error_because_each_has_its_own():
    """Each kernel is loaded by itself."""
    kernels = "".join(
        f"__global__ void {name}(float* x) {{ {name}_n = x[0] += {of}[0] += 1; }}\n"
        for name, of in (("one", "n"), ("two", "%s"))
    )
    variables = "__device__ float n[4], m[4], one_n, two_n;\n"
    statement = "one<<<1, 1>>>(output);\n  two<<<1, 1>>>(output);"
    source = variables + kernels + SOFTMAX.replace("  cudaDeviceSynchronize();", f"  {statement}")
    assert "one and two use n, of which each has its own: pass data" in refused(
        worklog(source % "n", "softmax")
    )
    assert "of which each has its own" not in worklog(source % "m", "softmax").output


ARTICLE = """
import ctypes
import torch
from worklog import Problem

class Doubled(Problem):
    def __init__(self):
        super().__init__(name="doubled")

    def reference_solution(self, A: torch.Tensor) -> torch.Tensor:
        return 2 * A

    def generate_test_cases(self, dtype: torch.dtype):
        def inputs(n):
            return lambda: (torch.rand(n, device=self.device, dtype=dtype),)

        return [{"name": f"n={n}", "n": n, "create_inputs": inputs(n)} for n in (5, 64)]

    def verify_result(self, expected_output, actual_output, dtype: torch.dtype):
        assert dtype == torch.float32
        largest = (expected_output - actual_output).abs().max()
        return torch.allclose(expected_output, actual_output, rtol=1e-5), {"largest difference": largest}

    def get_function_signature(self):
        pointer = ctypes.POINTER(ctypes.c_float)
        return {"argtypes": [pointer, pointer, ctypes.c_size_t], "restype": None}

    def get_flops(self, test_case):
        return test_case["n"]

    def get_extra_params(self, test_case):
        return [test_case["n"]]
"""


def test_a_problem_as_tensaras_article_states_it():
    Path("own.py").write_text(ARTICLE)
    source = """
__global__ void twice(const float* x, float* y, size_t n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * 2;
}
extern "C" void solution(float* input, float* output, size_t n) { twice<<<1, 64>>>(input, output, n); }
"""
    right = worklog(source, "own.py")
    assert right.exit_code == 0 and "passed: case n=5; case n=64; " in right.stdout, right.output
    wrong = worklog(source.replace("* 2", "* 3"), "own.py")
    assert wrong.exit_code == 1 and "case n=5: seed " in wrong.stdout, wrong.output
    assert re.search(r"largest difference 0\.\d", wrong.stdout), wrong.stdout


class Sound(Problem):
    parameters = PROBLEMS["softmax"].parameters
    names = ("a", "b")

    def reference_solution(self, x: np.ndarray) -> np.ndarray:
        return x / x.sum(axis=1, keepdims=True)

    def generate_test_cases(self) -> list[dict[str, object]]:
        return [self.case(name, lambda rng: rng.random((2, 3), np.float32)) for name in self.names]

    def get_extra_params(self, test_case: dict[str, object]) -> list[int]:
        return [2, 3]


def raises(self: Problem, *_: object) -> None:
    raise ValueError("of the user")


def test_a_problem_with_two_outputs_verifies_both():
    verify = {"verify_result": lambda self, expected, actual: (expected is actual is both, {})}
    posed = type("Two", (Sound,), verify)().under("")
    case: Any = SimpleNamespace(name="a", outputs=(both := (np.zeros(2), np.ones(2))))
    assert posed.verified(case, both) == (True, {}) and posed.verified(case, (*both,)[::-1]) == (
        False,
        {},
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"reference_solution": raises},
            "reference_solution raised ValueError: of the user (test_problems",
        ),
        (
            {"reference_solution": lambda self, x: None},
            "reference_solution returned NoneType in case 'a'",
        ),
        ({"reference_solution": lambda self, x: x.astype(np.float64)}, "has elements of 8 bytes"),
        ({"verify_result": lambda self, e, a: None}, "verify_result returned None in case 'a'"),
        (
            {"verify_result": lambda self, e, a: (True, {})},
            "verify_result passes an output of one repeated value",
        ),
        (
            {"verify_result": lambda self, e, a: (False, {})},
            "verify_result fails the reference's own result",
        ),
        ({"verify_result": raises}, "verify_result raised ValueError"),
        ({"names": ("a", "a")}, "two cases have the name 'a': rename one"),
        ({"names": ()}, "there is no test case"),
        (
            {"generate_test_cases": lambda self: [{"name": "a"}]},
            "generate_test_cases gives [{'name': 'a'}]",
        ),
        (
            {"get_extra_params": lambda self, case: [2]},
            "1 inputs, 1 outputs and 1 extra parameters are given, and 4",
        ),
        ({"parameters": [{"name": "x", "type": "flaot"}]}, "type 'flaot' (did you mean float?)"),
        ({"parameters": []}, "there are no parameters"),
        ({"dtypes": {"float31": (0, 0)}}, "dtypes is {'float31'"),
        ({"get_flops": lambda self, case: 10**12}, "no case that is small enough for the emulator"),
    ],
)
def test_a_mistake_in_a_problem_is_one_line(changed, said, monkeypatch):
    problem = type("Unsound", (Sound,), changed)
    Path("mine.cu").write_text(SOFTMAX)
    with pytest.raises(BadSetting) as raised:
        posed = problem().under("")
        device = EmulatedDevice()
        monkeypatch.setattr("worklog.kernel.solution.solution.find_problem", lambda *_: posed)
        subject = Solution.of("mine.cu").load(device)
        check_cases(subject, posed, small_cases(posed)[0], device, seed=1)
    assert said in str(raised.value) and "\n" not in str(raised.value)
