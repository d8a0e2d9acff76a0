/* Asynchronous accesses to shared memory: what orders the others with them. Included by core.c
 * alone.
 *
 * A copy that completes on an mbarrier writes on behalf of that: what a phase brought is known to
 * those that saw it complete. So its stamp has the mbarrier as its thread, behind those of the
 * block, and the phase as its time.
 *
 * wgmma and bulk copies to global memory read after their instruction. PTX ISA, "Async proxy": what
 * threads write is visible to them after fence.proxy.async. */
#ifndef WORKLOG_FLIGHT_H
#define WORKLOG_FLIGHT_H

#include "vector_clock.h"

typedef struct {  /* of a cell of shared memory */
  int32_t flying; /* the pc, plus 1, of a cp.async that has yet to write it */
  /* who also waited for the cp.async that an mbarrier brought: that thread plus 1, and when */
  int32_t waiter;
  uint32_t landed;
  int32_t readers, reader; /* asynchronous reads that may go on, and the instruction of one */
  int32_t initialised;     /* the pc, plus 1, of the mbarrier.init of which it holds the mbarrier */
} CellState;

typedef struct { /* one cp.async of a warp. lanes: those whose part is in flight */
  int64_t number;
  int32_t pc, width;
  uint32_t lanes;
  int32_t group[LANES];
  uint64_t place[LANES];
  uint8_t data[LANES][16];
} AsyncCopy;

typedef struct { /* arrivals of lanes of a warp once their cp.async before `first_later` have landed
                  */
  int32_t barrier, pc, warp, due;
  uint32_t lanes;
  int64_t first_later;
} PendingArrival;

/* phase: that of complete phases. waited: phases that some thread saw complete; refused: some
 * thread waits for this one. fenced: its initialisation is visible to copies. expected: the last
 * expect_tx. gathered, done: what those that arrive know, and what those that wait learn. */
typedef struct {
  int64_t start, count, pending, bytes, phase, waited;
  int32_t owner, pc, alive, fenced, refused, expected_pc, expected_thread;
  int32_t remote_pc, remote_thread; /* of the last arrival from another block; the pc plus 1 */
  uint32_t clock, remote_time;
  VectorClock gathered, done;
} Mbarrier;

typedef struct { /* a bulk copy of a thread, and which one: the box at a corner */
  Layout layout;
  int64_t corner[5], start, size;
  uint64_t address;
  Buffer *buffer;
  int32_t pc, thread, group, barrier;
  int64_t phase;
  uint8_t *data; /* of a copy to shared memory */
} Box;

/* A wgmma that its warp has not waited for. reads: which of A and B from shared memory. */
typedef struct {
  int32_t warp, pc, group, reads;
  uint64_t descriptors[2];
} Product;

struct Async {
  CellState *states;
  int32_t *group, *bulk_group; /* by thread, how many it has committed */
  uint32_t *proxied;           /* by thread: when it executed fence.proxy.async last */
  int64_t issued;
  struct {
    AsyncCopy *all;
    int32_t count;
  } flights[MOST_WARPS];
  PendingArrival *tracked;
  Mbarrier *mbarriers;
  Box *loads, *stores;
  Product *products;
  int32_t tracked_count, mbarriers_count, loads_count, stores_count, products_count;
};

/* Of a block, made at its first use; NULL if there is no memory. */
static Async *async_of(Launch *l, Block *b) {
  if (b->async)
    return b->async;
  size_t threads = (size_t)threads_of(b), cells = (size_t)l->shared_size / (size_t)l->grain + 1;
  Async *new = room(l, &b->chunks, sizeof *new);
  if (!new)
    return NULL;
  new->states = room(l, &b->chunks, sizeof *new->states *cells);
  new->group = room(l, &b->chunks, sizeof *new->group *threads);
  new->bulk_group = room(l, &b->chunks, sizeof *new->bulk_group *threads);
  new->proxied = room(l, &b->chunks, sizeof *new->proxied *threads);
  if (!l->status)
    b->async = new;
  return b->async;
}

/* The mbarrier, as an agent, that a cell was last written for; 0 if a thread wrote it. */
static inline int publisher(const Block *b, uint64_t place) {
  int64_t agent = (int64_t)b->shared.cells[place].write.thread - 1 - b->base;
  return agent >= threads_of(b) ? (int)agent : 0;
}

/* A thread accesses a cell while copies and asynchronous reads are in flight. */
static void check_flight(Launch *l, Block *b, int32_t pc, int thread, uint64_t place, int writes) {
  const CellState *state = &b->async->states[place];
  const Stamp *last = &b->shared.cells[place].write;
  int agent = publisher(b, place);
  uint64_t byte = place * (uint64_t)l->grain;
  if (state->flying)
    report_thread(l, b, IN_FLIGHT, pc, state->flying - 1, thread, (int64_t)byte, NULL);
  int waited = state->waiter && knows(b, thread, state->waiter - 1, state->landed);
  if (agent && !waited && !knows(b, thread, agent, last->time))
    report_thread(l, b, writes ? OVERWRITTEN_EARLY : READ_EARLY, pc, last->pc, thread,
                  (int64_t)byte, NULL);
  if (writes && state->initialised)
    report_thread(l, b, MBARRIER_OVERWRITTEN, pc, state->initialised - 1, thread, (int64_t)byte,
                  NULL);
  if (writes && state->readers)
    report_thread(l, b, STILL_READ, pc, state->reader, thread, (int64_t)byte, NULL);
}

/* Whether nothing has written a cell, and no copy has been issued that will. */
static inline int is_empty(const Block *b, uint64_t place) {
  return !b->shared.written[place] &&
         !(b->async && (b->async->states[place].flying || publisher(b, place)));
}

/* A phase of an mbarrier has written a cell: those that acquire the phase may access it. */
static void publish_cell(Block *b, int32_t pc, uint64_t place, int barrier, int64_t phase) {
  uint32_t agent = b->base + (uint32_t)(threads_of(b) + barrier) + 1;
  b->shared.cells[place] = (Cell){.write = {agent, (uint32_t)phase, pc}};
  b->async->states[place].waiter = 0;
}

#endif
