"""The pages of `worklog site`, and the README at the width of GitHub's page.

Each link leads somewhere, and nothing is loaded from elsewhere. In a browser the pages show what
Python computes, by mouse, keyboard and on a phone.
"""

import gzip
import io
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from PIL import Image
from playwright.sync_api import Page, expect
from pytest import approx

from tests.browser.conftest import OTHERS, axe_findings, box, reading, rgb, tab_to
from tests.helpers import small_run
from tests.lab.grid import part_of_the_recording
from tests.record.notebooks import sources
from worklog.errors import WorklogError
from worklog.kernel import RUNGS
from worklog.lab.answers import Answer, Answers
from worklog.lab.bets import recorded_step
from worklog.lab.listings import diff
from worklog.lab.readings import Settings
from worklog.lab.rung_pages import RungPage
from worklog.lab.widgets import places
from worklog.plots.selection import rows
from worklog.plots.style import DARK, LIGHT
from worklog.problem import Shape
from worklog.runner.sources import at_4096
from worklog.runs import CUBLAS
from worklog.settings import PITFALLS, Value
from worklog.site import live
from worklog.site.choices import PUZZLES
from worklog.site.pages import header, viewer
from worklog.site.panel_answers import answers as data_of
from worklog.viewer.accesses import access

FOUR: dict[str, Value] = {"clocks": "ignored", "timer": "host", "l2": "warm", "warmup": "none"}
ENDS = "rows => rows.map(row => [row.firstChild.textContent, row.lastChild.textContent])"
CELLS = "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
README = Path(__file__).parents[2] / "README.md"
ON_GITHUB = """<meta charset="utf-8"><style>
body { font: 16px/1.5 sans-serif; margin: 0; padding: 32px; box-sizing: border-box; width: 880px; }
pre, table { display: block; overflow: auto; max-width: 100%; } table { border-collapse: collapse; }
pre { padding: 16px; font-size: 85%; } th, td { padding: 6px 13px; border: 1px solid; }
img { max-width: 100%; }
</style>"""
CUT_OFF = """() => [...document.querySelectorAll('html, pre, table')]
    .filter(element => element.scrollWidth > element.clientWidth)
    .map(element => element.outerHTML.slice(0, 200))"""
# Of a first load, compressed.
MOST_BYTES = {"index.html": 300_000, "chapter": 400_000}
WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
MOST_SHIFTED = 0.1  # of the window: a good page, says the Web Vitals' scale
SHIFTS = """window.shifted = 0;
new PerformanceObserver(list => list.getEntries().forEach(entry => {
    window.shifted += entry.hadRecentInput ? 0 : entry.value;
})).observe({type: "layout-shift", buffered: true});"""
UNFOLD = "() => document.querySelectorAll('details').forEach(part => { part.open = true; })"
IS_WIDER = "part => part.scrollWidth > part.clientWidth"
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="module")
def grid():
    return part_of_the_recording()


def test_each_step_of_a_site_is_reported_in_order_until_all_are_done(written):
    index = Path(written.folder, "index.html")
    assert written.stdout.startswith(f"{index} opens in any browser: ")
    steps = re.findall(r"^(\d+) of (\d+) after \d+ s: (.+)$", written.stderr, re.MULTILINE)
    total = int(steps[0][1])
    assert [(int(done), int(of)) for done, of, _ in steps] == [(n, total) for n in range(total)]
    for doing in ("answer 0 of ", "notebook 14_", "chart peers", "programs of ragged"):
        assert any(words.startswith(doing) for *_, words in steps), doing


@pytest.fixture(scope="module")
def files(site):
    return {path.name: path.read_bytes() for path in site.iterdir()}


@pytest.fixture(scope="module")
def pages(files):
    return {name: content.decode() for name, content in files.items() if name.endswith(".html")}


@pytest.fixture(scope="module")
def opened(site, browser):
    """Yield the first page, and what the browser complains about or requests from outside."""
    path = site / "index.html"
    noted = list[str]()
    inside = (site.as_uri(), "data:,")
    shown = browser.new_page(viewport={"width": 1440, "height": 900})
    shown.on("console", lambda message: noted.append(message.text))
    shown.on("pageerror", lambda error: noted.append(str(error)))
    shown.on(
        "request", lambda asked: None if asked.url.startswith(inside) else noted.append(asked.url)
    )
    shown.goto(path.as_uri())
    show_panel(shown)
    yield shown, noted
    shown.close()


