"""The programs that make recordings.

Ported examples, mutants of code, kernels of public repositories, and intervals.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pytest import approx

from notebooks.story.tables import power_cap
from tests.helpers import GPU, small_run
from tests.record import compare, corpus, mutants_fork, mutants_of_code, ported
from tests.record.intervals import DRIFT_SD_US, WORKS, at_one_clock, clock_slope, coverage
from tests.record.ported import Example, prepare
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import compile_cuda, of_nvidia
from worklog.problem import Point
from worklog.runner import execute
from worklog.runner.execute import carry_out
from worklog.runs import Measurement, recordings
from worklog.runs.comparison import open_comparison
from worklog.runs.statistics import NORMAL, Estimate, process_half_us

PUBLISHED = """
import cuda.bench as bench
from tests.exploits.arrays import xp

@bench.register()
@bench.axis.int64_power_of_two("N", [5, 6])
def product(state):
    n = state.get_int64("N")
    if n == 32:
        state.skip("small")
    a, b, c = xp.empty(n, n), xp.empty(n, n), xp.empty(n, n)
    state.exec(lambda launch: xp.gemm(1.0, a, b, 0.0, c))
"""
REPLACE = '"import cuda.bench as" = "import worklog.benchmarks.nvbench as"'
DATA = f"""
repository = {{ NVBench = ["a/b", "1"] }}
[[NVBench]]
path = "one.py"
replace = {{ {REPLACE} }}
measured = ["-b", "product", "-a", "N[pow2]=[5,6]"]
"""
ENGINE = """
from fastapi import HTTPException
class Output(list):
    shape = (3,)
    new_zeros = lambda self, shape: [0] * shape[0]
normalize_outputs = lambda computed: (Output(),)
def run_dynamic_benchmark(solution, problem, test_id, case, inputs, outputs, language):
    assert (language, outputs, inputs) == ("python", [[0, 0, 0]], (4,))
    if case["name"] == "n = 1":
        return {"runtime_ms": solution(*inputs)}
    return {"status": "WRONG_ANSWER"}
"""
PROBLEM = """
class Doubled:
    def reference_solution(self, n):
        return 2 * n
    def generate_test_cases(self):
        return [{"name": f"n = {n}", "create_inputs": lambda: (4,)} for n in (1, 2)]
