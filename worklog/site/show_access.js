// The access viewer in the text of a page: it shows the accesses of a rung that are stored with
// the page.
async function show(place) {
    const documents = await unpacked(worklogAccesses[place.dataset.rung]);
    const values = { documents, of_page: false };
    place.replaceChildren();
    render({ model: { get: (name) => values[name] }, el: place });
}
