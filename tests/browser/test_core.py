"""The emulator's core in Chromium: equal to the native core, byte for byte."""

import json
import shutil
import threading
from base64 import b64decode, b64encode
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.helpers import smallest
from worklog.emulator.core import findings, portable
from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER
from worklog.kernel.ladder.rungs import FP32, TENSOR, equal_shares, ragged, split
from worklog.kernel.portable import compressed, described, planned
from worklog.problem import Shape

SITE = Path(portable.__file__).parents[2] / "site"
WRONG = Path(__file__).parents[1] / "exploits" / "wrong"
STATUS = {number: name for name, number in findings.STATUS.items()}
PAGE = """<!doctype html><title>core</title><script type="module">
import { Emulator, description } from "./emulator.js";
const read = (name) => fetch(name).then((response) => response.arrayBuffer());
const layouts = await fetch("layouts.json").then((response) => response.json());
const script = await fetch("core.js").then((response) => response.text());
window.emulator = await Emulator.of(await read("core.wasm"), layouts, script);
window.base64 = (bytes) => {
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
};
window.bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
window.description = description;
</script>"""
RUN = """async ([file, inputs, options]) => {
    const kernel = await description(bytes(file));
    for (const name of Object.keys(inputs)) inputs[name] = bytes(inputs[name]);
    const found = await emulator.run(kernel, { inputs, ...options });
    for (const name of Object.keys(found.arguments)) {
        found.arguments[name] = base64(found.arguments[name]);
    }
    for (const launch of found.launches) {
        for (const name of ["events", "trace", "choices"]) launch[name] = base64(launch[name]);
    }
    return found;
}"""


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *_):
        pass


@contextmanager
def serving(folder):
    """Serve a folder. Yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the core, its scripts and a page."""
    made = tmp_path_factory.mktemp("core")
    shutil.copy(portable.core_file(), made / "core.wasm")
    for name in ("core.js", "emulator.js"):
        shutil.copy(SITE / name, made)
    (made / "layouts.json").write_text(json.dumps(portable.layouts()))
    (made / "index.html").write_text(PAGE)
    return made


@pytest.fixture(scope="module")
def page(browser, folder):
    with serving(folder) as address:
        page = browser.new_page()
        page.goto(f"{address}/index.html")
        page.wait_for_function("() => window.description")
        yield page
        page.close()


def base64(array):
    return b64encode(array.tobytes()).decode()


def run_in(page, plans, kernel, inputs, **options):
    """Run a kernel at its first shape in the browser."""
    file = b64encode(compressed(described(kernel, plans))).decode()
    texts = {name: base64(array) for name, array in inputs.items()}
    return page.evaluate(RUN, [file, texts, options])


def inputs_of(arrays):
    """Return whole numbers for A and B, and NaN for the other arrays."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name, array in arrays.items():
        values = np.full(array.size, np.nan, np.float32)
        if name in ("A", "B"):
            values[:] = rng.integers(-4, 5, array.size)
        inputs[name] = values
    return inputs


def require_equal(page, kernel, shape, traced=0):
    """Check that both cores do the same at a shape. Return the launches in the browser."""
    plans = planned(kernel, [shape])
    [(_, arrays, launches)] = plans
    inputs = inputs_of(arrays)
    found = run_in(page, plans, kernel, inputs, limitS=60, steps=traced)
    for name, values in inputs.items():
        arrays[name][:] = values
    for launch, ran in zip(launches, found["launches"], strict=True):
        core = launch.core
        record, status, events, trace = core.execute(launch.numbers, 0)
        assert STATUS[status] == ran["status"]
        assert core.executed.ravel().tolist() == ran["executed"]
        assert core.costs.tolist() == ran["costs"]
        assert core.choices[: len(core.decoder.code)].tobytes() == b64decode(ran["choices"])
        assert events.tobytes() == b64decode(ran["events"])
    for name, values in arrays.items():
        assert values.tobytes() == b64decode(found["arguments"][name]), name
    return found["launches"], events


RUNGS = [*LADDER, *FP32[:-2], equal_shares(3), ragged(blocks=3), *TENSOR[:-1], split(64, 2, 64)]


@pytest.mark.parametrize("kernel", RUNGS, ids=lambda kernel: kernel.name)
def test_a_rung_does_the_same_as_on_the_native_core(page, kernel):
    launches, _ = require_equal(page, kernel, Shape(*smallest(kernel, 2)))
    assert all(launch["status"] == "DONE" for launch in launches)
