"""Launch the BFS and CC programs of Indigo3 on the emulator, with and without their planted bugs.

`python -m tests.record.indigo --clone FOLDER`, no GPU. FOLDER is a clone of burtscher/Indigo3Suite
(BSD-3-Clause) at any commit. Its own script generates the programs from templates. A program is a
way to implement breadth-first search or connected components, with or without a bug. RaceBug drops
the atomic accesses to shared data, and NbrBoundsBug reads a neighbour too many. The programs with
one of them and no other bug are run. Those on cuda::atomic are left out: NVRTC's wheel has no
libcu++. So are the other bugs: the memory that a graph has allocated hides many of them.

A program's kernels are compiled with a small header in place of the suite's, which also has the
host code. They are launched on a random graph until nothing changes, as the host code does it. The
table has no code of the suite.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from tests.record import recording
from worklog.emulator import Finding, PtxKernel, launch, load
from worklog.errors import LaunchFailed, WorklogError
from worklog.kernel.device import Program
from worklog.kernel.emulated import ARCH
from worklog.kernel.launch import evaluate
from worklog.kernel.nvrtc import compile_cuda
from worklog.runs.files import write_text

RECORDED = Path(__file__).parents[2] / "worklog" / "recordings" / "indigo" / "bfs_and_cc.json"
REPOSITORY = "burtscher/Indigo3Suite"
LICENCE = "BSD-3-Clause"
ALGORITHMS = ("BFS", "CC")
# By bug, how many lines behind the suite's comment the wrong access is: NbrBoundsBug marks a loop.
BUGS = {"": 0, "RaceBug": 1, "NbrBoundsBug": 2}
# Programs that have an error where the suite planted none, by the beginning of their names.
REAL_ERRORS = {
    "CC_CUDA_V_Data_Pull": (
        "a block or a warp resets its shared flag for the next vertex, and no barrier or "
        "__syncwarp separates that from the last read of the flag"
    ),
}
NODES = 150
EDGES = 500
SEED = 0
MOST_STEPS = 40  # launches until nothing changes
SOURCE_NODE = 0
UNREACHED = 2**31 - 1
THREADS_PER_BLOCK = 512
CONSTANTS = {"ThreadsPerBlock": THREADS_PER_BLOCK, "WarpSize": 32, "ThreadsBound": 1024}
CONFIGURATION = """**/
CODE:
    bug:        {all}
    pattern:    {bfs, cc}
    option:     {all, ~CudaAtomic}
    dataType:   {IntType}
