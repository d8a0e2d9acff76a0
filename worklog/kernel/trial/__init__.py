"""The order and the launch of a kernel whose file doesn't state them, by trial launches."""

from worklog.kernel.trial.completion import completed, kernel_of

__all__ = ["completed", "kernel_of"]
