"""The page of `worklog site`: complete, self-contained, and in a browser the same as what Python computes."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import OTHERS, PAGES, UNNAMED, axe_findings, rgb, tab_to
from tests.helpers import small_run
from worklog.errors import WorklogError
from worklog.lab.choice import grid_runs, ladder_runs
from worklog.lab.ladder_page import Climb, diff
from worklog.lab.panel_answer import Answer, PanelChoice
from worklog.lab.readings import COMPUTED, NotRecorded
from worklog.lab.site import key_of, panel_table, site
from worklog.plots.figure import DARK, LIGHT
from worklog.runs.run import Run
from worklog.settings import PITFALLS, Value

MOST_BYTES = 3e6
FOUR: dict[str, Value] = {"clocks": "ignored", "timer": "host", "l2": "warm", "warmup": "none"}
UNRECORDED: dict[str, Value] = {"order": "sequential", "inputs": "zeros", "baseline": "tf32"}
ENDS = "rows => rows.map(row => [row.firstChild.textContent, row.lastChild.textContent])"
CELLS = "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="session")
def grid() -> Run:
    """A part of the panel's recording: one rung at every size, another one at the largest."""
    (whole,) = grid_runs()
    largest, names = max(m.problem for m in whole.measurements), PanelChoice([whole]).known_kernels()
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
    PAGES.append(shown)
    yield shown, noted
    PAGES.remove(shown)
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


def tables_of(html: str) -> dict[str, Any]:
    (packed,) = re.findall(r'id="data">([^<]*)<', html)
    found: dict[str, Any] = json.loads(gzip.decompress(b64decode(packed)))
    return found


def box(page: Page, setting: str) -> Locator:
    return page.get_by_role("checkbox", name=re.compile(rf"^(\d )?{setting}( \*)?$"))


def choose(page: Page, choice: PanelChoice) -> None:
    """Set the panel's controls to what is chosen."""
    page.locator("#kernel").select_option(choice.kernel)
    page.locator("#size").get_by_label(str(choice.shape), exact=True).check(force=True)
    chosen = page.locator("#controls .pitfall select").evaluate_all("all => all.map(select => select.selectedIndex)")
    for g, now in zip(PITFALLS, chosen, strict=True):
        if g.values.index(choice.settings[g.setting]) != now:
            page.get_by_label(f"value of {g.setting}").select_option(index=g.values.index(choice.settings[g.setting]))


def shows(page: Page, answer: Answer) -> None:
    """Fail unless the panel shows this answer, all of it."""
    time, rate, share = answer.headline.split(" → ")
    expect(page.locator("#rate")).to_have_text(rate)
    expect(page.locator("#rest")).to_have_text(f"{time} · {share}")
    expect(page.locator("#comparison")).to_have_text(answer.comparison)
    expect(page.locator("#others li")).to_have_text(answer.others)
    expect(page.locator("#source")).to_have_text(answer.reading.measurement.label)
    drawn = page.locator("#steps .row").evaluate_all(ENDS)
    assert drawn == [[name, words] for name, *_, words in answer.rows]
    expect(page.locator("#strip path")).to_have_count(2 if answer.changed else 1)


def test_the_page_is_one_small_file_that_fetches_nothing(html: str) -> None:
    panel = re.findall(r'id="data">([^<]*)<', html)[0]
    assert len(html.encode()) + 2 * len(panel) < MOST_BYTES, "the whole grid holds 9 parts like the 4 of this test"
    ids = re.findall(r'\sid="([^"]*)"', html)
    assert len(set(ids)) == len(ids), "two charts' ids must not clash"
    assert not re.findall(r'(?:src|href|action)="(?!#|data:,)[^"]*"|url\((?!#)|@import|\bfetch\(|https?://', html)


def test_every_recorded_combination_is_on_the_page_with_its_answer(html: str, grid: Run) -> None:
    panel, choice = tables_of(html)["panel"], PanelChoice([grid])
    for m in grid.measurements:
        answers = panel["groups"][f"{m.kernel} {m.problem}"]["answers"]
        for values in product(*(g.values for g in COMPUTED)):
            settings = (
                choice.held[0].unbiased | m.changed | dict(zip((g.setting for g in COMPUTED), values, strict=True))
            )
            assert key_of(settings) in answers
        choice.kernel, choice.shape, choice.settings = m.kernel, m.problem, choice.held[0].unbiased | m.changed
        answer, items = choice.answer(), panel["items"]
        words = [items[place] for place in items[answers[key_of(choice.settings)]]]
        assert words[:4] == [answer.headline.split(" → "), answer.comparison, answer.others, m.label]


