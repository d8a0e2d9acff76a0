"""Kernels by the words of the command line: a rung's name, a .cu file with its launch, or a host function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.kernel import EXAMPLE_GRID, Kernel
from worklog.kernel.ladder import rung
from worklog.problem.axes import Axis, Space, Value

Words = Mapping[str, str | None]  # options of a launch: grid, block, entry, domain, claimed, arrays
DEFAULTS: Words = {"grid": None, "block": None, "entry": None, "domain": "any", "claimed": "fp32", "arrays": ""}
OPTION = {"claimed": "class"}  # where the option has another name
AXES_IN = ("entry", "grid", "block", "domain")  # options that may name an axis


def kernel_of(what: str, words: Words) -> Kernel:
    """A rung by its name, a .cu file by its path, or a host function as module:function, file.py:function or
    lib.so:function. Raises BadSetting for an option that the kernel does not take, UnknownRung, and WorklogError for a
    file that cannot be read.
    """
    given: dict[str, Any] = {
        name: value for name, value in words.items() if value is not None and value != DEFAULTS[name]
    }
    is_file = what.endswith(".cu") or Path(what).exists()
    if ":" in what and not is_file:
        _require_no(given, ("grid", "block", "entry"), "a .cu file: a host function launches itself")
        return Kernel.from_function(what, **given)
    _require_no(given, ("arrays",), "a host function, such as file.py:function: a kernel takes pointers")
    if Path(what).suffix in (".py", ".so"):
        raise BadSetting(f"cannot run {what}: name its function too, as {what}:function")
    if not is_file:
        _require_no(given, tuple(DEFAULTS), "a .cu file: a rung has its own")
        return rung(what)
    if not {"grid", "block"} <= given.keys():
        raise BadSetting(f"{what} needs a launch: give --grid {EXAMPLE_GRID} --block 32,32")
    return Kernel.from_file(what, **given)


def _require_no(given: Mapping[str, object], options: Sequence[str], whose: str) -> None:
    for name in options:
        if name in given:
            raise BadSetting(f"--{OPTION.get(name, name)} is for {whose}")


def instances(what: str, axes: Sequence[Axis], words: Words) -> list[Kernel]:
    """A file's kernel with every combination of the axes' values in its entry, grid, block and domain. Each is named
    after the file and its values.

    Raises BadSetting for an axis that no option names, and what `kernel_of` raises.
    """
    for axis in axes:
        if not any(re.search(rf"\b{axis.name}\b", words.get(option) or "") for option in AXES_IN):
            raise BadSetting(
                f"--axis {axis.name}: the launch of {what} does not use {axis.name}: write it where the value belongs, "
                f"as in --entry 'gemm<{axis.name}>'"
            )
    found = []
    for point in Space(what, tuple(axes)).points():
        kernel = kernel_of(what, _filled(words, point.values))
        if kernel.host is not None:
            raise BadSetting(f"--axis {axes[0].name}: {what} is a host function, which has no template: omit the axis")
        found.append(replace(kernel, name=f"{Path(what).stem} {point}"))
    return found


def _filled(words: Words, values: Mapping[str, Value]) -> Words:
    """The options with each axis's value in place of its name."""
    names = re.compile(rf"\b({'|'.join(map(re.escape, values))})\b")

    def filled(text: str) -> str:
        return names.sub(lambda found: str(values[found[1]]), text)

    return {option: filled(text) if text and option in AXES_IN else text for option, text in words.items()}
