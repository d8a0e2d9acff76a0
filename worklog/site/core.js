// A worker that runs kernels on the emulator's core in WebAssembly. Python
// (worklog.emulator.portable) has decoded the kernels.

const LANES = 32;

// The core with its memory. Memory that runs take isn't given back: each run has a core of its own.
class Core {
    constructor(instance, layouts) {
        this.calls = instance.exports;
        this.records = layouts.records;
    }

    // The memory moves when it grows, so a view is made for each use.
    bytes(start, size) {
        return new Uint8Array(this.calls.memory.buffer, start, size);
    }

    // Returns the address of zeros.
    room(size) {
        const start = this.calls.malloc(Math.max(size, 1)) >>> 0;
        if (!start) {
            throw new Error("no memory for the launch: use a smaller size");
        }
        this.bytes(start, size).fill(0);
        return start;
    }

    place(bytes) {
        const start = this.room(bytes.length);
        this.bytes(start, bytes.length).set(bytes);
        return start;
    }

    // Sets a field of a record, which may have several numbers.
    set(name, start, field, values) {
        const [offset, type] = this.records[name].fields[field];
        const view = new DataView(this.calls.memory.buffer, start + offset);
        [values].flat().forEach((value, place) => {
            if (type.endsWith("8")) {
                view.setBigInt64(8 * place, BigInt(value), true);
            } else {
                view.setInt32(4 * place, Number(value), true);
            }
        });
    }

    get(name, start, field) {
        return fieldOf(this.records[name], this.calls.memory.buffer, start, field);
    }

    // Returns a list of the core's, whose address and length the launch has.
    list(launch, field, record) {
        const count = Number(this.get("Launch", launch, `${field}_count`));
        const start = this.get("Launch", launch, field);
        return this.bytes(start, count * this.records[record].size).slice();
    }
}

// The registers that a warp starts with: values that many lanes have, and those of the launch.
function imageOf(core, program, launch) {
    const runs = program.image;
    /** @type {number[]} */
    const values = [];
    for (let place = 0; place < runs.length; place += 2) {
        for (let count = runs[place + 1]; count; count--) {
            values.push(runs[place]);
        }
    }
    const image = Uint32Array.from(values);
    for (const [offset, value] of launch.image) {
        image.fill(value, offset / 4, offset / 4 + LANES);
    }
    return core.place(new Uint8Array(image.buffer));
}

// Places the buffers of a launch. Arguments are in `memory`, by name.
function buffersOf(core, launch, memory, hasRaces) {
    const size = core.records.Buffer.size;
    const start = core.room(size * launch.buffers.length);
    launch.buffers.forEach((buffer, place) => {
        const record = start + size * place;
        const set = (field, value) => core.set("Buffer", record, field, value);
        for (const field of ["base", "size"]) {
            set(field, buffer[field]);
        }
        set("writable", buffer.writable ? 1 : 0);
        if (buffer.argument) {
            set("data", memory[buffer.argument] + buffer.offset);
        } else if (buffer.data !== undefined) {
            set("data", core.place(bytesOf(buffer.data)));
        }
        if (buffer.checked && hasRaces) {
            const cells = Math.ceil(buffer.size / launch.grain) + 1;
            set("cells", core.room(cells * core.records.Cell.size));
        }
    });
    return start;
}

function numbersOf(launch, options) {
    if (options.blocks) {
        if (launch.fields.blocks > 1) {
            throw new Error("blocks of a cluster run together: run all blocks");
        }
        return options.blocks;
    }
    return Array.isArray(launch.blocks) ? launch.blocks : [...Array(launch.blocks).keys()];
}

