/* What threads know of each other. Included by core.c alone: one unit compiles to faster code.
 *
 * A block's clock ticks at whatever orders its threads, and an access keeps its time. An agent is a thread of the
 * block, or `threads` plus the number of an mbarrier. A thread's view holds for each agent the time up to which what that
 * did is ordered before what the thread does next (Mattern, "Virtual Time and Global States", 1989). Of other blocks it
 * holds the rows that they published. The block's own barrier needs no views: Block.time counts, and Warp.time.
 *
 * Hand-over through flags: PTX ISA, "Release and Acquire Patterns". */
#ifndef WORKLOG_KNOWLEDGE_H
#define WORKLOG_KNOWLEDGE_H

#include "state.h"

enum { RELEASES = 1, ACQUIRES = 2, WITHIN_BLOCK = 4, UNCACHED = 8 }; /* bits of a site's order */
/* Of all rows of a launch: afterwards a block's last row grows, and a missing fence may be missed. */
enum { MOST_TIMES = 1 << 24 };

struct Between { /* what blocks have handed over */
  Flags flags;
  Row *rows;
  int64_t rows_count;
};

/* Later accesses are not part of what a thread has just released. */
static void tick(Block *b) { b->clock++; }

/* Clocks. */

static void drop(Clock **place) {
  if (*place && !--(*place)->references) free(*place);
  *place = NULL;
}

/* A clock also knows what another one knows. */
static void add_clock(Launch *l, Clock **place, Clock *more) {
  Clock *old = *place, *out = more;
  if (!more || more == old) return;
  if (old) {
    int m = 0, n = 0, kept = 0, fresh = 0;
    out = zeros(l, sizeof *out + sizeof *out->of * (size_t)(old->count + more->count));
    if (!out) return;
    while (m < old->count || n < more->count) {
      int64_t a = m < old->count ? old->of[m].block : INT64_MAX, b = n < more->count ? more->of[n].block : INT64_MAX;
      int first = a < b || (a == b && old->of[m].row->number >= more->of[n].row->number);
      kept |= first && (a < b || old->of[m].row != more->of[n].row);
      fresh |= !first;
      out->of[out->count++] = first ? old->of[m] : more->of[n];
      m += a <= b, n += b <= a;
    }
    if (!kept || !fresh) {
      free(out);
      out = fresh ? more : old;
    }
  }
  out->references++;
  drop(place);
  *place = out;
}

static int clock_knows(const Clock *clock, int64_t block, int thread, uint32_t time) {
  int low = 0, high = clock ? clock->count : 0;
  while (low < high) {
    int middle = (low + high) / 2;
    if (clock->of[middle].block < block) low = middle + 1;
    else high = middle;
  }
  return clock && low < clock->count && clock->of[low].block == block && time <= clock->of[low].row->time[thread];
}

/* Views. */

static uint32_t time_of(const View *v, int agent) { return agent < v->size ? v->time[agent] : 0; }

/* Whether a view has times of this many agents. */
static int widen(Launch *l, Block *b, View *v, int agents) {
  if (agents > v->room) {
    int wider = agents > threads_of(b) ? agents + 7 : threads_of(b);
    uint32_t *time = room(l, b, sizeof *time * (size_t)wider);
    if (!time) return 0;
    if (v->size) memcpy(time, v->time, sizeof *time * (size_t)v->size);
    v->time = time, v->room = wider;
  }
  for (; v->size < agents; v->size++) v->time[v->size] = 0;
  return 1;
}

static inline void know(View *v, int agent, uint32_t time) {
  if (time > v->time[agent]) v->time[agent] = time;
}

/* A view also has what another one has, of agents from a number on. */
static void join(Launch *l, Block *b, View *v, const View *more, int from) {
  add_clock(l, &v->clock, more->clock);
  if (more->size <= from || !widen(l, b, v, more->size)) return;
  for (int k = from; k < more->size; k++) v->time[k] = more->time[k] > v->time[k] ? more->time[k] : v->time[k];
}

static void clear(View *v) {
  v->size = 0;
  drop(&v->clock);
}

/* A view gets what a thread knows, and what it did itself up to a time. */
static void gather_view(Launch *l, Block *b, View *v, int thread, uint32_t time) {
  int first = thread / LANES * LANES;
  join(l, b, v, &b->knowledge[thread].known, 0);
  join(l, b, v, &b->common.known, 0);
  if (!widen(l, b, v, threads_of(b))) return;
  for (int k = first; k < first + LANES; k++) know(v, k, b->warps[thread / LANES].time - 1);
  know(v, thread, time);
}

static void publish(Block *b, int first, int count, uint32_t time) {
  for (int k = first; k < first + count; k++)
    if (time > b->published[k]) b->published[k] = time, b->news = 1;
}

