"""Draw figures/panel.gif: the panel in a real JupyterLab, while its fixes are switched off one after the other.

Run: python -m tests.browser.animation
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import cell, chromium, of_cells, open_and_run, reading, serving

OUT = Path(__file__).parents[2] / "figures" / "panel.gif"
CELL = 'from worklog import lab\nlab.panel("vectorized", 1024)'
FRAME_MS, LAST_MS = 1800, 3500
WIDTH = 900  # of the picture; the page is drawn at twice its size
COLOURS = 64
ACTIONS: list[tuple[Any, str, Callable[[Locator], None]]] = [
    ("checkbox", "3 l2", Locator.uncheck),
    ("checkbox", "2 timer", Locator.uncheck),
    ("combobox", "size", lambda sizes: sizes.select_option("4096")),
    ("button", "all unbiased", Locator.click),
]
MARK = "element => { element.style.outline = '3px solid #d55e00'; element.style.outlineOffset = '3px'; }"
UNMARK = "element => { element.style.outline = ''; }"


def main() -> None:
    """Take a picture before the first action and after each one, with the control in question marked."""
    with tempfile.TemporaryDirectory() as home, chromium() as browser, serving(Path(home)) as lab:
        how = {"viewport": {"width": 1500, "height": 1100}, "device_scale_factor": 2}
        with open_and_run(browser, lab, "panel", of_cells(CELL), **how) as page:
            panel = cell(page, 0).locator(".worklog").first
            expect(reading(panel)).to_be_visible()
            pictures = [picture(page, panel)]
            for role, name, act in ACTIONS:
                before, control = reading(panel).inner_text(), panel.get_by_role(role, name=name)
                control.evaluate(MARK)
                act(control)
                expect(reading(panel)).not_to_have_text(before)
                pictures.append(picture(page, panel))
                control.evaluate(UNMARK)
    frames = []
    for shown in pictures:  # at the height of the tallest one, on white
        canvas = Image.new("RGB", (WIDTH, max(shown.height for shown in pictures)), "white")
        canvas.paste(shown)
        frames.append(canvas.convert("P", palette=Image.Palette.ADAPTIVE, colors=COLOURS))
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(OUT, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)
    print(f"{OUT}: {len(frames)} frames, {OUT.stat().st_size / 1e3:.0f} kB")


def picture(page: Page, panel: Locator) -> Image.Image:
    """The panel as it is shown, once its picture has settled."""
    page.wait_for_timeout(700)
    taken = Image.open(io.BytesIO(panel.screenshot())).convert("RGB")
    return taken.resize((WIDTH, round(taken.height * WIDTH / taken.width)), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main()
