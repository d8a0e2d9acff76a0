/* How blocks start, take turns, and end. Included by core.c alone.
 *
 * As many blocks are resident as may wait for each other; then each has turns, which are short, so
 * that what waits for others in a loop needs nothing else. A warp that spins ends its turn at once.
 */
#ifndef WORKLOG_TURNS_H
#define WORKLOG_TURNS_H

#include "async.h"
#include "warp.h"
#include "wgmma.h"

/* instructions; LONGER times as many if no loop waits */
enum { WARP_TURN = 1000, BLOCK_TURN = 400000, LONGER = 20 };
/* attempts after which no loop around a wait does anything else, though it counts them */
enum { MOST_VAIN = 256 };

static int64_t run_warp(Launch *l, Block *b, Warp *w, int64_t soft, int64_t left);

enum { SMS = 132 }; /* of an H200, as in launching.py */

/* One dimension of the indices of a warp's threads. before: threads until it is 1 larger */
static void set_thread_indices(int32_t *out, int first, int before, int size) {
  int index = first / before % size, passed = first % before;
  for (int k = 0; k < LANES; k++) {
    out[k] = index;
    if (++passed < before)
      continue;
    passed = 0;
    index = index + 1 < size ? index + 1 : 0;
  }
}

/* Special registers, by the number that Python gives. %smid: blocks go to one multiprocessor after
 * the other; with a seed, several that start one after the other share one. */
static void set_specials(Launch *l, Block *b, Warp *w) {
  int32_t rank = rank_of(l, b, w), warp = number_of_warp(b, w) % own_warps(l, b);
  int64_t number = block_of(l, b, first_of(b, w));
  int32_t place[3] = {(int32_t)(number % l->grid[0]), (int32_t)(number / l->grid[0] % l->grid[1]),
                      (int32_t)(number / l->grid[0] / l->grid[1])};
  int64_t started = (int64_t)b->order * l->blocks + rank;
  int32_t multiprocessor = (int32_t)(started / (l->seed ? l->neighbours : 1) % SMS);
  const int32_t others[3] = {b->slot + warp, rank, multiprocessor};
  const int before[3] = {1, l->block[0], l->block[0] * l->block[1]};
  for (int n = 0; n < l->special_count; n++) {
    int32_t which = l->specials[2 * n] / 3, axis = l->specials[2 * n] % 3,
            *out = AT(int32_t, l->specials[2 * n + 1]), same = others[axis];
    if (which == 0) {
      set_thread_indices(out, warp * LANES, before[axis], l->block[axis]);
      continue;
    }
    if (which == 1)
      same = place[axis];
    else if (which == 2)
      same = place[axis] % l->cluster[axis];
    else if (which == 3)
      same = place[axis] / l->cluster[axis];
    for (int k = 0; k < LANES; k++)
      out[k] = same;
  }
}

/* A warp's first turn: it gets registers, mostly those of one that has exited. Whether there is
 * memory for them. */
static int start_warp(Launch *l, Block *b, Warp *w) {
  size_t slots = (size_t)l->file_size / SLOT + 1, poison = sizeof *w->poison * slots;
  w->file = l->registers;
  if (w->file)
    memcpy(&l->registers, w->file, sizeof l->registers);
  else
    w->file = room(l, &l->chunks, slots * SLOT + poison);
  if (!w->file)
    return 0;
  w->poison = (Poison *)(w->file + slots * SLOT);
  memcpy(w->file, l->image, (size_t)l->file_size);
  memset(w->poison, 0, poison);
  set_specials(l, b, w);
  return 1;
}

/* All lanes of a warp have exited: the next one to start gets its registers. */
static void end_warp(Launch *l, Warp *w) {
  memcpy(w->file, &l->registers, sizeof l->registers);
  l->registers = w->file;
  w->file = NULL;
  w->poison = NULL;
}

/* Free a block. Its memory is kept for the next one. */
static void free_block(Launch *l, Block *b) {
  l->frames -= b->frames;
  for (int k = 0; b->warps && k < b->warps_count; k++)
    if (b->warps[k].file)
      end_warp(l, &b->warps[k]);
  for (int k = 0; b->async && k < b->async->loads_count; k++)
    free(b->async->loads[k].data);
  for (Chunk *next, *chunk = b->chunks; chunk; chunk = next) {
    Chunk **spare = spare_of(l, chunk->size);
    next = chunk->next;
    chunk->next = *spare;
    *spare = chunk;
  }
  free(b);
}

