/* Copies in flight, as far as they order accesses to shared memory. Included by core.c alone.
 *
 * A copy that completes on an mbarrier writes on behalf of that: what a phase brought is known to those that saw it
 * complete. So its stamp has the mbarrier as its thread, behind those of the block, and the phase as its time. */
#ifndef WORKLOG_FLIGHT_H
#define WORKLOG_FLIGHT_H

#include "order.h"

typedef struct { /* of a cell of shared memory */
  int32_t flying;            /* the pc, plus 1, of a cp.async that has yet to write it */
  int32_t waiter;            /* who also waited for the cp.async that an mbarrier brought: that thread plus 1, and when */
  uint32_t landed;
} Busy;

typedef struct { /* one cp.async of a warp. lanes: those whose part is in flight */
  int64_t number;
  int32_t pc, width;
  uint32_t lanes;
  int32_t group[LANES];
  uint64_t place[LANES];
  uint8_t data[LANES][16];
} Copied;

typedef struct { /* arrivals of lanes of a warp once their cp.async before `upto` have landed. row: what these lanes know */
  int32_t barrier, pc, warp, agents, due;
  uint32_t lanes;
  int64_t upto;
  uint32_t *row;
} Tracked;

/* phase: that of complete phases. waited: phases that some thread saw complete; refused: some thread waits for this one.
 * fenced: its initialisation is visible to copies. expected: the last expect_tx. gathered, done: what those that arrive
 * know, and what those that wait learn. */
typedef struct {
  int64_t start, count, pending, bytes, phase, waited;
  int32_t owner, pc, alive, fenced, refused, expected_pc, expected_thread;
  uint32_t clock;
  uint32_t *gathered, *done;
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

struct Async {
  Busy *busy;
  int32_t *group, *bulk_group; /* by thread, how many it has committed */
  int64_t issued;
  struct {
    Copied *all;
    int32_t count;
  } flights[MOST_WARPS];
  Tracked *tracked;
  Mbarrier *mbarriers;
  Box *loads, *stores;
  int32_t tracked_count, mbarriers_count, loads_count, stores_count;
};

/* Of a block, made at its first use; NULL if there is no memory. */
static Async *async_of(Launch *l, Block *b) {
  if (b->async) return b->async;
  size_t threads = (size_t)threads_of(b);
  Async *new = b->async = room(l, sizeof *new);
  if (!new) return NULL;
  new->busy = room(l, sizeof *new->busy * ((size_t)l->shared_size / (size_t)l->grain + 1));
  new->group = room(l, sizeof *new->group * threads);
  new->bulk_group = room(l, sizeof *new->bulk_group * threads);
  return l->status ? NULL : new;
}

static void forget_async(Block *b) {
  Async *own = b->async;
  if (!own) return;
  for (int k = 0; k < MOST_WARPS; k++) free(own->flights[k].all);
  for (int k = 0; k < own->tracked_count; k++) free(own->tracked[k].row);
  for (int k = 0; k < own->mbarriers_count; k++) free(own->mbarriers[k].gathered), free(own->mbarriers[k].done);
  for (int k = 0; k < own->loads_count; k++) free(own->loads[k].data);
  void *lists[] = {own->busy, own->group, own->bulk_group, own->tracked, own->mbarriers, own->loads, own->stores};
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) free(lists[k]);
  free(own);
  b->async = NULL;
}

/* Tell with numbers, which Python names. */
static void tell_numbers(Launch *l, const Block *b, int32_t kind, int32_t pc, int32_t other, int thread, const int64_t *numbers) {
  Event *event = tell(l, kind, pc, other, 1);
  if (!event) return;
  event->block = b->number, event->thread = thread, event->value = l->shared_size;
  memcpy(event->numbers, numbers, sizeof event->numbers);
}

/* Of cell `place`, an event of a thread of the block. */
static void tell_cell(Launch *l, const Block *b, int32_t kind, int32_t pc, int32_t other, int thread, uint64_t place) {
  Event *event = tell(l, kind, pc, other, 1);
  if (event) event->block = b->number, event->thread = thread, event->value = (int64_t)place * l->grain;
}

/* An access of a cell while copies are in flight. */
static void check_flight(Launch *l, Block *b, int32_t pc, int thread, uint64_t place, int writes) {
  const Busy *busy = &b->async->busy[place];
  const Stamp *last = &b->cells[place].write;
  int64_t agent = (int64_t)last->thread - 1 - b->base;
  if (busy->flying) tell_cell(l, b, IN_FLIGHT, pc, busy->flying - 1, thread, place);
  if (last->thread && agent >= threads_of(b) && !knows(l, b, thread, (int)agent, last->time))
    if (!busy->waiter || !knows(l, b, thread, busy->waiter - 1, busy->landed))
      tell_cell(l, b, writes ? OVERWRITTEN_EARLY : READ_EARLY, pc, last->pc, thread, place);
}

/* Whether a copy has been issued that has yet to write a cell, or had when it was last written. */
static inline int comes(const Block *b, uint64_t place) {
  if (!b->async) return 0;
  return b->async->busy[place].flying || (int64_t)b->cells[place].write.thread - 1 - b->base >= threads_of(b);
}

/* A cell has been brought by a phase of an mbarrier. */
static void bring(Block *b, int32_t pc, uint64_t place, int barrier, int64_t phase) {
  uint32_t agent = b->base + (uint32_t)(threads_of(b) + barrier) + 1;
  b->cells[place] = (Cell){.write = {agent, (uint32_t)phase, pc}};
  b->async->busy[place].waiter = 0;
}

#endif
