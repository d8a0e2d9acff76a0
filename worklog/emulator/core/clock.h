/* What blocks know of each other, and the flags by which threads hand over. Included by core.c alone.
 *
 * A block publishes rows: a time for each of its threads. It only adds to them. A Clock says which rows of which blocks
 * are known (as vector clocks do, with blocks for threads). */
#ifndef WORKLOG_CLOCK_H
#define WORKLOG_CLOCK_H

#include "state.h"

/* Of all rows of a launch: afterwards a block's last row grows, and a missing fence may be missed. */
enum { MOST_TIMES = 1 << 24 };

struct Row {
  Row *next; /* of the launch */
  int64_t number;
  uint32_t time[];
};

struct Clock {
  int32_t references, count;
  struct {
    int64_t block;
    const Row *row;
  } of[]; /* by rising block */
};

struct Between {
  Flags flags;
  Row *rows;
  int64_t rows_count;
};

static int threads_of(const Block *b) { return b->warps_count * LANES; }

/* Zeros. No launch goes on without memory: the run ends where it returns next. */
static void *room(Launch *l, size_t size) {
  void *out = calloc(1, size);
  if (!out) l->status = NO_MEMORY;
  return out;
}

static void add_row(uint32_t *row, const uint32_t *more, int count) {
  for (int k = 0; k < count; k++) row[k] = more[k] > row[k] ? more[k] : row[k];
}

/* Flags: what strong writes of an address have released. */

static Flag *find_flag(Launch *l, Flags *flags, uint64_t place, int make) {
  if (!flags->size && !make) return NULL;
  if (2 * flags->count >= flags->size) {
    Flags wider = {.size = flags->size ? 2 * flags->size : 64, .count = flags->count};
    wider.all = room(l, sizeof *wider.all * (size_t)wider.size);
    if (!wider.all) return NULL;
    for (int64_t k = 0; k < flags->size; k++) {
      if (!flags->all[k].used) continue;
      uint64_t at = flags->all[k].place * 0x9E3779B97F4A7C15u >> 20;
      while (wider.all[at % (uint64_t)wider.size].used) at++;
      wider.all[at % (uint64_t)wider.size] = flags->all[k];
    }
    free(flags->all);
    *flags = wider;
  }
  for (uint64_t at = place * 0x9E3779B97F4A7C15u >> 20;; at++) {
    Flag *flag = &flags->all[at % (uint64_t)flags->size];
    if (flag->used && flag->place == place) return flag;
    if (flag->used) continue;
    if (make) flags->count++, *flag = (Flag){.place = place, .used = 1};
    return make ? flag : NULL;
  }
}

/* Clocks. */

static Clock *hold(Clock *clock) {
  if (clock) clock->references++;
  return clock;
}

static void drop(Clock *clock) {
  if (clock && !--clock->references) free(clock);
}

/* Put a clock, which the caller holds, in the place of another one. */
static void put_clock(Clock **place, Clock *clock) {
  drop(*place);
  *place = clock;
}

/* A clock, held, that knows what both know. */
static Clock *joined(Launch *l, Clock *one, Clock *other) {
  if (!one || !other || one == other) return hold(one ? one : other);
  int count = 0, m = 0, n = 0, from_one = 0, from_other = 0;
  Clock *out = room(l, sizeof *out + sizeof *out->of * (size_t)(one->count + other->count));
  if (!out) return hold(one);
  while (m < one->count || n < other->count) {
    int64_t a = m < one->count ? one->of[m].block : INT64_MAX, b = n < other->count ? other->of[n].block : INT64_MAX;
    int first = a < b || (a == b && one->of[m].row->number >= other->of[n].row->number);
    from_one |= first && (a < b || one->of[m].row != other->of[n].row);
    from_other |= !first;
    out->of[count++] = first ? one->of[m] : other->of[n];
    m += a <= b, n += b <= a;
  }
  if (!from_one || !from_other) {
    free(out);
    return hold(from_other ? other : one);
  }
  out->references = 1, out->count = count;
  return out;
}

static void add_clock(Launch *l, Clock **place, Clock *more) {
  if (more && more != *place) put_clock(place, joined(l, *place, more));
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

/* What the others of the launch may learn of a block: its rows, and clocks of its threads. */

static void publish_before(Block *b, int first, int count, uint32_t time) {
  for (int k = first; k < first + count; k++)
    if (time > b->published[k]) b->published[k] = time, b->news = 1;
}

/* A clock, held, with what a strong write of a thread publishes of its block. */
static Clock *published(Launch *l, Block *b, int thread) {
  Row *last = b->last;
  uint32_t own = b->knowledge[thread].wide;
  if (b->news || (own && (!last || own > last->time[thread]))) {
    size_t size = (size_t)threads_of(b);
    if (!last || l->between->rows_count * (int64_t)size < MOST_TIMES) {
      Row *row = room(l, sizeof *row + sizeof *row->time * size);
      Clock *clock = room(l, sizeof *clock + sizeof *clock->of);
      if (!row || !clock) {
        free(row);
        free(clock);
        return NULL;
      }
      if (last) memcpy(row->time, last->time, sizeof *row->time * size);
      row->next = l->between->rows, row->number = l->between->rows_count++;
      l->between->rows = b->last = row;
      clock->references = clock->count = 1;
      clock->of[0].block = b->number, clock->of[0].row = row;
      put_clock(&b->release, clock);
    }
    add_row(b->last->time, b->published, threads_of(b));
    if (own > b->last->time[thread]) b->last->time[thread] = own;
    b->news = 0;
  }
  return hold(b->release);
}

static void forget_launch(Launch *l) {
  Between *between = l->between;
  for (int64_t k = 0; between && k < between->flags.size; k++) drop(between->flags.all[k].clock);
  for (Row *row = between ? between->rows : NULL, *next; row; row = next) {
    next = row->next;
    free(row);
  }
  if (between) free(between->flags.all);
  free(between);
  l->between = NULL;
}

#endif
