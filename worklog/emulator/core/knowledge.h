/* What threads know of each other beyond barriers of the whole block. Included by core.c alone.
 *
 * A block's clock ticks at whatever orders its threads, and an access keeps its time. An agent is a thread of the
 * block, or `threads` plus the number of an mbarrier. A thread's row holds for each agent the time up to which what that
 * did is ordered before what the thread does next (Mattern, "Virtual Time and Global States", 1989). Rows exist only
 * where something smaller than the block's barrier orders threads, until that barrier.
 *
 * Hand-over through flags: PTX ISA, "Release and Acquire Patterns". Between blocks, clock.h says what counts. */
#ifndef WORKLOG_KNOWLEDGE_H
#define WORKLOG_KNOWLEDGE_H

#include "clock.h"

enum { RELEASES = 1, ACQUIRES = 2, WITHIN_BLOCK = 4, UNCACHED = 8 }; /* bits of a site's order */

static uint32_t *row_of(Launch *l, Block *b, uint32_t **row) {
  if (!*row) *row = room(l, sizeof **row * (size_t)b->agents);
  b->learned = 1;
  return *row;
}

/* Later accesses are not part of what a thread has just released. */
static void tick(Block *b) { b->clock++; }

/* Rows. */

/* What a thread knows goes into a row, and what it did itself up to a time. */
static void collect(Block *b, uint32_t *row, int thread, uint32_t time) {
  const Knowledge *own = &b->knowledge[thread];
  uint32_t warp = b->warps[thread / LANES].time - 1;
  if (own->row) add_row(row, own->row, b->agents);
  for (int k = threads_of(b); k < b->agents; k++) row[k] = row[k] > b->common[k] ? row[k] : b->common[k];
  for (int k = thread / LANES * LANES; k < (thread / LANES + 1) * LANES; k++) row[k] = row[k] > warp ? row[k] : warp;
  if (time > row[thread]) row[thread] = time;
}

/* A row gets what a thread knows and did. It also counts for those of its block that learn next. */
static void gather(Launch *l, Block *b, uint32_t *row, int thread) {
  Knowledge *own = &b->knowledge[thread];
  collect(b, row, thread, b->clock);
  if (!l->fences) return;
  publish_before(b, thread, 1, own->wide);
  add_clock(l, &b->known, own->known);
  add_clock(l, &b->shown, own->seen);
}

/* A thread knows what a row holds. */
static void learn(Launch *l, Block *b, int thread, const uint32_t *row) {
  Knowledge *own = &b->knowledge[thread];
  uint32_t *known = row_of(l, b, &own->row);
  if (known) add_row(known, row, b->agents);
  if (!l->fences) return;
  add_clock(l, &own->known, b->known);
  add_clock(l, &own->seen, b->shown);
}

/* Whether what an agent did at a time is ordered before what a thread does now. */
static int knows(const Launch *l, const Block *b, int thread, int agent, uint32_t time) {
  const uint32_t *row = b->knowledge[thread].row;
  (void)l;
  if (agent == thread) return 1;
  if (agent >= threads_of(b)) return time <= b->common[agent] || (row && time <= row[agent]);
  if (time < b->time || (row && time <= row[agent])) return 1;
  return agent / LANES == thread / LANES && time < b->warps[agent / LANES].time;
}

/* Make room for a number of agents: more mbarriers. */
static void widen(Launch *l, const Block *b, uint32_t **row, int agents) {
  uint32_t *wider = *row ? room(l, sizeof *wider * (size_t)agents) : NULL;
  if (!wider) return;
  memcpy(wider, *row, sizeof *wider * (size_t)b->agents);
  free(*row);
  *row = wider;
}

static void make_room(Launch *l, Block *b, int agents) {
  if (agents <= b->agents) return;
  widen(l, b, &b->common, agents);
  for (int k = 0; k < threads_of(b); k++) {
    widen(l, b, &b->knowledge[k].row, agents);
    widen(l, b, &b->knowledge[k].shown, agents);
  }
  for (int k = 0; k < BARRIERS; k++) widen(l, b, &b->named[k], agents);
  for (int64_t k = 0; k < b->flags.size; k++) widen(l, b, &b->flags.all[k].row, agents);
  if (l->status != NO_MEMORY) b->agents = agents;
}

/* Barriers. */

