"""Parts of the site's pages, without a browser: tests/browser/test_site.py opens them."""

import re

from worklog.analysis.accesses import access
from worklog.lab import site


def paragraphs(*texts: str) -> str:
    return "\n".join(f"<p>{text}</p>" for text in texts)


def test_a_belief_and_what_came_at_most_three_paragraphs_later_are_a_story():
    believed, came = f"{site.BELIEVED}: faster.", f"{site.CAME}: slower."
    page = paragraphs(
        "Title", believed, "a", "b", came, "c", believed, "d", "e", "f", came, f"{believed} {came}"
    )
    together, alone = paragraphs(believed, came).replace("\n", ""), paragraphs(f"{believed} {came}")
    assert site.beliefs(page) == [together, alone]


def test_the_picture_of_a_load_has_its_sectors_of_eight_words_and_marks_those_that_lanes_read():
    load = next(
        kind
        for kind in access("naive").document["kinds"]
        if kind["text"] == "32 lanes read 32 floats of A"
    )
    picture = site._load("naive")
    paths = dict.fromkeys(("used", "pale"), 0)
    for kind, path in re.findall(r'<path class="(\w+)" d="(.*?)"', picture):
        paths[kind] += path.count("M")
    assert picture.count("--place:") == load["counts"][0] == 32 and paths == {
        "used": 32,
        "pale": 7 * 32,
    }
