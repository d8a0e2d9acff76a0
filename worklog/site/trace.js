// Reads the trace of a block into a document of the access viewer, as worklog.viewer.accesses does.
// The two agree in every number and in every word.

const SECTOR = 32; // bytes
const BANKS = 32; // of 4 bytes
const FLOAT = 4; // bytes
const MOST_NOTES = 3;
const MATRICES = ["A", "B", "C"];
const BUFFERS = [...MATRICES, "workspace"];
const FIRST_ADDRESS = 2 ** 40 + 2 ** 32 - 2 ** 12; // of the first buffer, as in emulator/memory.py
const SPACING_BYTES = 2 ** 40;
const VERBS = { ld: "read", st: "write", atom: "update", cp: "copy" };
const WAITS = {
    bar: "__syncthreads()",
    barrier: "a barrier",
    mbarrier: "an mbarrier",
    cp: "its copies",
};
const MATRIX_INSTRUCTIONS = ["ldmatrix", "stmatrix", "wmma"];
// Each element of A, then B, is a different float, so that a word in shared memory identifies its
// element.
const MIX = 0x1e3779b1;
const FRACTION = (1 << 23) - 1;
const FIRST_EXPONENT = 112;
const UNKNOWN = -1;
const NOTHING = []; // the elements of an access of which none is known

// Returns the inverse of an odd number modulo a power of two.
function inverse(number) {
    let result = 1;
    for (let round = 0; round < 5; round++) {
        result = Math.imul(result, 2 - Math.imul(number, result));
    }
    return result;
}

const UNMIX = inverse(MIX);

// Returns the bits of the float that identifies an element.
function codeOf(element) {
    const exponent = FIRST_EXPONENT + ((Math.imul(element, 40503) >>> 4) & 31);
    return ((exponent << 23) | (Math.imul(element, MIX) & FRACTION)) >>> 0;
}

// Returns the bytes of floats that identify elements, from a number on.
function codes(first, count) {
    return new Uint8Array(Uint32Array.from({ length: count }, (_, n) => codeOf(first + n)).buffer);
}

// Returns the element of A, then B, that a word identifies; UNKNOWN if it identifies none.
function elementOf(word, count) {
    const element = Math.imul(word & FRACTION, UNMIX) & FRACTION;
    return element < count && codeOf(element) === word ? element : UNKNOWN;
}

function several(count, noun) {
    return count === 1 ? `1 ${noun}` : `${count} ${noun}s`;
}

// Returns a number with three digits, without zeros at its end.
function threeDigits(number) {
    return String(Number(number.toPrecision(3)));
}

// Returns the lanes in a mask.
function lanesIn(mask) {
    const lanes = [];
    for (let lane = 0; lane < LANES; lane++) {
        if ((mask >>> lane) & 1) {
            lanes.push(lane);
        }
    }
    return lanes;
}

function minimum(numbers) {
    let least = Infinity;
    for (const number of numbers) {
        least = Math.min(least, number);
    }
    return least;
}

function areEqual(numbers, others) {
    if (numbers.length !== others.length) {
        return false;
    }
    for (let place = 0; place < numbers.length; place++) {
        if (numbers[place] !== others[place]) {
            return false;
        }
    }
    return true;
}

// The records of a trace.
class Trace {
    constructor(bytes, record) {
        this.numbers = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
        this.words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
        this.size = record.size / 4;
        this.places = {};
        for (const [name, [offset]] of Object.entries(record.fields)) {
            this.places[name] = offset / 4;
        }
        this.count = bytes.length / record.size;
    }

    number(step, field) {
        return this.numbers[step * this.size + this.places[field]];
    }

    mask(step) {
        return this.words[step * this.size + this.places.mask];
    }

    // Returns a number of 64 bits of a field that has several.
    long(step, field, place = 0) {
        const start = step * this.size + this.places[field] + 2 * place;
        return this.words[start] + this.words[start + 1] * 2 ** 32;
    }

