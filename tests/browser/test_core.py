"""The emulator's core in Chromium: equal to the native core, byte for byte."""

import json
import threading
from base64 import b64decode, b64encode
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Error

from tests.emulator.helpers import smallest
from worklog.emulator.core import findings, record
from worklog.emulator.reports import BudgetExceeded
from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER, rung
from worklog.kernel.ladder.rungs import FP32, TENSOR, equal_shares, ragged, split
from worklog.kernel.portable import compressed, described, planned
from worklog.problem import Shape
from worklog.site import emulator, scripts

COUNTING = "while (true) atomicAdd((int*)C, 1);"
WRONG = Path(__file__).parents[1] / "exploits" / "wrong"
# The dispatchers' kernels at few blocks.
RUNGS = [*LADDER, *FP32[:-2], equal_shares(3), ragged(blocks=3), *TENSOR[:-1], split(64, 2, 64)]
RUNGS.append(rung("best"))
STATUS = {number: name for name, number in findings.STATUS.items()}
PAGE = """<!doctype html><title>core</title><script src="parts.js"></script><script type="module">
$script
window.base64 = (bytes) => {
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
};
Object.assign(window, { bytesOf, description, emulator: await Emulator.of(parts) });
</script>"""
RUN = """async ([file, inputs, options]) => {
    for (const name of Object.keys(inputs)) inputs[name] = bytesOf(inputs[name]);
    const found = await emulator.run(await description(file), { inputs, ...options });
    for (const name of Object.keys(found.arguments)) {
        found.arguments[name] = base64(found.arguments[name]);
    }
    for (const launch of found.launches) {
        launch.steps = emulator.steps(launch);
        for (const name of ["trace", "choices"]) launch[name] = base64(launch[name]);
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
def folder(tmp_path_factory, core):
    """Return a folder with a page that has the emulator."""
    made = tmp_path_factory.mktemp("core")
    (made / "parts.js").write_text(f"const parts = {json.dumps(emulator.parts())};")
    (made / "index.html").write_text(PAGE.replace("$script", scripts.EMULATOR.text()))
    return made


@pytest.fixture(scope="module")
def page(browser, folder):
    with serving(folder) as address:
        yield from opened(browser, f"{address}/index.html")


def opened(browser, address):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_function("() => window.emulator")
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
        core.record = with_field(core.record, "most_steps", traced)
        _, status, events, trace = core.execute(launch.numbers, 0)
        assert STATUS[status] == ran["status"]
        assert core.executed.ravel().tolist() == ran["executed"]
        assert core.costs.tolist() == ran["costs"]
        assert core.choices[: len(core.decoder.code)].tobytes() == b64decode(ran["choices"])
        assert rows(events) == ran["events"]
        assert trace.tobytes() == b64decode(ran["trace"])
        assert rows(trace) == ran["steps"]
        assert bool(len(trace)) == bool(traced)
    for name, values in arrays.items():
        assert values.tobytes() == b64decode(found["arguments"][name]), name
    return found["launches"]


def with_field(launch, name, value):
    """Return the bytes of a launch's record with another value of a field."""
    changed = np.frombuffer(bytearray(launch), record("Launch"))
    changed[name] = value
    return changed.tobytes()


def rows(records):
    """Return records as JavaScript has them: a list without its dimensions."""
    out = []
    for item in records:
        row = {}
        for name in records.dtype.names:
            value = np.ravel(item[name]).tolist()
            row[name] = value if np.ndim(item[name]) else value[0]
        if "kind" in row:
            row["kind"] = findings.EVENTS[row["kind"]]
        out.append(row)
    return out


def kinds(launches):
    """Return the kinds of the events that the launches in the browser report."""
    return {event["kind"] for launch in launches for event in launch["events"]}


@pytest.mark.parametrize("kernel", RUNGS, ids=lambda kernel: kernel.name)
def test_a_rung_does_the_same_as_on_the_native_core(page, kernel):
    launches = require_equal(page, kernel, Shape(*smallest(kernel, 2)))
    assert [launch["status"] for launch in launches] == ["DONE"] * len(launches)
    assert kinds(launches) == set()


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("missing_first_barrier", "SHARED_RACE"),
        ("missing_second_barrier", "SHARED_RACE"),
        ("split_k_without_atomics", "GLOBAL_RACE"),
        ("load_without_bounds", "OUT_OF_BOUNDS"),
        ("store_without_bounds", "OUT_OF_BOUNDS"),
    ],
)
def test_a_mistake_gives_the_same_events_as_on_the_native_core(page, name, event):
    launches = require_equal(
        page, Kernel.from_source((WRONG / f"{name}.cu").read_text()), Shape(33, 17, 40)
    )
    assert event in kinds(launches)


