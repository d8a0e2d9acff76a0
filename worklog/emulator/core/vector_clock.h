/* What threads know of each other. Included by core.c alone: one unit compiles to faster code.
 *
 * A block's clock ticks at whatever orders its threads, and an access keeps its time. An agent is a
 * thread of the block, or `threads` plus the number of an mbarrier. A thread's view holds for each
 * agent the time up to which what that did is ordered before what the thread does next (Mattern,
 * "Virtual Time and Global States", 1989). Of other blocks it holds the rows that they published.
 * The block's own barrier needs no views: Block.time counts, and Warp.time.
 *
 * Hand-over through flags: PTX ISA, "Release and Acquire Patterns". */
#ifndef WORKLOG_VECTOR_CLOCK_H
#define WORKLOG_VECTOR_CLOCK_H

#include "state.h"

/* bits of a site's order */
enum { RELEASES = 1, ACQUIRES = 2, WITHIN_BLOCK = 4, UNCACHED = 8, MOVED = 16 };
enum { MOST_TIMES = 1 << 22 }; /* of a launch, until `forget` */

/* Later accesses are not part of what a thread has just released. */
static void tick(Block *b) { b->clock++; }

/* Views. */

/* The time of an agent; 0 beyond the last one. */
static uint32_t time_of(const Times *t, int agent) {
  return agent >= 0 && agent < t->size ? t->time[agent] : 0;
}

/* Whether there are times of this many agents. */
static int widen(Launch *l, Chunk **chunks, Times *t, int agents) {
  if (agents > t->room) {
    int wider = agents + agents / 4 + 8;
    uint32_t *time = room(l, chunks, sizeof *time * (size_t)wider);
    if (!time)
      return 0;
    if (t->size)
      memcpy(time, t->time, sizeof *time * (size_t)t->size);
    t->time = time;
    t->room = wider;
    l->times += wider;
  }
  for (; t->size < agents; t->size++)
    t->time[t->size] = 0;
  return 1;
}

/* Set an agent's time, unless it is later already. */
static void vc_set(Launch *l, Chunk **chunks, Times *t, int agent, uint32_t time) {
  if (widen(l, chunks, t, agent + 1) && time > t->time[agent])
    t->time[agent] = time;
}

/* Set the times of agents from a number on to the later of two. */
static void join_times(Launch *l, Chunk **chunks, Times *t, const Times *more, int from) {
  if (more->size <= from || !widen(l, chunks, t, more->size))
    return;
  /* Nothing that is stored can change local pointers, so the compiler takes 8 times at once. */
  uint32_t *time = t->time;
  const uint32_t *other = more->time;
  for (int k = from, end = more->size; k < end; k++)
    time[k] = other[k] > time[k] ? other[k] : time[k];
}

/* Drop rows of other blocks that were forgotten since. */
static void renew(const Launch *l, View *v) {
  if (v->forgotten != l->forgotten)
    v->others.size = 0;
  v->forgotten = l->forgotten;
}

/* The rows of other blocks in a view, none if they were forgotten since. */
static const Times *others_of(const Launch *l, const View *v) {
  static const Times none = {0};
  return v->forgotten == l->forgotten ? &v->others : &none;
}

/* A view also has what another one has, of agents of the block from a number on. */
static void vc_join(Launch *l, Chunk **chunks, View *v, const View *more, int from) {
  join_times(l, chunks, &v->own, &more->own, from);
  renew(l, v);
  join_times(l, chunks, &v->others, others_of(l, more), 0);
}

/* Drop all times of a view. */
static void vc_clear(View *v) { v->own.size = v->others.size = 0; }

/* A view gets what lanes of a warp know, and what they did themselves up to a time. */
static void vc_release_view(Launch *l, Block *b, View *v, int warp, uint32_t lanes, uint32_t time) {
  vc_join(l, &b->chunks, v, &b->common.known, 0);
  widen(l, &b->chunks, &v->own, threads_of(b));
  for (int k = 0; k < LANES; k++)
    vc_set(l, &b->chunks, &v->own, warp * LANES + k, b->warps[warp].time - 1);
  FOR_LANES(k, lanes) {
    vc_join(l, &b->chunks, v, &b->clocks[warp * LANES + k].known, 0);
    vc_set(l, &b->chunks, &v->own, warp * LANES + k, time);
  }
}

/* Publish for other blocks what threads did up to a time. */
static void publish(Block *b, int first, int count, uint32_t time) {
  for (int k = first; k < first + count; k++)
    if (time > b->published[k]) {
      b->published[k] = time;
      b->news = 1;
    }
}

/* Those who meet know what lanes of a warp know and did. */
static void vc_release(Launch *l, Block *b, VectorClock *all, int warp, uint32_t lanes) {
  vc_release_view(l, b, &all->known, warp, lanes, b->clock);
  FOR_LANES(k, lanes) {
    const VectorClock *own = &b->clocks[warp * LANES + k];
    vc_join(l, &b->chunks, &all->shown, &own->shown, 0);
    if (l->fences)
      publish(b, warp * LANES + k, 1, own->wide);
  }
}

