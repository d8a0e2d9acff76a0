"""Errors before or during emulation. A kernel's own mistakes are findings, not errors."""

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError


class PtxError(WorklogError):
    """PTX text that cannot be parsed."""


class UnsupportedInstruction(WorklogError):
    """An instruction that the emulator does not support; the message names it, its line and what to do instead."""


class BadLaunch(LaunchFailed):
    """A launch that no GPU accepts: wrong arguments, too many threads, too much shared memory."""


class BudgetExceeded(LaunchFailed):
    """The kernel executed more instructions than the budget: most likely an endless loop."""


class TooLarge(OutOfMemory):
    """The launch needs more host memory than is free."""


class NotPredictable(WorklogError):
    """Traffic cannot be predicted without the data: an address or a branch depends on loaded values."""
