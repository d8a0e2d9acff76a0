"""The terms of the site, which each page explains at their first use.

03_the_ground introduces those of the hardware.
"""

from __future__ import annotations

import re
from html import escape

from worklog.site.pages import site_page

PAGE = "glossary.html"
TITLE = "Glossary"
GLOSSARY = {
    "thread": "one run of a kernel's code, with an index and registers of its own",
    "warp": "32 threads with neighbouring numbers, which execute each instruction at once",
    "block": (
        "up to 1024 threads that run on one multiprocessor, share its shared memory, and can wait "
        "for each other"
    ),
    "SM": "a streaming multiprocessor, which runs one or more blocks at a time",
    "barrier": "__syncthreads(): no thread of a block passes it before all have reached it",
    "tile": "the rectangle of C that a block computes, or a part of A or B that it copies",
    "grid": "all blocks of a launch",
    "row-major": "one row after the other in memory, so the elements of a row are neighbours",
    "line": "128 bytes of memory that begin at a multiple of 128: what L1 finds with one lookup",
    "lookup": "the search of one line in L1, which does one per clock",
    "register": "a word of 4 bytes that belongs to one thread, from which instructions read",
    "bandwidth": "the bytes that a memory delivers in a second",
    "latency": "the time that a load waits for its bytes",
    "ridge": ("the operations per byte at which computing and moving the bytes take the same time"),
    "wavefront": (
        "what shared memory delivers to a warp in one clock: at most one 4-byte word of each bank"
    ),
    "sector": (
        "32 bytes of memory that begin at a multiple of 32: the unit in which L1, L2 and DRAM "
        "move data"
    ),
    "request": "one load or store instruction of a warp: 32 lanes at once",
    "lane": "one of the 32 threads of a warp",
    "bank": (
        "one of the 32 columns of shared memory, 4 bytes wide; two words of one bank take two "
        "wavefronts"
    ),
    "occupancy": (
        "the warps that are resident on a multiprocessor, as a share of the most that it can hold"
    ),
    "floor": (
        "a lower bound of a kernel's time: the busiest of four units, at its peak rate all the time"
    ),
    "rung": "a kernel of the ladder, which adds one idea to the one before",
    "u·D": (
        "the unit of the gate's error: u is half a unit in the last place, D the root of the sum "
        "of (a·b)²"
    ),
    "E1": "a family of inputs: integers as large as K allows for an exact result in any order",
    "E2": (
        "a family of inputs: A of odd integers of 12 bits, B of 1 and −1, which shows operands "
        "that were rounded"
    ),
    "E3": "a family of inputs: E2 with A and B exchanged",
    "gremlin": "one of the article's four mistakes of a benchmark; the others are called pitfalls",
    "pitfall": "a setting of a benchmark that makes its times too short or too long",
    "harness": (
        "the code that times a kernel: it waits, flushes L2, launches, takes samples and stops"
    ),
    "gate": (
        "the check that a kernel must pass before it is timed: exact results, precision, no data "
        "races"
    ),
    "ceiling": "the rate that was measured on the same card with multiply-adds in FP32 alone",
}

EVERYDAY = {"line"}  # terms that pages also use for something else: they have no links


def glossary() -> str:
    """Return the terms as a list. The first use of a term on each page links to it."""
    terms = (
        f'<div id="{_anchor(term)}"><dt>{term}</dt>'
        f"<dd>{escape(meaning[:1].upper() + meaning[1:])}.</dd></div>"
        for term, meaning in sorted(GLOSSARY.items(), key=lambda entry: entry[0].lower())
    )
    return f'<dl class="glossary">{"".join(terms)}</dl>'


def glossary_page() -> str:
    """Return glossary.html."""
    lead = (
        "The words of the story and of every message. A chapter links the first use of each, and "
        "a wide page has the meaning in its margin."
    )
    body = f'<h1>{TITLE}</h1><p class="lead">{lead}</p>{glossary()}'
    return site_page(PAGE, TITLE, "The terms of worklog, each in a sentence.", body)


def with_terms(body: str) -> str:
    """Return HTML in which the first use of each term links to the glossary.

    Only paragraphs have links. The term's meaning is a note before the paragraph, which a wide page
    shows in its margin. A link also shows it on hover.
    """
    for term, meaning in GLOSSARY.items():
        if term in EVERYDAY:
            continue
        about = escape(meaning)
        link = f'<a class="term" href="{PAGE}#{_anchor(term)}" title="{about}">'
        note = f'<p class="note" role="note"><b>{term}</b> {about}</p>'
        first_use = rf"(<p>[^<]*?)\b(?<!pull )({re.escape(term)}s?)\b(?=[^<]*<)"
        body = re.sub(first_use, rf"{note}\1{link}\2</a>", body, count=1)
    return body


def _anchor(term: str) -> str:
    """Return the id of a term in the glossary."""
    return "term-" + re.sub(r"\W", "", term)
