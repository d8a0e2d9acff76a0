// JupyterLab moves between cells and folds headings with the arrow keys, even while a control has the focus.
function render() {
    const keep = (event) => {
        const moves = /^(Arrow|Page|Home|End)/.test(event.key);
        if (moves && event.target.closest?.(".worklog")) event.stopPropagation();
    };
    window.addEventListener("keydown", keep, true);
    return () => window.removeEventListener("keydown", keep, true);
}
export default { render };
