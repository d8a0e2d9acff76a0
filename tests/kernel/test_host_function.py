"""Host functions.

Named without being run, loaded with a clear error for every mistake, and held to their contract.
"""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.exploits.arrays import xp
from tests.gate.numpy_device import NumpyDevice
from tests.virtual.device import VirtualDevice
from tests.virtual.machine import Machine
from tests.virtual.session import GPU
from worklog.errors import BadSetting, LaunchFailed, NoGpu, WorklogError
from worklog.gate import SgemmChecker
from worklog.kernel import Kernel
from worklog.kernel.device import Runnable
from worklog.problem import Domain, Shape
from worklog.runner import check as check_module
from worklog.runner.check import check

SHAPE = Shape(24, 40, 16)
RIGHT = """\
from tests.exploits.arrays import xp


def mine(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)
"""
TORCH = """\
import torch

ARRAYS = "torch"


def mine(alpha, A, B, beta, C):
    assert A.dtype == torch.float32 and A.is_contiguous()
    if beta:
        return torch.addmm(C, A, B, alpha=alpha, beta=beta, out=C)
    return torch.mul(A @ B, alpha, out=C)
"""
C_SOURCE = """\
void gemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C, void *stream) {
  if (stream == 0) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float acc = 0;
      for (int k = 0; k < K; ++k) acc += A[i * K + k] * B[k * N + j];
      C[i * N + j] = beta == 0 ? alpha * acc : alpha * acc + beta * C[i * N + j];
    }
}
"""
DEFINED = "def mine(alpha, A, B, beta, C):\n    return "
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into a folder of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(text: str, name: str = "theirs.py") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return written


def loaded(kernel: Kernel) -> tuple[SgemmChecker, Runnable]:
    """Return the kernel on a virtual GPU, and a checker of a small problem there."""
    xp.machine = Machine()
    device = VirtualDevice(xp.machine)
    return SgemmChecker(device, SHAPE, 1), kernel.load(device)


def launch(checker: SgemmChecker, subject: Runnable) -> None:
    a, b, c = checker.buffers.abc
    subject.enqueue(SHAPE, 1.0, a, b, 0.0, c)


def require_right(kernel: Kernel) -> None:
    checker, subject = loaded(kernel)
    verdict = checker.check(subject)
    assert verdict.accepted, verdict.reason


def test_it_is_named_without_being_run_and_loaded_only_unchanged(write):
    path = write("raise RuntimeError('it was run')\n")
    kernel = Kernel.from_function(
        f"{path}:mine", domain="M % 4 == 0", claimed="tf32", arrays="torch"
    )
    assert (kernel.name, kernel.file, str(kernel.domain), kernel.claimed) == (
        "mine",
        "theirs.py",
        "M % 4 == 0",
        "tf32",
    )
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    with pytest.raises(BadSetting, match="mine is a host function, which the emulator cannot run"):
        check(kernel, on="emulated")
    with pytest.raises(NoGpu, match="mine is a host function: it needs a GPU"):
        kernel.load(NumpyDevice())
    with pytest.raises(
        BadSetting, match=r"cannot load .*theirs.py: RuntimeError: it was run \(theirs.py:1\)"
    ):
        loaded(kernel)
    write(RIGHT)
    with pytest.raises(BadSetting, match="has changed"):
        loaded(kernel)


def test_a_live_function_is_named_by_its_module(monkeypatch, write):
    kernel = Kernel.from_function(json.dumps)
    assert kernel.host == Kernel.from_function("json:dumps").host and kernel.name == "dumps"

    def mine() -> None: ...

    with pytest.raises(BadSetting, match="at the top level of a file"):
        Kernel.from_function(mine)
    mine.__qualname__ = "mine"
    mine.__module__ = "__main__"
    with pytest.raises(BadSetting, match="at the top level of a file"):  # as in a notebook cell
        monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
        Kernel.from_function(mine)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(write(RIGHT)), raising=False)
    require_right(Kernel.from_function(mine))


@pytest.mark.parametrize(
    ("words", "options", "why"),
    [
        ("mine", {}, "give module:function"),
        ("module:not a name", {}, "give module:function"),
        ("not a module:mine", {}, "a module's name, a .py file"),
        ("nowhere.py:mine", {}, "cannot read .*nowhere.py: No such file"),
        ("module:mine", {"claimed": "fp8"}, "no precision class 'fp8'"),
        ("module:mine", {"arrays": "jax"}, "no arrays 'jax'"),
        ("lib.so:mine", {"arrays": "torch"}, "takes pointers, not torch"),
    ],
)
def test_a_mistake_is_found_when_it_is_named(words, options, why):
    with pytest.raises(WorklogError, match=why):
        Kernel.from_function(words, **options)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def mine(:\n", r"SyntaxError: .* \(theirs.py:1\)"),
        ("import nothing_of_that_name\n", r"ModuleNotFoundError: .* \(theirs.py:1\)"),
        (
            "import worklog\n\nworklog.rung('nothing')\n",
            r"BadSetting: there is no rung .* \(theirs.py:3\)",
        ),
        ("\n\nraise SystemExit(3)\n", r"SystemExit: 3 \(theirs.py:3\)"),
        ("def yours(alpha, A, B, beta, C):\n    pass\n", "has no function mine: it has yours"),
        (
            "def mine(A, B):\n    pass\n",
            r"mine\(A, B\) cannot be called as function\(alpha, A, B, beta, C\)",
        ),
        (
            "def mine(alpha, A, B, beta, C, tile):\n    pass\n",
            "missing a required argument: 'tile'",
        ),
        (
            "ARRAYS = 'jax'\n\n\ndef mine(alpha, A, B, beta, C):\n    pass\n",
            "ARRAYS is 'jax': choose from cupy, torch",
        ),
    ],
)
def test_what_cannot_be_loaded_is_an_error_with_its_line(text, why, write):
    with pytest.raises(BadSetting, match=why):
        loaded(Kernel.from_function(f"{write(text)}:mine"))


