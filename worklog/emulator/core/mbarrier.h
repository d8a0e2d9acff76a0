/* cp.async, and mbarriers with the copies that complete on them. Included by core.c alone.
 *
 * A copy reads its source when it is issued. A cp.async lands when its thread waits for it, what
 * completes on an mbarrier when a thread first waits for that, or when nothing else can run; a bulk
 * copy to global memory reads and writes when its thread waits: the latest that a GPU may. PTX ISA,
 * "Asynchronous copy" and "mbarrier". */
#ifndef WORKLOG_MBARRIER_H
#define WORKLOG_MBARRIER_H

#include "access.h"

enum place { WIDE_PLACE = 1, GENERIC_PLACE = 2 };
enum async_flag {
  DROPS = 1,
  RELAXED = 2,
  NO_COMPLETE = 4,
  PARITY = 8,
  COUNTED = 16,
  COMPLETES = 32,
  OF_INIT = 64
};
/* of arrivals and bytes; of a state: the phase is above */
enum { MOST_COUNT = (1 << 20) - 1, PENDING_BITS = 20 };

typedef struct { /* an address: its register, enum place, and offset */
  int32_t base, kind, offset;
} Where;

/* Of an instruction, in the launch's lists. size, number, coordinates: registers, or NONE */
typedef struct {
  Where shared, global, barrier;
  int32_t source, flags, number, dimensions, size, coordinates[5];
} AsyncOperands;

/* The operands of an instruction. */
static const AsyncOperands *operands_of(const Launch *l, const Instruction *i) {
  return (const AsyncOperands *)(l->lists + i->target);
}

/* The address of an operand in a lane. */
static uint64_t address_of(const Warp *w, Where where, int lane) {
  int64_t base =
      where.kind & WIDE_PLACE ? AT(int64_t, where.base)[lane] : AT(int32_t, where.base)[lane];
  if (where.kind & GENERIC_PLACE)
    base ^= (int64_t)SHARED << 60;
  return (uint64_t)base + (uint64_t)(int64_t)where.offset;
}

/* In the cluster's shared memory: see `located`. */
static uint64_t shared_of(const Launch *l, const Block *b, const Warp *w, Where where, int lane,
                          int width) {
  return located(l, rank_of(l, b, w), address_of(w, where, lane), (uint64_t)width);
}

/* A number of a lane, or the other one if there is no operand. */
static int64_t value_of(const Warp *w, int32_t offset, int lane, int64_t other) {
  return offset == NONE ? other : (int64_t)AT(uint32_t, offset)[lane];
}

/* cp.async. */

/* The bytes that lanes copy: zeros from `size` bytes on, which are not read. */
static void read_source(Launch *l, Block *b, Warp *w, int32_t pc, const AsyncOperands *operands,
                        uint32_t mask, AsyncCopy *out) {
  Site *source = &l->sites[operands->source];
  for (int j = 0; j < 4; j++) {
    source->values[j] = l->scratch + SLOT * j;
    memset(w->file + source->values[j], 0, SLOT);
  }
  l->space = CONSTANT;
  /* First the lanes that copy all words, then single words of the others. */
  for (int j = 0; j <= source->count; j++) {
    Site word = *source;
    uint32_t lanes = 0;
    uint64_t address[LANES];
    FOR_LANES(k, mask) {
      int64_t size = value_of(w, operands->size, k, out->width);
      lanes |= (uint32_t)(j ? size < out->width && size > 4 * (j - 1) : size >= out->width) << k;
    }
    if (!lanes)
      continue;
    for (int k = 0; k < LANES; k++) {
      int lane = lanes >> k & 1 ? k : __builtin_ctz(lanes);
      address[k] = address_of(w, operands->global, lane) + (uint64_t)(j ? 4 * (j - 1) : 0);
    }
    if (j) {
      word.count = 1;
      word.values[0] = source->values[j - 1];
      word.last.mask = 0;
    }
    resolved(l, b, w, j ? &word : source, pc, address, lanes);
    if (j)
      memcpy(source->costs, word.costs, sizeof word.costs);
  }
  l->space = 0;
  for (int k = 0; k < LANES; k++)
    for (int j = 0; j < source->count; j++)
      memcpy(out->data[k] + 4 * j, &AT(uint32_t, source->values[j])[k], 4);
}

