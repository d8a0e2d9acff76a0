// The panel in a page: it shows answers that Python has computed (panel_answers.py).

let unpackedData = null; // a promise, of what data.js holds

// The choices at the start: those of the place, as far as the data has them.
function startOf({ table, start }, { kernel, size, biased = "{}" }) {
    if (!table.kernels.includes(kernel) || !table.sizes.includes(size)) {
        return start;
    }
    const settings = JSON.parse(biased);
    const values = table.pitfalls.map(({ setting, values: texts }, index) => {
        return setting in settings ? texts.indexOf(settings[setting]) : table.unbiased[index];
    });
    return { kernel: table.kernels.indexOf(kernel), size: table.sizes.indexOf(size), values };
}

// Looks up the answer to what is chosen. The answers share their parts.
function answerTo({ answers, timed, parts }, { kernel, size, values }) {
    const timedValues = timed.map((place) => values[place]);
    const answer = answers[[kernel, size, ...timedValues].join("/")];
    if (!answer) {
        return { missing: "not recorded" };
    }
    const entries = Object.entries(answer).map(([name, place]) => [name, parts[place]]);
    return Object.fromEntries(entries);
}

// What panel.js uses of a notebook's model.
class PanelModel {
    constructor(data, chosen) {
        this.data = data;
        this.values = { table: data.table, chosen, answer: answerTo(data, chosen) };
        this.listeners = [];
    }

    get(name) {
        return this.values[name];
    }

    set(name, value) {
        this.values[name] = value;
    }

    on(_, listener) {
        this.listeners.push(listener);
    }

    save_changes() {
        this.values.answer = answerTo(this.data, this.values.chosen);
        this.listeners.forEach((listener) => listener());
    }
}

async function show(place) {
    unpackedData ??= unpacked(worklogData);
    const data = await unpackedData;
    place.replaceChildren();
    render({ model: new PanelModel(data, startOf(data, place.dataset)), el: place });
}
