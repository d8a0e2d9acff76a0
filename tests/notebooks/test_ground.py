"""Notebook 03: each term of the hardware once, and the numbers that its answers name."""

import math
import re

import jupytext
import pytest

import worklog
from tests.record.notebooks import sources
from worklog.emulator.limits import LIMITS
from worklog.kernel.ladder import memory_counts
from worklog.kernel.prediction import bound
from worklog.plots.ground.touched import touched_by
from worklog.problem import Shape
from worklog.site.glossary import EVERYDAY, GLOSSARY, glossary, with_terms

RUN = worklog.results(["naive", "coalesced"], [4096])
CELLS = jupytext.read(*sources(["03"])).cells
PROSE = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
PLURAL = {"registers": "register", "lanes": "lane", "lines": "line", "sectors": "sector"}
PLURAL |= {"banks": "bank"}


def introduced() -> list[str]:
    """Return the terms in italics, in their order."""
    terms = re.findall(r"(?<!\*)\*([\w-]+)\*(?!\*)", PROSE)
    return [PLURAL.get(term, term.lower() if term == term.title() else term) for term in terms]


def test_each_term_is_introduced_once_and_the_glossary_has_it():
    [concepts] = re.findall(r"\*\*New concepts:\*\* (.*?)\.\n", PROSE, re.DOTALL)
    names = re.split(r",\s+", concepts)
    assert sorted(introduced()) == sorted(names)
    assert {*names} <= GLOSSARY.keys()
    listed = glossary()
    assert all(f">{name}</dt>" in listed for name in names)


# Terms that the story's first eight pages don't use in their text.
LATER = {"pitfall", "ceiling", "u·D", "E1", "E2", "E3"}
STORY = [source for source in sources() if source.name[:2] <= "07"]


def paragraphs() -> list[tuple[str, str]]:
    """Return each paragraph of 00 to 07 after its notebook: no headings, no lists of concepts."""
    rows = []
    for source in STORY:
        for cell in jupytext.read(source).cells:
            if cell.cell_type == "markdown":
                parts = cell.source.split("\n\n")
                rows += [(source.stem, part) for part in parts if not re.match(r"#|\*\*New", part)]
    return rows


@pytest.mark.parametrize("term", sorted(GLOSSARY.keys() - LATER - EVERYDAY))
def test_a_term_is_introduced_in_the_paragraph_that_uses_it_first(term):
    used = re.compile(
        rf"(?<![\w`]){re.escape(term)}s?(?![\w`])", 0 if term == "SM" else re.IGNORECASE
    )
    uses = [(notebook, text) for notebook, text in paragraphs() if used.search(text)]
    notebook, first = uses[0]
    assert re.search(rf"\*{re.escape(term)}s?\*", first), f"{notebook}: {first}"


def test_a_term_with_an_everyday_meaning_has_no_link():
    page = with_terms("<p>A warp reads a line.</p>")
    assert ">warp</a>" in page and ">line</a>" not in page
    assert GLOSSARY.keys() >= EVERYDAY


def answers(cell_source: str) -> str:
    return " ".join(re.findall(r"</summary>(.*?)</details>", cell_source, re.DOTALL))


def test_each_bet_is_asked_before_its_folded_answer():
    asked = [place for place, cell in enumerate(CELLS) if "**Bet:**" in cell.source]
    assert len(asked) == 3
    for place in asked:
        source = CELLS[place].source
        assert source.index("**Bet:**") < source.index("<details>")
        assert source.count("<details>") == source.count("</details>") == 1
        assert CELLS[place + 1].metadata["jupyter"]["outputs_hidden"], "until the cell runs"


def per_fma(name: str) -> float:
    counts = memory_counts().rungs[name]
    return 32 * counts.load_lines / counts.thread_fma


def bets() -> list[tuple[str, list[str]]]:
    """Return a part of each question, and the numbers that its answer must have."""
    row = touched_by(range(32))
    column = touched_by(range(0, 32 * 64, 64))
    known = RUN.calibration
    latency = known.warm_cycles
    lines = known.copy_gbs * 1e9 * known.cold_cycles / RUN.gpu.sm_clock_mhz / 1e6
    lines /= RUN.gpu.multiprocessors * 128
    needed = {
        name: math.ceil((per_fma(name) + latency) / per_fma(name))
        for name in ("naive", "coalesced")
    }
    assert column.wavefronts == 32 and len(column.sectors) == 8 * len(row.sectors)
    assert needed["naive"] == 10 < LIMITS["sm_90"].warps < needed["coalesced"]
    return [
        ("the column need? <details>", [str(len(column.sectors)), str(len(row.sectors))]),
        ("DRAM delivers one float", [f"{2e3 * known.fp32_tflops / known.copy_gbs:.0f}"]),
        ("until L1 never idles", [f"{latency:.0f}", str(needed["coalesced"])]),
        ("enough loads are under way", [f"{known.cold_cycles:.0f}", f"{lines:.0f}"]),
    ]


@pytest.mark.parametrize(("question", "numbers"), bets(), ids=lambda value: str(value)[:24])
def test_an_answer_has_the_numbers_of_the_recording(question, numbers):
    [source] = [cell.source for cell in CELLS if question in " ".join(cell.source.split())]
    words = re.findall(r"\d[\d.]*\d|\d", answers(source))
    assert {*numbers} <= {*words}


def test_naive_is_at_the_floor_of_its_lookups():
    floor = bound(worklog.rung("naive"), Shape.of(4096), RUN.gpu)
    [naive] = RUN.select("naive")
    assert floor.limit == "L1 lookups" and per_fma("naive") == 33
    assert 1 <= (naive.us or 0.0) / 1e3 / floor.ms < 1.02
    assert floor.limits["multiply-adds"] < 0.01 * floor.ms
