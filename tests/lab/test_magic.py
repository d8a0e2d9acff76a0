"""`%%rung` in a real shell: what a cell of CUDA C++ answers, and that a mistake is told in its own lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel
from traitlets.config import Config

from tests.helpers import measured, small_run
from tests.lab.cells import CELL, RACY, SLIP, SLOW, WRONG
from worklog import try_kernel
from worklog.bench import check
from worklog.bench import measure as bench
from worklog.bench.check import Checked
from worklog.errors import BadSetting, CompileFailed, NothingToDraw, UnknownRung
from worklog.gate import Verdict
from worklog.gpu import device
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab import tried
from worklog.lab.tried import Tried
from worklog.lab.tried_words import in_lines
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, whatever machine this is, and nothing measured before."""
    for module in (bench, check, device, tried):
        monkeypatch.setattr(module, "gpu_reason", lambda: "this test has no GPU")
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.setattr(tried, "_ladders", {})


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    made = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    made.run_cell("%load_ext worklog")
    yield made
    InteractiveShell.clear_instance()


class Page:
    """Cells typed one after the other, and what was printed."""

    def __init__(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell, self.capsys = shell, capsys

    def run(self, cell: str) -> tuple[Any, str]:
        """The result, and what a person reads."""
        done = self.shell.run_cell(cell, store_history=True)
        out, err = self.capsys.readouterr()
        return done.result if done.success else done.error_in_exec, out + err


@pytest.fixture
def page(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Page:
    capsys.readouterr()
    return Page(shell, capsys)


def test_a_right_kernel_is_accepted_and_stands_on_the_ladder_without_a_time(page: Page) -> None:
    found, printed = page.run(CELL)
    assert isinstance(found, Tried) and found.accepted and found.run is None
    assert "cell: plain at 130x190x70 · emulated · sm_90 PTX\n✓ exact on ragged shapes" in printed
    assert "accepted as fp32 in" in printed and "recorded · NVIDIA H200" in printed
    assert "mine: skipped: the emulator gives no time, and there is no GPU here; accepted as fp32 (emulated" in printed
    assert [m.label for m in found.shown.select("mine")] == ["emulated · sm_90 PTX"]
    names = [m.kernel for m in found.shown.measurements]
    assert names[-2:] == ["mine", "cuBLAS"] and names[0] == "naive"
    assert {m.problem for m in found.shown.measurements} == {Shape.of(1024)}
    assert "mine skipped: the emulator gives no time" in found.ladder().alt
    html = found._repr_html_()
    assert html.startswith('<div role="status"><p><b>mine</b>: accepted as fp32 at 130x190x70')
    assert "✓ precision: class fp32" in html and "32 registers" in html
    assert '<th scope="row">mine</th><td>skipped</td>' in html and "recorded · NVIDIA H200" in html


def test_a_wrong_kernel_is_refused_with_a_map_and_no_table(page: Page) -> None:
    found, printed = page.run(WRONG)
    assert not found.accepted
    assert "    .......................o\n" in printed and "recorded" not in printed
    html = found._repr_html_()
    assert "✗ exact on ragged shapes: " in html and "Only the last column: a bound is off by one." in html
    assert "<table" not in html
    assert "Only the last column" in found.tile_map().headline
    assert "mine refused: refused at exact on ragged shapes (emulated" in found.ladder().alt


def test_a_syntax_error_is_told_with_the_cells_line_and_its_text(page: Page) -> None:
    error, printed = page.run(SLIP)
    assert isinstance(error, Exception)
    assert printed.strip().splitlines()[-2:] == [
        printed.strip().splitlines()[-2],
        f"    {SLIP.splitlines()[5].strip()}",
    ]
    assert '%%rung: cell line 6: expected a ";"' in printed
    assert "Traceback" not in printed and "File" not in printed


@pytest.mark.parametrize("above", ["", "\n", "\n\n  \n"])
def test_lines_are_those_of_the_page_even_below_empty_ones(page: Page, above: str) -> None:
    wrong = above + CELL.replace("row * K", "roe * K")
    line = 1 + wrong.splitlines().index(next(text for text in wrong.splitlines() if "roe" in text))
    assert f'cell line {line}: identifier "roe" is undefined' in page.run(wrong)[1]


def test_all_complaints_are_told_at_once_and_many_are_cut(page: Page) -> None:
    two = page.run(CELL.replace("float acc = 0.0f;", ""))[1]
    assert "cell line 6: identifier" in two and "cell line 7: identifier" in two
    many = page.run(
        CELL.replace("  float acc", "  a = 1;\n  b = 1;\n  c = 1;\n  d = 1;\n  e = 1;\n  f = 1;\n  float acc")
    )
    assert many[1].count("is undefined") == 5 and "… and 1 more" in many[1]


def test_a_race_is_told_with_the_cells_lines(page: Page) -> None:
    found, printed = page.run(RACY)
    assert not found.accepted
    lines = RACY.splitlines()
    read, written = 1 + lines.index(lines[8]), 1 + lines.index(lines[6])
    assert (read, written) == (9, 7)
    assert re.search(rf"✗ launch: cell line {read}: shared-race: .*line {written}", printed), printed
    assert {f.line for f in found.checked.findings} == {9}
    assert found._repr_html_().count("cell line 9: shared-race") == 2
    assert re.search(r'<code style="white-space:pre">    \S[^<]*;</code>', found._repr_html_()), (
        "source looks like source"
    )
    assert " 0.0 s" not in printed + found._repr_html_()  # what the launch took is not known


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (CELL.replace("int K,", "long long K,"), "cell: plain takes 8 parameters of 32, 32, 64"),
        (CELL.replace("%%rung mine", "%%rung naive"), "the kernel is called naive, as another one is"),
        (CELL.replace("%%rung mine", "%%rung cuBLAS"), "the kernel is called cuBLAS, as another one is"),
        (CELL.replace("%%rung mine", "%%rung --grid N"), "a grid needs its block"),
        (CELL.replace("%%rung mine", "%%rung --block 256"), "a block of 256 threads needs a grid"),
        (CELL.replace("%%rung mine", "%%rung --block x --grid N"), "cannot read 'x'"),
        (CELL.replace("%%rung mine", "%%rung --domain 'M > 3'"), "cannot read the domain 'M > 3'"),
        (CELL.replace("%%rung mine", "%%rung --size big"), "size 'big' is not a number"),
        (CELL.replace("%%rung mine", "%%rung --beside nonsense"), "there is no rung 'nonsense'"),
        (CELL.replace("%%rung mine", "%%rung --entry other"), "cell: there is no kernel other; its kernels are plain"),
        (CELL.replace("%%rung mine", "%%rung --on gpu"), "no GPU to measure on: this test has no GPU"),
        ("%%rung\nint x;", "cell has no __global__ function"),
        (CELL + CELL.partition("\n")[2].replace("plain", "other"), "cell has 2 kernels (plain, other): name one with"),
    ],
)
def test_a_slip_is_a_line_and_the_shell_goes_on(page: Page, cell: str, says: str) -> None:
    error, printed = page.run(cell)
    assert isinstance(error, Exception) and str(error).startswith(says), str(error)
    assert f"%%rung: {says}" in printed and "Traceback" not in printed
    assert page.run("1 + 1")[0] == 2


