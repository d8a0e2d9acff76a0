/* The order of accesses: shared and global memory have cells of `grain` bytes with their last ones.
 * Included by core.c alone.
 *
 * Two accesses of different threads of one block are ordered by a barrier between them, so by their
 * times, and those of one warp also by a __syncwarp(). vector_clock.h knows what else orders them.
 * Two strong accesses don't race, except between blocks with the scope of one block, between lanes
 * of a warp that takes no turns, and where a block reads another one's data: one flag or counter
 * needs no fence, data beside a flag does.
 *
 * Not reported: a missing fence behind a flag where the block is the same, or the access behind it
 * is a store, which waits for the flag, or a read that is strong or bypasses the L1 cache, as ld.cg
 * does: so the CUDA C++ Programming Guide hands over partial sums ("Memory Fence Functions"). */
#ifndef WORKLOG_ORDER_H
#define WORKLOG_ORDER_H

#include "flight.h"

/* Two accesses without order. In which order warps run means nothing, so the first one is called
 * that which a thread reaches earlier after the last barrier; of different blocks, that with the
 * lower pc. Where threads wait for others in loops, or at barriers of some warps, the order does
 * mean something. */
static void report_race(Launch *l, Block *b, int32_t kind, int32_t pc, const Stamp *before,
                        int thread, uint64_t address) {
  typedef struct {
    int64_t rank, block;
    int32_t thread, pc;
  } Access;
  int threads = own_warps(l, b) * LANES, shared = kind == SHARED_RACE;
  uint32_t one = before->thread - 1, two = b->base + (uint32_t)thread;
  Access first = {before->pc, l->numbers[one / (uint32_t)threads],
                  (int32_t)(one % (uint32_t)threads), before->pc};
  Access second = {pc, l->numbers[two / (uint32_t)threads], (int32_t)(two % (uint32_t)threads), pc},
         other = first;
  int apart = first.block != second.block || first.thread / LANES != second.thread / LANES;
  if (shared && l->orders_more && l->code[pc].kind == ASYNC &&
      l->sites[l->code[before->pc].site].op == LOAD) {
    /* The reader is early, or the copy. */
    int late = b->shared.written[address / (uint64_t)l->grain];
    if (late)
      report_thread(l, b, REFILLED, pc, before->pc, thread, (int64_t)address,
                    NUMBERS(0, first.thread));
    else
      report_thread(l, b, READ_EARLY, before->pc, pc, (int)(one - b->base), (int64_t)address, NULL);
    return;
  }
  if (first.block == second.block && before->pc != pc) {
    first.rank = b->warps[(one - b->base) / LANES].first[l->code[before->pc].site];
    second.rank = b->warps[thread / LANES].first[l->code[pc].site];
  }
  int late = first.rank > second.rank;
  if (first.rank == second.rank)
    late =
        first.block > second.block || (first.block == second.block && first.thread > second.thread);
  if (kind != STALE_READ && late && !(l->fences && l->waits) && !b->has_acquired) {
    other = first;
    first = second;
    second = other;
  }
  /* the read was before any write */
  int early = shared && !b->shared.written[address / (uint64_t)l->grain];
  Event *event = report(l, b, (Event){.kind = kind, .pc = second.pc, .other_pc = first.pc});
  if (!event)
    return;
  event->numbers[0] |= early;
  if (event->count > 1 && (!shared || !apart || event->warps_differ)) {
    event->warps_differ |= apart;
    return;
  }
  /* The first pair, or the first of two warps. */
  event->thread = second.thread;
  event->other_thread = first.thread;
  event->block = second.block;
  event->other_block = first.block;
  event->warps_differ = apart;
  event->value = (int64_t)address;
}

/* Whether two strong accesses need an order, too. same: the block is */
static int still_races(const Launch *l, const Block *b, const Stamp *before, int by,
                       const Site *site, const Site *first, int same) {
  if (!same) /* what atomics change is a flag, whose value may be used, too */
    return (site->order | first->order) & WITHIN_BLOCK ||
           (site->order & MOVED && first->op != ATOMIC);
  int other = (int)(before->thread - 1 - b->base),
      plain = site->op != ATOMIC && first->op != ATOMIC;
  return site->space == SHARED && plain && other / LANES == by / LANES && !l->waits;
}

