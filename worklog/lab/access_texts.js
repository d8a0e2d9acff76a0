// The access viewer's sentences, and its table about a lane.

function lanesText(count, verb) {
    return count === 1 ? `1 lane ${verb}s` : `${count} lanes ${verb}`;
}

// "1 to 4", or "1" if there is only one.
function spanText(first, count) {
    return count > 1 ? `${first} to ${first + count - 1}` : String(first);
}

// The rows or columns of a part, such as "rows 0 to 31".
function rowsText({ top, rows }) {
    return `${rows > 1 ? "rows" : "row"} ${spanText(top, rows)}`;
}

function columnsText({ left, columns }) {
    return `${columns > 1 ? "columns" : "column"} ${spanText(left, columns)}`;
}

// A lane with its thread.
function subjectText({ warp, lane }) {
    return `Lane ${lane} (thread ${LANES * warp + lane})`;
}

// The element by its row and column, such as A[3][0].
function elementText({ matrix, row, column }) {
    return `${matrix}[${row}][${column}]`;
}

// A sentence about the lane.
// near: the other lanes in its sectors, or those that want another word of its banks
// neighbours: the cells of its sectors, or of its banks in its phase
function laneText(shown, access, state, near, neighbours) {
    const { kind } = access;
    const { lane } = state;
    if (!kind.lanes) {
        return "No lane has an address of its own.";
    }
    if (kind.lanes[lane] === null) {
        return `${subjectText(state)} takes no part.`;
    }
    if (kind.rows) {
        return `${subjectText(state)}: ${bankText(shown, access, lane, near, neighbours)}`;
    }
    return `${subjectText(state)}: ${sectorText(shown, access, lane, near, neighbours)}`;
}

// The banks of a lane, such as "bank 4".
function banksText(access, lane) {
    const first = firstWord(access, lane) % BANKS;
    const count = wordsOfLane(access.kind);
    return `${count > 1 ? "banks" : "bank"} ${spanText(first, count)}`;
}

function bankText(shown, access, lane, near, neighbours) {
    const [element] = elementsOfLane(shown, access, lane);
    let verb = "at";
    if (element) {
        verb = access.kind.writes ? "gets" : "holds";
    }
    const text = `${banksText(access, lane)}, ${verb} ${placeText(access, lane, element)}`;
    if (!neighbours.length) {
        return `${text}.`;
    }
    const others = near.size ? lanesText(near.size, "want") : "no lane wants";
    return `${text}; ${others} another word of the same bank.`;
}

function sectorText(shown, access, lane, near, neighbours) {
    const [element] = elementsOfLane(shown, access, lane);
    const others = near.size
        ? `${lanesText(near.size, "share")} its sector`
        : "alone in its sector";
    const text = `${placeText(access, lane, element)}; ${others}`;
    const unused = neighbours.filter((cell) => !cell.lanes.length).length;
    if (!unused) {
        return `${text}, which is used in full.`;
    }
    const bytes = WORD_BYTES * unused;
    return `${text}, of which this access does not use ${bytes} of 32 bytes.`;
}

// The lane's first element, or its byte if the element isn't known.
function placeText(access, lane, element) {
    if (element) {
        return elementText(element);
    }
    return `byte ${byteOf(access, lane)} of ${memoryText(access)}`;
}

function byteOf({ kind, byte }, lane) {
    return byte + kind.lanes[lane];
}

function memoryText({ kind, name }) {
    return kind.rows ? "shared memory" : name;
}

// The rows of a table about a lane: name and text.
function laneRows(shown, access, state) {
    const { kind } = access;
    const { warp, lane } = state;
    const rows = [["thread", `${LANES * warp + lane}`]];
    if (!kind.lanes || kind.lanes[lane] === null) {
        return [...rows, ["address", "none: the lane takes no part"]];
    }
    const elements = elementsOfLane(shown, access, lane);
    const address = `byte ${byteOf(access, lane)} of ${memoryText(access)}`;
    rows.push(["address", `${address}, ${kind.width} bytes`]);
    rows.push(["value", elements.map(elementText).join(", ") || "not an element of A, B or C"]);
    if (kind.rows) {
        const memory = ["sector", "none: shared memory has banks"];
        rows.push(memory, ["bank", banksText(access, lane).replace(/^banks? /, "")]);
        rows.push(["wavefront", wavefrontText(access, lane)]);
        return rows;
    }
    rows.push(["sector", sectorsText(access, lane)]);
    rows.push(["bank", "none: global memory has sectors"]);
    return rows;
}