@pytest.fixture
def page(opened):
    """Yield the page, wide and folded. A test fails with any error, message or request."""
    shown, noted = opened
    shown.set_viewport_size({"width": 1440, "height": 900})
    shown.get_by_role("button", name="all unbiased").click()
    shown.evaluate(
        "() => document.querySelectorAll('details').forEach(folded => { folded.open = false; })"
    )
    yield shown
    assert noted == []


def show_panel(page: Page) -> None:
    """Scroll to the panel, which is loaded when a reader comes near, and wait for it."""
    page.locator(".panel-widget").scroll_into_view_if_needed()
    expect(page.locator(".panel-widget")).to_have_attribute("data-state", "shown")


def choose(page: Page, kernel: str, shape: Shape, settings: Settings) -> None:
    """Set the panel's controls."""
    page.get_by_role("combobox", name="rung").select_option(kernel)
    page.locator("#panel").get_by_role("combobox", name="size").select_option(str(shape))
    chosen = page.locator(".pitfall select").evaluate_all(
        "all => all.map(select => select.selectedIndex)"
    )
    for g, now, place in zip(PITFALLS, chosen, places(settings), strict=True):
        if place != now:
            page.get_by_label(f"value of {g.setting}").select_option(index=place)


def shows(page: Page, answer: Answer) -> None:
    """Fail unless the panel shows this answer, all of it."""
    unbiased, mine = page.locator(".card").all()
    for card, shown in ((unbiased, answer.whole.before), (mine, answer.whole.after)):
        time, rate, share = shown.numbers
        expect(card.locator(".big")).to_have_text(rate)
        expect(card).to_contain_text(f"{time} · {share}")
    expect(reading(page.locator("#panel"))).to_contain_text(answer.comparison)
    expect(reading(page.locator("#panel"))).to_contain_text(answer.whole.after.measurement.label)
    in_words = [
        line for line in answer.text[3:-1] if not line.startswith("one by one: ")
    ]  # the rows below
    expect(page.locator("#panel li")).to_have_text(in_words)
    drawn = page.locator("#panel .body .row").evaluate_all(ENDS)
    assert drawn == [[name, words] for name, *_, words in answer.as_json()["steps"]]
    expect(page.locator(".strip path")).to_have_count(1 if answer.same else 2)


def test_the_panel_shows_what_python_computes(page, grid):
    page.reload()
    show_panel(page)
    answers = Answers([grid])
    first = answers.kernels[0]
    last = answers.kernels[-1]
    shows(page, answers.answer(last, answers.shapes[-1], **FOUR))
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


