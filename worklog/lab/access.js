// What a block touches, step by step: in a notebook as an anywidget, and on a page whose address has
// what is chosen, #kernel/warp/lane/step/level/block. Python (worklog.viewer.accesses) computes the
// counts and the text about each access; here they are placed.

const KEYS =
    "keys: ← → step, ⇧ ← → same line, ↑ ↓ warp, + − zoom, Esc leaves; hover over or tap a lane, a cell, or C";
// The choice among the parts of each level.
const CHOICES = {
    grid: "blockChoice",
    block: "warpChoice",
    warp: "laneChoice",
    lane: "laneChoice",
};

const MOST_ACROSS = 8; // blocks next to each other

function clamped(number, count) {
    return Math.min(Math.max(0, number), count - 1);
}

class AccessView {
    // model: has the documents of worklog.viewer.accesses by kernel, `of_page` if the address has
    // what is chosen, and `of_pair` if another view is next to it
    constructor(model, root) {
        this.documents = model.get("documents");
        this.names = Object.keys(this.documents);
        this.isPage = model.get("of_page");
        this.isPaired = model.get("of_pair");
        this.onGo = () => {}; // called after the user changes what is chosen
        this.state = { kernel: this.names[0], block: 0, level: "warp", warp: 0, lane: 0, step: 0 };
        this.shown = null; // the kernel's document
        this.isRead = false; // whether `accesses` are those of what is chosen
        this.accesses = []; // the warp's
        this.tiles = []; // the tile along K of each
        this.cells = []; // of memory, as they are drawn
        this.layout = null; // of the matrices, as they are drawn
        this.owners = null; // see storesOfC()
        this.zoom = new ZoomControl((level) => this.go({ level }));
        this.tile = new TileSlider((tile) => this.moveToTile(tile));
        this.blockChoice = this.choiceOf("block", "of-grid", "Blocks of the grid");
        this.warpChoice = this.choiceOf("warp", "of-block", "Warps of the block: threads");
        this.laneChoice = this.choiceOf("lane", "lanes", "Lanes of the warp");
        this.makeParts();
        this.listen();
        root.append(
            this.isPaired ? this.view : make("div", { class: "worklog access" }, this.view),
        );
    }

    // The choice of a part, which also opens its level.
    choiceOf(part, name, title) {
        return new Choice(
            name,
            title,
            (number) => this.go({ [part]: number }),
            (number) => this.zoomIn({ [part]: number, level: part }),
        );
    }

    makeParts() {
        const choose = (place) => this.open(this.names[place]);
        this.kernel = dropDown("kernel", this.names, choose);
        this.warp = dropDown("warp", [], (place) => this.go({ warp: place }));
        this.name = make("b", {});
        this.about = make("p", { class: "source" });
        this.head = make("div", { class: "said", role: "status" });
        this.code = make("div", { class: "listing", tabindex: 0, role: "region" });
        this.makeLevels();
        this.matrices = make("div", { class: "matrices" });
        this.roll = make("div", { class: "piano" });
        this.slider = make("input", { type: "range", min: 0, "aria-label": "step" });
        const top = make("div", { class: "top" }, this.choices(), this.zoom.box, this.head);
        const keys = make("p", { class: "source" }, KEYS);
        const sliders = [this.roll, this.slider, this.tile.box];
        const time = make("div", { class: "time" }, ...sliders, this.buttons(), keys);
        this.view = make("div", { class: "all" }, top, this.code, this.level, this.matrices, time);
    }

    makeLevels() {
        this.laneChoice.offer(range(LANES), (lane) => this.go({ lane }));
        this.lanes = this.laneChoice.box;
        this.laneTable = make("div", { class: "of-lane" });
        this.memory = make("div", { class: "memory" });
        const choices = [this.blockChoice.box, this.warpChoice.box, this.lanes];
        this.level = make("div", { class: "warp" }, ...choices, this.laneTable, this.memory);
    }

    choices() {
        const choices = make("p", { class: "choices" });
        if (this.isPaired) {
            choices.append(this.name);
        }
        if (this.names.length > 1) {
            choices.append(make("label", {}, "kernel ", this.kernel));
        }
        choices.append(make("label", {}, "warp ", this.warp), this.about);
        return choices;
    }