/* All threads of a block have met. */
static void meet_block(Launch *l, Block *b) {
  int threads = threads_of(b);
  for (int k = 0; k < threads && l->fences; k++) {
    const Knowledge *own = &b->knowledge[k], *before = &b->knowledge[k ? k - 1 : 0];
    publish_before(b, k, 1, own->wide);
    if (!k || own->known != before->known) add_clock(l, &b->known, own->known);
    if (!k || own->seen != before->seen) add_clock(l, &b->shown, own->seen);
  }
  for (int k = 0; k < threads && (b->known || b->shown); k++) {
    add_clock(l, &b->knowledge[k].known, b->known);
    add_clock(l, &b->knowledge[k].seen, b->shown);
  }
  for (int k = 0; k < threads && b->learned; k++) {
    Knowledge *own = &b->knowledge[k];
    if (own->row) add_row(b->common + threads, own->row + threads, b->agents - threads);
    if (own->shown) add_row(b->common + threads, own->shown + threads, b->agents - threads);
    free(own->row);
    free(own->shown);
    own->row = own->shown = NULL;
  }
  b->learned = 0;
  tick(b);
  b->time = b->clock;
  for (int k = 0; k < b->warps_count; k++) b->warps[k].time = b->time;
}

/* Lanes of a block, by warp, have come to the barrier of a number; those that are released learn it. */
static void meet_some(Launch *l, Block *b, int number, const uint32_t *arrived, const uint32_t *released) {
  uint32_t *row = row_of(l, b, &b->named[number]);
  for (int released_too = 0; row && released_too < 2; released_too++) {
    for (int k = 0; k < threads_of(b); k++) {
      uint32_t lanes = (released_too ? released : arrived)[k / LANES];
      if (!(lanes >> k % LANES & 1)) continue;
      if (released_too) learn(l, b, k, row);
      else gather(l, b, row, k);
    }
  }
  tick(b);
}

/* Lanes of a warp have met. */
static void meet_lanes(Launch *l, Block *b, Warp *w, uint32_t lanes) {
  int first = (int)(w - b->warps) * LANES;
  uint32_t all = w->started;
  if (lanes != all || b->learned || l->fences) {
    uint32_t *row = room(l, sizeof *row * (size_t)b->agents);
    Clock *known = NULL, *seen = NULL;
    for (int k = 0; row && k < LANES; k++) {
      Knowledge *own = &b->knowledge[first + k];
      if (!(lanes >> k & 1)) continue;
      collect(b, row, first + k, b->clock);
      publish_before(b, first + k, 1, own->wide);
      add_clock(l, &known, own->known);
      add_clock(l, &seen, own->seen);
    }
    for (int k = 0; row && k < LANES; k++) {
      Knowledge *own = &b->knowledge[first + k];
      if (!(lanes >> k & 1)) continue;
      add_clock(l, &own->known, known);
      add_clock(l, &own->seen, seen);
      if ((lanes != all || b->learned) && row_of(l, b, &own->row)) add_row(own->row, row, b->agents);
    }
    drop(known);
    drop(seen);
    free(row);
  }
  tick(b);
  if (lanes == all) w->time = b->clock;
}

/* Fences and flags. */

/* What threads did is released by their next strong write. wide: for other blocks, too. */
static void release_fence(const Launch *l, Block *b, Warp *w, uint32_t lanes, int wide) {
  int first = (int)(w - b->warps) * LANES;
  if (!l->fences) return;
  if (wide) publish_before(b, 0, threads_of(b), b->time - 1);
  if (wide) publish_before(b, first, LANES, w->time - 1);
  for (int k = first; k < first + LANES; k++) {
    Knowledge *own = &b->knowledge[k];
    if (!(lanes >> (k - first) & 1)) continue;
    own->fence = b->clock;
    if (wide) own->wide = b->clock;
    for (int j = 0; wide && own->row && j < threads_of(b); j++) publish_before(b, j, 1, own->row[j]);
  }
}

/* What strong reads have shown to these threads is known. */
static void acquire_fence(Launch *l, Block *b, const Warp *w, uint32_t lanes, int wide) {
  int first = (int)(w - b->warps) * LANES;
  for (int k = first; k < first + LANES; k++) {
    Knowledge *own = &b->knowledge[k];
    if (!(lanes >> (k - first) & 1)) continue;
    if (own->shown && row_of(l, b, &own->row)) add_row(own->row, own->shown, b->agents);
    if (wide) add_clock(l, &own->known, own->seen);
  }
}