    // Returns a word of the 16 bytes of shared memory that a lane's access is in.
    word(step, lane, place) {
        return this.words[step * this.size + this.places.words + 4 * lane + place];
    }
}

// The cost of a line's accesses to a memory.
class Pill {
    constructor() {
        this.costs = []; // by kind: a number and its unit
        this.count = 0; // of accesses
        this.excess = 0; // sectors or wavefronts that aren't needed
        this.isBad = false; // whether an access wastes
        this.first = [0, 0]; // the warp, and the number of its access
        this.worst = null; // likewise, for the first access that wastes
    }
}

class TraceReader {
    // kernel: a description (worklog.viewer.portable)
    // shape: one of its shapes
    // block: the number of the block to read
    // launched: a result of runLaunch, with its findings
    // layouts: of the core's records
    constructor(kernel, shape, block, launched, layouts) {
        const launch = shape.launches[shape.main];
        this.kernel = kernel;
        this.shape = shape;
        this.block = block;
        this.findings = launched.findings;
        this.program = kernel.programs[launch.program];
        this.parts = this.program.ops.map((op) => op.split("."));
        this.trace = new Trace(launched.trace, layouts.records.Step);
        const [m, n, k] = shape.shape;
        this.sizes = { A: [m, k], B: [k, n], C: [m, n] };
        this.ofA = m * k;
        this.ofInputs = m * k + k * n;
        this.isTouched = new Uint8Array(this.ofInputs);
        this.kinds = [];
        this.kindNumbers = new Map(); // the number of a kind, and its excess
        this.lanes = new Map(); // by mask
        this.accessKinds = new Map(); // likewise for accesses: lists by what they have in common
        this.pills = new Map(); // by line, caller, memory and verb, joined
        this.touched = {}; // by matrix, the first and the last row and column that are touched
        this.copied = new Map(); // by warp and pc, the elements that a cp.async reads
        /** @type {number[][][]} by warp, the numbers of each step */
        this.steps = Array.from({ length: Math.ceil(shape.threads / LANES) }, () => []);
    }

    document() {
        this.addSteps();
        const arrays = this.numberArrays();
        const start = this.firstPill();
        const grid = this.shape.grid.join(" × ");
        const matrices = {};
        for (const name of MATRICES.filter((name) => name in this.touched)) {
            matrices[name] = [...this.sizes[name], ...this.part(name)];
        }
        const { kernel, shape } = this;
        return {
            kernel: kernel.kernel,
            idea: kernel.idea,
            about: `M, N, K = ${shape.shape.join(", ")} · block ${this.block} of ${grid} · ` +
                `${shape.threads} threads · ${kernel.label}`,
            notes: this.findings.slice(0, MOST_NOTES).map((finding) => this.note(finding)),
            grid: [...shape.grid],
            block: this.block,
            blocks: [[this.block, arrays.map(() => 0)]],
            depth: kernel.depth,
            arrays,
            matrices,
            of_a: this.ofA,
            source: this.source(),
            pills: [...this.pills.values()].map((pill) => this.pillOf(pill)),
            kinds: this.kinds,
            steps: this.steps,
            start: [...(start.worst ?? start.first)],
        };
    }

    note({ line, kind, message, count, text }) {
        const times = count > 1 ? ` (${count} times)` : "";
        return `${this.kernel.file}:${line}: ${kind}: ${message}${times}\n    ${text}`;
    }

    // Reads the trace into steps, kinds of steps and pills.
    addSteps() {
        const last = this.steps.map(() => new Map());
        const accesses = this.steps.map(() => 0); // steps but for waits
        for (const places of this.groups()) {
            const warp = this.trace.number(places[0], "warp");
            const step = this.read(places);
            if (step === null) {
                continue;
            }
            const [[kind, excess], base, element] = step;
            const [lastBase, lastElement] = last[warp].get(kind) ?? [0, 0];
            const distances = [base - lastBase, element - lastElement];
            last[warp].set(kind, [base, element]);
            while (distances.length && !distances.at(-1)) {
                distances.pop();
            }
            this.steps[warp].push([kind, ...distances]);
            if (this.kinds[kind].pill) {
                const pill = this.pills.get(this.kinds[kind].pill);
                const here = [warp, accesses[warp]];
                if (!pill.count) {
                    pill.first = here;
                }
                if (excess && !pill.worst) {
                    pill.worst = here;
                }
                pill.count += 1;
                pill.excess += excess;
                accesses[warp] += 1;
            }
        }
    }