    buttons() {
        return make(
            "p",
            { class: "buttons" },
            button("‹ step", () => this.move(-1)),
            button("step ›", () => this.move(1)),
            button("‹ this line", () => this.moveOnLine(-1)),
            button("this line ›", () => this.moveOnLine(1)),
        );
    }

    // Shows a kernel from its first wasteful access on, or from what is chosen.
    open(name, chosen = {}) {
        this.shown = completed(this.documents[name]);
        this.isRead = false;
        this.owners = null;
        const { start, steps, block, blocks } = this.shown;
        const [warp, step] = start;
        const warps = [...steps.keys()];
        this.kernel.value = name;
        this.name.textContent = name;
        this.code.setAttribute("aria-label", `source of ${name}`);
        this.warp.replaceChildren(...warps.map((number) => make("option", {}, String(number))));
        this.warpChoice.offer(warps);
        this.warpChoice.labelsOf((number) => ({ lines: [threadsText(number)] }));
        this.blockChoice.offer(blocks.map(([number]) => number));
        this.placeBlocks();
        this.listSource();
        this.go({ kernel: name, block, warp, lane: 0, step, ...chosen });
    }

    // Puts the blocks where they are in the grid, if all of them are there and fit next to each
    // other, and says what each computes if that fits, too.
    placeBlocks() {
        const { grid, blocks } = this.shown;
        const [across] = grid;
        const isGrid = blocks.length === blockCount(grid) && across <= MOST_ACROSS;
        const { style } = this.blockChoice.labels;
        style.gridTemplateColumns = isGrid ? `repeat(${across}, minmax(0, 1fr))` : "";
        if (across <= MOST_ACROSS / 2) {
            this.blockChoice.labelsOf((number) => ({ lines: blockLines(this.shown, number) }));
        }
    }

    // Changes what is chosen: kernel, block, warp, lane, step, or the level of zoom.
    go(change) {
        const { state, shown } = this;
        const before = { ...state };
        Object.assign(state, change);
        if (!distancesOf(shown, state.block)) {
            state.block = shown.block;
        }
        state.warp = clamped(state.warp, shown.steps.length);
        state.lane = clamped(state.lane, LANES);
        const isOther = state.warp !== before.warp || state.block !== before.block;
        if (!this.isRead || isOther) {
            this.readAccesses(state.block !== before.block);
        }
        state.step = clamped(state.step, Math.max(1, this.accesses.length));
        this.warp.value = state.warp;
        this.slider.max = Math.max(0, this.accesses.length - 1);
        this.slider.value = state.step;
        this.draw();
        if (this.isPage) {
            this.showAddress();
        }
        this.onGo();
    }

    // Reads the accesses of the block and the warp that are chosen.
    readAccesses(isOtherBlock) {
        const { shown, state } = this;
        this.isRead = true;
        this.accesses = accessesOf(shown, state.warp, state.block);
        this.tiles = tilesOf(shown, this.accesses);
        this.tile.offer(this.tiles);
        this.roll.innerHTML = rollDrawing(shown.arrays, this.accesses);
        if (isOtherBlock) {
            this.owners = null;
        }
    }

    // Keeps what is chosen in the address of the page. A level and a block are only there if they
    // aren't the usual.
    showAddress() {
        const { kernel, warp, lane, step, level, block } = this.state;
        const parts = [kernel, warp, lane, step];
        if (level !== "warp" || block !== this.shown.block) {
            parts.push(level, block);
        }
        history.replaceState(null, "", `#${parts.join("/")}`);
    }

    // Goes to a deeper level, and gives the focus to what can be chosen there.
    zoomIn(change) {
        const hadFocus = this.view.contains(document.activeElement);
        this.go(change);
        if (hadFocus) {
            this[CHOICES[this.state.level]].focus();
        }
    }

    zoomBy(by) {
        const place = clamped(LEVELS.indexOf(this.state.level) + by, LEVELS.length);
        this.zoomIn({ level: LEVELS[place] });
    }

