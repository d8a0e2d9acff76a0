// The page of `worklog site`: panel.js draws the panel and the ladder from answers that Python has computed (site.py).

const bytes = Uint8Array.from(atob(worklogData), (letter) => letter.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
const data = await new Response(stream).json();

// What panel.js takes for a notebook's model: values by name, of which the answer is looked up by what is chosen.
function lookUp(page) {
    const { table, start, answers, ignored } = data[page], listeners = [];
    const answered = (chosen) => {
        const key = Object.values(chosen).flat().filter((_, place) => !ignored.includes(place));
        const answer = answers[JSON.stringify(key)];
        if (!answer) return { missing: "not recorded" };
        return Object.fromEntries(Object.entries(answer).map(([name, place]) => [name, data.parts[place]]));
    };
    const values = { page, table, chosen: start, answer: answered(start) };
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

for (const page of ["panel", "ladder"]) render({ model: lookUp(page), el: document.getElementById(`${page}-page`) });
document.documentElement.dataset.ready = "";
