// The live viewer: a reader chooses a rung, a tile or a mistake, a size and a block. A worker runs
// the kernel, and the access viewer shows what the block touches. Then all blocks run, and the
// findings are listed.
//
// The address keeps what is chosen: #shared/0/9/41?mistake=no-first-barrier&size=64x64x64&block=1
// is a rung, a warp, a lane and a step, and then what isn't as at the start. A level of the zoom may
// follow the step: #shared/0/9/41/lane.

const NO_MISTAKE = "as written";
const USUAL_LEVEL = "warp"; // of the zoom
const OWN_TILE = "the rung's own";
const UNUSED_SECTORS = "unused-sectors";
const BANK_CONFLICTS = "bank-conflicts";
// Returns the lines whose accesses waste sectors or wavefronts, each with its worst access.
function wasteOf(shown) {
    return shown.pills.flatMap(([line, about, isBad], pill) => {
        if (!isBad) {
            return [];
        }
        const kinds = shown.kinds.filter((kind) => kind.pill === pill && kind.bad);
        const cost = ({ counts }) => Math.max(counts[0], counts[2]);
        const worst = kinds.reduce((most, kind) => (cost(kind) > cost(most) ? kind : most));
        const kind = worst.rows ? BANK_CONFLICTS : UNUSED_SECTORS;
        return [{ kind, line, message: `${about}: ${worst.text}: ${worst.cost}`, isError: false }];
    });
}

// The access viewer of a document that a run has made.
class LiveView extends AccessView {
    constructor(root, isPage) {
        super({ get: (name) => ({ documents: {}, of_page: isPage })[name] }, root);
        this.onChange = () => {};
        this.view.hidden = true;
    }

    show(name, document, chosen) {
        this.documents = { [name]: document };
        this.names = [name];
        this.view.hidden = false;
        this.open(name, chosen);
    }

    showAddress() {
        this.onChange();
    }

    // Scrolls a line of source into the listing's box.
    showLine(line) {
        const shown = this.code.querySelector(`[data-line="${line}"]`);
        if (shown) {
            this.code.scrollTop = shown.offsetTop - this.code.clientHeight / 3;
        }
    }

    // Likewise, and scrolls the listing into sight.
    goToLine(line) {
        this.showLine(line);
        this.code.scrollIntoView({ block: "nearest" });
    }

    markFaults(lines) {
        for (const line of this.code.querySelectorAll("[data-line]")) {
            line.classList.toggle("faulty", lines.has(Number(line.dataset.line)));
        }
    }
}

class LivePage {
    // catalogue: what worklog.site.live.catalogue returns
    // isPage: whether the address has what is chosen
    constructor(catalogue, root, viewRoot, isPage = true) {
        this.catalogue = catalogue;
        this.isPage = isPage;
        this.root = root;
        this.chosen = null; // rung, tile, mistake, size and block, each by its place
        this.runs = 0; // of the kernels that have been started
        this.lines = []; // the source of the kernel that is shown
        this.makeControls();
        this.view = new LiveView(viewRoot, isPage);
        this.view.onChange = () => this.showAddress();
    }

    makeControls() {
        const names = this.catalogue.map(({ name }) => name);
        this.rung = dropDown("rung", names, (rung) => this.choose({ rung }));
        this.tile = dropDown("tile", [], (tile) => this.choose({ tile, mistake: 0 }));
        this.mistake = dropDown("break it", [], (mistake) => this.choose({ mistake, tile: 0 }));
        this.size = dropDown("size", [], (size) => this.choose({ size, block: 0 }));
        this.block = make("input", { type: "number", min: 0, "aria-label": "block" });
        this.block.addEventListener("change", () => {
            this.choose({ block: Number(this.block.value) });
        });
        this.blocks = make("span");
        this.stop = button("stop", () => this.stopRun());
        this.save = button("save as image", () => this.saveImage());
        this.status = make("p", { role: "status", class: "summary" });
        this.list = make("ul");
        const controls = make(
            "div",
            { class: "controls" },
            ...(names.length > 1 ? [make("label", {}, "rung ", this.rung)] : []),
            make("label", {}, "tile ", this.tile),
            make("label", { class: "breaking" }, "break it ", this.mistake),
            make("label", {}, "M × N × K ", this.size),
            make("label", {}, "block ", this.block, this.blocks),
            this.stop,
            this.save,
        );
        this.waste = make("details", {}, make("summary"), make("ul"));
        const found = make("div", { class: "findings" }, this.status, this.list, this.waste);
        this.root.append(make("div", { class: "worklog" }, controls, found));
    }

