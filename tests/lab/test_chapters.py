"""The notebooks as pages of the site: complete, without a request to elsewhere, each refuted belief with what came."""

from __future__ import annotations

import re

import pytest

from tests.record.notebooks import sources
from worklog.lab.chapters import STORY, chapters, contents


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return chapters()


def test_every_notebook_is_a_page_and_every_link_between_pages_has_one(pages: dict[str, str]) -> None:
    assert {*pages} == {f"{source.stem}.html" for source in sources()} | {"wrong.html"}
    beside = {"index.html", "access.html", *pages}
    for name, html in [*pages.items(), ("index.html", contents())]:
        linked = {link.partition("#")[0] for link in re.findall(r'href="([^":]*)"', html)} - {""}
        assert linked <= beside, name
        assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css|png|svg)', html), "nothing is loaded"
        assert "<script" not in html


def test_the_contents_are_in_the_order_of_reading(pages: dict[str, str]) -> None:
    linked = re.findall(r'href="(\d\d)_', contents())
    assert tuple(linked[: len(STORY)]) == STORY and sorted(linked) == sorted(
        name[:2] for name in pages if name[:2].isdigit()
    )


def test_each_belief_stands_with_what_came_and_a_link(pages: dict[str, str]) -> None:
    stories = re.findall(r"<article>(.*?)</article>", pages["wrong.html"], re.DOTALL)
    assert len(stories) > 8
    for story in stories:
        assert story.index("What we believed") < story.index("What came") < story.rindex('<a href="')


def test_the_first_use_of_a_term_says_what_it_means(pages: dict[str, str]) -> None:
    terms = re.findall(r'<dfn tabindex="0" title="([^"]+)">(\w+)</dfn>', pages["05_climbing_the_ladder.html"])
    assert {"sectors", "rung"} <= {term for _, term in terms} and len({words for words, _ in terms}) == len(terms)
