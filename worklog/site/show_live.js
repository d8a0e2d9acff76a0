// The live viewer in the text of a page: it runs the rung of its place.

// Resolves when the first block has run.
function show(place) {
    const entries = worklogCatalogue.filter(({ name }) => name === place.dataset.rung);
    const controls = make("div");
    const view = make("div");
    place.classList.add("live");
    place.replaceChildren(controls, view);
    const live = new LivePage(entries, controls, view, false);
    live.listen();
    return live.choose({ rung: 0 });
}
