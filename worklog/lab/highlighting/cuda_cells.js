// Highlights cells that begin with %%rung or %%puzzle as C++, in JupyterLab. Other cells of the
// notebook stay Python. This is the container that JupyterLab expects of a prebuilt extension
// (https://jupyterlab.readthedocs.io/en/stable/extension/extension_dev.html), written by hand:
// one file of this size needs no bundler.

(() => {
    const HOLDS_CUDA = /^%%(rung|puzzle)\b/;
    const CPLUSPLUS = "text/x-c++src"; // JupyterLab has no language for CUDA
    let shared = {}; // JupyterLab's modules: by name, then by version

    async function sharedModule(name) {
        const [version] = Object.values(shared[name]);
        const factory = await version.get();
        return factory();
    }

    // Keeps a cell's language right, whatever is typed and whenever the kernel says its own.
    function follow(cell, languages) {
        if (cell.type !== "code") {
            return;
        }
        let usual = cell.mimeType;
        const update = async () => {
            // An editor shows the language that was loaded last, so the usual one must come first.
            await languages.getLanguage(cell.mimeType);
            const isHighlighted = cell.mimeType === CPLUSPLUS;
            const holdsCuda = HOLDS_CUDA.test(cell.sharedModel.getSource());
            if (holdsCuda && !isHighlighted) {
                usual = cell.mimeType;
                cell.mimeType = CPLUSPLUS;
            } else if (!holdsCuda && isHighlighted) {
                cell.mimeType = usual;
            }
        };
        cell.contentChanged.connect(update);
        cell.mimeTypeChanged.connect(update);
        update();
    }

    async function followNotebook(panel, languages) {
        await panel.context.ready;
        const { cells } = panel.context.model;
        for (const cell of cells) {
            follow(cell, languages);
        }
        cells.changed.connect((_, change) => {
            if (change.type === "add" || change.type === "set") {
                change.newValues.forEach((cell) => follow(cell, languages));
            }
        });
    }

    async function plugin() {
        const { INotebookTracker } = await sharedModule("@jupyterlab/notebook");
        const { IEditorLanguageRegistry } = await sharedModule("@jupyterlab/codemirror");
        return {
            id: "worklog:cuda-cells",
            description: "Highlights the CUDA in cells that begin with %%rung or %%puzzle.",
            autoStart: true,
            requires: [INotebookTracker, IEditorLanguageRegistry],
            activate(_, notebooks, languages) {
                notebooks.forEach((panel) => followNotebook(panel, languages));
                notebooks.widgetAdded.connect((_, panel) => followNotebook(panel, languages));
            },
        };
    }

    window._JUPYTERLAB = window._JUPYTERLAB || {};
    window._JUPYTERLAB.worklog = {
        init(modules) {
            shared = modules;
        },
        async get() {
            const exported = { __esModule: true, default: await plugin() };
            return () => exported;
        },
    };
})();