    // Chooses what another view shows: its level, block, warp and lane, and an access of its kind.
    follow(other) {
        const { level, block, warp, lane } = other.state;
        const onGo = this.onGo;
        this.onGo = () => {};
        this.go({ level, block, warp, lane });
        const step = this.likeStep(other);
        if (step !== undefined) {
            this.go({ step });
        }
        this.onGo = onGo;
    }

    // The step of the access that is most like the access that another view shows.
    likeStep(other) {
        if (!other.accesses.length) {
            return undefined;
        }
        const roles = rolesOf(this.shown, this.accesses);
        const others = rolesOf(other.shown, other.accesses);
        return likeAccess(roles, others, other.state.step);
    }

    move(by) {
        const step = this.state.step + by;
        if (this.accesses[step]) {
            this.go({ step });
        }
    }

    // Moves to the next access of the same line of source, or to the previous one.
    moveOnLine(by) {
        const isOnLine = (access) =>
            this.lineOf(access) === this.lineOf(this.accesses[this.state.step]);
        let step = this.state.step + by;
        while (this.accesses[step] && !isOnLine(this.accesses[step])) {
            step += by;
        }
        if (this.accesses[step]) {
            this.go({ step });
        }
    }

    // Moves to the same access of another tile along K, or to the tile's first access.
    moveToTile(tile) {
        const { accesses, tiles, state } = this;
        const { pill } = accesses[state.step].kind;
        const ofTile = (number) => {
            return [...accesses.keys()].filter((step) => {
                return tiles[step] === number && accesses[step].kind.pill === pill;
            });
        };
        const steps = ofTile(tile);
        const place = ofTile(tiles[state.step]).indexOf(state.step);
        this.go({ step: steps[clamped(place, steps.length)] ?? tiles.indexOf(tile) });
    }

    lineOf(access) {
        const [line] = this.shown.pills[access.kind.pill];
        return line;
    }

    draw() {
        const { state } = this;
        const access = this.accesses[state.step];
        this.view.dataset.level = state.level;
        this.view.classList.toggle("nothing", !access);
        this.view.classList.toggle("bad", Boolean(access?.kind.bad));
        this.zoom.show(state);
        this.blockChoice.show(state.block);
        this.warpChoice.show(state.warp);
        this.about.textContent = aboutText(this.shown, state.block);
        this.tile.show(this.tiles[state.step] ?? null, this.shown.depth);
        this.cells = access?.kind.lanes ? cellsOf(access) : [];
        const own = this.cells.filter((cell) => cell.lanes.includes(state.lane));
        const groups = new Set(own.map((cell) => cell.group));
        const neighbours = this.cells.filter((cell) => groups.has(cell.group));
        const near = this.lanesNear(access, own, neighbours);
        this.drawHead(access, near, neighbours);
        this.drawMatrices(access);
        if (!access) {
            return;
        }
        const { kind } = access;
        this.drawLanes(access, near);
        this.memory.innerHTML = "";
        if (this.cells.length) {
            this.memory.innerHTML = memoryDrawing(kind, this.cells, own, state.lane);
        }
        const step = `${state.step + 1} of ${this.accesses.length}: ${kind.text}`;
        this.slider.setAttribute("aria-valuetext", step);
        const cursor = this.roll.querySelector("i");
        cursor.style.left = `${(100 * state.step) / rollWidth(this.accesses)}%`;
        this.markSource(access);
    }

    // The other lanes in the lane's sectors, or those that want another word of its banks.
    lanesNear(access, own, neighbours) {
        const inBanks = access?.kind.rows;
        const others = inBanks ? neighbours.filter((cell) => !own.includes(cell)) : neighbours;
        const lanes = new Set(others.flatMap((cell) => cell.lanes));
        lanes.delete(this.state.lane);
        return lanes;
    }

    // What is chosen, in sentences: at the level of the grid and of a block, the access comes last.
    drawHead(access, near, neighbours) {
        const { shown, state } = this;
        const { kind } = access ?? {};
        const cost = access
            ? [`${kind.text}: `, make("b", {}, unbroken(kind.cost))]
            : [`Warp ${state.warp} touches no memory.`];
        const paragraphs = [];
        if (state.level === "grid") {
            paragraphs.push(...blockTexts(shown, state.block), cost);
        } else if (state.level === "block") {
            paragraphs.push(...warpTexts(state.warp, this.accesses, this.ours().length), cost);
        } else {
            paragraphs.push(cost);
            if (access) {
                paragraphs.push(laneText(shown, access, state, near, neighbours));
            }
        }
        const parts = paragraphs.map((texts, place) => {
            return make("p", { class: place ? "" : "headline" }, ...[texts].flat());
        });
        this.head.replaceChildren(...parts);
    }

