// The drawings of the access viewer, as SVG and HTML: memory, the product of the matrices, and all
// accesses of a warp.

function svg(width, height, inside, attributes = "") {
    const box = `viewBox="0 0 ${width} ${height}"`;
    return `<svg ${box} aria-hidden="true" ${attributes}>${inside}</svg>`;
}

// Rectangles of height 1, all of one class.
function squares(className, places, width = 1) {
    const moves = places.map(([x, y]) => `M${x} ${y}h${width}v1h${-width}z`);
    return `<path class="${className}" d="${moves.join("")}"/>`;
}

const BANK_COLOURS = [
    ["first", "first word of its bank"],
    ["later", "another word of the same bank: waits"],
    ["idle", ""],
];
const SECTOR_COLOURS = [
    ["used", "used"],
    ["pale", "moved with it, not used by this access"],
];
const SECTORS_TITLE = "<b>Sectors of 32 bytes</b>, each once: 8 floats, 4 sectors in a row";

// The words of memory. own: the cells of the lane that is chosen
function memoryDrawing(kind, cells, own, lane) {
    const colours = kind.rows ? BANK_COLOURS : SECTOR_COLOURS;
    const layers = colours.map(([colour]) => {
        return cellSquares(
            colour,
            cells.filter((cell) => cell.colour === colour),
        );
    });
    const title = kind.rows ? banksTitle(kind) : SECTORS_TITLE;
    const width = kind.rows ? BANKS : 34.1;
    const height = Math.max(...cells.map(({ y }) => y)) + 1.1;
    const drawing = svg(width, height, layers.join("") + cellSquares("own", own));
    const scale = kind.rows ? banksScale() : "";
    return `<p>${title}</p>${scale}${drawing}${memoryLegend(colours, cells, lane)}`;
}

function cellSquares(className, cells) {
    const places = cells.map(({ x, y }) => [x + 0.05, y]);
    return squares(className, places, 0.9);
}

function banksTitle({ rows }) {
    const title = "<b>32 banks of shared memory</b>: a row is a wavefront";
    if (rows.length === 1) {
        return title;
    }
    return `${title}; ${rows.length} phases of ${LANES / rows.length} lanes`;
}

// The number of every fourth bank.
function banksScale() {
    const labels = range(8).map((place) => {
        return `<span style="left:${12.5 * place}%">${4 * place}</span>`;
    });
    return `<div class="scale">${labels.join("")}</div>`;
}

function memoryLegend(colours, cells, lane) {
    const items = colours.filter(([colour, text]) => {
        return text && cells.some((cell) => cell.colour === colour);
    });
    items.push(["own", `lane ${lane}`]);
    const html = items.map(([colour, text]) => `<span><i class="${colour}"></i>${text}</span>`);
    return `<p class="legend">${html.join("")}</p>`;
}

// Whether a part of a matrix has an element.
function isInPart(part, { row, column }) {
    const { top, left, rows, columns } = part ?? { top: 0, left: 0, rows: 0, columns: 0 };
    return row >= top && column >= left && row < top + rows && column < left + columns;
}

// The corners of the matrices: C is below B, and to the right of A.
function productLayout(parts) {
    const nothing = { rows: 0, columns: 0 };
    const { A = nothing, B = nothing, C = nothing } = parts;
    const columns = Math.max(C.columns, B.columns);
    const gap = Math.max(4, (A.columns + columns) / 14);
    const right = A.columns + gap;
    const low = B.rows + gap;
    return {
        parts,
        corners: { A: [0, low], B: [right, 0], C: [right, low] },
        width: right + columns,
        height: low + Math.max(C.rows, A.rows),
    };
}

function isDrawn(layout, element) {
    return isInPart(layout.parts[element.matrix], element);
}

function placeOf(layout, { matrix, row, column }) {
    const [x, y] = layout.corners[matrix];
    const { top, left } = layout.parts[matrix];
    return [x + column - left, y + row - top];
}

// The element of C at a point of the drawing.
function elementOfC({ parts, corners }, x, y) {
    const [cornerX, cornerY] = corners.C;
    const { top, left } = parts.C ?? { top: 0, left: 0 };
    return { row: Math.floor(y - cornerY) + top, column: Math.floor(x - cornerX) + left };
}

// The part of a matrix that is in both of two parts; null if there is none.
function commonPart(one, other) {
    const top = Math.max(one.top, other.top);
    const left = Math.max(one.left, other.left);
    const rows = Math.min(one.top + one.rows, other.top + other.rows) - top;
    const columns = Math.min(one.left + one.columns, other.left + other.columns) - left;
    return rows > 0 && columns > 0 ? { top, left, rows, columns } : null;
}

// A rectangle around a part of a matrix, as far as it is drawn.
function partRectangle(layout, className, matrix, part) {
    const shown = commonPart(part, layout.parts[matrix]);
    if (!shown) {
        return "";
    }
    const [x, y] = placeOf(layout, { matrix, row: shown.top, column: shown.left });
    const size = `width="${shown.columns}" height="${shown.rows}"`;
    return `<rect class="${className}" x="${x}" y="${y}" ${size}/>`;
}

// The tile of A and of B that a block multiplies at a step along K.
function tileRectangles(layout, parts, k, depth) {
    if (k === null) {
        return "";
    }
    const { A, B } = parts;
    const ofA = A && partRectangle(layout, "slab", "A", { ...A, left: k, columns: depth });
    const ofB = B && partRectangle(layout, "slab", "B", { ...B, top: k, rows: depth });
    return `${ofA ?? ""}${ofB ?? ""}`;
}

