"""The notebooks as pages of `worklog site`, the terms that they use, and a page of what they believed and what came."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from string import Template

from worklog.analysis.accesses import palette
from worklog.kernel import source_folder
from worklog.lab.page import HERE
from worklog.plots import DARK, LIGHT

STORY = ("00", "01", "08", "05", "06", "07", "12", "13")  # in the order of reading; the others are the reference
BELIEVED, CAME = "What we believed", "What came"
WRONG = "What we got wrong"
GLOSSARY = {
    "wavefront": "what shared memory delivers to a warp in one clock: at most one 4-byte word of each bank",
    "sector": "32 bytes of memory that begin at a multiple of 32: the unit in which L1, L2 and DRAM move data",
    "request": "one load or store instruction of a warp: 32 lanes at once",
    "lane": "one of the 32 threads of a warp",
    "bank": "one of the 32 columns of shared memory, 4 bytes wide; two words of one bank take two wavefronts",
    "occupancy": "the warps that are resident on a multiprocessor, as a share of the most that it can hold",
    "floor": "a lower bound of a kernel's time: the busiest of four units, at its peak rate all the time",
    "rung": "a kernel of the ladder, which adds one idea to the one before",
    "u·D": "the unit of the gate's error: u is half a unit in the last place of the format, D the sum of |a·b|",
    "E1": "a family of integer inputs whose exact product fits the format, so that each wrong bit shows",
    "gremlin": "one of the article's four mistakes of a benchmark; the others are called pitfalls",
}


def chapters() -> dict[str, str]:
    """The pages' HTML by file name: each notebook as it is stored, and wrong.html. Raises WorklogError where the
    package has lost its notebooks.
    """
    from nbconvert import HTMLExporter  # takes half a second

    files = sorted(source_folder("_notebooks", "notebooks").glob("[0-9]*.ipynb"), key=_order)
    exporter = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    pages, wrong = dict[str, str](), [f"<h1>{WRONG}</h1>"]
    wrong.append(
        "<p>A sentence that says why is a claim, and a measurement may refute it. We keep both: these are the beliefs "
        "that were wrong, or too simple, each with what came, and the chapter that shows it.</p>"
    )
    for number, file in enumerate(files):
        body, _ = exporter.from_filename(str(file))
        body = re.sub(r'href="(\d\d_\w+)\.ipynb', r'href="\1.html', body).replace('class="anchor-link"', "hidden")
        body = re.sub(r'<a href="[^":]+\.md">(.*?)</a>', r"\1", body)  # a page of the checkout
        after = files[number + 1] if number + 1 < len(files) else None
        onward = f'<p><a href="{after.stem}.html">Next: {escape(title(after))}</a></p>' if after else ""
        pages[f"{file.stem}.html"] = _page(title(file), _explained(body) + onward)
        wrong += _beliefs(body, file)
    return pages | {"wrong.html": _page(WRONG, "".join(wrong))}


def contents() -> str:
    """A list of links to the chapters, the story first."""
    files = sorted(source_folder("_notebooks", "notebooks").glob("[0-9]*.ipynb"), key=_order)
    story, others = [f for f in files if f.name[:2] in STORY], [f for f in files if f.name[:2] not in STORY]

    def links(some: list[Path]) -> str:
        return "".join(f'<li><a href="{file.stem}.html">{escape(title(file))}</a></li>' for file in some)

    terms = "".join(f"<dt>{term}</dt><dd>{escape(words)}</dd>" for term, words in GLOSSARY.items())
    return (
        f'<ol>{links(story)}</ol><p><a href="wrong.html">{WRONG}</a></p>'
        f"<details><summary>Reference</summary><ul>{links(others)}</ul></details>"
        f"<details><summary>Terms</summary><dl>{terms}</dl></details>"
    )


def title(file: Path) -> str:
    """A notebook's first heading."""
    found = re.search(r'"# (.+?)(?:\\n)?"', file.read_text(encoding="utf-8"))
    return found[1] if found else file.stem


def _order(file: Path) -> tuple[int, str]:
    number = file.name[:2]
    return (STORY.index(number) if number in STORY else len(STORY)), number


def _explained(body: str) -> str:
    """The first use of each term in a paragraph, with its meaning on hover."""
    for term, words in GLOSSARY.items():
        mark = f'<dfn tabindex="0" title="{escape(words)}">'
        body = re.sub(rf"(<p>[^<]*?)\b({re.escape(term)}s?)\b(?=[^<]*<)", rf"\1{mark}\2</dfn>", body, count=1)
    return body


def _beliefs(body: str, file: Path) -> list[str]:
    """Each paragraph with what was believed, to the one with what came."""
    found, paragraphs = list[str](), re.findall(r"<p>.*?</p>", body, re.DOTALL)
    for number, paragraph in enumerate(paragraphs):
        if BELIEVED not in paragraph:
            continue
        end = next((n for n in range(number, min(number + 4, len(paragraphs))) if CAME in paragraphs[n]), number)
        if CAME in paragraphs[end]:
            link = f'<p><a href="{file.stem}.html">{escape(title(file))}</a></p>'
            said = paragraphs[number : number + 1] + ([paragraphs[end]] if end > number else [])
            found.append(f"<article>{''.join(said)}{link}</article>")
    return found


def _page(heading: str, body: str) -> str:
    parts = {"title": escape(heading), "body": body, "style": (HERE / "site.css").read_text(encoding="utf-8")}
    parts |= {"light": palette(":root", LIGHT, "light"), "dark": palette(":root", DARK, "dark")}
    return Template((HERE / "chapter.html").read_text(encoding="utf-8")).substitute(parts)
