// The panel: in a notebook as an anywidget, and on the first page of the web site. Python computes
// every number (answers.py). What is chosen goes to the model, which has the answer: a notebook's
// kernel computes it, and show_panel.js looks it up.

function small(text) {
    return make("p", { class: "source" }, text);
}

class Panel {
    constructor(model, root) {
        this.model = model;
        this.table = model.get("table");
        this.makeControls();
        this.head = make("div", { class: "head", role: "status" }); // read out when it changes
        this.body = make("div", { class: "body" });
        root.append(make("div", { class: "columns panel" }, this.head, this.controls, this.body));
        model.on("change:chosen", () => this.show());
        model.on("change:answer", () => this.show());
        this.show();
    }

    makeControls() {
        const { table } = this;
        this.kernel = dropDown("rung", table.kernels, (kernel) => this.choose({ kernel }));
        this.size = dropDown("size", table.sizes, (size) => this.choose({ size }));
        this.rows = table.pitfalls.map((_, index) => new PitfallRow(this, index));
        this.others = this.rows.filter((row) => !row.pitfall.article);
        const named = this.rows.filter((row) => row.pitfall.article);
        const summary = `pitfalls that the article doesn't name (${this.others.length})`;
        this.more = make("details", {}, make("summary", {}, summary));
        this.more.append(...this.others.map((row) => row.element));
        this.buttons = make(
            "p",
            { class: "buttons" },
            button("all unbiased", () => this.choose({ values: table.unbiased })),
            button("all naive", () => this.choose({ values: table.naive })),
        );
        this.controls = make("div", { class: "controls" });
        this.controls.append(labelled("rung", this.kernel), labelled("size", this.size));
        this.controls.append(...named.map((row) => row.element), this.more, this.buttons);
        if ("live" in table) {
            this.addMeasurement();
        }
    }

    // Changes a part of what is chosen.
    choose(change) {
        this.model.set("chosen", { ...this.model.get("chosen"), ...change });
        this.model.save_changes();
    }

    show() {
        const chosen = this.model.get("chosen");
        const answer = this.model.get("answer");
        showOption(this.kernel, chosen.kernel, answer.absent?.kernels);
        showOption(this.size, chosen.size, answer.absent?.sizes);
        this.rows.forEach((row, index) => row.show(answer.absent?.values[index] ?? []));
        if (this.others.some((row) => row.isBiased())) {
            this.more.open = true;
        }
        this.body.hidden = "missing" in answer;
        if (answer.missing) {
            this.head.replaceChildren(make("p", { class: "notice" }, answer.missing));
            return;
        }
        this.showHead(answer);
        this.showBody(answer, this.notes(answer, chosen.values));
    }

    showHead(answer) {
        this.head.className = `head ${answer.role}`;
        const cards = make("div", { class: "cards" });
        cards.append(card("unbiased", answer.unbiased), card("this reading", answer.reading));
        const comparison = make("p", { class: "comparison" }, unbroken(answer.comparison));
        this.head.replaceChildren(cards, comparison, small(answer.label));
    }

    // The answer's notes, and the note on the value of each setting that has one.
    notes(answer, values) {
        const spoken = this.table.pitfalls.map(({ setting }, index) => {
            return answer.spoken[setting]?.[values[index]];
        });
        return [...answer.notes, ...spoken.filter(Boolean)];
    }

    showBody(answer, notes) {
        const [, unbiasedSamples] = answer.samples;
        const grey = unbiasedSamples ? ", unbiased ones in grey" : "";
        this.body.replaceChildren(
            make("ul", {}, ...notes.map((note) => make("li", {}, unbroken(note)))),
            small(`samples in launch order${grey}`),
            samplesDrawing(answer),
        );
        if (answer.steps.length) {
            const added = "what each setting adds to the time";
            const colours = "orange inflates the result, blue deflates it, grey is noise";
            this.body.append(small(`${added}: ${colours}`));
            this.body.append(...answer.steps.map((step) => stepRow(step, answer.steps_axis)));
        }
    }

    // Adds the buttons that measure and cancel, and the progress.
    addMeasurement() {
        this.measure = button("measure", () => this.model.send("measure"));
        this.cancel = button("cancel", () => this.model.send("cancel"));
        this.buttons.append(this.measure, this.cancel);
        this.bar = make("progress", { "aria-label": "measured" });
        this.status = make("p", { role: "status", class: "source" });
        this.controls.append(this.bar, this.status);
        this.model.on("change:progress", () => this.showProgress());
        this.showProgress();
    }

