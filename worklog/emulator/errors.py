"""What can go wrong before or while PTX is emulated. A kernel's own mistakes are findings, not errors (see
findings).
"""

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError


class PtxError(WorklogError):
    """PTX text that cannot be read."""


class UnsupportedInstruction(WorklogError):
    """An instruction that the emulator does not cover; the message names it, its line and what to do instead."""


class BadLaunch(LaunchFailed):
    """A launch that no GPU would accept: wrong arguments, too many threads, too much shared memory."""


class BudgetExceeded(LaunchFailed):
    """The kernel ran more instructions than the budget allows: most likely a loop that does not end."""


class TooLarge(OutOfMemory):
    """The launch would need more host memory than is free."""


class NotPredictable(WorklogError):
    """Traffic cannot be predicted without the data: an address or a branch depends on loaded values."""
