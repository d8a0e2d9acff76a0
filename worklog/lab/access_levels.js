// The zoom of the access viewer: the grid of blocks, a block's warps, a warp's lanes, and a lane.

const LEVELS = ["grid", "block", "warp", "lane"];

// A choice among parts, as radio buttons. A click or Enter also opens the part that is chosen.
class Choice {
    constructor(name, legend, choose, open) {
        this.legend = make("legend", {}, legend);
        this.labels = make("div", { class: "choice" });
        this.box = make("fieldset", { class: `parts ${name}` }, this.legend, this.labels);
        this.name = `part-${Math.random()}`;
        this.choose = choose;
        this.open = open;
        this.numbers = [];
    }

    // Offers parts by their numbers. onHover: called with the part that a mouse is over
    offer(numbers, onHover) {
        this.numbers = numbers;
        this.labels.replaceChildren(...numbers.map((number) => this.label(number, onHover)));
    }

    label(number, onHover) {
        const name = { name: this.name, "aria-label": number };
        const input = make("input", { type: "radio", ...name });
        const label = make("label", {}, input, make("span", {}, make("b", {}, String(number))));
        input.addEventListener("change", () => this.choose(number));
        input.addEventListener("click", ({ detail }) => {
            // An arrow key also clicks, without a count: it only chooses.
            if (detail) {
                this.open(number);
            }
        });
        label.addEventListener("pointerenter", ({ pointerType }) => {
            if (onHover && pointerType === "mouse") {
                onHover(number);
            }
        });
        return label;
    }

    // Opens the part of a radio button; returns whether the button is one of this choice.
    openAt(input) {
        const place = [...this.labels.children].indexOf(input.parentElement);
        if (place >= 0) {
            this.open(this.numbers[place]);
        }
        return place >= 0;
    }

    show(chosen) {
        this.labelsOf((number) => ({ checked: number === chosen }));
    }

    // Changes each label by what `look` returns for its number: checked, classes, or lines of text
    // after the number.
    labelsOf(look) {
        [...this.labels.children].forEach((label, place) => {
            const { checked, classes = {}, lines } = look(this.numbers[place]);
            if (checked !== undefined) {
                label.firstChild.checked = checked;
            }
            for (const [name, has] of Object.entries(classes)) {
                label.classList.toggle(name, has);
            }
            if (lines) {
                const number = make("b", {}, String(this.numbers[place]));
                const texts = lines.map((line) => make("small", {}, line));
                label.firstChild.setAttribute("aria-description", lines.join(", "));
                label.lastChild.replaceChildren(number, ...texts.flatMap((text) => [" ", text]));
            }
        });
    }

    focus() {
        this.labels.querySelector(":checked")?.focus({ preventScroll: true });
    }
}

// The control of the zoom: a radio button for each level, which names what is chosen there.
class ZoomControl {
    constructor(choose) {
        const name = `zoom-${Math.random()}`;
        this.inputs = LEVELS.map((level) => {
            const input = make("input", { type: "radio", name, value: level });
            input.addEventListener("change", () => choose(level));
            return input;
        });
        const labels = this.inputs.map((input) => {
            return make("label", {}, input, make("span", {}));
        });
        this.box = make("fieldset", { class: "zoom" }, make("legend", {}, "zoom"), ...labels);
    }

    show({ level, block, warp, lane }) {
        const numbers = { grid: "", block: ` ${block}`, warp: ` ${warp}`, lane: ` ${lane}` };
        this.inputs.forEach((input) => {
            input.checked = input.value === level;
            input.nextSibling.textContent = `${input.value}${numbers[input.value]}`;
        });
    }
}

// A slider over the tiles along K, with the tile that is shown.
class TileSlider {
    constructor(choose) {
        this.tiles = [];
        this.input = make("input", { type: "range", min: 0, "aria-label": "tile along K" });
        this.text = make("span", {});
        this.box = make("div", { class: "tile-slider" }, this.text, this.input);
        this.input.addEventListener("input", () => choose(this.tiles[this.input.value]));
    }

    // Offers the tiles of a warp's accesses.
    offer(tiles) {
        const known = tiles.filter((tile) => tile !== null);
        this.tiles = [...new Set(known)].sort((a, b) => a - b);
        this.input.max = Math.max(0, this.tiles.length - 1);
        this.box.hidden = this.tiles.length < 2;
    }

    show(tile, depth) {
        const place = Math.max(0, this.tiles.indexOf(tile));
        const k = spanText(depth * tile, depth);
        const text = `tile ${place + 1} of ${this.tiles.length} along K: k ${k}`;
        this.input.value = place;
        this.input.setAttribute("aria-valuetext", text);
        this.text.textContent = text;
    }
}

// The table about a lane.
function laneTable(rows) {
    const lines = rows.map(([name, text]) => {
        return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text));
    });
    return make("table", {}, ...lines);
}
