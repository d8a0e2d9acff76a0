// Two rungs side by side: what is chosen in one view is chosen in the other, and its access is the
// access of the same kind that is nearest along K.

function inStep(views) {
    views.forEach((view, place) => {
        const other = views[1 - place];
        view.onGo = () => other.follow(view);
    });
}

// Puts two kernels' views into `root`, and opens both.
function openPair(documents, root) {
    const pair = make("div", { class: "pair" });
    root.append(make("div", { class: "worklog access" }, pair));
    const views = Object.entries(documents).map(([name, document]) => {
        const values = { documents: { [name]: document }, of_pair: true };
        return new AccessView({ get: (value) => values[value] }, pair);
    });
    for (const view of views) {
        view.open(view.names[0]);
    }
    inStep(views);
    views[1].follow(views[0]);
    return views;
}