/* cp.async: lanes' parts of a copy are issued. */
static void copy(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i, uint32_t mask) {
  const AsyncOperands *operands = operands_of(l, i);
  Async *own = b->async;
  Site *s = &l->sites[i->site];
  int warp = number_of_warp(b, w), first = warp * LANES;
  AsyncCopy new = {.pc = pc, .width = 4 * s->count};
  use(l, b, w, pc, operands->size, mask);
  mark_first(b, w, i->site);
  read_source(l, b, w, pc, operands, mask, &new);
  for (int k = 0; k < LANES; k++)
    new.place[k] =
        shared_of(l, b, w, operands->shared, mask >> k & 1 ? k : __builtin_ctz(mask), new.width);
  Buffer *in;
  new.lanes = valid(l, b, w, s, pc, pattern_of(s, new.place, mask), new.place, mask, &in);
  note(l, b, w, NULL, pc, SHARED, new.lanes, new.place);
  if (!new.lanes)
    return;
  new.number = own->issued++;
  memcpy(new.group, own->group + first, sizeof new.group);
  for (int turn = 0; l->checking && turn < 2; turn++)
    FOR_LANES(k, new.lanes)
      FOR_CELLS(place, new.place[k], (uint64_t)new.width, l->grain) {
        const Stamp *last = &b->shared.cells[place].write;
        int same = last->pc == pc && last->time == b->clock;
        own->states[place].waiter = 0;
        if (turn)
          own->states[place].flying = pc + 1;
        else
          order(l, b, &b->shared, place, pc, first + k, place * (uint64_t)l->grain, 1, same);
      }
  append(l, &b->chunks, &own->flights[warp].all, &own->flights[warp].count, &new, sizeof new);
}

/* Lanes' parts of a copy land. Accesses before its issue were checked then, and those since as to
 * bytes in flight. */
static void land_flight(Launch *l, Block *b, int warp, AsyncCopy *f, uint32_t landing) {
  FOR_LANES(k, landing) {
    memcpy(b->shared.data + f->place[k], f->data[k], (size_t)f->width);
    if (!l->checking)
      continue;
    FOR_CELLS(place, f->place[k], (uint64_t)f->width, l->grain) {
      b->async->states[place].flying = 0;
      b->shared.written[place] = 1;
      b->shared.cells[place] =
          (Cell){.write = {b->base + (uint32_t)(warp * LANES + k) + 1, b->clock, f->pc}};
    }
  }
  f->lanes &= ~landing;
}

/* Drop the copies of a warp of which no part is in flight. */
static void drop_landed(Async *own, int warp) {
  int kept = 0;
  for (int k = 0; k < own->flights[warp].count; k++)
    if (own->flights[warp].all[k].lanes)
      own->flights[warp].all[kept++] = own->flights[warp].all[k];
  own->flights[warp].count = kept;
}

/* mbarriers. */

/* Arrivals and expected bytes of a thread count. A phase that waits for none ends. */
static void count_down(Launch *l, Block *b, Mbarrier *m, int32_t pc, int thread, int64_t arrivals,
                       int64_t bytes, int flags) {
  m->bytes += bytes;
  if (bytes > 0) {
    m->expected_pc = pc;
    m->expected_thread = thread;
  }
  if (arrivals > m->pending) {
    int32_t kind = m->bytes ? ARRIVALS_BEYOND_BYTES : ARRIVALS_BEYOND;
    report_thread(l, b, kind, pc, m->pc, thread, 0,
                  NUMBERS(m->start, m->count, m->phase, m->bytes));
    return;
  }
  m->pending -= arrivals;
  if (flags & DROPS)
    m->count -= arrivals;
  if (flags & NO_COMPLETE && !m->pending)
    report_thread(l, b, COMPLETED_ANYWAY, pc, NONE, thread, 0, NUMBERS(m->start));
  if (m->pending || m->bytes)
    return;
  if (m->waited < m->phase)
    report_thread(l, b, NOT_WAITED, pc, NONE, thread, 0, NUMBERS(m->start, m->phase, m->phase - 1));
  m->waited = m->phase++;
  l->changes++;
  m->pending = m->count;
  m->refused = 0;
  if (!l->checking)
    return;
  int agent = threads_of(b) + (int)(m - b->async->mbarriers);
  vc_set(l, &b->chunks, &m->gathered.known.own, agent, (uint32_t)m->phase);
  vc_join(l, &b->chunks, &m->done.known, &m->gathered.known, 0);
  vc_join(l, &b->chunks, &m->done.shown, &m->gathered.shown, 0);
}

