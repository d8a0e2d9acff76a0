"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that they show is computed here. panel.js draws the panel as in a notebook, and site.js looks up the answers
that a notebook's kernel would compute.
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
from worklog.kernel import FP32, LADDER, RUNGS, source_folder
from worklog.lab.pages import document, packed, part, viewer
from worklog.lab.readings import LAUNCHES, SPOKEN, Answers, NotRecorded, grid_runs
from worklog.lab.rungs import SIZE, Climb
from worklog.lab.widgets import Panel, places
from worklog.plots import Chart, shape_to_draw
from worklog.plots.selection import measured, rows
from worklog.runner.measure import holding, jobs_of
from worklog.runs import CUBLAS, BadRunFile, NothingToDraw, Progress, Run, in_steps, percent, silent
from worklog.settings import PITFALLS
from worklog.viewer.accesses import access

# With another value of these, the launches are the same.
COMPUTED = [g for g in PITFALLS if g not in LAUNCHES and g.setting not in SPOKEN]
QUEUE = next(
    g for g in PITFALLS if g.setting == "queue"
)  # with a host clock, any of its values gives one answer
TEASED = ("naive", "coalesced")
ABOUT = "SGEMM kernels on an NVIDIA GPU, from naive to past cuBLAS: checked, timed, and explained by what they touch."
STORY = (
    "00",
    "01",
    "08",
    "05",
    "06",
    "07",
    "12",
    "13",
    "14",
)  # in the order of reading; the others are the reference
ANSWER_STEPS = 40  # of the progress, since 7,600 answers take as long as all else
CHARTS = 2
SHORT = 60  # letters; after such a sentence, the next one is shown, too
BELIEVED = "What we believed"
CAME = "What happened"
WRONG = "What we got wrong"
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
    """The steps of a site, each of about a second, which are reported as they begin."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.total = total
        self.done = 0

    def begin(self, doing: str) -> None:
        """Report what the next step does."""
        self.progress(self.done, self.total, doing)
        self.done += 1


def site(
    run: Run | None = None, grid: Run | Path | None = None, progress: Progress = silent
) -> dict[str, bytes]:
    """Every file by name. run: for the ladder and the charts, as for `worklog figures`; grid: for the panel, its own
    recording by default. progress: called at each step. Raises BadRunFile where there is no run, NotRecorded for a grid
    without an unbiased reading.
    """
    viewed = (*LADDER, *FP32)
    steps = Steps(progress, ANSWER_STEPS + len(_notebooks()) + CHARTS + len(viewed))
    data = answers(grid, steps)
    charts = dict[str, bytes]()
    written = chapters(steps)
    cards = [f"<li><b>{chapter.link()}</b> {escape(chapter.summary)}</li>" for chapter in written]
    shown = holding(jobs_of(None, SIZE)[0]) if run is None else run
    stepped = in_steps() if run is None and shown.origin == "recorded" else shown
    index = part(
        "site.html",
        header=HEADER,
        rungs=str(len(RUNGS)),
        first=written[0].page,
        story=str(len(STORY)),
        warps="".join(_load(name) for name in TEASED),
        chapters="".join(cards[: len(STORY)]),
        wrong=str(sum(len(beliefs(chapter.body)) for chapter in written)),
        reference="".join(cards[len(STORY) :]),
        ladder=_ladder(shown),
        sizes=_chart("sizes", partial(plots.sizes, stepped), charts, steps),
        peers=_chart("peers", plots.peers, charts, steps),
        glossary=glossary(),
        version=__version__,
        script="\n\n".join(part(f"{name}.js") for name in ("dom", "panel", "site")),
    )
    html = {
        "index.html": document("worklog: SGEMM kernels, checked and timed", ABOUT, index, "panel"),
        **pages(written),
    }
    documents = []
    for kernel in viewed:
        steps.begin(f"accesses of {kernel.name}")
        documents.append(access(kernel).document)
    html["access.html"] = viewer(documents, HEADER)
    return {name: text.encode() for name, text in html.items()} | charts | {"data.js": data}


def answers(given: Run | Path | None, steps: Steps | None = None) -> bytes:
    """data.js: every answer of the panel, by what is chosen but for settings that change only words. Each part of an
    answer is its place in `parts`, because most parts belong to several answers.
    """
    grids = grid_runs(given)
    if not grids:
        raise BadRunFile(
            "the panel has no recording with WORKLOG_SOURCE=live: give one of `python -m tests.record.grid` with --grid"
        )
    of = Answers([grids[0]])
    grid = grids[0]
    kernel = of.kernels[-1]
    largest = of.shapes[-1]
    parts = dict[str, int]()
    if not any(of.has(m.kernel, m.problem, of.unbiased) for m in grid.measurements):
        raise NotRecorded(
            f"this {grid.origin} run has no unbiased reading: make one: `python -m tests.record.grid`"
        )
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    panel = Panel(of, kernel, largest, four if of.has(kernel, largest, of.unbiased | four) else {})
    panel.reason = "the page measures nothing"
    timed = [place for place, g in enumerate(PITFALLS) if g.setting not in SPOKEN]
    data: dict[str, Any] = {"start": panel.chosen, "timed": timed, "answers": {}}
    data["table"] = {name: values for name, values in panel.table.items() if name != "live"}
    steps = steps or Steps(silent, ANSWER_STEPS)
    choices = [*_choices(of, grid)]
    begins = Counter(step * len(choices) // ANSWER_STEPS for step in range(ANSWER_STEPS))
    for number, chosen in enumerate(choices):
        for _ in range(begins[number]):
            steps.begin(f"answer {number} of {len(choices)} of the panel")
        panel.chosen = chosen
        key = (chosen["kernel"], chosen["size"], *(chosen["values"][place] for place in timed))
        texts = {
            name: json.dumps(value, ensure_ascii=False) for name, value in panel.answer.items()
        }
        answer = {name: parts.setdefault(text, len(parts)) for name, text in texts.items()}
        data["answers"]["/".join(map(str, key))] = answer
    return f'globalThis.worklogData = "{packed(data | {"parts": [*map(json.loads, parts)]})}";\n'.encode()


def _choices(of: Answers, grid: Run) -> Iterator[dict[str, Any]]:
    """What a reader of the page can choose: each measurement's settings, and those that need no further launches."""
    for m in grid.measurements:
        if m.status != "measured" or not of.has(m.kernel, m.problem, of.unbiased):
            continue
        free = [*COMPUTED, QUEUE] if m.changed.get("timer") == "host" else COMPUTED
        where = {"kernel": of.kernels.index(m.kernel), "size": of.shapes.index(m.problem)}
        for values in product(*(g.values for g in free)):
            chosen = dict(zip((g.setting for g in free), values, strict=True))
            yield {**where, "values": places(of.unbiased | m.changed | chosen)}


