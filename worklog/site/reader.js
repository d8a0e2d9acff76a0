// A page of text: its widgets are loaded when a reader comes near, and its table of contents marks
// the section in sight.

const TOP = 0.25; // of the window: a section is in sight once its heading is there
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
    if (widget === "live") {
        return [script, "catalogue.js"];
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
        const text = `This can't be shown: ${error.message}.`;
        place.append(make("p", { role: "alert" }, text));
        place.dataset.state = "failed";
    }
}

// Marks the link of the section at the top of the window, also after a jump.
function markSections(contents) {
    const links = [...contents.querySelectorAll("a")];
    const headings = [...document.querySelectorAll(".body [id]:is(h2, h3)")];
    const mark = () => {
        const isAbove = (heading) => heading.getBoundingClientRect().top < TOP * innerHeight;
        const here = headings.filter(isAbove).at(-1)?.id;
        for (const link of links) {
            const isHere = decodeURIComponent(link.hash.slice(1)) === here;
            link.setAttribute("aria-current", isHere ? "location" : "false");
        }
    };
    document.addEventListener("scroll", mark, { passive: true });
    mark();
}

// Shows the live viewer in the place of the recorded one.
async function runHere(starter, place) {
    starter.disabled = true;
    await widgets.get(place);
    place.dataset.widget = "live";
    await showWidget(place);
    if (place.dataset.state === "failed") {
        starter.disabled = false;
        return;
    }
    place.querySelector("select").focus({ preventScroll: true });
    starter.remove();
}

const widgets = new Map(); // by place, a promise
for (const place of document.querySelectorAll("[data-widget]")) {
    widgets.set(place, nearTo(place).then(() => showWidget(place)));
}
/** @type {NodeListOf<HTMLButtonElement>} */
const starters = document.querySelectorAll("button[data-run]");
for (const starter of starters) {
    const place = starter.closest(".cell")?.querySelector("[data-widget]");
    if (place) {
        starter.addEventListener("click", () => runHere(starter, place));
        starter.hidden = false;
    }
}

/** @type {HTMLDetailsElement | null} */
const contents = document.querySelector(".contents details");
if (contents) {
    const wide = matchMedia(WIDE);
    const openIfWide = () => {
        contents.open = wide.matches;
    };
    wide.addEventListener("change", openIfWide);
    openIfWide();
    markSections(contents);
}
document.documentElement.dataset.ready = "";