/* The next block, at its start; NULL if there is no memory. */
static Block *new_block(Launch *l) {
  int threads = l->block[0] * l->block[1] * l->block[2], own = (threads + LANES - 1) / LANES,
      warps = own * l->blocks;
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1,
         stride = ((size_t)l->local_size + 7) / 8 * 8, local = stride * LANES * (size_t)warps;
  Block *b = zeros(l, sizeof *b);
  if (!b)
    return NULL;
  b->order = (int32_t)l->next++;
  b->warps_count = warps;
  b->base = (uint32_t)b->order * (uint32_t)(warps * LANES);
  b->clock = b->time = 1;
  /* PTX ISA, "%warpid": any slots of the multiprocessor. Without a seed of the schedule, the first
   * ones. */
  b->slot = (int32_t)(l->seed % 4) * own;
  b->local_stride = (int64_t)stride;
  b->warps = room(l, &b->chunks, sizeof *b->warps * (size_t)warps);
  b->clocks = room(l, &b->chunks, sizeof *b->clocks * (size_t)warps * LANES);
  b->named = room(l, &b->chunks, sizeof *b->named * BARRIERS * (size_t)l->blocks);
  b->published = room(l, &b->chunks, sizeof *b->published * (size_t)warps * LANES);
  b->shared = (Buffer){.size = (uint64_t)l->shared_size, .writable = 1};
  b->shared.data = room(l, &b->chunks, (size_t)l->shared_size);
  b->local = (Buffer){.size = (uint64_t)l->local_size, .writable = 1};
  b->local.data = room(l, &b->chunks, local);
  if (l->checking) {
    b->shared.cells = room(l, &b->chunks, cells * sizeof *b->shared.cells);
    b->shared.written = room(l, &b->chunks, cells);
    b->local.written = room(l, &b->chunks, local / (size_t)l->grain);
  }
  int64_t *first =
      room(l, &b->chunks, sizeof *first * ((size_t)l->sites_count + 1) * (size_t)warps);
  if (l->status) {
    free_block(l, b);
    return NULL;
  }
  memset(b->local.data, 0xFF, local);
  for (int k = 0; k < l->blocks && l->checking; k++) {
    int64_t reserved = k * (int64_t)l->shared_stride + l->own_size - l->reserved;
    memset(b->shared.written + reserved / l->grain, 1, (size_t)(l->reserved / l->grain));
  }
  for (int k = 0; k < warps; k++) {
    Warp *w = &b->warps[k];
    int lanes = threads - k % own * LANES;
    w->first = first + k * (l->sites_count + 1);
    w->started = w->live = lanes >= LANES ? FULL : (1u << lanes) - 1;
    w->time = w->group = 1;
    w->forced = w->waited = w->registers_pc = NONE;
    push(w, 0, w->live);
  }
  return b;
}

/* Turns. */

/* Not 0. */
static uint64_t random_of(Launch *l) {
  l->seed ^= l->seed << 13;
  l->seed ^= l->seed >> 7;
  l->seed ^= l->seed << 17;
  return l->seed;
}

/* Whether a warp has lanes to run; the launch gets the place of the first ones. */
static int is_stuck(Launch *l, const Block *b, const Warp *w) {
  if (!w->paths_count)
    return 0;
  Path path = w->paths[w->paths_count - 1];
  l->stuck_pc = path.pc;
  l->stuck_block = block_of(l, b, first_of(b, w));
  l->stuck_thread = first_of(b, w) % (own_warps(l, b) * LANES) + __builtin_ctz(path.mask);
  return 1;
}

/* Whether other blocks must soon have a turn. */
static int hurries(const Launch *l) { return l->waits || (l->seed && l->meeting > 1); }

/* A turn of a warp; whether the launch goes on. */
static int turn_of(Launch *l, Block *b, Warp *w, int64_t *left) {
  int64_t soft = hurries(l) ? WARP_TURN : WARP_TURN * LONGER, most = l->budget - w->steps + 1;
  /* what runs in its second half must show which loop is endless */
  if (soft > l->budget / 8)
    soft = l->budget / 8 + 1;
  if (l->seed)
    soft = 1 + (int64_t)(random_of(l) % (uint64_t)soft);
  most = most < 2 * soft ? most : 2 * soft;
  int64_t used = most - run_warp(l, b, w, soft, most);
  w->steps += used;
  *left -= used;
  l->steps = w->steps;
  if (l->status)
    return 0;
  if (w->steps > l->budget / 2 && !l->halved) {
    l->halved = 1;
    memcpy(l->half, l->executed, sizeof *l->half * 2 * (size_t)l->basic_blocks);
  }
  if (w->steps <= l->budget || !is_stuck(l, b, w))
    return 1;
  l->status = BUDGET_OVER;
  return 0;
}