// The matrices of a block. `layers` maps a class to elements, in the order of drawing.
function productDrawing(layout, layers, tile, title) {
    const parts = [];
    for (const [className, elements] of Object.entries(layers)) {
        parts.push(elementSquares(layout, className, elements));
    }
    if (layers.own) {
        parts.push(guide(layout, layers));
    }
    return matricesDrawing(layout, parts.join("") + tile, title);
}

// All matrices, with the parts that each block and the chosen block touch.
function gridDrawing(shown, layout, block, tile) {
    const rectangles = [];
    for (const [other] of shown.blocks) {
        const { C } = partsOf(shown, other);
        if (C) {
            rectangles.push(partRectangle(layout, "edge", "C", C));
        }
    }
    for (const [matrix, part] of Object.entries(partsOf(shown, block))) {
        rectangles.push(partRectangle(layout, "ours", matrix, part));
    }
    const title = `<b>C = A·B</b>: the blocks over C, and what block ${block} touches`;
    return matricesDrawing(layout, rectangles.join("") + tile, title + tileTitle(tile));
}

function tileTitle(tile) {
    return tile ? "; framed: the tile along K" : "";
}

// The frames of the matrices with their names, and what is drawn in them.
function matricesDrawing(layout, inside, title) {
    const names = Object.keys(layout.parts);
    const frames = names.map((name) => {
        return partRectangle(layout, "frame", name, layout.parts[name]);
    });
    const drawing = svg(layout.width, layout.height, frames.join("") + inside);
    const labels = names.map((name) => matrixLabel(layout, name));
    const style = `max-width:${(30 * layout.width) / layout.height}rem`;
    const product = `<div class="product" style="${style}">${drawing}${labels.join("")}</div>`;
    return `<p>${title}</p> ${product}`;
}

function productTitle(level, { warp, lane }, layers, tile) {
    if (level === "block") {
        return `<b>C = A·B</b>: the warps over C, and warp ${warp}'s elements${tileTitle(tile)}`;
    }
    const mine = level === "lane" ? `lane ${lane}'s` : `the warp's elements and lane ${lane}'s`;
    const title = `<b>C = A·B</b>: what the block touches; in C, ${mine}${tileTitle(tile)}`;
    if (!layers.tile.length) {
        return title;
    }
    return `${title}; tinted: what the warp reads from shared memory between two waits`;
}

// The name and size of a matrix. C's ends where C does: A's, to its left, may be wider than A.
function matrixLabel(layout, name) {
    const [x, y] = layout.corners[name];
    const { rows, columns } = layout.parts[name];
    const side = name === "C" ? "right:0" : `left:${(100 * x) / layout.width}%`;
    const style = `${side};top:${(100 * y) / layout.height}%`;
    return `<span style="${style}"><b>${name}</b> ${rows} × ${columns}</span>`;
}

function elementSquares(layout, className, elements) {
    const places = new Map();
    for (const element of elements) {
        if (isDrawn(layout, element)) {
            const place = placeOf(layout, element);
            places.set(String(place), place);
        }
    }
    return squares(className, [...places.values()]);
}

// A line from the lane's element of A or B to the row or column of C where it is needed.
function guide(layout, { own, mine }) {
    const from = own.find((element) => isDrawn(layout, element));
    const to = mine.find((element) => isDrawn(layout, element));
    if (!from || !to || from.matrix === "C") {
        return "";
    }
    const [x, y] = placeOf(layout, from);
    const [toX, toY] = placeOf(layout, to);
    const across = `M${x + 1} ${y + 0.5}H${toX}`;
    const down = `M${x + 0.5} ${y + 1}V${toY}`;
    return `<path class="guide" d="${from.matrix === "A" ? across : down}"/>`;
}

// The elements of the sectors that hold these elements.
function inSectors(elements) {
    return elements.flatMap((element) => {
        const first = element.column - (element.column % SECTOR_WORDS);
        return range(SECTOR_WORDS).map((word) => ({ ...element, column: first + word }));
    });
}

// The width of the drawing of a warp's accesses, in accesses.
function rollWidth(accesses) {
    return Math.max(accesses.length, 24);
}

// A row for each array and a column for each access: tall if the warp reads, low if it writes, and
// a bar where it waits.
function rollDrawing(arrays, accesses) {
    const width = rollWidth(accesses);
    const height = 10 * arrays.length;
    const frames = arrays.map((_, row) => {
        return `<rect class="frame" x="0" y="${10 * row + 0.5}" width="${width}" height="9"/>`;
    });
    const inside = [
        ...frames,
        `<path class="first" d="${accessBars(accesses, false)}"/>`,
        `<path class="later" d="${accessBars(accesses, true)}"/> `,
        `<path class="bar" d="${waitBars(accesses, height)}"/>`,
    ];
    const drawing = svg(width, height, inside.join(""), 'preserveAspectRatio="none"');
    const labels = arrays.map((name) => `<span>${name}</span>`).join("");
    const cursor = `<i style="width:${100 / width}%"></i>`;
    return `<p><b>The warp's accesses in the order they run</b>; tall: reads, low: writes,
        orange: wasteful, bars: the warp waits</p>
        <div class="labels">${labels}</div> <div class="keys">${drawing}${cursor}</div>`;
}

function accessBars(accesses, isWasteful) {
    const bars = accesses.map(({ kind }, x) => {
        if (Boolean(kind.bad) !== isWasteful) {
            return "";
        }
        const top = 10 * kind.array + (kind.writes ? 5 : 1);
        return `M${x} ${top}h0.9v${kind.writes ? 4 : 8}h-0.9z`;
    });
    return bars.join("");
}

function waitBars(accesses, height) {
    const bars = accesses.map(({ waits }, x) => {
        const hasWaited = x > 0 && waits !== accesses[x - 1].waits;
        return hasWaited ? `M${x - 0.05} 0v${height}` : "";
    });
    return bars.join("");
}
