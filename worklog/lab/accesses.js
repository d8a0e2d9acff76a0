// The accesses of a warp, decoded from a document of worklog.viewer.accesses: the elements of A, B
// and C that they touch, and the words of memory to draw.

const LANES = 32;
const BANKS = 32;
const WORD_BYTES = 4;
const SECTOR_WORDS = 8;
const SECTORS_IN_A_ROW = 4;
const GLOBAL = ["A", "B", "C", "workspace", "memory"]; // other arrays are in shared memory
const MOST_SIDE = 256; // rows or columns of a matrix that are drawn

function range(count) {
    return [...Array(count).keys()];
}

// The number of words that each lane accesses.
function wordsOfLane(kind) {
    return Math.max(1, kind.width / WORD_BYTES);
}

// A document with what it may lack: the grid, and the blocks whose accesses are known.
function completed(document) {
    const { block = 0, arrays } = document;
    const blocks = [[block, arrays.map(() => 0)]];
    return { grid: [1], block, blocks, depth: null, ...document };
}

// The distance of a block's accesses to each array from those of the document's block, in bytes.
function distancesOf(shown, block) {
    return new Map(shown.blocks).get(block);
}

// The same for a matrix, in elements.
function elementsMoved(shown, block, matrix) {
    const bytes = distancesOf(shown, block)[shown.arrays.indexOf(matrix)] ?? 0;
    return bytes / WORD_BYTES;
}

// A warp's accesses in order: each has a kind, the array's name, the byte and the element where it
// begins, how far the block's elements of A and B are, and the number of waits before it.
function accessesOf(shown, warp, block) {
    const bytesMoved = distancesOf(shown, block);
    const moved = {
        A: elementsMoved(shown, block, "A"),
        B: elementsMoved(shown, block, "B"),
    };
    const last = shown.kinds.map(() => ({ byte: 0, element: 0 }));
    const accesses = [];
    let waits = 0;
    for (const [number, bytes = 0, elements = 0] of shown.steps[warp]) {
        const kind = shown.kinds[number];
        if ("wait" in kind) {
            waits += 1;
            continue;
        }
        last[number].byte += bytes;
        last[number].element += elements;
        const { element } = last[number];
        const byte = last[number].byte + bytesMoved[kind.array];
        accesses.push({ kind, name: shown.arrays[kind.array], byte, element, moved, waits });
    }
    return accesses;
}

// An element of a matrix by its number in row-major order.
function elementAt(shown, matrix, number) {
    const [, columns] = shown.matrices[matrix];
    return { matrix, row: Math.floor(number / columns), column: number % columns };
}

// The elements that all lanes touch, or those of an access without lanes, as far as they are known.
function elementsOf(shown, access) {
    const { kind } = access;
    if (kind.lanes) {
        return range(LANES).flatMap((lane) => elementsOfLane(shown, access, lane));
    }
    if (kind.hold) {
        return heldElements(shown, access, kind.hold);
    }
    return globalElements(shown, access, 0);
}

// The elements that a lane touches, as far as they are known.
function elementsOfLane(shown, access, lane) {
    const { kind } = access;
    const offset = kind.lanes[lane];
    if (offset === null) {
        return [];
    }
    if (!kind.hold) {
        return globalElements(shown, access, offset);
    }
    const lanesBefore = kind.lanes.slice(0, lane).filter((other) => other !== null);
    const first = lanesBefore.length * wordsOfLane(kind);
    return heldElements(shown, access, kind.hold.slice(first, first + wordsOfLane(kind)));
}

// The elements of A and B that words of shared memory hold. An unknown element has no offset.
function heldElements(shown, access, offsets) {
    const known = offsets.filter((offset) => offset !== null);
    return known.map((offset) => {
        const number = access.element + offset;
        if (number < shown.of_a) {
            return elementAt(shown, "A", number + access.moved.A);
        }
        return elementAt(shown, "B", number - shown.of_a + access.moved.B);
    });
}

// The elements of a matrix in global memory. A bulk copy moves several strips of it.
function globalElements(shown, access, offset) {
    const { kind, name, byte } = access;
    if (!shown.matrices[name]) {
        return [];
    }
    const [strips, bytes, pitch] = kind.box ?? [1, wordsOfLane(kind) * WORD_BYTES, 0];
    const start = Math.floor((byte + offset) / WORD_BYTES);
    return range(strips).flatMap((strip) => {
        const first = start + (strip * pitch) / WORD_BYTES;
        return range(bytes / WORD_BYTES).map((word) => elementAt(shown, name, first + word));
    });
}

// The parts of the matrices that a block touches.
function partsOf(shown, block) {
    const parts = {};
    for (const [matrix, shape] of Object.entries(shown.matrices)) {
        const [, allColumns, top, left, rows, columns] = shape;
        const first = top * allColumns + left + elementsMoved(shown, block, matrix);
        const corner = elementAt(shown, matrix, first);
        parts[matrix] = { top: corner.row, left: corner.column, rows, columns };
    }
    return parts;
}

// The whole matrices, as parts.
function wholeParts(shown) {
    const parts = {};
    for (const [matrix, [rows, columns]] of Object.entries(shown.matrices)) {
        parts[matrix] = { top: 0, left: 0, rows, columns };
    }
    return parts;
}

// The part of K that is drawn: at most MOST_SIDE, and it has `k`.
function drawnAlongK(first, count, k) {
    const length = Math.min(count, MOST_SIDE);
    const isInside = k >= first && k < first + count;
    const start = isInside ? k - ((k - first) % length) : first;
    return [start, Math.min(length, first + count - start)];
}