def test_what_was_not_recorded_is_disabled_as_in_a_notebook(page, grid):
    page.get_by_text(OTHERS).click()
    answers = Answers([grid])
    changed = {"order": "sequential", "baseline": "tf32"}
    where = (answers.kernels[-1], answers.shapes[-1])
    settings = answers.unbiased | changed
    choose(page, *where, settings)
    shows(page, answers.answer(*where, **changed))
    for g in PITFALLS:
        options = page.get_by_label(f"value of {g.setting}").locator("option")
        disabled = options.evaluate_all("all => all.map(option => option.disabled)")
        assert disabled == [
            not answers.has(*where, settings | {g.setting: value}) for value in g.values
        ], g.setting
    expect(box(page, "inputs")).to_be_disabled()
    page.get_by_role("combobox", name="rung").select_option(answers.kernels[0])
    size = page.locator("#panel").get_by_role("combobox", name="size")
    expect(
        size.get_by_role("option", name=str(answers.shapes[0]))
    ).to_be_disabled()  # this rung has no reading there


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_and_the_charts_follow_the_scheme(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("button", name="all naive").click()
    page.evaluate(
        "() => document.querySelectorAll('details').forEach(folded => { folded.open = true; })"
    )
    assert axe_findings(page) == [] and page.evaluate(OVERFLOW) <= 0
    box(page, "roof").scroll_into_view_if_needed()
    expect(page.locator(".card .big").last).to_be_in_viewport()
    palette = DARK if scheme == "dark" else LIGHT
    expect(page.locator("body")).to_have_css("color", rgb(palette["ink"]))
    sources = page.locator("#peers picture > *").evaluate_all(
        "all => all.map(part => part.srcset || part.src)"
    )
    page.locator("#peers img").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#peers img').naturalWidth > 0")
    shown = page.locator("#peers img").evaluate("image => image.currentSrc")
    assert Path(shown).name == Path(sources[scheme == "light"]).name and sources[0] != sources[1]
    page.emulate_media(color_scheme="light")


def require_accessible(browser, path, width, scheme):
    """Check that axe finds nothing in a page, and that it isn't wider than the window."""
    shown = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    shown.goto(path.as_uri())
    shown.evaluate(UNFOLD)
    assert axe_findings(shown) == [], path.name
    assert shown.evaluate(OVERFLOW) <= 0, path.name
    shown.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
@pytest.mark.parametrize("name", ["01_four_gremlins.html", "05_work_per_thread.html", "api.html"])
def test_axe_finds_nothing_and_a_page_is_not_wider_than_the_window(
    browser, site, name, width, scheme
):
    require_accessible(browser, site / name, width, scheme)


@pytest.mark.parametrize("name", ["index.html", "01_four_gremlins.html", "05_work_per_thread.html"])
def test_a_first_load_is_small(browser, site, name):
    shown = browser.new_page(viewport={"width": 390, "height": 844})
    loaded = {site / name}
    shown.on("request", lambda asked: loaded.add(site / Path(asked.url).name))
    shown.goto((site / name).as_uri())
    shown.wait_for_load_state("networkidle")
    files = [path for path in loaded if path.is_file()]
    compressed = sum(len(gzip.compress(path.read_bytes())) for path in files)
    assert compressed < MOST_BYTES.get(name, MOST_BYTES["chapter"]), sorted(loaded)
    assert site / "data.js" not in loaded, "it is for readers who come near to the panel"
    shown.close()


def test_nothing_jumps_while_a_chapter_is_read(browser, site):
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    shown.add_init_script(SHIFTS)
    shown.goto((site / "04_one_idea_a_picture.html").as_uri())
    height = shown.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 600):
        shown.mouse.wheel(0, 600)
        shown.wait_for_function("top => scrollY + innerHeight >= Math.min(top, 6000)", arg=top)
    expect(shown.locator(".access-widget").first).to_have_attribute("data-state", "shown")
    assert shown.evaluate("window.shifted") < MOST_SHIFTED
    shown.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_background_of_a_chart_is_the_page_s(browser, site, scheme):
    shown = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    for name in ("04_one_idea_a_picture.html", "index.html"):
        shown.goto((site / name).as_uri())
        chart = shown.locator(".chart img").first
        chart.scroll_into_view_if_needed()
        shown.wait_for_function("() => document.querySelector('.chart img').naturalWidth > 0")
        with Image.open(io.BytesIO(chart.screenshot())) as picture:
            corner = picture.convert("RGB").getpixel((1, 1))
        page_colour = shown.locator("body").evaluate(
            "body => getComputedStyle(body).backgroundColor"
        )
        assert page_colour == "rgb({}, {}, {})".format(*corner), name
    shown.close()


@pytest.fixture
def chapter(browser, site):
    """Yield a chapter with bets and viewers; a test fails with any error in it."""
    noted = list[str]()
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    shown.on("pageerror", lambda error: noted.append(str(error)))
    shown.on("console", lambda message: noted.append(message.text))
    shown.goto((site / "04_one_idea_a_picture.html").as_uri())
    yield shown
    assert noted == []
    shown.close()


def test_the_viewer_is_in_the_place_of_its_picture_and_answers_to_keys(chapter):
    far = chapter.locator('[data-widget="access"][data-rung="shared"]')
    expect(far.locator("img")).to_have_count(1)
    assert far.get_attribute("data-state") is None, "it is loaded when a reader comes near"
    far.scroll_into_view_if_needed()
    expect(far).to_have_attribute("data-state", "shown")
    expect(far.locator("img")).to_have_count(0)
    place = chapter.locator('[data-widget="access"][data-rung="naive"]')
    place.scroll_into_view_if_needed()
    expect(place.get_by_role("status")).to_contain_text("32 sectors where 4 would do, 12.5 % used")
    slider = place.get_by_role("slider", name="step")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^2 of "))
    place.get_by_role("button", name="step").last.focus()
    chapter.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^3 of "))
    assert axe_findings(chapter) == []
    other = chapter.locator('[data-widget="access"][data-rung="coalesced"]')
    other.scroll_into_view_if_needed()
    expect(other.get_by_role("status")).to_contain_text("4 sectors, the least possible")