/* Whether an arrival waits for a copy of these lanes that is older than group `newest`. */
static int waits_for(const Async *own, const PendingArrival *t, uint32_t waiting,
                     const int64_t *newest) {
  for (int k = 0; k < own->flights[t->warp].count; k++) {
    const AsyncCopy *f = &own->flights[t->warp].all[k];
    if (f->number >= t->first_later)
      continue;
    FOR_LANES(lane, f->lanes & t->lanes & waiting)
      if (f->group[lane] < newest[lane])
        return 1;
  }
  return 0;
}

/* Mark the arrivals that are due: those of an mbarrier, or those that wait for the same copies as
 * these lanes of a warp, older than group `newest`; and the earlier ones of their lanes. */
static void mark_due(Async *own, int barrier, int warp, uint32_t waiting, const int64_t *newest) {
  for (int n = 0; n < own->tracked_count; n++) {
    PendingArrival *t = &own->tracked[n];
    t->due = t->barrier == barrier;
    if (waiting && t->warp == warp && waits_for(own, t, waiting, newest))
      t->due = 1;
    if (!t->due)
      continue;
    for (int k = 0; k < n; k++) {
      PendingArrival *earlier = &own->tracked[k];
      if (earlier->warp == t->warp && earlier->lanes & t->lanes)
        earlier->due = 1;
    }
  }
}

/* The mbarrier of an arrival publishes these lanes' parts of a copy. Those that wait for the copy
 * itself are kept as waiters. */
static void publish_copy(Launch *l, Block *b, const PendingArrival *t, const AsyncCopy *f,
                         uint32_t landing, uint32_t waiting, const int64_t *newest) {
  Async *own = b->async;
  int64_t phase = own->mbarriers[t->barrier].phase + 1;
  FOR_LANES(k, landing)
    FOR_CELLS(place, f->place[k], (uint64_t)f->width, l->grain) {
      publish_cell(b, f->pc, place, t->barrier, phase);
      if (!(waiting >> k & 1) || f->group[k] >= newest[k])
        continue;
      CellState *state = &own->states[place];
      state->waiter = t->warp * LANES + k + 1;
      state->landed = b->clock;
    }
}

/* Land the copies that an arrival waits for, and count it. */
static void arrive_tracked(Launch *l, Block *b, const PendingArrival *t, uint32_t waiting,
                           const int64_t *newest) {
  Async *own = b->async;
  for (int n = 0; n < own->flights[t->warp].count; n++) {
    AsyncCopy *f = &own->flights[t->warp].all[n];
    uint32_t landing = f->number < t->first_later ? f->lanes & t->lanes : 0;
    land_flight(l, b, t->warp, f, landing);
    if (l->checking)
      publish_copy(l, b, t, f, landing, waiting, newest);
  }
  drop_landed(own, t->warp);
  int thread = t->warp * LANES + __builtin_ctz(t->lanes);
  count_down(l, b, &own->mbarriers[t->barrier], t->pc, thread, __builtin_popcount(t->lanes), 0, 0);
}

