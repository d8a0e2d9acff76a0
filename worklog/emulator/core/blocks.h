/* The barriers of a block, and how blocks take turns. Included by core.c alone.
 *
 * PTX ISA, "bar, barrier": a block has 16 barriers. A barrier counts the warps that arrive, at whichever instructions;
 * a warp arrives with the last of its threads that have not exited. */
#ifndef WORKLOG_BLOCKS_H
#define WORKLOG_BLOCKS_H

#include "access.h"

enum { REGISTERS = 65536 }; /* of a multiprocessor */

/* Arrivals. */

static inline int thread_of(const Block *b, const Warp *w, uint32_t lanes) {
  return (int)(w - b->warps) * LANES + __builtin_ctz(lanes);
}

/* Tell of lanes of several warps of a block. */
static void tell_block(Launch *l, Block *b, int32_t kind, int32_t pc, const uint32_t *lanes, int64_t value) {
  for (int k = 0; k < b->warps_count; k++)
    if (lanes[k]) tell_lanes(l, b, &b->warps[k], kind, pc, lanes[k], value);
}

/* The lanes of a warp at a barrier; those of them that wait there, if all of its live lanes have arrived. */
static uint32_t at_barrier(const Launch *l, const Warp *w, int number, uint32_t *waits) {
  uint32_t present = 0;
  *waits = 0;
  for (int n = 0; n < w->arrivals_count; n++) {
    if (w->arrivals[n].number != number) continue;
    present |= w->arrivals[n].mask;
    if (l->code[w->arrivals[n].pc].op != ARRIVE) *waits |= w->arrivals[n].mask;
  }
  if (w->live & ~present) *waits = present = 0;
  return present;
}

/* Continue lanes that have arrived at a barrier, those of this operation or, with `all`, any. */
static void go_on(Launch *l, Warp *w, int number, int all) {
  int kept = 0;
  for (int n = 0; n < w->arrivals_count; n++) {
    Arrival arrival = w->arrivals[n];
    if (arrival.number == number && (all || l->code[arrival.pc].op == ARRIVE)) push(w, arrival.pc + 1, arrival.mask);
    else w->arrivals[kept++] = arrival;
  }
  w->arrivals_count = kept;
}

/* Report threads that wait at one barrier in several places, and those that exited before it. */
static void check_places(Launch *l, Block *b, int number, const uint32_t *released, int counted) {
  int32_t first = INT32_MAX, other = INT32_MAX, split = 0, thread = 0, others = 0;
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    int32_t own = NONE;
    for (int n = 0; n < w->arrivals_count && released[k]; n++) {
      Arrival *a = &w->arrivals[n];
      if (a->number != number || l->code[a->pc].op == ARRIVE) continue;
      split |= own != NONE && own != a->pc;
      own = a->pc;
      if (a->pc < first) other = first, first = a->pc, thread = thread_of(b, w, a->mask);
      else if (a->pc > first && a->pc < other) other = a->pc;
    }
  }
  for (int k = 0; k < b->warps_count && other != INT32_MAX; k++)
    for (int n = 0; n < b->warps[k].arrivals_count && released[k]; n++)
      if (b->warps[k].arrivals[n].pc == other) others += __builtin_popcount(b->warps[k].arrivals[n].mask);
  if (other != INT32_MAX && (split || !counted)) {
    Event *event = tell(l, DIVERGENT_BARRIER, first, other, 1);
    if (event) event->block = b->number, event->thread = thread, event->warps_differ = !split, event->value = others;
  }
  if (b->exited && !counted) {
    uint32_t exited[MOST_WARPS];
    for (int k = 0; k < b->warps_count; k++) exited[k] = b->warps[k].started & ~b->warps[k].live;
    tell_block(l, b, AFTER_EXIT, first, exited, 0);
  }
}

/* bar.red: its result for the lanes of the first to the last warp, from the predicates of these. */
static void reduce(Launch *l, Block *b, int number, const uint32_t *released, int first, int last) {
  uint32_t count = 0, most = 0;
  for (int k = first; k < last; k++)
    for (int n = 0; n < b->warps[k].arrivals_count && released[k]; n++)
      if (b->warps[k].arrivals[n].number == number) {
        count += (uint32_t)__builtin_popcount(b->warps[k].arrivals[n].predicate);
        most += (uint32_t)__builtin_popcount(b->warps[k].arrivals[n].mask);
      }
  for (int k = first; k < last; k++) {
    Warp *w = &b->warps[k];
    for (int n = 0; n < w->arrivals_count && released[k]; n++) {
      const Instruction *i = &l->code[w->arrivals[n].pc];
      uint32_t mask = w->arrivals[n].mask;
      if (w->arrivals[n].number != number || i->op < POPULATION) continue;
      uint32_t *d = (uint32_t *)(w->file + i->d);
      for (int lane = 0; i->op == POPULATION && lane < LANES; lane++)
        if (mask >> lane & 1) d[lane] = count;
      if (i->op == ALL_TRUE) *d = count == most ? *d | mask : *d & ~mask;
      if (i->op == ANY_TRUE) *d = count ? *d | mask : *d & ~mask;
    }
  }
}

