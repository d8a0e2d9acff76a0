// The emulator on a page: kernels run in a worker, so that the page answers meanwhile.

const LIMIT_S = 10;
const DEFAULTS = { shape: 0, inputs: {}, races: true, counts: true, steps: 0 };

// Returns the bytes of a compressed file: core.wasm.gz, or a kernel's description.
export async function unpacked(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
}

// Returns a kernel's description (worklog.kernel.portable) from its compressed bytes.
export async function description(bytes) {
    return JSON.parse(new TextDecoder().decode(await unpacked(bytes)));
}

export class Emulator {
    // core: the bytes of core.wasm
    // layouts: of the core's records
    // script: the text of core.js. A page that isn't from a server can't start a worker by address.
    static async of(core, layouts, script) {
        return new Emulator(await WebAssembly.compile(core), layouts, script);
    }

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

    // Runs a kernel, and resolves with the result of `run` in core.js.
    //
    // options: as for `run`, and limitS (seconds until the run is stopped)
    // progress: is called with the number of blocks that have ended, and of all
    run(kernel, { limitS = LIMIT_S, ...options } = {}, progress = () => {}) {
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
            const message = { module, layouts, kernel, options: { ...DEFAULTS, ...options } };
            this.worker.postMessage(message);
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
        const worker = new Worker(address, { type: "module" });
        URL.revokeObjectURL(address);
        return worker;
    }
}
