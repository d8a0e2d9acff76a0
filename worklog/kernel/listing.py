"""The kernels that a .cu file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worklog.kernel import near, stated
from worklog.kernel.folder import sources_in, text_of_header
from worklog.kernel.from_source import near_headers, units_of
from worklog.kernel.nvrtc import read_unit
from worklog.kernel.product import NO_SUM, why_no_product
from worklog.kernel.source import read_source
from worklog.kernel.unit import Definition, Unit

__all__ = [
    "NO_SUM",
    "Listed",
    "kernels_in",
    "own_kernels",
    "sources_in",
    "text_of_header",
]


@dataclass(frozen=True)
class Listed:
    """A kernel that a file or one of its headers defines."""

    name: str  # of a template, an instance that host code launches, if there are several
    why_no_product: str  # "" if it may compute a product
    header: str  # the text of the header that has it; "" for the file


def kernels_in(
    path: str | Path, include: Sequence[str | Path] = (), define: Sequence[str] = ()
) -> list[Listed]:
    """Return the kernels of a .cu file and of its headers in order.

    A template of which the host code launches several instances is there as these instances. The
    host code is the file's, or that of a program which includes the file.

    include: folders of headers
    define: macros, as "NAME=VALUE"
    Raises WorklogError for a file that can't be read, and BadSetting.
    """
    source = read_source(path := Path(path))
    folders = near_headers(path, source, include).folders
    unit = read_unit(source, folders, define)
    kernels = dict[str, Listed]()
    for name in dict.fromkeys(function.name for function in unit.functions if function.is_kernel):
        defined = unit.definition(name)
        if defined is None:
            continue
        instances = _instances(path, defined, unit, include=include, define=define)
        for entry in instances if len(instances) > 1 else [name]:
            kernels[entry] = Listed(entry, why_no_product(defined, unit), defined.header)
    return [*kernels.values()]


def own_kernels(kernels: Sequence[Listed]) -> list[Listed]:
    """Return the kernels that a file has itself; if it has none, those of its headers."""
    return [kernel for kernel in kernels if not kernel.header] or [*kernels]


def _instances(
    path: Path,
    defined: Definition,
    unit: Unit,
    *,
    include: Sequence[str | Path],
    define: Sequence[str],
) -> list[str]:
    """Return the instances of a template that a file launches.

    If it launches none, those of a program that includes the file.
    """
    if not defined.template:
        return []
    instances = stated.instances(defined.name, defined, unit)
    if instances:
        return instances
    for _, launching in units_of(near.programs(path), include, define):
        instances = stated.instances(defined.name, defined, launching)
        if instances:
            return instances
    return []
