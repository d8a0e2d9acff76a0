"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that the pages show is computed here. panel.js draws the panel as in a notebook, and
site.js looks up the answers that a notebook's kernel would compute.
"""

from __future__ import annotations

from pathlib import Path

from worklog.kernel import LADDER
from worklog.kernel.ladder import FP32
from worklog.runs import Run
from worklog.runs.text import Progress, silent
from worklog.site import api
from worklog.site.chapters import chapter_pages, chapters, notebooks
from worklog.site.front_page import CHARTS, front_page
from worklog.site.pages import HEADER, site_page, viewer
from worklog.site.panel_answers import ANSWER_STEPS, answers
from worklog.site.steps import Steps
from worklog.viewer.accesses import access


def site_files(
    run: Run | None = None, grid: Run | Path | None = None, progress: Progress = silent
) -> dict[str, bytes]:
    """Return every file of the site by name.

    run: for the ladder and the charts, as for `worklog figures`
    grid: for the panel (default: the panel's recording)
    progress: called at each step
    Raises BadRunFile if there is no run, NotRecorded for a grid without an unbiased reading.
    """
    kernels = (*LADDER, *FP32)
    steps = Steps(progress, ANSWER_STEPS + len(notebooks()) + CHARTS + len(kernels))
    data = answers(grid, steps)
    written = chapters(steps)
    index, charts = front_page(run, written, steps)
    html = {"index.html": index, **chapter_pages(written)}
    documents = []
    for kernel in kernels:
        steps.begin(f"accesses of {kernel.name}")
        documents.append(access(kernel).document)
    html["access.html"] = viewer(documents, HEADER)
    html["api.html"] = site_page(api.TITLE, api.ABOUT, api.page_body())
    pages = {name: text.encode() for name, text in html.items()}
    return pages | charts | {"data.js": data}
