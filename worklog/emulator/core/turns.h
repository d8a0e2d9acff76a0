/* How blocks start, take turns, and end. Included by core.c alone.
 *
 * As many blocks are resident as may wait for each other; then each has turns, which are short, so that what waits for
 * others in a loop needs nothing else. A warp that spins ends its turn at once. */
#ifndef WORKLOG_TURNS_H
#define WORKLOG_TURNS_H

#include "async.h"
#include "warp.h"
#include "wgmma.h"

enum { WARP_TURN = 1000, BLOCK_TURN = 400000, LONGER = 20 }; /* instructions; LONGER times as many if no loop waits */
enum { MOST_VAIN = 256 }; /* attempts after which no loop around a wait does anything else, though it counts them */

static int64_t run_warp(Launch *l, Block *b, Warp *w, int64_t soft, int64_t left);

/* Special registers, by the number that Python gives. */
static void set_specials(Launch *l, Block *b, Warp *w) {
  int32_t warp = (int32_t)(w - b->warps), sizes[3] = {l->block[0], l->block[1], l->block[2]};
  int64_t x = b->number % l->grid[0], y = b->number / l->grid[0] % l->grid[1], z = b->number / l->grid[0] / l->grid[1];
  uint32_t place[3] = {(uint32_t)x, (uint32_t)y, (uint32_t)z};
  /* PTX ISA, "%warpid": any slots of the multiprocessor. Without a seed of the schedule, the first ones. */
  int32_t slot = warp + (int32_t)(l->seed % 4) * b->warps_count;
  for (int n = 0; n < l->special_count; n++) {
    int32_t number = l->specials[2 * n];
    uint32_t *out = (uint32_t *)(w->file + l->specials[2 * n + 1]);
    for (int k = 0; k < LANES; k++) {
      int32_t thread = warp * LANES + k;
      int32_t tid[3] = {thread % sizes[0], thread / sizes[0] % sizes[1], thread / sizes[0] / sizes[1] % sizes[2]};
      if (number < 6) out[k] = number < 3 ? (uint32_t)tid[number] : place[number - 3];
      else out[k] = (uint32_t)(number == 6 ? k : slot);
    }
  }
}

static void free_block(Block *b) {
  if (!b) return;
  for (int k = 0; b->warps && k < b->warps_count; k++) {
    free(b->warps[k].file);
    free(b->warps[k].poison);
    free(b->warps[k].poison_site);
    free(b->warps[k].first);
  }
  free(b->warps);
  free(b->shared);
  free(b->written);
  free(b->local);
  free(b->local_written);
  free(b->cells);
  forget(b);
  forget_async(b);
  free(b->knowledge);
  free(b->common);
  free(b->published);
  free_products(b);
  free(b);
}

static void *aligned(size_t size) { return aligned_alloc(128, (size + 127) / 128 * 128 + 128); }

static Block *new_block(Launch *l) {
  int threads = l->block[0] * l->block[1] * l->block[2];
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1, slots = (size_t)l->file_size / 4 + 1;
  Block *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->number = NONE;
  b->warps_count = (threads + LANES - 1) / LANES;
  b->warps = calloc((size_t)b->warps_count, sizeof *b->warps);
  b->shared = aligned((size_t)l->shared_size);
  b->written = calloc(cells, 1);
  b->local = malloc((size_t)l->local_size * LANES * (size_t)b->warps_count + 1);
  b->local_written = malloc((size_t)l->local_size * LANES * (size_t)b->warps_count + 1);
  b->cells = calloc(cells, sizeof *b->cells);
  int good = b->warps && b->shared && b->written && b->local && b->local_written && b->cells && know(l, b);
  for (int k = 0; good && k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    w->file = aligned((size_t)l->file_size);
    w->poison = calloc(slots, sizeof *w->poison);
    w->poison_site = calloc(slots, sizeof *w->poison_site);
    w->first = calloc((size_t)l->sites_count + 1, sizeof *w->first);
    good = w->file && w->poison && w->poison_site && w->first;
  }
  if (good) return b;
  free_block(b);
  return NULL;
}

static void start(Launch *l, Block *b, int64_t number) {
  int threads = l->block[0] * l->block[1] * l->block[2];
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1;
  if (b->number != NONE) {
    memset(b->written, 0, cells);
    memset(b->cells, 0, cells * sizeof *b->cells);
  }
  start_products(l, b);
  b->number = number;
  memset(b->written + (l->shared_size - l->reserved) / l->grain, 1, (size_t)(l->reserved / l->grain));
  b->base = (uint32_t)(number * b->warps_count * LANES);
  b->clock = b->time = 1;
  forget(b);
  forget_async(b);
  b->exited = b->turn = b->idle = 0;
  memset(b->shared, 0, (size_t)l->shared_size);
  memset(b->local, 0xFF, (size_t)l->local_size * LANES * (size_t)b->warps_count);
  memset(b->local_written, 0, (size_t)l->local_size * LANES * (size_t)b->warps_count);
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    int lanes = threads - k * LANES;
    memcpy(w->file, l->image, (size_t)l->file_size);
    w->started = w->live = lanes >= LANES ? FULL : (1u << lanes) - 1;
    w->spinning = w->refused = w->vain = 0;
    w->steps = 0;
    w->time = 1;
    w->paths_count = w->arrivals_count = w->held_count = w->registers = 0;
    w->forced = w->waited = NONE;
    w->round_lanes = 0;
    w->lived = 0;
    w->registers_pc = NONE;
    memset(w->arrived, 0, sizeof w->arrived);
    if (w->poisoned) memset(w->poison, 0, ((size_t)l->file_size / 4 + 1) * sizeof *w->poison);
    w->poisoned = 0;
    memset(w->first, 0, (size_t)l->sites_count * sizeof *w->first);
    push(w, 0, w->live);
    set_specials(l, b, w);
  }
}