/* Turns of a block's warps, again while they do more than spin. */
static int block_turn(Launch *l, Block *b, int64_t *left) {
  /* a flag that is set early hides that nobody waited for it */
  int64_t end = *left - (hurries(l) ? 1 : BLOCK_TURN);
  for (int active = 1, runs; active && *left > end;) {
    active = runs = 0;
    for (; b->turn < b->warps_count; b->turn++) {
      Warp *w = &b->warps[(b->first + b->turn) % b->warps_count];
      if (!w->paths_count && !w->held_count)
        continue;
      if (*left <= 0)
        return SLICE_OVER;
      if (!w->file && !start_warp(l, b, w))
        return l->status;
      if (!turn_of(l, b, w, left))
        return l->status;
      if (!w->live)
        end_warp(l, w);
      active |= w->paths_count && !w->spinning;
    }
    b->turn = 0;
    if (l->seed)
      b->first = (int)(random_of(l) % (uint64_t)b->warps_count);
    active |= release(l, b);
    for (int k = 0; k < b->warps_count; k++)
      runs |= b->warps[k].paths_count;
    active |= !active && !runs && force(l, b);
    b->idle = active ? 0 : b->idle ? 2 : 1;
  }
  return DONE;
}

/* Where nothing happens any more. */

/* Whether the resident blocks are as they were when this was last called with `keep`, but for
 * global memory. */
static int repeats(Launch *l, int keep) {
  int same = 1;
  for (int n = 0; n < l->resident_count && (same || keep); n++) {
    Block *b = l->resident[n];
    uint64_t now =
        hash((uint64_t)b->exited << 2 | (uint64_t)b->idle, b->shared.data, (size_t)l->shared_size);
    for (int k = 0; k < b->warps_count; k++) {
      Warp *w = &b->warps[k];
      now = hash(now ^ w->live, w->paths, sizeof(Path) * (size_t)w->paths_count);
      now = hash(now ^ w->come, w->held, sizeof(Path) * (size_t)w->held_count);
      now = hash(now, w->arrived, sizeof w->arrived);
      now = hash(now, w->file, w->file ? (size_t)l->file_size : 0);
      now = hash_frames(now, w->frame);
    }
    now = hash(now, b->arrivals, sizeof *b->arrivals * (size_t)b->arrivals_count);
    now = hash(now, b->local.data, (size_t)(b->local_stride * threads_of(b)));
    for (int k = 0; b->async && k < b->async->mbarriers_count; k++)
      now = hash(now, &b->async->mbarriers[k].pending, 24);
    same &= now == b->seen;
    if (keep)
      b->seen = now;
  }
  return same;
}

/* Report the barriers at which threads of a block wait. */
static void explain_barriers(Launch *l, const Block *b) {
  for (int n = 0; n < b->arrivals_count; n++) {
    const Arrival *a = &b->arrivals[n];
    int first = 1, count = 0;
    for (int k = 0; k < b->arrivals_count; k++) {
      const Arrival *other = &b->arrivals[k];
      if (other->number != a->number || other->pc != a->pc)
        continue;
      first &= k >= n;
      count += __builtin_popcount(other->mask);
    }
    if (first)
      report_thread(l, b, BARRIER_LACKS, a->pc, NONE, a->warp * LANES, 0,
                    NUMBERS(count, a->number % BARRIERS, a->count));
  }
}

/* The threads that wait for ever: the first that spins, else the first at a barrier. */
static int stuck(Launch *l) {
  for (int n = 0; n < l->resident_count; n++)
    for (int k = 0; k < l->resident[n]->warps_count; k++)
      if (is_stuck(l, l->resident[n], &l->resident[n]->warps[k])) {
        explain_barriers(l, l->resident[n]);
        return explain(l, l->resident[n]);
      }
  for (int n = 0; n < l->resident_count; n++) {
    const Block *b = l->resident[n];
    if (!b->arrivals_count)
      continue;
    const Arrival *first = &b->arrivals[0];
    l->stuck_thread = first->warp % own_warps(l, b) * LANES + __builtin_ctz(first->mask);
    l->stuck_count = 0;
    for (int k = 0; k < b->arrivals_count; k++)
      if (b->arrivals[k].number == first->number)
        l->stuck_count += __builtin_popcount(b->arrivals[k].mask);
    l->stuck_block = block_of(l, b, first->warp * LANES);
    l->stuck_pc = first->pc;
    l->stuck_number = first->number % BARRIERS;
    return DEADLOCK;
  }
  return DONE;
}