def test_a_chapter_s_rung_runs_in_the_place_of_its_viewer_once_a_reader_asks(chapter):
    loaded = list[str]()
    chapter.on("request", lambda asked: loaded.append(asked.url.rpartition("/")[2]))
    place = chapter.locator(
        '[data-rung="coalesced"]:is([data-widget="access"], [data-widget="live"])'
    )
    place.scroll_into_view_if_needed()
    expect(place).to_have_attribute("data-state", "shown")
    assert not any(name.startswith(("emulator", "program-", "widget-live")) for name in loaded)
    address = chapter.evaluate("location.hash")
    chapter.locator(".cell", has=place).get_by_role("button", name="Run it here").click()
    checked = place.locator('[data-state="checked"]')
    expect(checked).to_contain_text("No findings. All ")
    place.get_by_role("combobox", name="break it").select_option("one step too many along K")
    expect(checked).to_contain_text("global-out-of-bounds")
    assert chapter.evaluate("location.hash") == address
    assert axe_findings(chapter) == [] and chapter.evaluate(OVERFLOW) <= 0


def test_a_viewer_without_its_file_says_so_and_keeps_its_picture(browser, site):
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    shown.route("**/accesses-naive.js", lambda route: route.abort())
    shown.goto((site / "04_one_idea_a_picture.html").as_uri())
    place = shown.locator('[data-widget="access"]').first
    place.scroll_into_view_if_needed()
    expect(place.get_by_role("alert")).to_have_text(
        "This can't be shown: accesses-naive.js can't be loaded."
    )
    expect(place.locator("img")).to_be_visible()
    shown.close()


def test_a_bet_is_placed_by_keyboard_and_opens_what_was_measured(chapter):
    factor = f"{recorded_step('coalesced').measured:.3g}"
    place = chapter.locator('[data-widget="bet"][data-rung="coalesced"]')
    place.scroll_into_view_if_needed()
    expect(place).to_have_attribute("data-state", "shown")
    answer = chapter.locator('[data-answer="coalesced"]')
    expect(answer.locator("img")).to_be_hidden()
    assert factor not in chapter.locator("main").inner_text(), "the answer isn't told before"
    slider = place.get_by_role("slider")
    slider.focus()
    chapter.keyboard.press("End")
    tab_to(chapter, place.get_by_role("button", name="Bet"))
    chapter.keyboard.press("Enter")
    expect(place.get_by_role("status")).to_contain_text(
        f"You said 32, and it was {factor} times as fast"
    )
    expect(place.locator(".row")).to_have_text([re.compile("your bet"), re.compile(factor)])
    expect(answer.locator("img")).to_be_visible()
    expect(slider).to_be_disabled()


def test_the_panel_of_a_chapter_starts_with_the_choices_of_its_cell(browser, site):
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    shown.goto((site / "01_four_gremlins.html").as_uri())
    # A rung and a size that the grid of these tests has.
    shown.evaluate(
        """() => Object.assign(document.querySelector(".panel-widget").dataset,
        {kernel: "warptiled", size: "4096", biased: '{"l2": "warm"}'})"""
    )
    show_panel(shown)
    expect(shown.get_by_role("combobox", name="rung")).to_have_value("warptiled")
    expect(box(shown, "l2")).not_to_be_checked()
    expect(box(shown, "clocks")).to_be_checked()
    box(shown, "l2").check()
    expect(reading(shown.locator(".panel-widget"))).to_contain_text("this is the unbiased time")
    assert axe_findings(shown) == []
    controls = shown.locator(".panel .controls").bounding_box()
    cards = shown.locator(".panel .cards").bounding_box()
    assert controls and cards
    assert controls["x"] + controls["width"] < cards["x"] and controls["y"] <= cards["y"]
    assert cards["width"] > 400
    shown.close()


