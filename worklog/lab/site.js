// The page of `worklog site`: panel.js draws the panel and the ladder from answers that Python has computed (site.py).

// What panel.js takes for a notebook's model: values by name, of which the answer follows from what is chosen.
function lookUp(page, { table, start }, answered) {
    const values = { page, table, chosen: start, answer: answered(start) }, listeners = [];
    return {
        get: (name) => values[name],
        set: (name, value) => { values[name] = value; },
        on: (_, listener) => listeners.push(listener),
        save_changes: () => {
            values.answer = answered(values.chosen);
            listeners.forEach((listener) => listener());
        },
    };
}

function panelAnswer({ table, answers, samples, spoken }) {
    const find = ({ kernel, size, values }) =>
        answers[`${kernel} ${size}`]?.[values.filter((_, index) => !spoken[index]).join(" ")];
    const absentOf = (list, changed) => [...list.keys()].filter((place) => !find(changed(place)));
    return (chosen) => {
        const found = find(chosen);
        const absent = {
            kernels: absentOf(table.kernels, (kernel) => ({ ...chosen, kernel })),
            sizes: absentOf(table.sizes, (size) => ({ ...chosen, size })),
            values: table.pitfalls.map(({ values }, index) =>
                absentOf(values, (place) => ({ ...chosen, values: chosen.values.with(index, place) }))),
        };
        if (!found) return { absent, missing: "not recorded" };
        return { ...found, absent, samples: found.samples.map(([role, place, us]) => [role, samples[place], us]) };
    };
}

const ladderAnswer = ({ steps, code, bars }) => ({ rung, size, comments }) =>
    ({ ...steps[`${rung} ${size}`], code: code[rung][Number(comments)], ...bars[size] });

const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
const data = await new Response(stream).json();
render({ model: lookUp("panel", data.panel, panelAnswer(data.panel)), el: document.getElementById("panel-page") });
render({ model: lookUp("ladder", data.ladder, ladderAnswer(data.ladder)), el: document.getElementById("ladder-page") });
document.documentElement.dataset.ready = "";