// The sectors of a lane, with their first and last byte.
function sectorsText(access, lane) {
    const sectorBytes = SECTOR_WORDS * WORD_BYTES;
    const start = byteOf(access, lane);
    const first = Math.floor(start / sectorBytes);
    const last = Math.floor((start + access.kind.width - 1) / sectorBytes);
    const bytes = spanText(first * sectorBytes, (last - first + 1) * sectorBytes);
    return `${spanText(first, last - first + 1)} (bytes ${bytes} of ${access.name})`;
}

// The wavefronts that move a lane's words, of all wavefronts of the access.
function wavefrontText(access, lane) {
    const { kind, byte } = access;
    const wavefronts = kind.rows.flat();
    if (!wavefronts.length) {
        return "not counted";
    }
    const first = firstWord(access, lane) - Math.floor(byte / WORD_BYTES);
    const words = range(wordsOfLane(kind)).map((word) => first + word);
    const phase = Math.floor((lane * kind.rows.length) / LANES);
    const before = kind.rows.slice(0, phase).flat().length;
    const numbers = [...kind.rows[phase].keys()].filter((number) => {
        return words.some((word) => kind.rows[phase][number].includes(word));
    });
    const texts = numbers.map((number) => before + number + 1);
    return `${texts.join(", ")} of ${wavefronts.length}`;
}

// The kernel's idea, its size, the block that is shown, and findings.
function aboutText({ idea, about, notes, block }, shownBlock) {
    const ofBlock = about.replace(`block ${block} of`, `block ${shownBlock} of`);
    return [idea, ofBlock, ...notes].filter(Boolean).join(" · ");
}

// The part of C that a block writes, in two lines; nothing if it writes none.
function blockLines(shown, block) {
    const { C } = partsOf(shown, block);
    return C ? [rowsText(C), columnsText(C)] : [];
}

// The number of blocks of a grid.
function blockCount(grid) {
    return grid.reduce((product, side) => product * side, 1);
}

// The threads of a warp, as short as possible.
function threadsText(warp) {
    return `${LANES * warp}–${LANES * warp + LANES - 1}`;
}

// Two sentences about a block: what it computes, and what it touches.
function blockTexts(shown, block) {
    const { A, B, C } = partsOf(shown, block);
    const place = C ? `${rowsText(C)}, ${columnsText(C)} of C` : "writes no element of C itself";
    const touched = [A && `${rowsText(A)} of A`, B && `${columnsText(B)} of B`].filter(Boolean);
    const sentences = [touched.length ? `It reads ${touched.join(" and ")}.` : ""];
    const count = blockCount(shown.grid);
    if (shown.blocks.length === 1 && count > 1) {
        sentences.push(`No other of the ${count} blocks is known to do the same elsewhere.`);
    } else if (shown.blocks.length < count) {
        const known = shown.blocks.length;
        sentences.push(`Here are ${known} of ${count} blocks that do the same elsewhere.`);
    }
    return [`Block ${block} of ${shown.grid.join(" × ")}: ${place}`, sentences.join(" ")];
}

// Two sentences about a warp: its threads, and how much it does.
function warpTexts(warp, accesses, elements) {
    const waits = accesses.at(-1)?.waits ?? 0;
    const threads = spanText(LANES * warp, LANES);
    const stored = elements === 1 ? "1 element" : `${elements} elements`;
    return [
        `Warp ${warp}: threads ${threads}, which store ${stored} of C`,
        `${accesses.length} accesses, with ${waits} waits between them.`,
    ];
}
