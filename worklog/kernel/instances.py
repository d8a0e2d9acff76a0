"""The instances of a template that a user brought: one kernel for each point of some axes, which stand for template
arguments in the entry, and for the same numbers in grid, block and domain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.user_kernel import UserKernel, brought
from worklog.problem.axes import Axis, Space, Value

WRITTEN_IN = ("entry", "grid", "block", "domain")  # options of a launch in which an axis may be named


def instances(where: str, axes: Sequence[Axis], **launch: Any) -> list[UserKernel]:
    """A file's kernel with every combination of the axes' values, each called as its file and its values are. launch:
    what `worklog.kernel.user_kernel.brought` takes.

    Raises BadSetting for an axis that the launch does not name and for what has no template, and what `brought` raises.
    """
    for axis in axes:
        if not any(_names(axis.name, launch.get(option)) for option in WRITTEN_IN):
            raise BadSetting(
                f"--axis {axis.name}: the launch of {where} names no {axis.name}: write it where the value belongs, as "
                f"in --entry 'gemm<{axis.name}>'"
            )
    found = []
    for point in Space(where, tuple(axes)).points():
        kernel = brought(
            where, **{**launch, **{option: _filled(launch.get(option), point.values) for option in WRITTEN_IN}}
        )
        if not isinstance(kernel, UserKernel):
            raise BadSetting(f"--axis {axes[0].name}: {where} is host code, which has no template: leave the axis out")
        found.append(replace(kernel, title=f"{Path(where).stem} {point}"))
    return found


def _names(name: str, words: str | None) -> bool:
    return words is not None and re.search(rf"\b{re.escape(name)}\b", words) is not None


def _filled(words: str | None, values: Mapping[str, Value]) -> str | None:
    """With each axis's value in place of its name."""
    if words is None:
        return None
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\b({names})\b", lambda found: str(values[found[1]]), words)
