/* The barriers of a block. Included by core.c alone.
 *
 * PTX ISA, "bar, barrier": a block has 16 barriers. A barrier counts the warps that arrive, at
 * whichever instructions; a warp arrives with the last of its threads that have not exited. */
#ifndef WORKLOG_BLOCKS_H
#define WORKLOG_BLOCKS_H

#include "access.h"

enum { REGISTERS = 65536 }; /* of a multiprocessor */

/* Tell of lanes of several warps of a block. */
static void report_block(Launch *l, Block *b, int32_t kind, int32_t pc, const uint32_t *lanes,
                         int64_t value) {
  for (int k = 0; k < b->warps_count; k++)
    if (lanes[k])
      report_lanes(l, b, &b->warps[k], kind, pc, lanes[k], value);
}

/* The first warp of the block whose barrier it is: each block of a cluster has BARRIERS numbers. */
static int first_warp(const Launch *l, const Block *b, int number) {
  return number / BARRIERS * own_warps(l, b);
}

/* By warp, the lanes that wait at a barrier, and those that arrive without waiting; none of a warp
 * before all of its live lanes have come. */
static void assemble(const Launch *l, const Block *b, int number, uint32_t *waiting,
                     uint32_t *passing) {
  const int start = first_warp(l, b, number), end = start + own_warps(l, b);
  memset(waiting, 0, sizeof *waiting * (size_t)b->warps_count);
  memset(passing, 0, sizeof *passing * (size_t)b->warps_count);
  for (int n = 0; n < b->arrivals_count; n++) {
    const Arrival *a = &b->arrivals[n];
    if (a->number == number)
      (a->op == ARRIVE ? passing : waiting)[a->warp] |= a->mask;
  }
  for (int k = start; k < end; k++)
    if (b->warps[k].live & ~(waiting[k] | passing[k]))
      waiting[k] = passing[k] = 0;
}

/* Continue lanes, by warp, that are at a barrier. */
static void go_on(Block *b, int number, const uint32_t *lanes) {
  int kept = 0;
  for (int n = 0; n < b->arrivals_count; n++) {
    Arrival a = b->arrivals[n];
    if (a.number != number || a.mask & ~lanes[a.warp])
      b->arrivals[kept++] = a;
    else
      push(&b->warps[a.warp], a.pc + 1, a.mask);
  }
  b->arrivals_count = kept;
}

/* Report threads that wait at one barrier in several places, and those that exited before it. */
static void check_places(Launch *l, Block *b, int number, const uint32_t *released, int counted) {
  const int start = first_warp(l, b, number), end = start + own_warps(l, b);
  int32_t first = INT32_MAX, other = INT32_MAX, split = 0, thread = 0, others = 0, last_warp = NONE,
          last_pc = NONE;
  uint32_t exited[MOST_WARPS];
  for (int n = 0; n < b->arrivals_count; n++) {
    const Arrival *a = &b->arrivals[n];
    if (a->number != number || a->op == ARRIVE || !released[a->warp])
      continue;
    split |= a->warp == last_warp && a->pc != last_pc;
    last_warp = a->warp;
    last_pc = a->pc;
    if (a->pc < first) {
      other = first;
      first = a->pc;
      thread = a->warp * LANES + __builtin_ctz(a->mask);
    } else if (a->pc > first && a->pc < other)
      other = a->pc;
  }
  for (int n = 0; n < b->arrivals_count; n++)
    if (b->arrivals[n].pc == other && released[b->arrivals[n].warp])
      others += __builtin_popcount(b->arrivals[n].mask);
  if (other != INT32_MAX && (split || !counted)) {
    Event *event = report_thread(l, b, DIVERGENT_BARRIER, first, other, thread, others, NULL);
    if (event && event->count == 1)
      event->warps_differ = !split;
  }
  for (int k = 0; k < b->warps_count; k++)
    exited[k] = 0;
  for (int k = start; k < end; k++)
    exited[k] = b->warps[k].started & ~b->warps[k].live;
  if (b->exited && !counted)
    report_block(l, b, AFTER_EXIT, first, exited, 0);
}

