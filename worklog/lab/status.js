// A screen reader reads out what changes in an element that it already knows, not an element that arrives with its text.
function render({ model, el }) {
    const element = document.createElement("div");
    const show = () => { element.innerHTML = model.get("value"); };
    element.setAttribute("role", "status");
    el.append(element);
    model.on("change:value", show);
    show();
}
export default { render };