    listen() {
        if (this.isPage) {
            onAddress(() => this.openAddress());
        }
        const onKey = (event) => {
            leaveOnEscape(event, this.root);
            this.view.onKey(event);
        };
        window.addEventListener("keydown", onKey, true);
    }

    get rungEntry() {
        return this.catalogue[this.chosen.rung];
    }

    // The kernel that is chosen: a tile, or a mistake.
    get entry() {
        const { tiles, mistakes } = this.rungEntry;
        const { tile, mistake } = this.chosen;
        return mistake ? mistakes[mistake - 1] : tiles[tile];
    }

    // Changes what is chosen, and runs it. Another kernel starts at its own first size.
    //
    // place: the warp, the lane and the step to open
    choose(change, place = {}) {
        const isOther = "rung" in change;
        const before = isOther ? { tile: 0, mistake: 0, size: null, block: 0 } : this.chosen;
        this.chosen = { ...before, ...change };
        const isOtherKernel = isOther || "tile" in change || "mistake" in change;
        if (isOtherKernel && !("size" in change)) {
            this.chosen.size = this.entry.start;
            this.chosen.block = 0;
        }
        const { blocks } = this.entry.sizes[this.chosen.size];
        this.chosen.block = clamped(Math.trunc(this.chosen.block) || 0, blocks);
        this.showChoices();
        return this.run(place);
    }

    showChoices() {
        const { rung, tile, mistake, size, block } = this.chosen;
        const { tiles, mistakes } = this.rungEntry;
        const { sizes } = this.entry;
        const options = (texts) => texts.map((text) => make("option", {}, text));
        this.tile.replaceChildren(...options(tiles.map(({ about }) => about || OWN_TILE)));
        const abouts = mistakes.map(({ about }) => about);
        this.mistake.replaceChildren(...options([NO_MISTAKE, ...abouts]));
        const sizeText = ({ size: text, outside }) =>
            text.replaceAll("x", " × ") + (outside ? " (outside its domain)" : "");
        this.size.replaceChildren(...options(sizes.map(sizeText)));
        this.rung.selectedIndex = rung;
        this.tile.selectedIndex = tile;
        this.mistake.selectedIndex = mistake;
        this.mistake.disabled = !mistakes.length;
        this.size.selectedIndex = size;
        this.block.value = block;
        this.block.max = sizes[size].blocks - 1;
        this.blocks.textContent = ` of ${sizes[size].blocks}`;
    }

    async program(file) {
        return description(await programFile(file));
    }

    // Runs what is chosen. A run that is under way is stopped.
    async run(place) {
        const own = ++this.runs;
        const isOver = () => own !== this.runs;
        const clicked = performance.now();
        this.begin();
        try {
            const { file } = this.entry;
            const [emulator, kernel] = await Promise.all([emulatorOfPage(), this.program(file)]);
            if (isOver()) {
                return;
            }
            emulator.stop();
            await this.runOn(emulator, kernel, place, { isOver, clicked });
        } catch (error) {
            if (!isOver()) {
                this.fail(error.message);
            }
        }
    }

    async runOn(emulator, kernel, place, { isOver, clicked }) {
        const { size, block } = this.chosen;
        const shown = await emulator.view(kernel, { shape: size, block }, this.progress(isOver));
        if (isOver()) {
            return;
        }
        this.lines = kernel.source.split("\n");
        this.view.show(kernel.kernel, shown, place);
        this.root.dataset.milliseconds = Math.round(performance.now() - clicked);
        this.setState("shown", "Running all blocks …");
        const checked = await emulator.check(kernel, { shape: size }, this.progress(isOver));
        if (!isOver()) {
            this.showFindings(checked, shown);
        }
    }

    progress(isOver) {
        return (ended, blocks) => {
            if (!isOver()) {
                this.status.textContent = `${ended} of ${counted(blocks, "block")} have ended …`;
            }
        };
    }

    begin() {
        this.list.replaceChildren();
        this.waste.hidden = true;
        this.stop.disabled = false;
        this.save.disabled = true;
        this.setState("running", "Running a block …");
    }

    setState(state, text) {
        this.root.dataset.state = state;
        this.status.textContent = text;
        this.save.disabled = state === "running" || state === "failed";
    }

