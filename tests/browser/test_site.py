"""The page of `worklog site` in a browser: it shows what Python computes, by mouse, keyboard and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import OTHERS, axe_findings, box, reading, rgb, tab_to
from tests.helpers import small_run
from worklog.errors import WorklogError
from worklog.lab.ladder_page import Climb, diff, ladder_runs
from worklog.lab.panel_answer import Answer, Answers, numbers
from worklog.lab.panel_page import places
from worklog.lab.readings import Settings, grid_runs
from worklog.lab.site import site
from worklog.plots.style import DARK, LIGHT
from worklog.problem import Shape
from worklog.runs.run import Run
from worklog.settings import PITFALLS, Value

MOST_BYTES = 3e6
FOUR: dict[str, Value] = {"clocks": "ignored", "timer": "host", "l2": "warm", "warmup": "none"}
ENDS = "rows => rows.map(row => [row.firstChild.textContent, row.lastChild.textContent])"
CELLS = "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="session")
def grid() -> Run:
    """A part of the panel's recording: one rung at every size, another one at the largest."""
    [whole] = grid_runs()
    largest, names = max(m.problem for m in whole.measurements), Answers([whole]).kernels
    kept = [m for m in whole.measurements if m.kernel == names[-1] or (m.kernel, m.problem) == (names[0], largest)]
    return replace(whole, measurements=sorted(kept, key=lambda m: names.index(m.kernel)))


@pytest.fixture(scope="session")
def html(grid: Run) -> str:
    return site(grid=grid)


@pytest.fixture(scope="module")
def opened(html: str, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, list[str]]]:
    """The page from the file system, and what the browser complains about or asks for."""
    path, noted = tmp_path_factory.mktemp("site") / "index.html", list[str]()
    path.write_text(html, encoding="utf-8")
    shown = browser.new_page(viewport={"width": 1440, "height": 900})
    shown.on("console", lambda message: noted.append(message.text))
    shown.on("pageerror", lambda error: noted.append(str(error)))
    shown.on("request", lambda request: None if request.url in (path.as_uri(), "data:,") else noted.append(request.url))
    shown.goto(path.as_uri())
    shown.wait_for_selector("html[data-ready]")
    yield shown, noted
    shown.close()


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page, wide and folded; a test fails with any error, message or request."""
    shown, noted = opened
    shown.set_viewport_size({"width": 1440, "height": 900})
    shown.get_by_role("button", name="all unbiased").click()
    shown.evaluate("() => document.querySelectorAll('details').forEach(folded => { folded.open = false; })")
    yield shown
    assert noted == []


def choose(page: Page, kernel: str, shape: Shape, settings: Settings) -> None:
    """Set the panel's controls."""
    page.get_by_role("combobox", name="rung").select_option(kernel)
    page.locator("#panel").get_by_role("combobox", name="size").select_option(str(shape))
    chosen = page.locator(".pitfall select").evaluate_all("all => all.map(select => select.selectedIndex)")
    for g, now, place in zip(PITFALLS, chosen, places(settings), strict=True):
        if place != now:
            page.get_by_label(f"value of {g.setting}").select_option(index=place)


def shows(page: Page, answer: Answer) -> None:
    """Fail unless the panel shows this answer, all of it."""
    unbiased, mine = page.locator(".card").all()
    for card, shown in ((unbiased, answer.unbiased), (mine, answer.reading)):
        time, rate, share = numbers(shown)
        expect(card.locator(".big")).to_have_text(rate)
        expect(card).to_contain_text(f"{time} · {share}")
    expect(reading(page.locator("#panel"))).to_contain_text(answer.comparison)
    expect(reading(page.locator("#panel"))).to_contain_text(answer.reading.measurement.label)
    in_words = [line for line in answer.text[3:-1] if not line.startswith("one by one: ")]  # the rows below
    expect(page.locator("#panel li")).to_have_text(in_words)
    drawn = page.locator("#panel .body .row").evaluate_all(ENDS)
    assert drawn == [[name, words] for name, *_, words in answer.as_json()["steps"]]
    expect(page.locator(".strip path")).to_have_count(1 if answer.same else 2)


def bars(page: Page) -> Locator:
    return page.locator("#ladder .bars")


def test_the_page_is_one_small_file_that_fetches_nothing(html: str) -> None:
    panel = re.findall(r'id="data">([^<]*)<', html)[0]
    assert len(html.encode()) + 2 * len(panel) < MOST_BYTES, "the whole grid holds 9 parts like the 4 of this test"
    ids = re.findall(r'\sid="([^"]*)"', html)
    assert len(set(ids)) == len(ids), "two charts' ids must not clash"
    asked = r'(?:src|href|action|srcset)="(?!#|data:|(?:access|wrong|\d\d_\w+)\.html)[^"]*"|url\((?!#)|@import|\bfetch\(|https?://'
    assert not re.findall(asked, html)


def test_a_run_without_an_unbiased_reading_is_no_panel() -> None:
    with pytest.raises(WorklogError, match="no unbiased reading: make a grid with `worklog ablate --grid`"):
        site(grid=replace(small_run(), measurements=[]))


