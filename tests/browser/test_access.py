"""The access viewer in Chromium.

It zooms from the grid to a lane by mouse and keyboard, moves along K, and shows two rungs in step.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import COLLAPSE, THEME, axe_findings, cell, of_cells, tab_to
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.site.pages import viewer
from worklog.viewer.accesses import access

RUNGS = ("naive", "vectorized", "bulk_copies")
Scheme = Literal["light", "dark"]
LEVELS = ("grid", "block", "warp", "lane")
# The text of what is shown, and the places of all shapes.
PICTURE = """view => [...view.querySelectorAll('.memory, .matrices')].map(part => part.innerHTML)"""
# Everything of the viewer whose content is wider than itself. A region that scrolls counts, too.
TOO_WIDE = """view => [...view.querySelectorAll('*')]
    .filter(part => part.checkVisibility() && part.clientWidth > 0
        && part.scrollWidth > part.clientWidth + 1)
    .map(part => part.outerHTML.slice(0, 200))"""
# Whether two parts are equally wide, and next to each other or else below each other. JupyterLab
# takes a moment for it.
ARRANGED = """([first, second, isRow]) => {
    const [one, other] = [first, second].map(part => part.getBoundingClientRect());
    const isNear = (a, b) => Math.abs(a - b) <= 1;
    return isNear(one.width, other.width) && isNear(one.y, other.y) === isRow
        && isNear(one.x, other.x) === !isRow;
}"""
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"
# Of a radio button, which is invisible, its text has the outline.
OUTLINE = "() => getComputedStyle(document.activeElement.nextSibling).outlineStyle"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return {name: access(name).document for name in RUNGS}


@pytest.fixture(scope="module")
def opened_at(browser, documents, tmp_path_factory):
    """Return a function that opens the viewer's page at an address. Errors of the page fail."""
    file = tmp_path_factory.mktemp("access") / "access.html"
    file.write_text(viewer([*documents.values()]), encoding="utf-8")
    with page_without_errors(browser) as page:
        yield partial(open_file, page, file)


@pytest.fixture
def opened_in(browser, tmp_path):
    """Return a function that opens the page of a document at an address."""
    file = tmp_path / "access.html"

    def open_at(document: dict[str, Any], address: str) -> Page:
        file.write_text(viewer([document]), encoding="utf-8")
        return open_file(page, file, address)

    with page_without_errors(browser) as page:
        yield open_at


@contextmanager
def page_without_errors(browser: Browser) -> Iterator[Page]:
    """Yield a page. Fails if a script of the page failed."""
    noted = list[str]()
    page = browser.new_page()
    page.on("pageerror", lambda error: noted.append(str(error)))
    yield page
    page.close()
    assert noted == []