/* Those who meet know what a thread knows and did. */
static void gather(Launch *l, Block *b, Knowledge *all, int thread) {
  gather_view(l, b, &all->known, thread, b->clock);
  join(l, b, &all->shown, &b->knowledge[thread].shown, 0);
  if (l->fences) publish(b, thread, 1, b->knowledge[thread].wide);
}

static void learn(Launch *l, Block *b, int thread, const Knowledge *all) {
  join(l, b, &b->knowledge[thread].known, &all->known, 0);
  join(l, b, &b->knowledge[thread].shown, &all->shown, 0);
  b->learned |= all->known.size;
}

/* Whether what an agent of the block did at a time is ordered before what a thread does now. */
static int knows(const Block *b, int thread, int agent, uint32_t time) {
  if (agent == thread) return 1;
  if (agent < threads_of(b) && time < b->time) return 1;
  if (agent / LANES == thread / LANES && time < b->warps[agent / LANES].time) return 1;
  return time <= time_of(&b->knowledge[thread].known, agent) || time <= time_of(&b->common.known, agent);
}

/* Whether flags order an access before what a thread does now. lenient: without a fence after the flag was seen. */
static int handed_over(const Block *b, int64_t block, int thread, uint32_t time, int by, int lenient) {
  const Knowledge *own = &b->knowledge[by], *all = &b->common;
  const View *views[] = {&own->known, &all->known, &own->shown, &all->shown};
  for (int k = 0; k < (lenient ? 4 : 2); k++) {
    if (block == b->number && time <= time_of(views[k], thread)) return 1;
    if (clock_knows(views[k]->clock, block, thread, time)) return 1;
  }
  return 0;
}

/* Barriers. */

/* All threads of a block have met: what mbarriers and other blocks did is known to all. */
static void meet_block(Launch *l, Block *b) {
  int threads = threads_of(b);
  for (int k = 0; k < threads && (b->learned || l->fences); k++) {
    Knowledge *own = &b->knowledge[k];
    publish(b, k, 1, own->wide);
    join(l, b, &b->common.known, &own->known, threads);
    join(l, b, &b->common.shown, &own->shown, threads);
    clear(&own->known);
    clear(&own->shown);
  }
  b->learned = 0;
  tick(b);
  b->time = b->clock;
  for (int k = 0; k < b->warps_count; k++) b->warps[k].time = b->time;
}

/* Lanes of a block, by warp, have come to the barrier of a number; those that are released learn it. */
static void meet_some(Launch *l, Block *b, int number, const uint32_t *arrived, const uint32_t *released) {
  for (int k = 0; k < threads_of(b); k++)
    if (arrived[k / LANES] >> k % LANES & 1) gather(l, b, &b->named[number], k);
  for (int k = 0; k < threads_of(b); k++)
    if (released[k / LANES] >> k % LANES & 1) learn(l, b, k, &b->named[number]);
  tick(b);
}

/* Lanes of a warp have met. */
static void meet_lanes(Launch *l, Block *b, Warp *w, uint32_t lanes) {
  int first = first_of(b, w), whole = lanes == w->started;
  for (int learns = 0; (!whole || b->learned || l->fences) && learns < 2; learns++) {
    if (learns && whole && !b->learned) b->meeting.known.size = 0; /* Warp.time says it */
    for (int k = 0; k < LANES; k++) {
      if (!(lanes >> k & 1)) continue;
      if (learns) learn(l, b, first + k, &b->meeting);
      else gather(l, b, &b->meeting, first + k);
    }
  }
  clear(&b->meeting.known);
  clear(&b->meeting.shown);
  tick(b);
  if (whole) w->time = b->clock;
}

/* Fences and flags. */

/* What threads did is released by their next strong write. wide: for other blocks, too. */
static void release_fence(const Launch *l, Block *b, const Warp *w, uint32_t lanes, int wide) {
  int first = first_of(b, w);
  if (!l->fences) return;
  if (wide) publish(b, 0, threads_of(b), b->time - 1);
  if (wide) publish(b, first, LANES, w->time - 1);
  for (int k = 0; k < LANES; k++) {
    Knowledge *own = &b->knowledge[first + k];
    if (!(lanes >> k & 1)) continue;
    own->fence = b->clock;
    if (!wide) continue;
    own->wide = b->clock;
    for (int j = 0; j < threads_of(b) && j < own->known.size; j++) publish(b, j, 1, own->known.time[j]);
  }
}

