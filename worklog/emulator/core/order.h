/* Events, the order of accesses, and what accesses cost. Included by core.c alone: one unit compiles to faster code. */
#ifndef WORKLOG_ORDER_H
#define WORKLOG_ORDER_H

#include "knowledge.h"

/* Events. */

static Event *tell(Launch *l, int32_t kind, int32_t pc, int32_t other, int64_t count) {
  for (int32_t k = 0; k < l->events_count; k++) {
    Event *known = &l->events[k];
    if (known->kind == kind && known->pc == pc && known->other_pc == other) {
      known->count += count;
      return NULL;
    }
  }
  if (l->events_count == l->events_room) return NULL;
  Event *new = &l->events[l->events_count++];
  *new = (Event){.kind = kind, .pc = pc, .other_pc = other, .count = count};
  return new;
}

static Event *tell_lanes(Launch *l, Block *b, Warp *w, int32_t kind, int32_t pc, uint32_t lanes, int64_t value) {
  Event *event = tell(l, kind, pc, NONE, __builtin_popcount(lanes));
  if (event) {
    event->block = b->number;
    event->thread = (int32_t)(w - b->warps) * LANES + __builtin_ctz(lanes);
    event->lanes = lanes;
    event->value = value;
  }
  return event;
}

/* Two accesses without order. In which order warps run means nothing, so the first one is called that which a thread
 * reaches earlier after the last barrier; of different blocks, that with the lower pc. Where threads wait for others in
 * loops, or at barriers of some warps, the order does mean something. */
static void tell_race(Launch *l, Block *b, int32_t kind, int32_t pc, const Stamp *before, int32_t lane, uint64_t value) {
  uint32_t threads = (uint32_t)b->warps_count * LANES;
  int64_t block = (before->thread - 1) / threads, other_block = b->number;
  int32_t thread = (int32_t)((before->thread - 1) % threads), other = lane, first = before->pc, second = pc;
  int32_t apart = block != b->number || thread / LANES != lane / LANES;
  int64_t rank = first, other_rank = second;
  if (kind == SHARED_RACE && l->orders_more && l->code[pc].kind == ASYNC && l->sites[l->code[first].site].op == LOAD) {
    int fresh = !b->written[value / (uint64_t)l->grain]; /* then the reader is early, not the copy */
    Event *event = fresh ? tell(l, READ_EARLY, first, pc, 1) : tell(l, REFILLED, pc, first, 1);
    if (!event) return;
    event->block = block, event->thread = fresh ? thread : lane, event->value = (int64_t)value;
    event->numbers[1] = thread;
    return;
  }
  if (block == other_block && first != second) {
    rank = b->warps[thread / LANES].first[l->code[first].site];
    other_rank = b->warps[lane / LANES].first[l->code[second].site];
  }
  int late = rank > other_rank || (rank == other_rank && (block > other_block || (block == other_block && thread > other)));
  if (kind != STALE_READ && late && !(l->fences && l->waits) && !b->learned) {
    int64_t x = block;
    block = other_block, other_block = x;
    int32_t y = thread, z = first;
    thread = other, other = y, first = second, second = z;
  }
  int early = kind == SHARED_RACE && !b->written[value / (uint64_t)l->grain]; /* the read was before any write */
  tell(l, kind, second, first, 1);
  for (int32_t k = 0; k < l->events_count; k++) {
    Event *event = &l->events[k];
    if (event->kind != kind || event->pc != second || event->other_pc != first) continue;
    event->numbers[0] |= early;
    if (event->count > 1 && (kind != SHARED_RACE || !apart || event->warps_differ)) {
      event->warps_differ |= apart;
      return;
    }
    /* The first pair, or the first of two warps. */
    event->block = other_block, event->thread = other;
    event->other_block = block, event->other_thread = thread;
    event->warps_differ = apart;
    event->value = (int64_t)value;
    return;
  }
}

/* Order: shared and global memory have cells of `grain` bytes with their last accesses. Two accesses of different
 * threads of one block are ordered by a barrier between them, so by their times, and those of one warp also by a
 * __syncwarp(). knowledge.h knows what else orders them. Two strong accesses don't race, except between blocks with the
 * scope of one block.
 *
 * Not reported: a missing fence behind a flag where the block is the same, or the read is strong or bypasses the L1
 * cache, as ld.cg does: so the CUDA C++ Programming Guide hands over partial sums ("Memory Fence Functions"). */

