// What a warp touches, step by step: in a notebook as an anywidget, and on a page whose address has
// what is chosen, #kernel/warp/lane/step. Python (worklog.viewer.accesses) computes the counts and
// the text about each access; here they are placed.

const KEYS = "keys: ← → step, ⇧ ← → same line, ↑ ↓ warp; hover or tap a lane, a cell, or C";

function clamped(number, count) {
    return Math.min(Math.max(0, number), count - 1);
}

class AccessView {
    constructor(model, root) {
        this.documents = model.get("documents");
        this.names = Object.keys(this.documents);
        this.isPage = model.get("of_page"); // the address has what is chosen
        this.state = { kernel: this.names[0], warp: 0, lane: 0, step: 0 };
        this.shown = null; // the kernel's document
        this.accesses = null; // the warp's
        this.cells = []; // of memory, as they are drawn
        this.owners = null; // see storesOfC()
        this.makeParts();
        this.listen();
        root.append(make("div", { class: "worklog access" }, this.view));
    }

    makeParts() {
        const choose = (place) => this.open(this.names[place]);
        this.kernel = dropDown("kernel", this.names, choose);
        this.warp = dropDown("warp", [], (place) => this.go({ warp: place }));
        this.about = make("p", { class: "source" });
        this.head = make("div", { class: "said", role: "status" });
        const region = { tabindex: 0, role: "region" };
        this.code = make("div", { class: "listing", ...region });
        this.lanes = make("fieldset", { class: "lanes" });
        this.lanes.append(make("legend", {}, "Lanes of the warp"), ...this.laneLabels());
        this.memory = make("div", { class: "memory" });
        this.matrices = make("div", { class: "matrices" });
        this.roll = make("div", { class: "piano" });
        this.slider = make("input", { type: "range", min: 0, "aria-label": "step" });
        const top = make("div", { class: "top" }, this.choices(), this.head);
        const warp = make("div", { class: "warp" }, this.lanes, this.memory);
        const keys = make("p", { class: "source" }, KEYS);
        const time = make("div", { class: "time" }, this.roll, this.slider, this.buttons(), keys);
        this.view = make("div", { class: "all" }, top, this.code, warp, this.matrices, time);
    }

    choices() {
        const choices = make("p", { class: "choices" });
        if (this.names.length > 1) {
            choices.append(make("label", {}, "kernel ", this.kernel));
        }
        choices.append(make("label", {}, "warp ", this.warp), this.about);
        return choices;
    }

