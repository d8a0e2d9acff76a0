"""Programs in the form of Indigo3's: their races are found at the lines that a comment marks."""

import json

import numpy as np
import pytest

from tests.record.indigo import (
    RECORDED,
    Graph,
    GraphProgram,
    bugs_of,
    counts,
    random_graph,
    tried,
)

# Distances by a worklist, in the suite's form: {read} and {write} access a node's distance.
PROGRAM = """typedef int basic_t;
typedef int data_type;
static const int ThreadsPerBlock = 512;
#include "indigo_bfs_vertex_cuda.h"
static __global__ void init(const int src, data_type* const dist, const int size)
{
  const int v = threadIdx.x + blockIdx.x * ThreadsPerBlock;
  if (v < size) dist[v] = v == src ? 0 : maxval;
}
static __global__ void bfs(const ECLgraph g, data_type* const dist, int* const goagain)
{
  const int v = threadIdx.x + blockIdx.x * ThreadsPerBlock;
  if (v >= g.nodes) return;
  // RaceBug here
  const data_type s = READ;
  if (s == maxval) return;
  for (int i = g.nindex[v]; i < g.nindex[v + 1]; ++i) {
    if (atomicMin(&dist[g.nlist[i]], s + 1) > s + 1) atomicWrite(goagain, 1);
  }
}
static double GPUbfs(const int src, const ECLgraph g, basic_t* const dist)
{
  const int blocks = (g.nodes + ThreadsPerBlock - 1) / ThreadsPerBlock;
  init<<<blocks, ThreadsPerBlock>>>(src, d_dist, g.nodes);
  do {
    bfs<<<blocks, ThreadsPerBlock>>>(g, d_dist, d_goagain);
    iter++;
  } while (goagain);
}
"""
RIGHT = "BFS_CUDA_Atomic_NoBoundsBug"
RACED = "BFS_CUDA_RaceBug_NoBoundsBug"


@pytest.fixture(scope="module")
def graph():
    return random_graph()


@pytest.fixture
def outcome(graph, tmp_path):
    """Return a function that runs the program with another way to read a distance."""

    def run(name: str, read: str):
        path = tmp_path / f"{name}.cu"
        path.write_text(PROGRAM.replace("READ", read))
        return tried(path, graph)

    return run


def test_a_program_without_a_bug_is_right_and_nothing_is_found(outcome):
    found = outcome(RIGHT, "atomicRead(&dist[v])")
    assert (found.bug, found.kinds, found.is_right, found.error) == ("", (), True, "")


def test_a_race_is_found_at_the_marked_line(outcome):
    found = outcome(RACED, "dist[v]")
    assert (found.bug, found.kinds, found.is_planted_line) == ("RaceBug", ("global-race",), True)


def test_a_finding_at_another_line_is_not_the_planted_one(outcome):
    found = outcome(RACED, "atomicRead(&dist[v]);\n  goagain[0] = v")
    assert found.kinds and not found.is_planted_line


def test_a_program_that_does_not_compile_or_end_is_not_run(outcome, graph):
    missing = outcome(RIGHT, "no_such_function(v)")
    assert "no_such_function" in missing.error and not missing.kinds
    endless = outcome(RIGHT, "atomicRead(&dist[v]); goagain[0] = 1")
    assert endless.error or endless.kinds
    rows = counts([missing])
    assert [(row["programs"], row["not run"]) for row in rows] == [(1, 1)]


def test_the_graph_has_each_edge_in_both_directions(graph):
    pairs = set(zip(graph.sources.tolist(), graph.nlist.tolist(), strict=True))
    assert pairs == {(b, a) for a, b in pairs} and len(pairs) == graph.nlist.size
    line = Graph(np.array([0, 1, 3, 4, 4], np.int32), np.array([1, 0, 2, 1], np.int32))
    assert line.right("BFS").tolist() == [0, 1, 2, 2**31 - 1]
    assert line.right("CC").tolist() == [0, 0, 0, 3]


def test_the_bugs_are_those_that_the_name_lists():
    assert bugs_of("CC_CUDA_RaceBug_NoBoundsBug_FieldBug") == ["RaceBug", "FieldBug"]


def test_the_memory_of_a_program_is_the_graphs(graph, tmp_path):
    path = tmp_path / f"{RIGHT}.cu"
    path.write_text(PROGRAM.replace("READ", "dist[v]"))
    program = GraphProgram(path, graph)
    assert program.step_name == "bfs" and program.result.size == graph.nodes


def test_each_planted_bug_is_in_the_table_with_its_line_and_no_right_program_has_a_false_one():
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]
    assert {(row["algorithm"], row["bug"]) for row in rows} >= {
        ("BFS", "RaceBug"),
        ("CC", "RaceBug"),
    }
    for row in rows:
        assert row["not run"] == 0
        if row["bug"]:
            assert row["programs"] == row["with errors"] == row["at the marked line"]
        else:
            assert row["with errors"] == row["real errors"]
            assert row["right results"] == row["programs"] - row["real errors"]
