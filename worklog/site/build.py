"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that the pages show is computed here, but for the live viewer, which runs kernels in the
page if the emulator's core for browsers can be compiled. The widgets are those of a notebook, and
look up what a notebook's kernel would compute.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from worklog.emulator.portable import missing_core
from worklog.errors import WorklogError
from worklog.kernel import Kernel
from worklog.runs import Run
from worklog.runs.text import Progress, silent
from worklog.site import api, choices, emulator, glossary, live, widgets
from worklog.site.chapters import chapter_pages, chapters, notebooks
from worklog.site.choices import PUZZLES, ChoicePuzzle
from worklog.site.front_page import CHARTS, front_page
from worklog.site.pages import (
    PUZZLE_ABOUT,
    PUZZLE_PAGE,
    PUZZLE_TITLE,
    header,
    live_viewer,
    puzzle_page,
    reading_page,
    site_page,
    viewer,
)
from worklog.site.panel_answers import ANSWER_STEPS, answers
from worklog.site.steps import Steps
from worklog.viewer.accesses import access

OTHER_STEPS = 2  # the core for browsers, and the accesses in the chapters


@dataclass(frozen=True)
class SiteFiles:
    """The files of a site by name."""

    files: dict[str, bytes]
    not_live: str  # why its viewer runs no kernels; "" if it does


class LiveParts:
    """What a live site compiles and decodes, in processes beside the one that writes its pages."""

    def __init__(self, pool: Executor, kernels: Sequence[Kernel]) -> None:
        # The core takes longest, so it comes first.
        self.core: Future[bytes] = pool.submit(emulator.parts_file)
        self.programs = {kernel.name: pool.submit(live.programs, kernel) for kernel in kernels}
        self.puzzles = {puzzle.name: pool.submit(_puzzle, puzzle) for puzzle in PUZZLES}

    def program_files(self, steps: Steps) -> dict[str, bytes]:
        """Return the files with the decoded kernels. Each rung is a step."""
        files = dict[str, bytes]()
        for name, programs in self.programs.items():
            steps.begin(f"programs of {name}")
            files |= programs.result()
        return files

    def puzzle_files(self, steps: Steps) -> dict[str, bytes]:
        """Return the page of the puzzles, and the files with their kernels."""
        files = dict[str, bytes]()
        entries = []
        for name, puzzle in self.puzzles.items():
            steps.begin(f"puzzle {name}")
            entry, content = puzzle.result()
            entries.append(entry)
            files[entry["file"]] = content
        return files | {PUZZLE_PAGE: puzzle_page(entries).encode()}


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
    not_live = missing_core()
    if not_live:
        return _computed_site(run, grid, kernels, progress, not_live)
    total = ANSWER_STEPS + len(notebooks()) + CHARTS + OTHER_STEPS + len(kernels) + len(PUZZLES)
    steps = Steps(progress, total)
    pool = processes()
    try:
        parts = LiveParts(pool, kernels)
        data = answers(grid, steps)
        # The core takes longest to compile, so the pages are written meanwhile. Accesses come after
        # the programs, whose kernels are theirs: they are compiled once.
        files, viewed = _pages(run, steps, is_live=True)
        viewers = [pool.submit(widgets.access_file, kernel) for kernel in viewed]
        steps.begin("the emulator's core for browsers")
        failure = parts.core.exception()
        if isinstance(failure, WorklogError):
            return _computed_site(run, grid, kernels, progress, str(failure))
        files |= {"data.js": data, "emulator.js": parts.core.result()}
        catalogue = live.catalogue(kernels)
        files["access.html"] = live_viewer(catalogue).encode()
        files["catalogue.js"] = f"const worklogCatalogue = {json.dumps(catalogue)};\n".encode()
        files |= parts.program_files(steps) | parts.puzzle_files(steps)
        steps.begin("accesses in the chapters")
        files |= dict(viewer.result() for viewer in viewers)
        return SiteFiles(files, "")
    finally:
        pool.shutdown(cancel_futures=True)


def _computed_site(
    run: Run | None,
    grid: Run | Path | None,
    kernels: Sequence[Kernel],
    progress: Progress,
    reason: str,
) -> SiteFiles:
    """Return every file of a site whose pages run no kernels.

    run, grid, progress: as for site_files
    reason: why they don't
    """
    total = ANSWER_STEPS + len(notebooks()) + CHARTS + OTHER_STEPS - 1 + len(kernels)
    steps = Steps(progress, total)
    data = answers(grid, steps)
    files, viewed = _pages(run, steps, is_live=False)
    files["data.js"] = data
    steps.begin("accesses in the chapters")
    files |= dict(map(widgets.access_file, viewed))
    return SiteFiles(files | _computed_viewer(kernels, steps, reason), reason)


def processes() -> Executor:
    """Return a pool of as many processes as there are CPUs.

    They are started anew: a copy of this process would lack its threads.
    """
    return ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"))


def _puzzle(puzzle: ChoicePuzzle) -> tuple[dict[str, Any], bytes]:
    """Return a puzzle for the page, and its file."""
    return choices.entry(puzzle), choices.content(puzzle)


def _pages(run: Run | None, steps: Steps, *, is_live: bool) -> tuple[dict[str, bytes], list[str]]:
    """Return the pages of text with their pictures, and the rungs whose accesses they show.

    is_live: whether the site's pages run kernels
    """
    written = chapters(steps, is_live=is_live)
    first = front_page(run, written, steps, is_live=is_live)
    html = {"index.html": first.html, **chapter_pages(written)}
    html["api.html"] = reading_page("api.html", api.TITLE, api.ABOUT, api.page_body(), levels="23")
    html[glossary.PAGE] = glossary.glossary_page()
    files = {name: text.encode() for name, text in html.items()} | first.files
    for chapter in written:
        files |= chapter.files
    viewed = widgets.viewed(chapter.body for chapter in written)
    return files | widgets.script_files(is_live=is_live), viewed


def _computed_viewer(kernels: Sequence[Kernel], steps: Steps, reason: str) -> dict[str, bytes]:
    """Return the pages of a site whose pages run nothing: accesses computed here, and no puzzles.

    reason: why the pages can't run kernels
    """
    documents = []
    for kernel in kernels:
        steps.begin(f"accesses of {kernel.name}")
        documents.append(access(kernel).document)
    note = (
        '<p class="lead">This viewer isn\'t live. It shows accesses that were computed when the '
        f"site was written, because the page can't run kernels: {escape(reason)}.</p>"
    )
    about = (
        f'<h1>{PUZZLE_TITLE}</h1>\n<p class="lead">The puzzles need pages that run kernels, and '
        f"these can't: {escape(reason)}. They are also in the notebooks: "
        "<code>worklog new notebooks mine</code>.</p>"
    )
    puzzles = site_page(PUZZLE_PAGE, PUZZLE_TITLE, PUZZLE_ABOUT, about)
    return {
        "access.html": viewer(documents, header("access.html"), note).encode(),
        PUZZLE_PAGE: puzzles.encode(),
    }