    drawLanes(access, near) {
        const { kind } = access;
        const isWarp = this.state.level === "warp";
        const memory = kind.lanes ? `: byte of ${memoryText(access)}` : "";
        this.laneChoice.legend.textContent = `Lanes of the warp${isWarp ? memory : ""}`;
        this.laneChoice.labelsOf((lane) => {
            const isIdle = !kind.lanes || kind.lanes[lane] === null;
            return {
                checked: lane === this.state.lane,
                classes: { idle: isIdle, near: near.has(lane) },
                lines: isIdle || !isWarp ? [] : [String(byteOf(access, lane))],
            };
        });
        this.laneTable.replaceChildren(laneTable(laneRows(this.shown, access, this.state)));
    }

    // The elements of C by row and column, with the warp and the lane that store each.
    storesOfC() {
        if (this.owners) {
            return this.owners;
        }
        const owners = new Map();
        this.shown.steps.forEach((_, warp) => {
            const accesses = accessesOf(this.shown, warp, this.state.block);
            const stores = accesses.filter(({ kind, name }) => {
                return kind.writes && kind.lanes && name === "C";
            });
            for (const store of stores) {
                this.addOwners(owners, store, warp);
            }
        });
        this.owners = owners;
        return owners;
    }

    addOwners(owners, store, warp) {
        for (const lane of range(LANES)) {
            for (const { row, column } of elementsOfLane(this.shown, store, lane)) {
                owners.set(`${row}/${column}`, { warp, lane, matrix: "C", row, column });
            }
        }
    }

    // The elements of C that the warp stores.
    ours() {
        return [...this.storesOfC().values()].filter(({ warp }) => warp === this.state.warp);
    }

    drawMatrices(access) {
        const { shown, state } = this;
        this.matrices.innerHTML = "";
        if (!Object.keys(shown.matrices).length) {
            return;
        }
        const tile = this.tiles[state.step] ?? null;
        const k = tile === null ? null : tile * shown.depth;
        const parts = partsOf(shown, state.block);
        const isGrid = state.level === "grid";
        this.layout = productLayout(isGrid ? wholeParts(shown) : drawnParts(parts, k));
        const frames = tileRectangles(this.layout, parts, k, shown.depth);
        if (isGrid) {
            this.matrices.innerHTML = gridDrawing(shown, this.layout, state.block, frames);
            return;
        }
        const layers = this.productLayers(access);
        const title = productTitle(state.level, state, layers, frames);
        this.matrices.innerHTML = productDrawing(this.layout, layers, frames, title);
    }

    // The elements to draw by class, in the order of drawing.
    productLayers(access) {
        const { shown, state } = this;
        const ours = this.ours();
        const used = access ? elementsOf(shown, access) : [];
        if (state.level === "block") {
            return { ...this.warpLayers(), ours, used };
        }
        const { kind } = access ?? { kind: {} };
        const isGlobal = kind.lanes && !kind.rows;
        const isLane = state.level === "lane";
        return {
            tile: access ? this.tileOf(access) : [],
            ours: isLane ? [] : ours,
            pale: isGlobal ? inSectors(used) : [],
            used: isLane ? [] : used,
            mine: ours.filter(({ lane }) => lane === state.lane),
            own: kind.lanes ? elementsOfLane(shown, access, state.lane) : [],
        };
    }

    // The elements of C of all warps, in four shades.
    warpLayers() {
        const layers = { shade0: [], shade1: [], shade2: [], shade3: [] };
        for (const element of this.storesOfC().values()) {
            layers[`shade${element.warp % 4}`].push(element);
        }
        return layers;
    }

    // The elements that the warp reads from shared memory between the same two waits.
    tileOf({ waits }) {
        const reads = this.accesses.filter((access) => {
            return access.kind.hold && !access.kind.writes && access.waits === waits;
        });
        return reads.flatMap((access) => elementsOf(this.shown, access));
    }

