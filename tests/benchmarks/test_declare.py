"""Declared benchmarks.

Axes, points, the state, and the way from a file to a run on a GPU whose truth is known.
"""

import linecache
from functools import partial

import pytest
from pytest import approx

import worklog
from tests.benchmarks.conftest import at_point
from tests.helpers import small_run
from tests.runner.conftest import JOB
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, true_us
from worklog.benchmarks import declare
from worklog.benchmarks.declare import Benchmark, State, declared
from worklog.errors import BadSetting
from worklog.problem import Shape
from worklog.problem.axes import Axis
from worklog.runner import execute
from worklog.runner.execute import carry_out
from worklog.runner.measure import measure_benchmarks

FILE = """
import os
import worklog
from tests.exploits.arrays import xp
from worklog.errors import CompileFailed, OutOfMemory

class CompilationError(Exception):
    pass

def arrays(m, n, k):
    return xp.empty(m, k), xp.empty(k, n), xp.empty(m, n)

@worklog.bench(
    "N[pow2]=5:7",
    "mode[str]=launcher,run,stopwatch,stream,body,skips,compile,jit,memory,raises,asks",
    together=(),
    skip=lambda p: "small" if p["N"] == 32 else None,
)
def product(state):
    n, mode = state.N, state["mode"]
    a, b, c = arrays(n, n, n)
    state.flops(2 * n**3)
    state.elements(n * n)
    state.elements(n * n)
    state.reads(8 * n * n)
    state.writes(4 * n * n)
    if mode == "skips":
        state.skip("not today")
    if mode == "compile":
        raise CompileFailed("x.cu:3: expected a ';'")
    if mode == "memory":
        raise MemoryError
    if mode == "raises":
        raise ValueError("no such thing")
    if mode == "jit":
        raise CompilationError("at 3:4: no such type")
    if mode == "asks":
        state.M
    if mode == "run":
        state.run(xp.gemm, 1.0, a, b, 0.0, c=c, against=twice)
    elif mode == "stopwatch":
        state.run(timed_in_part, a, b, c, timer=True)
    elif mode == "body":
        xp.gemm(1.0, a, b, 0.0, c)
    elif mode == "stream":
        def launcher(stream):
            assert stream == state.stream
            xp.gemm(1.0, a, b, 0.0, c)
        return launcher
    else:
        return lambda: xp.gemm(1.0, a, b, 0.0, c)

def twice(*arguments, **named):
    xp.gemm(*arguments, **named)
    xp.gemm(*arguments, **named)

def timed_in_part(stopwatch, a, b, c):
    xp.fill(c, 0.0)
    stopwatch.start()
    xp.gemm(1.0, a, b, 0.0, c)
    stopwatch.stop()

@worklog.bench(
    "M=64,128",
    "K=80,160",
    op={"plain": False, "rounded": True},
    together=("M", "K"),
    name="two by two",
)
def zipped(state):
    a, b, c = arrays(state.M, 64, state.K)
    return lambda: xp.gemm(1.0, a, b, 0.0, c, rounded=state.op)

@worklog.bench("M=64,128", "K=80,160", op={"plain": False, "rounded": True}, together=("M", "K"))
def same(state):
    if state.M == 128:
        return lambda: None
    state.run(lambda launch: launch(), zipped(state))

@worklog.bench("N=64,96")
def leaves(state):
    if state.N == 96:
        os._exit(3)
    return lambda: xp.fill(xp.empty(state.N), 1.0)
"""


@pytest.mark.parametrize("mode", ["launcher", "run", "stopwatch", "stream", "body"])
def test_each_way_to_give_the_work_is_timed(file, mode):
    found = at_point(file, "product", axes=("N=64", f"mode={mode}"))
    assert found.us == approx(true_us(Machine(), Shape.of(64)), rel=0.01), found.reason
    assert found.axes == {"N": 64, "mode": mode} and found.shape is None
    assert found.gbs == approx(12 * 64 * 64 / found.us / 1e3)
    assert (found.work.flops, found.work.elements) == (2 * 64**3, 2 * 64 * 64)
    assert "gate: off, the result is not checked" in found.degradations
    assert (found.baseline, found.ratio) == (
        ("twice", approx(2.0, rel=0.3)) if mode == "run" else ("", None)
    )


