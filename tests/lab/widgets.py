"""Finding widgets in a page."""

from __future__ import annotations

from typing import Any


def descendants(widget: Any) -> list[Any]:
    """A widget and everything in it."""
    return [widget, *(found for child in getattr(widget, "children", ()) for found in descendants(child))]
