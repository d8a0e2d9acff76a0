/* Reads of shared memory by the asynchronous proxy, which go on after their instruction: of wgmma and of bulk copies.
 * Included by core.c alone. PTX ISA, "Async proxy": what threads write is visible to it after fence.proxy.async. */
#ifndef WORKLOG_DRAIN_H
#define WORKLOG_DRAIN_H

#include "flight.h"

/* fence.proxy.async. */
static void fence_proxy(Launch *l, Block *b, const Warp *w, uint32_t lanes) {
  size_t threads = (size_t)b->warps_count * LANES;
  if (!b->proxied && !(b->proxied = room(l, sizeof *b->proxied * threads))) return;
  for (int k = 0; k < LANES; k++)
    if (lanes >> k & 1) b->proxied[(w - b->warps) * LANES + k] = b->clock;
  tick(b);
}

/* A thread lets these bytes be read from now on. */
static void drain(Launch *l, Block *b, int32_t pc, int thread, uint64_t start, uint64_t size) {
  size_t cells = (size_t)l->shared_size / (size_t)l->grain + 1;
  if (!b->leaving && !(b->leaving = room(l, sizeof *b->leaving * cells))) return;
  for (uint64_t place = start / (uint64_t)l->grain; place * (uint64_t)l->grain < start + size; place++) {
    Cell *cell = &b->cells[place];
    if (b->async) check_flight(l, b, pc, thread, place, 0);
    uint32_t writer = cell->write.thread - 1 - b->base, threads = (uint32_t)b->warps_count * LANES;
    if (unordered(l, b, &cell->write, b->base + (uint32_t)thread + 1, pc))
      tell_race(l, b, SHARED_RACE, pc, &cell->write, thread, start);
    if (cell->write.thread && writer < threads) {
      uint32_t theirs = b->proxied ? b->proxied[writer] : 0, own = b->proxied ? b->proxied[thread] : 0;
      if ((theirs > own ? theirs : own) < cell->write.time)
        tell_cell(l, b, MISSING_PROXY_FENCE, pc, cell->write.pc, thread, place);
    }
    b->leaving[place].count++;
    b->leaving[place].pc = pc;
  }
}

/* They have been read, and the thread has waited for that. */
static void drained(Launch *l, Block *b, int32_t pc, int thread, uint64_t start, uint64_t size) {
  for (uint64_t place = start / (uint64_t)l->grain; place * (uint64_t)l->grain < start + size; place++) {
    Cell *cell = &b->cells[place];
    if (b->leaving) b->leaving[place].count--;
    if (cell->read.thread != b->base + (uint32_t)thread + 1) cell->other = cell->read;
    cell->read = (Stamp){b->base + (uint32_t)thread + 1, b->clock, pc};
  }
}

/* A thread overwrites a cell. */
static inline void check_leaving(Launch *l, Block *b, int32_t pc, int thread, uint64_t place) {
  if (b->leaving && b->leaving[place].count) tell_cell(l, b, STILL_READ, pc, b->leaving[place].pc, thread, place);
}

#endif