static int unordered_yet(const Launch *l, const Block *b, const Stamp *before, int by, const Site *site) {
  int size = threads_of(b), same = before->thread - 1 - b->base < (uint32_t)size, global = site->space != SHARED;
  const Site *first = &l->sites[l->code[before->pc].site];
  if (site->strong && first->strong && (same || !((site->order | first->order) & WITHIN_BLOCK))) return 0;
  if (!l->fences && !b->learned) return 1;
  int lenient = global && (same || site->strong || site->order & UNCACHED);
  int64_t number = before->thread - 1;
  return !handed_over(l, b, number / size, (int)(number % size), before->time, by, lenient);
}

static inline int unordered(const Launch *l, const Block *b, const Stamp *before, uint32_t thread, int32_t pc) {
  if (!before->thread || before->thread == thread) return 0;
  uint32_t one = before->thread - 1 - b->base, two = thread - 1 - b->base;
  int same_block = one < (uint32_t)b->warps_count * LANES;
  if (!same_block && l->sites[l->code[pc].site].space == SHARED) return 0; /* of a copy: see check_flight */
  if (same_block && before->time < b->time) return 0;
  if (same_block && one / LANES == two / LANES && before->time < b->warps[two / LANES].time) return 0;
  return unordered_yet(l, b, before, (int)two, &l->sites[l->code[pc].site]);
}

static void order_read(Launch *l, Block *b, Cell *cell, int32_t kind, int32_t pc, int32_t lane, uint64_t address) {
  uint32_t thread = b->base + (uint32_t)lane + 1;
  if (!cell->agreed && unordered(l, b, &cell->write, thread, pc)) tell_race(l, b, kind, pc, &cell->write, lane, address);
  if (cell->read.thread && cell->read.thread != thread) {
    /* Of two warps, one reader each is kept. */
    uint32_t warp = (thread - 1) / LANES;
    int keep = (cell->read.thread - 1) / LANES == warp && cell->other.thread && cell->other.time >= b->time;
    if (!keep || (cell->other.thread - 1) / LANES == warp) cell->other = cell->read;
  }
  cell->read = (Stamp){thread, b->clock, pc};
}

/* same: the bytes don't change; of shared memory, they were written by another thread with the same store. */
static void order_write(Launch *l, Block *b, Cell *cell, int32_t kind, int32_t pc, int32_t lane, uint64_t address,
                        int same) {
  uint32_t thread = b->base + (uint32_t)lane + 1;
  int clash = unordered(l, b, &cell->write, thread, pc);
  if (clash && !same) tell_race(l, b, kind, pc, &cell->write, lane, address);
  if (!same || kind == SHARED_RACE) {
    if (unordered(l, b, &cell->read, thread, pc)) tell_race(l, b, kind, pc, &cell->read, lane, address);
    if (unordered(l, b, &cell->other, thread, pc)) tell_race(l, b, kind, pc, &cell->other, lane, address);
  }
  cell->agreed = clash && same;
  cell->write = (Stamp){thread, b->clock, pc};
}

/* Counts. */

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Distinct values among n. Most are sorted already. */
static int distinct(uint64_t *x, int n) {
  int sorted = 1, count = 1;
  for (int k = 1; k < n; k++) sorted &= x[k - 1] <= x[k];
  if (!sorted) qsort(x, (size_t)n, sizeof *x, compare);
  for (int k = 1; k < n; k++) count += x[k] != x[k - 1];
  return count;
}

static void count_global(const uint64_t *address, uint32_t mask, int width, int64_t *costs) {
  uint64_t sector[LANES], line[LANES];
  int n = 0;
  for (int k = 0; k < LANES; k++)
    if (mask >> k & 1) sector[n] = address[k] / 32, line[n++] = address[k] / 128;
  costs[0] = 1;
  costs[1] = distinct(sector, n);
  costs[4] = (int64_t)n * width;
  costs[5] = distinct(line, n);
}

/* One phase of 128 bytes: as many passes as the busiest of the 32 banks has distinct words. */
static int passes(const uint64_t *address, uint32_t mask, int first, int lanes, int words) {
  uint64_t word[LANES * 4];
  int n = 0, load[32] = {0}, most = 0;
  for (int k = first; k < first + lanes; k++)
    for (int j = 0; j < words && mask >> k & 1; j++) word[n++] = address[k] / 4 + (uint64_t)j;
  if (!n) return 0;
  int count = distinct(word, n);
  (void)count;
  for (int k = 0; k < n; k++) {
    if (k && word[k] == word[k - 1]) continue;
    int *bank = &load[word[k] % 32];
    if (++*bank > most) most = *bank;
  }
  return most;
}