/* bar.red: its result for the lanes of the first to the last warp, from the predicates of these. */
static void reduce(const Block *b, const Launch *l, int number, const uint32_t *released, int first,
                   int last) {
  int count = 0, most = 0;
  for (int turn = 0; turn < 2; turn++)
    for (int n = 0; n < b->arrivals_count; n++) {
      const Arrival *a = &b->arrivals[n];
      const Warp *w = &b->warps[a->warp];
      if (a->number != number || a->warp < first || a->warp >= last || !released[a->warp])
        continue;
      if (!turn) {
        count += __builtin_popcount(a->predicate);
        most += __builtin_popcount(a->mask);
      } else if (a->op >= POPULATION) {
        uint32_t *d = AT(uint32_t, l->code[a->pc].d);
        FOR_LANES(lane, a->op == POPULATION ? a->mask : 0)
          d[lane] = (uint32_t)count;
        if (a->op == ALL_TRUE)
          *d = count == most ? *d | a->mask : *d & ~a->mask;
        if (a->op == ANY_TRUE)
          *d = count ? *d | a->mask : *d & ~a->mask;
      }
    }
}

/* What these lanes did comes before what the released ones do next. */
static void order_barrier(Launch *l, Block *b, int number, const uint32_t *arrived,
                          const uint32_t *released) {
  const int start = first_warp(l, b, number), end = start + own_warps(l, b);
  uint32_t others = 0;
  for (int k = 0; k < b->warps_count; k++)
    others |= b->warps[k].live & ~released[k];
  if (!others) {
    meet_block(l, b);
    return;
  }
  for (int k = start; k < end; k++)
    if (arrived[k])
      vc_release(l, b, &b->named[number], k, arrived[k]);
  for (int k = start; k < end; k++)
    vc_acquire(l, b, k, released[k], &b->named[number]);
  tick(b);
}

/* Count whole warps that arrive without waiting, and let threads continue that wait at a barrier
 * for which all have arrived, unless more may arrive: late. Whether any do. */
static int release_barrier(Launch *l, Block *b, int number, int late) {
  const int start = first_warp(l, b, number), end = start + own_warps(l, b);
  uint32_t released[MOST_WARPS], passing[MOST_WARPS], with_count[MOST_WARPS] = {0},
                                                      again[MOST_WARPS] = {0};
  const uint32_t none[MOST_WARPS] = {0};
  uint32_t any = 0, pass = 0;
  int32_t wanted = 0, total = 0, everyone = 0, place = INT32_MAX, passes_at = NONE;
  int concerned = 0, reduces = 0, counted = 0, uncounted = 0;
  assemble(l, b, number, released, passing);
  for (int n = 0; n < b->arrivals_count; n++) {
    const Arrival *a = &b->arrivals[n];
    if (a->number != number || !(released[a->warp] | passing[a->warp]))
      continue;
    concerned = 1;
    if (a->count > wanted)
      wanted = a->count;
    if (passing[a->warp])
      passes_at = a->pc;
    if (a->op == ARRIVE)
      continue;
    reduces |= a->op >= POPULATION;
    if (a->pc < place)
      place = a->pc;
    if (a->count) {
      counted = 1;
      with_count[a->warp] |= a->mask;
    } else
      uncounted = 1;
  }
  if (!concerned)
    return 0;
  for (int k = start; k < end; k++) {
    uint16_t *arrived = &b->warps[k].arrived[number % BARRIERS];
    if (passing[k] && (*arrived)++)
      again[k] = passing[k];
    if (passing[k])
      released[k] = 0; /* the rest of the warp waits for these lanes */
    pass |= passing[k];
    any |= released[k];
    total += *arrived + (released[k] != 0);
    everyone += b->warps[k].live || *arrived;
  }
  go_on(b, number, passing);
  report_block(l, b, BARRIER_AGAIN, passes_at, again, (int64_t)(number % BARRIERS) << 32);
  if (pass)
    order_barrier(l, b, number, passing, none);
  int32_t needed = wanted ? wanted / LANES : everyone, alone = wanted == LANES;
  if (total < needed || (any && !late))
    return 0;
  for (int k = start; k < end; k++)
    b->warps[k].arrived[number % BARRIERS] = 0;
  if (!any)
    return 0;
  check_places(l, b, number, released, counted);
  if (counted && uncounted)
    report_block(l, b, BARRIER_MIXED, place, with_count, (int64_t)(number % BARRIERS) << 32);
  /* A barrier for 32 threads: each warp completes it alone. */
  for (int k = 0; k < b->warps_count && alone; k++) {
    if (reduces)
      reduce(b, l, number, released, k, k + 1);
    if (released[k])
      meet_lanes(l, b, &b->warps[k], released[k]);
  }
  if (reduces && !alone)
    reduce(b, l, number, released, 0, b->warps_count);
  if (!alone)
    order_barrier(l, b, number, released, released);
  go_on(b, number, released);
  int64_t value = (int64_t)(number % BARRIERS) << 32 | wanted;
  if (total > needed && !alone)
    report_block(l, b, BARRIER_MORE, place, released, value);
  return 1;
}

