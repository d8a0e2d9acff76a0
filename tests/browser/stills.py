"""Draw figures/screens: the panel and the access viewer as they are on a screen.

Each on a light and on a dark page: the panel in a real JupyterLab, with one fix switched off, and
what a warp of `naive` touches.

Run: python -m tests.browser.stills
"""

import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import (
    THEME,
    Lab,
    box,
    cell,
    chromium,
    of_cells,
    open_and_run,
    reading,
    serving,
)
from worklog.site.pages import viewer
from worklog.viewer.accesses import access

FOLDER = Path(__file__).parents[2] / "figures" / "screens"
CELL = 'from worklog import lab\nlab.panel("vectorized", 1024)'
SWITCHED_OFF = "l2"
PLACE = "naive/0/9/1"  # the kernel, its warp, lane and step
THEMES = {"": "JupyterLab Light", "_dark": "JupyterLab Dark"}
SCHEMES = {"": "light", "_dark": "dark"}
# CSS pixels of the page, so that the picture is readable on a telephone, too.
PANEL_VIEWPORT = {"width": 1060, "height": 1700}
ACCESS_VIEWPORT = {"width": 620, "height": 1200}
SCALE = 2
COLOURS = 128
SETTLED_MS = 700


def main() -> None:
    """Take the four pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, chromium() as browser:
        file = Path(home) / "access.html"
        file.write_text(viewer([access("naive").document]), encoding="utf-8")
        for ending, scheme in SCHEMES.items():
            page = browser.new_page(
                viewport=ACCESS_VIEWPORT, device_scale_factor=SCALE, color_scheme=scheme
            )
            page.goto(f"{file.as_uri()}#{PLACE}")
            shown, matrices = (
                page.locator(name).bounding_box() for name in ("#access", "#access .matrices")
            )
            assert shown is not None and matrices is not None
            save(page.locator("#access"), f"access{ending}", height=matrices["y"] - shown["y"])
        with serving(Path(home)) as lab:
            take_panel(browser, lab)


def take_panel(browser: Browser, lab: Lab) -> None:
    """Switch one fix off, and take the panel in each theme."""
    context = browser.new_context(viewport=PANEL_VIEWPORT, device_scale_factor=SCALE)
    with open_and_run(context, lab, "panel", of_cells(CELL)) as page:
        panel = cell(page, 0).locator(".worklog").first
        expect(reading(panel)).to_be_visible()
        before = reading(panel).inner_text()
        box(panel, SWITCHED_OFF).uncheck()
        expect(reading(panel)).not_to_have_text(before)
        for ending, theme in THEMES.items():
            page.evaluate(THEME, theme)
            expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
            save(panel, f"panel{ending}")


def save(part: Locator, name: str, height: float = 0) -> None:
    """Write a part of a page as a PNG of few colours, once its pictures have settled.

    height: of the picture in CSS pixels; 0 for the whole part
    """
    part.page.wait_for_timeout(SETTLED_MS)
    taken = Image.open(io.BytesIO(part.screenshot())).convert("RGB")
    if height:
        taken = taken.crop((0, 0, taken.width, int(SCALE * height)))
    out = FOLDER / f"{name}.png"
    taken.quantize(COLOURS).save(out, optimize=True)
    print(f"{out}: {taken.width} x {taken.height}, {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