def _ladder(run: Run) -> str:
    """Everything that was measured at one shape; a rung opens to what changed, what that costs, and what it gains."""
    shape = shape_to_draw(run, None)
    shown = rows(run, shape)
    rungs = {record.name: Climb(run, record.name, shape) for record in LADDER}
    fastest = max((m.tflops or 0.0 for m in shown), default=0.0) or 1.0
    html = ""
    for m in shown:
        share = "" if m.kernel == CUBLAS else f" · {percent(m.ratio)}"
        words = f"{m.tflops:.2f}{share}" if measured(m) else "not measured"
        track = f'<span class="track"><i style="left:0;width:{100 * (m.tflops or 0.0) / fastest:.2f}%"></i></span>'
        row = f'<span class="row rung"><span>{m.kernel}</span>{track}<span>{words}</span></span>'
        inside = rungs[m.kernel]._repr_html_() if m.kernel in rungs else ""
        html += (
            f'<details name="rung"><summary>{row}</summary>{inside}</details>'
            if inside
            else f"<div>{row}</div>"
        )
    return f'<p class="source">TFLOP/s at {shape} · share of cuBLAS · {run.full_label}</p>{html}'


def _chart(name: str, draw: Callable[[], Chart], files: dict[str, bytes], steps: Steps) -> str:
    """A chart for light and dark pages, in a box that scrolls where the page is narrower; or why there is none."""
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
    """The load of a rung's first warp that moves most: its sectors, and the words in them that the lanes read."""
    kinds = access(name).document["kinds"]
    load = max(
        (kind for kind in kinds if " read " in kind["text"]), key=lambda kind: kind["counts"][0]
    )
    words = {offset // 4 for offset in load["lanes"]}
    sectors = sorted({word // 8 for word in words})
    drawn = ""
    for place, sector in enumerate(sectors):
        paths = {"used": "", "pale": ""}
        for word in range(8):
            kind = "used" if 8 * sector + word in words else "pale"
            paths[kind] += f"M{8.6 * (place % 4) + word:.1f} {1.3 * (place // 4):.1f}h.9v1h-.9z"
        inside = "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in paths.items())
        drawn += f'<g style="--place:{place}">{inside}</g>'
    picture = f'<svg viewBox="0 0 34 {1.3 * math.ceil(len(sectors) / 4):.1f}" aria-hidden="true">{drawn}</svg>'
    said = f"<b>{name}</b>: {load['text']}: <b>{load['cost']}</b>"
    return f'<a class="{"bad" if load["bad"] else "good"}" href="access.html#{name}/0/9/1">{said}{picture}</a>'


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


def chapters(steps: Steps) -> list[Chapter]:
    """In the order of reading. Raises WorklogError where the package has lost its notebooks."""
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


def pages(of: list[Chapter]) -> dict[str, str]:
    """HTML by file name: each chapter, and wrong.html."""
    written = dict[str, str]()
    wrong = [f"<h1>{WRONG}</h1>"]
    wrong.append(
        "<p>A sentence that says why is a claim, and a measurement may refute it. We keep both: these are the beliefs "
        "that were wrong, or too simple, each with what happened, and the chapter that shows it.</p>"
    )
    for chapter, after in zip(of, [*of[1:], None], strict=True):
        onward = f"<p>{after.link('Next: ')}</p>" if after else ""
        written[chapter.page] = _page(chapter.title, chapter.summary, chapter.body + onward)
        wrong += [
            f"<article>{said}<p>{chapter.link()}</p></article>" for said in beliefs(chapter.body)
        ]
    return written | {
        "wrong.html": _page(WRONG, "Beliefs that measurements refuted.", "".join(wrong))
    }


def beliefs(body: str) -> list[str]:
    """Each paragraph with what was believed, and the one with what happened."""
    stories = list[str]()
    paragraphs = re.findall(r"<p>.*?</p>", body, re.DOTALL)
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
    words = re.sub(
        r"^\*\*Goal:\*\* (\w)",
        lambda goal: goal[1].upper(),
        " ".join(paragraph.split()).replace("`", ""),
    )
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
    body = re.sub(
        r"<th([^>]*)>(?:\s|&nbsp;)*</th>", r"<td\1></td>", body
    )  # a header without words isn't one
    body = re.sub(
        r'<(?:pre|div(?= class="output_(?:html|png|markdown)))', r'\g<0> tabindex="0"', body
    )  # may scroll
    for (
        term,
        words,
    ) in GLOSSARY.items():  # the first use in a paragraph is linked, with its meaning on hover
        link = f'<a class="term" href="index.html#{_place(term)}" title="{escape(words)}">'
        body = re.sub(
            rf"(<p>[^<]*?)\b(?<!pull )({re.escape(term)}s?)\b(?=[^<]*<)",
            rf"\1{link}\2</a>",
            body,
            count=1,
        )
    return Chapter(f"{file.stem}.html", title.removeprefix("# "), summary, body)


def _place(term: str) -> str:
    return "term-" + re.sub(r"\W", "", term)


def _page(title: str, about: str, body: str) -> str:
    return document(
        f"worklog: {title}", about, f'{HEADER}\n<main class="chapter">\n{body}\n</main>'
    )