    // Returns the arrays in order, and replaces the names of arrays and pills in the kinds by
    // numbers.
    numberArrays() {
        const kinds = this.kinds.filter((kind) => kind.pill);
        const isLater = (name) => Number(!BUFFERS.includes(name));
        const order = (a, b) => isLater(a) - isLater(b) || (a < b ? -1 : 1);
        const arrays = [...new Set(kinds.map((kind) => kind.array))].sort(order);
        const pillNames = [...this.pills.keys()];
        for (const kind of kinds) {
            kind.array = arrays.indexOf(kind.array);
            kind.pill = pillNames.indexOf(kind.pill);
        }
        return arrays;
    }

    // Returns the pill of the line that is shown first: it wastes most, or else is accessed most.
    // Stores to C only count if no other line wastes, since the loop over K is cut short.
    firstPill() {
        const rank = ({ memory, excess, count }) => [
            Number(memory !== "C" && excess > 0),
            excess,
            count,
        ];
        let first = new Pill();
        let best = [-1, -1, -1];
        for (const pill of this.pills.values()) {
            const own = rank(pill);
            const place = own.findIndex((number, n) => number !== best[n]);
            if (place >= 0 && own[place] > best[place]) {
                first = pill;
                best = own;
            }
        }
        return first;
    }

    // Returns the places in the trace of each step: a record, or the record of a wgmma with the
    // records of its reads.
    groups() {
        const groups = [];
        const latest = new Map();
        for (let place = 0; place < this.trace.count; place++) {
            if (this.trace.long(place, "block") !== this.block) {
                continue;
            }
            const warp = this.trace.number(place, "warp");
            const [operation] = this.parts[this.trace.number(place, "pc")];
            if (this.trace.mask(place) && operation === "wgmma") {
                latest.get(warp).push(place);
            } else {
                const group = [place];
                latest.set(warp, group);
                groups.push(group);
            }
        }
        return groups;
    }

    // Returns the kind of a step and its excess, its byte, and the first element that it holds;
    // null if it isn't shown.
    read(places) {
        const [place] = places;
        const pc = this.trace.number(place, "pc");
        const parts = this.parts[pc];
        const view = this.program.views[pc];
        const isGlobal = this.trace.number(place, "space") === 0;
        if (view && !parts.includes("bulk") && view.shared.op !== "wgmma") {
            return this.access(place, this.step(place, pc, isGlobal));
        }
        if (parts[0] === "wgmma") {
            return this.multiplication(places, pc);
        }
        if (parts.includes("bulk") && isGlobal) {
            return this.box(place, pc);
        }
        const wait = { wait: WAITS[parts[0]] ?? "other threads", line: this.program.lines[pc] };
        return [this.kindNumber(`wait ${pc}`, () => this.addKind(wait)), 0, 0];
    }

    // Returns an access of a warp, as the assembler leaves it: its site, memory and active lanes,
    // and the place and the width of each lane's bytes. The width is 0 if the assembler makes the
    // access part of another one.
    step(place, pc, isGlobal) {
        const { trace } = this;
        const site = this.program.views[pc][isGlobal ? "global" : "shared"];
        const mask = trace.mask(place);
        const lanes = this.lanesOf(mask);
        const step = {
            pc,
            parts: this.parts[pc],
            site,
            warp: trace.number(place, "warp"),
            isShared: !isGlobal,
            mask,
            lanes,
            costs: [1, 2, 3].map((number) => trace.long(place, "costs", number)),
            memory: site.array,
            bytes: lanes.map((lane) => trace.long(place, "address", lane)),
            width: site.width,
        };
        if (isGlobal) {
            [step.memory, step.bytes] = this.bufferOf(step.bytes);
            return step;
        }
        for (const [offset, width, isLeading] of site.groups) {
            if (!step.bytes.some((byte) => (byte + offset) % width)) {
                step.bytes = step.bytes.map((byte) => byte + offset);
                step.width = isLeading ? width : 0;
                break;
            }
        }
        return step;
    }

