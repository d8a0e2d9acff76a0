// Draws what a warp touches: in a notebook as an anywidget, and on a page of its own, whose address keeps what is chosen:
// #kernel/warp/lane/step. Python (worklog.viewer.accesses) computes the counts and the words about each access; here
// they are placed.

const LANES = 32, WORD = 4, PER_SECTOR = 8;
const KEYS = "keys: ← → step, ⇧ ← → same line, ↑ ↓ warp; hover or tap a lane, a cell, or C";

const range = (count) => [...Array(count).keys()];
const within = (number, size) => Math.min(Math.max(0, number), size - 1);
const svg = (wide, high, inside, more = "") =>
    `<svg viewBox="0 0 ${wide} ${high}" aria-hidden="true" ${more}>${inside}</svg>`;
const path = (kind, places, wide = 1) =>
    `<path class="${kind}" d="${places.map(([x, y]) => `M${x} ${y}h${wide}v1h${-wide}z`).join("")}"/>`;
const size = (kind) => Math.max(1, kind.width / WORD);  // words that a lane accesses

// The accesses of a warp: kinds, with the byte and the element where they are, and how many waits came before.
function decoded(shown, warp) {
    const last = shown.kinds.map(() => [0, 0]);
    let waits = 0;
    return shown.steps[warp].flatMap(([number, bytes = 0, held = 0]) => {
        const kind = shown.kinds[number], at = last[number];
        waits += "wait" in kind;
        at[0] += bytes;
        at[1] += held;
        return "wait" in kind ? [] : [{ kind, base: at[0], held: at[1], waits, name: shown.arrays[kind.array] }];
    });
}

// The elements of A, B and C that a lane touches, in global memory or held by shared memory, as far as they are known;
// without a lane, those of the warp.
function elements(shown, step, lane) {
    const { kind, base, name } = step;
    const placed = (matrix, number) => {
        const columns = shown.matrices[matrix][1];
        return { matrix, row: Math.floor(number / columns), column: number % columns };
    };
    if (kind.lanes && lane === undefined) return range(LANES).flatMap((one) => elements(shown, step, one));
    if (kind.lanes && kind.lanes[lane] === null) return [];
    if (kind.hold) {
        const first = kind.lanes ? kind.lanes.slice(0, lane).filter((offset) => offset !== null).length * size(kind) : 0;
        const own = kind.lanes ? kind.hold.slice(first, first + size(kind)) : kind.hold;
        return own.filter((offset) => offset !== null).map((offset) => {
            const number = step.held + offset;
            return number < shown.of_a ? placed("A", number) : placed("B", number - shown.of_a);
        });
    }
    if (!shown.matrices[name]) return [];
    const [strips, bytes, pitch] = kind.box ?? [1, size(kind) * WORD, 0];
    const start = Math.floor((base + (kind.lanes?.[lane] ?? 0)) / WORD);
    return range(strips).flatMap((strip) => range(bytes / WORD).map((word) => placed(name, start + (strip * pitch) / WORD + word)));
}

// What is drawn of memory, a cell per word: its place, its colour, the lanes that access it, and its group: a sector, or
// a bank in a phase.
function cellsOf({ kind, base }) {
    const first = Math.floor(base / WORD), takers = (word, phase = 0, phases = 1) => range(LANES).filter((lane) => {
        const own = kind.lanes[lane] === null ? NaN : Math.floor((base + kind.lanes[lane]) / WORD);
        return word >= own && word < own + size(kind) && Math.floor((lane * phases) / LANES) === phase;
    });
    if (kind.rows) {
        let y = -1.4;
        return kind.rows.flatMap((rows, phase) => rows.flatMap((row, wave) => {
            y += wave ? 1.2 : 1.6;
            const words = new Map(row.map((word) => [(((first + word) % LANES) + LANES) % LANES, first + word]));
            return range(LANES).map((bank) => ({
                x: bank, y, group: `${phase}/${bank}`, colour: !words.has(bank) ? "idle" : wave ? "later" : "first",
                lanes: words.has(bank) ? takers(words.get(bank), phase, kind.rows.length) : [],
            }));
        }));
    }
    const used = range(LANES).filter((lane) => kind.lanes[lane] !== null)
        .flatMap((lane) => range(size(kind)).map((word) => Math.floor((base + kind.lanes[lane]) / WORD) + word));
    const sectors = [...new Set(used.map((word) => Math.floor(word / PER_SECTOR)))].sort((a, b) => a - b);
    return sectors.flatMap((sector, place) => range(PER_SECTOR).map((k) => {
        const lanes = takers(sector * PER_SECTOR + k);
        return { x: (place % 4) * 8.7 + k, y: Math.floor(place / 4) * 1.35 + 0.2, group: sector, colour: lanes.length ? "used" : "pale", lanes };
    }));
}

