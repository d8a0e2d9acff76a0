"""Copies of the GPU arrays among a call's arguments."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from worklog.errors import BadSetting
from worklog.runner.arguments import rotation


class OnGpu(np.ndarray):
    """An array that says it is on a GPU."""

    __cuda_array_interface__: ClassVar[Any] = {}


def test_copies_are_made_until_they_evict_each_other_and_what_is_no_array_is_shared() -> None:
    array, other = np.zeros(256, np.float32).view(OnGpu), object()
    first, *copies = rotation((([array, other], array), {"n": 1}), 4096)
    assert first == ((([array, other], array), {"n": 1}), {}) and copies
    for (args, kwargs), by_id in copies:
        assert args[0][0] is args[1] is by_id[id(array)] is not array and args[0][1] is other and kwargs == {"n": 1}


def test_what_cannot_be_copied_is_an_error() -> None:
    loop: list[Any] = [np.zeros(4).view(OnGpu)]
    loop.append(loop)
    for args, why in (((loop,), "a list among the arguments contains itself"), ((1,), "no GPU array among")):
        with pytest.raises(BadSetting, match=why):
            rotation((args, {}), 4096)