    showProgress() {
        const { running, share, words } = this.model.get("progress");
        this.measure.disabled = running || !this.table.live;
        this.cancel.disabled = !running;
        this.bar.hidden = !running;
        this.bar.value = share;
        this.status.textContent = words;
    }
}

// A pitfall's box, which is clear if the setting is biased, and the list of its values.
class PitfallRow {
    constructor(panel, index) {
        this.panel = panel;
        this.index = index;
        this.pitfall = panel.table.pitfalls[index];
        const { setting, what, article, values } = this.pitfall;
        this.box = make("input", { type: "checkbox" });
        this.box.addEventListener("change", () => this.choose(this.toggled()));
        this.list = dropDown(`value of ${setting}`, values, (place) => this.choose(place));
        this.title = make("span", { class: "title" });
        const label = make("label", {}, this.box, article ? `${article} ${setting}` : setting);
        this.element = make("div", { class: "pitfall", title: what }, label, this.list, this.title);
    }

    // The place of the value that is chosen.
    value() {
        return this.panel.model.get("chosen").values[this.index];
    }

    choose(place) {
        const { values } = this.panel.model.get("chosen");
        this.panel.choose({ values: values.with(this.index, place) });
    }

    isBiased() {
        return this.pitfall.biased.includes(this.value());
    }

    // The place of the value that a click on the box chooses.
    toggled() {
        return this.isBiased() ? this.panel.table.unbiased[this.index] : this.pitfall.biased[0];
    }

    // absent: the places of the values without an answer
    show(absent) {
        const isBiased = this.isBiased();
        this.box.checked = !isBiased;
        this.box.disabled = absent.includes(this.toggled());
        showOption(this.list, this.value(), absent);
        this.element.classList.toggle("biased", isBiased);
        const arrow = isBiased ? "← " : "";
        const missing = this.box.disabled ? " · not recorded" : "";
        this.title.textContent = `${arrow}${this.pitfall.title}${missing}`;
    }
}

// A reading. The number of its rate is large, and the text around the number is small.
function card(name, [time, rate, share]) {
    const parts = rate.split(/([\d.]+)/).map((text, place) => {
        const isNumber = place % 2 === 1;
        return isNumber ? text : make("small", {}, text);
    });
    const big = make("p", { class: "big" }, ...parts);
    const below = make("p", {}, unbroken(`${time} · ${share}`));
    return make("div", { class: "card" }, make("p", {}, name), big, below);
}

// The place of a time on an axis, in percent from its low end.
function along({ low, high, log }, us) {
    const scale = log ? Math.log : Number;
    return (100 * (scale(us) - scale(low))) / (scale(high) - scale(low));
}

// Each sample as a dot, and the estimates as lines, above each other in a box of 1000 x 1000.
function samplesDrawing({ estimates, samples, axis }) {
    const levels = axis.ticks.map(([us]) => levelLine(axis, us));
    const width = 1000 / (Math.max(...samples.map((times) => times.length)) + 1);
    const series = estimates.map(([role, estimate], place) => {
        const dots = samples[place].map((us, number) => {
            return `M${(number + 1) * width} ${heightOf(axis, us)}h0`;
        });
        return `<g class="${role}"><path d="${dots.join("")}"/>${levelLine(axis, estimate)}</g>`;
    });
    const box = make("div", { class: "strip" });
    const attributes = 'viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true"';
    box.innerHTML = `<svg ${attributes}> ${levels.join("")}${series.join("")}</svg>`;
    for (const [us, text] of axis.ticks) {
        box.append(make("span", { class: "tick", style: `top:${heightOf(axis, us) / 10}%` }, text));
    }
    return box;
}

function heightOf(axis, us) {
    return 1000 - 10 * along(axis, us);
}

function levelLine(axis, us) {
    const y = heightOf(axis, us);
    return `<line x1="0" x2="1000" y1="${y}" y2="${y}"/>`;
}

// A bar from the time before a step to the time after it, or a dot for the two ends of the steps.
function stepRow([name, role, before, after, text], axis) {
    const places = [along(axis, before), along(axis, after)];
    const [left, right] = places.sort((a, b) => a - b);
    const style = role === "dot" ? `left:${left}%` : `left:${left}%;right:${100 - right}%`;
    const track = make("span", { class: "track" }, make("i", { class: role, style }));
    return make("div", { class: "row" }, make("span", {}, name), track, make("span", {}, text));
}

function render({ model, el }) {
    const page = make("div", { class: "worklog" });
    el.append(page);
    new Panel(model, page);
    return keepKeys(page);
}
