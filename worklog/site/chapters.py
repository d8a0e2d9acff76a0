"""The notebooks as pages, and the page of the beliefs that measurements refuted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from worklog.kernel import RUNGS, source_folder
from worklog.lab.assets import assets
from worklog.site import cells, widgets
from worklog.site.glossary import with_terms
from worklog.site.pages import read_part, reading_page, site_page
from worklog.site.pictures import Pictures
from worklog.site.steps import Steps

# The first chapter that is reference. Those before it are the story.
REFERENCE = "12_the_harness"
SHORT = 60  # letters; after a shorter first sentence, the summary also has the second one
BELIEVED = "What we believed"
HAPPENED = "What happened"
WRONG = "What we got wrong"
WORDS_PER_MINUTE = 220
PICTURES_PER_MINUTE = 5


@dataclass(frozen=True)
class Chapter:
    """A notebook as it is stored."""

    page: str  # its file name
    title: str
    summary: str  # the first sentence
    body: str  # HTML
    minutes: int = 1  # of reading
    files: dict[str, bytes] = field(default_factory=dict)  # of its pictures

    @property
    def number(self) -> str:
        """The notebook's number, as its file name has it."""
        return self.page.partition("_")[0]

    def link(self, attributes: str = "") -> str:
        """Return a link to the page.

        attributes: of the HTML element
        """
        return f'<a href="{self.page}"{attributes}>{escape(self.title)}</a>'


def chapters(steps: Steps, *, is_live: bool) -> list[Chapter]:
    """Return the chapters in the order of reading.

    is_live: whether the site's pages run kernels

    Raises WorklogError if the package has lost its notebooks.
    """
    written = []
    for file in notebooks():
        steps.begin(f"notebook {file.stem}")
        written.append(_chapter(file, is_live))
    return written


def notebooks() -> list[Path]:
    """Return the notebooks' files in the order of reading. Raises WorklogError."""
    return sorted(source_folder("_notebooks", "notebooks").glob("[0-9]*.ipynb"))


def chapter_pages(written: list[Chapter]) -> dict[str, str]:
    """Return HTML by file name: each chapter, and wrong.html."""
    html = dict[str, str]()
    wrong = [f"<h1>{WRONG}</h1>"]
    wrong.append(
        '<p class="lead">A sentence that says why is a claim, and a measurement may refute it. We '
        "keep both: these are the beliefs that were wrong, or too simple, each with what happened, "
        "and the chapter that shows it.</p>"
    )
    earlier = [None, *written[:-1]]
    later = [*written[1:], None]
    for chapter, previous, following in zip(written, earlier, later, strict=True):
        body = chapter.body + _neighbours(previous, following)
        html[chapter.page] = reading_page(
            chapter.page,
            chapter.title,
            chapter.summary,
            body,
            assets(*widgets.STYLES),
            read_part("live.css"),
        )
        for belief in beliefs(chapter.body):
            source = f'<p class="source">{chapter.number} · {chapter.link()}</p>'
            wrong.append(f"<article>{belief}{source}</article>")
    html["wrong.html"] = site_page(
        "wrong.html", WRONG, "Beliefs that measurements refuted.", "".join(wrong)
    )
    return html


def _neighbours(previous: Chapter | None, following: Chapter | None) -> str:
    """Return the links to the chapter before and the chapter after."""
    links = []
    if previous:
        links.append(f"<div><span>Previous</span>{previous.link(' rel=prev')}</div>")
    if following:
        links.append(f'<div class="next"><span>Next</span>{following.link(" rel=next")}</div>')
    return f'<nav class="neighbours" aria-label="neighbouring chapters">{"".join(links)}</nav>'


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
            story = paragraph if outcome == paragraph else paragraph + outcome
            stories.append(story.replace(":</p>", ": …</p>"))  # the chapter shows what follows
    return stories