/* Turns. */

/* Not 0. */
static uint64_t random_of(Launch *l) {
  l->seed ^= l->seed << 13, l->seed ^= l->seed >> 7, l->seed ^= l->seed << 17;
  return l->seed;
}

/* A turn of a warp; whether the launch goes on. */
static int turn_of(Launch *l, Block *b, Warp *w, int64_t *left) {
  int64_t soft = l->waits ? WARP_TURN : WARP_TURN * LONGER, most = l->budget - w->steps + 1;
  if (soft > l->budget / 8) soft = l->budget / 8 + 1; /* what runs in its second half must show which loop is endless */
  if (l->seed) soft = 1 + (int64_t)(random_of(l) % (uint64_t)soft);
  most = most < 2 * soft ? most : 2 * soft;
  int64_t used = most - run_warp(l, b, w, soft, most);
  w->steps += used;
  *left -= used;
  l->steps = w->steps;
  if (l->status) return 0;
  if (w->steps > l->budget / 2 && !l->halved) {
    l->halved = 1;
    memcpy(l->half, l->executed, sizeof *l->half * 2 * (size_t)l->basic_blocks);
  }
  if (w->steps <= l->budget || !w->paths_count) return 1;
  Path path = w->paths[w->paths_count - 1];
  l->stuck_pc = path.pc, l->stuck_thread = thread_of(b, w, path.mask), l->stuck_block = b->number;
  l->status = BUDGET_OVER;
  return 0;
}

static int can_run(const Block *b) {
  int paths = 0;
  for (int k = 0; k < b->warps_count; k++) paths |= b->warps[k].paths_count;
  return paths != 0;
}

/* Turns of a block's warps, again while they do more than spin. */
static int block_turn(Launch *l, Block *b, int64_t *left) {
  int64_t end = *left - (l->waits ? 1 : BLOCK_TURN); /* a flag that is set early hides that nobody waited for it */
  for (int active = 1; active && *left > end;) {
    active = 0;
    for (; b->turn < b->warps_count; b->turn++) {
      Warp *w = &b->warps[(b->first + b->turn) % b->warps_count];
      if (!w->paths_count && !w->held_count) continue;
      if (*left <= 0) return SLICE_OVER;
      if (!turn_of(l, b, w, left)) return l->status;
      active |= w->paths_count && !w->spinning;
    }
    b->turn = 0;
    if (l->seed) b->first = (int)(random_of(l) % (uint64_t)b->warps_count);
    active |= release(l, b);
    active |= !active && !can_run(b) && force(l, b);
    b->idle = active ? 0 : b->idle ? 2 : 1;
  }
  return DONE;
}

static int is_live(const Block *b) {
  uint32_t live = 0;
  for (int k = 0; k < b->warps_count; k++) live |= b->warps[k].live;
  return live != 0;
}

/* Where nothing happens any more. */

static uint64_t hash(uint64_t seed, const void *data, size_t size) {
  const uint8_t *bytes = data;
  for (size_t k = 0; k + 8 <= size; k += 8) {
    uint64_t word;
    memcpy(&word, bytes + k, 8);
    seed = (seed ^ word) * 0x9E3779B97F4A7C15u;
    seed ^= seed >> 29;
  }
  for (size_t k = size & ~(size_t)7; k < size; k++) seed = (seed ^ bytes[k]) * 0x9E3779B97F4A7C15u;
  return seed;
}

/* Whether the resident blocks are as they were when this was last called with `keep`, but for global memory. */
static int repeats(Launch *l, int keep) {
  int same = 1;
  for (int n = 0; n < l->resident_count && (same || keep); n++) {
    Block *b = l->resident[n];
    for (int k = 0; k < b->warps_count && (same || keep); k++) {
      Warp *w = &b->warps[k];
      uint64_t now = hash(w->live, w->paths, sizeof(Path) * (size_t)w->paths_count);
      now = hash(now, w->held, sizeof(Path) * (size_t)w->held_count);
      for (int j = 0; j < w->arrivals_count; j++) now = hash(now, &w->arrivals[j].pc, 8);
      now = hash(hash(now, w->arrived, sizeof w->arrived), w->file, (size_t)l->file_size);
      same &= now == w->seen;
      if (keep) w->seen = now;
    }
    if (!same && !keep) break;
    uint64_t now = hash((uint64_t)b->exited << 2 | (uint64_t)b->idle, b->shared, (size_t)l->shared_size);
    now = hash(now, b->local, (size_t)l->local_size * LANES * (size_t)b->warps_count);
    for (int k = 0; b->async && k < b->async->mbarriers_count; k++) now = hash(now, &b->async->mbarriers[k].pending, 24);
    same &= now == b->seen;
    if (keep) b->seen = now;
  }
  return same;
}

