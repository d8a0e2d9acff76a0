"""The errors that a user can cause or meet, in one family.

Each message says what is wrong, where, and what to do, in one line (a compiler's log may follow). The command line
prints the message without a traceback and exits with `exit_code`. A class stands for what some code, or a user's,
tells from other errors.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


def meant(word: str, known: Iterable[str]) -> str:
    """Advice such as " (did you mean naive?)"; nothing where no known name is close to the word."""
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, 1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


def install_command(extra: str = "") -> str:
    """The command that adds an extra of gemm-worklog, or what is missing, to this installation. It names the checkout
    or the wheel's address, because pip finds gemm-worklog by its name only where an index has it.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    wanted = f"[{extra}]" if extra else ""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        place = Path() if Path.cwd() == checkout else checkout
        pip = (
            shlex.quote(str(place / ".venv/bin/pip"))
            if Path(sys.prefix) == checkout / ".venv"
            else "pip"
        )
        return f"{pip} install -e {shlex.quote(f'{place}{wanted}')}"
    try:
        origin = json.loads(
            distribution("gemm-worklog").read_text("direct_url.json") or "{}"
        )  # PEP 610
    except PackageNotFoundError:
        origin = {}
    address = f" @ {'git+' if 'vcs_info' in origin else ''}{origin['url']}" if origin else ""
    return f"pip install {shlex.quote(f'gemm-worklog{wanted}{address}')}"


class WorklogError(Exception):
    """Something the user can act on. exit_code: the command line's."""

    exit_code = 2


def listed(argument: str, values: Any) -> list[Any]:
    """The values of an argument that takes several; one text, path or number alone is a list of one. Raises BadSetting
    for a mapping, of which only the keys would be left.
    """
    if isinstance(values, Mapping):
        example = [f"{name}={value}" for name, value in values.items()]
        raise BadSetting(f"{argument}: give a list such as {example!r:.60}, not a mapping")
    alone = isinstance(values, str | bytes | Path) or not isinstance(values, Iterable)
    return [values] if alone else list(values)


class NoGpu(WorklogError):
    """A live measurement needs a usable CUDA GPU, and there is none, or another measurement runs on it."""


class BadSetting(WorklogError):
    """A size, a setting, an option, a problem or a name does not exist, or its value can't be used."""


class CompileFailed(WorklogError):
    """A kernel does not compile, or isn't in its source; the message holds the compiler's message and the line."""


class NvrtcMissing(WorklogError):
    """NVRTC is not installed, or does not load on this platform."""


class LaunchFailed(WorklogError):
    """A launch, or the work it started, ended in a CUDA error. kinds: of the mistakes that the emulator has found."""

    kinds: Set[str] = frozenset()


class OutOfMemory(WorklogError):
    """The problem does not fit the GPU's or the host's free memory."""


class Interrupted(WorklogError):
    """The user stopped a run; the message says where the finished measurements are."""

    exit_code = 130


# In the messages of CUDA, cuBLAS, CuPy and PyTorch.
GPU_IS_FULL = (
    "MemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "STATUS_ALLOC_FAILED",
    "OutOfMemoryError",
)


def memory_is_full(error: BaseException) -> OutOfMemory | None:
    """What a library's exception means, if it is about the GPU's or the host's memory."""
    words = f"{type(error).__module__}.{type(error).__name__}: {error}"
    if any(known in words for known in GPU_IS_FULL):
        return OutOfMemory(f"the GPU's memory is full ({error}): free it, or take a smaller size")
    return (
        OutOfMemory("the host's memory is full: take a smaller size")
        if isinstance(error, MemoryError)
        else None
    )


def kind_and_message(error: Exception) -> str:
    """Describe an error in one line: its kind, and the first line of its message."""
    message = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def apart(what: str, work: Callable[[], Result], otherwise: Result, notes: list[str]) -> Result:
    """Return what `work` returns, or `otherwise` if it fails: for what follows a verdict.

    what: the work, as a noun with its article
    notes: gets one line about the failure
    Raises Interrupted.
    """
    try:
        return work()
    except Interrupted:
        raise
    except Exception as error:  # of any kind: no error may replace a verdict
        notes.append(f"{what} failed, which doesn't change the verdict: {kind_and_message(error)}")
        return otherwise
