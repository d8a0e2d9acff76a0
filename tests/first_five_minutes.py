"""A new user's first five minutes, in seconds per step: `python -m tests.first_five_minutes PICTURES`.

The checkout's last commit is cloned into an empty folder, with an empty home and without pip's cache. `make article`
(its environment, .venv/.installed, is timed by itself) and `make lab` run there, then a Chromium drags the panel of
notebook 01. Pictures of the pages are kept in the folder PICTURES. It exits with 1 if that took more than five minutes,
and ends with a traceback where a step fails.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import PAGE_MS, chromium

ROOT = Path(__file__).parents[1]
LIMIT_S = 300
LAB_S = 60
OURS = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "WORKLOG_HOME", "WORKLOG_SOURCE")
# Runs the cells with the imports and the panel's, as a reader does with Shift-Enter, and scrolls to the panel.
RUN = """async () => {
    const app = window.jupyterapp, notebook = app.shell.currentWidget;
    await notebook.context.ready; await notebook.sessionContext.ready;
    await notebook.sessionContext.session.kernel.info;
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


@contextmanager
def jupyterlab(checkout: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of `make lab` on a free port, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port, token = free.getsockname()[1], secrets.token_hex(8)
    options = f"--no-browser --port={port} --IdentityProvider.token={token} --LabApp.expose_app_in_browser=True"
    command = ("make", "lab", f"ARGS={options}")
    log = checkout.parent / "lab.log"
    with log.open("w") as said:
        own = {"cwd": checkout, "env": environment, "start_new_session": True}  # so that all its processes end together
        server = subprocess.Popen(command, stdout=said, stderr=said, **own)
    try:
        deadline = time.monotonic() + LAB_S
        while not _answers(f"http://127.0.0.1:{port}/api?token={token}"):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"make lab does not answer: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/lab/tree/01_four_gremlins.ipynb?token={token}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except OSError:
        return False


def use_panel(page: Page, pictures: Path) -> None:
    """Run the panel's cell, drag its slider to another size, and tick a box; each time it answers in words and shows
    another chart.
    """
    with step("run the panel's cell"):
        page.evaluate(RUN)
        outputs, slider = page.locator(".jp-Cell-outputWrapper .worklog"), page.get_by_role("slider", name="size")
        panel = outputs.filter(has=slider).first
        reading, chart = panel.get_by_role("status").filter(has_text="→"), panel.get_by_role("img").first
        expect(reading).to_be_visible(timeout=PAGE_MS)
        expect(chart).to_be_visible(timeout=PAGE_MS)
    page.screenshot(path=pictures / "2_panel.png")

    @contextmanager
    def answered(what: str, picture: str) -> Iterator[None]:
        before = reading.inner_text(), chart.evaluate("element => element.outerHTML")
        with step(what):
            yield
            expect(reading).not_to_have_text(before[0], timeout=PAGE_MS)
            expect(chart).not_to_have_js_property("outerHTML", before[1], timeout=PAGE_MS)
        page.screenshot(path=pictures / picture)

    slider = panel.get_by_role("slider", name="size")
    slider.scroll_into_view_if_needed()
    with answered("drag the size to the right end", "3_dragged.png"):
        box = slider.bounding_box()
        assert box is not None
        share = slider.evaluate("element => element.value / element.max")
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 8 + share * (box["width"] - 16), middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 2, middle, steps=20)
        page.mouse.up()
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
            address = running.enter_context(jupyterlab(checkout, environment))
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        with step("open notebook 01"):
            page.goto(address)
            page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.context?.isReady", timeout=PAGE_MS)
            expect(page.get_by_role("heading", name="Four gremlins").first).to_be_visible(timeout=PAGE_MS)
        page.screenshot(path=pictures / "1_notebook.png")
        use_panel(page, pictures)
        total = sum(SECONDS.values())
        print(f"{total:7.1f} s  from nothing to the panel's third answer, without a reader's pauses", flush=True)
    sys.exit(total > LIMIT_S)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.first_five_minutes PICTURES")
    main(Path(sys.argv[1]))
