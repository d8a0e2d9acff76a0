"""Describes a kernel's launches for the emulator's core in a browser, which has no compiler.

Each description has the decoded programs, and the launches at each shape that a page offers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import portable
from worklog.emulator.launching import PreparedLaunch
from worklog.kernel.device import Block
from worklog.kernel.emulated import EmulatedBuffer, EmulatedDevice
from worklog.kernel.kernel import Kernel
from worklog.problem import FLOAT_BYTES, Shape


class PlanningDevice(EmulatedDevice):
    """An emulator that only keeps the launches that it is asked to run."""

    def __init__(self) -> None:
        super().__init__(count=True)
        self.planned: list[PreparedLaunch] = []

    def prepare(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> Callable[[], None]:
        """Return a function that keeps the launch."""
        planned = self.plan(kernel, grid, block, arguments)
        return lambda: self.planned.append(planned)


Arrays = dict[str, NDArray[np.float32]]


def planned(
    kernel: Kernel, shapes: Sequence[Shape], *, alpha: float = 1.0, beta: float = 0.0
) -> list[tuple[Shape, Arrays, list[PreparedLaunch]]]:
    """Return the launches at each shape, and the arrays that they read and write.

    The arrays are zeros: A, B, C, and the workspace if a launch needs it.

    Raises BadSetting outside the domain, and what compiling and launching raises.
    """
    device = PlanningDevice()
    subject = kernel.load(device)
    plans = []
    for shape in shapes:
        kernel.check(shape)
        elements = subject.workspace_elements(shape)
        sizes = {"A": shape.m * shape.k, "B": shape.k * shape.n, "C": shape.m * shape.n}
        if elements:
            sizes["workspace"] = elements
        arrays = {name: np.zeros(size, np.float32) for name, size in sizes.items()}
        a, b, c, *workspace = map(EmulatedBuffer, arrays.values())
        if workspace:
            subject.use_workspace(workspace[0])
        device.planned = []
        subject.repeated(shape, alpha, a, b, beta, c)()
        plans.append((shape, arrays, device.planned))
    return plans


def described(
    kernel: Kernel, plans: Sequence[tuple[Shape, Arrays, list[PreparedLaunch]]]
) -> portable.Document:
    """Return the description of a kernel's launches, as planned() returns them."""
    programs = dict[int, int]()  # by the identity of a program, its place
    documents = list[portable.Document]()
    shapes = []
    for shape, arrays, launches in plans:
        launch_documents = list[portable.Document]()
        for launch in launches:
            identity = id(launch.program)
            if identity not in programs:
                programs[identity] = len(documents)
                documents.append(portable.program(launch.core))
            launch_document = portable.launch(launch, arrays)
            launch_documents.append({"program": programs[identity], **launch_document})
        sizes = {name: FLOAT_BYTES * array.size for name, array in arrays.items()}
        shapes.append(
            {"shape": [shape.m, shape.n, shape.k], "sizes": sizes, "launches": launch_documents}
        )
    return {
        "kernel": kernel.name,
        "file": kernel.file,
        "tile": dict(kernel.template),
        "source": kernel.source,
        "programs": documents,
        "shapes": shapes,
    }


def compressed(document: portable.Document) -> bytes:
    """Return a description as a file: JSON, compressed by gzip."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return gzip.compress(text.encode(), mtime=0)