/* At the end of a round in which no block has started or ended. */
static int quiet_round(Launch *l) {
  int idle = 1, vain = 1;
  for (int n = 0; n < l->resident_count; n++)
    for (int k = 0; k < l->resident[n]->warps_count; k++) {
      const Warp *w = &l->resident[n]->warps[k];
      if (w->paths_count)
        idle = 0;
      for (int j = 0; j < w->paths_count; j++)
        vain &= !(w->paths[j].mask & ~w->vain);
    }
  if (l->changes != l->changes_before)
    l->quiet = l->vain = 0;
  l->changes_before = l->changes;
  l->quiet++;
  l->vain = vain ? l->vain + 1 : 0;
  int again = idle || (l->quiet > 1 && repeats(l, 0)) || l->vain > MOST_VAIN;
  if (!(l->quiet & (l->quiet - 1)))
    repeats(l, 1);
  if (!again)
    return DONE;
  l->quiet = 0;
  for (int n = 0; n < l->resident_count; n++) {
    Block *b = l->resident[n];
    again &= !force(l, b);
    for (int k = 0; b->async && k < b->async->mbarriers_count; k++)
      again &= !land(l, b, k);
  }
  return again ? stuck(l) : DONE;
}

/* Start a block in a slot, if there is one left. */
static int start_next(Launch *l, int slot) {
  if (l->next == l->clusters_count)
    return 0;
  Block *b = new_block(l);
  if (b && slot == l->resident_count)
    l->resident_count++;
  if (b)
    l->resident[slot] = b;
  return b != NULL;
}

/* Turns of all resident blocks. One that ends makes room for the next one. */
static int round_of(Launch *l, int64_t *left) {
  while (l->turn < l->resident_count) {
    Block *b = l->resident[l->turn];
    uint32_t live = 0;
    int status = block_turn(l, b, left);
    if (status)
      return status;
    l->turn++;
    for (int k = 0; k < b->warps_count; k++)
      live |= b->warps[k].live;
    if (live)
      continue;
    l->ended = 1;
    check_registers(l, b);
    check_register_groups(l, b);
    check_groups(l, b);
    finish_copies(l, b);
    int first = b->first;
    free_block(l, b);
    l->resident[l->turn - 1] = NULL;
    if (start_next(l, l->turn - 1)) {
      l->resident[l->turn - 1]->first = first;
      continue;
    }
    l->resident_count--;
    l->turn--;
    for (int k = l->turn; k < l->resident_count; k++)
      l->resident[k] = l->resident[k + 1];
  }
  l->turn = 0;
  return l->status;
}

/* Run a launch until it ends, or has to return to Python. The status of the launch. */
int launch_run(Launch *l) {
  int64_t left = l->slice;
  int status;
  ulps_above = l->ulps;
  l->prints_count = 0;
  if (l->status == PRINTING)
    l->status = DONE;
  if (!l->resident)
    l->resident = zeros(l, sizeof *l->resident * (size_t)l->together);
  if (!l->between)
    l->between = zeros(l, sizeof *l->between);
  if (l->status)
    return l->status;
  if (l->fences && !l->between->blocks)
    l->between->blocks = zeros(l, sizeof *l->between->blocks * (size_t)l->clusters_count);
  if (l->status)
    return l->status;
  while (l->seed && l->resident_count < l->meeting)
    if (!start_next(l, l->resident_count))
      break;
  while (l->resident_count || l->next < l->clusters_count) {
    if ((status = round_of(l, &left)))
      return status;
    /* Where none of these has ended, they may wait for others: as many more as there are start. */
    int more = l->ended ? 0 : l->resident_count ? l->resident_count : 1;
    for (; more && l->resident_count < l->together && start_next(l, l->resident_count); more--)
      l->ended = 1;
    if (l->status)
      return l->status;
    if (!l->ended && (status = quiet_round(l)))
      return status;
    if (l->ended)
      l->quiet = l->vain = 0;
    l->ended = 0;
    for (int k = 1; l->seed && k < l->resident_count; k++) {
      int other = (int)(random_of(l) % (uint64_t)(k + 1));
      Block *b = l->resident[k];
      l->resident[k] = l->resident[other];
      l->resident[other] = b;
    }
  }
  return DONE;
}

/* Free what a launch has allocated. */
void launch_free(Launch *l) {
  for (int k = 0; k < l->resident_count; k++)
    free_block(l, l->resident[k]);
  for (size_t k = 0; k < sizeof l->spare / sizeof *l->spare; k++)
    free_chunks(l->spare[k]);
  free_chunks(l->chunks);
  free(l->resident);
  if (l->between) {
    free_chunks(l->between->chunks);
    free(l->between->blocks);
  }
  free(l->between);
}

#endif
