"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that they show is computed here. panel.js draws the panel as in a notebook, and site.js
looks up the answers that a notebook's kernel would compute.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from worklog import __version__, plots
from worklog.errors import BadRunFile, NothingToDraw, NotRecorded
from worklog.kernel import FP32, LADDER, RUNGS, source_folder
from worklog.lab import api
from worklog.lab.pages import document, packed, part, viewer
from worklog.lab.readings import LAUNCHES, SPOKEN, Answers, grid_runs
from worklog.lab.rungs import SIZE, Climb
from worklog.lab.widgets import Panel, places
from worklog.plots import Chart
from worklog.plots.selection import measured, rows, shape_to_draw
from worklog.runner.job import jobs_of
from worklog.runner.sources import holding
from worklog.runs import CUBLAS, Run
from worklog.runs.sources import in_steps
from worklog.runs.text import Progress, percent, silent
from worklog.settings import PITFALLS
from worklog.viewer.accesses import access

# With another value of these, the launches are the same.
COMPUTED = [
    pitfall for pitfall in PITFALLS if pitfall not in LAUNCHES and pitfall.setting not in SPOKEN
]
# With a host clock, all values of the queue have the same answer.
QUEUE = next(pitfall for pitfall in PITFALLS if pitfall.setting == "queue")
TEASED = ("naive", "coalesced")
ABOUT = "SGEMM kernels on an NVIDIA GPU, from naive to past cuBLAS: checked, timed, and explained by what they touch."
# Notebooks of the story, in the order of reading. The others are the reference.
STORY = ("00", "01", "08", "05", "06", "07", "12", "13", "14")
ANSWER_STEPS = 40  # of the progress: 7,600 answers take as long as everything else together
CHARTS = 2
SHORT = 60  # letters; after a shorter first sentence, the summary also has the second one
BELIEVED = "What we believed"
CAME = "What happened"
WRONG = "What we got wrong"
HEADER = """\
<header><nav aria-label="worklog">
<a href="index.html">worklog</a> <a href="index.html#story">story</a> <a href="index.html#panel">panel</a>
<a href="access.html">what a warp touches</a> <a href="index.html#ladder">ladder</a>
<a href="wrong.html">what we got wrong</a> <a href="index.html#glossary">glossary</a>
<a href="api.html">Python interface</a>
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
    "u·D": "the unit of the gate's error: u is half a unit in the last place, D the root of the sum of (a·b)²",
    "E1": "a family of inputs: integers as large as K allows for an exact result in any order",
    "E2": "a family of inputs: A of odd integers of 12 bits, B of 1 and −1, which shows operands that were rounded",
    "E3": "a family of inputs: E2 with A and B exchanged",
    "gremlin": "one of the article's four mistakes of a benchmark; the others are called pitfalls",
    "pitfall": "a setting of a benchmark that makes its times too short or too long",
    "harness": "the code that times a kernel: it waits, flushes L2, launches, takes samples and stops",
    "gate": "the check that a kernel must pass before it is timed: exact results, precision, no data races",
    "ceiling": "the rate that was measured on the same card with multiply-adds in FP32 alone",
}


class Steps:
    """The steps of a site, of about a second each. A step is reported when it begins."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.total = total
        self.finished = 0

    def begin(self, step: str) -> None:
        """Report the next step."""
        self.progress(self.finished, self.total, step)
        self.finished += 1


def site(
    run: Run | None = None, grid: Run | Path | None = None, progress: Progress = silent
) -> dict[str, bytes]:
    """Return every file by name.

    run: for the ladder and the charts, as for `worklog figures`
    grid: for the panel (default: the panel's recording)
    progress: called at each step
    Raises BadRunFile if there is no run, NotRecorded for a grid without an unbiased reading.
    """
    kernels = (*LADDER, *FP32)
    steps = Steps(progress, ANSWER_STEPS + len(_notebooks()) + CHARTS + len(kernels))
    data = answers(grid, steps)
    written = chapters(steps)
    charts = dict[str, bytes]()
    html = {"index.html": _index(run, written, charts, steps), **pages(written)}
    documents = []
    for kernel in kernels:
        steps.begin(f"accesses of {kernel.name}")
        documents.append(access(kernel).document)
    html["access.html"] = viewer(documents, HEADER)
    html["api.html"] = _page(api.TITLE, api.ABOUT, api.page_body())
    return {name: text.encode() for name, text in html.items()} | charts | {"data.js": data}