@pytest.mark.parametrize("line", ["%%rung --frobnicate", "%%rung --class fp99", "%%rung one two", "%%rung"])
def test_what_is_no_option_is_usage(page: Page, line: str) -> None:
    error, printed = page.run(line + "\n" + CELL.partition("\n")[2] * (line != "%%rung"))
    assert isinstance(error, Exception) and printed.startswith("UsageError: "), printed


def test_help_names_every_option(page: Page) -> None:
    text = page.shell.find_cell_magic("rung").__doc__ or ""
    for option in ("name", "--grid", "--block", "--entry", "--domain", "--class", "--size", "--beside", "--check-only"):
        assert option in text
    assert "'M % 64 == 0" in text


def test_an_interrupt_leaves_a_line_and_a_shell_that_works(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tried, "gate", interrupted)
    error, printed = page.run(CELL)
    assert isinstance(error, Exception)
    assert "%%rung: interrupted; nothing runs any more" in printed and "Traceback" not in printed
    monkeypatch.undo()
    assert page.run("1 + 1")[0] == 2


# ------------------------------------------------------------------------------------------------------- in a notebook


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """A Jupyter kernel, and a client of it."""
    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(client: Any, cell: str, begun: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """What a page would keep of a cell. begun: called at the first sign of life."""
    kept: list[dict[str, Any]] = []
    started = False

    def keep(message: dict[str, Any]) -> None:
        nonlocal started
        kind, content = message["msg_type"], message["content"]
        if kind == "clear_output":
            kept.clear()
        elif kind in ("stream", "display_data", "execute_result", "error"):
            kept.append({"output_type": kind, **content})
        if kind == "stream" and not started:
            started = True
            begun()

    client.execute_interactive(cell, output_hook=keep, timeout=60)
    return kept


def test_a_page_keeps_the_verdict_and_the_ladder_as_two_outputs(kernel: Any) -> None:
    _, client = kernel
    outputs(client, "%load_ext worklog")
    verdict, chart = outputs(client, CELL)
    assert "accepted as fp32" in verdict["data"]["text/plain"] and "<table" in verdict["data"]["text/html"]
    assert "mine skipped" in chart["data"]["text/plain"] and "image/png" in chart["data"]
    _, drawn = outputs(client, WRONG)
    assert "image/png" in drawn["data"]
    (error,) = outputs(client, SLIP)
    assert error["output_type"] == "error" and error["traceback"][0].startswith("%%rung: cell line 6: expected")


def test_an_interrupted_cell_says_so_and_leaves_nothing_behind(kernel: Any) -> None:
    manager, client = kernel
    outputs(client, "%load_ext worklog")
    found = outputs(client, SLOW, begun=manager.interrupt_kernel)
    assert [output["output_type"] for output in found if output["output_type"] != "stream"] == ["error"]
    assert re.match("%%rung: interrupted", found[-1]["traceback"][0])
    assert psutil.Process(manager.provisioner.pid).children(recursive=True) == []
    (still,) = outputs(client, "1 + 1")
    assert still["data"]["text/plain"] == "2"


# ------------------------------------------------------------------------------------------------------ the function


SOURCE = CELL.partition("\n")[2]


def test_from_python_with_the_sources_own_lines() -> None:
    found = try_kernel(SOURCE, grid="(N + 15) // 16, (M + 7) // 8", block=(16, 8), time=False)
    assert found.accepted and found.kernel.name == "plain" and found.kernel.block == (16, 8)
    assert found.why == "not timed, as asked"
    with pytest.raises(CompileFailed, match=r'source:5: expected a ";"'):
        try_kernel(SOURCE.replace("float acc = 0.0f;", "float acc = 0.0f"))


def test_the_launch_that_is_left_out_is_a_thread_an_element() -> None:
    assert tried.launch(None, None) == ("(N + 31) // 32, (M + 31) // 32", "32,32")
    assert tried.launch(None, "16,8") == ("(N + 15) // 16, (M + 7) // 8", "16,8")
    assert tried.launch("N, M", 256) == ("N, M", "256")
    with pytest.raises(BadSetting, match="a block of 256 threads needs a grid"):
        tried.launch(None, 256)


def test_sizes_that_the_recording_holds_are_shown_and_for_others_its_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Checked(Verdict((), "fp32"), Shape(1, 1, 1), "emulated", compile_cuda(SOURCE, "plain"))
    monkeypatch.setattr(tried, "gate", lambda *_: judged)
    assert try_kernel(SOURCE, "mine", sizes=[512, 4096]).shown.shapes() == [Shape.of(512), Shape.of(4096)]
    assert len(try_kernel(SOURCE, "mine", sizes=["100x7x3"]).shown.shapes()) == 1


def test_of_the_recording_the_rungs_asked_for_are_shown_and_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    shown = try_kernel(SOURCE, "mine", sizes=[512], beside=["naive", "shared"]).shown
    assert [m.kernel for m in shown.measurements] == ["naive", "shared", "mine", "cuBLAS"]


def test_words_of_others_are_left_alone() -> None:
    assert in_lines("cell:7: x, cell: line 8: y, mycell:9 and cell is", "cell") == (
        "cell line 7: x, cell line 8: y, mycell:9 and cell is"
    )


# --------------------------------------------------------------------------------------------- what a GPU would answer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A GPU that answers at once; what was asked of it."""
    asked: list[list[str]] = []

    def measure(kernels: Any, sizes: Any, progress: Any) -> Run:
        names = [one if isinstance(one, str) else one.name for one in kernels]
        asked.append(names)
        progress(0, 1, "mine")
        found = [
            Measurement(name, (n.m, n.n, n.k), "refused", reason="launch: it failed")
            if name == "bad"
            else measured(name, n.m)
            for n in sizes
            for name in names
        ]
        stage = {"name": "precision", "passed": True, "measured": 1, "limit": 2, "detail": "fine", "where": None}
        for m in found:
            if m.verdict:
                m.verdict["stages"] = [{**stage, "seconds": 0.5}]
        return small_run(measurements=found, kernels={name: {"registers": 7} for name in names})

    for module in (bench, check, device, tried):
        monkeypatch.setattr(module, "gpu_reason", lambda: None)
    monkeypatch.setattr(tried, "measure", measure)
    emulated = check.compile_for
    monkeypatch.setattr(check, "compile_for", lambda program, live: (emulated(program, False)[0], "live · a GPU"))
    return asked


def test_with_a_gpu_it_is_timed_with_the_rungs_once_and_then_alone(page: Page, gpu: list[list[str]]) -> None:
    found, printed = page.run(CELL)
    assert gpu[0][0] == "mine" and gpu[0][1:] == list(tried.TAKEN)
    assert found.run is not None and found.accepted and found.checked.label == "live · a GPU"
    assert "✓ precision: fine" in printed and re.search(r"^ mine +fp32 ok +100.0 µs", printed, re.MULTILINE)
    again, printed = page.run(CELL)
    assert gpu[1] == ["mine", "cuBLAS"]
    assert [m.kernel for m in again.shown.measurements] == [*tried.TAKEN[:-1], "mine", "cuBLAS"]
    assert "the rungs were measured before, in the run of 2026-11-21T03:12:44+00:00" in printed
    page.run(CELL.replace("%%rung mine", "%%rung mine --size 256,512 --beside naive,shared"))
    assert gpu[2] == ["mine", "naive", "shared", "cuBLAS"]


def test_a_kernel_that_fails_on_the_gpu_is_refused(page: Page, gpu: list[list[str]]) -> None:
    found, printed = page.run(CELL.replace("%%rung mine", "%%rung bad"))
    assert not found.accepted and found.checked.verdict.reason == "launch: launch: it failed"
    assert "✗ launch: launch: it failed" in printed
    with pytest.raises(NothingToDraw, match="no map"):
        found.tile_map()


def test_unknown_rungs_are_told_before_anything_is_measured(gpu: list[list[str]]) -> None:
    with pytest.raises(UnknownRung):
        try_kernel(SOURCE, beside=["nonsense"])
    assert gpu == []


def test_an_earlier_cells_kernel_does_not_stand_beside_the_next_one() -> None:
    naive = small_run().select("naive")[0]
    first = replace(small_run(), measurements=[naive, replace(naive, kernel="one")])
    second = replace(small_run(), measurements=[replace(naive, kernel="two")], kernels={"two": {}})
    assert [m.kernel for m in tried._with_rungs_of(first, second).measurements] == ["naive", "two"]
