"""The folder of `worklog site` without a browser: each link leads somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import unquote

import pytest

from tests.helpers import small_run
from tests.lab.grid import part_of_the_recording
from tests.record.notebooks import sources
from worklog.errors import WorklogError
from worklog.kernel import FP32, LADDER
from worklog.lab.chapters import STORY
from worklog.lab.site import site

MOST_BYTES = 300_000  # of the first page


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return site(grid=part_of_the_recording())


@pytest.fixture(scope="module")
def pages(files: dict[str, bytes]) -> dict[str, str]:
    return {name: content.decode() for name, content in files.items() if name.endswith(".html")}


def test_every_notebook_is_a_page_and_the_first_page_is_small(files: dict[str, bytes], pages: dict[str, str]) -> None:
    others = {"index.html", "wrong.html", "access.html"}
    assert {*pages} == {f"{source.stem}.html" for source in sources()} | others
    assert len(files["index.html"]) < MOST_BYTES


def test_every_link_has_its_page_and_its_place(files: dict[str, bytes], pages: dict[str, str]) -> None:
    places = {name: {*re.findall(r'\sid="([^"]*)"', html)} for name, html in pages.items()}
    places["access.html"] = {rung.name for rung in (*LADDER, *FP32)}
    for name, html in pages.items():
        links = re.findall(r'\b(?:href|src|srcset)="(?!data:|https?:)([^"]*)"', html)
        assert len(links) > 5, name
        for link in links:
            page, _, place = link.partition("#")
            assert (page or name) in files, f"{name}: {link}"
            where = unquote(place.partition("/")[0] if page == "access.html" else place)
            assert not where or where in places[page or name], f"{name}: {link}"


def test_nothing_is_loaded_from_elsewhere_and_ids_are_unique(pages: dict[str, str]) -> None:
    loads = r'(?:src|srcset|action)="(?:https?:)?//|<link [^>]*href="(?!data:)|url\((?!#|data:)|@import'
    for name, html in pages.items():
        assert not re.findall(loads, html), name
        ids = re.findall(r'<[^<>]*\sid="([^"]*)"', html)
        assert len({*ids}) == len(ids), name


def test_the_first_page_lists_the_chapters_in_the_order_of_reading(pages: dict[str, str]) -> None:
    linked = re.findall(r'<b><a href="(\d\d)_', pages["index.html"].partition('id="story"')[2])
    assert tuple(linked[: len(STORY)]) == STORY
    assert sorted(linked) == sorted(name[:2] for name in pages if name[:2].isdigit())


def test_each_belief_stands_with_what_came_and_a_link(pages: dict[str, str]) -> None:
    stories = re.findall(r"<article>(.*?)</article>", pages["wrong.html"], re.DOTALL)
    assert len(stories) > 8 and f"{len(stories)} beliefs" in pages["index.html"]
    for story in stories:
        assert story.index("What we believed") < story.index("What came") < story.rindex('<a href="')


def test_the_first_use_of_a_term_says_what_it_means_and_leads_to_the_glossary(pages: dict[str, str]) -> None:
    chapter = pages["05_climbing_the_ladder.html"]
    terms = re.findall(r'<a class="term" href="index.html#[\w-]+" title="([^"]+)">(\w+)</a>', chapter)
    assert {"sector", "rung"} <= {term.removesuffix("s") for _, term in terms} and len(
        {words for words, _ in terms}
    ) == len(terms)


def test_a_cell_that_shows_a_page_links_to_the_live_one(pages: dict[str, str]) -> None:
    assert 'href="index.html#panel">→ Try it' in pages["01_four_gremlins.html"]
    assert re.search(r'href="access.html#\w+">→ Try it', pages["05_climbing_the_ladder.html"])


def test_a_run_without_an_unbiased_reading_is_no_panel() -> None:
    with pytest.raises(WorklogError, match="no unbiased reading: make a grid with `worklog ablate --grid`"):
        site(grid=replace(small_run(), measurements=[]))
