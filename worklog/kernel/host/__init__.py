"""The launches that the host code of a CUDA source makes: the code is run, and records them."""

from worklog.kernel.host.calls import passed_to
from worklog.kernel.host.launches import (
    OTHER,
    HostCode,
    HostLaunch,
    Launched,
    host_code,
    launched_by,
)
from worklog.kernel.host.program import SPACING, STAND_INS, stand_in
from worklog.kernel.host.tensor_maps import encoding_lines
from worklog.kernel.host.text import template_types

__all__ = [
    "OTHER",
    "SPACING",
    "STAND_INS",
    "HostCode",
    "HostLaunch",
    "Launched",
    "encoding_lines",
    "host_code",
    "launched_by",
    "passed_to",
    "stand_in",
    "template_types",
]