    laneLabels() {
        const group = `lane-${Math.random()}`;
        return range(LANES).map((lane) => {
            const input = make("input", { type: "radio", name: group });
            const label = make("label", {}, input, make("span", {}, String(lane)));
            input.addEventListener("change", () => this.go({ lane }));
            label.addEventListener("pointerenter", (event) => {
                if (event.pointerType === "mouse") {
                    this.go({ lane });
                }
            });
            return label;
        });
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

    // Shows another kernel, from its first wasteful access on, or from what is chosen.
    open(name, chosen = {}) {
        this.shown = this.documents[name];
        this.accesses = null;
        this.owners = null;
        const { start, steps, idea, about, notes } = this.shown;
        const [warp, step] = start;
        this.kernel.value = name;
        this.code.setAttribute("aria-label", `source of ${name}`);
        const warps = steps.map((_, number) => make("option", {}, String(number)));
        this.warp.replaceChildren(...warps);
        this.about.textContent = [idea, about, ...notes].filter(Boolean).join(" · ");
        this.listSource();
        this.go({ kernel: name, warp, lane: 0, step, ...chosen });
    }

    // Changes what is chosen: kernel, warp, lane or step.
    go(change) {
        const { state, shown } = this;
        const warpBefore = state.warp;
        Object.assign(state, change);
        state.warp = clamped(state.warp, shown.steps.length);
        state.lane = clamped(state.lane, LANES);
        if (!this.accesses || state.warp !== warpBefore) {
            this.accesses = accessesOf(shown, state.warp);
            this.roll.innerHTML = rollDrawing(shown.arrays, this.accesses);
        }
        state.step = clamped(state.step, Math.max(1, this.accesses.length));
        this.warp.value = state.warp;
        this.slider.max = Math.max(0, this.accesses.length - 1);
        this.slider.value = state.step;
        this.draw();
        if (this.isPage) {
            this.showAddress();
        }
    }

    // Keeps what is chosen in the address of the page.
    showAddress() {
        const { kernel, warp, lane, step } = this.state;
        history.replaceState(null, "", `#${[kernel, warp, lane, step].join("/")}`);
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

    lineOf(access) {
        const [line] = this.shown.pills[access.kind.pill];
        return line;
    }

    draw() {
        const { state } = this;
        const access = this.accesses[state.step];
        for (const part of [this.memory, this.matrices, this.code]) {
            part.classList.toggle("nothing", !access);
        }
        if (!access) {
            const text = `Warp ${state.warp} touches no memory.`;
            this.head.replaceChildren(make("p", { class: "headline" }, text));
            return;
        }
        const { kind } = access;
        this.cells = kind.lanes ? cellsOf(access) : [];
        const own = this.cells.filter((cell) => cell.lanes.includes(state.lane));
        const groups = new Set(own.map((cell) => cell.group));
        const neighbours = this.cells.filter((cell) => groups.has(cell.group));
        const near = this.lanesNear(kind, own, neighbours);
        this.view.classList.toggle("bad", Boolean(kind.bad));
        this.drawHead(access, near, neighbours);
        this.drawLanes(kind, near);
        this.memory.innerHTML = "";
        if (this.cells.length) {
            this.memory.innerHTML = memoryDrawing(kind, this.cells, own, state.lane);
        }
        this.drawMatrices(access);
        const step = `${state.step + 1} of ${this.accesses.length}: ${kind.text}`;
        this.slider.setAttribute("aria-valuetext", step);
        const cursor = this.roll.querySelector("i");
        cursor.style.left = `${(100 * state.step) / rollWidth(this.accesses)}%`;
        this.markSource(access);
    }

    // The other lanes in the lane's sectors, or those that want another word of its banks.
    lanesNear(kind, own, neighbours) {
        const others = kind.rows ? neighbours.filter((cell) => !own.includes(cell)) : neighbours;
        const lanes = new Set(others.flatMap((cell) => cell.lanes));
        lanes.delete(this.state.lane);
        return lanes;
    }

    drawHead(access, near, neighbours) {
        const { kind } = access;
        const cost = make("b", {}, unbroken(kind.cost));
        this.head.replaceChildren(
            make("p", { class: "headline" }, `${kind.text}: `, cost),
            make("p", {}, this.laneText(access, near, neighbours)),
        );
    }

    drawLanes(kind, near) {
        [...this.lanes.querySelectorAll("label")].forEach((label, lane) => {
            label.classList.toggle("idle", !kind.lanes || kind.lanes[lane] === null);
            label.classList.toggle("near", near.has(lane));
            label.firstChild.checked = lane === this.state.lane;
        });
    }

    // A sentence about the lane. neighbours: the cells of its sectors, or of its banks in its phase
    laneText(access, near, neighbours) {
        const { kind } = access;
        const { warp, lane } = this.state;
        const subject = `Lane ${lane} (thread ${LANES * warp + lane})`;
        if (!kind.lanes) {
            return "No lane has an address of its own.";
        }
        if (kind.lanes[lane] === null) {
            return `${subject} takes no part.`;
        }
        if (kind.rows) {
            return `${subject}: ${this.bankText(access, near, neighbours)}`;
        }
        return `${subject}: ${this.sectorText(access, near, neighbours)}`;
    }

    bankText(access, near, neighbours) {
        const { kind } = access;
        const first = firstWord(access, this.state.lane) % BANKS;
        const last = first + wordsOfLane(kind) - 1;
        const banks = last > first ? `banks ${first} to ${last}` : `bank ${first}`;
        const [element] = elementsOfLane(this.shown, access, this.state.lane);
        let verb = "at";
        if (element) {
            verb = kind.writes ? "gets" : "holds";
        }
        const text = `${banks}, ${verb} ${this.placeText(access, element)}`;
        if (!neighbours.length) {
            return `${text}.`;
        }
        const others = near.size ? lanesText(near.size, "want") : "no lane wants";
        return `${text}; ${others} another word of the same bank.`;
    }

    sectorText(access, near, neighbours) {
        const [element] = elementsOfLane(this.shown, access, this.state.lane);
        const others = near.size
            ? `${lanesText(near.size, "share")} its sector`
            : "alone in its sector";
        const text = `${this.placeText(access, element)}; ${others}`;
        const unused = neighbours.filter((cell) => !cell.lanes.length).length;
        if (!unused) {
            return `${text}, which is used in full.`;
        }
        const bytes = WORD_BYTES * unused;
        return `${text}, of which this access does not use ${bytes} of 32 bytes.`;
    }

    // The lane's first element, or its byte if the element isn't known.
    placeText({ kind, byte, name }, element) {
        if (element) {
            return `${element.matrix}[${element.row}][${element.column}]`;
        }
        const memory = kind.rows ? "shared memory" : name;
        return `byte ${byte + kind.lanes[this.state.lane]} of ${memory}`;
    }

    // The elements of C by row and column, with the warp and the lane that store each.
    storesOfC() {
        if (this.owners) {
            return this.owners;
        }
        this.owners = new Map();
        this.shown.steps.forEach((_, warp) => {
            const accesses = accessesOf(this.shown, warp);
            const stores = accesses.filter(({ kind, name }) => {
                return kind.writes && kind.lanes && name === "C";
            });
            for (const store of stores) {
                this.addOwners(store, warp);
            }
        });
        return this.owners;
    }

    addOwners(store, warp) {
        for (const lane of range(LANES)) {
            for (const { row, column } of elementsOfLane(this.shown, store, lane)) {
                this.owners.set(`${row}/${column}`, { warp, lane, matrix: "C", row, column });
            }
        }
    }

    drawMatrices(access) {
        this.matrices.innerHTML = "";
        if (Object.keys(this.shown.matrices).length) {
            this.layout = productLayout(this.shown);
            const layers = this.productLayers(access);
            const { lane } = this.state;
            this.matrices.innerHTML = productDrawing(this.shown, this.layout, layers, lane);
        }
    }

    // The elements to draw by class, in the order of drawing.
    productLayers(access) {
        const { shown, state } = this;
        const { kind } = access;
        const used = elementsOf(shown, access);
        const isGlobal = kind.lanes && !kind.rows;
        const ours = [...this.storesOfC().values()].filter(({ warp }) => warp === state.warp);
        return {
            tile: this.tileOf(access),
            ours,
            pale: isGlobal ? inSectors(used) : [],
            used,
            mine: ours.filter(({ lane }) => lane === state.lane),
            own: kind.lanes ? elementsOfLane(shown, access, state.lane) : [],
        };
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
            const line = make("div", { "data-line": number }, make("code", {}, text || " "));
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
        onPoint(this.memory, (x, y) => this.pointAtMemory(x, y));
        onPoint(this.matrices, (x, y) => this.pointAtProduct(x, y));
        onPoint(this.roll, (x, _, event) => this.pointAtRoll(x, event), true);
        this.slider.addEventListener("input", () => {
            this.go({ step: Number(this.slider.value) });
        });
    }

    pointAtMemory(x, y) {
        const cell = this.cells.find((cell) => {
            return x >= cell.x && x < cell.x + 1 && y >= cell.y && y < cell.y + 1.2;
        });
        if (cell?.lanes.length && !cell.lanes.includes(this.state.lane)) {
            this.go({ lane: cell.lanes[0] });
        }
    }

    pointAtProduct(x, y) {
        const { row, column } = elementOfC(this.shown, this.layout, x, y);
        const owner = this.storesOfC().get(`${row}/${column}`);
        if (!owner) {
            return;
        }
        const { warp, lane } = owner;
        if (warp !== this.state.warp || lane !== this.state.lane) {
            this.go({ warp, lane });
        }
    }

    pointAtRoll(x, event) {
        const isPressed = event.buttons || event.type === "pointerdown";
        const step = Math.floor(x);
        if (isPressed && this.accesses[step]) {
            this.go({ step });
        }
    }

    onKey(event) {
        const isOnPage = this.isPage && event.target === document.body;
        const isHere = this.view.contains(event.target) || isOnPage;
        if (!event.key.startsWith("Arrow") || !isHere) {
            return;
        }
        event.stopPropagation(); // JupyterLab moves between cells with the arrow keys
        if (event.target.matches("select, input")) {
            return;
        }
        event.preventDefault();
        const by = /Right|Down/.test(event.key) ? 1 : -1;
        if (/Up|Down/.test(event.key)) {
            this.go({ warp: this.state.warp + by });
        } else if (event.shiftKey) {
            this.moveOnLine(by);
        } else {
            this.move(by);
        }
    }

    // Opens what the address says: #kernel/warp/lane/step.
    openAddress() {
        const address = decodeURIComponent(location.hash.slice(1));
        const [name, ...numbers] = address.split("/");
        if (!(name in this.documents)) {
            this.open(this.names[0]);
            return;
        }
        const chosen = {};
        ["warp", "lane", "step"].forEach((part, place) => {
            if (/^\d+$/.test(numbers[place] ?? "")) {
                chosen[part] = Number(numbers[place]);
            }
        });
        this.open(name, chosen);
    }
}

function lanesText(count, verb) {
    return count === 1 ? `1 lane ${verb}s` : `${count} lanes ${verb}`;
}

// Calls `act` with the point of a drawing that a mouse hovers over or that a finger taps. A finger
// that moves counts if `followsFinger`.
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
    part.addEventListener("pointerdown", onEvent);
}

function render({ model, el }) {
    const view = new AccessView(model, el);
    const onKey = (event) => view.onKey(event);
    window.addEventListener("keydown", onKey, true);
    if (view.isPage) {
        window.addEventListener("hashchange", () => view.openAddress());
        view.openAddress();
    } else {
        view.open(view.names[0]);
    }
    return () => window.removeEventListener("keydown", onKey, true);
}

export default { render };
