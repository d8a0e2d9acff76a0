// A page of text: its widgets are loaded when a reader comes near, and its table of contents marks
// the section in sight.

const NEAR = "900px 0px";
const IN_SIGHT = "0px 0px -75% 0px";
const WIDE = "(min-width: 75rem)"; // as in site.css
// Files put a widget's function, and a rung's accesses, here by name.
window.worklogWidgets = {};
window.worklogAccesses = {};
const loads = new Map(); // by file

function loadOnce(file) {
    if (!loads.has(file)) {
        loads.set(file, loadScript(file));
    }
    return loads.get(file);
}

// The files of a widget at its place.
function filesOf({ widget, rung }) {
    const script = `widget-${widget}.js`;
    if (widget === "access") {
        return [script, `accesses-${rung}.js`];
    }
    return widget === "panel" ? [script, "data.js"] : [script];
}

async function showWidget(place) {
    const { widget } = place.dataset;
    place.dataset.state = "loading";
    try {
        await Promise.all(filesOf(place.dataset).map(loadOnce));
        await worklogWidgets[widget].show(place);
        place.dataset.state = "shown";
    } catch (error) {
        const message = document.createElement("p");
        message.role = "alert";
        message.textContent = `This can't be shown: ${error.message}.`;
        place.append(message);
        place.dataset.state = "failed";
    }
}

function whenInSight(elements, rootMargin, act) {
    const observer = new IntersectionObserver(
        (entries) => entries.filter((entry) => entry.isIntersecting).forEach(act),
        { rootMargin },
    );
    elements.forEach((element) => observer.observe(element));
    return observer;
}

const near = whenInSight(document.querySelectorAll("[data-widget]"), NEAR, ({ target }) => {
    near.unobserve(target);
    showWidget(target);
});

const contents = document.querySelector(".contents details");
if (contents) {
    const wide = matchMedia(WIDE);
    const openIfWide = () => {
        contents.open = wide.matches;
    };
    wide.addEventListener("change", openIfWide);
    openIfWide();
    whenInSight(document.querySelectorAll("h2[id]"), IN_SIGHT, ({ target }) => {
        for (const link of contents.querySelectorAll("a")) {
            const isHere = decodeURIComponent(link.hash.slice(1)) === target.id;
            link.toggleAttribute("aria-current", isHere);
        }
    });
}
document.documentElement.dataset.ready = "";
