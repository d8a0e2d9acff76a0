/* The state of the blocks that run, memory for it, and what is reported of them. */
#ifndef WORKLOG_STATE_H
#define WORKLOG_STATE_H

#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a handler returns (see run_warp), and sizes. SLOT: bytes that a register takes, or twice as
 * many. */
enum { NEXT, PARKED, AGAIN, STOP };
enum { MOST_WARPS = 8 * 32, BARRIERS = 16, SLOT = 128 };

/* Each lane of a mask, and each cell of these bytes of shared memory. */
#define FOR_LANES(k, mask) for (int k = -1; (k = next_lane(mask, k)) < LANES;)
#define FOR_CELLS(place, start, size, grain)         \
  for (uint64_t place = (start) / (uint64_t)(grain); \
       (size) > 0 && place * (uint64_t)(grain) < (start) + (size); place++)

/* The next lane of a mask, or LANES. */
static inline int next_lane(uint32_t mask, int after) {
  uint64_t rest = (uint64_t)mask >> (after + 1);
  return rest ? after + 1 + __builtin_ctzll(rest) : LANES;
}

#define AT(type, offset) ((type *)(w->file + (offset)))

/* Of lanes of one warp that are at the same instruction. */
typedef struct {
  int32_t pc;
  uint32_t mask;
} Path;

/* Of lanes of a warp at a barrier. count: threads that it wants, 0 for all; predicate: of bar.red.
 */
typedef struct {
  int32_t warp, pc, number, count, op;
  uint32_t mask, predicate;
} Arrival;

typedef struct Frame Frame; /* of a call: see calls.h */

/* Lanes of a register whose values must not be used, and the instruction that gave them */
typedef struct {
  uint32_t lanes;
  int32_t pc;
} Poison;

typedef struct {
  uint8_t *file;          /* from its first turn until all lanes have exited */
  uint32_t started, live; /* lanes that have not exited */
  uint32_t spinning;      /* those that go on in the next turn */
  uint32_t round_lanes;   /* those that came last to the end of a loop that may wait, */
  /* how often in a row, and the head of a loop in which lanes have waited, or NONE */
  int32_t rounds, waited;
  /* those for whom a wait has just failed; which had gone round its loop then */
  uint32_t refused, vain;
  /* instructions before this turn; what was left of the slice then, and is at an access */
  int64_t steps, entry, left;
  uint32_t time; /* later than all accesses before the last barrier and __syncwarp() */
  /* by site: the barriers and steps of the block at its first access since the last barrier */
  int64_t *first;
  int32_t paths_count, held_count;
  Path paths[LANES]; /* by falling pc */
  Path held[LANES];  /* lanes that wait for others of the warp, by rising pc */
  uint32_t lived;    /* lanes that lived when the first of those began to wait */
  int32_t forced;    /* an instruction whose lanes wait no longer, or NONE */
  /* lanes that the barrier of the cluster has counted; that have yet to wait there */
  uint32_t come, owing;
  uint16_t arrived[BARRIERS];      /* by barrier, how often it did without waiting */
  int32_t registers, registers_pc; /* what setmaxnreg has set, and where */
  uint64_t seen;                   /* of its state: see `repeats` */
  int32_t poisoned;                /* whether any register holds a value that must not be used */
  Poison *poison;                  /* by slot */
  uint32_t fenced;                 /* lanes that have executed wgmma.fence */
  Frame *frame[LANES], *spare;     /* of each lane's last call; those that are free */
  /* the open group of wgmma; how many it executed, and the last one */
  int32_t group, multiplied, multiplies;
} Warp;

typedef struct { /* a time for each of a number of agents; 0 for those beyond */
  uint32_t *time;
  int32_t size, room;
} Times;

/* Up to which times what agents of the block did is known (see vector_clock.h), and how many rows
 * of other blocks, unless these have been forgotten since. */
typedef struct {
  Times own, others;
  int64_t forgotten;
} View;

/* Of a thread, of all threads of a block, or of those that meet. shown: by flags, until a fence
 * follows. */
typedef struct {
  View known, shown;
  /* when the thread executed the last fence, and the last one for other blocks */
  uint32_t fence, wide;
} VectorClock;

typedef struct { /* what strong writes of an address released */
  uint64_t place;
  View view;
  int32_t used;
} Flag;