/* Whether what orders accesses beyond barriers leaves two of different threads unordered. */
static int unordered_yet(const Launch *l, const Block *b, const Stamp *before, int by,
                         const Site *site) {
  int size = threads_of(b), same = before->thread - 1 - b->base < (uint32_t)size,
      global = site->space != SHARED;
  const Site *first = &l->sites[l->code[before->pc].site];
  if (site->strong && first->strong && !still_races(l, b, before, by, site, first, same))
    return 0;
  if (!l->fences && !b->has_acquired)
    return 1;
  int stores = site->op == STORE;
  int lenient = global && (same || stores || site->strong || site->order & UNCACHED);
  int64_t number = before->thread - 1;
  return !handed_over(l, b, (int)(number / size), (int)(number % size), before->time, by, lenient);
}

/* Whether two accesses have no order: an earlier one, and a thread's at an instruction. */
static inline int unordered(const Launch *l, const Block *b, const Stamp *before, uint32_t thread,
                            int32_t pc) {
  if (!before->thread || before->thread == thread)
    return 0;
  uint32_t one = before->thread - 1 - b->base, two = thread - 1 - b->base;
  int same_block = one < (uint32_t)threads_of(b);
  /* of a copy: see check_flight */
  if (!same_block && l->sites[l->code[pc].site].space == SHARED)
    return 0;
  if (same_block && before->time < b->time)
    return 0;
  if (same_block && one / LANES == two / LANES && before->time < b->warps[two / LANES].time)
    return 0;
  return unordered_yet(l, b, before, (int)two, &l->sites[l->code[pc].site]);
}

/* A thread has read a cell. Of two warps, one reader each is kept. time: the block's */
static inline void has_read(uint32_t time, Cell *cell, Stamp now) {
  if (cell->read.thread && cell->read.thread != now.thread) {
    uint32_t warp = (now.thread - 1) / LANES;
    int keep =
        (cell->read.thread - 1) / LANES == warp && cell->other.thread && cell->other.time >= time;
    if (!keep || (cell->other.thread - 1) / LANES == warp)
      cell->other = cell->read;
  }
  cell->read = now;
}

/* A thread accesses a cell. same: the bytes don't change; of shared memory, they were written by
 * another thread with the same store. */
static inline void order(Launch *l, Block *b, const Buffer *m, uint64_t place, int32_t pc,
                         int thread, uint64_t address, int writes, int same) {
  Cell *cell = &m->cells[place];
  int shared = m == &b->shared, kind = shared ? SHARED_RACE : GLOBAL_RACE;
  Stamp now = {b->base + (uint32_t)thread + 1, b->clock, pc};
  if (shared && b->async)
    check_flight(l, b, pc, thread, place, writes);
  int clash = unordered(l, b, &cell->write, now.thread, pc);
  if (clash && !same && (writes || !cell->agreed))
    report_race(l, b, kind, pc, &cell->write, thread, address);
  if (!writes) {
    has_read(b->time, cell, now);
    return;
  }
  if (!same || shared) {
    if (unordered(l, b, &cell->read, now.thread, pc))
      report_race(l, b, kind, pc, &cell->read, thread, address);
    if (unordered(l, b, &cell->other, now.thread, pc))
      report_race(l, b, kind, pc, &cell->other, thread, address);
  }
  cell->agreed = clash && same && !shared;
  cell->write = now;
  if (shared)
    b->written_at = b->clock;
}

/* A thread lets the asynchronous proxy read bytes of shared memory from now on. */
static void begin_reading(Launch *l, Block *b, int32_t pc, int thread, uint64_t start,
                          uint64_t size) {
  Async *own = async_of(l, b);
  FOR_CELLS(place, start, own ? size : 0, l->grain) {
    const Stamp *last = &b->shared.cells[place].write;
    uint32_t writer = last->thread - 1 - b->base;
    check_flight(l, b, pc, thread, place, 0);
    if (unordered(l, b, last, b->base + (uint32_t)thread + 1, pc))
      report_race(l, b, SHARED_RACE, pc, last, thread, start);
    if (last->thread && writer < (uint32_t)threads_of(b))
      if (own->proxied[writer] < last->time && own->proxied[thread] < last->time)
        report_thread(l, b, MISSING_PROXY_FENCE, pc, last->pc, thread,
                      (int64_t)(place * (uint64_t)l->grain), NULL);
    own->states[place].readers++;
    own->states[place].reader = pc;
  }
}

/* They have been read, and the thread has waited for that. */
static void end_reading(Launch *l, Block *b, int32_t pc, int thread, uint64_t start,
                        uint64_t size) {
  FOR_CELLS(place, start, b->async ? size : 0, l->grain) {
    Cell *cell = &b->shared.cells[place];
    b->async->states[place].readers--;
    if (cell->read.thread != b->base + (uint32_t)thread + 1)
      cell->other = cell->read;
    cell->read = (Stamp){b->base + (uint32_t)thread + 1, b->clock, pc};
  }
}

#endif