static int fence(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  (void)pc;
  acquire_fence(l, b, w, mask, i->op);
  release_fence(l, b, w, mask, i->op);
  tick(b);
  return NEXT;
}

/* A strong access of a lane: it sees what others released at a place of shared or global memory, and releases. */
static void hand_over(Launch *l, Block *b, Warp *w, const Site *s, int lane, uint64_t place) {
  int thread = (int)(w - b->warps) * LANES + lane, wide = !(s->order & WITHIN_BLOCK);
  Knowledge *own = &b->knowledge[thread];
  uint64_t within = place << 1 | (s->space == SHARED);
  if (s->order & RELEASES) release_fence(l, b, w, 1u << lane, wide);
  Flag *here = find_flag(l, &b->flags, within, 0), *there = here;
  if (s->space != SHARED) there = find_flag(l, &l->between->flags, place, 0);
  if (s->op != STORE) {
    if (here && here->row && row_of(l, b, &own->shown)) add_row(own->shown, here->row, b->agents);
    if (there) add_clock(l, &own->seen, there->clock);
    if (s->order & ACQUIRES) acquire_fence(l, b, w, 1u << lane, wide);
  }
  if (s->op == LOAD) return;
  /* A store replaces what the flag had handed over: the value that is read counts. An atomic hands that on. */
  if (here && here->row && s->op == STORE) memset(here->row, 0, sizeof *here->row * (size_t)b->agents);
  if (own->fence && (here = find_flag(l, &b->flags, within, 1))) {
    if (!here->row) here->row = room(l, sizeof *here->row * (size_t)b->agents);
    if (here->row) collect(b, here->row, thread, own->fence);
  }
  Flags *flags = s->space == SHARED ? &b->flags : &l->between->flags;
  Clock *released = published(l, b, thread), *clock = joined(l, own->known, released);
  if (clock || there) there = find_flag(l, flags, s->space == SHARED ? within : place, 1);
  if (there && s->op == STORE) put_clock(&there->clock, hold(clock));
  else if (there) add_clock(l, &there->clock, clock);
  drop(released);
  drop(clock);
  tick(b);
}

/* Whether flags order an access before what a thread does now. lenient: without a fence after the flag was seen. */
static int handed_over(const Launch *l, const Block *b, int64_t block, int thread, uint32_t time, int by, int lenient) {
  const Knowledge *own = &b->knowledge[by];
  if (block == b->number && own->row && time <= own->row[thread]) return 1;
  if (block == b->number && lenient && own->shown && time <= own->shown[thread]) return 1;
  if (!l->fences) return 0;
  return clock_knows(own->known, block, thread, time) || (lenient && clock_knows(own->seen, block, thread, time));
}

/* Memory. */

static void forget(Block *b) {
  for (int k = 0; b->knowledge && k < threads_of(b); k++) {
    Knowledge *own = &b->knowledge[k];
    free(own->row);
    free(own->shown);
    drop(own->known);
    drop(own->seen);
    *own = (Knowledge){0};
  }
  for (int64_t k = 0; k < b->flags.size; k++) {
    free(b->flags.all[k].row);
    drop(b->flags.all[k].clock);
  }
  free(b->flags.all);
  b->flags = (Flags){0};
  put_clock(&b->known, NULL);
  put_clock(&b->shown, NULL);
  put_clock(&b->release, NULL);
  for (int k = 0; k < BARRIERS; k++) {
    free(b->named[k]);
    b->named[k] = NULL;
  }
  b->last = NULL;
  b->learned = b->news = 0;
  if (b->common) memset(b->common, 0, sizeof *b->common * (size_t)b->agents);
  if (b->published) memset(b->published, 0, sizeof *b->published * (size_t)threads_of(b));
}

/* For a block. Whether there is memory. */
static int know(Launch *l, Block *b) {
  b->agents = threads_of(b);
  b->knowledge = room(l, sizeof *b->knowledge * (size_t)b->agents);
  b->common = room(l, sizeof *b->common * (size_t)b->agents);
  b->published = room(l, sizeof *b->published * (size_t)b->agents);
  if (!l->between) l->between = room(l, sizeof *l->between);
  return l->status != NO_MEMORY;
}

#endif
