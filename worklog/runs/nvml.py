"""NVML's reasons for a clock, as text."""

from __future__ import annotations

# NVML's event reasons (nvml.h, nvmlClocksEventReason*): idle and clock settings are not throttling.
EVENT_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


def reason_names(mask: int) -> str:
    """Return the names of a mask's event reasons; "" if there are none."""
    return ", ".join(name for bit, name in EVENT_REASONS.items() if mask & bit)


def throttled(mask: int) -> str:
    """Return the names of a mask's throttling reasons; "" if there are none."""
    return reason_names(mask & THROTTLING)
