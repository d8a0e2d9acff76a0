"""What computes C: the kernel record, the ladder, compilation with NVRTC, resources and machine code."""

from worklog.kernel.kernel import Kernel

__all__ = ["Kernel"]
