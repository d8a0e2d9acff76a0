"""NVML's counter of the energy that the board draws, and its power readings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from worklog.gpu.device import nvml_handle


class EnergyCounter:
    """The energy of CUDA's current GPU: the whole board, since the driver was loaded.

    reason: why NVML can't be read; None if it can
    """

    def __init__(self) -> None:
        import pynvml

        self.reason: str | None = None
        self._error = pynvml.NVMLError
        self._read_energy: Callable[[], Any] = partial(int)
        self._read_power: Callable[[], Any] = partial(int)
        try:
            pynvml.nvmlInit()  # and no shutdown: the handle stays valid
            with nvml_handle() as handle:
                self._read_energy = partial(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
                self._read_power = partial(pynvml.nvmlDeviceGetPowerUsage, handle)
        except pynvml.NVMLError as error:
            self.reason = f"NVML: {error}"
        else:
            self.millijoules()

    def millijoules(self) -> int | None:
        """Return the counter. None if NVML refuses to read it: then `reason` says why."""
        return self._read(self._read_energy)

    def milliwatts(self) -> int | None:
        """Return the power. None if NVML refuses to read it: then `reason` says why."""
        return self._read(self._read_power)

    def _read(self, read: Callable[[], Any]) -> int | None:
        """Return a reading of NVML. After the first refusal, nothing is read any more."""
        if self.reason is not None:
            return None
        try:
            return int(read())
        except self._error as error:
            self.reason = f"NVML: {error}"
            return None
