// The emulator on a page: kernels run in a worker, so that the page answers meanwhile.

const LIMIT_S = 10;
const DEFAULTS = { shape: 0, inputs: {}, races: true, counts: true, steps: 0 };
const MOST_STEPS = 100_000; // of a trace; each has 0.8 kB

// Resolves with the bytes of a compressed file in base64.
function unzipped(base64) {
    const stream = new Blob([bytesOf(base64)]).stream();
    return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// Returns a kernel's description (worklog.kernel.portable) from its compressed file in base64.
async function description(base64) {
    return JSON.parse(new TextDecoder().decode(await unzipped(base64)));
}

class Emulator {
    // parts: what worklog.site.emulator.parts returns
    static async of(parts) {
        const module = await WebAssembly.compile(await unzipped(parts.core));
        return new Emulator(module, parts.layouts, parts.worker);
    }

    // script: of the worker. A page that isn't from a server can't start a worker by its address.
    constructor(module, layouts, script) {
        this.module = module;
        this.layouts = layouts;
        this.script = script;
        this.worker = null;
        this.end = null; // ends the run with an error, if one is under way
    }

    get isRunning() {
        return this.end !== null;
    }

    // Returns the steps of a launch's trace from a place on.
    steps(launch, first = 0, count = Infinity) {
        const { Step } = this.layouts.records;
        const end = Math.min(launch.trace.length, (first + count) * Step.size);
        return decoded(launch.trace.subarray(first * Step.size, end), Step);
    }

    // Runs a kernel, and resolves with the result of `run` in core.js.
    //
    // options: as for `run`, and limitS (seconds until the run is stopped)
    // progress: is called with the number of blocks that have ended, and of all
    run(kernel, options = {}, progress = () => {}) {
        return this.ask("run", kernel, { ...DEFAULTS, ...options }, progress);
    }

    // Runs a block, and resolves with the document of the access viewer.
    //
    // options: shape and block, as for `view` in core.js, and limitS
    view(kernel, options = {}, progress = () => {}) {
        const defaults = { shape: 0, block: 0, steps: MOST_STEPS };
        return this.ask("view", kernel, { ...defaults, ...options }, progress);
    }

    // Runs all blocks, and resolves with the findings and the elements of C that are wrong.
    //
    // options: shape and counts, as for `check` in core.js, and limitS
    check(kernel, options = {}, progress = () => {}) {
        return this.ask("check", kernel, { shape: 0, counts: false, ...options }, progress);
    }

    ask(task, kernel, { limitS = LIMIT_S, ...options }, progress) {
        if (this.isRunning) {
            return Promise.reject(new Error("a kernel is running: wait, or stop it"));
        }
        return new Promise((resolve, reject) => {
            const text = `the kernel was stopped after ${limitS} s: use a smaller size`;
            const timer = setTimeout(() => this.stop(text), 1000 * limitS);
            this.end = (settle, value) => {
                clearTimeout(timer);
                this.end = null;
                settle(value);
            };
            this.reject = reject;
            this.worker ??= this.start();
            this.worker.onerror = (event) => this.stop(`the worker failed: ${event.message}`);
            this.worker.onmessage = ({ data }) => {
                if (data.result) {
                    this.end(resolve, data.result);
                } else if (data.error) {
                    this.stop(data.error);
                } else {
                    progress(data.ended, data.blocks);
                }
            };
            const { module, layouts } = this;
            this.worker.postMessage({ task, module, layouts, kernel, options });
        });
    }

    // Ends the run with an error. The next run starts another worker.
    stop(text = "the kernel was stopped") {
        this.worker?.terminate();
        this.worker = null;
        this.end?.(this.reject, new Error(text));
    }

    start() {
        const address = URL.createObjectURL(new Blob([this.script], { type: "text/javascript" }));
        const worker = new Worker(address);
        URL.revokeObjectURL(address);
        return worker;
    }
}