/* What happens only where no thread does anything else; whether anything did. */
static int stir(Launch *l) {
  int any = 0;
  for (int n = 0; n < l->resident_count; n++) any |= force(l, l->resident[n]) | stir_copies(l, l->resident[n]);
  return any;
}

/* The threads that wait for ever: the first that spins, else the first at a barrier. */
static int stuck(Launch *l) {
  for (int n = 0; n < l->resident_count; n++) {
    Block *b = l->resident[n];
    for (int k = 0; k < b->warps_count; k++) {
      if (!b->warps[k].paths_count) continue;
      Path path = b->warps[k].paths[b->warps[k].paths_count - 1];
      l->stuck_block = b->number, l->stuck_pc = path.pc, l->stuck_thread = thread_of(b, &b->warps[k], path.mask);
      return explain(l, b);
    }
  }
  for (int n = 0; n < l->resident_count; n++) {
    Block *b = l->resident[n];
    Arrival *first = NULL;
    for (int k = 0; k < b->warps_count; k++) {
      Warp *w = &b->warps[k];
      for (int j = 0; j < w->arrivals_count; j++) {
        Arrival *a = &w->arrivals[j];
        if (!first) first = a, l->stuck_thread = thread_of(b, w, a->mask), l->stuck_count = 0;
        if (a->number == first->number) l->stuck_count += __builtin_popcount(a->mask);
      }
    }
    if (!first) continue;
    l->stuck_block = b->number, l->stuck_pc = first->pc, l->stuck_number = first->number;
    return DEADLOCK;
  }
  return DONE;
}

/* At the end of a round in which no block has started or ended. */
static int quiet_round(Launch *l) {
  int idle = 1, vain = 1;
  for (int n = 0; n < l->resident_count; n++)
    for (int k = 0; k < l->resident[n]->warps_count; k++) {
      Warp *w = &l->resident[n]->warps[k];
      for (int j = 0; j < w->paths_count; j++) {
        idle = 0;
        vain &= !(w->paths[j].mask & ~w->vain);
      }
    }
  if (l->changes != l->changes_before) l->quiet = l->vain = 0;
  l->changes_before = l->changes;
  l->quiet++;
  l->vain = vain ? l->vain + 1 : 0;
  int again = idle || (l->quiet > 1 && repeats(l, 0));
  if (!(l->quiet & (l->quiet - 1))) repeats(l, 1);
  if (!again && l->vain <= MOST_VAIN) return DONE;
  l->quiet = 0;
  return stir(l) ? DONE : stuck(l);
}

/* Start blocks where there is room, as many more as there are, if none of these has ended. */
static int start_more(Launch *l) {
  int room = l->together - l->resident_count, more = l->resident_count ? l->resident_count : 1;
  for (int k = 0; k < more && k < room && l->next < l->blocks_count; k++) {
    Block *b = new_block(l);
    if (!b) return NO_MEMORY;
    start(l, b, l->numbers[l->next++]);
    l->resident[l->resident_count++] = b;
    l->ended = 1;
  }
  return DONE;
}

int launch_run(Launch *l) {
  int64_t left = l->slice;
  int status;
  if (!l->resident) l->resident = calloc((size_t)l->together, sizeof *l->resident);
  if (!l->resident) return NO_MEMORY;
  while (l->resident_count || l->next < l->blocks_count) {
    while (l->turn < l->resident_count) {
      Block *b = l->resident[l->turn];
      if ((status = block_turn(l, b, &left))) return status;
      l->turn++;
      if (is_live(b)) continue;
      l->ended = 1;
      check_registers(l, b);
      check_groups(l, b);
      finish_copies(l, b);
      if (l->next < l->blocks_count) {
        start(l, b, l->numbers[l->next++]);
        continue;
      }
      free_block(b);
      l->resident_count--, l->turn--;
      for (int k = l->turn; k < l->resident_count; k++) l->resident[k] = l->resident[k + 1];
    }
    l->turn = 0;
    if (!l->ended && (status = start_more(l))) return status;
    if (!l->ended && (status = quiet_round(l))) return status;
    if (l->ended) l->quiet = l->vain = 0;
    l->ended = 0;
    for (int k = 1; l->seed && k < l->resident_count; k++) {
      int other = (int)(random_of(l) % (uint64_t)(k + 1));
      Block *b = l->resident[k];
      l->resident[k] = l->resident[other], l->resident[other] = b;
    }
  }
  return DONE;
}

void launch_free(Launch *l) {
  for (int k = 0; k < l->resident_count; k++) free_block(l->resident[k]);
  free(l->resident);
  l->resident = NULL;
  forget_launch(l);
}

#endif
