"""The live viewer: kernels that run in the page, and what a reader does with them."""

import json
import re
from base64 import b64encode

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import axe_findings
from tests.browser.test_core import folder, page  # noqa: F401
from tests.browser.test_site import OVERFLOW
from worklog.kernel.ladder import TENSOR, rung
from worklog.kernel.portable import compressed
from worklog.plots.style import LIGHT
from worklog.problem import Shape
from worklog.site import choices, live
from worklog.site.choices import edited
from worklog.site.mistakes import MISTAKES
from worklog.site.pages import live_viewer
from worklog.viewer.accesses import access, default_shape
from worklog.viewer.portable import viewable

VIEW = "async ([file, options]) => emulator.view(await description(file), options)"
READ_S = 120  # until a trace is read, on a busy machine
# Rungs whose blocks share out K.
SMALL = {
    "equal_shares": Shape(128, 256, 64),
    "ragged": Shape(100, 60, 40),
    "split": Shape(128, 64, 64),
}
BROKEN = [rung(name) for name in dict.fromkeys(mistake.rung for mistake in MISTAKES)]
FIRST_ACCESS = "#shared/2/5/30?mistake=no-second-barrier&size=128x128x128&block=3"


def document_in(page, kernel, shape, block):  # noqa: F811
    """Return the document of the access viewer that the page makes."""
    file = b64encode(compressed(viewable(kernel, [shape]))).decode()
    return page.evaluate(VIEW, [file, {"block": block, "limitS": READ_S}])


def require_same_document(page, kernel, shape, block=0):  # noqa: F811
    """Check that the page reads a block's trace as Python does, by name and as a whole."""
    right = access(kernel, shape, block).document
    # The page runs one block.
    right["blocks"] = [[block, [0] * len(right["arrays"])]]
    found = document_in(page, kernel, shape, block)
    for name in right:
        assert found[name] == right[name], name
    assert found == right
    assert sum(map(len, right["steps"])) > 0


@pytest.mark.parametrize("kernel", live.rungs(), ids=lambda kernel: kernel.name)
def test_the_page_reads_a_trace_as_python_does(page, kernel):  # noqa: F811
    require_same_document(page, kernel, SMALL.get(kernel.name) or default_shape(kernel))


@pytest.mark.parametrize("name", ["naive", "coalesced"])
def test_the_page_reads_the_trace_of_a_block_at_the_edges_as_python_does(page, name):  # noqa: F811
    require_same_document(page, rung(name), Shape(61, 59, 33), block=3)


def test_a_trace_that_is_too_long_is_an_error(page):  # noqa: F811
    kernel = rung("naive")
    file = b64encode(compressed(viewable(kernel, [Shape(64, 64, 32)]))).decode()
    failed = "async ([file, options]) => emulator.view(await description(file), options)"
    failed += ".catch((error) => error.message)"
    message = page.evaluate(failed, [file, {"steps": 100}])
    assert message == "the warps do more than 100 accesses: use a smaller size"


