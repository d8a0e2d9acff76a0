// The first page of the web site: panel.js draws the panel from answers that Python has computed
// (panel_answers.py).

// The answers are larger than the rest of the page, so they are loaded when a reader comes near.
const panelPage = document.getElementById("panel-page");
await nearTo(panelPage);
await loadScript("data.js");
const { table, start, answers, timed, parts } = await unpacked(worklogData);

// Looks up the answer to what is chosen. The answers share their parts.
function answered({ kernel, size, values }) {
    const timedValues = timed.map((place) => values[place]);
    const answer = answers[[kernel, size, ...timedValues].join("/")];
    if (!answer) {
        return { missing: "not recorded" };
    }
    const entries = Object.entries(answer).map(([name, place]) => [name, parts[place]]);
    return Object.fromEntries(entries);
}

// What panel.js uses of a notebook's model.
const model = {
    values: { table, chosen: start, answer: answered(start) },
    listeners: [],
    get(name) {
        return this.values[name];
    },
    set(name, value) {
        this.values[name] = value;
    },
    on(_, listener) {
        this.listeners.push(listener);
    },
    save_changes() {
        this.values.answer = answered(this.values.chosen);
        this.listeners.forEach((listener) => listener());
    },
};
render({ model, el: panelPage });
document.documentElement.dataset.ready = "";