def test_a_run_without_an_unbiased_reading_is_no_panel() -> None:
    with pytest.raises(WorklogError, match="no unbiased reading: make a grid with `worklog ablate --grid`"):
        panel_table(replace(small_run(), measurements=[]))


def test_the_first_screen_shows_a_biased_reading_next_to_the_unbiased_one(page: Page, grid: Run) -> None:
    page.reload()
    choice = PanelChoice([grid])
    choice.shape = choice.shapes[-1]
    unbiased = choice.answer().headline.split(" → ")
    expect(page.locator("#unbiased-rate")).to_have_text(unbiased[1])
    expect(page.locator("#unbiased-rest")).to_have_text(f"{unbiased[0]} · {unbiased[2]}")
    choice.settings |= FOUR
    shows(page, choice.answer())
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    expect(page.locator("#source")).to_be_in_viewport()


def test_the_panel_shows_what_python_computes(page: Page, grid: Run) -> None:
    choice = PanelChoice([grid])
    page.get_by_text(OTHERS).click()
    for shape, biased in (
        (choice.shapes[0], {"offset": "kept", "statistic": "min"}),
        (choice.shapes[1], {"l2": "warm", "queue": False, "gate": "article"}),
        (choice.shapes[2], {"timer": "host", "roof": "bf16_datasheet", "statistic": "first", "gate": False}),
    ):
        choice.shape = shape
        choice.all_unbiased()
        choice.settings |= biased
        choose(page, choice)
        shows(page, choice.answer())
    page.get_by_role("button", name="all unbiased").click()
    choice.all_unbiased()
    shows(page, choice.answer())
    page.get_by_role("button", name="all naive").click()
    choice.all_naive()
    shows(page, choice.answer())
    page.locator("#kernel").select_option(choice.known_kernels()[0])
    choice.kernel = choice.known_kernels()[0]
    shows(page, choice.answer())
    absent = page.locator("#size").get_by_label(str(choice.shapes[0]), exact=True)
    expect(absent).to_be_disabled()  # this rung has no reading there


def test_what_was_not_recorded_is_marked_before_and_after_it_is_chosen(page: Page, grid: Run) -> None:
    choice = PanelChoice([grid], size=grid.measurements[-1].problem, order="sequential", baseline="tf32")
    answer = choice.answer()
    page.get_by_text(OTHERS).click()
    choose(page, choice)
    shows(page, answer)
    row = page.locator(".pitfall", has=box(page, "inputs"))
    expect(row).to_contain_text("inputs *")
    expect(row.get_by_role("combobox")).to_contain_text("zeros (not recorded)")
    expect(page.locator("#legend")).to_be_visible()
    box(page, "inputs").uncheck()
    choice.choose("inputs", "zeros")
    nearest = choice.nearest()
    assert nearest is not None
    with pytest.raises(NotRecorded) as said:
        choice.answer()
    expect(page.locator("#gap-words")).to_have_text(str(said.value))
    shows(page, answer)
    expect(page.locator("#rate")).to_have_css("color", rgb(LIGHT["muted"]))
    expect(page.locator("#strip svg")).to_have_css("opacity", "0.35")
    differ = [g.setting for g in PITFALLS if nearest.settings[g.setting] != choice.settings[g.setting]]
    marked = page.locator(".pitfall", has_text="differs from the nearest")
    expect(marked.get_by_role("checkbox")).to_have_count(len(differ))
    expect(marked.first).to_contain_text(differ[0])
    page.get_by_role("button", name="take the nearest").click()
    choice.take(nearest)
    shows(page, choice.answer())
    expect(page.locator("#gap")).to_be_hidden()
    expect(page.locator("#strip svg")).to_have_css("opacity", "1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_with_a_reading_and_without_one(page: Page, width: int, scheme: Any) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="all naive").click()
    page.evaluate("() => document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
    assert axe_findings(page) == []
    page.get_by_role("button", name="all unbiased").click()
    for setting in UNRECORDED:
        box(page, setting).uncheck()
    expect(page.locator("#gap")).to_be_visible()
    assert axe_findings(page) == []
    page.emulate_media(color_scheme="light")


def test_the_keyboard_alone_is_enough(page: Page, grid: Run) -> None:
    choice = PanelChoice([grid], size=grid.measurements[-1].problem, **FOUR)
    page.get_by_text(OTHERS).click()
    assert page.locator("body").evaluate_all(UNNAMED) == []
    choose(page, choice)
    page.get_by_text(OTHERS).click()
    page.locator("#kernel").focus()
    tab_to(page, page.locator("#size").get_by_role("radio", checked=True))
    page.keyboard.press("ArrowLeft")
    choice.shape = choice.shapes[-2]
    shows(page, choice.answer())
    tab_to(page, box(page, "timer"))
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineWidth") == "3px"
    page.keyboard.press("Space")
    choice.choose("timer", "events")
    shows(page, choice.answer())
    tab_to(page, page.get_by_label("value of l2"))
    page.keyboard.press("f")
    choice.choose("l2", "flush")
    shows(page, choice.answer())
    tab_to(page, page.locator("summary", has_text=OTHERS))
    page.keyboard.press("Enter")
    expect(box(page, "queue")).to_be_visible()
    page.locator("#ladder-size").get_by_role("radio", checked=True).focus()
    tab_to(page, page.get_by_role("button", name="rung before"), most=40)
    page.keyboard.press("Enter")
    expect(page.locator("#step")).to_contain_text("register_banks at 4096")
    page.locator("#ladder-size").get_by_role("radio", checked=True).focus()
    tab_to(page, page.get_by_role("button", name=re.compile("^naive")), most=40)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=re.compile("^naive"))).to_be_focused()
    tab_to(page, page.get_by_role("region", name="01_naive.cu"), most=40)