@pytest.mark.parametrize(
    ("n", "mode", "status", "reason"),
    [
        (32, "raises", "skipped", "small"),
        (64, "skips", "skipped", "not today"),
        (64, "compile", "skipped", "x.cu:3: expected a ';'"),
        (64, "memory", "skipped", "the host's memory is full"),
        (
            64,
            "jit",
            "skipped",
            "it does not compile: CompilationError: at 3:4: no such type (own.py:",
        ),
        (64, "raises", "failed", "raised ValueError: no such thing (own.py:"),
        (
            64,
            "asks",
            "failed",
            "raised AttributeError: the state has neither an axis nor an attribute",
        ),
    ],
)
def test_a_point_that_cannot_be_timed_has_a_reason(file, n, mode, status, reason):
    found = at_point(file, "product", axes=(f"N={n}", f"mode={mode}"))
    assert found.status == status and str(found.reason).startswith(reason)
    assert status == "skipped" or "(own.py:" in str(found.reason)
    assert found.axes == {"N": n, "mode": mode} and found.us is None


def test_several_baselines_take_turns_in_one_loop_and_each_has_a_column(file):
    _, zipped, _, leaves = declared(file)
    with pytest.raises(BadSetting, match="only one has an axis K, M, N, op"):
        measure_benchmarks([zipped, leaves], leaves)
    found = at_point(file, "two by two", "two by two", "same", axes=("M=64", "K=80", "op=rounded"))
    ratios = {name: ratio and ratio.value for name, ratio in found.against.items()}
    assert {name for name, ratio in ratios.items() if ratio == approx(1.0, rel=0.05)} >= {"same"}, (
        ratios
    )
    run = small_run(measurements=[found])
    assert "of two by two" in str(run) and "of same" in str(run) and str(run).count("rounded") == 1
    idle = at_point(file, "two by two", "two by two", "same", axes=("M=128", "K=160", "op=plain"))
    assert "the baseline same: 3.45 µs were read" in str(idle.reason)
    refused = at_point(file, "product", "product", axes=("N=64", "mode=run"))
    assert "has a baseline of its own" in str(refused.reason)


def test_a_file_is_measured_into_a_run_like_any_other(file, monkeypatch, tmp_path):
    monkeypatch.setattr(execute, "carry_out", partial(carry_out, command=JOB))
    doing: list[str] = []
    out = tmp_path / "run.json"
    measured = measure_benchmarks(
        declared(file, ["leaves"]),
        harness=QUICK,
        progress=lambda *how: doing.append(how[2]),
        out=out,
    )
    run = worklog.open_run(out)
    assert [m.status for m in run.measurements] == ["measured", "failed"]
    assert "without an answer (exit code 3); call it alone in Python" in str(
        run.measurements[1].reason
    )
    assert "leaves at N=64" in doing and measured.complete
    assert run.kernels["leaves"]["file"] == "own.py" and len(run.kernels["leaves"]["sha256"]) == 64
    assert run.label.startswith("live · a virtual GPU")
    shown = str(run)
    assert " N " in shown and "N=96: failed" in shown
    assert list(run.frame()[["kernel", "N", "status"]].iloc[0]) == ["leaves", 64, "measured"]


def test_axes_make_points_together_or_in_all_combinations(file):
    product, zipped, *_ = declared(file)
    assert (
        len([*product.space.configurations()]) == 33
        and sum(p.skipped == "small" for p in product.space.configurations()) == 11
    )
    assert [list(p.values.values()) for p in zipped.space.configurations()] == [
        [64, 80, "plain"],
        [64, 80, "rounded"],
        [128, 160, "plain"],
        [128, 160, "rounded"],
    ]
    assert "two by two: 2 M + K x 2 op = 4 points; 4 to measure" in repr(zipped)
    assert "2^5, 2^6, 2^7" in product._repr_html_()