/* Lanes of a warp know what those who met knew. */
static void vc_acquire(Launch *l, Block *b, int warp, uint32_t lanes, const VectorClock *all) {
  FOR_LANES(k, lanes) {
    vc_join(l, &b->chunks, &b->clocks[warp * LANES + k].known, &all->known, 0);
    vc_join(l, &b->chunks, &b->clocks[warp * LANES + k].shown, &all->shown, 0);
    b->has_acquired |= all->known.own.size;
  }
}

/* Whether what an agent of the block did at a time is ordered before what a thread does now. */
static int knows(const Block *b, int thread, int agent, uint32_t time) {
  if (agent == thread)
    return 1;
  if (agent < threads_of(b) && time < b->time)
    return 1;
  if (agent / LANES == thread / LANES && time < b->warps[agent / LANES].time)
    return 1;
  return time <= time_of(&b->clocks[thread].known.own, agent) ||
         time <= time_of(&b->common.known.own, agent);
}

/* Whether flags order an access before what a thread does now. lenient: without a fence after the
 * flag was seen. */
static int handed_over(const Launch *l, const Block *b, int block, int thread, uint32_t time,
                       int by, int lenient) {
  const VectorClock *own = &b->clocks[by], *all = &b->common;
  const View *views[] = {&own->known, &all->known, &own->shown, &all->shown};
  if (block != b->order && l->fences && time <= l->between->blocks[block].until)
    return 1;
  for (int k = 0; k < (lenient ? 4 : 2); k++) {
    uint32_t rows = time_of(others_of(l, views[k]), block - l->between->first);
    if (block == b->order && time <= time_of(&views[k]->own, thread))
      return 1;
    if (rows && time <= l->between->blocks[block].rows[rows - 1][thread])
      return 1;
  }
  return 0;
}

/* Barriers. */

/* All threads of a block have met: what mbarriers and other blocks did is known to all. */
static void meet_block(Launch *l, Block *b) {
  int threads = threads_of(b);
  for (int k = 0; k < threads && (b->has_acquired || l->fences); k++) {
    VectorClock *own = &b->clocks[k];
    publish(b, k, 1, own->wide);
    vc_join(l, &b->chunks, &b->common.known, &own->known, threads);
    vc_join(l, &b->chunks, &b->common.shown, &own->shown, threads);
    vc_clear(&own->known);
    vc_clear(&own->shown);
  }
  b->has_acquired = 0;
  tick(b);
  b->time = b->clock;
  for (int k = 0; k < b->warps_count; k++)
    b->warps[k].time = b->time;
}

/* Lanes of a warp have met. */
static void meet_lanes(Launch *l, Block *b, Warp *w, uint32_t lanes) {
  int warp = number_of_warp(b, w), whole = lanes == w->started;
  if (!whole || b->has_acquired || l->fences) {
    vc_release(l, b, &b->meeting, warp, lanes);
    if (whole && !b->has_acquired)
      b->meeting.known.own.size = 0; /* Warp.time says it */
    vc_acquire(l, b, warp, lanes, &b->meeting);
  }
  vc_clear(&b->meeting.known);
  vc_clear(&b->meeting.shown);
  tick(b);
  if (whole)
    w->time = b->clock;
}

/* Fences and flags. */

/* What threads did is released by their next strong write. wide: for other blocks, too. */
static void release_fence(const Launch *l, Block *b, const Warp *w, uint32_t lanes, int wide) {
  int first = first_of(b, w);
  if (!l->fences)
    return;
  if (wide)
    publish(b, 0, threads_of(b), b->time - 1);
  if (wide)
    publish(b, first, LANES, w->time - 1);
  FOR_LANES(k, lanes) {
    VectorClock *own = &b->clocks[first + k];
    own->fence = b->clock;
    if (!wide)
      continue;
    own->wide = b->clock;
    for (int j = 0; j < threads_of(b) && j < own->known.own.size; j++)
      publish(b, j, 1, own->known.own.time[j]);
  }
}

/* What strong reads have shown to these threads is known. */
static void acquire_fence(Launch *l, Block *b, const Warp *w, uint32_t lanes, int wide) {
  FOR_LANES(k, lanes) {
    VectorClock *own = &b->clocks[first_of(b, w) + k];
    const View *shown[] = {&own->shown, &b->common.shown};
    for (int n = 0; n < 2; n++) {
      View view = *shown[n];
      if (!wide)
        view.others.size = 0;
      vc_join(l, &b->chunks, &own->known, &view, 0);
    }
  }
}

/* A fence: it acquires, and then releases. */
static int fence(Launch *l, Block *b, Warp *w, int wide, uint32_t mask) {
  acquire_fence(l, b, w, mask, wide);
  release_fence(l, b, w, mask, wide);
  tick(b);
  return NEXT;
}

