"""Draw figures/screens: the panel and the access viewer as they are on a screen.

The panel stands in a real JupyterLab, with one or two fixes off; the viewer shows what a warp of a
kernel touches. A stored notebook shows the still that a cell's tag names.

Run: python -m tests.browser.stills
"""

import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import (
    THEME,
    Lab,
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
IMPORT = "from worklog import lab"
PANELS = {
    "panel": 'lab.panel("vectorized", 1024, l2="warm")',
    "panel_two_off": 'lab.panel("vectorized", 1024, l2="warm", queue=False)',
}
# Rungs whose accesses the notebooks show.
VIEWED = (
    "naive",
    "coalesced",
    "shared",
    "tiles_1d",
    "tiles_2d",
    "vectorized",
    "conflict_free",
    "warptiled",
)
LANE = 9
IN_README = ("access_naive", "panel")  # on dark pages, too; a notebook has one picture for both
THEMES = {"": "JupyterLab Light", "_dark": "JupyterLab Dark"}
SCHEMES = {"": "light", "_dark": "dark"}
# CSS pixels of the page, so that the picture is readable on a telephone, too.
PANEL_VIEWPORT = {"width": 1060, "height": 1700}
ACCESS_VIEWPORT = {"width": 620, "height": 1200}
SCALE = 2
COLOURS = 128
SETTLED_MS = 700


def main() -> None:
    """Take every picture."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, chromium() as browser:
        for rung in VIEWED:
            name = f"access_{rung}"
            document = access(rung).document
            file = Path(home) / f"{name}.html"
            file.write_text(viewer([document]), encoding="utf-8")
            for ending in endings(name):
                page = browser.new_page(
                    viewport=ACCESS_VIEWPORT,
                    device_scale_factor=SCALE,
                    color_scheme=SCHEMES[ending],
                )
                warp, step = document["start"]
                page.goto(f"{file.as_uri()}#{rung}/{warp}/{LANE}/{step}")
                take_access(page, f"{name}{ending}")
        with serving(Path(home)) as lab:
            take_panels(browser, lab)


def endings(name: str) -> tuple[str, ...]:
    """Return how the file names of a still end: one for a light page, one for a dark one."""
    return ("", "_dark") if name in IN_README else ("",)


def take_access(page: Page, name: str) -> None:
    """Take the access viewer down to its matrices."""
    shown = page.locator("#access").bounding_box()
    matrices = page.locator("#access .matrices").bounding_box()
    assert shown is not None and matrices is not None
    save(page.locator("#access"), name, height=matrices["y"] - shown["y"])


def take_panels(browser: Browser, lab: Lab) -> None:
    """Take each panel in each theme."""
    context = browser.new_context(viewport=PANEL_VIEWPORT, device_scale_factor=SCALE)
    for name, code in PANELS.items():
        with open_and_run(context, lab, name, of_cells(f"{IMPORT}\n{code}")) as page:
            panel = cell(page, 0).locator(".worklog").first
            expect(reading(panel)).to_be_visible()
            for ending in endings(name):
                theme = THEMES[ending]
                page.evaluate(THEME, theme)
                expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
                save(panel, f"{name}{ending}")


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