@pytest.fixture(scope="module")
def opened(browser, site):
    """Yield the page, from a file, and what it complains about or requests from elsewhere."""
    shown = browser.new_page(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    noted = []
    shown.on("console", lambda message: noted.append(message.text))
    shown.on("pageerror", lambda error: noted.append(str(error)))
    inside = (site.as_uri(), "data:", "blob:")
    shown.on(
        "request", lambda asked: None if asked.url.startswith(inside) else noted.append(asked.url)
    )
    yield shown, noted
    shown.close()


@pytest.fixture
def viewer(opened, site):
    """Yield the page at its start, once the first kernel has been checked."""
    shown, noted = opened
    shown.goto("about:blank")
    open_at(shown, site, "")
    yield shown
    assert noted == []


def open_at(shown, site, address):
    shown.goto(f"{(site / 'access.html').as_uri()}{address}")
    checked(shown)


def checked(shown):
    """Wait until the run has ended."""
    expect(shown.locator("#live")).to_have_attribute("data-state", "checked")


def menu(shown, name):
    return shown.get_by_role("combobox", name=name, exact=True)


def choose(shown, **options):
    """Choose from the menus: rung, tile, mistake or size."""
    for name, option in options.items():
        menu(shown, {"mistake": "break it"}.get(name, name)).select_option(option)
        checked(shown)


def listed(shown):
    """Return the kinds and lines of the findings in the list."""
    rows = "all => all.map(row => [row.querySelector('b').textContent, Number(row.dataset.line)])"
    return {tuple(row) for row in shown.locator(".findings li[data-line]").evaluate_all(rows)}


@pytest.mark.parametrize("kernel", BROKEN, ids=lambda kernel: kernel.name)
def test_each_mistake_has_its_finding_at_its_line_in_the_page(viewer, kernel):
    choose(viewer, rung=kernel.name)
    right = listed(viewer)
    expect(viewer.get_by_role("status").first).to_contain_text("No findings. All ")
    for mistake in [one for one in MISTAKES if one.rung == kernel.name]:
        choose(viewer, mistake=mistake.about)
        lines = mistake.kernel.source.splitlines()
        numbers = [n for n, text in enumerate(lines, 1) if text.strip() == mistake.line]
        found = listed(viewer)
        assert {(mistake.kind, number) for number in numbers} & found, mistake.name
        if mistake.old.count("\n") == mistake.new.count("\n"):
            assert {(mistake.kind, number) for number in numbers} & (found - right), mistake.name


@pytest.mark.parametrize("name", [kernel.name for kernel in TENSOR])
def test_a_rung_on_tensor_cores_is_right_in_the_page(viewer, name):
    choose(viewer, rung=name)
    expect(viewer.get_by_role("status").first).to_contain_text("No findings. All ")


def test_the_finding_s_line_is_marked_and_its_button_scrolls_to_it(viewer):
    choose(viewer, rung="shared", mistake="no barrier before the tile is overwritten")
    marked = viewer.locator(".listing .faulty code").all_inner_texts()
    assert [text.strip()[:2] for text in marked] == ["As", "Bs"]
    viewer.locator(".listing").evaluate("listing => { listing.scrollTop = 0; }")
    viewer.get_by_role("button", name="line 35").click()
    assert viewer.locator(".listing").evaluate("listing => listing.scrollTop") > 0
    wrong = viewer.get_by_role("status").first
    expect(wrong).to_contain_text("2 findings. ")
    expect(wrong).to_contain_text(" of 4,096 elements of C are wrong: C[")


def test_a_finding_shows_its_lines_and_leads_to_them_on_a_phone(viewer):
    viewer.set_viewport_size({"width": 390, "height": 844})
    choose(viewer, rung="shared", mistake="no barrier before the tile is overwritten")
    [mistake] = [one for one in MISTAKES if (one.rung, one.name) == ("shared", "no-second-barrier")]
    lines = mistake.kernel.source.splitlines()
    buttons = viewer.locator(".findings .error button")
    numbers = [int(text.removeprefix("line ")) for text in buttons.all_inner_texts()]
    assert len({*numbers}) == 3  # two writes race with one read
    shown = viewer.locator(".findings .error code").all_inner_texts()
    assert shown == [lines[number - 1].strip() for number in numbers]
    listed_line = viewer.locator(f'.listing [data-line="{numbers[0]}"]')
    expect(listed_line).not_to_be_in_viewport()
    buttons.first.click()
    expect(listed_line).to_be_in_viewport()
    viewer.set_viewport_size({"width": 1280, "height": 900})


def test_escape_leaves_a_control_and_the_arrow_keys_step(viewer):
    choose(viewer, rung="coalesced")
    start = viewer.evaluate("location.hash")
    rung, warp, lane, step = start.split("/")
    controls = [
        menu(viewer, "rung"),
        viewer.get_by_role("radio", name="5", exact=True),
        viewer.get_by_role("button", name="step").last,
    ]
    for number, control in enumerate(controls, start=1):
        control.focus()
        viewer.keyboard.press("Escape")
        expect(control).not_to_be_focused()
        viewer.keyboard.press("ArrowRight")
        moved = f"{rung}/{warp}/{lane}/{int(step) + number}"
        assert viewer.evaluate("location.hash") == moved


def test_the_link_to_the_content_keeps_what_is_chosen(viewer, site):
    open_at(viewer, site, FIRST_ACCESS)
    viewer.get_by_role("link", name="Skip to the content").press("Enter")
    assert viewer.evaluate("location.hash") == "#content"
    viewer.keyboard.press("ArrowRight")
    assert viewer.evaluate("location.hash") == FIRST_ACCESS.replace("/30?", "/31?")


def test_a_size_outside_of_the_domain_leaves_elements_unwritten(viewer):
    choose(viewer, rung="shared", size="61 × 59 × 65 (outside its domain)")
    expect(viewer.get_by_role("status").first).to_contain_text("isn't written and should be")


def test_edges_leave_lanes_of_the_last_block_idle(viewer):
    choose(viewer, rung="coalesced", size="61 × 59 × 33")
    viewer.get_by_label("block", exact=True).fill("3")
    viewer.keyboard.press("Enter")
    checked(viewer)
    expect(viewer.locator(".lanes .idle")).to_have_count(64 - 59)
    expect(viewer.locator(".access")).to_contain_text("block 3 of 2 × 2")
    viewer.get_by_label("block", exact=True).fill("99")
    viewer.keyboard.press("Enter")
    checked(viewer)
    expect(viewer.get_by_label("block", exact=True)).to_have_value("3")


def test_a_tile_is_run(viewer):
    choose(viewer, rung="shared", tile="BM16 BN16 BK16")
    expect(viewer.locator(".access")).to_contain_text("M, N, K = 32, 32, 32")
    choose(viewer, mistake="Bs is one row too short")
    expect(menu(viewer, "tile")).to_have_value("the rung's own")


def test_the_address_keeps_the_state_and_brings_it_back(viewer, site):
    open_at(viewer, site, FIRST_ACCESS)
    expect(menu(viewer, "rung")).to_have_value("shared")
    expect(menu(viewer, "break it")).to_have_value("no barrier before the tile is overwritten")
    expect(menu(viewer, "size")).to_have_value("128 × 128 × 128")
    expect(viewer.get_by_label("block", exact=True)).to_have_value("3")
    expect(menu(viewer, "warp")).to_have_value("2")
    expect(viewer.get_by_role("radio", name="5", exact=True)).to_be_checked()
    assert viewer.evaluate("location.hash") == FIRST_ACCESS
    viewer.keyboard.press("ArrowRight")
    moved = FIRST_ACCESS.replace("/30?", "/31?")
    assert viewer.evaluate("location.hash") == moved
    viewer.get_by_role("radio", name="lane 5").check()
    assert viewer.evaluate("location.hash") == FIRST_ACCESS.replace("/30?", "/31/lane?")
    parts = [viewer.locator(part) for part in (".said", ".lanes", ".of-lane", ".findings")]
    texts = [part.inner_text() for part in parts]
    address = viewer.evaluate("location.hash")
    viewer.goto("about:blank")
    open_at(viewer, site, address)
    assert [part.inner_text() for part in parts] == texts
    expect(viewer.get_by_role("radio", name="lane 5")).to_be_checked()
    choose(viewer, tile="BM16 BN16 BK16")
    assert "?tile=BM16-BN16-BK16" in viewer.evaluate("location.hash")


@pytest.mark.parametrize(
    "address", ["#nothing/0/0/0", "#naive/x/y?mistake=none&size=1x1x1&tile=BM7&block=x"]
)
def test_an_address_that_says_nothing_known_opens_the_start(viewer, site, address):
    open_at(viewer, site, address)
    expect(menu(viewer, "rung")).to_have_value("naive")
    expect(menu(viewer, "size")).to_have_value("64 × 64 × 32")


@pytest.mark.parametrize("level", ["block 0", "warp 0"])
def test_the_state_is_saved_as_a_picture_of_the_viewer(viewer, level):
    choose(viewer, rung="tiles_2d")
    viewer.get_by_role("radio", name=level).check()
    with viewer.expect_download() as saved:
        viewer.get_by_role("button", name="save as image").click()
    assert saved.value.suggested_filename.startswith("tiles_2d-")
    picture = Image.open(saved.value.path())
    head = viewer.locator(".said").bounding_box()
    assert picture.format == "PNG" and picture.width >= 2 * head["width"]
    colours = picture.convert("RGB").getcolors(1 << 24)
    largest = max(count for count, _ in colours)
    assert len(colours) > 20 and largest < 0.97 * picture.width * picture.height
    assert (0, 0, 0) not in {colour for _, colour in colours}  # as a part without a colour is
    # The last part, the order of the accesses, is in it as a whole.
    width, height = picture.width, picture.height
    roll = picture.convert("RGB").crop((0, height // 2, width, height)).getcolors(1 << 24)
    assert tuple(bytes.fromhex(LIGHT["accent"][1:])) in {colour for _, colour in roll}


def test_a_program_that_cannot_be_loaded_is_said_and_another_one_runs(opened, site):
    shown, noted = opened
    shown.goto("about:blank")
    shown.route("**/program-coalesced.js", lambda route: route.abort())
    open_at(shown, site, "")
    menu(shown, "rung").select_option("coalesced")
    expect(shown.locator("#live")).to_have_attribute("data-state", "failed")
    expect(shown.get_by_role("status").first).to_contain_text(
        "This run has no result: program-coalesced.js can't be loaded."
    )
    shown.unroute("**/program-coalesced.js")
    choose(shown, rung="coalesced")
    noted.clear()  # the browser's own message


def test_a_later_choice_replaces_the_run_that_is_under_way(viewer):
    for name in ("tiles_2d", "naive", "coalesced"):
        menu(viewer, "rung").select_option(name)
    checked(viewer)
    expect(viewer.locator(".listing")).to_contain_text("sgemm_coalesced")


def test_a_reader_stops_a_run(viewer):
    menu(viewer, "rung").select_option("tiles_2d")
    viewer.get_by_role("button", name="stop").click()
    expect(viewer.locator("#live")).to_have_attribute("data-state", "failed")
    expect(viewer.get_by_role("button", name="stop")).to_be_disabled()
    choose(viewer, rung="naive")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_axe_finds_nothing_and_nothing_overflows(viewer, width, scheme):
    viewer.set_viewport_size({"width": width, "height": 844})
    viewer.emulate_media(color_scheme=scheme)
    choose(viewer, rung="shared", mistake="no barrier before the tile is overwritten")
    assert axe_findings(viewer) == []
    assert viewer.evaluate(OVERFLOW) <= 0
    viewer.set_viewport_size({"width": 1280, "height": 900})
    viewer.emulate_media(color_scheme="light")


@pytest.fixture
def puzzles(opened, site):
    """Yield the page of the puzzles."""
    shown, noted = opened
    shown.goto((site / "puzzles.html").as_uri())
    shown.wait_for_selector("html[data-ready]")
    yield shown
    assert noted == []


def grade(part, place):
    """Choose an answer of a puzzle, and return its grade and the sentence about it."""
    part.get_by_role("radio").nth(place).check()
    part.get_by_role("button", name="run and grade it").click()
    expect(part).to_have_attribute("data-state", re.compile("right|wrong|failed"))
    return part.get_attribute("data-state"), part.get_by_role("status").inner_text()


@pytest.mark.parametrize("puzzle", choices.PUZZLES, ids=lambda puzzle: puzzle.name)
def test_a_puzzle_s_choices_are_graded_by_what_they_do(puzzles, puzzle):
    part = puzzles.locator(f"#{puzzle.name}")
    expect(part.get_by_role("button", name="run and grade it")).to_be_disabled()
    solution = choices.solutions()[puzzle.name]
    counts = choices.counts_at(choices.kernel_of(solution), puzzle.shape)
    for place, source in enumerate(choices.choices(puzzle)):
        state, text = grade(part, place)
        assert state == ("right" if source == solution else "wrong"), text
        if source == solution:
            assert f"it has {counts[puzzle.measure]:,} {choices.MEASURES[puzzle.measure]}." in text


def test_a_right_product_with_too_many_accesses_is_not_yet_right(puzzles):
    [puzzle] = [one for one in choices.PUZZLES if one.name == "neighbours"]
    naive = edited(puzzle, puzzle.wrong[0])
    place = choices.choices(puzzle).index(naive)
    state, text = grade(puzzles.locator("#neighbours"), place)
    most = choices.most_of(puzzle)
    assert state == "wrong"
    assert text.startswith("Not yet: its C is right, but it has ") and f"; {most:,} are" in text


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_axe_finds_nothing_in_the_puzzles(puzzles, width, scheme):
    puzzles.set_viewport_size({"width": width, "height": 844})
    puzzles.emulate_media(color_scheme=scheme)
    for place in (0, 1):
        grade(puzzles.locator("#neighbours"), place)
    assert axe_findings(puzzles) == []
    assert puzzles.evaluate(OVERFLOW) <= 0
    puzzles.set_viewport_size({"width": 1280, "height": 900})
    puzzles.emulate_media(color_scheme="light")


def test_a_script_in_the_catalogue_does_not_end_the_page_s():
    entry = {"name": "</script>", "idea": "", "tiles": [], "mistakes": []}
    html = live_viewer([entry])
    assert html.count("</script>") == 1
    assert json.loads('"\\u003c/script>"') == "</script>"
