// Draws the panel: in a notebook as an anywidget, and on the first page of `worklog site`. Python computes every number
// (readings.py). What is chosen goes to the model, and its answer comes from there: from a notebook's kernel, or from
// site.js, which looks it up.

const small = (words) => make("p", { class: "source" }, words);
const line = (name, control) => make("label", { class: "line" }, make("span", {}, name), control);

function panel(model, page) {
    const table = model.get("table");
    const take = (change) => {  // a part of what is chosen
        model.set("chosen", { ...model.get("chosen"), ...change });
        model.save_changes();
    };
    const [kernel, showKernel] = dropDown("rung", table.kernels, (place) => take({ kernel: place }));
    const [size, showSize] = dropDown("size", table.sizes, (place) => take({ size: place }));
    const rows = table.pitfalls.map(pitfallRow);
    const named = rows.filter((_, i) => table.pitfalls[i].article), others = rows.filter((row) => !named.includes(row));
    const more = make("details", {}, make("summary", {}, `pitfalls that the article doesn't name (${others.length})`),
        ...others.map((row) => row.element));
    const buttons = make("p", { class: "buttons" },
        button("all unbiased", () => take({ values: table.unbiased })),
        button("all naive", () => take({ values: table.naive })));
    const controls = make("div", { class: "controls" }, line("rung", kernel), line("size", size),
        ...named.map((row) => row.element), more, buttons);
    if ("live" in table) controls.append(...measuring());
    const head = make("div", { class: "head", role: "status" });  // read out when it changes
    const body = make("div", { class: "body" });
    page.append(make("div", { class: "columns panel" }, head, controls, body));
    model.on("change:chosen", show);
    model.on("change:answer", show);
    show();

    function pitfallRow({ setting, title, what, article, values, biased }, index) {
        const now = () => model.get("chosen").values[index];
        const change = (place) => take({ values: model.get("chosen").values.with(index, place) });
        const toggled = () => (biased.includes(now()) ? table.unbiased[index] : biased[0]);
        const box = make("input", { type: "checkbox" });
        box.addEventListener("change", () => change(toggled()));
        const [list, showValue] = dropDown(`value of ${setting}`, values, change);
        const words = make("span", { class: "title" });
        const label = make("label", {}, box, article ? `${article} ${setting}` : setting);
        const element = make("div", { class: "pitfall", title: what }, label, list, words);
        const showRow = (absent) => {
            box.checked = !biased.includes(now());
            box.disabled = absent.includes(toggled());
            showValue(now(), absent);
            element.classList.toggle("biased", !box.checked);
            words.textContent = (box.checked ? "" : "← ") + title + (box.disabled ? " · not recorded" : "");
        };
        return { element, box, show: showRow };
    }

    function show() {
        const chosen = model.get("chosen"), answer = model.get("answer");
        showKernel(chosen.kernel, answer.absent?.kernels);
        showSize(chosen.size, answer.absent?.sizes);
        rows.forEach((row, index) => row.show(answer.absent?.values[index] ?? []));
        if (others.some((row) => !row.box.checked)) more.open = true;
        body.hidden = "missing" in answer;
        if (answer.missing) {
            head.replaceChildren(make("p", { class: "notice" }, answer.missing));
            return;
        }
        const parts = table.pitfalls.map(({ setting }, index) => answer.spoken[setting]?.[chosen.values[index]]);
        const notes = [...answer.notes, ...parts.filter(Boolean)];
        head.className = `head ${answer.role}`;
        head.replaceChildren(
            make("div", { class: "cards" }, card("unbiased", answer.unbiased), card("this reading", answer.reading)),
            make("p", { class: "comparison" }, unbroken(answer.comparison)),
            small(answer.label),
        );
        body.replaceChildren(
            make("ul", {}, ...notes.map((note) => make("li", {}, unbroken(note)))),
            small("samples in launch order" + (answer.samples[1] ? ", unbiased ones in grey" : "")),
            strip(answer),
        );
        if (answer.steps.length) {
            body.append(
                small("what each setting adds to the time: orange inflates the result, blue deflates it, grey is noise"),
                ...answer.steps.map((step) => stepRow(step, answer.steps_axis)),
            );
        }
    }

    function measuring() {
        const status = make("p", { role: "status", class: "source" });
        const bar = make("progress", { "aria-label": "measured" });
        const [measure, cancel] = ["measure", "cancel"].map((name) => button(name, () => model.send(name)));
        buttons.append(measure, cancel);
        const showProgress = () => {
            const { running, share, words } = model.get("progress");
            measure.disabled = running || !table.live;
            cancel.disabled = !running;
            bar.hidden = !running;
            bar.value = share;
            status.textContent = words;
        };
        model.on("change:progress", showProgress);
        showProgress();
        return [bar, status];
    }
}

// The number of a rate is large, and the words before and after it are small.
function card(name, [time, rate, share]) {
    const parts = rate.split(/([\d.]+)/).map((words, place) => (place % 2 ? words : make("small", {}, words)));
    return make("div", { class: "card" }, make("p", {}, name), make("p", { class: "big" }, ...parts),
        make("p", {}, unbroken(`${time} · ${share}`)));
}

// The place of a time on an axis, in percent from its low end.
function along({ low, high, log }, us) {
    const scale = log ? Math.log : Number;
    return 100 * (scale(us) - scale(low)) / (scale(high) - scale(low));
}

// Each sample is a dot and their estimate a line.
function strip({ estimates, samples, axis }) {
    const y = (us) => 1000 - 10 * along(axis, us);
    const level = (us) => `<line x1="0" x2="1000" y1="${y(us)}" y2="${y(us)}"/>`;
    const wide = 1000 / (Math.max(...samples.map((times) => times.length)) + 1);
    const drawn = estimates.map(([role, estimate], series) => {
        const dots = samples[series].map((us, i) => `M${(i + 1) * wide} ${y(us)}h0`).join("");
        return `<g class="${role}"><path d="${dots}"/>${level(estimate)}</g>`;
    });
    const box = make("div", { class: "strip" });
    box.innerHTML = `<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">
        ${axis.ticks.map(([us]) => level(us)).join("")}${drawn.join("")}</svg>`;
    for (const [us, words] of axis.ticks) {
        box.append(make("span", { class: "tick", style: `top:${y(us) / 10}%` }, words));
    }
    return box;
}

// A bar from the time before a step to the time after it; a dot for the two ends.
function stepRow([name, role, before, after, words], axis) {
    const [left, right] = [before, after].map((us) => along(axis, us)).sort((a, b) => a - b);
    const place = role === "dot" ? `left:${left}%` : `left:${left}%;right:${100 - right}%`;
    const track = make("span", { class: "track" }, make("i", { class: role, style: place }));
    return make("div", { class: "row" }, make("span", {}, name), track, make("span", {}, words));
}

function render({ model, el }) {
    const page = make("div", { class: "worklog" });
    el.append(page);
    panel(model, page);
    // JupyterLab moves between cells and folds headings with the arrow keys, even while a control has the focus.
    const keep = (event) => {
        if (/^(Arrow|Page|Home|End)/.test(event.key) && page.contains(event.target)) event.stopPropagation();
    };
    window.addEventListener("keydown", keep, true);
    return () => window.removeEventListener("keydown", keep, true);
}

export default { render };
