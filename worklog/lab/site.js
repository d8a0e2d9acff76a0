// Looks up what Python has computed (worklog/lab/site.py) and shows it; nothing is computed here.
"use strict";
const byId = (id) => document.getElementById(id);

// A percent sign stays with its number.
const unbroken = (words) => words.replaceAll(" %", "\u00a0%");

function make(tag, attributes = {}, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === true) element.setAttribute(name, "");
        else if (value !== false) element.setAttribute(name, value);
    }
    element.append(...inside);
    return element;
}

// Buttons of which one is chosen, as radio buttons, so that the arrow keys move between them.
function choices(box, name, words, choose) {
    const inputs = words.map((word) => {
        const input = make("input", { type: "radio", name, value: word });
        input.addEventListener("change", () => choose(word));
        return input;
    });
    box.replaceChildren(...inputs.map((input) => make("label", {}, input, input.value)));
    return (chosen, absent = () => false, marked = () => false) => inputs.forEach((input) => {
        input.checked = input.value === chosen;
        input.disabled = absent(input.value);
        input.parentElement.classList.toggle("gap", marked(input.value));
    });
}

function theme() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)"), page = document.documentElement;
    const isDark = () => (page.dataset.theme ? page.dataset.theme === "dark" : dark.matches);
    const show = () => { byId("theme").textContent = isDark() ? "light page" : "dark page"; };
    byId("theme").addEventListener("click", () => { page.dataset.theme = isDark() ? "light" : "dark"; show(); });
    dark.addEventListener("change", show);
    show();
}

// ---------------------------------------------------------------------------------------------------------- the panel

function panel(table) {
    const item = (place) => table.items[place];
    const chosen = { kernel: table.start.kernel, size: table.start.size, key: table.start.key };
    const group = (kernel, size) => table.groups[`${kernel} ${size}`];
    const place = (index) => parseInt(chosen.key[index], 36);
    const changed = (index, value) => chosen.key.slice(0, index) + value.toString(36) + chosen.key.slice(index + 1);
    const holds = (key, kernel = chosen.kernel, size = chosen.size) => key in (group(kernel, size)?.answers ?? {});
    const take = (what) => { Object.assign(chosen, what); show(); };

    const kernel = byId("kernel");
    kernel.addEventListener("change", () => take({ kernel: kernel.value }));
    const showSize = choices(byId("size"), "size", table.sizes, (size) => take({ size }));
    const rows = table.pitfalls.map((pitfall, index) => row(pitfall, index));
    byId("more").querySelector("summary").textContent =
        `pitfalls that the article doesn't name (${byId("rest-of-them").childElementCount})`;
    byId("all-unbiased").addEventListener("click", () => take({ key: table.unbiased }));
    byId("all-naive").addEventListener("click", () => take({ key: table.naive }));
    byId("gap-go").addEventListener("click", () => {
        take({ key: byId("gap-go").dataset.key });
        kernel.focus();  // the button is gone
    });
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    show();

    function row(pitfall, index) {
        const { setting, title, article } = pitfall;
        const box = make("input", { type: "checkbox" });
        const select = make("select", { "aria-label": `value of ${setting}` });
        const words = make("span", { class: "title" });
        const name = article === null ? setting : `${article} ${setting}`, label = make("span");
        const line = make("div", { class: "pitfall", title: pitfall.what }, make("label", {}, box, label), select, words);
        byId(article === null ? "rest-of-them" : "four").append(line);
        box.addEventListener("change", () => take({ key: switched() }));
        select.addEventListener("change", () => take({ key: changed(index, select.selectedIndex) }));
        const switched = () => changed(index, pitfall.biased[place(index)] ? pitfall.fixed : pitfall.first_biased);

        // nearest: the key of the nearest combination, where what is chosen was not recorded.
        return (nearest) => {
            const biased = pitfall.biased[place(index)];
            const gap = !nearest && !holds(switched()), differs = nearest && nearest[index] !== chosen.key[index];
            label.textContent = gap ? `${name} *` : name;
            box.checked = !biased;
            line.className = `pitfall${biased ? " biased" : ""}${gap || differs ? " gap" : ""}`;
            const more = differs ? [make("em", {}, "differs from the nearest")] : [];
            words.replaceChildren(biased ? `← ${title}` : title, ...more);
            select.replaceChildren(...pitfall.values.map((value, at) => make(
                "option",
                { selected: at === place(index), disabled: !pitfall.recorded[at] },
                nearest || holds(changed(index, at)) ? value : `${value} (not recorded)`,
            )));
        };
    }

    function show() {
        const here = group(chosen.kernel, chosen.size), found = holds(chosen.key);
        const nearest = found ? null : gap(table.nearest[here.nearest]);
        kernel.replaceChildren(...table.kernels.map((name) => make(
            "option",
            { value: name, selected: name === chosen.kernel, disabled: !group(name, chosen.size) },
            nearest || holds(chosen.key, name) ? name : `${name} (not recorded)`,
        )));
        showSize(
            chosen.size,
            (size) => !group(chosen.kernel, size),
            (size) => !nearest && !holds(chosen.key, chosen.kernel, size),
        );
        rows.forEach((showRow) => showRow(nearest));
        if (table.pitfalls.some(({ article }, i) => article === null && chosen.key[i] !== table.unbiased[i])) {
            byId("more").open = true;
        }
        byId("gap").hidden = found;
        byId("legend").hidden = !found || !byId("controls").querySelector(".gap");
        byId("answer").classList.toggle("stale", !found);
        if (found) answer(here);
    }

    // Says what is missing and what is nearest, and returns the key of that; the answer before stays, dimmed.
    function gap(nearest) {
        const launches = table.pitfalls.map((pitfall, i) => (pitfall.launches ? chosen.key : table.unbiased)[i]);
        const [key, differs, described] = nearest[launches.join("")];
        const own = table.pitfalls.map((pitfall, i) => (pitfall.launches ? key : chosen.key)[i]).join("");
        byId("gap-words").textContent =
            `not recorded: ${chosen.kernel} at ${chosen.size}, ${described}; nearest: ${differs}`;
        byId("gap-go").dataset.key = own;
        return own;
    }

    function answer(here) {
        const [parts, comparison, others, label, colour, [readings, ticks], steps] = item(here.answers[chosen.key]).map(item);
        const [[time, rate, share]] = item(here.answers[table.unbiased]).map(item);
        byId("answer").classList.remove("alert", "accent", "grey");
        byId("answer").classList.add(colour);
        byId("unbiased-rate").replaceChildren(...large(rate));
        byId("unbiased-rest").textContent = unbroken(`${time} · ${share}`);
        byId("rate").replaceChildren(...large(parts[1]));
        byId("rest").textContent = unbroken(`${parts[0]} · ${parts[2]}`);
        byId("comparison").textContent = unbroken(comparison);
        byId("others").replaceChildren(...others.map((line) => make("li", {}, unbroken(line))));
        byId("source").textContent = label;
        byId("strip").innerHTML = samples(readings, ticks);
        byId("strip-caption").textContent =
            `samples in launch order${readings.length === 2 ? ", unbiased ones in grey" : ""}`;
        byId("steps-figure").hidden = !steps.length;
        byId("steps").replaceChildren(...steps.map(([name, role, left, right, amount]) => make(
            "div",
            { class: "row" },
            make("span", {}, name),
            make("span", { class: "track" }, bar(role, left, right)),
            make("span", {}, amount),
        )));
    }

    // The number in large type, and the words before and after it in small type.
    function large(rate) {
        return rate.split(/([\d.]+)/).map((words, at) => (at % 2 ? words : make("small", {}, words)));
    }

    function bar(role, left, right) {
        const ends = role === "dot" ? `left:${left}%` : `left:${left}%;right:${right}%`;
        return make("i", { class: role, style: ends });
    }

    function samples(readings, ticks) {
        const grid = ticks.map(([y]) => `<line x1="0" x2="1000" y1="${y}" y2="${y}"/>`);
        const names = ticks.map(([, words, top]) => `<span class="tick" style="top:${top}%">${words}</span>`);
        const drawn = readings.map(([colour, dots, transform, y]) => `<g class="${colour}">
            <path d="${item(dots)}" transform="${transform}"/><line x1="0" x2="1000" y1="${y}" y2="${y}"/></g>`);
        return `<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">${grid.join("")}${drawn.join("")}
            </svg>${names.join("")}`;
    }
}