/* What these lanes did comes before what the released ones do next. */
static void order_barrier(Launch *l, Block *b, int number, const uint32_t *arrived, const uint32_t *released) {
  uint32_t others = 0;
  for (int k = 0; k < b->warps_count; k++) others |= b->warps[k].live & ~released[k];
  if (others) meet_some(l, b, number, arrived, released);
  else meet_block(l, b);
}

/* Whole warps arrive without waiting. */
static void count_arrivals(Launch *l, Block *b, int number) {
  uint32_t arrived[MOST_WARPS] = {0}, again[MOST_WARPS] = {0}, none[MOST_WARPS] = {0}, any = 0, twice = 0, waits;
  int32_t pc = NONE;
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    if (!at_barrier(l, w, number, &waits)) continue;
    for (int n = 0; n < w->arrivals_count; n++)
      if (w->arrivals[n].number == number && l->code[w->arrivals[n].pc].op == ARRIVE)
        arrived[k] |= w->arrivals[n].mask, pc = w->arrivals[n].pc;
    if (!arrived[k]) continue;
    any = 1;
    if (w->arrived[number]++) again[k] = arrived[k], twice = 1;
    go_on(l, w, number, 0);
  }
  if (twice) tell_block(l, b, BARRIER_AGAIN, pc, again, (int64_t)number << 32);
  if (any) order_barrier(l, b, number, arrived, none);
}

/* Let threads continue that wait at a barrier for which all have arrived; whether any do. */
static int release_barrier(Launch *l, Block *b, int number) {
  uint32_t released[MOST_WARPS] = {0}, with_count[MOST_WARPS] = {0}, waits, any = 0;
  int32_t wanted = 0, total = 0, everyone = 0, place = INT32_MAX;
  int concerned = 0, reduces = 0, counted = 0, uncounted = 0;
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    concerned |= at_barrier(l, w, number, &waits) != 0;
    for (int n = 0; n < w->arrivals_count && at_barrier(l, w, number, &waits); n++) {
      Arrival *a = &w->arrivals[n];
      if (a->number != number) continue;
      if (a->count > wanted) wanted = a->count;
      if (l->code[a->pc].op == ARRIVE) continue;
      reduces |= l->code[a->pc].op >= POPULATION;
      if (a->pc < place) place = a->pc;
      if (a->count) counted = 1, with_count[k] |= a->mask;
      else uncounted = 1;
    }
  }
  if (!concerned) return 0;
  count_arrivals(l, b, number);
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    at_barrier(l, w, number, &released[k]);
    any |= released[k];
    total += w->arrived[number] + (released[k] != 0);
    everyone += w->live || w->arrived[number];
  }
  int32_t needed = wanted ? wanted / LANES : everyone, alone = wanted == LANES;
  if (total < needed) return 0;
  for (int k = 0; k < b->warps_count; k++) b->warps[k].arrived[number] = 0;
  if (!any) return 0;
  check_places(l, b, number, released, counted);
  if (counted && uncounted) tell_block(l, b, BARRIER_MIXED, place, with_count, (int64_t)number << 32);
  /* A barrier for 32 threads: each warp completes it alone. */
  for (int k = 0; k < b->warps_count; k++) {
    if (reduces && alone) reduce(l, b, number, released, k, k + 1);
    if (alone && released[k]) meet_lanes(l, b, &b->warps[k], released[k]);
  }
  if (reduces && !alone) reduce(l, b, number, released, 0, b->warps_count);
  if (!alone) order_barrier(l, b, number, released, released);
  for (int k = 0; k < b->warps_count; k++)
    if (released[k]) go_on(l, &b->warps[k], number, 1);
  if (total > needed && !alone) tell_block(l, b, BARRIER_MORE, place, released, (int64_t)number << 32 | wanted);
  return 1;
}

/* Of all barriers of a block. */
static int release(Launch *l, Block *b) {
  uint32_t numbers = 0, any = 0;
  for (int k = 0; k < b->warps_count; k++)
    for (int n = 0; n < b->warps[k].arrivals_count; n++) numbers |= 1u << b->warps[k].arrivals[n].number;
  for (; numbers; numbers &= numbers - 1) any |= (uint32_t)release_barrier(l, b, __builtin_ctz(numbers));
  return any != 0;
}

