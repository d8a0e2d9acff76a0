// Loads what a page needs later.

// Loads a script that defines global names. Unlike fetch, this also works without a server.
function loadScript(file) {
    return new Promise((resolve, reject) => {
        const script = make("script", { src: file });
        script.addEventListener("load", resolve);
        script.addEventListener("error", () => reject(new Error(`${file} can't be loaded`)));
        document.head.append(script);
    });
}

/**
 * Resolves when a reader comes near an element.
 * @returns {Promise<void>}
 */
function nearTo(element) {
    return new Promise((resolve) => {
        const observer = new IntersectionObserver(
            (entries) => {
                if (entries.some((entry) => entry.isIntersecting)) {
                    observer.disconnect();
                    resolve();
                }
            },
            { rootMargin: "800px" },
        );
        observer.observe(element);
    });
}
