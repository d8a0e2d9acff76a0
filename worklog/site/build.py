"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that the pages show is computed here, but for the live viewer, which runs kernels in the
page if the emulator's core for browsers can be compiled. The widgets are those of a notebook, and
look up what a notebook's kernel would compute.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path

from worklog.errors import WorklogError
from worklog.kernel import Kernel, Program
from worklog.kernel.emulated import build
from worklog.runs import Run
from worklog.runs.text import Progress, silent
from worklog.site import api, emulator, glossary, live, widgets
from worklog.site.chapters import chapter_pages, chapters, notebooks
from worklog.site.choices import PUZZLES, choices, kernel_of, puzzle_files
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
    pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))  # one CPU computes the pages
    try:
        core = pool.submit(emulator.parts_file)
        compiling = [pool.submit(build, program) for program in _programs(kernels)]
        data = answers(grid, steps)
        steps.begin("the emulator's core for browsers")
        failure = core.exception()
        if isinstance(failure, WorklogError):
            steps.total -= len(PUZZLES)  # which only a live site has
            not_live = str(failure)
            files = _pages(run, steps, is_live=False)
            files |= _computed_viewer(kernels, steps, not_live)
            return SiteFiles(files | {"data.js": data}, not_live)
        files = _pages(run, steps, is_live=True)
        files |= {"data.js": data, "emulator.js": core.result()}
        files["access.html"] = live_viewer(live.catalogue(kernels)).encode()
        for compilation in compiling:
            compilation.result()
        files |= live.programs(kernels, steps) | puzzle_files(steps)
        return SiteFiles(files, "")
    finally:
        pool.shutdown(cancel_futures=True)


def _programs(kernels: Sequence[Kernel]) -> list[Program]:
    """Return what a live site compiles: each takes a second, and is then kept."""
    variants = list[live.LiveKernel]()
    for kernel in kernels:
        variants += [*live.tiles(kernel), *live.broken(kernel)]
    programs = [variant.kernel.program for variant in variants]
    for puzzle in PUZZLES:
        programs += [kernel_of(source).program for source in choices(puzzle)]
    return programs


def _pages(run: Run | None, steps: Steps, *, is_live: bool) -> dict[str, bytes]:
    """Return the pages of text, with their pictures and widgets.

    is_live: whether the site's pages run kernels
    """
    written = chapters(steps, is_live=is_live)
    first = front_page(run, written, steps)
    html = {"index.html": first.html, **chapter_pages(written)}
    html["api.html"] = reading_page("api.html", api.TITLE, api.ABOUT, api.page_body(), levels="23")
    html[glossary.PAGE] = glossary.glossary_page()
    files = {name: text.encode() for name, text in html.items()} | first.files
    for chapter in written:
        files |= chapter.files
    steps.begin("widgets")
    return files | widgets.files(widgets.viewed(chapter.body for chapter in written))


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
