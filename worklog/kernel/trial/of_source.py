"""The launch and the values that a kernel's source, and files which include it, state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from worklog.kernel import launch as launches
from worklog.kernel import stated
from worklog.kernel.from_source import units_of
from worklog.kernel.kernel import Kernel
from worklog.kernel.launch import Launch
from worklog.kernel.nvrtc import read_unit
from worklog.kernel.source import filled
from worklog.kernel.unit import Unit


def stated_launch(kernel: Kernel, labels: Sequence[str]) -> tuple[Launch, list[str]]:
    """Return the launch that the source states, and why launches aren't read.

    The launch is in terms of labels of sizes. It has no grid and block if none is stated, and if it
    isn't read. Its grid may have a name like "M_or_N": a variable that is passed for both.

    labels: "M", "N", "K" or a text that is no size, of each parameter
    """
    (_, unit), *programs = _units(kernel)
    _, _, instance = kernel.launch.function.partition("<")
    numbers = instance.rpartition(">")[0] or ", ".join(map(str, kernel.template.values()))
    of_source = stated.stated_launch(
        launches.own_part(kernel.stated["source"], unit, kernel.definition, "grid"),
        unit,
        kernel.function,
        kernel.definition,
        values=labels,
        instance=filled(numbers, kernel.template),
        programs=programs,
        with_joint=True,
    )
    return of_source.launch, of_source.unread


def values_passed(kernel: Kernel, labels: Sequence[str]) -> dict[int, str]:
    """Return the values that launches pass to parameters without a label, by place.

    labels: as for stated_launch. The values are in terms of labels
    """
    for _, unit in _units(kernel):
        values = stated.passed(kernel.definition, unit, labels)
        if values:
            return values
    return {}


def _units(kernel: Kernel) -> Iterator[tuple[str, Unit]]:
    """Yield name and unit of the whole source, and then of each program that includes it."""
    include = kernel.stated["include"]
    define = kernel.stated["define"]
    yield kernel.stated["file"], read_unit(kernel.stated["source"], include, define)
    yield from units_of(kernel.stated["programs"], include, define)