/* The flag at a place of a hash table; NULL if there is none, and none is made. */
static Flag *flag_at(Launch *l, Chunk **chunks, Flags *flags, uint64_t place, int make) {
  if (!flags->size && !make)
    return NULL;
  if (2 * flags->count >= flags->size) {
    Flags wider = {.size = flags->size ? 2 * flags->size : 64};
    wider.all = room(l, chunks, sizeof *wider.all * (size_t)wider.size);
    if (!wider.all)
      return NULL;
    l->times += wider.size * (int64_t)(sizeof *wider.all / sizeof(uint32_t));
    for (int64_t k = 0; k < flags->size; k++)
      if (flags->all[k].used)
        *flag_at(l, chunks, &wider, flags->all[k].place, 1) = flags->all[k];
    *flags = wider;
  }
  for (uint64_t at = place * 0x9E3779B97F4A7C15u >> 20;; at++) {
    Flag *flag = &flags->all[at % (uint64_t)flags->size];
    if (flag->used && flag->place != place)
      continue;
    if (!flag->used && !make)
      return NULL;
    if (!flag->used) {
      flags->count++;
      *flag = (Flag){.place = place, .used = 1};
    }
    return flag;
  }
}

/* How many rows a block has published, with what a strong write of a thread publishes. */
static uint32_t published(Launch *l, Block *b, int thread) {
  Published *own = &l->between->blocks[b->order];
  uint32_t wide = b->clocks[thread].wide, *last = own->count ? own->rows[own->count - 1] : NULL;
  if (!b->news && (!wide || (last && wide <= last[thread])))
    return (uint32_t)own->count;
  uint32_t *row = room(l, &l->between->chunks, sizeof *row * (size_t)threads_of(b));
  if (!row)
    return 0;
  if (last)
    memcpy(row, last, sizeof *row * (size_t)threads_of(b));
  append(l, &l->between->chunks, &own->rows, &own->count, &row, sizeof row);
  l->times += threads_of(b) + 2 * SLOT / (int)sizeof *row; /* with what `room` adds */
  for (int k = 0; k < threads_of(b); k++)
    if (b->published[k] > row[k])
      row[k] = b->published[k];
  if (wide > row[thread])
    row[thread] = wide;
  b->news = 0;
  return (uint32_t)own->count;
}

/* Keeps memory bounded: what blocks have done so far counts as handed over, so a missing fence may
 * be missed. */
static void forget(Launch *l) {
  Between *all = l->between;
  free_chunks(all->chunks);
  all->chunks = NULL;
  all->flags = (Flags){0};
  all->first = (int32_t)l->next;
  for (int64_t n = 0; n < l->next; n++)
    all->blocks[n] = (Published){.until = UINT32_MAX};
  for (int n = 0; n < l->resident_count; n++) {
    Block *b = l->resident[n];
    all->blocks[b->order].until = b->clock;
    if (b->order < all->first)
      all->first = b->order;
    tick(b);
  }
  l->times = 0;
  l->forgotten++;
}

/* A strong access of a lane: it sees what others released at a place of shared or global memory,
 * and releases. The block's flags have times of its threads, and those of the launch rows of
 * blocks. */
static void hand_over(Launch *l, Block *b, Warp *w, const Site *s, int lane, uint64_t place) {
  int thread = first_of(b, w) + lane, wide = !(s->order & WITHIN_BLOCK),
      shared = s->space == SHARED;
  VectorClock *own = &b->clocks[thread];
  Flags *flags[] = {&b->flags, &l->between->flags};
  Chunk **chunks[] = {&b->chunks, &l->between->chunks};
  const uint64_t key = place << 1 | (uint64_t)shared;
  if (l->times > MOST_TIMES)
    forget(l);
  if (s->order & RELEASES)
    release_fence(l, b, w, 1u << lane, wide);
  for (int k = 0; s->op != STORE && k < 2 - shared; k++) {
    const Flag *flag = flag_at(l, chunks[k], flags[k], key, 0);
    if (!flag)
      continue;
    vc_join(l, &b->chunks, &own->shown, &flag->view, 0);
    b->has_acquired |= flag->view.own.size;
  }
  if (s->op != STORE && s->order & ACQUIRES)
    acquire_fence(l, b, w, 1u << lane, wide);
  if (s->op == LOAD)
    return;
  uint32_t rows = published(l, b, thread);
  for (int k = 0; k < 2 - shared; k++) {
    int gives = k ? rows || others_of(l, &own->known)->size || others_of(l, &b->common.known)->size
                  : own->fence != 0;
    Flag *flag = flag_at(l, chunks[k], flags[k], key, gives);
    if (!flag)
      continue;
    /* the value that is read counts; an atomic hands on what was there */
    if (s->op == STORE)
      vc_clear(&flag->view);
    if (!k && own->fence)
      vc_release_view(l, b, &flag->view, number_of_warp(b, w), 1u << lane, own->fence);
    if (!k && !shared)
      continue;
    renew(l, &flag->view);
    join_times(l, chunks[k], &flag->view.others, others_of(l, &own->known), 0);
    join_times(l, chunks[k], &flag->view.others, others_of(l, &b->common.known), 0);
    if (rows)
      vc_set(l, chunks[k], &flag->view.others, b->order - l->between->first, rows);
  }
  tick(b);
}

#endif