    lanesOf(mask) {
        if (!this.lanes.has(mask)) {
            this.lanes.set(mask, lanesIn(mask));
        }
        return this.lanes.get(mask);
    }

    // Returns the buffer of the first address, and the addresses from its start. The buffer is
    // "memory" if it isn't known.
    bufferOf(addresses) {
        const numberOf = (address) => Math.floor((address - FIRST_ADDRESS) / SPACING_BYTES);
        const start = (address) => FIRST_ADDRESS + numberOf(address) * SPACING_BYTES;
        const bytes = addresses.map((address) => address - start(address));
        const number = numberOf(addresses[0]);
        return [this.shape.arguments[number] ?? "memory", bytes];
    }

    // Returns the number of a kind and its excess, and adds the kind if it is new.
    kindNumber(key, add) {
        let number = this.kindNumbers.get(key);
        if (!number) {
            number = add();
            this.kindNumbers.set(key, number);
        }
        return number;
    }

    addKind(kind, excess = 0) {
        this.kinds.push(kind);
        return [this.kinds.length - 1, excess];
    }

    pill(site, memory, verb) {
        const name = [site.line, site.caller, memory, verb].join("\n");
        if (!this.pills.has(name)) {
            const about = { line: site.line, caller: site.caller, memory, verb };
            this.pills.set(name, Object.assign(new Pill(), about));
        }
        return [name, this.pills.get(name)];
    }

    // Adds a kind, and its cost to the pill of its line.
    add(kind, site, memory, verb, cost, excess = 0) {
        const [name, pill] = this.pill(site, memory, verb);
        pill.costs.push(cost);
        pill.isBad ||= excess > 0;
        const isRead = ["read", "multiply from"].includes(verb);
        Object.assign(kind, { bad: Number(excess > 0), array: memory, pill: name });
        if (!isRead && (verb !== "copy" || kind.rows)) {
            kind.writes = 1;
        }
        return this.addKind(kind, excess);
    }

    access(place, step) {
        const { site, lanes, width } = step;
        if (site.space === "const" || !lanes.length) {
            return null;
        }
        if (!width) {
            this.pill(site, step.memory, VERBS[site.op] ?? "read");
            return null;
        }
        const base = minimum(step.bytes);
        const [first, holds] = this.relative(this.elements(place, step));
        const offsets = step.bytes.map((byte) => byte - base);
        return [this.accessKind(step, base, offsets, holds), base, first];
    }

    // Returns the number of an access's kind and its excess. Most accesses are of a kind that is
    // known, so the lists of numbers are compared only with those of the same site, lanes and costs.
    accessKind(step, base, offsets, holds) {
        const { site, memory, width, mask } = step;
        site.name ??= `${site.line}/${site.caller}/${site.op}`;
        const [sectors, wavefronts, conflicts] = step.costs;
        const costs = `${sectors}/${wavefronts}/${conflicts}`;
        const key = `${site.name}/${memory}/${width}/${width > site.width}/${mask}/${costs}`;
        const similar = this.accessKinds.get(key) ?? [];
        const isSame = (kind) => areEqual(kind.offsets, offsets) && areEqual(kind.holds, holds);
        const known = similar.find(isSame);
        if (known) {
            return known.number;
        }
        const number = this.addAccess(step, base, offsets, holds);
        this.accessKinds.set(key, [...similar, { offsets, holds, number }]);
        return number;
    }