// Fills the record of a launch, and returns the addresses of what it points to.
function fill(core, program, launch, memory, options) {
    const numbers = numbersOf(launch, options);
    const instructions = bytesOf(program.code);
    const counts = 16 * program.lengths.length;
    const at = {
        code: core.place(instructions),
        sites: core.place(bytesOf(program.sites)),
        specials: core.place(bytesOf(program.specials)),
        lists: core.place(new Uint8Array(Int32Array.from(program.lists).buffer)),
        image: imageOf(core, program, launch),
        layouts: core.place(bytesOf(launch.layouts)),
        buffers: buffersOf(core, launch, memory, options.races),
        numbers: core.place(new Uint8Array(BigInt64Array.from(numbers, BigInt).buffer)),
        executed: core.room(counts),
        half: core.room(counts),
        choices: core.room(instructions.length / core.records.Instruction.size),
    };
    const record = core.room(core.records.Launch.size);
    const fields = {
        ...launch.fields,
        clusters_count: numbers.length / launch.fields.blocks,
        counting: options.counts ? 1 : 0,
        checking: options.races ? 1 : 0,
        most_steps: options.steps,
    };
    for (const [field, value] of Object.entries({ ...fields, ...at })) {
        core.set("Launch", record, field, value);
    }
    return { record, at, blocks: numbers.length };
}

// Returns the events of a launch, with the names of their kinds.
function eventsOf(core, record, layouts) {
    const events = decoded(core.list(record, "events", "Event"), layouts.records.Event);
    return events.map((event) => ({ ...event, kind: layouts.events[event.kind] }));
}

// Returns where a launch is that doesn't end.
function stuckAt(core, record) {
    const get = (field) => core.get("Launch", record, field);
    return {
        pc: get("stuck_pc"),
        thread: get("stuck_thread"),
        block: get("stuck_block"),
        count: get("stuck_count"),
        number: get("stuck_number"),
        isHalved: get("halved") !== 0,
    };
}

function resultOf(core, program, layouts, filled, status) {
    const { record, at } = filled;
    const names = Object.keys(layouts.status);
    const size64 = 16 * program.lengths.length;
    const numbers = (start) =>
        [...new BigInt64Array(core.bytes(start, size64).slice().buffer)].map(Number);
    const { size } = core.records.Site;
    const costs = program.owners.map((_, n) => core.get("Site", at.sites + size * n, "costs"));
    const instructions = program.lines.length;
    return {
        program: program.name,
        status: names.find((name) => layouts.status[name] === status),
        stuck: stuckAt(core, record),
        executed: numbers(at.executed),
        half: numbers(at.half),
        costs,
        choices: core.bytes(at.choices, instructions).slice(),
        events: eventsOf(core, record, layouts),
        trace: core.list(record, "traced", "Step"),
    };
}

// Runs a launch to its end, slice by slice.
function runLaunch(core, program, layouts, launch, memory, options, report) {
    const filled = fill(core, program, launch, memory, options);
    const { SLICE_OVER, PRINTING, UNSUPPORTED } = layouts.status;
    let status = SLICE_OVER;
    while (status === SLICE_OVER) {
        status = core.calls.launch_run(filled.record);
        const started = core.get("Launch", filled.record, "next");
        const running = core.get("Launch", filled.record, "resident_count");
        report((started - running) * launch.fields.blocks, filled.blocks);
    }
    if (status === PRINTING) {
        throw new Error("the kernel calls printf, which a browser doesn't support");
    }
    const result = resultOf(core, program, layouts, filled, status);
    if (status === UNSUPPORTED) {
        throw new Error(program.refused[result.stuck.pc]);
    }
    core.calls.launch_free(filled.record);
    return result;
}

