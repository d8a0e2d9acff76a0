// Grades a kernel: its C against the product of whole numbers, which every right kernel computes
// exactly, and its counts.

const LARGEST = 4; // magnitude of an element

// Returns whole numbers that look random, always the same ones.
function wholeNumbers(count, seed) {
    let state = seed;
    return Float32Array.from({ length: count }, () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return ((state >>> 16) % (2 * LARGEST + 1)) - LARGEST;
    });
}

function productOf(a, b, [m, n, k]) {
    const product = new Float32Array(m * n);
    for (let row = 0; row < m; row++) {
        const own = product.subarray(row * n, (row + 1) * n);
        for (let step = 0; step < k; step++) {
            const factor = a[row * k + step];
            const start = step * n;
            for (let column = 0; column < n; column++) {
                own[column] += factor * b[start + column];
            }
        }
    }
    return product;
}

// Returns how many elements of C are wrong, and the first of them: its row and column, its value,
// and the right one. An element that wasn't written is NaN.
function wrongElements(c, right, columns) {
    let count = 0;
    let first = null;
    right.forEach((expected, place) => {
        if (c[place] !== expected) {
            count += 1;
            const row = Math.floor(place / columns);
            first ??= { row, column: place % columns, value: c[place], expected };
        }
    });
    return { count, of: right.length, first };
}

// Returns the counts that grade an answer to a puzzle, as worklog.site.choices.counts_of does.
function countsOf(kernel, shape, launches) {
    const counts = { sectors: 0, lookups: 0, reads: 0, conflicts: 0, barriers: 0 };
    launches.forEach((launch, place) => {
        const program = kernel.programs[kernel.shapes[shape].launches[place].program];
        program.owners.forEach(([, counted], owner) => {
            const [requests, sectors, , conflicts, , lines] = launch.costs[owner];
            if (counted.startsWith("global_")) {
                counts.sectors += sectors;
                counts.lookups += lines;
            }
            if (counted.startsWith("shared_")) {
                counts.conflicts += conflicts;
                counts.reads += counted === "shared_load" ? requests : 0;
            }
        });
        program.blocks.forEach(([start, stop], block) => {
            const barriers = program.classes.slice(start, stop).filter((one) => one === "barrier");
            counts.barriers += launch.executed[2 * block] * barriers.length;
        });
    });
    return counts;
}