typedef struct { /* a hash table */
  Flag *all;
  int64_t size, count;
} Flags;

typedef struct Async Async; /* copies and mbarriers: see flight.h */

/* What a block publishes for others: rows with a time for each of its threads, none of which is
 * less than before. until: what it did up to then counts as handed over, since that was forgotten.
 */
typedef struct {
  uint32_t **rows, until;
  int32_t count;
} Published;

/* What blocks have handed over; blocks: by when they started. Views of others start with `first` */
struct Between {
  Chunk *chunks;
  Flags flags;
  Published *blocks;
  int32_t first;
};

/* What is resident together and has one clock: a block, or the blocks of a cluster, whose warps
 * follow each other. */
struct Block {
  uint64_t seen;
  Chunk *chunks;
  /* first: of a round of the warps; turn: how many have had theirs */
  int32_t warps_count, first, turn;
  /* rounds, up to 2, since any warp did more than wait: one may have waited just before it could go
   * on */
  int32_t idle;
  int32_t order; /* how many of them started before it */
  int32_t slot;  /* the number of its first warp on the multiprocessor */
  /* the number of its first thread in the launch: blocks count by when they started */
  uint32_t base;
  uint32_t clock; /* the time of accesses now */
  uint32_t time;  /* later than all accesses before the last barrier */
  /* the last write of shared memory, but for those of copies */
  uint32_t written_at;
  int32_t exited; /* threads */
  int64_t frames; /* bytes of the frames of its calls */
  uint32_t left;  /* blocks of the cluster whose threads have all exited */
  int32_t met;    /* whether the cluster has */
  Warp *warps;
  Buffer shared, local; /* local: of a thread, at its lowest address; `local_stride` apart */
  int64_t local_stride;
  Arrival *arrivals;
  int32_t arrivals_count;
  /* has_acquired: more than barriers orders threads; news: `published` has more than the last row
   */
  int32_t has_acquired, news;
  VectorClock *clocks;         /* by thread */
  VectorClock common, meeting; /* of all threads; of lanes that meet */
  VectorClock *named,
      cluster; /* of those that came to a barrier, by its number; to the cluster's */
  /* of each thread: what any strong write of the block publishes */
  uint32_t *published;
  Flags flags;
  Async *async;
};

/* Memory. No launch goes on without it: the run ends where it returns next. */

struct Chunk {
  Chunk *next;
  size_t size;
};

/* Where a chunk of this size is kept, beside some of others. */
static Chunk **spare_of(Launch *l, size_t size) {
  return &l->spare[size / SLOT % (sizeof l->spare / sizeof *l->spare)];
}

/* Zeros, for the life of a block or of the launch. */
static void *room(Launch *l, Chunk **chunks, size_t size) {
  size_t all = (size + SLOT - 1) / SLOT * SLOT + SLOT;
  Chunk **spare = spare_of(l, all);
  while (*spare && (*spare)->size != all)
    spare = &(*spare)->next;
  Chunk *chunk = *spare;
  if (chunk)
    *spare = chunk->next;
  else
    chunk = aligned_alloc(SLOT, all);
  if (!chunk) {
    l->status = NO_MEMORY;
    return NULL;
  }
  memset(chunk, 0, all);
  chunk->size = all;
  chunk->next = *chunks;
  *chunks = chunk;
  return (uint8_t *)chunk + SLOT;
}

/* Zeros, until they are freed. */
static void *zeros(Launch *l, size_t size) {
  void *out = calloc(1, size);
  if (!out)
    l->status = NO_MEMORY;
  return out;
}

