// What panel.js and access.js share.

// A percent sign stays with its number.
const unbroken = (words) => words.replaceAll(" %", "\u00a0%");

function make(tag, attributes = {}, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
}

function button(text, act, attributes = {}) {
    const made = make("button", { type: "button", ...attributes }, text);
    made.addEventListener("click", act);
    return made;
}

// A drop-down list, and what shows its chosen option and disables the absent ones.
function dropDown(name, words, choose) {
    const list = make("select", { "aria-label": name }, ...words.map((word) => make("option", {}, word)));
    list.addEventListener("change", () => choose(list.selectedIndex));
    const show = (chosen, absent = []) => {
        list.selectedIndex = chosen;
        [...list.options].forEach((option, place) => {
            option.disabled = place !== chosen && absent.includes(place);
        });
    };
    return [list, show];
}

// What html.packed() packed for a page.
async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
