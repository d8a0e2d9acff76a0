// Loads a script that defines global names. Unlike fetch, this also works without a server.
function loadScript(file) {
    return new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = file;
        script.addEventListener("load", resolve);
        script.addEventListener("error", () => reject(new Error(`${file} can't be loaded`)));
        document.head.append(script);
    });
}