    // Fills the listing: lines of source, and a button for the accesses of each line.
    listSource() {
        const parts = [];
        let numberBefore = null;
        for (const [number, text] of this.shown.source) {
            if (numberBefore && number > numberBefore + 1) {
                parts.push(make("div", {}, "…"));
            }
            numberBefore = number;
            const line = make("div", { "data-line": number }, codeOf(text));
            const pills = this.pillsOf(number);
            if (pills.length) {
                line.append(make("p", {}, ...pills));
            }
            parts.push(line);
        }
        this.code.replaceChildren(...parts);
    }

    pillsOf(number) {
        const pills = [];
        this.shown.pills.forEach(([line, text, isBad, at], pill) => {
            if (line !== number) {
                return;
            }
            if (!at) {
                pills.push(make("span", { class: "pill" }, text));
                return;
            }
            const attributes = { "data-pill": pill, class: isBad ? "pill wasteful" : "pill" };
            pills.push(button(text, () => this.jump(pill, at), attributes));
        });
        return pills;
    }

    // Moves to the warp's next access of a pill, or to its first one, or to another warp's.
    jump(pill, [warp, step]) {
        const places = [...this.accesses.keys()];
        const ofPill = places.filter((place) => this.accesses[place].kind.pill === pill);
        const later = ofPill.find((place) => place > this.state.step);
        if (!ofPill.length) {
            this.go({ warp, step });
        } else {
            this.go({ step: later ?? ofPill[0] });
        }
    }

    // Marks the pill and the line of an access, and scrolls the line into the listing's box.
    markSource(access) {
        for (const pill of this.code.querySelectorAll("button")) {
            const isPressed = Number(pill.dataset.pill) === access.kind.pill;
            pill.setAttribute("aria-pressed", String(isPressed));
        }
        this.code.querySelector(".here")?.classList.remove("here");
        const line = this.code.querySelector(`[data-line="${this.lineOf(access)}"]`);
        if (!line) {
            return;
        }
        line.classList.add("here");
        const top = line.offsetTop - this.code.scrollTop;
        if (top < 0 || top + line.offsetHeight > this.code.clientHeight) {
            this.code.scrollTop = line.offsetTop - this.code.clientHeight / 3;
        }
    }

    listen() {
        onPoint(this.memory, (x, y, event) => this.pointAtMemory(x, y, event));
        onPoint(this.matrices, (x, y, event) => this.pointAtMatrices(x, y, event));
        onPoint(this.roll, (x, _, event) => this.pointAtRoll(x, event), true);
        this.slider.addEventListener("input", () => {
            this.go({ step: Number(this.slider.value) });
        });
    }

    pointAtMemory(x, y, event) {
        const cell = this.cells.find((cell) => {
            return x >= cell.x && x < cell.x + 1 && y >= cell.y && y < cell.y + 1.2;
        });
        if (!cell?.lanes.length) {
            return;
        }
        const lane = cell.lanes.includes(this.state.lane) ? this.state.lane : cell.lanes[0];
        this.point({ lane }, "lane", event);
    }

    pointAtMatrices(x, y, event) {
        if (!this.layout) {
            return;
        }
        const element = elementOfC(this.layout, x, y);
        if (this.state.level === "grid") {
            this.pointAtGrid(element, event);
            return;
        }
        const owner = this.storesOfC().get(`${element.row}/${element.column}`);
        if (!owner) {
            return;
        }
        const { warp, lane } = owner;
        if (this.state.level === "block") {
            this.point({ warp }, "warp", event);
        } else {
            this.point({ warp, lane }, "lane", event);
        }
    }

    // A mouse that hovers over the grid chooses no block: the picture stays as it is.
    pointAtGrid(element, event) {
        const numbers = this.shown.blocks.map(([number]) => number);
        const block = numbers.find((number) => {
            return isInPart(partsOf(this.shown, number).C, element);
        });
        if (block !== undefined && event.type === "click") {
            this.zoomIn({ block, level: "block" });
        }
    }