def test_multiply_adds_are_rounded_as_on_the_native_core(page):
    """Of numbers with any bits, and of a subnormal result next to a tie."""
    body = "for (int k = threadIdx.x; k < M * N; k += 64) C[k] = fmaf(A[k], B[k], C[k]);"
    plans = planned(sgemm(body), [Shape(64, 64, 64)])
    [(_, arrays, [launch])] = plans
    rng = np.random.default_rng(0)
    inputs = {}
    for name in ("A", "B", "C"):
        bits = rng.integers(0, 2**32, 64 * 64, dtype=np.uint32)
        inputs[name] = bits.view(np.float32)
    inputs["A"][0] = (1 + 2**-15) * 2.0**-75
    inputs["B"][0] = (1 - 2**-15) * 2.0**-75
    inputs["C"][0] = 2.0**-127 + 2.0**-149
    found = run_in(page, plans, sgemm(body), inputs)
    for name, values in inputs.items():
        arrays[name][:] = values
    launch.core.execute(launch.numbers, 0)
    assert arrays["C"].tobytes() == b64decode(found["arguments"]["C"])
    assert arrays["C"][0] == inputs["C"][0]


MISTAKES = {
    "divergent-barrier": (
        "if (threadIdx.x & 1) __syncthreads(); else { C[0] = 1; __syncthreads(); }"
    ),
    "uninitialised-shared": "__shared__ float s[32]; C[threadIdx.x] = s[threadIdx.x];",
    "shared-out-of-bounds": "__shared__ float s[8]; s[threadIdx.x + M] = 1; C[0] = s[0];",
    "missing-syncwarp": (
        "__shared__ float s[32]; s[threadIdx.x] = 1; C[threadIdx.x] = s[threadIdx.x ^ 1];"
    ),
    "misaligned": "*(float2*)(C + 1 + threadIdx.x) = make_float2(1, 2);",
    "global-race": "C[threadIdx.x / 2] = threadIdx.x;",
    "global-out-of-bounds": "C[threadIdx.x - 8] = C[threadIdx.x + 2000000];",
    "assertion": "if (threadIdx.x == 3) assert(M < 0);",
    "undefined-shuffle": "C[threadIdx.x] = __shfl_sync(1, C[threadIdx.x], 5);",
}


@pytest.mark.parametrize(
    "address",
    ["C - 1", "C + M * N", "(char*)(C + M * N) + 1", "C + M * N + 9", "(char*)(1ll << 45)"],
)
def test_an_address_outside_of_all_buffers_has_the_words_of_python(page, address):
    body = f"*(char*)({address}) = 1;"
    require_same_findings(page, sgemm(body), Shape(32, 32, 1), "global-out-of-bounds")


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_finding_has_the_words_of_python(page, kind):
    require_same_findings(page, sgemm(MISTAKES[kind]), Shape(32, 32, 1), kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("missing_first_barrier", "shared-race"),
        ("missing_second_barrier", "shared-race"),
        ("split_k_without_atomics", "global-race"),
        ("load_without_bounds", "global-out-of-bounds"),
    ],
)
def test_a_finding_in_a_wrong_product_has_the_words_of_python(page, name, kind):
    kernel = Kernel.from_source((WRONG / f"{name}.cu").read_text())
    require_same_findings(page, kernel, Shape(33, 17, 40), kind)


ENDLESS = {
    "budget": COUNTING,
    "inner loop": (
        "\nfor (int n = 0; n < N; n++)\n"
        "  for (int k = 0; k < M; k += (int)alpha - 1)\n"
        "    atomicAdd((int*)C + n, 1);\n"
    ),
    "endless": "while (*(volatile float*)C != 1);",
    "deadlock": 'if (threadIdx.x < 32) asm volatile("barrier.sync 1, 64;");',
}


@pytest.mark.parametrize("cause", ENDLESS)
def test_a_launch_that_does_not_end_has_the_error_of_python(page, cause):
    kernel = sgemm(ENDLESS[cause])
    plans = planned(kernel, [Shape(32, 32, 1)])
    [(_, arrays, [launch])] = plans
    found = run_in(page, plans, kernel, inputs_of(arrays))
    for name, values in inputs_of(arrays).items():
        arrays[name][:] = values
    with pytest.raises(BudgetExceeded) as error:
        launch.run()
    assert found["launches"][0]["error"] == str(error.value)


def test_a_launch_that_does_not_end_after_a_mistake_has_a_finding_more(page):
    body = "C[threadIdx.x / 2] = threadIdx.x; if (M) while (*(volatile float*)B != 1);"
    require_same_findings(page, sgemm(body), Shape(32, 32, 1), "deadlock")