def open_file(
    page: Page, file: Path, address: str, width: int = 1280, scheme: Scheme = "light"
) -> Page:
    """Open the viewer's page at an address."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}#{address}")
    page.wait_for_selector("html[data-ready]")
    return page


OpenAt = Callable[..., Page]


def address(page: Page) -> str:
    return str(page.evaluate("location.hash"))


def chosen(page: Page | Locator) -> str:
    """Return the level of zoom that is chosen, with its number."""
    checked = page.locator(".zoom label:has(:checked)")
    return checked.inner_text()


def test_a_click_on_a_block_a_warp_and_a_lane_goes_down_to_the_lane(opened_at: OpenAt):
    page = opened_at("vectorized/0/0/17")
    zoom = page.get_by_role("group", name="zoom")
    zoom.get_by_role("radio", name="grid").check()
    page.get_by_role("group", name="Blocks").get_by_role("radio", name="3", exact=True).click()
    assert chosen(page) == "block 3"
    page.get_by_role("group", name="Warps").get_by_role("radio", name="5", exact=True).click()
    assert chosen(page) == "warp 5"
    page.get_by_role("group", name="Lanes").get_by_role("radio", name="9", exact=True).click()
    assert chosen(page) == "lane 9"
    assert address(page) == "#vectorized/5/9/17/lane/3"
    expect(page.get_by_role("row", name="thread")).to_contain_text(str(32 * 5 + 9))


def test_a_click_on_c_chooses_the_block_then_the_warp_then_the_lane_that_stores_there(
    opened_at: OpenAt, documents: dict[str, Any]
):
    page = opened_at("vectorized/0/0/17/grid/0")
    drawing = page.locator(".matrices svg")
    # The lower right corner of C, where the last block's last warp and lane store.
    for level in ("block 3", "warp 7", "lane 31"):
        box = drawing.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] - 1, box["y"] + box["height"] - 1)
        assert chosen(page) == level
    assert address(page) == "#vectorized/7/31/17/lane/3"
    outside = (box["x"] + 1, box["y"] + 1)
    page.mouse.click(*outside)
    assert address(page) == "#vectorized/7/31/17/lane/3"


def test_the_keyboard_alone_zooms_chooses_and_comes_back(opened_at: OpenAt):
    page = opened_at("vectorized/0/0/17")
    tab_to(page, page.get_by_role("radio", name="warp 0"))
    assert page.evaluate(OUTLINE) == "solid"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert chosen(page) == "grid"
    tab_to(page, page.get_by_role("group", name="Blocks").get_by_role("radio").first, most=40)
    assert page.evaluate(OUTLINE) == "solid"
    page.keyboard.press("ArrowRight")
    assert address(page) == "#vectorized/0/0/17/grid/1", "an arrow key chooses, and stays"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert address(page) == "#vectorized/1/1/17/warp/1", "the focus went to the parts of each level"
    page.keyboard.press("Enter")
    assert chosen(page) == "lane 1"
    for level in ("warp 1", "block 1", "grid", "grid"):
        page.keyboard.press("-")
        assert chosen(page) == level
    page.keyboard.press("+")
    assert chosen(page) == "block 1"


def test_each_level_has_its_own_parts(opened_at: OpenAt):
    parts = {
        "grid": {".of-grid"},
        "block": {".of-block"},
        "warp": {".lanes", ".memory"},
        "lane": {".lanes", ".memory", ".of-lane"},
    }
    for level, visible in parts.items():
        page = opened_at(f"vectorized/0/9/17/{level}/0")
        for part in (".of-grid", ".of-block", ".lanes", ".memory", ".of-lane"):
            assert page.locator(part).is_visible() == (part in visible), f"{level}: {part}"
        expect(page.locator(".matrices svg")).to_be_visible()


def test_a_block_shows_the_elements_of_c_of_each_warp(opened_at: OpenAt):
    page = opened_at("vectorized/6/9/17/block/0")
    of_a_warp = 128 * 128 // 8
    for part, warps in (("ours", 1), ("shade0", 2), ("shade1", 2), ("shade2", 2), ("shade3", 2)):
        path = page.locator(f".matrices path.{part}").get_attribute("d") or ""
        assert path.count("M") == warps * of_a_warp, part
    expect(page.locator(".headline")).to_contain_text("threads 192 to 223")
    expect(page.locator(".headline")).to_contain_text(f"{of_a_warp} elements of C")


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("block", [1, 3])
def test_another_block_is_drawn_as_if_it_had_been_traced(
    opened_at: OpenAt, browser, tmp_path, level, block
):
    file = tmp_path / "traced.html"
    file.write_text(viewer([access("vectorized", block=block).document]), encoding="utf-8")
    traced = browser.new_page(viewport={"width": 1280, "height": 900})
    traced.goto(f"{file.as_uri()}#vectorized/2/9/17/{level}/{block}")
    traced.wait_for_selector("html[data-ready]")
    shown = opened_at(f"vectorized/2/9/17/{level}/{block}")
    for part in (".said", ".lanes", ".of-lane", ".choices .source"):
        assert shown.locator(part).inner_text() == traced.locator(part).inner_text(), part
    drawn = shown.locator(".all").evaluate(PICTURE)
    assert drawn == traced.locator(".all").evaluate(PICTURE)
    assert drawn != opened_at(f"vectorized/2/9/17/{level}/0").locator(".all").evaluate(PICTURE)
    traced.close()


def test_a_lane_has_the_address_the_value_the_sector_and_the_bank_of_its_access(opened_at: OpenAt):
    """Of A in global memory, then of A in shared memory, transposed: from the kernel's source."""
    page = opened_at("vectorized/0/9/0/lane/2")
    rows = page.locator(".of-lane tr")
    # Lane 9 reads the second float4 of row 4 of A, of block 2's rows; K is 32.
    byte = 4 * (32 * (128 + 4) + 4)
    expect(rows).to_contain_text([
        "thread9",
        f"byte {byte} of A, 16 bytes",
        "A[132][4], A[132][5], A[132][6], A[132][7]",
        f"{byte // 32} (bytes {byte // 32 * 32} to {byte // 32 * 32 + 31} of A)",
        "none: global memory",
    ])  # fmt: skip
    page.keyboard.press("ArrowRight")
    # As[4][4] with 128 floats a row
    expect(rows).to_contain_text(
        ["thread9", f"byte {4 * (4 * 128 + 4)} of shared memory", "A[132][4]", "none: shared", "4"]
    )
    # A float4 of Bs: a phase has 8 lanes, and lane 13's words are in the banks of lane 9's.
    for lane, wavefront in ((9, "3 of 8"), (13, "4 of 8")):
        page = opened_at(f"vectorized/3/{lane}/17/lane/0")
        expect(page.get_by_role("row", name="wavefront")).to_contain_text(wavefront)
        expect(page.get_by_role("row", name=re.compile("^bank "))).to_contain_text("8 to 11")