/* A barrier is complete at which no thread waits. */
static void forget_arrivals(Block *b, int number, int32_t wanted) {
  uint32_t total = 0, any = 0;
  for (int k = 0; k < b->warps_count; k++) {
    total += b->warps[k].arrived[number];
    for (int n = 0; n < b->warps[k].arrivals_count; n++) any |= b->warps[k].arrivals[n].number == number;
  }
  for (int k = 0; k < b->warps_count && !any && total >= (uint32_t)wanted / LANES; k++) b->warps[k].arrived[number] = 0;
}

/* bar and barrier in any form. a: the number; b: the count of threads, or NONE; c: the predicate of .red. */
static int barrier(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const uint32_t *numbers = (const uint32_t *)(w->file + i->a), *counts = (const uint32_t *)(w->file + i->b);
  uint32_t least = i->b == NONE ? 0 : LANES, wrong = 0, predicate = i->c == NONE ? 0 : *(uint32_t *)(w->file + i->c);
  for (int k = 0; k < LANES; k++) {
    uint32_t count = i->b == NONE ? 0 : counts[k];
    int fits = count % LANES == 0 && count >= least && count <= (uint32_t)b->warps_count * LANES;
    if (numbers[k] >= BARRIERS || !fits) wrong |= 1u << k & mask;
  }
  if (wrong) {
    int lane = __builtin_ctz(wrong);
    int64_t name = (int64_t)numbers[lane] << 32 | (i->b == NONE ? 0 : counts[lane]);
    tell_lanes(l, b, w, BARRIER_WRONG, pc, wrong, name);
    l->status = ABORTED;
    return STOP;
  }
  for (uint32_t rest = mask; rest;) {
    int lane = __builtin_ctz(rest);
    Arrival arrival = {pc, 0, (int32_t)numbers[lane], i->b == NONE ? 0 : (int32_t)counts[lane], 0};
    for (int k = lane; k < LANES; k++)
      if (rest >> k & 1 && numbers[k] == numbers[lane] && (i->b == NONE || counts[k] == counts[lane]))
        arrival.mask |= 1u << k;
    rest &= ~arrival.mask;
    arrival.predicate = predicate & arrival.mask;
    /* Threads that wait are released when the other warps have had their turns, since more may arrive than wanted. */
    if (i->op == ARRIVE && w->arrived[arrival.number]) release_barrier(l, b, arrival.number);
    w->arrivals[w->arrivals_count++] = arrival;
    if (i->op != ARRIVE) continue;
    count_arrivals(l, b, arrival.number);
    forget_arrivals(b, arrival.number, arrival.count);
  }
  note(l, b, w, NULL, pc, SHARED, mask, NULL);
  return PARKED;
}

/* Other instructions that concern a block or the launch. */

/* trap and brkpt, and a failed assertion, with the address of its text. */
static int trap(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const uint64_t *text = (const uint64_t *)(w->file + i->a);
  if (!l->values) return NEXT;
  tell_lanes(l, b, w, TRAPPED, pc, mask, i->a == NONE ? 0 : (int64_t)text[__builtin_ctz(mask)]);
  l->status = ABORTED;
  return STOP;
}

/* vprintf: Python prints. a, b: the addresses of the format and of the arguments. */
static int print(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const uint64_t *format = (const uint64_t *)(w->file + i->a), *arguments = (const uint64_t *)(w->file + i->b);
  (void)pc;
  for (int k = 0; k < LANES; k++) {
    if (!(mask >> k & 1)) continue;
    const uint8_t *local = b->local + ((w - b->warps) * LANES + k) * l->local_size;
    uint32_t count = l->values ? l->print(format[k], arguments[k], local) : 0;
    if (i->d != NONE) ((uint32_t *)(w->file + i->d))[k] = count;
  }
  return NEXT;
}

/* setmaxnreg. PTX ISA: an increase waits until the block's other warps have released as many registers. */
static int set_registers(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  (void)l, (void)b;
  w->registers = (int32_t)((const uint32_t *)(w->file + i->a))[__builtin_ctz(mask)];
  w->registers_pc = pc;
  return NEXT;
}

/* At a block's end. It has what a launch gives to all of its threads: registers come in units of 8 per thread. */
static void check_registers(Launch *l, Block *b) {
  int threads = l->block[0] * l->block[1] * l->block[2], own = REGISTERS / threads / 8 * 8;
  int64_t wanted = 0, most = 0;
  int32_t pc = NONE;
  uint32_t lanes[MOST_WARPS];
  for (int k = 0; k < b->warps_count; k++) {
    Warp *w = &b->warps[k];
    wanted += (int64_t)(w->registers ? w->registers : own) * __builtin_popcount(w->started);
    if (w->registers > most) most = w->registers, pc = w->registers_pc;
  }
  if (pc == NONE || wanted <= (int64_t)own * threads) return;
  for (int k = 0; k < b->warps_count; k++) lanes[k] = b->warps[k].registers_pc == pc ? b->warps[k].started : 0;
  tell_block(l, b, REGISTERS_WANTED, pc, lanes, wanted);
}

#endif
