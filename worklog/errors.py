"""The one family of errors a user can cause or meet.

Each message says what is wrong, where, and what to do about it, in one line (a compiler's log may follow). The
command line prints the message without a traceback and leaves with `exit_code`: 2 for a mistake in what was asked, 1
for a refusal.
"""


class WorklogError(Exception):
    """Something the user can act on. `exit_code` is what the command line leaves with."""

    exit_code = 2


class NoGpu(WorklogError):
    """A live measurement was asked for where there is no usable CUDA GPU."""


class UnknownRung(WorklogError):
    """The ladder has no rung of that name."""


class BadShape(WorklogError):
    """M, N or K is not a positive integer, or cannot be read as one."""


class OutsideDomain(WorklogError):
    """The shape is not one that the kernel takes."""


class BadSetting(WorklogError):
    """A harness setting, or its value, does not exist."""


class CompileFailed(WorklogError):
    """The compiler refused a kernel; the message holds its words and the source line."""


class LaunchFailed(WorklogError):
    """A launch, or the work it started, ended in a CUDA error."""


class OutOfMemory(WorklogError):
    """The problem does not fit the GPU's or the host's free memory."""


class BadRunFile(WorklogError):
    """A run file is missing, cut short, not JSON, or of a newer schema."""


class NothingToDraw(WorklogError):
    """The run lacks the measurements that a chart shows."""


class Interrupted(WorklogError):
    """The user stopped a run; the message says where the finished measurements are."""

    exit_code = 130


class GpuBusy(WorklogError):
    """Another measurement is running on the GPU."""

    exit_code = 1


class ChildFailed(WorklogError):
    """The process in which kernels run ended before it came to one, or met a bug of this package's."""

    exit_code = 1
