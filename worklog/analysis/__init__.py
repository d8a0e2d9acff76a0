"""What is known of a kernel without timing it: memory counts, access pattern, resources by line, a lower bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worklog.analysis.accesses import access as access


def __getattr__(name: str) -> Any:
    if name == "access":
        from worklog.analysis import accesses  # here: a check needs only the prediction

        return accesses.access
    raise AttributeError(f"module 'worklog.analysis' has no attribute {name!r}")