"""
# In place of the suite's headers: the graph, and accesses as cuda::atomic compiles them.
HEADER = """#pragma once
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define MIN(x, y) ((x) < (y) ? (x) : (y))
struct ECLgraph { int nodes, edges; int *nindex, *nlist; };
const basic_t maxval = 0x7fffffff;
__device__ inline basic_t atomicRead(basic_t* p) {
  basic_t value;
  asm volatile("ld.relaxed.sys.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
__device__ inline void atomicWrite(basic_t* p, basic_t value) {
  asm volatile("st.relaxed.sys.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
"""
GRAPH = "const ECLgraph g"
PARTS = "int g_nodes, int g_edges, int* g_nindex, int* g_nlist"
BEGIN = "{ const ECLgraph g = {g_nodes, g_edges, g_nindex, g_nlist};"
HEAD = re.compile(r"static (__global__ void (\w+)\(([^)]*)\))\s*?(\n?)\{")
NEXT_OF = {"dist": "dist_n", "label": "label_n"}


@dataclass(frozen=True)
class Outcome:
    """What the emulator found in a program.

    program: the file's name, without its suffix
    bug: the planted one, or ""
    kinds: of the error findings
    line: of the first error finding in the generated file; 0 without one
    is_planted_line: whether a finding names a line that the suite marks as the bug
    is_right: whether the result is that of the algorithm
    real_error: what is wrong with a program without a planted bug, if something was found
    error: why the program didn't run
    """

    program: str
    bug: str
    kinds: tuple[str, ...] = ()
    line: int = 0
    is_planted_line: bool = False
    is_right: bool = False
    real_error: str = ""
    error: str = ""


@dataclass(frozen=True)
class Graph:
    """An undirected graph: the neighbours of node v are nlist[nindex[v] : nindex[v + 1]]."""

    nindex: NDArray[np.int32]
    nlist: NDArray[np.int32]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.nindex.size - 1

    @property
    def sources(self) -> NDArray[np.int32]:
        """The node at which each edge begins."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.nindex))

    def right(self, algorithm: str) -> NDArray[np.int32]:
        """Return the distances from SOURCE_NODE, or each component's smallest node."""
        values = np.arange(self.nodes, dtype=np.int64)
        step = 0
        if algorithm == "BFS":
            values[:] = UNREACHED
            values[SOURCE_NODE] = 0
            step = 1
        for _ in range(self.nodes):
            reached = values[self.sources]
            reached = np.where(reached == UNREACHED, reached, reached + step)
            np.minimum.at(values, self.nlist, reached)
        return values.astype(np.int32)


def random_graph() -> Graph:
    """Return a graph with EDGES random edges, each in both directions."""
    ends = np.random.default_rng(SEED).integers(0, NODES, (EDGES, 2))
    pairs = {(int(a), int(b)) for a, b in ends if a != b}
    both = sorted(pairs | {(b, a) for a, b in pairs})
    degrees = np.bincount([a for a, _ in both], minlength=NODES)
    nindex = np.concatenate([[0], np.cumsum(degrees)])
    return Graph(nindex.astype(np.int32), np.array([b for _, b in both], np.int32))


def bugs_of(name: str) -> list[str]:
    """Return the planted bugs that a program's name lists."""
    parts = name.split("_")
    return [part for part in parts if part.endswith("Bug") and not part.startswith("No")]


def generated(clone: Path, folder: Path) -> Iterator[Path]:
    """Generate the programs into a folder with the suite's script, and yield those to run."""
    script = clone.resolve() / "scripts" / "generate_codes.py"
    (folder / "codeGen").mkdir()
    (folder / "codeGen" / "configure.txt").write_text(CONFIGURATION, encoding="utf-8")
    (folder / "copyright.txt").write_text("", encoding="utf-8")
    (folder / "programs").mkdir()
    for algorithm in ALGORITHMS:
        templates = clone.resolve() / "codeGen" / "cuda" / f"{algorithm}-CUDA"
        for template in sorted(templates.glob("*.idg")):
            command = (sys.executable, "-W", "ignore", str(script), str(template))
            subprocess.run((*command, "programs", "CUDA"), cwd=folder, check=True)
    for path in sorted((folder / "programs").glob("*.cu")):
        bugs = bugs_of(path.stem)
        if len(bugs) < 2 and "".join(bugs) in BUGS:
            yield path


class GraphProgram:
    """A program's two kernels, with the memory and the launches of its host code."""

    def __init__(self, path: Path, graph: Graph) -> None:
        self.text = path.read_text(encoding="utf-8")
        device, _, self.host = self.text.partition("static double GPU")
        self.parameters = {match[2]: match[3].split(", ") for match in HEAD.finditer(device)}
        self.step_name = next(name for name in self.parameters if name != "init")
        [header] = re.findall(r'#include "(indigo_\w+\.h)"', device)
        # The lines stay: the begin is in the line of the brace.
        self.source = HEAD.sub(lambda head: f"{head[1]}{head[4]}{BEGIN}", device)
        without_graph = re.compile(r"^(?!.*const ECLgraph g[,)]).*__global__.*$", re.MULTILINE)
        for plain in without_graph.findall(self.source):
            self.source = self.source.replace(f"{plain}\n{BEGIN}", f"{plain}\n{{")
        self.source = self.source.replace(f"{GRAPH},", f"{PARTS},").replace(
            f"{GRAPH})", f"{PARTS})"
        )
        program = Program(path.name, self.source, self.step_name, headers=((header, HEADER),))
        self.ptx = compile_cuda(program, ARCH).ptx
        self.graph = graph
        longest = max(graph.nodes, graph.nlist.size)
        self.memory: dict[str, Any] = {
            name: np.zeros(graph.nodes, np.int32) for name in ("dist", "dist_n", "label", "label_n")
        }
        self.memory |= {name: np.zeros(longest, np.int32) for name in ("wl1", "wl2", "time")}
        self.memory |= {name: np.zeros(1, np.int32) for name in ("wl2size", "goagain")}
        self.memory["wlsize"] = self.memory["wl2size"]
        self.memory["sp"] = graph.sources
        self.memory |= {"src": SOURCE_NODE, "size": graph.nodes, "iter": 0, "wl1size": 0}
        self.findings = list[Finding]()

    def run(self) -> None:
        """Launch the kernels until nothing changes or there is a finding. Raises LaunchFailed."""
        is_by_worklist = "wl1" in " ".join(self.parameters[self.step_name])
        self._launch("init", re.findall(r"init<<<(.*), ThreadsPerBlock>>>", self.host)[0])
        self.memory["wl1size"] = int(self.memory["wl2size"][0])
        changed = "wl2size" if is_by_worklist else "goagain"
        counted_before = self.host.index("iter++") < self.host.index(f"{self.step_name}<<<")
        for number in range(MOST_STEPS):
            self.memory["iter"] = number + 1 if counted_before else number
            self.memory[changed][0] = 0
            self._launch(self.step_name, "blocks")
            if is_by_worklist:
                self._swap("wl1", "wl2")
                self.memory["wl1size"] = int(self.memory["wl2size"][0])
            for name, other in NEXT_OF.items():
                if f"swap(d_{name}" in self.host.lower():
                    self._swap(name, other)
            if not self.memory[changed][0] or self.findings:
                return
        raise LaunchFailed(f"still changes after {MOST_STEPS} launches")

    def _swap(self, name: str, other: str) -> None:
        self.memory[name], self.memory[other] = self.memory[other], self.memory[name]

    def _launch(self, name: str, blocks: str) -> None:
        """Launch a kernel with arguments by their names."""
        graph = self.graph
        arguments = list[Any]()
        for parameter in self.parameters[name]:
            if parameter == GRAPH:
                arguments += [graph.nodes, graph.nlist.size, graph.nindex, graph.nlist]
            else:
                arguments.append(self.memory[parameter.split()[-1].removeprefix("*")])
        found = launch(
            self._kernel(name),
            grid=(self._blocks(blocks),),
            block=THREADS_PER_BLOCK,
            arguments=arguments,
            source=self.source,
        )
        self.findings += [finding for finding in found.findings if finding.is_error]

    def _kernel(self, name: str) -> PtxKernel:
        [symbol] = re.findall(rf"\.entry (_Z\d+{name}\w*)\(", self.ptx)
        return load(self.ptx, symbol)

    def _blocks(self, text: str) -> int:
        """Return the number of blocks that an expression of the host code gives."""
        if text == "blocks":
            [text] = set(re.findall(r"const int blocks = (.*);", self.host))
        text = text.replace("(long)", "").replace("g.nodes", "nodes").replace("g.edges", "edges")
        sizes = {"nodes": self.graph.nodes, "edges": self.graph.nlist.size}
        return evaluate(text, {**CONSTANTS, **sizes, "wlsize": self.memory["wl1size"]})

    def is_planted(self, finding: Finding, bug: str) -> bool:
        """Return whether a finding names a line behind a comment that marks the bug."""
        lines = self.text.splitlines()
        for line in (finding.line, finding.other_line):
            if line and f"// {bug} here" in lines[line - 1 - BUGS[bug]]:
                return True
        return False

    @property
    def result(self) -> NDArray[np.int32]:
        """What the program computes, of the algorithm that its kernel's name states."""
        values: NDArray[np.int32] = self.memory["dist" if "bfs" in self.step_name else "label"]
        return values


def tried(path: Path, graph: Graph) -> Outcome:
    """Run a program, and return what the emulator found."""
    bug = "".join(bugs_of(path.stem))
    algorithm = path.stem.partition("_")[0]
    try:
        program = GraphProgram(path, graph)
        program.run()
    except WorklogError as error:
        return Outcome(path.stem, bug, error=str(error).partition("\n")[0])
    found = program.findings
    return Outcome(
        path.stem,
        bug,
        kinds=tuple(dict.fromkeys(finding.kind for finding in found)),
        line=found[0].line if found else 0,
        is_planted_line=any(program.is_planted(finding, bug) for finding in found),
        is_right=np.array_equal(program.result, graph.right(algorithm)),
        real_error="" if bug or not found else _real_error(path.stem),
    )


def _real_error(program: str) -> str:
    for beginning, explanation in REAL_ERRORS.items():
        if program.startswith(beginning):
            return explanation
    return ""


def counts(outcomes: Sequence[Outcome]) -> list[Mapping[str, Any]]:
    """Return how many programs of each algorithm and bug have errors."""
    rows = list[Mapping[str, Any]]()
    groups = Counter((outcome.program.partition("_")[0], outcome.bug) for outcome in outcomes)
    for (algorithm, bug), number in sorted(groups.items()):
        own = [o for o in outcomes if o.program.startswith(f"{algorithm}_") and o.bug == bug]
        row = {
            "algorithm": algorithm,
            "bug": bug,
            "programs": number,
            "with errors": sum(bool(outcome.kinds) for outcome in own),
            "at the marked line": sum(outcome.is_planted_line for outcome in own),
            "real errors": sum(bool(outcome.real_error) for outcome in own),
            "right results": sum(outcome.is_right for outcome in own),
            "not run": sum(bool(outcome.error) for outcome in own),
        }
        rows.append(row)
    return rows


@click.command()
@click.option(
    "--clone",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"A clone of {REPOSITORY}.",
)
@click.option("--commit", required=True, help="The clone's commit.")
def main(clone: Path, commit: str) -> None:
    """Run the programs, and write the table."""
    graph = random_graph()
    outcomes = list[Outcome]()
    with tempfile.TemporaryDirectory() as temporary:
        for path in generated(clone, Path(temporary)):
            outcomes.append(tried(path, graph))
            print(*asdict(outcomes[-1]).values(), file=sys.stderr, flush=True)
    document = recording.document(
        "indigo",
        counts(outcomes),
        repository=REPOSITORY,
        commit=commit,
        licence=LICENCE,
        programs=[asdict(outcome) for outcome in outcomes],
    )
    write_text(RECORDED, document)
    for row in document["rows"]:
        print(row)


if __name__ == "__main__":
    main()
