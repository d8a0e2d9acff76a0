"""A real JupyterLab in a headless Chromium, for what only a browser can tell: that widgets show, answer, and can be
reached by keyboard. Skipped with the reason where there is no Chromium; a failed test leaves a screenshot in
.screenshots/.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = (
    f"needs a browser: none of {', '.join(NAMES)} is on the path, nor playwright's own (Debian, Ubuntu: "
    "apt-get install chromium; else: playwright install chromium)"
)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
SERVER_S = 60
PAGE_MS = 60_000  # on a busy machine a chart takes seconds
expect.set_options(timeout=PAGE_MS)
SHOTS = Path(__file__).parents[2] / ".screenshots"
# The toolbar says "idle" before the kernel's session is connected, and a Run All then does nothing.
READY = """async () => {
    const notebook = window.jupyterapp.shell.currentWidget;
    await notebook.context.ready; await notebook.sessionContext.ready;
    await notebook.sessionContext.session.kernel.info;
    await window.jupyterapp.commands.execute('notebook:run-all-cells');
}"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},  # no pop-up in the corner
    "notebook-extension/tracker": {"windowingMode": "none"},  # what is scrolled out of sight stays on the page
}


Opened = Callable[..., AbstractContextManager[Page]]
PAGES: list[Page] = []  # open ones


@dataclass(frozen=True)
class Lab:
    """A server: where it is, its token, and the folder it shows."""

    url: str
    token: str
    folder: Path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that failed leaves a picture of every open page."""
    report = yield
    if report.when == "call" and report.failed:
        for number, page in enumerate(PAGES):
            shot(page, f"{re.sub(r'[^a-zA-Z0-9]+', '-', item.name).strip('-')}-{number}")
    return report


def shot(page: Page, name: str) -> None:
    """A picture of the whole page."""
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with serving(tmp_path_factory.mktemp("jupyter")) as found:
        yield found


@contextmanager
def serving(home: Path) -> Iterator[Lab]:
    """JupyterLab on a free port, with settings of its own in an empty folder, answering from recordings."""
    folder = home / "notebooks"
    folder.mkdir()
    for name, settings in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(settings))
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "WORKLOG_HOME")
    own = {name: str(home / name.lower()) for name in names}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces")}
    own |= {"WORKLOG_SOURCE": "recorded", "PYTHONPATH": str(Path(__file__).parents[2])}  # for the panel's stand-in job
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = Lab(f"http://127.0.0.1:{free.getsockname()[1]}", secrets.token_hex(8), folder)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={found.url.rpartition(':')[2]}", f"--ServerApp.root_dir={folder}"]
    command += [f"--IdentityProvider.token={found.token}", "--LabApp.expose_app_in_browser=True"]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
    try:
        _wait_for(found, server, home / "server.log")
        yield found
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SERVER_S
    while True:
        try:
            with urllib.request.urlopen(f"{lab.url}/api?token={lab.token}", timeout=5) as answer:
                json.load(answer)
            return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as running:
            yield running
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium that is on the path, else the one that playwright may have installed. Raises FileNotFoundError."""
    with sync_playwright() as playwright:
        found = next((path for path in map(shutil.which, NAMES) if path), playwright.chromium.executable_path)
        if not Path(found).exists():
            raise FileNotFoundError(NO_BROWSER)
        running = playwright.chromium.launch(executable_path=found, headless=True, args=list(QUIET))
        yield running
        running.close()


@pytest.fixture(scope="session")
def opened(browser: Browser, lab: Lab) -> Opened:
    """The browser is asked for first, so that without one no server starts."""
    return partial(open_and_run, browser, lab)


@contextmanager
def open_and_run(browser: Browser, lab: Lab, name: str, notebook: nbformat.NotebookNode, **how: Any) -> Iterator[Page]:
    """A notebook of that name on a page, run; its kernel ends with the context. how: for the browser's new page."""
    page = browser.new_page(**{"viewport": {"width": 1400, "height": 1000}} | how)
    page.set_default_timeout(PAGE_MS)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.folder / f"{name}.ipynb")
    page.goto(f"{lab.url}/lab/tree/{name}.ipynb?token={lab.token}&reset")
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    page.evaluate(READY)
    PAGES.append(page)
    try:
        yield page
    except BaseException:
        shot(page, name)
        raise
    finally:
        PAGES.remove(page)
        page.evaluate(SHUT_DOWN)
        page.close()


def of_cells(*cells: str) -> nbformat.NotebookNode:
    """A notebook of these code cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def cell(page: Page, number: int) -> Locator:
    """The output of one cell, from 0."""
    return page.locator(".jp-CodeCell").nth(number).locator(".jp-Cell-outputWrapper")
