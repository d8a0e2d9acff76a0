// The live viewers of a chapter. Each one says how high it is once it has run a kernel, and then
// takes the place of the picture before it.

window.addEventListener("message", ({ source, data }) => {
    const frames = [...document.querySelectorAll("iframe")];
    const frame = frames.find((one) => one.contentWindow === source);
    if (!frame || typeof data?.viewerHeight !== "number") {
        return;
    }
    frame.height = data.viewerHeight;
    const picture = frame.closest(".cell")?.previousElementSibling;
    picture?.querySelector(".output_wrapper")?.setAttribute("hidden", "");
});
