/* The state of the blocks that run. */
#ifndef WORKLOG_STATE_H
#define WORKLOG_STATE_H

#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEXT, PARKED, AGAIN, STOP, MOST_WARPS = 32 }; /* what a handler returns: see run_warp */

#define AT(type, offset) ((type *)(w->file + (offset)))

/* Of lanes of one warp that are at the same instruction. */
typedef struct {
  int32_t pc;
  uint32_t mask;
} Path;

/* Of lanes at a barrier. number: of the barrier; count: threads that it wants, 0 for all; predicate: of bar.red. */
typedef struct {
  int32_t pc;
  uint32_t mask;
  int32_t number, count;
  uint32_t predicate;
} Arrival;

typedef struct {
  uint8_t *file;
  uint32_t started, live;     /* lanes that have not exited */
  uint32_t spinning;          /* those that go on in the next turn */
  uint32_t round_lanes;       /* those that came last to the end of a loop that may wait, */
  int32_t rounds, waited;     /* how often in a row, and the head of a loop in which lanes have waited, or NONE */
  uint32_t refused, vain;     /* those for whom a wait has just failed; which had gone round its loop then */
  int64_t steps, entry, left; /* instructions before this turn; what was left of the slice then, and is at an access */
  uint32_t time;          /* later than all accesses before the last barrier and __syncwarp() */
  int64_t *first;         /* by site: the barriers and steps of the block at its first access since the last barrier */
  int32_t paths_count, arrivals_count, held_count;
  Path paths[LANES];               /* by falling pc */
  Path held[LANES];                /* lanes that wait for others of the warp, by rising pc */
  uint32_t lived;                  /* lanes that lived when the first of those began to wait */
  int32_t forced;                  /* an instruction whose lanes wait no longer, or NONE */
  Arrival arrivals[LANES];
  uint16_t arrived[16];            /* by barrier, how often it did without waiting */
  int32_t registers, registers_pc; /* what setmaxnreg has set, and where */
  uint64_t seen;                   /* of its state: see `repeats` */
  int32_t poisoned;                   /* whether any register holds a value that must not be used */
  int32_t *poison_site;               /* by offset of a register / 4: the instruction that gave it */
  uint32_t *poison;                   /* and its lanes */
  uint32_t fenced;                    /* lanes that have executed wgmma.fence */
  int32_t group, multiplied, multiplies; /* the open group of wgmma; how many it executed, and the last one */
} Warp;

typedef struct Async Async; /* see flight.h */
typedef struct Row Row;     /* see knowledge.h */
typedef struct Clock Clock;

/* What a thread knows of the others. */
typedef struct {
  uint32_t *row, *shown; /* shown: by flags, until it executes a fence */
  uint32_t fence, wide;  /* when it executed the last fence, and the last one for other blocks */
  Clock *known, *seen;   /* of other blocks; seen: by flags */
} Knowledge;

typedef struct { /* what strong writes of an address released */
  uint64_t place;
  uint32_t *row;
  Clock *clock;
  int used;
} Flag;

typedef struct { /* a hash table */
  Flag *all;
  int64_t size, count;
} Flags;

enum { BARRIERS = 16 }; /* barriers of a block */

/* A wgmma that its warp has not waited for. reads: which of A and B from shared memory. */
typedef struct {
  int32_t warp, pc, group, reads;
  uint64_t descriptors[2];
} Product;

typedef struct { /* asynchronous reads of a cell that may go on, and the instruction of one */
  int32_t count, pc;
} Leaving;

struct Block {
  int64_t number;
  uint64_t seen;
  int32_t warps_count, first, turn; /* first: of a round of the warps; turn: how many have had theirs */
  int32_t idle; /* rounds, up to 2, since any warp did more than wait: one may have waited just before it could go on */
  uint32_t base;  /* the number of its first thread in the launch */
  uint32_t clock; /* the time of accesses now */
  uint32_t time;  /* later than all accesses before the last barrier */
  int32_t exited; /* threads */
  Warp *warps;
  uint8_t *shared, *written, *local, *local_written; /* written: by cell; local_written: by byte */
  Cell *cells;
  Knowledge *knowledge; /* by thread */
  int32_t agents, learned, news; /* learned: a thread has a row; news: `published` has more than the last row */
  uint32_t *common;              /* of each agent: what all threads know of an mbarrier */
  uint32_t *published;           /* of each thread: what any strong write of the block publishes */
  Clock *known, *shown, *release; /* known, shown: by threads that have met; release: with the last row */
  Row *last;
  uint32_t *named[BARRIERS]; /* what those that came to a barrier of some warps knew */
  Flags flags;
  Leaving *leaving;  /* by cell, or NULL */
  uint32_t *proxied; /* by thread, or NULL: when it executed fence.proxy.async last */
  Product *products;
  int32_t products_count, products_room;
  Async *async; /* copies and mbarriers, or NULL */
};

/* Continue lanes at an instruction: those with the lowest pc run first, and join lanes that are there. */
static void push(Warp *w, int32_t pc, uint32_t mask) {
  if (!mask) return;
  int k = w->paths_count;
  while (k && w->paths[k - 1].pc < pc) k--;
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
  while (n >= 0 && !(w->paths[n].mask & ~w->spinning)) n--;
  return n;
}

/* Take a path out of the list. */
static inline void take(Warp *w, int n) {
  w->paths_count--;
  for (int k = n; k < w->paths_count; k++) w->paths[k] = w->paths[k + 1];
}

static inline int path_at(const Warp *w, int32_t pc) {
  for (int k = 0; k < w->paths_count; k++)
    if (w->paths[k].pc == pc) return 1;
  return 0;
}

#endif