"""
PRINTS = """
import flashinfer.triton
from flashinfer.utils import round_up
shows = lambda n: print(f"GEMM | {n}: {round_up(n, 8) / 10:.3f} TFLOPs/s")
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a clone of NVBench that has one example."""
    written(tmp_path / "clones/a/b/one.py", PUBLISHED)
    monkeypatch.setattr(ported, "DATA", written(tmp_path / "ported.toml", DATA))
    monkeypatch.setattr(
        ported.recording, "cloned", lambda repository, commit, below: below / repository
    )
    return tmp_path


@pytest.mark.parametrize(
    ("another", "error"),
    [
        ('"absent" = ""', r"one\.py has no 'absent'"),
        (r'"\n" = " \n"', "12 lines are changed, more than 10"),
    ],
)
def test_a_replacement_without_its_text_and_an_eleventh_line_are_errors(another, error, folder):
    assert [example.lines for example in prepare(folder)[0]] == [1]
    ported.DATA.write_text(DATA.replace(REPLACE, another))
    with pytest.raises(ValueError, match=error):
        prepare(folder)


def test_nvbenchs_cold_and_hot_times_stand_beside_ours(folder, monkeypatch):
    """The whole way to a child process on the virtual GPU.

    The program answers as NVBench does.
    """
    monkeypatch.setenv("WORKLOG_HOME", str(folder / "home"))
    times = [
        {
            "tag": f"nv/{kind}/time/gpu/mean",
            "data": [{"name": "value", "type": "float64", "value": value}],
        }
        for kind, value in (("cold", "0.000130"), ("batch", "0.000110"))
    ]
    states = [
        {
            "axis_values": [{"name": "N", "type": "int64", "value": n}],
            "skip_reason": skipped,
            "summaries": summaries,
        }
        for n, skipped, summaries in (("32", "small", None), ("64", None, times))
    ]

    def by_nvbench(words: Sequence[str]) -> str:
        assert words[1:7] == ["--devices", "0", "-b", "product", "-a", "N[pow2]=[5,6]"]
        return str(
            Path(words[-1]).write_text(
                json.dumps({"benchmarks": [{"name": "product", "states": states}]})
            )
        )

    ([example], clones) = prepare(folder)
    monkeypatch.setattr(ported, "run", by_nvbench)
    monkeypatch.setattr(
        execute,
        "carry_out",
        partial(carry_out, command=(sys.executable, "-m", "tests.virtual.job")),
    )
    skipped, row = ported.nvbench(example, clones)
    assert (
        skipped["why"] == ["skipped: small", "NVBench skips it: small"] and skipped["ours"] is None
    )
    assert (row["point"], row["lines"]) == ("product N=64", 1)
    assert (row["theirs"], row["hot_theirs"]) == (approx(130), approx(110))
    assert row["ours"] == approx(2 * 64**3 / 4096, rel=0.02) and row["low"] <= row["ours"]


def test_tensaras_engine_times_its_cases_beside_ours(tmp_path, monkeypatch):
    written(tmp_path / "engine/utils.py", ENGINE)
    theirs = written(tmp_path / "doubled/def.py", PROBLEM)
    written(theirs.with_name("torch.py"), "def solution(n):\n    return n / 8\n")

    def measured(solutions: Sequence[Any], *, cases: Sequence[str], **how: Any) -> Any:
        assert (solutions[0].host.arrays, solutions[0].problem, cases) == (
            "torch",
            "ours.py",
            ["n = 1", "n = 2"],
        )
        timed = Measurement(
            "solution", Point.of_case("", "n = 1"), time=Estimate(490.0, 489.0, 491.0)
        )
        return small_run(measurements=[timed])

    monkeypatch.setattr(ported.measure, "measure_solutions", measured)
    example = Example("Tensara", theirs, Path("ours.py"), 6, ("n = 1", "n = 2"))
    right, wrong = ported.tensara(example, {"Tensara's engine": tmp_path})
    assert [right[name] for name in ("example", "point", "theirs", "ours")] == [
        "doubled",
        "n = 1",
        500.0,
        490.0,
    ]
    assert (
        wrong["why"] == ["theirs: RuntimeError: {'status': 'WRONG_ANSWER'}"]
        and wrong["theirs"] is None
    )


def test_what_a_flashinfer_example_prints_is_read_from_both(tmp_path):
    theirs, ours = (written(tmp_path / f"{which}.py", PRINTS) for which in ("theirs", "ours"))
    written(tmp_path / "flashinfer/triton/__init__.py", "")
    example = Example("FlashInfer", theirs, ours, 9, ("shows(61)",))
    [row] = ported.flashinfer(example, {"FlashInfer": tmp_path})
    assert [row["theirs"], row["ours"], row["unit"], row["why"]] == [6.4, 6.4, "TFLOP/s", []]


def test_a_failed_example_is_a_row_of_the_record(folder, monkeypatch):
    out = folder / "ported.json"
    card = replace(GPU, name="a virtual GPU")
    given = dict(
        gpu_reason=lambda: None,
        gpu=lambda: card,
        software=dict,
        MEASURES={"NVBench": lambda *_: int("x")},
    )
    for name, value in given.items():
        monkeypatch.setattr(ported, name, value)
    done = CliRunner().invoke(ported.main, [str(folder), "--out", str(out)], catch_exceptions=False)
    document = json.loads(out.read_text())
    assert (
        document["label"].startswith("live · a virtual GPU")
        and "one all: ValueError: invalid" in done.stdout
    )
    assert document["rows"][0]["why"][0].startswith("ValueError: invalid")


def test_a_mutants_tests_are_those_that_run_its_place_in_any_process(tmp_path):
    source = "def f(n):\n    if n == 1 + 1:\n        print(n)\n    return 2 if n else 3\n"
    places = [*enumerate(mutants_of_code.places(source))]
    nodes = {number: place.node for number, place in places}
    text = mutants_of_code.noting(source, [(n, place.node, place.depth) for n, place in places])
    written(tmp_path / "work.py", text)
    shutil.copy(Path(__file__).with_name("mutants_run.py"), tmp_path / "sitecustomize.py")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PYTEST_CURRENT_TEST": "test_a.py::test_b[1 2] (call)",
    }
    subprocess.run([sys.executable, "-c", "import work; work.f(0)"], env=environment, check=True)
    rows = map(json.loads, (tmp_path / "ran.jsonl").read_text().splitlines())
    run = {ast.unparse(nodes[number]) for test, number in rows if test == "test_a.py::test_b[1 2]"}
    assert run == {"n == 1 + 1", "1 + 1", "1", "3"} and text.count("\n") == source.count("\n")


def test_functions_of_a_process_take_a_mutants_code_unless_a_closure_loses_a_variable(tmp_path):
    source = (
        "class A:\n    def f(self, n):\n        def g():\n            return n + 1\n        "
        "return g\n"
    )
    path = written(tmp_path / "work.py", source)
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    earlier = names["A"]().f(3)
    by_code = mutants_fork.functions()
    assert mutants_fork.change(by_code, str(path), source, source.replace("n + 1", "n - 1"))
    assert (names["A"]().f(3)(), earlier()) == (2, 2)
    assert not mutants_fork.change(by_code, str(path), source, source.replace("n + 1", "2"))


FOLDER = Path(__file__).with_name("sources")


def test_template_arguments_are_those_of_the_first_launch_with_the_names_of_its_scope():
    (largest,) = (kernel for kernel in corpus.kernels(FOLDER) if kernel.path.stem == "tiled")
    assert largest.entry == "largest<32>" and "unrelated" not in largest.host


@pytest.mark.skipif(
    not of_nvidia(Program("", "#include <mma.h>", "")), reason="NVIDIA's headers are not installed"
)
def test_kernels_with_host_code_in_their_headers_are_compiled_checked_and_counted():
    files = corpus.files_of(FOLDER)
    tries = [kernel for file in files for kernel in corpus.tries_of(file, [])]
    rows = {kernel.entry: kernel for kernel in tries}
    product = rows["matmul"].product
    assert product.verdict == "passed" and product.options == ()
    assert not rows["small"].product.verdict
    # NVRTC compiles no launch from a kernel; what else is in its file is compiled by itself.
    assert [rows[name].apart for name in ("small", "grow", "read")] == [
        "",
        "dynamic parallelism",
        "textures",
    ]
    document = corpus.record({FOLDER: tries})
    (counts,) = document["rows"]
    names = ("kernels", "textures", "device launches", "tried", "covered", "GEMMs", "passed")
    assert [counts[name] for name in names] == [*(5, 1, 1, 3, 3, 1, 1)]
    assert counts["passed without options"] == 1
    (written,) = document["products"]
    assert (written["kernel"], written["verdict"]) == ("matmul", "passed")


def product_in(folder: Path, text: str) -> corpus.Checked:
    """Return the verdict of the corpus on the only kernel of a file."""
    written(folder / "gemm.cu", text)
    ((kernel,),) = corpus.files_of(folder)
    return corpus.checked(kernel)


def test_a_product_is_checked_again_with_the_domain_that_its_message_names(tmp_path):
    tiles = (FOLDER / "gemm.cu").read_text(encoding="utf-8")
    for size in "MN":
        tiles = tiles.replace(f"{size} / 16", f"({size} + 15) / 16")
    product = product_in(tmp_path, tiles)
    assert product.verdict == "passed"
    assert product.options == (("domain", "M % 16 == 0, N % 16 == 0"),)
    wrong = product_in(tmp_path, tiles.replace("A[row * K", "A[row * M"))
    assert (wrong.verdict, wrong.options) == ("failed", ())
    assert "one of M, N and K in place of another" in wrong.reason
    halves = product_in(tmp_path, tiles.replace("const float*", "const char*"))
    assert (halves.verdict, halves.reason) == ("left out", "takes const char* A")


def test_a_product_whose_check_takes_long_has_no_verdict(tmp_path, monkeypatch):
    def endless(*_: object, **__: object) -> None:
        while True:
            pass

    monkeypatch.setattr(corpus, "MOST_S", 1)
    monkeypatch.setattr(corpus, "check", endless)
    slow = product_in(tmp_path, (FOLDER / "gemm.cu").read_text(encoding="utf-8"))
    assert (slow.verdict, slow.reason) == ("not checked", "took longer than 1 s")


POINTS = {
    (point["work"], point["of"]): point
    for point in open_comparison(part="intervals").document["promises"]["coverage"]
}


def test_what_notebook_09_states_about_the_recording():
    """Of 200 pairs in one process, and of all pairs across 25: 95 to 96.5 % are expected.

    Student's t with 8 degrees of freedom for each reading, and about 16 for a difference, and 2 %
    are chance.
    """
    assert tuple(POINTS) == WORKS and [point["kernels"] for point in POINTS.values()] == [
        2,
        1,
        1,
        1,
        1,
    ]
    in_one, across = zip(*map(coverage, POINTS.values()), strict=True)
    ends = [round(100 * end(shares), 1) for shares in (in_one, across) for end in (min, max)]
    assert ends == [93.0, 98.5, 93.8, 97.9]
    slopes = {work: round(-clock_slope(point), 1) for work, point in POINTS.items()}
    assert slopes["cuBLAS", 256] == min(slopes.values()) == 0.1
    assert slopes["cuBLAS", 2048] == max(slopes.values()) == 1.0


def test_what_differs_between_processes_is_as_recorded():
    """Between readings in one process and between processes together.

    25 processes know the latter to 15 %.
    """
    drifts = []
    for work in (("cuBLAS", 256), ("shared", 256)):
        scaled = at_one_clock(POINTS[work])
        us = scaled[..., 1]
        halves = np.ptp(scaled[..., [0, 2]], axis=-1) / 2
        variance = us.var(axis=1, ddof=1).mean()
        process = us.mean(axis=1).var(ddof=1) - variance / us.shape[1]
        drifts.append(variance - ((halves / NORMAL) ** 2).mean())
        half = process_half_us(POINTS[work]["kernels"])
        assert (drifts[-1] + process) ** 0.5 == approx(half / NORMAL, rel=0.15)
    assert max(drifts) ** 0.5 == approx(DRIFT_SD_US, rel=0.1)


def test_the_recorded_rates_are_those_of_the_rule_and_the_slower_kernel_compiles():
    compile_cuda(compare.slower(256, 1400).program, "sm_90")
    for path in recordings("compare").values():
        document = json.loads(path.read_text(encoding="utf-8"))
        assert compare.rates([document]) == document["rates"]
        assert (
            document["rates"]["false"]["share"] <= 0.02
            and document["rates"]["found"]["share"] >= 0.9
        )


def test_each_format_multiplies_by_the_same_b():
    import torch  # here: it takes 2 s of each process that collects the tests

    from tests.record.int8 import products

    made = products(32, "cpu")
    digits, columns = made["INT8"].args
    assert torch.equal(made["INT8"]().long(), digits.long() @ columns.long())
    right = made["FP32"].args[0].double() @ made["FP32"].args[1].double()
    for name, most in (("FP16", 0.02), ("FP32", 1e-5)):
        assert (made[name]().double() - right).abs().max() < most and made[name]().dtype == made[
            name
        ].args[0].dtype


def test_the_table_compares_the_products_that_come_near_fp32():
    table = power_cap()
    assert table.title.startswith("recorded · NVIDIA H200") and table.title.endswith(
        ", power limit 700 W"
    )
    rows = {str(row[0]): list(map(str, row[2:])) for row in table.rows}
    assert table.columns[3] == "W" and rows["INT8 at 4096"] == ["825", "692", "36.5 %"]
    assert len(rows) == len(table.rows) == 6
    assert (rows["FP16 at 8192"], rows["FP32 at 8192"][2]) == (["639", "669", "23.7 %"], "100.0 %")
