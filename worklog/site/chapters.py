"""The notebooks as pages, and the page of the beliefs that measurements refuted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from worklog.kernel import source_folder
from worklog.site.glossary import with_terms
from worklog.site.pages import site_page
from worklog.site.steps import Steps

# The first chapter that is reference. Those before it are the story.
REFERENCE = "12_the_harness"
SHORT = 60  # letters; after a shorter first sentence, the summary also has the second one
BELIEVED = "What we believed"
HAPPENED = "What happened"
WRONG = "What we got wrong"
# The page that shows live what a cell of a notebook shows as text.
SHOWS = {"panel": "index.html#panel", "ladder": "index.html#ladder", "access": "access.html#"}
VIEWER_HEIGHT = 1000  # pixels of the viewer in a chapter


@dataclass(frozen=True)
class Chapter:
    """A notebook as it is stored."""

    page: str  # its file name
    title: str
    summary: str  # the first sentence
    body: str  # HTML

    def link(self, prefix: str = "") -> str:
        """Return a link to the page."""
        return f'<a href="{self.page}">{prefix}{escape(self.title)}</a>'


def chapters(steps: Steps, *, is_live: bool) -> list[Chapter]:
    """Return the chapters in the order of reading.

    is_live: whether the site's pages run kernels

    Raises WorklogError if the package has lost its notebooks.
    """
    from nbconvert import HTMLExporter  # takes a second, with nbformat

    exporter = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    written = []
    for file in notebooks():
        steps.begin(f"notebook {file.stem}")
        written.append(_chapter(file, exporter, is_live))
    return written


def notebooks() -> list[Path]:
    """Return the notebooks' files in the order of reading. Raises WorklogError."""
    return sorted(source_folder("_notebooks", "notebooks").glob("[0-9]*.ipynb"))


def chapter_pages(written: list[Chapter]) -> dict[str, str]:
    """Return HTML by file name: each chapter, and wrong.html."""
    html = dict[str, str]()
    wrong = [f"<h1>{WRONG}</h1>"]
    wrong.append(
        "<p>A sentence that says why is a claim, and a measurement may refute it. We keep both: "
        "these are the beliefs that were wrong, or too simple, each with what happened, and the "
        "chapter that shows it.</p>"
    )
    for chapter, following in zip(written, [*written[1:], None], strict=True):
        onward = f"<p>{following.link('Next: ')}</p>" if following else ""
        html[chapter.page] = site_page(chapter.title, chapter.summary, chapter.body + onward)
        for belief in beliefs(chapter.body):
            wrong.append(f"<article>{belief}<p>{chapter.link()}</p></article>")
    html["wrong.html"] = site_page(WRONG, "Beliefs that measurements refuted.", "".join(wrong))
    return html


def beliefs(body: str) -> list[str]:
    """Return each paragraph with a belief, joined with the paragraph on what happened.

    That paragraph is the same one, or at most three paragraphs below.
    """
    stories = list[str]()
    paragraphs = re.findall(r"<p>.*?</p>", body, re.DOTALL)
    for number, paragraph in enumerate(paragraphs):
        if BELIEVED not in paragraph:
            continue
        nearby = paragraphs[number : number + 4]
        outcome = next((candidate for candidate in nearby if HAPPENED in candidate), None)
        if outcome:
            stories.append(paragraph if outcome == paragraph else paragraph + outcome)
    return stories


def _chapter(file: Path, exporter: Any, is_live: bool) -> Chapter:
    """Return the page of a notebook.

    is_live: whether the site's pages run kernels
    """
    import nbformat

    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    title, paragraph = notebook.cells[0].source.split("\n\n")[:2]
    cells = []
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", ()):
            continue  # nothing runs on a page
        cells.append(cell)
        address = _live_page(cell, is_live)
        if address is not None:
            more = f"[→ Try it on this site]({address})"
            if is_live and address.startswith(SHOWS["access"]):
                more = f"{_embedded(address)}\n\n{more}"
            cells.append(nbformat.v4.new_markdown_cell(more))  # type: ignore[no-untyped-call]
    notebook.cells = cells
    body, _ = exporter.from_notebook_node(notebook)
    return Chapter(
        f"{file.stem}.html",
        title.removeprefix("# "),
        _summary(paragraph),
        with_terms(_for_the_site(body)),
    )


def _summary(paragraph: str) -> str:
    """Return the first sentence of a chapter's goal; the first two if the first one is short."""
    text = " ".join(paragraph.split()).replace("`", "")
    text = re.sub(r"^\*\*Goal:\*\* (\w)", lambda goal: goal[1].upper(), text)
    sentences = re.split(r"(?<=\.) ", text)
    count = 1 if len(sentences[0]) > SHORT else 2
    return " ".join(sentences[:count])


def _embedded(address: str) -> str:
    """Return the live viewer for the text of a chapter, loaded when a reader comes near.

    address: of the viewer's page
    """
    rung = address.partition("#")[2] or "naive"
    return (
        f'<iframe src="{address.replace("#", "?embedded#")}" width="100%" height="{VIEWER_HEIGHT}" '
        f'loading="lazy" style="border:0" title="What a warp of {rung} touches, live"></iframe>'
    )


def _live_page(cell: Any, is_live: bool) -> str | None:
    """Return the address of the page that shows live what a cell shows; None if there is none.

    is_live: whether the site's pages run kernels
    """
    puzzle = re.match(r"%%puzzle (\w+)", cell.source)
    if puzzle and cell.cell_type == "code" and is_live:
        return f"puzzles.html#{puzzle[1]}"
    call = re.search(r'^lab\.(panel|ladder|access)\((?:"(\w+)")?', cell.source, re.MULTILINE)
    if cell.cell_type != "code" or not call:
        return None
    address = SHOWS[call[1]]
    if call[1] == "access":
        address += call[2] or ""
    return address


def _for_the_site(body: str) -> str:
    """Return a notebook's HTML with the site's links and without links into the checkout."""
    body = re.sub(r'href="(\d\d_\w+)\.ipynb', r'href="\1.html', body)
    # the link of each heading to itself
    body = re.sub(r'<a class="anchor-link".*?</a>', "", body)
    # a link to a page of the checkout
    body = re.sub(r'<a href="[^":]+\.(?:md|yml)">(.*?)</a>', r"\1", body)
    # an empty header is a cell
    body = re.sub(r"<th([^>]*)>(?:\s|&nbsp;)*</th>", r"<td\1></td>", body)
    # a box that may scroll
    scrolls = r'<(?:pre|div(?= class="output_(?:html|png|markdown)))'
    return re.sub(scrolls, r'\g<0> tabindex="0"', body)