/* A warp's 64-bit access takes two phases of 16 lanes, a 128-bit one four of 8, each of up to 128 bytes. There are half as
 * many if lanes n and n ^ 1 have equal addresses in each such pair, or lanes n and n ^ 2. A phase costs as many wavefronts
 * as the busiest bank has distinct words; all but the first are conflicts. Agrees with Nsight Compute on an H200. */
static void count_shared(const uint64_t *address, uint32_t mask, int width, int64_t *costs) {
  int phases = width > 4 ? width / 4 : 1, words = width > 4 ? width / 4 : 1;
  for (int distance = 1; distance <= 2 && width > 4; distance++) {
    int paired = 1;
    for (int k = 0; k < LANES; k++) {
      int other = k ^ distance;
      paired &= address[k] == address[other] || !(mask >> k & 1) || !(mask >> other & 1);
    }
    if (paired) {
      phases /= 2;
      break;
    }
  }
  costs[0] = 1;
  for (int k = 0; k < phases; k++) {
    int count = passes(address, mask, k * (LANES / phases), LANES / phases, words);
    costs[2] += count;
    costs[3] += count ? count - 1 : 0;
  }
}

/* What is known of these addresses: they are often those of the last access, or as far apart. */
static Cost *look_up(Site *s, const uint64_t *address, uint32_t mask) {
  Cost *last = &s->last;
  int first = __builtin_ctz(mask);
  uint64_t relative[LANES];
  for (int k = 0; k < LANES; k++) relative[k] = address[k] - address[first];
  uint64_t start = address[first] & (s->space == SHARED ? 15 : 127);
  if (last->known && last->mask == mask && last->start == start && !memcmp(relative, last->relative, sizeof relative))
    return last;
  memcpy(last->relative, relative, sizeof relative);
  last->mask = mask, last->start = start, last->known = 1, last->counted = 0, last->readers = 0;
  return last;
}

/* Of lanes that read, those that stand for all: two of each address. */
static uint32_t readers(Site *s, const uint64_t *address, uint32_t mask) {
  Cost *last = look_up(s, address, mask);
  for (int j = 0, unknown = !last->readers; unknown && j < LANES; j++) {
    int earlier = 0;
    for (int n = 0; n < j && earlier < 2; n++) earlier += address[n] == address[j] && mask >> n & 1;
    if (earlier < 2 && mask >> j & 1) last->readers |= 1u << j;
  }
  return last->readers;
}

static void count(Site *s, const uint64_t *address, uint32_t mask) {
  Cost *last = look_up(s, address, mask);
  int width = s->size * s->count;
  if (!last->counted) {
    last->counted = 1;
    memset(last->costs, 0, sizeof last->costs);
    if (s->space != SHARED) {
      count_global(address, mask, width, last->costs);
    } else {
      uint64_t wide[LANES];
      int counted = 1, wide_width = width;
      memcpy(wide, address, sizeof wide);
      for (int g = 0; g < s->groups_count; g++) {
        uint64_t crooked = 0, moved[LANES];
        for (int k = 0; k < LANES; k++) {
          moved[k] = address[k] + (uint64_t)(s->groups[g].offset - s->offset);
          if (mask >> k & 1) crooked |= moved[k] % (uint64_t)s->groups[g].width;
        }
        if (crooked) continue;
        counted = s->groups[g].leads;
        wide_width = s->groups[g].width;
        memcpy(wide, moved, sizeof wide);
        break;
      }
      if (counted) count_shared(wide, mask, wide_width, last->costs);
      last->costs[4] = (int64_t)__builtin_popcount(mask) * width;
    }
  }
  for (int k = 0; k < 6; k++) s->costs[k] += last->costs[k];
}

/* Tell whoever watches of a step. s: the site whose last costs are its own, or NULL. */
static void note(Launch *l, const Block *b, const Warp *w, const Site *s, int32_t pc, int32_t space, uint32_t mask,
                 const uint64_t *address) {
  if (!l->watch) return;
  Step step = {.pc = pc, .warp = (int32_t)(w - b->warps), .space = space, .mask = mask, .block = b->number};
  if (s && l->counting) memcpy(step.costs, s->last.costs, sizeof step.costs);
  if (address) memcpy(step.address, address, sizeof step.address);
  for (int k = 0; space == SHARED && address && k < LANES; k++)
    if (mask >> k & 1) memcpy(step.words[k], b->shared + (address[k] & ~(uint64_t)15), sizeof step.words[k]);
  l->watch(&step);
}

#endif
