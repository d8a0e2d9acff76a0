"""Describes kernels for the access viewer of a page, which runs them itself.

The page reads the trace of a launch as worklog.viewer.accesses does. Here is what it needs to know
of the code: the sites of accesses, and what the viewer says of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from worklog.emulator.launching import PreparedLaunch
from worklog.emulator.portable import Document
from worklog.emulator.program import Site
from worklog.emulator.ptx import plain_name
from worklog.kernel import Kernel
from worklog.kernel.emulated import CHIP, build
from worklog.kernel.portable import described, planned
from worklog.problem import Shape
from worklog.viewer.accesses import listed_lines
from worklog.viewer.trace import GLOBAL


def viewable(kernel: Kernel, shapes: Sequence[Shape]) -> Document:
    """Return the description of a kernel's launches, with what the viewer says of them.

    Raises BadSetting outside the domain, and what compiling and launching raises.
    """
    plans = planned(kernel, shapes)
    document = described(kernel, plans)
    for (shape, _, launches), described_shape in zip(plans, document["shapes"], strict=True):
        launched = kernel.at(shape, CHIP)
        main = launches[launched.main]
        number = described_shape["launches"][launched.main]["program"]
        document["programs"][number]["views"] = _views(main)
        described_shape |= {
            "main": launched.main,
            "grid": list(launched.blocks(shape)),
            "threads": launched.thread_count,
            "arguments": [name for name in launched.arguments if name in GLOBAL],
        }
    launched = kernel.at(shapes[0], CHIP)  # compiled already, unlike a dispatcher's own program
    lines = listed_lines(kernel)
    return document | {
        "idea": kernel.idea,
        "depth": kernel.template.get("BK"),
        "label": build(launched.program)[1],
        "lines": [lines.start, lines.stop],
    }


def _views(launch: PreparedLaunch) -> dict[int, dict[str, Document]]:
    """Return, by pc, the sites of accesses to global and to shared memory."""
    views = {}
    for pc, site in launch.program.sites.items():
        in_global = site.source or site.at("global")
        views[pc] = {"global": _view(in_global), "shared": _view(site.at("shared"))}
    return views


def _view(site: Site) -> Document:
    """Return a site, with the wide accesses that the assembler may make it part of.

    Each of them has its offset from the site, its width, and whether it stands for the others.
    """
    groups = []
    for group in site.groups:
        groups.append([group.offset - site.offset, group.width, int(group.leads)])
    return {
        "line": site.line,
        "caller": site.caller,
        "op": site.op,
        "space": site.space,
        "width": site.width,
        "writes": site.writes,
        "array": plain_name(site.array.name) if site.array else "shared",
        "groups": groups,
    }