/* Of all barriers of a block. */
static int release(Launch *l, Block *b) {
  int any = 0;
  for (int n = 0; n < b->arrivals_count; n++) {
    int count = b->arrivals_count, number = b->arrivals[n].number;
    if (n && number == b->arrivals[n - 1].number)
      continue;
    any |= release_barrier(l, b, number, 1);
    if (b->arrivals_count < count)
      n = -1;
  }
  return any;
}

/* barrier.cluster: lanes arrive, and later wait until all lanes of the cluster have arrived that
 * have not exited. */
static int cluster_barrier(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i,
                           uint32_t mask) {
  VectorClock *all = &b->cluster;
  int first = first_of(b, w), waits = i->op == CLUSTER_WAIT;
  uint32_t wrong = waits ? mask & ~w->owing : mask & w->owing;
  if (wrong)
    report_lanes(l, b, w, waits ? CLUSTER_UNARRIVED : CLUSTER_AGAIN, pc, wrong, 0);
  if (!waits) {
    w->come |= mask;
    w->owing |= mask;
    FOR_LANES(k, l->checking ? mask : 0) {
      VectorClock *own = &b->clocks[first + k];
      if (i->op == CLUSTER_RELAXED) { /* releases what came before the last fence, if any */
        if (own->wide) {
          vc_set(l, &b->chunks, &all->known.own, first + k, own->wide);
          vc_join(l, &b->chunks, &all->known, &own->known, threads_of(b));
        }
        continue;
      }
      vc_set(l, &b->chunks, &all->known.own, first + k, b->clock);
      vc_join(l, &b->chunks, &all->known, &own->known, threads_of(b));
      vc_join(l, &b->chunks, &all->shown, &own->shown, 0);
      publish(b, first + k, 1, own->wide);
    }
    tick(b);
    return NEXT;
  }
  for (int k = 0; w->come & mask && k < b->warps_count; k++)
    if (b->warps[k].live & ~b->warps[k].come)
      return AGAIN;
  if (w->come & mask) { /* all learn what each did before it arrived */
    for (int k = 0; k < b->warps_count; k++)
      b->warps[k].come = 0;
    vc_join(l, &b->chunks, &b->common.known, &all->known, 0);
    vc_join(l, &b->chunks, &b->common.shown, &all->shown, 0);
    vc_clear(&all->known);
    vc_clear(&all->shown);
    b->has_acquired = b->met = 1;
    tick(b);
  }
  w->owing &= ~mask;
  note(l, b, w, NULL, pc, SHARED, mask, NULL);
  return l->status ? STOP : NEXT;
}

/* The threads of a block of a cluster exit. Arrivals at its mbarriers from other blocks must come
 * before. known: what its threads know */
static void leave_mbarriers(Launch *l, Block *b, int32_t pc, int rank, const View *known) {
  for (int k = 0; b->async && k < b->async->mbarriers_count; k++) {
    const Mbarrier *m = &b->async->mbarriers[k];
    if (!m->alive || !m->remote_pc || m->start / l->shared_stride != rank)
      continue;
    if (m->remote_time > time_of(&known->own, m->remote_thread))
      report_thread(l, b, LEFT_EARLY, m->remote_pc - 1, pc, m->remote_thread, m->start, NULL);
  }
}

/* Lanes of a warp exit. What other blocks of the cluster did to the block's shared memory must come
 * before its end. */
static void leave(Launch *l, Block *b, const Warp *w, int32_t pc) {
  int rank = rank_of(l, b, w), count = own_warps(l, b), from = rank * count * LANES;
  uint64_t start = (uint64_t)rank * (uint64_t)l->shared_stride;
  View all = {0};
  if (l->blocks == 1)
    return;
  for (int k = rank * count; k < (rank + 1) * count; k++)
    if (b->warps[k].live)
      return;
  b->left |= 1u << rank;
  for (int k = rank * count; k < (rank + 1) * count; k++)
    vc_release_view(l, b, &all, k, b->warps[k].started, b->clock);
  FOR_CELLS(place, start, l->checking ? (uint64_t)l->own_size : 0, l->grain) {
    const Cell *cell = &b->shared.cells[place];
    const Stamp *stamps[] = {&cell->write, &cell->read, &cell->other};
    for (int n = 0; n < 3; n++) {
      int agent = (int)(stamps[n]->thread - 1 - b->base),
          own = agent >= from && agent < from + count * LANES;
      if (!stamps[n]->thread || own || agent >= threads_of(b) ||
          stamps[n]->time <= time_of(&all.own, agent))
        continue;
      report_thread(l, b, LEFT_EARLY, stamps[n]->pc, pc, agent,
                    (int64_t)(place * (uint64_t)l->grain), NULL);
    }
  }
  leave_mbarriers(l, b, pc, rank, &all);
}

