// The browser's own slider with a label: ipywidgets' slider has no accessible name and reads out an index.
function render({ model, el }) {
    const label = document.createElement("label");
    const name = document.createElement("span");
    const range = document.createElement("input");
    const shown = document.createElement("span");  // for the eye; a screen reader reads aria-valuetext
    name.textContent = "size";
    shown.ariaHidden = "true";
    range.type = "range";
    range.min = 0;
    range.setAttribute("aria-label", "size");
    const showWord = () => {
        shown.textContent = model.get("words")[range.value];
        range.setAttribute("aria-valuetext", shown.textContent);
    };
    const show = () => {
        range.max = model.get("words").length - 1;
        range.value = model.get("index");
        showWord();
    };
    range.addEventListener("input", showWord);
    range.addEventListener("change", () => { model.set("index", Number(range.value)); model.save_changes(); });
    model.on("change:index", show);
    model.on("change:words", show);
    label.append(name, range, shown);
    el.append(label);
    show();
    // JupyterLab moves between cells and folds headings with the arrow keys, even while a control has the focus.
    const keep = (event) => {
        const moves = /^(Arrow|Page|Home|End)/.test(event.key);
        if (moves && event.target.closest?.(".worklog")) event.stopPropagation();
    };
    window.addEventListener("keydown", keep, true);
    return () => window.removeEventListener("keydown", keep, true);
}
export default { render };
