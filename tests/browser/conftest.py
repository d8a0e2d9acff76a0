"""Start a real JupyterLab in a headless Chromium, for what only a browser can show.

That is: widgets appear, answer, and can be reached by keyboard. The tests are skipped with the
reason if there is no Chromium.
"""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from filelock import FileLock
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from tests.helpers import typed
from tests.lab.grid import part_of_the_recording
from worklog.cli import options
from worklog.emulator.core import build

NAMES = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = (
    f"needs a browser: none of {', '.join(NAMES)} is on the path, nor playwright's own: "
    "make setup-browser"
)
QUIET = [
    "no-sandbox",
    "disable-gpu",
    "disable-background-networking",
    "disable-dev-shm-usage",
    "no-first-run",
]
SERVER_S = 60
PAGE_MS = 60_000  # on a busy machine a chart takes seconds
expect.set_options(timeout=PAGE_MS)
# The toolbar says "idle" before the kernel's session is connected, and a cell that is run then does
# nothing.
CONNECTED = """async () => {
    const notebook = window.jupyterapp.shell.currentWidget;
    await notebook.context.ready; await notebook.sessionContext.ready;
    await notebook.sessionContext.session.kernel.info;
}"""
THEME = "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
COLLAPSE = "() => { jupyterapp.shell.collapseLeft(); jupyterapp.shell.collapseRight(); }"
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},  # no pop-up in the corner
    "notebook-extension/tracker": {
        "windowingMode": "none"
    },  # what is scrolled out of sight stays on the page
}
# Counted on the page: all passes of a chapter are megabytes.
FINDINGS = """part => axe.run(
    part || document, {resultTypes: ["violations", "passes"]}
).then(found => ({
    violations: found.violations.map(
        v => `${v.id} at ${v.nodes[0].target}: ${v.nodes[0].failureSummary}`
    ),
    contrasts: found.passes.filter(rule => rule.id === "color-contrast").flatMap(rule => rule.nodes)
        .filter(node => node.any.some(check => check.data?.contrastRatio)).length,
}))"""
SITE_S = 900  # until a site is written, on a busy machine
OTHERS = "pitfalls that the article doesn't name"


@dataclass(frozen=True)
class Lab:
    """A server: where it is, its token, and the folder with its notebooks."""

    url: str
    token: str
    folder: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of a site wait for it."""
    for item in items:
        if {"core", "written"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.timeout(SITE_S))


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Return a folder that all workers share, for what is made once."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def core(shared):
    """Compile the core for browsers, once in a checkout."""
    with FileLock(shared / "core.lock"):
        old = {*build.HERE.glob("core-*.wasm")}
        path = build.compile_wasm(build.HERE)
        for other in old - {path}:
            other.unlink()
    return path


@dataclass(frozen=True)
class WrittenSite:
    """A site, and what the command printed with every line of its progress."""

    folder: str
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def written(shared, core):
    """Write the site, with a part of the panel's recording. The first worker writes it for all."""
    made = shared / "site"
    record = shared / "site.json"
    with FileLock(shared / "site.lock"), pytest.MonkeyPatch.context() as patch:
        if not record.exists():
            patch.setattr(options, "LINE_S", 0.0)
            grid = part_of_the_recording().save(shared / "grid.jsonl")
            printed = typed("site", "--grid", grid, "--out", made)
            site = WrittenSite(str(made), printed.stdout, printed.stderr)
            record.write_text(json.dumps(asdict(site)))
        return WrittenSite(**json.loads(record.read_text()))


@pytest.fixture(scope="session")
def site(written):
    """Return the folder of the site."""
    return Path(written.folder)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("jupyter")) as found:
        yield found