/* bar and barrier in any form. a: the number; b: the count of threads, or NONE; c: the predicate of
 * .red. */
static int barrier(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const uint32_t *numbers = AT(uint32_t, i->a == NONE ? 0 : i->a),
                 predicate = i->c == NONE ? 0 : *AT(uint32_t, i->c);
  uint32_t counts[LANES] = {0}, wrong = 0;
  int threads = own_warps(l, b) * LANES, start = rank_of(l, b, w) * BARRIERS;
  if (i->op >= CLUSTER_ARRIVE)
    return cluster_barrier(l, b, w, pc, i, mask);
  if (i->b != NONE)
    memcpy(counts, AT(uint32_t, i->b), sizeof counts);
  FOR_LANES(k, mask) {
    int fits =
        counts[k] % LANES == 0 && (counts[k] || i->b == NONE) && counts[k] <= (uint32_t)threads;
    if (numbers[k] >= BARRIERS || !fits)
      wrong |= 1u << k;
  }
  if (wrong) {
    int lane = __builtin_ctz(wrong);
    report_lanes(l, b, w, BARRIER_WRONG, pc, wrong,
                 (int64_t)((uint64_t)numbers[lane] << 32 | counts[lane]));
    l->status = ABORTED;
    return STOP;
  }
  for (uint32_t rest = mask; rest;) {
    int lane = __builtin_ctz(rest);
    Arrival a = {number_of_warp(b, w),
                 pc,
                 start + (int32_t)numbers[lane],
                 (int32_t)counts[lane],
                 i->op,
                 0,
                 0};
    FOR_LANES(k, rest)
      a.mask |= (uint32_t)(numbers[k] == numbers[lane] && counts[k] == counts[lane]) << k;
    rest &= ~a.mask;
    a.predicate = predicate & a.mask;
    /* Threads that wait are released when the other warps have had their turns, since more may
     * arrive than wanted. */
    if (i->op == ARRIVE && w->arrived[a.number % BARRIERS])
      release_barrier(l, b, a.number, 1);
    append(l, &b->chunks, &b->arrivals, &b->arrivals_count, &a, sizeof a);
    for (int n = b->arrivals_count - 1; n > 0 && b->arrivals[n - 1].warp > a.warp; n--) {
      b->arrivals[n] = b->arrivals[n - 1];
      b->arrivals[n - 1] = a;
    }
    if (i->op == ARRIVE)
      release_barrier(l, b, a.number, 0);
  }
  note(l, b, w, NULL, pc, SHARED, mask, NULL);
  return l->status ? STOP : PARKED;
}

/* setmaxnreg, at a block's end. PTX ISA: all warps of a warp group execute the same one. */
static void check_register_groups(Launch *l, Block *b) {
  for (int k = 0; k < b->warps_count; k++) {
    int own = k % own_warps(l, b), first = k - own % 4;
    if (b->warps[k].registers_pc != b->warps[first].registers_pc) {
      int odd = b->warps[k].registers_pc == NONE ? first : k;
      const Warp *w = &b->warps[odd];
      report_lanes(l, b, w, PART_OF_GROUP, w->registers_pc, 1, 0);
    }
  }
}

/* setmaxnreg, at a block's end. It has what a launch gives to all of its threads: registers come in
 * units of 8 per thread. PTX ISA: an increase waits until the block's other warps have released as
 * many registers. */
static void check_registers(Launch *l, Block *b) {
  int threads = l->block[0] * l->block[1] * l->block[2], own = REGISTERS / threads / 8 * 8;
  int64_t wanted = 0, most = 0;
  int32_t pc = NONE;
  uint32_t lanes[MOST_WARPS];
  for (int k = 0; k < b->warps_count; k++) {
    const Warp *w = &b->warps[k];
    wanted += (int64_t)(w->registers ? w->registers : own) * __builtin_popcount(w->started);
    if (w->registers > most) {
      most = w->registers;
      pc = w->registers_pc;
    }
  }
  if (pc == NONE || wanted <= (int64_t)own * threads * l->blocks)
    return;
  for (int k = 0; k < b->warps_count; k++)
    lanes[k] = b->warps[k].registers_pc == pc ? b->warps[k].started : 0;
  report_block(l, b, REGISTERS_WANTED, pc, lanes, wanted);
}

#endif
