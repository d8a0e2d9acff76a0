// Saves a part of the page as a picture.

const SCALE = 2; // pixels of the picture for one of the page

// Returns a copy of elements whose controls have the state of the originals.
function copyOf(elements) {
    return elements.map((element) => {
        const copy = element.cloneNode(true);
        const inputs = [...element.querySelectorAll("input")];
        [...copy.querySelectorAll("input")].forEach((input, place) => {
            input.toggleAttribute("checked", inputs[place].checked);
        });
        return copy;
    });
}

// Returns elements of the page, one below the other, as a drawing (SVG) with the page's styles.
function drawingOf(elements, className, width, height) {
    const styles = [...document.querySelectorAll("style")].map((style) => style.textContent);
    const body = document.createElement("div");
    const style = make("style", {}, styles.join("\n"));
    body.append(style, make("div", { class: className }, ...copyOf(elements)));
    const content = new XMLSerializer().serializeToString(body);
    return (
        `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">` +
        `<foreignObject width="100%" height="100%">${content}</foreignObject></svg>`
    );
}

// Resolves with elements of the page as a picture (PNG, a Blob).
async function pictureOf(elements, className) {
    const boxes = elements.map((element) => element.getBoundingClientRect());
    const width = Math.ceil(Math.max(...boxes.map((box) => box.width)));
    const heights = boxes.map((box) => box.height);
    const height = Math.ceil(heights.reduce((sum, own) => sum + own, 0)) + 16 * elements.length;
    const drawing = drawingOf(elements, className, width, height);
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