// --------------------------------------------------------------------------------------------------------- the ladder

function ladder(table) {
    const chosen = { ...table.start };
    const showSize = choices(byId("ladder-size"), "ladder-size", table.sizes, (size) => take({ size }));
    const beside = (by) => table.rungs[table.rungs.indexOf(chosen.rung) + by];
    const take = (what) => { Object.assign(chosen, what); show(); };
    byId("down").addEventListener("click", () => take({ rung: beside(-1) }));
    byId("up").addEventListener("click", () => take({ rung: beside(1) }));
    byId("comments").addEventListener("change", show);
    show();

    function show() {
        showSize(chosen.size);
        const [sentences, costs] = table.steps[`${chosen.rung} ${chosen.size}`];
        byId("step").replaceChildren(...sentences.map((sentence) => make("p", {}, unbroken(sentence))));
        byId("costs").innerHTML = costs;
        byId("down").disabled = !beside(-1);
        byId("up").disabled = !beside(1);
        byId("diff").innerHTML = table.changes[chosen.rung][byId("comments").checked ? "whole" : "code"];
        const { source, rows } = table.bars[chosen.size];
        byId("ladder-source").textContent = source;
        const focused = byId("bars").contains(document.activeElement);
        byId("bars").replaceChildren(...rows.map(([name, right, words]) => rung(name, right, words)));
        if (focused) byId("bars").querySelector("[aria-pressed=true]").focus();
    }

    function rung(name, right, words) {
        const track = make("span", { class: "track" }, make("i", { style: `right:${right}%` }));
        const inside = [make("span", {}, name), track, make("span", {}, unbroken(words))];
        if (!table.rungs.includes(name)) return make("div", { class: "row" }, ...inside);
        const button = make("button", { type: "button", "aria-pressed": String(name === chosen.rung) }, ...inside);
        button.addEventListener("click", () => take({ rung: name }));
        return button;
    }
}

function ablation(rungs) {
    const show = (name) => {
        for (const rung of rungs) byId(`ablation-of-${rung}`).hidden = rung !== name;
        showRung(name);
    };
    const showRung = choices(byId("ablation-rung"), "ablation-rung", rungs, show);
    show(rungs.at(-1));
}

async function start() {
    theme();
    const bytes = Uint8Array.from(atob(byId("data").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const table = await new Response(stream).json();
    panel(table.panel);
    ladder(table.ladder);
    ablation(table.ablations);
    document.documentElement.dataset.ready = "";
}
start();
