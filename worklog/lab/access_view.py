"""What a warp touches, in a notebook: access.js draws the document of worklog.analysis.access."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from worklog.analysis import access
from worklog.analysis.html import LAB, part
from worklog.kernel import Kernel
from worklog.lab.page import Page
from worklog.lab.readings import Size


class AccessView(anywidget.AnyWidget):
    """The viewer of one kernel. Without a running kernel, the first sentence about each access is shown."""

    _esm = LAB / "access.js"
    _css = Page._css + part("access.css")
    documents = traitlets.Dict().tag(sync=True)
    of_page = traitlets.Bool(False).tag(sync=True)

    def __init__(self, kernel: Kernel | str, shape: Size = None, block: int = 0) -> None:
        document = access(kernel, shape, block).document
        super().__init__(documents={document["kernel"]: document})

    def _repr_mimebundle_(self, **how: Any) -> Any:
        [document] = self.documents.values()
        lines = dict.fromkeys(f"{kind['text']}: {kind['cost']}" for kind in document["kinds"] if "pill" in kind)
        data, metadata = super()._repr_mimebundle_(**how) or ({}, {})
        return data | {"text/plain": "\n".join([document["about"], *lines])}, metadata