/* Land the arrivals that are due, in their order: see `mark_due`. */
static void land_tracked(Launch *l, Block *b, int barrier, int warp, uint32_t waiting,
                         const int64_t *newest) {
  Async *own = b->async;
  int count = own->tracked_count;
  mark_due(own, barrier, warp, waiting, newest);
  own->tracked_count = 0;
  for (int n = 0; n < count; n++) {
    PendingArrival t = own->tracked[n];
    if (t.due)
      arrive_tracked(l, b, &t, waiting, newest);
    else
      own->tracked[own->tracked_count++] = t;
  }
}

/* cp.async.wait_group: the copies of these lanes land, except those of their `count` newest groups.
 */
static void wait_copies(Launch *l, Block *b, const Warp *w, uint32_t mask, int count) {
  Async *own = b->async;
  int warp = number_of_warp(b, w);
  int64_t newest[LANES];
  for (int k = 0; k < LANES; k++)
    newest[k] = (int64_t)own->group[warp * LANES + k] - count;
  land_tracked(l, b, NONE, warp, mask, newest);
  for (int n = 0; n < own->flights[warp].count; n++) {
    AsyncCopy *f = &own->flights[warp].all[n];
    uint32_t landing = 0;
    for (int k = 0; k < LANES; k++)
      landing |= (uint32_t)(f->group[k] < newest[k]) << k;
    land_flight(l, b, warp, f, landing & mask & f->lanes);
  }
  drop_landed(own, warp);
}

/* Complete the copies of an mbarrier, in the order in which they were issued; whether there were
 * any. */
static int land(Launch *l, Block *b, int number) {
  Async *own = b->async;
  int kept = 0, count = own->loads_count, before = own->tracked_count;
  land_tracked(l, b, number, 0, 0, NULL);
  for (int n = 0; n < count; n++) {
    Box x = own->loads[n];
    Mbarrier *m = &own->mbarriers[number];
    if (x.barrier != number) {
      own->loads[kept++] = x;
      continue;
    }
    memcpy(b->shared.data + x.start, x.data, (size_t)x.size);
    free(x.data);
    if (l->checking)
      memset(b->shared.written + x.start / l->grain, 1,
             (size_t)((x.size + l->grain - 1) / l->grain));
    if (x.phase != m->phase)
      report_thread(l, b, BYTES_UNEXPECTED, x.pc, m->expected_pc, x.thread, 0,
                    NUMBERS(m->start, x.phase, x.size));
    else
      count_down(l, b, m, x.pc, x.thread, 0, -x.size, 0);
  }
  own->loads_count = kept;
  return kept < count || own->tracked_count < before;
}

/* Whether an mbarrier's address is invalid, which is reported. */
static int outside_shared(Launch *l, Block *b, int32_t pc, int thread, int64_t start) {
  int within = start >= 0 && start <= l->shared_size - 8;
  if (within && start % 8 == 0)
    return 0;
  report_thread(l, b, within ? MBARRIER_MISALIGNED : MBARRIER_OUTSIDE, pc, NONE, thread, 0,
                NUMBERS(start, l->own_size));
  return 1;
}

/* The mbarrier at a byte of shared memory, or NULL. */
static Mbarrier *known_at(const Block *b, int64_t start) {
  for (int k = b->async->mbarriers_count - 1; k >= 0; k--)
    if (b->async->mbarriers[k].start == start && b->async->mbarriers[k].alive)
      return &b->async->mbarriers[k];
  return NULL;
}

/* The mbarrier at a byte of shared memory; a finding where there is none that the thread may use.
 */
static Mbarrier *find(Launch *l, Block *b, int32_t pc, int thread, int64_t start) {
  if (outside_shared(l, b, pc, thread, start))
    return NULL;
  Mbarrier *m = known_at(b, start);
  if (!m)
    report_thread(l, b, NO_MBARRIER, pc, NONE, thread, 0, NUMBERS(start));
  else if (l->checking && !knows(b, thread, m->owner, m->clock))
    report_thread(l, b, MBARRIER_UNSEEN, pc, m->pc, thread, 0, NUMBERS(start));
  return m;
}