    fail(message) {
        this.stop.disabled = true;
        this.setState("failed", `This run has no result: ${message}.`);
    }

    async stopRun() {
        this.runs += 1;
        this.fail("you stopped it");
        (await emulatorOfPage()).stop();
    }

    showFindings({ findings, error, wrong }, shown) {
        this.stop.disabled = true;
        const waste = wasteOf(shown);
        const found = findings.length ? counted(findings.length, "finding") : "No findings";
        this.setState("checked", `${found}. ${productText(wrong)}`);
        const items = findings.map((finding) => this.item(finding));
        if (error) {
            items.unshift(make("li", { class: "error" }, error));
        }
        this.list.replaceChildren(...items);
        this.waste.hidden = !waste.length;
        this.waste.open = !items.length;
        this.waste.firstChild.textContent = `Accesses that waste: ${waste.length}`;
        this.waste.lastChild.replaceChildren(...waste.map((finding) => this.item(finding)));
        const lines = new Set(findings.map(({ line }) => line));
        this.view.markFaults(lines);
        if (findings.length) {
            this.view.showLine(findings[0].line);
        }
    }

    item({ kind, line, message, isError, otherLine = null, count = 1 }) {
        const times = count > 1 ? ` (${count.toLocaleString("en")} times)` : "";
        const attributes = { class: isError ? "error" : "waste", "data-line": line };
        const lines = [...new Set([line, otherLine ?? line])].map((number) => this.lineOf(number));
        return make("li", attributes, make("b", {}, kind), ` ${message}${times}`, ...lines);
    }

    // A line of source, with a button that leads to it in the listing.
    lineOf(number) {
        const toLine = button(`line ${number}`, () => this.view.goToLine(number));
        const code = make("code", {}, (this.lines[number - 1] ?? "").trim());
        return make("div", { class: "to-line" }, toLine, code);
    }

    async saveImage() {
        const { about, head, level, matrices, roll, view } = this.view;
        const picture = await pictureOf([about, head, level, matrices, roll], view);
        saveAs(picture, `${this.chosenText().replaceAll(/[^\w.-]+/g, "-")}.png`);
    }

    // The address of what is chosen, without its sign.
    chosenText() {
        const { warp, lane, step, level } = this.view.state;
        const { tile, mistake, size, block } = this.chosen;
        const { start, sizes, name } = this.entry;
        const more = new URLSearchParams();
        if (tile) {
            more.set("tile", name);
        }
        if (mistake) {
            more.set("mistake", name);
        }
        if (size !== start) {
            more.set("size", sizes[size].size);
        }
        if (block) {
            more.set("block", block);
        }
        const place = [this.rungEntry.name, warp, lane, step];
        if (level !== USUAL_LEVEL) {
            place.push(level);
        }
        return [place.join("/"), more].filter((part) => String(part)).join("?");
    }

    showAddress() {
        history.replaceState(null, "", `#${this.chosenText()}`);
    }

    // Opens what the address says. What it doesn't say, or says wrongly, is as at the start.
    openAddress() {
        const [place, more = ""] = decodeURIComponent(location.hash.slice(1)).split("?");
        const [name, ...numbers] = place.split("/");
        const rung = Math.max(
            0,
            this.catalogue.findIndex((entry) => entry.name === name),
        );
        const asked = new URLSearchParams(more);
        const placeOf = (entries, key) =>
            Math.max(
                0,
                entries.findIndex((entry) => entry.name === asked.get(key)),
            );
        const { tiles, mistakes } = this.catalogue[rung];
        const tile = placeOf(tiles, "tile");
        const mistake = mistakes.findIndex((entry) => entry.name === asked.get("mistake")) + 1;
        const entry = mistake ? mistakes[mistake - 1] : tiles[tile];
        const size = entry.sizes.findIndex((one) => one.size === asked.get("size"));
        const block = Number(asked.get("block") ?? 0);
        const level = numbers[3];
        const opened = { level: LEVELS.includes(level) ? level : USUAL_LEVEL };
        ["warp", "lane", "step"].forEach((part, number) => {
            if (/^\d+$/.test(numbers[number] ?? "")) {
                opened[part] = Number(numbers[number]);
            }
        });
        const change = { rung, tile, mistake, size: size < 0 ? entry.start : size, block };
        return this.choose(change, opened);
    }
}
