"""Everything in this folder needs a CUDA GPU; without one it is skipped, and the reason is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from worklog.gpu.device import gpu_reason

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests `gpu`, and skip them where there is no GPU. (Pytest passes all of the session.)"""
    here = [item for item in items if HERE in item.path.parents]
    reason = gpu_reason() if here else None
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"needs a CUDA GPU: {reason}"))