    addAccess(step, base, offsets, holds) {
        const { lanes, width } = step;
        const unit = Math.min(width, FLOAT);
        const units = new Set();
        for (const byte of step.bytes) {
            for (let start = 0; start < width; start += unit) {
                units.add(byte + start);
            }
        }
        const cost = costOf(step, units.size * unit);
        const verb = step.parts[0] === "cp" ? "copy" : (VERBS[step.site.op] ?? "read");
        const byLane = Array(LANES).fill(null);
        lanes.forEach((lane, n) => {
            byLane[lane] = offsets[n];
        });
        const [sectors, wavefronts, conflicts] = step.costs;
        const kind = {
            text: accessText(step, verb, unit, units.size),
            width,
            counts: [sectors, cost.leastSectors, wavefronts, conflicts],
            lanes: byLane,
            cost: cost.text,
        };
        if (step.isShared) {
            kind.rows = wavefrontsOf(step, base);
        }
        const held = { ...kind, ...hold(holds) };
        return this.add(held, step.site, step.memory, verb, cost.number, cost.excess);
    }

    // Returns the first known element, and all elements counted from it.
    relative(elements) {
        let first = Infinity;
        for (const element of elements) {
            if (element !== UNKNOWN && element < first) {
                first = element;
            }
        }
        if (first === Infinity) {
            return [0, NOTHING];
        }
        this.touchInputs(elements);
        const counted = (element) => (element === UNKNOWN ? UNKNOWN : element - first);
        return [first, elements.map(counted)];
    }

    // Returns the elements that an access finds in shared memory, lane by lane, or NOTHING.
    // Elements are those of A, then B.
    elements(place, step) {
        const { memory, bytes, site } = step;
        const count = Math.max(1, Math.floor(step.width / FLOAT));
        const key = `${step.warp}/${step.pc}`;
        if (step.isShared && site.op === "cp") {
            return this.copied.get(key) ?? NOTHING;
        }
        if (step.isShared) {
            return this.heldBy(place, step, count);
        }
        const first = memory === "B" ? this.ofA : 0;
        const elements = [];
        for (const byte of bytes) {
            for (let word = 0; word < count; word++) {
                elements.push(Math.floor(byte / FLOAT) + word + first);
            }
        }
        this.copied.set(key, ["A", "B"].includes(memory) ? elements : NOTHING);
        this.touchMatrix(memory, elements);
        return NOTHING;
    }

    // Returns the elements that the words of an access to shared memory identify, lane by lane.
    heldBy(place, { bytes, lanes }, count) {
        const elements = [];
        lanes.forEach((lane, n) => {
            const start = Math.floor((bytes[n] % 16) / FLOAT);
            for (let word = 0; word < count; word++) {
                const bits = this.trace.word(place, lane, (start + word) % 4);
                elements.push(elementOf(bits, this.ofInputs));
            }
        });
        return elements;
    }

    // Extends the touched part of a matrix. Elements are those of C, or those of A, then B.
    touchMatrix(memory, elements) {
        if (memory === "C") {
            elements.forEach((element) => this.touch("C", element));
        } else if (memory in this.sizes) {
            this.touchInputs(elements);
        }
    }

    // Most elements are touched again and again, so each is placed only once.
    touchInputs(elements) {
        for (const element of elements) {
            if (element === UNKNOWN || this.isTouched[element]) {
                continue;
            }
            this.isTouched[element] = 1;
            if (element < this.ofA) {
                this.touch("A", element);
            } else {
                this.touch("B", element - this.ofA);
            }
        }
    }

    touch(name, element) {
        this.touched[name] ??= [Infinity, Infinity, -Infinity, -Infinity];
        const part = this.touched[name];
        const columns = this.sizes[name][1];
        const row = Math.floor(element / columns);
        const column = element - row * columns;
        part[0] = Math.min(part[0], row);
        part[1] = Math.min(part[1], column);
        part[2] = Math.max(part[2], row);
        part[3] = Math.max(part[3], column);
    }

    // Returns the touched part of a matrix: first row and column, rows and columns.
    part(name) {
        const [top, left, bottom, right] = this.touched[name];
        return [top, left, bottom + 1 - top, right + 1 - left];
    }