def _chapter(file: Path, is_live: bool) -> Chapter:
    """Return the page of a notebook.

    is_live: whether the site's pages run kernels
    """
    import nbformat  # takes half a second

    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    title, paragraph = notebook.cells[0].source.split("\n\n")[:2]
    pictures = Pictures(file.stem)
    bets = list[str]()  # the rungs whose answer isn't shown yet
    html = []
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", ()):
            continue  # nothing runs on a page
        if cell.cell_type == "markdown":
            html.append(cells.text_html(cell.source))
        else:
            html.append(f'<div class="cell">{_code_cell(cell, pictures, bets, is_live)}</div>')
    body = _for_the_site("\n".join(html))
    return Chapter(
        f"{file.stem}.html",
        title.removeprefix("# "),
        _summary(paragraph),
        with_terms(body),
        _minutes(notebook.cells),
        pictures.files,
    )


def _code_cell(cell: Any, pictures: Pictures, bets: list[str], is_live: bool) -> str:
    """Return a cell of code with its outputs, or with the widget that they are a still of.

    pictures: gets the outputs' pictures
    bets: the rungs whose answer isn't shown yet; gets the rung of a bet
    is_live: whether the site's pages run kernels
    """
    code = cells.code_html(cell)
    outputs = cells.outputs_html(cell.outputs, pictures)
    puzzle = re.match(r"%%puzzle (\w+)", cell.source)
    if puzzle and is_live:
        address = f"puzzles.html#{puzzle[1]}"
        return f"{code}{outputs}{widgets.page_link(address, 'Solve it here, without a compiler')}"
    call = cells.lab_call(cell)
    if call is None:
        return code + outputs
    if call.function == "bet":
        bets.append(call.arguments[0])
        return code + widgets.bet(call, outputs)
    if call.function == "panel":
        return code + widgets.panel(call, outputs)
    if call.function == "access" and call.arguments[0] in {record.name for record in RUNGS}:
        return code + widgets.access(call.arguments[0], outputs, is_live)
    if call.function == "ladder":
        return (
            code + outputs + widgets.page_link("index.html#ladder", "Open each rung of the ladder")
        )
    answered = [rung for rung in bets if rung in call.arguments]
    if call.function in ("step", "steps") and answered:
        bets.remove(answered[0])
        return code + widgets.answer(answered[0], outputs)
    return code + outputs


def _minutes(notebook_cells: Sequence[Any]) -> int:
    """Return how long a reader needs for the text and the outputs of a notebook."""
    texts = [cell.source for cell in notebook_cells if cell.cell_type == "markdown"]
    word_count = len(re.sub(r"```.*?```", "", " ".join(texts), flags=re.DOTALL).split())
    outputs = sum(len(cell.outputs) for cell in notebook_cells if cell.cell_type == "code")
    return max(1, round(word_count / WORDS_PER_MINUTE + outputs / PICTURES_PER_MINUTE))


def _summary(paragraph: str) -> str:
    """Return the first sentence of a chapter's goal; the first two if the first one is short."""
    text = " ".join(paragraph.split()).replace("`", "")
    text = re.sub(r"^\*\*Goal:\*\* (\w)", lambda goal: goal[1].upper(), text)
    sentences = re.split(r"(?<=\.) ", text)
    count = 1 if len(sentences[0]) > SHORT else 2
    return " ".join(sentences[:count])


def _for_the_site(body: str) -> str:
    """Return a notebook's HTML with the site's links and without links into the checkout."""
    body = re.sub(r'href="(\d\d_\w+)\.ipynb', r'href="\1.html', body)
    # a link to a page of the checkout
    body = re.sub(r'<a href="[^":]+\.(?:md|yml)">(.*?)</a>', r"\1", body)
    # a table or a listing in the text may be wider than a phone
    body = re.sub(r"<table>\s*<thead>", '<table tabindex="0"><thead>', body)
    body = body.replace("<pre><code", '<pre tabindex="0"><code')
    return re.sub(
        r'<div class="highlight[^"]*"><pre>', '<div class="code"><pre tabindex="0">', body
    )
