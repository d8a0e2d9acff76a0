"""Host code as a subject: named without being run, loaded with a clear word for every slip, held to its contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exploits.arrays import xp
from tests.gate.numpy_device import NumpyDevice
from tests.virtual.device import VirtualDevice
from tests.virtual.machine import Machine
from tests.virtual.session import GPU
from worklog.bench import check as check_module
from worklog.bench.check import check, report
from worklog.errors import BadSetting, LaunchFailed, NoGpu, OutsideDomain, WorklogError
from worklog.gate import Checker
from worklog.kernel.host_function import HostCallable, HostSubject
from worklog.kernel.kernel import Device
from worklog.kernel.user_kernel import UserKernel, brought, from_dict
from worklog.problem.gemm import Shape

NO_LAUNCH = {"grid": None, "block": None, "entry": None, "domain": "any", "claimed": "fp32"}
SHAPE = Shape(24, 40, 16)
RIGHT = """\
from tests.exploits.arrays import xp


def mine(alpha, A, B, beta, C):
    xp.gemm(alpha, A, B, beta, C)
"""


def write(folder: Path, text: str, name: str = "theirs.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def on_virtual(what: HostCallable) -> tuple[VirtualDevice, HostSubject]:
    xp.machine = Machine()
    device = VirtualDevice(xp.machine)
    return device, what.subject(device)


def launched(what: HostCallable) -> None:
    """One call on a small problem."""
    device, subject = on_virtual(what)
    exam = Checker(device, SHAPE, 0)
    subject.enqueue(SHAPE, 1.0, *exam.buffers[:2], 0.0, exam.buffers[2])


# ----------------------------------------------------------------------------------------------------------- naming it


def test_it_is_named_without_being_run(tmp_path: Path) -> None:
    path = write(tmp_path, "raise RuntimeError('it was run')\n")
    named = HostCallable.read(f"{path}:mine", domain="M % 4 == 0", claimed="tf32", arrays="torch")
    assert (named.name, str(named.domain), named.claimed) == ("mine", "M % 4 == 0", "tf32")
    with pytest.raises(BadSetting, match=r"cannot load .*theirs.py: RuntimeError: it was run \(theirs.py:1\)"):
        on_virtual(named)


@pytest.mark.parametrize("words", ["json:dumps", "package.module:gemm"])
def test_it_crosses_to_another_process_as_json(words: str) -> None:
    named = HostCallable.read(words, domain="K % 8 == 0", claimed="bf16", title="ours")
    assert from_dict(json.loads(json.dumps(named.as_dict()))) == named


def test_a_files_words_hold_what_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, RIGHT)
    named = from_dict(json.loads(json.dumps(HostCallable.read(f"{path}:mine").as_dict())))
    assert named == HostCallable.read(f"{path}:mine")
    path.write_text(RIGHT + "# changed\n")
    with pytest.raises(BadSetting, match="has changed since it was named"):
        named.subject(VirtualDevice(Machine()))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("mine", "give module:function"),
        (":mine", "give module:function"),
        ("module:not a name", "give module:function"),
        ("not a module:mine", "no module's name, no .py file"),
        ("nowhere.py:mine", "cannot read .*nowhere.py: No such file"),
        ("nowhere.so:mine", "cannot read .*nowhere.so: No such file"),
    ],
)
def test_what_cannot_be_read_is_told(words: str, why: str) -> None:
    with pytest.raises(WorklogError, match=why):
        HostCallable.read(words)


def test_settings_are_read_and_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="there is no class 'fp8'"):
        HostCallable.read("module:mine", claimed="fp8")
    with pytest.raises(BadSetting, match="there are no arrays 'jax'"):
        HostCallable.read("module:mine", arrays="jax")
    with pytest.raises(BadSetting, match="handed pointers, not torch"):
        HostCallable.read(f"{write(tmp_path, '', 'lib.so')}:mine", arrays="torch")


def test_brought_takes_all_three_forms(tmp_path: Path) -> None:
    for words in (f"{write(tmp_path, RIGHT)}:mine", f"{write(tmp_path, '', 'lib.so')}:mine", "module:mine"):
        assert isinstance(brought(words, **NO_LAUNCH), HostCallable)
    assert isinstance(brought("naive", **NO_LAUNCH), UserKernel)


@pytest.mark.parametrize(
    ("what", "changed", "why"),
    [
        ("module:mine", {"grid": "N"}, "host code launches itself"),
        ("module:mine", {"block": "32"}, "host code launches itself"),
        ("module:mine", {"entry": "mine"}, "host code launches itself"),
        ("naive", {"arrays": "torch"}, "a kernel is handed pointers"),
        ("theirs.py", {}, "name its function too, as theirs.py:function"),
    ],
)
def test_a_launch_is_for_kernels_and_arrays_are_for_host_code(what: str, changed: dict[str, str], why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        brought(what, **{**NO_LAUNCH, **changed})


# ---------------------------------------------------------------------------------------------------------- loading it


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def mine(:\n", r"SyntaxError: .* \(theirs.py:1\)"),
        ("import nothing_of_that_name\n", r"ModuleNotFoundError: .* \(theirs.py:1\)"),
        ("\n\nraise SystemExit(3)\n", r"SystemExit: 3 \(theirs.py:3\)"),
        ("def yours(alpha, A, B, beta, C):\n    pass\n", "has no function mine: it has yours"),
        ("mine = 3\n", "has no function mine: it has none"),
        ("def mine(A, B):\n    pass\n", r"mine\(A, B\) cannot be called as function\(alpha, A, B, beta, C\)"),
        ("def mine(alpha, A, B, beta, C, tile):\n    pass\n", "missing a required argument: 'tile'"),
        ("ARRAYS = 'jax'\n\n\ndef mine(alpha, A, B, beta, C):\n    pass\n", "ARRAYS is 'jax': choose from cupy, torch"),
    ],
)
def test_what_cannot_be_loaded_is_told(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=why):
        on_virtual(HostCallable.read(f"{write(tmp_path, text)}:mine"))


def test_a_module_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, RIGHT, "a_module_of_theirs.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    device, subject = on_virtual(HostCallable.read("a_module_of_theirs:mine"))
    verdict = Checker(device, SHAPE, 1).check(subject)
    assert verdict.accepted, verdict.reason
    assert sys.path[-1] == str(tmp_path), "behind all that the ruler imports"


def test_a_file_finds_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path, RIGHT, "its_neighbour.py")
    launched(HostCallable.read(f"{write(tmp_path, 'from its_neighbour import mine')}:mine"))


def test_a_fresh_one_has_never_been_called(tmp_path: Path) -> None:
    """Its module is loaded anew: what it counts starts at 0."""
    text = "calls = []\n\n\ndef mine(alpha, A, B, beta, C):\n    calls.append(1)\n    assert len(calls) == 1\n"
    theirs = HostCallable.read(f"{write(tmp_path, text)}:mine")
    device, subject = on_virtual(theirs)
    exam = Checker(device, SHAPE, 0)
    problem = SHAPE, 1.0, *exam.buffers[:2], 0.0, exam.buffers[2]
    subject.enqueue(*problem)
    with pytest.raises(LaunchFailed, match="mine raised AssertionError"):
        subject.enqueue(*problem)
    theirs.subject(device, fresh=True).enqueue(*problem)


def test_it_needs_a_device_that_host_code_can_work_on(tmp_path: Path) -> None:
    device: Device = NumpyDevice()
    with pytest.raises(NoGpu, match="mine is host code: it runs on a GPU, and the emulated device cannot run it"):
        HostCallable.read(f"{write(tmp_path, RIGHT)}:mine").subject(device)


def test_the_emulator_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    path = write(tmp_path, "raise RuntimeError('it was run')\n")
    with pytest.raises(BadSetting, match="mine is host code, which the emulator cannot run"):
        check(HostCallable.read(f"{path}:mine"), on="emulated")


# --------------------------------------------------------------------------------------------------------- its contract


def test_what_it_raises_is_a_failed_launch_with_its_line(tmp_path: Path) -> None:
    text = "def mine(alpha, A, B, beta, C):\n    return A @ B\n"
    with pytest.raises(LaunchFailed, match=r"mine raised TypeError: .* \(theirs.py:2\)"):
        launched(HostCallable.read(f"{write(tmp_path, text)}:mine"))


@pytest.mark.parametrize(
    ("returned", "found"),
    [("A", "an Array"), ("(C,)", "a tuple"), ("0", "an int"), ("(x for x in ())", "a generator")],
)
def test_only_none_or_c_itself_may_be_returned(returned: str, found: str, tmp_path: Path) -> None:
    text = f"def mine(alpha, A, B, beta, C):\n    return {returned}\n"
    with pytest.raises(LaunchFailed, match=f"mine returned {found}: write the answer into C"):
        launched(HostCallable.read(f"{write(tmp_path, text)}:mine"))


def test_it_is_held_to_its_domain(tmp_path: Path) -> None:
    theirs = HostCallable.read(f"{write(tmp_path, RIGHT)}:mine", domain="M % 16 == 0")
    with pytest.raises(OutsideDomain, match="outside the domain that was stated"):
        launched(theirs)


def test_its_description_says_that_it_is_a_host_function(tmp_path: Path) -> None:
    theirs = HostCallable.read(f"{write(tmp_path, RIGHT)}:mine")
    _, subject = on_virtual(theirs)
    told = theirs.describe(subject)
    assert (told["label"], told["brought"], told["file"], told["arrays"]) == (
        "host function",
        "callable",
        "theirs.py",
        "cupy",
    )
    assert told["sha256"] == theirs.sha256 and "trusted not to tamper" in theirs.remarks[0]


# ------------------------------------------------------------------------------------------------- torch, and libraries


def test_pytorch_gets_tensors_on_the_harnesss_memory(tmp_path: Path) -> None:
    text = """\
        import torch

        ARRAYS = "torch"


        def mine(alpha, A, B, beta, C):
            assert A.dtype == torch.float32 and A.is_contiguous()
            return torch.addmm(C, A, B, alpha=alpha, beta=beta, out=C) if beta else torch.mul(A @ B, alpha, out=C)
        """
    lines = "\n".join(line.removeprefix(" " * 8) for line in text.splitlines())
    device, subject = on_virtual(HostCallable.read(f"{write(tmp_path, lines)}:mine"))
    verdict = Checker(device, SHAPE, 2).check(subject)
    assert verdict.accepted, verdict.reason


C_SOURCE = """\
static int calls = 0;
void gemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C, void *stream) {
  if (stream == 0) return;
  ++calls;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float acc = 0;
      for (int k = 0; k < K; ++k) acc += A[i * K + k] * B[k * N + j];
      C[i * N + j] = beta == 0 ? alpha * acc : alpha * acc + beta * C[i * N + j];
    }
}
int counted(void) { return calls; }
"""


def test_a_shared_library_gets_pointers_and_the_stream(tmp_path: Path) -> None:
    library = tmp_path / "libgemm.so"
    source = write(tmp_path, C_SOURCE, "gemm.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    theirs = HostCallable.read(f"{library}:gemm")
    device, subject = on_virtual(theirs)
    exam = Checker(device, SHAPE, 3)
    verdict = exam.check(subject)
    assert verdict.accepted, verdict.reason
    assert exam.check(theirs.subject(device, fresh=True)).accepted
    with pytest.raises(BadSetting, match=r'cannot load nothing from .*libgemm.so: .*must be an extern "C" function'):
        on_virtual(HostCallable.read(f"{library}:nothing"))


# -------------------------------------------------------------------------------------------------------------- check()


@pytest.fixture
def virtual_gpu_for_check(monkeypatch: pytest.MonkeyPatch) -> VirtualDevice:
    """What check() takes for this machine's GPU."""
    xp.machine = Machine()
    device = VirtualDevice(xp.machine)
    monkeypatch.setattr(check_module, "require_gpu", lambda: None)
    monkeypatch.setattr(check_module, "gpu", lambda: GPU)
    monkeypatch.setattr(check_module, "_device", lambda live: device)
    return device


def test_check_judges_a_host_function(tmp_path: Path, virtual_gpu_for_check: VirtualDevice) -> None:
    begun, told = [], []
    theirs = HostCallable.read(f"{write(tmp_path, RIGHT)}:mine", domain="M % 8 == 0")
    checked = check(
        theirs, Shape(48, 40, 32), progress=lambda done, total, doing: told.append(doing), begun=begun.append
    )
    assert checked.verdict.accepted, checked.verdict.reason
    assert len(told) > 10
    assert (begun[0].compiled, begun[0].shape, begun[0].verdict.stages) == (None, Shape(48, 40, 32), ())
    lines = report(checked).splitlines()
    assert lines[0] == "theirs.py: mine at 48x40x32 · live · a virtual GPU · host function"
    assert lines[-1].startswith("accepted as fp32") and "registers" not in report(checked)
    assert checked.as_dict()["kernel"] == "mine" and "registers" not in checked.as_dict()