    // Chooses what a mouse hovers over; a click also opens it.
    point(part, level, { type }) {
        if (type === "click") {
            this.zoomIn({ ...part, level });
        } else if (Object.entries(part).some(([name, number]) => this.state[name] !== number)) {
            this.go(part);
        }
    }

    pointAtRoll(x, event) {
        const isPressed = event.buttons || event.type === "click";
        const step = Math.floor(x);
        if (isPressed && this.accesses[step]) {
            this.go({ step });
        }
    }

    onKey(event) {
        leaveOnEscape(event, this.view);
        const isOnPage = this.isPage && event.target === document.body;
        const isHere = this.view.contains(event.target) || isOnPage;
        const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
        if (!isHere || hasModifier || !this.hasKey(event)) {
            return;
        }
        // In JupyterLab, arrow keys move between cells, and Enter edits a cell.
        event.stopPropagation();
        const isArrow = event.key.startsWith("Arrow");
        if (!isArrow || !event.target.matches("select, input")) {
            event.preventDefault();
            this.act(event);
        }
    }

    // Whether a key is for the viewer. Enter is, on a radio button of a block, a warp or a lane.
    hasKey({ key, target }) {
        return /^(Arrow.*|[+-])$/.test(key) || (key === "Enter" && target.matches(".choice input"));
    }

    act({ key, shiftKey, target }) {
        const by = /Right|Down|\+/.test(key) ? 1 : -1;
        if (key === "Enter") {
            [this.blockChoice, this.warpChoice, this.laneChoice].some((choice) =>
                choice.openAt(target)
            );
        } else if (key === "+" || key === "-") {
            this.zoomBy(by);
        } else if (/Up|Down/.test(key)) {
            this.go({ warp: this.state.warp + by });
        } else if (shiftKey) {
            this.moveOnLine(by);
        } else {
            this.move(by);
        }
    }

    // Opens what the address says: #kernel/warp/lane/step, and then a level and a block.
    openAddress() {
        const address = decodeURIComponent(location.hash.slice(1));
        const [name, warp, lane, step, level, block] = address.split("/");
        if (!(name in this.documents)) {
            this.open(this.names[0]);
            return;
        }
        const chosen = {};
        for (const [part, number] of Object.entries({ warp, lane, step, block })) {
            if (/^\d+$/.test(number ?? "")) {
                chosen[part] = Number(number);
            }
        }
        chosen.level = LEVELS.includes(level) ? level : "warp";
        this.open(name, chosen);
    }
}

// A line of source. If it wraps, it goes on to the right of where it begins.
function codeOf(text) {
    const indent = text.length - text.trimStart().length;
    return make("code", { style: `--indent: ${indent}` }, text || " ");
}

// Calls `act` with the point of a drawing that a mouse hovers over or that is clicked. A finger that
// moves counts if `followsFinger`.
function onPoint(part, act, followsFinger = false) {
    const onEvent = (event) => {
        const drawing = part.querySelector("svg");
        const isSwipe = event.pointerType !== "mouse" && event.type === "pointermove";
        if (!drawing || (isSwipe && !followsFinger)) {
            return;
        }
        const box = drawing.getBoundingClientRect();
        const { width, height } = drawing.viewBox.baseVal;
        const x = ((event.clientX - box.left) / box.width) * width;
        const y = ((event.clientY - box.top) / box.height) * height;
        act(x, y, event);
    };
    part.addEventListener("pointermove", onEvent);
    part.addEventListener("click", onEvent);
}

// Calls `open` when the address changes. A place of the page, such as #content, says nothing about
// what is chosen.
function onAddress(open) {
    window.addEventListener("hashchange", () => {
        if (!document.getElementById(location.hash.slice(1))) {
            open();
        }
    });
}

function openOne(model, root) {
    const view = new AccessView(model, root);
    if (view.isPage) {
        onAddress(() => view.openAddress());
        view.openAddress();
    } else {
        view.open(view.names[0]);
    }
    return [view];
}

function render({ model, el }) {
    const isPair = model.get("of_pair");
    const views = isPair ? openPair(model.get("documents"), el) : openOne(model, el);
    const onKey = (event) => views.forEach((view) => view.onKey(event));
    window.addEventListener("keydown", onKey, true);
    return () => window.removeEventListener("keydown", onKey, true);
}