def test_the_panel_shows_what_python_computes(page: Page, grid: Run) -> None:
    page.reload()
    answers = Answers([grid])
    first, last = answers.kernels[0], answers.kernels[-1]
    shows(page, answers.answer(last, answers.shapes[-1], **FOUR))
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    expect(reading(page.locator("#panel"))).to_be_in_viewport()
    page.get_by_text(OTHERS).click()
    biased: list[dict[str, Value]] = [
        {"offset": "kept", "statistic": "min"},
        {"l2": "warm", "queue": False, "gate": "article"},
        {"timer": "host", "queue": False, "roof": "bf16_datasheet", "statistic": "first"},
    ]
    for shape, changed in zip(answers.shapes, biased, strict=True):
        page.get_by_role("button", name="all unbiased").click()
        choose(page, last, shape, answers.unbiased | changed)
        shows(page, answers.answer(last, shape, **changed))
    page.get_by_role("button", name="all naive").click()
    shows(page, answers.answer(last, answers.shapes[-1], **answers.naive))
    page.get_by_role("combobox", name="rung").select_option(first)
    shows(page, answers.answer(first, answers.shapes[-1], **answers.naive))


def test_what_was_not_recorded_is_disabled_as_in_a_notebook(page: Page, grid: Run) -> None:
    page.get_by_text(OTHERS).click()
    answers, changed = Answers([grid]), {"order": "sequential", "baseline": "tf32"}
    where, settings = (answers.kernels[-1], answers.shapes[-1]), answers.unbiased | changed
    choose(page, *where, settings)
    shows(page, answers.answer(*where, **changed))
    for g in PITFALLS:
        options = page.get_by_label(f"value of {g.setting}").locator("option")
        disabled = options.evaluate_all("all => all.map(option => option.disabled)")
        assert disabled == [not answers.has(*where, settings | {g.setting: value}) for value in g.values], g.setting
    expect(box(page, "inputs")).to_be_disabled()
    page.get_by_role("combobox", name="rung").select_option(answers.kernels[0])
    size = page.locator("#panel").get_by_role("combobox", name="size")
    expect(size.get_by_role("option", name=str(answers.shapes[0]))).to_be_disabled()  # this rung has no reading there


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_and_the_charts_follow_the_scheme(page: Page, width: int, scheme: Any) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="all naive").click()
    page.evaluate("() => document.querySelectorAll('details:not([name])').forEach(folded => { folded.open = true; })")
    page.locator("#ablation summary", has_text="naive").click()
    expect(page.get_by_role("img", name=re.compile("the reading of naive, by size"))).to_be_visible()
    assert axe_findings(page) == []
    palette = DARK if scheme == "dark" else LIGHT
    expect(page.locator("body")).to_have_css("color", rgb(palette["ink"]))
    sources = page.locator("#peers picture > *").evaluate_all("all => all.map(part => part.srcset || part.src)")
    shown = page.locator("#peers img").evaluate("image => image.currentSrc")
    assert shown == sources[scheme == "light"] and sources[0] != sources[1]
    page.emulate_media(color_scheme="light")


def test_the_keyboard_alone_is_enough(page: Page, grid: Run) -> None:
    answers = Answers([grid])
    kernel, shape, settings = answers.kernels[-1], answers.shapes[-2], answers.unbiased | FOUR
    page.get_by_text(OTHERS).click()
    choose(page, kernel, answers.shapes[-1], settings)
    page.get_by_text(OTHERS).click()
    page.get_by_role("combobox", name="rung").focus()
    tab_to(page, page.locator("#panel").get_by_role("combobox", name="size"))
    page.keyboard.press("ArrowUp")
    shows(page, answers.answer(kernel, shape, **settings))
    tab_to(page, box(page, "timer"))
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineWidth") == "3px"
    page.keyboard.press("Space")
    shows(page, answers.answer(kernel, shape, **settings | {"timer": "events"}))
    tab_to(page, page.get_by_label("value of l2"))
    page.keyboard.press("f")
    shows(page, answers.answer(kernel, shape, **settings | {"timer": "events", "l2": "flush"}))
    page.locator("#ladder").get_by_role("combobox", name="size").focus()
    tab_to(page, bars(page).get_by_role("button", name=re.compile("^naive")), most=40)
    page.keyboard.press("Enter")
    expect(bars(page).get_by_role("button", name=re.compile("^naive"))).to_be_focused()
    tab_to(page, page.get_by_role("region", name="01_naive.cu"), most=40)


def test_the_ladder_shows_each_rung_and_what_changed(page: Page) -> None:
    climb = Climb(ladder_runs(), "vectorized", Shape.of(1024))
    page.locator("#ladder").get_by_role("combobox", name="size").select_option("1024")
    bars(page).get_by_role("button", name=re.compile("^vectorized")).click()
    expect(page.locator("#ladder .step p")).to_have_text(climb.sentences)
    for table in climb.tables:
        shown = page.get_by_role("table", name=table.title).evaluate(CELLS)
        assert shown == [list(table.columns), *([str(cell) for cell in row] for row in table.rows)]
    expect(bars(page).locator(".row")).to_have_text([name + words for name, _, words in climb.bars])
    changed = page.get_by_role("region", name="06_vectorized.cu against 05_tiles_2d.cu")
    assert changed.inner_text().splitlines() == list(diff("tiles_2d", "vectorized", around=2).lines)
    expect(page.get_by_text(climb.run.full_label).first).to_be_visible()


def test_a_phone_scrolls_down_only_and_keeps_the_reading_in_sight(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("() => document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
    assert page.evaluate(OVERFLOW) <= 0
    box(page, "roof").scroll_into_view_if_needed()
    expect(page.locator(".card .big").last).to_be_in_viewport()
    page.get_by_role("button", name="all naive").click()
    assert page.evaluate(OVERFLOW) <= 0
