"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that the pages show is computed here, but for the live viewer, which runs kernels in the
page if the emulator's core for browsers can be compiled. panel.js draws the panel as in a notebook,
and site.js looks up the answers that a notebook's kernel would compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from worklog.errors import WorklogError
from worklog.kernel import Kernel
from worklog.runs import Run
from worklog.runs.text import Progress, silent
from worklog.site import api, emulator, glossary, live, widgets
from worklog.site.chapters import chapter_pages, chapters, notebooks
from worklog.site.choices import PUZZLES, puzzle_files
from worklog.site.front_page import CHARTS, front_page
from worklog.site.pages import header, live_viewer, reading_page, viewer
from worklog.site.panel_answers import ANSWER_STEPS, answers
from worklog.site.steps import Steps
from worklog.viewer.accesses import access

OTHER_STEPS = 2  # the core for browsers, and the widgets of the chapters


@dataclass(frozen=True)
class SiteFiles:
    """The files of a site by name."""

    files: dict[str, bytes]
    not_live: str  # why its viewer runs no kernels; "" if it does


def site_files(
    run: Run | None = None, grid: Run | Path | None = None, progress: Progress = silent
) -> SiteFiles:
    """Return every file of the site.

    run: for the ladder and the charts, as for `worklog figures`
    grid: for the panel (default: the panel's recording)
    progress: called at each step
    Raises BadRunFile if there is no run, NotRecorded for a grid without an unbiased reading.
    """
    kernels = live.rungs()
    total = ANSWER_STEPS + len(notebooks()) + CHARTS + OTHER_STEPS + len(kernels) + len(PUZZLES)
    steps = Steps(progress, total)
    core, not_live = _core(steps)
    data = answers(grid, steps)
    written = chapters(steps, is_live=not not_live)
    first = front_page(run, written, steps)
    html = {"index.html": first.html, **chapter_pages(written)}
    html["api.html"] = reading_page("api.html", api.TITLE, api.ABOUT, api.page_body(), levels="23")
    html[glossary.PAGE] = glossary.glossary_page()
    files = {name: text.encode() for name, text in html.items()}
    files |= first.files | {"data.js": data}
    for chapter in written:
        files |= chapter.files
    steps.begin("widgets")
    files |= widgets.files(widgets.viewed(chapter.body for chapter in written))
    if not_live:
        return SiteFiles(files | _computed_viewer(kernels, steps, not_live), not_live)
    files["access.html"] = live_viewer(live.catalogue(kernels)).encode()
    files["emulator.js"] = core
    return SiteFiles(files | live.programs(kernels, steps) | puzzle_files(steps), "")


def _core(steps: Steps) -> tuple[bytes, str]:
    """Return the file with the emulator for browsers, and why there is none, or ""."""
    steps.begin("the emulator's core for browsers")
    try:
        return emulator.parts_file(), ""
    except WorklogError as error:
        steps.total -= len(PUZZLES)  # which only a live site has
        return b"", str(error)


def _computed_viewer(kernels: Sequence[Kernel], steps: Steps, reason: str) -> dict[str, bytes]:
    """Return the page of the access viewer with accesses that are computed here.

    reason: why the page can't run kernels
    """
    documents = []
    for kernel in kernels:
        steps.begin(f"accesses of {kernel.name}")
        documents.append(access(kernel).document)
    note = (
        '<p class="lead">This viewer isn\'t live. It shows accesses that were computed when the '
        f"site was written, because the page can't run kernels: {escape(reason)}.</p>"
    )
    return {"access.html": viewer(documents, header("access.html"), note).encode()}