/* mbarrier.init of a thread. */
static void initialise(Launch *l, Block *b, int32_t pc, int thread, int64_t start, int64_t count) {
  Async *own = b->async;
  if (outside_shared(l, b, pc, thread, start))
    return;
  Mbarrier *old = known_at(b, start), new = {.start = start, .count = count, .pending = count};
  if (old) {
    report_thread(l, b, MBARRIER_AGAIN, pc, old->pc, thread, 0, NUMBERS(start));
    old->alive = 0;
  }
  if (count < 1 || count > MOST_COUNT)
    report_thread(l, b, MBARRIER_COUNT, pc, NONE, thread, 0, NUMBERS(start, count));
  new.owner = thread;
  new.pc = pc;
  new.alive = 1;
  new.clock = b->clock;
  append(l, &b->chunks, &own->mbarriers, &own->mbarriers_count, &new, sizeof new);
  FOR_CELLS(place, (uint64_t)start, l->checking ? 8u : 0u, l->grain) {
    const Stamp *last = &b->shared.cells[place].write;
    int writer = (int)((last->thread - 1) % (uint32_t)threads_of(b));
    if (unordered(l, b, last, b->base + (uint32_t)thread + 1, last->pc))
      report_thread(l, b, MBARRIER_OVERWRITTEN, last->pc, pc, writer,
                    (int64_t)(place * (uint64_t)l->grain), NULL);
    own->states[place].initialised = pc + 1;
  }
}

/* A lane asks whether a phase is complete. */
static void wait_for(Launch *l, Block *b, Warp *w, Mbarrier *m, int32_t pc, const Instruction *i,
                     int lane) {
  int flags = operands_of(l, i)->flags, parity = flags & PARITY, thread = first_of(b, w) + lane,
      done;
  int64_t phase = parity ? 0 : (int64_t)(AT(uint64_t, i->b)[lane] >> PENDING_BITS);
  if (parity)
    done = (AT(uint32_t, i->b)[lane] & 1) != (m->phase & 1);
  else
    done = phase < m->phase;
  if (!parity && (phase > m->phase || phase < m->phase - 1))
    report_thread(l, b, WRONG_STATE, pc, NONE, thread, 0, NUMBERS(m->start, m->phase, phase));
  uint32_t bit = 1u << lane;
  if (!done)
    *AT(uint32_t, i->d) &= ~bit;
  w->refused = done ? w->refused & ~bit : w->refused | bit;
  m->refused |= !done;
  if (done)
    m->waited = m->phase;
  if (!done || !l->checking || flags & RELAXED)
    return;
  vc_acquire(l, b, number_of_warp(b, w), bit, &m->done);
  b->has_acquired = 1;
}

/* cp.async.mbarrier.arrive: lanes arrive once their cp.async have landed. COUNTED (noinc): the
 * arrivals are among those expected; else each one adds one to them first. */
static void track(Launch *l, Block *b, const Warp *w, Mbarrier *m, int32_t pc, const Instruction *i,
                  uint32_t lanes) {
  Async *own = b->async;
  PendingArrival new = {.barrier = (int32_t)(m - own->mbarriers),
                        .pc = pc,
                        .warp = number_of_warp(b, w),
                        .lanes = lanes};
  new.first_later = own->issued;
  if (!(operands_of(l, i)->flags & COUNTED))
    m->pending += __builtin_popcount(lanes);
  if (l->checking)
    vc_release(l, b, &m->gathered, new.warp, lanes);
  append(l, &b->chunks, &own->tracked, &own->tracked_count, &new, sizeof new);
}

/* Lanes arrive at an mbarrier, which must be there if it is another block's. */
static void arrive_remotely(Launch *l, Block *b, const Warp *w, Mbarrier *m, int32_t pc,
                            uint32_t lanes) {
  int rank = (int)(m->start / l->shared_stride);
  if (rank == rank_of(l, b, w))
    return;
  if (b->left >> rank & 1)
    report_lanes(l, b, w, BLOCK_LEFT, pc, lanes, 0);
  m->remote_pc = pc + 1;
  m->remote_thread = first_of(b, w) + __builtin_ctz(lanes);
  m->remote_time = b->clock;
}

