// Describes the events of a launch as worklog.emulator.core.findings does, with the same texts.

const MEMORY_NAMES = ["global", "shared", "local", "source"]; // by an event's space
const SPACING = 1n << 40n; // from a buffer's address to the next one's
const WORD = 0xffffffffn;

// Fills the fields of a text, with the formats of Python that the texts have.
function filled(text, fields) {
    return text.replace(/\{(\w+)(?::(#x|,))?\}/g, (_, name, format) => {
        if (format === "#x") {
            return `0x${BigInt(fields[name]).toString(16)}`;
        }
        return format ? fields[name].toLocaleString("en") : `${fields[name]}`;
    });
}

// Returns the events to report, so that those of one mistake agree (see `reported` in Python).
function reported(events) {
    const races = events.filter(({ kind }) => kind === "SHARED_RACE");
    const differ = races.some((race) => race.warps_differ) ? 1 : 0;
    const early = races.filter((race) => race.numbers[0] === 1);
    const explained = new Set(early.flatMap((race) => [race.pc, race.other_pc]));
    const agreeing = (event) =>
        event.kind === "SHARED_RACE" ? { ...event, warps_differ: differ } : event;
    const left = events
        .filter(({ kind, pc }) => kind !== "UNINITIALISED" || !explained.has(pc))
        .map(agreeing);
    const isFirst = ({ kind }) => kind === "IN_FLIGHT";
    return [...left.filter(isFirst), ...left.filter((event) => !isFirst(event))];
}

function threadsOf({ thread, lanes }) {
    if (!lanes) {
        return [thread];
    }
    const numbers = Array.from({ length: 32 }, (_, lane) => lane);
    const first = thread - (thread % 32);
    return numbers.filter((lane) => (lanes >>> lane) & 1).map((lane) => first + lane);
}

// A launch whose events are described.
class Launched {
    constructor(program, launch, texts, source) {
        this.program = program;
        this.launch = launch;
        this.texts = texts;
        this.lines = source.split("\n");
        this.found = new Map(); // findings by kind, lines and callers
    }

    // Returns the findings of a result, by line, and the error of a launch that doesn't end.
    described(result) {
        const events = reported(result.events);
        for (const event of events) {
            this.describe(event);
        }
        const isEndless = result.status in this.texts.summaries;
        const error = isEndless ? this.describeEnd(result, this.missingArrivals(events)) : "";
        return { findings: this.sorted(), error };
    }

    sorted() {
        const key = (finding) => [finding.line, finding.kind, finding.otherLine ?? 0];
        const compare = (a, b) => (a < b ? -1 : Number(a > b));
        return [...this.found.values()].sort((a, b) => {
            const pairs = key(a).map((value, place) => compare(value, key(b)[place]));
            return pairs.find((order) => order) ?? 0;
        });
    }

    // Returns what is missing at the mbarriers and barriers that threads wait for.
    missingArrivals(events) {
        const { lacks, and_bytes: andBytes, waiting, for_count: forCount } = this.texts;
        const ofPhase = ({ numbers }) =>
            filled(lacks, numbers) + (numbers[5] ? filled(andBytes, numbers) : "");
        const ofBarrier = ({ numbers, pc }) =>
            filled(waiting, { ...numbers, line: this.placeText(pc) }) +
            (numbers[2] ? filled(forCount, numbers) : "");
        const phases = events.filter(({ kind }) => kind === "PHASE_LACKS").map(ofPhase);
        const barriers = events.filter(({ kind }) => kind === "BARRIER_LACKS").map(ofBarrier);
        return [...new Set([...phases, ...barriers])].join("");
    }

    // Returns the error of a launch that doesn't end. A mistake that was found before is the likely
    // cause: then the end is a finding.
    describeEnd({ status, stuck, executed, half }, missing) {
        const { summaries, causes, still, forever } = this.texts;
        const cause = filled(causes[status], stuck) + (status === "ENDLESS" ? missing : "");
        const { thread } = stuck;
        const block = this.blockOf(stuck.block);
        const isIn = ([start, stop]) => start <= stuck.pc && stuck.pc < stop;
        const own = this.program.blocks.find(isIn);
        if ([...this.found.values()].some(({ isError }) => isError)) {
            const reason = cause.replaceAll("\n", "; ");
            const message = filled(forever, { thread, block, reason });
            const where = { place: own[1] - 1, other: null, block, threads: [thread] };
            this.add("deadlock", message, where, 1);
            return "";
        }
        const isLater = (_, n) => stuck.isHalved && executed[2 * n] > half[2 * n];
        const location = this.locationOf(own, [own, ...this.program.blocks.filter(isLater)]);
        const summary = filled(summaries[status], this.launch.fields);
        return filled(still, { summary, thread, block, location, reason: cause });
    }

    // Returns where a thread that doesn't end is: in the smallest loop around all blocks of code
    // that ran, or near a line.
    locationOf(own, ran) {
        const first = Math.min(...ran.map(([start]) => start));
        const last = Math.max(...ran.map(([, stop]) => stop));
        const loops = this.program.loops.filter(([start, stop]) => start <= first && last <= stop);
        const length = ([start, stop]) => stop - start;
        const smallest = (best, loop) => (length(loop) < length(best) ? loop : best);
        const [start, stop] = loops.length ? loops.reduce(smallest) : own;
        const all = Array.from({ length: stop - start }, (_, n) => start + n).filter(
            (pc) => this.lineOf(pc) && this.partsOf(pc)[0] !== "mov",
        );
        const ofKernel = all.filter((pc) => !this.program.callers[pc]);
        const pcs = ofKernel.length ? ofKernel : all;
        const { locations } = this.texts;
        if (!pcs.length) {
            return filled(locations.instruction, { stop: own[1] });
        }
        const caller = this.callerText(pcs.at(-1));
        const head = Math.min(...pcs.map((pc) => this.lineOf(pc)));
        const line = loops.length ? this.loopLine(head) : 0;
        if (line) {
            return filled(locations.loop, { line, caller, text: this.textOf(line) });
        }
        const near = this.lineOf(pcs.at(-1));
        return filled(locations.line, { line: near, caller, text: this.textOf(near) });
    }

    // Returns the line where a loop begins; 0 if the source doesn't show it.
    loopLine(first) {
        for (let line = Math.min(first, this.lines.length); line; line--) {
            const [code] = this.lines[line - 1].split("//");
            if (/\b(?:for|do)\b|(?<!\}) *\bwhile\b/.test(code)) {
                return line;
            }
        }
        return 0;
    }

    textOf(line) {
        return (this.lines[line - 1] ?? "").trim();
    }

    describe(event) {
        if (event.kind in this.texts.races) {
            this.describeRace(event, this.texts.races[event.kind]);
        } else if (event.kind in this.texts.unsupported) {
            throw new Error(`line ${this.lineOf(event.pc)}: ${this.texts.unsupported[event.kind]}`);
        } else if (!event.kind.endsWith("_LACKS")) {
            this.describeAction(event);
        }
    }

    describeAction(event) {
        const site = this.siteOf(event.pc, event.space);
        const variant = this.variantOf(event, site);
        if (variant === null) {
            return;
        }
        const { report, action } = this.texts;
        const [kind, text] = report[`${event.kind} ${variant}`] ?? report[event.kind];
        const [local, note] = this.localised(event, site);
        const fields = this.fieldsOf(local, site);
        const isOfGroup = `${event.kind} ${variant}` === "UNINITIALISED wgmma";
        const place = isOfGroup ? event.other_pc : event.pc;
        const isAlone = ["UNINITIALISED", "UNDEFINED_SHUFFLE"].includes(event.kind);
        const threads = threadsOf(event);
        const block = this.blockOf(event.block);
        const message = filled(action, {
            thread: threads[0],
            block,
            action: filled(text, fields) + note,
            caller: this.callerText(place),
        });
        const other = isAlone || event.other_pc < 0 ? null : event.other_pc;
        this.add(filled(kind, fields), message, { place, other, block, threads }, event.count);
    }

    variantOf(event, site) {
        const parts = this.partsOf(event.pc);
        if (event.kind === "DIVERGENT_BARRIER") {
            const isAligned = parts[0] === "bar" || parts.includes("aligned");
            return event.warps_differ ? "by warp" : isAligned ? "" : null;
        }
        if (event.kind === "TRAPPED") {
            return this.program.asserts.includes(event.pc) ? "assert" : "";
        }
        if (!site) {
            return "";
        }
        return site.op === "wgmma" ? "wgmma" : site.space.replace("const", "global");
    }

    // Returns the event with bytes of a block instead of addresses, and a note about another block.
    localised(event, site) {
        const numbers = [...event.numbers];
        let [value, note] = [event.value, ""];
        [numbers[0], note] = this.byteOf(numbers[0]);
        if (site?.space === "shared" && event.kind !== "MATRIX_OUTSIDE") {
            const [byte, noteOfValue] = this.byteOf(value);
            value = byte;
            note ||= noteOfValue;
        }
        return [{ ...event, numbers, value }, note];
    }

    byteOf(number) {
        const address = BigInt(number);
        const { blocks, shared_stride: stride } = this.launch.fields;
        const byte = address & WORD;
        if (address >> 40n !== 1n) {
            return [blocks > 1 ? address % BigInt(stride) : address, ""];
        }
        const block = Number(((byte + (1n << 23n)) & WORD) >> 24n);
        if (block < 0x80 || block >= 0xc0) {
            return [byte - ((byte >> 31n) << 32n), ""];
        }
        const note = filled(this.texts.elsewhere, { number: block - 0x80, blocks });
        return [byte - (BigInt(block) << 24n), note];
    }

    fieldsOf(event, site) {
        const value = BigInt(event.value);
        const [op, ...parts] = this.partsOf(event.pc);
        const isOfGroup = event.other_pc >= 0 && this.partsOf(event.other_pc)[0] === "wgmma";
        const { block } = this.launch.fields;
        const fields = {
            ...event.numbers,
            value,
            more: event.other_block,
            op,
            own: this.lineOf(event.pc),
            line: event.other_pc < 0 ? "" : this.placeText(event.other_pc),
            number: value >> 32n,
            threads: value & WORD,
            lanes: Math.ceil((block[0] * block[1] * block[2]) / 32) * 32,
            have: this.launch.registers,
            uses: op === "wgmma" ? "multiplies" : "copies",
            verb: "uses",
            reader: isOfGroup ? "wgmma" : "copy",
            wait: isOfGroup ? "wgmma.wait_group" : "cp.async.bulk.wait_group.read",
            overwrites: "reads",
            ...site,
            ...(site && { name: this.nameOf(value) }),
        };
        const dimensions = Number(parts.find((part) => /^[1-5]d$/.test(part))?.[0] ?? 0);
        const [, , address, ...corner] = event.numbers;
        const at = corner.slice(0, dimensions).join(", ") + (dimensions === 1 ? "," : "");
        const box = this.nameOf(BigInt(address));
        fields.box = dimensions ? `${box}, the box at (${at})` : box;
        fields.unit = dimensions ? 128 : 16;
        fields.op = op;
        fields.text = event.kind === "TRAPPED" ? this.stringAt(value) : "";
        return fields;
    }

    describeRace(event, kind) {
        const [first, second] = [event.other_pc, event.pc].map((pc) => {
            const sides = this.program.places[pc];
            const source = kind === "shared-race" ? null : sides.source;
            return { pc, ...(source ?? Object.values(sides)[0]) };
        });
        const [firstBlock, block] = [event.other_block, event.block].map((n) => this.blockOf(n));
        const isSameBlock = firstBlock === block;
        let [found, reason] = this.reasonOf(event, kind, [first, second], isSameBlock);
        const isWaitMissing = ["shared-race", "missing-syncwarp"].includes(found);
        if (isWaitMissing && this.found.has(this.keyOf("missing-wait", second.pc, first.pc))) {
            return; // the wait orders them
        }
        if ((first.guess && second.op === "atom") || (second.guess && first.op === "atom")) {
            [found, reason] = ["cas-read", "guess"];
        }
        const bytes = kind === "shared-race" ? first.place : this.bufferText(BigInt(event.value));
        const plain = [first, second].find((site) => site.op !== "atom");
        const message = filled(this.texts.race, {
            first_thread: event.other_thread,
            first_block: firstBlock,
            first: this.accessText(first),
            thread: event.thread,
            of_block: isSameBlock ? "" : ` of block ${block}`,
            second: this.accessText(second),
            bytes,
            reason: filled(this.texts.reasons[reason], { line: plain && this.lineOf(plain.pc) }),
        });
        const threads = isSameBlock ? [event.other_thread, event.thread] : [event.thread];
        const where = { place: second.pc, other: first.pc, block, threads };
        this.add(found, message, where, event.count);
    }

    // Returns the kind of a race's finding, and the name of the text of what is missing.
    reasonOf(event, kind, sites, isSameBlock) {
        const isShared = kind === "shared-race";
        if (kind === "read-only-load") {
            return [kind, "read-only"];
        }
        if (!isSameBlock) {
            const plain = sites.filter((site) => site.op !== "atom");
            const isOneAtomic = plain.length === 1 && plain[0].writes;
            return [kind, isShared ? "cluster" : isOneAtomic ? "one atomic" : "blocks"];
        }
        if (event.pc === event.other_pc && !(event.warps_differ && this.program.polls)) {
            return [kind, "one store"];
        }
        if (isShared && !event.warps_differ) {
            return ["missing-syncwarp", "warp"];
        }
        return [kind, isShared && this.launch.fields.orders_more ? "neither" : "barrier"];
    }

    // Records a finding, or counts it if its kind and place have been recorded.
    add(kind, message, { place, other, block, threads }, count) {
        const key = this.keyOf(kind, place, other);
        const earlier = this.found.get(key);
        if (earlier) {
            earlier.count += count;
            return;
        }
        const line = this.lineOf(place);
        this.found.set(key, {
            kind,
            line,
            text: this.textOf(line),
            message,
            block,
            threads,
            otherLine: other === null ? null : this.lineOf(other),
            count,
            isError: !this.texts.warnings.includes(kind),
        });
    }

    keyOf(kind, place, other) {
        const pcs = other === null ? [place] : [place, other];
        const callers = pcs.map((pc) => this.program.callers[pc]).filter(Boolean);
        return [kind, ...pcs.map((pc) => this.lineOf(pc)), "callers", ...callers].join(" ");
    }

    lineOf(pc) {
        return this.program.lines[pc];
    }

    partsOf(pc) {
        return this.program.ops[pc].split(".");
    }

    callerText(pc) {
        const line = this.program.callers[pc];
        return line ? filled(this.texts.caller, { line }) : "";
    }

    siteOf(pc, space) {
        const sides = this.program.places[pc];
        return sides && (sides[MEMORY_NAMES[space]] ?? Object.values(sides)[0]);
    }

    placeText(pc) {
        return `${this.lineOf(pc)}${this.callerText(pc)}`;
    }

    accessText({ pc, verb }) {
        const fields = { verb, line: this.lineOf(pc), caller: this.callerText(pc) };
        return filled(this.texts.accessing, fields);
    }

    blockOf(number) {
        const [columns, rows] = this.launch.fields.grid;
        const row = Math.floor(number / columns);
        return `(${number % columns}, ${row % rows}, ${Math.floor(row / rows)})`;
    }

    bufferAt(address) {
        const isIn = ({ base, size }) => BigInt(base) <= address && address < BigInt(base + size);
        return this.launch.buffers.find(isIn);
    }

    // Returns the text of a race's bytes in global memory.
    bufferText(address) {
        return filled(this.texts.bytes, { name: this.bufferAt(address)?.name ?? "" });
    }

    // Returns the string at an address of a constant, up to its NUL.
    stringAt(address) {
        const buffer = this.bufferAt(address);
        const content = buffer?.data ? bytesOf(buffer.data) : new Uint8Array();
        const text = content.subarray(buffer ? Number(address - BigInt(buffer.base)) : 0);
        return new TextDecoder().decode(text).split("\0")[0];
    }

    // Returns an address relative to the nearest buffer.
    nameOf(address) {
        const distance = ({ base, size }) => {
            const offset = address - BigInt(base);
            return offset < 0n ? -offset : offset > BigInt(size) ? offset - BigInt(size) : 0n;
        };
        let [nearest] = this.launch.buffers;
        for (const buffer of this.launch.buffers) {
            nearest = distance(buffer) < distance(nearest) ? buffer : nearest;
        }
        const { places } = this.texts;
        const offset = address - BigInt(nearest.base);
        if (offset > SPACING / 2n || offset < -SPACING / 2n) {
            return filled(places.nowhere, { address });
        }
        const { name } = nearest;
        const size = BigInt(nearest.size);
        if (offset < 0n) {
            return filled(places.before, { offset: -offset, name });
        }
        if (offset > size) {
            return filled(places.past, { offset: offset - size, name, size });
        }
        return filled(offset === size ? places.end : places.in, { offset, name, size });
    }
}