// Runs the launches of a kernel at one of its shapes. Returns the arguments' bytes, and of each
// launch that ran its status, counts, findings, events and trace. A launch that doesn't end is the
// last one, and has an error if no finding says why.
//
// kernel: a description (worklog.kernel.portable)
// options: shape (the place of the shape), inputs (bytes by argument; others are zeros), races,
//     counts, steps (the most of a trace), and blocks (their numbers; all if it is missing)
// report: is called with the number of blocks that have ended, and of all
async function run(module, layouts, kernel, options, report) {
    const core = new Core(await WebAssembly.instantiate(module, {}), layouts);
    const { sizes, launches } = kernel.shapes[options.shape];
    const memory = {};
    for (const [name, size] of Object.entries(sizes)) {
        memory[name] = core.room(size);
        const input = options.inputs[name];
        if (input && input.byteLength !== size) {
            throw new Error(`${name} has ${input.byteLength} bytes: ${size} are expected`);
        }
        core.bytes(memory[name], size).set(input ?? []);
    }
    const results = [];
    for (const launch of launches) {
        const program = kernel.programs[launch.program];
        const result = runLaunch(core, program, layouts, launch, memory, options, report);
        const launched = new Launched(program, launch, layouts.texts, kernel.source);
        results.push({ ...result, ...launched.described(result) });
        if (result.status !== "DONE") {
            break;
        }
    }
    const copy = ([name, size]) => [name, core.bytes(memory[name], size).slice()];
    return { arguments: Object.fromEntries(Object.entries(sizes).map(copy)), launches: results };
}

// Returns the document of the access viewer for a block of a kernel's main launch at one of its
// shapes. The other blocks run only if a block may depend on them.
//
// options: shape (the place of the shape), block (its number) and steps (the most of a trace)
async function view(module, layouts, kernel, options, report) {
    const core = new Core(await WebAssembly.instantiate(module, {}), layouts);
    const shape = kernel.shapes[options.shape];
    const [m, n, k] = shape.shape;
    const inputs = { A: codes(0, m * k), B: codes(m * k, k * n) };
    const memory = {};
    for (const [name, size] of Object.entries(shape.sizes)) {
        memory[name] = core.place(inputs[name] ?? new Uint8Array(size));
    }
    const launch = shape.launches[shape.main];
    const program = kernel.programs[launch.program];
    const needsAll = launch.fields.blocks > 1 || program.ops.some(isShared);
    const blocks = needsAll ? undefined : [options.block];
    const how = { counts: true, races: false, steps: options.steps, blocks };
    const result = runLaunch(core, program, layouts, launch, memory, how, report);
    if (result.trace.length >= options.steps * layouts.records.Step.size) {
        const most = options.steps.toLocaleString("en");
        throw new Error(`the warps do more than ${most} accesses: use a smaller size`);
    }
    const launched = new Launched(program, launch, layouts.texts, kernel.source);
    const described = { ...result, ...launched.described(result) };
    return new TraceReader(kernel, shape, options.block, described, layouts).document();
}

// Returns whether blocks may wait for each other by an instruction, or know which is the last.
function isShared(op) {
    return ["atom", "red", "membar"].includes(op.split(".")[0]);
}

// Runs a kernel at one of its shapes. Returns its findings, the error of a launch that doesn't end,
// and which elements of C are wrong.
//
// options: shape (the place of the shape) and counts (whether the counts are also returned)
async function check(module, layouts, kernel, options, report) {
    const { shape } = kernel.shapes[options.shape];
    const [m, n, k] = shape;
    const a = wholeNumbers(m * k, 1);
    const b = wholeNumbers(k * n, 2);
    const unwritten = new Float32Array(m * n).fill(NaN);
    const numbers = { A: a, B: b, C: unwritten };
    const inputs = {};
    for (const [name, values] of Object.entries(numbers)) {
        inputs[name] = new Uint8Array(values.buffer);
    }
    const how = { ...options, inputs, races: true, steps: 0 };
    const { arguments: results, launches } = await run(module, layouts, kernel, how, report);
    const c = new Float32Array(results.C.buffer);
    return {
        findings: launches.flatMap((launch) => launch.findings),
        error: launches.at(-1)?.error,
        wrong: wrongElements(c, productOf(a, b, shape), n),
        counts: options.counts ? countsOf(kernel, options.shape, launches) : null,
    };
}

const TASKS = { run, view, check };

// Answers each message with the progress, and then with the result or an error.
self.onmessage = async ({ data: { task, module, layouts, kernel, options } }) => {
    const report = (ended, blocks) => self.postMessage({ ended, blocks });
    try {
        self.postMessage({ result: await TASKS[task](module, layouts, kernel, options, report) });
    } catch (error) {
        self.postMessage({ error: error.message });
    }
};
