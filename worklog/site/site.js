// The first page of `worklog site`: panel.js draws the panel from answers that Python has computed (site.py).

const { table, start, answers, timed, parts } = await unpacked(worklogData);

// What panel.js takes for a notebook's model: values by name, of which the answer is looked up by what is chosen.
function answered({ kernel, size, values }) {
    const answer = answers[[kernel, size, ...timed.map((place) => values[place])].join("/")];
    if (!answer) return { missing: "not recorded" };
    return Object.fromEntries(Object.entries(answer).map(([name, place]) => [name, parts[place]]));
}

const values = { table, chosen: start, answer: answered(start) }, listeners = [];
const model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    on: (_, listener) => listeners.push(listener),
    save_changes: () => {
        values.answer = answered(values.chosen);
        listeners.forEach((listener) => listener());
    },
};
render({ model, el: document.getElementById("panel-page") });
document.documentElement.dataset.ready = "";
