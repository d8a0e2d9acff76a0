"""`worklog.sgemm`, and the same product as a PyTorch operator, which imports PyTorch."""

from worklog.blas.product import sgemm

__all__ = ["sgemm"]