@contextmanager
def serving(home: Path) -> Iterator[Lab]:
    """JupyterLab on a free port, once it answers, with settings of its own in an empty folder.

    From recordings.
    """
    folder = home / "notebooks"
    folder.mkdir()
    for name, settings in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(settings))
    names = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "IPYTHONDIR",
        "WORKLOG_HOME",
    )
    own = {name: str(home / name.lower()) for name in names}
    own |= {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    own |= {
        "WORKLOG_SOURCE": "recorded",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # for the panel's stand-in job
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        token = secrets.token_hex(8)
        log = home / "server.log"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--allow-root",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
    ]
    command += [f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    with log.open("w") as said:  # a session of its own, so that all its processes end together
        server = subprocess.Popen(
            command, stdout=said, stderr=said, start_new_session=True, env=os.environ | own
        )
    try:
        deadline = time.monotonic() + SERVER_S
        while not answers(f"http://127.0.0.1:{port}/api?token={token}"):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        yield Lab(f"http://127.0.0.1:{port}", token, folder)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def answers(address: str) -> bool:
    """Whether a server answers there."""
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture(scope="session")
def browser():
    try:
        with chromium() as running:
            yield running
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the Chromium that is on the path, else the one that playwright may have installed.

    Raises FileNotFoundError.
    """
    with sync_playwright() as playwright:
        found = next(
            (path for path in map(shutil.which, NAMES) if path), playwright.chromium.executable_path
        )
        if not Path(found).exists():
            raise FileNotFoundError(NO_BROWSER)
        running = playwright.chromium.launch(
            executable_path=found, headless=True, args=[f"--{option}" for option in QUIET]
        )
        yield running
        running.close()


@pytest.fixture(scope="session")
def opened(browser, lab):
    """Return `open_and_run` for the browser and the server. The pages share a cache.

    The browser is requested first, so that without one no server starts.
    """
    return partial(open_and_run, browser.new_context(viewport={"width": 1400, "height": 1000}), lab)


@contextmanager
def open_and_run(
    context: BrowserContext, lab: Lab, name: str, notebook: nbformat.NotebookNode
) -> Iterator[Page]:
    """Yield a notebook of that name on a page, run. Its kernel ends with the page."""
    page = context.new_page()
    page.set_default_timeout(PAGE_MS)
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(notebook, lab.folder / f"{name}.ipynb")
    page.goto(f"{lab.url}/lab/tree/{name}.ipynb?token={lab.token}&reset")
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    page.evaluate(CONNECTED)
    page.evaluate(RUN_ALL)
    try:
        yield page
    finally:
        page.evaluate(SHUT_DOWN)
        page.close()


def of_cells(*cells: str) -> nbformat.NotebookNode:
    """Return a notebook of these code cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def cell(page: Page, number: int) -> Locator:
    """Return the output of one cell, from 0."""
    return page.locator(".jp-CodeCell").nth(number).locator(".jp-Cell-outputWrapper")


def axe_findings(page: Page, part: str | None = None) -> list[str]:
    """Return what axe-core finds on the page, or in the parts that a selector names.

    Each finding has the rule, the first place and the message.
    """
    # JupyterLab's body has no height and hides what is outside it, where axe takes no text for
    # visible.
    page.add_style_tag(content="body { min-height: 100vh; }")
    page.evaluate(Axe().axe_script)
    found = page.evaluate(FINDINGS, part)
    assert found["contrasts"] > 0
    return list(found["violations"])


def reading(panel: Locator) -> Locator:
    """Return the text of the panel's answer."""
    return panel.locator(".head")


def box(panel: Locator | Page, setting: str) -> Locator:
    """Return the check box of one setting, after its number in the article."""
    return panel.get_by_role("checkbox", name=re.compile(rf"^(\d )?{setting}$"))


def rgb(colour: str) -> str:
    """Return a colour as a browser writes it."""
    return "rgb({}, {}, {})".format(*bytes.fromhex(colour[1:]))


def tab_to(page: Page, control: Locator, most: int = 10) -> None:
    """Press Tab until the control has the focus, at most so many times."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if control.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"Tab doesn't reach {control}")
