// Puzzles without a compiler: each one offers kernels, which the page runs and grades by what they
// do: their findings, their C, and the count that shows the idea of the puzzle.

// Returns whether a choice is right, and a sentence that says why.
function judgement({ findings, error, wrong, counts }, { measure, about, most }) {
    const faults = findings.filter(({ isError }) => isError);
    if (error) {
        return { isRight: false, text: `Wrong: ${error}` };
    }
    if (faults.length) {
        const [{ line, kind, message }] = faults;
        return { isRight: false, text: `Wrong: ${kind} in line ${line}: ${message}.` };
    }
    if (wrong.count) {
        return { isRight: false, text: `Wrong: ${productText(wrong)}` };
    }
    const count = counts[measure].toLocaleString("en");
    if (counts[measure] > most) {
        const enough = most.toLocaleString("en");
        const text = `Not yet: its C is right, but it has ${count} ${about}; ${enough} are enough.`;
        return { isRight: false, text };
    }
    return { isRight: true, text: `Right: its C is right, and it has ${count} ${about}.` };
}

class PuzzleView {
    constructor(puzzle, number) {
        this.puzzle = puzzle;
        this.chosen = null; // the place of a choice
        this.status = make("p", { role: "status" });
        this.answer = button("run and grade it", () => this.grade());
        this.answer.disabled = true;
        const title = `Puzzle ${number}: ${puzzle.name.replaceAll("_", " ")}`;
        const choices = make("fieldset", {}, make("legend", {}, puzzle.question));
        choices.append(...puzzle.choices.map((text, place) => this.choice(text, place)));
        const attributes = { id: puzzle.name, class: "puzzle worklog" };
        this.element = make("section", attributes, make("h2", {}, title), choices);
        this.element.append(this.answer, this.status);
    }

    choice(text, place) {
        const input = make("input", { type: "radio", name: this.puzzle.name });
        input.addEventListener("change", () => {
            this.chosen = place;
            this.answer.disabled = false;
            this.say("", "");
        });
        const lines = text.split("\n").map((line) => {
            const indent = line.length - line.trimStart().length;
            return make("span", { class: "line", style: `--indent: ${indent}` }, line);
        });
        const code = make("pre", {}, make("code", {}, ...lines));
        return make("label", { class: "choice" }, input, code);
    }

    say(state, text) {
        this.element.dataset.state = state;
        this.status.textContent = text;
    }

    async grade() {
        this.answer.disabled = true;
        this.say("running", "Running …");
        try {
            const programs = await programFile(this.puzzle.file);
            const kernel = await description(programs[this.chosen]);
            const emulator = await emulatorOfPage();
            const result = await emulator.check(kernel, { counts: true });
            const { isRight, text } = judgement(result, this.puzzle);
            this.say(isRight ? "right" : "wrong", text);
        } catch (error) {
            this.say("failed", `This choice has no result: ${error.message}.`);
        }
        this.answer.disabled = false;
    }
}
