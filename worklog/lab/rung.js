// A rung of the ladder at a size. Python writes its page (rung_pages.py) for what is chosen.

class RungView {
    constructor(model, root) {
        this.model = model;
        const { rungs, sizes } = model.get("table");
        this.rung = dropDown("rung", rungs, (rung) => this.choose({ rung }));
        this.size = dropDown("size", sizes, (size) => this.choose({ size }));
        this.body = make("div", { role: "status" }); // read out when it changes
        root.append(labelled("rung", this.rung), labelled("size", this.size), this.body);
        model.on("change:page", () => this.show());
        this.show();
    }

    // Changes a part of what is chosen.
    choose(change) {
        this.model.set("chosen", { ...this.model.get("chosen"), ...change });
        this.model.save_changes();
    }

    show() {
        const { rung, size } = this.model.get("chosen");
        showOption(this.rung, rung);
        showOption(this.size, size);
        this.body.innerHTML = this.model.get("page");
    }
}

function render({ model, el }) {
    const page = make("div", { class: "worklog" });
    el.append(page);
    new RungView(model, page);
    return keepKeys(page);
}