def test_a_module_is_found_in_the_current_folder(write, monkeypatch):
    folder = write(RIGHT, "a_module_of_theirs.py").parent
    monkeypatch.chdir(folder)
    require_right(Kernel.from_function("a_module_of_theirs:mine"))
    assert sys.path[-1] == str(folder), "behind the folders that the harness imports from"
    monkeypatch.chdir("/")
    write("from a_module_of_theirs import mine")
    require_right(Kernel.from_function(f"{folder}/theirs.py:mine"))


def test_a_fresh_one_has_never_been_called(write):
    text = (
        "calls = []\n\n\ndef mine(alpha, A, B, beta, C):\n    calls.append(1)\n    assert "
        "len(calls) == 1\n"
    )
    kernel = Kernel.from_function(f"{write(text)}:mine")
    checker, subject = loaded(kernel)
    launch(checker, subject)
    with pytest.raises(LaunchFailed, match="mine raised AssertionError"):
        launch(checker, subject)
    launch(checker, kernel.load(checker.device, fresh=True))


@pytest.mark.parametrize(
    ("body", "domain", "error", "why"),
    [
        ("A @ B", "any", LaunchFailed, r"mine raised TypeError: .* \(theirs.py:2\)"),
        ("A", "any", LaunchFailed, "mine returned a value of type Array: write the result into C"),
        ("C", "M % 16 == 0", BadSetting, r"outside mine's domain \(M % 16 == 0\)"),
    ],
)
def test_a_mistake_is_a_failed_launch(body, domain, error, why, write):
    with pytest.raises(error, match=why):
        launch(*loaded(Kernel.from_function(f"{write(DEFINED + body)}:mine", domain=domain)))


def test_a_launch_does_not_read_the_domain_from_its_text_again(write, monkeypatch):
    checker, subject = loaded(Kernel.from_function(f"{write(RIGHT)}:mine", domain="M % 8 == 0"))
    monkeypatch.delattr(Domain, "of")
    launch(checker, subject)


def test_pytorch_gets_tensors_on_the_harnesss_memory(write):
    require_right(Kernel.from_function(f"{write(TORCH)}:mine"))


def test_a_shared_library_gets_pointers_and_the_stream(write):
    source = write(C_SOURCE, "gemm.c")
    library = source.with_name("libgemm.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    kernel = Kernel.from_function(f"{library}:gemm")
    checker, subject = loaded(kernel)
    for each in (subject, kernel.load(checker.device, fresh=True)):
        assert checker.check(each).accepted
    with pytest.raises(
        BadSetting, match=r'cannot load nothing from .*libgemm.so: .*must be an extern "C" function'
    ):
        loaded(Kernel.from_function(f"{library}:nothing"))


def test_check_and_a_description_say_that_it_is_a_host_function(write, monkeypatch):
    kernel = Kernel.from_function(f"{write(RIGHT)}:mine", domain="M % 8 == 0")
    checker, subject = loaded(kernel)
    found = subject.describe()
    assert kernel.host is not None and found["sha256"] == kernel.host.sha256 != ""
    assert (found["user"], found["file"], found["arrays"]) == ("host function", "theirs.py", "cupy")
    assert "trusted not to tamper" in kernel.remarks[0] and found["label"] in kernel.remarks[0]
    there = {
        "require_gpu": lambda: None,
        "gpu": lambda: GPU,
        "device_of": lambda live, budget: checker.device,
    }
    for name, value in there.items():
        monkeypatch.setattr(check_module, name, value)
    begun = []
    steps = []
    shape = Shape(48, 40, 32)
    checked = check(
        kernel, shape, progress=lambda done, total, doing: steps.append(doing), begun=begun.append
    )
    assert checked.verdict.accepted, checked.verdict.reason
    assert len(steps) > 10 and (begun[0].compiled, begun[0].shape, begun[0].verdict.stages) == (
        None,
        shape,
        (),
    )
    lines = str(checked).splitlines()
    assert lines[0].startswith("passed as fp32")
    label = "theirs.py: mine at 48x40x32 · live · a virtual GPU · host"
    assert any(line.startswith(label) for line in lines)
    assert checked.as_dict()["kernel"] == "mine"
    assert "registers" not in str(checked) and "registers" not in checked.as_dict()
