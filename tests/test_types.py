"""Type checkers reject a user's misspelt calls, and accept the right calls.

One process of mypy checks all calls, a line each.
"""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import worklog
from tests.readme_commands import blocks
from worklog import errors
from worklog.benchmarks import Call, CallOptions
from worklog.gpu.clocks import DATAPATHS, Datapath
from worklog.kernel import SourceOptions
from worklog.settings import PITFALLS, RULES, SAMPLING, WALL_CLOCK, Harness, HarnessSettings

ROOT = Path(__file__).parents[1]
BEGIN = """\
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from pathlib import Path
from typing import assert_type

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import worklog
from worklog import (
    Harness, Kernel, Measurement, Run, Shape, Trial, ablate, history, lab, measure, open_run, plots,
    results, sgemm, try_kernel,
)

A = B = np.ones((2, 2), np.float32)
run = open_run()
"""
WRONG = [
    'worklog.mesure("naive")',
    "worklog.plot",
    "worklog.Harnes()",
    'Harness(l2="cold")',
    "Harness(l3=3)",
    "Harness(queue=1)",
    'Harness().but(tmier="host")',
    'Harness().but(statistic="average")',
    'Harness(gate="loose")',
    'results("naive", l2="wram")',
    'results("naive", nonsense=3)',
    'results("naive", shapes=2.5)',
    'measure("naive", shape=4096)',
    'measure("naive", harness="naive")',
    "measure(7)",
    'ablate("naive", progres=print)',
    'open_run(shape="4096", kernel="naive")',
    'open_run(kernels="naive").measurments',
    "history(kernels=3)",
    'try_kernel("x", gird=(1, 1))',
    'try_kernel("x", on="cpu")',
    'try_kernel("x", domian="any")',
    'Kernel.from_file("mine.cu", domian="any")',
    'Kernel.from_file("mine.cu", claimed="fp31")',
    'Kernel.from_function("mine.py:f", arrays="numpy")',
    "sgemm(1.0, 2.0)",
    'sgemm(A, B, mode="spilt")',
    "sgemm(A, B, 3)",
    "worklog.time(len, [], flop=3)",
    'worklog.time(len, [], datapath="fp31")',
    "plots.ladder(run, sise=4096)",
    "plots.ladder(run, ax=3)",
    "plots.laddder(run)",
    "run.plot.laddder()",
    "run.plot.ladder(sise=4096)",
    "Shape.of(None)",
    'lab.panel("vectorized", l2="cold")',
    'lab.setting_effect("naive", [256], l3="warm")',
    'lab.laddr("naive")',
]
RIGHT = [
    'assert_type(measure("naive"), Run)',
    'assert_type(measure(["naive", Kernel.from_file("mine.cu")], [256, "512x256x128"]), Run)',
    'measure("naive", (256, 512, 1024), harness=Harness.naive(), out=Path("run.jsonl"))',
    'assert_type(results("naive", shapes=[256, (256, 512, 1024)], l2="warm", queue=False), Run)',
    'results(None, Shape(1, 2, 3), warmup="count:10", precision=0.01, clocks="locked:1410")',
    'assert_type(ablate("naive", 1024, harness=Harness(hot_ms=0)), Run)',
    'assert_type(open_run("turns", kernels="naive", shape=4096), Run)',
    'assert_type(history("naive", since="2026-11"), pandas.DataFrame)',
    'assert_type(try_kernel("x", block=(32, 8), shapes=512, on="emulated", domain="any"), Trial)',
    'assert_type(Kernel.from_source("x", grid=1, block=[32, 8], claimed="tf32"), Kernel)',
    'assert_type(Kernel.from_file(Path("mine.cu"), include="headers", shared=1024), Kernel)',
    'Kernel.from_function("mine.py:f", arrays="torch", claimed="bf16")',
    "ones = np.ones((2, 2), np.float32)",
    "product: NDArray[np.float32] = sgemm(ones, ones, max_error=1e-5)",
    'sgemm(A, B, mode=worklog.rung("naive"), beta=0.5, C=ones)',
    "product = worklog.LADDER[0](ones, ones, alpha=2)",
    'assert_type(worklog.time(len, [], flops=3, harness=Harness(l2="warm")), Measurement)',
    'worklog.time(len, [], against=[sum], sync=True, datapath="bf16", cross_check="none")',
    "figure: Figure = plots.ladder(run)",
    "figure = plots.sizes(run)",
    "figure = run.plot.roofline(4096)",
    'assert_type(plots.ladder(run, "4096"), plots.Chart)',
    "def on_axes(axes: Axes) -> None:",
    "    assert_type(plots.ladder(run, (4096, 4096, 4096), ax=axes), Axes)",
    "    assert_type(run.plot.calibration(ax=axes), Axes)",
    'assert_type(lab.panel("vectorized", 1024, l2="warm", queue=False).reason, str | None)',
    'lab.setting_effect("naive", [256, 512], l2="warm")',
    "worklog.peaks()['bf16']",
    "raise worklog.errors.BadSetting('a setting')",
]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Return the lines of each file that mypy rejects, with its messages."""
    folder = tmp_path_factory.mktemp("calls")
    documented = re.findall(r"^    (.+)", worklog.__doc__ or "", re.MULTILINE)
    assert len(documented) >= 5
    texts = {
        "wrong": "\n".join(WRONG),
        "right": "\n".join(RIGHT),
        "documented": "\n".join(documented),
        # A benchmark's function, as users write it, has no annotations.
        **{f"readme_{number}": block for number, block in enumerate(blocks("python"))},
    }
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(f"{BEGIN}{text}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty"]
    done = subprocess.run(
        [*command, *map(str, sorted(folder.glob("*.py")))], cwd=ROOT, capture_output=True, text=True
    )
    rejected: dict[str, dict[int, str]] = {name: {} for name in texts}
    for name, line, message in re.findall(r"(\w+)\.py:(\d+): error: (.+)", done.stdout):
        rejected[name].setdefault(int(line) - BEGIN.count("\n"), message)
    assert not done.stderr, done.stderr
    return rejected


@pytest.mark.timeout(900)  # mypy reads the whole package first
def test_every_wrong_call_is_rejected(checked):
    lines = {WRONG[line - 1] for line in checked["wrong"]}
    assert len(WRONG) >= 20 and not {*WRONG} - lines


@pytest.mark.timeout(900)
def test_every_right_call_passes(checked):
    assert len(RIGHT) >= 20
    assert {
        name: messages for name, messages in checked.items() if name != "wrong" and messages
    } == {}


def test_the_literals_of_settings_are_the_settings_at_run_time():
    """A setting whose value numbers may follow is any text for a type checker."""
    hints = get_type_hints(HarnessSettings)
    assert hints == {name: kind for name, kind in get_type_hints(Harness).items() if name in hints}
    assert [*hints] == [field.name for field in fields(Harness)]
    for pitfall in PITFALLS:
        if pitfall.setting in RULES:
            assert hints[pitfall.setting] is str
            continue
        choices = list[object]()
        for kind in get_args(hints[pitfall.setting]) or (bool,):
            choices += [True, False] if kind is bool else get_args(kind) or [kind]
        assert {*choices} == {*pitfall.values}, pitfall.setting
    assert {*hints} == {pitfall.setting for pitfall in PITFALLS} | {*SAMPLING}


def test_the_keywords_that_are_passed_on_are_those_of_the_function_behind():
    call = [field.name for field in fields(Call)]
    assert [*get_type_hints(CallOptions)] == call[2:]
    options = get_type_hints(CallOptions)
    assert {*get_args(options["cross_check"])} == {WALL_CLOCK, "none"}
    assert {*DATAPATHS} == {*get_args(Datapath)}
    from_source = get_type_hints(worklog.Kernel.from_source)
    for name, kind in get_type_hints(SourceOptions).items():
        assert from_source[name] == kind, name


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: worklog.measure("naive", shpaes=256), "shapes"),
        (lambda: worklog.results("naive", statisitc="mean"), "statistic"),
        (lambda: worklog.ablate("naive", progres=print), "progress"),
        (lambda: worklog.open_run(kernles="naive"), "kernels"),
        (lambda: worklog.history(sicne="2026"), "since"),
        (lambda: worklog.Harness(statisitc="mean"), "statistic"),
        (lambda: worklog.Harness().but(statisitc="mean"), "statistic"),
        (lambda: worklog.Kernel.from_file("mine.cu", domian="any"), "domain"),
        (lambda: worklog.Kernel.from_source("", domian="any"), "domain"),
        (lambda: worklog.Kernel.from_function("f:g", domian="any"), "domain"),
        (lambda: worklog.try_kernel("", domian="any"), "domain"),
        (lambda: worklog.time(len, [], flosp=3), "flops"),
        (lambda: worklog.plots.ladder(worklog.open_run(), szie=4096), "size"),
        (lambda: worklog.lab.panel(statisitc="mean"), "statistic"),
        (lambda: worklog.lab.access("naive", blok=1), "block"),
        (lambda: worklog.lab.ladder("naive", shpae=512), "shape"),
        (lambda: worklog.lab.timeline("naive", blok=1), "block"),
        (lambda: worklog.sgemm(0, 0, alhpa=2.0), "alpha"),
        (lambda: worklog.bench("N=1", skpi=bool), "skip"),
        (lambda: worklog.bench("N=1", nmae="product"), "name"),
        (lambda: worklog.bench("N=1", "M=1", togehter=["N", "M"]), "together"),
        (lambda: worklog.bench("N=1", "M=1", togehter=[["N", "M"]]), "together"),
    ],
)
def test_a_misspelt_keyword_gets_a_hint(call, meant):
    with pytest.raises(errors.BadSetting, match=rf"did you mean ({meant})\?"):
        call()
