"""The access viewer's page in a browser: by keyboard, on a phone, light and dark."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import axe_findings, rgb
from worklog.analysis import access
from worklog.analysis.html import viewer
from worklog.plots.style import DARK, LIGHT

OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_keys_move_the_address_and_axe_finds_nothing(browser, tmp_path, width, scheme):
    path, noted = tmp_path / "access.html", list[str]()
    path.write_text(viewer([access(name).document for name in ("naive", "bulk_copies")]), encoding="utf-8")
    shown = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    shown.on("pageerror", lambda error: noted.append(str(error)))
    shown.goto(f"{path.as_uri()}#naive/0/0/1")
    shown.wait_for_selector("html[data-ready]")
    expect(shown.get_by_role("status")).to_contain_text("32 sectors where 4 would do, 12.5 % used")
    for keys, address in {"ArrowRight": "0/0/2", "Shift+ArrowLeft": "0/0/1", "ArrowDown": "1/0/1"}.items():
        shown.keyboard.press(keys)
        assert shown.evaluate("location.hash") == f"#naive/{address}"
    shown.get_by_role("radio", name="5", exact=True).focus()
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("location.hash") == "#naive/1/6/1"
    for kernel in ("naive", "bulk_copies"):
        shown.get_by_role("combobox", name="kernel").select_option(kernel)
        assert shown.evaluate(OVERFLOW) <= 0 and axe_findings(shown) == []
    expect(shown.locator("body")).to_have_css("color", rgb((DARK if scheme == "dark" else LIGHT)["ink"]))
    assert noted == []
    shown.close()
