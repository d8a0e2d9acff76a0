"""A new user's first five minutes, in seconds per step: `python -m tests.first_five_minutes PICTURES`.

The checkout's last commit is cloned into an empty folder, with an empty home and without pip's cache. `make article`
(its environment, .venv/.installed, is timed by itself) and `make lab` run there, then a Chromium drags the panel of
notebook 01. Pictures of the pages are kept in the folder PICTURES. It exits with 1 if that took more than five minutes,
and ends with a traceback where a step fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import CONNECTED, chromium, jupyterlab, reading, show

ROOT = Path(__file__).parents[1]
LIMIT_S = 300
OURS = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "WORKLOG_HOME", "WORKLOG_SOURCE")
# Runs the cells with the imports and the panel's, as a reader does with Shift-Enter, and scrolls to the panel.
RUN = """async () => {
    const app = window.jupyterapp, notebook = app.shell.currentWidget;
    const cells = notebook.content.widgets, source = cell => cell.model.sharedModel.getSource();
    const panel = cells.findIndex(cell => source(cell).startsWith('lab.panel('));
    for (const [index, cell] of cells.entries()) {
        const imports = cell.model.type === 'code' && index < panel && /^(import|from) /m.test(source(cell));
        if (!imports && index !== panel) continue;
        notebook.content.deselectAll();
        notebook.content.activeCellIndex = index;
        await app.commands.execute('notebook:run-cell');
    }
    await notebook.content.scrollToItem(panel, 'start');
}"""
SECONDS: dict[str, float] = {}


@contextmanager
def step(what: str) -> Iterator[None]:
    """Print how long the block takes."""
    started = time.monotonic()
    yield
    SECONDS[what] = time.monotonic() - started
    print(f"{SECONDS[what]:7.1f} s  {what}", flush=True)


def clean(home: Path) -> dict[str, str]:
    """The environment of a fresh container: an empty home, no cache, and not this checkout's Python ahead."""
    path = [each for each in os.environ["PATH"].split(os.pathsep) if Path(each) != Path(sys.executable).parent]
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return kept | {"HOME": str(home), "PATH": os.pathsep.join(path), "PIP_NO_CACHE_DIR": "1"}


def use_panel(page: Page, pictures: Path) -> None:
    """Run the panel's cell, choose another size, and tick a box; each time it answers in words."""
    with step("run the panel's cell"):
        page.evaluate(CONNECTED)
        page.evaluate(RUN)
        panel = page.locator(".jp-Cell-outputWrapper .worklog").first
        words = reading(panel)
        expect(words).to_be_visible()
    page.screenshot(path=pictures / "2_panel.png")

    @contextmanager
    def answered(what: str, picture: str) -> Iterator[None]:
        before = words.inner_text()
        with step(what):
            yield
            expect(words).not_to_have_text(before)
        page.screenshot(path=pictures / picture)

    with answered("choose the largest size", "3_size.png"):
        panel.get_by_role("combobox", name="size").select_option("4096")
    with answered("tick “3 l2”: flush it", "4_ticked.png"):
        panel.get_by_role("checkbox", name="3 l2").check()


def main(pictures: Path) -> None:
    """Carry out the steps, and print the seconds of each one and their sum."""
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, ExitStack() as running:
        checkout, home = Path(folder) / "worklog", Path(folder) / "home"
        home.mkdir()
        environment = clean(home)
        with step("git clone"):
            subprocess.run(("git", "clone", "--quiet", ROOT, checkout), env=environment, check=True)
        for target in (".venv/.installed", "article"):
            with step(f"make {target}"), (pictures / f"{Path(target).name.lstrip('.')}.txt").open("w") as said:
                subprocess.run(("make", target), cwd=checkout, env=environment, stdout=said, check=True)
        with step("make lab, until it answers"):
            how = {"cwd": checkout, "env": environment}
            log, server = Path(folder) / "lab.log", lambda options: ["make", "lab", f"ARGS={' '.join(options)}"]
            lab = running.enter_context(jupyterlab(server, checkout / "notebooks", log, **how))
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        with step("open notebook 01"):
            show(page, lab, "01_four_gremlins")
            expect(page.get_by_role("heading", name="Four gremlins").first).to_be_visible()
        page.screenshot(path=pictures / "1_notebook.png")
        use_panel(page, pictures)
        total = sum(SECONDS.values())
        print(f"{total:7.1f} s  from nothing to the panel's third answer, without a reader's pauses", flush=True)
    sys.exit(total > LIMIT_S)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.first_five_minutes PICTURES")
    main(Path(sys.argv[1]))