def test_the_slider_moves_the_same_access_to_another_tile_along_k(
    opened_at: OpenAt, documents: dict[str, Any]
):
    page = opened_at("vectorized/0/9/17/warp/0")
    slider = page.get_by_role("slider", name="tile along K")
    expect(slider).to_have_attribute("max", "3")
    expect(slider).to_have_js_property("value", "0")
    text = page.locator(".headline").inner_text()
    places = list[float]()
    for tile in range(4):
        slider.fill(str(tile))
        expect(slider).to_have_attribute(
            "aria-valuetext", f"tile {tile + 1} of 4 along K: k {8 * tile} to {8 * tile + 7}"
        )
        assert page.locator(".headline").inner_text() == text
        expect(page.locator(".said")).to_contain_text(f"B[{8 * tile + 2}][")
        places.append(float(page.locator("rect.slab").first.get_attribute("x") or ""))
    assert places == [0, 8, 16, 24], "the frame in A"
    slider.fill("0")
    assert address(page) == "#vectorized/0/9/17"
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_js_property("value", "1")


def test_a_rung_without_tiles_along_k_has_no_such_slider(opened_at: OpenAt):
    page = opened_at("naive/0/9/1")
    expect(page.locator(".tile-slider")).to_be_hidden()
    expect(page.locator("rect.slab")).to_have_count(0)


def test_the_part_of_k_that_is_drawn_has_the_tile_that_is_shown(opened_in):
    page = opened_in(access("shared", Shape(32, 32, 320)).document, "shared/0/9/0")
    slider = page.get_by_role("slider", name="tile along K")
    labels = page.locator(".product > span")
    for tile, columns, x in ((0, 256, 0), (7, 256, 224), (9, 64, 32)):
        slider.fill(str(tile))
        expect(labels.filter(has_text="A")).to_have_text(f"A 32 × {columns}")
        expect(labels.filter(has_text="B")).to_have_text(f"B {columns} × 32")
        expect(page.locator("rect.slab").first).to_have_attribute("x", str(x))
    page.get_by_role("radio", name="grid").check()
    expect(labels.filter(has_text="A")).to_have_text("A 32 × 320")
    expect(page.locator("rect.slab").first).to_have_attribute("x", "288")


def test_a_document_of_one_block_and_no_tiles_is_shown_as_it_is(opened_in, documents):
    added = ("grid", "block", "blocks", "depth")
    old = {name: part for name, part in documents["vectorized"].items() if name not in added}
    page = opened_in(old, "vectorized/0/9/17/grid")
    expect(page.get_by_role("group", name="Blocks").get_by_role("radio")).to_have_count(1)
    expect(page.locator(".tile-slider")).to_be_hidden()
    page.keyboard.press("+")
    assert chosen(page) == "block 0"


