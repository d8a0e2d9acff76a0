// What the panel and the access viewer share: elements of a page, and its data.

// Keeps a percent sign on the line of its number.
function unbroken(text) {
    return text.replaceAll(" %", "\u00a0%");
}

function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
}

function button(text, onClick, attributes = {}) {
    const element = make("button", { type: "button", ...attributes }, text);
    element.addEventListener("click", onClick);
    return element;
}

// A drop-down list that calls `onChoice` with the place of the option that the user chooses.
function dropDown(label, texts, onChoice) {
    const options = texts.map((text) => make("option", {}, text));
    const list = make("select", { "aria-label": label }, ...options);
    list.addEventListener("change", () => onChoice(list.selectedIndex));
    return list;
}

function labelled(name, control) {
    return make("label", { class: "line" }, make("span", {}, name), control);
}

// Shows the option that is chosen, and disables the other options at the places in `absent`.
function showOption(list, chosen, absent = []) {
    list.selectedIndex = chosen;
    [...list.options].forEach((option, place) => {
        option.disabled = place !== chosen && absent.includes(place);
    });
}

// Resolves with the data that worklog.site.pages.packed() encodes.
function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
}

// Gives the keys back when Escape is pressed in a part of a page: the focus goes to what is around the
// part, such as a cell of JupyterLab, or to the page.
function leaveOnEscape(event, part) {
    if (event.key !== "Escape" || !part.contains(event.target)) {
        return;
    }
    /** @type {HTMLElement} */
    const around = part.parentElement.closest("[tabindex]");
    if (around) {
        around.focus({ preventScroll: true });
    } else {
        event.target.blur();
    }
}

// Keeps keys with which JupyterLab moves between cells and folds headings, even while a control of
// the page has the focus, until Escape is pressed. Returns a function that ends this.
function keepKeys(page) {
    const keepKey = (event) => {
        if (/^(Arrow|Page|Home|End)/.test(event.key) && page.contains(event.target)) {
            event.stopPropagation();
        }
        leaveOnEscape(event, page);
    };
    window.addEventListener("keydown", keepKey, true);
    return () => window.removeEventListener("keydown", keepKey, true);
}
