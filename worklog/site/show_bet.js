// A bet in a page: what was measured comes packed with the page, and is shown after the bet.

function factorText(factor) {
    return Number(factor.toPrecision(3));
}

// Rows with a bar for each factor, as HTML.
function factorRows(factors) {
    const largest = Math.max(...Object.values(factors));
    const rows = make("div");
    for (const [name, factor] of Object.entries(factors)) {
        const bar = make("i", { style: `left:0;width:${(100 * factor) / largest}%` });
        const track = make("span", { class: "track" }, bar);
        const text = `${factorText(factor)} ×`;
        rows.append(make("div", { class: "row" }, make("span", {}, name), track, text));
    }
    return rows.innerHTML;
}

// What bet.js uses of a notebook's model.
class BetModel {
    constructor(values, onAnswer) {
        this.values = { ...values, bet: null, reveal: "", verdict: "" };
        this.onAnswer = onAnswer;
    }

    get(name) {
        return this.values[name];
    }

    set(name, value) {
        this.values[name] = value;
    }

    on(_, listener) {
        this.listener = listener;
    }

    save_changes() {
        const { bet, later, measured, label } = this.values;
        const factor = factorText(measured);
        const text = `You said ${factorText(bet)}, and it was ${factor} times as fast`;
        this.values.verdict = `${later}: ${text} (${label}).`;
        this.values.reveal = factorRows({ "your bet": bet, measured });
        this.listener();
        this.onAnswer();
    }
}

async function show(place) {
    const values = await unpacked(place.dataset.step);
    const openAnswer = () => {
        /** @type {HTMLDetailsElement | null} */
        const answer = document.querySelector(`[data-answer="${place.dataset.rung}"]`);
        if (answer) {
            answer.open = true;
        }
    };
    place.replaceChildren();
    render({ model: new BetModel(values, openAnswer), el: place });
}