def test_a_sentence_of_an_output_wraps_and_a_row_of_a_table_does_not(browser, site):
    shown = browser.new_page(viewport={"width": 390, "height": 844})
    shown.goto((site / "17_bugs_in_famous_kernels.html").as_uri())
    sentence = shown.locator("pre.output", has_text="failed at exact on edge shapes").first
    assert sentence.evaluate(IS_WIDER) is False
    shown.goto((site / "14_the_gate.html").as_uri())
    table = shown.locator("pre.output", has_text="FP32, nothing wrong")
    heights = table.locator(".cells").evaluate_all("all => all.map(row => row.offsetHeight)")
    assert len(heights) > 2 and len({*heights}) == 1
    shown.close()


def test_the_source_of_a_table_is_read_without_scrolling_on_a_phone(browser, site):
    width = 390
    shown = browser.new_page(viewport={"width": width, "height": 900})
    shown.goto((site / "02_your_own_kernel.html").as_uri())
    captions = shown.locator(".output caption:visible").all()
    assert captions
    for caption in captions:
        box = caption.bounding_box()
        assert box["x"] + box["width"] <= width, caption.inner_text()
    shown.close()


def test_the_first_page_leads_to_a_race_with_its_lines(browser, site):
    shown = browser.new_page(viewport={"width": 390, "height": 844})
    shown.add_init_script(SHIFTS)
    shown.goto((site / "index.html").as_uri())
    shown.get_by_role("link", name="Break a kernel").click()
    expect(shown.locator("#live")).to_have_attribute("data-state", "checked")
    finding = shown.locator(".findings li.error").first
    expect(finding).to_contain_text("shared-race")
    expect(finding.locator("code").first).to_contain_text("As[row][col] = ")
    assert shown.evaluate("window.shifted") < MOST_SHIFTED
    shown.close()


def test_the_keyboard_skips_the_header_and_a_wide_page_shows_its_headings(chapter):
    chapter.keyboard.press("Tab")
    skip = chapter.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    chapter.keyboard.press("Enter")
    assert chapter.evaluate("location.hash") == "#content"
    headings = chapter.get_by_role("navigation", name="page")
    link = headings.get_by_role("link", name="2. Coalesced")
    link.click()
    expect(chapter.get_by_role("heading", name="2. Coalesced")).to_be_in_viewport()
    expect(link).to_have_attribute("aria-current", "location")
    chapter.keyboard.press("Control+Home")
    expect(link).to_have_attribute("aria-current", "false")
    chapter.set_viewport_size({"width": 390, "height": 844})
    expect(link).to_be_hidden()
    headings.get_by_text("On this page").click()
    expect(link).to_be_visible()


def test_a_printed_chapter_has_no_navigation(chapter):
    navigation = chapter.get_by_role("navigation", name="page")
    expect(navigation).to_be_visible()
    chapter.emulate_media(media="print")
    expect(navigation).to_be_hidden()
    expect(chapter.get_by_role("heading", level=1)).to_be_visible()
    chapter.emulate_media(media="screen")


def test_a_chapter_leads_to_the_one_before_and_to_the_next(chapter):
    onward = chapter.get_by_role("navigation", name="neighbouring chapters")
    expect(onward.get_by_role("link")).to_have_count(2)
    onward.get_by_role("link").last.click()
    assert chapter.url.endswith("/05_work_per_thread.html")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_keys_move_the_address_of_the_access_viewer_and_axe_finds_nothing(
    browser, tmp_path, width, scheme
):
    documents = [access(name).document for name in ("naive", "bulk_copies")]
    (tmp_path / "access.html").write_text(viewer(documents, header("access.html")))
    shown = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    noted = list[str]()
    shown.on("pageerror", lambda error: noted.append(str(error)))
    shown.goto(f"{(tmp_path / 'access.html').as_uri()}#naive/0/0/1")
    shown.wait_for_selector("html[data-ready]")
    expect(shown.get_by_role("status")).to_contain_text("32 sectors where 4 would do, 12.5 % used")
    for keys, address in {
        "ArrowRight": "0/0/2",
        "Shift+ArrowLeft": "0/0/1",
        "ArrowDown": "1/0/1",
    }.items():
        shown.keyboard.press(keys)
        assert shown.evaluate("location.hash") == f"#naive/{address}"
    shown.get_by_role("radio", name="5", exact=True).focus()
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("location.hash") == "#naive/1/6/1"
    for kernel in ("naive", "bulk_copies"):
        shown.get_by_role("combobox", name="kernel").select_option(kernel)
        assert shown.evaluate(OVERFLOW) <= 0 and axe_findings(shown) == []
    expect(shown.locator("body")).to_have_css(
        "color", rgb((DARK if scheme == "dark" else LIGHT)["ink"])
    )
    assert noted == []
    shown.close()