/* Free a list of chunks. */
static void free_chunks(Chunk *chunk) {
  while (chunk) {
    Chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
}

/* Room for one more of a list, whose size is a power of two. */
static void *grown(Launch *l, Chunk **chunks, void *list, int32_t count, size_t size) {
  if (count & (count - 1))
    return list;
  void *wider = room(l, chunks, size * (count ? 2 * (size_t)count : 1));
  if (wider && count)
    memcpy(wider, list, size * (size_t)count);
  return wider;
}

/* Append an item to a list. list: the address of the pointer to its first item */
static void append(Launch *l, Chunk **chunks, void *list, int32_t *count, const void *item,
                   size_t size) {
  uint8_t *items;
  memcpy(&items, list, sizeof items);
  items = grown(l, chunks, items, *count, size);
  if (!items)
    return;
  memcpy(items + size * (size_t)*count, item, size);
  memcpy(list, &items, sizeof items);
  (*count)++;
}

/* Numbers that stand for bytes. */
static uint64_t hash(uint64_t seed, const void *data, size_t size) {
  const uint8_t *bytes = data;
  for (size_t k = 0; k < size; k += 8) {
    uint64_t word = 0;
    memcpy(&word, bytes + k, size - k < 8 ? size - k : 8);
    seed = (seed ^ word) * 0x9E3779B97F4A7C15u;
    seed ^= seed >> 29;
  }
  return seed;
}

/* Threads. */

/* The number of threads, in whole warps. */
static int threads_of(const Block *b) { return b->warps_count * LANES; }

/* The number of a warp. */
static int number_of_warp(const Block *b, const Warp *w) { return (int)(w - b->warps); }

/* The number of a warp's first thread. */
static int first_of(const Block *b, const Warp *w) { return number_of_warp(b, w) * LANES; }

/* The number of warps in one block of a cluster. */
static int own_warps(const Launch *l, const Block *b) { return b->warps_count / l->blocks; }

/* The number of a warp's block in its cluster. */
static int rank_of(const Launch *l, const Block *b, const Warp *w) {
  return number_of_warp(b, w) / own_warps(l, b);
}

/* The number of a thread's block in the launch. */
static int64_t block_of(const Launch *l, const Block *b, int thread) {
  return l->numbers[b->order * l->blocks + thread / LANES / own_warps(l, b)];
}

/* Continue lanes at an instruction: those with the lowest pc run first, and join lanes that are
 * there. */
static void push(Warp *w, int32_t pc, uint32_t mask) {
  if (!mask)
    return;
  int k = w->paths_count;
  while (k && w->paths[k - 1].pc < pc)
    k--;
  if (k && w->paths[k - 1].pc == pc) {
    w->paths[k - 1].mask |= mask;
    return;
  }
  memmove(&w->paths[k + 1], &w->paths[k], sizeof(Path) * (size_t)(w->paths_count - k));
  w->paths[k] = (Path){pc, mask};
  w->paths_count++;
}

/* The path that runs next: of those that don't spin, that with the lowest pc; NONE if all do. */
static inline int next_path(const Warp *w) {
  int n = w->paths_count - 1;
  while (n >= 0 && !(w->paths[n].mask & ~w->spinning))
    n--;
  return n;
}

/* Events. */

/* Tell of a thread, or of lanes of its warp. The first event of a kind and place is kept, and
 * counts the others; it is returned, unless there is no memory for it. */
static Event *report(Launch *l, const Block *b, Event new) {
  new.count = new.lanes ? __builtin_popcount(new.lanes) : 1;
  for (int32_t k = 0; k < l->events_count; k++) {
    Event *known = &l->events[k];
    if (known->kind != new.kind || known->pc != new.pc || known->other_pc != new.other_pc)
      continue;
    known->count += new.count;
    return known;
  }
  new.block = block_of(l, b, new.thread);
  new.space = l->space;
  new.thread %= own_warps(l, b) * LANES;
  append(l, &l->chunks, &l->events, &l->events_count, &new, sizeof new);
  return l->status == NO_MEMORY ? NULL : &l->events[l->events_count - 1];
}
/* Report what a thread does at an instruction. numbers: 8 of them, or NULL for zeros. */
static Event *report_thread(Launch *l, const Block *b, int32_t kind, int32_t pc, int32_t other_pc,
                            int thread, int64_t value, const int64_t *numbers) {
  Event event = {.kind = kind, .pc = pc, .other_pc = other_pc, .thread = thread, .value = value};
  if (numbers)
    memcpy(event.numbers, numbers, sizeof event.numbers);
  return report(l, b, event);
}
#define NUMBERS(...) ((const int64_t[8]){__VA_ARGS__})

/* Report what lanes of a warp do at an instruction. */
static void report_lanes(Launch *l, const Block *b, const Warp *w, int32_t kind, int32_t pc,
                         uint32_t lanes, int64_t value) {
  int thread = first_of(b, w) + __builtin_ctz(lanes);
  report(l, b,
         (Event){.kind = kind,
                 .pc = pc,
                 .other_pc = NONE,
                 .thread = thread,
                 .lanes = lanes,
                 .value = value});
}

#endif
