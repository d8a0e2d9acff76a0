"""Every wrong kernel, with the stage that must refuse it."""

from __future__ import annotations

from tests.gate.numpy_device import Function
from tests.gate.wrong_places import WRONG_PLACES
from tests.gate.wrong_values import WRONG_VALUES

WRONG: list[tuple[Function, str]] = [*WRONG_VALUES, *WRONG_PLACES]