def test_the_keyboard_alone_is_enough(page, grid):
    answers = Answers([grid])
    kernel = answers.kernels[-1]
    shape = answers.shapes[-2]
    settings = answers.unbiased | FOUR
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
    page.locator("#ladder summary").first.focus()
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("region", name="01_naive.cu"))


def test_the_ladder_shows_each_rung_and_what_changed(page):
    page_of_rung = RungPage(at_4096(), "vectorized", Shape.of(4096))
    page.locator("#ladder summary", has_text="vectorized").click()
    files = "06_vectorized.cu against 05_tiles_2d.cu"
    expect(page.locator("#ladder [open] > p")).to_have_text([*page_of_rung.sentences, files])
    for table in page_of_rung.tables:
        shown = (
            page.locator("#ladder [open]").get_by_role("table", name=table.title).evaluate(CELLS)
        )
        assert shown == [list(table.columns), *([str(cell) for cell in row] for row in table.rows)]
    changed = page.get_by_role("region", name=files)
    assert changed.inner_text().splitlines() == list(diff("tiles_2d", "vectorized", around=2).lines)
    [own] = page_of_rung.run.select("vectorized", page_of_rung.shape)
    expect(page.locator("#ladder [open] .rung")).to_contain_text(f"{own.tflops:.2f}")
    widths = page.locator("#ladder .track i").evaluate_all(
        "all => all.map(bar => bar.getBoundingClientRect().width)"
    )
    shown = rows(page_of_rung.run, page_of_rung.shape)
    names = [m.kernel for m in shown]
    assert names == [*(record.name for record in RUNGS), CUBLAS]
    expect(page.locator("#ladder summary", has_text="tf32x3")).to_contain_text("fp32-emulated")
    rates = [m.tflops or 0.0 for m in shown]
    assert [width / max(widths) for width in widths] == approx(
        [rate / max(rates) for rate in rates], abs=0.01
    )


def test_every_notebook_is_a_small_page_that_the_first_page_lists_in_the_order_of_reading(
    files, pages
):
    others = {
        "index.html",
        "wrong.html",
        "access.html",
        "puzzles.html",
        "glossary.html",
        "api.html",
    }
    assert {*pages} == {f"{source.stem}.html" for source in sources()} | others
    linked = re.findall(r'<b><a href="(\d\d)_', pages["index.html"].partition('id="story"')[2])
    assert linked == sorted(name[:2] for name in {*pages} - others)
    minutes = re.findall(r'class="minutes">(\d+) min<', pages["index.html"])
    assert len(minutes) == len(linked) and all(1 <= int(number) < 60 for number in minutes)
    for name, html in pages.items():
        pictures = re.findall(r"<img[^>]*>", html)
        assert all(re.search(r' width="\d+" height="\d+"', tag) for tag in pictures), name
    assert (
        len(gzip.compress(files["access.html"])) < 70_000 and "https://" not in pages["access.html"]
    )


def test_the_viewer_of_the_site_runs_kernels_and_has_the_file_of_each(browser, site, files, pages):
    named = re.findall(r'"(program-[\w-]+\.js)"', pages["access.html"])
    assert len(named) > len(live.rungs())
    assert {*named} == {name for name in files if name.startswith("program-")}
    shown = browser.new_page()
    shown.goto(f"{(site / 'access.html').as_uri()}#lane_map/1/2/3")
    expect(shown.locator("#live")).to_have_attribute("data-state", "checked")
    assert shown.evaluate("location.hash") == "#lane_map/1/2/3"
    shown.close()


def test_every_link_has_its_page_and_its_place(files, pages):
    places = {name: {*re.findall(r'\sid="([^"]*)"', html)} for name, html in pages.items()}
    places["access.html"] |= {rung.name for rung in live.rungs()}
    places["puzzles.html"] |= {puzzle.name for puzzle in PUZZLES}
    for name, html in pages.items():
        links = re.findall(r'\b(?:href|src|srcset)="(?!data:|https?:)([^"]*)"', html)
        assert len(links) > 5, name
        for link in links:
            address, _, place = link.partition("#")
            page = address.partition("?")[0]
            assert (page or name) in files, f"{name}: {link}"
            where = re.split("[/?]", place)[0] if page == "access.html" else unquote(place)
            assert not where or where in places[page or name], f"{name}: {link}"


