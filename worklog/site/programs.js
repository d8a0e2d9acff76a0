// What the pages share that run kernels: the files with decoded kernels, the emulator, and the words
// for a result.

// Files with decoded kernels put them here, by name.
window.worklogPrograms = {};
let startedEmulator = null; // a promise

// Resolves with what a file of decoded kernels has.
async function programFile(file) {
    if (!(file in worklogPrograms)) {
        await loadScript(file);
    }
    return worklogPrograms[file];
}

// Resolves with the page's emulator, which is started once.
function emulatorOfPage() {
    startedEmulator ??= loadScript("emulator.js").then(() => Emulator.of(emulatorParts));
    return startedEmulator;
}

function counted(count, noun) {
    const number = count.toLocaleString("en");
    return count === 1 ? `${number} ${noun}` : `${number} ${noun}s`;
}

// Returns a sentence about the elements of C that are wrong.
function productText({ count, of, first }) {
    if (!count) {
        return `All ${counted(of, "element")} of C are right.`;
    }
    const { row, column, value, expected } = first;
    const found = Number.isNaN(value) ? "isn't written" : `is ${value}`;
    const example = `C[${row}][${column}] ${found} and should be ${expected}`;
    return `${count.toLocaleString("en")} of ${counted(of, "element")} of C are wrong: ${example}.`;
}
