"""All rungs by name, with `best`, the last of them; and two kernels that aren't rungs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting, meant
from worklog.kernel.kernel import Dispatcher, Kernel
from worklog.kernel.ladder.best import choose
from worklog.kernel.ladder.rungs import (
    ANY_SHAPE,
    FP32,
    LADDER,
    TENSOR,
    any_shape,
    digits,
    winograd,
    winograd_at,
)

# The record itself is the kernel for what is misaligned; it takes any shape in one launch.
BEST = Dispatcher.from_kernel(
    replace(any_shape(ANY_SHAPE.template), rules="A, B, C % 16 bytes"), choose, batches=True
)
RUNGS = (*LADDER, *FP32, *TENSOR, BEST)
# These aren't rungs, and have no time in the ladder's recordings. Winograd's form is of another
# precision class than FP32's own sums. The source of digits says what it loses.
WINOGRAD = Dispatcher.from_kernel(winograd(), winograd_at)
NAMED = {kernel.name: kernel for kernel in (*RUNGS, WINOGRAD, digits())}


def rung(name: str, advice: str = "") -> Kernel:
    """Return the rung of a name.

    advice: an alternative, as the beginning of the error's advice
    Raises BadSetting with the names that exist.
    """
    if name in NAMED:
        return NAMED[name]
    suggestion = meant(str(name), NAMED)
    if Path(f"{name}.cu").is_file():
        suggestion = f" (did you mean {shlex.quote(name + '.cu')}?)"
    raise BadSetting(
        f"there is no rung {name!r}{suggestion}: {advice}choose from {', '.join(NAMED)}"
    )


def source_changed(name: str, kernels: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a rung's code has changed since a run; False without a hash.

    kernels: the run's kernels by name
    """
    about = kernels.get(name, {})
    return "sha256" in about and name in NAMED and not NAMED[name].program.measured_as(about)