def require_same_findings(page, kernel, shape, kind):
    """Check that the findings in the browser are those of Python, with one of a kind."""
    plans = planned(kernel, [shape])
    [(_, arrays, launches)] = plans
    found = run_in(page, plans, kernel, inputs_of(arrays), limitS=60)
    for name, values in inputs_of(arrays).items():
        arrays[name][:] = values
    [ran] = found["launches"]
    [launch] = launches
    right = [
        {
            "kind": finding.kind,
            "line": finding.line,
            "text": finding.text,
            "message": finding.message,
            "block": str(finding.block),
            "threads": list(finding.threads),
            "otherLine": finding.other_line,
            "count": finding.count,
            "isError": finding.is_error,
        }
        for finding in launch.run().findings
    ]
    assert ran["findings"] == right
    assert kind in [finding["kind"] for finding in right]


def test_a_trace_is_the_same_as_on_the_native_core(page):
    require_equal(page, rung("shared"), Shape(32, 32, 64), traced=1000)


def sgemm(body):
    """Return a kernel with one block of 64 threads."""
    parameters = "int M, int N, int K, float alpha, const float* A, const float* B, float beta"
    source = f"__global__ void k({parameters}, float* C) {{ {body} }}"
    return Kernel.from_source(source, grid="1", block="64")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (COUNTING, "BUDGET_OVER"),
        ("while (*(volatile float*)C != 1);", "ENDLESS"),
        ("__trap();", "ABORTED"),
    ],
)
def test_a_launch_that_does_not_finish_has_the_status_of_the_native_core(page, body, status):
    [launch] = require_equal(page, sgemm(body), Shape(32, 32, 1))
    assert launch["status"] == status


def endless():
    """Return a kernel that doesn't end, described without a budget."""
    kernel = sgemm(COUNTING)
    document = described(kernel, planned(kernel, [Shape(32, 32, 1)]))
    document["shapes"][0]["launches"][0]["fields"] |= {"budget": 1 << 50, "slice": 1000}
    return b64encode(compressed(document)).decode()


def start(page, file, **options):
    """Start a kernel in the browser. `window.ended` will be the message of its error."""
    page.evaluate(
        """async ([file, options]) => {
            const kernel = await description(file);
            window.slices = 0;
            const run = emulator.run(kernel, options, () => window.slices++);
            window.ended = run.then(() => "finished", (error) => error.message);
        }""",
        [file, options],
    )


def require_usable(page):
    """Check that the emulator runs another kernel."""
    kernel = rung("naive")
    launches = require_equal(page, kernel, Shape(*smallest(kernel, 1)))
    assert launches[0]["status"] == "DONE"


def test_a_kernel_that_never_ends_is_stopped_at_the_limit_and_the_page_answers_meanwhile(page):
    start(page, endless(), limitS=2)
    page.wait_for_function("() => window.slices > 1")
    assert page.evaluate("() => emulator.isRunning")
    assert page.evaluate("() => window.ended").startswith("the kernel was stopped after 2 s")
    assert not page.evaluate("() => emulator.isRunning")
    require_usable(page)


def test_a_reader_stops_a_kernel_and_cannot_start_two(page):
    start(page, endless(), limitS=600)
    page.wait_for_function("() => window.slices > 1")
    worker = page.workers[-1]
    closed = []
    worker.on("close", lambda ended: closed.append(ended))
    second = "() => emulator.run({}).catch((error) => error.message)"
    assert "wait, or stop it" in page.evaluate(second)
    page.evaluate("() => emulator.stop()")
    assert page.evaluate("() => window.ended") == "the kernel was stopped"
    require_usable(page)
    for _ in range(600):  # Chromium gives a worker some seconds to end
        if not closed:
            page.wait_for_timeout(100)
    assert closed == [worker]


def test_an_input_of_another_size_is_refused(page):
    kernel = rung("naive")
    plans = planned(kernel, [Shape(32, 32, 8)])
    with pytest.raises(Error, match=r"A has 4 bytes: 1024 are expected"):
        run_in(page, plans, kernel, {"A": np.zeros(1, np.float32)})
    require_usable(page)


def test_a_kernel_that_prints_is_refused(page):
    kernel = sgemm('printf("%d", M);')
    with pytest.raises(Error, match="printf"):
        run_in(page, planned(kernel, [Shape(32, 32, 1)]), kernel, {})


def test_a_page_without_a_server_runs_a_kernel(browser, folder):
    for page in opened(browser, (folder / "index.html").as_uri()):
        require_usable(page)
