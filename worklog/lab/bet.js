// A bet on the factor of a step: a slider, then the chart that Python draws (bets.py).

class BetView {
    constructor(model, root) {
        this.model = model;
        const [low, high] = model.get("ends").map(Math.log2);
        this.slider = make("input", {
            type: "range",
            class: "wide",
            min: low,
            max: high,
            step: 0.02, // 1.4 %
            value: Math.log2(model.get("bet") ?? 1),
            "aria-label": model.get("question"),
        });
        this.slider.addEventListener("input", () => this.read());
        this.factor = make("span", { class: "factor" });
        this.button = button("Bet", () => this.place());
        this.reveal = make("div", { tabindex: -1 });
        this.verdict = make("p", { role: "status" }); // read out when it changes
        root.append(
            make("p", { class: "comparison" }, model.get("question")),
            make("div", { class: "bet" }, this.slider, this.factor, this.button),
            this.verdict,
            this.reveal,
        );
        model.on("change:reveal", () => {
            this.show();
            this.reveal.focus();
        });
        this.read();
        this.show();
    }

    // Shows the factor at which the slider is.
    read() {
        const text = `${Number(this.chosen().toPrecision(3))} times as fast`;
        this.factor.textContent = text;
        this.slider.setAttribute("aria-valuetext", text);
    }

    chosen() {
        return 2 ** Number(this.slider.value);
    }

    place() {
        this.model.set("bet", Number(this.chosen().toPrecision(3)));
        this.model.save_changes();
    }

    show() {
        const reveal = this.model.get("reveal");
        this.slider.disabled = this.button.disabled = reveal !== "";
        this.reveal.innerHTML = reveal;
        this.verdict.textContent = this.model.get("verdict");
    }
}

function render({ model, el }) {
    const page = make("div", { class: "worklog" });
    el.append(page);
    new BetView(model, page);
    return keepKeys(page);
}