    // Returns a bulk copy as read() does: strips of so many bytes.
    box(place, pc) {
        const site = this.program.views[pc].shared;
        const numbers = [1, 2, 3, 4].map((number) => this.trace.long(place, "address", number));
        const [address, strips, size, pitch] = numbers;
        const [memory, [base]] = this.bufferOf([address]);
        const sectors = this.trace.long(place, "costs", 1);
        if (memory in this.sizes) {
            const first = Math.floor(base / FLOAT) + (memory === "B" ? this.ofA : 0);
            const elements = [];
            for (let strip = 0; strip < strips; strip++) {
                const start = first + Math.floor((strip * pitch) / FLOAT);
                elements.push(start, start + Math.floor(size / FLOAT) - 1);
            }
            this.touchMatrix(memory, elements);
        }
        const key = ["box", pc, strips, size, pitch, sectors, memory].join();
        const add = () => this.addBox(site, memory, sectors, [strips, size, pitch]);
        return [this.kindNumber(key, add), base, 0];
    }

    addBox(site, memory, sectors, box) {
        const [strips, size] = box;
        const leastSectors = strips * Math.ceil(size / SECTOR);
        const isLoad = site.op === "cp";
        const extent = strips > 1 ? `${strips} × ${size}` : `${size}`;
        const moved = `${extent} bytes of ${memory} ${isLoad ? "to" : "from"} shared memory`;
        let cost = several(sectors, "sector");
        if (sectors > leastSectors) {
            cost += ` where ${leastSectors} would do`;
        }
        const kind = {
            text: `One bulk copy moves ${moved}, without lanes`,
            cost,
            box,
            counts: [sectors, leastSectors, 0, 0],
        };
        const excess = Math.max(0, sectors - leastSectors);
        const verb = isLoad ? "copy" : "copy to";
        return this.add(kind, site, memory, verb, [sectors, "sector"], excess);
    }

    // Returns a warp's wgmma as read() does. The first record only marks it.
    multiplication(places, pc) {
        const site = this.program.views[pc].shared;
        const bytes = [];
        const found = [];
        for (const place of places.slice(1)) {
            for (let lane = 0; lane < LANES; lane++) {
                bytes.push(this.trace.long(place, "address", lane));
                for (let word = 0; word < 4; word++) {
                    found.push(elementOf(this.trace.word(place, lane, word), this.ofInputs));
                }
            }
        }
        const base = bytes.length ? minimum(bytes) : 0;
        const [first, holds] = this.relative(found);
        const offsets = bytes.map((byte) => byte - base);
        const key = ["wgmma", pc, offsets.join(), holds.join()].join(";");
        const add = () => {
            const lines = `${several(bytes.length, "line")} of 16 bytes of shared memory`;
            const kind = {
                text: `The tensor cores read ${lines}, without lanes`,
                cost: "not counted",
                counts: [0, 0, 0, 0],
                lines: offsets,
                ...hold(holds),
            };
            return this.add(kind, site, "shared", "multiply from", [0, "line"]);
        };
        return [this.kindNumber(key, add), base, first];
    }

    // Returns a pill for access.js: the line, the text, whether the line wastes, and the warp and
    // step of its first access.
    pillOf({ line, caller, memory, verb, costs, isBad, first }) {
        const ofLine = [...this.pills.values()].filter((pill) => pill.line === line);
        const callers = new Set(ofLine.map((pill) => pill.caller));
        let text = `${verb} ${memory}`;
        if (callers.size > 1 && caller) {
            text += ` from line ${caller}`;
        }
        if (!costs.length) {
            return [line, `${text} · part of a neighbour's access`, 0];
        }
        const numbers = costs.map(([number]) => number).sort((a, b) => a - b);
        const least = numbers[0];
        const largest = numbers.at(-1);
        if (largest) {
            const span = least < largest ? `${least}–${largest}` : `${largest}`;
            text += ` · ${span} ${costs[0][1]}${largest > 1 ? "s" : ""}`;
        }
        return [line, text, Number(isBad), [...first]];
    }