def test_a_warp_that_touches_no_memory_says_so_and_the_zoom_goes_on(opened_in):
    text = """__global__ void gemm(const float* A, const float* B, float* C, int n) {
      if (threadIdx.x < 32) C[threadIdx.x] = A[threadIdx.x] + B[threadIdx.x]; }"""
    kernel = Kernel.from_source(text, grid="1", block="64")
    document = access(kernel, 32).document
    page = opened_in(document, f"{document['kernel']}/1/9/0")
    expect(page.get_by_role("status")).to_contain_text("Warp 1 touches no memory")
    expect(page.locator(".memory svg")).to_be_hidden()
    for level in ("block 0", "grid"):
        page.keyboard.press("-")
        assert chosen(page) == level
        expect(page.locator(".matrices svg")).to_be_visible()
    page.get_by_role("combobox", name="warp").select_option("0")
    page.get_by_role("radio", name="warp 0").check()
    expect(page.get_by_role("status")).to_contain_text("32 lanes")


def test_a_page_opens_what_exists_if_its_address_is_wrong(opened_at: OpenAt):
    page = opened_at("vectorized/99/99/99999/galaxy/77")
    assert chosen(page) == "warp 7"
    assert re.fullmatch(r"#vectorized/7/31/\d+", address(page))


@pytest.mark.parametrize("width", [390, 880, 1280])
def test_no_level_hides_anything_at_any_width(opened_at: OpenAt, width):
    for rung in RUNGS:
        for level in LEVELS:
            page = opened_at(f"{rung}/0/9/1/{level}/3", width)
            assert page.locator(".access").evaluate(TOO_WIDE) == [], f"{rung}, {level}"
            assert page.evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (1280, "dark")])
def test_axe_finds_nothing_at_any_level(opened_at: OpenAt, width, scheme):
    for level in LEVELS:
        page = opened_at(f"vectorized/0/9/17/{level}/1", width, scheme)
        assert axe_findings(page) == [], level


def test_two_rungs_stand_side_by_side_in_step_at_the_same_size(opened):
    code = 'from worklog import lab\nlab.access("shared", (256, 256, 64), versus="vectorized")'
    with opened("access_pair", of_cells(code)) as page:
        views = cell(page, 0).locator(".all")
        first, second = views.nth(0), views.nth(1)
        expect(second.locator(".headline")).to_be_visible()
        for view in (first, second):
            expect(view.locator(".choices .source")).to_contain_text("M, N, K = 256, 256, 64")
        step = first.get_by_role("slider", name="step")
        step.focus()
        for sentence in (r"of A\b", r"of As\b", r"of B\b", r"of Bs\b"):
            pill = re.compile(sentence.replace("of ", "^(read|write) ", 1))
            first.get_by_role("button", name=pill).first.click()
            expect(first.locator(".headline")).to_contain_text(re.compile(sentence))
            expect(second.locator(".headline")).to_contain_text(re.compile(sentence))
        second.get_by_role("slider", name="tile along K").fill("4")
        expect(second.locator(".tile-slider")).to_contain_text("k 32 to 39")
        expect(first.locator(".tile-slider")).to_contain_text("k 32 to 63")
        lanes = second.get_by_role("group", name="Lanes").get_by_role("radio")
        lanes.nth(3).focus()
        page.keyboard.press("ArrowRight")
        assert chosen(first) == "warp 0", "JupyterLab leaves the keys to the viewer"
        page.keyboard.press("Enter")
        assert chosen(first) == chosen(second) == "lane 4"
        page.keyboard.press("-")
        page.keyboard.press("-")
        assert chosen(first) == chosen(second) == "block 0"
        page.keyboard.press("+")
        page.keyboard.press("+")
        page.evaluate(COLLAPSE)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            parts = [view.element_handle() for view in (first, second)]
            page.wait_for_function(ARRANGED, arg=[*parts, width == 1280])
            # With 8 x 8 blocks of shared, and with addresses.
            for level in LEVELS:
                first.locator(f".zoom input[value={level}]").check()
                assert cell(page, 0).locator(".access").evaluate(TOO_WIDE) == [], level
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            page.evaluate(THEME, theme)
            expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
            expect(page.locator("#jupyterlab-splash")).to_have_count(0)
            assert axe_findings(page, ".access") == []