/* What strong reads have shown to these threads is known. */
static void acquire_fence(Launch *l, Block *b, const Warp *w, uint32_t lanes, int wide) {
  for (int k = 0; k < LANES; k++) {
    Knowledge *own = &b->knowledge[first_of(b, w) + k];
    if (!(lanes >> k & 1)) continue;
    const View *shown[] = {&own->shown, &b->common.shown};
    for (int n = 0; n < 2; n++) {
      View view = *shown[n];
      if (!wide) view.clock = NULL;
      join(l, b, &own->known, &view, 0);
    }
  }
}

static int fence(Launch *l, Block *b, Warp *w, int wide, uint32_t mask) {
  acquire_fence(l, b, w, mask, wide);
  release_fence(l, b, w, mask, wide);
  tick(b);
  return NEXT;
}

static Flag *flag_at(Launch *l, Flags *flags, uint64_t place, int make) {
  if (!flags->size && !make) return NULL;
  if (2 * flags->count >= flags->size) {
    Flags wider = {.size = flags->size ? 2 * flags->size : 64};
    wider.all = zeros(l, sizeof *wider.all * (size_t)wider.size);
    if (!wider.all) return NULL;
    for (int64_t k = 0; k < flags->size; k++)
      if (flags->all[k].used) *flag_at(l, &wider, flags->all[k].place, 1) = flags->all[k];
    free(flags->all);
    *flags = wider;
  }
  for (uint64_t at = place * 0x9E3779B97F4A7C15u >> 20;; at++) {
    Flag *flag = &flags->all[at % (uint64_t)flags->size];
    if (flag->used && flag->place != place) continue;
    if (!flag->used && !make) return NULL;
    if (!flag->used) flags->count++, *flag = (Flag){.place = place, .used = 1};
    return flag;
  }
}

/* The clock with what a strong write of a thread publishes of its block. */
static Clock *published(Launch *l, Block *b, int thread) {
  Row *last = b->last;
  uint32_t own = b->knowledge[thread].wide;
  if (!b->news && (!own || (last && own <= last->time[thread]))) return b->release;
  size_t size = (size_t)threads_of(b);
  if (!last || l->between->rows_count * (int64_t)size < MOST_TIMES) {
    Row *row = zeros(l, sizeof *row + sizeof *row->time * size);
    Clock *clock = row ? zeros(l, sizeof *clock + sizeof *clock->of) : NULL;
    if (!clock) {
      free(row);
      return NULL;
    }
    if (last) memcpy(row->time, last->time, sizeof *row->time * size);
    row->next = l->between->rows, row->number = l->between->rows_count++;
    l->between->rows = b->last = row;
    clock->references = clock->count = 1;
    clock->of[0].block = b->number, clock->of[0].row = row;
    drop(&b->release);
    b->release = clock;
  }
  for (size_t k = 0; k < size; k++)
    if (b->published[k] > b->last->time[k]) b->last->time[k] = b->published[k];
  if (own > b->last->time[thread]) b->last->time[thread] = own;
  b->news = 0;
  return b->release;
}

/* A strong access of a lane: it sees what others released at a place of shared or global memory, and releases. Flags of
 * the block have the times of its threads; those of the launch have clocks. */
static void hand_over(Launch *l, Block *b, Warp *w, const Site *s, int lane, uint64_t place) {
  int thread = first_of(b, w) + lane, wide = !(s->order & WITHIN_BLOCK), shared = s->space == SHARED;
  Knowledge *own = &b->knowledge[thread];
  Flags *flags[] = {&b->flags, shared ? &b->flags : &l->between->flags};
  const uint64_t key = place << 1 | (uint64_t)shared;
  if (s->order & RELEASES) release_fence(l, b, w, 1u << lane, wide);
  for (int k = 0; s->op != STORE && k < 2 - shared; k++) {
    const Flag *flag = flag_at(l, flags[k], key, 0);
    if (flag) join(l, b, &own->shown, &flag->view, 0), b->learned |= flag->view.size;
  }
  if (s->op != STORE && s->order & ACQUIRES) acquire_fence(l, b, w, 1u << lane, wide);
  if (s->op == LOAD) return;
  Clock *clock = NULL;
  add_clock(l, &clock, own->known.clock);
  add_clock(l, &clock, b->common.known.clock);
  add_clock(l, &clock, published(l, b, thread));
  for (int k = 0; k < 2 - shared; k++) {
    Flag *flag = flag_at(l, flags[k], key, own->fence || clock);
    if (!flag) continue;
    if (s->op == STORE) clear(&flag->view); /* the value that is read counts; an atomic hands on what was there */
    if (!k && own->fence) gather_view(l, b, &flag->view, thread, own->fence);
    if (k || shared) add_clock(l, &flag->view.clock, clock);
  }
  drop(&clock);
  tick(b);
}

#endif
