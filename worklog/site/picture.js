// Saves a part of the page as a picture.

const SCALE = 2; // pixels of the picture for one of the page
const MARGIN = 12; // around the picture, in pixels of the page

// Returns a copy of a viewer that has only some of its elements, one below the other, as wide as they
// are on the page. Its controls have the state of the originals.
function copyOf(elements, viewer) {
    const copies = elements.map((element) => {
        const copy = element.cloneNode(true);
        copy.style.width = `${element.getBoundingClientRect().width}px`;
        const inputs = [...element.querySelectorAll("input")];
        [...copy.querySelectorAll("input")].forEach((input, place) => {
            input.toggleAttribute("checked", inputs[place].checked);
            input.removeAttribute("name"); // else a copied radio button would clear the original
        });
        return copy;
    });
    // What is around the elements also has colours, and says which of their parts are hidden.
    const around = viewer.cloneNode(false);
    around.style.display = "block";
    around.append(...copies);
    const { width } = viewer.getBoundingClientRect();
    const style = `width: ${Math.ceil(width) + 2 * MARGIN}px; padding: ${MARGIN}px`;
    return make("div", { class: "worklog access", style }, around);
}

// Returns the width and the height of a part that isn't on the page.
function sizesOf(part) {
    const place = make("div", { style: "position: absolute; left: -1000rem" }, part);
    document.body.append(place);
    const sizes = [part.offsetWidth, part.offsetHeight];
    place.remove();
    return sizes;
}

// Returns a part as a drawing (SVG) with the page's styles.
function drawingOf(part, width, height) {
    const styles = [...document.querySelectorAll("style")].map((style) => style.textContent);
    const body = document.createElement("div");
    body.append(make("style", {}, styles.join("\n")), part);
    const content = new XMLSerializer().serializeToString(body);
    return (
        `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">` +
        `<foreignObject width="100%" height="100%">${content}</foreignObject></svg>`
    );
}

// Resolves with elements of a viewer as a picture (PNG, a Blob).
async function pictureOf(elements, viewer) {
    const copy = copyOf(elements, viewer);
    const [width, height] = sizesOf(copy);
    const drawing = drawingOf(copy, width, height);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
    await image.decode();
    const canvas = make("canvas", { width: SCALE * width, height: SCALE * height });
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function saveAs(blob, name) {
    const address = URL.createObjectURL(blob);
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