    // Returns numbers and texts of the kernel's lines, and of other lines that access memory.
    source() {
        const text = this.kernel.source.split("\n");
        const [start, stop] = this.kernel.lines;
        const lines = new Set([...this.pills.values()].map(({ line }) => line).filter(Boolean));
        for (let line = start; line < stop; line++) {
            lines.add(line);
        }
        return [...lines].sort((a, b) => a - b).map((line) => [line, text[line - 1]]);
    }
}

// Returns the cost of an access to this many different bytes.
function costOf(step, size) {
    const [sectors, wavefronts, conflicts] = step.costs;
    const leastSectors = Math.ceil(size / SECTOR);
    if (!step.isShared) {
        const excess = sectors - leastSectors;
        let text = `${several(sectors, "sector")}, the least possible`;
        if (excess > 0) {
            const share = threeDigits((100 * size) / (SECTOR * sectors));
            text = `${several(sectors, "sector")} where ${leastSectors} would do, ${share} % used`;
        }
        return { text, number: [sectors, "sector"], excess, leastSectors };
    }
    if (step.parts[0] === "cp") {
        const text = "not counted: the copy writes it later";
        return { text, number: [0, "later"], excess: 0, leastSectors };
    }
    const conflict = conflicts ? `${conflicts} of them for bank conflicts` : "no conflict";
    const text = `${several(wavefronts, "wavefront")}, ${conflict}`;
    return { text, number: [wavefronts, "wavefront"], excess: conflicts, leastSectors };
}

function accessText({ lanes, width, parts, memory, site }, verb, unit, unitCount) {
    const count = Math.floor(width / FLOAT);
    let noun = MATRIX_INSTRUCTIONS.includes(parts[0]) ? "word" : "float";
    if (unit < FLOAT) {
        noun = unitCount > 1 ? `values of ${unit} byte` : `value of ${unit} byte`;
    }
    const person = lanes.length === 1 ? "s" : "";
    let text = `${several(lanes.length, "lane")} ${verb}${person} ${several(unitCount, noun)}`;
    text += ` of ${memory}`;
    if (count > 1 && noun === "float") {
        text += ` as float${count}`;
    }
    if (width > site.width) {
        text += `, ${site.writes ? "stores" : "loads"} that the assembler joins`;
    }
    return text;
}

// Returns the elements that a kind of step holds; nothing if no element is known.
function hold(holds) {
    if (!holds.length) {
        return {};
    }
    return { hold: holds.map((element) => (element === UNKNOWN ? null : element)) };
}

// Returns the words of an access to shared memory, counted from the base, by phase and wavefront.
// As count_shared in the core: a phase has 128 bytes, and there are half as many phases if lanes n
// and n ^ 1, or n ^ 2, agree.
function wavefrontsOf({ lanes, bytes, width }, base) {
    const words = Math.max(1, Math.floor(width / FLOAT));
    const starts = new Map(lanes.map((lane, n) => [lane, bytes[n]]));
    const agree = (distance) =>
        lanes.every(
            (lane) => (starts.get(lane ^ distance) ?? starts.get(lane)) === starts.get(lane),
        );
    const isHalved = words > 1 && (agree(1) || agree(2));
    const phases = isHalved ? words / 2 : words;
    return Array.from({ length: phases }, (_, phase) => {
        const numbers = new Set();
        for (const [lane, start] of starts) {
            if (Math.floor((lane * phases) / LANES) === phase) {
                for (let word = 0; word < words; word++) {
                    numbers.add(Math.floor(start / FLOAT) + word);
                }
            }
        }
        return rowsOf(
            [...numbers].sort((a, b) => a - b),
            Math.floor(base / FLOAT),
        );
    });
}

// Returns words by wavefront: each delivers one word of a bank.
function rowsOf(numbers, first) {
    /** @type {number[][]} */
    const rows = [];
    const depths = Array(BANKS).fill(0);
    for (const number of numbers) {
        const depth = depths[number % BANKS]++;
        if (depth === rows.length) {
            rows.push([]);
        }
        rows[depth].push(number - first);
    }
    return rows;
}