// The parts of the matrices that are drawn. k: of the tile that is shown
function drawnParts(parts, k) {
    const drawn = {};
    for (const [matrix, part] of Object.entries(parts)) {
        const rows = Math.min(part.rows, MOST_SIDE);
        const columns = Math.min(part.columns, MOST_SIDE);
        drawn[matrix] = { ...part, rows, columns };
    }
    if (parts.A) {
        const [left, columns] = drawnAlongK(parts.A.left, parts.A.columns, k);
        Object.assign(drawn.A, { left, columns });
    }
    if (parts.B) {
        const [top, rows] = drawnAlongK(parts.B.top, parts.B.rows, k);
        Object.assign(drawn.B, { top, rows });
    }
    return drawn;
}

// The first element of an access that is known.
function firstElement(shown, access) {
    const { kind } = access;
    if (!kind.lanes) {
        return elementsOf(shown, access)[0];
    }
    const lane = kind.lanes.findIndex((offset) => offset !== null);
    return elementsOfLane(shown, access, lane)[0];
}

// Where an element of A or B is along K; null for C and for an unknown element.
function placeAlongK(element) {
    if (!element || element.matrix === "C") {
        return null;
    }
    return element.matrix === "A" ? element.column : element.row;
}

// The tile along K of each access; that of the access before it if it has none of its own.
function tilesOf(shown, accesses) {
    let tile = null;
    return accesses.map((access) => {
        const k = placeAlongK(firstElement(shown, access));
        if (k !== null && shown.depth) {
            tile = Math.floor(k / shown.depth);
        }
        return tile;
    });
}

// The kind of an access that another rung may also have, such as a read of B in shared memory.
function roleOf({ kind, name }, element) {
    const memory = GLOBAL.includes(name) ? "global" : "shared";
    const matrix = element?.matrix ?? (memory === "global" ? name : "");
    return `${memory} ${kind.writes ? "write" : "read"} ${matrix}`;
}

// The role of each access, and its place along K.
function rolesOf(shown, accesses) {
    return accesses.map((access) => {
        const element = firstElement(shown, access);
        return { role: roleOf(access, element), k: placeAlongK(element) ?? 0 };
    });
}

// The step of the access that is most like an access of another rung; undefined if none is.
// others, other: the roles of the other rung's accesses, and the place of its access
function likeAccess(roles, others, other) {
    const { role, k } = others[other];
    const ofRole = (all) => [...all.keys()].filter((step) => all[step].role === role);
    const steps = ofRole(roles);
    const nearest = Math.min(...steps.map((step) => Math.abs(roles[step].k - k)));
    const near = steps.filter((step) => Math.abs(roles[step].k - k) === nearest);
    const before = ofRole(others).filter((step) => step < other && others[step].k === k);
    return near[Math.min(before.length, near.length - 1)];
}

// The words of memory to draw, as cells: place, colour, the lanes that access the word, and a
// group, which is a sector, or a bank in a phase.
function cellsOf(access) {
    return access.kind.rows ? bankCells(access) : sectorCells(access);
}

function firstWord({ kind, byte }, lane) {
    return Math.floor((byte + kind.lanes[lane]) / WORD_BYTES);
}

// The lanes that take part in an access.
function activeLanes({ kind }) {
    return range(LANES).filter((lane) => kind.lanes[lane] !== null);
}

// The lanes that access a word.
function lanesAtWord(access, word) {
    return activeLanes(access).filter((lane) => {
        const first = firstWord(access, lane);
        return word >= first && word < first + wordsOfLane(access.kind);
    });
}

// A row of 32 banks for each wavefront, with a larger gap before each phase.
function bankCells(access) {
    const cells = [];
    let y = -1.4;
    access.kind.rows.forEach((wavefronts, phase) => {
        wavefronts.forEach((words, wavefront) => {
            y += wavefront ? 1.2 : 1.6;
            cells.push(...wavefrontCells(access, words, { y, phase, isFirst: !wavefront }));
        });
    });
    return cells;
}

function wavefrontCells(access, words, { y, phase, isFirst }) {
    const { kind, byte } = access;
    const first = Math.floor(byte / WORD_BYTES);
    const wordOfBank = new Map();
    for (const word of words) {
        const bank = (((first + word) % BANKS) + BANKS) % BANKS;
        wordOfBank.set(bank, first + word);
    }
    const isInPhase = (lane) => Math.floor((lane * kind.rows.length) / LANES) === phase;
    return range(BANKS).map((bank) => {
        const group = `${phase}/${bank}`;
        const word = wordOfBank.get(bank);
        if (word === undefined) {
            return { x: bank, y, group, colour: "idle", lanes: [] };
        }
        const lanes = lanesAtWord(access, word).filter(isInPhase);
        return { x: bank, y, group, colour: isFirst ? "first" : "later", lanes };
    });
}

// Each sector that an access touches, in the order of memory.
function sectorCells(access) {
    const sectors = new Set();
    for (const lane of activeLanes(access)) {
        for (const word of range(wordsOfLane(access.kind))) {
            sectors.add(Math.floor((firstWord(access, lane) + word) / SECTOR_WORDS));
        }
    }
    const inOrder = [...sectors].sort((a, b) => a - b);
    return inOrder.flatMap((sector, place) =>
        range(SECTOR_WORDS).map((word) => {
            const lanes = lanesAtWord(access, sector * SECTOR_WORDS + word);
            return {
                x: (place % SECTORS_IN_A_ROW) * 8.7 + word,
                y: Math.floor(place / SECTORS_IN_A_ROW) * 1.35 + 0.2,
                group: sector,
                colour: lanes.length ? "used" : "pale",
                lanes,
            };
        })
    );
}