def test_the_ladder_shows_each_rung_and_what_changed(page: Page) -> None:
    climb = Climb(ladder_runs(), "vectorized", 1024)
    page.locator("#ladder-size").get_by_label("1024", exact=True).check(force=True)
    page.get_by_role("button", name=re.compile("^vectorized")).click()
    expect(page.locator("#step p")).to_have_text(climb.sentences)
    for table in climb.tables:
        shown = page.get_by_role("table", name=table.title).evaluate(CELLS)
        assert shown == [list(table.columns), *([str(cell) for cell in row] for row in table.rows)]
    changed = page.get_by_role("region", name="06_vectorized.cu against 05_tiles_2d.cu")
    assert changed.inner_text().splitlines() == list(diff("tiles_2d", "vectorized", around=2).lines)
    page.get_by_label("whole file, with comments").check()
    assert changed.inner_text().splitlines() == list(diff("tiles_2d", "vectorized", comments=True, around=2).lines)
    page.get_by_role("button", name="next rung").click()
    expect(page.locator("#step")).to_contain_text("conflict_free at 1024")
    page.get_by_role("button", name=re.compile("^naive")).click()
    expect(page.get_by_role("button", name="rung before")).to_be_disabled()
    expect(page.locator("#ladder-source")).to_have_text(ladder_runs()[0].full_label)


def test_charts_are_drawn_for_light_and_dark_pages(page: Page) -> None:
    page.locator("#ablation-rung").get_by_label("naive", exact=True).check(force=True)
    expect(page.get_by_role("img", name=re.compile("gremlin in naive"))).to_be_visible()
    expect(page.locator("#ablation svg:visible")).to_have_count(1)
    expect(page.locator("#sizes svg")).to_be_visible()
    background, words = page.locator("#peers svg path").first, page.locator("body")
    for palette in (LIGHT, DARK, LIGHT):
        expect(words).to_have_css("color", rgb(palette["ink"]))
        expect(background).to_have_css("fill", rgb(palette["paper"]))
        page.locator("#theme").click()
    page.locator("#theme").click()
    page.emulate_media(color_scheme="dark")
    expect(words).to_have_css("color", rgb(LIGHT["ink"]))  # the switch counts
    page.reload()
    expect(words).to_have_css("color", rgb(DARK["ink"]))


def test_a_phone_scrolls_down_only_and_keeps_the_reading_in_sight(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("() => document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
    assert page.evaluate(OVERFLOW) <= 0
    box(page, "roof").scroll_into_view_if_needed()
    expect(page.locator("#rate")).to_be_in_viewport()
    reading, control = page.locator("#rate").bounding_box(), page.locator("#kernel").bounding_box()
    assert reading and control
    page.get_by_role("button", name="all naive").click()
    assert page.evaluate(OVERFLOW) <= 0
