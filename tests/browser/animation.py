"""Draw figures/panel.gif and figures/access.gif.

The first is the panel in a real JupyterLab, while its fixes are switched off one after the other.
The second is what a warp of two rungs touches.

Run: python -m tests.browser.animation
"""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Lab, cell, chromium, of_cells, open_and_run, reading, serving
from worklog.site.pages import viewer
from worklog.viewer.accesses import access

FIGURES = Path(__file__).parents[2] / "figures"
CELL = 'from worklog import lab\nlab.panel("vectorized", 1024)'
FRAME_MS = 1800
LAST_MS = 3500
WIDTH = 900  # of the picture; the page is drawn at twice its size
COLOURS = 64
ACTIONS: list[tuple[Any, str, Callable[[Locator], None]]] = [
    ("checkbox", "3 l2", Locator.uncheck),
    ("checkbox", "2 timer", Locator.uncheck),
    ("combobox", "size", lambda sizes: sizes.select_option("4096")),
    ("button", "all unbiased", Locator.click),
]
# Of the access viewer: kernel, warp, lane and step.
STEPS = (
    "naive/0/0/0",
    "naive/0/0/1",
    "naive/0/1/1",
    "naive/0/9/1",
    "coalesced/0/9/0",
    "coalesced/0/9/1",
)
# pixels: of the page, and of the picture without the buttons
VIEWPORT = 1180
CROPPED = 552
MARK = (
    "element => { element.style.outline = '3px solid #d55e00'; element.style.outlineOffset = "
    "'3px'; }"
)
UNMARK = "element => { element.style.outline = ''; }"


def main() -> None:
    """Take the pictures of both."""
    with tempfile.TemporaryDirectory() as home, chromium() as browser:
        file = Path(home) / "access.html"
        file.write_text(
            viewer([access(name).document for name in ("naive", "coalesced")]), encoding="utf-8"
        )
        shown = browser.new_page(viewport={"width": VIEWPORT, "height": 900}, device_scale_factor=2)
        pictures = []
        for step in STEPS:
            shown.goto("about:blank")
            shown.goto(f"{file.as_uri()}#{step}")
            pictures.append(picture(shown, shown.locator("#access")).crop((0, 0, WIDTH, CROPPED)))
        save(pictures, "access")
        with serving(Path(home)) as lab:
            save(of_panel(browser, lab), "panel")


def of_panel(browser: Browser, lab: Lab) -> list[Image.Image]:
    """Before the first action and after each one, with the control in question marked."""
    context = browser.new_context(viewport={"width": 1500, "height": 1100}, device_scale_factor=2)
    with open_and_run(context, lab, "panel", of_cells(CELL)) as page:
        panel = cell(page, 0).locator(".worklog").first
        expect(reading(panel)).to_be_visible()
        pictures = [picture(page, panel)]
        for role, name, act in ACTIONS:
            before = reading(panel).inner_text()
            control = panel.get_by_role(role, name=name)
            control.evaluate(MARK)
            act(control)
            expect(reading(panel)).not_to_have_text(before)
            pictures.append(picture(page, panel))
            control.evaluate(UNMARK)
    return pictures


def save(pictures: list[Image.Image], name: str) -> None:
    """As one moving picture, at the height of the tallest one, on white."""
    frames = []
    for shown in pictures:
        canvas = Image.new("RGB", (WIDTH, max(shown.height for shown in pictures)), "white")
        canvas.paste(shown)
        frames.append(canvas.convert("P", palette=Image.Palette.ADAPTIVE, colors=COLOURS))
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    out = FIGURES / f"{name}.gif"
    frames[0].save(
        out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True
    )
    print(f"{out}: {len(frames)} frames, {out.stat().st_size / 1e3:.0f} kB")


def picture(page: Page, panel: Locator) -> Image.Image:
    """Return the panel as it is shown, once its picture has settled."""
    page.wait_for_timeout(700)
    taken = Image.open(io.BytesIO(panel.screenshot())).convert("RGB")
    return taken.resize(
        (WIDTH, round(taken.height * WIDTH / taken.width)), Image.Resampling.LANCZOS
    )


if __name__ == "__main__":
    main()