/* Lanes use mbarriers: those of one mbarrier together. */
static void of_mbarrier(Launch *l, Block *b, Warp *w, int32_t pc, const Instruction *i,
                        uint32_t mask) {
  const AsyncOperands *operands = operands_of(l, i);
  int first = first_of(b, w);
  int64_t start[LANES];
  if (i->op == WAIT_FOR)
    *AT(uint32_t, i->d) |= mask;
  FOR_LANES(k, mask) {
    start[k] = (int64_t)shared_of(l, b, w, operands->shared, k, 8);
    if (i->op == INITIALISE)
      initialise(l, b, pc, first + k, start[k], value_of(w, operands->number, k, 0));
    if (i->op == ARRIVE_AT && i->d != NONE)
      AT(uint64_t, i->d)[k] = 0;
  }
  for (uint32_t rest = i->op == INITIALISE ? 0 : mask, lanes; rest; rest &= ~lanes) {
    int from = __builtin_ctz(rest);
    lanes = 0;
    FOR_LANES(k, rest)
      lanes |= (uint32_t)(start[k] == start[from]) << k;
    Mbarrier *m = find(l, b, pc, first + 31 - __builtin_clz(lanes), start[from]);
    if (!m)
      continue;
    if (i->op == INVALIDATE)
      m->alive = 0;
    FOR_CELLS(place, (uint64_t)m->start, i->op == INVALIDATE && l->checking ? 8u : 0u, l->grain)
      b->async->states[place].initialised = 0;
    if (i->op == TRACK)
      track(l, b, w, m, pc, i, lanes);
    if (i->op == WAIT_FOR)
      land(l, b, (int)(m - b->async->mbarriers));
    if (i->op == ARRIVE_AT && l->checking && !(operands->flags & RELAXED)) {
      arrive_remotely(l, b, w, m, pc, lanes);
      vc_release(l, b, &m->gathered, number_of_warp(b, w), lanes);
    }
    FOR_LANES(k, lanes) {
      int64_t number = value_of(w, operands->number, k, i->op == ARRIVE_AT);
      if (i->op == WAIT_FOR)
        wait_for(l, b, w, m, pc, i, k);
      if (i->op == EXPECT)
        count_down(l, b, m, pc, first + k, 0, operands->flags & COMPLETES ? -number : number, 0);
      if (llabs(m->bytes) > MOST_COUNT)
        report_thread(l, b, BYTES_TOO_MANY, pc, NONE, first + k, 0, NUMBERS(m->start, MOST_COUNT));
      if (i->op != ARRIVE_AT)
        continue;
      if (i->d != NONE)
        AT(uint64_t, i->d)[k] = (uint64_t)m->phase << PENDING_BITS | (uint64_t)m->pending;
      count_down(l, b, m, pc, first + k, number, value_of(w, operands->size, k, 0),
                 operands->flags);
    }
    uint32_t done = i->op == WAIT_FOR ? lanes & *AT(uint32_t, i->d) : 0;
    if (done)
      note(l, b, w, NULL, pc, SHARED, done, NULL);
  }
  if (i->op == ARRIVE_AT || i->op == TRACK)
    tick(b);
}

/* What the mbarriers of a block lack that threads wait for; or a finding where one lacks nothing
 * but the right number of bytes. The status of the launch. */
static int explain(Launch *l, const Block *b) {
  for (int k = 0; b->async && k < b->async->mbarriers_count; k++) {
    const Mbarrier *m = &b->async->mbarriers[k];
    if (m->alive && m->bytes && !m->pending) {
      int32_t kind = m->bytes > 0 ? BYTES_MISSING : BYTES_SURPLUS;
      report_thread(l, b, kind, m->expected_pc, NONE, m->expected_thread, 0,
                    NUMBERS(m->start, m->phase, llabs(m->bytes)));
      return ABORTED;
    }
    if (m->alive && m->refused)
      report_thread(l, b, PHASE_LACKS, k, NONE, 0, 0,
                    NUMBERS(m->start % l->shared_stride, m->phase, llabs(m->bytes), m->pending,
                            m->count, m->bytes));
  }
  return ENDLESS;
}

#endif