def _index(run: Run | None, written: list[Chapter], charts: dict[str, bytes], steps: Steps) -> str:
    """Return index.html, and add the files of its charts to `charts`."""
    cards = [f"<li><b>{chapter.link()}</b> {escape(chapter.summary)}</li>" for chapter in written]
    ladder_run = holding(jobs_of(None, SIZE)[0]) if run is None else run
    sizes_run = in_steps() if run is None and ladder_run.origin == "recorded" else ladder_run
    body = part(
        "site.html",
        header=HEADER,
        rungs=str(len(RUNGS)),
        first=written[0].page,
        story=str(len(STORY)),
        warps="".join(_load(name) for name in TEASED),
        chapters="".join(cards[: len(STORY)]),
        wrong=str(sum(len(beliefs(chapter.body)) for chapter in written)),
        reference="".join(cards[len(STORY) :]),
        ladder=_ladder(ladder_run),
        sizes=_chart("sizes", partial(plots.sizes, sizes_run), charts, steps),
        peers=_chart("peers", plots.peers, charts, steps),
        glossary=glossary(),
        version=__version__,
        script="\n\n".join(part(f"{name}.js") for name in ("dom", "panel", "site")),
    )
    return document("worklog: SGEMM kernels, checked and timed", ABOUT, body, "panel")