@pytest.mark.parametrize(
    ("axis", "shown"),
    [("N=1:20", "1, 2, 3, 4, 5, 6, …, 20"), ("N=11:18", "11, 12, 13, 14, 15, 16, 17, 18")],
)
def test_of_many_values_the_first_and_the_last_are_shown(axis, shown):
    assert repr(worklog.bench(axis)(lambda state: None)).splitlines()[-1].endswith(f"  {shown}")


def test_values_have_the_type_of_their_axis():
    @worklog.bench(
        "N[pow2]=3",
        "x[float]=1:2:0.5",
        "T[type]=float,double",
        n=[1, 2],
        y=[1, 2.5],
        f={"sum": sum},
    )
    def several(state: State) -> None:
        pass

    first = several.values(next(several.space.configurations()).values)
    assert first == {"N": 8, "x": 1.0, "T": "float", "n": 1, "y": 1.0, "f": sum}
    assert [type(first[name]) for name in ("N", "x", "n", "y")] == [int, float, int, float]
    state = State(first, 7, None)
    assert state.f([1, 2]) == 3 and state["T"] == "float"
    with pytest.raises(BadSetting, match=r"no axis 'TT' \(did you mean T"):
        state["TT"]
    with pytest.raises(AttributeError, match="neither an axis nor an attribute 'run_it'"):
        _ = state.run_it
    state.run(print)
    with pytest.raises(BadSetting, match="times one call"):
        state.run(print)


@pytest.mark.parametrize(
    ("axes", "named", "message"),
    [
        (["N=1,2", "M=1,2,3"], {"together": ("N", "M")}, "N has 2 values and M has 3"),
        (["N=1,2"], {"together": ("N", "M")}, "together names M"),
        (["N=1,2", "M=1,2"], {"together": (("N", "M"), ("M", "N"))}, "together names N"),
        (["N=1", "N=2"], {}, "axis N is given twice"),
        ([], {"f": print}, "is one value"),
        ([], {"f": [print]}, "mapping from names to objects"),
        ([Axis("N", (1,))], {"N": [2]}, "axis N is given twice"),
        ([lambda state: None], {}, r"needs parentheses: write @worklog.bench\(\)"),
        ([5], {}, "give axes as texts"),
        (["N=1,2", "M=1,2"], {"together": "NM"}, "together as a list"),
        (["N=1,2"], {"skip": "N"}, "skip as a function"),
    ],
)
def test_a_mistake_in_the_axes_is_found_at_the_declaration(axes, named, message):
    with pytest.raises(BadSetting, match=message):
        worklog.bench(*axes, **named)(lambda state: None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op=doubled", "there is no 'doubled': choose from plain, rounded"),
        ("M[float]=1", "of kind int, not float"),
        ("Q=1", "no benchmark has an axis Q"),
        ("M=1,2,3", "M has 3 values and K has 2"),
    ],
)
def test_another_value_must_fit_its_axis(file, text, message):
    with pytest.raises(BadSetting, match=message):
        declared(file, ["two*"], [text])


def test_a_cell_of_a_notebook_is_handed_to_the_child_as_source(monkeypatch):
    cell = "import worklog\n@worklog.bench('N=1,2')\ndef small(state):\n    pass\n"
    monkeypatch.setitem(
        linecache.cache, "<cell 1>", (len(cell), None, cell.splitlines(True), "<cell 1>")
    )
    names: dict[str, Benchmark] = {}
    exec(compile(cell, "<cell 1>", "exec"), names)
    host = names["small"].kernel.host
    assert (
        host is not None
        and declare.benchmarks_of(host)["small"].space.axes == names["small"].space.axes
    )
    exec(compile(cell, "<gone>", "exec"), names)
    with pytest.raises(BadSetting, match="define it in a file or a cell"):
        _ = names["small"].kernel
