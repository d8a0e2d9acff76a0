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