def test_nothing_is_loaded_from_elsewhere_and_ids_are_unique(pages):
    loads = (
        r'(?:src|srcset|action)="(?:https?:)?//|<link [^>]*href="(?!data:)|url\((?!#|data:)|@import'
    )
    for name, html in pages.items():
        assert not re.findall(loads, html), name
        ids = re.findall(r'<[^<>]*\sid="([^"]*)"', html)
        assert len({*ids}) == len(ids), name


def test_each_belief_stands_with_what_came_and_a_link(pages):
    stories = re.findall(r"<article>(.*?)</article>", pages["wrong.html"], re.DOTALL)
    assert len(stories) > 8 and f"{len(stories)} beliefs" in pages["index.html"]
    for story in stories:
        assert (
            story.index("What we believed")
            < story.index("What happened")
            < story.rindex('<a href="')
        )


def test_the_first_use_of_a_term_says_what_it_means_and_leads_to_the_glossary(pages):
    chapter = pages["04_one_idea_a_picture.html"]
    terms = re.findall(
        r'<a class="term" href="glossary.html#[\w-]+" title="([^"]+)">(\w+)</a>', chapter
    )
    assert {"sector", "rung"} <= {term.removesuffix("s") for _, term in terms}
    assert len({words for words, _ in terms}) == len(terms)
    listed = re.findall(r'<div id="term-(\w+)"><dt>', pages["glossary.html"])
    assert {"gate", "harness", "pitfall", "ceiling"} <= {*listed}, (
        "what messages and the story call them"
    )
    assert not any("pull <a" in page for page in pages.values())  # a pull request is no request


def test_each_step_of_the_story_has_the_viewer_in_place_and_a_puzzle_its_choices(files, pages):
    places = r'data-widget="access" data-rung="(\w+)"'
    shown = {name: re.findall(places, html) for name, html in pages.items()}
    assert shown["04_one_idea_a_picture.html"] == ["naive", "coalesced", "shared"]
    steps = {rung for names in shown.values() for rung in names}
    assert {"naive", "coalesced", "shared", "tiles_1d", "tiles_2d", "conflict_free"} <= steps
    assert {f"accesses-{rung}.js" for rung in steps} == {
        name for name in files if name.startswith("accesses-")
    }
    in_order = "".join(pages[f"{source.stem}.html"] for source in sources())
    linked = re.findall(r'href="puzzles\.html#(\w+)"', in_order)
    assert linked == [puzzle.name for puzzle in PUZZLES]


def test_each_page_has_a_title_a_description_and_a_picture_of_its_own_site(files, pages):
    for name, html in pages.items():
        [title] = re.findall(r"<title>(.+?)</title>", html)
        assert "worklog" in title, name
        assert f'<meta property="og:title" content="{title}">' in html, name
        [about] = re.findall(r'<meta name="description" content="(.+?)">', html)
        assert f'<meta property="og:description" content="{about}">' in html, name
        [image] = re.findall(r'<meta property="og:image" content="(.+?)">', html)
        assert image in files, name


def test_a_cell_that_shows_a_page_links_to_the_live_one_and_a_page_installs_nothing(pages):
    assert not any("Install worklog" in page for page in pages.values())
    assert 'href="access.html#naive">Run it' in pages["04_one_idea_a_picture.html"]
    assert 'href="index.html#ladder">Open each rung' in pages["06_the_last_30_percent.html"]


def test_a_run_without_an_unbiased_reading_is_no_panel():
    with pytest.raises(WorklogError, match="no unbiased reading: make one: "):
        data_of(replace(small_run(), measurements=[]))


def test_nothing_in_the_readme_scrolls_sideways(browser, tmp_path):
    shown = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render(README.read_text(encoding="utf-8"))
    )
    (tmp_path / "readme.html").write_text(ON_GITHUB + shown, encoding="utf-8")
    page = browser.new_page(viewport={"width": 880, "height": 1000})
    page.goto((tmp_path / "readme.html").as_uri())
    assert page.locator("pre, table").count() > 2
    assert page.evaluate(CUT_OFF) == []
    page.close()
