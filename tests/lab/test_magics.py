"""`%%rung` in a real shell.

The result of a cell of CUDA C++, and errors with the cell's own line numbers.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel
from pytest import approx
from traitlets.config import Config

from tests import helpers
from tests.helpers import measured, small_run
from tests.lab.waiting import gone, until
from tests.virtual.gpu import VirtualGpu
from tests.virtual.session import CALIBRATION, session_on
from worklog import Harness, try_kernel
from worklog.errors import BadSetting, CompileFailed, NothingToDraw
from worklog.gpu import device
from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER
from worklog.kernel.launchable import compile_for
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab import magics, trials
from worklog.problem import Shape
from worklog.runner import check, sources, timing
from worklog.runner import measure as bench
from worklog.runner.check import Checked
from worklog.runs import Measurement, NeverRan, Run, Stage, Verdict, recorded_run

# Cells as a person types them: right, wrong, racy, and one that takes long.
CELL = "%%rung mine\n" + helpers.PLAIN.replace("mine(", "plain(")
PLAIN = CELL.partition("\n")[2]
WRONG = CELL.replace("col >= N", "col >= N - 1")
SLOW = CELL.replace(
    "for (int k = 0; k < K; ++k)", "for (int r = 0; r < 100000; ++r) for (int k = 0; k < K; ++k)"
)
# With its launch, so that the check starts at once: no trial finds the launch first.
SLOW_CHECK = SLOW.replace(
    "%%rung mine", "%%rung mine --grid '(N + 31) // 32, (M + 7) // 8' --block 32,8", 1
)


@pytest.fixture(scope="module")
def shell():
    instance = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    instance.run_cell("%load_ext worklog")
    yield instance
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell, capsys):
    """Return a function that runs a cell.

    It returns the cell's result, or its error, and what a person reads.
    """
    capsys.readouterr()

    def run_cell(cell: str) -> tuple[Any, str]:
        execution = shell.run_cell(cell, store_history=True)
        out, err = capsys.readouterr()
        return execution.result if execution.success else execution.error_in_exec, out + err

    return run_cell


def test_a_wrong_kernel_fails_with_an_error_map_and_no_table(run, monkeypatch):
    trial, printed = run(WRONG)
    assert not trial.passed
    assert "    .......................o\n" in printed and "recorded" not in printed
    html = trial._repr_html_()
    assert "✗ exact" in html and "Only the last column" in html and "<table" not in html
    assert "failed at exact" in trial.ladder().alt
    outputs: list[Any] = []
    monkeypatch.setattr(trials, "get_ipython", lambda: SimpleNamespace(kernel="of a notebook"))
    monkeypatch.setattr(trials, "display", lambda output, **_: outputs.append(output))
    trial._ipython_display_()
    assert outputs[0]["text/html"] == html and "Only the last column" in outputs[1].headline


def test_every_error_names_its_line_on_the_page(run):
    statements = "".join(f"  {name} = 1;\n" for name in "abdefg")
    wrong = CELL.replace("  float acc", statements + "  float acc")
    line = 1 + wrong.splitlines().index("  a = 1;")
    printed = run(wrong)[1]
    assert (
        f"%%rung: cell:{line}: identifier" in printed and f"cell:{line + 1}: identifier" in printed
    )
    assert "\n    a = 1;\n" in printed
    assert printed.count("is undefined") == 6


def test_a_missing_brace_names_the_line_of_the_brace_that_is_open(run):
    unclosed = CELL.rstrip().removesuffix("}")
    line = 1 + next(n for n, text in enumerate(unclosed.splitlines()) if text.endswith(") {"))
    printed = run(unclosed)[1]
    assert f'cell: at its end: expected a "}}", to match this "{{" in line {line}' in printed


def test_a_puzzle_without_a_name_lists_the_puzzles(run):
    printed = run(CELL.replace("%%rung mine", "%%puzzle"))[1]
    assert "choose from neighbours, accumulator" in printed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("naive", "naive is the name of another kernel"),
        ("--grid N", "a grid needs a block"),
        ("--block 256", "a block of 256 threads needs a grid"),
        ("--size big", "'big'"),
        ("--args 'M,N,K,alpha,A,B,beta,M'", "give A, B and C once each"),
        ("--entry other", "plain"),
        ("--on gpu", "this test has no GPU"),
        ("--set l2=hot", "l2 = 'hot'"),
    ],
)
def test_a_mistake_is_one_line_and_the_shell_goes_on(run, line, message):
    error, printed = run(f"%%rung {line}\n{PLAIN}")
    assert isinstance(error, Exception) and message in str(error), str(error)
    assert (
        str(error).startswith("%%rung: ")
        and str(error).splitlines()[0] in printed
        and "Traceback" not in printed
    )
    assert run("1 + 1")[0] == 2


def test_an_unknown_option_is_a_usage_error_and_help_names_every_option(run, shell):
    assert run(f"%%rung --frobnicate\n{PLAIN}")[1].startswith("UsageError: ")
    text = shell.find_cell_magic("rung").__doc__ or ""
    assert all(
        option in text
        for option in ("--grid", "--class", "--size", "--check-only", "--on", "'M % 64 == 0")
    )


@pytest.fixture
def virtual(shell, monkeypatch):
    """worklog.time on a virtual GPU, of which the cells have two kernels."""
    gpu = VirtualGpu()
    monkeypatch.setattr(timing, "require_gpu", lambda: None)
    monkeypatch.setattr(timing, "own_session", lambda: session_on(gpu, CALIBRATION))
    shell.user_ns.update(short=gpu.kernel(50.0), long=gpu.kernel(80.0), n=10**3)
    return gpu


def test_an_expression_and_a_cell_are_timed(run, virtual):
    offset = virtual.offset_us - CALIBRATION.offset_us
    expression, printed = run("%time_gpu short(  )")
    assert (expression.us, expression.kernel) == (
        approx(50.0 + offset),
        "short(  )",
    ) and "50.00 µs" in printed
    cell, _ = run("%%time_gpu\nshort()\nlong()")
    assert (cell.us, cell.kernel) == (approx(130.0 + offset), "short() …")


def test_progress_counts_from_1(capsys):
    show = magics.one_line()
    show(0, 3, "a step")
    show(1, 3, "another one at once")
    magics.one_line()(3, 3, "done")
    assert capsys.readouterr().out == "\ra step (1 of 3)\rdone"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%time_gpu", "UsageError: give an expression"),
        ("%%time_gpu short()\nlong()", "UsageError: give an expression"),
        ("%time_gpu 1 + 1", "%time_gpu: "),
        ("without a GPU", "%time_gpu: no GPU to measure on: "),
    ],
)
def test_a_mistake_in_timing_is_one_line(run, request, line, message):
    if line != "without a GPU":
        request.getfixturevalue("virtual")
    error, printed = run(line if line.startswith("%") else "%time_gpu 1 + 1")
    assert (
        isinstance(error, Exception) and printed.startswith(message) and "Traceback" not in printed
    ), printed
    assert printed.strip().count("\n") == 0


def test_a_notebook_keeps_report_and_chart_and_an_interrupt_or_a_killed_kernel_leaves_no_process():
    manager, client = start_new_kernel(kernel_name="python3")

    def outputs(cell: str, begun: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
        """Return what a page would keep of a cell.

        begun: called when the cell first prints
        """
        kept_outputs: list[dict[str, Any]] = []
        waiting = [begun]

        def keep(message: dict[str, Any]) -> None:
            kind = message["msg_type"]
            content = message["content"]
            if kind == "clear_output":
                kept_outputs.clear()
            elif kind in ("stream", "display_data", "execute_result", "error"):
                kept_outputs.append({"output_type": kind, **content})
            if kind == "stream" and waiting:
                waiting.pop()()

        # After an error, a kernel drops what is sent within the next moment unless it is told not
        # to.
        client.execute_interactive(cell, output_hook=keep, timeout=180, stop_on_error=False)
        return kept_outputs

    def checking() -> list[int]:
        """Return the processes of the kernel."""
        children = psutil.Process(manager.provisioner.pid).children(recursive=True)
        return [child.pid for child in children if not gone(child.pid)]

    try:
        outputs("%load_ext worklog")
        report, chart = (output["data"] for output in outputs(CELL))
        text = report["text/plain"]
        html = report["text/html"]
        assert "plain at 130x190x70 · emulated · sm_90 PTX" in text and "✓ precision" in text
        bound = (
            r"^at least \S+ µs at 1024(, which the verdict doesn't cover,)? on an NVIDIA "
            r"H200, bound by L1 lookups"
        )
        assert re.search(bound, text, re.MULTILINE)
        assert (
            "mine: skipped: the emulator gives no time" in text and "recorded · NVIDIA H200" in text
        )
        assert '<pre role="status"' in html and "<p>at least " in html and "mine</th><td" in html
        assert "skipped: the emulator gives no time" in chart["text/plain"] and "image/png" in chart
        interrupted = outputs(SLOW, begun=manager.interrupt_kernel)
        [error] = [output for output in interrupted if output["output_type"] != "stream"]
        assert error["output_type"] == "error" and error["traceback"][0].startswith(
            "%%rung: interrupted"
        )
        until(lambda: not checking())
        client.execute(SLOW_CHECK)
        until(checking)
        left = checking()
        manager.shutdown_kernel(now=True)
        until(lambda: all(map(gone, left)))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture
def checked(monkeypatch):
    """Every kernel passes at once."""
    kernel = Kernel.from_source(PLAIN, file="source")
    passed = Checked(
        kernel, Verdict((), "fp32"), Shape(1, 1, 1), "emulated", compile_cuda(kernel.program)
    )
    monkeypatch.setattr(check, "check_in_child", lambda *_, **__: passed)


def test_from_python_with_the_line_numbers_of_the_source(checked):
    trial = try_kernel(PLAIN, grid="(N + 15) // 16, (M + 7) // 8", block=(16, 8), time=False)
    assert trial.passed and trial.kernel.name == "plain" and trial.kernel.threads == (16, 8)
    assert (
        trial.shown.select("plain")[0].reason.startswith("only checked; passed")
        and trial.run is None
    )
    verdict = replace(trial.checked.verdict, never_ran=(NeverRan(2, 2),))
    partly = replace(trial, checked=replace(trial.checked, verdict=verdict))
    assert partly.marked() == f"\n▸    2  {PLAIN.splitlines()[1]}"
    shape = Shape(65, 34, 1)  # by default one thread per element, N along x
    launches = [try_kernel(PLAIN, block=block, time=False).kernel for block in (None, "16,8")]
    assert [(kernel.threads, kernel.blocks(shape)) for kernel in launches] == [
        ((32, 32), (2, 3)),
        ((16, 8), (3, 9)),
    ]
    wrong = (
        ({"on": "cpu"}, "gpu or"),
        ({"size": 256}, "no argument 'size'"),
        ({"beside": {}}, "list"),
    )
    for arguments, message in (*wrong, ({"harness": "naive"}, r"Harness\.naive\(\)")):
        with pytest.raises(BadSetting, match=message):
            try_kernel(PLAIN, **arguments)
    with pytest.raises(CompileFailed, match=r'source:5: expected a ";"'):
        try_kernel(PLAIN.replace("float acc = 0.0f;", "float acc = 0.0f"))


def test_the_recording_is_shown_at_the_sizes_and_with_the_rungs_that_are_chosen(checked):
    run = try_kernel(PLAIN, "mine", shapes=[512, 4096], beside=["naive", "shared"]).shown
    assert run.shapes() == [Shape.of(512), Shape.of(4096)]
    assert [m.kernel for m in run.select(shape=Shape.of(512))] == [
        "naive",
        "shared",
        "mine",
        "cuBLAS",
    ]
    assert [m.label for m in run.select("mine")] == ["emulated"] * 2
    largest = try_kernel(PLAIN, "mine", shapes="100x7x3", harness=Harness.naive()).shown
    assert "so the harness given is not used" in largest.select("mine")[0].reason
    assert len(largest.shapes()) == 1 and len(largest.select()) > len(LADDER) / 2


@pytest.fixture
def gpu(monkeypatch):
    """Stand in for a GPU that measures at once. Returns the kernels of each measurement."""
    measured_names: list[list[str]] = []

    def measure(kernels: Any, sizes: Any, *, progress: Any, **_: Any) -> Run:
        names = [kernel if isinstance(kernel, str) else kernel.name for kernel in kernels]
        measured_names.append(names)
        progress(0, 1, "mine")
        fine = Verdict((Stage("precision", True, 1, 2, "fine"),), "fp32")
        rows = [replace(measured(name, n.m), verdict=fine) for n in sizes for name in names]
        for n, m in enumerate(rows):
            if m.kernel == "bad" and m.shape[0] == 512:
                rows[n] = Measurement("bad", m.point, "failed", reason="launch: it failed")
        return small_run(
            measurements=rows,
            gpu=recorded_run().gpu,
            kernels={name: {"registers": 7} for name in names},
        )

    for module in (sources, check, device):
        monkeypatch.setattr(module, "gpu_reason", lambda: None)
    monkeypatch.setattr(bench, "measure", measure)
    on_a_gpu = lambda kernel, gpu: (compile_for(kernel, None)[0], "live · a GPU")  # noqa: E731
    monkeypatch.setattr("worklog.lab.trials.compile_for", on_a_gpu)
    monkeypatch.setattr(device, "gpu", lambda: recorded_run().gpu)
    return measured_names


def test_with_a_gpu_it_is_timed_with_the_rungs_once_and_then_alone(run, gpu):
    trial, printed = run(CELL)
    ladder = [record.name for record in LADDER]
    assert gpu[0][0] == "mine" and gpu[0][1:] == [*ladder, "cuBLAS"]
    assert trial.run is not None and trial.passed and trial.checked.label == "live · a GPU"
    assert re.search(
        r"^at least .*; measured 100 µs, \d\.\d\d times that \(", printed, re.MULTILINE
    )
    assert "✓ precision: fine" in printed and re.search(
        r"^ mine +fp32 ok +100.0 µs", printed, re.MULTILINE
    )
    second_trial, printed = run(CELL)
    assert gpu[1] == ["mine", "cuBLAS"]
    assert [m.kernel for m in second_trial.shown.measurements] == [*ladder, "mine", "cuBLAS"]
    assert "earlier run: 2026-11-21T03:12:44+00:00" in printed
    other, _ = run(CELL.replace("%%rung mine", "%%rung other"))
    assert [m.kernel for m in other.shown.measurements] == [*ladder, "other", "cuBLAS"], (
        "mine is not shown"
    )
    run(CELL.replace("%%rung mine", "%%rung mine --size 256,512 --beside naive,shared"))
    assert gpu[3] == ["mine", "naive", "shared", "cuBLAS"]
    run(CELL.replace("%%rung mine", "%%rung mine --size 256,512"))
    assert gpu[4] == ["mine", *ladder, "cuBLAS"], "two rungs are not the ladder"


def test_a_kernel_that_cannot_be_launched_on_the_gpu_at_one_size_fails(run, gpu):
    trial, printed = run(CELL.replace("%%rung mine", "%%rung bad --size 256,512"))
    assert not trial.passed
    assert "✗ launch: launch: it failed" in printed
    with pytest.raises(NothingToDraw, match="no error map"):
        trial.tile_map()
