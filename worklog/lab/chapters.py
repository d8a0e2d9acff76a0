"""The notebooks as pages of `worklog site`, the terms that they use, and a page of what they believed and what came."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from worklog.analysis.html import document
from worklog.kernel import source_folder

STORY = ("00", "01", "08", "05", "06", "07", "12", "13", "14")  # in the order of reading; the others are the reference
SHORT = 60  # letters; after such a sentence, the next one is shown, too
BELIEVED, CAME, WRONG = "What we believed", "What came", "What we got wrong"
HEADER = """\
<header><nav aria-label="worklog">
<a href="index.html">worklog</a> <a href="index.html#story">story</a> <a href="index.html#panel">panel</a>
<a href="access.html">what a warp touches</a> <a href="index.html#ladder">ladder</a>
<a href="wrong.html">what we got wrong</a> <a href="index.html#glossary">glossary</a>
</nav></header>"""
# The page that shows live what a cell of a notebook shows as text.
SHOWS = {"panel": "index.html#panel", "ladder": "index.html#ladder", "access": "access.html#"}
GLOSSARY = {
    "wavefront": "what shared memory delivers to a warp in one clock: at most one 4-byte word of each bank",
    "sector": "32 bytes of memory that begin at a multiple of 32: the unit in which L1, L2 and DRAM move data",
    "request": "one load or store instruction of a warp: 32 lanes at once",
    "lane": "one of the 32 threads of a warp",
    "bank": "one of the 32 columns of shared memory, 4 bytes wide; two words of one bank take two wavefronts",
    "occupancy": "the warps that are resident on a multiprocessor, as a share of the most that it can hold",
    "floor": "a lower bound of a kernel's time: the busiest of four units, at its peak rate all the time",
    "rung": "a kernel of the ladder, which adds one idea to the one before",
    "u·D": "the unit of the gate's error: u is half a unit in the last place of the format, D the root of the sum of "
    "(a·b)²",
    "E1": "a family of inputs: integers as large as K allows for an exact result in any order",
    "E2": "a family of inputs: A of odd integers of 12 bits, B of 1 and −1, which shows operands that were rounded",
    "E3": "a family of inputs: E2 with A and B exchanged",
    "gremlin": "one of the article's four mistakes of a benchmark; the others are called pitfalls",
}


@dataclass(frozen=True)
class Chapter:
    """A notebook as it is stored: its page's name, its title, its first sentence and its HTML."""

    page: str
    title: str
    summary: str
    body: str

    def link(self, words: str = "") -> str:
        """A link to the page."""
        return f'<a href="{self.page}">{words}{escape(self.title)}</a>'


def chapters() -> list[Chapter]:
    """In the order of reading. Raises WorklogError where the package has lost its notebooks."""
    from nbconvert import HTMLExporter  # takes a second, with nbformat

    exporter = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    files = sorted(source_folder("_notebooks", "notebooks").glob("[0-9]*.ipynb"))
    files.sort(key=lambda file: (*STORY, file.name[:2]).index(file.name[:2]))
    return [_chapter(file, exporter) for file in files]


def pages(of: list[Chapter]) -> dict[str, str]:
    """HTML by file name: each chapter, and wrong.html."""
    written, wrong = dict[str, str](), [f"<h1>{WRONG}</h1>"]
    wrong.append(
        "<p>A sentence that says why is a claim, and a measurement may refute it. We keep both: these are the beliefs "
        "that were wrong, or too simple, each with what came, and the chapter that shows it.</p>"
    )
    for chapter, after in zip(of, [*of[1:], None], strict=True):
        onward = f"<p>{after.link('Next: ')}</p>" if after else ""
        written[chapter.page] = _page(chapter.title, chapter.summary, chapter.body + onward)
        wrong += [f"<article>{said}<p>{chapter.link()}</p></article>" for said in beliefs(chapter.body)]
    return written | {"wrong.html": _page(WRONG, "Beliefs that measurements refuted.", "".join(wrong))}


def beliefs(body: str) -> list[str]:
    """Each paragraph with what was believed, and the one with what came."""
    stories, paragraphs = list[str](), re.findall(r"<p>.*?</p>", body, re.DOTALL)
    for number, paragraph in enumerate(paragraphs):
        if BELIEVED in paragraph:
            came = next((other for other in paragraphs[number : number + 4] if CAME in other), None)
            if came:
                stories.append(paragraph if came == paragraph else paragraph + came)
    return stories


def glossary() -> str:
    """The terms as a list, to which their first use on each page is linked."""
    terms = (
        f'<dt id="{_place(term)}">{term}</dt><dd>{escape(words[:1].upper() + words[1:])}.</dd>'
        for term, words in GLOSSARY.items()
    )
    return f"<dl>{''.join(terms)}</dl>"


def _chapter(file: Path, exporter: Any) -> Chapter:
    import nbformat

    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    title, paragraph = notebook.cells[0].source.split("\n\n")[:2]
    words = re.sub(r"^\*\*Goal:\*\* (\w)", lambda goal: goal[1].upper(), " ".join(paragraph.split()).replace("`", ""))
    sentences = re.split(r"(?<=\.) ", words)
    summary = " ".join(sentences[: 1 if len(sentences[0]) > SHORT else 2])
    cells = []
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", ()):
            continue  # nothing runs on a page
        cells.append(cell)
        shown = re.search(r'^lab\.(panel|ladder|access)\((?:"(\w+)")?', cell.source, re.MULTILINE)
        if cell.cell_type == "code" and shown:
            address = SHOWS[shown[1]] + (shown[2] or "" if shown[1] == "access" else "")
            link = f"[→ Try it on this site]({address})"
            cells.append(nbformat.v4.new_markdown_cell(link))  # type: ignore[no-untyped-call]
    notebook.cells = cells
    body, _ = exporter.from_notebook_node(notebook)
    body = re.sub(r'href="(\d\d_\w+)\.ipynb', r'href="\1.html', body)
    body = re.sub(r'<a class="anchor-link".*?</a>', "", body)  # of each heading, to itself
    body = re.sub(r'<a href="[^":]+\.(?:md|yml)">(.*?)</a>', r"\1", body)  # a page of the checkout
    body = re.sub(r"<th([^>]*)>(?:\s|&nbsp;)*</th>", r"<td\1></td>", body)  # a header without words isn't one
    body = re.sub(r'<(?:pre|div(?= class="output_(?:html|png|markdown)))', r'\g<0> tabindex="0"', body)  # may scroll
    for term, words in GLOSSARY.items():  # the first use in a paragraph is linked, with its meaning on hover
        link = f'<a class="term" href="index.html#{_place(term)}" title="{escape(words)}">'
        body = re.sub(rf"(<p>[^<]*?)\b(?<!pull )({re.escape(term)}s?)\b(?=[^<]*<)", rf"\1{link}\2</a>", body, count=1)
    return Chapter(f"{file.stem}.html", title.removeprefix("# "), summary, body)


def _place(term: str) -> str:
    return "term-" + re.sub(r"\W", "", term)


def _page(title: str, about: str, body: str) -> str:
    return document(f"worklog: {title}", about, f'{HEADER}\n<main class="chapter">\n{body}\n</main>')