function render({ model, el }) {
    const documents = model.get("documents"), names = Object.keys(documents), ofPage = model.get("of_page");
    const state = { kernel: names[0], warp: 0, lane: 0, step: 0 };
    let shown, steps, cells = [], corner = {}, owners;

    const [kernel] = dropDown("kernel", names, (place) => open(names[place]));
    const [warp] = dropDown("warp", [], (place) => go({ warp: place }));
    const about = make("p", { class: "source" }), head = make("div", { class: "said", role: "status" });
    const code = make("div", { class: "listing", tabindex: 0, role: "region", "aria-label": "source" });
    const lanes = make("fieldset", { class: "lanes" }, make("legend", {}, "Lanes of the warp"));
    const memory = make("div", { class: "memory" }), matrices = make("div", { class: "matrices" });
    const roll = make("div", { class: "piano" }), slider = make("input", { type: "range", min: 0, "aria-label": "step" });
    const group = `lane-${Math.random()}`;
    for (const lane of range(LANES)) {
        const input = make("input", { type: "radio", name: group });
        const label = make("label", {}, input, make("span", {}, String(lane)));
        input.addEventListener("change", () => go({ lane }));
        label.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && go({ lane }));
        lanes.append(label);
    }
    const buttons = make("p", { class: "buttons" }, button("‹ step", () => move(-1)), button("step ›", () => move(1)),
        button("‹ this line", () => move(-1, true)), button("this line ›", () => move(1, true)));
    const choices = make("p", { class: "choices" }, ...(names.length > 1 ? [make("label", {}, "kernel ", kernel)] : []),
        make("label", {}, "warp ", warp), about);
    const view = make("div", { class: "all" }, make("div", { class: "top" }, choices, head), code,
        make("div", { class: "warp" }, lanes, memory), matrices,
        make("div", { class: "time" }, roll, slider, buttons, make("p", { class: "source" }, KEYS)));
    el.append(make("div", { class: "worklog access" }, view));

    function open(name, chosen = {}) {
        const [first, place] = documents[name].start;
        shown = documents[name];
        owners = null;
        kernel.value = name;
        warp.replaceChildren(...shown.steps.map((_, number) => make("option", {}, String(number))));
        about.textContent = [shown.idea, shown.about, ...shown.notes].filter(Boolean).join(" · ");
        list();
        steps = null;
        go({ kernel: name, warp: first, lane: 0, step: place, ...chosen });
    }

    function go(change) {
        const before = state.warp;
        Object.assign(state, change);
        state.warp = within(state.warp, shown.steps.length);
        state.lane = within(state.lane, LANES);
        if (!steps || state.warp !== before) {
            steps = decoded(shown, state.warp);
            drawRoll();
        }
        state.step = within(state.step, Math.max(1, steps.length));
        warp.value = state.warp;
        slider.max = Math.max(0, steps.length - 1);
        slider.value = state.step;
        draw();
        if (ofPage) history.replaceState(null, "", `#${[state.kernel, state.warp, state.lane, state.step].join("/")}`);
    }

    function move(by, sameLine = false) {
        let next = state.step + by;
        while (sameLine && steps[next] && lineOf(steps[next]) !== lineOf(steps[state.step])) next += by;
        if (steps[next]) go({ step: next });
    }

    function lineOf(step) {
        return shown.pills[step.kind.pill][0];
    }

    function draw() {
        const step = steps[state.step];
        [memory, matrices, code].forEach((part) => part.classList.toggle("nothing", !step));
        if (!step) {
            head.replaceChildren(make("p", { class: "headline" }, `Warp ${state.warp} touches no memory.`));
            return;
        }
        const { kind } = step;
        cells = kind.lanes ? cellsOf(step) : [];
        const own = cells.filter((cell) => cell.lanes.includes(state.lane)), groups = new Set(own.map((cell) => cell.group));
        const same = cells.filter((cell) => groups.has(cell.group));
        const near = new Set(same.filter((cell) => !kind.rows || !own.includes(cell)).flatMap((cell) => cell.lanes));
        near.delete(state.lane);
        view.classList.toggle("bad", Boolean(kind.bad));
        head.replaceChildren(make("p", { class: "headline" }, `${kind.text}: `, make("b", {}, unbroken(kind.cost))),
            make("p", {}, ofLane(step, near, same)));
        [...lanes.querySelectorAll("label")].forEach((label, lane) => {
            label.classList.toggle("idle", !kind.lanes || kind.lanes[lane] === null);
            label.classList.toggle("near", near.has(lane));
            label.firstChild.checked = lane === state.lane;
        });
        memory.innerHTML = cells.length ? drawCells(kind, own) : "";
        matrices.innerHTML = Object.keys(shown.matrices).length ? drawProduct(step) : "";
        slider.setAttribute("aria-valuetext", `${state.step + 1} of ${steps.length}: ${kind.text}`);
        roll.querySelector("i").style.left = `${(100 * state.step) / roll.dataset.wide}%`;
        for (const pill of code.querySelectorAll("button")) pill.setAttribute("aria-pressed", String(Number(pill.dataset.pill) === kind.pill));
        code.querySelector(".here")?.classList.remove("here");
        const here = code.querySelector(`[data-line="${lineOf(step)}"]`), top = here ? here.offsetTop - code.scrollTop : 0;
        here?.classList.add("here");
        if (here && (top < 0 || top + here.offsetHeight > code.clientHeight)) code.scrollTop = here.offsetTop - code.clientHeight / 3;
    }

    // same: the cells of the lane's sectors, or of its banks in its phase; near: the other lanes there.
    function ofLane(step, near, same) {
        const { kind, base, name } = step, who = `Lane ${state.lane} (thread ${LANES * state.warp + state.lane})`;
        if (!kind.lanes) return "No lane has an address of its own.";
        if (kind.lanes[state.lane] === null) return `${who} takes no part.`;
        const byte = base + kind.lanes[state.lane], [first] = elements(shown, step, state.lane);
        const what = first ? `${first.matrix}[${first.row}][${first.column}]` : `byte ${byte} of ${kind.rows ? "shared memory" : name}`;
        const others = (verb) => `${near.size} lane${near.size === 1 ? ` ${verb}s` : `s ${verb}`}`;
        if (!kind.rows) {
            const unused = same.filter((cell) => !cell.lanes.length).length;
            return `${who}: ${what}; ${near.size ? `${others("share")} its sector` : "alone in its sector"}`
                + (unused ? `, of which this access does not use ${4 * unused} of 32 bytes.` : ", which is used in full.");
        }
        const bank = Math.floor(byte / WORD) % LANES, last = bank + size(kind) - 1;
        const holds = first ? (kind.writes ? "gets" : "holds") : "at";
        return `${who}: ${last > bank ? `banks ${bank} to ${last}` : `bank ${bank}`}, ${holds} ${what}`
            + (same.length ? `; ${near.size ? others("want") : "no lane wants"} another word of the same bank.` : ".");
    }

    function drawCells(kind, own) {
        const colours = kind.rows ? [["first", "first word of its bank"], ["later", "another word of the same bank: waits"], ["idle", ""]]
            : [["used", "used"], ["pale", "moved with it, not used by this access"]];
        const drawn = (some) => some.map(({ x, y }) => [x + 0.05, y]);
        const phases = kind.rows?.length > 1 ? `; ${kind.rows.length} phases of ${LANES / kind.rows.length} lanes` : "";
        const title = kind.rows ? `<b>32 banks of shared memory</b>: a row is a wavefront${phases}`
            : "<b>Sectors of 32 bytes</b>, each once: 8 floats, 4 sectors in a row";
        const scale = kind.rows ? range(8).map((k) => `<span style="left:${12.5 * k}%">${4 * k}</span>`).join("") : "";
        const items = [...colours.filter(([colour, text]) => text && cells.some((cell) => cell.colour === colour)), ["own", `lane ${state.lane}`]];
        return `<p>${title}</p>${scale && `<div class="scale">${scale}</div>`}`
            + svg(kind.rows ? LANES : 34.1, Math.max(...cells.map(({ y }) => y)) + 1.1,
                colours.map(([colour]) => path(colour, drawn(cells.filter((cell) => cell.colour === colour)), 0.9)).join("") + path("own", drawn(own), 0.9))
            + `<p class="legend">${items.map(([colour, text]) => `<span><i class="${colour}"></i>${text}</span>`).join("")}</p>`;
    }

    // By element of C, the warp and the lane that store it.
    function stored() {
        owners ??= new Map(shown.steps.flatMap((_, number) => decoded(shown, number)
            .filter(({ kind, name }) => kind.writes && kind.lanes && name === "C")
            .flatMap((step) => range(LANES).flatMap((lane) => elements(shown, step, lane)
                .map(({ row, column }) => [`${row}/${column}`, { warp: number, lane, matrix: "C", row, column }])))));
        return owners;
    }

    function drawProduct(step) {
        const none = [0, 0, 0, 0, 0, 0], { A = none, B = none, C = none } = shown.matrices;
        const wide = Math.max(C[5], B[5]), gap = Math.max(4, (A[5] + wide) / 14), right = A[5] + gap, low = B[4] + gap;
        const total = [right + wide, low + Math.max(C[4], A[4])];
        corner = { A: [0, low], B: [right, 0], C: [right, low], total };
        const place = ({ matrix, row, column }) => [corner[matrix][0] + column - shown.matrices[matrix][3], corner[matrix][1] + row - shown.matrices[matrix][2]];
        const visible = ({ matrix, row, column }) => {
            const [, , top, left, rows, columns] = shown.matrices[matrix] ?? none;
            return row >= top && column >= left && row < top + rows && column < left + columns;
        };
        const drawn = (kind, all) => path(kind, [...new Map(all.filter(visible).map(place).map((at) => [String(at), at])).values()]);
        const all = elements(shown, step), own = step.kind.lanes ? elements(shown, step, state.lane) : [];
        const sectors = step.kind.rows || !step.kind.lanes ? [] : all.flatMap((one) =>
            range(PER_SECTOR).map((k) => ({ ...one, column: one.column - (one.column % PER_SECTOR) + k })));
        const tile = steps.filter(({ kind, waits }) => kind.hold && !kind.writes && waits === step.waits).flatMap((other) => elements(shown, other));
        const ours = [...stored().values()].filter((one) => one.warp === state.warp), mine = ours.filter((one) => one.lane === state.lane);
        const [from] = own.filter(visible), [to] = mine.filter(visible);
        let guide = "";
        if (from && to && from.matrix !== "C") {
            const [x, y] = place(from), [toX, toY] = place(to);
            guide = `<path class="guide" d="${from.matrix === "A" ? `M${x + 1} ${y + 0.5}H${toX}` : `M${x + 0.5} ${y + 1}V${toY}`}"/>`;
        }
        const there = Object.entries(shown.matrices), frames = there.map(([name, [, , , , rows, columns]]) =>
            `<rect class="frame" x="${corner[name][0]}" y="${corner[name][1]}" width="${columns}" height="${rows}"/>`);
        const labels = there.map(([name, [, , , , rows, columns]]) => `<span style="left:${(100 * corner[name][0]) / total[0]}%;top:${
            (100 * corner[name][1]) / total[1]}%"><b>${name}</b> ${rows} × ${columns}</span>`);
        const tinted = tile.length ? "; tinted: what the warp reads from shared memory between two waits" : "";
        return `<p><b>C = A·B</b>: what the block touches; in C, the warp's elements and lane ${state.lane}'s${tinted}</p>
            <div class="product" style="max-width:${(30 * total[0]) / total[1]}rem">${svg(...total, frames.join("") + drawn("tile", tile)
            + drawn("ours", ours) + drawn("pale", sectors) + drawn("used", all) + drawn("mine", mine) + drawn("own", own) + guide)}${labels.join("")}</div>`;
    }

    // A row an array, a column an access: tall where the warp reads, low where it writes; bars where it waits.
    function drawRoll() {
        const wide = Math.max(steps.length, 24), high = 10 * shown.arrays.length;
        const some = (bad) => steps.map(({ kind }, x) => (Boolean(kind.bad) === bad
            ? `M${x} ${10 * kind.array + (kind.writes ? 5 : 1)}h0.9v${kind.writes ? 4 : 8}h-0.9z` : "")).join("");
        const bars = steps.map(({ waits }, x) => (x && waits !== steps[x - 1].waits ? `M${x - 0.05} 0v${high}` : "")).join("");
        const lines = shown.arrays.map((_, row) => `<rect class="frame" x="0" y="${10 * row + 0.5}" width="${wide}" height="9"/>`);
        roll.dataset.wide = wide;
        roll.innerHTML = `<p><b>The warp's accesses in the order they run</b>; tall: reads, low: writes, orange: wasteful, bars: the warp waits</p>
            <div class="labels">${shown.arrays.map((name) => `<span>${name}</span>`).join("")}</div>
            <div class="keys">${svg(wide, high, `${lines.join("")}<path class="first" d="${some(false)}"/><path class="later" d="${some(true)}"/>
            <path class="bar" d="${bars}"/>`, 'preserveAspectRatio="none"')}<i style="width:${100 / wide}%"></i></div>`;
    }

    function list() {
        let before = 0;
        code.replaceChildren(...shown.source.flatMap(([number, text]) => {
            const gap = before && number > before + 1 ? [make("div", {}, "…")] : [];
            before = number;
            const pills = shown.pills.flatMap(([line, said, bad, at], pill) => {
                if (line !== number) return [];
                if (!at) return [make("span", { class: "pill" }, said)];
                const later = () => steps.findIndex(({ kind }, place) => kind.pill === pill && place > state.step);
                const any = () => steps.findIndex(({ kind }) => kind.pill === pill);
                const jump = () => {
                    const place = later() < 0 ? any() : later();
                    go(place < 0 ? { warp: at[0], step: at[1] } : { step: place });
                };
                return [button(said, jump, { "data-pill": pill, class: bad ? "pill wasteful" : "pill" })];
            });
            const line = make("div", { "data-line": number }, make("code", {}, text || " "));
            if (pills.length) line.append(make("p", {}, ...pills));
            return [...gap, line];
        }));
    }

    // Hover with a mouse, tap with a finger.
    function onPoint(part, act) {
        for (const type of ["pointermove", "pointerdown"]) {
            part.addEventListener(type, (event) => {
                const drawing = part.querySelector("svg");
                if (!drawing || (event.pointerType !== "mouse" && type === "pointermove" && part !== roll)) return;
                const box = drawing.getBoundingClientRect(), { width, height } = drawing.viewBox.baseVal;
                act(((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height, event);
            });
        }
    }
    onPoint(memory, (x, y) => {
        const under = cells.find((cell) => x >= cell.x && x < cell.x + 1 && y >= cell.y && y < cell.y + 1.2);
        if (under?.lanes.length && !under.lanes.includes(state.lane)) go({ lane: under.lanes[0] });
    });
    onPoint(matrices, (x, y) => {
        const [, , top, left] = shown.matrices.C ?? [];
        const owner = stored().get(`${Math.floor(y - corner.C[1]) + top}/${Math.floor(x - corner.C[0]) + left}`);
        if (owner && (owner.warp !== state.warp || owner.lane !== state.lane)) go({ warp: owner.warp, lane: owner.lane });
    });
    onPoint(roll, (x, _, event) => {
        if ((event.buttons || event.type === "pointerdown") && steps[Math.floor(x)]) go({ step: Math.floor(x) });
    });
    slider.addEventListener("input", () => go({ step: Number(slider.value) }));

    const onKey = (event) => {
        const here = view.contains(event.target) || (ofPage && event.target === document.body);
        if (!event.key.startsWith("Arrow") || !here) return;
        event.stopPropagation();  // JupyterLab moves between cells with the arrow keys
        if (event.target.matches("select, input")) return;
        event.preventDefault();
        const by = /Right|Down/.test(event.key) ? 1 : -1;
        if (/Left|Right/.test(event.key)) move(by, event.shiftKey);
        else go({ warp: state.warp + by });
    };
    const fromAddress = () => {
        const [name, ...numbers] = decodeURIComponent(location.hash.slice(1)).split("/");
        const chosen = ["warp", "lane", "step"].flatMap((what, place) => (/^\d+$/.test(numbers[place] ?? "") ? [[what, Number(numbers[place])]] : []));
        open(name in documents ? name : names[0], name in documents ? Object.fromEntries(chosen) : {});
    };
    window.addEventListener("keydown", onKey, true);
    if (ofPage) window.addEventListener("hashchange", fromAddress);
    if (ofPage) fromAddress();
    else open(names[0]);
    return () => window.removeEventListener("keydown", onKey, true);
}

export default { render };
