"""The errors that a user can cause or meet, how they are written, and what survives them.

Each message states what is wrong, where, and what to do, in one line (a compiler's log may follow).
The command line prints the message without a traceback and exits with `exit_code`. An error has its
own class if some code, also a user's, distinguishes it from other errors.
"""

import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

PACKAGE = str(Path(__file__).parent) + os.sep
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Other = TypeVar("Other")


def meant(name: str, names: Iterable[str]) -> str:
    """Return advice such as " (did you mean naive?)", or "" if no name is close."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    close = get_close_matches(name.lower(), by_lower_case, 1)
    return f" (did you mean {by_lower_case[close[0]]}?)" if close else ""


def check_keywords(lead: str, keywords: Iterable[str], names: Collection[str]) -> None:
    """Raise BadSetting for a keyword that doesn't exist, with the closest name.

    lead: the beginning of the message, such as "try_kernel has no argument"
    names: the keywords that exist
    """
    for keyword in keywords:
        if keyword not in names:
            advice = f"choose from {', '.join(names)}"
            raise BadSetting(f"{lead} {keyword!r}{meant(keyword, names)}: {advice}")


def hinted(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function: an unknown keyword raises BadSetting with the closest name."""
    names = [name for name in signature(function).parameters if name not in ("self", "cls")]
    lead = f"{function.__qualname__.removesuffix('.__init__')} has no argument"

    @wraps(function)
    def checked(*args: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        check_keywords(lead, keywords, names)
        return function(*args, **keywords)

    return checked


def install_command(extra: str = "") -> str:
    """Return the command that adds an extra of gemm-worklog to this installation.

    It names the checkout or the wheel's address, because pip finds gemm-worklog by its name only if
    an index has it.

    extra: "" adds what is missing
    """
    from importlib.metadata import PackageNotFoundError, distribution

    extras = f"[{extra}]" if extra else ""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        place = Path() if Path.cwd() == checkout else checkout
        pip = "pip"
        if Path(sys.prefix) == checkout / ".venv":
            pip = shlex.quote(str(place / ".venv/bin/pip"))
        return f"{pip} install -e {shlex.quote(f'{place}{extras}')}"
    try:
        # PEP 610
        origin = json.loads(distribution("gemm-worklog").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    address = ""
    if origin:
        scheme = "git+" if "vcs_info" in origin else ""
        address = f" @ {scheme}{origin['url']}"
    return f"pip install {shlex.quote(f'gemm-worklog{extras}{address}')}"


class WorklogError(Exception):
    """Something the user can act on."""

    exit_code = 2  # of the command line

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints: the message, without the frames of this package."""
        return [f"{type(self).__name__}: {self}"]


def own_folder(variable: str, kind: Literal["data", "cache"]) -> Path:
    """Return this package's folder of a kind.

    variable: an environment variable that may name the folder; the default is the user's folder
    Raises BadSetting if the user has no home folder.
    """
    import platformdirs

    if path := os.environ.get(variable):
        return Path(path)
    folder = {"data": platformdirs.user_data_dir, "cache": platformdirs.user_cache_dir}[kind]
    try:
        return Path(folder("worklog", appauthor=False))
    except RuntimeError as error:  # an account without a home
        raise BadSetting(f"there is no home folder: set HOME, or {variable} to a folder") from error


def listed(argument: str, values: Any) -> list[Any]:
    """Return the values of an argument as a list.

    A single text, path or number becomes a list.

    argument: the name for messages

    Raises BadSetting for a mapping, since only its keys would be left.
    """
    if isinstance(values, Mapping):
        example = [f"{name}={value}" for name, value in values.items()]
        raise BadSetting(f"{argument}: give a list such as {example!r:.60}, not a mapping")
    is_single = isinstance(values, str | bytes | Path) or not isinstance(values, Iterable)
    return [values] if is_single else list(values)


class NoGpu(WorklogError):
    """There is no usable CUDA GPU, or another measurement runs on it."""


class NoEnergy(WorklogError):
    """The energy of a launch can't be measured on this GPU."""


class BadSetting(WorklogError):
    """A size, setting, option, problem or name doesn't exist, or its value can't be used."""


class CompileFailed(WorklogError):
    """A kernel does not compile, or isn't in its source.

    The message holds the compiler's message and the line.
    """


class NvrtcMissing(WorklogError):
    """NVRTC is not installed, or does not load on this platform."""


class ProverMissing(WorklogError):
    """z3, which decides proofs, isn't installed."""


class LaunchFailed(WorklogError):
    """A launch, or the work it started, ended in a CUDA error."""

    kinds: Set[str] = frozenset()  # of the mistakes that the emulator has found


class OutOfMemory(WorklogError):
    """The problem does not fit the GPU's or the host's free memory."""


class Skipped(Exception):
    """A job isn't measured, for this reason. The run states it; it is no error."""


class BadRunFile(WorklogError):
    """A run file is missing, cut short, not JSON, or of a newer schema."""


class NotRecorded(WorklogError):
    """A run doesn't have a combination of kernel, shape and settings."""


class NothingToDraw(WorklogError):
    """The run lacks the measurements that a chart shows."""


class NotDrawn(WorklogError):
    """A figure can't be drawn because its chart has a fault.

    A run that merely lacks measurements doesn't raise it.
    """

    exit_code = 1


class ClocksNotLocked(WorklogError):
    """The clocks can't be locked here. The message says why, and what would help."""


class Interrupted(WorklogError):
    """The user stopped a run; the message says where the finished measurements are."""

    exit_code = 130


# Names in the messages of CUDA, cuBLAS, CuPy and PyTorch.
GPU_IS_FULL = (
    "MemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "STATUS_ALLOC_FAILED",
    "OutOfMemoryError",
)


def memory_is_full(error: BaseException) -> OutOfMemory | None:
    """Return the error to raise for a library's exception about full memory, else None."""
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    if any(name in text for name in GPU_IS_FULL):
        return OutOfMemory(f"the GPU's memory is full ({error}): free it, or take a smaller size")
    if isinstance(error, MemoryError):
        return OutOfMemory("the host's memory is full: take a smaller size")
    return None


def kind_and_message(error: Exception) -> str:
    """Describe an error in one line: its kind, and the first line of its message."""
    message = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def message_and_place(error: BaseException) -> str:
    """Return the first line of an error, with the file and line of the innermost frame.

    Frames of this package are skipped.
    """
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not frame.filename.startswith(PACKAGE)]
    innermost = (user_frames or frames)[-1]
    file: str | None = innermost.filename
    line = innermost.lineno
    if isinstance(error, SyntaxError):
        file = error.filename
        line = error.lineno
    first_line = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    return f"{first_line} ({Path(file or '?').name}:{line})"


def apart(
    title: str, work: Callable[[], Result], otherwise: Other, notes: list[str]
) -> Result | Other:
    """Return the result of `work`, or `otherwise` if it fails.

    For work that follows a verdict: no error may replace the verdict.

    title: the work, as a noun with its article
    notes: gets a line about the failure

    Raises Interrupted.
    """
    try:
        return work()
    except Interrupted:
        raise
    except Exception as error:  # of any kind
        notes.append(f"{title} failed, which doesn't change the verdict: {kind_and_message(error)}")
        return otherwise