def answers(run: Run | Path | None, steps: Steps | None = None) -> bytes:
    """Return data.js: every answer of the panel, by choice.

    A choice is without the settings that change only a sentence. An answer is the places of its
    parts in `parts`, because most parts belong to several answers.
    """
    grids = grid_runs(run)
    if not grids:
        raise BadRunFile(
            "the panel has no recording with WORKLOG_SOURCE=live: give one of `python -m tests.record.grid` with --grid"
        )
    grid = grids[0]
    panel = _panel(grid)
    steps = steps or Steps(silent, ANSWER_STEPS)
    timed = [place for place, pitfall in enumerate(PITFALLS) if pitfall.setting not in SPOKEN]
    data: dict[str, Any] = {"start": panel.chosen, "timed": timed, "answers": {}}
    data["table"] = {name: values for name, values in panel.table.items() if name != "live"}
    parts = dict[str, int]()
    choices = [*_choices(panel.answers, grid)]
    begins = Counter(step * len(choices) // ANSWER_STEPS for step in range(ANSWER_STEPS))
    for number, choice in enumerate(choices):
        for _ in range(begins[number]):
            steps.begin(f"answer {number} of {len(choices)} of the panel")
        panel.chosen = choice
        answer = {}
        for name, value in panel.answer.items():
            text = json.dumps(value, ensure_ascii=False)
            answer[name] = parts.setdefault(text, len(parts))
        key = (choice["kernel"], choice["size"], *(choice["values"][place] for place in timed))
        data["answers"]["/".join(map(str, key))] = answer
    data["parts"] = [*map(json.loads, parts)]
    return f'globalThis.worklogData = "{packed(data)}";\n'.encode()


def _panel(grid: Run) -> Panel:
    """Return the page's panel: the last kernel at the largest size, with all four gremlins.

    It begins unbiased if the grid has no time with all four.
    Raises NotRecorded for a grid without an unbiased reading.
    """
    source = Answers([grid])
    kernel = source.kernels[-1]
    largest = source.shapes[-1]
    if not any(source.has(m.kernel, m.problem, source.unbiased) for m in grid.measurements):
        raise NotRecorded(
            f"this {grid.origin} run has no unbiased reading: make one: `python -m tests.record.grid`"
        )
    gremlins = {pitfall.setting: pitfall.biased[0] for pitfall in PITFALLS if pitfall.article}
    if not source.has(kernel, largest, source.unbiased | gremlins):
        gremlins = {}
    panel = Panel(source, kernel, largest, gremlins)
    panel.reason = "the page measures nothing"
    return panel


def _choices(source: Answers, grid: Run) -> Iterator[dict[str, Any]]:
    """Yield everything that a reader of the page can choose.

    These are each measurement's settings, with all values of the settings that need no further
    launches.
    """
    for m in grid.measurements:
        if m.status != "measured" or not source.has(m.kernel, m.problem, source.unbiased):
            continue
        free = [*COMPUTED, QUEUE] if m.changed.get("timer") == "host" else COMPUTED
        names = [pitfall.setting for pitfall in free]
        kernel = source.kernels.index(m.kernel)
        size = source.shapes.index(m.problem)
        for values in product(*(pitfall.values for pitfall in free)):
            settings = source.unbiased | m.changed | dict(zip(names, values, strict=True))
            yield {"kernel": kernel, "size": size, "values": places(settings)}


def _ladder(run: Run) -> str:
    """Return a row for everything that was measured at one shape.

    A rung's row opens to what changed, what that costs, and what it gains.
    """
    shape = shape_to_draw(run, None)
    measurements = rows(run, shape)
    rungs = {record.name: Climb(run, record.name, shape) for record in LADDER}
    fastest = max((m.tflops or 0.0 for m in measurements), default=0.0) or 1.0
    html = ""
    for m in measurements:
        share = "" if m.kernel == CUBLAS else f" · {percent(m.ratio)}"
        rate = f"{m.tflops:.2f}{share}" if measured(m) else "not measured"
        track = f'<span class="track"><i style="left:0;width:{100 * (m.tflops or 0.0) / fastest:.2f}%"></i></span>'
        row = f'<span class="row rung"><span>{m.kernel}</span>{track}<span>{rate}</span></span>'
        details = rungs[m.kernel]._repr_html_() if m.kernel in rungs else ""
        if details:
            html += f'<details name="rung"><summary>{row}</summary>{details}</details>'
        else:
            html += f"<div>{row}</div>"
    return f'<p class="source">TFLOP/s at {shape} · share of cuBLAS · {run.full_label}</p>{html}'


def _chart(name: str, draw: Callable[[], Chart], files: dict[str, bytes], steps: Steps) -> str:
    """Return a chart for light and dark pages, or the reason why there is none.

    It is in a box that scrolls if the page is narrower. The pictures are added to `files`.
    """
    steps.begin(f"chart {name}")
    try:
        chart = draw()
    except NothingToDraw as nothing:
        return f"<p>{escape(str(nothing))}</p>"
    light = f"{chart.name}.png"
    dark = f"{chart.name}_dark.png"
    files |= {light: chart.png(), dark: chart.png(dark=True)}
    picture = f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    picture += f'<img src="{light}" loading="lazy" alt="{escape(chart.alt)}"></picture>'
    return f'<div class="figure" tabindex="0" role="region" aria-label="{escape(chart.headline)}">{picture}</div>'


def _load(name: str) -> str:
    """Return a picture of the load of a rung's first warp that moves most sectors.

    It shows the sectors, and the words in them that the lanes read.
    """
    kinds = access(name).document["kinds"]
    loads = [kind for kind in kinds if " read " in kind["text"]]
    load = max(loads, key=lambda kind: kind["counts"][0])
    indices = {offset // 4 for offset in load["lanes"]}  # of the 4-byte words
    sectors = sorted({index // 8 for index in indices})
    groups = ""
    for place, sector in enumerate(sectors):
        paths = {"used": "", "pale": ""}
        for number in range(8):
            kind = "used" if 8 * sector + number in indices else "pale"
            paths[kind] += f"M{8.6 * (place % 4) + number:.1f} {1.3 * (place // 4):.1f}h.9v1h-.9z"
        squares = "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in paths.items())
        groups += f'<g style="--place:{place}">{squares}</g>'
    height = 1.3 * math.ceil(len(sectors) / 4)
    picture = f'<svg viewBox="0 0 34 {height:.1f}" aria-hidden="true">{groups}</svg>'
    text = f"<b>{name}</b>: {load['text']}: <b>{load['cost']}</b>"
    style = "bad" if load["bad"] else "good"
    return f'<a class="{style}" href="access.html#{name}/0/9/1">{text}{picture}</a>'


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


def chapters(steps: Steps) -> list[Chapter]:
    """Return the chapters in the order of reading.

    Raises WorklogError if the package has lost its notebooks.
    """
    from nbconvert import HTMLExporter  # takes a second, with nbformat

    exporter = HTMLExporter(template_name="basic")  # type: ignore[no-untyped-call]
    written = []
    for file in _notebooks():
        steps.begin(f"notebook {file.stem}")
        written.append(_chapter(file, exporter))
    return written


def _notebooks() -> list[Path]:
    """Return the notebooks' files in the order of reading. Raises WorklogError."""
    files = sorted(source_folder("_notebooks", "notebooks").glob("[0-9]*.ipynb"))
    return sorted(files, key=lambda file: (*STORY, file.name[:2]).index(file.name[:2]))


def pages(written: list[Chapter]) -> dict[str, str]:
    """Return HTML by file name: each chapter, and wrong.html."""
    html = dict[str, str]()
    wrong = [f"<h1>{WRONG}</h1>"]
    wrong.append(
        "<p>A sentence that says why is a claim, and a measurement may refute it. We keep both: these are the beliefs "
        "that were wrong, or too simple, each with what happened, and the chapter that shows it.</p>"
    )
    for chapter, following in zip(written, [*written[1:], None], strict=True):
        onward = f"<p>{following.link('Next: ')}</p>" if following else ""
        html[chapter.page] = _page(chapter.title, chapter.summary, chapter.body + onward)
        for belief in beliefs(chapter.body):
            wrong.append(f"<article>{belief}<p>{chapter.link()}</p></article>")
    html["wrong.html"] = _page(WRONG, "Beliefs that measurements refuted.", "".join(wrong))
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
        outcome = next((candidate for candidate in nearby if CAME in candidate), None)
        if outcome:
            stories.append(paragraph if outcome == paragraph else paragraph + outcome)
    return stories


def glossary() -> str:
    """Return the terms as a list. The first use of a term on each page links to it."""
    terms = (
        f'<dt id="{_anchor(term)}">{term}</dt><dd>{escape(meaning[:1].upper() + meaning[1:])}.</dd>'
        for term, meaning in GLOSSARY.items()
    )
    return f"<dl>{''.join(terms)}</dl>"


def _chapter(file: Path, exporter: Any) -> Chapter:
    """Return the page of a notebook."""
    import nbformat

    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    title, paragraph = notebook.cells[0].source.split("\n\n")[:2]
    cells = []
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", ()):
            continue  # nothing runs on a page
        cells.append(cell)
        address = _live_page(cell)
        if address is not None:
            link = f"[→ Try it on this site]({address})"
            cells.append(nbformat.v4.new_markdown_cell(link))  # type: ignore[no-untyped-call]
    notebook.cells = cells
    body, _ = exporter.from_notebook_node(notebook)
    return Chapter(
        f"{file.stem}.html",
        title.removeprefix("# "),
        _summary(paragraph),
        _with_terms(_for_the_site(body)),
    )


def _summary(paragraph: str) -> str:
    """Return the first sentence of a chapter's goal; the first two if the first one is short."""
    text = " ".join(paragraph.split()).replace("`", "")
    text = re.sub(r"^\*\*Goal:\*\* (\w)", lambda goal: goal[1].upper(), text)
    sentences = re.split(r"(?<=\.) ", text)
    count = 1 if len(sentences[0]) > SHORT else 2
    return " ".join(sentences[:count])


def _live_page(cell: Any) -> str | None:
    """Return the address of the page that shows live what a cell shows; None if there is none."""
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


def _with_terms(body: str) -> str:
    """Return HTML in which the first use of each term links to the glossary.

    Only paragraphs have links. A link shows the term's meaning on hover.
    """
    for term, meaning in GLOSSARY.items():
        link = f'<a class="term" href="index.html#{_anchor(term)}" title="{escape(meaning)}">'
        first_use = rf"(<p>[^<]*?)\b(?<!pull )({re.escape(term)}s?)\b(?=[^<]*<)"
        body = re.sub(first_use, rf"\1{link}\2</a>", body, count=1)
    return body


def _anchor(term: str) -> str:
    """Return the id of a term in the glossary."""
    return "term-" + re.sub(r"\W", "", term)


def _page(title: str, about: str, body: str) -> str:
    """Return a page with the site's header."""
    return document(
        f"worklog: {title}", about, f'{HEADER}\n<main class="chapter">\n{body}\n</main>'
    )
